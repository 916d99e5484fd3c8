/* What the tests of traces share: a traced runtime, and events one by one. */
#ifndef TESTS_TRACE_H
#define TESTS_TRACE_H

#include "core.h"
#include "test_places.h"
#include <weir/trace.h>

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream a, b;
    weir_trace *trace;
} fixture;

static inline fixture *start(void)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(4 * MIB);
    f->client = open_client(f->runtime, "traced", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    return f;
}

static inline int end(void **state)
{
    fixture *f = *state;
    weir_trace_destroy(f->trace);
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static inline weir_launch *begin(fixture *f, weir_stream stream, void *pointer, weir_access access)
{
    weir_use use = {{pointer, 0}, access};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, stream, &use, 1, &launch));
    return launch;
}

/* A path in a folder that the test removes when it ends. */
static inline const char *scratch(const char *name)
{
    return built_path("trace-%ld-%s", (long)getpid(), name);
}

#endif
