/* Pools of shared blocks with prefix caches, against a plain record of who has which block for what. Steps are chosen at
 * random: allocations, frees, references, copies on write, moves, lookups, insertions, evictions, members and caches
 * that come and go, streams that stand and go on, and bad calls in between. After each step everything that the pool tells
 * is what the record says, and while a call runs, so is what it asks of the driver: behind which points it orders a
 * stream, and which point it waits for. */
#include "blocks/shared.h"

#include "runtime/runtime.h"
#include "driver/driver.h"

enum {
    MEMBERS = 3,
    CACHES = 4,
    STREAMS = 3,
    MOST = 40,
    LIST = 7,
    DEEP = 3,
    LETTERS = DEEP * TOKENS + 1,
    ENTRIES = 600,
    GATES = 3,
    COLORS = 251
};
enum { ON_HOST = STREAMS }; /* beside the numbers of streams */

typedef enum taking { ANYWHERE, IN_A_ROW } taking;
typedef enum outcome { TAKEN, WAITS, REFUSED } outcome;

/* The node of a block that is cached. */
typedef struct cached {
    int cache;  /* -1: it is not cached */
    int parent; /* a block; -1: it is the first one of its prompts */
    uint32_t tokens[TOKENS];
    size_t salt_bytes;
    uint64_t used;
    int gate; /* behind which the writes stand; -1: they are done */
    wi_event written;
} cached;

typedef struct record {
    int owner;     /* of the last allocation; -1: nobody's that is known by now */
    uint32_t mine; /* references of the owner's */
    uint32_t generation;
    int color, painted_at; /* the gate behind which that stands; -1: it has its color */
    int read_at[STREAMS];  /* the last gate behind which a copy out of it stands; -1: none */
    cached node;
} record;

/* Of each stream one. */
typedef struct points {
    wi_event events[STREAMS];
    uint32_t count;
} points;

/* References that were dropped together behind a gate. */
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
    weir_prefix_cache *cache[CACHES];
    int cache_of[CACHES]; /* a member */
    weir_prefix_cache_details cache_known[CACHES];
    weir_stream stream[STREAMS + 1];
    void *native[STREAMS + 1];
    gate gates[GATES * STREAMS]; /* those of a stream in a ring: the first that is shut, and how many are */
    int first[STREAMS], shut[STREAMS];
    entry entries[ENTRIES]; /* in the order of their frees */
    size_t entry_count;
    uint64_t tick, random;
    int next_color;
    /* the call that runs: */
    int who;
    uint32_t wanted;
    taking how;
    bool allocates;
    uint64_t deadline;
    wi_event recorded;
    points ordered, expected;
} model;

static model m;
static unsigned char colors[COLORS][BLOCK], page[COLORS * BLOCK];

static uint64_t pick(uint64_t below)
{
    return next_random(&m.random) % below;
}

/* What the record says ---------------------------------------------------------------------------------------------- */

static uint32_t leaving(uint32_t index)
{
    uint32_t n = 0;
    for (size_t i = 0; i < m.entry_count; i++)
        for (uint32_t k = 0; k < m.entries[i].count; k++)
            n += m.entries[i].blocks[k] == index;
    return n;
}

static uint32_t all_references(uint32_t index)
{
    return m.block[index].mine + (m.block[index].node.cache >= 0);
}

static weir_block_state state_now(uint32_t index)
{
    return all_references(index) ? WEIR_BLOCK_LIVE : leaving(index) ? WEIR_BLOCK_PENDING : WEIR_BLOCK_FREE;
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

static bool is_idle(uint32_t index)
{
    return m.block[index].node.cache >= 0 && m.block[index].mine == 0;
}

static bool has_children(uint32_t index)
{
    for (uint32_t i = 0; i < m.count; i++)
        if (m.block[i].node.cache >= 0 && m.block[i].node.parent == (int)index)
            return true;
    return false;
}

static uint32_t idle_of(int cache)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m.count; i++)
        n += is_idle(i) && (cache < 0 || m.block[i].node.cache == cache);
    return n;
}

static uint32_t cached_of(int cache)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m.count; i++)
        n += m.block[i].node.cache == cache;
    return n;
}

static bool is_own_cache(int cache, int who)
{
    return m.cache[cache] && m.cache_of[cache] == who;
}

/* Evictions --------------------------------------------------------------------------------------------------------- */

/* Evicts the block that was used least recently, of that cache or member (-1: any); but not `parent`. */
static int evict(int cache, int who, int parent)
{
    int best = -1;
    for (uint32_t i = 0; i < m.count; i++) {
        const cached *node = &m.block[i].node;
        bool may = is_idle(i) && !has_children(i) && (int)i != parent && (cache < 0 || node->cache == cache) &&
                   (who < 0 || m.cache_of[node->cache] == who);
        if (may && (best < 0 || node->used < m.block[best].node.used))
            best = (int)i;
    }
    if (best >= 0)
        m.block[best].node.cache = -1;
    return best;
}

static bool fits(void)
{
    uint32_t there = m.how == IN_A_ROW ? longest_run() : count_of(WEIR_BLOCK_FREE, -1);
    return used_by(m.who) + m.wanted <= m.known[m.who].cap && m.wanted <= there;
}

/* One look of an allocation: what it evicts, and how it ends. */
static outcome look(void)
{
    uint32_t cap = m.known[m.who].cap, later = 0;
    bool waits = !(m.flags & WEIR_ALLOC_NO_WAIT);
    for (;;) {
        bool any = false;
        uint32_t own = cap - used_by(m.who) + (waits ? count_of(WEIR_BLOCK_PENDING, m.who) : 0),
                 all = count_of(WEIR_BLOCK_FREE, -1) + (waits ? count_of(WEIR_BLOCK_PENDING, -1) : 0) + idle_of(-1);
        for (int c = 0; c < CACHES; c++)
            own += is_own_cache(c, m.who) ? idle_of(c) : 0;
        if (fits())
            return TAKEN;
        if (m.wanted > own || m.wanted > all)
            break;
        for (;;) {
            uint32_t coming = waits ? later : 0;
            bool capped = m.wanted > cap - used_by(m.who) + coming;
            if (!capped && m.wanted <= count_of(WEIR_BLOCK_FREE, -1) + coming && (any || coming > 0))
                break;
            int gone = evict(-1, capped ? m.who : -1, -1);
            if (gone < 0)
                break;
            later += leaving((uint32_t)gone) > 0;
            any = true;
        }
        if (!any)
            break;
    }
    uint32_t pending = count_of(WEIR_BLOCK_PENDING, -1);
    bool could = pending > 0 && m.wanted <= cap - count_of(WEIR_BLOCK_LIVE, m.who) &&
                 m.wanted <= count_of(WEIR_BLOCK_FREE, -1) + pending;
    return could && waits ? WAITS : REFUSED;
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

static void wait_until_reached(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
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
        wait_until_reached(&m.gates[gate_of(s, 0)]);
    else
        ok(weir_stream_synchronize(m.stream[s]));
    for (size_t i = 0; i < m.entry_count; i++)
        if (m.entries[i].gate != g)
            m.entries[kept++] = m.entries[i];
    m.entry_count = kept;
    for (uint32_t i = 0; i < m.count; i++) {
        record *b = &m.block[i];
        b->painted_at = b->painted_at == g ? -1 : b->painted_at;
        b->read_at[s] = b->read_at[s] == g ? -1 : b->read_at[s];
        b->node.gate = b->node.gate == g ? -1 : b->node.gate;
    }
}

static void add_point(points *to, wi_event event)
{
    for (uint32_t i = 0; i < to->count; i++)
        if (to->events[i].stream == event.stream) {
            if (to->events[i].sequence < event.sequence)
                to->events[i].sequence = event.sequence;
            return;
        }
    assert_true(to->count < STREAMS);
    to->events[to->count++] = event;
}

static void expect_behind(wi_event event, int s)
{
    if (event.stream != m.native[s])
        add_point(&m.expected, event);
}

static void expect_behind_leaving(uint32_t index, int s)
{
    for (size_t i = 0; i < m.entry_count; i++)
        for (uint32_t k = 0; k < m.entries[i].count; k++)
            if (m.entries[i].blocks[k] == index)
                expect_behind(m.entries[i].event, s);
}

/* The device: the host's, which orders nothing, as nobody here depends on it, and which waits by letting a stream go on. */
static wi_driver device;

static weir_status noted_record(wi_device *it, void *stream, wi_event *out)
{
    weir_status status = wi_host_driver.record(it, stream, out);
    m.recorded = *out;
    return status;
}

static weir_status noted_order(wi_device *it, void *stream, wi_event event)
{
    (void)it, (void)stream;
    add_point(&m.ordered, event);
    return WEIR_OK;
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

/* Before and after a call. */
static void begin(int who)
{
    m.who = who;
    m.allocates = false;
    m.ordered.count = m.expected.count = 0;
    m.recorded = (wi_event){NULL, 0};
    m.deadline = 0;
}

static void check_ordered(void)
{
    assert_int_equal(m.ordered.count, m.expected.count);
    for (uint32_t i = 0; i < m.expected.count; i++) {
        uint32_t k = 0;
        while (k < m.ordered.count && m.ordered.events[k].stream != m.expected.events[i].stream)
            k++;
        assert_true(k < m.ordered.count);
        assert_int_equal(m.ordered.events[k].sequence, m.expected.events[i].sequence);
    }
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
    b->mine = 1;
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

/* References -------------------------------------------------------------------------------------------------------- */

/* Whether work on the stream may read the block, or write there or be the last that uses it: that is for the caller to know. */
static bool may_read(uint32_t index, int s)
{
    return m.block[index].painted_at < 0 || m.block[index].painted_at / GATES == s;
}

static bool may_write(uint32_t index, int s)
{
    bool may = may_read(index, s);
    for (int k = 0; k < STREAMS; k++)
        may &= m.block[index].read_at[k] < 0 || k == s;
    return may;
}

/* Chooses at most `most` blocks of the member, each as often as it has references; returns how many. */
static uint32_t choose_mine(uint32_t *list, uint32_t most, bool twice)
{
    uint32_t left[MOST], n = 0, from = (uint32_t)pick(m.count);
    for (uint32_t i = 0; i < m.count; i++)
        left[i] = m.block[i].owner == m.who ? m.block[i].mine : 0;
    for (uint32_t i = 0; i < 2 * m.count && n < most; i++) {
        uint32_t index = (from + i) % m.count;
        if (left[index] == 0 || pick(3) == 0)
            continue;
        list[n++] = index;
        left[index] = twice ? left[index] - 1 : 0;
    }
    return n;
}

/* What is wrong with a block for a call that is not a free. */
static weir_status fault_of(uint32_t index)
{
    const record *b = &m.block[index];
    if (index >= m.count)
        return WEIR_ERR_INVALID;
    if (state_now(index) == WEIR_BLOCK_LIVE && b->owner != m.who)
        return WEIR_ERR_FOREIGN;
    return state_now(index) != WEIR_BLOCK_LIVE || b->mine == 0 ? WEIR_ERR_INVALID : WEIR_OK;
}

static bool above(int index, int other)
{
    while (other >= 0 && other != index)
        other = m.block[other].node.parent;
    return other >= 0;
}

/* Two blocks that are cached and dropped in one call were used at the same time: which goes first is known if the one is above
 * the other. */
static bool told_apart(uint32_t one, uint32_t other)
{
    return m.block[one].node.cache < 0 || m.block[other].node.cache < 0 || above((int)one, (int)other) ||
           above((int)other, (int)one);
}

static void drop_reference(uint32_t index)
{
    record *b = &m.block[index];
    b->mine--;
    if (is_idle(index))
        b->node.used = m.tick;
}

static void becomes_left(const uint32_t *list, uint32_t count, int s)
{
    m.tick++;
    for (uint32_t i = 0; i < count; i++)
        drop_reference(list[i]);
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
    uint32_t named = 0;
    for (uint32_t i = 0; i < count; i++)
        named += i != k && list[i] == index;
    list[k] = index;
    if (index >= m.count)
        return WEIR_ERR_INVALID;
    if (generations)
        generations[k] = m.block[index].generation;
    weir_status status = fault_of(index);
    if (status == WEIR_OK)
        return named < m.block[index].mine ? WEIR_OK : WEIR_ERR_DOUBLE_FREE;
    return status == WEIR_ERR_INVALID ? WEIR_ERR_DOUBLE_FREE : status;
}

static void step_drop(void)
{
    uint32_t list[LIST], generations[LIST], count, run = 1;
    int s = (int)pick(STREAMS + 1);
    begin((int)pick(MEMBERS));
    count = choose_mine(list, 1 + (uint32_t)pick(LIST), true);
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            count = told_apart(list[i], list[k]) ? count : i;
    if (count == 0 || m.entry_count == ENTRIES)
        return;
    while (run < count && list[run] == list[0] + run)
        run++;
    bool rows = pick(3) == 0, named = m.flags & WEIR_BLOCK_POOL_NAMED && pick(2);
    count = rows ? run : count;
    for (uint32_t i = 0; i < count; i++)
        generations[i] = m.block[list[i]].generation;
    weir_status wanted = !rows && pick(6) == 0 ? spoil(list, named ? generations : NULL, count) : WEIR_OK;
    for (uint32_t i = 1; i < count && wanted == WEIR_OK; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!told_apart(list[i], list[k]))
                return;
    for (uint32_t i = 0; i < count && wanted == WEIR_OK; i++)
        if (!may_write(list[i], s))
            return;
    uint32_t *exact = malloc((rows ? 1 : count) * sizeof *exact); /* nothing behind the list is read */
    memcpy(exact, list, (rows ? 1 : count) * sizeof *exact);
    weir_status status = weir_block_pool_free(m.member[m.who], exact, named ? generations : NULL, count,
                                              rows ? WEIR_BLOCK_POOL_RUN : 0, m.stream[s]);
    free(exact);
    check_status(status, wanted, "drop", __FILE__, __LINE__);
    if (wanted == WEIR_OK)
        becomes_left(list, count, s);
}

/* A run of which one block is not the member's. */
static void step_drop_bad_run(void)
{
    uint32_t first = (uint32_t)pick(m.count), count = 2 + (uint32_t)pick(4);
    weir_status wanted = first + count > m.count ? WEIR_ERR_INVALID : WEIR_OK;
    begin((int)pick(MEMBERS));
    for (uint32_t i = 0; i < count && wanted == WEIR_OK; i++)
        wanted = fault_of(first + i);
    wanted = wanted == WEIR_ERR_INVALID && first + count <= m.count ? WEIR_ERR_DOUBLE_FREE : wanted;
    if (wanted != WEIR_OK)
        fails(wanted, weir_block_pool_free(m.member[m.who], &first, NULL, count, WEIR_BLOCK_POOL_RUN,
                                           m.stream[pick(STREAMS + 1)]));
}

static void step_share(void)
{
    uint32_t list[LIST];
    begin((int)pick(MEMBERS));
    uint32_t count = choose_mine(list, 1 + (uint32_t)pick(LIST), true);
    if (count == 0)
        return;
    weir_status wanted = WEIR_OK;
    if (pick(5) == 0) {
        uint32_t k = (uint32_t)pick(count);
        list[k] = (uint32_t)pick(m.count + 1);
        wanted = fault_of(list[k]);
    }
    check_status(weir_block_pool_share(m.member[m.who], list, count), wanted, "share", __FILE__, __LINE__);
    for (uint32_t i = 0; wanted == WEIR_OK && i < count; i++)
        m.block[list[i]].mine++;
}

static void becomes_copy(uint32_t to, uint32_t from, int s)
{
    m.block[to].color = m.block[from].color;
    m.block[to].painted_at = last_gate(s);
    if (s < STREAMS && last_gate(s) >= 0)
        m.block[from].read_at[s] = last_gate(s);
}

static void step_write(void)
{
    uint32_t index = (uint32_t)pick(m.count), out = 0;
    int s = (int)pick(STREAMS + 1);
    begin(pick(5) && m.block[index].owner >= 0 ? m.block[index].owner : (int)pick(MEMBERS));
    weir_status wanted = fault_of(index);
    if (!may_write(index, s) || m.entry_count == ENTRIES)
        return;
    bool copies = wanted == WEIR_OK && all_references(index) > 1;
    if (wanted == WEIR_OK && !copies)
        expect_behind_leaving(index, s);
    m.wanted = 1;
    m.how = ANYWHERE;
    m.allocates = copies;
    weir_status status = weir_block_pool_make_writable(m.member[m.who], index, m.stream[s], &out);
    m.allocates = false;
    outcome end = copies ? look() : TAKEN;
    wanted = end == TAKEN ? wanted : WEIR_ERR_OUT_OF_MEMORY;
    check_status(status, wanted, "make_writable", __FILE__, __LINE__);
    if (end != TAKEN)
        check_refusal();
    if (wanted != WEIR_OK) {
        assert_int_equal(out, WEIR_BLOCK_POOL_NONE);
    } else if (copies) {
        becomes_mine(out, s);
        count_peaks();
        becomes_copy(out, index, s);
        becomes_left(&index, 1, s);
    } else {
        assert_int_equal(out, index);
    }
}

/* Moves ------------------------------------------------------------------------------------------------------------- */

/* Whether writes to the blocks may be queued on the stream; then behind which points. */
static weir_status fault_of_writes(const uint32_t *list, uint32_t count, int s)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_status status = fault_of(list[i]);
        if (status != WEIR_OK)
            return status;
        if (all_references(list[i]) > 1)
            return WEIR_ERR_BUSY;
        expect_behind_leaving(list[i], s);
    }
    return WEIR_OK;
}

static void step_upload(void)
{
    uint32_t list[LIST];
    int s = (int)pick(STREAMS + 1);
    begin((int)pick(MEMBERS));
    uint32_t count = choose_mine(list, 1 + (uint32_t)pick(LIST), true), base = (uint32_t)pick(COLORS - LIST);
    if (count == 0)
        return;
    if (pick(5) == 0)
        list[pick(count)] = (uint32_t)pick(m.count);
    for (uint32_t i = 0; i < count; i++)
        if (!may_write(list[i], s))
            return;
    weir_status wanted = fault_of_writes(list, count, s);
    m.expected.count = wanted == WEIR_OK ? m.expected.count : 0;
    check_status(weir_block_pool_upload(m.member[m.who], list, count, colors[base], m.stream[s]), wanted, "upload",
                 __FILE__, __LINE__);
    for (uint32_t i = 0; wanted == WEIR_OK && i < count; i++) {
        m.block[list[i]].color = (int)(base + i);
        m.block[list[i]].painted_at = last_gate(s);
    }
}

static void step_download(void)
{
    uint32_t list[LIST];
    begin((int)pick(MEMBERS));
    uint32_t count = choose_mine(list, 1 + (uint32_t)pick(LIST), true);
    if (count == 0)
        return;
    if (pick(5) == 0)
        list[pick(count)] = (uint32_t)pick(m.count);
    weir_status wanted = WEIR_OK;
    for (uint32_t i = 0; i < count; i++)
        wanted = wanted == WEIR_OK ? fault_of(list[i]) : wanted;
    check_status(weir_block_pool_download(m.member[m.who], list, count, page, WEIR_STREAM_HOST), wanted, "download",
                 __FILE__, __LINE__);
    for (uint32_t i = 0; wanted == WEIR_OK && i < count; i++)
        if (m.block[list[i]].painted_at < 0)
            assert_memory_equal(page + (size_t)i * BLOCK, colors[m.block[list[i]].color], BLOCK);
}

static void step_copy(void)
{
    uint32_t to[LIST], from[LIST];
    int s = (int)pick(STREAMS + 1), source = (int)pick(MEMBERS);
    begin(source);
    uint32_t count = choose_mine(from, 1 + (uint32_t)pick(LIST), true);
    begin(pick(2) ? source : (int)pick(MEMBERS));
    uint32_t others = choose_mine(to, count, false);
    count = others < count ? others : count;
    if (count == 0)
        return;
    if (pick(6) == 0)
        from[pick(count)] = (uint32_t)pick(m.count);
    for (uint32_t i = 0; i < count; i++)
        if (!may_write(to[i], s) || !may_read(from[i], s))
            return;
    weir_status wanted = fault_of_writes(to, count, s);
    int target = m.who;
    m.who = source;
    for (uint32_t i = 0; i < count; i++)
        wanted = wanted == WEIR_OK ? fault_of(from[i]) : wanted;
    m.expected.count = wanted == WEIR_OK ? m.expected.count : 0;
    check_status(weir_block_pool_copy(m.member[target], to, m.member[source], from, count, m.stream[s]), wanted, "copy",
                 __FILE__, __LINE__);
    for (uint32_t i = 0; wanted == WEIR_OK && i < count; i++)
        becomes_copy(to[i], from[i], s);
}

/* Prefixes ---------------------------------------------------------------------------------------------------------- */

static int choose_cache(void)
{
    int c = (int)pick(CACHES);
    return m.cache[c] ? c : -1;
}

/* Few letters, so that prompts begin alike. */
static weir_prefix choose_prompt(uint32_t *tokens)
{
    weir_prefix p = {.struct_size = sizeof p, .tokens = tokens, .count = pick(LETTERS + 1)};
    p.salt = "xy";
    p.salt_bytes = pick(4) ? 0 : 1 + pick(2);
    for (size_t i = 0; i < p.count; i++)
        tokens[i] = i % TOKENS == TOKENS - 1 ? (uint32_t)pick(2) << 8 : 7;
    return p;
}

static int find(int cache, const weir_prefix *p, uint32_t k, int parent)
{
    for (uint32_t i = 0; i < m.count; i++) {
        const cached *node = &m.block[i].node;
        if (node->cache == cache && node->parent == parent &&
            memcmp(node->tokens, p->tokens + (size_t)k * TOKENS, sizeof node->tokens) == 0 &&
            (parent >= 0 || node->salt_bytes == p->salt_bytes))
            return (int)i;
    }
    return -1;
}

static void step_acquire(void)
{
    uint32_t tokens[LETTERS], list[DEEP], found = 0, capacity = 1 + (uint32_t)pick(DEEP);
    int c = choose_cache(), s = (int)pick(STREAMS + 1);
    if (c < 0)
        return;
    weir_prefix p = choose_prompt(tokens);
    begin(m.cache_of[c]);
    uint32_t blocks = (uint32_t)(p.count / TOKENS), k = 0;
    blocks = blocks < capacity ? blocks : capacity;
    for (int node = -1; k < blocks && (node = find(c, &p, k, node)) >= 0; k++)
        if (m.block[node].node.gate >= 0)
            expect_behind(m.block[node].node.written, s);
    ok(weir_prefix_cache_acquire(m.cache[c], &p, m.stream[s], list, capacity, &found));
    assert_int_equal(found, k);
    for (int i = 0, node = -1; i < (int)k; i++) {
        node = find(c, &p, (uint32_t)i, node);
        assert_int_equal(list[i], node);
        m.block[node].mine++;
    }
    m.tick++;
    m.cache_known[c].lookups++;
    m.cache_known[c].wanted += blocks;
    m.cache_known[c].found += k;
}

/* Whether the blocks from k on can be cached. */
static weir_status fault_of_cached(const uint32_t *list, uint32_t k, uint32_t count)
{
    for (uint32_t i = k; i < count; i++) {
        for (uint32_t j = k; j < i; j++)
            if (list[i] == list[j])
                return WEIR_ERR_CONFLICT;
        if (m.block[list[i]].node.cache >= 0)
            return WEIR_ERR_CONFLICT;
        weir_status status = fault_of(list[i]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

static uint32_t becomes_cached(int c, const weir_prefix *p, const uint32_t *list, uint32_t k, uint32_t count,
                               int parent, int s)
{
    int last = parent; /* makes no room for its own child */
    uint32_t entered = 0;
    for (; k < count; k++, entered++) {
        if (cached_of(c) == m.cache_known[c].most && evict(c, -1, last) < 0)
            break;
        m.block[list[k]].node = (cached){
            .cache = c, .parent = parent, .salt_bytes = p->salt_bytes, .gate = last_gate(s), .written = m.recorded};
        memcpy(m.block[list[k]].node.tokens, p->tokens + (size_t)k * TOKENS, TOKENS * sizeof(uint32_t));
        parent = (int)list[k];
    }
    return entered;
}

static void step_insert(void)
{
    uint32_t tokens[LETTERS], list[DEEP], inserted = 77, k = 0;
    int c = choose_cache(), s = (int)pick(STREAMS + 1), parent = -1;
    if (c < 0)
        return;
    weir_prefix p = choose_prompt(tokens);
    begin(m.cache_of[c]);
    uint32_t count = choose_mine(list, DEEP, false), blocks = (uint32_t)(p.count / TOKENS);
    blocks = blocks < count ? blocks : count;
    for (int node; k < blocks && (node = find(c, &p, k, parent)) >= 0; k++)
        parent = node;
    for (uint32_t i = k, next = 0; i < blocks && pick(5); i++) { /* most insertions are of blocks that are new */
        while (next < m.count && (fault_of(next) != WEIR_OK || m.block[next].node.cache >= 0))
            next++;
        if (next == m.count)
            break;
        list[i] = next++;
    }
    if (blocks > k && pick(8) == 0)
        list[k + pick(blocks - k)] = (uint32_t)pick(m.count);
    weir_status wanted = fault_of_cached(list, k, blocks);
    check_status(weir_prefix_cache_insert(m.cache[c], &p, list, count, m.stream[s], &inserted), wanted, "insert",
                 __FILE__, __LINE__);
    if (wanted != WEIR_OK || blocks == 0) {
        assert_int_equal(inserted, 0);
        return;
    }
    m.tick++;
    for (int node = parent; node >= 0; node = m.block[node].node.parent)
        m.block[node].node.used = m.tick;
    assert_int_equal(inserted, becomes_cached(c, &p, list, k, blocks, parent, s));
    m.cache_known[c].inserted += inserted;
    if (last_gate(s) >= 0)
        ok(weir_call(m.runtime, nothing, NULL, m.stream[s]));
}

static void step_evict(void)
{
    int c = choose_cache();
    uint32_t most = (uint32_t)pick(4), evicted, n = 0;
    if (c < 0)
        return;
    ok(weir_prefix_cache_evict(m.cache[c], most, &evicted));
    while (n < most && evict(c, -1, -1) >= 0)
        n++;
    assert_int_equal(evicted, n);
}

static void begin_cache(int c)
{
    uint32_t most = pick(2) ? 0 : 1 + (uint32_t)pick(6);
    m.cache_of[c] = (int)pick(MEMBERS);
    m.cache[c] = make_cache(m.member[m.cache_of[c]], most);
    m.cache_known[c] =
        (weir_prefix_cache_details){.tokens = TOKENS, .most = most == 0 || most > m.count ? m.count : most};
}

static void end_cache(int c)
{
    ok(weir_prefix_cache_destroy(m.cache[c]));
    m.cache[c] = NULL;
    for (uint32_t i = 0; i < m.count; i++)
        if (m.block[i].node.cache == c)
            m.block[i].node.cache = -1;
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
    bool caches = false;
    for (int c = 0; c < CACHES; c++)
        caches |= is_own_cache(c, who);
    bool stays = caches || used_by(who) > 0;
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
    weir_block_pool_block_details d = details_of(m.pool, index);
    assert_int_equal(d.state, state);
    assert_int_equal(d.references, all_references(index));
    assert_int_equal(d.cached, b->node.cache >= 0);
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
    for (int c = 0; c < CACHES; c++) {
        if (!m.cache[c])
            continue;
        const weir_prefix_cache_details *k = &m.cache_known[c];
        weir_prefix_cache_details d = cache_details(m.cache[c]);
        assert_int_equal(d.tokens, k->tokens);
        assert_int_equal(d.most, k->most);
        assert_int_equal(d.cached, cached_of(c));
        assert_int_equal(d.idle, idle_of(c));
        assert_int_equal(d.lookups, k->lookups);
        assert_int_equal(d.wanted, k->wanted);
        assert_int_equal(d.found, k->found);
        assert_int_equal(d.inserted, k->inserted);
    }
}

/* Playing ----------------------------------------------------------------------------------------------------------- */

static void step(void)
{
    static void (*const often[])(void) = {step_take,    step_take,     step_take,   step_drop,   step_drop,
                                          step_drop,    step_drop,     step_share,  step_write,  step_write,
                                          step_acquire, step_acquire,  step_insert, step_insert, step_insert,
                                          step_upload,  step_download, step_copy};
    static void (*const seldom[])(void) = {step_drop_bad_run, step_evict, step_rejoin, step_cap};
    int s = (int)pick(STREAMS), c = (int)pick(CACHES);
    uint64_t what = pick(100);
    begin(0);
    if (what < 80)
        often[pick(sizeof often / sizeof often[0])]();
    else if (what < 90)
        seldom[pick(sizeof seldom / sizeof seldom[0])]();
    else if (what < 95 && m.shut[s] < GATES)
        close_gate(s);
    else if (what < 99)
        go_on(s);
    else if (m.cache[c])
        end_cache(c);
    else
        begin_cache(c);
    check_ordered();
}

static void begin_game(uint32_t count, uint32_t flags, uint64_t seed)
{
    static const char *const names[MEMBERS] = {"anna", "bert", "cleo"};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    memset(&m, 0, sizeof m);
    device = wi_host_driver;
    device.record = noted_record;
    device.order = noted_order;
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
    m.pool = make_shared(m.client[0], count, flags);
    m.view = pool_stats(m.pool).view;
    memset(m.view.base, 0, (size_t)count * BLOCK);
    for (uint32_t i = 0; i < count; i++)
        m.block[i] =
            (record){.owner = -1, .painted_at = -1, .read_at = {-1, -1, -1}, .node.cache = -1, .node.gate = -1};
    for (int i = 0; i < MEMBERS; i++)
        enter_member(i);
    for (int c = 0; c < CACHES; c++)
        begin_cache(c);
}

static void end_game(void)
{
    for (int c = 0; c < CACHES; c++)
        if (m.cache[c])
            end_cache(c);
    for (int s = 0; s < STREAMS; s++) {
        while (m.shut[s] > 0)
            go_on(s);
        ok(weir_stream_release(m.stream[s]));
    }
    for (uint32_t i = 0; i < m.count; i++)
        for (; m.block[i].mine > 0; m.block[i].mine--)
            ok(drop(m.member[m.block[i].owner], i, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(m.pool).free, m.count);
    for (int i = 0; i < MEMBERS; i++)
        ok(weir_block_pool_member_destroy(m.member[i]));
    ok(weir_block_pool_destroy(m.pool));
    check_empty(m.runtime);
    for (int i = 0; i < MEMBERS; i++)
        ok(weir_client_destroy(m.client[i]));
    ok(weir_runtime_destroy(m.runtime));
}

static void shared_pools_agree_with_a_record(void **state)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_pools_agree_with_a_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
