/* bench_beside.c: a kernel of the lender's runs on a stream of its own, alone and, in turn with that, while its completed free
 * memory is lent to another client as fast as that goes: without a call of the driver, and by moves. */
#include "bench_beside.h"
#include "bench_kernel.h"

#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

enum { PAIRS = 25, KERNEL_MS = 20, READ_MIB = 256, PIECES = 64, PIECE_MIB = 16, TAKEN_MIB = 480 };

typedef struct world {
    weir_runtime *runtime;
    weir_client *lender, *borrower;
    weir_stream mine, other, beside; /* the lender's, the borrower's, and the kernel's */
    void *read;
    bench_kernel *kernel;
} world;

/* Lends ------------------------------------------------------------------------------------------------------------- */

static weir_status take(world *w, size_t bytes)
{
    void *block;
    weir_status status = weir_alloc(w->borrower, bytes, w->other, WEIR_CLASS_ACTIVATIONS, &block);
    if (status == WEIR_OK)
        status = weir_free(w->borrower, block, w->other);
    return status == WEIR_OK ? weir_stream_synchronize(w->other) : status;
}

static weir_status free_half(world *w, void **pieces, int half)
{
    weir_status status = WEIR_OK;
    for (int i = half; i < PIECES && status == WEIR_OK; i += 2)
        status = weir_free(w->lender, pieces[i], w->mine);
    return status == WEIR_OK ? weir_stream_synchronize(w->mine) : status;
}

/* Every second of the lender's pieces is free, and the borrower gets them as one: no other memory is within the budget. */
static weir_status lend_by_moves(world *w)
{
    void *pieces[PIECES];
    weir_status status = WEIR_OK;
    for (int i = 0; i < PIECES && status == WEIR_OK; i++)
        status = weir_alloc(w->lender, PIECE_MIB * MIB, w->mine, WEIR_CLASS_ACTIVATIONS, &pieces[i]);
    if (status == WEIR_OK)
        status = free_half(w, pieces, 0);
    if (status == WEIR_OK)
        status = take(w, TAKEN_MIB * MIB);
    return status == WEIR_OK ? free_half(w, pieces, 1) : status;
}

/* To the borrower and back again, where it lies. */
static weir_status lend(world *w)
{
    void *block;
    weir_status status = take(w, TAKEN_MIB * MIB);
    if (status == WEIR_OK)
        status = weir_alloc(w->lender, TAKEN_MIB * MIB, w->mine, WEIR_CLASS_ACTIVATIONS, &block);
    if (status == WEIR_OK)
        status = weir_free(w->lender, block, w->mine);
    return status == WEIR_OK ? weir_stream_synchronize(w->mine) : status;
}

static const struct {
    const char *what;
    weir_status (*lend)(world *w);
} kinds[BENCH_BESIDES] = {{"where it lies", lend}, {"by moves", lend_by_moves}};

/* Timing ------------------------------------------------------------------------------------------------------------ */

static weir_status run_kernel(world *w, weir_status (*lend_once)(world *w), bench_beside *b, double *milliseconds)
{
    weir_status status = bench_kernel_start(w->kernel);
    while (lend_once && status == WEIR_OK && bench_kernel_runs(w->kernel)) {
        status = lend_once(w);
        b->lends++;
    }
    return status == WEIR_OK ? bench_kernel_finish(w->kernel, milliseconds) : status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, PAIRS, sizeof *values, by_value);
    return values[PAIRS / 2];
}

static uint64_t moved(const world *w)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    return weir_snapshot(w->runtime, &stats, NULL, 0, NULL) == WEIR_OK ? stats.moved : 0;
}

static weir_status run_pairs(world *w, int kind, bench_beside *b)
{
    double alone[PAIRS], with[PAIRS], slowed[PAIRS];
    weir_status status = kinds[kind].lend(w); /* what is made for the first time does not count */
    *b = (bench_beside){.what = kinds[kind].what, .bytes = TAKEN_MIB * MIB};
    uint64_t before = moved(w);
    for (int i = 0; i < PAIRS && status == WEIR_OK; i++) {
        for (int turn = 0; turn < 2 && status == WEIR_OK; turn++) {
            bool beside = (i + turn) % 2; /* neither is always the first */
            status = run_kernel(w, beside ? kinds[kind].lend : NULL, b, beside ? &with[i] : &alone[i]);
        }
        if (status == WEIR_OK)
            slowed[i] = with[i] / alone[i];
    }
    if (status != WEIR_OK)
        return status;
    b->pairs = PAIRS;
    b->moved = moved(w) - before;
    b->alone = median(alone);
    b->with = median(with);
    b->slowed = median(slowed);
    return WEIR_OK;
}

/* Open and close ---------------------------------------------------------------------------------------------------- */

static weir_status open_clients(world *w)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "lender";
    weir_status status = weir_client_open(w->runtime, &options, &w->lender);
    options.name = "borrower";
    if (status == WEIR_OK)
        status = weir_client_open(w->runtime, &options, &w->borrower);
    weir_stream *streams[] = {&w->mine, &w->other, &w->beside};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0] && status == WEIR_OK; i++)
        status = weir_stream_acquire(w->runtime, streams[i]);
    return status;
}

static weir_status open_world(world *w, const bench_options *o)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.resource = o->resource;
    options.budget = (READ_MIB + PIECES * PIECE_MIB) * MIB;
    weir_status status = weir_runtime_create(o->device, &options, &w->runtime);
    if (status == WEIR_OK)
        status = open_clients(w);
    if (status == WEIR_OK)
        status = weir_alloc(w->lender, READ_MIB * MIB, w->beside, WEIR_CLASS_WEIGHTS, &w->read);
    if (status == WEIR_OK)
        status = bench_kernel_open(w->runtime, w->beside, w->read, READ_MIB * MIB, KERNEL_MS, &w->kernel);
    return status;
}

static void close_world(world *w)
{
    weir_client *clients[] = {w->lender, w->borrower};
    weir_stream streams[] = {w->mine, w->other, w->beside};
    if (w->kernel)
        bench_kernel_close(w->kernel);
    if (w->read)
        (void)!weir_free(w->lender, w->read, w->beside);
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        if (streams[i].id)
            (void)!weir_stream_release(streams[i]);
    for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++)
        if (clients[i])
            (void)!weir_client_close(clients[i]);
    if (w->runtime)
        (void)!weir_runtime_destroy(w->runtime);
}

weir_status bench_beside_measure(const bench_options *options, bench_beside out[BENCH_BESIDES], char *why, size_t room)
{
    world w = {0};
    weir_status status = open_world(&w, options);
    for (int kind = 0; kind < BENCH_BESIDES && status == WEIR_OK; kind++)
        status = run_pairs(&w, kind, &out[kind]);
    snprintf(why, room, "%s", status == WEIR_OK ? "" : weir_detail()); /* closing may fail for it */
    close_world(&w);
    return status;
}
