/* A shared object of allocators for `weir bench --peer`: malloc that watches how it is called and fails every later call
 * when that was wrong, holds what is live and keeps to its cap; one that has no large blocks; one that holds twice what is
 * live; one that cannot be used; and one of another table. */
#include "../../bench/command/peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADER = 256, STREAMS = 64, SMALL = 1 << 20 };

typedef struct header {
    uint64_t stream;
    size_t bytes;
} header;

static atomic_bool begun, wrong;
static atomic_long live, highest = -1;
static atomic_size_t held, peak, most;
static _Thread_local bool on_thread;
static bool small_only;
static size_t times;

static void mistake(const char *what)
{
    if (!atomic_exchange(&wrong, true))
        fprintf(stderr, "peer: %s\n", what);
}

static const char *begin(void *self, uint64_t cap)
{
    held = peak = 0;
    most = cap ? cap : SIZE_MAX;
    if (atomic_exchange(&begun, true))
        mistake("begun twice");
    small_only = self == &small_only;
    times = self == &times ? 2 : 1;
    highest = -1;
    return atomic_load(&wrong) ? "it was called wrongly" : NULL;
}

static void end(void *self)
{
    (void)self;
    if (!atomic_exchange(&begun, false))
        mistake("ended without a begin");
    if (live != 0)
        mistake("ended with live blocks");
}

static void thread_begin(void *self)
{
    (void)self;
    if (on_thread)
        mistake("a thread began twice");
    on_thread = true;
}

static void thread_end(void *self)
{
    (void)self;
    if (!on_thread)
        mistake("a thread ended that had not begun");
    on_thread = false;
}

static const char *stream(void *self, unsigned index, uint64_t *out)
{
    (void)self;
    if (index >= STREAMS)
        return "no more streams";
    highest = (long)index > highest ? (long)index : highest;
    *out = 1000 + index;
    return NULL;
}

static void *allocate(void *self, size_t bytes, uint64_t stream)
{
    (void)self;
    if (!begun || !on_thread || stream < 1000 || (long)(stream - 1000) > highest)
        mistake("an allocation out of order");
    if (wrong || (small_only && bytes > SMALL))
        return NULL;
    size_t now = atomic_fetch_add(&held, times * bytes) + times * bytes, before = peak;
    char *memory = now <= most ? malloc(HEADER + bytes) : NULL;
    if (!memory) {
        atomic_fetch_sub(&held, times * bytes);
        return NULL;
    }
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        ;
    *(header *)memory = (header){stream, bytes};
    atomic_fetch_add(&live, 1);
    return memory + HEADER;
}

static bool release(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    (void)self;
    header *h = (header *)((char *)pointer - HEADER);
    if (!begun || !on_thread || h->bytes != bytes || h->stream != stream)
        mistake("a free that does not fit");
    atomic_fetch_sub(&held, times * bytes);
    free(h);
    atomic_fetch_sub(&live, 1);
    return !wrong;
}

static uint64_t peak_held(void *self)
{
    (void)self;
    return peak;
}

bench_peer_entry weir_bench_peer;

bool weir_bench_peer(unsigned which, int ordinal, bench_peer *out, const char **failure)
{
    static const char *const names[] = {"watched", "small", "wasteful", "absent", "strange"};
    void *const selves[] = {NULL, &small_only, &times, NULL, NULL};
    (void)ordinal;
    if (which > 4)
        return false;
    *out = (bench_peer){.struct_size = which == 4 ? sizeof *out - 1 : sizeof *out,
                        .self = selves[which],
                        .begin = begin,
                        .end = end,
                        .thread_begin = thread_begin,
                        .thread_end = thread_end,
                        .stream = stream,
                        .allocate = allocate,
                        .release = release,
                        .peak_held = which == 1 ? NULL : peak_held};
    snprintf(out->name, sizeof out->name, "%s", names[which]);
    if (which == 3)
        *failure = "its library is not here";
    return true;
}
