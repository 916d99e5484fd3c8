/* See wire.h. */
#include "onnx/file/wire.h"

#include <pb_encode.h>
#include <stdlib.h>
#include <string.h>

/* Moves on behind a varint of at most 64 bits; false: there is none, and nothing has moved. */
static inline bool take_varint(onnx_wire *wire, uint64_t *value)
{
    enum { SEVEN = 7, LAST = 63 };
    uint64_t all = 0;
    unsigned shift = 0;
    if (wire->at < wire->end && *wire->at < 0x80) {
        *value = *wire->at++;
        return true;
    }
    for (const uint8_t *at = wire->at; at < wire->end && shift <= LAST; shift += SEVEN) {
        uint64_t byte = *at++;
        if (shift == LAST && byte > 1)
            return false;
        all |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            wire->at = at;
            *value = all;
            return true;
        }
    }
    return false;
}

static inline bool wire_take_bytes(onnx_wire *wire, uint64_t size, onnx_field *field)
{
    if (size > (uint64_t)(wire->end - wire->at))
        return false;
    field->data = wire->at;
    field->size = (size_t)size;
    wire->at += size;
    return true;
}

static inline bool wire_take_value(onnx_wire *wire, onnx_field *field)
{
    uint64_t length;
    switch (field->type) {
    case PB_WT_VARINT:
        return take_varint(wire, &field->value);
    case PB_WT_32BIT:
        return wire_take_bytes(wire, 4, field);
    case PB_WT_64BIT:
        return wire_take_bytes(wire, 8, field);
    case PB_WT_STRING:
        return take_varint(wire, &length) && wire_take_bytes(wire, length, field);
    default: /* groups: no ONNX file has them */
        return false;
    }
}

int onnx_wire_next_any(onnx_wire *wire, onnx_field *field)
{
    uint64_t tag;
    *field = (onnx_field){.begin = wire->at};
    if (wire->at == wire->end)
        return 0;
    if (!take_varint(wire, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return -1;
    field->number = (uint32_t)tag >> 3;
    field->type = (pb_wire_type_t)(tag & 7);
    if (!wire_take_value(wire, field))
        return -1;
    field->end = wire->at;
    return 1;
}

/* Behind varints of eight bytes at most, each with the tag before it, as long as there is room to look at so many. */
static void skip_short(onnx_wire *wire, uint8_t tag)
{
    enum { LOOK = 9 };
    const uint64_t ends = UINT64_C(0x8080808080808080);
    while (wire->end - wire->at >= LOOK && *wire->at == tag) {
        uint64_t word;
        memcpy(&word, wire->at + 1, sizeof word);
        word = ~word & ends;
        if (word == 0)
            return;
        wire->at += 2 + __builtin_ctzll(word) / 8;
    }
}

bool onnx_wire_skip_alike(onnx_wire *wire, const onnx_field *field)
{
    onnx_field next = {.type = field->type};
    if (*field->begin >= 0x80) /* the tag has several bytes */
        return true;
    if (field->type == PB_WT_VARINT)
        skip_short(wire, *field->begin);
    while (wire->at < wire->end && *wire->at == *field->begin) {
        wire->at++;
        if (!wire_take_value(wire, &next)) {
            wire->at--;
            return false;
        }
    }
    return true;
}

int onnx_wire_varint(onnx_wire *wire, uint64_t *value)
{
    if (wire->at == wire->end)
        return 0;
    return take_varint(wire, value) ? 1 : -1;
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

bool onnx_text_among(onnx_text text, const char *words)
{
    for (const char *word = words; *word;) {
        size_t same = 0;
        while (same < text.size && word[same] == text.text[same] && word[same] && word[same] != ' ')
            same++;
        const char *rest = word + same;
        if (same == text.size && (*rest == ' ' || !*rest))
            return true;
        while (*rest && *rest != ' ')
            rest++;
        word = rest + (*rest == ' ');
    }
    return false;
}

char *onnx_text_copy(onnx_text text)
{
    char *copy = calloc(1, text.size + 1);
    if (copy && text.size > 0)
        memcpy(copy, text.text, text.size);
    return copy;
}

/* Eight bytes from 1 to 0x7f. */
static bool wire_is_plain(const uint8_t *s)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t word;
    memcpy(&word, s, sizeof word);
    return ((word | (word - ones)) & tops) == 0;
}

bool onnx_text_valid(onnx_text text)
{
    const uint8_t *s = (const uint8_t *)text.text;
    for (size_t i = 0, n; i < text.size; i += n) {
        n = text.size - i >= sizeof(uint64_t) && wire_is_plain(s + i) ? sizeof(uint64_t)
                                                                      : sequence(s + i, text.size - i);
        if (n == 0)
            return false;
    }
    return true;
}

bool onnx_buffer_reserve(onnx_buffer *buffer, size_t size)
{
    if (buffer->failed || size <= buffer->capacity)
        return !buffer->failed;
    uint8_t *data = realloc(buffer->data, size);
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = size;
    return true;
}

void onnx_put_bytes(onnx_buffer *buffer, const void *bytes, size_t size)
{
    if (buffer->failed || size == 0)
        return;
    if (size > buffer->capacity - buffer->size &&
        !onnx_buffer_reserve(buffer, buffer->size + size + buffer->capacity / 2 + 256))
        return;
    memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
}

static void wire_put(onnx_buffer *buffer, uint32_t field, pb_wire_type_t type, uint64_t value)
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
    wire_put(buffer, field, PB_WT_VARINT, value);
}

void onnx_put_head(onnx_buffer *buffer, uint32_t field, size_t size)
{
    wire_put(buffer, field, PB_WT_STRING, size);
}

void onnx_put_data(onnx_buffer *buffer, uint32_t field, const void *bytes, size_t size)
{
    onnx_put_head(buffer, field, size);
    onnx_put_bytes(buffer, bytes, size);
}

void onnx_buffer_free(onnx_buffer *buffer)
{
    if (buffer->capacity > 0)
        free(buffer->data);
    *buffer = (onnx_buffer){0};
}
