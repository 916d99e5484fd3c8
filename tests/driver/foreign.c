/* What driver.h promises of streams that are not weir's: a program's own, the default ones, and captured ones. */
#include "driver/contract.h"
#include "stub/cuda/users.h"

/* A program beside weir: what it calls, and the context of its own choice. */
static struct cuda_users {
#define X(name, version, parameters) CUresult(*name) parameters;
    STUB_USERS(X)
#undef X
} users;

/* Functions that are newer than the driver stay NULL; no test here calls them. */
static int find_users(void **state)
{
    (void)state;
    int has = 0;
    CUresult (*get)(const char *, void **, int, unsigned long long, int *);
    void *symbol = device_kind_now == ON_HOST ? NULL : cuda_symbol("cuGetProcAddress_v2");
    if (!symbol)
        return device_kind_now == ON_HOST ? 0 : -1;
    memcpy(&get, &symbol, sizeof get);
    bool all = wi_cuda_load() == WEIR_OK && wi_cuda.cuDriverGetVersion(&has) == CUDA_SUCCESS;
#define X(name, version, parameters)                                                                                   \
    symbol = NULL;                                                                                                     \
    all = all && ((get(#name, &symbol, version, 0, NULL) == CUDA_SUCCESS && symbol) || (version) > has);               \
    memcpy(&users.name, &symbol, sizeof symbol);
    STUB_USERS(X)
#undef X
    return all ? 0 : -1;
}

static void enter(CUcontext context)
{
    assert_int_equal(wi_cuda.cuCtxPushCurrent(context), CUDA_SUCCESS);
}

static void leave(void)
{
    CUcontext popped;
    assert_int_equal(wi_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

static void enter_primary(void)
{
    enter(driver->context(device));
}

static CUstream make_native(void)
{
    CUstream native = NULL;
    enter_primary();
    assert_int_equal(wi_cuda.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    leave();
    return native;
}

static void drop_native(CUstream native)
{
    enter_primary();
    assert_int_equal(wi_cuda.cuStreamDestroy(native), CUDA_SUCCESS);
    leave();
}

static bool is_capturing(void *stream)
{
    thread_state before = look_at_thread();
    bool capturing = driver->stream_capturing(device, stream);
    expect_thread(before, "stream_capturing");
    return capturing;
}

static void *default_stream(weir_default_stream which)
{
    void *stream = NULL;
    ok(D(stream_default(device, which, &stream)));
    return stream;
}

/* Work, events and waits as on a stream of weir's own. */
static void use_stream(void *stream)
{
    mapped_range range;
    make_range(&range, 2, 2);
    void *other = new_stream();
    wi_event event;
    gate g = {0};
    ok(D(call(device, hold, &g, stream)));
    ok(D(fill(device, range.address, 7, granule, stream)));
    ok(D(record(device, stream, &event)));
    assert_false(driver->passed(device, event));
    ok(D(order(device, other, event)));
    ok(D(copy(device, range.address + granule, range.address, granule, other)));
    atomic_store(&g.open, true);
    ok(D(stream_synchronize(device, other)));
    assert_true(driver->passed(device, event));
    expect_granule(range.address + granule, 7);
    ok(D(record(device, other, &event)));
    ok(D(order(device, stream, event)));
    ok(D(stream_synchronize(device, stream)));
    V(stream_destroy(device, other));
    drop_range(&range);
}

static void test_host_has_no_others(void **state)
{
    (void)state;
    void *stream = NULL;
    int native;
    uint64_t identity;
    skip_unless(device_kind_now == ON_HOST);
    fails(D(stream_adopt(device, &native, &stream, &identity)), WEIR_ERR_UNSUPPORTED);
    fails(D(stream_default(device, WEIR_DEFAULT_STREAM_LEGACY, &stream)), WEIR_ERR_UNSUPPORTED);
    assert_null(driver->context(device));
    stream = new_stream();
    assert_false(is_capturing(stream));
    assert_false(is_capturing(NULL));
    V(stream_destroy(device, stream));
}

/* A program's own -------------------------------------------------------------------------------------------------- */

static void test_context_is_the_primary_one(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUcontext primary = NULL;
    assert_int_equal(wi_cuda.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_ptr_equal(driver->context(device), primary);
    assert_int_equal(wi_cuda.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

static void test_adopted_streams_work(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUstream native = make_native();
    void *stream = NULL, *again = NULL;
    uint64_t identity = 0, same = 0;
    ok(D(stream_adopt(device, native, &stream, &identity)));
    ok(D(stream_adopt(device, native, &again, &same)));
    assert_int_equal(identity, same);
    assert_ptr_equal(driver->stream_native(stream), native);
    use_stream(stream);
    V(stream_destroy(device, stream));
    use_stream(again); /* forgetting one did nothing to the stream */
    V(stream_destroy(device, again));
    drop_native(native);
}

/* What was recorded on a stream that is gone is passed, and a record that serves anew does not take it up again. */
static void test_destroyed_streams_are_forgotten(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUstream native = make_native();
    void *stream = NULL;
    uint64_t identity = 0, next = 0;
    wi_event event;
    ok(D(stream_adopt(device, native, &stream, &identity)));
    ok(D(record(device, stream, &event)));
    ok(D(stream_synchronize(device, stream)));
    drop_native(native);
    V(stream_destroy(device, stream));
    assert_true(driver->passed(device, event));
    native = make_native();
    ok(D(stream_adopt(device, native, &stream, &next)));
    assert_int_not_equal(identity, next);
    use_stream(stream);
    assert_true(driver->passed(device, event));
    V(stream_destroy(device, stream));
    drop_native(native);
}

/* What was recorded on a stream that was abandoned passes when its work is done, whatever passes on others until then. */
static void test_abandoned_streams_work_goes_on(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUstream native = make_native();
    void *stream = NULL, *other;
    uint64_t identity = 0;
    wi_event before, after;
    gate g = {0};
    ok(D(stream_adopt(device, native, &stream, &identity)));
    ok(D(call(device, hold, &g, stream)));
    ok(D(record(device, stream, &before)));
    V(stream_abandon(device, stream));
    other = new_stream();
    ok(D(record(device, other, &after)));
    ok(D(stream_synchronize(device, other)));
    assert_true(driver->passed(device, after));
    bool early = driver->passed(device, before);
    atomic_store(&g.open, true);
    ok(D(wait(device, before, UINT64_MAX)));
    assert_true(driver->passed(device, before));
    V(stream_destroy(device, other));
    drop_native(native);
    assert_false(early);
}

static void test_default_streams_are_not_adopted(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    void *const natives[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    void *stream = NULL;
    uint64_t identity;
    for (int i = 0; i < 3; i++)
        fails(D(stream_adopt(device, natives[i], &stream, &identity)), WEIR_ERR_INVALID);
    fails(D(stream_default(device, (weir_default_stream)2, &stream)), WEIR_ERR_INVALID);
}

static void test_other_contexts_are_refused(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUcontext foreign = NULL;
    CUstream native = NULL;
    void *stream = NULL;
    uint64_t identity;
    assert_int_equal(users.cuCtxCreate(&foreign, 0, 0), CUDA_SUCCESS); /* and makes it current */
    assert_int_equal(wi_cuda.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    fails(D(stream_adopt(device, native, &stream, &identity)), WEIR_ERR_STREAM_MISUSE);
    assert_non_null(strstr(weir_detail(), "context"));
    assert_int_equal(wi_cuda.cuStreamDestroy(native), CUDA_SUCCESS);
    assert_int_equal(users.cuCtxDestroy(foreign), CUDA_SUCCESS);
}

/* Default streams -------------------------------------------------------------------------------------------------- */

static void test_default_streams_work(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    void *legacy = default_stream(WEIR_DEFAULT_STREAM_LEGACY), *own = default_stream(WEIR_DEFAULT_STREAM_PER_THREAD);
    assert_ptr_equal(driver->stream_native(legacy), CU_STREAM_LEGACY);
    assert_ptr_equal(driver->stream_native(own), CU_STREAM_PER_THREAD);
    use_stream(legacy);
    use_stream(own);
    V(stream_destroy(device, legacy));
    V(stream_destroy(device, own));
}

typedef struct elsewhere {
    void *stream;
    wi_event event, other;
    char *address;
    weir_status record, fill, call, synchronize, pool, order;
    bool passed;
} elsewhere;

static void *use_elsewhere(void *user)
{
    elsewhere *e = user;
    static gate g = {.open = true};
    void *piece = NULL;
    wi_event event;
    e->record = driver->record(device, e->stream, &event);
    e->fill = driver->fill(device, e->address, 1, 256, e->stream);
    e->call = driver->call(device, hold, &g, e->stream);
    e->synchronize = driver->stream_synchronize(device, e->stream);
    e->pool = driver->pool_allocate(device, 256, e->stream, &piece);
    e->order = driver->order(device, e->stream, e->other);
    e->passed = driver->passed(device, e->event);
    return NULL;
}

/* Its name means another stream in another thread, whose order says nothing. Events are the same everywhere. */
static void test_per_thread_stream_is_its_threads(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    mapped_range range;
    make_range(&range, 1, 1);
    pthread_t thread;
    gate g = {0};
    void *busy = new_stream();
    elsewhere e = {.stream = default_stream(WEIR_DEFAULT_STREAM_PER_THREAD), .address = range.address, .passed = true};
    ok(D(fill(device, range.address, 5, granule, NULL)));
    ok(D(call(device, hold, &g, busy)));
    ok(D(record(device, busy, &e.other)));
    ok(D(call(device, hold, &g, e.stream)));
    ok(D(record(device, e.stream, &e.event)));
    assert_int_equal(pthread_create(&thread, NULL, use_elsewhere, &e), 0);
    pthread_join(thread, NULL);
    const weir_status answers[] = {e.record, e.fill, e.call, e.synchronize, e.pool, e.order};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        fails(answers[i], WEIR_ERR_STREAM_MISUSE);
    assert_false(e.passed);
    atomic_store(&g.open, true);
    ok(D(stream_synchronize(device, e.stream)));
    ok(D(stream_synchronize(device, busy)));
    expect_granule(range.address, 5);
    V(stream_destroy(device, e.stream));
    V(stream_destroy(device, busy));
    drop_range(&range);
}

typedef struct ended_thread {
    void *stream;
    weir_status status;
    gate gate;
    atomic_bool done;
} ended_thread;

static void note_done(void *user)
{
    atomic_store((atomic_bool *)user, true);
}

static void *work_and_end(void *user)
{
    ended_thread *t = user;
    wi_event event;
    t->status = driver->stream_default(device, WEIR_DEFAULT_STREAM_PER_THREAD, &t->stream);
    if (t->status == WEIR_OK)
        t->status = driver->call(device, hold, &t->gate, t->stream);
    if (t->status == WEIR_OK)
        t->status = driver->call(device, note_done, &t->done, t->stream);
    if (t->status == WEIR_OK)
        t->status = driver->record(device, t->stream, &event);
    return NULL;
}

static void *open_later(void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    atomic_store(&((gate *)user)->open, true);
    return NULL;
}

/* Its stream is forgotten by another one, when what was recorded there is passed. */
static void test_per_thread_stream_of_a_thread_that_ended(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    /* It passes on a GPU, and does not come to its end there under compute-sanitizer. */
    skip_unless(getenv("WEIR_SANITIZED") == NULL || device_kind_now != ON_CUDA);
    static ended_thread t;
    pthread_t thread, opener;
    t = (ended_thread){.status = WEIR_OK};
    assert_int_equal(pthread_create(&thread, NULL, work_and_end, &t), 0);
    pthread_join(thread, NULL);
    ok(t.status);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &t.gate), 0);
    V(stream_destroy(device, t.stream));
    assert_true(atomic_load(&t.done));
    pthread_join(opener, NULL);
}

/* Capture ---------------------------------------------------------------------------------------------------------- */

static void begin_capture(CUstream native)
{
    enter_primary();
    assert_int_equal(users.cuStreamBeginCapture(native, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    leave();
}

/* The capture must be whole: ends it. */
static CUgraph end_capture(CUstream native)
{
    CUgraph graph = NULL;
    enter_primary();
    assert_int_equal(users.cuStreamEndCapture(native, &graph), CUDA_SUCCESS);
    leave();
    assert_non_null(graph);
    return graph;
}

static void launch(CUgraph graph, CUstream native)
{
    CUgraphExec executable = NULL;
    enter_primary();
    assert_int_equal(users.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    assert_int_equal(users.cuGraphLaunch(executable, native), CUDA_SUCCESS);
    assert_int_equal(wi_cuda.cuStreamSynchronize(native), CUDA_SUCCESS);
    assert_int_equal(users.cuGraphExecDestroy(executable), CUDA_SUCCESS);
    leave();
}

static void drop_graph(CUgraph graph)
{
    assert_int_equal(users.cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* What needs the stream's own time is refused in words, and the capture does not notice. */
static void test_capture_survives_refusals(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUstream native = make_native();
    void *stream = NULL, *busy = new_stream(), *piece = NULL, *none = NULL;
    uint64_t identity;
    gate g = {0};
    wi_event early, late, event = {0};
    ok(D(stream_adopt(device, native, &stream, &identity)));
    ok(D(pool_allocate(device, 4096, stream, &piece)));
    ok(D(record(device, stream, &early)));
    ok(D(call(device, hold, &g, busy)));
    ok(D(record(device, busy, &late)));
    assert_false(is_capturing(stream));
    begin_capture(native);
    assert_true(is_capturing(stream));
    assert_false(is_capturing(busy));
    fails(D(record(device, stream, &event)), WEIR_ERR_STREAM_MISUSE);
    assert_non_null(strstr(weir_detail(), "captured"));
    fails(D(order(device, stream, late)), WEIR_ERR_STREAM_MISUSE);
    fails(D(stream_synchronize(device, stream)), WEIR_ERR_STREAM_MISUSE);
    fails(D(pool_allocate(device, 4096, stream, &none)), WEIR_ERR_STREAM_MISUSE);
    fails(D(pool_release(device, piece, 4096, stream)), WEIR_ERR_STREAM_MISUSE);
    ok(D(wait(device, early, UINT64_MAX))); /* from before it */
    drop_graph(end_capture(native));
    assert_false(is_capturing(stream));
    ok(D(order(device, stream, late)));
    atomic_store(&g.open, true);
    ok(D(pool_release(device, piece, 4096, stream)));
    ok(D(record(device, stream, &event)));
    ok(D(wait(device, event, UINT64_MAX)));
    V(stream_destroy(device, stream));
    V(stream_destroy(device, busy));
    drop_native(native);
}

static void count_up(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Copies, fills and calls happen when the graph is launched. */
static void test_work_becomes_part_of_the_graph(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    mapped_range range;
    make_range(&range, 4, 3);
    CUstream native = make_native();
    void *stream = NULL;
    uint64_t identity, half = granule / 2;
    atomic_int calls = 0;
    const weir_driver_copy halves[] = {{range.address + 2 * granule, range.address, half},
                                       {range.address + 2 * granule + half, range.address + half, half}};
    ok(D(stream_adopt(device, native, &stream, &identity)));
    fill_granules(range.address, 3, 1);
    begin_capture(native);
    ok(D(fill(device, range.address, 9, granule, stream)));
    ok(D(copy(device, range.address + granule, range.address, granule, stream)));
    ok(D(copy_many(device, halves, 2, stream)));
    ok(D(call(device, count_up, &calls, stream)));
    CUgraph graph = end_capture(native);
    ok(D(stream_synchronize(device, stream)));
    for (int i = 0; i < 3; i++)
        expect_granule(range.address + (size_t)i * granule, (uint8_t)(1 + i));
    assert_int_equal(atomic_load(&calls), 0);
    launch(graph, native);
    for (int i = 0; i < 3; i++)
        expect_granule(range.address + (size_t)i * granule, 9);
    assert_int_equal(atomic_load(&calls), 1);
    drop_graph(graph);
    V(stream_destroy(device, stream));
    drop_native(native);
    drop_range(&range);
}

/* All that has nothing to do with the stream goes on beside a capture of the strictest mode. */
static void test_the_rest_goes_on_beside_a_capture(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    CUstream native = make_native();
    void *stream = NULL, *piece = NULL, *pooled = NULL;
    uint64_t held;
    begin_capture(native);
    stream = new_stream();
    use_stream(stream);
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        ok(D(allocate(device, (weir_kind)kind, 4096, &piece)));
        ok(D(release(device, (weir_kind)kind, piece, 4096)));
    }
    ok(D(pool_allocate(device, 4096, stream, &pooled)));
    ok(D(pool_release(device, pooled, 4096, stream)));
    ok(D(pool_allocate(device, 4096, NULL, &pooled)));
    ok(D(pool_release(device, pooled, 4096, NULL)));
    ok(D(pool_trim(device, 0, &held)));
    V(stream_destroy(device, stream));
    drop_graph(end_capture(native));
    drop_native(native);
    if (device_kind_now == ON_STUB)
        assert_int_equal(control.stub_count("captures broken"), 0);
}

/* The legacy stream waits for blocking streams, so that it cannot be used while one of them is captured. */
static void test_legacy_stream_beside_a_capture(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_CUDA); /* the stub has no blocking streams */
    mapped_range range;
    make_range(&range, 1, 1);
    CUstream blocking = NULL;
    void *legacy = default_stream(WEIR_DEFAULT_STREAM_LEGACY);
    wi_event event;
    enter_primary();
    assert_int_equal(wi_cuda.cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
    leave();
    begin_capture(blocking);
    assert_true(is_capturing(legacy));
    fails(D(record(device, legacy, &event)), WEIR_ERR_STREAM_MISUSE);
    fails(D(fill(device, range.address, 1, 256, legacy)), WEIR_ERR_STREAM_MISUSE);
    fails(D(stream_synchronize(device, legacy)), WEIR_ERR_STREAM_MISUSE);
    drop_graph(end_capture(blocking));
    use_stream(legacy);
    V(stream_destroy(device, legacy));
    drop_native(blocking);
    drop_range(&range);
}

int run_foreign_tests(void)
{
    const struct CMUnitTest foreign[] = {
        cmocka_unit_test_setup_teardown(test_host_has_no_others, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_context_is_the_primary_one, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_adopted_streams_work, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_destroyed_streams_are_forgotten, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_abandoned_streams_work_goes_on, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_default_streams_are_not_adopted, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_other_contexts_are_refused, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_default_streams_work, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_per_thread_stream_is_its_threads, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_per_thread_stream_of_a_thread_that_ended, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_capture_survives_refusals, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_work_becomes_part_of_the_graph, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_the_rest_goes_on_beside_a_capture, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_legacy_stream_beside_a_capture, open_device, close_device),
    };
    return cmocka_run_group_tests(foreign, find_users, NULL);
}
