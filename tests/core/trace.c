/* The trace: every change of the ledger, in its order; replaying it gives the ledger. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_trace *trace;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(4 * MIB);
    f->client = open_client(f->runtime, "traced", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_trace_create(f->runtime, NULL, &f->trace));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_client_destroy(f->client));
    ok(weir_stream_release(f->stream));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(f->runtime));
    detail_names("trace");
    weir_trace_destroy(f->trace);
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_event next(weir_trace *trace)
{
    weir_event event = WEIR_INIT(weir_event);
    size_t count = 0;
    ok(weir_trace_read(trace, &event, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(event.struct_size, sizeof event);
    return event;
}

static bool at_end(weir_trace *trace)
{
    weir_event event = WEIR_INIT(weir_event);
    size_t count = 9;
    ok(weir_trace_read(trace, &event, 1, &count));
    return count == 0;
}

static void every_action_with_its_numbers(void **state)
{
    fixture *f = *state;
    uint64_t before = now_ns();
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 1000,
                            .stream = f->stream,
                            .memory_class = WEIR_CLASS_KV,
                            .tag = "cache"};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_resize(f->client, block.pointer, 2000, WEIR_STREAM_HOST));
    ok(weir_resize(f->client, block.pointer, 300, f->stream));
    ok(weir_free_block(f->client, block, f->stream));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    snapshot s = take_snapshot(f->runtime);
    weir_request large = {.struct_size = sizeof large,
                          .bytes = 5 * MIB + 1,
                          .stream = f->stream,
                          .memory_class = WEIR_CLASS_SCRATCH,
                          .tag = "big"};
    weir_block none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &large, &none));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));

    weir_event e = next(f->trace);
    uint64_t order = e.order;
    assert_int_equal(order, 1);
    assert_string_equal(e.device, "host");
    assert_int_equal(e.action, WEIR_ACTION_HOLD);
    assert_int_equal(e.held, GRANULE);
    assert_int_equal(e.object, s.device.budget);
    assert_string_equal(e.client, "");
    static const struct {
        weir_action action;
        uint64_t bytes, charged, live, pending;
    } wanted[] = {{WEIR_ACTION_ALLOCATE, 1000, 1024, 1024, 0},
                  {WEIR_ACTION_CALL, 0, 0, 1024, 0},
                  {WEIR_ACTION_RESIZE, 2000, 2048, 2048, 0},
                  {WEIR_ACTION_RESIZE, 300, 512, 512, 1536},
                  {WEIR_ACTION_DEALLOCATE, 300, 512, 0, 1536},
                  {WEIR_ACTION_SYNCHRONIZE, 0, 0, 0, 1536},
                  {WEIR_ACTION_REAP, 1536, 1536, 0, 0},
                  {WEIR_ACTION_REAP, 0, 0, 0, 0}, /* what was freed in order is anyone's, and what lies beside it */
                  {WEIR_ACTION_REFUSE, 5 * MIB + 1, 5 * MIB + 256, 0, 0}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        e = next(f->trace);
        assert_int_equal(e.action, wanted[i].action);
        assert_int_equal(e.order, ++order);
        assert_true(e.nanoseconds >= before && e.nanoseconds <= now_ns());
        before = e.nanoseconds;
        assert_true(e.thread > 0);
        if (wanted[i].bytes || e.action != WEIR_ACTION_REAP)
            assert_int_equal(e.bytes, wanted[i].bytes);
        assert_int_equal(e.charged, wanted[i].charged);
        assert_int_equal(e.live, wanted[i].live);
        assert_int_equal(e.pending, wanted[i].pending);
        assert_int_equal(e.held, GRANULE);
        assert_int_equal(e.result, e.action == WEIR_ACTION_REFUSE ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        if (e.action == WEIR_ACTION_CALL || e.action == WEIR_ACTION_SYNCHRONIZE) {
            assert_int_equal(e.stream.id, f->stream.id);
            assert_string_equal(e.client, "");
            continue;
        }
        assert_int_equal(e.object,
                         e.action == WEIR_ACTION_REFUSE ? WEIR_CAUSE_BUDGET : e.action == WEIR_ACTION_DEALLOCATE);
        if (e.action == WEIR_ACTION_REAP && e.generation == 0) {
            assert_true((char *)e.pointer <= (char *)block.pointer);
            assert_true((char *)e.pointer + e.bytes >= (char *)block.pointer + 512);
            assert_int_equal(e.stream.id, f->stream.id);
            assert_string_equal(e.client, "");
            continue;
        }
        assert_string_equal(e.client, "traced");
        assert_int_equal(e.other.id, e.action == WEIR_ACTION_REFUSE ? 0 : f->stream.id);
        if (e.action == WEIR_ACTION_REFUSE) {
            assert_null(e.pointer);
            assert_string_equal(e.tag, "big");
            assert_int_equal(e.stream.id, f->stream.id);
            assert_int_equal(e.memory_class, WEIR_CLASS_SCRATCH);
            continue;
        }
        assert_int_equal(e.memory_class, WEIR_CLASS_KV);
        assert_int_equal(e.generation, block.generation);
        assert_string_equal(e.tag, "cache");
        assert_ptr_equal(e.pointer, (char *)block.pointer + (e.bytes == 1536 ? 512 : 0));
        if (e.action == WEIR_ACTION_DEALLOCATE)
            assert_int_equal(e.stream.id, f->stream.id);
    }
    e = next(f->trace);
    assert_int_equal(e.action, WEIR_ACTION_HOLD);
    assert_int_equal(e.held, 0);
    assert_true(at_end(f->trace));
    assert_int_equal(s.device.pending, 0);
}

static void one_trace_per_runtime(void **state)
{
    fixture *f = *state;
    weir_trace *second = NULL;
    fails(WEIR_ERR_BUSY, weir_trace_create(f->runtime, NULL, &second));
    fails(WEIR_ERR_INVALID, weir_trace_create(NULL, NULL, &second));
    fails(WEIR_ERR_INVALID, weir_trace_create(f->runtime, NULL, NULL));
    weir_runtime *other = make_runtime(MIB); /* another's is its own */
    ok(weir_trace_create(other, NULL, &second));
    weir_trace_destroy(second);
    ok(weir_runtime_destroy(other));
    weir_trace_destroy(f->trace);
    weir_trace_destroy(NULL);
    void *p = allocate(f->client, 10, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* nobody records */
    ok(weir_trace_create(f->runtime, NULL, &f->trace));
    weir_event event = next(f->trace); /* from the moment it is opened, and what is live then */
    assert_int_equal(event.action, WEIR_ACTION_ALLOCATE);
    assert_ptr_equal(event.pointer, p);
    assert_true(at_end(f->trace));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    assert_int_equal(next(f->trace).action, WEIR_ACTION_DEALLOCATE);
    event = WEIR_INIT(weir_event);
    size_t count;
    fails(WEIR_ERR_INVALID, weir_trace_read(NULL, &event, 1, &count));
    fails(WEIR_ERR_INVALID, weir_trace_read(f->trace, NULL, 1, &count));
    fails(WEIR_ERR_INVALID, weir_trace_read(f->trace, &event, 1, NULL));
    event.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_trace_read(f->trace, &event, 1, &count));
    weir_trace_details details = WEIR_INIT(weir_trace_details);
    fails(WEIR_ERR_INVALID, weir_trace_info(NULL, &details));
}

static void what_does_not_fit_is_counted(void **state)
{
    fixture *f = *state;
    static const size_t capacities[] = {1, 7, 1500, 3000};
    void *first = allocate(f->client, 256, WEIR_STREAM_HOST,
                           WEIR_CLASS_KV); /* so that no HOLD comes between; a trace tells of it first */
    for (size_t k = 0; k < sizeof capacities / sizeof capacities[0]; k++) {
        size_t capacity = capacities[k], count;
        static weir_event events[4000];
        weir_trace_destroy(f->trace);
        ok(weir_trace_create(f->runtime,
                             &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = capacity},
                             &f->trace));
        for (size_t i = 0; i < 2000; i++)
            ok(weir_free(f->client, allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
        assert_int_equal(trace_details(f->trace).lost, 4001 - capacity); /* with `first` */
        events[0].struct_size = sizeof events[0];
        ok(weir_trace_read(f->trace, events, (capacity + 1) / 2, &count));
        assert_int_equal(count, (capacity + 1) / 2);
        ok(weir_free(f->client, allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
        events[count].struct_size = sizeof events[0];
        size_t more;
        ok(weir_trace_read(f->trace, events + count, 4000 - count, &more));
        uint64_t lost = trace_details(f->trace).lost;
        assert_int_equal(lost + count + more, 4003);
        for (size_t i = 0; i < count + more; i++) {
            assert_true(i == 0 || events[i].order > events[i - 1].order);
            assert_int_equal(i < capacity ? events[i].order : 0, i < capacity ? i + 1 : 0);
        }
        if (capacity >= 4)
            assert_int_equal(events[count + more - 1].order, 4003); /* the gap shows where some are missing */
    }
    ok(weir_free(f->client, first, WEIR_STREAM_HOST));
}

/* The ring grows while its oldest event stands in the middle. */
static void the_ring_grows_in_order(void **state)
{
    fixture *f = *state;
    static weir_event events[4000];
    uint64_t order = 0;
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < (part ? 1500 : 450); i++)
            ok(weir_free(f->client, allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
        size_t count;
        events[0].struct_size = sizeof events[0];
        ok(weir_trace_read(f->trace, events, part ? 4000 : 600, &count));
        assert_int_equal(count, part ? 3301 : 600);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(events[i].order, ++order);
    }
    assert_int_equal(trace_details(f->trace).lost, 0);
}

/* Under threads ---------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = 400 };

static void *work(void *user)
{
    fixture *f = user;
    void *held[8] = {NULL};
    weir_stream stream;
    uint64_t random = (uintptr_t)&stream | 1;
    if (weir_stream_acquire(f->runtime, &stream) != WEIR_OK)
        return f;
    for (int i = 0; i < STEPS; i++) {
        void **slot = &held[next_random(&random) % 8];
        if (*slot && weir_free(f->client, *slot, stream) != WEIR_OK)
            return f;
        *slot = NULL;
        weir_status status = weir_alloc(f->client, 1 + next_random(&random) % (40 * KIB), stream,
                                        i % 3 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS, slot);
        if (status != WEIR_OK && status != WEIR_ERR_OUT_OF_MEMORY)
            return f;
        if (*slot && weir_fill(f->runtime, *slot, 1, 1, stream) != WEIR_OK)
            return f;
    }
    for (int i = 0; i < 8; i++)
        if (weir_free(f->client, held[i], stream) != WEIR_OK)
            return f;
    return weir_stream_release(stream) == WEIR_OK ? NULL : f;
}

typedef struct known {
    uintptr_t start, end;
    uint64_t generation;
    bool live;
    uint64_t stream; /* in whose order it was freed; 0: pending, or live */
} known;

static known *books;
static size_t known_count;
static uint64_t live, pending, in_order;

/* Bytes that were freed in a stream's order become that stream's again, or anyone's. */
static void take_from_order(uintptr_t start, uintptr_t end, uint64_t stream)
{
    for (size_t k = 0; k < known_count;) {
        known piece = books[k];
        if (end <= piece.start || start >= piece.end) {
            k++;
            continue;
        }
        assert_true(!piece.live && piece.stream != 0 && piece.stream == stream);
        books[k] = books[--known_count];
        if (piece.start < start)
            books[known_count++] = (known){piece.start, start, 0, false, stream};
        if (piece.end > end)
            books[known_count++] = (known){end, piece.end, 0, false, stream};
        k = 0;
    }
}

/* Each event follows from those before it: bytes are free before they are somebody's again. */
static void replay(const weir_event *e)
{
    uintptr_t start = (uintptr_t)e->pointer, end = start + e->charged;
    size_t i = 0;
    while (i < known_count && books[i].generation != e->generation)
        i++;
    switch (e->action) {
    case WEIR_ACTION_ALLOCATE:
        assert_int_equal(i, known_count);
        take_from_order(start, end, e->stream.id);
        books[known_count++] = (known){start, end, e->generation, true, 0};
        live += e->charged;
        break;
    case WEIR_ACTION_DEALLOCATE:
        assert_true(i < known_count && books[i].live && books[i].start == start);
        live -= e->charged;
        books[i].live = false;
        if (e->object == 1) { /* in order */
            assert_int_equal(e->pending, pending);
            books[i].stream = e->stream.id;
            books[i].generation = 0;
            in_order++;
        } else if (e->pending == pending) { /* complete at once */
            books[i] = books[--known_count];
        }
        pending = e->pending;
        break;
    case WEIR_ACTION_REAP:
        if (e->generation == 0) {
            assert_int_equal(e->charged, 0);
            take_from_order(start, start + e->bytes, e->stream.id);
            break;
        }
        assert_true(i < known_count && !books[i].live && books[i].start == start);
        pending -= e->charged;
        books[i] = books[--known_count];
        break;
    default:
        break;
    }
    assert_int_equal(e->live, live);
    assert_int_equal(e->pending, pending);
    assert_true(e->live + e->pending <= e->held);
}

static void replaying_gives_the_ledger(void **state)
{
    fixture *f = *state;
    pthread_t threads[THREADS];
    ok(weir_option_set("wait", "2ms"));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, f);
    void *failed = NULL;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed = result ? result : failed;
    }
    assert_null(failed);
    snapshot s = take_snapshot(f->runtime);
    books = calloc((size_t)4 * THREADS * STEPS, sizeof *books);
    known_count = 0;
    live = pending = in_order = 0;
    weir_event events[100];
    uint64_t order = 0, held = 0, allocated = 0, freed = 0, refused = 0;
    for (size_t count = 1; count > 0;) {
        events[0].struct_size = sizeof events[0];
        ok(weir_trace_read(f->trace, events, 100, &count));
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(events[i].order, ++order);
            if (events[i].action == WEIR_ACTION_HOLD)
                assert_int_not_equal(events[i].held, held);
            else
                assert_int_equal(events[i].held, held);
            held = events[i].held;
            allocated += events[i].action == WEIR_ACTION_ALLOCATE;
            freed += events[i].action == WEIR_ACTION_DEALLOCATE;
            refused += events[i].action == WEIR_ACTION_REFUSE;
            replay(&events[i]);
        }
    }
    assert_int_equal(trace_details(f->trace).lost, 0);
    assert_int_equal(known_count, 0);
    assert_true(in_order > 0);
    assert_int_equal(held, s.device.held);
    assert_int_equal(live, s.device.live);
    assert_int_equal(allocated, s.device.allocations);
    assert_int_equal(freed, s.device.frees);
    assert_int_equal(refused, s.device.refusals);
    free(books);
    ok(weir_option_set("wait", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(every_action_with_its_numbers), test(one_trace_per_runtime),      test(what_does_not_fit_is_counted),
        test(the_ring_grows_in_order),       test(replaying_gives_the_ledger),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
