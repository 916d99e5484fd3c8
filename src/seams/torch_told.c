/* Whom PyTorch's own allocator tells of its blocks, and weir tells in its place: the profiler (torch.profiler with
 * profile_memory), and the callbacks of torch.cuda._gpu_trace, which the CUDA sanitizer of PyTorch listens to.
 *
 * PyTorch's C++ reaches the callbacks by a table whose entries have no names; weir calls Python's functions for them. */
#include "seams/torch.h"
#include "seams/seams.h"

#include <pthread.h>
#include <stdatomic.h>

/* c10::Device, which is passed in a register. */
typedef struct torch_place {
    int8_t type, index;
} torch_place;

enum { CUDA = 1 };

static struct {
    pthread_once_t once;
    const bool *traced; /* whether somebody has asked for callbacks, ever */
    bool (*profiled)(void);
    void (*report)(void *pointer, int64_t bytes, size_t allocated, size_t reserved, torch_place place);
    void (*report_refused)(int64_t bytes, size_t allocated, size_t reserved, torch_place place);
    _Atomic(wseam_torch_traced) call;
} told = {.once = PTHREAD_ONCE_INIT};

static void told_find(void)
{
    wtorch_abi_symbol("libc10.so", "_ZN3c104impl8GPUTrace9haveStateE", &told.traced);
    wtorch_abi_symbol("libc10.so", "_ZN3c1022memoryProfilingEnabledEv", &told.profiled);
    wtorch_abi_symbol("libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", &told.report);
    wtorch_abi_symbol("libc10.so", "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", &told.report_refused);
}

void wseam_torch_trace(wseam_torch_traced call)
{
    atomic_store(&told.call, call);
}

static bool told_profiled(void)
{
    pthread_once(&told.once, told_find);
    return told.profiled && told.profiled();
}

/* What PyTorch has allocated, and what the device's runtime holds. */
static size_t told_allocated(int device)
{
    wseam_torch_counts counts;
    wseam_torch_count(device, &counts);
    return (size_t)counts.allocated_bytes.current;
}

static size_t told_reserved(int device)
{
    weir_client *client = wtorch_client(device);
    weir_stats all = WEIR_INIT(weir_stats);
    return client && weir_snapshot(weir_client_runtime(client), &all, NULL, 0, NULL) == WEIR_OK ? (size_t)all.held : 0;
}

void wtorch_tell(void *pointer, int64_t bytes, int device)
{
    if (told_profiled() && told.report)
        told.report(pointer, bytes, told_allocated(device), told_reserved(device), (torch_place){CUDA, (int8_t)device});
    wseam_torch_traced call = told.traced && *told.traced ? atomic_load(&told.call) : NULL;
    if (call)
        call(pointer, bytes < 0);
}

void wtorch_tell_refused(size_t bytes, int device)
{
    if (told_profiled() && told.report_refused)
        told.report_refused((int64_t)bytes, told_allocated(device), told_reserved(device),
                            (torch_place){CUDA, (int8_t)device});
}
