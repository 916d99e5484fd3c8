/* The resource segments from the inside: the rules of lengths, splits and merges, when a stream may have what another freed, and
 * what goes back to the driver. */
#include "info.h"
#include "bases_segments.h"
#include "trim.h"

/* The rules -------------------------------------------------------------------------------------------------------- */

static void lengths(void **state)
{
    (void)state;
    assert_int_equal(wi_segment_charge(0), 512);
    assert_int_equal(wi_segment_charge(1), 512);
    assert_int_equal(wi_segment_charge(511), 512);
    assert_int_equal(wi_segment_charge(512), 512);
    assert_int_equal(wi_segment_charge(513), 1024);
    assert_int_equal(wi_segment_charge(1025), 1536);
    assert_int_equal(wi_segment_charge(UINT64_MAX - 511), UINT64_MAX - 511);
    assert_int_equal(wi_segment_charge(UINT64_MAX - 510), UINT64_MAX - 511);
    assert_int_equal(wi_segment_charge(UINT64_MAX), UINT64_MAX - 511);
    assert_int_equal(wi_segment_length(512, UNIT), 2 * MIB);
    assert_int_equal(wi_segment_length(MIB, UNIT), 2 * MIB);
    assert_int_equal(wi_segment_length(MIB + 512, UNIT), 20 * MIB);
    assert_int_equal(wi_segment_length(10 * MIB - 512, UNIT), 20 * MIB);
    assert_int_equal(wi_segment_length(10 * MIB, UNIT), 10 * MIB);
    assert_int_equal(wi_segment_length(10 * MIB + 512, UNIT), 12 * MIB);
    assert_int_equal(wi_segment_length(10 * MIB, 2 * MIB), 12 * MIB); /* wherever it begins */
    for (uint64_t near = 0; near < 4 * MIB; near += 256 * KIB)
        assert_true(wi_segment_length((UINT64_MAX - near) & ~UINT64_C(511), 2 * MIB) >= UINT64_MAX - 4 * MIB);
    assert_int_equal(wi_segment_shorter(20 * MIB, 5 * MIB, UNIT), 5 * MIB);
    assert_int_equal(wi_segment_shorter(12 * MIB, 10 * MIB + 512, 1024), 10 * MIB + 1536);
    assert_int_equal(wi_segment_shorter(5 * MIB, 5 * MIB, UNIT), 0);
    assert_int_equal(wi_segment_shorter(2 * MIB, 512, UNIT), MIB);
    assert_int_equal(wi_segment_shorter(1024, 1024, UNIT), 0);
}

static void what_the_driver_is_asked_for(void **state)
{
    static const struct {
        uint64_t bytes, charged, asked;
    } rows[] = {
        {1, 512, 2 * MIB},
        {512, 512, 2 * MIB},
        {513, 1024, 2 * MIB},
        {MIB, MIB, 2 * MIB},
        {MIB + 1, MIB + 512, 20 * MIB},
        {10 * MIB - 512, 10 * MIB - 512, 20 * MIB},
        {10 * MIB - 1, 10 * MIB, 10 * MIB},
        {10 * MIB, 10 * MIB, 10 * MIB},
        {10 * MIB + 1, 10 * MIB + 512, 12 * MIB},
    };
    (void)state;
    fixture f = start(128 * MIB);
    assert_string_equal(runtime_details(f.runtime).resource, "budget(segments)");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *p = take(&f, rows[i].bytes);
        assert_int_equal(details_of(p).charged, rows[i].charged);
        assert_int_equal(script.asked, rows[i].asked);
        assert_int_equal(stats_of(f.runtime).held, rows[i].asked);
        give(&f, p);
        ok(weir_runtime_trim(f.runtime, NULL, NULL));
    }
    end(&f);
}

static void lengths_that_no_number_can_tell(void **state)
{
    (void)state;
    void *p = &p;
    fixture f = start(128 * MIB);
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2, SIZE_MAX / 4 + 1, SIZE_MAX / 4};
    for (size_t i = 0; i < 5; i++) {
        weir_status status = weir_alloc(f.one, sizes[i], WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
        assert_int_equal(status, sizes[i] > SIZE_MAX / 4 ? WEIR_ERR_INVALID : WEIR_ERR_OUT_OF_MEMORY);
        assert_null(p);
    }
    assert_int_equal(script.pieces, 0);
    end(&f);
}

/* What is left of a small segment is memory from 512 bytes on. */
static void small_splits(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    char *first = take(&f, MIB), *second = take(&f, MIB - 512), *last = take(&f, 512);
    assert_ptr_equal(second, first + MIB);
    assert_ptr_equal(last, second + MIB - 512);
    assert_int_equal(script.pieces, 1);
    char *next = take(&f, 1);
    assert_int_equal(script.pieces, 2);
    give(&f, last);
    assert_ptr_equal(take(&f, 1), last); /* the best fit is the shortest */
    give(&f, last);
    give(&f, next);
    give(&f, first);
    give(&f, second);
    end(&f);
}

/* Of a large one what is more than 1 MiB; else it stays behind the block, and comes back with it. */
static void large_splits(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    char *first = take(&f, 9 * MIB), *second = take(&f, 10 * MIB - 512), *rest = take(&f, MIB + 512);
    assert_int_equal(script.pieces, 1);
    assert_ptr_equal(rest, first + 19 * MIB - 512);
    assert_int_equal(bytes_behind(&f, second), 0);
    give(&f, rest);
    give(&f, second);
    second = take(&f, 10 * MIB);
    assert_ptr_equal(second, first + 9 * MIB);
    assert_int_equal(bytes_behind(&f, second), MIB);
    assert_int_equal(stats_of(f.runtime).live, 19 * MIB);
    assert_int_equal(details_of(second + 10 * MIB).state, WEIR_BLOCK_FREE);
    rest = take(&f, MIB + 512);
    assert_int_equal(script.pieces, 2);
    give(&f, rest);
    give(&f, second);
    second = take(&f, 11 * MIB);
    assert_ptr_equal(second, first + 9 * MIB);
    give(&f, second);
    give(&f, first);
    end(&f);
}

/* By size, then by address, whatever the order in which they were freed. */
static void the_best_fit(void **state)
{
    (void)state;
    enum { PIECES = 7 };
    static const uint64_t sizes[PIECES] = {3000, 2000, 9000, 2000, 40000, 2000, 1500};
    fixture f = start(128 * MIB);
    char *pieces[PIECES], *between[PIECES];
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = take(&f, sizes[i]);
        between[i] = take(&f, 1);
    }
    for (int i = PIECES - 1; i >= 0; i--)
        give(&f, pieces[i]);
    assert_ptr_equal(take(&f, 1600), pieces[1]);
    assert_ptr_equal(take(&f, 1600), pieces[3]);
    assert_ptr_equal(take(&f, 2048), pieces[5]);
    assert_ptr_equal(take(&f, 2048), pieces[0]); /* 3072 long: 1024 are left of it */
    assert_ptr_equal(take(&f, 600), pieces[0] + 2048);
    assert_ptr_equal(take(&f, 600), pieces[6]);
    assert_int_equal(script.pieces, 1);
    static const int taken[] = {1, 3, 5, 0, 6};
    for (int i = 0; i < 5; i++)
        give(&f, pieces[taken[i]]);
    give(&f, pieces[0] + 2048);
    for (int i = 0; i < PIECES; i++)
        give(&f, between[i]);
    end(&f);
}

static void merges_on_both_sides(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    static const int orders[][3] = {{0, 2, 1}, {2, 0, 1}, {0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        char *p[3] = {take(&f, 4096), take(&f, 8192), take(&f, 4096)}, *end_of = take(&f, 512);
        assert_true(p[1] == p[0] + 4096 && p[2] == p[1] + 8192 && end_of == p[2] + 4096);
        for (int i = 0; i < 3; i++)
            give(&f, p[orders[o][i]]);
        char *all = take(&f, 16384);
        assert_ptr_equal(all, p[0]);
        give(&f, end_of);
        give(&f, all);
    }
    assert_int_equal(script.pieces, 1);
    assert_int_equal(f.base->first->region.first->bytes, 2 * MIB);
    end(&f);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

/* At once for the same stream, later for others; what was freed on one does not merge with what was freed on another. */
static void streams(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    gate g = GATE;
    char *p = allocate(f.one, 4096, f.a, WEIR_CLASS_KV), *q = allocate(f.one, 4096, f.b, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.a));
    ok(weir_free(f.one, p, f.a));
    ok(weir_free(f.one, q, f.b));
    char *others = allocate(f.two, 4096, f.b, WEIR_CLASS_KV), *long_one = allocate(f.two, 8192, f.b, WEIR_CLASS_KV);
    assert_ptr_equal(others, q);
    assert_true(long_one > q);
    char *own = allocate(f.one, 4096, f.a, WEIR_CLASS_KV);
    assert_ptr_equal(own, p);
    ok(weir_free(f.one, own, f.a));
    open_gate(&g);
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX},
                         NULL));
    assert_ptr_equal(allocate(f.two, 4096, f.b, WEIR_CLASS_KV), p);
    ok(weir_free(f.two, p, f.b));
    ok(weir_free(f.two, others, f.b));
    ok(weir_free(f.two, long_one, f.b));
    end(&f);
}

/* A use that was recorded elsewhere holds the block back: no reuse, no merge, until the device is past it. */
static void a_recorded_use_delays_reuse(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    gate g = GATE;
    char *before = allocate(f.one, 4096, f.a, WEIR_CLASS_KV), *p = allocate(f.one, 4096, f.a, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.b));
    ok(weir_use_record(f.runtime, (weir_block){.pointer = p}, f.b));
    ok(weir_free(f.one, before, f.a));
    ok(weir_free(f.one, p, f.a));
    assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
    char *next = allocate(f.one, 4096, f.a, WEIR_CLASS_KV), *longer = allocate(f.one, 8192, f.a, WEIR_CLASS_KV);
    assert_ptr_equal(next, before);
    assert_true(longer > p);
    ok(weir_free(f.one, next, f.a));
    open_gate(&g);
    ok(weir_stream_synchronize(f.b));
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX},
                         NULL));
    assert_ptr_equal(allocate(f.one, 8192, f.a, WEIR_CLASS_KV), before);
    ok(weir_free(f.one, before, f.a));
    ok(weir_free(f.one, longer, f.a));
    end(&f);
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* What is left in a segment that is partly used is still known, and goes with the rest. */
static void the_cache_is_emptied_after_partial_use(void **state)
{
    (void)state;
    uint64_t released = 7;
    fixture f = start(128 * MIB);
    char *p = take(&f, 4096), *q = take(&f, 4096), *large = take(&f, 5 * MIB);
    give(&f, p);
    give(&f, large);
    ok(trim_keeping(f.runtime, 0, &released));
    assert_int_equal(released, 20 * MIB);
    assert_int_equal(script.released, 20 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 2 * MIB);
    assert_ptr_equal(take(&f, 4096), p);
    give(&f, p);
    give(&f, q);
    assert_int_equal(f.base->first->region.first->bytes, 2 * MIB);
    ok(trim_keeping(f.runtime, 2 * MIB, &released));
    assert_int_equal(released, 0);
    ok(trim_keeping(f.runtime, 2 * MIB - 1, &released));
    assert_int_equal(released, 2 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 0);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f.one, q, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_free(f.one, q + 256, WEIR_STREAM_HOST));
    end(&f);
}

static void what_the_device_is_not_past_stays(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    gate g = GATE;
    char *p = allocate(f.one, 4096, f.a, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.a));
    ok(weir_free(f.one, p, f.a));
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    assert_int_equal(script.released, 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    assert_int_equal(script.released, 2 * MIB);
    end(&f);
}

static void what_the_driver_does_not_take_back(void **state)
{
    (void)state;
    uint64_t released = 0;
    fixture f = start(128 * MIB);
    char *p = take(&f, 4096);
    give(&f, p);
    script.keeps = true;
    ok(trim_keeping(f.runtime, 0, &released));
    assert_int_equal(released, 0);
    assert_int_equal(stats_of(f.runtime).held, 2 * MIB);
    script.keeps = false;
    assert_ptr_equal(take(&f, 4096), p);
    assert_int_equal(script.pieces, 1);
    give(&f, p);
    end(&f);
}

/* Records are as many as there are pieces of memory, however often they were cut and joined. */
static void records_do_not_grow(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    for (int i = 0; i < 1000; i++) {
        char *p = take(&f, 1024), *q = take(&f, 4096);
        assert_int_equal(records(&f), 3);
        give(&f, i % 2 ? p : q);
        give(&f, i % 2 ? q : p);
        assert_int_equal(records(&f), 1);
        if (i % 100 == 99) {
            ok(weir_runtime_trim(f.runtime, NULL, NULL));
            assert_int_equal(records(&f), 0);
        }
    }
    assert_int_equal(f.base->shared.pool.chunk_count, 1);
    end(&f);
}

static void stale_frees(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    weir_request request = {.struct_size = sizeof request, .bytes = 4096};
    weir_block first, second;
    ok(weir_alloc_with(f.one, &request, &first));
    ok(weir_free_block(f.one, first, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free_block(f.one, first, WEIR_STREAM_HOST));
    ok(weir_alloc_with(f.one, &request, &second));
    assert_ptr_equal(second.pointer, first.pointer);
    fails(WEIR_ERR_STALE, weir_free_block(f.one, first, WEIR_STREAM_HOST));
    weir_launch *launch;
    fails(WEIR_ERR_STALE, weir_launch_begin(f.runtime, f.b, &(weir_use){first, WEIR_ACCESS_READ}, 1, &launch));
    assert_int_equal(details_of(second.pointer).state, WEIR_BLOCK_LIVE);
    ok(weir_free_block(f.one, second, WEIR_STREAM_HOST));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(what_the_driver_is_asked_for),
        cmocka_unit_test(lengths_that_no_number_can_tell),
        cmocka_unit_test(small_splits),
        cmocka_unit_test(large_splits),
        cmocka_unit_test(the_best_fit),
        cmocka_unit_test(merges_on_both_sides),
        cmocka_unit_test(streams),
        cmocka_unit_test(a_recorded_use_delays_reuse),
        cmocka_unit_test(the_cache_is_emptied_after_partial_use),
        cmocka_unit_test(what_the_device_is_not_past_stays),
        cmocka_unit_test(what_the_driver_does_not_take_back),
        cmocka_unit_test(records_do_not_grow),
        cmocka_unit_test(stale_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
