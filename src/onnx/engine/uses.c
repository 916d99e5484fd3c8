/* What the nodes of a model do with its weights (model.h). */
#include "model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers: GraphProto, NodeProto, AttributeProto, ValueInfoProto, TensorProto. */
enum {
    GRAPH_NODE = 1,
    GRAPH_WEIGHT = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_SPARSE = 15,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_GRAPHS = 11,
    VALUE_NAME = 1,
    TENSOR_NAME = 8
};

enum { LARGE = 1024 };

typedef struct named {
    onnx_text name;
    onnx_use *use;
    /* Of a constant in a graph inside a node. */
    const uint8_t *at; /* its place in the file */
    size_t made;       /* how often a graph of the model gives the name to a value */
} named;

typedef struct reading {
    named *list; /* by name */
    size_t count;
    named *copies; /* what Identity nodes of the main graph call them; by name, once all are known */
    size_t copy_count, copy_room;
    named *deep; /* constants of graphs inside nodes; by name */
    size_t deep_count;
    const uint8_t *begin, *end; /* of the graph that is read */
    bool functions, transposes, constants;
    bool sparse; /* there are initializers whose names are not read */
    bool plain;  /* no attribute is looked into */
} reading;

static int onnx_uses_by_name(const void *a, const void *b)
{
    const onnx_text *x = &((const named *)a)->name, *y = &((const named *)b)->name;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->size ? memcmp(x->text, y->text, x->size) : 0;
}

static onnx_use *onnx_uses_find(const reading *r, onnx_text name)
{
    named key = {.name = name},
          *found = name.size ? bsearch(&key, r->list, r->count, sizeof key, onnx_uses_by_name) : NULL;
    if (!found && name.size && r->copy_count)
        found = bsearch(&key, r->copies, r->copy_count, sizeof key, onnx_uses_by_name);
    return found ? found->use : NULL;
}

static named *onnx_uses_find_deep(const reading *r, const onnx_field *name)
{
    named key = {.name = {(const char *)name->data, name->size}};
    return r->deep_count && name->size ? bsearch(&key, r->deep, r->deep_count, sizeof key, onnx_uses_by_name) : NULL;
}

/* Counts that a graph gives the name to a value. */
static void onnx_uses_make(const reading *r, const onnx_field *name)
{
    named *found = onnx_uses_find_deep(r, name);
    if (found)
        found->made++;
}

/* Notes a reader of `name`: `kind` if that is a weight of the main graph, `deep_kind` if it is a constant of a graph inside a
 * node; 0: no reader of such a constant. */
static void onnx_uses_use(const reading *r, const onnx_field *name, unsigned kind, unsigned deep_kind, bool valued)
{
    onnx_use *found = onnx_uses_find(r, onnx_field_text(name));
    const named *deep = found || !deep_kind ? NULL : onnx_uses_find_deep(r, name);
    if (!found && !deep)
        return;
    if (deep) /* a reader in another graph bars the constant from the main graph */
        kind = deep->at >= r->begin && deep->at < r->end ? deep_kind : ONNX_USE_OTHER;
    found = found ? found : deep->use;
    found->kinds |= kind;
    found->valued |= valued;
    found->count++;
}

/* Is the node an Identity, whose output is another name of the input? */
static bool onnx_uses_is_identity(const onnx_node *node)
{
    return onnx_text_is(node->kind, "Identity") && onnx_node_is_standard(node);
}

/* Notes the names that Identity nodes give to weights: a reader of such a name is a reader of the weight. Without host
 * memory the names stay unknown, and the Identity counts as a reader of the weight (ONNX_USE_OTHER). */
static void read_copies(reading *r, const onnx_graph *graph)
{
    EACH_FIELD (field, graph->data, graph->size) {
        onnx_node node = field.number == GRAPH_NODE ? onnx_node_read(&field) : (onnx_node){0};
        onnx_use *its = onnx_uses_is_identity(&node) ? onnx_uses_find(r, node.input) : NULL;
        if (!its)
            continue;
        if (r->copy_count == r->copy_room) {
            size_t room = r->copy_room ? 2 * r->copy_room : 32;
            named *list = realloc(r->copies, room * sizeof *list);
            if (!list)
                return;
            r->copies = list;
            r->copy_room = room;
        }
        r->copies[r->copy_count++] = (named){node.output, its, NULL, 0};
    }
}

static void onnx_uses_read_graph(reading *r, const uint8_t *data, size_t size, unsigned deep);

static void onnx_uses_read_attribute(reading *r, const onnx_field *attribute, unsigned deep)
{
    EACH_FIELD (field, attribute->data, attribute->size)
        if (field.number == ATTRIBUTE_GRAPH || field.number == ATTRIBUTE_GRAPHS)
            onnx_uses_read_graph(r, field.data, field.size, deep + 1);
}

/* An operator, and the kinds of use of its inputs, in order; the last kind holds for all further inputs. */
typedef struct operation {
    const char *name;
    unsigned kinds[4];
} operation;

#define OTHERS                                                                                                         \
    {                                                                                                                  \
        ONNX_USE_OTHER, ONNX_USE_OTHER, ONNX_USE_OTHER, ONNX_USE_OTHER                                                 \
    }
#define GATES                                                                                                          \
    {                                                                                                                  \
        ONNX_USE_OTHER, ONNX_USE_GATES, ONNX_USE_GATES, ONNX_USE_OPERAND                                               \
    }

static const operation operations[] = {
    {"MatMul", {ONNX_USE_OPERAND, ONNX_USE_RIGHT, ONNX_USE_OTHER, ONNX_USE_OTHER}},
    {"MatMulInteger", {ONNX_USE_OPERAND, ONNX_USE_RIGHT, ONNX_USE_OTHER, ONNX_USE_OTHER}},
    {"Gemm", {ONNX_USE_OPERAND, ONNX_USE_RIGHT, ONNX_USE_OPERAND, ONNX_USE_OPERAND}},
    {"Conv", {ONNX_USE_OTHER, ONNX_USE_OPERAND, ONNX_USE_OPERAND, ONNX_USE_OPERAND}},
    {"ConvTranspose", {ONNX_USE_OTHER, ONNX_USE_OPERAND, ONNX_USE_OPERAND, ONNX_USE_OPERAND}},
    {"LSTM", GATES},
    {"GRU", GATES},
    {"RNN", {ONNX_USE_OTHER, ONNX_USE_OPERAND, ONNX_USE_OPERAND, ONNX_USE_OPERAND}},
    {"Gather", {ONNX_USE_TABLE, ONNX_USE_OTHER, ONNX_USE_OTHER, ONNX_USE_OTHER}},
    {NULL, OTHERS},
};

/* ONNX Runtime's own operators, but for the quantized ones: transpositions are moved through those. A model's functions
 * may be in that domain, too. */
static const operation fused = {"", {ONNX_USE_OPERAND, ONNX_USE_OPERAND, ONNX_USE_OPERAND, ONNX_USE_OPERAND}};
static const operation quantized_lstm = {"DynamicQuantizeLSTM", GATES};

static bool is_fused(const reading *r, onnx_text domain, onnx_text name)
{
    return !r->functions && onnx_text_is(domain, "com.microsoft") && name.size && !strchr("QD", name.text[0]);
}

/* `*own` gets the name of one of ONNX's own operators, and no text for another. */
static const operation *onnx_uses_operation_of(reading *r, const onnx_node *node, size_t size, onnx_text *own)
{
    onnx_text name = node->kind, domain = node->domain;
    const operation *it = operations;
    r->constants |= onnx_text_is(name, "Constant") && size >= LARGE;
    bool standard = onnx_node_is_standard(node);
    r->transposes |= onnx_text_is(name, "Transpose") || !(standard || onnx_text_is(domain, "com.microsoft"));
    while (it->name && !(standard && onnx_text_is(name, it->name)))
        it++;
    *own = standard ? name : (onnx_text){0};
    if (!r->functions && onnx_text_is(domain, "com.microsoft") && onnx_text_is(name, quantized_lstm.name))
        return &quantized_lstm;
    return is_fused(r, domain, name) ? &fused : it;
}

/* From which input on a standard operator only computes with whole numbers that it reads: they decide no shape, and are
 * passed on to nothing that could. Of any other every input may be a size, an axis, or on its way to become one. */
static unsigned computes_from(onnx_text name)
{
    static const struct {
        const char *name;
        unsigned input;
    } list[] = {{"ConvInteger", 0},   {"DequantizeLinear", 0}, {"Gather", 1},        {"GatherElements", 1},
                {"GatherND", 1},      {"MatMul", 0},           {"MatMulInteger", 0}, {"QLinearConv", 0},
                {"QLinearMatMul", 0}, {"ScatterElements", 1},  {"ScatterND", 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (onnx_text_is(name, list[i].name))
            return list[i].input;
    return UINT_MAX;
}

static void onnx_uses_read_node(reading *r, const onnx_field *node, unsigned deep)
{
    onnx_text name;
    onnx_node read = onnx_node_read(node);
    const operation *its = onnx_uses_operation_of(r, &read, node->size, &name);
    unsigned input = 0, at = 0, computes = computes_from(name);
    if (deep == 0 && onnx_uses_is_identity(&read) && onnx_uses_find(r, read.output))
        return;
    EACH_FIELD (field, node->data, node->size) {
        if (field.number == NODE_ATTRIBUTE && !r->plain)
            onnx_uses_read_attribute(r, &field, deep);
        if (field.number == NODE_OUTPUT)
            onnx_uses_make(r, &field);
        if (field.number != NODE_INPUT)
            continue;
        onnx_uses_use(r, &field, deep == 0 ? its->kinds[input] : ONNX_USE_OTHER,
                      deep == 1 ? its->kinds[input] : ONNX_USE_OTHER, at++ < computes);
        input += input < 3;
    }
}

/* Notes the name in the field `number` of the message; `made`: the graph gives the name to a value. An input of the graph is no
 * constant, even if an initializer is its default; an initializer of a subgraph may have the name of one of the main graph's. */
static void use_named(const reading *r, const onnx_field *message, uint32_t number, unsigned kind, bool made)
{
    EACH_FIELD (field, message->data, message->size) {
        if (field.number != number)
            continue;
        onnx_uses_use(r, &field, kind, made ? 0 : kind, false);
        if (made)
            onnx_uses_make(r, &field);
    }
}

static void onnx_uses_read_graph(reading *r, const uint8_t *data, size_t size, unsigned deep)
{
    const uint8_t *begin = r->begin, *end = r->end;
    r->begin = data;
    r->end = data + size;
    EACH_FIELD (field, data, size) {
        if (field.number == GRAPH_NODE) {
            onnx_uses_read_node(r, &field, deep);
        } else if (field.number == GRAPH_INPUT || field.number == GRAPH_OUTPUT) {
            use_named(r, &field, VALUE_NAME, ONNX_USE_OTHER, field.number == GRAPH_INPUT);
        } else if (field.number == GRAPH_WEIGHT && deep > 0) {
            use_named(r, &field, TENSOR_NAME, ONNX_USE_OTHER | ONNX_USE_HIDDEN, true);
            r->constants = true;
        }
        r->sparse |= field.number == GRAPH_SPARSE;
    }
    r->begin = begin;
    r->end = end;
}

/* Of a constant whose name several graphs of the model give to a value, the readers are not told apart. */
static void onnx_uses_settle(const reading *r)
{
    for (size_t i = 0; i < r->deep_count; i++)
        if (r->deep[i].made != 1 || r->functions || r->sparse)
            *r->deep[i].use = (onnx_use){.kinds = ONNX_USE_OTHER};
}

weir_status onnx_uses_read(const onnx_graph *graph, onnx_uses *out)
{
    size_t all = graph->weight_count + graph->inner_count;
    reading r = {.list = calloc(all + 1, sizeof *r.list),
                 .functions = graph->functions,
                 .plain = graph->plain,
                 .deep = calloc(graph->inner_count + 1, sizeof *r.deep),
                 .transposes = graph->functions,
                 .constants = graph->functions};
    *out = (onnx_uses){.of = calloc(all + 1, sizeof *out->of)};
    weir_status status =
        r.list && r.deep && out->of ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the names of weights");
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++)
        r.list[r.count++] = (named){graph->weights[i].name, &out->of[i], NULL, 0};
    for (size_t i = 0; status == WEIR_OK && i < graph->inner_count; i++) {
        named *to = graph->inner[i].deep ? &r.deep[r.deep_count++] : &r.list[r.count++];
        *to = (named){graph->inner[i].name, &out->of[graph->weight_count + i], graph->inner[i].begin, 0};
    }
    if (status == WEIR_OK) {
        qsort(r.deep, r.deep_count, sizeof *r.deep, onnx_uses_by_name);
        qsort(r.list, r.count, sizeof *r.list, onnx_uses_by_name);
        read_copies(&r, graph);
        if (r.copy_count)
            qsort(r.copies, r.copy_count, sizeof *r.copies, onnx_uses_by_name);
        onnx_uses_read_graph(&r, graph->data, graph->size, 0);
        onnx_uses_settle(&r);
        out->transposes = r.transposes;
        out->constants = r.constants;
    }
    free(r.list);
    free(r.deep);
    free(r.copies);
    return status;
}

static bool onnx_uses_is_whole(int32_t type)
{
    return type == ONNX_INT32 || type == ONNX_INT64;
}

weir_status onnx_uses_mark(onnx_graph *graph, int optimization, bool handed_over)
{
    enum { LAYOUTS = 3 };
    onnx_uses uses;
    weir_status status = onnx_uses_read(graph, &uses);
    bool turned = optimization > 0 && (uses.transposes || optimization >= LAYOUTS);
    unsigned kinds = !handed_over ? 0 : ONNX_USE_HIDDEN | (turned ? ONNX_USE_OTHER : 0);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++)
        graph->weights[i].stays =
            uses.of[i].kinds & kinds || (uses.of[i].valued && onnx_uses_is_whole(graph->weights[i].type));
    free(uses.of);
    return status;
}

weir_status onnx_uses_lift(onnx_graph *graph)
{
    enum { IR_OF_CONSTANTS = 4, PACKED = ONNX_USE_RIGHT | ONNX_USE_GATES };
    bool any = false;
    for (size_t i = 0; i < graph->inner_count; i++)
        any |= graph->inner[i].deep == 1 && onnx_moved(&graph->inner[i]);
    if (!any || graph->ir < IR_OF_CONSTANTS)
        return WEIR_OK;
    onnx_uses uses;
    weir_status status = onnx_uses_read(graph, &uses);
    for (size_t i = 0; status == WEIR_OK && i < graph->inner_count; i++) {
        const onnx_use *use = &uses.of[graph->weight_count + i];
        onnx_tensor *its = &graph->inner[i];
        its->lifted =
            its->deep == 1 && its->sole && onnx_moved(its) && use->count > 0 && !(use->kinds & ~(unsigned)PACKED);
    }
    free(uses.of);
    return status;
}

/* ---- weights that kernels are expected to pack ----------------------------------------------------------------------- */

/* A wrong guess is harmless: session.c finds what was not packed, and what was packed beside it is freed. */
static bool is_packed(const onnx_tensor *weight, unsigned kinds)
{
    if (weight->deep && !weight->lifted) /* read on from the file, where a kernel has packed it too */
        return false;
    bool floats = weight->type == ONNX_FLOAT, bytes = weight->type == ONNX_UINT8 || weight->type == ONNX_INT8;
    bool matrix = weight->rank == 2 && kinds == ONNX_USE_RIGHT, gates = weight->rank == 3 && kinds == ONNX_USE_GATES;
    return onnx_moved(weight) && (floats || bytes) && (matrix || gates);
}

weir_status onnx_packed(const onnx_graph *graph, bool *packed)
{
    onnx_uses uses;
    weir_status status = onnx_uses_read(graph, &uses);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++)
        packed[i] = is_packed(&graph->weights[i], uses.of[i].kinds);
    for (size_t i = 0; status == WEIR_OK && i < graph->inner_count; i++)
        packed[graph->weight_count + i] = is_packed(&graph->inner[i], uses.of[graph->weight_count + i].kinds);
    free(uses.of);
    return status;
}
