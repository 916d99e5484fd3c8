/* Models on two CUDA devices at once: each with its memory, streams and pinned memory on its own device, and threads that keep the
 * device that they had. Over the stub of CUDA, or on real devices where there are two. */
#include "info.h"
#include "devices/two.h"

#include <pthread.h>
#include <unistd.h>

#include <weir/model.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

#include "onnx/engine/model.h"
#include "watch.h"

enum { RUNS = 40 };

/* What open_client and need_cuda_build go by. */
static void choose(int ordinal)
{
    assert_int_equal(setenv("WEIR_TEST_DEVICE", two_name(ordinal), 1), 0);
}

static loaded load_on(int ordinal, const char *name, const char *setting)
{
    choose(ordinal);
    return load_model(name, (const char *const[]){setting, NULL});
}

static weir_status infer_as(const loaded *l, const weir_tensor *input, const char *outputs, weir_outputs *out)
{
    weir_setting setting = {"outputs", outputs};
    weir_inference inference = {
        .struct_size = sizeof inference, .inputs = input, .input_count = 1, .settings = &setting, .setting_count = 1};
    *out = WEIR_INIT(weir_outputs);
    return l->engine->infer(l->model, &inference, out);
}

/* ---- what the provider is told -------------------------------------------------------------------------------------- */

static struct told {
    char device_id[16];
    void *stream;
    int sessions;
} told;

static ort_status *note_options(ort_cuda_options *options, const char *const *keys, const char *const *values,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i], "device_id") == 0)
            snprintf(told.device_id, sizeof told.device_id, "%s", values[i]);
    return real->UpdateCUDAProviderOptions(options, keys, values, count);
}

static ort_status *note_stream(ort_cuda_options *options, const char *key, void *value)
{
    if (strcmp(key, "user_compute_stream") == 0)
        told.stream = value;
    told.sessions++;
    return real->UpdateCUDAProviderOptionsWithValue(options, key, value);
}

static int note(void **state)
{
    (void)watch(state);
    memset(&told, 0, sizeof told);
    watched.UpdateCUDAProviderOptions = note_options;
    watched.UpdateCUDAProviderOptionsWithValue = note_stream;
    return 0;
}

static void the_provider_is_told_which_device(void **state)
{
    (void)state;
    for (int i = TWO; i-- > 0;) {
        CUcontext of_stream = NULL, popped;
        loaded l = load_on(i, "mlp", NULL);
        assert_int_equal(strtol(told.device_id, NULL, 10), i);
        assert_string_equal(told.device_id, i ? "1" : "0");
        assert_ptr_equal(told.stream, weir_stream_native(l.model->slots[0].stream));
        assert_int_equal(driver.cuCtxPushCurrent(runtime_details(l.runtime).native), CUDA_SUCCESS);
        assert_int_equal(driver.cuStreamGetCtx(told.stream, &of_stream), CUDA_SUCCESS);
        assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        assert_ptr_equal(of_stream, runtime_details(l.runtime).native);
        unload_model(&l);
        close_client(&l);
    }
}

/* ---- where it lies ---------------------------------------------------------------------------------------------------- */

typedef struct spans {
    int on[TWO], elsewhere;
} spans;

static void note_span(const weir_segment *segment, const weir_span *span, void *user)
{
    spans *s = user;
    (void)segment;
    if (span->state != WEIR_SPAN_LIVE)
        return;
    int device = two_where(span->block.pointer);
    s->elsewhere += device != 0 && device != 1;
    if (device == 0 || device == 1)
        s->on[device]++;
}

/* What the other device has of the driver's, which nothing that happens on this one changes. */
typedef struct untouched {
    uint64_t count[7];
} untouched;

static untouched look_at(int ordinal)
{
    static const char *const things[] = {"handles", "mappings",    "reservations", "streams",
                                         "events",  "allocations", "used"};
    untouched u;
    for (int i = 0; i < 7; i++)
        u.count[i] = two_count(things[i], ordinal);
    return u;
}

static void a_model_lies_on_its_device(void **state)
{
    (void)state;
    float x[32] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    for (int i = TWO; i-- > 0;) {
        untouched before = look_at(!i);
        loaded l = load_on(i, "mlp", "concurrency=2");
        assert_string_equal(runtime_details(l.runtime).device, two_name(i));
        spans s = {.elsewhere = 0};
        assert_ok(weir_layout_walk(l.runtime, note_span, &s, NULL));
        assert_true(s.on[i] > 0);
        assert_int_equal(s.on[!i], 0);
        assert_int_equal(s.elsewhere, 0);
        for (int run = 0; run < 3; run++) {
            weir_outputs out;
            assert_ok(infer_as(&l, &in, "device", &out));
            for (size_t k = 0; k < out.count; k++)
                assert_int_equal(two_where(out.tensors[k].data), i);
            l.engine->release_outputs(l.model, &out);
            assert_ok(infer_as(&l, &in, "host", &out));
            l.engine->release_outputs(l.model, &out);
        }
        assert_int_equal(onnx_session_stats(&l.model->slots[0]).unknown, 0);
        unload_model(&l);
        close_client(&l);
        untouched after = look_at(!i);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

/* What a node of the CPU's reads goes through pinned memory, of which some is kept for the next run. */
static void pinned_memory_is_its_devices(void **state)
{
    (void)state;
    for (int i = TWO; i-- > 0;) {
        uint64_t elsewhere = two_count("pinned", !i), here = two_count("pinned", i);
        loaded l = load_on(i, "picked", NULL);
        weir_tensor inputs[4];
        size_t count = make_inputs(&l, 16, inputs, 4);
        for (int run = 0; run < 2; run++) {
            weir_outputs out;
            assert_ok(infer(&l, inputs, count, &out));
            l.engine->release_outputs(l.model, &out);
        }
        if (two_stub_count)
            assert_true(two_count("pinned", i) > here);
        assert_int_equal(two_count("pinned", !i), elsewhere);
        free_inputs(inputs, count);
        unload_model(&l);
        close_client(&l);
        assert_int_equal(two_count("pinned", i), here);
    }
}

/* ---- the thread --------------------------------------------------------------------------------------------------------- */

#define SAME(call)                                                                                                     \
    do {                                                                                                               \
        two_thread before_ = two_look();                                                                               \
        call;                                                                                                          \
        two_same(before_, #call);                                                                                      \
    } while (0)

/* ONNX Runtime makes its device current, and leaves it so: for a program that works on another one that would be a surprise. */
static void use_model(int ordinal, const char *setting)
{
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_inference inference = {.struct_size = sizeof inference, .inputs = &in, .input_count = 1};
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 1ull << 30};
    char text[32];
    snprintf(text, sizeof text, "%s", setting);
    char *equals = strchr(text, '=');
    *equals = 0;
    weir_setting chosen = {text, equals + 1};
    weir_model_options wanted = {
        .struct_size = sizeof wanted, .engine = "onnx", .settings = &chosen, .setting_count = 1};
    weir_model *model = NULL;
    assert_ok(weir_runtime_create(two_name(ordinal), &options, &wanted.runtime));
    SAME(assert_ok(weir_model_create(model_path("chain"), &wanted, &model)));
    SAME(assert_ok(weir_model_warm_up(model)));
    for (int i = 0; i < 3; i++) {
        SAME(assert_ok(weir_model_infer(model, &inference, &out)));
        SAME(weir_model_release_outputs(model, &out));
    }
    in.rank = 1;
    SAME(assert_status(weir_model_infer(model, &inference, &out), WEIR_ERR_INVALID));
    SAME(assert_ok(weir_model_destroy(model)));
    SAME(assert_status(weir_model_create(model_path("strings"), &wanted, &model), WEIR_ERR_UNSUPPORTED));
    assert_ok(weir_runtime_destroy(wanted.runtime));
}

static void *use_both(void *user)
{
    static const char *const settings[] = {"concurrency=2", "cuda_graph=on", "buckets=2"};
    (void)user;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        for (int i = 0; i < TWO; i++)
            use_model(i, settings[k]);
    return NULL;
}

static void the_thread_keeps_its_device(void **state)
{
    (void)state;
    CUcontext popped, contexts[TWO];
    weir_status registered = weir_engine_register(weir_engine_entry(WEIR_ENGINE_ABI));
    assert_true(registered == WEIR_OK || registered == WEIR_ERR_CONFLICT);
    use_both(NULL);
    for (int i = 0; i < TWO; i++) {
        assert_int_equal(driver.cuDevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
        assert_int_equal(driver.cuCtxPushCurrent(contexts[i]), CUDA_SUCCESS);
        use_both(NULL);
        assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        assert_ptr_equal(popped, contexts[i]);
        assert_int_equal(driver.cuDevicePrimaryCtxRelease(i), CUDA_SUCCESS);
    }
}

/* A run that cannot have its device is a failed one, with the driver's words, and the next one goes on. */
static void a_device_that_cannot_be_had_is_told(void **state)
{
    (void)state;
    if (!two_stub_fail)
        skip();
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    loaded l = load_on(1, "chain", NULL);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    weir_outputs out;
    uint64_t before = live(&l);
    two_thread thread = two_look();
    two_stub_fail("cuCtxPushCurrent", 1, 999);
    assert_status(infer(&l, &in, 1, &out), WEIR_ERR_DRIVER);
    assert_detail("cuda:1");
    assert_status(l.engine->health(l.model), WEIR_ERR_DRIVER);
    two_same(thread, "a run without its device");
    assert_int_equal(live(&l), before);
    assert_ok(infer(&l, &in, 1, &out));
    l.engine->release_outputs(l.model, &out);
    assert_ok(l.engine->health(l.model));
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.runs, 2);
    assert_int_equal(metrics.failures, 1);
    unload_model(&l);
    close_client(&l);
}

/* ---- both at once ------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    const loaded *l;
    pthread_t thread;
    unsigned seed;
    int wrong;
    char words[256];
} worker;

/* A model of copies alone: what it answers is what it was asked. */
static void *run_copies(void *user)
{
    worker *w = user;
    float x[16];
    weir_tensor in = {.struct_size = sizeof in,
                      .name = "x",
                      .type = WEIR_TYPE_F32,
                      .rank = 2,
                      .shape = {1, 16},
                      .data = x,
                      .bytes = sizeof x};
    weir_inference inference = {.struct_size = sizeof inference, .id = w->seed, .inputs = &in, .input_count = 1};
    for (int i = 0; i < RUNS; i++) {
        weir_outputs out = WEIR_INIT(weir_outputs);
        for (int k = 0; k < 16; k++)
            x[k] = (float)(w->seed * 1000 + (unsigned)(i * 16 + k));
        if (w->l->engine->infer(w->l->model, &inference, &out) != WEIR_OK) {
            snprintf(w->words, sizeof w->words, "%s", weir_detail());
            w->wrong++;
            continue;
        }
        const float *got = out.tensors[0].data;
        for (int k = 0; k < 16; k++)
            w->wrong += got[k] != x[k];
        w->l->engine->release_outputs(w->l->model, &out);
    }
    return NULL;
}

static void models_of_both_run_at_once(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    loaded models[TWO] = {load_on(0, "fixed", "concurrency=2"), load_on(1, "fixed", "concurrency=2")};
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.l = &models[i % TWO], .seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_copies, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].wrong)
            fail_msg("%d runs went wrong: %s", workers[i].wrong, workers[i].words);
    }
    for (int i = 0; i < TWO; i++) {
        unload_model(&models[i]);
        close_client(&models[i]);
    }
}

/* A kernel can only be put on a stream of the device that is current: of the thread's own choice, or none. */
static void kernels_find_their_device_current(void **state)
{
    (void)state;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    static const char *const settings[] = {"concurrency=2", "cuda_graph=on", "buckets=3"};
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        loaded models[TWO] = {load_on(0, "chain", settings[k]), load_on(1, "chain", settings[k])};
        for (int64_t i = 0; i < 12; i++) {
            weir_outputs out;
            in.shape[0] = 1;
            assert_ok(infer_as(&models[i % TWO], &in, i / TWO % 2 ? "host" : "device", &out));
            models[i % TWO].engine->release_outputs(models[i % TWO].model, &out);
        }
        for (int i = 0; i < TWO; i++) {
            assert_ok(models[i].engine->warm_up(models[i].model));
            unload_model(&models[i]);
            close_client(&models[i]);
        }
    }
}

/* A thread that asks both by turns. */
static void one_thread_asks_both_by_turns(void **state)
{
    (void)state;
    loaded models[TWO] = {load_on(0, "fixed", NULL), load_on(1, "fixed", NULL)};
    for (unsigned i = 0; i < 20; i++) {
        worker w = {.l = &models[i % TWO], .seed = i + 1};
        run_copies(&w);
        if (w.wrong)
            fail_msg("%d runs went wrong: %s", w.wrong, w.words);
    }
    for (int i = 0; i < TWO; i++) {
        unload_model(&models[i]);
        close_client(&models[i]);
    }
}

static void trims_of_one_leave_the_other_as_it_is(void **state)
{
    (void)state;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    loaded models[TWO] = {load_on(0, "mlp", NULL), load_on(1, "mlp", NULL)};
    for (int i = 0; i < TWO; i++) {
        weir_outputs out;
        for (int k = 0; k < TWO; k++) {
            assert_ok(infer(&models[k], &in, 1, &out));
            models[k].engine->release_outputs(models[k].model, &out);
            assert_ok(weir_stream_synchronize(models[k].model->slots[0].stream));
        }
        untouched before = look_at(!i), after;
        uint64_t weights = live_class(&models[i], WEIR_CLASS_WEIGHTS), others = live(&models[!i]);
        assert_ok(weir_runtime_trim(models[i].runtime, NULL, NULL));
        after = look_at(!i);
        assert_memory_equal(&before, &after, sizeof before);
        assert_int_equal(live(&models[!i]), others);
        assert_int_equal(live_class(&models[i], WEIR_CLASS_WEIGHTS), weights);
        for (int k = 0; k < TWO; k++) { /* and both go on */
            assert_ok(infer(&models[k], &in, 1, &out));
            models[k].engine->release_outputs(models[k].model, &out);
        }
    }
    for (int i = 0; i < TWO; i++) {
        unload_model(&models[i]);
        close_client(&models[i]);
    }
}

int main(void)
{
    int status = two_devices();
    choose(1);
    if (status == 0)
        status = need_cuda_build();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_provider_is_told_which_device, note, unwatch),
        cmocka_unit_test(a_model_lies_on_its_device),
        cmocka_unit_test(pinned_memory_is_its_devices),
        cmocka_unit_test(the_thread_keeps_its_device),
        cmocka_unit_test(a_device_that_cannot_be_had_is_told),
        cmocka_unit_test(models_of_both_run_at_once),
        cmocka_unit_test(kernels_find_their_device_current),
        cmocka_unit_test(one_thread_asks_both_by_turns),
        cmocka_unit_test(trims_of_one_leave_the_other_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
