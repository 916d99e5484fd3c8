#include "residency_why.h"
#include "driver/cuda_api.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* name, parameters, arguments. Those of why_refused can fail without anything having been done; what the others fail with is
 * overlooked, or is asked for by everybody. */
#define WHY_FUNCTIONS(X)                                                                                               \
    X(cuMemUnmap, (CUdeviceptr a, size_t b), (a, b))                                                                   \
    X(cuMemMap, (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, unsigned long long e),             \
      (a, b, c, d, e))                                                                                                 \
    X(cuMemSetAccess, (CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d), (a, b, c, d))                     \
    X(cuMemCreate, (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c, unsigned long long d),   \
      (a, b, c, d))                                                                                                    \
    X(cuMemRelease, (CUmemGenericAllocationHandle a), (a))                                                             \
    X(cuMemHostAlloc, (void **a, size_t b, unsigned c), (a, b, c))                                                     \
    X(cuMemFreeHost, (void *a), (a))                                                                                   \
    X(cuMemHostRegister, (void *a, size_t b, unsigned c), (a, b, c))                                                   \
    X(cuMemHostUnregister, (void *a), (a))                                                                             \
    X(cuMemcpyAsync, (CUdeviceptr a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, d))                               \
    X(cuMemsetD8Async, (CUdeviceptr a, unsigned char b, size_t c, CUstream d), (a, b, c, d))                           \
    X(cuEventCreate, (CUevent * a, unsigned b), (a, b))                                                                \
    X(cuEventRecord, (CUevent a, CUstream b), (a, b))                                                                  \
    X(cuEventQuery, (CUevent a), (a))                                                                                  \
    X(cuEventSynchronize, (CUevent a), (a))                                                                            \
    X(cuStreamCreate, (CUstream * a, unsigned b), (a, b))                                                              \
    X(cuStreamSynchronize, (CUstream a), (a))                                                                          \
    X(cuStreamWaitEvent, (CUstream a, CUevent b, unsigned c), (a, b, c))                                               \
    X(cuStreamIsCapturing, (CUstream a, int *b), (a, b))                                                               \
    X(cuStreamGetId, (CUstream a, unsigned long long *b), (a, b))                                                      \
    X(cuCtxGetCurrent, (CUcontext * a), (a))                                                                           \
    X(cuCtxPushCurrent, (CUcontext a), (a))                                                                            \
    X(cuCtxPopCurrent, (CUcontext * a), (a))                                                                           \
    X(cuMemGetInfo, (size_t * a, size_t * b), (a, b))

/* What of the C library's takes time: waits, and the host's memory. The linker has weir call the ones here (--wrap). type, name,
 * parameters, arguments */
#define WHY_LIBRARY(X)                                                                                                 \
    X(int, nanosleep, (const struct timespec *a, struct timespec *b), (a, b))                                          \
    X(void *, mmap, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f))                             \
    X(int, munmap, (void *a, size_t b), (a, b))                                                                        \
    X(int, madvise, (void *a, size_t b, int c), (a, b, c))                                                             \
    X(int, pthread_join, (pthread_t a, void **b), (a, b))

enum {
#define X(name, parameters, arguments) WHY_##name,
    WHY_FUNCTIONS(X)
#undef X
        WHY_DRIVERS, /* so many of them are the driver's */
    WHY_BEFORE_LIBRARY = WHY_DRIVERS - 1,
#define X(type, name, parameters, arguments) WHY_##name,
    WHY_LIBRARY(X)
#undef X
        WHY_COUNT
};

enum { WHY_UNKNOWN = 999 }; /* CUDA_ERROR_UNKNOWN */

#define BIT(name) (UINT64_C(1) << WHY_##name)

static const uint64_t why_refused = BIT(cuMemUnmap) | BIT(cuMemMap) | BIT(cuMemSetAccess) | BIT(cuMemCreate) |
                                    BIT(cuMemHostAlloc) | BIT(cuMemHostRegister) | BIT(cuMemcpyAsync) |
                                    BIT(cuMemsetD8Async) | BIT(cuEventCreate) | BIT(cuEventRecord) | BIT(cuEventQuery) |
                                    BIT(cuEventSynchronize) | BIT(cuStreamCreate) | BIT(cuStreamSynchronize) |
                                    BIT(cuStreamWaitEvent);

static const char *const why_names[] = {
#define X(name, parameters, arguments) #name,
    WHY_FUNCTIONS(X)
#undef X
#define X(type, name, parameters, arguments) #name,
        WHY_LIBRARY(X)
#undef X
};

typedef struct why_record {
    uint64_t calls;
    double seconds, first, last; /* the last two since why_clear */
} why_record;

static wi_cuda_functions why_real;
static bool why_timed;
static _Thread_local why_record why_records[WHY_COUNT];
static _Thread_local double why_since;
static _Thread_local uint64_t why_at = UINT64_MAX, why_seen;
static _Thread_local bool why_all, why_met;

static double why_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double why_enter(void)
{
    return why_timed ? why_now() : 0;
}

static void why_leave(int which, double start)
{
    why_record *r = &why_records[which];
    if (why_timed) {
        double end = why_now();
        r->first = r->calls == 0 ? start - why_since : r->first;
        r->last = end - why_since;
        r->seconds += end - start;
    }
    r->calls++;
}

static bool why_fails(int which)
{
    if (!(why_refused >> which & 1))
        return false;
    uint64_t call = why_seen++;
    bool fails = why_all ? call >= why_at && (call == why_at || which != WHY_cuMemUnmap) : call == why_at;
    why_met |= fails;
    return fails;
}

#define X(name, parameters, arguments)                                                                                 \
    static CUresult why_##name parameters                                                                              \
    {                                                                                                                  \
        double start = why_enter();                                                                                    \
        CUresult result = why_fails(WHY_##name) ? WHY_UNKNOWN : why_real.name arguments;                               \
        why_leave(WHY_##name, start);                                                                                  \
        return result;                                                                                                 \
    }
WHY_FUNCTIONS(X)
#undef X

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
#define X(type, name, parameters, arguments)                                                                           \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        double start = why_enter();                                                                                    \
        type result = __real_##name arguments;                                                                         \
        why_leave(WHY_##name, start);                                                                                  \
        return result;                                                                                                 \
    }
WHY_LIBRARY(X)
#undef X
/* NOLINTEND(bugprone-reserved-identifier) */

void why_begin(bool timed)
{
    why_timed = timed;
    if (why_real.cuMemUnmap || !wi_cuda.cuMemUnmap)
        return;
    why_real = wi_cuda;
#define X(name, parameters, arguments) wi_cuda.name = why_##name;
    WHY_FUNCTIONS(X)
#undef X
}

void why_clear(void)
{
    memset(why_records, 0, sizeof why_records);
    why_since = why_now();
}

uint64_t why_calls(void)
{
    uint64_t calls = 0;
    for (int i = 0; i < WHY_DRIVERS; i++)
        calls += why_records[i].calls;
    return calls;
}

void why_tell(const char *what, double seconds)
{
    double known = 0;
    if (!why_timed)
        return;
    printf("  %s: %.3f ms\n", what, 1e3 * seconds);
    for (int i = 0; i < WHY_COUNT; i++) {
        const why_record *r = &why_records[i];
        if (r->calls == 0)
            continue;
        printf("    %-20s %7llu x %9.2f us = %9.3f ms, from %9.3f to %9.3f ms\n", why_names[i],
               (unsigned long long)r->calls, 1e6 * r->seconds / (double)r->calls, 1e3 * r->seconds, 1e3 * r->first,
               1e3 * r->last);
        known += r->seconds;
    }
    printf("    %-20s %7s   %9s    = %9.3f ms\n", "all else", "", "", 1e3 * (seconds - known));
    fflush(stdout);
}

void why_plant(uint64_t at, bool all)
{
    why_at = at;
    why_all = all;
    why_seen = 0;
    why_met = false;
}

uint64_t why_planted(void)
{
    return why_seen;
}

bool why_struck(void)
{
    return why_met;
}
