/* The pool of arenas' memory: what fits best, what is kept and for how long, whose bytes are seen, and in which
 * order. */
#include "arena/fixture.h"
#include <weir/plan.h>
#include <weir/arena.h>

static int set_up(void **state)
{
    return open_fixture(state, 64 * MIB, NULL);
}

static weir_arena_pool *get_pool(fixture *f, uint64_t cap, uint32_t waste)
{
    weir_arena_pool_options o = {.struct_size = sizeof o, .cap = cap, .waste = waste};
    weir_arena_pool *pool;
    ok(weir_arena_pool_acquire(f->runtime, &o, &pool));
    return pool;
}

static weir_arena_pool_details pool_details(weir_arena_pool *pool)
{
    weir_arena_pool_details d = {.struct_size = sizeof d};
    ok(weir_arena_pool_info(pool, &d));
    return d;
}

static weir_arena *open_room(fixture *f, weir_arena_pool *pool, weir_client *client, uint64_t bytes, weir_stream stream,
                             bool clear)
{
    weir_arena_options o = {.struct_size = sizeof o, .room = bytes, .pool = pool, .stream = stream, .clear = clear};
    weir_arena *arena;
    ok(weir_arena_create(client ? client : f->client, &o, &arena));
    return arena;
}

static weir_arena *open_for(fixture *f, weir_arena_pool *pool, uint64_t bytes)
{
    return open_room(f, pool, NULL, bytes, WEIR_STREAM_HOST, false);
}

static void *base_of(const weir_arena *arena)
{
    return arena_details(arena).base[WEIR_KIND_DEVICE];
}

static uint64_t held_by(const weir_arena *arena)
{
    return arena_details(arena).held[WEIR_KIND_DEVICE];
}

static void close_all(weir_arena **arenas, int count)
{
    for (int i = 0; i < count; i++)
        ok(weir_arena_destroy(arenas[i], WEIR_STREAM_HOST));
}

static void the_smallest_that_fits_is_taken(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 32 * MIB, 100);
    weir_arena *arenas[3] = {open_for(f, pool, 3 * MIB), open_for(f, pool, 2 * MIB), open_for(f, pool, 4 * MIB)};
    void *bases[3] = {base_of(arenas[0]), base_of(arenas[1]), base_of(arenas[2])};
    uint64_t live = live_of(f);
    close_all(arenas, 3);
    assert_int_equal(live_of(f), live); /* they stay the client's */
    assert_int_equal(pool_details(pool).kept, 9 * MIB);
    weir_arena *again = open_for(f, pool, 2 * MIB + 1);
    assert_ptr_equal(base_of(again), bases[0]);
    assert_int_equal(held_by(again), 3 * MIB); /* its real length */
    weir_arena *next = open_for(f, pool, 2 * MIB + 1);
    assert_ptr_equal(base_of(next), bases[2]);
    assert_int_equal(live_of(f), live);
    assert_int_equal(pool_details(pool).kept, 2 * MIB);
    assert_int_equal(pool_details(pool).taken, 2);
    assert_int_equal(pool_details(pool).missed, 3);
    ok(weir_arena_destroy(again, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(next, WEIR_STREAM_HOST));
    assert_int_equal(pool_details(pool).kept, 9 * MIB);
    ok(weir_arena_pool_release(pool));
    assert_int_equal(live_of(f), 0);
}

/* A huge block is no tiny request's, and keeps its length when a middling one has had it. */
static void waste_is_bounded_and_lengths_are_real(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 32 * MIB, 25);
    weir_arena *huge = open_for(f, pool, 10 * MIB);
    void *base = base_of(huge);
    ok(weir_arena_destroy(huge, WEIR_STREAM_HOST));
    weir_arena *tiny = open_for(f, pool, 4 * KIB), *just_not = open_for(f, pool, 8 * MIB - 256);
    assert_ptr_not_equal(base_of(tiny), base);
    assert_int_equal(held_by(tiny), 4 * KIB);
    assert_ptr_not_equal(base_of(just_not), base);
    for (int i = 0; i < 3; i++) {
        weir_arena *just = open_for(f, pool, 8 * MIB); /* 10 is 25 % more */
        assert_ptr_equal(base_of(just), base);
        assert_int_equal(held_by(just), 10 * MIB);
        ok(weir_arena_destroy(just, WEIR_STREAM_HOST));
    }
    huge = open_for(f, pool, 10 * MIB);
    assert_ptr_equal(base_of(huge), base);
    ok(weir_arena_destroy(huge, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(tiny, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(just_not, WEIR_STREAM_HOST));
    ok(weir_arena_pool_release(pool));
}

/* A longer block than the plan is no longer plan: what an arena may touch is the plan's. */
static void bounds_are_the_plans(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 32 * MIB, 100);
    ok(weir_arena_destroy(open_for(f, pool, MIB), WEIR_STREAM_HOST));
    weir_plan *plan = plan_of_one(600 * KIB), *more = plan_of_one(900 * KIB), *most = plan_of_one(3 * MIB);
    unsigned char byte = 1;
    weir_arena *arena =
        open_arena(f, (weir_arena_options){.plans = (const weir_plan *[]){plan}, .plan_count = 1, .pool = pool});
    assert_int_equal(held_by(arena), MIB);
    assert_int_equal(look(arena, 0, 0).length, 600 * KIB);
    ok(weir_arena_begin(arena, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 0, 600 * KIB, &byte, 1, WEIR_STREAM_HOST));
    ok(weir_arena_end(arena));
    uint64_t live = live_of(f);
    ok(weir_arena_add(arena, more, WEIR_STREAM_HOST, NULL)); /* into what it has */
    assert_int_equal(live_of(f), live);
    ok(weir_arena_add(arena, most, WEIR_STREAM_HOST, NULL));
    assert_int_equal(held_by(arena), 3 * MIB);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    assert_int_equal(pool_details(pool).kept, 3 * MIB); /* as it has grown */
    ok(weir_arena_pool_release(pool));
    weir_plan_destroy(plan);
    weir_plan_destroy(more);
    weir_plan_destroy(most);
}

static void the_cap_drops_what_idles_longest(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 5 * MIB, 25);
    weir_arena *arenas[4] = {open_for(f, pool, 2 * MIB), open_for(f, pool, MIB), open_for(f, pool, 3 * MIB),
                             open_for(f, pool, 6 * MIB)};
    void *one = base_of(arenas[1]);
    close_all(arenas, 3);
    assert_int_equal(pool_details(pool).kept, 4 * MIB); /* 1 and 3 */
    assert_int_equal(pool_details(pool).dropped, 1);
    close_all(arenas + 3, 1); /* more than the cap: not kept, and nothing goes for it */
    assert_int_equal(pool_details(pool).kept, 4 * MIB);
    assert_int_equal(live_of(f), 4 * MIB);
    weir_arena *again = open_for(f, pool, MIB);
    assert_ptr_equal(base_of(again), one);
    ok(weir_arena_destroy(again, WEIR_STREAM_HOST)); /* now 3 is the oldest */
    weir_arena *two = open_for(f, pool, 2 * MIB);
    ok(weir_arena_destroy(two, WEIR_STREAM_HOST));
    assert_int_equal(pool_details(pool).kept, 3 * MIB);
    assert_int_equal(pool_details(pool).dropped, 2);
    uint64_t freed;
    ok(weir_arena_pool_trim(pool, NULL, 2 * MIB, &freed));
    assert_int_equal(freed, MIB);
    assert_int_equal(pool_details(pool).kept, 2 * MIB);
    ok(weir_arena_pool_release(pool));
}

/* A block that somebody uses by its name cannot be freed: it stays, and does not count as dropped. */
static void what_cannot_be_dropped_is_not_counted(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 2 * MIB, 25);
    weir_arena *first = open_for(f, pool, 2 * MIB), *second = open_for(f, pool, MIB);
    weir_block_details block = {.struct_size = sizeof block};
    weir_launch *launch;
    ok(weir_block_info(base_of(first), &block));
    ok(weir_arena_destroy(first, WEIR_STREAM_HOST));
    ok(weir_launch_begin(f->runtime, f->a, &(weir_use){block.block, WEIR_ACCESS_READ}, 1, &launch));
    fails(WEIR_ERR_BUSY, weir_arena_destroy(second, WEIR_STREAM_HOST));
    assert_int_equal(pool_details(pool).dropped, 0);
    assert_int_equal(pool_details(pool).kept, 2 * MIB);
    assert_int_equal(held_by(second), MIB);
    weir_launch_abort(launch);
    ok(weir_arena_destroy(second, WEIR_STREAM_HOST));
    assert_int_equal(pool_details(pool).dropped, 1);
    ok(weir_arena_pool_release(pool));
}

/* Only what is needed is given up, the asking client's first. */
static void pressure_takes_what_it_needs(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    weir_client *other = open_client(f->runtime, "two", 0, 0);
    weir_arena *arenas[4] = {open_for(f, pool, 8 * MIB), open_for(f, pool, 16 * MIB), open_for(f, pool, 4 * MIB),
                             open_room(f, pool, other, 20 * MIB, WEIR_STREAM_HOST, false)};
    close_all(arenas, 4);
    assert_int_equal(live_of(f), 48 * MIB);
    void *p =
        allocate(f->client, 22 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* 6 are missing: the one of 8 goes */
    assert_int_equal(pool_details(pool).kept, 40 * MIB);
    assert_int_equal(pool_details(pool).given_up, 1);
    void *q = allocate(f->client, 22 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* 20 more: both of its own */
    assert_int_equal(pool_details(pool).kept, 20 * MIB);
    void *r = allocate(f->client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* the other's, at last */
    assert_int_equal(pool_details(pool).kept, 0);
    weir_arena_options o = {.struct_size = sizeof o, .room = 60 * MIB, .pool = pool};
    weir_arena *none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_arena_create(f->client, &o, &none));
    assert_null(none);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
    ok(weir_free(f->client, r, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
    ok(weir_arena_pool_release(pool));
}

/* What is kept is what the ledger counts, also where a block is charged more than it serves with; so a shortage that
 * one block covers takes no second. */
static void bytes_are_as_the_ledger_counts_them(void **state)
{
    void *own;
    uint64_t freed;
    (void)state;
    open_fixture(&own, 64 * MIB, "guard(quarantine=0, cache)");
    fixture *f = own;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    weir_client *small = open_client(f->runtime, "small", 0, 20 * MIB);
    weir_arena *arenas[2] = {open_room(f, pool, small, 8 * MIB, WEIR_STREAM_HOST, false),
                             open_room(f, pool, small, 8 * MIB, WEIR_STREAM_HOST, false)};
    close_all(arenas, 2);
    uint64_t each = pool_details(pool).kept / 2, zones = each - 8 * MIB;
    assert_true(zones > 0);
    assert_int_equal(live_of(f), 2 * each);
    void *p =
        allocate(small, 20 * MIB - each - zones, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* one of them is missing */
    assert_int_equal(pool_details(pool).kept, each);
    assert_int_equal(live_of(f), 20 * MIB);
    ok(weir_arena_pool_trim(pool, small, 0, &freed));
    assert_int_equal(freed, each);
    assert_int_equal(live_of(f), 20 * MIB - each);
    ok(weir_free(small, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(small));
    ok(weir_arena_pool_release(pool));
    tear_down(&own);
}

/* A client's maximum counts what the pool keeps for it; a request of its own gets that back. */
static void a_maximum_is_met_from_the_pool(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    weir_client *small = open_client(f->runtime, "small", 0, 8 * MIB);
    ok(weir_arena_destroy(open_room(f, pool, small, 6 * MIB, WEIR_STREAM_HOST, false), WEIR_STREAM_HOST));
    void *p = allocate(small, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_int_equal(pool_details(pool).kept, 0);
    ok(weir_free(small, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(small));
    ok(weir_arena_pool_release(pool));
}

/* The ledger counts a block as what it was allocated for; so one of another class is left alone. */
static void another_class_is_never_taken(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    ok(weir_arena_destroy(open_for(f, pool, MIB), WEIR_STREAM_HOST));
    weir_arena *kv = open_arena(f, (weir_arena_options){.room = MIB, .pool = pool, .memory_class = WEIR_CLASS_KV});
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_KV], MIB);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_ACTIVATIONS], MIB); /* idle */
    void *base = base_of(kv);
    ok(weir_arena_destroy(kv, WEIR_STREAM_HOST));
    kv = open_arena(f, (weir_arena_options){.room = MIB, .pool = pool, .memory_class = WEIR_CLASS_KV});
    assert_ptr_equal(base_of(kv), base);
    weir_arena_options none = {.struct_size = sizeof none, .room = MIB, .pool = pool, .memory_class = WEIR_CLASS_COUNT};
    weir_arena *arena;
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &none, &arena));
    ok(weir_arena_destroy(kv, WEIR_STREAM_HOST));
    ok(weir_arena_pool_release(pool));
}

static void another_clients_block_is_never_taken(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    weir_client *other = open_client(f->runtime, "two", 0, 0);
    weir_arena *first = open_for(f, pool, MIB);
    void *base = base_of(first);
    ok(weir_arena_destroy(first, WEIR_STREAM_HOST));
    weir_arena *second = open_room(f, pool, other, MIB, WEIR_STREAM_HOST, false);
    assert_ptr_not_equal(base_of(second), base);
    ok(weir_arena_destroy(second, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_client_destroy(other)); /* it is live, and said to be */
    uint64_t freed;
    ok(weir_arena_pool_trim(pool, other, 0, &freed));
    assert_int_equal(freed, MIB);
    ok(weir_client_destroy(other));
    assert_int_equal(pool_details(pool).kept, MIB);
    ok(weir_arena_pool_release(pool));
}

/* The second model of a client sees nothing of the first, if it says so. */
static void cleared_memory_is_zero_to_its_end(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    static unsigned char bytes[300 * KIB], zeros[300 * KIB];
    weir_arena *arena = open_for(f, pool, sizeof bytes);
    memset(bytes, 0xab, sizeof bytes);
    ok(weir_copy(f->runtime, base_of(arena), bytes, sizeof bytes, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    arena = open_room(f, pool, NULL, 280 * KIB, WEIR_STREAM_HOST, false);
    assert_true(holds(f, base_of(arena), bytes, sizeof bytes)); /* it has the same bytes */
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    arena = open_room(f, pool, NULL, 280 * KIB, f->a, true);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(held_by(arena), sizeof bytes);
    assert_true(holds(f, base_of(arena), zeros, sizeof zeros));
    ok(weir_arena_destroy(arena, f->a));
    arena = open_room(f, pool, NULL, MIB, WEIR_STREAM_HOST, true); /* not from the pool */
    assert_int_equal(pool_details(pool).taken, 2);
    assert_true(holds(f, base_of(arena), zeros, sizeof zeros));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    ok(weir_arena_pool_release(pool));
}

/* An arena closed behind a stream's work serves another stream, which comes behind that. */
static void streams_are_kept_in_order(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* it has no threads that a gate could hold */
    weir_arena_pool *pool = get_pool(f, 64 * MIB, 25);
    static gate g; /* a failed check leaves the stream to it */
    g = (gate)GATE;
    enum { BYTES = 4096 };
    unsigned char *one = pinned(f, BYTES, 1), *two = pinned(f, BYTES, 2), *back = pinned(f, BYTES, 0);
    weir_arena *first = open_room(f, pool, NULL, BYTES, f->a, false);
    void *base = base_of(first);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_copy(f->runtime, base, one, BYTES, f->a)); /* undeclared, on the stream of its close */
    ok(weir_copy(f->runtime, back, base, BYTES, f->a));
    ok(weir_arena_destroy(first, f->a));
    weir_arena *second = open_room(f, pool, NULL, BYTES, f->b, false);
    assert_ptr_equal(base_of(second), base);
    ok(weir_copy(f->runtime, base, two, BYTES, f->b));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(back[BYTES - 1], 1);
    assert_true(holds(f, base, two, BYTES));
    pthread_join(opener, NULL);
    ok(weir_arena_destroy(second, f->b));
    free_pinned(f, one);
    free_pinned(f, two);
    free_pinned(f, back);
    ok(weir_arena_pool_release(pool));
}

static void one_pool_a_runtime(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 5 * MIB, 25), *same, *other;
    weir_runtime *runtime = make_runtime(80 * MIB);
    ok(weir_arena_pool_acquire(f->runtime, NULL, &same));
    assert_ptr_equal(same, pool);
    weir_arena_pool_options o = {.struct_size = sizeof o, .cap = 6 * MIB};
    fails(WEIR_ERR_CONFLICT, weir_arena_pool_acquire(f->runtime, &o, &same));
    detail_names("5242880");
    detail_names("6291456");
    o.waste = 1001;
    fails(WEIR_ERR_INVALID, weir_arena_pool_acquire(f->runtime, &o, &same));
    ok(weir_arena_pool_acquire(runtime, NULL, &other));
    assert_ptr_not_equal(other, pool);
    assert_int_equal(pool_details(other).cap, 10 * MIB); /* an eighth */
    ok(weir_arena_pool_release(other));
    ok(weir_arena_pool_release(pool));
    weir_arena *arena = open_for(f, pool, MIB);
    ok(weir_arena_pool_release(pool)); /* the arena has it still */
    assert_int_equal(pool_details(pool).blocks, 0);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST)); /* and goes with it */
    assert_int_equal(live_of(f), 0);
    ok(weir_runtime_destroy(runtime));
}

static void a_refused_order_leaves_the_block_idle(void **state)
{
    fixture *f = *state;
    weir_arena_pool *pool = get_pool(f, 32 * MIB, 25);
    ok(weir_arena_destroy(open_for(f, pool, MIB), WEIR_STREAM_HOST));
    weir_arena_pool_details before = pool_details(pool);
    weir_arena_options o = {.struct_size = sizeof o, .room = MIB, .pool = pool, .stream = f->a};
    weir_arena *arena;
    ok(weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_create(f->client, &o, &arena));
    ok(weir_capture_end(f->a, NULL));
    weir_arena_pool_details after = pool_details(pool);
    assert_memory_equal(&after.cap, &before.cap, offsetof(weir_arena_pool_details, waste) - sizeof(size_t));
    weir_arena *held = open_for(f, pool, MIB);
    ok(weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_destroy(held, f->a)); /* and so it stays */
    ok(weir_capture_end(f->a, NULL));
    assert_int_equal(held_by(held), MIB);
    ok(weir_arena_destroy(held, f->a));
    ok(weir_arena_pool_release(pool));
}

typedef struct worker {
    fixture *f;
    weir_arena_pool *pool;
    unsigned seed;
} worker;

/* Stamps its arena, looks whether the stamp is still there, and gives it back, over and over. */
static void *churn(void *user)
{
    worker *w = user;
    uint64_t r = w->seed * 99991;
    weir_stream stream = w->seed % 2 ? w->f->a : w->f->b;
    for (int i = 0; i < (UNDER_TSAN ? 60 : 300); i++) {
        uint64_t stamp[64], back[64], bytes = (1 + next_random(&r) % 40) * 16 * KIB;
        weir_arena *arena = open_room(w->f, w->pool, NULL, bytes, stream, false);
        char *end = (char *)base_of(arena) + bytes - sizeof stamp;
        for (int k = 0; k < 64; k++)
            stamp[k] = next_random(&r);
        ok(weir_copy(w->f->runtime, end, stamp, sizeof stamp, stream));
        ok(weir_copy(w->f->runtime, back, end, sizeof back, stream));
        ok(weir_stream_synchronize(stream));
        assert_memory_equal(back, stamp, sizeof stamp);
        ok(weir_arena_destroy(arena, stream));
        if (i % 64 == 0)
            ok(weir_arena_pool_trim(w->pool, NULL, MIB, NULL));
    }
    return NULL;
}

static void threads_take_and_give(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* which is driven by one thread */
    weir_arena_pool *pool = get_pool(f, 2 * MIB, 50);
    worker workers[4];
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (worker){f, pool, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    weir_arena_pool_details d = pool_details(pool);
    assert_true(d.taken > 0 && d.dropped > 0 && d.kept <= d.cap);
    assert_int_equal(live_of(f), d.kept);
    ok(weir_arena_pool_release(pool));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_smallest_that_fits_is_taken),
        TEST(waste_is_bounded_and_lengths_are_real),
        TEST(bounds_are_the_plans),
        TEST(the_cap_drops_what_idles_longest),
        TEST(what_cannot_be_dropped_is_not_counted),
        TEST(pressure_takes_what_it_needs),
        TEST(a_maximum_is_met_from_the_pool),
        cmocka_unit_test(bytes_are_as_the_ledger_counts_them),
        TEST(another_class_is_never_taken),
        TEST(another_clients_block_is_never_taken),
        TEST(cleared_memory_is_zero_to_its_end),
        TEST(streams_are_kept_in_order),
        TEST(one_pool_a_runtime),
        TEST(a_refused_order_leaves_the_block_idle),
        TEST(threads_take_and_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
