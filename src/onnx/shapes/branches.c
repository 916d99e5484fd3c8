/* Graphs inside nodes (If, Loop, Scan). The two branches of an If, of which one runs, are planned by themselves; what
 * the larger one needs is one value of the graph around, live while the node runs. Where the condition follows from shapes, the
 * branch that runs is alone. The others are not looked into, but
 * for what they take from outside. */
#include "onnx/shapes/rules.h"

#include <weir/plan.h>

#include <string.h>

/* Captured values: a name that a body does not define means a value of the graph around ---------------------------- */

/* Field numbers: NodeProto, AttributeProto, GraphProto, ValueInfoProto. */
enum {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_BODY = 6,
    ATTRIBUTE_BODIES = 11,
    GRAPH_NODE = 1,
    GRAPH_OUTPUT = 12,
    VALUE_NAME = 1
};

/* The bodies of a node. */
typedef struct looking {
    graph *g;
    const graph_node *node;
    size_t count, made; /* of bodies; of values that their nodes make, at every depth */
    weir_status status;
} looking;

/* Adds the surrounding graph's value of this name, if any was there before the node. Called for all names that the body's
 * nodes read and that the body hands out, also for names of the body's own values. */
static void branches_capture(looking *it, onnx_text name)
{
    uint32_t id = name.size ? graph_find(it->g, name) : GRAPH_NONE;
    if (id < it->node->before && it->status == WEIR_OK)
        it->status = graph_id_add(it->g, &it->g->captures, id);
}

static void look_at_body(looking *it, onnx_text body);

// NOLINTBEGIN(misc-no-recursion): as deep as onnx_check lets messages be

/* The field is an attribute of a node. */
static void look_at_attribute(looking *it, const onnx_field *field, bool outermost)
{
    EACH_FIELD (part, field->data, field->size)
        if (part.number == ATTRIBUTE_BODY || part.number == ATTRIBUTE_BODIES) {
            it->count += outermost;
            look_at_body(it, onnx_field_text(&part));
        }
}

static void look_at_node(looking *it, onnx_text node)
{
    EACH_FIELD (field, (const uint8_t *)node.text, node.size)
        if (field.number == NODE_INPUT)
            branches_capture(it, onnx_field_text(&field));
        else if (field.number == NODE_OUTPUT)
            it->made += field.size > 0;
        else if (field.number == NODE_ATTRIBUTE)
            look_at_attribute(it, &field, false);
}

static void look_at_body(looking *it, onnx_text body)
{
    EACH_FIELD (field, (const uint8_t *)body.text, body.size) {
        if (field.number == GRAPH_NODE)
            look_at_node(it, onnx_field_text(&field));
        EACH_FIELD (part, field.data, field.number == GRAPH_OUTPUT ? field.size : 0)
            if (part.number == VALUE_NAME)
                branches_capture(it, onnx_field_text(&part));
    }
}

// NOLINTEND(misc-no-recursion)

static weir_status branches_capture_all(graph *g, graph_node *node)
{
    looking it = {.g = g, .node = node, .status = WEIR_OK};
    size_t before = g->captures.count;
    EACH_FIELD (field, node->proto, node->proto_size)
        if (field.number == NODE_ATTRIBUTE)
            look_at_attribute(&it, &field, true);
    node->captured_count = (uint32_t)(g->captures.count - before);
    if (!node->branched) {
        g->bodies += it.count > 0;
        g->inside += it.made;
    }
    return it.status;
}

weir_status graph_capture(graph *g)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && !g->file->plain && i < g->node_count; i++)
        status = branches_capture_all(g, &g->nodes[i]);
    uint32_t *at = g->captures.list;
    for (size_t i = 0; at && i < g->node_count; i++) {
        g->nodes[i].captured = at;
        at += g->nodes[i].captured_count;
    }
    return status;
}

/* Branches --------------------------------------------------------------------------------------------------------- */

/* The arena of its plan. */
static weir_status branches_arena_of(graph *body, const graph_memory *memory, uint64_t *bytes)
{
    weir_plan *plan = NULL;
    weir_plan_details summary = WEIR_INIT(weir_plan_details);
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    options.alignment = body->alignment ? body->alignment : 256;
    options.effort = body->effort / 4 + 1; /* something is left for the next ones */
    options.mode = body->effort ? WEIR_PLAN_SEARCH : WEIR_PLAN_QUICK;
    weir_status status = weir_plan_create(memory->buffers, &options, &plan);
    if (status == WEIR_OK)
        status = weir_plan_info(plan, &summary);
    if (status == WEIR_OK)
        body->effort -= summary.effort < body->effort ? summary.effort : body->effort;
    *bytes = summary.arena_of[WEIR_KIND_DEVICE];
    weir_plan_destroy(plan);
    return status;
}

static weir_status taken_by(graph *body, uint64_t *most)
{
    uint64_t bytes = 0;
    if (!body->takes(body, body->user, &bytes))
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a branch", body->file->name);
    bytes = bytes < INT64_MAX ? bytes : INT64_MAX;
    *most = bytes > *most ? bytes : *most;
    return WEIR_OK;
}

/* Measures a branch: raises *most to the bytes beside the branch's outputs, and adds the weights and constants to
 * `sum`. With the caller's own measure (`takes`), weights and constants are not counted. */
static weir_status branches_measure(graph *body, graph_branches *sum, uint64_t *most)
{
    graph_memory memory;
    uint64_t bytes = 0;
    if (body->takes)
        return taken_by(body, most);
    weir_status status = graph_memory_make(body, !body->apart, NULL, &memory);
    if (status != WEIR_OK)
        return status;
    status = branches_arena_of(body, &memory, &bytes);
    if (status == WEIR_OK) {
        *most = bytes > *most ? bytes : *most;
        sum->weights += memory.weights;
        sum->constants += memory.constants;
        sum->weight_count += memory.weight_count;
    }
    graph_memory_clear(&memory);
    return status;
}

static bool branches_look_into(step *s, const char *name, graph *body, graph_branches *sum, uint64_t *most)
{
    onnx_text text;
    if (!graph_body(s->node, name, &text))
        return step_unknown(s, "it has no %s", name);
    weir_status status = graph_read_body(s->g, text, body);
    if (status == WEIR_OK) {
        status = graph_infer(body);
        if (status == WEIR_OK)
            status = branches_measure(body, sum, most);
        s->g->effort = body->effort;
    }
    return status == WEIR_OK || step_unknown(s, "its %s is not known: %s", name, weir_detail());
}

static bool add_scratch(step *s, uint64_t bytes, graph_branches *sum)
{
    graph *g = s->g;
    sum->scratch = GRAPH_NONE;
    if (bytes > 0 && graph_value_add(g, (onnx_text){0}, &sum->scratch) != WEIR_OK)
        return step_unknown(s, "%s", weir_detail());
    if (bytes > 0) {
        graph_node maker = {.outputs = &sum->scratch, .output_count = 1};
        step inner = {.g = g, .node = &maker};
        graph_value *value = &g->values[sum->scratch];
        value->name = s->node->name.size ? s->node->name : s->node->op;
        value->maker = (uint32_t)(s->node - g->nodes);
        if (!step_give(&inner, 0, ONNX_UINT8, &(graph_shape){1, {(int64_t)bytes}}))
            return step_unknown(s, "%s", inner.why);
    }
    s->node->branches = *sum;
    return true;
}

/* Counts an If whose branches were looked at; `no` NULL: one of them. Nodes inside the branches whose bodies were not looked at
 * are added to the counts. */
static void branches_count(step *s, const graph *yes, const graph *no)
{
    s->g->bodies += yes->bodies + (no ? no->bodies : 0);
    s->g->inside += yes->inside + (no ? no->inside : 0);
    s->g->branched += yes->branched + (no ? no->branched : 0) + 1;
    s->node->branched = true;
}

static bool branches_alike(const graph_value *a, const graph_value *b)
{
    return a->type == b->type && a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof *a->shape.dims) == 0;
}

/* Gives the outputs the types and shapes on which the two branches agree. */
static bool branches_give(step *s, const graph *yes, const graph *no)
{
    char one[GRAPH_SHAPE_TEXT], other[GRAPH_SHAPE_TEXT];
    if (s->node->output_count > yes->output_count || s->node->output_count > no->output_count)
        return step_unknown(s, "its branches have fewer outputs than it");
    for (uint32_t i = 0; i < s->node->output_count; i++) {
        const graph_value *a = &yes->values[yes->outputs[i]], *b = &no->values[no->outputs[i]];
        graph_value *out = step_out(s, i);
        if (out && a->type == b->type)
            out->type = a->type;
        if (!branches_alike(a, b))
            return step_unknown(s, "one branch makes %s of %s, the other %s of %s",
                                graph_shape_text(&a->shape, one, sizeof one), onnx_type_name(a->type),
                                graph_shape_text(&b->shape, other, sizeof other), onnx_type_name(b->type));
        if (!step_give_like(s, i, a))
            return false;
    }
    return true;
}

/* Returns the branch that runs, if the condition is known; else NULL. The branch that does not run makes no values. */
static const char *only_branch(const step *s)
{
    const graph_number *condition = step_contents(s, 0);
    if (!condition || step_in(s, 0)->elements != 1)
        return NULL;
    return condition->i ? "then_branch" : "else_branch";
}

/* Only the branch that runs is looked at. */
static bool one_branch(step *s, const char *name)
{
    graph body = {.file = NULL};
    graph_branches sum = {.scratch = GRAPH_NONE};
    uint64_t most = 0;
    bool good = branches_look_into(s, name, &body, &sum, &most) && add_scratch(s, most, &sum);
    if (good)
        branches_count(s, &body, NULL);
    good = good && branches_give(s, &body, &body);
    graph_clear(&body);
    return good;
}

/* Whether nothing is said of the shape of an output, so that it follows from both branches or not at all. */
static bool takes_both(const step *s)
{
    const graph_givens *given = s->g->given;
    for (uint32_t i = 0; i < s->node->output_count; i++) {
        const graph_value *out = step_out(s, i);
        bool said = !out || out->shaped || out->declared;
        for (size_t k = 0; !said && k < given->shape_count; k++)
            said = onnx_text_is(out->name, given->shapes[k].name);
        if (!said)
            return true;
    }
    return false;
}

/* A caller that works out what a body takes tries sizes of the inputs in turn. With a size that fails in the first branch, the second is
 * not tried. */
static bool both_branches(step *s)
{
    graph yes = {.file = NULL}, no = {.file = NULL};
    graph_branches sum = {.scratch = GRAPH_NONE};
    uint64_t most = 0;
    bool first = branches_look_into(s, "then_branch", &yes, &sum, &most),
         fails = !first && s->g->takes && takes_both(s);
    bool second = !fails && branches_look_into(s, "else_branch", &no, &sum, &most);
    bool good = (first || second) && add_scratch(s, most, &sum) && first && second;
    if (good)
        branches_count(s, &yes, &no);
    good = good && branches_give(s, &yes, &no);
    graph_clear(&yes);
    graph_clear(&no);
    return good;
}

bool rule_if(step *s)
{
    const char *only = only_branch(s);
    return only ? one_branch(s, only) : both_branches(s);
}
