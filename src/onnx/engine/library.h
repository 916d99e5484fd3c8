/* The builds of ONNX Runtime and their environments. A build is found, opened and started at its first use.
 *
 * A build serves some providers: the plain one the CPU, that for CUDA also cuda and tensorrt, that for OpenVINO
 * openvino. A process can have several builds open, each with a separate interface, environment and allocators. */
#ifndef WEIR_ONNX_LIBRARY_H
#define WEIR_ONNX_LIBRARY_H

#include "onnx/bridge/api.h"
#include "provider.h"

typedef struct onnx_library {
    const ort_api *api;
    ort_env *env;
    ort_memory_info *host;        /* describes memory that the CPU addresses */
    ort_allocator *plain;         /* ONNX Runtime's own allocator; for names it hands out */
    unsigned minor;               /* of its version: 31 */
    uint32_t has[ONNX_PROVIDERS]; /* which of onnx_provider_kinds, as bits */
    char path[512];
    char version[64];
} onnx_library;

/* The library that runs models by the provider. WEIR_ERR_NOT_FOUND says where one was looked for and how to get it,
 * WEIR_ERR_UNSUPPORTED that those which are here are too old or lack the provider. Any thread. */
weir_status onnx_library_get(onnx_provider provider, const onnx_library **out);

/* The same without starting it: `env` and what follows from it may be unset. WEIR_OK with a library that lacks the
 * provider where only such are here. */
weir_status onnx_library_look(onnx_provider provider, const onnx_library **out);

/* Turns ONNX Runtime's status into words, and releases it; false for success. */
bool onnx_failed(const ort_api *api, ort_status *status, int *code, char *text, size_t capacity);

#endif
