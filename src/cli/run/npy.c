/* npy.c: NumPy array files. */
#include "tensors.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files ------------------------------------------------------------------------------------------------------------ */

weir_status read_file_open(const char *path, FILE **file, uint64_t *bytes)
{
    struct stat found;
    int number = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (number < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot open %s: %s", path,
                         strerror(errno));
    if (fstat(number, &found) != 0 || !S_ISREG(found.st_mode)) {
        close(number);
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is no regular file", path);
    }
    *bytes = (uint64_t)found.st_size;
    *file = fdopen(number, "rb");
    if (*file != NULL)
        return WEIR_OK;
    close(number);
    return weir_fail(WEIR_ERR_SYSTEM, "cannot open %s: %s", path, strerror(errno));
}

/* Header ----------------------------------------------------------------------------------------------------------- */

enum {
    NPY_HEADER_MOST = 65535,  /* what is accepted; an array's header has about a hundred bytes */
    NPY_WRITTEN_HEADER = 1024 /* room for the longest that is written: 16 dimensions of 20 digits */
};

/* The header of an NPY file, a Python dictionary as text. */
typedef struct npy_header {
    weir_type type;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
} npy_header;

static const struct {
    const char *descr; /* as it is written */
    weir_type type;
} types[] = {
    {"<f2", WEIR_TYPE_F16}, {"<f4", WEIR_TYPE_F32}, {"<f8", WEIR_TYPE_F64}, {"|i1", WEIR_TYPE_I8},
    {"<i2", WEIR_TYPE_I16}, {"<i4", WEIR_TYPE_I32}, {"<i8", WEIR_TYPE_I64}, {"|u1", WEIR_TYPE_U8},
    {"<u2", WEIR_TYPE_U16}, {"<u4", WEIR_TYPE_U32}, {"<u8", WEIR_TYPE_U64}, {"|b1", WEIR_TYPE_BOOL},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* A position in the text, which may hold a NUL: `bytes` is its length. */
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

/* 'text' or "text". Escapes are refused: no descr and no key needs them. */
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

/* (), (3,), (3, 4) and (3, 4,); in Python (3) is a number, not a tuple. */
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

/* Reads one value; *seen tells of which key. */
static weir_status npy_take_value(const char *path, reader *in, const char *key, npy_header *out, int *seen)
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

/* Reads the dictionary: the keys descr, fortran_order and shape, each once, and no other. `path` is for the detail. */
static weir_status npy_header_parse(const char *path, const char *text, size_t bytes, npy_header *out)
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
        weir_status status = npy_take_value(path, &in, key, out, &seen);
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

/* Makes magic, version 1.0 and dictionary, padded to a multiple of 64 bytes; 0 for a type that NPY lacks. */
static size_t npy_header_make(weir_type type, uint32_t rank, const int64_t *shape, char *header)
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

/* Arrays ----------------------------------------------------------------------------------------------------------- */

weir_type npy_stored_type(weir_type type)
{
    switch (type) {
    case WEIR_TYPE_BF16:
        return WEIR_TYPE_U16;
    case WEIR_TYPE_F8E4M3FN:
    case WEIR_TYPE_F8E4M3FNUZ:
    case WEIR_TYPE_F8E5M2:
    case WEIR_TYPE_F8E5M2FNUZ:
        return WEIR_TYPE_U8;
    case WEIR_TYPE_TEXT:
        return WEIR_TYPE_NONE;
    default:
        return type;
    }
}

/* Magic, version and length, then the header's text. The length is checked against the file's before it is used. */
static weir_status npy_read_header(FILE *file, const char *path, uint64_t file_bytes, npy_header *header,
                                   uint64_t *data_at)
{
    unsigned char start[12];
    if (fread(start, 1, 8, file) != 8 || memcmp(start, "\x93NUMPY", 6) != 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s is no NPY file: it does not begin with \\x93NUMPY", path);
    if (start[6] < 1 || start[6] > 3)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is NPY version %d.%d; 1.0, 2.0 and 3.0 are read", path, start[6],
                         start[7]);
    size_t width = start[6] == 1 ? 2 : 4;
    if (fread(start + 8, 1, width, file) != width)
        return weir_fail(WEIR_ERR_CORRUPT, "%s is cut off within its header", path);
    uint32_t length = start[8] | (uint32_t)start[9] << 8;
    if (width == 4)
        length |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
    *data_at = 8 + width + length;
    if (length > NPY_HEADER_MOST)
        return weir_fail(WEIR_ERR_CORRUPT, "%s claims a header of %" PRIu32 " bytes; an array needs no more than %d",
                         path, length, NPY_HEADER_MOST);
    char *text = *data_at > file_bytes ? NULL : malloc((size_t)length + 1);
    if (text == NULL || fread(text, 1, length, file) != length) {
        free(text);
        return weir_fail(WEIR_ERR_CORRUPT, "%s is cut off within its header", path);
    }
    text[length] = '\0';
    weir_status status = npy_header_parse(path, text, length, header);
    free(text);
    return status;
}

static weir_status read_open_file(FILE *file, uint64_t file_bytes, const char *path, weir_tensor *out)
{
    npy_header header = {0};
    uint64_t data_at = 0;
    weir_status status = npy_read_header(file, path, file_bytes, &header, &data_at);
    if (status != WEIR_OK)
        return status;
    size_t bytes = 0;
    if (weir_tensor_bytes(header.type, header.rank, header.shape, &bytes) != WEIR_OK)
        return weir_fail(WEIR_ERR_CORRUPT, "%s claims a shape whose bytes cannot be counted", path);
    if (bytes != file_bytes - data_at)
        return weir_fail(WEIR_ERR_CORRUPT, "%s %s: its shape takes %zu bytes of data and it has %" PRIu64, path,
                         bytes > file_bytes - data_at ? "is cut off" : "holds more than one array", bytes,
                         file_bytes - data_at);
    void *data = malloc(bytes == 0 ? 1 : bytes);
    if (data == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for its %zu bytes", path, bytes);
    if (fread(data, 1, bytes, file) != bytes) {
        free(data);
        return weir_fail(WEIR_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    }
    for (size_t i = 0; header.type == WEIR_TYPE_BOOL && i < bytes; i++)
        ((uint8_t *)data)[i] = ((uint8_t *)data)[i] != 0; /* what engines rely on */
    *out = (weir_tensor){
        .struct_size = sizeof *out, .type = header.type, .rank = header.rank, .data = data, .bytes = bytes};
    memcpy(out->shape, header.shape, sizeof header.shape);
    return WEIR_OK;
}

weir_status npy_read(const char *path, weir_tensor *out)
{
    FILE *file;
    uint64_t bytes;
    weir_status status = read_file_open(path, &file, &bytes);
    if (status != WEIR_OK)
        return status;
    status = read_open_file(file, bytes, path, out);
    fclose(file);
    return status;
}

weir_status npy_write(const char *path, const weir_tensor *tensor)
{
    char header[NPY_WRITTEN_HEADER];
    size_t length = npy_header_make(npy_stored_type(tensor->type), tensor->rank, tensor->shape, header);
    if (length == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s is nothing that NPY can hold", path,
                         weir_name_of(WEIR_NAMES_TYPE, tensor->type));
    FILE *file = output_file_open(path, "");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    errno = 0;
    bool good = fwrite(header, 1, length, file) == length &&
                (tensor->bytes == 0 || fwrite(tensor->data, 1, tensor->bytes, file) == tensor->bytes);
    return output_file_close(file, path, "", good ? 0 : errno);
}
