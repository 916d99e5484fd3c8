/* What settings do to sessions, seen at the calls that reach ONNX Runtime and at what comes of them; sessions by shape. */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "buckets.h"

static atomic_bool held_up; /* a call to ONNX Runtime, until the test has seen what goes on meanwhile */

/* ONNX Runtime's own table, with some calls noted on their way. */
static ort_api watched;
static const ort_api *real;
static struct noted {
    int level, arena_off, pattern_off, fallback_off, ended;
    bool arena_key;
    atomic_int now, most;
} noted;

static ort_status *note_level(ort_session_options *options, int level)
{
    noted.level = level;
    return real->SetSessionGraphOptimizationLevel(options, level);
}

static ort_status *note_arena(ort_session_options *options)
{
    noted.arena_off++;
    return real->DisableCpuMemArena(options);
}

static ort_status *note_pattern(ort_session_options *options)
{
    noted.pattern_off++;
    return real->DisableMemPattern(options);
}

static ort_status *note_entry(ort_session_options *options, const char *key, const char *value)
{
    noted.arena_key |= strstr(key, "mem_arena") != NULL;
    noted.fallback_off += strcmp(key, "session.disable_cpu_ep_fallback") == 0 && strcmp(value, "1") == 0;
    return real->AddSessionConfigEntry(options, key, value);
}

static ort_status *note_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    int now = atomic_fetch_add(&noted.now, 1) + 1, most = atomic_load(&noted.most);
    while (now > most && !atomic_compare_exchange_weak(&noted.most, &most, now))
        ;
    usleep(20000);
    ort_status *status =
        real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    atomic_fetch_sub(&noted.now, 1);
    return status;
}

static int watch(void **state)
{
    (void)state;
    const onnx_library *library;
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    real = library->api;
    memcpy(&watched, real, offsetof(ort_api, Session_GetEpGraphAssignmentInfo));
    if (library->minor >= ORT_API_ASSIGNMENTS)
        memcpy(&watched, real, sizeof watched);
    watched.SetSessionGraphOptimizationLevel = note_level;
    watched.DisableCpuMemArena = note_arena;
    watched.DisableMemPattern = note_pattern;
    watched.AddSessionConfigEntry = note_entry;
    watched.Run = note_run;
    ((onnx_library *)(uintptr_t)library)->api = &watched;
    memset(&noted, 0, sizeof noted);
    return 0;
}

static int unwatch(void **state)
{
    (void)state;
    const onnx_library *library;
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    ((onnx_library *)(uintptr_t)library)->api = real;
    atomic_store(&held_up, false); /* also after a failure */
    return 0;
}

static void load_and_go(const char *setting)
{
    loaded l = load_model("folded", (const char *const[]){setting, NULL});
    unload_model(&l);
    close_client(&l);
}

static uint64_t nodes_with(const char *setting)
{
    loaded l = load_model("folded", (const char *const[]){setting, NULL});
    weir_model_info info = WEIR_INIT(weir_model_info);
    assert_ok(l.engine->info(l.model, &info));
    uint64_t nodes = info.share_count ? info.shares[0].of : 0;
    unload_model(&l);
    close_client(&l);
    return nodes;
}

/* D25: "all", "99" and "3" are all that there is, and not ONNX Runtime's third level. */
static void levels_have_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        int level;
    } levels[] = {{"optimization=disable", 0}, {"optimization=0", 0},        {"optimization=basic", 1},
                  {"optimization=1", 1},       {"optimization=extended", 2}, {"optimization=2", 2},
                  {"optimization=layout", 3},  {"optimization=all", 99},     {"optimization=3", 99},
                  {"optimization=99", 99}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        noted.level = -1;
        load_and_go(levels[i].setting);
        assert_int_equal(noted.level, levels[i].level);
    }
    uint64_t none = nodes_with("optimization=disable"), basic = nodes_with("optimization=basic");
    if (none) /* ONNX Runtime 1.24 */
        assert_true(none > basic);
}

static void core_ml_gets_basic(void **state)
{
    (void)state;
    onnx_settings read;
    const weir_setting all[] = {{"provider", "coreml"}, {"optimization", "all"}};
    assert_ok(onnx_settings_read(all, 2, false, NULL, &read));
    assert_int_equal(read.optimization, 1);
    const weir_setting none[] = {{"provider", "metal"}, {"optimization", "disable"}};
    assert_ok(onnx_settings_read(none, 2, false, NULL, &read));
    assert_int_equal(read.optimization, 0);
}

/* D24: off is ONNX Runtime's own call for it, no key that nobody reads; on would do nothing, as its arena is not used. */
static void the_cpu_arena_is_off(void **state)
{
    (void)state;
    load_and_go("cpu_arena=off");
    assert_true(noted.arena_off > 0); /* of each session that was tried */
    assert_false(noted.arena_key);
    loaded l = open_client(0);
    assert_status(load_into(&l, "folded", (const char *const[]){"cpu_arena=on", NULL}), WEIR_INVALID);
    assert_detail("the client's memory is in its place");
    close_client(&l);
}

static void the_memory_pattern_is_off(void **state)
{
    (void)state;
    load_and_go("memory_pattern=on");
    assert_int_equal(noted.pattern_off, 0);
    load_and_go("memory_pattern=off");
    assert_true(noted.pattern_off > 0);
}

/* ---- runs at a time ------------------------------------------------------------------------------------------------- */

static void *run_some(void *user)
{
    const loaded *l = user;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_F32, SHAPE(1, 16), x);
    for (int i = 0; i < 3; i++) {
        weir_outputs out;
        if (infer(l, &in, 1, &out) != WEIR_OK)
            return user;
        l->engine->release_outputs(l->model, &out);
    }
    return NULL;
}

static int most_at_once(const char *setting)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    loaded l = load_model("mlp", (const char *const[]){setting, NULL});
    atomic_store(&noted.most, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_some, &l), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    unload_model(&l);
    close_client(&l);
    return atomic_load(&noted.most);
}

static void runs_at_a_time_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(most_at_once("concurrency=1"), 1);
    assert_int_equal(most_at_once("concurrency=2"), 2);
    assert_true(most_at_once("concurrency=0") > 2);
    onnx_settings read;
    assert_status(onnx_settings_read(&(weir_setting){"concurrency", "2"}, 1, true, NULL, &read), WEIR_INVALID);
}

/* The first of them stays in ONNX Runtime until the test lets it go. */
static ort_status *slow_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    watched.Run = real->Run;
    atomic_store(&held_up, true);
    while (atomic_load(&held_up))
        usleep(1000);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

typedef struct numbered {
    const loaded *l;
    uint64_t id;
    weir_status status;
} numbered;

static void *run_numbered(void *user)
{
    numbered *it = user;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_F32, SHAPE(1, 16), x);
    weir_inference inference = {.size = sizeof inference, .inputs = &in, .input_count = 1, .id = it->id};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status == WEIR_OK)
        it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

/* One that waits for its turn need not have it to be cancelled, and leaves it to the next. */
static void a_waiting_run_is_cancelled(void **state)
{
    (void)state;
    pthread_t threads[3];
    loaded l = load_model("mlp", (const char *const[]){"concurrency=1", NULL});
    numbered runs[] = {{.l = &l, .id = 1}, {.l = &l, .id = 2}, {.l = &l, .id = 3}};
    watched.Run = slow_run;
    assert_int_equal(pthread_create(&threads[0], NULL, run_numbered, &runs[0]), 0);
    while (!atomic_load(&held_up))
        usleep(1000);
    for (int i = 1; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_numbered, &runs[i]), 0);
    while (l.engine->cancel(l.model, 2) == WEIR_NOT_FOUND)
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
    assert_int_equal(runs[1].status, WEIR_CANCELLED);
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
    weir_tensor in = tensor("x", WEIR_F32, SHAPE(rows, 16), x);
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
    weir_tensor tensors[2] = {tensor("b", WEIR_I64, SHAPE(3, 64, 65, 0, 7), NULL),
                              tensor("a", WEIR_F32, 0, NULL, NULL)};
    weir_inference inference = {.inputs = tensors, .input_count = 2};
    char key[128];
    onnx_bucket_key(&model, &inference, key, sizeof key);
    assert_string_equal(key, "f32:0:;i64:5:3,64,128,-1*;");
    onnx_bucket_key(&model, &inference, key, 8);
    assert_int_equal(strlen(key), 7);
}

/* D22: each session has the weights of the first. */
static void weights_are_there_once(void **state)
{
    (void)state;
    loaded one = load_model("mlp", (const char *const[]){"prepack=off", NULL});
    loaded many = load_model("mlp", (const char *const[]){"buckets=4", NULL});
    uint64_t weights = live_class(&one, WEIR_WEIGHTS);
    for (int64_t rows = 1; rows <= 4; rows++)
        run_and_drop(&many, rows);
    onnx_bucket_stats stats = onnx_buckets_look(many.model);
    assert_int_equal(stats.now, 3);
    assert_true(live_class(&many, WEIR_WEIGHTS) >= weights);
    /* what is below 1 KiB stays in the model, and each session's copy of it is charged */
    assert_true(live_class(&many, WEIR_WEIGHTS) <= weights + 3 * 1024);
    assert_true(many.model->weights[0].data != NULL);
    unload_model(&one);
    unload_model(&many);
    close_client(&one);
    close_client(&many);
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
    while (!atomic_load(&held_up))
        usleep(1000);
    uint64_t weights = live_class(&l, WEIR_WEIGHTS), all = live(&l);
    weir_outputs out;
    run_rows(&l, 1, &out);
    assert_true(live(&l) > all);
    assert_int_equal(live_class(&l, WEIR_WEIGHTS), weights); /* and are no weights, whatever is being loaded */
    l.engine->release_outputs(l.model, &out);
    run_and_drop(&l, 3);
    run_and_drop(&l, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    atomic_store(&held_up, false);
    pthread_join(other, NULL);
    watched.CreateSessionFromArray = real->CreateSessionFromArray;
    assert_int_equal(onnx_buckets_look(l.model).made, 2);
    unload_model(&l);
    close_client(&l);
}

/* While a session runs it does not make room for another. */
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
    while (!atomic_load(&held_up))
        usleep(1000);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).ended, 0);
    atomic_store(&held_up, false);
    pthread_join(other, NULL);
    run_and_drop(&l, 3);
    assert_int_equal(onnx_buckets_look(l.model).ended, 1);
    unload_model(&l);
    close_client(&l);
}

static ort_status *no_session(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                              ort_session **out)
{
    (void)model;
    (void)size;
    return real->CreateSessionFromArray(env, "no model", 8, options, out);
}

static void without_a_session_the_first_serves(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"buckets=2", NULL});
    run_and_drop(&l, 1);
    watched.CreateSessionFromArray = no_session;
    run_and_drop(&l, 2);
    watched.CreateSessionFromArray = real->CreateSessionFromArray;
    assert_int_equal(onnx_buckets_look(l.model).now, 0);
    run_and_drop(&l, 2);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
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
    loaded l = open_client(0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(load_into(&l, "mlp", wrong[i]), WEIR_INVALID);
    close_client(&l);
}

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(levels_have_their_names, watch, unwatch),
        cmocka_unit_test(core_ml_gets_basic),
        cmocka_unit_test_setup_teardown(the_cpu_arena_is_off, watch, unwatch),
        cmocka_unit_test_setup_teardown(the_memory_pattern_is_off, watch, unwatch),
        cmocka_unit_test_setup_teardown(runs_at_a_time_are_bounded, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_waiting_run_is_cancelled, watch, unwatch),
        cmocka_unit_test(keys_round_up),
        cmocka_unit_test(weights_are_there_once),
        cmocka_unit_test(the_oldest_bucket_goes),
        cmocka_unit_test_setup_teardown(nobody_waits_for_another_bucket, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_session_in_use_stays, watch, unwatch),
        cmocka_unit_test_setup_teardown(without_a_session_the_first_serves, watch, unwatch),
        cmocka_unit_test(what_buckets_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
