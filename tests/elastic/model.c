/* Elastic blocks against a plain record of which page holds what, and behind what it is pending. Steps are chosen at random:
 * commits and releases of any bytes on streams that stand and go on, declared uses, blocks that come and go, clients that are
 * suspended and resumed, and calls of the driver that fail. After each step everything that is told is what the record
 * says: pages, promises, the ledger, contents, and how much the driver has given out. */
#include "elastic/elastic.h"
#include "core/faulty.h"

#include "runtime/runtime.h"

#include <weir/residency.h>
#include <weir/uses.h>

enum { CLIENTS = 2, BLOCKS = 4, MOST = 9, STREAMS = 3, ON_HOST = STREAMS, GATES = 3, BUDGET = 20, MAXIMUM = 14 };

typedef enum page_state { UNUSED, LIVE, PENDING, AWAY } page_state;

typedef struct record {
    page_state state;
    int value;               /* of each byte */
    int painted_at;          /* the gate behind which it holds that; -1: it does */
    int released_on;         /* of a pending one: the stream, */
    int behind[STREAMS + 1]; /* and of each stream the last gate that it waits for, as it is used there; -1: none */
} record;

typedef struct block {
    weir_elastic *elastic; /* NULL: none, or ended, while some of its pages may be pending */
    int client;
    bool promised;
    size_t page, count; /* page: granules */
    char *base;
    weir_elastic_stats known; /* peak, commits, releases, refused */
    record pages[MOST];
} block;

typedef struct model {
    weir_runtime *runtime;
    weir_client *client[CLIENTS], *third;
    bool suspended[CLIENTS], dropped[CLIENTS];
    weir_stream stream[STREAMS + 1];
    gate gates[GATES * STREAMS];
    int first[STREAMS], shut[STREAMS];
    block blocks[BLOCKS];
    uint64_t random;
    int next_value;
} model;

static model m;
static wi_driver tried;
static const uint64_t maximum[CLIENTS] = {BUDGET, MAXIMUM};

static uint64_t pick(uint64_t below)
{
    return next_random(&m.random) % below;
}

/* Streams ----------------------------------------------------------------------------------------------------------- */

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

static bool waits(const record *p)
{
    for (int s = 0; s < STREAMS; s++)
        if (p->behind[s] >= 0)
            return true;
    return false;
}

static void settle_page(record *p)
{
    if (p->state == PENDING && !waits(p))
        *p = (record){UNUSED, 0, -1, -1, {-1, -1, -1, -1}};
}

static void go_on(int s)
{
    int g = gate_of(s, 0);
    if (m.shut[s] == 0)
        return;
    open_gate(&m.gates[g]);
    m.first[s] = (m.first[s] + 1) % GATES;
    if (--m.shut[s] > 0)
        wait_for_gate(&m.gates[gate_of(s, 0)]);
    else
        ok(weir_stream_synchronize(m.stream[s]));
    for (int b = 0; b < BLOCKS; b++)
        for (size_t i = 0; i < m.blocks[b].count; i++) {
            record *p = &m.blocks[b].pages[i];
            p->painted_at = p->painted_at == g ? -1 : p->painted_at;
            p->behind[s] = p->behind[s] == g ? -1 : p->behind[s];
            settle_page(p);
        }
}

/* What the record says ---------------------------------------------------------------------------------------------- */

static uint64_t pages_of(const block *b, page_state state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < b->count; i++)
        n += b->pages[i].state == state;
    return n;
}

static uint64_t granules_of(int client, page_state state)
{
    uint64_t n = 0;
    for (int b = 0; b < BLOCKS; b++)
        n += client < 0 || m.blocks[b].client == client ? pages_of(&m.blocks[b], state) * m.blocks[b].page : 0;
    return n;
}

static uint64_t promise_of(const block *b)
{
    uint64_t there = pages_of(b, LIVE) + pages_of(b, PENDING);
    return b->elastic && b->promised ? (b->count - there) * b->page : 0;
}

static uint64_t promised_to(int client)
{
    uint64_t n = 0;
    for (int b = 0; b < BLOCKS; b++)
        n += client < 0 || m.blocks[b].client == client ? promise_of(&m.blocks[b]) : 0;
    return n;
}

static uint64_t charged_to(int client)
{
    return granules_of(client, LIVE) + granules_of(client, PENDING) + promised_to(client);
}

static bool would_fit(int client, uint64_t granules)
{
    return charged_to(-1) + granules <= BUDGET && charged_to(client) + granules <= maximum[client];
}

static block *choose_block(void)
{
    block *b = &m.blocks[pick(BLOCKS)];
    return b->elastic ? b : NULL;
}

/* A driver's call that fails, for a step that can do nothing more than fail; where no stream stands, as what fails is tried
 * again then. */
static bool arm(void)
{
    bool all_pass = true;
    for (int s = 0; s < STREAMS; s++)
        all_pass &= m.shut[s] == 0;
    if (!all_pass || pick(3) > 0)
        return false;
    fault.calls = 0;
    fault.fail_at = (long)pick(14);
    return true;
}

/* True: it has failed as planned. */
static bool has_failed(bool armed, weir_status status)
{
    fault.fail_at = -1;
    if (!armed || status != WEIR_ERR_DRIVER)
        return false;
    if (pick(2) && charged_to(-1) < BUDGET) { /* nothing that failed is in anybody's way */
        void *rest = allocate(m.third, (BUDGET - charged_to(-1)) * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        ok(weir_free(m.third, rest, WEIR_STREAM_HOST));
    }
    ok(weir_runtime_trim(m.runtime, NULL, NULL));
    return true;
}

/* Steps ------------------------------------------------------------------------------------------------------------- */

static void step_create(void)
{
    block *b = &m.blocks[pick(BLOCKS)];
    if (b->elastic || pages_of(b, PENDING) > 0)
        return;
    int client = (int)pick(CLIENTS);
    size_t page = 1 + pick(2), count = 1 + pick(MOST);
    bool promised = pick(3) == 0;
    weir_elastic_options o = {.struct_size = sizeof o,
                              .bytes = page * count * GRANULE - pick(GRANULE),
                              .tag = promised ? "promised" : "cache",
                              .promised = promised,
                              .page = page * GRANULE};
    bool fits = !promised || would_fit(client, page * count), armed = arm();
    weir_elastic *e;
    weir_status status = weir_elastic_create(m.client[client], &o, &e);
    bool failed = has_failed(armed, status);
    if (status != WEIR_OK) {
        assert_null(e);
        if (!failed && !m.suspended[client])
            check_status(status, fits ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, "create", __FILE__, __LINE__);
        return;
    }
    assert_true(fits);
    *b = (block){.elastic = e, .client = client, .promised = promised, .page = page, .count = count};
    for (size_t i = 0; i < count; i++)
        b->pages[i] = (record){UNUSED, 0, -1, -1, {-1, -1, -1, -1}};
    b->base = stats_of(e).base;
}

/* Whether a commit on the stream takes the page back as it is: all that it waits for is on that stream. */
static bool taken_back(const record *p, int s)
{
    for (int k = 0; k < STREAMS; k++)
        if (k != s && p->behind[k] >= 0)
            return false;
    return s < STREAMS && p->released_on == s;
}

/* Pages that were taken back before the commit failed wait for what is on its stream by now. */
static void put_back(block *b, size_t first, size_t end, int s)
{
    for (size_t i = first; i < end; i++)
        if (b->pages[i].state == PENDING) {
            for (int k = 0; k < STREAMS; k++)
                b->pages[i].behind[k] = k == s ? last_gate(s) : -1;
            settle_page(&b->pages[i]);
        }
}

static void becomes_live(block *b, size_t first, size_t end, int s)
{
    for (size_t i = first; i < end; i++) {
        record *p = &b->pages[i];
        if (p->state == LIVE)
            continue;
        b->known.commits++;
        *p = (record){LIVE, 0, last_gate(s), -1, {-1, -1, -1, -1}};
        if (s < STREAMS)
            p->behind[s] = last_gate(s); /* the zeros are its first use */
    }
    uint64_t there = (pages_of(b, LIVE) + pages_of(b, PENDING)) * b->page * GRANULE;
    b->known.peak = there > b->known.peak ? there : b->known.peak;
}

static void step_commit(void)
{
    block *b = choose_block();
    int s = (int)pick(STREAMS + 1);
    if (!b)
        return;
    uint64_t bytes = b->page * GRANULE, all = bytes * b->count, offset = pick(all),
             length = 1 + pick(pick(2) ? all - offset : wi_min(all - offset, 2 * bytes));
    size_t first = offset / bytes, end = (offset + length - 1) / bytes + 1, stuck = end;
    uint64_t unused = 0;
    for (size_t i = first; i < end; i++) {
        unused += b->pages[i].state == UNUSED;
        if (b->pages[i].state == PENDING && !taken_back(&b->pages[i], s) && stuck == end)
            stuck = i;
    }
    bool fits = b->promised || unused == 0 || would_fit(b->client, unused * b->page), armed = arm();
    weir_status status = weir_elastic_commit(b->elastic, offset, length, m.stream[s]),
                wanted = m.suspended[b->client] ? WEIR_ERR_BUSY
                         : fits && stuck == end ? WEIR_OK
                                                : WEIR_ERR_OUT_OF_MEMORY;
    if (has_failed(armed, status))
        return;
    check_status(status, wanted, "commit", __FILE__, __LINE__);
    if (status == WEIR_OK) {
        becomes_live(b, first, end, s);
    } else if (status == WEIR_ERR_OUT_OF_MEMORY) {
        weir_refusal r = last_refusal();
        b->known.refused++;
        if (fits)
            assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
        else if (stuck == end)
            assert_int_equal(r.requested, unused * bytes);
        if (!fits)
            assert_int_equal(r.current, charged_to(b->client) * GRANULE);
        if (fits)
            put_back(b, first, stuck, s);
    }
}

static void step_release(void)
{
    block *b = choose_block();
    int s = (int)pick(STREAMS + 1);
    if (!b)
        return;
    uint64_t bytes = b->page * GRANULE, all = bytes * b->count, offset = pick(all), length = pick(all - offset + 1);
    if (pick(2)) {
        offset -= offset % bytes;
        length = wi_min(all - offset, bytes * (1 + pick(3)));
    }
    size_t first = (offset + bytes - 1) / bytes, end = (offset + length) / bytes;
    bool armed = arm();
    weir_status status = weir_elastic_release(b->elastic, offset, length, m.stream[s]);
    if (has_failed(armed, status))
        return;
    ok(status);
    for (size_t i = first; i < end; i++) {
        record *p = &b->pages[i];
        if (p->state == AWAY)
            *p = (record){UNUSED, 0, -1, -1, {-1, -1, -1, -1}};
        if (p->state != LIVE)
            continue;
        b->known.releases++;
        p->state = PENDING;
        p->released_on = s;
        if (s < STREAMS)
            p->behind[s] = last_gate(s);
        settle_page(p);
    }
}

static void step_end(void)
{
    block *b = choose_block();
    int s = (int)pick(STREAMS + 1);
    if (!b || pick(2))
        return;
    bool armed = arm();
    weir_status status = weir_elastic_destroy(b->elastic, m.stream[s]);
    if (has_failed(armed, status))
        return;
    ok(status);
    if (armed)
        ok(weir_runtime_trim(m.runtime, NULL, NULL));
    b->elastic = NULL;
    for (size_t i = 0; i < b->count; i++) {
        record *p = &b->pages[i];
        if (p->state == LIVE) {
            p->state = PENDING;
            if (s < STREAMS)
                p->behind[s] = last_gate(s);
        }
        if (p->state == AWAY)
            p->state = UNUSED;
        settle_page(p);
    }
}

/* Writes to a page, and says so. */
static void step_use(void)
{
    block *b = choose_block();
    int s = (int)pick(STREAMS);
    if (!b)
        return;
    size_t i = pick(b->count);
    record *p = &b->pages[i];
    if (p->state != LIVE || (p->painted_at >= 0 && p->painted_at / GATES != s))
        return;
    char *at = b->base + i * b->page * GRANULE;
    if (pick(2)) {
        p->value = m.next_value = 1 + m.next_value % 250;
        p->painted_at = last_gate(s);
        ok(weir_fill(m.runtime, at, (uint8_t)p->value, b->page * GRANULE, m.stream[s]));
    }
    ok(weir_use_record(m.runtime, (weir_block){.pointer = at}, m.stream[s]));
    p->behind[s] = last_gate(s);
}

static void step_suspend(void)
{
    int c = (int)pick(CLIENTS);
    for (int s = 0; s < STREAMS; s++)
        while (m.shut[s] > 0)
            go_on(s);
    weir_suspend_options o = {.struct_size = sizeof o, .drop = pick(3) ? 0 : WEIR_CLASS_BIT(WEIR_CLASS_KV)};
    weir_status status = weir_client_suspend(m.client[c], &o, NULL);
    check_status(status, m.suspended[c] ? WEIR_ERR_BUSY : WEIR_OK, "suspend", __FILE__, __LINE__);
    if (status != WEIR_OK)
        return;
    m.suspended[c] = true;
    for (int b = 0; b < BLOCKS; b++)
        for (size_t i = 0; m.blocks[b].client == c && i < m.blocks[b].count; i++) {
            record *p = &m.blocks[b].pages[i];
            if (p->state != LIVE)
                continue;
            *p = (record){AWAY, o.drop ? 0 : p->value, -1, -1, {-1, -1, -1, -1}};
            m.blocks[b].known.releases++;
        }
}

static void step_resume(void)
{
    int c = (int)pick(CLIENTS), s = (int)pick(STREAMS + 1);
    uint64_t more = 0;
    for (int b = 0; b < BLOCKS; b++)
        more += m.blocks[b].client == c && !m.blocks[b].promised ? pages_of(&m.blocks[b], AWAY) * m.blocks[b].page : 0;
    if (last_gate(s) >= 0)
        return;
    bool fits = !m.suspended[c] || would_fit(c, more);
    uint64_t pending = granules_of(c, PENDING);
    weir_status status = weir_client_resume(m.client[c], m.stream[s]);
    if (pending > 0 && status != WEIR_OK) /* a page that it needs may still be pending */
        fits = false;
    check_status(status, fits ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, "resume", __FILE__, __LINE__);
    for (int b = 0; b < BLOCKS; b++) {
        block *k = &m.blocks[b];
        if (k->client != c || !k->elastic)
            continue;
        for (size_t i = 0; status == WEIR_OK && i < k->count; i++)
            if (k->pages[i].state == AWAY) {
                k->pages[i] = (record){LIVE, k->pages[i].value, -1, -1, {-1, -1, -1, -1}};
                k->known.commits++;
            }
        weir_elastic_stats t = stats_of(k->elastic);
        if (status != WEIR_OK) { /* it has tried */
            k->known.commits = t.commits;
            k->known.releases = t.releases;
            k->known.refused = t.refused;
            k->known.peak = t.peak;
        }
        uint64_t there = (pages_of(k, LIVE) + pages_of(k, PENDING)) * k->page * GRANULE;
        k->known.peak = there > k->known.peak ? there : k->known.peak;
    }
    if (status == WEIR_OK) {
        m.suspended[c] = false;
        if (s < STREAMS)
            ok(weir_stream_synchronize(m.stream[s]));
    }
}

/* Comparing --------------------------------------------------------------------------------------------------------- */

static void page_is(const char *at, size_t bytes, int value)
{
    assert_int_equal((unsigned char)at[0], value);
    assert_int_equal(memcmp(at, at + 1, bytes - 1), 0);
}

static void compare_block(const block *b)
{
    uint64_t bytes = b->page * GRANULE;
    if (!b->elastic)
        return;
    weir_elastic_stats t = stats_of(b->elastic);
    assert_ptr_equal(t.base, b->base);
    assert_int_equal(t.page, bytes);
    assert_int_equal(t.bytes, b->count * bytes);
    assert_int_equal(t.committed, pages_of(b, LIVE) * bytes);
    assert_int_equal(t.pending, pages_of(b, PENDING) * bytes);
    assert_int_equal(t.promised, promise_of(b) * GRANULE);
    assert_int_equal(t.peak, b->known.peak);
    assert_int_equal(t.commits, b->known.commits);
    assert_int_equal(t.releases, b->known.releases);
    assert_int_equal(t.refused, b->known.refused);
    for (size_t i = 0; i < b->count; i++) {
        const record *p = &b->pages[i];
        if (p->state == UNUSED || p->state == AWAY)
            page_is(b->base + i * bytes, bytes, 0);
        else if (p->state == LIVE && p->painted_at < 0)
            page_is(b->base + i * bytes, bytes, p->value);
    }
}

static void compare(void)
{
    uint64_t there = granules_of(-1, LIVE) + granules_of(-1, PENDING);
    for (int s = 0; s < STREAMS; s++)
        if (m.shut[s] == 0)
            ok(weir_stream_synchronize(m.stream[s]));
    for (int b = 0; b < BLOCKS; b++)
        compare_block(&m.blocks[b]);
    snapshot s = take_snapshot(m.runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, granules_of(-1, LIVE) * GRANULE);
    assert_int_equal(unpassed(&s), granules_of(-1, PENDING) * GRANULE);
    assert_int_equal(s.device.promised, promised_to(-1) * GRANULE);
    assert_int_equal(s.device.held, there * GRANULE);
    assert_int_equal(s.device.away, granules_of(-1, AWAY) * GRANULE);
    for (int c = 0; c < CLIENTS; c++) {
        assert_int_equal(s.clients[c].live, granules_of(c, LIVE) * GRANULE);
        assert_int_equal(s.clients[c].pending, granules_of(c, PENDING) * GRANULE);
        assert_int_equal(s.clients[c].promised, promised_to(c) * GRANULE);
        assert_int_equal(s.clients[c].away, granules_of(c, AWAY) * GRANULE);
    }
    assert_int_equal(fault.handles, there);
    assert_int_equal(fault.mapped, there);
}

static void step(void)
{
    static void (*const steps[])(void) = {step_create, step_commit,  step_commit,  step_commit,
                                          step_commit, step_release, step_release, step_release,
                                          step_use,    step_use,     step_end};
    int s = (int)pick(STREAMS);
    uint64_t what = pick(100);
    if (what < 78)
        steps[pick(sizeof steps / sizeof steps[0])]();
    else if (what < 86 && m.shut[s] < GATES)
        close_gate(s);
    else if (what < 96)
        go_on(s);
    else if (what < 98)
        step_suspend();
    else
        step_resume();
}

static void play(uint64_t seed, int steps)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET * GRANULE};
    memset(&m, 0, sizeof m);
    m.random = seed;
    faults_reset(-1);
    ok(wi_runtime_create_over(&tried, 0, &options, &m.runtime));
    for (int c = 0; c < CLIENTS; c++)
        m.client[c] = open_client(m.runtime, c == 0 ? "one" : "two", 0, maximum[c] * GRANULE);
    m.third = open_client(m.runtime, "three", 0, 0);
    m.stream[ON_HOST] = WEIR_STREAM_HOST;
    for (int s = 0; s < STREAMS; s++)
        ok(weir_stream_acquire(m.runtime, &m.stream[s]));
    for (int i = 0; i < steps; i++) {
        step();
        compare();
    }
    for (int s = 0; s < STREAMS; s++) {
        while (m.shut[s] > 0)
            go_on(s);
        ok(weir_stream_release(m.stream[s]));
    }
    for (int b = 0; b < BLOCKS; b++)
        ok(weir_elastic_destroy(m.blocks[b].elastic, WEIR_STREAM_HOST));
    check_empty(m.runtime);
    assert_int_equal(fault.handles, 0);
    for (int c = 0; c < CLIENTS; c++)
        ok(weir_client_destroy(m.client[c]));
    ok(weir_client_destroy(m.third));
    ok(weir_runtime_destroy(m.runtime));
    assert_true(faults_nothing_left());
}

static void blocks_agree_with_a_record(void **state)
{
    (void)state;
    ok(weir_option_set("wait", "0ms"));
    for (uint64_t seed = 1; seed <= (UNDER_TSAN ? 2 : 16); seed++) {
        tried = seed % 2 ? faulty_driver : faulty_driver_that_drops();
        play(seed, UNDER_TSAN ? 100 : 600);
    }
    ok(weir_option_set("wait", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_agree_with_a_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
