/* What a redirect has done, read from its insides; before it has ended. */
#ifndef TESTS_INTERPOSE_REDIRECT_STATS_H
#define TESTS_INTERPOSE_REDIRECT_STATS_H

#include "interpose/cuda_redirect_parts.h"

#include <stdio.h>

typedef struct wi_cuda_redirect_stats {
    uint64_t device_blocks, device_bytes; /* live, as requested; freed ones that wait for a capture count */
    uint64_t pinned_blocks, pinned_bytes; /* with managed memory that is pinned */
    uint64_t waiting;                     /* freed, and the client's until a capture has ended */
    uint64_t allocations, frees, refused;
    uint64_t passed_on;     /* requests that went on to CUDA */
    uint64_t overruns;      /* requests that CUDA granted past the budget */
    uint64_t overrun_bytes; /* live bytes of such requests */
    uint64_t hidden;        /* questions for virtual-memory management */
    uint64_t streams;       /* that the module has, without the default ones */
    uint64_t captured;      /* of these, now */
    char unseen[512];       /* functions that the module imports, by which it could take memory past weir; "" is none */
    char refusal[1024];     /* the last one's reason; "" is none */
} wi_cuda_redirect_stats;

/* What a module may take device or pinned memory by, and is not redirected. */
static const char *const redirect_not_seen[] = {"cudaMallocAsync",
                                                "cudaMallocFromPoolAsync",
                                                "cudaMallocPitch",
                                                "cudaMalloc3D",
                                                "cudaMallocArray",
                                                "cudaMalloc3DArray",
                                                "cuMemAlloc_v2",
                                                "cuMemAllocManaged",
                                                "cuMemAllocPitch_v2",
                                                "cuMemAllocAsync",
                                                "cuMemAllocFromPoolAsync",
                                                "cuMemCreate",
                                                "cuMemHostAlloc",
                                                "cuMemAllocHost_v2",
                                                "cuMemHostRegister_v2",
                                                "cuGetProcAddress",
                                                "cuGetProcAddress_v2",
                                                "cudaGetDriverEntryPoint",
                                                "cudaGetDriverEntryPointByVersion"};

static inline void redirect_list_unseen(const wi_cuda_redirect *r, char *text, size_t capacity)
{
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < sizeof redirect_not_seen / sizeof *redirect_not_seen; i++)
        if (used < capacity && wi_interpose_imports(r->interpose, redirect_not_seen[i]))
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", redirect_not_seen[i]);
}

static inline wi_cuda_redirect_stats redirect_stats(wi_cuda_redirect *r)
{
    wi_cuda_redirect_stats out = {.waiting = atomic_load(&r->waiting),
                                  .allocations = atomic_load(&r->allocations),
                                  .frees = atomic_load(&r->frees),
                                  .refused = atomic_load(&r->refused),
                                  .passed_on = atomic_load(&r->passed_on),
                                  .hidden = atomic_load(&r->hidden),
                                  .overruns = atomic_load(&r->overruns),
                                  .captured = atomic_load(&r->captures)};
    redirect_list_unseen(r, out.unseen, sizeof out.unseen);
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->stream_count; i++)
        out.streams += r->streams[i].used && r->streams[i].native;
    out.device_blocks = r->live[WEIR_KIND_DEVICE];
    out.device_bytes = r->live_bytes[WEIR_KIND_DEVICE];
    out.pinned_blocks = r->live[WEIR_KIND_PINNED];
    out.pinned_bytes = r->live_bytes[WEIR_KIND_PINNED];
    out.overrun_bytes = r->overrun_bytes;
    memcpy(out.refusal, r->refusal, sizeof out.refusal);
    pthread_mutex_unlock(&r->lock);
    return out;
}

#endif
