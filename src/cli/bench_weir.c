/* bench_weir.c: weir's own operations: allocation and free by each resource, and the declaration of uses. */
#include "bench_operations.h"

#include <stdio.h>

const char bench_small[] = "allocate and free 4 KiB on a stream";
const char bench_large[] = "allocate and free 1 MiB on a stream";
const char bench_host[] = "allocate and free 4 KiB, no stream";
const char bench_use[] = "begin and end a launch, 1 block";
const char bench_many[] = "begin and end a launch, 16 blocks";
const char bench_record[] = "order one stream behind another";

static const char *const stacks[] = {"mapped", "direct", "async", "log(async)", "guard(direct)"};
enum { STACKS = sizeof stacks / sizeof stacks[0] };

typedef struct world {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream, other;
    weir_use uses[BENCH_USES];
    weir_block block; /* used on both streams */
} world;

static world worlds[STACKS];

static bool good(weir_status status)
{
    return status == WEIR_OK;
}

static bool pair(world *w, size_t bytes, weir_stream stream)
{
    void *pointer;
    return good(weir_alloc(w->client, bytes, stream, WEIR_CLASS_ACTIVATIONS, &pointer)) &&
           good(weir_free(w->client, pointer, stream));
}

static bool run_small(void *user)
{
    world *w = user;
    return pair(w, BENCH_SMALL_BYTES, w->stream);
}

static bool run_large(void *user)
{
    world *w = user;
    return pair(w, BENCH_LARGE_BYTES, w->stream);
}

static bool run_host(void *user)
{
    return pair(user, BENCH_SMALL_BYTES, WEIR_STREAM_HOST);
}

static bool run_uses(world *w, size_t count)
{
    weir_launch *launch;
    return good(weir_launch_begin(w->runtime, w->other, w->uses, count, &launch)) && good(weir_launch_end(launch));
}

static bool run_use(void *user)
{
    return run_uses(user, 1);
}

static bool run_many(void *user)
{
    return run_uses(user, BENCH_USES);
}

/* A write on one stream, then one on the other: the second launch waits for the first. */
static bool run_record(void *user)
{
    world *w = user;
    weir_use use = {w->block, WEIR_ACCESS_WRITE};
    weir_launch *launch;
    weir_stream next = w->stream;
    w->stream = w->other;
    w->other = next;
    return good(weir_launch_begin(w->runtime, next, &use, 1, &launch)) && good(weir_launch_end(launch));
}

static weir_status make_world(const char *device, const char *stack, world *w)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = UINT64_C(256) << 20, .resource = stack};
    weir_client_options client = {.struct_size = sizeof client, .name = "bench"};
    weir_status status = weir_runtime_create(device, &options, &w->runtime);
    if (status == WEIR_OK)
        status = weir_client_open(w->runtime, &client, &w->client);
    if (status == WEIR_OK)
        status = weir_stream_acquire(w->runtime, &w->stream);
    if (status == WEIR_OK)
        status = weir_stream_acquire(w->runtime, &w->other);
    weir_request request = {.struct_size = sizeof request, .bytes = BENCH_SMALL_BYTES};
    for (size_t i = 0; i < BENCH_USES && status == WEIR_OK; i++) {
        w->uses[i].access = WEIR_ACCESS_READ;
        status = weir_alloc_with(w->client, &request, &w->uses[i].block);
    }
    return status == WEIR_OK ? weir_alloc_with(w->client, &request, &w->block) : status;
}

static void end_world(world *w)
{
    for (size_t i = 0; i < BENCH_USES && w->client; i++)
        (void)!weir_free_block(w->client, w->uses[i].block, WEIR_STREAM_HOST);
    if (w->client && weir_free_block(w->client, w->block, WEIR_STREAM_HOST) == WEIR_OK)
        (void)!weir_client_close(w->client);
    if (w->stream.id)
        (void)!weir_stream_release(w->stream);
    if (w->other.id)
        (void)!weir_stream_release(w->other);
    if (w->runtime)
        (void)!weir_runtime_destroy(w->runtime);
    *w = (world){0};
}

weir_status bench_weir_begin(bench *b)
{
    for (size_t i = 0; i < STACKS; i++) {
        char who[64];
        weir_status status = make_world(b->device, stacks[i], &worlds[i]);
        if (status != WEIR_OK)
            return status;
        snprintf(who, sizeof who, "weir: %s", stacks[i]);
        bench_add(b, bench_small, who, run_small, &worlds[i]);
        bench_add(b, bench_large, who, run_large, &worlds[i]);
        bench_add(b, bench_host, who, run_host, &worlds[i]);
    }
    bench_add(b, bench_use, "weir", run_use, &worlds[0]);
    bench_add(b, bench_many, "weir", run_many, &worlds[0]);
    bench_add(b, bench_record, "weir: a launch that writes", run_record, &worlds[0]);
    return WEIR_OK;
}

void bench_weir_end(void)
{
    for (size_t i = 0; i < STACKS; i++)
        end_world(&worlds[i]);
}
