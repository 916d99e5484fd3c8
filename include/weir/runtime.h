/* weir/runtime.h: the runtime, one per device and process, which owns the device's budget.
 *
 * Engines are clients of it (weir/client.h). It is made by the first weir_runtime_get and lives as long as the process:
 * nothing of it is torn down at exit, and no driver is called once exit has begun. In a child made by fork every call
 * answers WEIR_ERR_FORKED. */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include <weir/status.h>

WEIR_BEGIN

typedef struct weir_runtime weir_runtime;

typedef struct weir_runtime_options {
    size_t struct_size;
    uint64_t budget; /* bytes of device memory that all clients together may hold; 0: the option `budget`, else what
                             is free less the larger of 10 % and 512 MiB (on the host: of the cgroup's limit) */
    const char *resource; /* which resource serves the clients; NULL: the option `resource`, else "cache" */
    weir_runtime *host; /* the runtime in whose ledger pinned and pageable memory counts (weir/memory.h): one of "host",
                             which stays until this one is destroyed; NULL: the process's. Of weir_runtime_create alone */
} weir_runtime_options;

/* The process's runtime of `device`: "host", "cuda", "cuda:1" ("cuda" is "cuda:0"; ordinals go from 0 to 63, "host" has 0
 * alone). The first call makes it, and it stays until the process ends; nobody gives it back. `options` may be NULL. Later
 * calls find it: members of the options that are 0 or NULL agree with what it has, and another budget or resource is
 * WEIR_ERR_CONFLICT, naming both. The budget can be changed later with weir_runtime_set_budget.
 *
 * First callers of one device wait for each other and get the same runtime; those of other devices do not wait. Later calls are
 * a table look-up without a lock. A failed start leaves nothing behind, and the next call tries again. Other errors:
 * WEIR_ERR_INVALID (a text that is no device), WEIR_ERR_NOT_FOUND (no such driver or ordinal here; the detail says what is
 * missing), WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_get(const char *device, const weir_runtime_options *options,
                                                     weir_runtime **out);

/* A runtime of its own that is not found by weir_runtime_get: for tests, and for embedders that partition a device on
 * purpose. The caller owns it. weir_runtime_destroy waits for queued work and gives everything back to the driver;
 * WEIR_ERR_BUSY while a client is open, a stream acquired or registered, a trace open or another runtime has it for its host,
 * WEIR_ERR_INVALID for one that weir_runtime_get made. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_create(const char *device, const weir_runtime_options *options,
                                                        weir_runtime **out);
WEIR_API WEIR_NODISCARD weir_status weir_runtime_destroy(weir_runtime *runtime);

/* "host", "cuda:0"; owned by the runtime. */
WEIR_API const char *weir_runtime_device(const weir_runtime *runtime);
WEIR_API int weir_runtime_ordinal(const weir_runtime *runtime);
/* What the device's own libraries call it, for programs that use them beside weir: the CUcontext on cuda (the device's
 * primary context, which weir retains), NULL on host. It lives as long as the runtime. Any thread. */
WEIR_API void *weir_runtime_native(const weir_runtime *runtime);

/* Makes the device current on the calling thread, for libraries that work on the one that is, as CUDA's own and engines over
 * it do: on cuda its primary context; on host nothing happens. Leave has the thread as it was, whatever such a library has made
 * current in between; on the same thread, after each enter that succeeded, the last one first. weir's own functions need neither,
 * and change nothing of what is current. Errors: WEIR_ERR_INVALID for NULL, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, WEIR_ERR_FORKED. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_enter(weir_runtime *runtime);
WEIR_API void weir_runtime_leave(weir_runtime *runtime);

WEIR_API uint64_t weir_runtime_budget(const weir_runtime *runtime);

/* Changes the budget while in use. Cached memory is given up as far as needed; below what clients have live, pending,
 * promised or guaranteed: WEIR_ERR_OUT_OF_MEMORY with those numbers, and the old budget stays. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_set_budget(weir_runtime *runtime, uint64_t budget);

/* Makes frees final. At return, what was freed before the call and is known to have passed is nobody's: no thread keeps it
 * parked, it is not pending, not in a guard's quarantine, and no more in the order of a stream. `left` (may be NULL) gets the
 * bytes that were freed and are not final, 0 when there are none: so where all work before the frees was waited for beforehand
 * (weir_stream_synchronize) and nobody frees meanwhile. Bytes that were freed and taken again on one stream may count each
 * time. What the driver refuses to take back is tried again here, and is among them; what graphs hold (weir/graph.h) is not.
 *
 * It waits for no work on any stream, and for no free that is made after it has begun; it does wait for threads that at its
 * start are making such frees final themselves, and for what the driver's own calls wait for (cuMemFree: the resource direct,
 * pinned and pageable memory). Inside of the log's function it waits for no thread. Order stays as it was: what threads have
 * parked is freed on its streams, behind the work that is there now. A free that follows the order of its stream alone has
 * passed once an event behind it has; where there is none yet one is recorded here, and what the device has not told by the
 * end of the call is left for the next one. Blocks that are given back to pools (weir/blocks.h) are the pools' matter.
 * Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_drain(weir_runtime *runtime, uint64_t *left);

WEIR_END
#endif
