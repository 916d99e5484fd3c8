/* A fault at every driver call and at every allocation of host memory in the life of elastic blocks: a clean status, nothing
 * changed, exact counts. And devices with less memory than their budget. */
#include "elastic/elastic.h"
#include "core/faulty.h"
#include "core/heap.h"

#include "runtime/runtime.h"

static unsigned failures;
static long driver_fails_at = -1, calls_made;
static fixture faulted;
static wi_driver tried; /* one of the faulty drivers */

static void arm(bool on)
{
    malloc_armed = on;
    fault.fail_at = on ? driver_fails_at : -1;
}

/* True if it went well; else it failed as planned. */
static bool went(weir_status status)
{
    failures += status != WEIR_OK;
    assert_true(status == WEIR_OK || status == fault.status || status == WEIR_ERR_SYSTEM);
    return status == WEIR_OK;
}

/* A live page holds `value` in every byte; the look is not what is tried. */
static void expect(weir_elastic *e, size_t index, uint8_t value)
{
    arm(false);
    page_holds(&faulted, e, index, value);
    arm(true);
}

/* What was to be committed is there or, where it failed, everything is as before, and the next try does it. */
static void commit_or_not(weir_elastic *e, size_t first, size_t count, size_t missing, weir_stream stream)
{
    arm(false);
    uint64_t before = stats_of(e).committed, refused = stats_of(e).refused, promised = stats_of(e).promised,
             page = faulted.page;
    snapshot was = take_snapshot(faulted.runtime);
    arm(true);
    weir_status status = weir_elastic_commit(e, first * page, count * page, stream);
    arm(false);
    assert_int_equal(stats_of(e).refused, refused + (status == WEIR_ERR_OUT_OF_MEMORY));
    arm(true);
    if (went(status))
        return;
    arm(false);
    assert_int_equal(stats_of(e).committed, before);
    assert_int_equal(stats_of(e).promised, promised);
    snapshot now = take_snapshot(faulted.runtime);
    check_sums(&now);
    assert_int_equal(now.device.live, was.device.live);
    assert_int_equal(now.device.promised, was.device.promised);
    assert_int_equal(now.device.allocations, was.device.allocations);
    if (fault.stay)
        return;
    ok(weir_elastic_commit(e, first * page, count * page, stream));
    assert_int_equal(stats_of(e).committed, before + missing * page);
    arm(true);
}

static void release_or_not(weir_elastic *e, size_t first, size_t count, weir_stream stream)
{
    uint64_t page = faulted.page;
    if (went(weir_elastic_release(e, first * page, count * page, stream)))
        return;
    arm(false);
    ok(weir_elastic_release(e, first * page, count * page, stream));
    arm(true);
}

static void live_with(weir_elastic *e, weir_stream stream)
{
    commit_or_not(e, 1, 3, 3, WEIR_STREAM_HOST);
    expect(e, 1, 0);
    arm(false);
    write_page(&faulted, e, 2, 5);
    arm(true);
    commit_or_not(e, 0, 6, 3, stream);
    expect(e, 2, 5);
    release_or_not(e, 3, 2, stream);
    (void)went(weir_stream_synchronize(stream));
    commit_or_not(e, 3, 1, 1, stream);
    (void)went(weir_elastic_check(e));
    if (!went(weir_elastic_destroy(e, stream))) {
        arm(false);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        arm(true);
    }
}

static void live(bool promised)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_runtime *runtime;
    weir_elastic *e = NULL;
    faulted = (fixture){.page = GRANULE, .bytes = malloc(GRANULE)};
    ok(wi_runtime_create_over(&tried, 0, &options, &runtime));
    faulted.runtime = runtime;
    faulted.client = open_client(runtime, "one", 0, 0);
    ok(weir_stream_acquire(runtime, &faulted.stream));
    ok(weir_stream_synchronize(faulted.stream));
    fault.calls = 0;
    mallocs = 0;
    arm(true);
    if (!went(try_create(faulted.client, 8 * GRANULE, promised, &e))) {
        arm(false);
        assert_null(e);
        check_empty(runtime);
        ok(try_create(faulted.client, 8 * GRANULE, promised, &e));
        arm(true);
    }
    live_with(e, faulted.stream);
    arm(false);
    calls_made = fault.calls;
    ok(weir_stream_synchronize(faulted.stream));
    ok(weir_runtime_trim(runtime, NULL, NULL)); /* tries again what the driver did not take back */
    check_empty(runtime);
    assert_int_equal(take_snapshot(runtime).device.held, 0);
    weir_memory_stats book = WEIR_INIT(weir_memory_stats);
    ok(weir_memory_stats_info(runtime, &book));
    assert_int_equal(book.segment.current, 0);
    assert_int_equal(book.segment.allocated, book.segment.freed);
    void *all;
    ok(weir_alloc(faulted.client, 8 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &all)); /* nothing is set aside */
    ok(weir_free(faulted.client, all, WEIR_STREAM_HOST));
    ok(weir_stream_release(faulted.stream));
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
    free(faulted.bytes);
}

static void each_driver_call_fails_once(void **state)
{
    static const weir_status with[] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY};
    (void)state;
    for (int promised = 0; promised < 2; promised++)
        for (int kind = 0; kind < 4; kind++) {
            tried = kind < 2 ? faulty_driver : faulty_driver_that_drops();
            failures = 0;
            calls_made = 0;
            for (long at = -1; at <= calls_made; at++) {
                long pieces = 0;
                for (int again = 0; again < 2; again++) { /* what weir keeps for good is there then */
                    pieces = heap_pieces;
                    faults_reset(-1);
                    fault.status = with[kind % 2];
                    driver_fails_at = at;
                    live(promised);
                }
                assert_int_equal(heap_pieces, pieces);
            }
            assert_true(failures > (kind % 2 == 0 ? 10 : 0));
        }
    driver_fails_at = -1;
}

static void each_allocation_of_host_memory_fails_once(void **state)
{
    (void)state;
    faults_reset(-1);
    failures = 0;
    long there = 1;
    for (malloc_fails_at = 0; malloc_fails_at < there; malloc_fails_at++) {
        long pieces = 0;
        for (int again = 0; again < 2; again++) {
            pieces = heap_pieces;
            live(malloc_fails_at % 2);
        }
        assert_int_equal(heap_pieces, pieces);
        there = mallocs + 1;
    }
    malloc_fails_at = -1;
    assert_true(failures > 10);
}

/* All later calls fail, too, until the end. */
static void a_driver_that_fails_for_good(void **state)
{
    (void)state;
    for (long at = 0; at < 50; at++) {
        tried = at < 25 ? faulty_driver : faulty_driver_that_drops();
        faults_reset(-1);
        weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
        weir_elastic *e;
        faulted = (fixture){.page = GRANULE};
        ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
        faulted.client = open_client(faulted.runtime, "one", 0, 0);
        ok(try_create(faulted.client, 8 * GRANULE, true, &e));
        fault.calls = 0;
        fault.stay = true;
        fault.fail_at = at % 25;
        weir_status status = weir_elastic_commit(e, 0, 4 * GRANULE, WEIR_STREAM_HOST);
        assert_int_equal(stats_of(e).committed, status == WEIR_OK ? 4 * GRANULE : 0);
        if (status == WEIR_OK)
            ok(weir_elastic_release(e, 0, 2 * GRANULE, WEIR_STREAM_HOST));
        fault.fail_at = -1;
        ok(weir_elastic_commit(e, 0, 6 * GRANULE, WEIR_STREAM_HOST)); /* tries again first */
        assert_int_equal(stats_of(e).committed, 6 * GRANULE);
        assert_int_equal(stats_of(e).promised, 2 * GRANULE);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        check_empty(faulted.runtime);
        ok(weir_client_destroy(faulted.client));
        ok(weir_runtime_destroy(faulted.runtime));
        assert_true(faults_nothing_left());
    }
}

/* What a commit had made, and the driver did not take back, makes way for the pages of another block. */
static void pages_that_were_not_taken_back_make_way(void **state)
{
    (void)state;
    int kept = 0;
    for (long at = 0; at < 24; at++) {
        tried = at < 12 ? faulty_driver : faulty_driver_that_drops();
        faults_reset(-1);
        weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
        weir_elastic *e, *second;
        faulted = (fixture){.page = GRANULE};
        ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
        faulted.client = open_client(faulted.runtime, "one", 0, 0);
        ok(try_create(faulted.client, 8 * GRANULE, false, &e));
        ok(try_create(faulted.client, 8 * GRANULE, false, &second));
        fault.calls = 0;
        fault.stay = true;
        fault.fail_at = at % 12;
        weir_status status = weir_elastic_commit(e, 0, 4 * GRANULE, WEIR_STREAM_HOST);
        fault.fail_at = -1;
        if (status == WEIR_OK)
            ok(weir_elastic_release(e, 0, 4 * GRANULE, WEIR_STREAM_HOST));
        kept += take_snapshot(faulted.runtime).device.held > 0;
        ok(weir_elastic_commit(second, 0, 8 * GRANULE, WEIR_STREAM_HOST));
        ok(weir_elastic_destroy(second, WEIR_STREAM_HOST));
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        check_empty(faulted.runtime);
        ok(weir_client_destroy(faulted.client));
        ok(weir_runtime_destroy(faulted.runtime));
        assert_true(faults_nothing_left());
    }
    assert_true(kept > 6);
    tried = faulty_driver;
}

/* Of three blocks that have ended the driver does not take the addresses back: all are tried again, as often as it takes. */
static void every_range_that_was_not_taken_back_is_tried_again(void **state)
{
    (void)state;
    enum { RANGES = 3 };
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e[RANGES];
    faults_reset(-1);
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    long before = atomic_load(&fault.ranges);
    for (int i = 0; i < RANGES; i++)
        ok(try_create(faulted.client, 2 * GRANULE, i == 1, &e[i]));
    fault.calls = 0;
    fault.stay = true;
    fault.fail_at = 0;
    for (int i = 0; i < RANGES; i++)
        ok(weir_elastic_destroy(e[i], WEIR_STREAM_HOST));
    assert_int_equal(atomic_load(&fault.ranges), before + RANGES);
    ok(weir_runtime_trim(faulted.runtime, NULL, NULL));
    assert_int_equal(atomic_load(&fault.ranges), before + RANGES);
    fault.fail_at = -1;
    ok(weir_runtime_trim(faulted.runtime, NULL, NULL));
    assert_int_equal(atomic_load(&fault.ranges), before);
    check_empty(faulted.runtime);
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
}

/* Its memory has been taken away when the driver refuses the cover: it comes back, and where even that is refused, the page
 * is not taken back by a commit but made anew. */
static void a_page_that_cannot_be_covered_has_its_memory_again(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    for (int mapped = 0; mapped < 2; mapped++) {
        tried = faulty_driver;
        faults_reset(-1);
        faulted = (fixture){.page = GRANULE, .gate = GATE, .bytes = __real_malloc(GRANULE)};
        ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
        faulted.client = open_client(faulted.runtime, "one", 0, 0);
        ok(weir_stream_acquire(faulted.runtime, &faulted.stream));
        ok(try_create(faulted.client, 4 * GRANULE, false, &e));
        commit(&faulted, e, 1, 1);
        write_page(&faulted, e, 1, 5);
        hold_stream(&faulted);
        release(&faulted, e, 1, 1, faulted.stream);
        let_go(&faulted);
        fault.calls = 0;
        fault.fail_at = 1; /* behind the unmap; a look tries twice */
        fault.and_at = mapped ? 4 : -1;
        fault.stay = !mapped;
        pages_are(&faulted, e, 0, 1);
        fault.fail_at = fault.and_at = -1;
        fault.stay = false;
        assert_int_equal(atomic_load(&fault.mapped), mapped);
        ok(try_commit(&faulted, e, 1, 1, faulted.stream));
        ok(weir_stream_synchronize(faulted.stream));
        assert_int_equal(atomic_load(&fault.mapped), 1);
        pages_are(&faulted, e, 1, 0);
        page_holds(&faulted, e, 1, 0);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        ok(weir_stream_release(faulted.stream));
        ok(weir_client_destroy(faulted.client));
        ok(weir_runtime_destroy(faulted.runtime));
        assert_true(faults_nothing_left());
        free(faulted.bytes);
    }
}

/* As on a device, whose memory holds what others have left there. */
static weir_status map_dirty(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = faulty_driver.map(device, address, bytes, count, handles);
    if (status == WEIR_OK)
        memset(address, 0xd1, bytes * count);
    return status;
}

/* Also behind pages that were there already. */
static void new_pages_are_zeros_whatever_the_driver_gives(void **state)
{
    enum { PAGES = 8 };
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = PAGES * GRANULE};
    weir_elastic *e;
    tried.map = map_dirty;
    faults_reset(-1);
    faulted = (fixture){.page = GRANULE, .bytes = __real_malloc(GRANULE)};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(weir_stream_acquire(faulted.runtime, &faulted.stream));
    ok(try_create(faulted.client, PAGES * GRANULE, false, &e));
    for (size_t i = 2; i < PAGES; i += 3) {
        commit(&faulted, e, i, 1);
        write_page(&faulted, e, i, (uint8_t)i);
    }
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        ok(try_commit(&faulted, e, 0, PAGES, on_stream ? faulted.stream : WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(faulted.stream));
        fault.calls = fault.fail_at = 0; /* of what is there nothing is asked of the driver */
        ok(try_commit(&faulted, e, 0, PAGES, on_stream ? faulted.stream : WEIR_STREAM_HOST));
        assert_int_equal(fault.calls, 0);
        fault.fail_at = -1;
        for (size_t i = 0; i < PAGES; i++) {
            page_holds(&faulted, e, i, i % 3 == 2 ? (uint8_t)i : 0);
            if (i % 3 != 2)
                release(&faulted, e, i, 1, WEIR_STREAM_HOST);
        }
    }
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_stream_release(faulted.stream));
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
    free(faulted.bytes);
    tried = faulty_driver;
}

/* Devices with less memory than their budget --------------------------------------------------------------------------- */

typedef struct meddler {
    weir_elastic *e;
    size_t page;
    weir_status status;
    unsigned calls;
} meddler;

/* Asks for a page that the commit which calls it is making, and gives one up. */
static void meddle(const weir_pressure *pressure, void *user)
{
    meddler *m = user;
    (void)pressure;
    if (m->calls++ > 0)
        return;
    m->status = weir_elastic_commit(m->e, m->page * GRANULE, GRANULE, WEIR_STREAM_HOST);
    ok(weir_elastic_release(m->e, 0, GRANULE, WEIR_STREAM_HOST));
}

static void a_device_with_less_than_the_budget(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 100 * GRANULE};
    weir_elastic *e;
    uint64_t id;
    faults_reset(-1);
    fault.limit = 6;
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(try_create(faulted.client, 50 * GRANULE, true, &e));
    void *p = allocate(faulted.client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_free(faulted.client, p, WEIR_STREAM_HOST)); /* cached, and given back where the device has no more */
    commit(&faulted, e, 0, 4);
    assert_int_equal(stats_of(e).committed, 4 * GRANULE);
    ok(weir_option_set("wait", "1ms"));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(&faulted, e, 0, 7, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(stats_of(e).committed, 4 * GRANULE);
    assert_int_equal(stats_of(e).promised, 46 * GRANULE);
    release(&faulted, e, 1, 3, WEIR_STREAM_HOST);
    ok(weir_free(faulted.client, allocate(faulted.client, 5 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS),
                 WEIR_STREAM_HOST));
    commit(&faulted, e, 10, 5); /* the device is full now */
    meddler m = {.e = e, .page = 2};
    release(&faulted, e, 14, 1, WEIR_STREAM_HOST);
    ok(weir_pressure_register(faulted.runtime, 0, meddle, &m, &id));
    commit(&faulted, e, 2, 2);
    assert_true(m.calls > 0);
    assert_int_equal(m.status, WEIR_ERR_BUSY);
    assert_int_equal(stats_of(e).committed, 6 * GRANULE);
    ok(weir_pressure_unregister(faulted.runtime, id));
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    check_empty(faulted.runtime);
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
}

/* The commit that calls it has the promised bytes of that page in hand, and does not go on until the callback returns. */
static void a_callback_that_asks_for_the_last_promised_page_does_not_wait(void **state)
{
    enum { PAGES = 7 };
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 100 * GRANULE};
    weir_elastic *e;
    uint64_t id;
    faults_reset(-1);
    fault.limit = PAGES - 1;
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(try_create(faulted.client, PAGES * GRANULE, true, &e));
    commit(&faulted, e, 0, PAGES - 1);
    meddler m = {.e = e, .page = PAGES - 1};
    ok(weir_pressure_register(faulted.runtime, 0, meddle, &m, &id));
    commit(&faulted, e, PAGES - 1, 1);
    assert_true(m.calls > 0);
    assert_int_equal(m.status, WEIR_ERR_BUSY);
    assert_int_equal(stats_of(e).committed, (PAGES - 1) * GRANULE);
    assert_int_equal(stats_of(e).promised, GRANULE);
    ok(weir_pressure_unregister(faulted.runtime, id));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    check_empty(faulted.runtime);
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
}

/* What the refused commit had made is none of what stands in its way. */
static void a_device_that_is_full_is_told_by_what_others_have(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 100 * GRANULE};
    weir_elastic *e;
    faults_reset(-1);
    fault.limit = 6;
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(try_create(faulted.client, 50 * GRANULE, false, &e));
    ok(weir_option_set("wait", "1ms"));
    commit(&faulted, e, 0, 4);
    for (size_t more = 3; more < 6; more++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(&faulted, e, 2, 2 + more, WEIR_STREAM_HOST));
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_OTHER_PROCESS);
        assert_int_equal(r.requested, more * GRANULE);
        assert_int_equal(r.current, 4 * GRANULE);
        assert_int_equal(r.largest, 96 * GRANULE);
    }
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    check_empty(faulted.runtime);
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
}

static int reserves_refused; /* so many more */

static weir_status reserve_seldom(wi_device *device, uint64_t bytes, void **address)
{
    if (reserves_refused > 0 && reserves_refused-- > 0)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "no addresses on purpose");
    return faulty_driver.reserve(device, bytes, address);
}

/* Of cached memory as much makes way for the addresses of a block as the driver wants, and no block's. */
static void addresses_are_asked_for_as_long_as_cached_memory_makes_way(void **state)
{
    enum { BLOCKS = 3 };
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 16 * GRANULE};
    weir_elastic *e;
    void *blocks[BLOCKS], *kept;
    faults_reset(-1);
    tried.reserve = reserve_seldom;
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = allocate(faulted.client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    kept = allocate(faulted.client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(faulted.client, blocks[i], WEIR_STREAM_HOST));
    reserves_refused = BLOCKS - 1;
    ok(try_create(faulted.client, 4 * GRANULE, false, &e));
    assert_int_equal(reserves_refused, 0);
    assert_int_equal(take_snapshot(faulted.runtime).device.held, 2 * GRANULE);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    reserves_refused = BLOCKS;
    fails(WEIR_ERR_OUT_OF_MEMORY, try_create(faulted.client, 4 * GRANULE, true, &e));
    reserves_refused = 0;
    assert_int_equal(take_snapshot(faulted.runtime).device.held, GRANULE);
    ok(weir_free(faulted.client, kept, WEIR_STREAM_HOST));
    check_empty(faulted.runtime);
    ok(weir_client_destroy(faulted.client));
    ok(weir_runtime_destroy(faulted.runtime));
    assert_true(faults_nothing_left());
    tried = faulty_driver;
}

/* Drivers without virtual memory, or without cover. */
static void a_driver_that_cannot_is_unsupported(void **state)
{
    (void)state;
    static wi_driver lacking;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    weir_runtime *runtime;
    faults_reset(-1);
    lacking = faulty_driver;
    lacking.cover = NULL;
    lacking.uncover = NULL;
    ok(wi_runtime_create_over(&lacking, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    fails(WEIR_ERR_UNSUPPORTED, try_create(client, GRANULE, false, &e));
    assert_null(e);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static unsigned heard; /* warnings of what is left */
static char last_heard[256];

static void hear(weir_log_level level, const char *text, void *user)
{
    (void)user;
    assert_int_equal(level, WEIR_LOG_WARNING);
    if (!strstr(text, "tagged")) /* the runtime's own */
        return;
    heard++;
    snprintf(last_heard, sizeof last_heard, "%s", text);
}

/* One line was said, of the pages that hold so much, or of addresses alone. */
static void pages_were_told(uint64_t bytes)
{
    char size[32], wanted[128];
    snprintf(wanted, sizeof wanted, "not given back: one had %u page%s of %s on ", (unsigned)(bytes / GRANULE),
             bytes == GRANULE ? "" : "s", weir_size_format(bytes, size, sizeof size));
    assert_int_equal(heard, 1);
    assert_non_null(strstr(last_heard, bytes > 0 ? wanted : "not given back: addresses of one on "));
    assert_non_null(strstr(last_heard, "tagged \"cache\", which the driver did not take back"));
    heard = 0;
}

/* Pages of a commit that failed, which the driver does not take back: they keep the runtime, and are told by client and tag. */
static bool something_is_left(int at)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    faults_reset(-1);
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(try_create(faulted.client, 4 * GRANULE, at % 2, &e));
    fault.calls = 0;
    fault.stay = true;
    fault.fail_at = at;
    weir_status status = weir_elastic_commit(e, 0, 3 * GRANULE, WEIR_STREAM_HOST);
    if (status == WEIR_OK)
        fault.fail_at = -1;
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_client_destroy(faulted.client));
    uint64_t held = take_snapshot(faulted.runtime).device.held;
    heard = 0;
    ok(weir_log_set(hear, NULL, WEIR_LOG_WARNING));
    for (int times = 0; times < 2 && status != WEIR_OK; times++) {
        fails(WEIR_ERR_DRIVER, weir_runtime_destroy(faulted.runtime));
        detail_names("not destroyed");
        pages_were_told(held);
        detail_names("of one tagged \"cache\"");
        assert_int_equal(take_snapshot(faulted.runtime).device.held, held);
    }
    fault.fail_at = -1;
    ok(weir_runtime_destroy(faulted.runtime));
    assert_int_equal(heard, 0);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    assert_true(faults_nothing_left());
    return held > 0;
}

static void what_is_left_keeps_the_runtime(void **state)
{
    (void)state;
    int kept = 0;
    for (int at = 0; at < 2 * 25; at++) {
        tried = at < 25 ? faulty_driver : faulty_driver_that_drops();
        kept += something_is_left(at % 25);
    }
    assert_true(kept > 6);
}

/* A lost device takes nothing back: the runtime goes all the same, and loses no memory of the host's. */
static void a_lost_device_keeps_no_runtime(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    weir_elastic *e;
    tried = faulty_driver;
    faults_reset(-1);
    faulted = (fixture){.page = GRANULE};
    ok(wi_runtime_create_over(&tried, 0, &options, &faulted.runtime));
    faulted.client = open_client(faulted.runtime, "one", 0, 0);
    ok(try_create(faulted.client, 4 * GRANULE, false, &e));
    fault.calls = 0;
    fault.stay = true;
    fault.status = WEIR_ERR_DEVICE_LOST;
    fault.fail_at = 5;
    fails(WEIR_ERR_DEVICE_LOST, weir_elastic_commit(e, 0, 3 * GRANULE, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_client_destroy(faulted.client));
    uint64_t held = take_snapshot(faulted.runtime).device.held;
    assert_true(held > 0);
    heard = 0;
    ok(weir_log_set(hear, NULL, WEIR_LOG_WARNING));
    ok(weir_runtime_destroy(faulted.runtime));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    pages_were_told(held);
}

int main(void)
{
    tried = faulty_driver;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_keeps_the_runtime),
        cmocka_unit_test(a_lost_device_keeps_no_runtime),
        cmocka_unit_test(each_driver_call_fails_once),
        cmocka_unit_test(each_allocation_of_host_memory_fails_once),
        cmocka_unit_test(a_driver_that_fails_for_good),
        cmocka_unit_test(pages_that_were_not_taken_back_make_way),
        cmocka_unit_test(every_range_that_was_not_taken_back_is_tried_again),
        cmocka_unit_test(a_page_that_cannot_be_covered_has_its_memory_again),
        cmocka_unit_test(new_pages_are_zeros_whatever_the_driver_gives),
        cmocka_unit_test(a_device_with_less_than_the_budget),
        cmocka_unit_test(a_callback_that_asks_for_the_last_promised_page_does_not_wait),
        cmocka_unit_test(a_device_that_is_full_is_told_by_what_others_have),
        cmocka_unit_test(addresses_are_asked_for_as_long_as_cached_memory_makes_way),
        cmocka_unit_test(a_driver_that_cannot_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
