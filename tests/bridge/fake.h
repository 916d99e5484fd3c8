/* An ONNX Runtime of a few functions, each of which can be made to fail: registering, without sessions. */
#ifndef TESTS_BRIDGE_FAKE_H
#define TESTS_BRIDGE_FAKE_H

#include "onnx/bridge/api.h"
#include <weir/onnxruntime.h>
#include "core/core.h"

/* What can fail, by its slot's name. */
typedef struct fake_failures {
    bool CreateEnv, CreateMemoryInfo, CreateCpuMemoryInfo, RegisterAllocator, UnregisterAllocator;
    bool pinned_only; /* of the last three: for pinned memory alone */
} fake_failures;

typedef struct fake {
    fake_failures fail;
    int env_users, infos;               /* that there are */
    ort_allocator *device, *pinned;     /* that are registered, */
    ort_allocator *device_1, *pinned_1; /* and those of the second device */
    int registered, unregistered;       /* how often */
    bool another_env;                   /* CreateEnv answers a second one */
} fake;

extern fake fake_ort;
extern const ort_api fake_api;

/* As if nothing had happened; asserts that nothing was left of what did. */
void fake_reset(void);
ort_env *fake_env(void);
/* The stream that SyncStream_GetHandle takes `native` out of. */
ort_stream *fake_stream(void **native);

/* std::bad_alloc needs the C++ library. */
void load_cxx(void);

weir_onnxruntime_options fake_options(weir_client *client, weir_stream stream);

#endif
