/* The protobuf wire format, read in place and written into a growing buffer. Every field tells where in the file it
 * stands. A file may have a hundred million of them, as trees have, so they are read by an address and its end; nanopb
 * writes, and has the names of wire types. */
#ifndef WI_ONNX_FILE_WIRE_H
#define WI_ONNX_FILE_WIRE_H

#include <pb_decode.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct onnx_wire {
    const uint8_t *at, *end;
} onnx_wire;

typedef struct onnx_field {
    uint32_t number;
    pb_wire_type_t type;
    uint64_t value;      /* PB_WT_VARINT: the number; PB_WT_32BIT and PB_WT_64BIT: not decoded */
    const uint8_t *data; /* otherwise: the bytes of the value, without their length */
    size_t size;
    const uint8_t *begin, *end; /* the whole field, tag included */
} onnx_field;

/* A text inside the file; not terminated. */
typedef struct onnx_text {
    const char *text;
    size_t size;
} onnx_text;

static inline onnx_wire onnx_wire_of(const uint8_t *data, size_t size)
{
    const uint8_t *at = data ? data : (const uint8_t *)""; /* a field without content may have no address */
    return (onnx_wire){at, at + size};
}

/* As onnx_wire_next, for any field. */
int onnx_wire_next_any(onnx_wire *wire, onnx_field *field);

/* 1: *field is the next one, 0: the end, -1: malformed at wire->at. Most fields are texts and messages of less than 128 bytes, with
 * a tag of one byte. */
static inline int onnx_wire_next(onnx_wire *wire, onnx_field *field)
{
    const uint8_t *at = wire->at;
    if (wire->end - at < 2 || at[0] >= 0x80 || at[1] >= 0x80 || (at[0] & 7) != PB_WT_STRING || at[0] < 8 ||
        at[1] > wire->end - at - 2)
        return onnx_wire_next_any(wire, field);
    *field = (onnx_field){
        .number = at[0] >> 3, .type = PB_WT_STRING, .data = at + 2, .size = at[1], .begin = at, .end = at + 2 + at[1]};
    wire->at = field->end;
    return 1;
}

/* Goes through the fields of a message, up to the end or a malformed field; _WHILE stops once `more` is false. */
#define EACH_FIELD_WHILE(more, field, data_, size_)                                                                    \
    for (onnx_wire field##_wire = onnx_wire_of(data_, size_), *field##_once = &field##_wire; field##_once;             \
         field##_once = NULL)                                                                                          \
        for (onnx_field field; (more) && onnx_wire_next(&field##_wire, &field) == 1;)
#define EACH_FIELD(field, data_, size_) EACH_FIELD_WHILE (true, field, data_, size_)

/* Moves on behind the fields that follow with the same number and wire type, as lists of numbers have them one by one.
 * False: a malformed field, at wire->at. */
bool onnx_wire_skip_alike(onnx_wire *wire, const onnx_field *field);
/* The next varint of a packed field; 1, 0 or -1 as above. */
int onnx_wire_varint(onnx_wire *wire, uint64_t *value);

static inline onnx_text onnx_field_text(const onnx_field *field)
{
    return (onnx_text){(const char *)field->data, field->size};
}

static inline bool onnx_text_same(onnx_text a, onnx_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
}

static inline bool onnx_text_is(onnx_text text, const char *other)
{
    bool begins = text.size == 0 || *text.text == *other; /* most texts differ there, and tables are long */
    return begins && onnx_text_same(text, (onnx_text){other, strlen(other)});
}

/* True: the text is a word of the list, which has blanks between words. */
bool onnx_text_among(onnx_text text, const char *words);
bool onnx_text_valid(onnx_text text); /* UTF-8 without NUL */
char *onnx_text_copy(onnx_text text); /* with a NUL behind it, for free; NULL: no host memory */
/* For "%.*s": a name cut to what a message can hold. */
#define ONNX_SHOW(t) (int)((t).size < 80 ? (t).size : 80), (t).size ? (t).text : ""

typedef struct onnx_buffer {
    uint8_t *data;
    size_t size, capacity; /* no capacity: the data are somebody else's */
    bool failed;           /* out of host memory: everything since was dropped */
} onnx_buffer;

/* Makes room for `size` bytes in all, to avoid copies while the buffer grows. False: the buffer has `failed`. */
bool onnx_buffer_reserve(onnx_buffer *buffer, size_t size);
void onnx_put_bytes(onnx_buffer *buffer, const void *bytes, size_t size);
void onnx_put_varint(onnx_buffer *buffer, uint32_t field, uint64_t value);
void onnx_put_data(onnx_buffer *buffer, uint32_t field, const void *bytes, size_t size);
/* The tag and the length of a field whose `size` bytes are put next. */
void onnx_put_head(onnx_buffer *buffer, uint32_t field, size_t size);
void onnx_buffer_free(onnx_buffer *buffer);

#endif
