/* See graph.h. */
#include "onnx/shapes/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool graph_real(int32_t type)
{
    return type == ONNX_FLOAT || type == ONNX_DOUBLE || type == ONNX_FLOAT16 || type == ONNX_BFLOAT16;
}

/* Whether contents of the type are kept at all: not of strings, complex numbers and the small floats. */
static bool countable(int32_t type)
{
    return graph_real(type) || type == ONNX_BOOL || (type >= ONNX_UINT8 && type <= ONNX_INT64) || type == ONNX_UINT32 ||
           type == ONNX_UINT64;
}

graph_number *graph_contents_make(graph *g, graph_value *value)
{
    size_t count = value->elements ? (size_t)value->elements : 1;
    if (value->elements > GRAPH_NUMBERS || count > g->numbers_left || !countable(value->type))
        return NULL;
    free(value->data);
    value->data = calloc(count, sizeof *value->data);
    g->numbers_left -= value->data ? count : 0;
    return value->data;
}

/* Numbers out of a file -------------------------------------------------------------------------------------------- */

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return bits >> 15 ? -value : value;
}

static double brain_half(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* One number as it lies in memory, little-endian. */
static graph_number at_bytes(int32_t type, const uint8_t *data)
{
    union {
        float f32;
        double f64;
        uint16_t u16;
        int16_t i16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
    } u = {0};
    memcpy(&u, data, onnx_type_bits(type) / 8);
    switch (type) {
    case ONNX_FLOAT:
        return (graph_number){.f = u.f32};
    case ONNX_DOUBLE:
        return (graph_number){.f = u.f64};
    case ONNX_FLOAT16:
        return (graph_number){.f = half(u.u16)};
    case ONNX_BFLOAT16:
        return (graph_number){.f = brain_half(u.u16)};
    case ONNX_INT8:
        return (graph_number){.i = (int8_t)data[0]};
    case ONNX_INT16:
        return (graph_number){.i = u.i16};
    case ONNX_UINT16:
        return (graph_number){.i = u.u16};
    case ONNX_INT32:
        return (graph_number){.i = u.i32};
    case ONNX_UINT32:
        return (graph_number){.i = u.u32};
    case ONNX_INT64:
    case ONNX_UINT64:
        return (graph_number){.i = u.i64};
    default: /* uint8 and bool */
        return (graph_number){.i = data[0]};
    }
}

/* A list of varints gives halves by their bits and anything else by its value. */
static graph_number at_varint(int32_t type, uint64_t value)
{
    if (type == ONNX_FLOAT16)
        return (graph_number){.f = half((uint16_t)value)};
    if (type == ONNX_BFLOAT16)
        return (graph_number){.f = brain_half((uint16_t)value)};
    return (graph_number){.i = (int64_t)value};
}

/* Field numbers of TensorProto. */
enum { F32S = 4, I32S = 5, I64S = 7, F64S = 10, U64S = 11 };

/* The one list that numbers of a type are in. */
static uint32_t list_of(int32_t type)
{
    switch (type) {
    case ONNX_FLOAT:
        return F32S;
    case ONNX_DOUBLE:
        return F64S;
    case ONNX_INT64:
        return I64S;
    case ONNX_UINT32:
    case ONNX_UINT64:
        return U64S;
    default:
        return I32S;
    }
}

static void shapes_contents_read_list(graph_value *value, const onnx_field *field, uint64_t *at)
{
    size_t each = field->number == F32S ? 4 : field->number == F64S ? 8 : 0;
    uint64_t number = field->value;
    if (each) {
        for (size_t i = 0; i + each <= field->size && *at < value->elements; i += each)
            value->data[(*at)++] = at_bytes(value->type, field->data + i);
        return;
    }
    if (field->type == PB_WT_VARINT) {
        if (*at < value->elements)
            value->data[(*at)++] = at_varint(value->type, number);
        return;
    }
    onnx_wire wire = onnx_wire_of(field->data, field->size);
    while (*at < value->elements && onnx_wire_varint(&wire, &number) == 1)
        value->data[(*at)++] = at_varint(value->type, number);
}

void graph_contents_read(graph *g, graph_value *value, const uint8_t *proto, size_t size)
{
    onnx_tensor tensor;
    if (!countable(value->type) || value->elements > GRAPH_NUMBERS ||
        onnx_tensor_read(g->file, proto, size, &tensor) != WEIR_OK || !graph_contents_make(g, value))
        return;
    if (tensor.location == ONNX_LOCATION_BYTES || tensor.location == ONNX_LOCATION_BESIDE) {
        size_t each = onnx_type_bits(value->type) / 8;
        for (uint64_t i = 0; i < value->elements; i++)
            value->data[i] = at_bytes(value->type, tensor.data + i * each);
        return;
    }
    uint64_t at = 0;
    EACH_FIELD (field, proto, size)
        if (field.number == list_of(value->type))
            shapes_contents_read_list(value, &field, &at);
}

const graph_number *graph_contents(graph *g, uint32_t id)
{
    graph_value *value = &g->values[id];
    if (value->around)
        return graph_contents(value->around, value->captured);
    if (!value->data && value->proto)
        graph_contents_read(g, value, value->proto, value->proto_size);
    return value->data;
}

bool graph_whole(int32_t type, graph_number number, int64_t *out)
{
    if (!graph_real(type)) {
        *out = number.i;
        return true;
    }
    if (!(number.f >= -9.2e18 && number.f <= 9.2e18))
        return false;
    *out = (int64_t)number.f;
    return true;
}
