/* Pools against a plain record of who has which block. Steps are chosen at random: allocations that may wait, frees, by
 * generation too, members that come and go, streams that stand and go on, and bad calls in between. After each step
 * everything that the pool tells is what the record says, the words of a refusal and the bytes of the blocks among it; and
 * while an allocation waits, the point is that of the oldest free. */
#include "blocks/blocks.h"

#include "runtime/runtime.h"
#include "driver/driver.h"

enum { MEMBERS = 3, STREAMS = 3, MOST = 40, LIST = 7, ENTRIES = 600, GATES = 3, COLORS = 251 };
enum { ON_HOST = STREAMS }; /* beside the numbers of streams */

typedef enum taking { ANYWHERE, IN_A_ROW } taking;
typedef enum outcome { TAKEN, WAITS, REFUSED } outcome;

typedef struct record {
    int owner; /* of the last allocation; -1: nobody's that is known by now */
    bool held;
    uint32_t generation;
    int color, painted_at; /* the gate behind which that stands; -1: it has its color */
} record;

/* Blocks that were freed together behind a gate. */
typedef struct entry {
    int gate;
    wi_event event;
    uint32_t blocks[LIST], count;
} entry;

typedef struct model {
    weir_runtime *runtime;
    weir_client *client[MEMBERS];
    weir_block_pool *pool;
    weir_block_pool_view view;
    uint32_t flags, count, least_free;
    record block[MOST];
    weir_block_pool_member *member[MEMBERS];
    weir_block_pool_member_stats known[MEMBERS]; /* cap, peak, allocations, refused */
    uint64_t taken, refused;                     /* by members that have left; by all */
    weir_stream stream[STREAMS + 1];
    void *native[STREAMS + 1];
    gate gates[GATES * STREAMS]; /* those of a stream in a ring: the first that is shut, and how many are */
    int first[STREAMS], shut[STREAMS];
    entry entries[ENTRIES]; /* in the order of their frees */
    size_t entry_count;
    uint64_t random;
    int next_color;
    /* the call that runs: */
    int who;
    uint32_t wanted;
    taking how;
    bool allocates;
    uint64_t deadline;
    wi_event recorded;
} model;

static model m;
static unsigned char colors[COLORS][BLOCK];

static uint64_t pick(uint64_t below)
{
    return next_random(&m.random) % below;
}

/* What the record says ---------------------------------------------------------------------------------------------- */

static bool is_leaving(uint32_t index)
{
    for (size_t i = 0; i < m.entry_count; i++)
        for (uint32_t k = 0; k < m.entries[i].count; k++)
            if (m.entries[i].blocks[k] == index)
                return true;
    return false;
}

static weir_block_state state_now(uint32_t index)
{
    return m.block[index].held ? WEIR_BLOCK_LIVE : is_leaving(index) ? WEIR_BLOCK_PENDING : WEIR_BLOCK_FREE;
}

static uint32_t count_of(weir_block_state wanted, int who)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m.count; i++)
        n += state_now(i) == wanted && (who < 0 || m.block[i].owner == who);
    return n;
}

static uint32_t used_by(int who)
{
    return count_of(WEIR_BLOCK_LIVE, who) + count_of(WEIR_BLOCK_PENDING, who);
}

static uint32_t longest_run(void)
{
    uint32_t best = 0, now = 0;
    for (uint32_t i = 0; i < m.count; i++) {
        now = state_now(i) == WEIR_BLOCK_FREE ? now + 1 : 0;
        best = now > best ? now : best;
    }
    return best;
}

static bool fits(void)
{
    uint32_t there = m.how == IN_A_ROW ? longest_run() : count_of(WEIR_BLOCK_FREE, -1);
    return used_by(m.who) + m.wanted <= m.known[m.who].cap && m.wanted <= there;
}

/* How one look of an allocation ends. */
static outcome look(void)
{
    if (fits())
        return TAKEN;
    uint32_t pending = count_of(WEIR_BLOCK_PENDING, -1);
    bool could = pending > 0 && m.wanted <= m.known[m.who].cap - count_of(WEIR_BLOCK_LIVE, m.who) &&
                 m.wanted <= count_of(WEIR_BLOCK_FREE, -1) + pending;
    return could && !(m.flags & WEIR_ALLOC_NO_WAIT) ? WAITS : REFUSED;
}

/* Streams ----------------------------------------------------------------------------------------------------------- */

static void nothing(void *user)
{
    (void)user;
}

static int gate_of(int s, int k)
{
    return s * GATES + (m.first[s] + k) % GATES;
}

/* The gate behind which what is queued on the stream now stands; -1: it is done at once. */
static int last_gate(int s)
{
    return s < STREAMS && m.shut[s] > 0 ? gate_of(s, m.shut[s] - 1) : -1;
}

static void close_gate(int s)
{
    int g = gate_of(s, m.shut[s]++);
    m.gates[g] = (gate)GATE;
    ok(weir_call(m.runtime, pass_gate, &m.gates[g], m.stream[s]));
}

/* Opens the first gate of the stream, which comes to the next one. */
static void go_on(int s)
{
    size_t kept = 0;
    int g = gate_of(s, 0);
    if (m.shut[s] == 0)
        return;
    open_gate(&m.gates[g]);
    m.first[s] = (m.first[s] + 1) % GATES;
    if (--m.shut[s] > 0)
        wait_for_gate(&m.gates[gate_of(s, 0)]);
    else
        ok(weir_stream_synchronize(m.stream[s]));
    for (size_t i = 0; i < m.entry_count; i++)
        if (m.entries[i].gate != g)
            m.entries[kept++] = m.entries[i];
    m.entry_count = kept;
    for (uint32_t i = 0; i < m.count; i++)
        m.block[i].painted_at = m.block[i].painted_at == g ? -1 : m.block[i].painted_at;
}

/* The device: the host's, which waits by letting a stream go on. */
static wi_driver device;

static weir_status noted_record(wi_device *it, void *stream, wi_event *out)
{
    weir_status status = wi_host_driver.record(it, stream, out);
    m.recorded = *out;
    return status;
}

static weir_status noted_wait(wi_device *it, wi_event event, uint64_t deadline)
{
    if (!m.allocates)
        return wi_host_driver.wait(it, event, deadline);
    assert_int_equal(look(), WAITS);
    assert_ptr_equal(event.stream, m.entries[0].event.stream); /* the oldest */
    assert_int_equal(event.sequence, m.entries[0].event.sequence);
    assert_true(m.deadline == 0 || m.deadline == deadline);
    m.deadline = deadline;
    for (int s = m.entries[0].gate / GATES; !wi_host_driver.passed(it, event);)
        go_on(s);
    return WEIR_OK;
}

/* Before a call. */
static void begin(int who)
{
    m.who = who;
    m.allocates = false;
    m.recorded = (wi_event){NULL, 0};
    m.deadline = 0;
}

/* Allocations ------------------------------------------------------------------------------------------------------- */

static void paint_block(uint32_t index, int s)
{
    record *b = &m.block[index];
    b->color = m.next_color = (m.next_color + 1) % COLORS;
    ok(weir_fill(m.runtime, weir_block_pool_at(&m.view, index), (uint8_t)b->color, BLOCK, m.stream[s]));
    b->painted_at = last_gate(s);
}

static void becomes_mine(uint32_t index, int s)
{
    record *b = &m.block[index];
    assert_true(index < m.count);
    assert_int_equal(state_now(index), WEIR_BLOCK_FREE);
    if (m.flags & WEIR_BLOCK_POOL_CLEAR && b->owner != m.who) {
        b->color = 0;
        b->painted_at = last_gate(s);
    }
    b->owner = m.who;
    b->held = true;
    b->generation++;
    m.known[m.who].allocations++;
}

static void count_peaks(void)
{
    weir_block_pool_member_stats *k = &m.known[m.who];
    uint32_t used = used_by(m.who), there = count_of(WEIR_BLOCK_FREE, -1);
    k->peak = used > k->peak ? used : k->peak;
    m.least_free = there < m.least_free ? there : m.least_free;
}

static void check_refusal(void)
{
    char text[128];
    const weir_block_pool_member_stats *k = &m.known[m.who];
    uint32_t held = count_of(WEIR_BLOCK_LIVE, m.who), pending = count_of(WEIR_BLOCK_PENDING, m.who), top = 0;
    for (int i = 0; i < MEMBERS; i++)
        top = used_by(i) > top ? used_by(i) : top;
    snprintf(text, sizeof text, "for %u block%s of %d bytes", m.wanted, m.wanted == 1 ? "" : "s", BLOCK);
    detail_names(text);
    uint32_t there = count_of(WEIR_BLOCK_FREE, -1), all_pending = count_of(WEIR_BLOCK_PENDING, -1);
    if (m.wanted > k->cap - held - pending)
        snprintf(text, sizeof text, "its cap is %u, it holds %u and %u are pending", k->cap, held, pending);
    else if (m.wanted <= there)
        snprintf(text, sizeof text, "%u of %u are free and %u pending, but the longest run is %u", there, m.count,
                 all_pending, longest_run());
    else
        snprintf(text, sizeof text, "%u of %u are free and %u pending; ", there, m.count, all_pending);
    detail_names(text);
    snprintf(text, sizeof text, " has %u", top);
    if (m.wanted > there && m.wanted <= k->cap - held - pending)
        detail_names(text);
    m.known[m.who].refused++;
    m.refused++;
}

static void step_take(void)
{
    uint32_t list[MOST], first = 0;
    int s = (int)pick(STREAMS + 1);
    begin((int)pick(MEMBERS));
    m.wanted = 1 + (uint32_t)pick(pick(5) ? 4 : m.count);
    m.how = pick(3) ? ANYWHERE : IN_A_ROW;
    m.allocates = true;
    weir_status status = weir_block_pool_alloc(m.member[m.who], m.wanted, m.how == IN_A_ROW ? WEIR_BLOCK_POOL_RUN : 0,
                                               m.stream[s], list);
    m.allocates = false;
    outcome end = look();
    check_status(status, end == TAKEN ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, "take", __FILE__, __LINE__);
    if (end == TAKEN) {
        first = list[0];
        for (uint32_t i = 0; i < m.wanted; i++)
            becomes_mine(m.how == IN_A_ROW ? first + i : list[i], s);
        count_peaks();
        for (uint32_t i = 0; i < m.wanted; i++)
            if (pick(2))
                paint_block(m.how == IN_A_ROW ? first + i : list[i], s);
    } else {
        assert_int_equal(end, REFUSED);
        check_refusal();
        for (uint32_t i = 0; i < (m.how == IN_A_ROW ? 1 : m.wanted); i++)
            assert_int_equal(list[i], WEIR_BLOCK_POOL_NONE);
    }
}

/* Frees ------------------------------------------------------------------------------------------------------------- */

/* Whether work on the stream may be the last that uses the block: that is for the caller to know. */
static bool may_leave(uint32_t index, int s)
{
    return m.block[index].painted_at < 0 || m.block[index].painted_at / GATES == s;
}

/* Chooses at most `most` blocks of the member; returns how many. */
static uint32_t choose_mine(uint32_t *list, uint32_t most)
{
    uint32_t n = 0, from = (uint32_t)pick(m.count);
    for (uint32_t i = 0; i < m.count && n < most; i++) {
        uint32_t index = (from + i) % m.count;
        if (m.block[index].held && m.block[index].owner == m.who && pick(3) > 0)
            list[n++] = index;
    }
    return n;
}

/* What is wrong with the free of a block. */
static weir_status fault_of(uint32_t index)
{
    return index >= m.count                ? WEIR_ERR_INVALID
           : !m.block[index].held          ? WEIR_ERR_DOUBLE_FREE
           : m.block[index].owner != m.who ? WEIR_ERR_FOREIGN
                                           : WEIR_OK;
}

static void becomes_left(const uint32_t *list, uint32_t count, int s)
{
    for (uint32_t i = 0; i < count; i++)
        m.block[list[i]].held = false;
    if (last_gate(s) < 0)
        return;
    assert_true(m.entry_count < ENTRIES && count <= LIST);
    assert_ptr_equal(m.recorded.stream, m.native[s]);
    entry *e = &m.entries[m.entry_count++];
    *e = (entry){.gate = last_gate(s), .event = m.recorded, .count = count};
    memcpy(e->blocks, list, count * sizeof *list);
    ok(weir_call(m.runtime, nothing, NULL, m.stream[s])); /* the next point there is another one */
}

/* Makes one of the list wrong, and says what a free answers then. */
static weir_status spoil(uint32_t *list, uint32_t *generations, uint32_t count)
{
    uint32_t k = (uint32_t)pick(count), index = (uint32_t)pick(m.count + 1);
    if (generations && pick(2)) {
        generations[k]--;
        return WEIR_ERR_STALE;
    }
    bool twice = false;
    for (uint32_t i = 0; i < count; i++)
        twice |= i != k && list[i] == index;
    list[k] = index;
    if (generations && index < m.count)
        generations[k] = m.block[index].generation;
    return twice ? WEIR_ERR_DOUBLE_FREE : fault_of(index);
}

static void step_free(void)
{
    uint32_t list[LIST], generations[LIST], count, run = 1;
    int s = (int)pick(STREAMS + 1);
    begin((int)pick(MEMBERS));
    count = choose_mine(list, 1 + (uint32_t)pick(LIST));
    if (count == 0 || m.entry_count == ENTRIES)
        return;
    while (run < count && list[run] == list[0] + run)
        run++;
    bool rows = pick(3) == 0, named = m.flags & WEIR_BLOCK_POOL_NAMED && pick(2);
    count = rows ? run : count;
    for (uint32_t i = 0; i < count; i++)
        generations[i] = m.block[list[i]].generation;
    weir_status wanted = !rows && pick(6) == 0 ? spoil(list, named ? generations : NULL, count) : WEIR_OK;
    for (uint32_t i = 0; i < count && wanted == WEIR_OK; i++)
        if (!may_leave(list[i], s))
            return;
    uint32_t *exact = malloc((rows ? 1 : count) * sizeof *exact); /* nothing behind the list is read */
    memcpy(exact, list, (rows ? 1 : count) * sizeof *exact);
    weir_status status = weir_block_pool_free(m.member[m.who], exact, named ? generations : NULL, count,
                                              rows ? WEIR_BLOCK_POOL_RUN : 0, m.stream[s]);
    free(exact);
    check_status(status, wanted, "free", __FILE__, __LINE__);
    if (wanted == WEIR_OK)
        becomes_left(list, count, s);
}

/* A run of which one block is not the member's. */
static void step_free_bad_run(void)
{
    uint32_t first = (uint32_t)pick(m.count), count = 2 + (uint32_t)pick(4);
    weir_status wanted = first + count > m.count ? WEIR_ERR_INVALID : WEIR_OK;
    begin((int)pick(MEMBERS));
    for (uint32_t i = 0; i < count && wanted == WEIR_OK; i++)
        wanted = fault_of(first + i);
    if (wanted != WEIR_OK)
        fails(wanted, weir_block_pool_free(m.member[m.who], &first, NULL, count, WEIR_BLOCK_POOL_RUN,
                                           m.stream[pick(STREAMS + 1)]));
}

/* Members ----------------------------------------------------------------------------------------------------------- */

static void enter_member(int who)
{
    uint32_t cap = pick(2) ? 0 : 1 + (uint32_t)pick(m.count + 3);
    m.member[who] = join(m.pool, m.client[who], cap);
    m.known[who] = (weir_block_pool_member_stats){.cap = cap == 0 || cap > m.count ? m.count : cap};
}

static void step_rejoin(void)
{
    int who = (int)pick(MEMBERS);
    bool stays = used_by(who) > 0;
    check_status(weir_block_pool_member_destroy(m.member[who]), stays ? WEIR_ERR_BUSY : WEIR_OK, "leave", __FILE__,
                 __LINE__);
    if (stays)
        return;
    m.taken += m.known[who].allocations;
    for (uint32_t i = 0; i < m.count; i++)
        m.block[i].owner = m.block[i].owner == who ? -1 : m.block[i].owner;
    enter_member(who);
}

static void step_cap(void)
{
    int who = (int)pick(MEMBERS);
    uint32_t cap = (uint32_t)pick(m.count + 2), real = cap == 0 || cap > m.count ? m.count : cap;
    bool small = real < used_by(who);
    check_status(weir_block_pool_member_set_cap(m.member[who], cap), small ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK,
                 "set_cap", __FILE__, __LINE__);
    if (!small)
        m.known[who].cap = real;
}

/* Comparing --------------------------------------------------------------------------------------------------------- */

static void compare_block(uint32_t index)
{
    const record *b = &m.block[index];
    weir_block_state state = state_now(index);
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    ok(weir_block_pool_block_info(m.pool, index, &d));
    assert_int_equal(d.state, state);
    assert_int_equal(d.generation, m.flags & WEIR_BLOCK_POOL_NAMED ? b->generation : 0);
    assert_ptr_equal(d.pointer, weir_block_pool_at(&m.view, index));
    assert_ptr_equal(d.member, state == WEIR_BLOCK_FREE ? NULL : m.member[b->owner]);
    assert_string_equal(d.name, state == WEIR_BLOCK_FREE ? "" : client_details(m.client[b->owner]).name);
    if (b->painted_at < 0)
        assert_memory_equal(d.pointer, colors[b->color], BLOCK);
}

static void compare_member(int who)
{
    const weir_block_pool_member_stats *k = &m.known[who];
    weir_block_pool_member_stats t = member_stats(m.member[who]);
    assert_int_equal(t.cap, k->cap);
    assert_int_equal(t.held, count_of(WEIR_BLOCK_LIVE, who));
    assert_int_equal(t.pending, count_of(WEIR_BLOCK_PENDING, who));
    assert_int_equal(t.peak, k->peak);
    assert_int_equal(t.allocations, k->allocations);
    assert_int_equal(t.frees, t.allocations - t.held);
    assert_int_equal(t.refused, k->refused);
}

static void compare_pool(void)
{
    weir_block_pool_stats s = WEIR_INIT(weir_block_pool_stats);
    weir_block_pool_member_stats lines[MEMBERS] = {{.struct_size = sizeof lines[0]}};
    size_t count, room = pick(MEMBERS + 1);
    uint64_t allocations = m.taken;
    ok(weir_block_pool_info(m.pool, &s, room > 0 ? lines : NULL, room, &count));
    assert_int_equal(count, MEMBERS);
    assert_int_equal(s.members, MEMBERS);
    for (size_t i = 0; i < room; i++) {
        bool found = false;
        for (int who = 0; who < MEMBERS; who++) {
            if (m.member[who] != lines[i].member)
                continue;
            found = true;
            assert_int_equal(lines[i].held, count_of(WEIR_BLOCK_LIVE, who));
            assert_int_equal(lines[i].refused, m.known[who].refused);
        }
        assert_true(found);
    }
    for (int i = 0; i < MEMBERS; i++)
        allocations += m.known[i].allocations;
    assert_int_equal(s.free, count_of(WEIR_BLOCK_FREE, -1));
    assert_int_equal(s.held, count_of(WEIR_BLOCK_LIVE, -1));
    assert_int_equal(s.pending, count_of(WEIR_BLOCK_PENDING, -1));
    assert_int_equal(s.peak, m.count - m.least_free);
    assert_int_equal(s.longest, longest_run());
    assert_int_equal(s.allocations, allocations);
    assert_int_equal(s.frees, allocations - s.held);
    assert_int_equal(s.refused, m.refused);
}

static void compare(void)
{
    for (int s = 0; s < STREAMS; s++)
        if (m.shut[s] == 0)
            ok(weir_stream_synchronize(m.stream[s]));
    compare_pool();
    for (int i = 0; i < MEMBERS; i++)
        compare_member(i);
    for (uint32_t i = 0; i < m.count; i++)
        compare_block(i);
}

/* Playing ----------------------------------------------------------------------------------------------------------- */

static void step(void)
{
    static void (*const seldom[])(void) = {step_free_bad_run, step_rejoin, step_cap};
    int s = (int)pick(STREAMS);
    uint64_t what = pick(100);
    begin(0);
    if (what < 35)
        step_take();
    else if (what < 75)
        step_free();
    else if (what < 85)
        seldom[pick(sizeof seldom / sizeof seldom[0])]();
    else if (what < 93 && m.shut[s] < GATES)
        close_gate(s);
    else
        go_on(s);
}

static void begin_game(uint32_t count, uint32_t flags, uint64_t seed)
{
    static const char *const names[MEMBERS] = {"anna", "bert", "cleo"};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    memset(&m, 0, sizeof m);
    device = wi_host_driver;
    device.record = noted_record;
    device.wait = noted_wait;
    m.count = m.least_free = count;
    m.flags = flags;
    m.random = seed;
    ok(wi_runtime_create_over(&device, 0, &options, &m.runtime));
    m.stream[ON_HOST] = WEIR_STREAM_HOST;
    for (int s = 0; s < STREAMS; s++) {
        ok(weir_stream_acquire(m.runtime, &m.stream[s]));
        ok(wi_streams_resolve(&m.runtime->streams, m.stream[s], "host", &m.native[s]));
    }
    for (int i = 0; i < MEMBERS; i++)
        m.client[i] = open_client(m.runtime, names[i], 0, 0);
    m.pool = make_pool_with(m.client[0], count, flags);
    m.view = pool_stats(m.pool).view;
    memset(m.view.base, 0, (size_t)count * BLOCK);
    for (uint32_t i = 0; i < count; i++)
        m.block[i] = (record){.owner = -1, .painted_at = -1};
    for (int i = 0; i < MEMBERS; i++)
        enter_member(i);
}

static void end_game(void)
{
    for (int s = 0; s < STREAMS; s++) {
        while (m.shut[s] > 0)
            go_on(s);
        ok(weir_stream_release(m.stream[s]));
    }
    for (uint32_t i = 0; i < m.count; i++)
        if (m.block[i].held)
            give(m.member[m.block[i].owner], i, 1);
    assert_int_equal(pool_stats(m.pool).free, m.count);
    for (int i = 0; i < MEMBERS; i++)
        ok(weir_block_pool_member_destroy(m.member[i]));
    ok(weir_block_pool_destroy(m.pool));
    check_empty(m.runtime);
    for (int i = 0; i < MEMBERS; i++)
        ok(weir_client_destroy(m.client[i]));
    ok(weir_runtime_destroy(m.runtime));
}

static void pools_agree_with_a_record(void **state)
{
    static const uint32_t counts[] = {5, 12, MOST};
    static const uint32_t kinds[] = {0, WEIR_ALLOC_NO_WAIT, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_NAMED,
                                     WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED};
    (void)state;
    for (int i = 0; i < COLORS; i++)
        memset(colors[i], i, BLOCK);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            begin_game(counts[i], kinds[k], 41 + 10 * i + k);
            for (int n = UNDER_TSAN ? 100 : 1500; n > 0; n--) {
                step();
                compare();
            }
            end_game();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pools_agree_with_a_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
