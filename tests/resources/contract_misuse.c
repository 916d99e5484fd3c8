/* What is refused: the right status, a detail that names what is wrong, and nothing changed. */
#include "resources/contract.h"

static void frees_of_what_is_no_block(void **state)
{
    fixture *f = *state;
    int local = 0;
    char *p = take(f->one, 5000, f->a), *foreign = malloc(1000);
    snapshot before = drained(f);
    fails(WEIR_ERR_FOREIGN, weir_free(f->one, &local, f->a));
    fails(WEIR_ERR_FOREIGN, weir_free(f->one, foreign, f->a));
    fails(WEIR_ERR_FOREIGN, weir_free(f->one, other.block, f->a));
    fails(WEIR_ERR_FOREIGN, weir_free(other.client, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_free(f->two, p, f->a));
    detail_names("one");
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p + 1, f->a));
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p + 256, f->a));
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p + 4999, f->a));
    fails(WEIR_ERR_INTERIOR, weir_resize(f->one, p + 256, 10, f->a));
    fails(WEIR_ERR_FOREIGN, weir_resize(f->two, p, 10, f->a));
    fails(WEIR_ERR_INVALID, weir_resize(f->one, p, 0, f->a));
    fails(WEIR_ERR_INVALID, weir_free(NULL, p, f->a));
    unchanged(f->runtime, before);
    ok(weir_fill(f->runtime, p, 9, 5000, f->a));
    ok(weir_stream_synchronize(f->a));
    check_filled(f, p, 9, 5000);
    ok(weir_free(f->one, p, f->a));
    free(foreign);
}

/* While the block is pending, when it is gone, and when others stand around. */
static void second_frees(void **state)
{
    fixture *f = *state;
    void *neighbour = take(f->two, 5000, f->a), *p = take(f->one, 5000, f->a), *after = take(f->two, 5000, f->a);
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, p, f->a));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_resize(f->one, p, 100, f->a));
    unchanged(f->runtime, before);
    let_go(g);
    ok(weir_stream_synchronize(f->a));
    before = drained(f);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    unchanged(f->runtime, before);
    ok(weir_free(f->two, neighbour, f->a));
    ok(weir_free(f->two, after, f->a));
}

/* The rest of the budget is taken, so that the address serves again where weir chooses it. */
static void a_name_outlives_its_block(void **state)
{
    fixture *f = *state;
    void *rest[BUDGET / PIECE];
    weir_block first, second;
    size_t bytes = bytes_for(f, PIECE);
    take_pieces(f, f->two, BUDGET - PIECE, rest);
    ok(try_take(f->one, bytes, f->a, 0, &first));
    ok(weir_free_block(f->one, first, WEIR_STREAM_HOST));
    ok(try_take(f->one, bytes, f->a, 0, &second));
    assert_true(second.generation != first.generation);
    assert_true(!chooses_addresses() || second.pointer == first.pointer);
    snapshot before = take_snapshot(f->runtime);
    weir_status stale = second.pointer == first.pointer ? WEIR_ERR_STALE : WEIR_ERR_DOUBLE_FREE;
    fails(stale, weir_free_block(f->one, first, f->a));
    fails(WEIR_ERR_STALE, weir_free_block(f->one, (weir_block){second.pointer, second.generation + 1}, f->a));
    fails(WEIR_ERR_INVALID, weir_free_block(f->one, (weir_block){second.pointer, 0}, f->a));
    unchanged(f->runtime, before);
    ok(weir_free_block(f->one, second, f->a));
    give_pieces(f, f->two, BUDGET - PIECE, rest);
}

static void requests_that_are_none(void **state)
{
    fixture *f = *state;
    weir_block block;
    void *p = f;
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_INVALID, weir_alloc(f->one, 1000, f->a, (weir_class)WEIR_CLASS_COUNT, &p));
    assert_null(p);
    fails(WEIR_ERR_INVALID, weir_alloc(f->one, 1000, f->a, (weir_class)-1, &p));
    fails(WEIR_ERR_INVALID, weir_alloc(f->one, SIZE_MAX, f->a, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, weir_alloc(f->one, SIZE_MAX / 2, f->a, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, weir_alloc(NULL, 1000, f->a, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, try_take(f->one, 1000, f->a, 1u << 31, &block));
    assert_true(!block.pointer && block.generation == 0);
    weir_request request = {.struct_size = sizeof request, .bytes = 1000, .alignment = 3};
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->one, &request, &block));
    request.alignment = 4 * MIB;
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->one, &request, &block));
    unchanged(f->runtime, before);
}

static void streams_that_are_none(void **state)
{
    fixture *f = *state;
    weir_stream gone, there;
    void *p = take(f->one, 1000, f->a), *q = f;
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_stream_release(gone));
    ok(weir_stream_acquire(f->runtime, &there)); /* in its place */
    const weir_stream wrong[] = {gone, other.stream, {0xdeadbeef}, {UINT64_MAX - 1}};
    snapshot before = drained(f);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        q = f;
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->one, 1000, wrong[i], WEIR_CLASS_KV, &q));
        assert_null(q);
        fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->one, p, wrong[i]));
        fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->one, p, 100, wrong[i]));
        fails(WEIR_ERR_STREAM_MISUSE, weir_fill(f->runtime, p, 1, 1000, wrong[i]));
    }
    unchanged(f->runtime, before);
    ok(weir_free(f->one, p, there));
    ok(weir_stream_release(there));
}

static void a_client_is_not_closed_over_its_blocks(void **state)
{
    fixture *f = *state;
    weir_client *short_lived = open_client(f->runtime, "short-lived", 0, 0);
    void *p = take(short_lived, 1000, f->a);
    fails(WEIR_ERR_BUSY, weir_client_destroy(short_lived));
    detail_names("short-lived");
    gate *g = hold_up(f, f->a);
    ok(weir_free(short_lived, p, f->a));
    let_go_later(f, g);
    ok(weir_client_destroy(short_lived)); /* what is pending is waited for */
    assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
}

int contract_misuse(void)
{
    const struct CMUnitTest misuse[] = {
        CASE(frees_of_what_is_no_block), CASE(second_frees),          CASE(a_name_outlives_its_block),
        CASE(requests_that_are_none),    CASE(streams_that_are_none), CASE(a_client_is_not_closed_over_its_blocks),
    };
    return cmocka_run_group_tests(misuse, NULL, NULL);
}
