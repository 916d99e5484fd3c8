/* Several runs of a model on cuda at the same time: each in a session with a stream of its own, over one copy of the weights.
 * WEIR_TEST_DEVICE names the device; over the stub of CUDA everything but the kernels' results is real. */
#include "watch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <weir/model.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

#include "onnx/engine/model.h"
#include "written.h"

enum { SLOTS = 4, MORE = 3, RUNS = SLOTS + MORE };

/* How many there are of something of the stub's; 0 on a real device. */
static uint64_t count_of(const char *what)
{
    static uint64_t (*count)(const char *);
    void *library = count ? NULL : dlopen("libcuda.so.1", RTLD_NOW),
         *found = library ? dlsym(library, "stub_count") : NULL;
    if (found)
        memcpy(&count, &found, sizeof count);
    return count ? count(what) : 0;
}

static bool on_stub(void)
{
    return count_of("cuInit") > 0;
}

/* ---- runs that are held up inside --------------------------------------------------------------------------------------- */

static struct inside {
    atomic_int came, now, most, begun, ended;
    atomic_int may_go;     /* so many, in the order in which they came; */
    atomic_bool open;      /* or all */
    float order[RUNS + 1]; /* the first value of each run's input, as they came in */
    ort_session *of[RUNS + 1];
} inside;

/* Patience is for a mistake alone: nothing is told from time. */
static void until(const atomic_int *what, int many)
{
    for (int i = 0; atomic_load(what) < many && i < 20000; i++)
        usleep(1000);
    assert_true(atomic_load(what) >= many);
}

static void until_waiting(const loaded *l, size_t many)
{
    for (int i = 0; onnx_buckets_look(l->model).waiting != many && i < 20000; i++)
        usleep(1000);
    assert_int_equal(onnx_buckets_look(l->model).waiting, many);
}

static ort_status *held_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    void *first = NULL;
    int at = atomic_fetch_add(&inside.came, 1);
    ort_status *status = real->GetTensorMutableData((ort_value *)(uintptr_t)inputs[0], &first);
    if (at <= RUNS && !status) {
        inside.order[at] = *(const float *)first;
        inside.of[at] = session;
    }
    int now = atomic_fetch_add(&inside.now, 1) + 1, most = atomic_load(&inside.most);
    while (now > most && !atomic_compare_exchange_weak(&inside.most, &most, now))
        ;
    atomic_fetch_add(&inside.begun, 1);
    while (!atomic_load(&inside.open) && at >= atomic_load(&inside.may_go))
        usleep(500);
    if (!status)
        status = real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    atomic_fetch_sub(&inside.now, 1);
    atomic_fetch_add(&inside.ended, 1);
    /* cppcheck-suppress returnDanglingLifetime; the status does not point to `first` */
    return status;
}

static int hold(void **state)
{
    (void)watch(state);
    memset(&inside, 0, sizeof inside);
    watched.Run = held_run;
    return 0;
}

static int let_go(void **state)
{
    atomic_store(&inside.open, true);
    return unwatch(state);
}

/* A run of its own, of one row that begins with its number, by a thread. */
typedef struct asked {
    const loaded *l;
    weir_model *model; /* or this one */
    pthread_t thread;
    float x[16], y[17];
    uint64_t id;
    weir_status status;
    char words[256];
} asked;

static void *ask(void *user)
{
    asked *a = user;
    weir_tensor in = {.struct_size = sizeof in,
                      .name = "x",
                      .type = WEIR_TYPE_F32,
                      .rank = 2,
                      .shape = {1, 16},
                      .data = a->x,
                      .bytes = sizeof a->x};
    weir_inference inference = {.struct_size = sizeof inference, .id = a->id, .inputs = &in, .input_count = 1};
    weir_outputs out = WEIR_INIT(weir_outputs);
    a->status =
        a->model ? weir_model_infer(a->model, &inference, &out) : a->l->engine->infer(a->l->model, &inference, &out);
    if (a->status != WEIR_OK) {
        snprintf(a->words, sizeof a->words, "%s", weir_detail());
        return NULL;
    }
    memcpy(a->y, out.tensors[0].data, out.tensors[0].bytes < sizeof a->y ? out.tensors[0].bytes : sizeof a->y);
    if (a->model)
        weir_model_release_outputs(a->model, &out);
    else
        a->l->engine->release_outputs(a->l->model, &out);
    return NULL;
}

static void begin(asked *a, const loaded *l, weir_model *model, int number)
{
    *a = (asked){.l = l, .model = model, .id = (uint64_t)number + 1};
    for (int i = 0; i < 16; i++)
        a->x[i] = (float)number + (float)i * 0.125f;
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

static void end(asked *a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pthread_join(a[i].thread, NULL);
}

/* ---- the weights --------------------------------------------------------------------------------------------------------- */

static uint64_t weights_with(const char *model, const char *setting)
{
    loaded l = load_model(model, (const char *const[]){setting, NULL});
    uint64_t weights = live_class(&l, WEIR_CLASS_WEIGHTS);
    unload_model(&l);
    close_client(&l);
    return weights;
}

/* To the byte where every weight is one that is shared. */
static void weights_are_there_once(void **state)
{
    (void)state;
    uint64_t one = weights_with("chain", "concurrency=1");
    assert_true(one >= 2 * 16 * 17 * 4);
    loaded l = load_model("chain", (const char *const[]){"concurrency=4", NULL});
    assert_int_equal(l.model->slot_count, SLOTS);
    assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), one);
    assert_int_equal(l.model->weight_count, 2);
    unload_model(&l);
    close_client(&l);
}

/* What is below 1 KiB stays in the model, and each session has it for itself: so much more there is, and nothing besides. */
static void what_is_not_shared_is_all_that_there_is_more(void **state)
{
    (void)state;
    uint64_t one = weights_with("mlp", "concurrency=1"), shared = onnx_charge(16 * 17 * 4, true);
    assert_true(one > shared);
    for (int slots = 2; slots <= SLOTS; slots++) {
        char setting[32];
        snprintf(setting, sizeof setting, "concurrency=%d", slots);
        assert_int_equal(weights_with("mlp", setting), one + (uint64_t)(slots - 1) * (one - shared));
    }
}

/* What is compared by pieces, of which each is another one. */
static void large_weights_are_there_once(void **state)
{
    (void)state;
    static const char *const models[] = {"in x f32 n 16; weight w f32 16 16384; MatMul x w > y; out y f32 n 16384",
                                         "in x f32 n 16; weight w f32 16 17000; MatMul x w > y; out y f32 n 17000",
                                         "in x f32 n 16; weight w f32 16 40000; MatMul x w > y; out y f32 n 40000"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        uint64_t one = weights_with(written(models[i]), "concurrency=1");
        assert_true(one >= 1 << 20);
        assert_int_equal(weights_with(written(models[i]), "concurrency=3"), one);
        assert_int_equal(weights_with(written(models[i]), "buckets=2"), one);
    }
    written_clear();
}

/* ---- runs at a time ------------------------------------------------------------------------------------------------------- */

static void so_many_runs_are_inside_at_once(void **state)
{
    (void)state;
    asked runs[RUNS];
    loaded l = load_model("mlp", (const char *const[]){"concurrency=4", NULL});
    for (int i = 0; i < RUNS; i++)
        begin(&runs[i], &l, NULL, i);
    until(&inside.now, SLOTS);
    until_waiting(&l, MORE);
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(inside.of[i], inside.of[k]);
    atomic_store(&inside.open, true);
    end(runs, RUNS);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(runs[i].status, WEIR_OK);
    assert_int_equal(atomic_load(&inside.most), SLOTS);
    assert_int_equal(atomic_load(&inside.ended), RUNS);
    unload_model(&l);
    close_client(&l);
}

/* Whoever waits has its turn before those that came later. */
static void those_that_wait_are_served_as_they_came(void **state)
{
    (void)state;
    asked runs[RUNS];
    loaded l = load_model("mlp", (const char *const[]){"concurrency=2", NULL});
    for (int i = 0; i < RUNS; i++) {
        begin(&runs[i], &l, NULL, i);
        if (i < 2)
            until(&inside.begun, i + 1);
        else
            until_waiting(&l, (size_t)i - 1);
    }
    assert_int_equal(atomic_load(&inside.begun), 2);
    assert_ok(l.engine->cancel(l.model, runs[4].id)); /* who leaves the line holds nobody up */
    pthread_join(runs[4].thread, NULL);
    assert_int_equal(runs[4].status, WEIR_ERR_CANCELLED);
    until_waiting(&l, RUNS - 3);
    for (int next = 2, gone = 1; next < RUNS; next++)
        if (next != 4) {
            atomic_store(&inside.may_go, gone);
            until(&inside.begun, 2 + gone);
            assert_true(inside.order[1 + gone++] == (float)next);
        }
    atomic_store(&inside.open, true);
    end(runs, 4);
    end(&runs[5], RUNS - 5);
    assert_int_equal(atomic_load(&inside.most), 2);
    assert_int_equal(atomic_load(&inside.begun), RUNS - 1);
    unload_model(&l);
    close_client(&l);
}

static void every_session_is_warmed_up(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"concurrency=4", NULL});
    atomic_store(&inside.open, true);
    assert_ok(l.engine->warm_up(l.model));
    assert_int_equal(atomic_load(&inside.ended), SLOTS);
    for (int i = 0; i < SLOTS; i++)
        assert_ptr_equal(inside.of[i], l.model->slots[i].session);
    unload_model(&l);
    close_client(&l);
}

/* ---- what comes of it ------------------------------------------------------------------------------------------------------- */

/* Each run's values are those that it has alone. Over the stub the products are not computed, but nothing is mixed either. */
static void answers_are_those_of_one_session(void **state)
{
    (void)state;
    asked alone[RUNS], at_once[RUNS];
    loaded one = load_model("mlp", NULL), many = load_model("mlp", (const char *const[]){"concurrency=4", NULL});
    atomic_store(&inside.open, true);
    for (int i = 0; i < RUNS; i++) {
        begin(&alone[i], &one, NULL, i);
        end(&alone[i], 1);
        assert_int_equal(alone[i].status, WEIR_OK);
    }
    atomic_store(&inside.open, false);
    for (int round = 0; round < 5; round++) {
        atomic_store(&inside.open, false);
        for (int i = 0; i < RUNS; i++)
            begin(&at_once[i], &many, NULL, i);
        until(&inside.now, SLOTS);
        atomic_store(&inside.open, true);
        end(at_once, RUNS);
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(at_once[i].status, WEIR_OK);
            for (int k = 0; !on_stub() && k < 17; k++)
                assert_true(at_once[i].y[k] - alone[i].y[k] <= 1e-2f && alone[i].y[k] - at_once[i].y[k] <= 1e-2f);
        }
    }
    unload_model(&one);
    close_client(&one);
    unload_model(&many);
    close_client(&many);
}

/* A model of copies alone: what each gets is what it gave, whatever goes on beside it. */
static void nothing_is_mixed(void **state)
{
    (void)state;
    asked runs[RUNS];
    loaded l = load_model("fixed", (const char *const[]){"concurrency=4", NULL});
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l.engine->info(l.model, &info));
    assert_int_equal(info.inputs[0].rank, 2);
    assert_int_equal(info.inputs[0].shape[1], 16);
    for (int round = 0; round < 20; round++) {
        atomic_store(&inside.open, false);
        atomic_store(&inside.came, 0);
        for (int i = 0; i < RUNS; i++)
            begin(&runs[i], &l, NULL, i);
        until(&inside.now, SLOTS);
        atomic_store(&inside.open, true);
        end(runs, RUNS);
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(runs[i].status, WEIR_OK);
            assert_memory_equal(runs[i].y, runs[i].x, sizeof runs[i].x);
        }
    }
    unload_model(&l);
    close_client(&l);
}

/* Each has a stream of its own, and blocks in its order. */
static void each_session_has_its_stream(void **state)
{
    (void)state;
    float x[16] = {0};
    loaded one = load_model("mlp", NULL);
    uint64_t with_one = count_of("streams");
    unload_model(&one);
    close_client(&one);
    loaded l = load_model("mlp", (const char *const[]){"concurrency=4", NULL});
    if (on_stub())
        assert_int_equal(count_of("streams"), with_one + SLOTS - 1);
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_setting setting = {"outputs", "device"};
    weir_inference inference = {
        .struct_size = sizeof inference, .inputs = &in, .input_count = 1, .settings = &setting, .setting_count = 1};
    onnx_entered entered[SLOTS];
    onnx_run its = {.id = 1};
    for (int i = 0; i < SLOTS; i++) { /* whoever comes now gets the first that is free, which is the one behind */
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_block_details details = WEIR_INIT(weir_block_details);
        assert_ok(l.engine->infer(l.model, &inference, &out));
        assert_ok(weir_block_info(out.tensors[0].data, &details));
        assert_int_equal(details.stream.id, l.model->slots[i].stream.id);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(l.model->slots[i].stream.id, l.model->slots[k].stream.id);
        l.engine->release_outputs(l.model, &out);
        assert_int_equal(onnx_session_stats(&l.model->slots[i]).unknown, 0);
        assert_ok(onnx_slot_enter(l.model, &inference, &its, NULL, &entered[i]));
        assert_ptr_equal(entered[i].slot, &l.model->slots[i]);
    }
    for (int i = 0; i < SLOTS; i++)
        onnx_slot_leave(l.model, entered[i]);
    unload_model(&l);
    close_client(&l);
}

static char told[512]; /* the options of cuda's provider, as its last session got them */

static ort_status *note_options(ort_cuda_options *options, const char *const *keys, const char *const *values,
                                size_t count)
{
    told[0] = 0;
    for (size_t i = 0, at = 0; i < count && at < sizeof told; i++)
        at += (size_t)snprintf(told + at, sizeof told - at, "%s=%s;", keys[i], values[i]);
    return real->UpdateCUDAProviderOptions(options, keys, values, count);
}

/* All of a session's work is in the order of its stream, copies too; and options of the user's come behind weir's. */
static void each_session_is_told_its_options(void **state)
{
    (void)state;
    static const struct {
        const char *settings[3], *told;
    } cases[] = {
        {{NULL}, "device_id=0;do_copy_in_default_stream=1;enable_cuda_graph=0;"},
        {{"concurrency=2"}, "device_id=0;do_copy_in_default_stream=1;enable_cuda_graph=0;"},
        {{"cuda_graph=on"}, "device_id=0;do_copy_in_default_stream=1;enable_cuda_graph=1;"},
        {{"cuda.use_tf32=0", "cuda.cudnn_conv_algo_search=HEURISTIC"},
         "device_id=0;do_copy_in_default_stream=1;enable_cuda_graph=0;use_tf32=0;cudnn_conv_algo_search=HEURISTIC;"}};
    watched.UpdateCUDAProviderOptions = note_options;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loaded l = load_model("mlp", cases[i].settings);
        assert_string_equal(told, cases[i].told);
        unload_model(&l);
        close_client(&l);
    }
}

/* ---- when one cannot be made ------------------------------------------------------------------------------------------------ */

static int sessions_made, session_fails; /* the one of that number, from 1 */

static ort_status *made_until(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                              ort_session **out)
{
    ort_status *status = real->CreateSessionFromArray(env, model, size, options, out);
    if (++sessions_made != session_fails || status)
        return status;
    real->ReleaseSession(*out); /* with all that it took */
    *out = NULL;
    return real->CreateSessionFromArray(env, "no model", 8, options, out);
}

static void one_that_fails_leaves_nothing(void **state)
{
    (void)state;
    uint64_t one = weights_with("mlp", "concurrency=1"), more = weights_with("mlp", "concurrency=2") - one;
    uint64_t streams = count_of("streams");
    watched.CreateSessionFromArray = made_until;
    for (int fails = 2; fails <= SLOTS; fails++) {
        asked runs[RUNS];
        sessions_made = 0;
        session_fails = fails;
        atomic_store(&inside.most, 0);
        atomic_store(&inside.open, false);
        loaded l = load_model("mlp", (const char *const[]){"concurrency=4", NULL});
        assert_int_equal(sessions_made, fails);
        assert_int_equal(l.model->slot_count, fails - 1);
        assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), one + (uint64_t)(fails - 2) * more);
        weir_stream again; /* what was released is there for the next */
        uint64_t made = count_of("streams");
        assert_ok(weir_stream_acquire(l.runtime, &again));
        assert_int_equal(count_of("streams"), made);
        assert_ok(weir_stream_release(again));
        weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
        assert_ok(l.engine->metrics(l.model, &metrics));
        assert_int_equal(metrics.sessions, fails - 2);
        assert_int_equal(metrics.sessions_failed, SLOTS - fails + 1);
        for (int i = 0; i < RUNS; i++)
            begin(&runs[i], &l, NULL, i);
        until(&inside.now, fails - 1);
        atomic_store(&inside.open, true);
        end(runs, RUNS);
        for (int i = 0; i < RUNS; i++)
            assert_int_equal(runs[i].status, WEIR_OK);
        assert_int_equal(atomic_load(&inside.most), fails - 1);
        unload_model(&l);
        close_client(&l);
        assert_int_equal(count_of("streams"), streams);
    }
}

static void the_first_that_fails_is_no_model(void **state)
{
    (void)state;
    uint64_t streams = count_of("streams");
    watched.CreateSessionFromArray = made_until;
    sessions_made = 0;
    session_fails = 1;
    loaded l = open_client(0);
    assert_status(load_into(&l, "mlp", (const char *const[]){"concurrency=4", NULL}), WEIR_ERR_CORRUPT);
    assert_int_equal(live(&l), 0);
    assert_int_equal(sessions_made, 1);
    close_client(&l);
    assert_int_equal(count_of("streams"), streams);
}

/* A maximum that one session fits, with what it has for itself, and three do not. */
static void without_memory_there_are_fewer(void **state)
{
    (void)state;
    uint64_t one = weights_with("mlp", "concurrency=1"), two = weights_with("mlp", "concurrency=2");
    loaded l = open_client(0);
    assert_ok(weir_client_set_limits(l.client, 0, two));
    assert_ok(load_into(&l, "mlp", (const char *const[]){"concurrency=4", NULL}));
    assert_int_equal(l.model->slot_count, 2);
    assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), two);
    assert_true(two > one);
    unload_model(&l);
    close_client(&l);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------- */

static void a_model_that_works_is_not_unloaded(void **state)
{
    (void)state;
    asked runs[SLOTS];
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 1ull << 30};
    weir_setting setting = {"concurrency", "4"};
    weir_model_options wanted = {
        .struct_size = sizeof wanted, .engine = "onnx", .settings = &setting, .setting_count = 1};
    weir_model *model;
    weir_stats stats = WEIR_INIT(weir_stats);
    assert_ok(weir_engine_register(weir_engine_entry(WEIR_ENGINE_ABI)));
    assert_ok(weir_runtime_create(getenv("WEIR_TEST_DEVICE"), &options, &wanted.runtime));
    assert_ok(weir_model_create(model_path("mlp"), &wanted, &model));
    for (int i = 0; i < SLOTS; i++)
        begin(&runs[i], NULL, model, i);
    until(&inside.now, SLOTS);
    assert_status(weir_model_destroy(model), WEIR_ERR_BUSY);
    assert_ok(weir_model_cancel(model, 0));
    assert_status(weir_model_destroy(model), WEIR_ERR_BUSY);
    assert_int_equal(atomic_load(&inside.ended), 0);
    atomic_store(&inside.open, true);
    end(runs, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(runs[i].status, WEIR_ERR_CANCELLED);
    assert_int_equal(atomic_load(&inside.now), 0);
    assert_ok(weir_model_destroy(model));
    assert_ok(weir_snapshot(wanted.runtime, &stats, NULL, 0, NULL));
    assert_int_equal(stats.live, 0);
    assert_ok(weir_runtime_destroy(wanted.runtime));
}

/* ---- with other settings ------------------------------------------------------------------------------------------------------ */

static void what_cannot_be_together_is_said(void **state)
{
    (void)state;
    onnx_settings read;
    static const struct {
        const char *with[2], *words;
    } wrong[] = {{{"cuda_graph", "on"}, "cuda_graph=on"},
                 {{"provider", "tensorrt"}, "compiles the weights"},
                 {{"weights", "engine"}, "weights of its own"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const weir_setting both[] = {{"concurrency", "2"}, {wrong[i].with[0], wrong[i].with[1]}};
        assert_status(onnx_settings_read(both, 2, true, NULL, &read), WEIR_ERR_INVALID);
        assert_detail("setting concurrency");
        assert_detail(wrong[i].words);
        const weir_setting one[] = {{"concurrency", "1"}, {wrong[i].with[0], wrong[i].with[1]}};
        assert_ok(onnx_settings_read(one, 2, true, NULL, &read));
    }
    assert_status(onnx_settings_read(&(weir_setting){"concurrency", "65"}, 1, true, NULL, &read), WEIR_ERR_INVALID);
    assert_detail("64 are the most");
    assert_ok(onnx_settings_read(&(weir_setting){"concurrency", "64"}, 1, true, NULL, &read));
    assert_ok(onnx_settings_read(&(weir_setting){"concurrency", "0"}, 1, true, NULL, &read));
    assert_int_equal(read.concurrency, 1);
}

/* Each slot has its sessions by shape, which read the same weights, too; whoever makes one holds nobody up. */
static void slots_have_buckets(void **state)
{
    (void)state;
    enum { BOTH = 2 };
    static float x[4 * 16];
    loaded l = load_model("chain", (const char *const[]){"concurrency=2", "buckets=2", NULL});
    uint64_t one = live_class(&l, WEIR_CLASS_WEIGHTS);
    weir_tensor rows[] = {tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x), tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x)};
    onnx_run its = {.id = 1};
    onnx_entered entered[2 * BOTH];
    for (int shape = 0; shape < 2; shape++) {
        weir_inference inference = {.struct_size = sizeof inference, .inputs = &rows[shape], .input_count = 1};
        onnx_entered *t = entered + (ptrdiff_t)shape * BOTH;
        for (int i = 0; i < BOTH; i++) {
            assert_ok(onnx_slot_enter(l.model, &inference, &its, NULL, &t[i]));
            assert_ptr_equal(t[i].slot, &l.model->slots[i]);
            assert_int_equal(t[i].bucket != NULL, shape);
        }
        for (int i = 0; i < BOTH; i++)
            onnx_slot_leave(l.model, t[i]);
    }
    for (int i = 0; i < 2 * BOTH; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(entered[i].session, entered[k].session);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, BOTH);
    assert_int_equal(stats.now, BOTH);
    assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), one);
    unload_model(&l);
    close_client(&l);
}

typedef struct mixed {
    const loaded *l;
    pthread_t thread;
    unsigned seed;
    int ran, cancelled, wrong;
    char words[256];
} mixed;

/* Runs of shapes by chance, of which each says of itself that it may be cancelled. */
static void *run_mixed(void *user)
{
    mixed *m = user;
    float x[5 * 16] = {0};
    for (int i = 0; i < 60; i++) {
        m->seed = m->seed * 1664525 + 1013904223;
        int64_t rows = 1 + (m->seed >> 24) % 5;
        weir_tensor in = {
            .struct_size = sizeof in, .name = "x", .type = WEIR_TYPE_F32, .rank = 2, .shape = {rows, 16}, .data = x};
        in.bytes = (size_t)rows * 16 * sizeof *x;
        weir_inference inference = {
            .struct_size = sizeof inference, .id = m->seed | 1, .inputs = &in, .input_count = 1};
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_status status = m->l->engine->infer(m->l->model, &inference, &out);
        m->ran += status == WEIR_OK;
        m->cancelled += status == WEIR_ERR_CANCELLED;
        if (status == WEIR_OK) {
            m->wrong += out.tensors[0].shape[0] != rows;
            m->l->engine->release_outputs(m->l->model, &out);
        } else if (status != WEIR_ERR_CANCELLED) {
            snprintf(m->words, sizeof m->words, "%s", weir_detail());
            m->wrong++;
        }
    }
    return NULL;
}

/* All of it at once: no run is lost, none is one too many, and every place is given back. */
static void shapes_threads_and_cancels(void **state)
{
    (void)state;
    enum { THREADS = 8, AT_ONCE = 3 };
    mixed workers[THREADS];
    loaded l = load_model("chain", (const char *const[]){"concurrency=3", "buckets=3", "bucket_granularity=1", NULL});
    uint64_t weights = live_class(&l, WEIR_CLASS_WEIGHTS);
    int ran = 0, cancelled = 0;
    atomic_store(&inside.open, true);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (mixed){.l = &l, .seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_mixed, &workers[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        (void)!l.engine->cancel(l.model, 0); /* there may be none */
        usleep(500);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].wrong)
            fail_msg("%d runs went wrong: %s", workers[i].wrong, workers[i].words);
        ran += workers[i].ran;
        cancelled += workers[i].cancelled;
    }
    assert_int_equal(ran + cancelled, THREADS * 60);
    assert_true(atomic_load(&inside.most) <= AT_ONCE);
    assert_int_equal(atomic_load(&inside.now), 0);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.made - stats.ended, stats.now);
    assert_true(stats.now <= AT_ONCE * 2);
    assert_int_equal(live_class(&l, WEIR_CLASS_WEIGHTS), weights); /* whatever was made and ended */
    onnx_entered entered[AT_ONCE];
    onnx_run its = {.id = 1};
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_inference inference = {.struct_size = sizeof inference, .inputs = &in, .input_count = 1};
    for (int i = 0; i < AT_ONCE; i++) { /* every place is free */
        assert_ok(onnx_slot_enter(l.model, &inference, &its, NULL, &entered[i]));
        assert_ptr_equal(entered[i].slot, &l.model->slots[i]);
    }
    for (int i = 0; i < AT_ONCE; i++)
        onnx_slot_leave(l.model, entered[i]);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int status = need_cuda_build();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_there_once),
        cmocka_unit_test(large_weights_are_there_once),
        cmocka_unit_test(what_is_not_shared_is_all_that_there_is_more),
        cmocka_unit_test_setup_teardown(so_many_runs_are_inside_at_once, hold, let_go),
        cmocka_unit_test_setup_teardown(those_that_wait_are_served_as_they_came, hold, let_go),
        cmocka_unit_test_setup_teardown(every_session_is_warmed_up, hold, let_go),
        cmocka_unit_test_setup_teardown(answers_are_those_of_one_session, hold, let_go),
        cmocka_unit_test_setup_teardown(nothing_is_mixed, hold, let_go),
        cmocka_unit_test(each_session_has_its_stream),
        cmocka_unit_test_setup_teardown(each_session_is_told_its_options, watch, unwatch),
        cmocka_unit_test_setup_teardown(one_that_fails_leaves_nothing, hold, let_go),
        cmocka_unit_test_setup_teardown(the_first_that_fails_is_no_model, hold, let_go),
        cmocka_unit_test(without_memory_there_are_fewer),
        cmocka_unit_test_setup_teardown(a_model_that_works_is_not_unloaded, hold, let_go),
        cmocka_unit_test(what_cannot_be_together_is_said),
        cmocka_unit_test(slots_have_buckets),
        cmocka_unit_test_setup_teardown(shapes_threads_and_cancels, hold, let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
