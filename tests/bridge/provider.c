/* ONNX Runtime's own CUDA provider, unmodified, over the stub of CUDA: its allocations, copies, streams and frees are
 * real, its kernels do nothing but take time. Models of copies alone answer truly. */
#include "ort.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>

static uint64_t (*stub_count)(const char *what);

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream; /* the session's; WEIR_STREAM_HOST: ONNX Runtime makes its own */
    weir_onnxruntime *bridge;
} fixture;

static fixture begin(bool known)
{
    fixture f = {.runtime = make_runtime_on("cuda:0", 64 * MIB)};
    f.client = open_client(f.runtime, "anna", 0, 0);
    if (known)
        ok(weir_stream_acquire(f.runtime, &f.stream));
    weir_onnxruntime_options o = ort_bridge(f.client);
    o.stream = f.stream;
    ok(weir_onnxruntime_register(&o));
    f.bridge = weir_onnxruntime_registered(NULL, "cuda:0");
    return f;
}

static void end(fixture *f)
{
    ok(weir_onnxruntime_unregister(NULL, "cuda:0"));
    if (f->stream.id)
        ok(weir_stream_release(f->stream));
    ok(weir_client_destroy(f->client));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
}

static weir_client_stats client_stats(const fixture *f)
{
    weir_client_stats s = {.struct_size = sizeof s};
    ok(weir_client_info(f->client, &s));
    return s;
}

static weir_onnxruntime_details stats(const fixture *f)
{
    weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
    ok(weir_onnxruntime_info(f->bridge, &s));
    return s;
}

static ort_session_options *cuda_options(weir_stream stream, bool shared)
{
    static const char *const keys[] = {"device_id", "do_copy_in_default_stream"}, *const values[] = {"0", "1"};
    ort_session_options *options = ort_options(shared);
    ort_cuda_options *cuda;
    ort_ok(ort->SetSessionGraphOptimizationLevel(options, 0)); /* copies stay copies */
    ort_ok(ort->CreateCUDAProviderOptions(&cuda));
    ort_ok(ort->UpdateCUDAProviderOptions(cuda, keys, values, 2));
    if (stream.id)
        ort_ok(ort->UpdateCUDAProviderOptionsWithValue(cuda, "user_compute_stream", weir_stream_native(stream)));
    ort_ok(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda));
    ort->ReleaseCUDAProviderOptions(cuda);
    return options;
}

static ort_session *session_of(const fixture *f, const char *model)
{
    ort_session *session;
    ort_ok(ort_create(model, cuda_options(f->stream, true), &session));
    return session;
}

/* The model answers what it is asked. */
static bool run_copies(ort_session *session, unsigned seed, int64_t extent, const char **words)
{
    ort_ports inputs, outputs;
    ort_inputs(session, seed, extent, &inputs);
    ort_outputs(session, &outputs);
    *words = ort_words(ort_run(session, &inputs, &outputs));
    bool equal = !*words && ort_equal(&inputs, &outputs);
    ort_release(&outputs);
    ort_release(&inputs);
    return equal;
}

/* Weights without a stream when the session is created, everything of a run on the session's stream; and nothing
 * stays. */
static void where_its_memory_comes_from(bool known)
{
    fixture f = begin(known);
    ort_session *session = session_of(&f, "mlp");
    weir_client_stats loaded = client_stats(&f);
    assert_true(loaded.live_class[WEIR_CLASS_WEIGHTS] >= (16 + 1) * 17 * 4);
    assert_int_equal(loaded.live_class[WEIR_CLASS_ACTIVATIONS], 0);
    assert_int_equal(stats(&f).on_stream, 0);
    fails(WEIR_ERR_BUSY, weir_onnxruntime_unregister(NULL, "cuda:0"));
    detail_names("cuda:0");
    ort_ports inputs, outputs;
    ort_inputs(session, 1, 2, &inputs);
    ort_outputs(session, &outputs);
    for (int i = 0; i < 5; i++) {
        ort_ok(ort_run(session, &inputs, &outputs));
        ort_release_values(&outputs);
        assert_int_equal(client_stats(&f).live_class[WEIR_CLASS_WEIGHTS], loaded.live);
    }
    ort_release(&outputs);
    ort_release(&inputs);
    weir_onnxruntime_details s = stats(&f);
    assert_true(s.on_stream >= 10);
    assert_int_equal(s.unknown, known ? 0 : s.on_stream);
    assert_int_equal(s.foreign + s.refused, 0);
    assert_true(client_stats(&f).peak_class[WEIR_CLASS_ACTIVATIONS] > 0);
    ort->ReleaseSession(session);
    assert_int_equal(stats(&f).live, 0);
    assert_int_equal(client_stats(&f).live, 0);
    end(&f);
}

static void memory_on_a_known_stream(void **state)
{
    (void)state;
    where_its_memory_comes_from(true);
}

static void memory_on_its_own_streams(void **state)
{
    (void)state;
    where_its_memory_comes_from(false);
}

static void copies_are_true(bool known)
{
    fixture f = begin(known);
    ort_session *session = session_of(&f, "copies");
    const char *words;
    for (unsigned i = 0; i < 40; i++)
        if (!run_copies(session, i, 1 + i * 37 % 200, &words))
            fail_msg("run %u: %s", i, words ? words : "answers otherwise");
    assert_true(stats(&f).on_stream > 40);
    ort->ReleaseSession(session);
    end(&f);
}

static void copies_are_true_on_both(void **state)
{
    (void)state;
    copies_are_true(true);
    copies_are_true(false);
}

/* What the host's kernels read of the device's results comes through pinned memory, which the host's ledger has. */
static void results_for_the_host(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        fixture f = begin(known);
        uint64_t taken = 0;
        ort_session *session = session_of(&f, "staged");
        for (unsigned seed = 0; seed < 5; seed++) {
            ort_ports inputs, outputs, plain;
            ort_plain_answers("staged", seed, 3, &plain);
            ort_inputs(session, seed, 3, &inputs);
            ort_outputs(session, &outputs);
            ort_ok(ort_run(session, &inputs, &outputs));
            assert_true(ort_equal(&plain, &outputs));
            taken = seed < 2 ? stub_count("cuMemHostAlloc") : taken;
            ort_release(&outputs);
            ort_release(&inputs);
            ort_release(&plain);
        }
        assert_true(taken > 0);
        assert_int_equal(stub_count("cuMemHostAlloc"), taken); /* what the first two took serves them all */
        ort->ReleaseSession(session);
        assert_int_equal(stats(&f).live, 0);
        end(&f);
    }
}

/* Sessions of their own clients on threads of their own, in a budget that makes each wait for what the other has
 * freed. */
typedef struct worker {
    ort_session *session;
    unsigned seed;
    int wrong;
    char words[512];
} worker;

static void *run_often(void *user)
{
    worker *w = user;
    const char *words;
    for (unsigned i = 0; i < 60; i++)
        if (!run_copies(w->session, w->seed + i, 1000 + 512 * (i % 7), &words)) {
            w->wrong++;
            snprintf(w->words, sizeof w->words, "%s", words ? words : "answers otherwise");
        }
    return NULL;
}

static void two_sessions_in_a_small_budget(bool known)
{
    enum { THREADS = 2 };
    weir_runtime *runtime = make_runtime_on("cuda:0", 4 * MIB);
    weir_client *clients[THREADS];
    weir_stream streams[THREADS] = {WEIR_STREAM_HOST, WEIR_STREAM_HOST};
    weir_onnxruntime *bridges[THREADS];
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        clients[i] = open_client(runtime, i ? "bert" : "anna", 0, 0);
        if (known)
            ok(weir_stream_acquire(runtime, &streams[i]));
        weir_onnxruntime_options o = ort_bridge(clients[i]);
        o.stream = streams[i];
        ok(weir_onnxruntime_create(&o, &bridges[i]));
        ok(weir_onnxruntime_enter(bridges[i]));
        workers[i] = (worker){.seed = 100 * (unsigned)i};
        ort_ok(ort_create("copies", cuda_options(streams[i], true), &workers[i].session));
        weir_onnxruntime_leave(bridges[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_often, &workers[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].wrong)
            fail_msg("%d runs went wrong: %s", workers[i].wrong, workers[i].words);
        weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
        ok(weir_onnxruntime_info(bridges[i], &s));
        assert_true(s.on_stream >= 60);
        ort->ReleaseSession(workers[i].session);
        ok(weir_onnxruntime_destroy(bridges[i]));
        if (known)
            ok(weir_stream_release(streams[i]));
        ok(weir_client_destroy(clients[i]));
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

static void two_sessions_lend_to_each_other(void **state)
{
    (void)state;
    two_sessions_in_a_small_budget(true);
    two_sessions_in_a_small_budget(false);
}

/* Failures
 * ---------------------------------------------------------------------------------------------------------- */

/* The request number `nth` of that kind is one that no device can serve; answers whether all went well. */
static bool try_all(fixture *f, const char *model, weir_kind kind, int nth, int *seen)
{
    ort_fail_from(f->bridge, kind, nth);
    ort_session *session;
    ort_ports inputs, outputs;
    bool good = !ort_words(ort_create(model, cuda_options(f->stream, true), &session));
    for (int i = 0; i < 3 && session; i++) {
        ort_inputs(session, 1, 2, &inputs);
        ort_outputs(session, &outputs);
        good &= !ort_words(ort_run(session, &inputs, &outputs));
        ort_release(&outputs);
        ort_release(&inputs);
    }
    if (session)
        ort->ReleaseSession(session);
    *seen = ort_fail_no_more();
    return good;
}

/* Answers how many were refused. */
static int each_fails(const char *model, weir_kind kind, bool known)
{
    fixture f = begin(known);
    int nth = 1, seen = 0;
    for (; !try_all(&f, model, kind, nth, &seen); nth++) {
        assert_int_equal(stats(&f).live, 0);
        assert_int_equal(stats(&f).refused, nth);
    }
    assert_true(seen < nth);
    end(&f);
    return nth - 1;
}

static void every_request_fails_in_turn(void **state)
{
    (void)state;
    int of_device = 0, pinned = 0;
    for (int known = 0; known < 2; known++) {
        of_device += each_fails("mlp", WEIR_KIND_DEVICE, known) + each_fails("copies", WEIR_KIND_DEVICE, known);
        pinned += each_fails("staged", WEIR_KIND_PINNED, known);
    }
    assert_true(of_device > 20);
    assert_true(pinned > 0);
}

/* Fifty times loaded, run and unloaded: streams, handles and single allocations are as after the first. */
static void over_and_over_again(void **state)
{
    (void)state;
    static const char *const what[] = {"streams", "allocations", "mappings"};
    uint64_t first[3] = {0};
    for (int known = 0; known < 2; known++) {
        fixture f = begin(known);
        for (int i = 0; i < 25; i++) {
            const char *words;
            ort_session *session = session_of(&f, i % 2 ? "mlp" : "copies");
            if (i % 2 == 0)
                assert_true(run_copies(session, 1, 5, &words));
            ort->ReleaseSession(session);
            for (int k = 0; k < 3 && i >= 2; k++)
                if (i == 2)
                    first[k] = stub_count(what[k]);
                else if (stub_count(what[k]) > first[k])
                    fail_msg("%s: %llu, then %llu", what[k], (unsigned long long)first[k],
                             (unsigned long long)stub_count(what[k]));
        }
        end(&f);
    }
}

int main(void)
{
    int status = ort_open("onnxruntime-cuda");
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, "stub_count") : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_on_a_known_stream),
        cmocka_unit_test(memory_on_its_own_streams),
        cmocka_unit_test(copies_are_true_on_both),
        cmocka_unit_test(results_for_the_host),
        cmocka_unit_test(two_sessions_lend_to_each_other),
        cmocka_unit_test(every_request_fails_in_turn),
        cmocka_unit_test(over_and_over_again),
    };
    if (status == 0 && !symbol)
        return 1;
    memcpy(&stub_count, &symbol, sizeof symbol);
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
