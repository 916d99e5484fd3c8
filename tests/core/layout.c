/* Where memory lies: every byte that is held is in one span of one segment, and the spans say whose it is. On the device that
 * WEIR_TEST_DEVICE names, or the host, with each resource. */
#include "info.h"
#include "core.h"

#include "sim/device/device.h"

enum { BUDGET = 48 << 20, SLOTS = 60, STEPS = 600, CLIENTS = 3, MOST_SEGMENTS = 4096 };

static const char *const resources[] = {"mapped", "direct", "async", "guard(mapped)", "segments"};

typedef struct slot {
    weir_block block;
    size_t bytes;
    int client;
    char tag[48];
    weir_class memory_class;
    bool seen;
    uint64_t found; /* bytes of its spans */
} slot;

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *clients[CLIENTS];
    weir_stream streams[2];
    slot slots[SLOTS];
    uint64_t random;
} fixture;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static bool on_sim(void)
{
    return strncmp(device(), "sim", 3) == 0;
}

static void begin(fixture *f, const char *resource)
{
    if (on_sim())
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    *f = (fixture){.random = 88172645463325252u};
    ok(weir_runtime_create(device(), &options, &f->runtime));
    f->clients[0] = open_client(f->runtime, "ann", 0, 0);
    f->clients[1] = open_client(f->runtime, "bob", 0, 0);
    f->clients[2] = open_client(f->runtime, "cid", 0, 0);
    for (int i = 0; i < 2; i++)
        ok(weir_stream_acquire(f->runtime, &f->streams[i]));
}

static void end(fixture *f)
{
    for (int i = 0; i < 2; i++)
        ok(weir_stream_synchronize(f->streams[i]));
    ok(weir_runtime_trim(f->runtime, NULL, NULL)); /* what guards keep back, too */
    check_empty(f->runtime);
    for (int i = 0; i < CLIENTS; i++)
        ok(weir_client_destroy(f->clients[i]));
    for (int i = 0; i < 2; i++)
        ok(weir_stream_release(f->streams[i]));
    ok(weir_runtime_destroy(f->runtime));
}

/* A walk that checks ---------------------------------------------------------------------------------------------- */

typedef struct look {
    fixture *f;
    weir_segment segment; /* the last one */
    uint64_t told, spans; /* of it */
    uint64_t segments, bytes[WEIR_SPAN_COUNT];
    bool overlapping; /* segments may: the pool has given addresses anew */
    weir_segment *all;
} look;

static void end_segment(const look *l)
{
    assert_int_equal(l->told, l->segment.bytes);
    assert_int_equal(l->spans, l->segment.spans);
}

static void check_block(look *l, const weir_span *span)
{
    slot *s = l->f->slots;
    while (s < l->f->slots + SLOTS && s->block.pointer != span->block.pointer)
        s++;
    assert_true(s < l->f->slots + SLOTS);
    assert_int_equal(span->block.generation, s->block.generation);
    assert_int_equal(span->requested, s->bytes);
    assert_true(span->charged >= s->bytes && span->bytes <= span->charged);
    assert_ptr_equal(span->client, l->f->clients[s->client]);
    assert_string_equal(span->client_name, client_details(l->f->clients[s->client]).name);
    assert_string_equal(span->tag, s->tag);
    assert_int_equal(span->memory_class, s->memory_class);
    s->found += span->bytes;
    if (s->found == span->charged)
        s->seen = true;
}

static void check_span(const weir_segment *segment, const weir_span *span, void *user)
{
    look *l = user;
    if (l->segments == 0 || segment->number != l->segment.number) {
        if (l->segments > 0)
            end_segment(l);
        assert_int_equal(segment->number, l->segments);
        l->segment = *segment;
        l->told = l->spans = 0;
        assert_true(l->segments < MOST_SEGMENTS);
        l->all[l->segments++] = *segment;
    }
    assert_true(span->bytes > 0 && (unsigned)span->state < WEIR_SPAN_COUNT);
    if (segment->address)
        assert_ptr_equal(span->address, (const char *)segment->address + l->told);
    else
        assert_null(span->address);
    l->told += span->bytes;
    l->spans++;
    l->bytes[span->state] += span->bytes;
    if (span->state == WEIR_SPAN_LIVE)
        check_block(l, span);
    if (span->state == WEIR_SPAN_FREE || span->state == WEIR_SPAN_KEPT || span->state == WEIR_SPAN_ORDERED)
        assert_null(span->block.pointer);
}

static int by_address(const void *a, const void *b)
{
    const weir_segment *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static void check_apart(const look *l)
{
    qsort(l->all, l->segments, sizeof *l->all, by_address);
    for (uint64_t i = 1; i < l->segments; i++)
        if (l->all[i - 1].address && !l->overlapping)
            assert_true((const char *)l->all[i - 1].address + l->all[i - 1].bytes <= (const char *)l->all[i].address);
}

/* Frees pass by themselves: only where the book is the same before and after, it is that of the walk. */
static weir_layout_totals walk(fixture *f, bool overlapping)
{
    static weir_segment all[MOST_SEGMENTS];
    for (;;) {
        look l = {.f = f, .overlapping = overlapping, .all = all};
        weir_layout_totals t = WEIR_INIT(weir_layout_totals);
        for (int i = 0; i < SLOTS; i++) {
            f->slots[i].seen = f->slots[i].block.pointer == NULL;
            f->slots[i].found = 0;
        }
        snapshot before = take_snapshot(f->runtime);
        ok(weir_layout_walk(f->runtime, check_span, &l, &t));
        snapshot after = take_snapshot(f->runtime);
        if (before.device.pending != after.device.pending || before.device.held != after.device.held)
            continue;
        if (l.segments > 0)
            end_segment(&l);
        check_apart(&l);
        const weir_stats *d = &after.device;
        assert_int_equal(t.segments, l.segments);
        assert_memory_equal(t.bytes, l.bytes, sizeof l.bytes);
        assert_int_equal(t.held, d->held);
        assert_int_equal(t.in_hand + t.bytes[WEIR_SPAN_BUSY] + t.bytes[WEIR_SPAN_PROMISED], 0);
        assert_int_equal(t.bytes[WEIR_SPAN_LIVE], d->live);
        assert_int_equal(t.bytes[WEIR_SPAN_PENDING], d->pending);
        assert_int_equal(t.bytes[WEIR_SPAN_THREAD_CACHED], d->thread_cached);
        assert_int_equal(t.bytes[WEIR_SPAN_SPARE], d->spare);
        assert_int_equal(t.bytes[WEIR_SPAN_FREE] + t.bytes[WEIR_SPAN_ORDERED] + t.bytes[WEIR_SPAN_KEPT] +
                             t.bytes[WEIR_SPAN_THREAD_CACHED],
                         d->cached);
        for (int i = 0; i < SLOTS; i++)
            assert_true(f->slots[i].seen);
        return t;
    }
}

/* Any mixture ------------------------------------------------------------------------------------------------------ */

static void fill(fixture *f, slot *s)
{
    uint64_t r = next_random(&f->random);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 1 + next_random(&f->random) % (UINT64_C(1) << (6 + r % 14)),
                            .alignment = r >> 20 & 7 ? 0 : 4096,
                            .stream = r >> 30 & 3 ? f->streams[r >> 33 & 1] : WEIR_STREAM_HOST,
                            .memory_class = (weir_class)((r >> 40) % WEIR_CLASS_COUNT),
                            .tag = r >> 50 & 1 ? "layer" : NULL};
    s->client = (int)((r >> 44) % CLIENTS);
    s->bytes = request.bytes;
    s->memory_class = request.memory_class;
    snprintf(s->tag, sizeof s->tag, "%s", request.tag ? request.tag : "");
    if (weir_alloc_with(f->clients[s->client], &request, &s->block) != WEIR_OK)
        *s = (slot){0};
}

static void drop(fixture *f, slot *s)
{
    uint64_t r = next_random(&f->random);
    weir_stream stream = r & 1 ? f->streams[r >> 1 & 1] : WEIR_STREAM_HOST;
    if (r >> 5 & 1)
        ok(weir_use_record(f->runtime, (weir_block){.pointer = s->block.pointer}, f->streams[r >> 6 & 1]));
    ok(weir_free_block(f->clients[s->client], s->block, stream));
    *s = (slot){0};
}

static void step(fixture *f)
{
    slot *s = &f->slots[next_random(&f->random) % SLOTS];
    uint64_t r = next_random(&f->random);
    if (!s->block.pointer)
        fill(f, s);
    else if (r % 4 == 0 &&
             weir_resize(f->clients[s->client], s->block.pointer, 1 + s->bytes / 2, f->streams[0]) == WEIR_OK)
        s->bytes = 1 + s->bytes / 2;
    else
        drop(f, s);
    if (r % 97 == 0)
        ok(weir_runtime_trim(
            f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = r >> 32 & (4 * MIB - 1)},
            NULL));
    if (r % 31 == 0)
        ok(weir_stream_synchronize(f->streams[r >> 20 & 1]));
}

static void every_byte_that_is_held_is_told_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof resources / sizeof resources[0]; k++) {
        fixture f;
        uint64_t states = 0;
        begin(&f, resources[k]);
        bool pool = strcmp(resources[k], "async") == 0;
        for (int i = 0; i < STEPS; i++) {
            step(&f);
            weir_layout_totals t = walk(&f, pool);
            for (int s = 0; s < WEIR_SPAN_COUNT; s++)
                states |= (uint64_t)(t.bytes[s] > 0) << s;
        }
        assert_true(states & 1u << WEIR_SPAN_LIVE);
        assert_true(states & (1u << WEIR_SPAN_FREE | 1u << WEIR_SPAN_KEPT));
        for (int i = 0; i < SLOTS; i++)
            if (f.slots[i].block.pointer)
                drop(&f, &f.slots[i]);
        end(&f);
    }
}

/* Each state ------------------------------------------------------------------------------------------------------- */

static weir_layout_totals totals(weir_runtime *runtime)
{
    weir_layout_totals t = WEIR_INIT(weir_layout_totals);
    ok(weir_layout_walk(runtime, NULL, NULL, &t));
    return t;
}

typedef struct ordered {
    weir_stream stream;
    uint64_t bytes;
} ordered;

static void find_ordered(const weir_segment *segment, const weir_span *span, void *user)
{
    ordered *o = user;
    (void)segment;
    if (span->state == WEIR_SPAN_ORDERED && span->stream.id == o->stream.id)
        o->bytes += span->bytes;
}

static void what_waits_says_for_what(void **state)
{
    (void)state;
    fixture f;
    gate g = GATE;
    begin(&f, "mapped");
    void *p = allocate(f.clients[0], 3 * MIB, f.streams[0], WEIR_CLASS_KV),
         *q = allocate(f.clients[1], MIB, f.streams[1], WEIR_CLASS_KV);
    if (!on_sim())
        ok(weir_call(f.runtime, pass_gate, &g, f.streams[0]));
    ok(weir_free(f.clients[0], p, f.streams[0]));
    ok(weir_use_record(f.runtime, (weir_block){.pointer = q}, f.streams[0]));
    ok(weir_free(f.clients[1], q, f.streams[1]));
    if (!on_sim()) {
        ordered o = {.stream = f.streams[0]};
        weir_layout_totals t = WEIR_INIT(weir_layout_totals);
        ok(weir_layout_walk(f.runtime, find_ordered, &o, &t));
        uint64_t thread_cached = t.bytes[WEIR_SPAN_THREAD_CACHED];
        assert_int_equal(thread_cached + o.bytes, 3 * MIB);
        assert_int_equal(t.bytes[WEIR_SPAN_ORDERED], o.bytes);
        assert_int_equal(t.bytes[WEIR_SPAN_PENDING], MIB);
        assert_int_equal(t.bytes[WEIR_SPAN_LIVE], 0);
        open_gate(&g);
    }
    ok(weir_stream_synchronize(f.streams[0]));
    ok(weir_runtime_trim(f.runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX},
                         NULL)); /* flushes thread caches */
    weir_layout_totals t = totals(f.runtime);
    assert_int_equal(t.bytes[WEIR_SPAN_PENDING] + t.bytes[WEIR_SPAN_ORDERED] + t.bytes[WEIR_SPAN_THREAD_CACHED], 0);
    assert_int_equal(t.bytes[WEIR_SPAN_FREE], t.held);
    end(&f);
}

static void what_a_thread_cache_keeps_is_thread_cached(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "mapped");
    void *p = allocate(f.clients[0], 5000, f.streams[0], WEIR_CLASS_KV);
    ok(weir_free(f.clients[0], p, f.streams[0]));
    weir_layout_totals t = totals(f.runtime);
    assert_int_equal(t.bytes[WEIR_SPAN_THREAD_CACHED], 5120);
    assert_int_equal(t.bytes[WEIR_SPAN_LIVE], 0);
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    ok(weir_stream_synchronize(f.streams[0]));
    assert_int_equal(totals(f.runtime).bytes[WEIR_SPAN_THREAD_CACHED], 0);
    end(&f);
}

/* Calls from within, and beside ------------------------------------------------------------------------------------ */

typedef struct caller {
    fixture *f;
    int calls;
    void *mine;
} caller;

static void call_weir(const weir_segment *segment, const weir_span *span, void *user)
{
    caller *c = user;
    (void)segment;
    c->calls++;
    if (span->state == WEIR_SPAN_LIVE && span->block.pointer != c->mine)
        ok(weir_free_block(c->f->clients[0], span->block, WEIR_STREAM_HOST)); /* what is told is a copy */
    if (!c->mine)
        c->mine = allocate(c->f->clients[1], 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    (void)totals(c->f->runtime);
}

static void a_walk_may_be_answered_with_calls(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "mapped");
    caller c = {.f = &f};
    for (int i = 0; i < 5; i++)
        (void)allocate(f.clients[0], 10000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_layout_walk(f.runtime, call_weir, &c, NULL));
    assert_true(c.calls >= 5);
    assert_int_equal(take_snapshot(f.runtime).device.live, 2 * MIB);
    ok(weir_free(f.clients[1], c.mine, WEIR_STREAM_HOST));
    end(&f);
}

static void count_only(const weir_segment *segment, const weir_span *span, void *user)
{
    look *l = user;
    if (l->segments == 0 || segment->number != l->segment.number) {
        if (l->segments > 0)
            end_segment(l);
        l->segments++;
        l->segment = *segment;
        l->told = l->spans = 0;
    }
    l->told += span->bytes;
    l->spans++;
}

typedef struct worker {
    fixture *f;
    int number;
} worker;

static void *come_and_go(void *user)
{
    const worker *w = user;
    uint64_t random = 7919u + (uint64_t)w->number;
    void *held[8] = {0};
    for (int i = 0; i < (UNDER_TSAN ? 1000 : 8000); i++) {
        uint64_t r = next_random(&random);
        void **p = &held[r % 8];
        weir_stream stream = w->f->streams[r >> 8 & 1];
        if (*p)
            ok(weir_free(w->f->clients[w->number], *p, stream));
        *p = NULL;
        if (r >> 9 & 1 &&
            weir_alloc(w->f->clients[w->number], 1 + (r >> 20 & (MIB - 1)), stream, WEIR_CLASS_KV, p) != WEIR_OK)
            *p = NULL;
        if (i % 501 == 0)
            ok(weir_runtime_trim(w->f->runtime, NULL, NULL));
    }
    for (int i = 0; i < 8; i++)
        if (held[i])
            ok(weir_free(w->f->clients[w->number], held[i], w->f->streams[0]));
    return NULL;
}

static void a_walk_beside_threads_adds_up(void **state)
{
    (void)state;
    if (on_sim()) /* which is driven by one thread */
        skip();
    fixture f;
    pthread_t threads[CLIENTS];
    worker workers[CLIENTS];
    begin(&f, "mapped");
    for (int i = 0; i < CLIENTS; i++) {
        workers[i] = (worker){&f, i};
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &workers[i]), 0);
    }
    for (int i = 0; i < 300; i++) {
        look l = {.f = &f};
        weir_layout_totals t = WEIR_INIT(weir_layout_totals);
        ok(weir_layout_walk(f.runtime, count_only, &l, &t));
        uint64_t sum = t.in_hand;
        for (int s = 0; s < WEIR_SPAN_COUNT; s++)
            sum += t.bytes[s];
        assert_int_equal(sum, t.held);
        assert_true(t.in_hand <= BUDGET);
        if (l.segments > 0)
            end_segment(&l);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(totals(f.runtime).in_hand, 0);
    end(&f);
}

/* Pinned memory counts in the host's ledger, and is told there. */
static void the_host_tells_what_others_have_there(void **state)
{
    (void)state;
    if (strcmp(device(), "host") == 0)
        skip(); /* which has one kind of memory */
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *host = options.host = make_runtime(MIB), *runtime;
    if (on_sim())
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    ok(weir_runtime_create(device(), &options, &runtime));
    weir_client *client = open_client(runtime, "ann", 0, 0);
    weir_request request = {
        .struct_size = sizeof request, .bytes = 5000, .kind = WEIR_KIND_PINNED, .memory_class = WEIR_CLASS_KV};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    weir_layout_totals t = totals(host);
    assert_int_equal(t.bytes[WEIR_SPAN_LIVE], 5120);
    assert_int_equal(t.in_hand, 0);
    assert_int_equal(t.held, take_snapshot(host).device.held);
    assert_int_equal(totals(runtime).bytes[WEIR_SPAN_LIVE], 0);
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(host));
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_layout_totals t = {0};
    fails(WEIR_ERR_INVALID, weir_layout_walk(NULL, NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_layout_walk(runtime, NULL, NULL, &t));
    assert_string_equal(weir_name_of(WEIR_NAMES_SPAN, WEIR_SPAN_ORDERED), "ordered");
    assert_string_equal(weir_name_of(WEIR_NAMES_SPAN, WEIR_SPAN_COUNT), "?");
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_that_is_held_is_told_once),
        cmocka_unit_test(what_waits_says_for_what),
        cmocka_unit_test(what_a_thread_cache_keeps_is_thread_cached),
        cmocka_unit_test(a_walk_may_be_answered_with_calls),
        cmocka_unit_test(a_walk_beside_threads_adds_up),
        cmocka_unit_test(the_host_tells_what_others_have_there),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
