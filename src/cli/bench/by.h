/* bench_by.h: the allocators that `weir bench` measures, through the table of bench/peer.h: weir, what is built into
 * the command, and shared objects. */
#ifndef WEIR_CLI_BENCH_BY_H
#define WEIR_CLI_BENCH_BY_H

#include "peer.h"
#include "cli/replay/replay.h"
#include "cli/text.h"

enum { BENCH_ALLOCATORS = 16 };

typedef struct bench_allocator {
    bench_peer by;
    bool own; /* weir's, not a peer */
} bench_allocator;

typedef struct bench_allocators {
    bench_allocator at[BENCH_ALLOCATORS];
    size_t count;
    json_t *left_out; /* texts: which peers are not measured, and why */
} bench_allocators;

/* Fills in all that there are for the device. `paths`: shared objects, or folders of them. What cannot be used is named
 * in left_out. */
void bench_allocators_open(bench_allocators *all, const char *device, const char *resource, const char *const *paths,
                           size_t path_count);
void bench_allocators_close(bench_allocators *all);

/* Each fills in the table; NULL, or why there is no such allocator here. */
const char *bench_by_weir(const char *device, const char *resource, bool streams, bench_peer *out);
const char *bench_by_pool(int ordinal, bench_peer *out); /* CUDA's own, cuMemAllocAsync's */
const char *bench_by_malloc(bench_peer *out);
const char *bench_by_mimalloc(bench_peer *out);

/* Adds every peer of a shared object. NULL, or why it cannot be loaded. */
const char *bench_by_file(bench_allocators *all, const char *path, int ordinal);

/* The calling thread begins and ends to work with it. */
void bench_enter_thread(const bench_peer *by);
void bench_leave_thread(const bench_peer *by);

/* As the allocator of a replay, which is one at a time. It has to be able to tell what it holds. */
const wi_replay_maker *bench_by_replay(const bench_peer *by);

/* NULL: there is no room for more, which is left out. */
bench_allocator *bench_by_add(bench_allocators *all, const bench_peer *by);
void bench_by_leave_out(bench_allocators *all, const char *name, const char *why);

#endif
