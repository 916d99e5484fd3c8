/* Sinks: who is called, when, in which order, and that nothing they do reaches the caller. */
#include "info.h"
#include "trace.h"
#include <weir/trace.h>

#include <sched.h>
#include <stdatomic.h>

static int set_up(void **state)
{
    *state = start();
    return 0;
}

/* A sink that keeps what it is told. */
typedef struct listener {
    uint64_t events, last, calls, flushes, closes, lost, seen[WEIR_ACTION_COUNT];
    bool wrong;            /* the order is not strictly increasing */
    weir_status answer;    /* of write */
    weir_trace *trace;     /* to try what must not be done inside */
    weir_runtime *runtime; /* to call weir inside */
} listener;

static weir_status hear(void *user, const weir_event *events, size_t count)
{
    listener *l = user;
    l->calls++;
    if (l->answer != WEIR_OK)
        return weir_fail(l->answer, "the listener is deaf");
    for (size_t i = 0; i < count; i++) {
        l->wrong |= events[i].struct_size != sizeof(weir_event) || events[i].order <= l->last;
        l->last = events[i].order;
        l->seen[events[i].action]++;
    }
    l->events += count;
    if (l->trace) {
        weir_sink more = {.struct_size = sizeof more, .write = hear};
        fails(WEIR_ERR_BUSY, weir_trace_flush(l->trace));
        fails(WEIR_ERR_BUSY, weir_trace_add_sink(l->trace, &more));
        weir_trace_destroy(l->trace);
    }
    if (l->runtime) {
        ok(weir_runtime_trim(l->runtime, NULL, NULL));
        assert_null(runtime_details(l->runtime).log);
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(l->runtime));
        detail_names("inside a sink");
    }
    return WEIR_OK;
}

static weir_status hear_flush(void *user)
{
    ((listener *)user)->flushes++;
    return WEIR_OK;
}

static weir_status hear_close(void *user)
{
    ((listener *)user)->closes++;
    return WEIR_OK;
}

static void hear_lost(void *user, uint64_t count)
{
    ((listener *)user)->lost = count;
}

static weir_sink sink_of(listener *l)
{
    return (weir_sink){.struct_size = sizeof(weir_sink),
                       .user = l,
                       .write = hear,
                       .flush = hear_flush,
                       .close = hear_close,
                       .lost = hear_lost};
}

static void open_with(fixture *f, listener *l, size_t count, size_t capacity)
{
    weir_sink sinks[4];
    for (size_t i = 0; i < count; i++)
        sinks[i] = sink_of(&l[i]);
    weir_trace_options options = {
        .struct_size = sizeof options, .capacity = capacity, .sinks = sinks, .sink_count = count};
    ok(weir_trace_create(f->runtime, &options, &f->trace));
}

static void churn(fixture *f, int times)
{
    for (int i = 0; i < times; i++)
        ok(weir_free(f->client, allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
}

static void handed_out_by_calls_by_flushes_and_at_the_end(void **state)
{
    fixture *f = *state;
    listener l[2] = {{0}};
    open_with(f, l, 2, 0);
    churn(f, 10);
    assert_int_equal(l[0].events, 0); /* too few to bother anybody */
    ok(weir_trace_flush(f->trace));
    assert_int_equal(l[0].events, 21); /* with the one that got memory */
    assert_int_equal(l[0].flushes, 1);
    churn(f, 1000);
    assert_true(l[0].events > 1000 && l[0].calls > 2);
    weir_event event = WEIR_INIT(weir_event);
    size_t count;
    fails(WEIR_ERR_CONFLICT, weir_trace_read(f->trace, &event, 1, &count));
    listener late = {0};
    weir_sink third = sink_of(&late);
    ok(weir_trace_flush(f->trace));
    ok(weir_trace_add_sink(f->trace, &third));
    churn(f, 5);
    weir_trace_destroy(f->trace);
    f->trace = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(l[i].events, 2031);
        assert_int_equal(l[i].last, 2031);
        assert_int_equal(l[i].seen[WEIR_ACTION_ALLOCATE], 1015);
        assert_false(l[i].wrong);
        assert_int_equal(l[i].closes, 1);
        assert_int_equal(l[i].lost, 0);
    }
    assert_int_equal(late.events, 10);
    assert_int_equal(late.closes, 1);
    churn(f, 2000); /* nobody listens any more */
    assert_int_equal(l[0].events, 2031);
}

static char heard[4][300];
static int heard_count;

static void hear_log(weir_log_level level, const char *text, void *user)
{
    (void)level;
    ok(weir_runtime_trim(user, NULL, NULL)); /* no lock is held */
    if (heard_count < 4)
        snprintf(heard[heard_count], sizeof heard[0], "%s", text);
    heard_count++;
}

static void a_refusing_sink_is_counted_and_nothing_else(void **state)
{
    fixture *f = *state;
    static listener l[3]; /* the trace is closed after the test */
    l[0] = (listener){.answer = WEIR_ERR_SYSTEM};
    l[1] = (listener){0};
    l[2] = (listener){.answer = WEIR_ERR_CANCELLED};
    open_with(f, l, 3, 0);
    heard_count = 0;
    ok(weir_log_set(hear_log, f->runtime, WEIR_LOG_WARNING));
    void *none;
    fails(WEIR_ERR_INVALID, weir_alloc(f->client, 1, f->a, (weir_class)7, &none));
    for (int i = 0; i < 3000; i++) {
        fails(WEIR_ERR_INVALID, weir_alloc(f->client, 1, f->a, (weir_class)7, &none));
        detail_names("7 is no class"); /* and not what the sink said */
    }
    uint64_t calls = l[0].calls;
    assert_true(calls > 1);
    assert_int_equal(trace_details(f->trace).failed, 2 * calls);
    assert_int_equal(heard_count, 2);
    assert_non_null(strstr(heard[0], "the listener is deaf"));
    assert_non_null(strstr(heard[0], "host"));
    assert_non_null(strstr(heard[0], "WEIR_ERR_SYSTEM"));
    assert_non_null(strstr(heard[1], "WEIR_ERR_CANCELLED"));
    fails(WEIR_ERR_SYSTEM, weir_trace_flush(f->trace));
    assert_int_equal(l[1].events, 3001);
    assert_false(l[1].wrong);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    weir_trace_details unset = {.struct_size = 0};
    fails(WEIR_ERR_INVALID, weir_trace_info(f->trace, &unset));
}

static void a_sink_may_call_weir_but_not_its_trace(void **state)
{
    fixture *f = *state;
    static listener l; /* the trace is closed after the test */
    l = (listener){.runtime = f->runtime};
    open_with(f, &l, 1, 0);
    l.trace = f->trace;
    churn(f, 600);
    assert_true(l.events > 1000);
    ok(weir_trace_flush(f->trace));
    l.trace = NULL;
    churn(f, 1);
    weir_trace_destroy(f->trace);
    f->trace = NULL;
    assert_true(l.seen[WEIR_ACTION_ALLOCATE] == 601 && !l.wrong);
    assert_int_equal(l.closes, 1);
}

static void bad_options(void **state)
{
    fixture *f = *state;
    static listener l; /* the trace is closed after the test */
    l = (listener){0};
    weir_sink sink = sink_of(&l);
    weir_trace_options options = {.struct_size = sizeof options, .sinks = &sink, .sink_count = 1};
    fails(WEIR_ERR_INVALID, weir_trace_create(NULL, &options, &f->trace));
    options.struct_size = 3;
    fails(WEIR_ERR_INVALID, weir_trace_create(f->runtime, &options, &f->trace));
    options.struct_size = sizeof options;
    sink.write = NULL;
    fails(WEIR_ERR_INVALID, weir_trace_create(f->runtime, &options, &f->trace));
    options.sinks = NULL;
    fails(WEIR_ERR_INVALID, weir_trace_create(f->runtime, &options, &f->trace));
    sink = sink_of(&l);
    options.sinks = &sink;
    ok(weir_trace_create(f->runtime, &options, &f->trace));
    weir_trace *second;
    fails(WEIR_ERR_BUSY, weir_trace_create(f->runtime, &options, &second));
    assert_int_equal(l.closes, 0); /* still the caller's */
    fails(WEIR_ERR_INVALID, weir_trace_add_sink(f->trace, NULL));
    fails(WEIR_ERR_INVALID, weir_trace_add_sink(NULL, &sink));
    fails(WEIR_ERR_INVALID, weir_trace_flush(NULL));
    fails(WEIR_ERR_SYSTEM, weir_sink_file("/nonexistent/trace", WEIR_SINK_BINARY, &sink));
    detail_names("/nonexistent/trace");
    fails(WEIR_ERR_SYSTEM, weir_sink_file("/nonexistent/trace", WEIR_SINK_CSV, &sink));
    fails(WEIR_ERR_INVALID, weir_sink_file(NULL, WEIR_SINK_CSV, &sink));
    fails(WEIR_ERR_INVALID, weir_sink_file(scratch("never"), (weir_sink_format)2, &sink));
    sink.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_sink_file(scratch("never"), WEIR_SINK_BINARY, &sink));
}

static void a_full_disk_costs_events_and_nothing_else(void **state)
{
    fixture *f = *state;
    static listener l; /* the trace is closed after the test */
    l = (listener){0};
    weir_sink sinks[3] = {{.struct_size = sizeof(weir_sink)}, {.struct_size = sizeof(weir_sink)}, sink_of(&l)};
    ok(weir_sink_file("/dev/full", WEIR_SINK_BINARY, &sinks[0]));
    ok(weir_sink_file("/dev/full", WEIR_SINK_CSV, &sinks[1]));
    weir_trace_options options = {.struct_size = sizeof options, .sinks = sinks, .sink_count = 3};
    ok(weir_trace_create(f->runtime, &options, &f->trace));
    churn(f, 3000);
    assert_true(trace_details(f->trace).failed > 2);
    fails(WEIR_ERR_SYSTEM, weir_trace_flush(f->trace));
    detail_names("/dev/full");
    assert_int_equal(l.events, 6001);
}

/* Under threads ---------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = UNDER_TSAN ? 300 : 3000 };

/* Rebuilds what is live from the events: a use of bytes that are somebody else's, or a free behind the reuse, shows. */
typedef struct book {
    listener all;
    struct {
        uintptr_t start, end;
        uint64_t generation, tickets;
        bool pending;
    } blocks[THREADS * 4 * 64];
    size_t count;
    uint64_t pending;
    bool broken;
} book;

static size_t find_block(book *b, uint64_t generation)
{
    size_t i = 0;
    while (i < b->count && b->blocks[i].generation != generation)
        i++;
    return i;
}

static void follow(book *b, const weir_event *e)
{
    uintptr_t start = (uintptr_t)e->pointer, end_of = start + e->charged;
    size_t i = find_block(b, e->generation);
    switch (e->action) {
    case WEIR_ACTION_ALLOCATE:
        b->broken |= i < b->count || b->count == sizeof b->blocks / sizeof b->blocks[0];
        for (size_t k = 0; k < b->count; k++)
            b->broken |= start < b->blocks[k].end && end_of > b->blocks[k].start;
        if (!b->broken) {
            b->blocks[b->count].start = start;
            b->blocks[b->count].end = end_of;
            b->blocks[b->count].tickets = 0;
            b->blocks[b->count].pending = false;
            b->blocks[b->count++].generation = e->generation;
        }
        break;
    case WEIR_ACTION_USE_BEGIN:
        b->broken |= i == b->count || b->blocks[i].pending;
        if (i < b->count)
            b->blocks[i].tickets = e->object;
        break;
    case WEIR_ACTION_USE_END:
        for (size_t k = 0; k < b->count; k++)
            b->blocks[k].tickets = b->blocks[k].tickets == e->object ? 0 : b->blocks[k].tickets;
        break;
    case WEIR_ACTION_DEALLOCATE:
        b->broken |= i == b->count || b->blocks[i].pending || b->blocks[i].tickets != 0;
        if (i < b->count)
            b->blocks[i].pending = true;
        if (i < b->count && e->pending == b->pending) /* complete at once */
            b->blocks[i] = b->blocks[--b->count];
        b->pending = e->pending;
        break;
    case WEIR_ACTION_REAP:
        if (e->generation == 0) /* of no block: bytes of a stream's are everybody's */
            break;
        b->broken |= i == b->count || !b->blocks[i].pending;
        if (i < b->count)
            b->blocks[i] = b->blocks[--b->count];
        b->pending = e->pending;
        break;
    default:
        break;
    }
}

static weir_status keep_book(void *user, const weir_event *events, size_t count)
{
    book *b = user;
    for (size_t i = 0; i < count; i++)
        follow(b, &events[i]);
    return hear(&b->all, events, count);
}

static void *work(void *user)
{
    fixture *f = user;
    void *held[4] = {NULL};
    weir_stream stream;
    uint64_t random = (uintptr_t)&stream | 1;
    if (weir_stream_acquire(f->runtime, &stream) != WEIR_OK)
        return f;
    for (int i = 0; i < STEPS; i++) {
        void **slot = &held[next_random(&random) % 4];
        weir_launch *launch;
        weir_use use = {{*slot, 0}, WEIR_ACCESS_WRITE};
        if (*slot && (weir_launch_begin(f->runtime, stream, &use, 1, &launch) != WEIR_OK ||
                      weir_fill(f->runtime, *slot, 1, 1, stream) != WEIR_OK || weir_launch_end(launch) != WEIR_OK ||
                      note_use(f->runtime, *slot, 1, stream, WEIR_ACCESS_READ) != WEIR_OK ||
                      weir_free(f->client, *slot, stream) != WEIR_OK))
            return f;
        *slot = NULL;
        if (weir_alloc(f->client, 1 + next_random(&random) % (20 * KIB), stream, WEIR_CLASS_KV, slot) != WEIR_OK)
            return f;
    }
    for (int i = 0; i < 4; i++)
        if (weir_free(f->client, held[i], stream) != WEIR_OK)
            return f;
    return weir_stream_release(stream) == WEIR_OK ? NULL : f;
}

static void *flush_often(void *user)
{
    fixture *f = user;
    for (int i = 0; i < 200; i++)
        if (weir_trace_flush(f->trace) != WEIR_OK)
            return f;
    return NULL;
}

static void the_order_holds_under_threads(void **state)
{
    fixture *f = *state;
    book *b = calloc(1, sizeof *b);
    weir_sink sink = sink_of(&b->all);
    sink.user = b;
    sink.write = keep_book;
    sink.flush = NULL;
    sink.close = NULL;
    sink.lost = NULL;
    weir_trace_options options = {.struct_size = sizeof options, .sinks = &sink, .sink_count = 1};
    ok(weir_trace_create(f->runtime, &options, &f->trace));
    pthread_t threads[THREADS + 1];
    void *failed = NULL;
    for (int i = 0; i <= THREADS; i++)
        pthread_create(&threads[i], NULL, i < THREADS ? work : flush_often, f);
    for (int i = 0; i <= THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed = result ? result : failed;
    }
    assert_null(failed);
    (void)take_snapshot(f->runtime); /* reaps what is left */
    ok(weir_trace_flush(f->trace));
    assert_int_equal(trace_details(f->trace).lost, 0);
    assert_false(b->all.wrong);
    assert_int_equal(b->all.events, b->all.last);
    assert_int_equal(b->all.seen[WEIR_ACTION_ALLOCATE], THREADS * STEPS);
    assert_int_equal(b->all.seen[WEIR_ACTION_NOTE_USE], b->all.seen[WEIR_ACTION_USE_END]);
    assert_int_equal(b->all.seen[WEIR_ACTION_USE_BEGIN], b->all.seen[WEIR_ACTION_USE_END]);
    for (size_t i = 0; i < b->count; i++)
        assert_true(b->blocks[i].pending);
    assert_false(b->broken);
    weir_trace_destroy(f->trace);
    f->trace = NULL;
    free(b);
}

/* A launch's end comes before the free that it makes possible, however closely the two follow. */
typedef struct eager {
    fixture *f;
    void *_Atomic block;
    atomic_bool freed, over;
    bool failed;
} eager;

static void *free_eagerly(void *user)
{
    eager *e = user;
    while (!atomic_load(&e->over)) {
        void *block = atomic_exchange(&e->block, NULL);
        if (!block) {
            sched_yield();
            continue;
        }
        weir_status status;
        while ((status = weir_free(e->f->client, block, e->f->b)) == WEIR_ERR_BUSY)
            ;
        e->failed |= status != WEIR_OK;
        atomic_store(&e->freed, true);
    }
    return NULL;
}

static void an_end_comes_before_the_free(void **state)
{
    fixture *f = *state;
    book *b = calloc(1, sizeof *b);
    eager e = {.f = f};
    pthread_t thread;
    weir_sink sink = {.struct_size = sizeof sink, .user = b, .write = keep_book};
    weir_trace_options options = {.struct_size = sizeof options, .sinks = &sink, .sink_count = 1};
    ok(weir_trace_create(f->runtime, &options, &f->trace));
    /* Tickets are given back one after the other: the first block's long before the last one's. */
    enum { OTHERS = 50, ROUNDS = STEPS };
    weir_use uses[OTHERS + 1];
    void *hole = allocate(f->client, 256, f->a, WEIR_CLASS_KV);
    for (int i = 0; i < OTHERS; i++)
        uses[i] = (weir_use){{allocate(f->client, 256, f->a, WEIR_CLASS_KV), 0}, WEIR_ACCESS_WRITE};
    ok(weir_free(f->client, hole, WEIR_STREAM_HOST));
    pthread_create(&thread, NULL, free_eagerly, &e);
    for (int i = 0; i < ROUNDS; i++) {
        void *p = allocate(f->client, 256, f->a, WEIR_CLASS_KV);
        assert_ptr_equal(p, hole);
        uses[OTHERS] = (weir_use){{p, 0}, WEIR_ACCESS_WRITE};
        weir_launch *launch;
        ok(weir_launch_begin(f->runtime, f->a, uses, OTHERS + 1, &launch));
        atomic_store(&e.block, p);
        ok(weir_launch_end(launch));
        while (!atomic_load(&e.freed))
            sched_yield();
        atomic_store(&e.freed, false);
        ok(weir_stream_synchronize(f->a));
        ok(weir_stream_synchronize(f->b));
        (void)take_snapshot(f->runtime);
    }
    atomic_store(&e.over, true);
    pthread_join(thread, NULL);
    assert_false(e.failed);
    ok(weir_trace_flush(f->trace));
    assert_int_equal(b->all.seen[WEIR_ACTION_USE_END], ROUNDS);
    assert_int_equal(b->all.seen[WEIR_ACTION_DEALLOCATE], ROUNDS + 1);
    assert_false(b->broken);
    for (int i = 0; i < OTHERS; i++)
        ok(weir_free(f->client, uses[i].block.pointer, f->a));
    weir_trace_destroy(f->trace);
    f->trace = NULL;
    free(b);
}

/* Traces come and go while others record: nothing dangles. */
static void *open_and_close(void *user)
{
    fixture *f = user;
    for (int i = 0; i < 100; i++) {
        listener l = {0};
        weir_sink sink = sink_of(&l);
        weir_trace_options options = {.struct_size = sizeof options, .capacity = 64, .sinks = &sink, .sink_count = 1};
        weir_trace *trace;
        if (weir_trace_create(f->runtime, &options, &trace) != WEIR_OK)
            return f;
        weir_trace_destroy(trace);
        if (l.wrong || l.closes != 1)
            return f;
    }
    return NULL;
}

static void traces_come_and_go(void **state)
{
    fixture *f = *state;
    pthread_t threads[3];
    void *failed = NULL;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, i < 2 ? work : open_and_close, f);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed = result ? result : failed;
    }
    assert_null(failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, end)
        test(handed_out_by_calls_by_flushes_and_at_the_end),
        test(a_refusing_sink_is_counted_and_nothing_else),
        test(a_sink_may_call_weir_but_not_its_trace),
        test(bad_options),
        test(a_full_disk_costs_events_and_nothing_else),
        test(the_order_holds_under_threads),
        test(an_end_comes_before_the_free),
        test(traces_come_and_go),
    };
    return cmocka_run_group_tests_name("trace sinks", tests, NULL, NULL);
}
