/* What a module frees, and in which order it may serve again: behind the work of its streams, and behind captures. */
#include "interpose/cuda_rig.h"

enum { INVALID_VALUE = 1, NO_MEMORY = 2 };

/* The order of frees ----------------------------------------------------------------------------------------------- */

/* A free on any resource returns at once and is final when the module's streams are past it, all of them. */
static void a_free_is_behind_the_work_of_all_streams_of_the_module(void **state)
{
    static const char *const resources[] = {"mapped", "segments", "direct", "async"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        gate first = GATE, second = GATE;
        fixture f = begin_on(resources[i]);
        void *a = make_stream(&f), *b = NULL;
        assert_int_equal(f.m.cudaStreamCreate(&b), 0);
        void *block = get(&f, MIB), *pinned;
        assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
        assert_int_equal(f.m.cudaLaunchHostFunc(a, pass_gate, &first), 0);
        assert_int_equal(f.m.cudaLaunchHostFunc(b, pass_gate, &second), 0);
        assert_int_equal(f.m.cudaFree(block), 0);
        assert_int_equal(f.m.cudaFreeHost(pinned), 0);
        assert_int_equal(left(&f), MIB + 4096);
        open_gate(&first);
        assert_int_equal(f.m.cudaStreamSynchronize(a), 0);
        assert_int_equal(left(&f), MIB + 4096);
        open_gate(&second);
        assert_int_equal(f.m.cudaStreamSynchronize(b), 0);
        assert_int_equal(left(&f), 0);
        assert_int_equal(f.m.cudaStreamDestroy(a), 0);
        assert_int_equal(f.m.cudaStreamDestroy(b), 0);
        end(&f);
    }
}

static void a_free_is_behind_the_legacy_default_stream(void **state)
{
    gate g = GATE;
    (void)state;
    fixture f = begin(32 * MIB);
    void *block = get(&f, MIB);
    assert_int_not_equal(f.m.cudaStreamDestroy(NULL), 0); /* it cannot be, and stays known */
    assert_int_equal(f.m.cudaLaunchHostFunc(NULL, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(left(&f), MIB);
    open_gate(&g);
    assert_int_equal(f.m.cudaStreamSynchronize(NULL), 0);
    assert_int_equal(left(&f), 0);
    end(&f);
}

static void a_free_does_not_wait_for_others_streams(void **state)
{
    gate g = GATE;
    void *others = NULL;
    (void)state;
    fixture f = begin(32 * MIB);
    assert_int_equal(f.real.cudaStreamCreateWithFlags(&others, NON_BLOCKING), 0);
    assert_int_equal(f.real.cudaLaunchHostFunc(others, pass_gate, &g), 0);
    void *block = get(&f, MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(left(&f), 0);
    open_gate(&g);
    assert_int_equal(f.real.cudaStreamSynchronize(others), 0);
    assert_int_equal(f.real.cudaStreamDestroy(others), 0);
    end(&f);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static void a_destroyed_stream_has_done_its_work_and_is_forgotten(void **state)
{
    gate g = GATE;
    pthread_t opener;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = NULL;
    assert_int_equal(f.m.cudaStreamCreateWithPriority(&stream, NON_BLOCKING, 0), 0);
    assert_int_equal(stats(&f).streams, 1);
    void *block = get(&f, MIB);
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(left(&f), MIB);
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    assert_true(g.open);
    assert_int_equal(stats(&f).streams, 0);
    assert_int_equal(left(&f), 0);
    pthread_join(opener, NULL);
    assert_int_equal(control.stub_count("streams"), 0 + control.stub_count("streams:0"));
    end(&f);
}

static void streams_that_are_left_at_the_end_stay_the_modules(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[20];
    for (size_t i = 0; i < 20; i++)
        streams[i] = make_stream(&f);
    assert_int_equal(stats(&f).streams, 20);
    ok(wi_cuda_redirect_end(f.redirect));
    f.redirect = NULL;
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

static void a_stream_that_weir_cannot_follow_is_not_given_out(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    uint64_t streams = control.stub_count("streams");
    void *stream = NULL;
    control.stub_fail("cuStreamGetId", 1, 1);
    assert_int_equal(f.m.cudaStreamCreateWithFlags(&stream, NON_BLOCKING), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    assert_null(stream);
    assert_int_equal(control.stub_count("streams"), streams);
    assert_int_equal(stats(&f).streams, 0);
    assert_int_equal(warnings, 1);
    control.stub_fail("cuStreamGetId", 0, 0);
    control.stub_fail("cuStreamCreate", 1, 1);
    assert_int_equal(f.m.cudaStreamCreateWithFlags(&stream, NON_BLOCKING), 1); /* CUDA's own error */
    assert_int_equal(f.m.cudaGetLastError(), 1);
    end(&f);
}

/* Captures --------------------------------------------------------------------------------------------------------- */

static void what_is_freed_during_a_capture_waits_for_its_end(void **state)
{
    void *graph = NULL, *pinned;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *before = get(&f, MIB);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(stats(&f).captured, 1);
    void *within = get(&f, 2 * MIB);
    assert_int_equal(f.m.cudaMemsetAsync(within, 0, MIB, stream), 0);
    uint64_t waits = control.stub_count("cuStreamSynchronize") + control.stub_count("cuEventSynchronize") +
                     control.stub_count("cuCtxSynchronize");
    assert_int_equal(f.m.cudaFree(before), 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    assert_int_equal(f.m.cudaFree(before), INVALID_VALUE);
    assert_int_equal(stats(&f).waiting, 2);
    assert_int_equal(stats(&f).device_bytes, 3 * MIB);
    assert_int_equal(account(f.client[0]).live, 3 * MIB);
    assert_int_equal(waits, control.stub_count("cuStreamSynchronize") + control.stub_count("cuEventSynchronize") +
                                control.stub_count("cuCtxSynchronize"));
    fails(WEIR_ERR_STREAM_MISUSE, wi_cuda_redirect_end(f.redirect));
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 2 * MIB);
    assert_int_equal(pinned_of(&f, f.client[0]), 0);
    assert_int_equal(f.m.cudaFree(within), 0);
    assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

/* Inside of a capture nothing is waited for, not even what is pending elsewhere and would do. */
static void a_request_during_a_capture_is_refused_rather_than_waited_for(void **state)
{
    gate g = GATE;
    void *graph = NULL, *none;
    (void)state;
    fixture f = begin(4 * MIB);
    void *busy = make_stream(&f), *stream = make_stream(&f), *block = get(&f, 3 * MIB);
    assert_int_equal(f.m.cudaLaunchHostFunc(busy, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    uint64_t waits = control.stub_count("cuEventSynchronize") + control.stub_count("cuEventQuery");
    assert_int_equal(f.m.cudaMalloc(&none, 3 * MIB), NO_MEMORY);
    assert_true(control.stub_count("cuEventSynchronize") + control.stub_count("cuEventQuery") - waits < 100);
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    open_gate(&g);
    assert_int_equal(f.m.cudaMalloc(&none, 3 * MIB), 0);
    assert_int_equal(f.m.cudaFree(none), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    assert_int_equal(f.m.cudaStreamDestroy(busy), 0);
    end(&f);
}

static void a_capture_that_fails_to_begin_or_to_end_is_none(void **state)
{
    void *graph = NULL;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *block = get(&f, MIB);
    control.stub_fail("cuStreamBeginCapture", 1, 900);
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 900);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_not_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0); /* twice */
    assert_int_equal(stats(&f).captured, 1);
    control.stub_fail("cuStreamEndCapture", 1, 908); /* it is another thread's, and goes on */
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 908);
    assert_int_equal(stats(&f).captured, 1);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_not_equal(f.m.cudaStreamEndCapture(stream, &graph), 0); /* none was begun */
    assert_int_not_equal(f.m.cudaStreamBeginCapture(NULL, RELAXED), 0);
    assert_int_equal(stats(&f).captured, 0);
    (void)f.m.cudaGetLastError();
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

/* One that somebody began past the module is seen by the driver. */
static void a_capture_that_nobody_declared_has_frees_wait_as_well(void **state)
{
    void *graph = NULL;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *block = get(&f, MIB);
    assert_int_equal(f.real.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.real.cudaStreamEndCapture(stream, &graph), 0);
    void *next = get(&f, MIB); /* the next request frees it */
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(f.m.cudaFree(next), 0);
    assert_int_equal(f.real.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

typedef struct teller {
    const fixture *f;
    void *stream;
} teller;

/* A stream is destroyed as soon as a free is said to wait: what waits is looked at then. */
static void destroy_when_told(weir_log_level level, const char *text, void *user)
{
    teller *t = user;
    void *stream = t->stream;
    (void)level;
    if (!stream || !strstr(text, "waits"))
        return;
    t->stream = NULL;
    assert_int_equal(t->f->m.cudaStreamDestroy(stream), 0);
}

/* The end that it would wait for is over. */
static void what_could_not_be_freed_is_tried_again_where_a_stream_has_ended_meanwhile(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *block = get(&f, MIB);
    teller t = {.f = &f, .stream = make_stream(&f)};
    ok(weir_log_set(destroy_when_told, &t, WEIR_LOG_WARNING));
    control.stub_fail("cuEventRecord", 1, 1);
    assert_int_equal(f.m.cudaFree(block), 0);
    control.stub_fail("cuEventRecord", 0, 0);
    assert_null(t.stream);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(left(&f), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

/* Its capture ends where the redirect does not see it. */
static void what_waits_is_freed_with_the_next_free(void **state)
{
    void *graph = NULL;
    (void)state;
    fixture f = begin(4 * MIB);
    void *stream = make_stream(&f), *first = get(&f, MIB), *next = get(&f, MIB);
    assert_int_equal(f.real.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(first), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.real.cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(f.m.cudaFree(next), 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(left(&f), 0);
    assert_int_equal(f.real.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

static void what_waits_serves_a_request_that_would_be_refused(void **state)
{
    void *graph = NULL;
    (void)state;
    fixture f = begin(4 * MIB);
    void *stream = make_stream(&f), *block = get(&f, 4 * MIB);
    assert_int_equal(f.real.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.real.cudaStreamEndCapture(stream, &graph), 0);
    block = get(&f, 4 * MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.real.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

typedef struct capturer {
    const fixture *f;
    void *stream, *graph;
    pthread_barrier_t begun, freed;
    int result;
} capturer;

static void *capture_for_a_while(void *user)
{
    capturer *c = user;
    c->result = c->f->m.cudaStreamBeginCapture(c->stream, RELAXED);
    pthread_barrier_wait(&c->begun);
    pthread_barrier_wait(&c->freed);
    usleep(30000);
    c->result |= c->f->m.cudaStreamEndCapture(c->stream, &c->graph);
    return NULL;
}

/* A module does not survive each refusal: what another thread's capture holds up is waited for. */
static void a_request_waits_for_the_capture_of_another_thread(void **state)
{
    pthread_t thread;
    (void)state;
    fixture f = begin(4 * MIB);
    capturer c = {.f = &f, .stream = make_stream(&f)};
    pthread_barrier_init(&c.begun, NULL, 2);
    pthread_barrier_init(&c.freed, NULL, 2);
    void *block = get(&f, 4 * MIB);
    assert_int_equal(pthread_create(&thread, NULL, capture_for_a_while, &c), 0);
    pthread_barrier_wait(&c.begun);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    pthread_barrier_wait(&c.freed);
    block = get(&f, 4 * MIB);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(stats(&f).refused, 0);
    pthread_join(thread, NULL);
    assert_int_equal(c.result, 0);
    assert_int_equal(f.m.cudaGraphDestroy(c.graph), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaStreamDestroy(c.stream), 0);
    pthread_barrier_destroy(&c.begun);
    pthread_barrier_destroy(&c.freed);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_is_behind_the_work_of_all_streams_of_the_module),
        cmocka_unit_test(a_free_is_behind_the_legacy_default_stream),
        cmocka_unit_test(a_free_does_not_wait_for_others_streams),
        cmocka_unit_test(a_destroyed_stream_has_done_its_work_and_is_forgotten),
        cmocka_unit_test(streams_that_are_left_at_the_end_stay_the_modules),
        cmocka_unit_test(a_stream_that_weir_cannot_follow_is_not_given_out),
        cmocka_unit_test(what_is_freed_during_a_capture_waits_for_its_end),
        cmocka_unit_test(a_request_during_a_capture_is_refused_rather_than_waited_for),
        cmocka_unit_test(a_capture_that_fails_to_begin_or_to_end_is_none),
        cmocka_unit_test(a_capture_that_nobody_declared_has_frees_wait_as_well),
        cmocka_unit_test(what_could_not_be_freed_is_tried_again_where_a_stream_has_ended_meanwhile),
        cmocka_unit_test(what_waits_is_freed_with_the_next_free),
        cmocka_unit_test(what_waits_serves_a_request_that_would_be_refused),
        cmocka_unit_test(a_request_waits_for_the_capture_of_another_thread),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
