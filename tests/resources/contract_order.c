/* Stream order: who gets a block next, and what he finds in it. */
#include "resources/contract.h"

/* One stream takes, writes, frees, takes again and writes, and nobody waits: what is written last counts. */
static void one_stream_needs_no_waiting(void **state)
{
    enum { CYCLES = 32, BYTES = 200000, SAMPLE = 4096 };
    fixture *f = *state;
    char *seen = take(f->two, CYCLES * SAMPLE, f->a);
    for (int i = 0; i < CYCLES; i++) {
        void *p = take(f->one, BYTES, f->a);
        hold_up_for(f, f->a, 300);
        ok(weir_fill(f->runtime, p, 0xee, BYTES, f->a));
        ok(weir_free(f->one, p, f->a));
        void *q = take(f->one, BYTES, f->a);
        assert_true(q == p || !thread_caches());
        ok(weir_fill(f->runtime, q, (uint8_t)(i + 1), BYTES, f->a));
        ok(weir_copy(f->runtime, seen + (size_t)i * SAMPLE, (char *)q + BYTES - SAMPLE, SAMPLE, f->a));
        ok(weir_free(f->one, q, f->a));
    }
    ok(weir_stream_synchronize(f->a));
    for (int i = 0; i < CYCLES; i++)
        check_filled(f, seen + (size_t)i * SAMPLE, (uint8_t)(i + 1), SAMPLE);
    ok(weir_free(f->two, seen, f->a));
}

/* WEIR_FEATURE_STREAM_ORDERED is what happens: while the device is not past a free, its bytes are the next block's on that stream, or
 * they are not. There is room for others, and a base that hands on takes what lies there before it asks for more. */
static void a_free_serves_its_stream_at_once_where_it_is_said(void **state)
{
    enum { CYCLES = 3 };
    fixture *f = *state;
    void *rest[BUDGET / PIECE];
    int reused = 0;
    bool said = can(f, WEIR_FEATURE_STREAM_ORDERED);
    size_t bytes = bytes_for(f, PIECE);
    take_pieces(f, f->two, BUDGET - (CYCLES + 1) * PIECE, rest);
    void *p = take(f->one, bytes, f->a);
    gate *g = hold_up(f, f->a);
    for (int i = 0; i < CYCLES; i++) {
        weir_block next;
        ok(weir_free(f->one, p, f->a));
        ok(try_take(f->one, bytes, f->a, WEIR_ALLOC_NO_WAIT, &next));
        reused += next.pointer == p;
        p = next.pointer;
    }
    weir_block beside = {NULL, 0};
    ok(weir_free(f->one, p, f->a));
    weir_status status = try_take(f->one, bytes, f->b, WEIR_ALLOC_NO_WAIT, &beside); /* not for free anywhere else */
    assert_true(!beside.pointer || beside.pointer != p);
    let_go(g);
    if (status == WEIR_OK)
        ok(weir_free_block(f->one, beside, f->b));
    give_pieces(f, f->two, BUDGET - (CYCLES + 1) * PIECE, rest);
    if (!said || chooses_addresses()) /* else the driver chooses, which may give others out first */
        assert_int_equal(reused, said ? CYCLES : 0);
    else
        assert_true(reused > 0);
}

/* Another client wants the bytes on another stream, with nothing else left for it; what was queued before the free still
 * writes. */
static bool next_owner(fixture *f, size_t bytes, bool declared)
{
    weir_use use;
    weir_launch *launch;
    void *p = take(f->one, bytes, f->a);
    weir_stream writer = declared ? f->b : f->a;
    use = (weir_use){{p, 0}, WEIR_ACCESS_WRITE};
    if (declared)
        ok(weir_launch_begin(f->runtime, writer, &use, 1, &launch));
    hold_up_for(f, writer, 600);
    ok(weir_fill(f->runtime, p, 0xee, bytes, writer));
    if (declared)
        ok(weir_launch_end(launch));
    ok(weir_free(f->one, p, f->a));
    void *q = take(f->two, bytes, WEIR_STREAM_HOST);
    ok(weir_fill(f->runtime, q, 0x33, bytes, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(writer));
    check_filled(f, q, 0x33, bytes);
    ok(weir_free(f->two, q, WEIR_STREAM_HOST));
    return p == q;
}

static void late_writes_hurt_nobody(void **state)
{
    const int cycles = getenv("WEIR_SANITIZED") ? 16 : 64;
    fixture *f = *state;
    void *rest[BUDGET / PIECE];
    int reused = 0, tracks = can(f, WEIR_FEATURE_TRACKS_USES);
    size_t bytes = bytes_for(f, PIECE);
    take_pieces(f, f->two, BUDGET - PIECE, rest);
    for (int i = 0; i < cycles; i++)
        reused += next_owner(f, bytes, tracks && i % 2);
    give_pieces(f, f->two, BUDGET - PIECE, rest);
    print_message("the address served again in %d of %d cycles\n", reused, cycles);
    assert_true(!chooses_addresses() || reused == cycles);
}

/* Zeros are queued on the stream of the allocation; a first use elsewhere finds them. */
static void a_first_use_elsewhere_comes_after_the_allocation(void **state)
{
    enum { BYTES = 1 << 20 };
    fixture *f = *state;
    weir_block block;
    weir_launch *launch;
    if (!can(f, WEIR_FEATURE_ZEROES |
                    WEIR_FEATURE_TRACKS_USES)) /* refused, as contract_blocks.c and contract_uses.c see */
        return;
    void *seen = take(f->two, BYTES, f->b), *dirty = take(f->one, BYTES, f->a);
    ok(weir_fill(f->runtime, dirty, 0xee, BYTES, f->a));
    ok(weir_free(f->one, dirty, f->a));
    ok(weir_stream_synchronize(f->a));
    drain(f);
    gate *g = hold_up(f, f->a);
    ok(try_take(f->one, BYTES, f->a, WEIR_ALLOC_ZEROED, &block));
    weir_use use = {block, WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, f->b, &use, 1, &launch));
    ok(weir_copy(f->runtime, seen, block.pointer, BYTES, f->b));
    ok(weir_launch_end(launch));
    ok(weir_free_block(f->one, block, f->b));
    snapshot s = take_snapshot(f->runtime);
    assert_true(unpassed(&s) > 0);
    let_go_later(f, g);
    ok(weir_stream_synchronize(f->b));
    check_filled(f, seen, 0, BYTES);
    ok(weir_free(f->two, seen, f->b));
}

/* Zeros that are still to be written would hurt the next owner. */
static void a_free_elsewhere_waits_for_the_zeros(void **state)
{
    fixture *f = *state;
    weir_block block;
    if (!can(f, WEIR_FEATURE_ZEROES)) /* refused, as contract_blocks.c sees */
        return;
    gate *g = hold_up(f, f->a);
    ok(try_take(f->one, 5000, f->a, WEIR_ALLOC_ZEROED, &block));
    uint64_t charged = details_of(block.pointer).charged;
    ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
    assert_int_equal(drained(f).device.pending, charged);
    let_go(g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(drained(f).device.pending, 0);
}

/* The bytes are nobody else's until the device is past: charged to who freed them, or for the same stream alone. */
static void a_free_is_pending_while_its_stream_is_held(void **state)
{
    fixture *f = *state;
    void *p = take(f->one, 100000, f->a), *q = take(f->one, 3000, f->b);
    uint64_t charged = details_of(p).charged;
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(details_of(p).state, hands_on() ? WEIR_BLOCK_FREE : WEIR_BLOCK_PENDING);
    weir_client_stats c = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(f->one, &c));
    assert_int_equal(c.pending, hands_on() ? 0 : charged);
    if (!freeing_waits()) /* others are not held up */
        ok(weir_free(f->one, q, f->b));
    if (!place.simulated)
        ok(weir_stream_synchronize(f->b));
    snapshot s = drained(f);
    uint64_t pending = unpassed(&s); /* simulated streams have no hurry */
    assert_true(place.simulated ? pending >= charged : pending == charged);
    let_go(g);
    ok(weir_stream_synchronize(f->a));
    if (freeing_waits())
        ok(weir_free(f->one, q, f->b));
    ok(weir_stream_synchronize(f->b));
    s = drained(f);
    assert_int_equal(unpassed(&s), 0);
}

static void a_released_stream_leaves_nothing_pending(void **state)
{
    fixture *f = *state;
    weir_stream own;
    ok(weir_stream_acquire(f->runtime, &own));
    void *p = take(f->one, 100000, own), *q = take(f->one, 100000, own);
    hold_up_for(f, own, 5000);
    ok(weir_fill(f->runtime, q, 7, 100000, own));
    ok(weir_free(f->one, p, own));
    ok(weir_stream_release(own));
    snapshot s = drained(f);
    assert_int_equal(unpassed(&s), 0);
    check_filled(f, q, 7, 100000);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->one, q, own));
    ok(weir_free(f->one, q, WEIR_STREAM_HOST));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(own));
}

/* A stream of another runtime's on the same device is one that somebody else made. */
static void a_registered_stream_orders_as_well(void **state)
{
    fixture *f = *state;
    int none;
    weir_stream lent;
    void *native = weir_stream_native(other.stream);
    if (strcmp(place.device, "cuda:0") != 0) { /* elsewhere streams are weir's own, and a device's own */
        fails(native ? WEIR_ERR_STREAM_MISUSE : WEIR_ERR_UNSUPPORTED,
              weir_stream_register(f->runtime, native ? native : &none, &lent));
        return;
    }
    ok(weir_stream_register(f->runtime, native, &lent));
    void *p = take(f->one, 100000, lent), *q = take(f->one, 100000, lent);
    gate *g = hold_up(f, lent);
    ok(weir_fill(f->runtime, q, 7, 100000, lent));
    ok(weir_free(f->one, p, lent));
    snapshot s = take_snapshot(f->runtime);
    assert_true(unpassed(&s) + s.device.thread_cached > 0);
    let_go_later(f, g);
    ok(weir_stream_unregister(lent));
    s = drained(f);
    assert_int_equal(unpassed(&s), 0);
    check_filled(f, q, 7, 100000);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->one, q, lent));
    ok(weir_free(f->one, q, WEIR_STREAM_HOST));
}

/* What was freed on a stream that does not come forward keeps others from that, and not from what lies beside. */
static void a_small_free_does_not_hold_much(void **state)
{
    fixture *f = *state;
    weir_block block;
    if (!hands_on())
        return;
    ok(weir_free(f->one, take(f->one, bytes_for(f, BUDGET - PIECE), WEIR_STREAM_HOST), WEIR_STREAM_HOST));
    void *small = take(f->one, 100000, f->a);
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, small, f->a));
    ok(try_take(f->two, bytes_for(f, BUDGET - 4 * PIECE), WEIR_STREAM_HOST, WEIR_ALLOC_NO_WAIT, &block));
    ok(weir_free_block(f->two, block, WEIR_STREAM_HOST));
    let_go(g);
}

/* Nothing may be queued on a stream that is being captured. */
static void allocations_on_a_captured_stream(void **state)
{
    fixture *f = *state;
    weir_block block;
    ok(weir_capture_begin(f->a, NULL));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, try_take(f->one, 1000, f->a, WEIR_ALLOC_ZEROED, &block));
    if (!can(f, WEIR_FEATURE_CAPTURABLE))
        fails(WEIR_ERR_STREAM_MISUSE, try_take(f->one, 1000, f->a, 0, &block));
    unchanged(f->runtime, before);
    if (can(f, WEIR_FEATURE_CAPTURABLE)) {
        ok(try_take(f->one, 1000, f->a, 0, &block));
        fails(WEIR_ERR_STREAM_MISUSE, weir_free_block(f->one, block, f->a));
        ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
    }
    ok(weir_capture_end(f->a, NULL));
}

int contract_order(void)
{
    const struct CMUnitTest order[] = {
        CASE(one_stream_needs_no_waiting),
        CASE(a_free_serves_its_stream_at_once_where_it_is_said),
        CASE(late_writes_hurt_nobody),
        CASE(a_first_use_elsewhere_comes_after_the_allocation),
        CASE(a_free_elsewhere_waits_for_the_zeros),
        CASE(a_free_is_pending_while_its_stream_is_held),
        CASE(a_small_free_does_not_hold_much),
        CASE(a_released_stream_leaves_nothing_pending),
        CASE(a_registered_stream_orders_as_well),
        CASE(allocations_on_a_captured_stream),
    };
    return cmocka_run_group_tests(order, NULL, NULL);
}
