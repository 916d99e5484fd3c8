/* Several threads on one model, on several models, loading at once; and stopping a run from another thread. */
#include "watch.h"
#include <weir/engine.h>

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 200, THREADS = 4 };

/* cmocka's assertions belong to the main thread: workers count what went wrong. */
typedef struct worker {
    const loaded *l;
    unsigned seed;
    int wrong;
    char words[256];
} worker;

/* Each run's input differs; y = relu(x·w + b) is compared with the same run done alone before. */
static void *run_mlp(void *user)
{
    worker *w = user;
    float x[16];
    uint8_t first[17 * sizeof(float)];
    bool have = false;
    for (int i = 0; i < 16; i++)
        x[i] = (float)((w->seed + (unsigned)i * 5) % 7) - 3;
    int64_t shape[] = {1, 16};
    weir_tensor in = {.struct_size = sizeof in,
                      .name = "x",
                      .type = WEIR_TYPE_F32,
                      .rank = 2,
                      .shape = {shape[0], shape[1]},
                      .data = x,
                      .bytes = sizeof x};
    for (int i = 0; i < RUNS; i++) {
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_inference inference = {.struct_size = sizeof inference, .id = w->seed, .inputs = &in, .input_count = 1};
        if (w->l->engine->infer(w->l->model, &inference, &out) != WEIR_OK) {
            snprintf(w->words, sizeof w->words, "%s", weir_detail());
            w->wrong++;
            continue;
        }
        if (!have)
            memcpy(first, out.tensors[0].data, sizeof first);
        have = true;
        w->wrong += memcmp(first, out.tensors[0].data, sizeof first) != 0;
        w->l->engine->release_outputs(w->l->model, &out);
    }
    return NULL;
}

static void run_all(worker *workers, size_t count)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_mlp, &workers[i]), 0);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < count; i++)
        if (workers[i].wrong)
            fail_msg("%d runs went wrong: %s", workers[i].wrong, workers[i].words);
}

static void threads_on_one_model(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t before = live(&l);
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        workers[i] = (worker){.l = &l, .seed = i + 1};
    run_all(workers, THREADS);
    assert_int_equal(live(&l), before);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.runs, THREADS * RUNS);
    assert_int_equal(metrics.failures, 0);
    unload_model(&l);
    close_client(&l);
}

static void threads_on_two_models(void **state)
{
    (void)state;
    loaded a = load_model("mlp", NULL), b = load_model("typed", (const char *const[]){"prepack=off", NULL});
    worker workers[] = {{.l = &a, .seed = 1}, {.l = &b, .seed = 2}, {.l = &a, .seed = 3}, {.l = &b, .seed = 4}};
    run_all(workers, 4);
    unload_model(&a);
    unload_model(&b);
    close_client(&a);
    close_client(&b);
}

static void *load_and_unload(void *user)
{
    worker *w = user;
    loaded l = *w->l;
    for (int i = 0; i < 10; i++) {
        if (load_into(&l, "mlp", NULL) != WEIR_OK) {
            snprintf(w->words, sizeof w->words, "%s", weir_detail());
            w->wrong++;
            continue;
        }
        l.engine->unload(l.model);
    }
    return NULL;
}

static void loading_at_once(void **state)
{
    (void)state;
    loaded accounts[THREADS];
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        accounts[i] = open_client(0);
        workers[i] = (worker){.l = &accounts[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, load_and_unload, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
        assert_int_equal(live(&accounts[i]), 0);
        close_client(&accounts[i]);
    }
}

/* One thread is refused again and again, the other never notices. */
static void *always_too_much(void *user)
{
    worker *w = user;
    int64_t elements = 1 << 28;
    weir_tensor n = {.struct_size = sizeof n,
                     .name = "n",
                     .type = WEIR_TYPE_I64,
                     .rank = 1,
                     .shape = {1},
                     .data = &elements,
                     .bytes = 8};
    for (int i = 0; i < RUNS; i++) {
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_inference inference = {.struct_size = sizeof inference, .inputs = &n, .input_count = 1};
        weir_status status = w->l->engine->infer(w->l->model, &inference, &out);
        w->wrong += status != WEIR_ERR_OUT_OF_MEMORY || !strstr(weir_detail(), "greedy asked for");
    }
    return NULL;
}

static void a_refused_thread_beside_a_working_one(void **state)
{
    (void)state;
    loaded calm = open_client(16u << 20), greedy = calm;
    weir_client_options options = {.struct_size = sizeof options, .name = "greedy"};
    assert_ok(weir_client_create(calm.runtime, &options, &greedy.client));
    assert_ok(load_into(&calm, "mlp", NULL));
    assert_ok(load_into(&greedy, "grow", NULL));
    worker a = {.l = &calm, .seed = 5}, b = {.l = &greedy};
    pthread_t first, second;
    assert_int_equal(pthread_create(&first, NULL, run_mlp, &a), 0);
    assert_int_equal(pthread_create(&second, NULL, always_too_much, &b), 0);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    assert_int_equal(a.wrong, 0);
    assert_int_equal(b.wrong, 0);
    unload_model(&greedy);
    assert_ok(weir_client_destroy(greedy.client));
    unload_model(&calm);
    close_client(&calm);
}

/* ---- cancel ------------------------------------------------------------------------------------------------------- */

typedef struct long_run {
    const loaded *l;
    uint64_t id;
    int64_t rounds;
    weir_status status;
    char words[256];
} long_run;

static void *run_loop(void *user)
{
    long_run *r = user;
    float x[16] = {1};
    weir_tensor inputs[] = {
        {.struct_size = sizeof *inputs, .name = "count", .type = WEIR_TYPE_I64, .data = &r->rounds, .bytes = 8},
        {.struct_size = sizeof *inputs,
         .name = "x",
         .type = WEIR_TYPE_F32,
         .rank = 2,
         .shape = {1, 16},
         .data = x,
         .bytes = sizeof x}};
    weir_inference inference = {.struct_size = sizeof inference, .id = r->id, .inputs = inputs, .input_count = 2};
    weir_outputs out = WEIR_INIT(weir_outputs);
    r->status = r->l->engine->infer(r->l->model, &inference, &out);
    snprintf(r->words, sizeof r->words, "%s", weir_detail());
    if (r->status == WEIR_OK)
        r->l->engine->release_outputs(r->l->model, &out);
    return NULL;
}

static void cancel_until_found(const loaded *l, uint64_t id)
{
    weir_status status;
    for (int tries = 0; (status = l->engine->cancel(l->model, id)) == WEIR_ERR_NOT_FOUND && tries < 5000; tries++)
        usleep(1000);
    assert_ok(status);
}

static void cancel_stops_a_run(void **state)
{
    (void)state;
    loaded l = load_model("loop", NULL);
    uint64_t before = live(&l);
    assert_status(l.engine->cancel(l.model, 7), WEIR_ERR_NOT_FOUND);
    assert_status(l.engine->cancel(l.model, 0), WEIR_ERR_NOT_FOUND);
    for (int by_id = 1; by_id >= 0; by_id--) {
        long_run endless = {.l = &l, .id = 7, .rounds = INT64_MAX}, other = {.l = &l, .id = 8, .rounds = 3};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, run_loop, &endless), 0);
        cancel_until_found(&l, by_id ? 7 : 0);
        run_loop(&other);
        pthread_join(thread, NULL);
        assert_int_equal(endless.status, WEIR_ERR_CANCELLED);
        assert_non_null(strstr(endless.words, "run 7 was cancelled"));
        assert_int_equal(other.status, WEIR_OK);
        assert_int_equal(live(&l), before);
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.cancelled, 2);
    assert_int_equal(metrics.failures, 0);
    unload_model(&l);
    close_client(&l);
}

static const loaded *refused_one;

/* A run that the client's maximum does not allow. */
static void *run_refused(void *user)
{
    weir_status *status = user;
    int64_t elements = 64 << 20;
    weir_tensor n = tensor("n", WEIR_TYPE_I64, SHAPE(1), &elements);
    weir_outputs out;
    watched.Run = real->Run;
    *status = infer(refused_one, &n, 1, &out);
    return NULL;
}

/* Fails for want of memory of the heap's, after a run of another thread was refused in the client's. */
static ort_status *run_without_heap(ort_session *session, const ort_run_options *options,
                                    const char *const *input_names, const ort_value *const *inputs, size_t input_count,
                                    const char *const *output_names, size_t output_count, ort_value **outputs)
{
    (void)session, (void)options, (void)input_names, (void)inputs, (void)input_count, (void)output_names;
    (void)output_count, (void)outputs;
    pthread_t thread;
    weir_status status = WEIR_OK;
    ort_status *(*make_status)(int code, const char *text);
    memcpy(&make_status, real, sizeof make_status); /* the table's first */
    if (pthread_create(&thread, NULL, run_refused, &status) != 0 || pthread_join(thread, NULL) != 0 ||
        status != WEIR_ERR_OUT_OF_MEMORY)
        return make_status(1, "the other run was not refused");
    return make_status(6, "std::bad_alloc");
}

/* Whose request was refused is known by the thread, and not by the model. */
static void a_refusal_is_of_the_run_that_asked(void **state)
{
    (void)state;
    loaded l = open_client(8u << 20);
    assert_ok(load_into(&l, "grow", NULL));
    int64_t elements = 10;
    weir_tensor n = tensor("n", WEIR_TYPE_I64, SHAPE(1), &elements);
    weir_outputs out;
    refused_one = &l;
    watched.Run = run_without_heap;
    assert_status(infer(&l, &n, 1, &out), WEIR_ERR_SYSTEM);
    assert_detail("no host memory: std::bad_alloc");
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_one_model),
        cmocka_unit_test(threads_on_two_models),
        cmocka_unit_test(loading_at_once),
        cmocka_unit_test(a_refused_thread_beside_a_working_one),
        cmocka_unit_test(cancel_stops_a_run),
        cmocka_unit_test_setup_teardown(a_refusal_is_of_the_run_that_asked, watch, unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
