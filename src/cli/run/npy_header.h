/* npy_header.h: the header of an NPY file, a Python dictionary as text. */
#ifndef WEIR_CLI_NPY_HEADER_H
#define WEIR_CLI_NPY_HEADER_H

#include <weir/tensor.h>

enum {
    NPY_HEADER_MOST = 65535,  /* what is believed; an array's header is about a hundred bytes */
    NPY_WRITTEN_HEADER = 1024 /* room for the longest that is written: 16 dimensions of 20 digits */
};

typedef struct npy_header {
    weir_type type;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
} npy_header;

/* Reads the dictionary: the keys descr, fortran_order and shape, each once, and nothing else. `path` is for the detail. */
weir_status npy_header_parse(const char *path, const char *text, size_t bytes, npy_header *out);

/* Makes magic, version 1.0 and dictionary, padded to a multiple of 64; 0 for a type that NPY does not have. */
size_t npy_header_make(weir_type type, uint32_t rank, const int64_t *shape, char *header);

#endif
