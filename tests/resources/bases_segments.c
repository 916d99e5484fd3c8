/* The resource segments from the inside: the rules of lengths, splits and merges, when a stream may have what another freed, and
 * what is done where the rules cannot be kept. */
#include "bases.h"

#include "memory/segments.h"

#include <weir/layout.h>
#include <weir/uses.h>

/* A driver that cannot map memory: the faulty one, with what it is asked for written down. */
static wi_driver driver;
static struct {
    atomic_uint_fast64_t pieces, asked, released; /* calls; bytes of the last one; of all that went back */
    uint64_t longest;                             /* the device has no longer piece; 0: any */
    bool keeps;                                   /* it takes nothing back */
} script;

static weir_status my_reserve(wi_device *device, uint64_t bytes, void **address)
{
    (void)device, (void)bytes, (void)address;
    return weir_fail(WEIR_UNSUPPORTED, "the script cannot map memory");
}

static weir_status my_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    script.pieces++;
    if (script.longest && bytes > script.longest)
        return weir_fail(WEIR_OUT_OF_MEMORY, "the script has no such piece");
    script.asked = bytes;
    return faulty_driver.allocate(device, kind, bytes, address);
}

static weir_status my_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    if (script.keeps)
        return weir_fail(WEIR_DRIVER, "the script keeps it");
    script.released += bytes;
    return faulty_driver.release(device, kind, address, bytes);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
    wi_segments *base;
} fixture;

static fixture start(uint64_t budget)
{
    fixture f;
    faults_reset(-1);
    memset(&script, 0, sizeof script);
    driver = faulty_driver;
    driver.reserve = my_reserve;
    driver.allocate = my_allocate;
    driver.release = my_release;
    f.runtime = make_over(&driver, "mapped", budget); /* which it cannot have */
    f.base = (wi_segments *)f.runtime->resource->base;
    f.one = open_client(f.runtime, "one", 0, 0);
    f.two = open_client(f.runtime, "two", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.a));
    ok(weir_stream_acquire(f.runtime, &f.b));
    return f;
}

static void end(fixture *f)
{
    ok(weir_client_close(f->one));
    ok(weir_client_close(f->two));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    end_over(f->runtime);
}

static char *take(const fixture *f, uint64_t bytes)
{
    return allocate(f->one, bytes, WEIR_STREAM_HOST, WEIR_ACTIVATIONS);
}

static void give(const fixture *f, void *pointer)
{
    ok(weir_free(f->one, pointer, WEIR_STREAM_HOST));
}

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
    char text[64];
    fixture f = start(128 * MIB);
    assert_string_equal(weir_runtime_resource(f.runtime, text, sizeof text), "budget(segments)");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *p = take(&f, rows[i].bytes);
        assert_int_equal(details_of(p).charged, rows[i].charged);
        assert_int_equal(script.asked, rows[i].asked);
        assert_int_equal(stats_of(f.runtime).held, rows[i].asked);
        give(&f, p);
        ok(weir_runtime_trim(f.runtime, 0, NULL));
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
        weir_status status = weir_alloc(f.one, sizes[i], WEIR_STREAM_HOST, WEIR_KV, &p);
        assert_int_equal(status, sizes[i] > SIZE_MAX / 4 ? WEIR_INVALID : WEIR_OUT_OF_MEMORY);
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

static uint64_t bytes_behind(const fixture *f, const void *pointer)
{
    const wi_segment *s = f->base->first;
    for (; s; s = s->next)
        if (wi_space_holds(&s->space, pointer))
            for (const wi_extent *e = s->space.first; e; e = e->next)
                if (e->block.pointer == pointer)
                    return e->bytes - e->block.charged;
    return UINT64_MAX;
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
    assert_int_equal(f.base->first->space.first->bytes, 2 * MIB);
    end(&f);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

/* At once for the same stream, later for others; what was freed on one does not merge with what was freed on another. */
static void streams(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    gate g = GATE;
    char *p = allocate(f.one, 4096, f.a, WEIR_KV), *q = allocate(f.one, 4096, f.b, WEIR_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.a));
    ok(weir_free(f.one, p, f.a));
    ok(weir_free(f.one, q, f.b));
    char *others = allocate(f.two, 4096, f.b, WEIR_KV), *long_one = allocate(f.two, 8192, f.b, WEIR_KV);
    assert_ptr_equal(others, q);
    assert_true(long_one > q);
    char *own = allocate(f.one, 4096, f.a, WEIR_KV);
    assert_ptr_equal(own, p);
    ok(weir_free(f.one, own, f.a));
    open_gate(&g);
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, UINT64_MAX, NULL));
    assert_ptr_equal(allocate(f.two, 4096, f.b, WEIR_KV), p);
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
    char *before = allocate(f.one, 4096, f.a, WEIR_KV), *p = allocate(f.one, 4096, f.a, WEIR_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.b));
    ok(weir_use_record(f.runtime, p, f.b));
    ok(weir_free(f.one, before, f.a));
    ok(weir_free(f.one, p, f.a));
    assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
    char *next = allocate(f.one, 4096, f.a, WEIR_KV), *longer = allocate(f.one, 8192, f.a, WEIR_KV);
    assert_ptr_equal(next, before);
    assert_true(longer > p);
    ok(weir_free(f.one, next, f.a));
    open_gate(&g);
    ok(weir_stream_synchronize(f.b));
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, UINT64_MAX, NULL));
    assert_ptr_equal(allocate(f.one, 8192, f.a, WEIR_KV), before);
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
    ok(weir_runtime_trim(f.runtime, 0, &released));
    assert_int_equal(released, 20 * MIB);
    assert_int_equal(script.released, 20 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 2 * MIB);
    assert_ptr_equal(take(&f, 4096), p);
    give(&f, p);
    give(&f, q);
    assert_int_equal(f.base->first->space.first->bytes, 2 * MIB);
    ok(weir_runtime_trim(f.runtime, 2 * MIB, &released));
    assert_int_equal(released, 0);
    ok(weir_runtime_trim(f.runtime, 2 * MIB - 1, &released));
    assert_int_equal(released, 2 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 0);
    fails(WEIR_DOUBLE_FREE, weir_free(f.one, q, WEIR_STREAM_HOST));
    fails(WEIR_FOREIGN, weir_free(f.one, q + 256, WEIR_STREAM_HOST));
    end(&f);
}

static void what_the_device_is_not_past_stays(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    gate g = GATE;
    char *p = allocate(f.one, 4096, f.a, WEIR_KV);
    ok(weir_call(f.runtime, pass_gate, &g, f.a));
    ok(weir_free(f.one, p, f.a));
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    assert_int_equal(script.released, 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f.a));
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    assert_int_equal(script.released, 2 * MIB);
    end(&f);
}

static void what_the_driver_does_not_take_back(void **state)
{
    (void)state;
    uint64_t released;
    fixture f = start(128 * MIB);
    char *p = take(&f, 4096);
    give(&f, p);
    script.keeps = true;
    ok(weir_runtime_trim(f.runtime, 0, &released));
    assert_int_equal(released, 0);
    assert_int_equal(stats_of(f.runtime).held, 2 * MIB);
    script.keeps = false;
    assert_ptr_equal(take(&f, 4096), p);
    assert_int_equal(script.pieces, 1);
    give(&f, p);
    end(&f);
}

static size_t records(const fixture *f)
{
    size_t chunk = 1024, all = f->base->shared.pool.chunk_count * chunk;
    return all - f->base->shared.pool.unused_count;
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
            ok(weir_runtime_trim(f.runtime, 0, NULL));
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
    weir_request request = {.size = sizeof request, .bytes = 4096};
    weir_block first, second;
    ok(weir_alloc_with(f.one, &request, &first));
    ok(weir_free_block(f.one, first, WEIR_STREAM_HOST));
    fails(WEIR_DOUBLE_FREE, weir_free_block(f.one, first, WEIR_STREAM_HOST));
    ok(weir_alloc_with(f.one, &request, &second));
    assert_ptr_equal(second.pointer, first.pointer);
    fails(WEIR_STALE, weir_free_block(f.one, first, WEIR_STREAM_HOST));
    weir_launch *launch;
    fails(WEIR_STALE, weir_launch_begin(f.runtime, f.b, &(weir_use){first, WEIR_READ}, 1, &launch));
    assert_int_equal(details_of(second.pointer).state, WEIR_BLOCK_LIVE);
    ok(weir_free_block(f.one, second, WEIR_STREAM_HOST));
    end(&f);
}

/* Where the rules cannot be kept ----------------------------------------------------------------------------------- */

/* What is wholly free goes back for a segment, and no more of it than is needed. */
static void idle_segments_make_room(void **state)
{
    (void)state;
    fixture f = start(34 * MIB);
    char *small = take(&f, 1000), *large = take(&f, 12 * MIB), *larger = take(&f, 14 * MIB);
    give(&f, small);
    give(&f, large);
    give(&f, larger);
    assert_int_equal(stats_of(f.runtime).held, 28 * MIB);
    char *p = take(&f, 5 * MIB); /* fits in what is there */
    assert_int_equal(script.released, 0);
    give(&f, p);
    p = take(&f, 20 * MIB); /* 6 MiB are left: those go that have been idle for longest, until there is room */
    assert_int_equal(script.asked, 20 * MIB);
    assert_int_equal(script.released, 16 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 32 * MIB);
    give(&f, p);
    end(&f);
}

static void shorter_segments(void **state)
{
    (void)state;
    fixture f = start(12 * MIB + 300 * KIB);
    char *p = take(&f, 5 * MIB);
    assert_int_equal(script.asked, 5 * MIB);
    char *q = take(&f, 7 * MIB + 1000);
    assert_int_equal(script.asked, 7 * MIB + 1024);
    char *r = take(&f, 1000);
    assert_int_equal(script.asked, 256 * KIB); /* half as long, until there is one */
    give(&f, p);
    give(&f, q);
    give(&f, r);
    end(&f);
}

/* A request that free memory of the other kind could serve is served by that. */
static void one_kind_helps_the_other(void **state)
{
    (void)state;
    fixture f = start(22 * MIB);
    char *large = take(&f, 5 * MIB), *one = take(&f, MIB), *two = take(&f, MIB), *small[100];
    assert_int_equal(stats_of(f.runtime).held, 22 * MIB);
    for (int i = 0; i < 100; i++) { /* small ones lie close there, too */
        small[i] = take(&f, 1000);
        assert_ptr_equal(small[i], large + 5 * MIB + 1024 * i);
    }
    assert_int_equal(script.pieces, 2);
    for (int i = 0; i < 100; i++)
        give(&f, small[i]);
    char *rest = take(&f, 15 * MIB);
    give(&f, one);
    char *pin = take(&f, 1);
    give(&f, two);
    char *q = take(&f, MIB + 700 * KIB); /* beside a small one */
    assert_ptr_equal(pin, one);
    assert_ptr_equal(q, one + 512);
    assert_int_equal(bytes_behind(&f, q), 0);
    give(&f, q);
    give(&f, pin);
    give(&f, rest);
    give(&f, large);
    end(&f);
}

static void a_device_that_is_full(void **state)
{
    (void)state;
    void *none;
    fixture f = start(128 * MIB);
    char *idle = take(&f, 12 * MIB);
    give(&f, idle);
    script.longest = 6 * MIB;
    char *p = take(&f, 6 * MIB);
    assert_ptr_equal(p, idle); /* the best fit */
    give(&f, p);
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    p = take(&f, 5 * MIB);
    assert_int_equal(script.asked, 5 * MIB);
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.two, 7 * MIB, WEIR_STREAM_HOST, WEIR_KV, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(stats_of(f.runtime).held, 5 * MIB);
    assert_int_equal(stats_of(f.runtime).promised, 0);
    script.longest = 0;
    give(&f, p);
    end(&f);
}

static void a_refusal_tells_what_there_is(void **state)
{
    (void)state;
    void *none;
    fixture f = start(24 * MIB);
    char *p = take(&f, 5 * MIB), *q = take(&f, 5 * MIB);
    give(&f, p); /* 5 free, 5 live, 10 free in one segment, and 4 that the budget leaves */
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.one, 11 * MIB, WEIR_STREAM_HOST, WEIR_KV, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
    assert_int_equal(last_refusal().largest, 10 * MIB);
    assert_int_equal(last_refusal().needed, 31 * MIB);
    give(&f, q);
    p = take(&f, 11 * MIB);
    give(&f, p);
    end(&f);
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static void resizing(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    char *p = take(&f, 6 * MIB), *q = take(&f, 2 * MIB);
    memset(p, 7, 6 * MIB);
    ok(weir_resize(f.one, p, 5 * MIB, WEIR_STREAM_HOST)); /* exactly 1 MiB stays behind it */
    assert_int_equal(stats_of(f.runtime).live, 7 * MIB);
    assert_int_equal(bytes_behind(&f, p), MIB);
    fails(WEIR_NO_ROOM, weir_resize(f.one, p, 6 * MIB + 1, WEIR_STREAM_HOST));
    ok(weir_resize(f.one, p, 6 * MIB, WEIR_STREAM_HOST));
    assert_int_equal(stats_of(f.runtime).live, 8 * MIB);
    ok(weir_resize(f.one, p, 5 * MIB - 512, WEIR_STREAM_HOST)); /* a tail of more */
    assert_int_equal(bytes_behind(&f, p), 0);
    assert_ptr_equal(take(&f, MIB + 512), p + 5 * MIB - 512);
    give(&f, p + 5 * MIB - 512);
    ok(weir_resize(f.one, p, 5 * MIB, WEIR_STREAM_HOST)); /* all of what is free there: 1 MiB is no rest */
    assert_int_equal(bytes_behind(&f, p), MIB);
    ok(weir_resize(f.one, q, 3 * MIB, WEIR_STREAM_HOST));
    assert_int_equal(bytes_behind(&f, q), 0);
    for (uint64_t i = 0; i < 5 * MIB - 512; i += 4096)
        assert_int_equal(p[i], 7);
    give(&f, p);
    give(&f, q);
    assert_int_equal(f.base->first->space.first->bytes, 20 * MIB);
    end(&f);
}

/* What another left behind a block is no more the block's client's to read than what lies elsewhere. */
static void secrets_behind_a_block(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    weir_client *secret;
    ok(weir_client_open(
        f.runtime,
        &(weir_client_options){.size = sizeof(weir_client_options), .name = "secret", .scrub = WEIR_SCRUB_OTHERS},
        &secret));
    char *p = allocate(secret, 3 * MIB, WEIR_STREAM_HOST, WEIR_KV), *rest = take(&f, 17 * MIB);
    memset(p, 0x5e, 3 * MIB);
    ok(weir_free(secret, p, WEIR_STREAM_HOST));
    assert_ptr_equal(take(&f, 2 * MIB), p); /* scrubbed, and 1 MiB behind it is not */
    assert_int_equal(bytes_behind(&f, p), MIB);
    assert_int_equal(p[0] | p[2 * MIB - 1], 0);
    assert_int_equal(p[2 * MIB], 0x5e);
    ok(weir_resize(f.one, p, 2 * MIB + 512 * KIB, WEIR_STREAM_HOST));
    assert_int_equal(p[2 * MIB] | p[2 * MIB + 512 * KIB - 1], 0);
    give(&f, p);
    assert_ptr_equal(take(&f, 3 * MIB), p);
    for (uint64_t i = 0; i < 3 * MIB; i++)
        assert_int_equal(p[i], 0);
    give(&f, p);
    give(&f, rest);
    ok(weir_client_close(secret));
    end(&f);
}

/* Chance ----------------------------------------------------------------------------------------------------------- */

static uint64_t random_size(uint64_t *seed)
{
    uint64_t most = (uint64_t)1 << (next_random(seed) % 16 + 8);
    return 1 + next_random(seed) % (next_random(seed) % 8 == 0 ? 12 * MIB : most);
}

/* No two blocks have a byte in common, what is held is what the driver gave, and all of it goes back. */
static void random_blocks(void **state)
{
    enum { BLOCKS = 64, STEPS = 4000 };
    (void)state;
    fixture f = start(96 * MIB);
    struct {
        unsigned char *start;
        uint64_t bytes;
        weir_stream stream;
    } blocks[BLOCKS] = {0};
    uint64_t seed = 42, refused = 0;
    for (int i = 0; i < STEPS; i++) {
        uint64_t k = next_random(&seed) % BLOCKS;
        unsigned char mark = (unsigned char)(k + 1);
        if (blocks[k].start) {
            assert_true(blocks[k].start[0] == mark && blocks[k].start[blocks[k].bytes - 1] == mark);
            ok(weir_free(f.one, blocks[k].start, blocks[k].stream));
            blocks[k].start = NULL;
            continue;
        }
        void *p;
        blocks[k].bytes = random_size(&seed);
        blocks[k].stream = next_random(&seed) % 2 ? f.a : f.b;
        if (weir_alloc(f.one, blocks[k].bytes, blocks[k].stream, WEIR_KV, &p) == WEIR_OK) {
            blocks[k].start = p;
            memset(p, mark, 1);
            memset(blocks[k].start + blocks[k].bytes - 1, mark, 1);
        } else {
            refused++;
        }
        if (i % 500 == 499)
            ok(weir_runtime_trim(f.runtime, (uint64_t)i * 4096, NULL));
        assert_int_equal(stats_of(f.runtime).held, f.base->held);
    }
    print_message("%llu of %d requests were refused, %llu pieces of the driver's\n", (unsigned long long)refused,
                  STEPS / 2, (unsigned long long)script.pieces);
    for (int k = 0; k < BLOCKS; k++)
        if (blocks[k].start)
            ok(weir_free(f.one, blocks[k].start, blocks[k].stream));
    ok(weir_stream_synchronize(f.a));
    ok(weir_stream_synchronize(f.b));
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    assert_int_equal(stats_of(f.runtime).held, 0);
    end(&f);
}

/* Threads want more than there is, so that segments come and go under them all the time. */
typedef struct worker {
    const fixture *f;
    uint64_t seed, served;
    bool damaged;
} worker;

static void *work(void *user)
{
    enum { OWN = 4, ROUNDS = 300 };
    worker *w = user;
    unsigned char *blocks[OWN] = {0}, mark = (unsigned char)w->seed;
    uint64_t bytes[OWN] = {0};
    for (int i = 0; i < ROUNDS + OWN; i++) {
        uint64_t k = (uint64_t)i % OWN;
        weir_stream stream = next_random(&w->seed) % 2 ? w->f->a : w->f->b;
        if (blocks[k]) {
            w->damaged |= blocks[k][0] != mark || blocks[k][bytes[k] - 1] != mark;
            w->damaged |= weir_free(w->f->one, blocks[k], stream) != WEIR_OK;
            blocks[k] = NULL;
        }
        void *p;
        bytes[k] = random_size(&w->seed);
        if (i < ROUNDS && weir_alloc(w->f->one, bytes[k], stream, WEIR_KV, &p) == WEIR_OK) {
            w->served++;
            blocks[k] = p;
            blocks[k][0] = blocks[k][bytes[k] - 1] = mark;
        }
        if (i % 16 == 15 && weir_runtime_trim(w->f->runtime, 0, NULL) != WEIR_OK)
            w->damaged = true;
    }
    return NULL;
}

static void threads(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    fixture f = start(24 * MIB);
    worker workers[THREADS];
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = &f, .seed = 11 + (uint64_t)i};
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        assert_false(workers[i].damaged);
        assert_true(workers[i].served > 50);
    }
    ok(weir_stream_synchronize(f.a));
    ok(weir_stream_synchronize(f.b));
    ok(weir_runtime_trim(f.runtime, 0, NULL));
    assert_int_equal(stats_of(f.runtime).held, 0);
    assert_int_equal(records(&f), 0);
    end(&f);
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_DRIVER, WEIR_OUT_OF_MEMORY, WEIR_DEVICE_LOST};
    for (int i = 0; i < 3; i++)
        a_fault_at_every_call("segments", statuses[i]);
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
        cmocka_unit_test(idle_segments_make_room),
        cmocka_unit_test(shorter_segments),
        cmocka_unit_test(one_kind_helps_the_other),
        cmocka_unit_test(a_device_that_is_full),
        cmocka_unit_test(a_refusal_tells_what_there_is),
        cmocka_unit_test(resizing),
        cmocka_unit_test(secrets_behind_a_block),
        cmocka_unit_test(random_blocks),
        cmocka_unit_test(threads),
        cmocka_unit_test(faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
