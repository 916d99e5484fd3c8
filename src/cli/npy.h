/* npy.h: NumPy's array files, versions 1.0, 2.0 and 3.0, in and out. */
#ifndef WEIR_CLI_NPY_H
#define WEIR_CLI_NPY_H

#include <weir/tensor.h>

/* Reads a file into `out`, whose data the caller frees. Little-endian, C order, the number types of weir_type and bool.
 * WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM, WEIR_ERR_CORRUPT or WEIR_ERR_UNSUPPORTED with a detail that names the file. */
weir_status npy_read(const char *path, weir_tensor *out);

/* Writes a tensor of numbers. What NumPy has no type for goes as unsigned numbers of the same width. */
weir_status npy_write(const char *path, const weir_tensor *tensor);

/* The type in which npy_write writes it: itself, WEIR_TYPE_U16 for bf16, WEIR_TYPE_U8 for the f8 types; NONE for text. */
weir_type npy_stored_type(weir_type type);

#endif
