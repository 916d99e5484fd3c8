/* ONNX Runtime itself: found, opened once for the process, and its one environment. */
#ifndef WEIR_ONNX_LIBRARY_H
#define WEIR_ONNX_LIBRARY_H

#include <weir/engine.h>

#include "bridge/onnxruntime_api.h"

typedef struct onnx_library {
    const ort_api *api;
    ort_env *env;
    ort_memory_info *host; /* describes memory that the CPU addresses */
    ort_allocator *plain;  /* ONNX Runtime's own allocator; for names it hands out */
    char path[512];
    char version[64];
} onnx_library;

/* The library, opened on the first call that finds one. WEIR_NOT_FOUND says where it was looked for and how to get it,
 * WEIR_UNSUPPORTED that it is too old. Any thread. */
weir_status onnx_library_get(const onnx_library **out);

/* Turns ONNX Runtime's status into words, and releases it; false for success. */
bool onnx_failed(const ort_api *api, ort_status *status, int *code, char *text, size_t capacity);

#endif
