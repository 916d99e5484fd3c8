/* ONNX Runtime without weir: the same library, by the same table, with its own allocator and the weights left in the
 * file. What tests and measurements compare with. */
#ifndef WEIR_TEST_ONNX_PLAIN_H
#define WEIR_TEST_ONNX_PLAIN_H

#include <weir/base.h>

#include "onnx/engine/model.h"

enum { PLAIN_VALUES = 32 };

typedef struct plain {
    const onnx_library *library;
    ort_session *session;
} plain;

/* `settings` NULL: ONNX Runtime's own defaults; of cuda, they are those of its provider. Aborts with ONNX Runtime's words on failure. */
plain plain_open(const onnx_library *library, const char *path, const onnx_settings *settings);
void plain_close(plain *p);

/* Runs it; outputs[i] is the value of output_names[i]. */
void plain_run(const plain *p, const weir_tensor *inputs, size_t input_count, const char *const *output_names,
               size_t output_count, ort_value **outputs);
const void *plain_data(const plain *p, ort_value *value);
size_t plain_bytes(const plain *p, ort_value *value);

#endif
