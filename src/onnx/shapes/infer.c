/* The walk over the nodes: inputs have shapes, each operator's rule gives its outputs theirs; where none can, what the
 * file or the user says of the value stands in. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What rules share ------------------------------------------------------------------------------------------------- */

const graph_value *step_in(const step *s, unsigned i)
{
    return step_has(s, i) ? &s->g->values[s->node->inputs[i]] : NULL;
}

graph_value *step_out(const step *s, unsigned i)
{
    bool there = i < s->node->output_count && s->node->outputs[i] != GRAPH_NONE;
    return there ? &s->g->values[s->node->outputs[i]] : NULL;
}

bool step_has(const step *s, unsigned i)
{
    return i < s->node->input_count && s->node->inputs[i] != GRAPH_NONE;
}

const graph_number *step_contents(const step *s, unsigned i)
{
    return step_has(s, i) ? graph_contents(s->g, s->node->inputs[i]) : NULL;
}

void step_say(step *s, bool wrong, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->why, sizeof s->why, format, arguments);
    va_end(arguments);
    s->wrong = wrong;
}

uint64_t graph_elements(const graph_shape *shape, uint32_t from, uint32_t to)
{
    uint64_t elements = 1;
    for (uint32_t i = from; i < to; i++)
        if (shape->dims[i] == 0)
            return 0;
    for (uint32_t i = from; i < to; i++)
        if (__builtin_mul_overflow(elements, (uint64_t)shape->dims[i], &elements))
            return UINT64_MAX;
    return elements;
}

bool graph_addressable(const graph_shape *shape)
{
    uint64_t places = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] != 0 &&
            (__builtin_mul_overflow(places, (uint64_t)shape->dims[i], &places) || places > (uint64_t)INT64_MAX / 16))
            return false;
    return true;
}

const char *graph_shape_text(const graph_shape *shape, char *text, size_t capacity)
{
    size_t at = 0;
    snprintf(text, capacity, "a single number");
    for (uint32_t i = 0; i < shape->rank && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, shape->dims[i] < 0 ? "%s?" : "%s%" PRId64, i ? "x" : "",
                               shape->dims[i]);
    return text;
}

bool step_give(step *s, unsigned output, int32_t type, const graph_shape *shape)
{
    graph_value *value = step_out(s, output);
    char text[GRAPH_SHAPE_TEXT];
    if (!value)
        return true;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return step_wrong(s, "it would make %s", graph_shape_text(shape, text, sizeof text));
    if (onnx_type_bits(type) == 0)
        return step_unknown(s, "elements of type %s have no fixed size", onnx_type_name(type));
    if (!graph_addressable(shape))
        return step_wrong(s, "it would make %s, more than can be addressed",
                          graph_shape_text(shape, text, sizeof text));
    value->type = type;
    value->shape = *shape;
    value->elements = graph_elements(shape, 0, shape->rank);
    value->bytes = (value->elements * onnx_type_bits(type) + 7) / 8;
    value->shaped = true;
    return true;
}

bool step_give_like(step *s, unsigned output, const graph_value *value)
{
    return step_give(s, output, value->type, &value->shape);
}

bool step_axis(step *s, int64_t axis, uint32_t rank, uint32_t *out)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return step_wrong(s, "its axis %" PRId64 " is none of %u", axis, rank);
    *out = (uint32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

static int ints_of_input(step *s, int input, int64_t *out, int capacity)
{
    const graph_value *value = step_in(s, (unsigned)input);
    const graph_number *numbers = step_contents(s, (unsigned)input);
    if (!numbers) {
        step_say(s, false, "it follows from what is in \"%.*s\", which only a run knows", ONNX_SHOW(value->name));
        return -2;
    }
    if (value->elements > (uint64_t)capacity) {
        step_say(s, true, "\"%.*s\" has %" PRIu64 " numbers, more than can be", ONNX_SHOW(value->name),
                 value->elements);
        return -2;
    }
    for (uint64_t i = 0; i < value->elements; i++)
        if (!graph_whole(value->type, numbers[i], &out[i])) {
            step_say(s, true, "\"%.*s\" has a number that is none", ONNX_SHOW(value->name));
            return -2;
        }
    return (int)value->elements;
}

int step_ints(step *s, const char *name, int input, int64_t *out, int capacity)
{
    if (input >= 0 && step_has(s, (unsigned)input))
        return ints_of_input(s, input, out, capacity);
    int count = name ? graph_ints(s->node, name, out, capacity) : -1;
    if (count == -2)
        step_say(s, true, "its %s are more than %d", name, capacity);
    return count;
}

bool step_broadcast(step *s, graph_shape *into, const graph_shape *more)
{
    char one[GRAPH_SHAPE_TEXT], other[GRAPH_SHAPE_TEXT];
    graph_shape a = *into, b = *more;
    into->rank = a.rank > b.rank ? a.rank : b.rank;
    for (uint32_t i = 0; i < into->rank; i++) {
        int64_t x = i < a.rank ? a.dims[a.rank - 1 - i] : 1, y = i < b.rank ? b.dims[b.rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1)
            return step_wrong(s, "%s and %s do not go together", graph_shape_text(&a, one, sizeof one),
                              graph_shape_text(&b, other, sizeof other));
        into->dims[into->rank - 1 - i] = x == 1 ? y : x;
    }
    return true;
}

/* The walk over the nodes ------------------------------------------------------------------------------------------ */

static bool closed(const graph_shape *shape)
{
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return false;
    return true;
}

/* What the user says of the value; NULL: nothing. */
static const graph_shape *shapes_infer_told(const graph *g, graph_value *value)
{
    for (size_t i = 0; i < g->given->shape_count; i++) {
        graph_given *given = &g->given->shapes[i];
        if (!onnx_text_is(value->name, given->name))
            continue;
        given->used = true;
        value->type = given->type ? given->type : value->type;
        return &given->shape;
    }
    return NULL;
}

/* Inputs ----------------------------------------------------------------------------------------------------------- */

typedef struct words {
    char text[400];
    size_t size;
} words;

static void WEIR_PRINTF(2, 3) add(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof w->text - w->size;
    int n = vsnprintf(w->text + w->size, room, format, arguments);
    va_end(arguments);
    w->size += n < 0 || (size_t)n >= room ? 0 : (size_t)n; /* what does not fit is left out as a whole */
    w->text[w->size] = '\0';
}

/* "--dim batch=N", once for each name. */
static void add_open(words *w, const onnx_text *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char word[100];
        snprintf(word, sizeof word, " --dim %.*s=N", ONNX_SHOW(names[i]));
        if (names[i].size > 0 && !strstr(w->text, word))
            add(w, "%s", word);
    }
}

/* Adds what has to be said for one input without a shape. */
static void ask_for(const graph_value *value, words *dims, words *shapes)
{
    onnx_text names[GRAPH_MAX_RANK];
    uint32_t nameless = 0, count = value->declared ? graph_open_names(value, names) : 0;
    for (uint32_t i = 0; i < count; i++)
        nameless += names[i].size == 0;
    add_open(dims, names, count);
    if (nameless > 0 || !value->declared) {
        add(shapes, " --shape %.*s=", ONNX_SHOW(value->name));
        for (uint32_t i = 0; i < value->said.rank; i++)
            add(shapes, value->said.dims[i] < 0 ? "%sN" : "%s%" PRId64, i ? "x" : "", value->said.dims[i]);
        add(shapes, "%s", value->declared ? "" : "NxN…");
    }
}

static weir_status refuse_open(const graph *g, const graph_value *first)
{
    words dims = {.size = 0}, shapes = {.size = 0};
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].input && !g->values[i].shaped)
            ask_for(&g->values[i], &dims, &shapes);
    return weir_fail(WEIR_ERR_INVALID, "%s: input \"%.*s\" has no size of its own: give%s%s", g->file->name,
                     ONNX_SHOW(first->name), dims.text, shapes.text);
}

/* Takes the shape that is said, unless it is open. */
static bool shapes_infer_take(graph *g, graph_value *value, const graph_shape *shape)
{
    graph_node nobody = {.outputs = &(uint32_t){(uint32_t)(value - g->values)}, .output_count = 1};
    step s = {.g = g, .node = &nobody};
    return shape && closed(shape) && value->type && step_give(&s, 0, value->type, shape);
}

static weir_status shape_inputs(graph *g)
{
    const graph_value *open = NULL;
    for (size_t i = 0; i < g->value_count; i++) {
        graph_value *value = &g->values[i];
        if (!value->input)
            continue;
        if (onnx_type_bits(value->type) == 0)
            return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: input \"%.*s\" is no tensor of numbers", g->file->name,
                             ONNX_SHOW(value->name));
        const graph_shape *user = shapes_infer_told(g, value), *said = user              ? user
                                                                       : value->declared ? &value->said
                                                                                         : NULL;
        if (said && closed(said) && !graph_addressable(said))
            return weir_fail(WEIR_ERR_INVALID, "%s: input \"%.*s\" has dimensions beyond what can be addressed",
                             g->file->name, ONNX_SHOW(value->name));
        if (!shapes_infer_take(g, value, said) && !open)
            open = value;
    }
    return open ? refuse_open(g, open) : WEIR_OK;
}

/* Nodes ------------------------------------------------------------------------------------------------------------ */

static weir_status WEIR_PRINTF(4, 5)
    refuse(const graph *g, const graph_node *node, weir_status status, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return weir_fail(status, "%s: byte %zu: node \"%.*s\" (%.*s): %s", g->file->name, graph_offset(g, node->proto),
                     ONNX_SHOW(node->name), ONNX_SHOW(node->op), text);
}

static weir_status shapes_infer_check_inputs(const graph *g, const graph_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const graph_value *value = node->inputs[i] == GRAPH_NONE ? NULL : &g->values[node->inputs[i]];
        if (value && !value->shaped)
            return refuse(g, node, WEIR_ERR_CORRUPT, "its input \"%.*s\" is made by nothing before it",
                          ONNX_SHOW(value->name));
    }
    return WEIR_OK;
}

static weir_status shapes_infer_refuse_unknown(const graph *g, const step *s, const graph_value *value)
{
    return refuse(g, s->node, WEIR_ERR_INVALID,
                  "no shape for its output \"%.*s\": %s; give --shape %.*s=NxN…%s, or have the shapes written into "
                  "the file (onnx.shape_inference.infer_shapes_path, or onnxruntime.tools.symbolic_shape_infer)",
                  ONNX_SHOW(value->name), s->why, ONNX_SHOW(value->name), value->type ? "" : ":TYPE");
}

/* What is said of an output has to be as many elements, of the same type, as its operator says. */
static weir_status shapes_infer_check_stored(const graph *g, const step *s, const graph_value *value)
{
    char from[GRAPH_SHAPE_TEXT], to[GRAPH_SHAPE_TEXT];
    const graph_value *x = step_in(s, 0);
    if (x->type == value->type && x->elements == value->elements)
        return WEIR_OK;
    return refuse(g, s->node, WEIR_ERR_CORRUPT,
                  "its output \"%.*s\" is said to be %s of %s, and \"%.*s\", whose elements it has, is %s of %s",
                  ONNX_SHOW(value->name), graph_shape_text(&value->shape, to, sizeof to), onnx_type_name(value->type),
                  ONNX_SHOW(x->name), graph_shape_text(&x->shape, from, sizeof from), onnx_type_name(x->type));
}

/* For outputs without a shape from the rule, takes the type and shape that the user has given, or else the file's.
 * Fails if an output has neither. */
static weir_status take_what_is_said(graph *g, step *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < s->node->output_count; i++) {
        graph_value *value = step_out(s, i);
        if (!value || value->shaped)
            continue;
        bool keeps = s->keeps && i == 0;
        if (keeps && !value->type)
            value->type = step_in(s, 0)->type;
        if (!shapes_infer_take(g, value, shapes_infer_told(g, value)) &&
            !shapes_infer_take(g, value, value->declared ? &value->said : NULL))
            return shapes_infer_refuse_unknown(g, s, value);
        status = keeps ? shapes_infer_check_stored(g, s, value) : WEIR_OK;
    }
    return status;
}

/* Does the file say something else of the value than its operator? What the operator says is what will happen. */
static void shapes_infer_compare(graph *g, uint32_t id)
{
    const graph_value *value = &g->values[id];
    bool other = value->declared && value->said.rank != value->shape.rank;
    for (uint32_t i = 0; value->declared && !other && i < value->shape.rank; i++)
        other = value->said.dims[i] >= 0 && value->said.dims[i] != value->shape.dims[i];
    if (other && g->guesses++ == 0)
        g->first_guess = id;
}

/* Is it the same in every run? False for weights that a node unpacks, as the unpacked weights are not kept. */
static bool shapes_infer_is_constant(const graph *g, const graph_node *node)
{
    static const char never[] =
        "DequantizeLinear RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial If";
    if (onnx_text_among(node->op, never))
        return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != GRAPH_NONE && !g->values[node->inputs[i]].constant)
            return false;
    return true;
}

static void mark_constant(graph *g, graph_node *node)
{
    if (!shapes_infer_is_constant(g, node))
        return;
    node->folded = true;
    for (uint32_t i = 0; i < node->output_count; i++)
        if (node->outputs[i] != GRAPH_NONE)
            g->values[node->outputs[i]].constant = true;
}

static bool no_rule(step *s)
{
    const graph_node *node = s->node;
    if (s->g->functions && node->domain.size > 0)
        return step_unknown(s,
                            "%.*s.%.*s may be one of the model's functions; onnx.inliner.inline_local_functions "
                            "puts their nodes in their places",
                            ONNX_SHOW(node->domain), ONNX_SHOW(node->op));
    return step_unknown(s, "what %.*s%s%.*s makes is not known here", ONNX_SHOW(node->domain),
                        node->domain.size ? "." : "", ONNX_SHOW(node->op));
}

static bool has_inputs(step *s, unsigned count)
{
    unsigned all = count & GRAPH_ALL_INPUTS ? s->node->input_count : 0;
    count &= GRAPH_ALL_INPUTS - 1;
    for (unsigned i = 0; i < count || i < all; i++)
        if (!step_has(s, i))
            return step_wrong(s, "its input %u is missing", i);
    return true;
}

static weir_status infer_node(graph *g, graph_node *node)
{
    step s = {.g = g, .node = node};
    weir_status status = shapes_infer_check_inputs(g, node);
    if (status != WEIR_OK)
        return status;
    const graph_operator *op = graph_operator_of(node);
    node->known = op != NULL;
    bool good = op ? has_inputs(&s, op->inputs) && op->rule(&s) : no_rule(&s);
    if (!good && s.wrong)
        return refuse(g, node, WEIR_ERR_CORRUPT, "%s", s.why);
    if (good) /* for those that the rule does not know of */
        step_say(&s, false, "an output that is not known here");
    status = take_what_is_said(g, &s);
    for (uint32_t i = 0; status == WEIR_OK && i < node->output_count; i++)
        if (node->outputs[i] != GRAPH_NONE)
            shapes_infer_compare(g, node->outputs[i]);
    if (status == WEIR_OK && good)
        graph_fold(&s);
    if (status == WEIR_OK && op) /* of an unknown operator nothing is known */
        mark_constant(g, node);
    return status;
}

weir_status graph_infer(graph *g)
{
    weir_status status = shape_inputs(g);
    for (size_t i = 0; status == WEIR_OK && i < g->node_count; i++)
        status = infer_node(g, &g->nodes[i]);
    for (size_t i = 0; status == WEIR_OK && i < g->output_count; i++)
        if (!g->values[g->outputs[i]].shaped)
            status = weir_fail(WEIR_ERR_CORRUPT, "%s: its output \"%.*s\" is made by nothing", g->file->name,
                               ONNX_SHOW(g->values[g->outputs[i]].name));
    return status == WEIR_OK ? graph_capture(g) : status;
}
