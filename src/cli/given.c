#include "given.h"

#include "npy.h"
#include "regular.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static weir_status read_shape(const char *text, given_input *out)
{
    out->rank = 0;
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789");
        char number[24];
        uint64_t extent;
        if (out->rank == WEIR_MAX_RANK)
            return weir_fail(WEIR_ERR_INVALID, "has more than %d dimensions", WEIR_MAX_RANK);
        if (digits == 0 || digits >= sizeof number)
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
        memcpy(number, text, digits);
        number[digits] = '\0';
        if (!text_number(number, 0, INT64_MAX, &extent))
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
        out->shape[out->rank++] = (int64_t)extent;
        text += digits;
        if (*text == 'x' && text[1] != '\0')
            text++;
        else if (*text != '\0')
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
    }
    size_t bytes;
    if (weir_tensor_bytes(WEIR_TYPE_F64, out->rank, out->shape, &bytes) != WEIR_OK)
        return weir_fail(WEIR_ERR_INVALID, "is too large a shape");
    return WEIR_OK;
}

static weir_status read_lines(const char *path, char **out)
{
    FILE *file;
    uint64_t bytes;
    weir_status status = regular_open(path, &file, &bytes);
    if (status != WEIR_OK)
        return status;
    char *text = text_grow(NULL, bytes + 1, 1);
    size_t got = fread(text, 1, bytes, file);
    fclose(file);
    text[got] = '\0';
    for (size_t i = 0, length; i < got; i += length)
        if ((length = text_character(text + i, got - i)) == 0 || text[i] == '\0') {
            free(text);
            return weir_fail(WEIR_ERR_CORRUPT, "%s is no UTF-8 text: see byte %zu", path, i);
        }
    while (got > 0 && (text[got - 1] == '\n' || text[got - 1] == '\r'))
        text[--got] = '\0'; /* the last line's end begins no further line */
    *out = text;
    return WEIR_OK;
}

weir_status given_read(const char *value, given_input *out)
{
    size_t length = strlen(value);
    out->value = NULL;
    if (strncmp(value, "shape:", 6) == 0) {
        out->kind = GIVEN_SHAPE;
        out->value = text_copy(value);
        return read_shape(value + 6, out);
    }
    if (value[0] == '@') {
        out->kind = GIVEN_LINES;
        return read_lines(value + 1, &out->value);
    }
    if (length > 4 && strcmp(value + length - 4, ".npy") == 0) {
        out->kind = GIVEN_ARRAY;
        out->value = text_copy(value);
        return npy_read(value, &out->array);
    }
    out->kind = GIVEN_TEXT;
    out->value = text_copy(value);
    return WEIR_OK;
}

void given_clear(given_input *given)
{
    free(given->name);
    free(given->value);
    free(given->array.data);
    *given = (given_input){0};
}
