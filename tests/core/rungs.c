/* The ladder, rung by rung: what led to a block is counted; what is lent is counted; a refusal says what was in the way. On
 * the device that WEIR_TEST_DEVICE names, or the host. */
#include "core.h"
#include "core/faulty.h"

#include "driver/sim.h"
#include "runtime/runtime.h"

enum { GRANULES = 16, BUDGET = GRANULES << 16, HALF = BUDGET / 2, QUARTER = BUDGET / 4 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
    bool sim; /* no bytes, and work is done when somebody waits for it */
    gate gate;
} fixture;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static void begin(fixture *f)
{
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    f->gate = (gate)GATE;
}

static fixture start(const char *resource)
{
    fixture f = {.sim = strncmp(device(), "sim", 3) == 0};
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .resource = resource};
    if (f.sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    ok(weir_runtime_create(device(), &options, &f.runtime));
    begin(&f);
    return f;
}

static fixture start_over(const wi_driver *driver, uint64_t budget)
{
    fixture f = {0};
    weir_runtime_options options = {.size = sizeof options, .budget = budget, .resource = "mapped"};
    faults_reset(-1);
    ok(wi_runtime_create_over(driver, 0, &options, &f.runtime));
    begin(&f);
    return f;
}

static void end(fixture *f)
{
    if (f->a.id)
        ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_client_close(f->one));
    ok(weir_client_close(f->two));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
}

/* The stream gets work, and gets no further until it is let go. */
static void hold(fixture *f, weir_stream stream, void *bytes, uint8_t value, size_t count)
{
    if (!f->sim)
        ok(weir_call(f->runtime, pass_gate, &f->gate, stream));
    ok(weir_fill(f->runtime, bytes, value, count, stream));
}

static void let_go(fixture *f, weir_stream stream)
{
    if (!f->sim)
        open_gate(&f->gate);
    ok(weir_stream_synchronize(stream));
}

static weir_status take_at_once(weir_client *client, size_t bytes, weir_stream stream, void **out)
{
    weir_request request = {
        .size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = WEIR_KV, .flags = WEIR_NO_WAIT};
    weir_block block = {NULL, 0};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

/* Since the last time that was asked: one block was come by, in this way. */
static void check_rung(fixture *f, weir_stats *last, weir_rung rung, const char *file, int line)
{
    weir_stats now = take_snapshot(f->runtime).device;
    uint64_t sum = now.hits;
    for (int i = 0; i < WEIR_RUNGS_MOST; i++) {
        uint64_t more = now.ladder[i] - last->ladder[i];
        sum += now.ladder[i];
        if (more != (i == (int)rung))
            print_error("%s: %llu more\n", weir_rung_name((weir_rung)i), (unsigned long long)more);
        _assert_true(more == (i == (int)rung), weir_rung_name(rung), file, line);
    }
    _assert_true(sum == now.allocations, "every block was come by somehow", file, line);
    *last = now;
}
#define came_by(rung) check_rung(&f, &last, (rung), __FILE__, __LINE__)

/* Rungs ------------------------------------------------------------------------------------------------------------ */

static void create_and_fit(void **state)
{
    static const char *const resources[] = {"mapped", "segments", "blocks(64KiB)"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fixture f = start(resources[i]);
        weir_stats last = take_snapshot(f.runtime).device;
        void *p = allocate(f.one, QUARTER, f.a, WEIR_KV);
        came_by(WEIR_RUNG_CREATE);
        ok(weir_free(f.one, p, WEIR_STREAM_HOST));
        p = allocate(f.one, QUARTER, f.a, WEIR_KV);
        came_by(WEIR_RUNG_FIT);
        assert_int_equal(last.lent_clients + last.lent_streams, 0);
        ok(weir_free(f.one, p, WEIR_STREAM_HOST));
        end(&f);
    }
}

static void what_threads_park(void **state)
{
    (void)state;
    ok(weir_option_set("front", "1MiB"));
    fixture f = start("mapped");
    ok(weir_option_set("front", NULL));
    ok(weir_free(f.one, allocate(f.one, BUDGET, f.a, WEIR_KV), f.a));
    void *p = allocate(f.two, 20000, WEIR_STREAM_HOST, WEIR_KV);
    weir_stats last = take_snapshot(f.runtime).device;
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    assert_true(take_snapshot(f.runtime).device.parked > 0);
    p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    came_by(WEIR_RUNG_PARKED);
    ok(weir_free(f.one, p, f.a));
    end(&f);
}

static void what_has_passed_meanwhile(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = {.size = sizeof last};
    size_t ignored;
    wi_ledger_snapshot(&f.runtime->ledger, &last, NULL, 0, 0, &ignored); /* a look at more would find it first */
    ok(take_at_once(f.one, BUDGET, WEIR_STREAM_HOST, &p));
    came_by(WEIR_RUNG_COMPLETED);
    assert_int_equal(last.lent_streams, BUDGET);
    assert_int_equal(last.lent_clients, 0);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    end(&f);
}

static void spare_handles(void **state)
{
    (void)state;
    fixture f = start_over(&faulty_driver, BUDGET);
    void *p;
    fault.fail_at = fault.calls + 1; /* after the create comes the map */
    fails(WEIR_DRIVER, weir_alloc(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_KV, &p));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_int_equal(last.spare, QUARTER);
    p = allocate(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_KV);
    came_by(WEIR_RUNG_SPARE);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    end(&f);
}

static void moved_handles(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *blocks[GRANULES];
    for (int i = 0; i < GRANULES; i++)
        blocks[i] = allocate(f.one, GRANULE, WEIR_STREAM_HOST, WEIR_KV);
    for (int i = 0; i < GRANULES; i += 2)
        ok(weir_free(f.one, blocks[i], WEIR_STREAM_HOST));
    weir_stats last = take_snapshot(f.runtime).device;
    void *p = allocate(f.two, 3 * GRANULE, WEIR_STREAM_HOST, WEIR_KV);
    came_by(WEIR_RUNG_REMAP);
    assert_int_equal(last.lent_clients, 0); /* it took the driver */
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    for (int i = 1; i < GRANULES; i += 2)
        ok(weir_free(f.one, blocks[i], WEIR_STREAM_HOST));
    end(&f);
}

static void what_adaptors_keep_back(void **state)
{
    (void)state;
    fixture f = start("guard(zone=256, quarantine=16MiB, mapped)");
    ok(weir_free(f.one, allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_KV), WEIR_STREAM_HOST));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_true(last.pending >= HALF);
    void *p = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_KV);
    came_by(WEIR_RUNG_RELIEVED);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    end(&f);
}

static void what_is_waited_for(void **state)
{
    (void)state;
    fixture f = start("mapped");
    pthread_t opener;
    void *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    hold(&f, f.a, p, 1, 256);
    free_behind(f.one, p, f.a);
    weir_stats last = take_snapshot(f.runtime).device;
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    p = allocate(f.two, BUDGET, f.b, WEIR_KV);
    came_by(WEIR_RUNG_WAIT);
    pthread_join(opener, NULL);
    assert_int_equal(last.lent_clients, BUDGET);
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    end(&f);
}

/* Its bytes count for nobody any more, and still are in the order of a stream that the request is not on. */
static void what_has_yet_to_pass_is_waited_for(void **state)
{
    (void)state;
    fixture f = start("mapped");
    pthread_t opener;
    void *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    hold(&f, f.a, p, 1, 256);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    p = allocate(f.two, BUDGET, WEIR_STREAM_HOST, WEIR_KV);
    came_by(WEIR_RUNG_WAIT);
    pthread_join(opener, NULL);
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    end(&f);
}

/* Behind a stream wait --------------------------------------------------------------------------------------------- */

static void memory_of_another_stream(void **state)
{
    static const char *const resources[] = {"mapped", "segments"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f = start(resources[i]);
        unsigned char *p = allocate(f.one, HALF, f.a, WEIR_KV), *rest = allocate(f.one, HALF, f.b, WEIR_KV);
        void *q, *more;
        hold(&f, f.a, p, 1, HALF);
        ok(weir_free(f.one, p, f.a));
        weir_stats last = take_snapshot(f.runtime).device;
        assert_int_equal(last.ordered, HALF);
        ok(take_at_once(f.two, HALF, f.b, &q));
        came_by(WEIR_RUNG_ORDER);
        assert_ptr_equal(q, p);
        assert_int_equal(last.lent_streams, HALF);
        assert_int_equal(last.lent_clients, HALF);
        fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, 1, f.b, &more));
        ok(weir_fill(f.runtime, q, 2, HALF, f.b));
        let_go(&f, f.a);
        ok(weir_stream_synchronize(f.b));
        for (size_t at = 0; !f.sim && at < HALF; at++)
            assert_int_equal(p[at], 2);
        ok(weir_free(f.two, q, f.b));
        ok(weir_free(f.one, rest, f.b));
        end(&f);
    }
}

/* What could not be zeroed goes back, and still is not anyone's. */
static weir_status refuse_fill(wi_device *on, void *to, uint8_t value, size_t bytes, void *stream)
{
    return value ? faulty_driver.fill(on, to, value, bytes, stream) : weir_fail(WEIR_DRIVER, "faulty: no zeros");
}

static void a_block_behind_a_wait_that_fails_later(void **state)
{
    (void)state;
    static wi_driver driver;
    driver = faulty_driver;
    driver.fill = refuse_fill;
    fixture f = start_over(&driver, BUDGET);
    weir_stream c; /* with an order of its own: only that of a single stream comes to hold for everything */
    ok(weir_stream_acquire(f.runtime, &c));
    void *p = allocate(f.one, BUDGET, c, WEIR_KV);
    ok(weir_free(f.one, p, c));
    p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_request request = {.size = sizeof request,
                            .bytes = HALF,
                            .stream = f.b,
                            .memory_class = WEIR_KV,
                            .flags = WEIR_NO_WAIT | WEIR_ZEROED};
    weir_block block;
    fails(WEIR_DRIVER, weir_alloc_with(f.two, &request, &block));
    assert_int_equal(take_snapshot(f.runtime).device.ordered, BUDGET);
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, 1, WEIR_STREAM_HOST, &p));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    let_go(&f, f.a);
    ok(weir_stream_synchronize(f.b));
    ok(take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &p));
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    ok(weir_stream_release(c));
    end(&f);
}

/* Pieces of several streams, and of nobody, side by side: the stream is ordered behind each of them once. */
static unsigned orders, orders_left;

static weir_status count_orders(wi_device *on, void *stream, wi_event event)
{
    orders++;
    if (orders_left-- == 0)
        return weir_fail(WEIR_DRIVER, "faulty: no more orders");
    return faulty_driver.order(on, stream, event);
}

/* The gate stays where it is: streams have it. */
static void start_in_pieces(fixture *f, unsigned char **pieces)
{
    static wi_driver driver;
    driver = faulty_driver;
    driver.order = count_orders;
    *f = start_over(&driver, BUDGET);
    for (int i = 0; i < 8; i++)
        pieces[i] = allocate(f->one, BUDGET / 8, i % 2 ? f->a : f->b, WEIR_KV);
    for (int i = 1; i < 8; i++)
        assert_ptr_equal(pieces[i], pieces[i - 1] + BUDGET / 8);
    hold(f, f->a, pieces[1], 1, BUDGET / 8);
    hold(f, f->b, pieces[2], 1, BUDGET / 8);
    for (int i = 0; i < 8; i++)
        ok(weir_free(f->one, pieces[i], i == 4 ? WEIR_STREAM_HOST : i % 2 ? f->a : f->b));
    orders = 0;
}

static void pieces_of_several_streams(void **state)
{
    (void)state;
    unsigned char *pieces[8];
    fixture f;
    start_in_pieces(&f, pieces);
    weir_stream c;
    void *q;
    ok(weir_stream_acquire(f.runtime, &c));
    weir_stats last = take_snapshot(f.runtime).device;
    orders_left = 2;
    ok(take_at_once(f.two, 6 * (BUDGET / 8), c, &q));
    came_by(WEIR_RUNG_ORDER);
    assert_int_equal(orders, 2);
    assert_ptr_equal(q, pieces[0]);
    ok(weir_fill(f.runtime, q, 2, 6 * (BUDGET / 8), c));
    let_go(&f, f.a);
    ok(weir_stream_synchronize(f.b));
    ok(weir_stream_synchronize(c));
    for (size_t at = 0; at < 6 * (BUDGET / 8); at++)
        assert_int_equal(pieces[0][at], 2);
    ok(weir_free(f.two, q, c));
    ok(weir_stream_release(c));
    end(&f);
}

static void pieces_go_back_where_they_were(void **state)
{
    (void)state;
    unsigned char *pieces[8];
    fixture f;
    start_in_pieces(&f, pieces);
    weir_stream c;
    void *q;
    ok(weir_stream_acquire(f.runtime, &c));
    weir_stats last = take_snapshot(f.runtime).device;
    orders_left = 1;
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, 6 * (BUDGET / 8), c, &q));
    assert_int_equal(orders, 2);
    weir_stats now = take_snapshot(f.runtime).device;
    assert_int_equal(now.ordered, last.ordered);
    ok(take_at_once(f.one, BUDGET / 8, f.a, &q));
    came_by(WEIR_RUNG_FIT);
    ok(weir_free(f.one, q, f.a));
    let_go(&f, f.a);
    ok(weir_stream_release(c));
    end(&f);
}

/* Who reads a trace sees that the bytes were not given away too early. */
static void a_trace_tells_of_it(void **state)
{
    (void)state;
    fixture f = start("mapped");
    weir_trace *trace;
    weir_event events[64] = {{.size = sizeof events[0]}};
    size_t count, at = 0;
    char *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    void *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_trace_open(f.runtime, 64, &trace));
    ok(weir_free(f.one, p, f.a));
    ok(take_at_once(f.two, HALF, f.b, &q));
    ok(weir_trace_read(trace, events, 64, &count));
    while (at < count && events[at].action != WEIR_REAP)
        at++;
    assert_true(at + 1 < count);
    assert_int_equal(events[at].generation, 0);
    assert_ptr_equal(events[at].pointer, q);
    assert_int_equal(events[at].bytes, HALF);
    assert_int_equal(events[at].stream.id, f.a.id);
    assert_int_equal(events[at].other.id, f.b.id);
    assert_int_equal(events[at + 1].action, WEIR_ALLOCATE);
    weir_trace_close(trace);
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.b));
    end(&f);
}

/* The work behind the wait comes later than all that was freed before, and the rest stays what it was. */
static void no_more_than_is_needed(void **state)
{
    (void)state;
    fixture f = start("mapped");
    char *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    void *q, *r;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    weir_request request = {.size = sizeof request,
                            .bytes = QUARTER - 256,
                            .alignment = 4096,
                            .stream = f.b,
                            .memory_class = WEIR_KV,
                            .flags = WEIR_NO_WAIT};
    weir_block block;
    ok(weir_alloc_with(f.two, &request, &block));
    q = block.pointer;
    came_by(WEIR_RUNG_ORDER);
    assert_int_equal(last.ordered, BUDGET - (QUARTER - 256));
    ok(take_at_once(f.one, BUDGET - QUARTER, f.a, &r)); /* it is its own stream's at once */
    came_by(WEIR_RUNG_FIT);
    assert_int_equal(last.lent_streams, QUARTER - 256);
    ok(weir_free(f.one, r, f.a));
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.b));
    end(&f);
}

/* A free elsewhere of a block that was never used still comes behind the work that stood before it. */
static void a_block_behind_a_wait_is_freed_elsewhere(void **state)
{
    (void)state;
    fixture f = start("mapped");
    char *p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    void *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    ok(take_at_once(f.two, BUDGET, f.b, &q));
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &q));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    let_go(&f, f.a);
    ok(weir_stream_synchronize(f.b));
    ok(take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &q));
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    end(&f);
}

static void not_without_a_stream_nor_in_a_capture(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *p = allocate(f.one, BUDGET, f.a, WEIR_KV), *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, HALF, WEIR_STREAM_HOST, &q));
    ok(weir_capture_begin(f.b));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, HALF, f.b, &q));
    ok(weir_capture_end(f.b));
    ok(take_at_once(f.two, HALF, f.b, &q));
    ok(weir_free(f.two, q, f.b));
    let_go(&f, f.a);
    end(&f);
}

/* The driver does not order the stream ----------------------------------------------------------------------------- */

static weir_stream ends_meanwhile;
static gate *opened_meanwhile;
static unsigned refused_orders;

static weir_status refuse_order(wi_device *on, void *stream, wi_event event)
{
    (void)on;
    (void)stream;
    (void)event;
    refused_orders++;
    if (ends_meanwhile.id) {
        open_gate(opened_meanwhile);
        ok(weir_stream_release(ends_meanwhile));
    }
    return weir_fail(WEIR_DRIVER, "faulty: no order");
}

static fixture start_without_order(void)
{
    static wi_driver driver;
    driver = faulty_driver;
    driver.order = refuse_order;
    refused_orders = 0;
    ends_meanwhile = WEIR_STREAM_HOST;
    return start_over(&driver, BUDGET);
}

static void an_order_that_fails_changes_nothing(void **state)
{
    (void)state;
    fixture f = start_without_order();
    void *p = allocate(f.one, BUDGET, f.a, WEIR_KV), *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, HALF, f.b, &q));
    assert_int_equal(refused_orders, 1);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    weir_stats now = take_snapshot(f.runtime).device;
    assert_int_equal(now.ordered, last.ordered);
    assert_int_equal(now.cached, last.cached);
    ok(take_at_once(f.one, BUDGET, f.a, &q));
    came_by(WEIR_RUNG_FIT);
    ok(weir_free(f.one, q, f.a));
    let_go(&f, f.a);
    end(&f);
}

/* Nobody would ever make it anyone's again, if it went back to a stream that is gone. */
static void a_stream_that_ends_while_another_is_ordered_behind_it(void **state)
{
    (void)state;
    fixture f = start_without_order();
    weir_stream c; /* with an order of its own: only that of a single stream comes to hold for everything */
    ok(weir_stream_acquire(f.runtime, &c));
    void *p = allocate(f.one, BUDGET, c, WEIR_KV), *q;
    ok(weir_free(f.one, p, c));
    p = allocate(f.one, BUDGET, f.a, WEIR_KV);
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    ends_meanwhile = f.a;
    opened_meanwhile = &f.gate;
    ok(take_at_once(f.two, HALF, f.b, &q)); /* at the next try */
    assert_int_equal(refused_orders, 1);
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    f.a = WEIR_STREAM_HOST;
    weir_stats last = take_snapshot(f.runtime).device;
    ok(take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &q));
    came_by(WEIR_RUNG_FIT); /* all of it lies there for anyone */
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    ok(weir_stream_release(c));
    end(&f);
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

static void bytes_that_only_time_keeps_back(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *p = allocate(f.one, HALF, f.a, WEIR_KV), *rest = allocate(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_KV), *q;
    hold(&f, f.a, p, 1, HALF);
    ok(weir_free(f.one, p, f.a));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, HALF, WEIR_STREAM_HOST, &q));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
    assert_int_equal(r.largest, QUARTER); /* at once */
    ok(take_at_once(f.two, QUARTER, WEIR_STREAM_HOST, &q));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &p)); /* time would not help */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    ok(weir_free(f.one, rest, WEIR_STREAM_HOST));
    let_go(&f, f.a);
    end(&f);
}

/* The budget would allow more than the device has. */
static void bytes_that_another_process_has(void **state)
{
    (void)state;
    fixture f = start_over(&faulty_driver, 4 * BUDGET);
    fault.limit = GRANULES;
    void *p = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_KV),
         *rest = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_KV);
    void *q;
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.two, HALF + 1, WEIR_STREAM_HOST, &q));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(r.largest, HALF);
    ok(take_at_once(f.two, r.largest, WEIR_STREAM_HOST, &q));
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    ok(weir_free(f.one, rest, WEIR_STREAM_HOST));
    end(&f);
}

static void rungs_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_RUNGS; i++)
        assert_string_not_equal(weir_rung_name((weir_rung)i), "?");
    assert_string_equal(weir_rung_name(WEIR_RUNG_ORDER), "order");
    assert_string_equal(weir_rung_name(WEIR_RUNGS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_and_fit),
        cmocka_unit_test(what_threads_park),
        cmocka_unit_test(what_has_passed_meanwhile),
        cmocka_unit_test(spare_handles),
        cmocka_unit_test(moved_handles),
        cmocka_unit_test(what_adaptors_keep_back),
        cmocka_unit_test(what_is_waited_for),
        cmocka_unit_test(what_has_yet_to_pass_is_waited_for),
        cmocka_unit_test(memory_of_another_stream),
        cmocka_unit_test(a_block_behind_a_wait_that_fails_later),
        cmocka_unit_test(pieces_of_several_streams),
        cmocka_unit_test(pieces_go_back_where_they_were),
        cmocka_unit_test(a_trace_tells_of_it),
        cmocka_unit_test(no_more_than_is_needed),
        cmocka_unit_test(a_block_behind_a_wait_is_freed_elsewhere),
        cmocka_unit_test(not_without_a_stream_nor_in_a_capture),
        cmocka_unit_test(an_order_that_fails_changes_nothing),
        cmocka_unit_test(a_stream_that_ends_while_another_is_ordered_behind_it),
        cmocka_unit_test(bytes_that_only_time_keeps_back),
        cmocka_unit_test(bytes_that_another_process_has),
        cmocka_unit_test(rungs_have_names),
    };
    setenv("WEIR_FRONT", "0", 1); /* what is freed is not parked, but where a test asks for it */
    return cmocka_run_group_tests_name("rungs", tests, NULL, NULL);
}
