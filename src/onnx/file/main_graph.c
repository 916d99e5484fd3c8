/* See main_graph.h. */
#include "onnx/file/main_graph.h"

#include "onnx/file/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers: ModelProto, GraphProto, ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, its
 * Dimension. */
enum {
    MODEL_IR = 1,
    MODEL_GRAPH = 7,
    MODEL_FUNCTION = 25,
    GRAPH_NODE = 1,
    GRAPH_WEIGHT = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1
};

static void main_graph_read_dimension(const onnx_field *dim, int64_t *extent)
{
    *extent = -1;
    EACH_FIELD (field, dim->data, dim->size)
        if (field.number == DIM_VALUE && field.value <= INT64_MAX)
            *extent = (int64_t)field.value;
}

static void main_graph_read_shape(const onnx_field *shape, onnx_value *value)
{
    value->shaped = true;
    EACH_FIELD (field, shape->data, shape->size) {
        if (field.number != SHAPE_DIM)
            continue;
        if (value->rank < ONNX_MAX_RANK)
            main_graph_read_dimension(&field, &value->shape[value->rank]);
        value->rank++;
    }
}

static void read_tensor_type(const onnx_field *type, onnx_value *value)
{
    value->kind = ONNX_VALUE_TENSOR;
    EACH_FIELD (field, type->data, type->size) {
        if (field.number == TENSOR_ELEMENT)
            value->type = (int32_t)field.value;
        else if (field.number == TENSOR_SHAPE)
            main_graph_read_shape(&field, value);
    }
}

static void main_graph_read_type(const onnx_field *type, onnx_value *value)
{
    static const char *const others[] = {
        [4] = "a sequence", [5] = "a map", [7] = "an opaque type", [8] = "a sparse tensor", [9] = "an optional"};
    EACH_FIELD (field, type->data, type->size) {
        if (field.number == TYPE_TENSOR) {
            read_tensor_type(&field, value);
        } else if (field.number < sizeof others / sizeof *others && others[field.number]) {
            value->kind = ONNX_VALUE_NOT_TENSOR;
            value->what = others[field.number];
        }
    }
}

static void main_graph_read_value(const onnx_field *info, onnx_value *value)
{
    memset(value, 0, sizeof *value);
    value->at = info->begin;
    value->kind = ONNX_VALUE_UNTYPED;
    EACH_FIELD (field, info->data, info->size) {
        if (field.number == VALUE_NAME)
            value->name = onnx_field_text(&field);
        else if (field.number == VALUE_TYPE)
            main_graph_read_type(&field, value);
    }
}

static bool find_graph(const onnx_file *file, onnx_graph *graph)
{
    EACH_FIELD (field, file->data, file->size) {
        graph->functions |= field.number == MODEL_FUNCTION;
        graph->ir = field.number == MODEL_IR ? field.value : graph->ir;
        if (field.number == MODEL_GRAPH) {
            graph->data = field.data;
            graph->size = field.size;
            graph->begin = field.begin;
            graph->end = field.end;
        }
    }
    return graph->data != NULL;
}

static void count_fields(onnx_graph *graph)
{
    EACH_FIELD (field, graph->data, graph->size) {
        graph->nodes += field.number == GRAPH_NODE;
        graph->weight_count += field.number == GRAPH_WEIGHT;
        graph->input_count += field.number == GRAPH_INPUT;
        graph->output_count += field.number == GRAPH_OUTPUT;
    }
}

static weir_status read_fields(onnx_file *file, onnx_graph *graph)
{
    size_t inputs = 0, outputs = 0, weights = 0;
    weir_status status = WEIR_OK;
    EACH_FIELD_WHILE (status == WEIR_OK, field, graph->data, graph->size) {
        if (field.number == GRAPH_INPUT) {
            main_graph_read_value(&field, &graph->inputs[inputs++]);
        } else if (field.number == GRAPH_OUTPUT) {
            main_graph_read_value(&field, &graph->outputs[outputs++]);
        } else if (field.number == GRAPH_WEIGHT) {
            onnx_tensor *weight = &graph->weights[weights++];
            status = onnx_tensor_read(file, field.data, field.size, weight);
            weight->begin = field.begin;
            weight->end = field.end;
        }
    }
    return status;
}

weir_status onnx_graph_read(onnx_file *file, onnx_graph *out)
{
    memset(out, 0, sizeof *out);
    out->plain = file->plain;
    if (!find_graph(file, out))
        return weir_fail(WEIR_ERR_CORRUPT, "%s: no graph", file->name);
    count_fields(out);
    out->inputs = calloc(out->input_count + 1, sizeof *out->inputs);
    out->outputs = calloc(out->output_count + 1, sizeof *out->outputs);
    out->weights = calloc(out->weight_count + 1, sizeof *out->weights);
    weir_status status = out->inputs && out->outputs && out->weights
                             ? read_fields(file, out)
                             : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its graph", file->name);
    if (status != WEIR_OK)
        onnx_graph_free(out);
    return status;
}

void onnx_graph_free(onnx_graph *graph)
{
    free(graph->inputs);
    free(graph->outputs);
    free(graph->weights);
    free(graph->inner);
    memset(graph, 0, sizeof *graph);
}

/* What nodes have ---------------------------------------------------------------------------------------------------- */

/* NodeProto, AttributeProto. */
enum {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_OPERATOR = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_GRAPHS = 11
};

typedef struct inner_reading {
    onnx_file *file;
    onnx_graph *graph;
    uint64_t least;
    size_t capacity;
    weir_status status;
} inner_reading;

static bool may_be_shape(int32_t type)
{
    return type == ONNX_INT32 || type == ONNX_INT64 || type == ONNX_UINT32 || type == ONNX_UINT64 || type == ONNX_BOOL;
}

static void main_graph_keep(inner_reading *r, const onnx_tensor *tensor)
{
    if (r->graph->inner_count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 32;
        onnx_tensor *list = realloc(r->graph->inner, capacity * sizeof *list);
        if (!list) {
            r->status = weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its constants", r->file->name);
            return;
        }
        r->graph->inner = list;
        r->capacity = capacity;
    }
    r->graph->inner[r->graph->inner_count++] = *tensor;
}

/* True: the Constant node has a single output and a single attribute, of type TENSOR, with nothing beside the tensor. Of several
 * attributes, or several kinds of values, ONNX Runtime takes the first. */
static bool is_sole(const onnx_field *node)
{
    enum { ATTRIBUTE_DOC = 13, ATTRIBUTE_TYPE = 20, TYPE_TENSOR_ONLY = 4 };
    unsigned attributes = 0, outputs = 0, tensors = 0, typed = 0, others = 0;
    EACH_FIELD (field, node->data, node->size) {
        outputs += field.number == NODE_OUTPUT;
        if (field.number != NODE_ATTRIBUTE)
            continue;
        attributes++;
        EACH_FIELD (part, field.data, field.size) {
            tensors += part.number == ATTRIBUTE_TENSOR;
            typed += part.number == ATTRIBUTE_TYPE && part.value == TYPE_TENSOR_ONLY;
            others += part.number != ATTRIBUTE_TENSOR && part.number != ATTRIBUTE_TYPE &&
                      part.number != ATTRIBUTE_NAME && part.number != ATTRIBUTE_DOC;
        }
    }
    return outputs == 1 && attributes == 1 && tensors == 1 && typed == 1 && others == 0;
}

/* `name`: takes the place of the tensor's own name, unless empty. `maker`: the Constant node that has the tensor, or NULL. */
static void add_inner(inner_reading *r, const onnx_field *field, const onnx_field *maker, onnx_text name, unsigned deep)
{
    onnx_tensor tensor = {0};
    if (r->status == WEIR_OK && field->size >= r->least)
        r->status = onnx_tensor_read(r->file, field->data, field->size, &tensor);
    if (r->status != WEIR_OK || field->size < r->least || tensor.bytes < r->least || may_be_shape(tensor.type))
        return;
    tensor.name = name.size ? name : tensor.name;
    tensor.begin = field->begin;
    tensor.end = field->end;
    tensor.maker = maker ? maker->begin : NULL;
    tensor.sole = !maker || is_sole(maker);
    tensor.deep = deep;
    main_graph_keep(r, &tensor);
}

static void read_inside(inner_reading *r, const uint8_t *data, size_t size, unsigned deep);

/* `maker`: the Constant node that has the attribute, or NULL: another node. */
static void main_graph_read_attribute(inner_reading *r, const onnx_field *attribute, const onnx_field *maker,
                                      onnx_text output, unsigned deep)
{
    EACH_FIELD (field, attribute->data, attribute->size) {
        if (field.number == ATTRIBUTE_TENSOR && maker)
            add_inner(r, &field, maker, output, deep);
        else if (field.number == ATTRIBUTE_GRAPH || field.number == ATTRIBUTE_GRAPHS)
            read_inside(r, field.data, field.size, deep + 1);
    }
}

onnx_node onnx_node_read(const onnx_field *node)
{
    onnx_node out = {0};
    EACH_FIELD (field, node->data, node->size) {
        onnx_text text = onnx_field_text(&field);
        if (field.number == NODE_OPERATOR)
            out.kind = text;
        else if (field.number == NODE_DOMAIN)
            out.domain = text;
        else if (field.number == NODE_INPUT)
            out.input = text;
        else if (field.number == NODE_OUTPUT)
            out.output = text;
    }
    return out;
}

bool onnx_node_is_standard(const onnx_node *node)
{
    return node->domain.size == 0 || onnx_text_is(node->domain, "ai.onnx");
}

static void main_graph_read_node(inner_reading *r, const onnx_field *node, unsigned deep)
{
    onnx_node its = onnx_node_read(node);
    bool constant = onnx_node_is_standard(&its) && onnx_text_is(its.kind, "Constant");
    if (!constant && r->graph->plain) /* trees have a hundred million numbers there */
        return;
    EACH_FIELD (field, node->data, node->size)
        if (field.number == NODE_ATTRIBUTE)
            main_graph_read_attribute(r, &field, constant ? node : NULL, its.output, deep);
}

static void read_inside(inner_reading *r, const uint8_t *data, size_t size, unsigned deep)
{
    EACH_FIELD (field, data, size) {
        if (field.number == GRAPH_NODE && field.size >= r->least)
            main_graph_read_node(r, &field, deep);
        else if (field.number == GRAPH_WEIGHT && deep > 0)
            add_inner(r, &field, NULL, (onnx_text){0}, deep);
    }
}

weir_status onnx_graph_read_inner(onnx_file *file, onnx_graph *graph, uint64_t least)
{
    inner_reading r = {.file = file, .graph = graph, .least = least};
    read_inside(&r, graph->data, graph->size, 0);
    return r.status;
}

static bool main_graph_stays(const onnx_graph *graph, const onnx_field *field)
{
    for (size_t i = 0; i < graph->inner_count; i++)
        if (graph->inner[i].begin == field->begin)
            return true;
    return false;
}

static void add_beside(inner_reading *r, const onnx_field *field)
{
    onnx_tensor tensor = {0};
    r->status = onnx_tensor_read(r->file, field->data, field->size, &tensor);
    if (r->status != WEIR_OK || !tensor.beside || main_graph_stays(r->graph, field))
        return;
    tensor.begin = field->begin;
    tensor.end = field->end;
    tensor.deep = 1;
    tensor.stays = true;
    main_graph_keep(r, &tensor);
}

/* All tensors inside a message of that kind, but for the initializers of the main graph. */
static void find_beside(inner_reading *r, onnx_message kind, const uint8_t *data,
                        size_t size) // NOLINT(misc-no-recursion): as deep as onnx_check allows
{
    EACH_FIELD_WHILE (r->status == WEIR_OK, field, data, size) {
        const onnx_schema_field *rule = field.number < ONNX_SCHEMA_FIELDS ? &onnx_schema[kind][field.number] : NULL;
        bool weight = kind == ONNX_GRAPH && field.number == GRAPH_WEIGHT && data == r->graph->data;
        if (!rule || rule->kind != ONNX_MESSAGE || weight)
            continue;
        if (rule->message == ONNX_TENSOR)
            add_beside(r, &field);
        else
            find_beside(r, rule->message, field.data, field.size);
    }
}

weir_status onnx_graph_read_beside(onnx_file *file, onnx_graph *graph)
{
    inner_reading r = {.file = file, .graph = graph, .capacity = graph->inner_count};
    find_beside(&r, ONNX_MODEL, file->data, file->size);
    return r.status;
}

static weir_status value_supported(const onnx_file *file, const onnx_value *value, const char *role)
{
    size_t at = (size_t)(value->at - file->data);
    if (value->kind == ONNX_VALUE_NOT_TENSOR)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: byte %zu: %s \"%.*s\" is %s; only tensors of numbers or bool go in and out", file->name,
                         at, role, ONNX_SHOW(value->name), value->what);
    if (value->rank > WEIR_MAX_RANK)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: byte %zu: %s \"%.*s\" has %u dimensions, more than %d", file->name,
                         at, role, ONNX_SHOW(value->name), value->rank, WEIR_MAX_RANK);
    if (value->kind == ONNX_VALUE_TENSOR && value->type && onnx_type_to_weir(value->type) == WEIR_TYPE_NONE)
        return weir_fail(
            WEIR_ERR_UNSUPPORTED,
            "%s: byte %zu: %s \"%.*s\" is a tensor of %s; only numbers of 8 to 64 bits and bool go in and out",
            file->name, at, role, ONNX_SHOW(value->name), onnx_type_name(value->type));
    return WEIR_OK;
}

weir_status onnx_graph_supported(const onnx_file *file, const onnx_graph *graph)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < graph->input_count; i++)
        status = value_supported(file, &graph->inputs[i], "input");
    for (size_t i = 0; status == WEIR_OK && i < graph->output_count; i++)
        status = value_supported(file, &graph->outputs[i], "output");
    return status;
}
