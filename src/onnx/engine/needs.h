/* What a library needs, and would not get: its dependencies as the dynamic linker would look them up, without opening
 * them. */
#ifndef WEIR_ONNX_NEEDS_H
#define WEIR_ONNX_NEEDS_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the names of the missing libraries among the direct and indirect dependencies of `file`, with found libraries
 * of a different version, like "libnvinfer.so.10 (found libnvinfer.so.8), libnvonnxparser.so.10". `also` names a
 * library that `file` opens by itself at run time; NULL: none. Returns how many libraries are missing; -1: the file is
 * no library that can be read. Any thread. */
int onnx_needs_missing(const char *file, const char *also, char *text, size_t capacity);

/* Where the dynamic linker would find a library of that name, were none of it open yet; false: nowhere. Any thread. */
bool onnx_needs_find(const char *name, char *path, size_t capacity);

#endif
