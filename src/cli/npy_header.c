#include "npy_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *descr; /* as written */
    weir_type type;
} types[] = {
    {"<f2", WEIR_TYPE_F16}, {"<f4", WEIR_TYPE_F32}, {"<f8", WEIR_TYPE_F64}, {"|i1", WEIR_TYPE_I8},
    {"<i2", WEIR_TYPE_I16}, {"<i4", WEIR_TYPE_I32}, {"<i8", WEIR_TYPE_I64}, {"|u1", WEIR_TYPE_U8},
    {"<u2", WEIR_TYPE_U16}, {"<u4", WEIR_TYPE_U32}, {"<u8", WEIR_TYPE_U64}, {"|b1", WEIR_TYPE_BOOL},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* A place in the text. `bytes` is its length: the text may hold a NUL. */
typedef struct reader {
    const char *text;
    size_t at, bytes;
} reader;

static void skip_blanks(reader *in)
{
    while (in->at < in->bytes && strchr(" \t\r\n", in->text[in->at]) != NULL && in->text[in->at] != '\0')
        in->at++;
}

static bool take_mark(reader *in, char mark)
{
    skip_blanks(in);
    if (in->at >= in->bytes || in->text[in->at] != mark)
        return false;
    in->at++;
    return true;
}

/* 'text' or "text" without escapes, which no descr and no key needs. */
static bool take_string(reader *in, char *out, size_t capacity)
{
    skip_blanks(in);
    if (in->at >= in->bytes || (in->text[in->at] != '\'' && in->text[in->at] != '"'))
        return false;
    char quote = in->text[in->at++];
    size_t length = 0;
    while (in->at < in->bytes && in->text[in->at] != quote) {
        if (length + 1 >= capacity || in->text[in->at] == '\\' || in->text[in->at] == '\0')
            return false;
        out[length++] = in->text[in->at++];
    }
    out[length] = '\0';
    return take_mark(in, quote);
}

static bool take_word(reader *in, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(in);
    if (in->bytes - in->at < length || memcmp(in->text + in->at, word, length) != 0)
        return false;
    in->at += length;
    return true;
}

static bool take_extent(reader *in, int64_t *out)
{
    uint64_t value = 0;
    size_t digits = 0;
    skip_blanks(in);
    for (; in->at < in->bytes && in->text[in->at] >= '0' && in->text[in->at] <= '9'; in->at++, digits++) {
        unsigned digit = (unsigned)(in->text[in->at] - '0');
        if (value > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = (int64_t)value;
    return digits > 0;
}

/* (), (3,), (3, 4) and (3, 4,); Python's (3) is a number and no tuple. */
static bool take_shape(reader *in, npy_header *out)
{
    bool comma = true;
    if (!take_mark(in, '('))
        return false;
    out->rank = 0;
    while (!take_mark(in, ')')) {
        int64_t extent;
        if (!comma || out->rank == WEIR_MAX_RANK || !take_extent(in, &extent))
            return false;
        out->shape[out->rank++] = extent;
        comma = take_mark(in, ',');
    }
    return out->rank != 1 || comma;
}

static weir_status use_descr(const char *path, const char *descr, npy_header *out)
{
    const char *kind = strchr("<>=|", descr[0]) != NULL && descr[0] != '\0' ? descr + 1 : descr;
    bool one_byte = strlen(kind) == 2 && kind[1] == '1';
    if (descr[0] == '>' && !one_byte)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is big-endian (%s); save it with .astype('<%s')", path, descr, kind);
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].descr + 1, kind) == 0) {
            out->type = types[i].type;
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s holds elements of type '%s'; f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 are read", path, descr);
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4 };

/* One value; answers which key it was in *seen. */
static weir_status take_value(const char *path, reader *in, const char *key, npy_header *out, int *seen)
{
    char descr[32] = "";
    if (strcmp(key, "descr") == 0) {
        *seen = DESCR;
        if (take_string(in, descr, sizeof descr))
            return use_descr(path, descr, out);
        if (take_mark(in, '['))
            return weir_fail(WEIR_ERR_UNSUPPORTED, "%s holds records of several fields; a plain array is wanted", path);
    } else if (strcmp(key, "fortran_order") == 0) {
        *seen = ORDER;
        if (take_word(in, "False"))
            return WEIR_OK;
        if (take_word(in, "True"))
            return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is in Fortran order; save numpy.ascontiguousarray of it", path);
    } else if (strcmp(key, "shape") == 0) {
        *seen = SHAPE;
        if (take_shape(in, out))
            return WEIR_OK;
    } else {
        return weir_fail(WEIR_ERR_CORRUPT, "%s: its header has an unknown key '%s'", path, key);
    }
    return weir_fail(WEIR_ERR_CORRUPT, "%s: the value of '%s' in its header cannot be read", path, key);
}

weir_status npy_header_parse(const char *path, const char *text, size_t bytes, npy_header *out)
{
    reader in = {text, 0, bytes};
    int all = 0;
    bool comma = true;
    if (!take_mark(&in, '{'))
        return weir_fail(WEIR_ERR_CORRUPT, "%s: its header is no dictionary", path);
    while (!take_mark(&in, '}')) {
        char key[32] = "";
        int seen = 0;
        if (!comma || !take_string(&in, key, sizeof key) || !take_mark(&in, ':'))
            return weir_fail(WEIR_ERR_CORRUPT, "%s: its header is no dictionary", path);
        weir_status status = take_value(path, &in, key, out, &seen);
        if (status != WEIR_OK)
            return status;
        if (all & seen)
            return weir_fail(WEIR_ERR_CORRUPT, "%s: its header says '%s' twice", path, key);
        all |= seen;
        comma = take_mark(&in, ',');
    }
    skip_blanks(&in);
    if (all != (DESCR | ORDER | SHAPE) || in.at != in.bytes)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: its header %s", path,
                         in.at != in.bytes ? "goes on behind its dictionary" : "lacks descr, fortran_order or shape");
    return WEIR_OK;
}

size_t npy_header_make(weir_type type, uint32_t rank, const int64_t *shape, char *header)
{
    const char *descr = NULL;
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type)
            descr = types[i].descr;
    if (descr == NULL || rank > WEIR_MAX_RANK)
        return 0;
    char *text = header + 10;
    size_t room = NPY_WRITTEN_HEADER - 10;
    size_t used = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < rank; i++)
        used += (size_t)snprintf(text + used, room - used, "%" PRId64 "%s", shape[i],
                                 rank == 1      ? ","
                                 : i + 1 < rank ? ", "
                                                : "");
    used += (size_t)snprintf(text + used, room - used, "), }");
    while ((10 + used + 1) % 64 != 0)
        text[used++] = ' ';
    text[used++] = '\n';
    static const unsigned char magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    memcpy(header, magic, sizeof magic);
    header[8] = (char)(used & 0xff);
    header[9] = (char)(used >> 8);
    return 10 + used;
}
