/* Who runs when and in which session: on the host, and over the stub of CUDA. */
#include "watch.h"
#include <weir/engine.h>

#include <pthread.h>
#include <unistd.h>

#include "onnx/engine/model.h"

static bool on_cuda(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0;
}

/* One that waits for its turn need not have it to be cancelled, and leaves it to the next. */
static void a_waiting_run_is_cancelled(void **state)
{
    (void)state;
    pthread_t threads[3];
    loaded l = load_model("mlp", (const char *const[]){on_cuda() ? NULL : "concurrency=1", NULL});
    numbered runs[] = {{.l = &l, .id = 1}, {.l = &l, .id = 2}, {.l = &l, .id = 3}};
    watched.Run = slow_run;
    assert_int_equal(pthread_create(&threads[0], NULL, run_numbered, &runs[0]), 0);
    wait_for_it();
    for (int i = 1; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_numbered, &runs[i]), 0);
    while (l.engine->cancel(l.model, 2) == WEIR_ERR_NOT_FOUND)
        usleep(1000);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int joined = pthread_timedjoin_np(threads[1], NULL, &until);
    bool still = atomic_load(&held_up);
    atomic_store(&held_up, false);
    assert_int_equal(joined, 0);
    assert_true(still);
    pthread_join(threads[0], NULL);
    pthread_join(threads[2], NULL);
    assert_int_equal(runs[0].status, WEIR_OK);
    assert_int_equal(runs[1].status, WEIR_ERR_CANCELLED);
    assert_int_equal(runs[2].status, WEIR_OK);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.cancelled, 1);
    unload_model(&l);
    close_client(&l);
}

/* ---- sessions by shape ------------------------------------------------------------------------------------------------ */

static void run_rows(const loaded *l, int64_t rows, weir_outputs *out)
{
    static float x[256 * 16];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(rows, 16), x);
    assert_ok(infer(l, &in, 1, out));
    assert_int_equal(output(out, "y")->shape[0], rows);
}

static void run_and_drop(const loaded *l, int64_t rows)
{
    weir_outputs out;
    run_rows(l, rows, &out);
    l->engine->release_outputs(l->model, &out);
}

static void keys_round_up(void **state)
{
    (void)state;
    weir_port ports[2] = {{.name = "a"}, {.name = "b"}};
    const char *names[2] = {"a", "b"};
    weir_engine_model model = {.inputs = {.list = ports, .names = names, .count = 2},
                               .settings = {.granularity = 64, .bucket_dims = 4}};
    weir_tensor tensors[2] = {tensor("b", WEIR_TYPE_I64, SHAPE(3, 64, 65, 0, 7), NULL),
                              tensor("a", WEIR_TYPE_F32, 0, NULL, NULL)};
    weir_inference inference = {.inputs = tensors, .input_count = 2};
    char key[128];
    onnx_bucket_key(&model, &inference, key, sizeof key);
    assert_string_equal(key, "f32:0:;i64:5:3,64,128,-1*;");
    onnx_bucket_key(&model, &inference, key, 8);
    assert_int_equal(strlen(key), 7);
    inference.input_count = 0;
    onnx_bucket_key(&model, &inference, key, sizeof key);
    assert_string_equal(key, "");
}

/* D22: each session has the weights of the first. */
static void weights_are_there_once(void **state)
{
    (void)state;
    loaded one = load_model("mlp", (const char *const[]){"prepack=off", NULL});
    loaded many = load_model("mlp", (const char *const[]){"buckets=4", NULL});
    uint64_t weights = live_class(&one, WEIR_CLASS_WEIGHTS);
    for (int64_t rows = 1; rows <= 4; rows++)
        run_and_drop(&many, rows);
    onnx_bucket_stats stats = onnx_buckets_look(many.model);
    assert_int_equal(stats.now, 3);
    assert_true(live_class(&many, WEIR_CLASS_WEIGHTS) >= weights);
    /* what is below 1 KiB stays in the model, and each session's copy of it is charged */
    assert_true(live_class(&many, WEIR_CLASS_WEIGHTS) <= weights + 3 * 1024);
    assert_int_equal(many.model->weight_count, 1);
    assert_string_equal(many.model->weights[0].name, "w");
    assert_int_equal(many.model->weights[0].data != NULL, !on_cuda()); /* there the first session's block is all */
    unload_model(&one);
    unload_model(&many);
    close_client(&one);
    close_client(&many);
}

/* A node that the CPU runs reads a weight on the device at its peril: nothing is shared that one could read. */
static void only_what_cuda_reads_is_shared(void **state)
{
    (void)state;
    static const char *const none[] = {""}, *const shapes[] = {"Shape", "Gather", "Concat"}, *const sums[] = {"Add"},
                             *const products[] = {"Shape", "MatMul"}, *const unknown[] = {"Attention"};
    const onnx_use twice = {ONNX_USE_RIGHT | ONNX_USE_OPERAND, 2, false}, table = {ONNX_USE_TABLE, 1, false},
                   tables = {ONNX_USE_TABLE, 2, false}, other = {ONNX_USE_RIGHT | ONNX_USE_OTHER, 2, false},
                   nobody = {0, 0, false};
    assert_true(onnx_shared_allowed(&twice, true, none, 0));
    assert_true(onnx_shared_allowed(&twice, true, shapes, 3));
    assert_true(onnx_shared_allowed(&tables, true, sums, 1));
    assert_true(onnx_shared_allowed(&table, true, shapes, 3)); /* who reads it is where it was found */
    assert_false(onnx_shared_allowed(&table, false, shapes, 3));
    assert_false(onnx_shared_allowed(&tables, true, shapes, 3));
    assert_false(onnx_shared_allowed(&twice, true, products, 2));
    assert_false(onnx_shared_allowed(&twice, true, unknown, 1));
    assert_false(onnx_shared_allowed(&other, true, none, 0));
    assert_false(onnx_shared_allowed(&nobody, true, none, 0));
}

/* The bytes that are found are a weight's own if nothing else could have left them there: blocks are of whole 256 bytes. */
static void weights_that_may_be_mistaken_are_known(void **state)
{
    (void)state;
    enum { FIRST, LONGER, OTHER, ZEROS, TYPED, COUNT };
    static uint8_t bytes[COUNT][2048];
    onnx_tensor list[COUNT];
    onnx_graph graph = {.weights = list, .weight_count = COUNT};
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; i != ZEROS && k < 2048; k++)
            bytes[i][k] = (uint8_t)(k / 4 + (i == OTHER));
        list[i] = (onnx_tensor){.type = ONNX_FLOAT, .bytes = 1040, .location = ONNX_LOCATION_BYTES, .data = bytes[i]};
    }
    list[LONGER].bytes = 1200; /* in a block of the same length */
    list[TYPED] = (onnx_tensor){.type = ONNX_FLOAT, .bytes = 2000, .location = ONNX_LOCATION_TYPED};
    assert_false(onnx_shared_unlike(&graph, FIRST));
    assert_false(onnx_shared_unlike(&graph, LONGER));
    assert_true(onnx_shared_unlike(&graph, OTHER));
    assert_false(onnx_shared_unlike(&graph, ZEROS)); /* which are computed, too */
    list[LONGER].bytes = 1300;
    assert_true(onnx_shared_unlike(&graph, FIRST));
    list[TYPED].bytes = 1030; /* what it holds is not looked at */
    assert_false(onnx_shared_unlike(&graph, FIRST));
}

/* Constants of which nothing else is known could have left their bytes there, too. */
static void constants_that_may_be_mistaken_are_known(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp", "constant", "branch", "function"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        onnx_file file;
        onnx_graph graph;
        onnx_uses uses;
        assert_ok(onnx_file_open(model_path(models[i]), &file));
        assert_ok(onnx_graph_read(&file, &graph));
        assert_ok(onnx_uses_read(&graph, &uses));
        assert_int_equal(uses.constants, i > 0);
        free(uses.of);
        onnx_graph_free(&graph);
        onnx_file_close(&file);
    }
}

static const weir_client *whose; /* what is handed over on the device is to be this client's */
static int handed_over, not_its_own;

static ort_status *noted_value(const ort_memory_info *info, void *data, size_t bytes, const int64_t *shape, size_t rank,
                               int type, ort_value **out)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    if (bytes >= 1024) {
        handed_over++;
        not_its_own += weir_block_info(data, &details) != WEIR_OK || details.client != whose;
    }
    return real->CreateTensorWithDataAsOrtValue(info, data, bytes, shape, rank, type, out);
}

/* The same model twice in a runtime: each has its sessions read its own weights, though the bytes are the same. */
static void weights_are_the_clients_own(void **state)
{
    (void)state;
    loaded first = load_model("chain", NULL), second = first;
    weir_client_options options = {.struct_size = sizeof options, .name = "second"};
    assert_ok(weir_client_create(second.runtime, &options, &second.client));
    whose = second.client;
    handed_over = not_its_own = 0;
    watched.CreateTensorWithDataAsOrtValue = noted_value;
    assert_ok(load_into(&second, "chain", (const char *const[]){"buckets=2", NULL}));
    watched.CreateTensorWithDataAsOrtValue = real->CreateTensorWithDataAsOrtValue;
    assert_true(handed_over > 0);
    assert_int_equal(not_its_own, 0);
    unload_model(&second);
    assert_ok(weir_client_destroy(second.client));
    unload_model(&first);
    close_client(&first);
}

/* ---- the model's file ------------------------------------------------------------------------------------------------- */

/* The model "folded" as a file of this process's; `other`: with the signs of its weights turned. */
static void write_folded(bool other)
{
    onnx_file file;
    onnx_graph graph;
    assert_ok(onnx_file_open(model_path("folded"), &file));
    assert_ok(onnx_graph_read(&file, &graph));
    char *bytes = malloc(file.size), path[560];
    assert_non_null(bytes);
    memcpy(bytes, file.data, file.size);
    for (size_t i = 0; other && i < graph.weight_count; i++)
        for (size_t k = 3; graph.weights[i].bytes >= 1024 && k < graph.weights[i].bytes; k += 4)
            bytes[(size_t)(graph.weights[i].data - file.data) + k] ^= (char)0x80;
    snprintf(path, sizeof path, "%s.new", scratch_path());
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, file.size, out), file.size);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(path, scratch_path()), 0);
    free(bytes);
    onnx_graph_free(&graph);
    onnx_file_close(&file);
}

static void run_folded(const loaded *l, int64_t rows, float *first)
{
    static float x[8 * 17];
    weir_outputs out;
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(rows, 17), x);
    assert_ok(infer(l, &in, 1, &out));
    memcpy(first, output(&out, "y")->data, 17 * sizeof *first);
    l->engine->release_outputs(l->model, &out);
}

/* What the optimizer folds it reads from the file, for each session. */
static void another_file_in_its_place_is_not_read(void **state)
{
    (void)state;
    float before[17], after[17];
    write_folded(false);
    loaded l = load_model(scratch_path(), (const char *const[]){"buckets=3", NULL});
    run_folded(&l, 1, before);
    run_folded(&l, 2, after);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    write_folded(true);
    run_folded(&l, 3, after);
    if (!on_cuda()) /* the stub computes nothing */
        assert_memory_equal(before, after, sizeof before);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    assert_int_equal(onnx_buckets_look(l.model).failed, 1);
    unload_model(&l);
    close_client(&l);
    scratch_clear();
}

/* For watched.CreateSessionFromArray: the file is another one when the session is there. */
static ort_status *replacing_session(const ort_env *env, const void *model, size_t size,
                                     const ort_session_options *options, ort_session **out)
{
    ort_status *status = real->CreateSessionFromArray(env, model, size, options, out);
    write_folded(true);
    return status;
}

/* Nobody knows what of it was read. */
static void another_file_while_it_is_read_is_no_session(void **state)
{
    (void)state;
    float first[17];
    write_folded(false);
    loaded l = load_model(scratch_path(), (const char *const[]){"buckets=3", NULL});
    run_folded(&l, 1, first);
    watched.CreateSessionFromArray = replacing_session;
    run_folded(&l, 2, first);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 0);
    assert_int_equal(stats.now, 0);
    assert_int_equal(stats.failed, 1);
    unload_model(&l);
    close_client(&l);
}

static void the_oldest_bucket_goes(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=3", "bucket_granularity=8", NULL});
    weir_outputs kept;
    run_and_drop(&l, 1);    /* the model's own session, for good */
    run_rows(&l, 2, &kept); /* an outcome outlives its session */
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).made, 2);
    run_and_drop(&l, 2);
    run_and_drop(&l, 4); /* in place of 3's */
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 3);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.now, 2);
    run_and_drop(&l, 2);
    run_and_drop(&l, 1);
    assert_int_equal(onnx_buckets_look(l.model).made, 3);
    run_and_drop(&l, 3);
    run_and_drop(&l, 5); /* 2's is gone as well */
    assert_int_equal(onnx_buckets_look(l.model).ended, 3);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).made, 5);
    assert_int_equal(output(&kept, "y")->shape[0], 2);
    l.engine->release_outputs(l.model, &kept);
    unload_model(&l);
    close_client(&l);
}

/* A session that takes its time to come. */
static ort_status *slow_session(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                ort_session **out)
{
    atomic_store(&held_up, true);
    while (atomic_load(&held_up))
        usleep(1000);
    return real->CreateSessionFromArray(env, model, size, options, out);
}

static void *run_two_rows(void *user)
{
    run_and_drop(user, 2);
    return NULL;
}

/* D23: while one bucket's session is being made, runs of others and of the same shapes go on. */
static void nobody_waits_for_another_bucket(void **state)
{
    (void)state;
    pthread_t other;
    loaded l = load_model("mlp", (const char *const[]){"buckets=4", NULL});
    run_and_drop(&l, 1);
    run_and_drop(&l, 3);
    watched.CreateSessionFromArray = slow_session;
    assert_int_equal(pthread_create(&other, NULL, run_two_rows, &l), 0);
    wait_for_it();
    uint64_t weights = live_class(&l, WEIR_CLASS_WEIGHTS), all = live(&l);
    weir_outputs out;
    run_rows(&l, 1, &out);
    if (!on_cuda()) /* whence outputs are copied to ONNX Runtime's own */
        assert_true(live(&l) > all);
    assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), weights); /* and are no weights, whatever is being loaded */
    l.engine->release_outputs(l.model, &out);
    run_and_drop(&l, 3);
    run_and_drop(&l, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    atomic_store(&held_up, false);
    pthread_join(other, NULL);
    watched.CreateSessionFromArray = real->CreateSessionFromArray;
    assert_int_equal(onnx_buckets_look(l.model).made, 2);
    /* Whoever came while it was made does not use it: it goes as others do. */
    run_and_drop(&l, 4);
    run_and_drop(&l, 5);
    run_and_drop(&l, 6);
    assert_int_equal(onnx_buckets_look(l.model).ended, 2);
    run_and_drop(&l, 4);
    assert_int_equal(onnx_buckets_look(l.model).made, 5);
    run_and_drop(&l, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 6);
    unload_model(&l);
    close_client(&l);
}

/* While a session runs it does not make room for another. On cuda one run at a time is under way. */
static void a_session_in_use_stays(void **state)
{
    (void)state;
    pthread_t other;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    watched.Run = real->Run;
    run_and_drop(&l, 1);
    run_and_drop(&l, 2);
    watched.Run = slow_run;
    assert_int_equal(pthread_create(&other, NULL, run_two_rows, &l), 0);
    wait_for_it();
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).ended, 0);
    atomic_store(&held_up, false);
    pthread_join(other, NULL);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).ended, 1);
    unload_model(&l);
    close_client(&l);
}

static atomic_bool in_run, run_may_go;

/* The first run stays inside; others go on. */
static ort_status *gated_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                             const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                             size_t output_count, ort_value **outputs)
{
    watched.Run = real->Run;
    atomic_store(&in_run, true);
    while (!atomic_load(&run_may_go))
        usleep(1000);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static void *run_three_rows(void *user)
{
    run_and_drop(user, 3);
    return NULL;
}

/* One that was idle when another was begun may be in use when that is there: then there is one too many, until either of them
 * is used no more. */
static void what_is_too_many_goes_when_it_can(void **state)
{
    (void)state;
    pthread_t makes, uses;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    run_and_drop(&l, 2);
    watched.CreateSessionFromArray = slow_session;
    assert_int_equal(pthread_create(&makes, NULL, run_three_rows, &l), 0);
    wait_for_it();
    atomic_store(&in_run, false);
    atomic_store(&run_may_go, false);
    watched.Run = gated_run;
    assert_int_equal(pthread_create(&uses, NULL, run_two_rows, &l), 0);
    while (!atomic_load(&in_run))
        usleep(1000);
    atomic_store(&held_up, false);
    pthread_join(makes, NULL);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    atomic_store(&run_may_go, true);
    pthread_join(uses, NULL);
    assert_int_equal(stats.made, 2);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.now, 1);
    assert_int_equal(onnx_buckets_look(l.model).now, 1);
    unload_model(&l);
    close_client(&l);
}

/* For watched.CreateSessionFromArray. */
static int failing; /* so many more fail */
static weir_status failing_as;
static int attempts;

static ort_status *failing_session(const ort_env *env, const void *model, size_t size,
                                   const ort_session_options *options, ort_session **out)
{
    attempts++;
    if (failing-- <= 0)
        return real->CreateSessionFromArray(env, model, size, options, out);
    if (failing_as != WEIR_ERR_OUT_OF_MEMORY)
        return real->CreateSessionFromArray(env, "no model", 8, options, out);
    static ort_value *value; /* never made: a request that the client is refused, on this thread */
    ort_allocator *its = NULL;
    ort_memory_info *info = NULL;
    ort_status *status = on_cuda() ? real->CreateMemoryInfo("Cuda", ORT_DEVICE_ALLOCATOR, 0, ORT_MEMORY_DEFAULT, &info)
                                   : real->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &info);
    if (!status)
        status = real->GetSharedAllocator((ort_env *)(uintptr_t)env, info, &its);
    if (!status)
        status = real->CreateTensorAsOrtValue(its, (const int64_t[]){INT64_C(1) << 40}, 1, 1, &value);
    real->ReleaseMemoryInfo(info);
    return status;
}

static void fail_next(int times, weir_status how)
{
    failing = times;
    failing_as = how;
    attempts = 0;
    watched.CreateSessionFromArray = failing_session;
}

/* Nor is it tried again at every run: after a second, then after two. */
static double clock_of_the_test = 1000;

double __wrap_onnx_seconds(void);
double __wrap_onnx_seconds(void)
{
    return clock_of_the_test += 1e-6; /* no two moments are one */
}

static void without_a_session_the_first_serves(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    fail_next(2, WEIR_ERR_ENGINE);
    run_and_drop(&l, 2);
    run_and_drop(&l, 2);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(attempts, 1);
    assert_int_equal(stats.now, 0);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.spared, 1);
    clock_of_the_test += 1.01; /* a second, when it is tried again */
    run_and_drop(&l, 2);
    clock_of_the_test += 1.99; /* not yet two */
    run_and_drop(&l, 2);
    stats = onnx_buckets_look(l.model);
    assert_int_equal(attempts, 2);
    assert_int_equal(stats.failed, 2);
    assert_int_equal(stats.spared, 2);
    clock_of_the_test += 0.02;
    run_and_drop(&l, 2);
    stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 1);
    assert_int_equal(stats.now, 1);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.sessions, 1);
    assert_int_equal(metrics.sessions_failed, 2);
    unload_model(&l);
    close_client(&l);
}

/* What failed before a session was made for the shapes is past: the next failure is the first again. */
static void a_success_ends_what_failed(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    fail_next(1, WEIR_ERR_ENGINE);
    run_and_drop(&l, 2);
    clock_of_the_test += 1.01;
    run_and_drop(&l, 2);
    assert_int_equal(attempts, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    run_and_drop(&l, 3); /* in its place */
    assert_int_equal(onnx_buckets_look(l.model).made, 2);
    fail_next(1, WEIR_ERR_ENGINE);
    run_and_drop(&l, 2);
    clock_of_the_test += 0.99;
    run_and_drop(&l, 2);
    assert_int_equal(attempts, 1);
    clock_of_the_test += 0.02;
    run_and_drop(&l, 2);
    assert_int_equal(attempts, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 3);
    unload_model(&l);
    close_client(&l);
}

/* A second, two, four, and so on; at the most 256. */
static void a_wait_has_an_end(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    fail_next(20, WEIR_ERR_ENGINE);
    run_and_drop(&l, 2);
    for (int tries = 1, seconds = ONNX_FAILURE_FIRST; tries < 12; tries++) {
        assert_int_equal(attempts, tries);
        clock_of_the_test += seconds - 0.01;
        run_and_drop(&l, 2);
        assert_int_equal(attempts, tries);
        clock_of_the_test += 0.02;
        run_and_drop(&l, 2);
        seconds = 2 * seconds < ONNX_FAILURE_MOST ? 2 * seconds : ONNX_FAILURE_MOST;
    }
    assert_int_equal(attempts, 12);
    unload_model(&l);
    close_client(&l);
}

static void only_so_many_failures_are_remembered(void **state)
{
    (void)state;
    enum { SHAPES = ONNX_FAILURES_KEPT + 3 };
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    fail_next(3 * SHAPES, WEIR_ERR_ENGINE);
    for (int64_t rows = 2; rows < 2 + SHAPES; rows++)
        run_and_drop(&l, rows);
    assert_int_equal(attempts, SHAPES);
    for (int64_t rows = 2 + SHAPES - ONNX_FAILURES_KEPT; rows < 2 + SHAPES; rows++)
        run_and_drop(&l, rows); /* the last ones are known */
    assert_int_equal(attempts, SHAPES);
    run_and_drop(&l, 2); /* and the first is not */
    assert_int_equal(attempts, SHAPES + 1);
    unload_model(&l);
    close_client(&l);
}

/* The new one is there before the oldest goes, and if it cannot be made nothing goes. */
static void a_failure_costs_no_other(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=3", NULL});
    run_and_drop(&l, 1);
    run_and_drop(&l, 2);
    run_and_drop(&l, 3);
    fail_next(1, WEIR_ERR_ENGINE);
    run_and_drop(&l, 4);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(attempts, 1);
    assert_int_equal(stats.ended, 0);
    assert_int_equal(stats.now, 2);
    run_and_drop(&l, 2);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).made, 2);
    unload_model(&l);
    close_client(&l);
}

/* Where there is not memory for both, the oldest makes room. */
static void without_memory_the_oldest_goes_first(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=3", NULL});
    run_and_drop(&l, 1);
    run_and_drop(&l, 2);
    run_and_drop(&l, 3);
    fail_next(1, WEIR_ERR_OUT_OF_MEMORY);
    run_and_drop(&l, 4);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(attempts, 2);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.made, 3);
    assert_int_equal(stats.now, 2);
    assert_int_equal(stats.failed, 0);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).made, 3);
    unload_model(&l);
    close_client(&l);
}

/* In whichever slot it is. */
static void the_oldest_of_any_slot_makes_room(void **state)
{
    (void)state;
    static float x[2 * 16];
    onnx_entered entered;
    onnx_run its = {.id = 1};
    loaded l = load_model("mlp", (const char *const[]){"concurrency=2", "buckets=2", NULL});
    weir_tensor rows[] = {tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x), tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x)};
    for (size_t slot = 0; slot < 2; slot++) /* its own session is for a row */
        for (size_t shape = 0; shape <= slot; shape++) {
            weir_inference inference = {.struct_size = sizeof inference, .inputs = &rows[shape], .input_count = 1};
            assert_ok(onnx_slot_enter(l.model, &inference, &its, &l.model->slots[slot], &entered));
            assert_int_equal(entered.bucket != NULL, shape);
            onnx_slot_leave(l.model, entered);
        }
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    fail_next(1, WEIR_ERR_OUT_OF_MEMORY);
    weir_inference two = {.struct_size = sizeof two, .inputs = &rows[1], .input_count = 1};
    assert_ok(onnx_slot_enter(l.model, &two, &its, &l.model->slots[0], &entered));
    assert_non_null(entered.bucket);
    onnx_slot_leave(l.model, entered);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(attempts, 2);
    assert_int_equal(stats.made, 2);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.now, 1);
    unload_model(&l);
    close_client(&l);
}

static void what_buckets_cannot_be_is_said(void **state)
{
    (void)state;
    static const char *const wrong[][4] = {{"buckets=0", NULL},
                                           {"buckets=65", NULL},
                                           {"bucket_dims=2", NULL},
                                           {"bucket_granularity=2", NULL},
                                           {"buckets=2", "prepack=on", NULL},
                                           {"buckets=2", "weights=engine", NULL},
                                           {"buckets=2", "provider=openvino", NULL}};
    onnx_settings read;
    const weir_setting captured[] = {{"buckets", "2"}, {"cuda_graph", "on"}};
    const weir_setting compiled[] = {{"buckets", "2"}, {"provider", "tensorrt"}};
    loaded l = open_client(0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(load_into(&l, "mlp", wrong[i]), WEIR_ERR_INVALID);
    assert_detail("for cpu and cuda");
    assert_status(onnx_settings_read(captured, 2, true, NULL, &read), WEIR_ERR_INVALID);
    assert_detail("cuda_graph=on");
    assert_status(onnx_settings_read(compiled, 2, true, NULL, &read), WEIR_ERR_INVALID);
    assert_detail("for cpu and cuda");
    close_client(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_waiting_run_is_cancelled, watch, unwatch),
        cmocka_unit_test(weights_are_there_once),
        cmocka_unit_test(the_oldest_bucket_goes),
        cmocka_unit_test_setup_teardown(nobody_waits_for_another_bucket, watch, unwatch),
        cmocka_unit_test_setup_teardown(without_a_session_the_first_serves, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_success_ends_what_failed, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_wait_has_an_end, watch, unwatch),
        cmocka_unit_test_setup_teardown(only_so_many_failures_are_remembered, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_failure_costs_no_other, watch, unwatch),
        cmocka_unit_test_setup_teardown(without_memory_the_oldest_goes_first, watch, unwatch),
        cmocka_unit_test_setup_teardown(weights_are_the_clients_own, watch, unwatch),
        cmocka_unit_test_setup_teardown(another_file_while_it_is_read_is_no_session, watch, unwatch),
        cmocka_unit_test(another_file_in_its_place_is_not_read), /* behind the others, as it clears the folder */
        cmocka_unit_test_setup_teardown(a_session_in_use_stays, watch, unwatch),
        cmocka_unit_test_setup_teardown(what_is_too_many_goes_when_it_can, watch, unwatch),
        cmocka_unit_test(only_what_cuda_reads_is_shared),
        cmocka_unit_test(weights_that_may_be_mistaken_are_known),
        cmocka_unit_test(constants_that_may_be_mistaken_are_known),
        cmocka_unit_test(keys_round_up),
        cmocka_unit_test(what_buckets_cannot_be_is_said),
    };
    enum { ON_HOST = 7 };
    const size_t everywhere = sizeof tests / sizeof *tests - ON_HOST;
    const struct CMUnitTest of_cuda[] = {
        cmocka_unit_test_setup_teardown(the_oldest_of_any_slot_makes_room, watch, unwatch),
    };
    int status = on_cuda() ? need_cuda_build() : need_onnxruntime();
    if (status)
        return status;
    status = _cmocka_run_group_tests("buckets", tests, on_cuda() ? everywhere : everywhere + ON_HOST, NULL, NULL);
    return on_cuda() ? status + cmocka_run_group_tests(of_cuda, NULL, NULL) : status;
}
