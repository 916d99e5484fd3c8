/* The rung of blocks behind a stream wait: who gets them, what goes back, and what happens when the driver does not order. */
#include "rungs.h"
#include <weir/trace.h>

/* Behind a stream wait --------------------------------------------------------------------------------------------- */

static void memory_of_another_stream(void **state)
{
    static const char *const resources[] = {"mapped", "segments"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f = start(resources[i]);
        unsigned char *p = allocate(f.one, HALF, f.a, WEIR_CLASS_KV), *rest = allocate(f.one, HALF, f.b, WEIR_CLASS_KV);
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
        fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, 1, f.b, &more));
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
    return value ? faulty_driver.fill(on, to, value, bytes, stream) : weir_fail(WEIR_ERR_DRIVER, "faulty: no zeros");
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
    void *p = allocate(f.one, BUDGET, c, WEIR_CLASS_KV);
    ok(weir_free(f.one, p, c));
    p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_request request = {.struct_size = sizeof request,
                            .bytes = HALF,
                            .stream = f.b,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT | WEIR_ALLOC_ZEROED};
    weir_block block;
    fails(WEIR_ERR_DRIVER, weir_alloc_with(f.two, &request, &block));
    assert_int_equal(take_snapshot(f.runtime).device.ordered, BUDGET);
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, 1, WEIR_STREAM_HOST, &p));
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
        return weir_fail(WEIR_ERR_DRIVER, "faulty: no more orders");
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
        pieces[i] = allocate(f->one, BUDGET / 8, i % 2 ? f->a : f->b, WEIR_CLASS_KV);
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
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, 6 * (BUDGET / 8), c, &q));
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
    weir_event events[64] = {{.struct_size = sizeof events[0]}};
    size_t count, at = 0;
    char *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    void *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_trace_create(f.runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 64},
                         &trace));
    ok(weir_free(f.one, p, f.a));
    ok(take_at_once(f.two, HALF, f.b, &q));
    ok(weir_trace_read(trace, events, 64, &count));
    while (at < count && events[at].action != WEIR_ACTION_REAP)
        at++;
    assert_true(at + 1 < count);
    assert_int_equal(events[at].generation, 0);
    assert_ptr_equal(events[at].pointer, q);
    assert_int_equal(events[at].bytes, HALF);
    assert_int_equal(events[at].stream.id, f.a.id);
    assert_int_equal(events[at].other.id, f.b.id);
    assert_int_equal(events[at + 1].action, WEIR_ACTION_ALLOCATE);
    weir_trace_destroy(trace);
    let_go(&f, f.a);
    ok(weir_free(f.two, q, f.b));
    end(&f);
}

/* The work behind the wait comes later than all that was freed before, and the rest stays what it was. */
static void no_more_than_is_needed(void **state)
{
    (void)state;
    fixture f = start("mapped");
    char *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    void *q, *r;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = QUARTER - 256,
                            .alignment = 4096,
                            .stream = f.b,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
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
    char *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    void *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    ok(take_at_once(f.two, BUDGET, f.b, &q));
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &q));
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
    void *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV), *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF, WEIR_STREAM_HOST, &q));
    ok(weir_capture_begin(f.b, NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF, f.b, &q));
    ok(weir_capture_end(f.b, NULL));
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
    return weir_fail(WEIR_ERR_DRIVER, "faulty: no order");
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
    void *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV), *q;
    hold(&f, f.a, p, 1, BUDGET);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF, f.b, &q));
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
    void *p = allocate(f.one, BUDGET, c, WEIR_CLASS_KV), *q;
    ok(weir_free(f.one, p, c));
    p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* no thread cache keeps what is freed, but where a test asks for it */
    return cmocka_run_group_tests_name("rungs_waits", tests, NULL, NULL);
}
