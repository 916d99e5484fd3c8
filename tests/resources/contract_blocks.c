/* What a block is: its bytes, its address, its charge, its zeros. */
#include "info.h"
#include "resources/contract.h"

/* What is written into one block arrives in another by way of the device. */
static void round_trip(fixture *f, weir_stream stream)
{
    enum { BYTES = 100001 };
    unsigned char *image = malloc(BYTES), *back = calloc(1, BYTES);
    uint64_t random = 42;
    void *p = take(f->one, BYTES, stream), *q = take(f->two, BYTES, stream);
    assert_ptr_not_equal(p, q);
    for (size_t i = 0; i < BYTES; i++)
        image[i] = (unsigned char)next_random(&random);
    if (!place.simulated)
        ok(weir_copy(f->runtime, p, image, BYTES, stream));
    ok(weir_copy(f->runtime, q, p, BYTES, stream));
    ok(weir_fill(f->runtime, p, 0, BYTES, stream));
    ok(weir_stream_synchronize(stream));
    if (!place.simulated) {
        ok(weir_copy(f->runtime, back, q, BYTES, WEIR_STREAM_HOST));
        assert_memory_equal(back, image, BYTES);
    }
    ok(weir_free(f->one, p, stream));
    ok(weir_free(f->two, q, stream));
    free(image);
    free(back);
}

static void bytes_come_back_on_the_host_stream(void **state)
{
    round_trip(*state, WEIR_STREAM_HOST);
}

static void bytes_come_back_on_streams(void **state)
{
    fixture *f = *state;
    round_trip(f, f->a);
    round_trip(f, f->b);
}

static void check_books(fixture *f, uint64_t live, uint64_t allocations, uint64_t frees)
{
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, live);
    assert_int_equal(s.device.allocations, allocations);
    assert_int_equal(s.device.frees, frees);
    assert_true(s.device.held >= live + s.device.pending);
}

static void the_books_follow_a_block(void **state)
{
    fixture *f = *state;
    const size_t bytes = 300000;
    void *p = take(f->one, bytes, f->a), *q = allocate(f->two, 5000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_block_details d = details_of(p), e = details_of(q);
    assert_true(d.client == f->one && d.runtime == f->runtime && d.stream.id == f->a.id);
    assert_true(d.bytes == bytes && d.charged >= bytes && d.state == WEIR_BLOCK_LIVE && d.offset == 0);
    assert_true(e.client == f->two && e.memory_class == WEIR_CLASS_KV && e.block.generation != d.block.generation);
    check_books(f, d.charged + e.charged, 2, 0);
    weir_client_stats c = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(f->two, &c));
    assert_true(c.live == e.charged && c.live_class[WEIR_CLASS_KV] == e.charged && c.blocks == 1);
    gate *g = hold_up(f, f->a);
    ok(weir_free(f->one, p, f->a));
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(thread_caches() ? s.device.thread_cached
                     : hands_on()    ? s.device.ordered
                                     : s.device.pending,
                     d.charged);
    assert_int_equal(unpassed(&s), thread_caches() ? 0 : d.charged);
    assert_int_equal(details_of(p).state, hands_on() ? WEIR_BLOCK_FREE : WEIR_BLOCK_PENDING);
    check_books(f, e.charged, 2, 1);
    let_go(g);
    ok(weir_stream_synchronize(f->a));
    if (!can(f, WEIR_FEATURE_GUARDS)) /* which keep freed blocks back for a while */
        assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
    assert_int_equal(drained(f).device.pending, 0);
    ok(weir_free(f->two, q, WEIR_STREAM_HOST));
    if (!can(f, WEIR_FEATURE_GUARDS))
        assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
    assert_int_equal(drained(f).device.pending, 0);
    check_books(f, 0, 2, 2);
}

/* All of them at once, each with bytes of its own up to its last one. */
static void every_size_has_its_bytes(void **state)
{
    static const size_t sizes[] = {1,       255,     256,     257,     511,     12345, 65535, 65536, 65537,  99999,
                                   1048575, 1048577, 2097151, 2097152, 2097153, 3,     4095,  4097,  131071, 131073};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    fixture *f = *state;
    unsigned char *blocks[COUNT];
    uint64_t charged = 0;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = take(f->one, sizes[i], i % 2 ? f->a : f->b);
        assert_int_equal((uintptr_t)blocks[i] % UNIT, 0);
        charged += details_of(blocks[i]).charged;
        ok(weir_fill(f->runtime, blocks[i], (uint8_t)(i + 1), sizes[i], i % 2 ? f->a : f->b));
    }
    check_books(f, charged, COUNT, 0);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    for (size_t i = 0; i < COUNT; i++) {
        check_filled(f, blocks[i], (uint8_t)(i + 1), sizes[i]);
        assert_int_equal(details_of(blocks[i] + sizes[i] - 1).offset, sizes[i] - 1);
        for (size_t k = 0; k < i; k++)
            assert_true(blocks[i] + sizes[i] <= blocks[k] || blocks[k] + sizes[k] <= blocks[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t before = take_snapshot(f->runtime).device.live, one = details_of(blocks[i]).charged;
        ok(weir_free(f->one, blocks[i], i % 2 ? f->a : f->b));
        assert_int_equal(take_snapshot(f->runtime).device.live, before - one);
    }
    check_books(f, 0, COUNT, COUNT);
}

/* Equal requests are charged equally, whatever was done before. */
static void a_charge_is_a_matter_of_the_size(void **state)
{
    static const size_t sizes[] = {1, 256, 257, 65536, 65537, 1000000};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t charged = charge_of(f, sizes[i]);
        void *between = take(f->two, 700, f->a), *p = take(f->one, sizes[i], f->b);
        assert_int_equal(details_of(p).charged, charged);
        assert_int_equal(take_snapshot(f->runtime).device.live, charged + details_of(between).charged);
        ok(weir_free(f->two, between, f->a));
        ok(weir_free(f->one, p, f->b));
        assert_int_equal(charge_of(f, sizes[i]), charged);
    }
}

static void alignments(void **state)
{
    fixture *f = *state;
    weir_block blocks[22][2];
    weir_request request = {.struct_size = sizeof request, .bytes = 777, .stream = f->a};
    for (int i = 0; i < 22; i++)
        for (int k = 0; k < 2; k++) {
            request.alignment = (size_t)1 << (k ? 21 - i : i);
            ok(weir_alloc_with(f->one, &request, &blocks[i][k]));
            assert_int_equal((uintptr_t)blocks[i][k].pointer % request.alignment, 0);
            assert_int_equal((uintptr_t)blocks[i][k].pointer % UNIT, 0);
            ok(weir_fill(f->runtime, blocks[i][k].pointer, (uint8_t)(2 * i + k), 777, f->a));
        }
    ok(weir_stream_synchronize(f->a));
    for (int i = 0; i < 22; i++)
        for (int k = 0; k < 2; k++) {
            check_filled(f, blocks[i][k].pointer, (uint8_t)(2 * i + k), 777);
            ok(weir_free_block(f->one, blocks[i][k], f->a));
        }
}

static void nothing_is_no_block(void **state)
{
    fixture *f = *state;
    snapshot before = take_snapshot(f->runtime);
    void *p = f;
    ok(weir_alloc(f->one, 0, f->a, WEIR_CLASS_KV, &p));
    assert_null(p);
    weir_block block = {f, 1};
    ok(try_take(f->one, 0, WEIR_STREAM_HOST, WEIR_ALLOC_ZEROED, &block));
    assert_true(!block.pointer && block.generation == 0);
    ok(weir_free(f->one, NULL, f->a));
    ok(weir_free_block(f->one, (weir_block){NULL, 0}, WEIR_STREAM_HOST));
    unchanged(f->runtime, before);
}

/* The rest of the budget is taken, so that what was dirty is what is given out again. */
/* What is copied is what the stream had written there by then, however late that is. */
static void copies_are_in_order(void **state)
{
    enum { BYTES = 100001 };
    fixture *f = *state;
    void *copy, *from = take(f->one, BYTES, f->a);
    hold_up_for(f, f->a, 1000);
    ok(weir_fill(f->runtime, from, 0x5c, BYTES, f->a));
    ok(weir_alloc(f->one, BYTES, f->a, WEIR_CLASS_KV, &copy));
    ok(weir_copy(f->runtime, copy, from, BYTES, f->a));
    ok(weir_fill(f->runtime, from, 0xee, BYTES, f->a));
    ok(weir_free(f->one, from, f->a));
    ok(weir_stream_synchronize(f->a));
    check_filled(f, copy, 0x5c, BYTES);
    ok(weir_free(f->one, copy, f->a));
}

static void zeroed_blocks_are_zero(void **state)
{
    static const size_t sizes[] = {1, 257, 100001, 2 * PIECE - 1};
    fixture *f = *state;
    weir_block block;
    void *rest[BUDGET / PIECE];
    if (!can(f, WEIR_FEATURE_ZEROES)) {
        snapshot before = take_snapshot(f->runtime);
        fails(WEIR_ERR_UNSUPPORTED, try_take(f->one, 1000, f->a, WEIR_ALLOC_ZEROED, &block));
        unchanged(f->runtime, before);
        return;
    }
    take_pieces(f, f->two, BUDGET - 3 * PIECE, rest);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *dirty = take(f->one, 2 * PIECE - 1, f->a);
            ok(weir_fill(f->runtime, dirty, 0xd1, 2 * PIECE - 1, f->a));
            ok(weir_free(f->one, dirty, f->a));
            ok(try_take(f->one, sizes[i], round == 1 ? f->b : f->a, WEIR_ALLOC_ZEROED, &block));
            ok(weir_stream_synchronize(f->b));
            ok(weir_stream_synchronize(f->a));
            check_filled(f, block.pointer, 0, sizes[i]);
            ok(weir_fill(f->runtime, block.pointer, 0xd2, sizes[i], WEIR_STREAM_HOST));
            ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
        }
    give_pieces(f, f->two, BUDGET - 3 * PIECE, rest);
}

int contract_blocks(void)
{
    const struct CMUnitTest blocks[] = {
        CASE(bytes_come_back_on_the_host_stream),
        CASE(bytes_come_back_on_streams),
        CASE(the_books_follow_a_block),
        CASE(every_size_has_its_bytes),
        CASE(a_charge_is_a_matter_of_the_size),
        CASE(alignments),
        CASE(nothing_is_no_block),
        CASE(zeroed_blocks_are_zero),
        CASE(copies_are_in_order),
    };
    return cmocka_run_group_tests(blocks, NULL, NULL);
}
