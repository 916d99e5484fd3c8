/* Commits that fail behind work that they have queued, and pages that are taken back: what is queued is waited for, and nothing
 * stays. */
#include "elastic/elastic.h"
#include "core/faulty.h"
#include "core/heap.h"

#include "runtime/runtime.h"

static wi_driver tried; /* the faulty driver, watched */

static int records_to_fail, fills_that_go, synchronized; /* fills -1: all go */
static bool somebody_captures;
static gate *opened_by_a_wait;
static weir_runtime *looked_at; /* at each record; NULL: none */
static weir_layout_totals seen;

static weir_status watched_record(wi_device *device, void *stream, wi_event *out)
{
    if (looked_at) {
        seen = WEIR_INIT(weir_layout_totals);
        ok(weir_layout_walk(looked_at, NULL, NULL, &seen));
    }
    if (records_to_fail == 0)
        return faulty_driver.record(device, stream, out);
    records_to_fail--;
    return weir_fail(WEIR_ERR_DRIVER, "not recorded on purpose");
}

static weir_status watched_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    if (fills_that_go == 0)
        return weir_fail(WEIR_ERR_DRIVER, "not filled on purpose");
    fills_that_go -= fills_that_go > 0;
    return faulty_driver.fill(device, to, value, bytes, stream);
}

static weir_status watched_synchronize(wi_device *device, void *stream)
{
    synchronized++;
    if (opened_by_a_wait)
        open_gate(opened_by_a_wait);
    return faulty_driver.stream_synchronize(device, stream);
}

static bool watched_capturing(wi_device *device, void *stream)
{
    return somebody_captures || faulty_driver.stream_capturing(device, stream);
}

static weir_elastic *open_watched(fixture *f)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    faults_reset(-1);
    tried = faulty_driver;
    tried.record = watched_record;
    tried.fill = watched_fill;
    tried.stream_synchronize = watched_synchronize;
    tried.stream_capturing = watched_capturing;
    records_to_fail = 0;
    fills_that_go = -1;
    opened_by_a_wait = NULL;
    *f = (fixture){.page = GRANULE, .bytes = malloc(GRANULE), .gate = GATE};
    ok(wi_runtime_create_over(&tried, 0, &options, &f->runtime));
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(try_create(f->client, 8 * GRANULE, false, &e));
    synchronized = 0;
    return e;
}

static void close_watched(fixture *f, weir_elastic *e)
{
    ok(weir_stream_synchronize(f->stream));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    check_empty(f->runtime);
    ok(weir_stream_release(f->stream));
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
    free(f->bytes);
}

/* Of two fills the second fails while the stream is held up: the pages go when it is past the first. */
static void what_was_queued_is_waited_for(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    faults_reset(-1);
    fixture faulted = (fixture){.page = GRANULE, .gate = GATE};
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(weir_stream_acquire(faulted.runtime, &faulted.stream));
    ok(try_create(faulted.client, 8 * GRANULE, false, &e));
    commit(&faulted, e, 1, 1);
    hold_stream(&faulted);
    fault.calls = 0;
    fault.fail_at = 2 * 3 + 1; /* two pages of three calls each */
    fails(WEIR_ERR_DRIVER, try_commit(&faulted, e, 0, 3, faulted.stream));
    fault.fail_at = -1;
    assert_int_equal(stats_of(e).committed, GRANULE);
    snapshot s = take_snapshot(faulted.runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, GRANULE);
    assert_int_equal(s.device.held, 3 * GRANULE);
    let_go(&faulted);
    ok(weir_runtime_trim(faulted.runtime, NULL, NULL));
    assert_int_equal(take_snapshot(faulted.runtime).device.held, GRANULE);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_stream_release(faulted.stream));
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
}

/* A page that was taken back is pending again when the commit fails. */
static void what_was_taken_back_is_put_back(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    for (long at = 0; at < 2; at++) { /* the zeros, the point behind them */
        faults_reset(-1);
        fixture faulted = (fixture){.page = GRANULE, .gate = GATE};
        ok(wi_runtime_create_over(&faulty_driver, 0, &options, &faulted.runtime));
        faulted.client = open_client(faulted.runtime, "one", 0, 0);
        ok(weir_stream_acquire(faulted.runtime, &faulted.stream));
        ok(try_create(faulted.client, 8 * GRANULE, true, &e));
        commit(&faulted, e, 0, 3);
        hold_stream(&faulted);
        release(&faulted, e, 1, 2, faulted.stream);
        fault.calls = 0;
        fault.fail_at = at;
        fails(WEIR_ERR_DRIVER, try_commit(&faulted, e, 0, 3, faulted.stream));
        fault.fail_at = -1;
        pages_are(&faulted, e, 1, 2);
        snapshot s = take_snapshot(faulted.runtime);
        check_sums(&s);
        assert_int_equal(s.device.held, 3 * GRANULE);
        let_go(&faulted);
        pages_are(&faulted, e, 1, 0);
        assert_int_equal(stats_of(e).promised, 7 * GRANULE);
        assert_int_equal(take_snapshot(faulted.runtime).device.held, GRANULE);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        ok(weir_stream_release(faulted.stream));
        ok(weir_client_destroy(faulted.client));
        ok(weir_runtime_destroy(faulted.runtime));
        assert_true(faults_nothing_left());
    }
}

/* Zeros may be on their way to a new page, and no point tells when they are there. */
static void a_new_page_is_given_back_behind_its_zeros(void **state)
{
    (void)state;
    fixture f;
    weir_elastic *e = open_watched(&f);
    fills_that_go = 0;
    records_to_fail = 1;
    fails(WEIR_ERR_DRIVER, try_commit(&f, e, 0, 1, f.stream));
    fills_that_go = -1;
    assert_int_equal(records_to_fail, 0);
    assert_int_equal(synchronized, 1);
    assert_int_equal(fault.handles, 0);
    assert_int_equal(stats_of(e).refused, 0);
    close_watched(&f, e);
}

/* The device is not past the first zeros: the pages stay until it is, whoever asks for them. */
static void a_new_page_is_not_given_back_before_its_zeros_are_there(void **state)
{
    (void)state;
    fixture f;
    weir_elastic *e = open_watched(&f);
    commit(&f, e, 1, 1); /* two runs around it */
    hold_stream(&f);
    fills_that_go = 1;
    fails(WEIR_ERR_DRIVER, try_commit(&f, e, 0, 3, f.stream));
    fills_that_go = -1;
    pages_are(&f, e, 1, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fault.handles, 3);
        assert_int_equal(take_snapshot(f.runtime).device.held, 3 * GRANULE);
        ok(weir_runtime_trim(f.runtime, NULL, NULL));
    }
    let_go(&f);
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    assert_int_equal(fault.handles, 1);
    assert_int_equal(take_snapshot(f.runtime).device.held, GRANULE);
    close_watched(&f, e);
}

/* A page that was taken back before the device was past its release is pending again when it cannot be zeroed; where no point
 * tells of what is queued by then, that is waited for. */
static void a_page_that_was_taken_back_is_pending_again(void **state)
{
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        fixture f;
        weir_elastic *e = open_watched(&f);
        commit(&f, e, 0, 2);
        hold_stream(&f);
        release(&f, e, 0, 2, f.stream);
        pages_are(&f, e, 0, 2);
        opened_by_a_wait = &f.gate;
        fills_that_go = 0;
        records_to_fail = recorded ? 0 : 1;
        synchronized = 0;
        fails(WEIR_ERR_DRIVER, try_commit(&f, e, 0, 1, f.stream));
        fills_that_go = -1;
        assert_int_equal(records_to_fail, 0);
        assert_int_equal(synchronized, recorded ? 0 : 1);
        if (recorded)
            pages_are(&f, e, 0, 2);
        opened_by_a_wait = NULL;
        let_go(&f);
        pages_are(&f, e, 0, 0);
        assert_int_equal(fault.handles, 0);
        close_watched(&f, e);
    }
}

/* With what is written down of its uses. */
static void a_page_that_is_taken_back_leaves_nothing(void **state)
{
    (void)state;
    long pieces = 0;
    for (int again = 0; again < 2; again++) { /* what weir keeps for good is there then */
        fixture f;
        pieces = heap_pieces;
        weir_elastic *e = open_watched(&f);
        ok(try_commit(&f, e, 0, 2, f.stream)); /* its zeros are the first use */
        ok(weir_stream_synchronize(f.stream));
        hold_stream(&f);
        release(&f, e, 0, 2, f.stream);
        ok(try_commit(&f, e, 0, 2, f.stream));
        pages_are(&f, e, 2, 0);
        assert_int_equal(fault.handles, 2);
        let_go(&f);
        close_watched(&f, e);
    }
    assert_int_equal(heap_pieces, pieces);
}

/* They are their client's before they are its to use. */
static void pages_of_a_commit_that_is_under_way_have_their_place(void **state)
{
    (void)state;
    fixture f;
    weir_elastic *e = open_watched(&f);
    commit(&f, e, 1, 1);
    looked_at = f.runtime;
    ok(try_commit(&f, e, 0, 4, f.stream));
    looked_at = NULL;
    assert_int_equal(seen.held, 4 * GRANULE);
    assert_int_equal(seen.bytes[WEIR_SPAN_LIVE], GRANULE);
    assert_int_equal(seen.bytes[WEIR_SPAN_PROMISED], 3 * GRANULE);
    assert_int_equal(seen.in_hand, 0);
    close_watched(&f, e);
}

/* Also of a capture that nobody has told weir of. */
static void nothing_is_committed_into_a_capture(void **state)
{
    (void)state;
    fixture f;
    weir_elastic *e = open_watched(&f);
    somebody_captures = true;
    fails(WEIR_ERR_STREAM_MISUSE, try_commit(&f, e, 0, 1, f.stream));
    somebody_captures = false;
    pages_are(&f, e, 0, 0);
    assert_int_equal(fault.handles, 0);
    ok(try_commit(&f, e, 0, 1, f.stream));
    close_watched(&f, e);
}

static bool passes_when_waited_for;
static wi_event waited[16];
static size_t waits;

static bool watched_passed(wi_device *device, wi_event event)
{
    bool found = !passes_when_waited_for || !event.stream;
    for (size_t i = 0; i < waits; i++)
        found |= waited[i].stream == event.stream && waited[i].sequence >= event.sequence;
    return found && faulty_driver.passed(device, event);
}

static weir_status watched_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    assert_true(waits < sizeof waited / sizeof waited[0]);
    waited[waits++] = event;
    return faulty_driver.wait(device, event, deadline);
}

/* Commits of two streams have failed, each of several pages, and the device is past none of their zeros until it is asked to be:
 * the end of the runtime does that for all. */
static void every_page_without_an_owner_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    weir_stream other;
    weir_elastic *e = open_watched(&f);
    ok(weir_stream_acquire(f.runtime, &other));
    commit(&f, e, 1, 1); /* two runs around each */
    commit(&f, e, 5, 1);
    tried.passed = watched_passed;
    tried.wait = watched_wait;
    waits = 0;
    passes_when_waited_for = true;
    for (int i = 0; i < 2; i++) {
        fills_that_go = 1;
        fails(WEIR_ERR_DRIVER, i == 0 ? try_commit(&f, e, 0, 3, f.stream) : try_commit(&f, e, 4, 3, other));
        fills_that_go = -1;
    }
    assert_int_equal(stats_of(e).committed, 2 * GRANULE);
    ok(weir_stream_release(other));
    ok(weir_stream_release(f.stream));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_client_destroy(f.client));
    assert_int_equal(take_snapshot(f.runtime).device.held, 4 * GRANULE);
    ok(weir_runtime_destroy(f.runtime));
    assert_true(faults_nothing_left());
    passes_when_waited_for = false;
    free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_queued_is_waited_for),
        cmocka_unit_test(what_was_taken_back_is_put_back),
        cmocka_unit_test(a_new_page_is_given_back_behind_its_zeros),
        cmocka_unit_test(a_new_page_is_not_given_back_before_its_zeros_are_there),
        cmocka_unit_test(a_page_that_was_taken_back_is_pending_again),
        cmocka_unit_test(a_page_that_is_taken_back_leaves_nothing),
        cmocka_unit_test(pages_of_a_commit_that_is_under_way_have_their_place),
        cmocka_unit_test(nothing_is_committed_into_a_capture),
        cmocka_unit_test(every_page_without_an_owner_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
