/* Reading the graph of an ONNX file, or a body of a node, into values and nodes. onnx_check has checked the file
 * before, so the wire format is sound, and tensors are as declared. */
#include "base/texts.h"
#include "onnx/shapes/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names: open addressing with linear probing, at most half full ---------------------------------------------------- */

static size_t first_slot(const graph_names *names, onnx_text name)
{
    return (size_t)wi_hash_words(name.text, name.size) & (names->capacity - 1);
}

static void read_put(const graph *g, const graph_names *names, uint32_t value)
{
    size_t i = first_slot(names, g->values[value].name);
    while (names->slots[i])
        i = (i + 1) & (names->capacity - 1);
    names->slots[i] = value + 1;
}

/* Twice the room for all values that have a name so far. */
static bool read_grow(graph *g)
{
    graph_names wider = {.capacity = g->names.capacity ? 2 * g->names.capacity : 512};
    wider.slots = calloc(wider.capacity, sizeof *wider.slots);
    if (!wider.slots)
        return false;
    for (size_t i = 0; i < g->names.capacity; i++)
        if (g->names.slots[i])
            read_put(g, &wider, g->names.slots[i] - 1);
    free(g->names.slots);
    g->names = wider;
    return true;
}

static bool graph_names_put(graph *g, uint32_t value)
{
    if (2 * (size_t)value >= g->names.capacity && !read_grow(g))
        return false;
    read_put(g, &g->names, value);
    return true;
}

uint32_t graph_find(const graph *g, onnx_text name)
{
    if (!g->names.capacity)
        return GRAPH_NONE;
    for (size_t i = first_slot(&g->names, name); g->names.slots[i]; i = (i + 1) & (g->names.capacity - 1))
        if (onnx_text_same(g->values[g->names.slots[i] - 1].name, name))
            return g->names.slots[i] - 1;
    return GRAPH_NONE;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

/* Field numbers: ModelProto, GraphProto, NodeProto, ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, its
 * Dimension. */
enum {
    MODEL_GRAPH = 7,
    MODEL_FUNCTION = 25,
    GRAPH_NODE = 1,
    GRAPH_WEIGHT = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE = 13,
    GRAPH_SPARSE = 15,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_DOMAIN = 7,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_NAME = 2,
    TENSOR_NAME = 8
};

/* Values ----------------------------------------------------------------------------------------------------------- */

weir_status graph_value_add(graph *g, onnx_text name, uint32_t *out)
{
    if (g->value_count == g->value_room) {
        size_t room = g->value_room ? 2 * g->value_room : 256;
        graph_value *values = room < GRAPH_NONE ? realloc(g->values, room * sizeof *values) : NULL;
        if (!values)
            return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its values", g->file->name);
        g->values = values;
        g->value_room = room;
    }
    *out = (uint32_t)g->value_count;
    g->values[g->value_count++] = (graph_value){.name = name, .maker = GRAPH_NONE};
    if (name.size > 0 && !graph_names_put(g, *out))
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its names", g->file->name);
    return WEIR_OK;
}

/* The value of that name, made if it is new. */
static weir_status value_named(graph *g, onnx_text name, uint32_t *out)
{
    *out = graph_find(g, name);
    return *out == GRAPH_NONE ? graph_value_add(g, name, out) : WEIR_OK;
}

/* Types and shapes ------------------------------------------------------------------------------------------------- */

static int64_t shapes_read_dimension(graph *g, const onnx_field *dim)
{
    int64_t extent = -1;
    EACH_FIELD (field, dim->data, dim->size) {
        if (field.number == DIM_VALUE && field.value <= INT64_MAX)
            extent = (int64_t)field.value;
        for (size_t i = 0; field.number == DIM_NAME && i < g->given->dim_count; i++)
            if (onnx_text_is(onnx_field_text(&field), g->given->dims[i].name)) {
                extent = g->given->dims[i].size;
                g->given->dims[i].used = true;
            }
    }
    return extent;
}

static bool shapes_read_shape(graph *g, const onnx_field *shape, graph_value *value)
{
    value->declared = true;
    value->said.rank = 0;
    EACH_FIELD (field, shape->data, shape->size) {
        if (field.number != SHAPE_DIM)
            continue;
        if (value->said.rank == GRAPH_MAX_RANK)
            return false;
        value->said.dims[value->said.rank++] = shapes_read_dimension(g, &field);
    }
    return true;
}

/* False: more dimensions than can be. */
static bool shapes_read_type(graph *g, const onnx_field *type, graph_value *value)
{
    EACH_FIELD (tensor, type->data, type->size) {
        if (tensor.number != TYPE_TENSOR)
            continue;
        EACH_FIELD (field, tensor.data, tensor.size) {
            if (field.number == TENSOR_ELEMENT && field.value < ONNX_TYPE_COUNT)
                value->type = (int32_t)field.value;
            else if (field.number == TENSOR_SHAPE && !shapes_read_shape(g, &field, value))
                return false;
        }
    }
    return true;
}

static onnx_text read_text_in(const onnx_field *message, uint32_t number)
{
    onnx_text text = {0};
    EACH_FIELD (field, message->data, message->size)
        if (field.number == number)
            text = onnx_field_text(&field);
    return text;
}

static weir_status shapes_read_value(graph *g, const onnx_field *info)
{
    uint32_t id;
    weir_status status = value_named(g, read_text_in(info, VALUE_NAME), &id);
    if (status != WEIR_OK)
        return status;
    graph_value *value = &g->values[id];
    value->info = onnx_field_text(info);
    value->input |= info->number == GRAPH_INPUT;
    if (info->number == GRAPH_OUTPUT) {
        value->output = true;
        g->outputs[g->output_count++] = id;
    }
    EACH_FIELD (field, info->data, info->size)
        if (field.number == VALUE_TYPE && !shapes_read_type(g, &field, value))
            return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: byte %zu: \"%.*s\" has more than %d dimensions", g->file->name,
                             graph_offset(g, info->begin), ONNX_SHOW(value->name), GRAPH_MAX_RANK);
    return WEIR_OK;
}

static weir_status declare_weight(graph *g, const onnx_field *proto, const onnx_tensor *tensor, uint32_t *id)
{
    weir_status status = value_named(g, tensor->name, id);
    if (status != WEIR_OK)
        return status;
    if (tensor->rank > GRAPH_MAX_RANK)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: byte %zu: tensor \"%.*s\" has more than %d dimensions",
                         g->file->name, graph_offset(g, proto->begin), ONNX_SHOW(tensor->name), GRAPH_MAX_RANK);
    graph_value *value = &g->values[*id];
    value->weight = value->constant = true;
    value->input = false; /* an initializer that is an input too is its default */
    value->type = tensor->type;
    value->shaped = true;
    value->shape.rank = tensor->rank;
    memcpy(value->shape.dims, tensor->shape, tensor->rank * sizeof *tensor->shape);
    value->elements = tensor->elements;
    value->bytes = tensor->bytes;
    if (!graph_addressable(&value->shape))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: byte %zu: tensor \"%.*s\" has dimensions beyond what can be addressed", g->file->name,
                         graph_offset(g, proto->begin), ONNX_SHOW(tensor->name));
    return WEIR_OK;
}

static weir_status read_weight(graph *g, const onnx_field *proto)
{
    onnx_tensor tensor;
    uint32_t id;
    weir_status status = onnx_tensor_read(g->file, proto->data, proto->size, &tensor);
    if (status == WEIR_OK)
        status = declare_weight(g, proto, &tensor, &id);
    if (status != WEIR_OK)
        return status;
    g->values[id].proto = proto->data;
    g->values[id].proto_size = proto->size;
    return WEIR_OK;
}

static void add_extent(onnx_tensor *tensor, uint64_t extent)
{
    if (tensor->rank < ONNX_MAX_RANK)
        tensor->shape[tensor->rank++] = extent <= INT64_MAX ? (int64_t)extent : INT64_MAX;
}

/* ONNX Runtime makes a dense one of it, called as its values are; what it holds is not looked at here. */
static weir_status read_sparse(graph *g, const onnx_field *proto)
{
    enum { VALUES = 1, EXTENTS = 3 };
    onnx_tensor tensor = {.rank = 0};
    uint32_t id;
    weir_status status = WEIR_OK;
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == VALUES)
            status = onnx_tensor_read(g->file, field.data, field.size, &tensor);
    tensor.rank = 0;
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size) {
        if (field.number != EXTENTS)
            continue;
        if (field.type == PB_WT_VARINT)
            add_extent(&tensor, field.value);
        onnx_wire extents = onnx_wire_of(field.data, field.type == PB_WT_STRING ? field.size : 0);
        for (uint64_t extent; onnx_wire_varint(&extents, &extent) == 1;)
            add_extent(&tensor, extent);
    }
    tensor.elements = 1;
    for (uint32_t i = 0; i < tensor.rank; i++)
        if (__builtin_mul_overflow(tensor.elements, (uint64_t)tensor.shape[i], &tensor.elements))
            tensor.elements = UINT64_MAX / 64;
    tensor.bytes =
        tensor.elements > UINT64_MAX / 64 ? UINT64_MAX / 8 : (tensor.elements * onnx_type_bits(tensor.type) + 7) / 8;
    return status == WEIR_OK ? declare_weight(g, proto, &tensor, &id) : status;
}

/* Names of dimensions ---------------------------------------------------------------------------------------------- */

/* The one field of that number inside a message. */
static onnx_text shapes_read_inside(onnx_text message, uint32_t number)
{
    onnx_field field = {.data = (const uint8_t *)message.text, .size = message.size};
    return read_text_in(&field, number);
}

static onnx_text read_shape_of(onnx_text info)
{
    return shapes_read_inside(shapes_read_inside(shapes_read_inside(info, VALUE_TYPE), TYPE_TENSOR), TENSOR_SHAPE);
}

uint32_t graph_open_names(const graph_value *value, onnx_text names[GRAPH_MAX_RANK])
{
    uint32_t count = 0, at = 0;
    onnx_text shape = read_shape_of(value->info);
    EACH_FIELD_WHILE (at < value->said.rank, dim, (const uint8_t *)shape.text, shape.size)
        if (dim.number == SHAPE_DIM && value->said.dims[at++] < 0)
            names[count++] = read_text_in(&dim, DIM_NAME);
    return count;
}

uint32_t graph_said_names(const graph_value *value, onnx_text names[GRAPH_MAX_RANK], bool numbers[GRAPH_MAX_RANK])
{
    uint32_t count = 0;
    onnx_text shape = read_shape_of(value->info);
    EACH_FIELD_WHILE (count < GRAPH_MAX_RANK, dim, (const uint8_t *)shape.text, shape.size)
        if (dim.number == SHAPE_DIM) {
            names[count] = read_text_in(&dim, DIM_NAME);
            numbers[count] = false;
            EACH_FIELD (field, dim.data, dim.size)
                numbers[count] |= field.number == DIM_VALUE && field.value <= INT64_MAX;
            count++;
        }
    return count;
}

/* Is the word in the text, and not as the begin of a longer one? */
static bool read_has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
        if (at[length] == '\0' || at[length] == ',')
            return true;
    return false;
}

size_t graph_dim_names(const graph *g, char *text, size_t capacity)
{
    size_t count = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < g->value_count; i++) {
        onnx_text shape = read_shape_of(g->values[i].info);
        EACH_FIELD (dim, (const uint8_t *)shape.text, g->values[i].input ? shape.size : 0) {
            char word[100];
            onnx_text name = read_text_in(&dim, DIM_NAME);
            int n = snprintf(word, sizeof word, ", %.*s", ONNX_SHOW(name));
            if (name.size == 0 || read_has_word(text, word) || used + (size_t)n >= capacity)
                continue;
            memcpy(text + used, word, (size_t)n + 1);
            used += (size_t)n;
            count++;
        }
    }
    return count;
}

/* Nodes ------------------------------------------------------------------------------------------------------------ */

weir_status graph_id_add(const graph *g, graph_ids *to, uint32_t id)
{
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 1024;
        uint32_t *list = realloc(to->list, room * sizeof *list);
        if (!list)
            return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its nodes", g->file->name);
        to->list = list;
        to->room = room;
    }
    to->list[to->count++] = id;
    return WEIR_OK;
}

static weir_status shapes_read_input(graph *g, onnx_text name)
{
    uint32_t id = GRAPH_NONE;
    weir_status status = name.size == 0 ? WEIR_OK : value_named(g, name, &id);
    return status == WEIR_OK ? graph_id_add(g, &g->ids, id) : status;
}

/* A value has one maker: onnx_check saw to that. */
static weir_status read_output(graph *g, onnx_text name, uint32_t node)
{
    weir_status status = shapes_read_input(g, name);
    if (status == WEIR_OK && g->ids.list[g->ids.count - 1] != GRAPH_NONE)
        g->values[g->ids.list[g->ids.count - 1]].maker = node;
    return status;
}

/* Where its values stand is known when all nodes have been read. */
static weir_status shapes_read_node(graph *g, const onnx_field *proto)
{
    graph_node *node = &g->nodes[g->node_count];
    weir_status status = WEIR_OK;
    *node = (graph_node){.proto = proto->data, .proto_size = proto->size, .branches = {.scratch = GRAPH_NONE}};
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size) {
        if (field.number == NODE_INPUT) {
            status = shapes_read_input(g, onnx_field_text(&field));
            node->input_count++;
        } else if (field.number == NODE_NAME) {
            node->name = onnx_field_text(&field);
        } else if (field.number == NODE_OP) {
            node->op = onnx_field_text(&field);
        } else if (field.number == NODE_DOMAIN) {
            node->domain = onnx_field_text(&field);
        }
    }
    node->before = (uint32_t)g->value_count;
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == NODE_OUTPUT) {
            status = read_output(g, onnx_field_text(&field), (uint32_t)g->node_count);
            node->output_count++;
        }
    g->node_count++;
    return status;
}

/* Points each node to its inputs and its outputs, in this order. */
static void place_ids(graph *g)
{
    uint32_t *at = g->ids.list;
    for (size_t i = 0; at && i < g->node_count; i++) {
        graph_node *node = &g->nodes[i];
        node->inputs = at;
        node->outputs = at += node->input_count;
        at += node->output_count;
    }
}

/* The whole -------------------------------------------------------------------------------------------------------- */

/* Counts of nodes and outputs, for a single allocation. */
typedef struct tally {
    size_t nodes, outputs;
} tally;

static void shapes_read_count(const onnx_field *proto, tally *sum)
{
    EACH_FIELD (field, proto->data, proto->size) {
        sum->outputs += field.number == GRAPH_OUTPUT;
        sum->nodes += field.number == GRAPH_NODE;
    }
}

static weir_status read_make_room(graph *g, const tally *sum)
{
    g->nodes = calloc(sum->nodes + 1, sizeof *g->nodes);
    g->outputs = calloc(sum->outputs + 1, sizeof *g->outputs);
    return g->nodes && g->outputs
               ? WEIR_OK
               : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for %zu nodes", g->file->name, sum->nodes);
}

/* Values first, as nodes only name them. */
static weir_status shapes_read_graph(graph *g, const onnx_field *proto)
{
    tally sum = {0};
    shapes_read_count(proto, &sum);
    weir_status status = read_make_room(g, &sum);
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == GRAPH_INPUT || field.number == GRAPH_OUTPUT || field.number == GRAPH_VALUE)
            status = shapes_read_value(g, &field);
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == GRAPH_WEIGHT)
            status = read_weight(g, &field);
        else if (field.number == GRAPH_SPARSE)
            status = read_sparse(g, &field);
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == GRAPH_NODE)
            status = shapes_read_node(g, &field);
    if (status == WEIR_OK)
        place_ids(g);
    return status;
}

/* What an initializer is called; no text for another field of a graph. */
static onnx_text weight_name(const onnx_field *field)
{
    enum { VALUES = 1 };
    onnx_text none = {0};
    return field->number == GRAPH_WEIGHT   ? read_text_in(field, TENSOR_NAME)
           : field->number == GRAPH_SPARSE ? shapes_read_inside(read_text_in(field, VALUES), TENSOR_NAME)
                                           : none;
}

/* Initializers are found by their names, and not read. */
static weir_status read_inputs(graph *g, const onnx_field *proto)
{
    weir_status status = WEIR_OK;
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size)
        if (field.number == GRAPH_INPUT)
            status = shapes_read_value(g, &field);
    EACH_FIELD_WHILE (status == WEIR_OK, field, proto->data, proto->size) {
        onnx_text name = weight_name(&field);
        uint32_t id = name.size ? graph_find(g, name) : GRAPH_NONE;
        if (id != GRAPH_NONE)
            g->values[id].input = false;
    }
    return status;
}

static weir_status shapes_read_file(onnx_file *file, graph_givens *given, graph *out,
                                    weir_status (*read)(graph *g, const onnx_field *proto))
{
    *out = (graph){.file = file, .given = given, .numbers_left = (size_t)1 << 22, .effort = UINT64_C(1) << 20};
    onnx_field proto = {0};
    EACH_FIELD (field, file->data, file->size) {
        out->functions |= field.number == MODEL_FUNCTION;
        if (field.number == MODEL_GRAPH)
            proto = field;
    }
    weir_status status = proto.data ? read(out, &proto) : weir_fail(WEIR_ERR_CORRUPT, "%s: no graph", file->name);
    if (status != WEIR_OK)
        graph_clear(out);
    return status;
}

weir_status graph_read(onnx_file *file, graph_givens *given, graph *out)
{
    return shapes_read_file(file, given, out, shapes_read_graph);
}

weir_status graph_read_inputs(onnx_file *file, graph_givens *given, graph *out)
{
    return shapes_read_file(file, given, out, read_inputs);
}

/* What nothing in the body makes is a value of the innermost graph around it that has the name. */
static void read_capture(graph *g, graph_value *value)
{
    for (graph *around = g->outer; around; around = around->outer) {
        uint32_t id = graph_find(around, value->name);
        if (id == GRAPH_NONE)
            continue;
        const graph_value *found = &around->values[id];
        value->around = around;
        value->captured = id;
        value->type = found->type;
        value->shaped = found->shaped;
        value->shape = found->shape;
        value->constant = found->constant;
        value->elements = found->elements;
        value->bytes = found->bytes;
        return;
    }
}

weir_status graph_read_body(graph *outer, onnx_text body, graph *out)
{
    *out = (graph){.file = outer->file,
                   .given = outer->given,
                   .outer = outer,
                   .functions = outer->functions,
                   .numbers_left = outer->numbers_left,
                   .effort = outer->effort,
                   .alignment = outer->alignment,
                   .apart = outer->apart,
                   .takes = outer->takes,
                   .user = outer->user};
    onnx_field proto = {.data = (const uint8_t *)body.text, .size = body.size};
    weir_status status = shapes_read_graph(out, &proto);
    for (size_t i = 0; status == WEIR_OK && i < out->value_count; i++) {
        graph_value *value = &out->values[i];
        if (value->maker == GRAPH_NONE && !value->weight && !value->input && value->name.size > 0)
            read_capture(out, value);
    }
    if (status != WEIR_OK)
        graph_clear(out);
    return status;
}

void graph_clear(graph *g)
{
    for (size_t i = 0; i < g->value_count; i++)
        free(g->values[i].data);
    free(g->values);
    free(g->nodes);
    free(g->ids.list);
    free(g->captures.list);
    free(g->outputs);
    free(g->names.slots);
    *g = (graph){0};
}
