/* See wire.h. */
#include "onnx_file/wire.h"

#include <pb_encode.h>
#include <stdlib.h>
#include <string.h>

void onnx_wire_open(onnx_wire *wire, const uint8_t *data, size_t size)
{
    wire->data = data ? data : (const uint8_t *)""; /* a field without content may have no address */
    wire->size = size;
    wire->in = pb_istream_from_buffer(wire->data, size);
}

const uint8_t *onnx_wire_at(const onnx_wire *wire)
{
    return wire->data + (wire->size - wire->in.bytes_left);
}

static bool read_value(onnx_wire *wire, onnx_field *field)
{
    uint32_t length;
    switch (field->type) {
    case PB_WT_VARINT:
        return pb_decode_varint(&wire->in, &field->value);
    case PB_WT_32BIT:
        length = 4;
        break;
    case PB_WT_64BIT:
        length = 8;
        break;
    case PB_WT_STRING:
        if (!pb_decode_varint32(&wire->in, &length))
            return false;
        break;
    default: /* groups: no ONNX file has them */
        return false;
    }
    field->data = onnx_wire_at(wire);
    field->size = length;
    return length <= wire->in.bytes_left && pb_read(&wire->in, NULL, length);
}

int onnx_wire_next(onnx_wire *wire, onnx_field *field)
{
    memset(field, 0, sizeof *field);
    bool end = false;
    field->begin = onnx_wire_at(wire);
    if (!pb_decode_tag(&wire->in, &field->type, &field->number, &end))
        return end && wire->in.bytes_left == 0 && onnx_wire_at(wire) == field->begin ? 0 : -1;
    if (field->number == 0 || !read_value(wire, field))
        return -1;
    field->end = onnx_wire_at(wire);
    return 1;
}

int onnx_wire_varint(onnx_wire *wire, uint64_t *value)
{
    if (wire->in.bytes_left == 0)
        return 0;
    return pb_decode_varint(&wire->in, value) ? 1 : -1;
}

bool onnx_text_is(onnx_text text, const char *other)
{
    return text.size == strlen(other) && (text.size == 0 || memcmp(text.text, other, text.size) == 0);
}

bool onnx_text_same(onnx_text a, onnx_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
}

/* Length of the UTF-8 sequence at `s`, 0 if it is none. */
static size_t sequence(const uint8_t *s, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : (s[0] & 0xf8) == 0xf0 ? 4 : 0;
    if (n == 1)
        return s[0] != 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t code = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

char *onnx_text_copy(onnx_text text)
{
    char *copy = calloc(1, text.size + 1);
    if (copy && text.size > 0)
        memcpy(copy, text.text, text.size);
    return copy;
}

bool onnx_text_valid(onnx_text text)
{
    const uint8_t *s = (const uint8_t *)text.text;
    for (size_t i = 0, n; i < text.size; i += n)
        if ((n = sequence(s + i, text.size - i)) == 0)
            return false;
    return true;
}

void onnx_put_bytes(onnx_buffer *buffer, const void *bytes, size_t size)
{
    if (buffer->failed || size == 0)
        return;
    if (size > buffer->capacity - buffer->size) {
        size_t capacity = buffer->size + size + buffer->capacity / 2 + 256;
        uint8_t *data = realloc(buffer->data, capacity);
        if (!data) {
            buffer->failed = true;
            return;
        }
        buffer->data = data;
        buffer->capacity = capacity;
    }
    memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
}

static void put(onnx_buffer *buffer, uint32_t field, pb_wire_type_t type, uint64_t value)
{
    uint8_t bytes[32];
    pb_ostream_t out = pb_ostream_from_buffer(bytes, sizeof bytes);
    if (pb_encode_tag(&out, type, field) && pb_encode_varint(&out, value))
        onnx_put_bytes(buffer, bytes, out.bytes_written);
    else
        buffer->failed = true;
}

void onnx_put_varint(onnx_buffer *buffer, uint32_t field, uint64_t value)
{
    put(buffer, field, PB_WT_VARINT, value);
}

void onnx_put_head(onnx_buffer *buffer, uint32_t field, size_t size)
{
    put(buffer, field, PB_WT_STRING, size);
}

void onnx_put_data(onnx_buffer *buffer, uint32_t field, const void *bytes, size_t size)
{
    onnx_put_head(buffer, field, size);
    onnx_put_bytes(buffer, bytes, size);
}

void onnx_buffer_free(onnx_buffer *buffer)
{
    free(buffer->data);
    *buffer = (onnx_buffer){0};
}
