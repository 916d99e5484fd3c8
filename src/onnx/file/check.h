/* Is this an ONNX file all the way down? Asked before ONNX Runtime sees a byte of it. */
#ifndef WI_ONNX_FILE_CHECK_H
#define WI_ONNX_FILE_CHECK_H

#include "onnx/file/file.h"

/* Walks every message of the file: wire format, schema, texts, nesting, tensors and the files they name.
 * WEIR_ERR_CORRUPT with the byte where it breaks; WEIR_ERR_UNSUPPORTED for what no ONNX Runtime takes. */
weir_status onnx_check(onnx_file *file);

/* The same, but for a file that this process has found good and that has not changed since, nor the files that it names:
 * those are opened, and nothing is walked. Any thread. */
weir_status onnx_check_once(onnx_file *file);

#endif
