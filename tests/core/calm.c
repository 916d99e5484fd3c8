/* Large blocks that stay parked where memory has not grown for long: for how long, who takes them back, and when that ends. */
#include "core.h"

enum { BUDGET = 64 << 20, PEAK = 8 << 20 };
enum {
    QUIET = 4096,
    WORTH = 256,
    ALLOWED = 32
}; /* as in runtime/thread_cache.h, and as the option `steady state` is made out to be */

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
} fixture;

static void *take(fixture *f, size_t bytes)
{
    return allocate(f->client, bytes, f->stream, WEIR_CLASS_ACTIVATIONS);
}

static void give(fixture *f, void *p)
{
    ok(weir_free(f->client, p, f->stream));
}

static weir_stats look(fixture *f)
{
    return take_snapshot(f->runtime).device;
}

/* Sizes that come but once in a while: no thread cache serves them, and memory that is there does. */
static void let_time_pass(fixture *f, int blocks)
{
    for (int i = 0; i < blocks; i++)
        give(f, take(f, (size_t)(20 + i % 100) * KIB));
}

/* One size that comes and goes: parking it pays, so that it is done. */
static void repeat(fixture *f, size_t bytes, int blocks)
{
    for (int i = 0; i < blocks; i++)
        give(f, take(f, bytes));
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    ok(weir_option_set("steady", "4096"));
    f->runtime = make_runtime(BUDGET);
    ok(weir_option_set("steady", NULL));
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    give(f, take(f, PEAK));
    let_time_pass(f, QUIET + 200);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

/* Whether a parked block outlasts an allocation of another size, for which there is memory. */
static bool is_calm(fixture *f)
{
    void *room = take(f, 300 * KIB), *block = take(f, 200 * KIB);
    give(f, room);
    repeat(f, 100 * KIB, 200);
    give(f, block);
    uint64_t thread_cached = look(f).thread_cached;
    void *other = take(f, 150 * KIB);
    bool stays = look(f).thread_cached == thread_cached;
    assert_true(thread_cached >= 200 * KIB && (stays || look(f).thread_cached == 0));
    give(f, other);
    return stays;
}

/* All that is held is in blocks, but for less than one of the size. */
static size_t fill(fixture *f, size_t bytes, void **blocks, size_t most)
{
    uint64_t held = look(f).held;
    for (size_t n = 0; n < most; n++) {
        blocks[n] = take(f, bytes);
        if (look(f).held > held)
            return n + 1;
    }
    fail();
    return 0;
}

static void what_is_parked_stays(void **state)
{
    fixture *f = *state;
    assert_true(is_calm(f));
    repeat(f, 100 * KIB, 200);
    void *p = take(f, 700 * KIB);
    give(f, p);
    let_time_pass(f, 3);
    assert_ptr_equal(take(f, 700 * KIB), p);
    give(f, p);
}

/* Every other one of the blocks that fill what there is. */
static void make_holes(fixture *f, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        give(f, blocks[i]);
        blocks[i] = NULL;
    }
}

static void it_is_given_up_before_memory_grows(void **state)
{
    fixture *f = *state;
    static void *filling[BUDGET / (64 * KIB)];
    void *a = take(f, 350 * KIB), *b = take(f, 350 * KIB);
    size_t count = fill(f, 64 * KIB, filling, sizeof filling / sizeof filling[0]);
    make_holes(f, filling, count);
    repeat(f, 20 * KIB, 200);
    give(f, a);
    give(f, b);
    assert_true(look(f).thread_cached >= 700 * KIB);
    uint64_t calls = look(f).driver_calls;
    void *both = take(f, 700 * KIB);
    assert_true((char *)both < (char *)a + 350 * KIB && (char *)a < (char *)both + 700 * KIB); /* where they were */
    assert_int_equal(look(f).driver_calls, calls);
    give(f, both);
    while (count > 0)
        give(f, filling[--count]);
}

/* By one handle each time. */
static void grow(fixture *f, int times)
{
    for (int i = 0; i < times; i++) {
        uint64_t held = look(f).held;
        give(f, take(f, held + 64 * KIB));
        assert_true(look(f).held > held);
    }
}

static void growth_without_hits_ends_it(void **state)
{
    fixture *f = *state;
    grow(f, ALLOWED - 8);
    assert_true(is_calm(f));
    grow(f, 16);
    assert_false(is_calm(f));
    let_time_pass(f, QUIET + 200); /* it has to be longer now */
    assert_false(is_calm(f));
}

static void many_hits_are_worth_a_growth(void **state)
{
    fixture *f = *state;
    grow(f, ALLOWED - 8);
    repeat(f, 100 * KIB, ALLOWED * WORTH);
    grow(f, ALLOWED - 8);
    assert_true(is_calm(f));
    grow(f, ALLOWED);
    assert_false(is_calm(f));
}

/* What a run of a model takes, in the order in which it does. */
static void run_model(fixture *f)
{
    void *input = take(f, 600 * KIB), *values = take(f, 2400 * KIB);
    for (int kernel = 0; kernel < 2; kernel++)
        give(f, take(f, 1400 * KIB));
    give(f, values);
    give(f, input);
    ok(weir_stream_synchronize(f->stream));
}

/* Of two models that a thread runs by turns, each has what the other one parks: they hold what one of them takes, and a little. */
static void turns_share_what_they_park(void **state)
{
    (void)state;
    enum { ONE = 4400 * KIB, TURNS = 200 };
    weir_runtime *runtime = make_runtime(512 * MIB);
    fixture regions[2] = {{.runtime = runtime}, {.runtime = runtime}};
    for (int i = 0; i < 2; i++) {
        regions[i].client = open_client(runtime, i ? "two" : "one", 0, 0);
        ok(weir_stream_acquire(runtime, &regions[i].stream));
    }
    for (int i = 0; i < TURNS; i++)
        run_model(&regions[i % 2]);
    assert_in_range(look(regions).held, ONE, ONE * 5 / 4);
    for (int i = 0; i < 2; i++) {
        ok(weir_client_destroy(regions[i].client));
        ok(weir_stream_release(regions[i].stream));
    }
    ok(weir_runtime_destroy(runtime));
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(what_is_parked_stays),
        test(it_is_given_up_before_memory_grows),
        test(growth_without_hits_ends_it),
        test(many_hits_are_worth_a_growth),
        cmocka_unit_test(turns_share_what_they_park),
    };
    return cmocka_run_group_tests_name("calm", tests, NULL, NULL);
}
