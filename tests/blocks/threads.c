/* Sixteen threads on one pool: no block has two owners, the counts are exact at the end. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

enum { THREADS = 16, COUNT = 1000, STEPS = UNDER_TSAN ? 1500 : 6000, LONG_STEPS = 20000 };

static fixture *shared;
static weir_block_pool *pool;
static weir_block_pool_member *members[4];
static uint32_t owner[COUNT]; /* written by whoever holds the block, without a lock: that is the test */
static unsigned wrong;
static int steps;

#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);                                                           \
            print_error("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                            \
        }                                                                                                              \
    } while (0)

typedef struct worker {
    pthread_t thread;
    uint32_t number;
} worker;

static void own(uint32_t first, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        owner[first + i] = number;
}

static void still_own(uint32_t first, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        expect(owner[first + i] == number);
}

static void some_look(uint64_t *random)
{
    weir_block_pool_stats s = {.struct_size = sizeof s};
    weir_block_pool_block_details d = {.struct_size = sizeof d};
    expect(weir_block_pool_info(pool, &s, NULL, 0, NULL) == WEIR_OK);
    expect(s.free + s.held + s.pending == COUNT);
    expect(weir_block_pool_block_info(pool, (uint32_t)(next_random(random) % COUNT), &d) == WEIR_OK);
}

static void *work(void *user)
{
    worker *w = user;
    uint64_t random = w->number * 7919 + 1;
    weir_block_pool_member *m = members[w->number % 4];
    weir_stream stream;
    expect(weir_stream_acquire(shared->runtime, &stream) == WEIR_OK);
    for (int i = 0; i < steps; i++) {
        uint64_t r = next_random(&random);
        uint32_t n = 1 + (uint32_t)(r >> 8) % 40, list[40], first = 0;
        weir_stream on = (r >> 20) % 8 ? WEIR_STREAM_HOST : stream;
        bool run = (r >> 24) % 2;
        weir_status status = run ? weir_block_pool_alloc(m, n, WEIR_BLOCK_POOL_RUN, on, &first)
                                 : weir_block_pool_alloc(m, n, 0, on, list);
        expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
        if (status == WEIR_OK) {
            for (uint32_t k = 0; k < n; k++)
                own(run ? first + k : list[k], 1, w->number);
            if ((r >> 28) % 4 == 0)
                sched_yield();
            for (uint32_t k = 0; k < n; k++)
                still_own(run ? first + k : list[k], 1, w->number);
            expect((run ? free_run(m, first, n, on) : weir_block_pool_free(m, list, NULL, n, 0, on)) == WEIR_OK);
        }
        if (r % 64 == 0)
            some_look(&random);
    }
    expect(weir_stream_release(stream) == WEIR_OK);
    return NULL;
}

static void hammer(fixture *f, uint32_t flags)
{
    worker workers[THREADS];
    shared = f;
    wrong = 0;
    pool = make_pool_with(f->a, COUNT, flags);
    for (int i = 0; i < 4; i++)
        members[i] = join(pool, i % 2 ? f->a : f->b, i == 0 ? 100 : 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(wrong, 0);
    weir_block_pool_stats s = pool_stats(pool);
    assert_int_equal(s.free, COUNT);
    assert_int_equal(s.longest, COUNT);
    assert_int_equal(s.allocations, s.frees);
    assert_true(member_stats(members[0]).peak <= 100);
    ok(weir_block_pool_destroy(pool));
}

static void no_block_has_two_owners(void **state)
{
    hammer(*state, WEIR_ALLOC_NO_WAIT);
    hammer(*state, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED);
}

static void *come_and_go(void *user)
{
    worker *w = user;
    for (int i = 0; i < steps / 10; i++) {
        weir_block_pool_member *m;
        uint32_t index;
        expect(weir_block_pool_member_create(pool, shared->a, 5, &m) == WEIR_OK);
        expect(weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index) == WEIR_OK);
        own(index, 1, w->number);
        still_own(index, 1, w->number);
        expect(weir_block_pool_member_destroy(m) == WEIR_ERR_BUSY);
        expect(free_one(m, index, WEIR_STREAM_HOST) == WEIR_OK);
        expect(weir_block_pool_member_destroy(m) == WEIR_OK);
    }
    return NULL;
}

static void members_join_and_leave_at_once(void **state)
{
    worker workers[THREADS];
    shared = *state;
    wrong = 0;
    pool = make_pool_with(shared->a, COUNT, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, come_and_go, &workers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(pool_stats(pool).members, 0);
    assert_int_equal(pool_stats(pool).allocations, (unsigned)(THREADS * (steps / 10)));
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    steps = getenv("WEIR_TEST_LONG") ? LONG_STEPS : STEPS;
    const struct CMUnitTest tests[] = {TEST(no_block_has_two_owners), TEST(members_join_and_leave_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
