/* See main_graph.h. ONNX Runtime trusts some of this: a tensor whose data is shorter than its shape must not reach it. */
#include "onnx/file/main_graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bits;
    weir_type weir;
} types[ONNX_TYPE_COUNT] = {
    [ONNX_FLOAT] = {"float", 32, WEIR_TYPE_F32},
    [ONNX_UINT8] = {"uint8", 8, WEIR_TYPE_U8},
    [ONNX_INT8] = {"int8", 8, WEIR_TYPE_I8},
    [ONNX_UINT16] = {"uint16", 16, WEIR_TYPE_U16},
    [ONNX_INT16] = {"int16", 16, WEIR_TYPE_I16},
    [ONNX_INT32] = {"int32", 32, WEIR_TYPE_I32},
    [ONNX_INT64] = {"int64", 64, WEIR_TYPE_I64},
    [ONNX_STRING] = {"string", 0, WEIR_TYPE_NONE},
    [ONNX_BOOL] = {"bool", 8, WEIR_TYPE_BOOL},
    [ONNX_FLOAT16] = {"float16", 16, WEIR_TYPE_F16},
    [ONNX_DOUBLE] = {"double", 64, WEIR_TYPE_F64},
    [ONNX_UINT32] = {"uint32", 32, WEIR_TYPE_U32},
    [ONNX_UINT64] = {"uint64", 64, WEIR_TYPE_U64},
    [ONNX_COMPLEX64] = {"complex64", 64, WEIR_TYPE_NONE},
    [ONNX_COMPLEX128] = {"complex128", 128, WEIR_TYPE_NONE},
    [ONNX_BFLOAT16] = {"bfloat16", 16, WEIR_TYPE_BF16},
    [17] = {"float8e4m3fn", 8, WEIR_TYPE_F8E4M3FN},
    [18] = {"float8e4m3fnuz", 8, WEIR_TYPE_F8E4M3FNUZ},
    [19] = {"float8e5m2", 8, WEIR_TYPE_F8E5M2},
    [20] = {"float8e5m2fnuz", 8, WEIR_TYPE_F8E5M2FNUZ},
    [ONNX_UINT4] = {"uint4", 4, WEIR_TYPE_NONE},
    [ONNX_INT4] = {"int4", 4, WEIR_TYPE_NONE},
    [23] = {"float4e2m1", 4, WEIR_TYPE_NONE},
    [24] = {"float8e8m0", 8, WEIR_TYPE_NONE},
    [ONNX_UINT2] = {"uint2", 2, WEIR_TYPE_NONE},
    [ONNX_INT2] = {"int2", 2, WEIR_TYPE_NONE},
    [ONNX_FLOAT6E2M3] = {"float6e2m3", 6, WEIR_TYPE_NONE},
    [ONNX_FLOAT6E3M2] = {"float6e3m2", 6, WEIR_TYPE_NONE},
};

static bool tensor_known(int32_t type)
{
    return type > 0 && type < ONNX_TYPE_COUNT && types[type].name;
}

const char *onnx_type_name(int32_t type)
{
    return tensor_known(type) ? types[type].name : "?";
}

unsigned onnx_type_bits(int32_t type)
{
    return tensor_known(type) ? types[type].bits : 0;
}

weir_type onnx_type_to_weir(int32_t type)
{
    return tensor_known(type) ? types[type].weir : WEIR_TYPE_NONE;
}

int32_t onnx_type_from_weir(weir_type type)
{
    for (int32_t i = 1; type != WEIR_TYPE_NONE && i < ONNX_TYPE_COUNT; i++)
        if (types[i].weir == type)
            return i;
    return 0;
}

/* Fields of TensorProto. */
enum {
    DIMS = 1,
    TYPE = 2,
    SEGMENT = 3,
    F32S = 4,
    I32S = 5,
    TEXTS = 6,
    I64S = 7,
    NAME = 8,
    RAW = 9,
    F64S = 10,
    U64S = 11,
    BESIDE = 13,
    LOCATION = 14
};

/* What was found while reading, before it is held against the shape. */
typedef struct found {
    onnx_file *file;
    const uint8_t *at;
    onnx_tensor *tensor;
    uint64_t counts[12];   /* elements in each list of typed data, by its field number */
    const uint8_t *packed; /* the one packed piece of floats or doubles */
    unsigned pieces;       /* of typed data */
    const uint8_t *raw;
    uint64_t raw_size;
    bool has_raw, beside, has_length;
    onnx_text location;
    uint64_t offset, length;
} found;

#define BAD(f, ...) tensor_bad(f, WEIR_ERR_CORRUPT, __VA_ARGS__)
static weir_status WEIR_PRINTF(3, 4) tensor_bad(const found *f, weir_status status, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return weir_fail(status, "%s: byte %zu: tensor \"%.*s\": %s", f->file->name, (size_t)(f->at - f->file->data),
                     ONNX_SHOW(f->tensor->name), text);
}

static weir_status add_dim(found *f, uint64_t value)
{
    onnx_tensor *t = f->tensor;
    if (t->rank == ONNX_MAX_RANK)
        return BAD(f, "it has more than %d dimensions", ONNX_MAX_RANK);
    if (value > INT64_MAX)
        return BAD(f, "dimension %u is negative (%" PRId64 ")", t->rank, (int64_t)value);
    t->shape[t->rank++] = (int64_t)value;
    return WEIR_OK;
}

static weir_status tensor_read_dims(found *f, const onnx_field *field)
{
    if (field->type == PB_WT_VARINT)
        return add_dim(f, field->value);
    onnx_wire wire = onnx_wire_of(field->data, field->size);
    weir_status status = WEIR_OK;
    for (uint64_t value; status == WEIR_OK && onnx_wire_varint(&wire, &value) == 1;)
        status = add_dim(f, value);
    return status;
}

static bool decimal(onnx_text text, uint64_t *value)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.size; i++) {
        unsigned digit = (unsigned)(text.text[i] - '0');
        if (digit > 9 || v > (UINT64_MAX >> 1) / 10 - 1)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return text.size > 0;
}

static weir_status read_entry(found *f, const onnx_field *entry)
{
    onnx_text key = {0}, value = {0};
    EACH_FIELD (field, entry->data, entry->size) {
        onnx_text text = onnx_field_text(&field);
        if (field.number == 1)
            key = text;
        else if (field.number == 2)
            value = text;
    }
    bool good = true;
    if (onnx_text_is(key, "location"))
        f->location = value;
    else if (onnx_text_is(key, "offset"))
        good = decimal(value, &f->offset);
    else if (onnx_text_is(key, "length"))
        good = f->has_length = decimal(value, &f->length);
    return good ? WEIR_OK : BAD(f, "external data: %.*s \"%.*s\" is no number", ONNX_SHOW(key), ONNX_SHOW(value));
}

static void count_typed(found *f, const onnx_field *field)
{
    uint64_t *count = &f->counts[field->number];
    f->pieces++;
    if (field->number == TEXTS || field->type != PB_WT_STRING) {
        ++*count;
        return;
    }
    f->packed = field->data;
    if (field->number == F32S || field->number == F64S) {
        *count += field->size / (field->number == F32S ? 4 : 8);
        return;
    }
    for (size_t i = 0; i < field->size; i++) /* each varint ends with a byte below 128 */
        *count += field->data[i] < 0x80;
}

static weir_status tensor_read_field(found *f, const onnx_field *field)
{
    onnx_tensor *t = f->tensor;
    switch (field->number) {
    case DIMS:
        return tensor_read_dims(f, field);
    case TYPE:
        t->type = field->value <= INT32_MAX ? (int32_t)field->value : -1;
        break;
    case SEGMENT:
        return tensor_bad(f, WEIR_ERR_UNSUPPORTED, "data in segments");
    case NAME:
        t->name = onnx_field_text(field);
        break;
    case RAW:
        f->has_raw = true;
        f->raw = field->data;
        f->raw_size = field->size;
        break;
    case F32S:
    case I32S:
    case TEXTS:
    case I64S:
    case F64S:
    case U64S:
        count_typed(f, field);
        break;
    case BESIDE:
        return read_entry(f, field);
    case LOCATION:
        f->beside = field->value == 1;
        if (field->value > 1)
            return BAD(f, "data location %" PRIu64 " is none", field->value);
        break;
    default:
        break;
    }
    return WEIR_OK;
}

static weir_status tensor_measure(found *f)
{
    onnx_tensor *t = f->tensor;
    t->elements = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            t->elements = 0;
    for (uint32_t i = 0; i < t->rank && t->elements; i++)
        if (__builtin_mul_overflow(t->elements, (uint64_t)t->shape[i], &t->elements) || t->elements > INT64_MAX / 16)
            return BAD(f, "its dimensions multiply beyond what can be addressed");
    if (!tensor_known(t->type))
        return BAD(f, "its element type %" PRId32 " is none", t->type);
    if (t->type == ONNX_FLOAT6E2M3 || t->type == ONNX_FLOAT6E3M2)
        return tensor_bad(f, WEIR_ERR_UNSUPPORTED, "it is of %s, which ONNX Runtime does not know",
                          types[t->type].name);
    t->bytes = (t->elements * types[t->type].bits + 7) / 8;
    return WEIR_OK;
}

/* How many elements the list for this type must have. */
static uint64_t tensor_expected(const onnx_tensor *t, unsigned *list)
{
    switch (t->type) {
    case ONNX_FLOAT:
    case ONNX_COMPLEX64:
        *list = F32S;
        return t->type == ONNX_FLOAT ? t->elements : 2 * t->elements;
    case ONNX_DOUBLE:
    case ONNX_COMPLEX128:
        *list = F64S;
        return t->type == ONNX_DOUBLE ? t->elements : 2 * t->elements;
    case ONNX_INT64:
        *list = I64S;
        return t->elements;
    case ONNX_UINT32:
    case ONNX_UINT64:
        *list = U64S;
        return t->elements;
    case ONNX_STRING:
        *list = TEXTS;
        return t->elements;
    default:
        *list = I32S;
        return types[t->type].bits < 8 ? t->bytes : t->elements;
    }
}

static weir_status settle_typed(found *f)
{
    onnx_tensor *t = f->tensor;
    unsigned list;
    uint64_t wanted = tensor_expected(t, &list);
    if (f->counts[list] != wanted)
        return BAD(f, "%" PRIu64 " values are there, its shape and type (%s) need %" PRIu64, f->counts[list],
                   onnx_type_name(t->type), wanted);
    t->location = t->elements ? ONNX_LOCATION_TYPED : ONNX_LOCATION_NONE;
    if (t->elements && f->packed && f->pieces == 1 && (list == F32S || list == F64S)) {
        t->location = ONNX_LOCATION_BYTES; /* a packed list of floats is the floats themselves */
        t->data = f->packed;
    }
    return WEIR_OK;
}

static weir_status settle_beside(found *f)
{
    onnx_tensor *t = f->tensor;
    char why[200];
    if (f->has_raw || f->pieces || t->type == ONNX_STRING)
        return BAD(f, "it has data both here and in another file");
    if (f->has_length && f->length != t->bytes)
        return BAD(f, "external data: length %" PRIu64 ", its shape and type (%s) need %" PRIu64, f->length,
                   onnx_type_name(t->type), t->bytes);
    t->beside = true;
    t->location = ONNX_LOCATION_NONE;
    if (t->elements == 0) /* packages of ONNX write where the next one would begin, which may be behind the end */
        return WEIR_OK;
    t->side = onnx_file_side(f->file, f->location, why, sizeof why);
    if (!t->side)
        return BAD(f, "external data \"%.*s\" cannot be used: %s", ONNX_SHOW(f->location), why);
    if (f->offset > t->side->size || t->bytes > t->side->size - f->offset)
        return BAD(f, "external data \"%.*s\": bytes %" PRIu64 " to %" PRIu64 " of a file of %zu",
                   ONNX_SHOW(f->location), f->offset, f->offset + t->bytes, t->side->size);
    t->location = ONNX_LOCATION_BESIDE;
    t->data = t->side->data + f->offset;
    return WEIR_OK;
}

static weir_status tensor_settle(found *f)
{
    onnx_tensor *t = f->tensor;
    if (f->beside)
        return settle_beside(f);
    if (!f->has_raw)
        return settle_typed(f);
    if (f->pieces)
        return BAD(f, "it has both raw and typed data");
    if (t->type == ONNX_STRING)
        return BAD(f, "strings as raw data");
    if (f->raw_size != t->bytes)
        return BAD(f, "%" PRIu64 " bytes of data, its shape and type (%s) need %" PRIu64, f->raw_size,
                   onnx_type_name(t->type), t->bytes);
    t->location = t->elements ? ONNX_LOCATION_BYTES : ONNX_LOCATION_NONE;
    t->data = f->raw;
    return WEIR_OK;
}

weir_status onnx_tensor_read(onnx_file *file, const uint8_t *data, size_t size, onnx_tensor *out)
{
    memset(out, 0, sizeof *out);
    found f = {.file = file, .at = data, .tensor = out};
    weir_status status = WEIR_OK;
    EACH_FIELD_WHILE (status == WEIR_OK, field, data, size)
        status = tensor_read_field(&f, &field);
    if (status == WEIR_OK)
        status = tensor_measure(&f);
    return status == WEIR_OK ? tensor_settle(&f) : status;
}
