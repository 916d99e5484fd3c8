/* Random sequences of everything that a suspend and a resume meet, a seed each, with a model beside them: who has which
 * blocks with what in them, who is suspended, and what has to be refused. After each step the books are compared. */
#include "residency/residency.h"

#include <weir/elastic.h>
#include <weir/exchange.h>
#include <weir/uses.h>

enum { CLIENTS = 3, STREAMS = 3, MOST_BLOCKS = 24, BUDGET_GRANULES = 30, STEPS = 60, PAGES = 4 };

typedef struct block {
    unsigned char *start;
    size_t bytes;
    uint64_t charged;
    weir_class memory_class;
    int client, stream;
    uint64_t seed; /* of its contents */
    int fill;      /* every byte is this; -1: the seed's */
} block;

typedef struct client {
    weir_client *client;
    bool suspended, resumes, keeps;
    bool shown;       /* what is away of its blocks can be read and written */
    uint32_t dropped; /* by the suspend */
    uint32_t written; /* classes, since the last resume */
    uint64_t guaranteed;
} client;

typedef struct world {
    uint64_t random, seed, granule, budget;
    weir_runtime *runtime;
    client clients[CLIENTS];
    weir_stream streams[STREAMS];
    block blocks[MOST_BLOCKS];
    int count;
    uint64_t seeds;
    weir_elastic *elastic; /* of the last client */
    int pages[PAGES];      /* what they hold; -1: nothing, as they are not there */
    unsigned suspended, resumed, refused, trusted, partly, granted, shown, pieces, used, exchanged;
} world;

static uint64_t below(world *w, uint64_t n)
{
    return next_random(&w->random) % n;
}
static bool one_in(world *w, uint64_t n)
{
    return below(w, n) == 0;
}

/* Contents --------------------------------------------------------------------------------------------------------- */

static void settle(const world *w)
{
    for (int i = 1; i < STREAMS; i++)
        ok(weir_stream_synchronize(w->streams[i]));
}

static unsigned char *contents_of(const block *b)
{
    unsigned char *p = pattern(b->bytes, b->seed);
    if (b->fill >= 0)
        memset(p, b->fill, b->bytes);
    return p;
}

/* Writes anew, on the block's stream, or with the host. */
static void write_anew(world *w, block *b)
{
    b->seed = ++w->seeds;
    b->fill = one_in(w, 2) ? (int)below(w, 256) : -1;
    if (b->fill >= 0) {
        ok(weir_fill(w->runtime, b->start, (uint8_t)b->fill, b->bytes, w->streams[b->stream]));
        return;
    }
    settle(w);
    write_block(w->runtime, b->start, b->bytes, b->seed);
}

static void look_at(const world *w, const block *b)
{
    unsigned char *wanted = contents_of(b), *there = malloc(b->bytes);
    settle(w);
    ok(weir_copy(w->runtime, there, b->start, b->bytes, WEIR_STREAM_HOST));
    bytes_are(there, wanted, b->bytes);
    free(wanted);
    free(there);
}

/* Of contents that were dropped each part is zeros, if it was away, or as it was. */
static void look_at_dropped(world *w, block *b)
{
    unsigned char *wanted = contents_of(b), *there = malloc(b->bytes);
    settle(w);
    ok(weir_copy(w->runtime, there, b->start, b->bytes, WEIR_STREAM_HOST));
    for (size_t at = 0, length; at < b->bytes; at += length) {
        length = b->bytes - at < UNIT ? b->bytes - at : UNIT;
        bool zeros = true;
        for (size_t i = 0; i < length; i++)
            zeros &= there[at + i] == 0;
        if (!zeros)
            bytes_are(there + at, wanted + at, length);
    }
    free(wanted);
    free(there);
    w->clients[b->client].written |= WEIR_CLASS_BIT(b->memory_class);
    write_anew(w, b);
}

static bool is_away_or_moved(const world *w, const block *b)
{
    return w->clients[b->client].suspended;
}

/* Whether the block can be looked at. */
static bool is_there(const world *w, const block *b)
{
    return !w->clients[b->client].suspended || w->clients[b->client].shown;
}

/* Whether the client is as good as resident: pages of its elastic block come with the first piece. */
static bool is_usable(const client *c)
{
    weir_residency r = residency(c->client);
    return !c->suspended || (c->shown && r.shown == r.away);
}

/* The books -------------------------------------------------------------------------------------------------------- */

static uint64_t pages_there(const world *w)
{
    uint64_t there = 0;
    for (int i = 0; w->elastic && i < PAGES; i++)
        there += w->pages[i] >= 0;
    return there;
}

static void check_client(const world *w, const snapshot *s, int which)
{
    const client *c = &w->clients[which];
    const weir_client_stats *stats = &s->clients[which];
    weir_residency r = residency(c->client);
    uint64_t charged = 0, count = 0;
    for (int i = 0; i < w->count; i++) {
        charged += w->blocks[i].client == which ? w->blocks[i].charged : 0;
        count += w->blocks[i].client == which;
    }
    uint64_t pages = which == CLIENTS - 1 ? pages_there(w) : 0;
    assert_int_equal(stats->live + stats->away, charged + pages * w->granule);
    if (stats->blocks != count + pages) /* pages that are away are no blocks */
        assert_true(c->suspended && stats->blocks == count);
    assert_true(stats->away == 0 || c->suspended);
    assert_int_equal(stats->promised, 0);
    assert_int_equal(stats->guaranteed, c->suspended && !c->keeps ? 0 : c->guaranteed);
    assert_int_equal(r.state, c->suspended ? WEIR_SUSPENDED : WEIR_RESIDENT);
    assert_int_equal(r.away, stats->away);
}

static void check_world(const world *w)
{
    snapshot s = take_snapshot(w->runtime);
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    uint64_t sum = 0, away = 0;
    check_sums(&s);
    assert_int_equal(s.device.budget, w->budget);
    for (int i = 0; i < CLIENTS; i++) {
        check_client(w, &s, i);
        away += s.clients[i].away;
    }
    assert_int_equal(s.device.away, away);
    ok(weir_layout_walk(w->runtime, NULL, NULL, &totals));
    for (int i = 0; i < WEIR_SPAN_MOST; i++)
        sum += totals.bytes[i];
    assert_int_equal(sum, totals.held);
    assert_int_equal(totals.in_hand, 0);
    assert_int_equal(totals.bytes[WEIR_SPAN_LIVE], s.device.live);
    assert_int_equal(totals.bytes[WEIR_SPAN_BUSY], 0);
}

/* What others have for good, as the budget sees it: a request beyond it must be refused. */
static uint64_t committed(const world *w)
{
    snapshot s = take_snapshot(w->runtime);
    uint64_t sum = 0;
    for (size_t i = 0; i < s.count; i++) {
        const weir_client_stats *c = &s.clients[i];
        sum += c->live > c->guaranteed ? c->live : c->guaranteed;
    }
    return sum;
}

static bool may_be_refused(world *w, weir_status status)
{
    w->refused += status == WEIR_ERR_OUT_OF_MEMORY;
    return status == WEIR_ERR_OUT_OF_MEMORY;
}

/* Steps ------------------------------------------------------------------------------------------------------------- */

/* Pages come back with what they held, or with zeros if their class was dropped. */
static void look_at_pages(world *w)
{
    const client *c = &w->clients[CLIENTS - 1];
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    if (!w->elastic)
        return;
    ok(weir_elastic_info(w->elastic, &stats));
    assert_int_equal(stats.committed, pages_there(w) * w->granule);
    unsigned char *there = malloc(w->granule);
    settle(w);
    for (size_t i = 0; i < PAGES; i++) {
        if (w->pages[i] < 0)
            continue;
        ok(weir_copy(w->runtime, there, (char *)stats.base + i * w->granule, w->granule, WEIR_STREAM_HOST));
        if (c->dropped & WEIR_CLASS_BIT(WEIR_CLASS_OTHER))
            w->pages[i] = there[0] == 0 ? 0 : w->pages[i]; /* or it stayed */
        assert_int_equal(there[0], w->pages[i]);
        assert_int_equal(memcmp(there, there + 1, w->granule - 1), 0);
    }
    free(there);
}

static void note_resumed(world *w, int which)
{
    client *c = &w->clients[which];
    if (which == CLIENTS - 1)
        look_at_pages(w);
    c->suspended = false;
    c->written = 0;
    w->resumed++;
    for (int i = 0; i < w->count; i++) {
        block *b = &w->blocks[i];
        if (b->client == which && !c->shown && (c->dropped & WEIR_CLASS_BIT(b->memory_class)))
            look_at_dropped(w, b);
        else if (b->client == which)
            look_at(w, b);
    }
    c->shown = false;
}

/* What has left can be looked at all the same. */
static void look_at_shown(world *w, int which)
{
    const client *c = &w->clients[which];
    for (int i = 0; c->shown && i < w->count; i++) {
        block *b = &w->blocks[i];
        if (b->client == which && (c->dropped & WEIR_CLASS_BIT(b->memory_class)))
            look_at_dropped(w, b);
        else if (b->client == which)
            look_at(w, b);
    }
}

static void step_allocate(world *w)
{
    int which = (int)below(w, CLIENTS);
    client *c = &w->clients[which];
    block b = {.client = which, .stream = (int)below(w, STREAMS), .memory_class = (weir_class)below(w, 4)};
    const uint64_t most[] = {4 * KIB, w->granule, 3 * w->granule, 12 * w->granule};
    void *pointer;
    if (w->count == MOST_BLOCKS)
        return;
    b.bytes = 1 + below(w, most[below(w, 4)]);
    bool must_fail = !c->suspended && committed(w) > w->budget - b.bytes && c->guaranteed == 0;
    bool usable = is_usable(c) && !c->resumes;
    weir_status status = weir_alloc(c->client, b.bytes, w->streams[b.stream], b.memory_class, &pointer);
    w->used += usable && c->suspended && status == WEIR_OK;
    if (c->suspended && !c->resumes && !usable) {
        assert_int_equal(status, WEIR_ERR_BUSY);
        return;
    }
    if (c->suspended && residency(c->client).state == WEIR_RESIDENT)
        note_resumed(w, which);
    if (may_be_refused(w, status))
        return;
    ok(status);
    assert_false(must_fail);
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &details));
    b.start = pointer;
    b.charged = details.charged;
    w->blocks[w->count++] = b;
    write_anew(w, &w->blocks[w->count - 1]);
}

static void step_free(world *w)
{
    if (w->count == 0)
        return;
    int i = (int)below(w, (uint64_t)w->count);
    block b = w->blocks[i];
    if (is_there(w, &b) && one_in(w, 2))
        look_at(w, &b);
    if (one_in(w, 3)) {
        settle(w);
        b.stream = 0;
    }
    ok(weir_free(w->clients[b.client].client, b.start, w->streams[b.stream]));
    w->blocks[i] = w->blocks[--w->count];
}

static void step_resize(world *w)
{
    if (w->count == 0)
        return;
    block *b = &w->blocks[below(w, (uint64_t)w->count)];
    size_t bytes = one_in(w, 2) ? 1 + below(w, b->bytes) : b->bytes + below(w, w->granule);
    weir_status status = weir_resize(w->clients[b->client].client, b->start, bytes, w->streams[b->stream]);
    if (status == WEIR_ERR_BUSY)
        assert_true(is_away_or_moved(w, b));
    else if (status != WEIR_ERR_NO_ROOM && !may_be_refused(w, status)) {
        ok(status);
        weir_block_details details = WEIR_INIT(weir_block_details);
        ok(weir_block_info(b->start, &details));
        b->charged = details.charged;
        if (b->bytes > bytes || is_away_or_moved(w, b)) { /* what is there stays as it was */
            b->bytes = b->bytes < bytes ? b->bytes : bytes;
            return;
        }
        b->bytes = bytes;
        w->clients[b->client].written |= WEIR_CLASS_BIT(b->memory_class);
        settle(w); /* a launch may have written it on another stream */
        write_anew(w, b);
    }
}

/* Declared work on a stream that need not be the block's. */
static void step_launch(world *w)
{
    if (w->count == 0)
        return;
    block *b = &w->blocks[below(w, (uint64_t)w->count)];
    client *c = &w->clients[b->client];
    weir_stream stream = w->streams[1 + below(w, STREAMS - 1)];
    weir_use use = {.block = {.pointer = b->start}, .access = WEIR_ACCESS_WRITE};
    weir_launch *launch;
    settle(w); /* what was queued on its own stream was not declared */
    weir_status status = weir_launch_begin(w->runtime, stream, &use, 1, &launch);
    if (status == WEIR_ERR_BUSY) {
        assert_true(c->suspended);
        return;
    }
    ok(status);
    if (!c->suspended || c->shown) {
        b->fill = (int)below(w, 256);
        c->written |= WEIR_CLASS_BIT(b->memory_class);
        ok(weir_fill(w->runtime, b->start, (uint8_t)b->fill, b->bytes, stream));
    }
    snapshot before = take_snapshot(w->runtime);
    if (!c->suspended && one_in(w, 4)) { /* it leaves only if the block does not */
        status = weir_client_suspend(c->client, NULL, NULL);
        if (status == WEIR_ERR_BUSY)
            assert_int_equal(take_snapshot(w->runtime).device.live, before.device.live);
        else
            ok(status);
        c->suspended = status == WEIR_OK;
        c->shown = false;
        c->dropped = 0;
        c->resumes = c->keeps = false;
    }
    ok(weir_launch_end(launch));
}

static void step_suspend(world *w)
{
    int which = (int)below(w, CLIENTS);
    client *c = &w->clients[which];
    const uint32_t all = WEIR_CLASS_BIT(4) - 1;
    weir_suspend_options o = {.struct_size = sizeof o,
                              .stay = one_in(w, 4) ? (uint32_t)below(w, 16) : 0,
                              .drop = one_in(w, 3) ? (uint32_t)below(w, 16) : 0,
                              .verify = one_in(w, 2),
                              .keep_guarantee = one_in(w, 2),
                              .resume_on_alloc = one_in(w, 2),
                              .folder = one_in(w, 3) ? "." : NULL,
                              .show = !host_writes() && one_in(w, 3)}; /* on the host it counts in the same ledger */
    weir_residency r = WEIR_INIT(weir_residency);
    o.unwritten = (one_in(w, 2) ? all : (uint32_t)below(w, 16)) & (o.verify ? all : all & ~c->written);
    bool was = c->suspended;
    weir_status status = weir_client_suspend(c->client, &o, &r);
    if (was) {
        assert_int_equal(status, WEIR_ERR_BUSY);
        return;
    }
    ok(status);
    *c = (client){c->client, true, o.resume_on_alloc, o.keep_guarantee, o.show, o.drop, c->written, c->guaranteed};
    assert_true(r.released >= r.away);
    uint64_t pages = which == CLIENTS - 1 ? pages_there(w) * w->granule : 0;
    assert_true(o.show ? r.shown <= r.away && r.shown + pages >= r.away : r.shown == 0);
    look_at_shown(w, which);
    w->shown += r.shown > 0;
    w->suspended++;
    w->trusted += r.trusted > 0;
    w->partly += r.away > 0 && r.stayed > 0;
}

static void step_resume(world *w)
{
    int which = (int)below(w, CLIENTS);
    client *c = &w->clients[which];
    int stream = (int)below(w, STREAMS);
    uint64_t away = residency(c->client).away;
    bool must_fail = c->suspended && committed(w) + away > w->budget && c->guaranteed == 0;
    bool must_work = committed(w) + away + 2 * (uint64_t)(w->count + PAGES) * w->granule <= w->budget;
    if (must_work) /* each block keeps two chunks at most in part */
        settle(w);
    bool whole = one_in(w, 2);
    uint64_t came = 0;
    weir_resume_options some = {.struct_size = sizeof some,
                                .most = one_in(w, 2) ? 1 : below(w, 8 * w->granule),
                                .classes = one_in(w, 2) ? 0 : (uint32_t)below(w, 16)};
    weir_status status = whole ? weir_client_resume(c->client, w->streams[stream])
                               : weir_client_resume_some(c->client, &some, w->streams[stream], &came);
    w->granted += must_work && away > 0 && c->guaranteed == 0;
    assert_true(status == WEIR_OK || !must_work || c->guaranteed > 0);
    if (may_be_refused(w, status)) {
        assert_true(c->suspended);
        assert_int_equal(residency(c->client).away, away);
        return;
    }
    ok(status);
    weir_residency r = residency(c->client);
    if (!whole && r.state == WEIR_SUSPENDED) {
        uint64_t pages = which == CLIENTS - 1 ? pages_there(w) * w->granule : 0;
        assert_true(r.away + came <= away && r.away + came + pages >= away);
        assert_int_equal(r.shown, c->shown ? r.away : 0);
        w->pieces += came > 0;
        look_at_shown(w, which);
        return;
    }
    assert_false(must_fail);
    if (c->suspended)
        note_resumed(w, which);
}

/* One leaves, and another comes. A refusal leaves both as they were, but for contents that were to be dropped. */
static void step_exchange(world *w)
{
    int which = (int)below(w, CLIENTS), comes = (which + 1 + (int)below(w, CLIENTS - 1)) % CLIENTS;
    client *c = &w->clients[which];
    const uint32_t all = WEIR_CLASS_BIT(4) - 1;
    weir_suspend_options o = {.struct_size = sizeof o,
                              .stay = one_in(w, 4) ? (uint32_t)below(w, 16) : 0,
                              .drop = one_in(w, 3) ? (uint32_t)below(w, 16) : 0,
                              .verify = one_in(w, 2),
                              .keep_guarantee = one_in(w, 2),
                              .resume_on_alloc = one_in(w, 2),
                              .folder = one_in(w, 3) ? "." : NULL};
    weir_residency r = WEIR_INIT(weir_residency);
    o.unwritten = (one_in(w, 2) ? all : (uint32_t)below(w, 16)) & (o.verify ? all : all & ~c->written);
    bool can = !c->suspended && w->clients[comes].suspended;
    weir_status status =
        weir_client_exchange(c->client, &o, w->clients[comes].client, w->streams[below(w, STREAMS)], &r);
    if (!can) {
        assert_int_equal(status, WEIR_ERR_BUSY);
        return;
    }
    if (may_be_refused(w, status)) {
        assert_int_equal(residency(c->client).state, WEIR_RESIDENT);
        assert_int_equal(residency(w->clients[comes].client).state, WEIR_SUSPENDED);
        for (int i = 0; i < w->count; i++)
            if (w->blocks[i].client == which && (o.drop & WEIR_CLASS_BIT(w->blocks[i].memory_class)))
                look_at_dropped(w, &w->blocks[i]);
        return;
    }
    ok(status);
    *c = (client){c->client, true, o.resume_on_alloc, o.keep_guarantee, false, o.drop, c->written, c->guaranteed};
    assert_true(r.released >= r.away && r.shown == 0);
    note_resumed(w, comes);
    w->exchanged += r.away > 0;
    w->trusted += r.trusted > 0;
}

static void step_pages(world *w)
{
    const client *c = &w->clients[CLIENTS - 1];
    uint64_t at = below(w, PAGES), page = w->granule;
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = PAGES * page, .page = page};
    if (!w->elastic) {
        weir_status status = weir_elastic_create(c->client, &o, &w->elastic);
        if (status != WEIR_OK)
            assert_true(c->suspended);
        for (int i = 0; i < PAGES; i++)
            w->pages[i] = -1;
        return;
    }
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(w->elastic, &stats));
    unsigned char *base = (unsigned char *)stats.base + at * page, *there = malloc(page);
    if (c->suspended) {
        free(there);
        return;
    }
    if (w->pages[at] < 0) {
        weir_status status = weir_elastic_commit(w->elastic, at * page, page, WEIR_STREAM_HOST);
        if (!may_be_refused(w, status)) {
            ok(status);
            w->pages[at] = (int)below(w, 255);
            ok(weir_fill(w->runtime, base, (uint8_t)w->pages[at], page, WEIR_STREAM_HOST));
        }
    } else {
        ok(weir_copy(w->runtime, there, base, page, WEIR_STREAM_HOST));
        assert_int_equal(there[0], w->pages[at]);
        assert_int_equal(memcmp(there, there + 1, page - 1), 0);
        ok(weir_elastic_release(w->elastic, at * page, page, WEIR_STREAM_HOST));
        w->pages[at] = -1;
    }
    free(there);
}

static void step_limits(world *w)
{
    client *c = &w->clients[below(w, CLIENTS)];
    uint64_t guaranteed = one_in(w, 2) ? 0 : below(w, 10) * w->granule;
    weir_status status = weir_client_set_limits(c->client, guaranteed, 0);
    if (c->suspended)
        assert_int_equal(status, WEIR_ERR_BUSY);
    else if (!may_be_refused(w, status)) {
        ok(status);
        c->guaranteed = guaranteed;
    }
}

static void step_budget(world *w)
{
    uint64_t budget = (BUDGET_GRANULES / 2 + below(w, BUDGET_GRANULES)) * w->granule, least = committed(w);
    weir_status status = weir_runtime_set_budget(w->runtime, budget);
    if (may_be_refused(w, status))
        return;
    ok(status);
    assert_true(budget >= least);
    w->budget = budget;
}

static void step_trim(world *w)
{
    if (one_in(w, 2)) {
        trim(w->runtime);
        return;
    }
    const client *c = &w->clients[below(w, CLIENTS)];
    uint64_t stored = residency(c->client).stored;
    assert_int_equal(weir_client_forget_copies(c->client), c->suspended ? 0 : stored);
}

static void (*const steps[])(world *w) = {
    step_allocate, step_allocate, step_allocate, step_free,  step_free,   step_resize, step_launch, step_suspend,
    step_suspend,  step_resume,   step_resume,   step_pages, step_limits, step_budget, step_trim,   step_exchange};
enum { KINDS = sizeof steps / sizeof steps[0] };

/* Worlds ------------------------------------------------------------------------------------------------------------ */

static void begin(world *w, uint64_t seed)
{
    static const char *const names[CLIENTS] = {"one", "two", "three"};
    *w = (world){.seed = seed, .random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};
    w->granule = host_writes() ? GRANULE : 2 * MIB;
    w->budget = BUDGET_GRANULES * w->granule;
    w->runtime = make_runtime_here(w->budget);
    for (int i = 0; i < CLIENTS; i++)
        w->clients[i].client = open_client(w->runtime, names[i], 0, 0);
    for (int i = 1; i < STREAMS; i++)
        ok(weir_stream_acquire(w->runtime, &w->streams[i]));
}

static void end(world *w)
{
    settle(w);
    if (w->elastic)
        ok(weir_elastic_destroy(w->elastic, WEIR_STREAM_HOST));
    for (int i = 0; i < w->count; i++)
        ok(weir_free(w->clients[w->blocks[i].client].client, w->blocks[i].start, WEIR_STREAM_HOST));
    settle(w);
    trim(w->runtime);
    check_empty(w->runtime);
    snapshot s = take_snapshot(w->runtime);
    assert_int_equal(s.device.held + s.device.away, 0);
    for (int i = 1; i < STREAMS; i++)
        ok(weir_stream_release(w->streams[i]));
    for (int i = 0; i < CLIENTS; i++)
        ok(weir_client_destroy(w->clients[i].client));
    ok(weir_runtime_destroy(w->runtime));
}

static uint64_t running; /* the seed of the sequence that runs */

static int tell_seed(void **state)
{
    (void)state;
    if (running)
        print_error("WEIR_TEST_SEED=%llu runs that sequence alone\n", (unsigned long long)running);
    return 0;
}

/* WEIR_TEST_SEED: that sequence alone, and each step is told. */
static void random_sequences(void **state)
{
    (void)state;
    const char *own = getenv("WEIR_TEST_SEED"), *wanted = getenv("WEIR_TEST_SEQUENCES");
    uint64_t first = own ? strtoull(own, NULL, 0) : 1;
    uint64_t count = own ? 1 : wanted ? strtoull(wanted, NULL, 0) : UNDER_TSAN ? 10 : host_writes() ? 120 : 20;
    unsigned suspended = 0, resumed = 0, refused = 0, trusted = 0, partly = 0, granted = 0, shown = 0, pieces = 0,
             used = 0, exchanged = 0;
    ok(weir_option_set("wait", "1ms"));
    for (uint64_t seed = first; seed < first + count; seed++) {
        world w;
        running = seed;
        begin(&w, seed);
        for (int i = 0; i < STEPS; i++) {
            size_t kind = below(&w, KINDS);
            if (own)
                print_message("%d: %zu\n", i, kind);
            steps[kind](&w);
            check_world(&w);
        }
        end(&w);
        suspended += w.suspended;
        resumed += w.resumed;
        refused += w.refused;
        trusted += w.trusted;
        partly += w.partly;
        granted += w.granted;
        shown += w.shown;
        pieces += w.pieces;
        used += w.used;
        exchanged += w.exchanged;
    }
    running = 0;
    ok(weir_option_set("wait", NULL));
    print_message("%u suspends (%u shown, %u allocations meanwhile), %u resumes (%u pieces), %u refusals, %u trusted, "
                  "%u partly, %u granted, %u exchanges\n",
                  suspended, shown, used, resumed, pieces, refused, trusted, partly, granted, exchanged);
    assert_true(
        own || UNDER_TSAN ||
        (resumed > 0 && refused > 0 && trusted > 0 && partly > 0 && granted > 0 && pieces > 0 && exchanged > 0));
    assert_true(own || UNDER_TSAN || host_writes() || (shown > 0 && used > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(random_sequences, tell_seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
