#include "npy.h"

#include "npy_header.h"
#include "regular.h"

#include "trace/output_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Magic, version and length, then the header's text. Its length is checked against the file before it is believed. */
static weir_status read_header(FILE *file, const char *path, uint64_t file_bytes, npy_header *header, uint64_t *data_at)
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
    weir_status status = read_header(file, path, file_bytes, &header, &data_at);
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
    weir_status status = regular_open(path, &file, &bytes);
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
                         weir_type_name(tensor->type));
    FILE *file = sink_open(path, "");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    errno = 0;
    bool good = fwrite(header, 1, length, file) == length &&
                (tensor->bytes == 0 || fwrite(tensor->data, 1, tensor->bytes, file) == tensor->bytes);
    return sink_close(file, path, "", good ? 0 : errno);
}
