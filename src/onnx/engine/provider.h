/* The providers of ONNX Runtime: names in weir and in ONNX Runtime, and whether a provider can be used. */
#ifndef WEIR_ONNX_PROVIDER_H
#define WEIR_ONNX_PROVIDER_H

#include <weir/engine.h>

struct onnx_library;

/* In the order in which the engine tells them. */
typedef enum onnx_provider {
    ONNX_TENSORRT, /* CUDA behind it */
    ONNX_CUDA,
    ONNX_ROCM,   /* ROCm's own or MIGraphX */
    ONNX_COREML, /* "metal", too; the CPU behind it */
    ONNX_DIRECTML,
    ONNX_OPENVINO,
    ONNX_CPU,
    ONNX_PROVIDERS
} onnx_provider;

/* A provider as built for ONNX Runtime: the name there, and the provider's file beside libonnxruntime.so. */
typedef struct onnx_provider_kind {
    const char *theirs;
    const char *file; /* NULL: inside libonnxruntime.so */
    const char *also; /* a library that the file opens by itself, and needs to run anything; NULL: none */
} onnx_provider_kind;

enum { ONNX_PROVIDER_KINDS = 2 };

const char *onnx_provider_name(onnx_provider provider);
/* Case does not matter. */
bool onnx_provider_find(const char *name, onnx_provider *out);
/* One of "CUDAExecutionProvider" and the like; ONNX_PROVIDERS for another. */
onnx_provider onnx_provider_of(const char *theirs);
/* Returns ONNX_PROVIDER_KINDS kinds, the preferred kind first; an unused entry has the member `theirs` NULL. */
const onnx_provider_kind *onnx_provider_kinds(onnx_provider provider);
/* "run scripts/engines --openvino onnxruntime-openvino" */
const char *onnx_provider_advice(onnx_provider provider);

/* What ONNX Runtime would not notice, or only by a crash: WEIR_ERR_CONFLICT where the providers of another ONNX Runtime
 * are in the process, and those of this library would be bound to it, WEIR_ERR_UNSUPPORTED where what the provider
 * opens by itself is not there. */
weir_status onnx_provider_check(const struct onnx_library *library, onnx_provider provider);
/* What the provider lacks to be used by that library, and how to get it; answers `text`. */
const char *onnx_provider_missing(const struct onnx_library *library, onnx_provider provider, char *text,
                                  size_t capacity);

/* The engine table's. */
weir_status onnx_provider_at(size_t index, weir_engine_provider *out);

#endif
