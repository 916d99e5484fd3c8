/* peer.h: an allocator that `weir bench` measures: weir itself, an allocator built into the program weir-bench, or a shared object
 * that scripts/bench-peers builds. Every allocator is called through this table, so that the cost of the call is the
 * same for all.
 *
 * A peer is opened once, and begun and ended many times. Functions that answer a text answer NULL when all is well,
 * else what was wrong, as a text that stays until the next call. Bytes are as requested. Plain C, also for C++.
 *
 * A shared object of your own needs this header and nothing else of weir's (tests/cli/peer.c is a small example):
 *
 *     cc -shared -fPIC -I bench/command -o peers/peer-mine.so mine.c
 *     weir bench --only allocator --peer peers */
#ifndef WEIR_BENCH_COMMAND_PEER_H
#define WEIR_BENCH_COMMAND_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_peer {
    size_t struct_size;
    char name[64]; /* "PyTorch 2.11.0, expandable segments" */
    void *self;

    /* Begins as if it were new: nothing cached, peaks at zero, at most `cap` bytes of physical memory (0: only the
     * device's limit). Everything allocated is released before the end. One thread. */
    const char *(*begin)(void *self, uint64_t cap);
    void (*end)(void *self);

    /* Once on every thread that allocates or releases, the one that began included; NULL: there is nothing to do. */
    void (*thread_begin)(void *self);
    void (*thread_end)(void *self);

    /* The stream of that index, the same for the same index until the end. One thread. */
    const char *(*stream)(void *self, unsigned index, uint64_t *out);

    /* In stream order, any thread. NULL and false: it failed. */
    void *(*allocate)(void *self, size_t bytes, uint64_t stream);
    bool (*release)(void *self, void *pointer, size_t bytes, uint64_t stream);

    /* After an allocation that failed: empties the caches. True: trying again may help. NULL: it does so itself. */
    bool (*retry)(void *self);

    /* Waits for all work on the peer's streams; NULL: there is none. */
    void (*synchronize)(void *self);

    /* The stream as the device's own libraries know it, a CUstream; NULL: the stream's number is that. */
    void *(*native)(void *self, uint64_t stream);

    /* The most physical bytes held since the beginning; NULL: it cannot tell. */
    uint64_t (*peak_held)(void *self);

    void (*close)(void *self); /* may be NULL */
} bench_peer;

/* The function that a shared object exports under the name BENCH_PEER_ENTRY: fills in peer number `which`, from 0, for
 * the GPU of that ordinal. False: there are no more peers. `failure` gets a text when the peer cannot be used here. */
typedef bool bench_peer_entry(unsigned which, int ordinal, bench_peer *out, const char **failure);
#define BENCH_PEER_ENTRY "weir_bench_peer"

#endif
