/* bench_by_weir.c: weir itself: from begin to end a runtime of its own with one client. */
#include "bench_by.h"

#include <weir/weir.h>

#include <stdio.h>

enum { STREAMS = 64, WORLDS = 2 };

/* Without a cap: more than any measurement asks for, and given as it is, so that no option of the environment counts. */
#define ROOM (UINT64_C(1) << 40)

typedef struct world {
    const char *device, *resource;
    bool ordered; /* on streams; else on WEIR_STREAM_HOST */
    weir_runtime *runtime;
    weir_client *client;
    weir_stream streams[STREAMS];
    unsigned stream_count;
} world;

static world worlds[WORLDS];

static void end(void *self)
{
    world *w = self;
    for (unsigned i = 0; i < w->stream_count; i++)
        (void)!weir_stream_release(w->streams[i]);
    w->stream_count = 0;
    if (w->client)
        (void)!weir_client_close(w->client);
    w->client = NULL;
    if (w->runtime)
        (void)!weir_runtime_destroy(w->runtime);
    w->runtime = NULL;
}

static const char *begin(void *self, uint64_t cap)
{
    world *w = self;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = cap ? cap : ROOM, .resource = w->resource};
    weir_client_options client = {.struct_size = sizeof client, .name = "bench"};
    if (weir_runtime_create(w->device, &options, &w->runtime) == WEIR_OK &&
        weir_client_open(w->runtime, &client, &w->client) == WEIR_OK)
        return NULL;
    end(w);
    return weir_detail();
}

static const char *stream(void *self, unsigned index, uint64_t *out)
{
    world *w = self;
    *out = WEIR_STREAM_HOST.id;
    if (!w->ordered)
        return NULL;
    if (index >= STREAMS)
        return "there are not so many streams here";
    for (; w->stream_count <= index; w->stream_count++)
        if (weir_stream_acquire(w->runtime, &w->streams[w->stream_count]) != WEIR_OK)
            return weir_detail();
    *out = w->streams[index].id;
    return NULL;
}

static void *allocate(void *self, size_t bytes, uint64_t stream)
{
    void *pointer;
    weir_stream on = {stream};
    return weir_alloc(((world *)self)->client, bytes, on, WEIR_CLASS_ACTIVATIONS, &pointer) == WEIR_OK ? pointer : NULL;
}

static bool release(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    weir_stream on = {stream};
    (void)bytes;
    return weir_free(((world *)self)->client, pointer, on) == WEIR_OK;
}

static void synchronize(void *self)
{
    world *w = self;
    for (unsigned i = 0; i < w->stream_count; i++)
        (void)!weir_stream_synchronize(w->streams[i]);
}

static void *native(void *self, uint64_t stream)
{
    (void)self;
    return weir_stream_native((weir_stream){stream});
}

static uint64_t peak_held(void *self)
{
    weir_stats stats = {.struct_size = sizeof stats};
    return weir_snapshot(((world *)self)->runtime, &stats, NULL, 0, NULL) == WEIR_OK ? stats.peak_held : 0;
}

const char *bench_by_weir(const char *device, const char *resource, bool streams, bench_peer *out)
{
    world *w = &worlds[streams];
    *w = (world){.device = device, .resource = resource, .ordered = streams};
    *out = (bench_peer){.struct_size = sizeof *out,
                        .self = w,
                        .begin = begin,
                        .end = end,
                        .stream = stream,
                        .allocate = allocate,
                        .release = release,
                        .synchronize = synchronize,
                        .native = native,
                        .peak_held = peak_held};
    snprintf(out->name, sizeof out->name, "%s%s%s", "weir", resource ? ": " : "", resource ? resource : "");
    if (!streams)
        snprintf(out->name, sizeof out->name, "weir, no stream");
    return NULL;
}
