/* See packed.h. A wrong guess is harmless: session.c compares what was packed with what was promised. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

#include "strip.h"

/* Field numbers: GraphProto, NodeProto, AttributeProto, ValueInfoProto. */
enum {
    GRAPH_NODE = 1,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OPERATOR = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_GRAPHS = 11,
    VALUE_NAME = 1
};

typedef struct candidate {
    onnx_text name;
    size_t index;  /* in graph->weights */
    unsigned uses; /* as the right-hand side of a product */
    bool other;    /* used in any other way */
} candidate;

typedef struct candidates {
    candidate *list;
    size_t count;
} candidates;

static int by_name(const void *a, const void *b)
{
    const onnx_text *x = &((const candidate *)a)->name, *y = &((const candidate *)b)->name;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->size ? memcmp(x->text, y->text, x->size) : 0;
}

static candidate *find(const candidates *c, const onnx_field *field)
{
    candidate key = {.name = {(const char *)field->data, field->size}};
    return field->size ? bsearch(&key, c->list, c->count, sizeof key, by_name) : NULL;
}

static void use_otherwise(candidates *c, const onnx_field *name)
{
    candidate *found = find(c, name);
    if (found)
        found->other = true;
}

static void read_graph(candidates *c, const uint8_t *data, size_t size, bool main_graph);

static void read_attribute(candidates *c, const onnx_field *attribute)
{
    onnx_wire wire;
    onnx_wire_open(&wire, attribute->data, attribute->size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;)
        if (field.number == ATTRIBUTE_GRAPH || field.number == ATTRIBUTE_GRAPHS)
            read_graph(c, field.data, field.size, false);
}

/* The kernels of MatMul and Gemm pack their second input. */
static bool is_product(const onnx_field *node)
{
    onnx_text operation = {0}, domain = {0};
    onnx_wire wire;
    onnx_wire_open(&wire, node->data, node->size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;) {
        if (field.number == NODE_OPERATOR)
            operation = (onnx_text){(const char *)field.data, field.size};
        else if (field.number == NODE_DOMAIN)
            domain = (onnx_text){(const char *)field.data, field.size};
    }
    return domain.size == 0 && (onnx_text_is(operation, "MatMul") || onnx_text_is(operation, "Gemm"));
}

static void read_node(candidates *c, const onnx_field *node, bool main_graph)
{
    bool product = main_graph && is_product(node);
    unsigned input = 0;
    onnx_wire wire;
    onnx_wire_open(&wire, node->data, node->size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;) {
        if (field.number == NODE_ATTRIBUTE)
            read_attribute(c, &field);
        if (field.number != NODE_INPUT)
            continue;
        candidate *found = find(c, &field);
        if (found && product && input == 1)
            found->uses++;
        else if (found)
            found->other = true;
        input++;
    }
}

/* An input of the graph is no constant, even if an initializer is its default. */
static void read_value(candidates *c, const onnx_field *value)
{
    onnx_wire wire;
    onnx_wire_open(&wire, value->data, value->size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;)
        if (field.number == VALUE_NAME)
            use_otherwise(c, &field);
}

static void read_graph(candidates *c, const uint8_t *data, size_t size, bool main_graph)
{
    onnx_wire wire;
    onnx_wire_open(&wire, data, size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;) {
        if (field.number == GRAPH_NODE)
            read_node(c, &field, main_graph);
        else if (field.number == GRAPH_INPUT || field.number == GRAPH_OUTPUT)
            read_value(c, &field);
    }
}

weir_status onnx_packed(const onnx_file *file, const onnx_graph *graph, bool *packed, uint64_t *bytes)
{
    candidates c = {calloc(graph->weight_count + 1, sizeof *c.list), 0};
    *bytes = 0;
    if (!c.list)
        return weir_fail(WEIR_SYSTEM, "%s: no host memory for its graph", file->name);
    for (size_t i = 0; i < graph->weight_count; i++) {
        const onnx_tensor *weight = &graph->weights[i];
        packed[i] = false;
        if (onnx_moved(weight) && weight->type == ONNX_FLOAT && weight->rank == 2)
            c.list[c.count++] = (candidate){.name = weight->name, .index = i};
    }
    qsort(c.list, c.count, sizeof *c.list, by_name);
    read_graph(&c, graph->data, graph->size, true);
    for (size_t i = 0; i < c.count; i++) {
        const candidate *one = &c.list[i];
        if (one->uses == 1 && !one->other) {
            packed[one->index] = true;
            *bytes += graph->weights[one->index].bytes;
        }
    }
    free(c.list);
    return WEIR_OK;
}
