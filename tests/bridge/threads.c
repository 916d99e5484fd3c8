/* Sessions on threads, and over and over again: nothing mixes, nothing is left behind. */
#include "ort.h"
#include <weir/onnxruntime.h>

enum { RUNS = 200, THREADS = 2 };

/* A sanitizer keeps for itself what is freed, and takes its time. */
#ifdef __SANITIZE_ADDRESS__
enum { CYCLES = 20, GROWTH = 1 << 20 };
#else
enum { CYCLES = 500, GROWTH = 64 };
#endif

typedef struct worker {
    ort_session *session;
    const char *model;
    unsigned seed;
    const ort_ports *plain;
    weir_client *client; /* NULL: other threads have the same session */
    int wrong;
    char words[256];
} worker;

/* cmocka's assertions belong to the main thread. */
static void *run_often(void *user)
{
    worker *w = user;
    ort_ports inputs, outputs;
    ort_inputs(w->session, w->seed, 2, &inputs);
    ort_outputs(w->session, &outputs);
    for (int i = 0; i < RUNS; i++) {
        const char *words = ort_words(ort_run(w->session, &inputs, &outputs));
        if (words)
            snprintf(w->words, sizeof w->words, "%s", words);
        w->wrong += words || !ort_equal(w->plain, &outputs);
        ort_release_values(&outputs);
    }
    ort_release(&outputs);
    ort_release(&inputs);
    return NULL;
}

static void run_all(worker *workers)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_often, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].wrong)
            fail_msg("%s: %d runs went wrong: %s", workers[i].model, workers[i].wrong, workers[i].words);
}

static void two_threads_on_one_session(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(256 * MIB);
    weir_client *client = open_client(runtime, "anna", 0, 0);
    weir_onnxruntime_options o = ort_bridge(client);
    ok(weir_onnxruntime_register(&o));
    ort_session *session = ort_session_of("conv", true);
    ort_ports plain[THREADS];
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        ort_plain_answers("conv", i, 2, &plain[i]);
        workers[i] = (worker){.session = session, .model = "conv", .seed = i, .plain = &plain[i]};
    }
    run_all(workers);
    for (int i = 0; i < THREADS; i++)
        ort_release(&plain[i]);
    ort->ReleaseSession(session);
    assert_int_equal(ort_live(client), 0);
    ok(weir_onnxruntime_unregister(NULL, "host"));
    ok(weir_client_destroy(client));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* Each session has a client of its own, and keeps it. */
static void two_sessions_on_two_threads(void **state)
{
    (void)state;
    static const char *const models[THREADS] = {"conv", "loop"};
    weir_runtime *runtime = make_runtime(256 * MIB);
    weir_client *clients[THREADS];
    weir_onnxruntime *bridges[THREADS];
    ort_ports plain[THREADS];
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        clients[i] = open_client(runtime, models[i], 0, 0);
        weir_onnxruntime_options o = ort_bridge(clients[i]);
        ok(weir_onnxruntime_create(&o, &bridges[i]));
        ok(weir_onnxruntime_enter(bridges[i]));
        workers[i] = (worker){.session = ort_session_of(models[i], true), .model = models[i], .seed = i};
        weir_onnxruntime_leave(bridges[i]);
        ort_plain_answers(models[i], i, 2, &plain[i]);
        workers[i].plain = &plain[i];
    }
    run_all(workers);
    for (int i = 0; i < THREADS; i++) {
        weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
        ok(weir_onnxruntime_info(bridges[i], &s));
        assert_true(s.blocks >= RUNS);
        ort->ReleaseSession(workers[i].session);
        assert_int_equal(ort_live(clients[i]), 0);
        ort_release(&plain[i]);
        ok(weir_onnxruntime_destroy(bridges[i]));
        ok(weir_client_destroy(clients[i]));
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* Threads that load and unload at once: swaps come one after the other, and each session gets its own. */
static void *load_often(void *user)
{
    worker *w = user;
    weir_onnxruntime_options o = ort_bridge(w->client);
    for (int i = 0; i < RUNS / 10; i++) {
        weir_onnxruntime *bridge;
        if (weir_onnxruntime_create(&o, &bridge) != WEIR_OK || weir_onnxruntime_enter(bridge) != WEIR_OK) {
            w->wrong++;
            break;
        }
        ort_session *session;
        ort_status *status = ort_create(w->model, ort_options(true), &session);
        weir_onnxruntime_leave(bridge);
        weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
        w->wrong += ort_words(status) || weir_onnxruntime_info(bridge, &s) != WEIR_OK || s.live == 0;
        if (session)
            ort->ReleaseSession(session);
        w->wrong += weir_onnxruntime_destroy(bridge) != WEIR_OK;
    }
    return NULL;
}

static void loads_at_once(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(256 * MIB);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.model = "mlp", .client = open_client(runtime, "anna", 0, 0)};
        pthread_create(&threads[i], NULL, load_often, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
        ok(weir_client_destroy(workers[i].client));
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* In KiB. */
static long anonymous_memory(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

static void cycle(weir_client *client, const ort_ports *plain, bool registered)
{
    weir_onnxruntime_options o = ort_bridge(client);
    weir_onnxruntime *bridge = NULL;
    ort_ports inputs, outputs;
    if (registered) {
        ok(weir_onnxruntime_register(&o));
    } else {
        ok(weir_onnxruntime_create(&o, &bridge));
        ok(weir_onnxruntime_enter(bridge));
    }
    ort_session *session = ort_session_of("mlp", true);
    if (!registered)
        weir_onnxruntime_leave(bridge);
    ort_inputs(session, 1, 2, &inputs);
    ort_outputs(session, &outputs);
    ort_ok(ort_run(session, &inputs, &outputs));
    assert_true(ort_equal(plain, &outputs));
    ort_release(&outputs);
    ort_release(&inputs);
    ort->ReleaseSession(session);
    assert_int_equal(ort_live(client), 0);
    if (registered)
        ok(weir_onnxruntime_unregister(NULL, "host"));
    else
        ok(weir_onnxruntime_destroy(bridge));
}

static void over_and_over_again(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(256 * MIB);
    weir_client *client = open_client(runtime, "anna", 0, 0);
    ort_ports plain;
    ort_plain_answers("mlp", 1, 2, &plain);
    long first = 0;
    for (int i = 0; i <= CYCLES; i++) {
        cycle(client, &plain, i % 2);
        first = i == 0 ? anonymous_memory() : first;
    }
    double growth = (double)(anonymous_memory() - first) / CYCLES;
    print_message("%.2f KiB a cycle\n", growth);
    assert_true(growth <= GROWTH);
    ort_release(&plain);
    ok(weir_client_destroy(client));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    int status = ort_open("onnxruntime");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_on_one_session),
        cmocka_unit_test(two_sessions_on_two_threads),
        cmocka_unit_test(loads_at_once),
        cmocka_unit_test(over_and_over_again),
    };
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
