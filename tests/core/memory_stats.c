/* Statistics in PyTorch's names, against a book of the test's own, the ledger and a walk. On the device that WEIR_TEST_DEVICE
 * names, or the host, with each resource. */
#include "core.h"

#include "sim/device/device.h"

enum { BUDGET = 48 << 20, SLOTS = 50, STEPS = 700 };

static const char *const resources[] = {"mapped", "segments", "direct", "async"};

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *clients[2];
    weir_stream stream;
    struct {
        void *pointer;
        size_t bytes, charged;
        int client;
    } slots[SLOTS];
    uint64_t random;
    weir_memory_stats book; /* of allocated_bytes, requested_bytes and allocation */
} fixture;

static void begin(fixture *f, const char *resource, const char *cache)
{
    if (strncmp(device(), "sim", 3) == 0)
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    ok(weir_option_set("thread_cache", cache));
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    *f = (fixture){.random = 88172645463325252u};
    ok(weir_runtime_create(device(), &options, &f->runtime));
    f->clients[0] = open_client(f->runtime, "ann", 0, 0);
    f->clients[1] = open_client(f->runtime, "bob", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
}

static void end(fixture *f)
{
    ok(weir_stream_synchronize(f->stream));
    check_empty(f->runtime);
    for (int i = 0; i < 2; i++)
        ok(weir_client_destroy(f->clients[i]));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    ok(weir_option_set("thread_cache", NULL));
}

static weir_memory_stats stats_of(weir_runtime *runtime)
{
    weir_memory_stats s = WEIR_INIT(weir_memory_stats);
    ok(weir_memory_stats_info(runtime, &s));
    return s;
}

/* The book --------------------------------------------------------------------------------------------------------- */

static void came(weir_gauge *g, uint64_t by)
{
    g->current += by;
    g->allocated += by;
    g->peak = g->peak > g->current ? g->peak : g->current;
}

static void went(weir_gauge *g, uint64_t by)
{
    g->current -= by;
    g->freed += by;
}

static size_t charged_at(void *pointer)
{
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &d));
    return d.charged;
}

static void fill(fixture *f, int i)
{
    uint64_t r = next_random(&f->random);
    size_t bytes = 1 + next_random(&f->random) % (UINT64_C(1) << (6 + r % 15));
    f->slots[i].client = (int)(r >> 20 & 1);
    if (weir_alloc(f->clients[r >> 20 & 1], bytes, r >> 21 & 1 ? f->stream : WEIR_STREAM_HOST, WEIR_CLASS_KV,
                   &f->slots[i].pointer) != WEIR_OK) {
        f->slots[i].pointer = NULL;
        return;
    }
    f->slots[i].bytes = bytes;
    f->slots[i].charged = charged_at(f->slots[i].pointer);
    came(&f->book.allocated_bytes, f->slots[i].charged);
    came(&f->book.requested_bytes, bytes);
    came(&f->book.allocation, 1);
}

static void drop(fixture *f, int i)
{
    uint64_t r = next_random(&f->random);
    if (r & 1)
        ok(weir_use_record(f->runtime, (weir_block){.pointer = f->slots[i].pointer}, f->stream));
    ok(weir_free(f->clients[f->slots[i].client], f->slots[i].pointer, r >> 1 & 1 ? f->stream : WEIR_STREAM_HOST));
    went(&f->book.allocated_bytes, f->slots[i].charged);
    went(&f->book.requested_bytes, f->slots[i].bytes);
    went(&f->book.allocation, 1);
    f->slots[i].pointer = NULL;
}

static void step_gauge(weir_gauge *g, uint64_t before, uint64_t now)
{
    if (now > before)
        came(g, now - before);
    else
        went(g, before - now);
}

static void change(fixture *f, int i)
{
    size_t bytes = 1 + next_random(&f->random) % (2 * f->slots[i].bytes);
    if (weir_resize(f->clients[f->slots[i].client], f->slots[i].pointer, bytes, f->stream) != WEIR_OK)
        return;
    size_t charged = charged_at(f->slots[i].pointer);
    step_gauge(&f->book.allocated_bytes, f->slots[i].charged, charged);
    step_gauge(&f->book.requested_bytes, f->slots[i].bytes, bytes);
    f->slots[i].bytes = bytes;
    f->slots[i].charged = charged;
}

static void step(fixture *f)
{
    uint64_t r = next_random(&f->random);
    int i = (int)(r % SLOTS);
    if (!f->slots[i].pointer)
        fill(f, i);
    else if (r >> 20 & 3)
        drop(f, i);
    else
        change(f, i);
    if (r % 61 == 0)
        ok(weir_runtime_trim(
            f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = r >> 32 & (2 * MIB - 1)},
            NULL));
    if (r % 37 == 0)
        ok(weir_stream_synchronize(f->stream));
}

/* What a walk finds ------------------------------------------------------------------------------------------------ */

typedef struct found {
    uint64_t segments, split, split_segments;
    uint32_t number;
    uint64_t unused;
    bool used;
} found;

static void end_segment(found *w)
{
    if (w->used && w->unused > 0) {
        w->split += w->unused;
        w->split_segments++;
    }
    w->unused = 0;
    w->used = false;
}

static void look(const weir_segment *segment, const weir_span *span, void *user)
{
    found *w = user;
    if (segment->number + 1 != w->number) {
        end_segment(w);
        w->number = segment->number + 1;
        w->segments += segment->address || span->state == WEIR_SPAN_SPARE;
    }
    if (span->state == WEIR_SPAN_FREE || span->state == WEIR_SPAN_ORDERED)
        w->unused += span->bytes;
    else if (span->state != WEIR_SPAN_SPARE)
        w->used = true;
}

static void check_gauge(const weir_gauge *g)
{
    assert_int_equal(g->current, g->allocated - g->freed);
    assert_true(g->peak >= g->current);
}

static void check_same_gauge(const weir_gauge *is, const weir_gauge *wanted)
{
    assert_int_equal(is->current, wanted->current);
    assert_int_equal(is->peak, wanted->peak);
    assert_int_equal(is->allocated, wanted->allocated);
    assert_int_equal(is->freed, wanted->freed);
}

static void check_all(const fixture *f, bool splits, bool exact)
{
    weir_memory_stats s;
    snapshot before, after;
    found w;
    do { /* frees pass by themselves */
        w = (found){0};
        before = take_snapshot(f->runtime);
        ok(weir_layout_walk(f->runtime, look, &w, NULL));
        end_segment(&w);
        s = stats_of(f->runtime);
        after = take_snapshot(f->runtime);
    } while (before.device.pending != after.device.pending || before.device.held != after.device.held);
    const weir_stats *d = &after.device;
    const weir_gauge *const all[] = {&s.allocated_bytes,      &s.active_bytes, &s.requested_bytes, &s.reserved_bytes,
                                     &s.inactive_split_bytes, &s.allocation,   &s.segment,         &s.active,
                                     &s.inactive_split};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check_gauge(all[i]);
    check_same_gauge(&s.allocated_bytes, &f->book.allocated_bytes);
    check_same_gauge(&s.allocation, &f->book.allocation);
    assert_int_equal(s.requested_bytes.current, f->book.requested_bytes.current);
    assert_int_equal(s.requested_bytes.allocated, f->book.requested_bytes.allocated);
    assert_true(s.requested_bytes.peak <= f->book.requested_bytes.peak);
    if (exact)
        assert_int_equal(s.requested_bytes.peak, f->book.requested_bytes.peak);
    assert_int_equal(s.allocated_bytes.current, d->live);
    assert_int_equal(s.active_bytes.current, d->live + d->pending);
    assert_int_equal(s.active_bytes.peak, d->peak);
    assert_true(s.active.current >= s.allocation.current &&
                (d->pending > 0 || s.active.current == s.allocation.current));
    assert_int_equal(s.reserved_bytes.current, d->held);
    assert_int_equal(s.reserved_bytes.peak, d->peak_held);
    assert_int_equal(s.segment.current, w.segments);
    assert_int_equal(s.inactive_split_bytes.current, splits ? w.split : 0);
    assert_int_equal(s.inactive_split.current, splits ? w.split_segments : 0);
    assert_int_equal(s.num_ooms, d->refusals);
    uint64_t retries = 0;
    for (int rung = WEIR_RUNG_REMAP; rung < WEIR_RUNG_COUNT; rung++)
        retries += d->ladder[rung];
    assert_int_equal(s.num_alloc_retries, retries);
}

static void the_books_agree(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof resources / sizeof resources[0]; k++)
        for (int caches = 0; caches < 2; caches++) {
            fixture f;
            begin(&f, resources[k], caches ? NULL : "0");
            for (int i = 0; i < STEPS; i++) {
                step(&f);
                check_all(&f, k < 2, !caches);
            }
            assert_true(k >= 2 || stats_of(f.runtime).inactive_split_bytes.peak > 0);
            assert_true(k > 0 || !caches || take_snapshot(f.runtime).device.hits > 0);
            for (int i = 0; i < SLOTS; i++)
                if (f.slots[i].pointer)
                    drop(&f, i);
            end(&f);
        }
}

/* Starting again --------------------------------------------------------------------------------------------------- */

static void peaks_and_sums_start_again(void **state)
{
    (void)state;
    fixture f;
    void *none;
    begin(&f, "mapped", NULL);
    void *p = allocate(f.clients[0], 1000, f.stream, WEIR_CLASS_KV),
         *q = allocate(f.clients[0], 3 * MIB, f.stream, WEIR_CLASS_KV);
    ok(weir_free(f.clients[0], q, f.stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.clients[0], 2 * BUDGET, f.stream, WEIR_CLASS_KV, &none));
    weir_memory_stats before = stats_of(f.runtime);
    assert_int_equal(before.requested_bytes.peak, 3 * MIB + 1000);
    assert_int_equal(before.allocated_bytes.peak, 3 * MIB + 1024);
    assert_int_equal(before.num_ooms, 1);
    ok(weir_stats_reset(f.runtime, WEIR_RESET_PEAKS));
    weir_memory_stats s = stats_of(f.runtime);
    assert_int_equal(s.allocated_bytes.peak, 1024);
    assert_int_equal(s.requested_bytes.peak, 1000);
    assert_int_equal(s.allocation.peak, 1);
    assert_int_equal(s.inactive_split_bytes.peak, s.inactive_split_bytes.current);
    assert_int_equal(s.reserved_bytes.peak, s.reserved_bytes.current);
    assert_int_equal(s.allocated_bytes.allocated, 3 * MIB + 1024);
    ok(weir_stats_reset(f.runtime, WEIR_RESET_ACCUMULATED));
    s = stats_of(f.runtime);
    assert_int_equal(s.allocated_bytes.allocated + s.allocated_bytes.freed + s.num_ooms, 0);
    assert_int_equal(s.inactive_split_bytes.allocated + s.inactive_split.freed + s.segment.allocated, 0);
    assert_int_equal(s.allocated_bytes.current, 1024);
    assert_int_equal(take_snapshot(f.runtime).device.refusals, 1);
    ok(weir_free(f.clients[0], p, f.stream));
    s = stats_of(f.runtime);
    assert_int_equal(s.allocated_bytes.freed, 1024);
    assert_int_equal(s.requested_bytes.freed, 1000);
    assert_int_equal(s.allocated_bytes.current + s.requested_bytes.current, 0);
    end(&f);
}

/* Several threads at thread caches: exact when they rest. */

static void *come_and_go(void *user)
{
    const fixture *f = user;
    uint64_t random = 2463534242u;
    for (int i = 0; i < (UNDER_TSAN ? 500 : 5000); i++) {
        uint64_t r = next_random(&random);
        void *a = allocate(f->clients[0], 1 + r % 3000, f->stream, WEIR_CLASS_KV);
        void *b = allocate(f->clients[1], 1 + r % 70000, f->stream, WEIR_CLASS_SCRATCH);
        ok(weir_free(f->clients[0], a, f->stream));
        ok(weir_free(f->clients[1], b, f->stream));
    }
    return NULL;
}

static void threads_at_rest_are_exact(void **state)
{
    (void)state;
    if (strncmp(device(), "sim", 3) == 0) /* which is driven by one thread */
        skip();
    enum { THREADS = 4 };
    fixture f;
    pthread_t threads[THREADS];
    begin(&f, "mapped", NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &f), 0);
    for (int i = 0; i < 50; i++) {
        weir_memory_stats s = stats_of(f.runtime);
        assert_true(s.allocated_bytes.current <= s.reserved_bytes.current);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_stream_synchronize(f.stream));
    weir_memory_stats s = stats_of(f.runtime);
    assert_int_equal(s.allocated_bytes.current + s.requested_bytes.current + s.allocation.current + s.active.current,
                     0);
    assert_int_equal(s.allocation.allocated, THREADS * 2u * (UNDER_TSAN ? 500 : 5000));
    assert_int_equal(s.allocation.freed, s.allocation.allocated);
    assert_int_equal(s.requested_bytes.allocated, s.requested_bytes.freed);
    assert_true(s.allocated_bytes.peak <= THREADS * (3072u + 70144u));
    assert_true(s.requested_bytes.allocated < s.allocated_bytes.allocated);
    end(&f);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_memory_stats s = {0};
    fails(WEIR_ERR_INVALID, weir_memory_stats_info(NULL, &s));
    fails(WEIR_ERR_INVALID, weir_memory_stats_info(runtime, NULL));
    fails(WEIR_ERR_INVALID, weir_memory_stats_info(runtime, &s));
    fails(WEIR_ERR_INVALID, weir_stats_reset(NULL, WEIR_RESET_ACCUMULATED));
    fails(WEIR_ERR_INVALID, weir_stats_reset(runtime, 1u << 2));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_books_agree),
        cmocka_unit_test(peaks_and_sums_start_again),
        cmocka_unit_test(threads_at_rest_are_exact),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
