/* attributes.c: looked up in the file's own bytes each time: nodes have few. */
#include "onnx/shapes/graph.h"

#include <string.h>

/* Field numbers: NodeProto, AttributeProto. */
enum {
    NODE_ATTRIBUTE = 5,
    NAME = 1,
    FLOAT = 2,
    INT = 3,
    TEXT = 4,
    TENSOR = 5,
    BODY = 6,
    FLOATS = 7,
    INTS = 8,
    TEXTS = 9
};

/* Finds the attribute of that name. */
static bool attributes_find(const graph_node *node, const char *name, onnx_field *out)
{
    EACH_FIELD (field, node->proto, node->proto_size) {
        *out = field;
        EACH_FIELD (part, field.data, field.number == NODE_ATTRIBUTE ? field.size : 0)
            if (part.number == NAME) { /* it has one; what follows may be a long list */
                if (onnx_text_is(onnx_field_text(&part), name))
                    return true;
                break;
            }
    }
    return false;
}

static bool find_field(const graph_node *node, const char *name, uint32_t number, onnx_field *out)
{
    onnx_field attribute;
    bool found = false;
    if (attributes_find(node, name, &attribute))
        EACH_FIELD (field, attribute.data, attribute.size)
            if (field.number == number) {
                *out = field;
                found = true;
            }
    return found;
}

int64_t graph_int(const graph_node *node, const char *name, int64_t otherwise)
{
    onnx_field field;
    return find_field(node, name, INT, &field) ? (int64_t)field.value : otherwise;
}

static double float_at(const uint8_t *data)
{
    float value;
    memcpy(&value, data, sizeof value);
    return value;
}

double graph_float(const graph_node *node, const char *name, double otherwise)
{
    onnx_field field;
    return find_field(node, name, FLOAT, &field) ? float_at(field.data) : otherwise;
}

onnx_text graph_text(const graph_node *node, const char *name)
{
    onnx_field field;
    return find_field(node, name, TEXT, &field) ? onnx_field_text(&field) : (onnx_text){0};
}

static bool find_message(const graph_node *node, const char *name, uint32_t number, onnx_text *out)
{
    onnx_field field;
    if (!find_field(node, name, number, &field))
        return false;
    *out = onnx_field_text(&field);
    return true;
}

bool graph_tensor(const graph_node *node, const char *name, onnx_text *out)
{
    return find_message(node, name, TENSOR, out);
}

bool graph_body(const graph_node *node, const char *name, onnx_text *out)
{
    return find_message(node, name, BODY, out);
}

bool graph_has(const graph_node *node, const char *name)
{
    onnx_field attribute;
    return attributes_find(node, name, &attribute);
}

/* Adds the numbers of one field, a single one or a packed list. False: too many. */
static bool add_ints(const onnx_field *field, int64_t *out, int capacity, int *count)
{
    if (field->type == PB_WT_VARINT) {
        if (*count < capacity)
            out[*count] = (int64_t)field->value;
        return ++*count <= capacity;
    }
    onnx_wire wire = onnx_wire_of(field->data, field->size);
    for (uint64_t value; *count <= capacity && onnx_wire_varint(&wire, &value) == 1; ++*count)
        if (*count < capacity)
            out[*count] = (int64_t)value;
    return *count <= capacity;
}

/* An empty list has no field with numbers; only the attribute tells an empty list from a missing list. */
int graph_ints(const graph_node *node, const char *name, int64_t *out, int capacity)
{
    onnx_field attribute;
    int count = 0;
    if (!attributes_find(node, name, &attribute))
        return -1;
    EACH_FIELD (field, attribute.data, attribute.size)
        if (field.number == INTS && !add_ints(&field, out, capacity, &count))
            return -2;
    return count;
}

int graph_floats(const graph_node *node, const char *name, double *out, int capacity)
{
    onnx_field attribute;
    int count = 0;
    if (!attributes_find(node, name, &attribute))
        return -1;
    EACH_FIELD (field, attribute.data, attribute.size) {
        if (field.number != FLOATS)
            continue;
        for (size_t at = 0; at + 4 <= field.size; at += 4, count++) {
            if (count == capacity)
                return -2;
            out[count] = float_at(field.data + at);
        }
    }
    return count;
}

int64_t graph_length(const graph_node *node, const char *name)
{
    onnx_field attribute;
    int64_t count = 0;
    if (!attributes_find(node, name, &attribute))
        return 0;
    EACH_FIELD (field, attribute.data, attribute.size) {
        bool listed = field.type == PB_WT_STRING;
        if (field.number == FLOATS)
            count += listed ? (int64_t)(field.size / 4) : 1;
        else if (field.number == TEXTS || (field.number == INTS && !listed))
            count++;
        else if (field.number == INTS) {
            onnx_wire packed = onnx_wire_of(field.data, field.size);
            for (uint64_t value; onnx_wire_varint(&packed, &value) == 1;)
                count++;
        }
    }
    return count;
}
