/* What driver.h promises of streams, events and work. */
#include "driver/contract.h"

static wi_event mark(void *stream)
{
    wi_event event = {0};
    ok(D(record(device, stream, &event)));
    return event;
}

static bool passed(wi_event event)
{
    thread_state before = look_at_thread();
    bool answer = driver->passed(device, event);
    expect_thread(before, "passed");
    return answer;
}

static void wait_entered(gate *g)
{
    while (!atomic_load(&g->entered))
        nap(100);
}

/* Order within a stream -------------------------------------------------------------------------------------------- */

typedef struct note {
    int *at;
    int expected, *wrong;
} note;

static void write_note(void *user)
{
    note *n = user;
    *n->wrong += *n->at != n->expected;
    (*n->at)++;
}

static void test_calls_run_in_order(void **state)
{
    (void)state;
    enum { CALLS = 500 };
    static note notes[CALLS];
    int at = 0, wrong = 0;
    void *stream = new_stream();
    for (int i = 0; i < CALLS; i++) {
        notes[i] = (note){&at, i, &wrong};
        ok(D(call(device, write_note, &notes[i], stream)));
    }
    ok(D(stream_synchronize(device, stream)));
    assert_int_equal(at, CALLS);
    assert_int_equal(wrong, 0);
    V(stream_destroy(device, stream));
}

static void test_copy_fill_and_call_on_a_stream(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 4, 2);
    void *stream = new_stream();
    gate g = {0};
    unsigned char *back = malloc(granule);
    assert_non_null(back);
    memset(back, 1, granule);
    ok(D(fill(device, range.address, 1, 2 * granule, NULL)));
    ok(D(call(device, hold, &g, stream)));
    ok(D(fill(device, range.address, 7, granule, stream)));
    ok(D(copy(device, range.address + granule, range.address, granule, stream)));
    wait_entered(&g);
    expect_granule(range.address + granule, 1); /* at once, beside the stream that is held up */
    atomic_store(&g.open, true);
    ok(D(copy(device, back, range.address + granule, granule, stream)));
    ok(D(stream_synchronize(device, stream)));
    for (size_t i = 0; i < granule; i += 997)
        assert_int_equal(back[i], 7);
    free(back);
    V(stream_destroy(device, stream));
    drop_range(&range);
}

static void count_up(void *user)
{
    (*(int *)user)++;
}

static void test_at_once_without_a_stream(void **state)
{
    (void)state;
    int calls = 0;
    wi_event event = {&calls, 7};
    ok(D(call(device, count_up, &calls, NULL)));
    assert_int_equal(calls, 1);
    ok(D(record(device, NULL, &event)));
    assert_true(passed(event));
    ok(D(wait(device, event, 0)));
    ok(D(order(device, NULL, event)));
    ok(D(stream_synchronize(device, NULL)));
}

static void test_destroy_waits(void **state)
{
    (void)state;
    void *stream = new_stream();
    gate g = {.open = true};
    for (int i = 0; i < 20; i++)
        ok(D(call(device, hold, &g, stream)));
    V(stream_destroy(device, stream));
    assert_true(atomic_load(&g.entered));
}

static void test_native_streams(void **state)
{
    (void)state;
    void *one = new_stream(), *two = new_stream();
    if (device_kind_now == ON_HOST)
        assert_null(driver->stream_native(one));
    else
        assert_true(driver->stream_native(one) && driver->stream_native(one) != driver->stream_native(two));
    V(stream_destroy(device, one));
    V(stream_destroy(device, two));
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static void test_events_pass_in_order(void **state)
{
    (void)state;
    void *stream = new_stream();
    gate first = {0}, second = {0};
    wi_event before = mark(stream);
    ok(D(call(device, hold, &first, stream)));
    wi_event middle = mark(stream);
    ok(D(call(device, hold, &second, stream)));
    wi_event end = mark(stream);
    wait_entered(&first);
    ok(D(wait(device, before, wi_now() + 10 * UINT64_C(1000000000))));
    assert_true(passed(before));
    assert_false(passed(middle));
    assert_false(passed(end));
    atomic_store(&first.open, true);
    ok(D(wait(device, middle, UINT64_MAX)));
    assert_true(passed(middle));
    assert_false(passed(end));
    atomic_store(&second.open, true);
    ok(D(stream_synchronize(device, stream)));
    assert_true(passed(end));
    assert_true(passed(before));
    V(stream_destroy(device, stream));
}

static void test_wait_keeps_its_deadline(void **state)
{
    (void)state;
    void *stream = new_stream();
    gate g = {0};
    ok(D(call(device, hold, &g, stream)));
    wi_event event = mark(stream);
    uint64_t start = wi_now();
    ok(D(wait(device, event, start + UINT64_C(30000000))));
    assert_true(wi_now() - start >= UINT64_C(30000000)); /* and not before */
    assert_false(passed(event));
    ok(D(wait(device, event, 0)));
    atomic_store(&g.open, true);
    ok(D(wait(device, event, UINT64_MAX)));
    assert_true(passed(event));
    V(stream_destroy(device, stream));
}

static void test_order_between_streams(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 1, 1);
    char *written = range.address + 100, *read = range.address + 4096;
    void *writer = new_stream(), *reader = new_stream();
    for (int round = 0; round < 20; round++) {
        gate g = {0};
        unsigned char seen = 0;
        ok(D(fill(device, range.address, 0, 256, NULL)));
        ok(D(call(device, hold, &g, writer)));
        ok(D(fill(device, range.address, (uint8_t)(round + 1), 256, writer)));
        wi_event event = mark(writer);
        ok(D(order(device, reader, event)));
        ok(D(copy(device, read, written, 1, reader)));
        wi_event end = mark(reader);
        assert_false(passed(end));
        atomic_store(&g.open, true);
        /* Only now: CUDA lets a copy into pageable memory wait for what stands before it. */
        ok(D(copy(device, &seen, read, 1, reader)));
        ok(D(stream_synchronize(device, reader)));
        assert_int_equal(seen, round + 1);
        assert_true(passed(event));
        assert_true(passed(end));
        ok(D(order(device, reader, event))); /* passed: nothing to wait for */
        ok(D(order(device, writer, event))); /* its own stream */
    }
    V(stream_destroy(device, writer));
    V(stream_destroy(device, reader));
    drop_range(&range);
}

/* A GPU's queue is finite, and when it is full the next call waits: the gate must not stay closed for ever. */
static void *open_in_time(void *user)
{
    gate *g = user;
    for (int i = 0; i < 2000 && !atomic_load(&g->open); i++)
        nap(1000);
    atomic_store(&g->open, true);
    return NULL;
}

static void test_many_outstanding_events(void **state)
{
    (void)state;
    enum { EVENTS = 10000 };
    pthread_t opener;
    wi_event *events = calloc(EVENTS, sizeof *events);
    assert_non_null(events);
    void *stream = new_stream();
    gate g = {0};
    ok(D(call(device, hold, &g, stream)));
    assert_int_equal(pthread_create(&opener, NULL, open_in_time, &g), 0);
    for (int i = 0; i < EVENTS; i++)
        events[i] = mark(stream);
    for (int i = 0; i < EVENTS; i += 999)
        assert_true(!passed(events[i]) || atomic_load(&g.open));
    atomic_store(&g.open, true);
    ok(D(wait(device, events[EVENTS / 2], UINT64_MAX)));
    assert_true(passed(events[0]));
    ok(D(stream_synchronize(device, stream)));
    pthread_join(opener, NULL);
    for (int i = 0; i < EVENTS; i++)
        assert_true(passed(events[i]));
    V(stream_destroy(device, stream));
    free(events);
}

static void test_steady_state_makes_no_events(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 1, 1);
    void *stream = new_stream();
    uint64_t made = 0;
    for (int i = 0; i < 2000; i++) {
        ok(D(fill(device, range.address, 1, 256, stream)));
        wi_event event = mark(stream);
        if (i % 10 == 9)
            ok(D(wait(device, event, UINT64_MAX)));
        if (i == 100 && device_kind_now == ON_STUB)
            made = control.stub_count("cuEventCreate");
    }
    if (device_kind_now == ON_STUB)
        assert_int_equal(control.stub_count("cuEventCreate"), made);
    V(stream_destroy(device, stream));
    drop_range(&range);
}

/* Nobody ever asks whether they have passed: what has must serve again all the same. */
static void test_unasked_events_do_not_pile_up(void **state)
{
    (void)state;
    enum { RECORDS = 2000 };
    static gate gates[RECORDS];
    void *stream = new_stream();
    for (int i = 0; i < RECORDS; i++) {
        gates[i] = (gate){.open = true};
        ok(D(call(device, hold, &gates[i], stream)));
        (void)mark(stream);
        wait_entered(&gates[i]);
    }
    if (device_kind_now == ON_STUB)
        assert_true(control.stub_count("events") <= 128);
    V(stream_destroy(device, stream));
}

/* An event of a stream that has ended stays passed, whatever the streams after it are at. */
static void test_events_outlive_their_stream(void **state)
{
    (void)state;
    wi_event old[3];
    gate gates[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        void *stream = new_stream();
        atomic_store(&gates[i].open, true);
        ok(D(call(device, hold, &gates[i], stream)));
        old[i] = mark(stream);
        V(stream_destroy(device, stream));
        assert_true(passed(old[i]));
    }
    void *stream = new_stream();
    gate g = {0};
    ok(D(call(device, hold, &g, stream)));
    wi_event event = mark(stream);
    for (int i = 0; i < 3; i++) {
        assert_true(passed(old[i]));
        ok(D(wait(device, old[i], UINT64_MAX)));
    }
    assert_false(passed(event));
    atomic_store(&g.open, true);
    V(stream_destroy(device, stream));
    assert_true(passed(event));
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

static void *work_alone(void *argument)
{
    size_t *failures = argument;
    void *address = NULL, *stream = NULL;
    wi_handle handles[2];
    wi_event event = {0};
    thread_state before = look_at_thread();
    for (int i = 0; i < 20; i++) {
        unsigned char seen[64] = {0};
        *failures += driver->reserve(device, 2 * granule, &address) != WEIR_OK;
        *failures += driver->create(device, granule, 2, handles) != WEIR_OK;
        *failures += driver->map(device, address, granule, 2, handles) != WEIR_OK;
        *failures += driver->stream_create(device, &stream) != WEIR_OK;
        *failures += driver->fill(device, address, (uint8_t)i, 2 * granule, stream) != WEIR_OK;
        *failures += driver->copy(device, seen, (char *)address + granule, sizeof seen, stream) != WEIR_OK;
        *failures += driver->record(device, stream, &event) != WEIR_OK;
        *failures += driver->wait(device, event, UINT64_MAX) != WEIR_OK;
        *failures += seen[0] != i || seen[63] != i;
        driver->stream_destroy(device, stream);
        *failures += driver->unmap(device, address, granule, 2, handles) != WEIR_OK;
        driver->destroy(device, granule, 2, handles);
        driver->unreserve(device, address, 2 * granule);
    }
    thread_state after = look_at_thread();
    *failures += before.context != after.context || before.depth != after.depth || before.mode != after.mode;
    return NULL;
}

static void test_threads_that_never_saw_the_driver(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t failures[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

/* What looks at all streams does so while another thread makes and ends some. */
static void test_all_is_waited_for_while_streams_come_and_go(void **state)
{
    (void)state;
    size_t failures = 0;
    pthread_t thread;
    wi_event event;
    skip_unless(driver->synchronize && driver->record_all);
    assert_int_equal(pthread_create(&thread, NULL, work_alone, &failures), 0);
    for (int i = 0; i < 50; i++) {
        ok(D(synchronize(device)));
        ok(D(record_all(device, &event)));
        ok(D(wait(device, event, UINT64_MAX)));
    }
    pthread_join(thread, NULL);
    assert_int_equal(failures, 0);
}

typedef struct waiter {
    void *stream;
    weir_status status;
    atomic_bool done;
} waiter;

static void *wait_for_stream(void *user)
{
    waiter *w = user;
    w->status = driver->stream_synchronize(device, w->stream);
    atomic_store(&w->done, true);
    return NULL;
}

/* Who waits for a stream knows of what was there when he began, and of nothing that came to it meanwhile. */
static void test_what_is_recorded_while_another_waits(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_HOST || device_kind_now == ON_STUB); /* a GPU may wait for all of it */
    gate first = {0}, later = {0};
    waiter w = {.stream = new_stream()};
    pthread_t thread;
    wi_event event;
    ok(D(call(device, hold, &first, w.stream)));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stream, &w), 0);
    nap(20000); /* it has begun; else nothing is seen here */
    ok(D(call(device, hold, &later, w.stream)));
    ok(D(record(device, w.stream, &event)));
    atomic_store(&first.open, true);
    for (int i = 0; i < 100 && !atomic_load(&w.done); i++)
        nap(1000);
    bool passed = driver->passed(device, event);
    atomic_store(&later.open, true);
    pthread_join(thread, NULL);
    ok(w.status);
    assert_false(passed);
    ok(D(wait(device, event, UINT64_MAX)));
    V(stream_destroy(device, w.stream));
}

int run_stream_tests(void)
{
    const struct CMUnitTest streams[] = {
        cmocka_unit_test_setup_teardown(test_calls_run_in_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_copy_fill_and_call_on_a_stream, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_at_once_without_a_stream, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_destroy_waits, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_native_streams, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_events_pass_in_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_wait_keeps_its_deadline, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_order_between_streams, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_many_outstanding_events, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_steady_state_makes_no_events, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_unasked_events_do_not_pile_up, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_events_outlive_their_stream, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_threads_that_never_saw_the_driver, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_all_is_waited_for_while_streams_come_and_go, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_what_is_recorded_while_another_waits, open_device, close_device),
    };
    return cmocka_run_group_tests(streams, NULL, NULL);
}
