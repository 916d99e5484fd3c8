/* Pools against a plain array: members with caps, singles, runs, lists, parts of runs, three streams that stand and go on,
 * bad calls in between. After every step the pool says what the array says. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

enum { MEMBERS = 4, STREAMS = 3, MOST = 700, FREE = 0, HELD = 1, PENDING = 2 };

typedef struct model {
    fixture *f;
    weir_block_pool *pool;
    weir_block_pool_member *member[MEMBERS];
    weir_stream stream[STREAMS];
    gate gate[STREAMS];
    bool closed[STREAMS]; /* a gate stands on it */
    uint32_t count, cap[MEMBERS];
    struct {
        uint8_t state, member, stream;
    } block[MOST];
    uint64_t taken[MEMBERS], random;
} model;

static uint64_t pick(model *m, uint64_t below)
{
    return next_random(&m->random) % below;
}

static uint32_t count_of(const model *m, int state, int member)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->count; i++)
        n += m->block[i].state == state && (member < 0 || m->block[i].member == member);
    return n;
}

static uint32_t longest_of(const model *m)
{
    uint32_t best = 0, now = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        now = m->block[i].state == FREE ? now + 1 : 0;
        best = now > best ? now : best;
    }
    return best;
}

static void close_gate(model *m, int s)
{
    m->gate[s] = (gate)GATE;
    ok(weir_call(m->f->runtime, pass_gate, &m->gate[s], m->stream[s]));
    m->closed[s] = true;
}

static void let_go(model *m, int s)
{
    if (!m->closed[s])
        return;
    open_gate(&m->gate[s]);
    ok(weir_stream_synchronize(m->stream[s]));
    m->closed[s] = false;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->block[i].state == PENDING && m->block[i].stream == s)
            m->block[i].state = FREE;
}

static void becomes_held(model *m, uint32_t index, int member)
{
    assert_true(index < m->count);
    assert_int_equal(m->block[index].state, FREE);
    m->block[index].state = HELD;
    m->block[index].member = (uint8_t)member;
    m->taken[member]++;
}

static void step_take(model *m)
{
    int who = (int)pick(m, MEMBERS), how = (int)pick(m, 3);
    uint32_t n = how == 0 ? 1 : 1 + (uint32_t)pick(m, pick(m, 6) ? 12 : 150), list[150], first;
    uint32_t mine = count_of(m, HELD, who) + count_of(m, PENDING, who);
    bool fits = mine + n <= m->cap[who] && n <= (how == 1 ? longest_of(m) : count_of(m, FREE, -1));
    weir_status status = how == 0 ? weir_block_pool_alloc(m->member[who], 1, 0, WEIR_STREAM_HOST, &first)
                         : how == 1
                             ? weir_block_pool_alloc(m->member[who], n, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first)
                             : weir_block_pool_alloc(m->member[who], n, 0, WEIR_STREAM_HOST, list);
    check_status(status, fits ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, "take", __FILE__, __LINE__);
    for (uint32_t i = 0; fits && i < n; i++)
        becomes_held(m, how == 2 ? list[i] : first + i, who);
}

static void becomes_given(model *m, uint32_t index, int s)
{
    m->block[index].state = s < STREAMS && m->closed[s] ? PENDING : FREE;
    m->block[index].stream = (uint8_t)s;
}

static void step_give(model *m)
{
    uint32_t first = (uint32_t)pick(m, m->count), n = 1 + (uint32_t)pick(m, 20), list[20];
    int who = (int)pick(m, MEMBERS), s = (int)pick(m, STREAMS + 1);
    if (m->block[first].state == HELD && pick(m, 10) > 0) { /* most gives are good ones */
        who = m->block[first].member;
        uint32_t run = 0;
        while (run < n && first + run < m->count && m->block[first + run].state == HELD &&
               m->block[first + run].member == who)
            run++;
        n = run;
    }
    weir_status wanted = first + n > m->count ? WEIR_ERR_INVALID : WEIR_OK;
    for (uint32_t i = 0; wanted == WEIR_OK && i < n; i++)
        wanted = m->block[first + i].state != HELD   ? WEIR_ERR_DOUBLE_FREE
                 : m->block[first + i].member != who ? WEIR_ERR_FOREIGN
                                                     : WEIR_OK;
    for (uint32_t i = 0; i < n; i++)
        list[i] = first + i;
    weir_stream stream = s < STREAMS ? m->stream[s] : WEIR_STREAM_HOST;
    weir_status status = pick(m, 2) ? free_run(m->member[who], first, n, stream)
                                    : weir_block_pool_free(m->member[who], list, NULL, n, 0, stream);
    check_status(status, wanted, "give", __FILE__, __LINE__);
    for (uint32_t i = 0; wanted == WEIR_OK && i < n; i++)
        becomes_given(m, first + i, s);
}

static void step_cap(model *m)
{
    int who = (int)pick(m, MEMBERS);
    uint32_t cap = 1 + (uint32_t)pick(m, m->count), mine = count_of(m, HELD, who) + count_of(m, PENDING, who);
    check_status(weir_block_pool_member_set_cap(m->member[who], cap), cap < mine ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK,
                 "set_cap", __FILE__, __LINE__);
    if (cap >= mine)
        m->cap[who] = cap;
}

static void compare(model *m)
{
    weir_block_pool_stats s = pool_stats(m->pool);
    assert_int_equal(s.free, count_of(m, FREE, -1));
    assert_int_equal(s.held, count_of(m, HELD, -1));
    assert_int_equal(s.pending, count_of(m, PENDING, -1));
    assert_int_equal(s.longest, longest_of(m));
    for (int i = 0; i < MEMBERS; i++) {
        weir_block_pool_member_stats t = member_stats(m->member[i]);
        assert_int_equal(t.held, count_of(m, HELD, i));
        assert_int_equal(t.pending, count_of(m, PENDING, i));
        assert_int_equal(t.allocations, m->taken[i]);
        assert_int_equal(t.frees, t.allocations - t.held);
        assert_int_equal(t.cap, m->cap[i]);
    }
    uint32_t one = (uint32_t)pick(m, m->count);
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    ok(weir_block_pool_block_info(m->pool, one, &d));
    assert_int_equal(d.state, m->block[one].state == FREE   ? WEIR_BLOCK_FREE
                              : m->block[one].state == HELD ? WEIR_BLOCK_LIVE
                                                            : WEIR_BLOCK_PENDING);
    assert_ptr_equal(d.member, m->block[one].state == FREE ? NULL : m->member[m->block[one].member]);
}

static void play(fixture *f, uint32_t count, uint32_t flags, uint64_t seed, int steps)
{
    static model m;
    memset(&m, 0, sizeof m);
    m.f = f;
    m.count = count;
    m.random = seed;
    m.pool = make_pool_with(f->a, count, WEIR_ALLOC_NO_WAIT | flags);
    for (int i = 0; i < MEMBERS; i++) {
        m.member[i] = join(m.pool, i % 2 ? f->a : f->b, 0);
        m.cap[i] = count;
    }
    for (int s = 0; s < STREAMS; s++)
        ok(weir_stream_acquire(f->runtime, &m.stream[s]));
    for (int i = 0; i < steps; i++) {
        uint64_t what = pick(&m, 100);
        int s = (int)pick(&m, STREAMS);
        if (what < 45)
            step_take(&m);
        else if (what < 90)
            step_give(&m);
        else if (what < 93)
            step_cap(&m);
        else if (what < 97 && !m.closed[s])
            close_gate(&m, s);
        else
            let_go(&m, s);
        compare(&m);
    }
    for (int s = 0; s < STREAMS; s++) {
        let_go(&m, s);
        ok(weir_stream_release(m.stream[s]));
    }
    for (uint32_t i = 0; i < count; i++)
        if (m.block[i].state == HELD)
            give(m.member[m.block[i].member], i, 1);
    assert_int_equal(pool_stats(m.pool).free, count);
    ok(weir_block_pool_destroy(m.pool));
}

static void pools_agree_with_an_array(void **state)
{
    static const uint32_t counts[] = {1, 5, 64, 65, 130, MOST};
    int steps = UNDER_TSAN ? 800 : 8000;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        play(*state, counts[i], 0, 17 + i, steps);
        play(*state, counts[i], WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED, 29 + i, steps / 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(pools_agree_with_an_array)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
