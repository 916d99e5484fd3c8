/* weir_resize and weir_runtime_trim, as far as the stack's features go, and what is answered where they end. */
#include "info.h"
#include "resources/contract.h"
#include "trim.h"

static void a_block_shrinks(void **state)
{
    fixture *f = *state;
    const size_t bytes = 1000000, less = 200000;
    char *p = take(f->one, bytes, f->a);
    const uint64_t charged = details_of(p).charged, fewer = charge_of(f, less);
    ok(weir_fill(f->runtime, p, 0x61, bytes, f->a));
    gate *g = hold_up(f, f->a);
    ok(weir_resize(f->one, p, less, f->a));
    weir_block_details d = details_of(p);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(d.bytes, less);
    assert_int_equal(d.charged, can(f, WEIR_FEATURE_SHRINKS) ? fewer : charged);
    assert_int_equal(s.device.live, d.charged);
    if (chooses_addresses() || s.device.pending > 0) /* the tail is ordered as a free is */
        assert_int_equal(s.device.pending, charged - d.charged);
    let_go(g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(drained(f).device.pending, 0);
    check_filled(f, p, 0x61, less);
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p + less - 1, f->a));
    ok(weir_free(f->one, p, f->a));
}

/* Where weir chooses the addresses there is room: the block is alone. Elsewhere that is the driver's matter. */
static void check_growth(fixture *f, char *p, size_t bytes, size_t more)
{
    snapshot before = drained(f);
    weir_status status = weir_resize(f->one, p, more, f->a);
    if (status == WEIR_OK) {
        assert_true(can(f, WEIR_FEATURE_GROWS));
        assert_int_equal(details_of(p).bytes, more);
        assert_true(details_of(p).charged >= more);
        assert_int_equal(drained(f).device.live, details_of(p).charged);
        ok(weir_fill(f->runtime, p + bytes, 0x63, more - bytes, f->a));
        ok(weir_stream_synchronize(f->a));
        check_filled(f, p + bytes, 0x63, more - bytes);
    } else {
        assert_true(!can(f, WEIR_FEATURE_GROWS) || !chooses_addresses());
        assert_int_equal(status, WEIR_ERR_NO_ROOM);
        unchanged(f->runtime, before);
    }
    check_filled(f, p, 0x62, bytes);
}

static void a_block_grows_or_is_as_before(void **state)
{
    fixture *f = *state;
    const size_t bytes = 100000;
    char *p = take(f->one, bytes, f->a);
    const uint64_t charged = details_of(p).charged;
    ok(weir_fill(f->runtime, p, 0x62, bytes, f->a));
    ok(weir_stream_synchronize(f->a));
    ok(weir_resize(f->one, p, bytes + 1, f->a)); /* what it is charged for it has */
    assert_true(details_of(p).bytes == bytes + 1 && details_of(p).charged == charged);
    check_growth(f, p, bytes, 3 * bytes);
    if (can(f, WEIR_FEATURE_SHRINKS |
                   WEIR_FEATURE_GROWS)) { /* what it gave up it may have again, with nobody else there */
        size_t now = details_of(p).bytes;
        ok(weir_resize(f->one, p, bytes / 2, f->a));
        ok(weir_stream_synchronize(f->a));
        drain(f);
        ok(weir_resize(f->one, p, now, f->a));
        check_filled(f, p, 0x62, bytes / 2);
    }
    ok(weir_free(f->one, p, f->a));
}

static void what_cannot_be_had_leaves_the_block(void **state)
{
    fixture *f = *state;
    const size_t bytes = 100000;
    char *p = take(f->one, bytes, f->a);
    ok(weir_fill(f->runtime, p, 0x62, bytes, f->a));
    ok(weir_stream_synchronize(f->a));
    snapshot before = drained(f);
    weir_status status = weir_resize(f->one, p, 2 * (size_t)BUDGET, f->a);
    assert_true(status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_NO_ROOM);
    snapshot after = drained(f);
    assert_int_equal(after.device.live, before.device.live);
    assert_int_equal(after.device.promised, 0);
    assert_int_equal(details_of(p).bytes, bytes);
    check_filled(f, p, 0x62, bytes);
    ok(weir_free(f->one, p, f->a));
}

static void what_is_cached_can_be_trimmed(void **state)
{
    fixture *f = *state;
    uint64_t released = 7;
    void *p = take(f->one, 8 * MIB, f->a), *kept = take(f->two, 5000, f->a);
    ok(weir_fill(f->runtime, kept, 0x64, 5000, f->a));
    ok(weir_free(f->one, p, f->a));
    ok(weir_stream_synchronize(f->a));
    uint64_t held = drained(f).device.held;
    ok(trim_keeping(f->runtime, 0, &released));
    snapshot s = drained(f);
    assert_int_equal(held - released, s.device.held);
    check_filled(f, kept, 0x64, 5000);
    ok(weir_free(f->two, kept, WEIR_STREAM_HOST));
    held = drained(f).device.held;
    ok(trim_keeping(f->runtime, 0, &released));
    s = drained(f);
    assert_int_equal(held - released, s.device.held);
    if (can(f, WEIR_FEATURE_TRIMS))
        assert_int_equal(s.device.held, 0);
    else
        assert_int_equal(released, 0);
}

/* A budget below what is in use is refused; one above it holds from then on. */
static void the_budget_can_be_lowered(void **state)
{
    fixture *f = *state;
    void *p = take(f->one, 8 * MIB, f->a), *q;
    uint64_t live = details_of(p).charged;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_runtime_set_budget(f->runtime, live - 256));
    assert_int_equal(runtime_details(f->runtime).budget, BUDGET);
    weir_status status = weir_runtime_set_budget(f->runtime, 16 * MIB);
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    if (drained(f).device.held > 16 * MIB) { /* what is taken whole is not given back in part */
        assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
        assert_int_equal(runtime_details(f->runtime).budget, BUDGET);
    } else {
        assert_int_equal(status, WEIR_OK);
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->two, 12 * MIB, f->a, WEIR_CLASS_KV, &q));
        assert_int_equal(last_refusal().limit, 16 * MIB);
        ok(weir_runtime_set_budget(f->runtime, BUDGET));
        q = take(f->two, 12 * MIB, f->a);
        ok(weir_free(f->two, q, f->a));
    }
    ok(weir_free(f->one, p, f->a));
}

int contract_resize(void)
{
    const struct CMUnitTest resize[] = {
        CASE(a_block_shrinks),
        CASE(a_block_grows_or_is_as_before),
        CASE(what_cannot_be_had_leaves_the_block),
        CASE(what_is_cached_can_be_trimmed),
        CASE(the_budget_can_be_lowered),
    };
    return cmocka_run_group_tests(resize, NULL, NULL);
}
