/* Rather than hold more than was in use, a request waits a little for what streams have freed. */
#include "rungs.h"

#include "base/system.h"

#include <weir/trace.h>

enum { BYTES = 4 * MIB, ROOM = 60 * BYTES }; /* far away, so that only the soft limit speaks against more */

/* What stream a freed is behind work that is not done; stream b wants as much. `over`: the device's driver, or another. */
static void start_far_over(fixture *f, const wi_driver *over, const char *reuse_wait)
{
    const wi_driver *driver;
    int ordinal;
    *f = (fixture){.sim = strncmp(device(), "sim", 3) == 0};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = ROOM, .resource = "mapped"};
    ok(weir_option_set("reuse_wait", reuse_wait));
    ok(weir_option_set("thread_cache", "0")); /* thread-cached blocks count as in use */
    if (f->sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = ROOM});
    ok(wi_driver_find(device(), &driver, &ordinal));
    ok(wi_runtime_create_over(over ? over : driver, ordinal, &options, &f->runtime));
    ok(weir_option_set("reuse_wait", NULL));
    ok(weir_option_set("thread_cache", NULL));
    begin(f);
    void *p = allocate(f->one, BYTES, f->a, WEIR_CLASS_KV);
    hold(f, f->a, p, 1, 64);
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(take_snapshot(f->runtime).device.held, BYTES);
}

static void start_far(fixture *f, const char *reuse_wait)
{
    start_far_over(f, NULL, reuse_wait);
}

static const wi_driver *waited_with;
static gate *opened_by_a_wait; /* NULL: none is */

/* The first wait lets a stream go, and is as long as it takes. */
static weir_status wait_and_let_go(wi_device *on, wi_event event, uint64_t deadline)
{
    gate *opened = opened_by_a_wait;
    opened_by_a_wait = NULL;
    if (opened)
        open_gate(opened);
    return waited_with->wait(on, event, opened ? UINT64_MAX : deadline);
}

/* As start_far, over a driver that waits so. */
static void start_let_go(fixture *f)
{
    static wi_driver driver;
    int ordinal;
    ok(wi_driver_find(device(), &waited_with, &ordinal));
    driver = *waited_with;
    driver.wait = wait_and_let_go;
    start_far_over(f, &driver, NULL);
}

static void what_passes_soon_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    void *q;
    start_let_go(&f);
    weir_stats last = take_snapshot(f.runtime).device;
    opened_by_a_wait = &f.gate;
    ok(weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &q));
    assert_null(opened_by_a_wait);
    came_by(WEIR_RUNG_WAIT);
    assert_int_equal(last.held, BYTES);
    ok(weir_free(f.two, q, f.b));
    end(&f);
}

static void who_must_not_wait_gets_more(void **state)
{
    (void)state;
    static const char *const reuse_wait[] = {NULL, "0"};
    for (int i = 0; i < 2; i++) {
        fixture f;
        start_far(&f, reuse_wait[i]);
        weir_stats last = take_snapshot(f.runtime).device;
        void *q;
        ok(i == 0 ? take_at_once(f.two, BYTES, f.b, &q) : weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &q));
        came_by(WEIR_RUNG_CREATE);
        assert_int_equal(last.held, 2 * BYTES);
        let_go(&f, f.a);
        ok(weir_free(f.two, q, f.b));
        end(&f);
    }
}

/* What passes is not enough, and the rest does not pass: more is created, and it is not said that waiting did it. */
static void a_wait_that_was_not_enough(void **state)
{
    (void)state;
    if (strncmp(device(), "sim", 3) == 0)
        skip(); /* nothing is held up there while somebody waits for it */
    fixture f;
    start_let_go(&f);
    weir_stream c;
    gate shut = GATE;
    ok(weir_stream_acquire(f.runtime, &c));
    void *held_up, *q;
    ok(take_at_once(f.one, BYTES, c, &held_up));
    ok(weir_call(f.runtime, pass_gate, &shut, c));
    ok(weir_free(f.one, held_up, c));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_int_equal(last.held, 2 * BYTES);
    opened_by_a_wait = &f.gate; /* of a alone */
    ok(weir_alloc(f.two, 2 * BYTES, f.b, WEIR_CLASS_KV, &q));
    weir_stats now = take_snapshot(f.runtime).device;
    assert_true(now.held > 2 * BYTES);
    assert_int_equal(now.ladder[WEIR_RUNG_WAIT], last.ladder[WEIR_RUNG_WAIT]);
    assert_null(opened_by_a_wait);
    open_gate(&shut);
    ok(weir_free(f.two, q, f.b));
    ok(weir_stream_release(c));
    end(&f);
}

static bool capturing;
static unsigned waits;
static uint64_t granted; /* nanoseconds that they might take */

static bool is_capturing(wi_device *on, void *stream)
{
    return capturing || faulty_driver.stream_capturing(on, stream);
}

static weir_status wait_and_count(wi_device *on, wi_event event, uint64_t deadline)
{
    uint64_t now = wi_now();
    waits++;
    granted += deadline > now ? deadline - now : 0;
    return faulty_driver.wait(on, event, deadline);
}

/* As start_far, over a driver whose waits are counted. */
static void start_counted(fixture *f)
{
    static wi_driver driver;
    driver = faulty_driver;
    driver.stream_capturing = is_capturing;
    driver.wait = wait_and_count;
    ok(weir_option_set("thread_cache", "0"));
    *f = start_over(&driver, ROOM);
    ok(weir_option_set("thread_cache", NULL));
    void *p = allocate(f->one, BYTES, f->a, WEIR_CLASS_KV);
    hold(f, f->a, p, 1, 64);
    ok(weir_free(f->one, p, f->a));
}

/* What a request would wait for, with `wait`, while the driver says that its stream is captured or not; answers its waits. */
static unsigned waits_of_one(const char *wait, bool captured)
{
    void *q;
    fixture f;
    start_counted(&f);
    weir_stats last = take_snapshot(f.runtime).device;
    ok(weir_option_set("wait", wait));
    waits = 0;
    capturing = captured;
    ok(weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &q));
    capturing = false;
    unsigned its = waits;
    ok(weir_option_set("wait", NULL));
    came_by(WEIR_RUNG_CREATE);
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.b));
    end(&f);
    return its;
}

/* Also where the caller has told the driver alone that it captures. */
static void no_waiting_in_a_capture_or_against_the_option(void **state)
{
    (void)state;
    assert_int_equal(waits_of_one(NULL, false), 1);
    assert_int_equal(waits_of_one(NULL, true), 0);
    assert_int_equal(waits_of_one("0", false), 0);
}

/* A stream that is held up for good costs a share of the time, and requests are served: each of these needs what it has, too. All
 * together may wait for what is saved up and their share of the time that went by, however long that is. */
static void waiting_is_limited_to_a_share_of_the_time(void **state)
{
    (void)state;
    enum { TIMES = 14, EACH = 10000000, SAVED = 100000000 }; /* nanoseconds */
    uint64_t all = 0;
    fixture f;
    start_counted(&f);
    uint64_t start = wi_now();
    for (size_t i = 0; i < TIMES; i++) {
        void *q;
        waits = 0;
        granted = 0;
        ok(weir_alloc(f.two, (i + 1) * BYTES, f.b, WEIR_CLASS_KV, &q));
        assert_true(granted <= EACH);
        assert_true(i > 0 || waits > 0); /* it did wait */
        all += granted;
        ok(weir_free(f.two, q, f.b));
    }
    assert_true(all <= SAVED + (wi_now() - start) / 50);
    assert_int_equal(take_snapshot(f.runtime).device.held, (TIMES + 1) * BYTES);
    let_go(&f, f.a);
    end(&f);
}

/* What the stream itself has freed lies in two pieces. To make one of them, the device has to be past the other. */
static void own_memory_that_must_be_moved_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    void *first, *between, *last_one, *both;
    start_let_go(&f);
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &first));
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &between));
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &last_one));
    ok(weir_free(f.two, first, f.a));
    ok(weir_free(f.two, last_one, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_int_equal(last.held, 3 * BYTES);
    opened_by_a_wait = &f.gate;
    ok(weir_alloc(f.two, 2 * BYTES, f.a, WEIR_CLASS_KV, &both));
    bool waited = !opened_by_a_wait;
    if (!waited)
        open_gate(&f.gate); /* else the process would not end */
    opened_by_a_wait = NULL;
    assert_true(waited);
    came_by(WEIR_RUNG_WAIT);
    assert_true(last.held < 4 * BYTES);
    ok(weir_free(f.two, between, f.a));
    ok(weir_free(f.two, both, f.a));
    end(&f);
}

/* Two pieces that stream a frees lie side by side, and the device is past the first one alone: that one serves b. */
/* How many bytes of a block the trace has told to be out of a stream's order, since it was looked at. */
static uint64_t told_out_of_order(weir_trace *trace, const void *block, weir_stream stream)
{
    uint64_t bytes = 0;
    weir_event events[16];
    for (size_t count = 1; count > 0;) {
        events[0].struct_size = sizeof events[0];
        ok(weir_trace_read(trace, events, 16, &count));
        for (size_t i = 0; i < count; i++)
            if (events[i].action == WEIR_ACTION_REAP && events[i].generation == 0 && events[i].stream.id == stream.id &&
                (const char *)events[i].pointer >= (const char *)block &&
                (const char *)events[i].pointer + events[i].bytes <= (const char *)block + BYTES)
                bytes += events[i].bytes;
    }
    return bytes;
}

static void a_chunk_passes_though_its_neighbour_does_not(void **state)
{
    (void)state;
    fixture f;
    weir_trace *trace;
    void *first, *second, *more[4];
    start_far(&f, "0");
    ok(weir_trace_create(f.runtime, NULL, &trace));
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &first));
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &second));
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &more[0]));
    ok(weir_free(f.two, first, f.a));
    ok(weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &more[1])); /* finds nothing: an event is recorded on a */
    let_go(&f, f.a);
    f.gate = (gate)GATE;
    hold(&f, f.a, second, 1, 64);
    ok(weir_free(f.two, second, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_int_equal(last.held, 4 * BYTES);
    ok(weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &more[2]));
    came_by(WEIR_RUNG_REMAP);
    assert_int_equal(last.held, 4 * BYTES);
    assert_int_equal(told_out_of_order(trace, first, f.a), BYTES); /* though the stream list does not know it */
    weir_trace_destroy(trace);
    ok(weir_alloc(f.two, BYTES, f.b, WEIR_CLASS_KV, &more[3])); /* the second piece has not passed */
    came_by(WEIR_RUNG_CREATE);
    assert_int_equal(last.held, 5 * BYTES);
    let_go(&f, f.a);
    for (size_t i = 0; i < 4; i++)
        ok(weir_free(f.two, more[i], f.b));
    end(&f);
}

/* What the request's own stream has freed is its own at once, where it fits. */
static void one_stream_waits_for_nothing(void **state)
{
    (void)state;
    fixture f;
    start_far(&f, NULL);
    weir_stats last = take_snapshot(f.runtime).device;
    void *q, *more;
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &q));
    came_by(WEIR_RUNG_FIT);
    ok(weir_alloc(f.two, BYTES, f.a, WEIR_CLASS_KV, &more));
    came_by(WEIR_RUNG_CREATE);
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.a));
    ok(weir_free(f.two, more, f.a));
    end(&f);
}

/* A little more than was in use may be held: that much is created at once, whatever others have freed. */
static void what_may_be_held_anyway_waits_for_nothing(void **state)
{
    (void)state;
    fixture f;
    void *q;
    start_counted(&f);
    weir_stats last = take_snapshot(f.runtime).device;
    waits = 0;
    ok(weir_alloc(f.two, GRANULE, f.b, WEIR_CLASS_KV, &q));
    assert_int_equal(waits, 0);
    came_by(WEIR_RUNG_CREATE);
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.b));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_passes_soon_is_waited_for),
        cmocka_unit_test(who_must_not_wait_gets_more),
        cmocka_unit_test(a_wait_that_was_not_enough),
        cmocka_unit_test(no_waiting_in_a_capture_or_against_the_option),
        cmocka_unit_test(waiting_is_limited_to_a_share_of_the_time),
        cmocka_unit_test(own_memory_that_must_be_moved_is_waited_for),
        cmocka_unit_test(a_chunk_passes_though_its_neighbour_does_not),
        cmocka_unit_test(one_stream_waits_for_nothing),
        cmocka_unit_test(what_may_be_held_anyway_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
