/* Bad calls: each answers with its status, names what it is about, and changes nothing. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

#include <sys/mman.h>
#include <unistd.h>

typedef struct scene {
    weir_block_pool *pool;
    weir_block_pool_member *a, *b;
    weir_block_pool_stats before;
    weir_block_pool_member_stats a_before, b_before;
} scene;

static void look_before(scene *s)
{
    s->before = pool_stats(s->pool);
    s->a_before = member_stats(s->a);
    s->b_before = member_stats(s->b);
}

static void check_unchanged(const scene *s)
{
    weir_block_pool_stats now = pool_stats(s->pool);
    weir_block_pool_member_stats a = member_stats(s->a), b = member_stats(s->b);
    assert_memory_equal(&now, &s->before, sizeof now);
    assert_memory_equal(&a, &s->a_before, sizeof a);
    assert_memory_equal(&b, &s->b_before, sizeof b);
}

static void bad_gives_change_nothing(void **state)
{
    fixture *f = *state;
    scene s = {.pool = make_pool(f->a, 200)};
    s.a = join(s.pool, f->a, 0);
    s.b = join(s.pool, f->b, 0);
    take_run(s.a, 100); /* 0 .. 99 */
    take_run(s.b, 20);  /* 100 .. 119 */
    give(s.a, 70, 5);
    look_before(&s);
    static const struct {
        weir_status status;
        uint32_t first, count;
        const char *names;
    } bad[] = {
        {WEIR_ERR_FOREIGN, 100, 1, "block 100 (256 bytes) of the pool kv is held by bert, not by anna"},
        {WEIR_ERR_FOREIGN, 95, 6, "block 100"},
        {WEIR_ERR_DOUBLE_FREE, 72, 1, "block 72 (256 bytes) of the pool kv, which is free"},
        {WEIR_ERR_DOUBLE_FREE, 60, 40, "block 70"},
        {WEIR_ERR_DOUBLE_FREE, 150, 1, "block 150"},
        {WEIR_ERR_INVALID, 200, 1, "200 to 200"},
        {WEIR_ERR_INVALID, 199, 2, "199 to 200"},
        {WEIR_ERR_INVALID, UINT32_MAX, 1, "200"},
        {WEIR_ERR_INVALID, 1, UINT32_MAX, "1 to"},
        {WEIR_ERR_INVALID, 5, 0, "no blocks"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fails(bad[i].status,
              weir_block_pool_free(s.a, &bad[i].first, NULL, bad[i].count, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST));
        detail_names(bad[i].names);
        fails(bad[i].status,
              weir_block_pool_free(s.a, &bad[i].first, NULL, bad[i].count, WEIR_BLOCK_POOL_RUN, f->stream));
        check_unchanged(&s);
    }
    uint32_t *one = malloc(sizeof *one); /* a list without an element is not read */
    fails(WEIR_ERR_INVALID, weir_block_pool_free(s.a, one + 1, NULL, 0, 0, WEIR_STREAM_HOST));
    free(one);
    check_unchanged(&s);
    give(s.a, 0, 70);
    give(s.a, 75, 25);
    give(s.b, 100, 20);
    ok(weir_block_pool_destroy(s.pool));
}

static void bad_lists_change_nothing(void **state)
{
    fixture *f = *state;
    scene s = {.pool = make_pool(f->a, 128)};
    s.a = join(s.pool, f->a, 0);
    s.b = join(s.pool, f->b, 0);
    assert_int_equal(take_run(s.a, 100), 0);
    assert_int_equal(take_run(s.b, 2), 100);
    look_before(&s);
    static const struct {
        weir_status status;
        uint32_t list[4];
        const char *names;
    } bad[] = {
        {WEIR_ERR_FOREIGN, {1, 2, 3, 100}, "bert"},          {WEIR_ERR_DOUBLE_FREE, {7, 1, 7, 2}, "block 7"},
        {WEIR_ERR_DOUBLE_FREE, {1, 2, 120, 3}, "120"},       {WEIR_ERR_INVALID, {1, 2, 3, 128}, "128"},
        {WEIR_ERR_INVALID, {1, WEIR_BLOCK_POOL_NONE}, "kv"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fails(bad[i].status, weir_block_pool_free(s.a, bad[i].list, NULL, 4, 0, WEIR_STREAM_HOST));
        detail_names(bad[i].names);
        fails(bad[i].status, weir_block_pool_free(s.a, bad[i].list, NULL, 4, 0, f->stream));
        check_unchanged(&s);
    }
    fails(WEIR_ERR_INVALID, weir_block_pool_free(s.a, bad[0].list, NULL, 0, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_free(s.a, NULL, NULL, 3, 0, WEIR_STREAM_HOST));
    check_unchanged(&s);
    uint32_t twice[] = {1, 2, 1};
    fails(WEIR_ERR_DOUBLE_FREE, weir_block_pool_free(s.a, twice, NULL, 3, 0, WEIR_STREAM_HOST));
    detail_names("named in the same call");
    give(s.a, 0, 100);
    give(s.b, 100, 2);
    ok(weir_block_pool_destroy(s.pool));
}

static void another_membership_is_another_owner(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 4);
    weir_block_pool_member *one = join(pool, f->a, 0), *two = join(pool, f->a, 0);
    uint32_t index = take(one);
    fails(WEIR_ERR_FOREIGN, free_one(two, index, WEIR_STREAM_HOST));
    detail_names("another membership");
    give(one, index, 1);
    ok(weir_block_pool_destroy(pool));
}

static void a_name_outlives_no_taking(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 4, WEIR_BLOCK_POOL_NAMED), *plain = make_pool(f->a, 4);
    weir_block_pool_member *m = join(pool, f->a, 0), *p = join(plain, f->a, 0);
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    uint32_t index = take(m);
    ok(weir_block_pool_block_info(pool, index, &d));
    uint32_t first = d.generation;
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_ptr_equal(d.member, m);
    assert_string_equal(d.name, "anna");
    assert_ptr_equal(d.pointer, view_of(pool).base);
    give(m, index, 1);
    ok(weir_block_pool_block_info(pool, index, &d));
    assert_int_equal(d.state, WEIR_BLOCK_FREE);
    assert_null(d.member);
    fails(WEIR_ERR_DOUBLE_FREE, free_named(m, index, first, WEIR_STREAM_HOST));
    assert_int_equal(take(m), index);
    fails(WEIR_ERR_STALE, free_named(m, index, first, WEIR_STREAM_HOST));
    detail_names("block 0");
    assert_int_equal(state_of(pool, index), WEIR_BLOCK_LIVE);
    ok(weir_block_pool_block_info(pool, index, &d));
    assert_int_not_equal(d.generation, first);
    fails(WEIR_ERR_INVALID, free_named(m, 4, d.generation, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_free(m, NULL, NULL, 1, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_free(m, &index, NULL, 1, WEIR_BLOCK_POOL_NAMED, WEIR_STREAM_HOST));
    ok(free_named(m, index, d.generation, WEIR_STREAM_HOST));
    fails(WEIR_ERR_UNSUPPORTED, free_named(p, take(p), 1, WEIR_STREAM_HOST));
    give(p, 0, 1);
    ok(weir_block_pool_destroy(pool));
    ok(weir_block_pool_destroy(plain));
}

static void one_stale_name_of_several_frees_none(void **state)
{
    static const uint32_t ways[] = {0, WEIR_BLOCK_POOL_RUN};
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 4, WEIR_BLOCK_POOL_NAMED);
    weir_block_pool_member *m = join(pool, f->a, 0);
    for (int way = 0; way < 2; way++) {
        uint32_t indices[3], generations[3];
        ok(weir_block_pool_alloc(m, 3, 0, WEIR_STREAM_HOST, indices));
        for (uint32_t i = 0; i < 3; i++) {
            weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
            assert_int_equal(indices[i], indices[0] + i);
            ok(weir_block_pool_block_info(pool, indices[i], &d));
            generations[i] = d.generation;
        }
        generations[1]++;
        fails(WEIR_ERR_STALE, weir_block_pool_free(m, indices, generations, 3, ways[way], WEIR_STREAM_HOST));
        detail_names("block 1");
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(state_of(pool, indices[i]), WEIR_BLOCK_LIVE);
        generations[1]--;
        ok(weir_block_pool_free(m, indices, generations, 3, ways[way], WEIR_STREAM_HOST));
    }
    ok(weir_block_pool_destroy(pool));
}

/* The end of a page behind which nothing can be read or written. */
static void *edge_make(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + page, page, PROT_NONE), 0);
    return base + page;
}

static void edge_end(void *edge)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(munmap((char *)edge - page, 2 * page), 0);
}

/* Lists are read and written as far as they go, and one of no blocks not at all. */
static void nothing_behind_a_list_is_touched(void **state)
{
    static const uint32_t ways[] = {0, WEIR_BLOCK_POOL_RUN};
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 3, WEIR_BLOCK_POOL_NAMED);
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t *indices = edge_make(), *generations = edge_make();
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 0, 0, WEIR_STREAM_HOST, indices));
    detail_names("a count of 0 blocks");
    for (int way = 0; way < 2; way++) {
        uint32_t *list = indices - (ways[way] ? 1 : 3);
        ok(weir_block_pool_alloc(m, 3, ways[way], WEIR_STREAM_HOST, list));
        for (uint32_t i = 0; i < 3; i++) {
            weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
            ok(weir_block_pool_block_info(pool, i, &d));
            generations[(int)i - 3] = d.generation;
        }
        ok(weir_block_pool_free(m, list, generations - 3, 3, ways[way], WEIR_STREAM_HOST));
        assert_int_equal(pool_stats(pool).free, 3);
    }
    edge_end(indices);
    edge_end(generations);
    ok(weir_block_pool_destroy(pool));
}

static void what_is_no_member_or_stream_is_refused(void **state)
{
    fixture *f = *state;
    scene s = {.pool = make_pool(f->a, 8)};
    s.a = join(s.pool, f->a, 0);
    s.b = join(s.pool, f->b, 0);
    take(s.a);
    look_before(&s);
    uint32_t index = 5, list[2] = {0, 1};
    weir_stream stale;
    ok(weir_stream_acquire(f->runtime, &stale));
    ok(weir_stream_release(stale));
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_alloc(s.a, 1, 0, stale, &index));
    assert_int_equal(index, WEIR_BLOCK_POOL_NONE);
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_alloc(s.a, 2, WEIR_BLOCK_POOL_RUN, stale, &index));
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_alloc(s.a, 2, 0, stale, list));
    list[0] = 0;
    fails(WEIR_ERR_STREAM_MISUSE, free_one(s.a, 0, stale));
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_free(s.a, list, NULL, 1, 0, stale));
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(NULL, 1, 0, WEIR_STREAM_HOST, &index));
    for (uint32_t flag = 1; flag != 0; flag <<= 1)
        if (flag != WEIR_BLOCK_POOL_RUN) {
            fails(WEIR_ERR_INVALID, weir_block_pool_alloc(s.a, 1, flag, WEIR_STREAM_HOST, &index));
            fails(WEIR_ERR_INVALID, weir_block_pool_free(s.a, list, NULL, 1, flag, WEIR_STREAM_HOST));
        }
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(s.a, 1, 0, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(s.a, 1, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, free_one(NULL, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_free(NULL, list, NULL, 1, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, free_named(NULL, 0, 1, WEIR_STREAM_HOST));
    weir_block_pool_member *m;
    fails(WEIR_ERR_INVALID, weir_block_pool_member_create(NULL, f->a, 0, &m));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_create(s.pool, NULL, 0, &m));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_create(s.pool, f->a, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_destroy(NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_set_cap(NULL, 1));
    fails(WEIR_ERR_INVALID, weir_block_pool_destroy(NULL));
    weir_block_pool_block_details d = {0};
    weir_block_pool_stats st = {0};
    weir_block_pool_member_stats ms = {0};
    fails(WEIR_ERR_INVALID, weir_block_pool_block_info(s.pool, 0, &d));
    fails(WEIR_ERR_INVALID, weir_block_pool_block_info(s.pool, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_info(s.pool, &st, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_info(s.pool, NULL, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_info(s.a, &ms));
    d.struct_size = sizeof d;
    st.struct_size = sizeof st;
    ms.struct_size = sizeof ms;
    fails(WEIR_ERR_INVALID, weir_block_pool_block_info(s.pool, 8, &d));
    fails(WEIR_ERR_INVALID, weir_block_pool_block_info(NULL, 0, &d));
    fails(WEIR_ERR_INVALID, weir_block_pool_info(NULL, &st, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_member_info(NULL, &ms));
    check_unchanged(&s);
    give(s.a, 0, 1);
    ok(weir_block_pool_destroy(s.pool));
}

static void clients_of_other_runtimes_and_closed_ones(void **state)
{
    fixture *f = *state;
    weir_runtime *other = make_runtime(MIB);
    weir_client *stranger = open_client(other, "stranger", 0, 0), *guest = open_client(f->runtime, "guest", 0, 0);
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *m;
    uint32_t index;
    fails(WEIR_ERR_INVALID, weir_block_pool_member_create(pool, stranger, 0, &m));
    assert_null(m);
    detail_names("stranger");
    m = join(pool, guest, 0);
    take(m);
    ok(weir_client_destroy(guest)); /* the bytes are the pool's client's */
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 2, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    give(m, 0, 1);
    ok(weir_block_pool_destroy(pool));
    ok(weir_client_destroy(stranger));
    ok(weir_runtime_destroy(other));
}

/* However many clients come after it: the closed one's membership never becomes another's. */
static void a_closed_member_acts_for_nobody_else(void **state)
{
    fixture *f = *state;
    weir_client *guest = open_client(f->runtime, "guest", 0, 0);
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *m = join(pool, guest, 0);
    uint32_t index;
    ok(weir_client_destroy(guest));
    for (int i = 0; i < 200; i++) { /* the records of closed ones are used again */
        weir_client *later = open_client(f->runtime, "later", 0, 0);
        assert_ptr_not_equal(later, guest);
        fails(WEIR_ERR_INVALID, weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index));
        ok(weir_client_destroy(later));
    }
    ok(weir_block_pool_member_destroy(m));
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_gives_change_nothing),
        TEST(bad_lists_change_nothing),
        TEST(another_membership_is_another_owner),
        TEST(a_name_outlives_no_taking),
        TEST(one_stale_name_of_several_frees_none),
        TEST(nothing_behind_a_list_is_touched),
        TEST(what_is_no_member_or_stream_is_refused),
        TEST(clients_of_other_runtimes_and_closed_ones),
        TEST(a_closed_member_acts_for_nobody_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
