/* Our declarations of ONNX Runtime's interface against its own header, where there is one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_ORT_HEADER

#include <onnxruntime_c_api.h>

/* Ours under the same member names; the types differ in name alone. */
#include "onnx/bridge/api.h"

#define SAME(ours, theirs, member)                                                                                     \
    if (offsetof(ours, member) != offsetof(theirs, member)) {                                                          \
        printf("%s.%s: %zu, the header has %zu\n", #ours, #member, offsetof(ours, member), offsetof(theirs, member));  \
        wrong++;                                                                                                       \
    }

int main(void)
{
    int wrong = 0, compared = 0;
#define SLOT(name, number) SAME(ort_api, OrtApi, name) compared++;
    ORT_SLOTS(SLOT)
#if ORT_API_VERSION >= 23
    ORT_SLOTS_LATER(SLOT)
#endif
    SAME(ort_allocator, OrtAllocator, version)
    SAME(ort_allocator, OrtAllocator, Alloc)
    SAME(ort_allocator, OrtAllocator, Free)
    SAME(ort_allocator, OrtAllocator, Info)
#if ORT_API_VERSION >= 18
    SAME(ort_allocator, OrtAllocator, Reserve)
#endif
#if ORT_API_VERSION >= 23
    SAME(ort_allocator, OrtAllocator, GetStats)
    SAME(ort_allocator, OrtAllocator, AllocOnStream)
#endif
    SAME(ort_base, OrtApiBase, GetApi)
    SAME(ort_base, OrtApiBase, GetVersionString)
    wrong += sizeof(ort_allocator) < sizeof(OrtAllocator);
    wrong += ORT_LOG_ERROR != (int)ORT_LOGGING_LEVEL_ERROR || ORT_LOG_WARNING != (int)ORT_LOGGING_LEVEL_WARNING;
    wrong += ORT_DEVICE_ALLOCATOR != (int)OrtDeviceAllocator || ORT_MEMORY_DEFAULT != (int)OrtMemTypeDefault;
    wrong += ORT_KIND_TENSOR != (int)ONNX_TYPE_TENSOR;
    wrong += ORT_NOT_IMPLEMENTED_CODE != (int)ORT_NOT_IMPLEMENTED || ORT_INVALID_GRAPH_CODE != (int)ORT_INVALID_GRAPH;
    wrong += ORT_INVALID_PROTOBUF_CODE != (int)ORT_INVALID_PROTOBUF;
    printf("%d slots compared with the header of version %d, %d wrong\n", compared, ORT_API_VERSION, wrong);
    return wrong != 0;
}

#else

int main(void)
{
    printf("skipped: no ONNX Runtime headers (install libonnxruntime-dev, or configure with -DWEIR_ORT_HEADERS=DIR)\n");
    return 77;
}

#endif
