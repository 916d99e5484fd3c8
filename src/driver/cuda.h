/* The two halves of the cuda driver: memory (cuda.c) and streams (cuda_stream.c). */
#ifndef WI_CUDA_H
#define WI_CUDA_H

#include "driver/cuda_api.h"
#include "driver/driver.h"

struct wi_device {
    int ordinal;
    CUdevice device;
    CUcontext context; /* the primary one, retained */
    uint64_t granule;
    CUmemAllocationProp properties;
    atomic_bool lost;
    void *own_stream; /* for what is to be done at once: never the legacy stream, which would wait for everyone */
};

/* Makes the device's context current for the calls between begin and end, in a capture mode in which they cannot break
 * another thread's capture, and restores what was there. */
typedef struct wi_cuda_guard {
    bool pushed;
    int capture_mode;
} wi_cuda_guard;
weir_status wi_cuda_begin(wi_device *device, wi_cuda_guard *guard);
void wi_cuda_end(wi_cuda_guard *guard);

/* The device is lost or the process is ending: nothing can be put on it any more, so there is nothing to wait for. */
bool wi_cuda_over(wi_device *device);

/* WEIR_OK, or the failure of `call` in words. Notes when the device is lost. */
weir_status wi_cuda_check(wi_device *device, CUresult result, const char *call);

weir_status wi_cuda_stream_create(wi_device *device, void **out);
void wi_cuda_stream_destroy(wi_device *device, void *handle);
weir_status wi_cuda_stream_synchronize(wi_device *device, void *handle);
void *wi_cuda_stream_native(void *handle);
weir_status wi_cuda_record(wi_device *device, void *handle, wi_event *out);
bool wi_cuda_passed(wi_device *device, wi_event event);
weir_status wi_cuda_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_cuda_order(wi_device *device, void *handle, wi_event event);
weir_status wi_cuda_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_cuda_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_cuda_call(wi_device *device, void (*fn)(void *), void *user, void *handle);

#endif
