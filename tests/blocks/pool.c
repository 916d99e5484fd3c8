/* Pools, members, singles and runs as they should be, and what statistics say of them. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

static void a_pool_is_one_block_of_its_client(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 1000);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_KV], 1000 * BLOCK);
    assert_int_equal(s.clients[0].blocks, 1);
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->a));
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(view_of(pool).base, &d));
    assert_string_equal(d.tag, "kv");
    ok(weir_block_pool_destroy(pool));
    weir_block_pool_options o = {
        .struct_size = sizeof o, .bytes = 48, .alignment = 16, .count = 3, .memory_class = WEIR_CLASS_SCRATCH};
    ok(weir_block_pool_create(f->a, &o, &pool));
    assert_int_equal(take_snapshot(f->runtime).clients[0].live_class[WEIR_CLASS_SCRATCH], 256);
    ok(weir_block_pool_destroy(pool));
}

static void what_the_budget_forbids_is_refused(void **state)
{
    fixture *f = *state;
    weir_block_pool_options o = {.struct_size = sizeof o, .bytes = MIB, .count = 100};
    weir_block_pool *pool = (weir_block_pool *)f;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_create(f->a, &o, &pool));
    assert_null(pool);
    assert_int_equal(last_refusal().requested, 100 * MIB);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(last_refusal().memory_class, WEIR_CLASS_KV);
}

static void bad_options_are_named(void **state)
{
    fixture *f = *state;
    weir_block_pool_options good = {.struct_size = sizeof good, .bytes = BLOCK, .count = 4}, o = good;
    weir_block_pool *pool;
    fails(WEIR_ERR_INVALID, weir_block_pool_create(NULL, &o, &pool));
    fails(WEIR_ERR_INVALID, weir_block_pool_create(f->a, NULL, &pool));
    fails(WEIR_ERR_INVALID, weir_block_pool_create(f->a, &o, NULL));
#define BAD(member, value, text)                                                                                       \
    o = good;                                                                                                          \
    o.member = (value);                                                                                                \
    fails(WEIR_ERR_INVALID, weir_block_pool_create(f->a, &o, &pool));                                                  \
    detail_names(text)
    BAD(struct_size, 0, "size");
    BAD(count, 0, "count");
    BAD(count, WEIR_BLOCK_POOL_MOST + 1, "count");
    BAD(bytes, 0, "multiple");
    BAD(bytes, 100, "256");
    BAD(bytes, SIZE_MAX / 2 + 1, "size");
    BAD(alignment, 3, "power");
    BAD(alignment, 4 * MIB, "power");
    BAD(flags, 1u << 30, "flags");
    BAD(memory_class, (weir_class)77, "class");
}

/* The pool of the system that this one replaces was tested for the following. */
static void singles_and_runs_share_one_set(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t index;
    assert_int_equal(pool_stats(pool).free, 8); /* fresh: all free */
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(take(m), i); /* the lowest first */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index));
    assert_int_equal(index, WEIR_BLOCK_POOL_NONE);
    give(m, 5, 1);
    assert_int_equal(take(m), 5); /* freed is reusable */
    give(m, 0, 8);
    assert_int_equal(take_run(m, 3), 0);
    assert_int_equal(take_run(m, 2), 3); /* a run begins behind the one before */
    give(m, 0, 5);
    uint32_t all = take_run(m, 8); /* the whole pool */
    assert_int_equal(all, 0);
    give(m, 1, 1);
    give(m, 3, 5);
    assert_int_equal(take_run(m, 3), 3); /* {1, 3..7}: lone gaps are skipped */
    assert_int_equal(take(m), 1);        /* and serve single blocks */
    give(m, 1, 1);
    give(m, 5, 1);
    give(m, 3, 1); /* {1, 3, 5, 6, 7} */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    assert_int_equal(index, WEIR_BLOCK_POOL_NONE);
    detail_names("anna");
    detail_names("longest run is 3");
    assert_int_equal(pool_stats(pool).free, 5); /* count unchanged */
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 0, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 9, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    give(m, 0, 1);
    give(m, 2, 1);
    give(m, 4, 1);
    assert_int_equal(pool_stats(pool).longest, 8);
    assert_int_equal(take_run(m, 8), 0);
    give(m, 0, 8);
    ok(weir_block_pool_destroy(pool)); /* with its members */
}

static void runs_take_the_gap_that_fits_best(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 1024);
    weir_block_pool_member *m = join(pool, f->a, 0);
    take_run(m, 1024);
    give(m, 10, 40);  /* 40 */
    give(m, 300, 7);  /* exactly 7 */
    give(m, 510, 6);  /* 6, across words */
    give(m, 700, 70); /* more than a word */
    assert_int_equal(take_run(m, 7), 300);
    assert_int_equal(take_run(m, 6), 510);
    assert_int_equal(take_run(m, 64), 700);
    assert_int_equal(take_run(m, 40), 10);
    assert_int_equal(take_run(m, 6), 764);
    assert_int_equal(pool_stats(pool).free, 0);
    give(m, 130, 8);
    give(m, 150, 7);
    assert_int_equal(take_run(m, 7), 150); /* the exact one, though the other comes first */
    take_run(m, 8);
    give(m, 0, 1024);
    assert_int_equal(take_run(m, 65), 0);
    assert_int_equal(take_run(m, 900), 65);
    assert_int_equal(pool_stats(pool).longest, 59);
    give(m, 0, 965);
    ok(weir_block_pool_destroy(pool));
}

static void many_are_taken_all_or_none(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 300);
    weir_block_pool_member *m = join(pool, f->a, 0);
    static uint32_t indices[301];
    bool seen[300] = {false};
    ok(weir_block_pool_alloc(m, 300, 0, WEIR_STREAM_HOST, indices));
    for (int i = 0; i < 300; i++) {
        assert_true(indices[i] < 300 && !seen[indices[i]]);
        seen[indices[i]] = true;
    }
    ok(weir_block_pool_free(m, indices, NULL, 299, 0, WEIR_STREAM_HOST));
    uint32_t last = indices[299];
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 300, 0, WEIR_STREAM_HOST, indices));
    for (int i = 0; i < 300; i++)
        assert_int_equal(indices[i], WEIR_BLOCK_POOL_NONE);
    assert_int_equal(pool_stats(pool).free, 299);
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 0, 0, WEIR_STREAM_HOST, indices));
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, NULL));
    give(m, last, 1);
    ok(weir_block_pool_destroy(pool));
}

static void caps_bound_a_members_total(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 100);
    weir_block_pool_member *a = join(pool, f->a, 10), *b = join(pool, f->b, 1000);
    uint32_t index, indices[8];
    assert_int_equal(member_stats(a).cap, 10);
    assert_int_equal(member_stats(b).cap, 100);
    uint32_t six = take_run(a, 6);
    uint32_t one = take(a);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    detail_names("its cap is 10, it holds 7");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 4, 0, WEIR_STREAM_HOST, indices));
    ok(weir_block_pool_alloc(a, 3, 0, WEIR_STREAM_HOST, indices));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_member_set_cap(a, 9));
    detail_names("holds 10");
    ok(weir_block_pool_member_set_cap(a, 11));
    uint32_t eleventh = take(a);
    weir_block_pool_member_stats s = member_stats(a);
    assert_int_equal(s.held, 11);
    assert_int_equal(s.peak, 11);
    assert_int_equal(s.allocations, 11);
    assert_int_equal(s.refused, 3);
    assert_string_equal(s.name, "anna");
    give(a, six, 6);
    give(a, one, 1);
    give(a, eleventh, 1);
    ok(weir_block_pool_free(a, indices, NULL, 3, 0, WEIR_STREAM_HOST));
    s = member_stats(a);
    assert_int_equal(s.held, 0);
    assert_int_equal(s.peak, 11);
    assert_int_equal(s.frees, 11);
    ok(weir_block_pool_member_set_cap(a, 0));
    assert_int_equal(member_stats(a).cap, 100);
    take_run(b, 100);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, &index));
    detail_names("bert has 100");
    assert_int_equal(member_stats(a).refused, 4);
    assert_int_equal(pool_stats(pool).refused, 4);
    give(b, 0, 100);
    weir_client *short_named = open_client(f->runtime, "z", 0, 0);
    weir_block_pool_member *z = join(pool, short_named, 0);
    take_run(z, 100);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, &index));
    detail_names("0 of 100 are free and 0 pending; z has 100");
    give(z, 0, 100);
    ok(weir_block_pool_member_destroy(z));
    ok(weir_client_destroy(short_named));
    ok(weir_block_pool_destroy(pool));
}

static void members_come_and_go(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 16);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0), *c = join(pool, f->b, 0);
    take_run(b, 4);
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(b));
    detail_names("bert holds 4");
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    detail_names("4 are held");
    detail_names("bert");
    ok(weir_block_pool_member_destroy(a));
    give(b, 0, 4);
    ok(weir_block_pool_member_destroy(b));
    weir_block_pool_member_stats lines[4] = {{.struct_size = sizeof lines[0]}};
    weir_block_pool_stats s = {.struct_size = sizeof s};
    size_t count;
    a = join(pool, f->a, 3);
    ok(weir_block_pool_info(pool, &s, lines, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(s.members, 2);
    assert_int_equal(s.allocations, 4); /* of one that has left */
    assert_int_equal(s.frees, 4);
    assert_int_equal(s.peak, 4);
    assert_ptr_equal(lines[0].member, c);
    assert_ptr_equal(lines[1].member, a);
    assert_int_equal(lines[1].cap, 3);
    lines[1].cap = 77;
    ok(weir_block_pool_info(pool, &s, lines, 1, &count));
    assert_int_equal(count, 2);
    assert_ptr_equal(lines[0].member, c);
    assert_int_equal(lines[1].cap, 77); /* there was no room for it */
    ok(weir_block_pool_destroy(pool));
}

static void statistics_tell_how_broken_up_it_is(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 200);
    weir_block_pool_member *m = join(pool, f->a, 0);
    assert_int_equal(pool_stats(pool).longest, 200);
    assert_true(pool_stats(pool).fragmentation == 0.0);
    take_run(m, 200);
    assert_int_equal(pool_stats(pool).longest, 0);
    assert_true(pool_stats(pool).fragmentation == 0.0);
    give(m, 60, 10);
    give(m, 100, 30);
    weir_block_pool_stats s = pool_stats(pool);
    assert_int_equal(s.longest, 30);
    assert_true(s.fragmentation == 0.25);
    give(m, 70, 30); /* 60 .. 130 */
    assert_int_equal(pool_stats(pool).longest, 70);
    give(m, 0, 60);
    give(m, 130, 70);
    assert_int_equal(pool_stats(pool).longest, 200);
    ok(weir_block_pool_destroy(pool));
}

static void addresses_are_arithmetic(void **state)
{
    fixture *f = *state;
    weir_block_pool_options o = {.struct_size = sizeof o, .bytes = 4096, .alignment = 4096, .count = 100};
    weir_block_pool *pool;
    ok(weir_block_pool_create(f->a, &o, &pool));
    weir_block_pool_view v = view_of(pool);
    assert_int_equal((uintptr_t)v.base % 4096, 0);
    assert_int_equal(v.bytes, 4096);
    assert_int_equal(v.count, 100);
    for (uint32_t i = 0; i < 100; i++) {
        char *p = weir_block_pool_at(&v, i);
        assert_ptr_equal(p, (char *)v.base + (size_t)i * 4096);
        assert_int_equal(weir_block_pool_index(&v, p), i);
        assert_int_equal(weir_block_pool_index(&v, p + 4095), i);
        memset(p, (int)i, 4096); /* it is memory */
    }
    assert_int_equal(weir_block_pool_index(&v, (char *)v.base - 1), WEIR_BLOCK_POOL_NONE);
    assert_int_equal(weir_block_pool_index(&v, (char *)v.base + 409600), WEIR_BLOCK_POOL_NONE);
    assert_int_equal(weir_block_pool_index(&v, NULL), WEIR_BLOCK_POOL_NONE);
    ok(weir_block_pool_destroy(pool));
}

/* How many records of clients so many opens and closes, one after the other, make use of. */
static size_t records_of(weir_runtime *runtime)
{
    enum { OPENS = 400 };
    const weir_client *seen[OPENS] = {NULL};
    size_t count = 0;
    for (int i = 0; i < OPENS; i++) {
        weir_client *client = open_client(runtime, "passing", 0, 0);
        size_t k = 0;
        while (k < count && seen[k] != client)
            k++;
        seen[k] = client;
        count += k == count;
        ok(weir_client_destroy(client));
    }
    return count;
}

/* The record of a client that was closed as a member stays its own until it is none any more; those of others, which were
 * closed after it, serve again. */
static void a_closed_member_keeps_its_own_record_alone(void **state)
{
    fixture *f = *state;
    enum { KEPT = 64 };
    weir_block_pool *pool = make_pool(f->a, 16), *other = make_pool(f->a, 16);
    weir_client *closed = open_client(f->runtime, "closed", 0, 0);
    weir_block_pool_member *member = join(pool, closed, 0), *none;
    (void)join(other, closed, 0);
    ok(weir_client_destroy(closed));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_create(pool, closed, 0, &none));
    assert_int_equal(records_of(f->runtime), KEPT + 1);
    ok(weir_block_pool_destroy(other)); /* one membership of two ends */
    assert_int_equal(records_of(f->runtime), KEPT + 1);
    ok(weir_block_pool_member_destroy(member));
    assert_int_equal(records_of(f->runtime), KEPT + 2);
    ok(weir_block_pool_destroy(pool));
}

/* As many as a pool can tell apart, in each place one after the other; one more is refused, and is no member of anything. */
static void as_many_members_as_a_pool_can_tell_apart(void **state)
{
    fixture *f = *state;
    enum { MOST_MEMBERS = UINT16_MAX, BLOCKS = 200000, OPENS = 400 };
    static weir_block_pool_member *members[MOST_MEMBERS];
    weir_block_pool_member *none;
    weir_block_pool *pool = make_pool(f->a, BLOCKS); /* so large that its books are not looked at after each call */
    for (int i = 0; i < MOST_MEMBERS; i++)
        members[i] = join(pool, f->a, 0);
    weir_client *closed = open_client(f->runtime, "closed", 0, 0);
    fails(WEIR_ERR_BUSY, weir_block_pool_member_create(pool, closed, 0, &none));
    detail_names("65535 members");
    assert_null(none);
    assert_int_equal(pool_stats(pool).members, MOST_MEMBERS);
    ok(weir_client_destroy(closed));
    bool again = false;
    for (int i = 0; i < OPENS && !again; i++) { /* its record is nobody's, and serves again */
        weir_client *passing = open_client(f->runtime, "passing", 0, 0);
        again = passing == closed;
        ok(weir_client_destroy(passing));
    }
    assert_true(again);
    for (int i = 0; i < MOST_MEMBERS; i += 4369) {
        ok(weir_block_pool_member_destroy(members[i]));
        members[i] = join(pool, f->b, 0);
        fails(WEIR_ERR_BUSY, weir_block_pool_member_create(pool, f->b, 0, &none));
    }
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pool_is_one_block_of_its_client),
        TEST(what_the_budget_forbids_is_refused),
        TEST(bad_options_are_named),
        TEST(singles_and_runs_share_one_set),
        TEST(runs_take_the_gap_that_fits_best),
        TEST(many_are_taken_all_or_none),
        TEST(caps_bound_a_members_total),
        TEST(members_come_and_go),
        TEST(statistics_tell_how_broken_up_it_is),
        TEST(addresses_are_arithmetic),
        TEST(a_closed_member_keeps_its_own_record_alone),
        TEST(as_many_members_as_a_pool_can_tell_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
