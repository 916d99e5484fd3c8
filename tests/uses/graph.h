/* What the tests of graphs share: a runtime with two clients, two streams and a graph on the device that WEIR_TEST_DEVICE names,
 * or the host; and programs that are captured. On cuda they are graphs of the driver's; elsewhere what would be captured is
 * noted, and queued at each launch. */
#ifndef TESTS_USES_GRAPH_H
#define TESTS_USES_GRAPH_H

#include "info.h"
#include "core.h"

#include <dlfcn.h>

enum { BUDGET = 64 << 20, BLOCK = 1 << 20, MOST_OPERATIONS = 16 };

typedef struct operation {
    char *to;
    const char *from; /* NULL: a fill */
    uint8_t value;
} operation;

typedef struct program {
    operation operations[MOST_OPERATIONS];
    int count;
    void *graph, *runnable; /* of the driver */
} program;

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream a, b;
    weir_capture_pool *graph;
    const char *resource;
} fixture;

static inline const char *device_name(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device ? device : "host";
}

static inline bool on_cuda(void)
{
    return strncmp(device_name(), "cuda", 4) == 0;
}

static inline weir_runtime *make_runtime_of(const char *resource)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    weir_runtime *runtime;
    ok(weir_runtime_create(device_name(), &options, &runtime));
    return runtime;
}

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->resource = *state ? *state : "mapped";
    f->runtime = make_runtime_of(f->resource);
    f->client = open_client(f->runtime, "one", 0, 0);
    f->other = open_client(f->runtime, "other", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    ok(weir_capture_pool_create(f->client, &f->graph));
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

/* Programs --------------------------------------------------------------------------------------------------------- */

typedef int (*get_address)(const char *name, void **function, int version, unsigned long long flags, int *found);

static inline void *cuda(const char *name)
{
    static void *library;
    void *function = NULL;
    int found;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    get_address get = library ? (get_address)dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (get)
        (void)get(name, &function, 12030, 0, &found);
    assert_non_null(function);
    return function;
}

/* Calls the function with the context of the runtime current. */
#define CUDA(f, name, types, ...)                                                                                      \
    do {                                                                                                               \
        void *popped_;                                                                                                 \
        assert_int_equal(((int (*)(void *))cuda("cuCtxPushCurrent"))(runtime_details((f)->runtime).native), 0);        \
        assert_int_equal(((int(*) types)cuda(name))(__VA_ARGS__), 0);                                                  \
        assert_int_equal(((int (*)(void **))cuda("cuCtxPopCurrent"))(&popped_), 0);                                    \
    } while (0)

static inline void begin(fixture *f, weir_capture_pool *graph, weir_stream stream, program *p)
{
    *p = (program){.count = 0};
    ok(weir_capture_begin(stream, graph));
    if (on_cuda())
        CUDA(f, "cuStreamBeginCapture", (void *, int), weir_stream_native(stream), 0 /* global */);
}

static inline void put(fixture *f, program *p, weir_stream stream, operation o)
{
    assert_true(p->count < MOST_OPERATIONS);
    p->operations[p->count++] = o;
    if (on_cuda())
        ok(o.from ? weir_copy(f->runtime, o.to, o.from, BLOCK, stream)
                  : weir_fill(f->runtime, o.to, o.value, BLOCK, stream));
}

static inline void end(fixture *f, weir_capture_pool *graph, weir_stream stream, program *p)
{
    if (on_cuda()) {
        CUDA(f, "cuStreamEndCapture", (void *, void **), weir_stream_native(stream), &p->graph);
        p->runnable = NULL; /* a graph is not made runnable while another capture is under way */
    }
    ok(weir_capture_end(stream, graph));
}

static inline void perform(void *user)
{
    const program *p = user;
    for (int i = 0; i < p->count; i++) {
        const operation *o = &p->operations[i];
        if (o->from)
            memcpy(o->to, o->from, BLOCK);
        else
            memset(o->to, o->value, BLOCK);
    }
}

static inline void launch(fixture *f, program *p, weir_stream stream)
{
    if (on_cuda() && !p->runnable)
        CUDA(f, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long), &p->runnable, p->graph, 0);
    if (on_cuda())
        CUDA(f, "cuGraphLaunch", (void *, void *), p->runnable, weir_stream_native(stream));
    else
        ok(weir_call(f->runtime, perform, p, stream));
}

static inline void destroy(fixture *f, program *p)
{
    if (on_cuda()) {
        if (p->runnable)
            CUDA(f, "cuGraphExecDestroy", (void *), p->runnable);
        CUDA(f, "cuGraphDestroy", (void *), p->graph);
    }
}

/* All bytes of a block are `value`. */
static inline void holds(fixture *f, const void *block, uint8_t value)
{
    unsigned char *copy = malloc(BLOCK);
    ok(weir_copy(f->runtime, copy, block, BLOCK, WEIR_STREAM_HOST));
    for (size_t i = 0; i < BLOCK; i++)
        assert_int_equal(copy[i], value);
    free(copy);
}

static inline weir_capture_pool_details info(weir_capture_pool *graph)
{
    weir_capture_pool_details details = {.struct_size = sizeof details};
    ok(weir_capture_pool_info(graph, &details));
    return details;
}

static inline void graph_has(weir_capture_pool *graph, uint64_t held, uint64_t live_blocks)
{
    weir_capture_pool_details details = info(graph);
    assert_int_equal(details.held, held);
    assert_true(held == 0 ? details.held_blocks == 0 : details.held_blocks > 0);
    assert_int_equal(details.live_blocks, live_blocks);
}

static inline uint64_t pending(fixture *f)
{
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    return s.device.pending;
}

static inline weir_block allocate_named(weir_client *client, size_t bytes, weir_stream stream, weir_class memory_class)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = memory_class, .tag = "named"};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    return block;
}

/* Nothing is pending for the client, in no class. */
static inline void classes_are_live(fixture *f)
{
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.pending, 0);
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        assert_int_equal(s.clients[0].peak_class[k], s.clients[0].live_class[k]);
}

/* A test over a resource. */
#define CASE(name, resource) cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, (void *)(resource))

#endif
