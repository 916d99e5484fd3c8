/* How a test steers the stub of libcuda.so.1: these functions are found by dlsym in the library that is loaded.
 *
 * Before it is loaded, the environment: STUB_CUDA_DEVICES (1), STUB_CUDA_TOTAL (bytes of each device, 256 MiB),
 * STUB_CUDA_TAKEN (bytes of each that another process holds), STUB_CUDA_FAIL (FUNCTION:CALL:CODE), STUB_CUDA_UNMANAGED (no
 * virtual-memory management), STUB_CUDA_UNPOOLED (no memory pools), STUB_CUDA_UNREACHABLE (no handles of the host's memory),
 * STUB_CUDA_TOGETHER (processes with one file in STUB_CUDA_SHARED have one device 0 between them). */
#ifndef STUB_CONTROL_H
#define STUB_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#define STUB_CONTROLS(X)                                                                                                         \
    /* The call number `nth` of the function from now on fails with `code`, once; 0 takes that back. */                          \
    X(void, stub_fail, (const char *function, int nth, int code))                                                                \
    /* From now on the device is lost: every call answers 719. */                                                                \
    X(void, stub_lose, (bool lost))                                                                                              \
    /* Another process holds so many bytes of the device. */                                                                     \
    X(void, stub_take, (int device, uint64_t bytes))                                                                             \
    /* Somebody captures in the global mode: unsafe calls of threads in another mode than the relaxed one fail. */               \
    X(void, stub_capture, (bool capturing))                                                                                      \
    /* From now on the devices have memory pools, or not. */                                                                     \
    X(void, stub_pools, (bool there))                                                                                            \
    /* Devices that are opened from now on map memory of the host's, or not. */                                                  \
    X(void, stub_reach, (bool there))                                                                                            \
    /* The next piece or handle that is free again is made anew by `fn` before the call that has freed it returns, as another */ \
    /* thread may do it: at the same address, or under the same number. */                                                       \
    X(void, stub_reuse, (void (*fn)(void)))                                                                                      \
    /* From now on a call ends the process. */                                                                                   \
    X(void, stub_forbid, (void))                                                                                                 \
    /* How many there are: "handles", "host handles", "mappings", "reservations", "contexts", "streams", "events", */            \
    /* "allocations" (single, and of pools), "pinned", "registered" ones, "pools"; "captures broken", "graphs", */               \
    /* "dead streams used", */                                                                                                   \
    /* "used" bytes; "depth" of this thread's contexts, its "capture mode"; calls of a function so far. Of all devices, */       \
    /* but "used" of device 0; "streams:1" and the like are device 1's alone. */                                                 \
    X(uint64_t, stub_count, (const char *what))                                                                                  \
    /* What the stub's own cuGetProcAddress_v2 gives, whatever library has that name before it; NULL: it gives nothing. */       \
    X(void *, stub_function, (const char *name, int version, unsigned long long flags, int *found))                              \
    /* A context that is somebody else's. */                                                                                     \
    X(void *, stub_foreign, (int device))

#endif
