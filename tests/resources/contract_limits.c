/* Budget, maximum, guarantee: met exactly, refused with exact numbers, and waited for where waiting helps. */
#include "resources/contract.h"

#define MILLISECOND UINT64_C(1000000)

/* The refusal counts itself; what nobody holds may have gone back to the driver; all else is as before. */
static void check_only_refused(fixture *f, const snapshot *before, int client)
{
    snapshot now = take_snapshot(f->runtime);
    assert_int_equal(now.device.refusals, before->device.refusals + 1);
    assert_int_equal(now.clients[client].refusals, before->clients[client].refusals + 1);
    assert_true(now.device.held <= before->device.held);
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.pending, before->device.pending);
    assert_int_equal(now.device.promised, 0);
    assert_int_equal(now.device.peak, before->device.peak);
    assert_int_equal(now.device.allocations, before->device.allocations);
    now.clients[client].refusals--;
    assert_int_equal(now.count, before->count);
    assert_memory_equal(now.clients, before->clients, now.count * sizeof now.clients[0]);
}

static void check_refusal(weir_refusal_cause cause, uint64_t requested, uint64_t current, uint64_t remaining,
                          uint64_t limit)
{
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, cause);
    assert_int_equal(r.requested, requested);
    assert_int_equal(r.current, current);
    assert_int_equal(r.remaining, remaining);
    assert_int_equal(r.limit, limit);
    assert_true(r.largest <= remaining);
}

static void the_budget_is_met_exactly(void **state)
{
    fixture *f = *state;
    void *pieces[BUDGET / PIECE], *p = f;
    uint64_t one_byte = charge_of(f, 1), more = charge_of(f, PIECE);
    size_t bytes = bytes_for(f, PIECE);
    take_pieces(f, f->one, BUDGET - PIECE, pieces);
    snapshot before = drained(f);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->one, PIECE + 1, f->a, WEIR_CLASS_KV, &p));
    assert_null(p);
    assert_true(last_refusal().requested >= more);
    check_refusal(WEIR_CAUSE_BUDGET, last_refusal().requested, BUDGET - PIECE, PIECE, BUDGET);
    assert_true(last_refusal().requested > PIECE);
    check_only_refused(f, &before, 0);
    pieces[BUDGET / PIECE - 1] = take(f->one, bytes, f->a);
    before = drained(f);
    assert_int_equal(before.device.live, BUDGET);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->two, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_BUDGET, one_byte, 0, 0, BUDGET);
    assert_string_equal(last_refusal().client, "two");
    assert_string_equal(last_refusal().holders[0].client, "one");
    assert_int_equal(last_refusal().holders[0].bytes, BUDGET);
    check_only_refused(f, &before, 1);
    give_pieces(f, f->one, BUDGET, pieces);
}

static void a_maximum_is_met_exactly(void **state)
{
    fixture *f = *state;
    void *blocks[5], *p;
    const uint64_t charge = charge_of(f, 12345), more = charge_of(f, 1);
    weir_client *small = open_client(f->runtime, "small", 0, 5 * charge);
    for (int i = 0; i < 5; i++)
        blocks[i] = take(small, 12345, i % 2 ? f->a : f->b);
    snapshot before = drained(f);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(small, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_MAXIMUM, more, 5 * charge, 0, 5 * charge);
    check_only_refused(f, &before, 2);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_set_limits(small, 0, 5 * charge - 1));
    ok(weir_client_set_limits(small, 0, 5 * charge + more - 1));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(small, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_MAXIMUM, more, 5 * charge, more - 1, 5 * charge + more - 1);
    ok(weir_client_set_limits(small, 0, 5 * charge + more));
    p = take(small, 1, f->a);
    ok(weir_free(small, p, f->a));
    for (int i = 0; i < 5; i++)
        ok(weir_free(small, blocks[i], i % 2 ? f->a : f->b));
    ok(weir_client_destroy(small));
}

static void a_guarantee_is_never_lent(void **state)
{
    enum { SURE = 4 * PIECE };
    fixture *f = *state;
    void *pieces[BUDGET / PIECE], *own[BUDGET / PIECE], *p;
    const uint64_t one_byte = charge_of(f, 1);
    weir_client *sure = open_client(f->runtime, "sure", SURE, 0), *late;
    take_pieces(f, f->one, BUDGET - SURE, pieces);
    snapshot before = drained(f);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->two, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_BUDGET, one_byte, 0, 0, BUDGET);
    check_only_refused(f, &before, 1);
    weir_client_options options = {.struct_size = sizeof options, .name = "late", .guaranteed = 1};
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_create(f->runtime, &options, &late));
    size_t bytes = PIECE - (details_of(pieces[0]).charged - details_of(pieces[0]).bytes);
    for (int i = 0; i < SURE / PIECE; i++)
        own[i] = take(sure, bytes, f->a);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sure, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_BUDGET, one_byte, SURE, 0, BUDGET);
    for (int i = 0; i < SURE / PIECE; i++)
        ok(weir_free(sure, own[i], f->a));
    ok(weir_stream_synchronize(f->a));
    give_pieces(f, f->one, BUDGET - SURE, pieces);
    /* Nor does an own guarantee reach into that of another, who has nothing yet. */
    options.guaranteed = SURE;
    ok(weir_client_create(f->runtime, &options, &late));
    take_pieces(f, sure, BUDGET - SURE, pieces);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sure, 1, f->a, WEIR_CLASS_KV, &p));
    check_refusal(WEIR_CAUSE_BUDGET, one_byte, BUDGET - SURE, 0, BUDGET);
    give_pieces(f, sure, BUDGET - SURE, pieces);
    ok(weir_client_destroy(late));
    ok(weir_client_destroy(sure));
}

/* What is freed and not yet passed is waited for, or refused where that is not wanted or takes too long. One that waited where it is
 * not wanted would do so for an hour. */
static void pending_bytes_are_waited_for(void **state)
{
    fixture *f = *state;
    weir_block block;
    void *rest[BUDGET / PIECE];
    size_t bytes = bytes_for(f, 2 * PIECE);
    void *p = take(f->one, bytes, f->a); /* first: memory that cannot move might have no such piece later */
    take_pieces(f, f->two, BUDGET - 2 * PIECE, rest);
    gate *g = hold_up(f, f->a);
    ok(weir_fill(f->runtime, p, 1, bytes, f->a));
    ok(weir_free(f->one, p, f->a));
    snapshot before = take_snapshot(f->runtime);
    ok(weir_option_set("wait", "3600s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_take(f->two, bytes, WEIR_STREAM_HOST, WEIR_ALLOC_NO_WAIT, &block));
    ok(weir_option_set("wait", NULL));
    /* What is for the stream alone counts for nobody. */
    check_refusal(WEIR_CAUSE_PENDING, 2 * PIECE, BUDGET - 2 * PIECE, hands_on() ? 2 * PIECE : 0, BUDGET);
    check_only_refused(f, &before, 1);
    if (!place.simulated) { /* where time passes when somebody waits */
        ok(weir_option_set("wait", "20ms"));
        uint64_t start = now_ns();
        fails(WEIR_ERR_OUT_OF_MEMORY, try_take(f->two, bytes, WEIR_STREAM_HOST, 0, &block));
        assert_true(now_ns() - start >= 20 * MILLISECOND);
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
        ok(weir_option_set("wait", NULL));
    }
    let_go_later(f, g);
    ok(try_take(f->two, bytes, WEIR_STREAM_HOST, 0, &block)); /* up to a second */
    ok(weir_fill(f->runtime, block.pointer, 2, bytes, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->a));
    check_filled(f, block.pointer, 2, bytes);
    ok(weir_free_block(f->two, block, WEIR_STREAM_HOST));
    give_pieces(f, f->two, BUDGET - 2 * PIECE, rest);
}

/* The oldest pending block may stay so for long: whichever is passed first serves the request. */
static void the_first_that_is_passed_will_do(void **state)
{
    fixture *f = *state;
    void *rest[BUDGET / PIECE];
    size_t bytes = bytes_for(f, PIECE);
    take_pieces(f, f->one, BUDGET - 2 * PIECE, rest);
    void *p = take(f->one, bytes, f->a), *q = take(f->two, bytes, f->b);
    if (place.gpu) /* the first kernel is loaded, which waits for everything */
        assert_true(spin_on_gpu(weir_stream_native(f->b), 0));
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, p, f->a));
    if (place.gpu) /* whose host functions wait for one another */
        assert_true(spin_on_gpu(weir_stream_native(f->b), 20 * MILLISECOND));
    else
        hold_up_for(f, f->b, 20000);
    ok(weir_free(f->two, q, f->b));
    if (freeing_waits())
        let_go_later(f, g);
    ok(weir_option_set("wait", "3600s"));
    void *next = take(f->two, bytes, WEIR_STREAM_HOST);
    ok(weir_option_set("wait", NULL));
    if (!freeing_waits() && !place.simulated) {
        snapshot s = take_snapshot(f->runtime);
        assert_true(unpassed(&s) >= PIECE); /* the held one is still there */
    }
    let_go(g);
    ok(weir_free(f->two, next, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->a));
    give_pieces(f, f->one, BUDGET - 2 * PIECE, rest);
}

/* There is always enough for one more, only not yet. */
static void a_loop_at_the_limit_goes_on(void **state)
{
    fixture *f = *state;
    const int rounds = getenv("WEIR_SANITIZED") ? 1000 : 10000;
    weir_client *narrow = open_client(f->runtime, "narrow", 0, charge_of(f, 4096));
    const weir_stream streams[] = {f->a, f->b, WEIR_STREAM_HOST};
    for (int i = 0; i < rounds; i++) {
        weir_stream stream = streams[i / 10 % 3];
        void *p = take(narrow, 4096, stream);
        if (i % 100 == 0)
            ok(weir_fill(f->runtime, p, 1, 4096, stream));
        ok(weir_free(narrow, p, stream));
    }
    /* The same at the budget, with what weir must not hold twice. What one stream alone may have is in the way of others. */
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    drain(f);
    size_t most = bytes_for(f, BUDGET - PIECE), bytes = bytes_for(f, PIECE);
    void *rest = take(f->one, most, f->a);
    for (int i = 0; i < 50; i++) {
        void *p = take(f->two, bytes, streams[i % 3]);
        ok(weir_free(f->two, p, streams[i % 3]));
    }
    ok(weir_free(f->one, rest, f->a));
    drain(f);
    assert_int_equal(take_snapshot(f->runtime).device.refusals, 0);
    ok(weir_client_destroy(narrow));
}

static void peaks(void **state)
{
    fixture *f = *state;
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    assert_int_equal(take_snapshot(f->runtime).device.peak, 0);
    void *p = take(f->one, 700000, f->a), *q = take(f->one, 300000, f->a);
    uint64_t most = details_of(p).charged + details_of(q).charged;
    ok(weir_free(f->one, q, f->a));
    ok(weir_stream_synchronize(f->a));
    snapshot s = drained(f);
    assert_int_equal(s.device.peak, most);
    assert_int_equal(s.clients[0].peak, most);
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    assert_int_equal(take_snapshot(f->runtime).device.peak, details_of(p).charged);
    uint64_t before = details_of(p).charged; /* what is pending counts */
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, p, f->a));
    q = take(f->one, 300000, f->a);
    uint64_t both = before + details_of(q).charged;
    assert_int_equal(take_snapshot(f->runtime).device.peak, hands_on() ? before : both);
    let_go(g);
    ok(weir_free(f->one, q, f->a));
}

int contract_limits(void)
{
    const struct CMUnitTest limits[] = {
        CASE(the_budget_is_met_exactly),
        CASE(a_maximum_is_met_exactly),
        CASE(a_guarantee_is_never_lent),
        CASE(pending_bytes_are_waited_for),
        CASE(the_first_that_is_passed_will_do),
        CASE(a_loop_at_the_limit_goes_on),
        CASE(peaks),
    };
    return cmocka_run_group_tests(limits, NULL, NULL);
}
