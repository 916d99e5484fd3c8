/* Streams that are captured, streams of others, default streams, on the device that WEIR_TEST_DEVICE names, or the host.
 * What only CUDA has is left out elsewhere; tests/uses/others.c has the same on a driver of its own. */
#include "info.h"
#include "core.h"
#include <weir/block_pool.h>

#include <dlfcn.h>

enum { BUDGET = 64 << 20, BLOCK = 1 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream a, b, theirs; /* the last: another thread's */
} fixture;

static const char *device_name(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device ? device : "host";
}

static bool on_cuda(void)
{
    return strncmp(device_name(), "cuda", 4) == 0;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_on(device_name(), BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_status begin(fixture *f, weir_stream stream, void *pointer, weir_launch **launch)
{
    weir_use use = {{pointer, 0}, WEIR_ACCESS_READ};
    return weir_launch_begin(f->runtime, stream, &use, 1, launch);
}

static weir_status launch(fixture *f, weir_stream stream, void *pointer)
{
    weir_launch *launch;
    weir_status status = begin(f, stream, pointer, &launch);
    return status == WEIR_OK ? weir_launch_end(launch) : status;
}

static uint64_t pending(fixture *f)
{
    return take_snapshot(f->runtime).device.pending;
}

/* All bytes are `value`. */
static void holds(fixture *f, const void *block, uint8_t value)
{
    unsigned char *copy = malloc(BLOCK);
    ok(weir_copy(f->runtime, copy, block, BLOCK, WEIR_STREAM_HOST));
    for (size_t i = 0; i < BLOCK; i++)
        assert_int_equal(copy[i], value);
    free(copy);
}

/* Captures that are declared --------------------------------------------------------------------------------------- */

static void refuses_what_needs_an_event(fixture *f, weir_stream stream, void *p)
{
    snapshot before = take_snapshot(f->runtime);
    weir_launch *none = (weir_launch *)f;
    fails(WEIR_ERR_STREAM_MISUSE, begin(f, stream, p, &none));
    detail_names("weir_launch_begin");
    detail_names("captured into a graph");
    assert_null(none);
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = p}, stream));
    detail_names("weir_use_record");
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, p, stream));
    detail_names("weir_free");
    fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->client, p, BLOCK / 2, stream));
    weir_request request = {
        .struct_size = sizeof request, .bytes = BLOCK, .stream = stream, .flags = WEIR_ALLOC_ZEROED};
    weir_block block = {p, 1};
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(f->client, &request, &block));
    assert_null(block.pointer);
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(stream));
    detail_names("weir_stream_synchronize");
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(stream));
    detail_names("weir_stream_release");
    fails(WEIR_ERR_BUSY, weir_capture_begin(stream, NULL));
    unchanged(f->runtime, before);
}

static void a_captured_stream_refuses(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, NULL));
    ok(weir_capture_begin(f->a, NULL));
    refuses_what_needs_an_event(f, f->a, p);
    ok(launch(f, f->b, p)); /* the others go on */
    ok(weir_stream_synchronize(f->b));
    fails(WEIR_ERR_INVALID, weir_capture_end(f->b, NULL));
    ok(weir_capture_begin(f->b, NULL)); /* two at once */
    refuses_what_needs_an_event(f, f->a, p);
    refuses_what_needs_an_event(f, f->b, p);
    ok(weir_capture_end(f->a, NULL));
    ok(launch(f, f->a, p));
    refuses_what_needs_an_event(f, f->b, p);
    ok(weir_capture_end(f->b, NULL));
    fails(WEIR_ERR_INVALID, weir_capture_end(f->b, NULL));
    ok(launch(f, f->b, p));
    ok(weir_free(f->client, p, f->a));
}

static void captures_of_no_stream(void **state)
{
    fixture *f = *state;
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_stream_release(gone));
    fails(WEIR_ERR_INVALID, weir_capture_begin(WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_capture_end(WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(gone, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_end(gone, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin((weir_stream){UINT64_MAX}, NULL));
    /* The next one to have the stream finds it as it was. */
    weir_stream next;
    ok(weir_stream_acquire(f->runtime, &next));
    fails(WEIR_ERR_INVALID, weir_capture_end(next, NULL));
    ok(weir_stream_release(next));
}

static void a_launch_does_not_end_in_a_capture(void **state)
{
    fixture *f = *state;
    weir_launch *open;
    void *p = allocate(f->client, BLOCK, f->b, WEIR_CLASS_KV);
    ok(begin(f, f->a, p, &open));
    ok(weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_launch_end(open));
    detail_names("weir_launch_end");
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->b)); /* it goes on holding its blocks */
    ok(weir_capture_end(f->a, NULL));
    ok(weir_launch_end(open));
    ok(weir_free(f->client, p, f->b));
}

/* What weir queued before the capture is known by the point before it. */
static void zeros_before_a_capture(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *used = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV),
         *copy = allocate(f->client, BLOCK, f->b, WEIR_CLASS_KV);
    ok(weir_fill(f->runtime, used, 7, BLOCK, f->a));
    ok(weir_fill(f->runtime, copy, 7, BLOCK, f->b));
    ok(weir_stream_synchronize(f->a));
    ok(weir_free(f->client, used, f->a));
    ok(weir_stream_synchronize(f->b));
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    assert_ptr_equal(block.pointer, used);
    ok(weir_capture_begin(f->a, NULL));
    weir_launch *reading;
    ok(begin(f, f->b, block.pointer, &reading));
    ok(weir_copy(f->runtime, copy, block.pointer, BLOCK, f->b));
    ok(weir_launch_end(reading));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    holds(f, copy, 0);
    ok(weir_capture_end(f->a, NULL));
    ok(weir_free_block(f->client, block, f->b));
    ok(weir_free(f->client, copy, f->b));
}

/* An allocation on a captured stream is served at once, and what comes after the capture is in order as before. */
static void order_afterwards(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    ok(weir_capture_begin(f->a, NULL));
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_capture_end(f->a, NULL));
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_fill(f->runtime, p, 3, BLOCK, f->a));
    ok(weir_capture_begin(f->a, NULL));
    ok(weir_capture_end(f->a, NULL));
    weir_launch *writing;
    weir_use use = {{p, 0}, WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, f->a, &use, 1, &writing));
    ok(weir_fill(f->runtime, p, 4, BLOCK, f->a));
    ok(weir_launch_end(writing));
    void *q = allocate(f->client, BLOCK, f->b, WEIR_CLASS_KV);
    ok(begin(f, f->b, p, &writing));
    ok(weir_copy(f->runtime, q, p, BLOCK, f->b));
    ok(weir_launch_end(writing));
    ok(weir_free(f->client, p, f->b));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
    holds(f, q, 4);
    ok(weir_free(f->client, q, f->b));
}

/* An allocation waits for nobody while its stream is captured: it would for an hour. */
static void allocations_in_a_capture_do_not_wait(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *p = allocate(f->client, BUDGET, f->a, WEIR_CLASS_KV), *q;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_free(f->client, p, f->a));
    ok(weir_capture_begin(f->b, NULL));
    ok(weir_option_set("wait", "3600s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, BUDGET, f->b, WEIR_CLASS_KV, &q));
    ok(weir_option_set("wait", NULL));
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    q = allocate(f->client, BUDGET, f->b, WEIR_CLASS_KV);
    ok(weir_capture_end(f->b, NULL));
    ok(weir_free(f->client, q, f->b));
}

static void pools_in_a_capture(void **state)
{
    fixture *f = *state;
    for (int clears = 0; clears < 2; clears++) {
        weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 256, .count = 8, .tag = "kv"};
        options.flags = clears ? WEIR_BLOCK_POOL_CLEAR : 0;
        weir_block_pool *pool;
        weir_block_pool_member *member;
        uint32_t taken, more;
        ok(weir_block_pool_create(f->client, &options, &pool));
        ok(weir_block_pool_member_create(pool, f->client, 0, &member));
        ok(weir_block_pool_alloc(member, 1, 0, f->a, &taken));
        ok(weir_capture_begin(f->a, NULL));
        fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_free(member, &taken, NULL, 1, 0, f->a));
        detail_names("weir_block_pool_free");
        if (clears)
            fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_alloc(member, 1, 0, f->a, &more));
        else
            ok(weir_block_pool_alloc(member, 1, 0, f->a, &more));
        ok(weir_capture_end(f->a, NULL));
        ok(weir_block_pool_free(member, &taken, NULL, 1, 0, f->a));
        if (!clears)
            ok(weir_block_pool_free(member, &more, NULL, 1, 0, f->a));
        ok(weir_stream_synchronize(f->a));
        ok(weir_block_pool_member_destroy(member));
        ok(weir_block_pool_destroy(pool));
    }
}

/* Two threads want the same capture: one gets it. */
typedef struct rival {
    weir_stream stream;
    int got, wrong;
} rival;

static void *capture_often(void *user)
{
    rival *r = user;
    for (int i = 0; i < 2000; i++) {
        weir_status status = weir_capture_begin(r->stream, NULL);
        if (status == WEIR_OK) {
            r->got++;
            r->wrong += weir_capture_end(r->stream, NULL) != WEIR_OK; /* nobody else ends it */
        } else {
            r->wrong += status != WEIR_ERR_BUSY;
        }
    }
    return NULL;
}

static void one_capture_at_a_time(void **state)
{
    fixture *f = *state;
    rival rivals[3] = {{f->a, 0, 0}, {f->a, 0, 0}, {f->b, 0, 0}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_often, &rivals[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(rivals[i].wrong, 0);
    }
    assert_int_equal(rivals[2].got, 2000);
    assert_true(rivals[0].got + rivals[1].got > 0);
}

/* CUDA's own ------------------------------------------------------------------------------------------------------- */

typedef int (*get_address)(const char *name, void **function, int version, unsigned long long flags, int *found);

/* A function of the driver library's; NULL: it has none. */
static void *cuda(const char *name)
{
    static void *library;
    void *function = NULL;
    int found;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    get_address get = library ? (get_address)dlsym(library, "cuGetProcAddress_v2") : NULL;
    return get && get(name, &function, 12030, 0, &found) == 0 ? function : NULL;
}

/* Calls the function with the context of the runtime current. */
#define CUDA(f, name, types, ...)                                                                                      \
    do {                                                                                                               \
        void *popped_;                                                                                                 \
        assert_int_equal(((int (*)(void *))cuda("cuCtxPushCurrent"))(runtime_details((f)->runtime).native), 0);        \
        assert_int_equal(((int(*) types)cuda(name))(__VA_ARGS__), 0);                                                  \
        assert_int_equal(((int (*)(void **))cuda("cuCtxPopCurrent"))(&popped_), 0);                                    \
    } while (0)

static void *create_stream(fixture *f)
{
    void *native = NULL;
    CUDA(f, "cuStreamCreate", (void **, unsigned), &native, 1 /* non-blocking */);
    return native;
}

static void destroy_stream(fixture *f, void *native)
{
    CUDA(f, "cuStreamDestroy", (void *), native);
}

static void skip_unless_cuda(void)
{
    if (!on_cuda())
        skip();
}

static void the_native_context(void **state)
{
    fixture *f = *state;
    if (!on_cuda()) {
        assert_null(runtime_details(f->runtime).native);
        return;
    }
    void *context = NULL;
    ((int (*)(void **, int))cuda("cuDevicePrimaryCtxRetain"))(&context, 0);
    assert_non_null(context);
    assert_ptr_equal(runtime_details(f->runtime).native, context);
    ((int (*)(int))cuda("cuDevicePrimaryCtxRelease"))(0);
}

static void devices_that_are_not_there(void **state)
{
    (void)state;
    weir_runtime *runtime = (weir_runtime *)state;
    static const char *const far[] = {"cuda:64", "cuda:99"};
    for (size_t i = 0; i < 2; i++) {
        fails(WEIR_ERR_NOT_FOUND, weir_runtime_get(far[i], NULL, &runtime));
        assert_null(runtime);
        detail_names(far[i]);
        detail_names("from 0 to 63");
    }
    if (on_cuda()) {
        fails(WEIR_ERR_NOT_FOUND, weir_runtime_get("cuda:63", NULL, &runtime));
        detail_names("cuda:63");
    }
}

static void a_stream_of_the_user(void **state)
{
    fixture *f = *state;
    skip_unless_cuda();
    gate g = GATE;
    void *native = create_stream(f);
    weir_stream stream, again;
    ok(weir_stream_register(f->runtime, native, &stream));
    ok(weir_stream_register(f->runtime, native, &again));
    assert_int_equal(stream.id, again.id);
    assert_ptr_equal(weir_stream_native(stream), native);
    void *p = allocate(f->client, BLOCK, stream, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, f->b, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, stream));
    weir_launch *use;
    weir_use write = {{p, 0}, WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, stream, &write, 1, &use));
    ok(weir_fill(f->runtime, p, 5, BLOCK, stream));
    ok(weir_launch_end(use));
    ok(begin(f, f->b, p, &use));
    ok(weir_copy(f->runtime, q, p, BLOCK, f->b));
    ok(weir_launch_end(use));
    ok(weir_free(f->client, p, stream));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_unregister(stream));
    ok(weir_stream_unregister(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(stream));
    destroy_stream(f, native);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
    holds(f, q, 5);
    ok(weir_free(f->client, q, f->b));
}

static void streams_that_cannot_be_registered(void **state)
{
    fixture *f = *state;
    weir_stream stream = {7};
    for (uintptr_t special = 0; special <= 2; special++) {
        fails(WEIR_ERR_INVALID, weir_stream_register(f->runtime, (void *)special, &stream));
        assert_int_equal(stream.id, 0);
    }
    if (!on_cuda()) {
        fails(WEIR_ERR_UNSUPPORTED, weir_stream_register(f->runtime, f, &stream));
        fails(WEIR_ERR_UNSUPPORTED, weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &stream));
    } else {
        fails(WEIR_ERR_INVALID, weir_stream_register(f->runtime, weir_stream_native(f->a), &stream));
    }
    assert_int_equal(stream.id, 0);
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(f->a));
    ok(weir_stream_synchronize(f->a));
}

static void *frees_on_its_own(void *user)
{
    fixture *f = user;
    weir_stream own;
    void *p;
    bool good = weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &own) == WEIR_OK &&
                weir_alloc(f->client, BLOCK, own, WEIR_CLASS_KV, &p) == WEIR_OK &&
                weir_free(f->client, p, own) == WEIR_OK;
    f->theirs = own;
    return good ? NULL : user;
}

/* A snapshot asks whether it is past. */
static bool all_passes(fixture *f)
{
    snapshot s = take_snapshot(f->runtime);
    for (int i = 0; i < 1000 && unpassed(&s) > 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        s = take_snapshot(f->runtime);
    }
    return unpassed(&s) == 0;
}

/* Nothing could be recorded there by another thread: what is freed there does not wait for that. */
static void what_is_freed_on_a_threads_own_stream(void **state)
{
    fixture *f = *state;
    skip_unless_cuda();
    pthread_t thread;
    void *wrong;
    assert_int_equal(pthread_create(&thread, NULL, frees_on_its_own, f), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_true(all_passes(f));
    ok(weir_free(f->client, allocate(f->client, BUDGET, f->a, WEIR_CLASS_KV), f->a));
    ok(weir_stream_unregister(f->theirs));
}

/* A stream ends while it is registered, which is the caller's mistake. Where the next one has its address, it has another id,
 * and the old one is nobody's; the runtime of the test is left behind where the address was not used again. */
static void an_address_that_is_used_again(void **state)
{
    (void)state;
    skip_unless_cuda();
    fixture f = {.runtime = make_runtime_on(device_name(), BUDGET)};
    void *native = create_stream(&f), *next;
    weir_stream old, stream;
    ok(weir_stream_register(f.runtime, native, &old));
    destroy_stream(&f, native);
    next = create_stream(&f);
    ok(weir_stream_register(f.runtime, next, &stream));
    assert_int_not_equal(old.id, stream.id);
    ok(weir_stream_synchronize(stream));
    assert_ptr_equal(weir_stream_native(stream), next);
    if (next == native) {
        fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(old));
        assert_null(weir_stream_native(old));
    }
    ok(weir_stream_unregister(stream));
    destroy_stream(&f, next);
    if (next == native)
        ok(weir_runtime_destroy(f.runtime));
    else
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(f.runtime));
}

static void default_streams(void **state)
{
    fixture *f = *state;
    skip_unless_cuda();
    static const weir_default_stream both[] = {WEIR_DEFAULT_STREAM_LEGACY, WEIR_DEFAULT_STREAM_PER_THREAD};
    for (int i = 0; i < 2; i++) {
        weir_stream stream;
        ok(weir_stream_default(f->runtime, both[i], &stream));
        void *p = allocate(f->client, BLOCK, stream, WEIR_CLASS_KV);
        ok(weir_fill(f->runtime, p, (uint8_t)(i + 1), BLOCK, stream));
        ok(weir_stream_synchronize(stream));
        holds(f, p, (uint8_t)(i + 1));
        ok(launch(f, stream, p));
        ok(weir_free(f->client, p, stream));
        if (both[i] == WEIR_DEFAULT_STREAM_LEGACY)
            fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(stream, NULL));
        ok(weir_stream_unregister(stream));
        fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(stream));
    }
}

/* A capture of the driver's: what weir refuses leaves it whole, and what it takes is in the graph. */
static void a_graph(void **state)
{
    fixture *f = *state;
    if (!on_cuda() || !cuda("cuGraphInstantiateWithFlags"))
        skip();
    void *native = weir_stream_native(f->a), *graph, *runnable;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_fill(f->runtime, p, 1, BLOCK, f->a));
    ok(weir_stream_synchronize(f->a));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p},
                       f->b)); /* so that its free is no matter of this thread's alone */
    CUDA(f, "cuStreamBeginCapture", (void *, int), native, 0 /* global */);
    fails(WEIR_ERR_STREAM_MISUSE, launch(f, f->a, p));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = p}, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, p, f->a));
    fails(WEIR_ERR_BUSY, weir_capture_begin(f->a, NULL));
    void *q = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_fill(f->runtime, p, 6, BLOCK, f->a));
    ok(launch(f, f->b, p));
    CUDA(f, "cuStreamEndCapture", (void *, void **), native, &graph);
    assert_non_null(graph);
    ok(weir_stream_synchronize(f->a));
    holds(f, p, 1); /* nothing has happened yet */
    CUDA(f, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long), &runnable, graph, 0);
    weir_launch *writing;
    weir_use write = {{p, 0}, WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, f->a, &write, 1, &writing));
    CUDA(f, "cuGraphLaunch", (void *, void *), runnable, native);
    ok(weir_launch_end(writing));
    ok(weir_stream_synchronize(f->a));
    holds(f, p, 6);
    CUDA(f, "cuGraphExecDestroy", (void *), runnable);
    CUDA(f, "cuGraphDestroy", (void *), graph);
    ok(weir_free(f->client, p, f->a));
    ok(weir_free(f->client, q, f->a));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_captured_stream_refuses),
        CASE(captures_of_no_stream),
        CASE(a_launch_does_not_end_in_a_capture),
        CASE(zeros_before_a_capture),
        CASE(order_afterwards),
        CASE(allocations_in_a_capture_do_not_wait),
        CASE(pools_in_a_capture),
        CASE(one_capture_at_a_time),
        CASE(the_native_context),
        cmocka_unit_test(devices_that_are_not_there),
        CASE(a_stream_of_the_user),
        CASE(streams_that_cannot_be_registered),
        CASE(what_is_freed_on_a_threads_own_stream),
        cmocka_unit_test(an_address_that_is_used_again),
        CASE(default_streams),
        CASE(a_graph),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
