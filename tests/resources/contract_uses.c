/* Declared uses; where a stack does not track them, that it says so and pretends nothing. */
#include "resources/contract.h"

enum { BYTES = 1 << 18 };

static weir_launch *begin(fixture *f, weir_stream stream, void *p, weir_access access)
{
    weir_use use = {{p, 0}, access};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, stream, &use, 1, &launch));
    return launch;
}

static weir_status try_begin(fixture *f, weir_stream stream, void *p, weir_access access)
{
    weir_use use = {{p, 0}, access};
    weir_launch *launch;
    weir_status status = weir_launch_begin(f->runtime, stream, &use, 1, &launch);
    if (status == WEIR_OK)
        weir_launch_abort(launch);
    return status;
}

/* False, with the contracted refusal checked, on a stack that tracks no uses. */
static bool tracks(fixture *f)
{
    if (can(f, WEIR_FEATURE_TRACKS_USES))
        return true;
    void *p = take(f->one, BYTES, f->a);
    snapshot before = drained(f);
    fails(WEIR_ERR_STREAM_MISUSE, try_begin(f, f->b, p, WEIR_ACCESS_READ));
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = p}, f->b));
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, details_of(p).block, f->b));
    unchanged(f->runtime, before);
    ok(weir_free(f->one, p, f->a));
    return false;
}

/* Three streams in turn write a block and read it elsewhere; each read finds the write before it, and no later one. */
static void reads_and_writes_are_ordered(void **state)
{
    enum { ROUNDS = 24, SAMPLE = 1024 };
    fixture *f = *state;
    weir_stream c;
    if (!tracks(f))
        return;
    ok(weir_stream_acquire(f->runtime, &c));
    char *p = take(f->one, BYTES, f->a), *seen = take(f->two, ROUNDS * SAMPLE, f->b);
    for (int i = 0; i < ROUNDS; i++) {
        weir_stream writer = i % 2 ? f->a : c;
        weir_launch *launch = begin(f, writer, p, i % 3 ? WEIR_ACCESS_WRITE : WEIR_ACCESS_READ_WRITE);
        hold_up_for(f, writer, 300);
        ok(weir_fill(f->runtime, p, (uint8_t)(i + 1), BYTES, writer));
        ok(weir_launch_end(launch));
        launch = begin(f, f->b, p, WEIR_ACCESS_READ);
        hold_up_for(f, f->b, 300);
        ok(weir_copy(f->runtime, seen + (size_t)i * SAMPLE, p + BYTES - SAMPLE, SAMPLE, f->b));
        ok(weir_launch_end(launch));
    }
    ok(weir_free(f->one, p, WEIR_STREAM_HOST)); /* which waits for them all */
    ok(weir_stream_synchronize(f->b));
    for (int i = 0; i < ROUNDS; i++)
        check_filled(f, seen + (size_t)i * SAMPLE, (uint8_t)(i + 1), SAMPLE);
    ok(weir_free(f->two, seen, f->b));
    ok(weir_stream_release(c));
}

static void tickets_exclude_what_conflicts(void **state)
{
    fixture *f = *state;
    if (!tracks(f))
        return;
    void *p = take(f->one, BYTES, f->a);
    weir_launch *reading = begin(f, f->a, p, WEIR_ACCESS_READ), *too = begin(f, f->b, p, WEIR_ACCESS_READ);
    snapshot before = drained(f);
    fails(WEIR_ERR_BUSY, try_begin(f, f->b, p, WEIR_ACCESS_WRITE));
    fails(WEIR_ERR_BUSY, weir_free(f->one, p, f->a));
    fails(WEIR_ERR_BUSY, weir_resize(f->one, p, BYTES / 2, f->a));
    unchanged(f->runtime, before);
    weir_launch_abort(reading);
    fails(WEIR_ERR_BUSY, weir_free(f->one, p, f->a));
    ok(weir_launch_end(too));
    weir_launch *writing = begin(f, f->b, p, WEIR_ACCESS_WRITE);
    fails(WEIR_ERR_BUSY, try_begin(f, f->a, p, WEIR_ACCESS_READ));
    fails(WEIR_ERR_BUSY, weir_use_record(f->runtime, (weir_block){.pointer = p}, f->a));
    fails(WEIR_ERR_BUSY, weir_free(f->one, p, f->a));
    ok(weir_launch_end(writing));
    ok(weir_free(f->one, p, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, try_begin(f, f->a, p, WEIR_ACCESS_READ));
}

static void what_is_no_block_is_not_used(void **state)
{
    fixture *f = *state;
    if (!tracks(f))
        return;
    int foreign = 0;
    char *p = take(f->one, BYTES, f->a);
    weir_launch *launch;
    weir_use stale = {{p, details_of(p).block.generation + 1}, WEIR_ACCESS_READ};
    weir_use pair[] = {{{p, 0}, WEIR_ACCESS_WRITE}, {{&foreign, 0}, WEIR_ACCESS_READ}};
    snapshot before = drained(f);
    fails(WEIR_ERR_FOREIGN, try_begin(f, f->a, &foreign, WEIR_ACCESS_READ));
    fails(WEIR_ERR_FOREIGN, try_begin(f, f->a, other.block, WEIR_ACCESS_READ));
    fails(WEIR_ERR_FOREIGN, weir_launch_begin(f->runtime, f->a, pair, 2, &launch));
    fails(WEIR_ERR_INTERIOR, try_begin(f, f->a, p + 256, WEIR_ACCESS_READ));
    fails(WEIR_ERR_STALE, weir_launch_begin(f->runtime, f->a, &stale, 1, &launch));
    fails(WEIR_ERR_STALE, weir_use_record(f->runtime, stale.block, f->a));
    fails(WEIR_ERR_FOREIGN, weir_use_record(f->runtime, (weir_block){&foreign, 1}, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, try_begin(f, other.stream, p, WEIR_ACCESS_READ));
    unchanged(f->runtime, before);
    ok(weir_free(f->one, p, f->a)); /* it holds no ticket */
}

static void wait_for_use(fixture *f, bool simple)
{
    char *p = take(f->one, BYTES, f->a), *q;
    uint64_t charged = details_of(p).charged;
    weir_launch *launch = simple ? NULL : begin(f, f->b, p, WEIR_ACCESS_WRITE);
    gate *g = hold_up(f, f->b);
    ok(simple ? weir_use_record(f->runtime, (weir_block){.pointer = p}, f->b) : weir_launch_end(launch));
    ok(weir_free(f->one, p, f->a)); /* where nothing holds it up */
    assert_int_equal(take_snapshot(f->runtime).device.pending, charged);
    assert_int_equal(drained(f).device.pending, charged);
    q = take(f->one, BYTES, f->a); /* elsewhere, although it is in order behind the free */
    assert_true(q + BYTES <= p || p + BYTES <= q);
    let_go(g);
    ok(weir_free(f->one, q, f->a));
    ok(weir_stream_synchronize(f->b));
    ok(weir_stream_synchronize(f->a)); /* a guard paints blocks there */
    assert_int_equal(drained(f).device.pending, 0);
}

static void a_free_waits_for_declared_uses(void **state)
{
    if (tracks(*state))
        wait_for_use(*state, false);
}

static void a_free_waits_for_recorded_uses(void **state)
{
    if (tracks(*state))
        wait_for_use(*state, true);
}

/* On the host stream begin itself waits. */
static void the_host_sees_what_was_declared(void **state)
{
    fixture *f = *state;
    if (!tracks(f))
        return;
    void *p = take(f->one, BYTES, f->a);
    weir_launch *launch = begin(f, f->a, p, WEIR_ACCESS_WRITE);
    hold_up_for(f, f->a, 3000);
    ok(weir_fill(f->runtime, p, 0x5a, BYTES, f->a));
    ok(weir_launch_end(launch));
    launch = begin(f, WEIR_STREAM_HOST, p, WEIR_ACCESS_READ);
    check_filled(f, p, 0x5a, BYTES);
    ok(weir_launch_end(launch));
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
}

int contract_uses(void)
{
    const struct CMUnitTest uses[] = {
        CASE(reads_and_writes_are_ordered),   CASE(tickets_exclude_what_conflicts),
        CASE(what_is_no_block_is_not_used),   CASE(a_free_waits_for_declared_uses),
        CASE(a_free_waits_for_recorded_uses), CASE(the_host_sees_what_was_declared),
    };
    return cmocka_run_group_tests(uses, NULL, NULL);
}
