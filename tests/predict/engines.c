/* engines.c: what the engines say: of the file alone close to what llama.cpp lays out, and both what a load takes; of an
 * ONNX model what a run takes. */
#include "common.h"

#include "gguf/writer.h"
#include "test_places.h"

static char folder[64], path[96];

static bool gguf_is_here, onnx_is_here;

static void find(const char *name)
{
    const weir_engine *engine = NULL;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    bool there = weir_engine_get(name, &engine) == WEIR_OK && engine->probe(&probe) == WEIR_OK && probe.available;
    *(strcmp(name, "gguf") == 0 ? &gguf_is_here : &onnx_is_here) = there;
}

static void need(const char *name)
{
    const char *required = getenv("WEIR_REQUIRE_ENGINES");
    if (strcmp(name, "gguf") == 0 ? gguf_is_here : onnx_is_here)
        return;
    if (required && strcmp(required, "1") == 0)
        fail_msg("WEIR_REQUIRE_ENGINES is set, and %s is not here", name);
    skip();
}

static weir_prediction predict(const char *file, const weir_setting *settings, size_t count, bool quick)
{
    weir_prediction out = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    options.settings = settings;
    options.setting_count = count;
    options.quick = quick;
    OK(weir_predict(file, &options, &out));
    return out;
}

static bool near_to(uint64_t one, uint64_t other, unsigned percent)
{
    return one <= other + other * percent / 100 && one + other * percent / 100 >= other;
}

static void compare(const weir_setting *settings, size_t count)
{
    weir_prediction quick = predict(path, settings, count, true), dry = predict(path, settings, count, false);
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    options.settings = settings;
    options.setting_count = count;
    OK(weir_model_create(path, &options, &model));
    OK(weir_client_info(weir_model_client(model), &stats));
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        assert_int_equal(quick.source[i], WEIR_PREDICTED_METADATA);
        assert_int_equal(dry.source[i], WEIR_PREDICTED_DRY_RUN);
        if (dry.exact[i])
            assert_int_equal(dry.peak[i], stats.live_class[i]);
        assert_true(dry.peak[i] >= stats.live_class[i] && dry.least[i] <= dry.peak[i]);
    }
    assert_true(near_to(quick.peak[WEIR_CLASS_WEIGHTS], dry.peak[WEIR_CLASS_WEIGHTS], 1));
    assert_true(near_to(quick.peak[WEIR_CLASS_KV], dry.peak[WEIR_CLASS_KV], 1));
    assert_int_equal(quick.peak[WEIR_CLASS_ACTIVATIONS], dry.peak[WEIR_CLASS_ACTIVATIONS]);
    assert_int_equal(quick.context, dry.context);
    assert_int_equal(quick.sequences, dry.sequences);
    assert_int_equal(quick.layers, dry.layers);
    OK(weir_model_destroy(model));
}

/* A cache that grows begins with its first cells, and its peak is of all of them. */
static void test_a_cache_that_grows(void **state)
{
    const weir_setting elastic[] = {{"cache_memory", "elastic"}}, whole[] = {{"cache_memory", "whole"}};
    model_shape shape = small_shape;
    (void)state;
    need("gguf");
    shape.width = 256;
    shape.context = 1 << 16;
    write_llama(path, &shape);
    for (int quick = 0; quick < 2; quick++) {
        weir_prediction grows = predict(path, elastic, 1, quick), all = predict(path, whole, 1, quick);
        assert_true(near_to(grows.peak[WEIR_CLASS_KV], all.peak[WEIR_CLASS_KV], 5));
        assert_int_equal(grows.least[WEIR_CLASS_KV], all.peak[WEIR_CLASS_KV] / 16); /* 256 of 4096 */
        assert_int_equal(all.least_total, all.peak_total);
    }
}

/* Layers with a window have cells for it and for one step, and these are there from the start; with `swa_full` they are as
 * long as the others, and grow like them. */
static void test_windows(void **state)
{
    const weir_setting small[] = {{"batch", "192"}}, full[] = {{"batch", "192"}, {"swa_full", "1"}};
    enum { CONTEXT = 4096, CELLS = 256, BYTES = 2 * 256 * 2 }; /* keys and values of a cell in f16, in one layer */
    model_shape shape = small_shape;
    (void)state;
    need("gguf");
    shape.width = 256;
    shape.heads_kv = shape.heads;
    shape.layers = 4; /* three with a window, and one without */
    shape.context = CONTEXT;
    write_windowed(path, &shape, 64);
    for (int quick = 0; quick < 2; quick++) {
        weir_prediction few = predict(path, small, 1, quick), all = predict(path, full, 2, quick);
        assert_true(near_to(few.peak[WEIR_CLASS_KV], (uint64_t)(CONTEXT + 3 * CELLS) * BYTES, 1));
        assert_true(near_to(few.least[WEIR_CLASS_KV], (uint64_t)4 * CELLS * BYTES, 1));
        assert_true(near_to(all.peak[WEIR_CLASS_KV], (uint64_t)4 * CONTEXT * BYTES, 1));
        assert_true(near_to(all.least[WEIR_CLASS_KV], (uint64_t)4 * CELLS * BYTES, 1));
    }
}

/* States are there from the start, whatever the context is. */
static void test_states(void **state)
{
    const weir_setting little[] = {{"context", "256"}}, much[] = {{"context", "4096"}};
    model_shape shape = small_shape;
    (void)state;
    need("gguf");
    shape.context = 4096;
    write_recurrent(path, &shape);
    for (int quick = 0; quick < 2; quick++) {
        weir_prediction one = predict(path, little, 1, quick), all = predict(path, much, 1, quick);
        assert_true(one.least[WEIR_CLASS_KV] > 0);
        assert_int_equal(all.least[WEIR_CLASS_KV], one.least[WEIR_CLASS_KV]);
        assert_int_equal(all.least[WEIR_CLASS_KV], all.peak[WEIR_CLASS_KV]);
    }
    compare(much, 1);
}

static void test_gguf(void **state)
{
    const weir_setting several[] = {{"sequences", "3"}, {"context", "600"}, {"cache_k", "q8_0"}, {"batch", "64"}};
    const weir_setting off[] = {{"flash_attention", "off"}}, windows[] = {{"swa_full", "on"}, {"batch", "64"}};
    model_shape shape = small_shape;
    (void)state;
    need("gguf");
    shape.width = 256;
    shape.context = 1024;
    write_llama(path, &shape);
    compare(NULL, 0);
    compare(several, 4);
    compare(off, 1);
    write_windowed(path, &shape, 64);
    compare(NULL, 0);
    compare(windows, 2);
    write_recurrent(path, &shape);
    compare(NULL, 0);
    write_bert(path, &shape);
    weir_prediction quick = predict(path, NULL, 0, true), dry = predict(path, NULL, 0, false);
    assert_true(near_to(quick.peak[WEIR_CLASS_WEIGHTS], dry.peak[WEIR_CLASS_WEIGHTS], 1));
    assert_int_equal(quick.peak[WEIR_CLASS_KV], 0);
}

/* Threads and where a library lies make no other model of it. */
static void test_settings_that_do_not_count(void **state)
{
    const weir_setting two[] = {{"threads", "2"}}, three[] = {{"threads", "3"}}, more[] = {{"context", "512"}};
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    (void)state;
    need("gguf");
    write_llama(path, &small_shape);
    stats.live = stats.live_class[WEIR_CLASS_WEIGHTS] = stats.peak = stats.peak_class[WEIR_CLASS_WEIGHTS] = 1 << 20;
    options.settings = two;
    options.setting_count = 1;
    OK(weir_prediction_learn(path, &options, &stats));
    assert_int_equal(predict(path, three, 1, true).loads, 1);
    assert_int_equal(predict(path, more, 1, true).loads, 0);
}

/* On a device, without one being here: its layers and what stays on the host. */
static void test_layers_on_a_device(void **state)
{
    const weir_setting one[] = {{"gpu_layers", "2"}};
    weir_prediction all = WEIR_INIT(weir_prediction), some = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    (void)state;
    need("gguf");
    write_llama(path, &small_shape);
    options.device = "cuda:0";
    OK(weir_predict(path, &options, &all));
    options.settings = one;
    options.setting_count = 1;
    OK(weir_predict(path, &options, &some));
    assert_string_equal(all.provider, "cuda");
    assert_int_equal(all.layers_on_device, 3);
    assert_int_equal(some.layers_on_device, 2);
    assert_int_equal(some.peak[WEIR_CLASS_WEIGHTS] + some.host[WEIR_CLASS_WEIGHTS],
                     all.peak[WEIR_CLASS_WEIGHTS] + all.host[WEIR_CLASS_WEIGHTS]);
    assert_true(some.peak_total < all.peak_total && some.host_total > all.host_total);
}

static void run_onnx(weir_model *model, int64_t rows)
{
    static float x[64 * 16];
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "x",
                         .type = WEIR_TYPE_F32,
                         .rank = 2,
                         .shape = {rows, 16},
                         .data = x,
                         .bytes = (size_t)rows * 16 * sizeof *x};
    inference.inputs = &input;
    inference.input_count = 1;
    for (int i = 0; i < 2; i++) { /* a memory pattern is there from the second on */
        OK(weir_model_infer(model, &inference, &outputs));
        weir_model_release_outputs(model, &outputs);
    }
}

static void test_onnx(void **state)
{
    const weir_setting dims[] = {{"dims", "n=64"}}, bad[] = {{"dims", "n=0"}};
    const char *const files[] = {data_path("onnx/mlp.onnx"), data_path("onnx/chain.onnx")};
    (void)state;
    need("onnx");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        weir_model *model = NULL;
        weir_model_options options = WEIR_INIT(weir_model_options);
        weir_client_stats stats = WEIR_INIT(weir_client_stats);
        options.settings = dims;
        options.setting_count = 1;
        weir_prediction small = predict(files[i], NULL, 0, false), p = predict(files[i], dims, 1, false);
        assert_true(small.peak[WEIR_CLASS_ACTIVATIONS] < p.peak[WEIR_CLASS_ACTIVATIONS]);
        assert_int_equal(p.resident[WEIR_CLASS_ACTIVATIONS], 0);
        OK(weir_model_create(files[i], &options, &model));
        run_onnx(model, 64);
        OK(weir_client_info(weir_model_client(model), &stats));
        if (!near_to(p.peak[WEIR_CLASS_ACTIVATIONS], stats.peak_class[WEIR_CLASS_ACTIVATIONS], 10))
            fail_msg("%s: %llu bytes of activations predicted, %llu measured", files[i],
                     (unsigned long long)p.peak[WEIR_CLASS_ACTIVATIONS],
                     (unsigned long long)stats.peak_class[WEIR_CLASS_ACTIVATIONS]);
        OK(weir_model_destroy(model));
        p = predict(files[i], dims, 1, false);
        assert_int_equal(p.loads, 1);
        assert_int_equal(p.peak_total, stats.peak);
    }
    weir_prediction out = WEIR_INIT(weir_prediction);
    weir_predict_options wrong = WEIR_INIT(weir_predict_options);
    wrong.settings = bad;
    wrong.setting_count = 1;
    assert_int_equal(weir_predict(files[0], &wrong, &out), WEIR_ERR_INVALID);
}

static int open_store(void **state)
{
    (void)state;
    store_open(folder);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    store_close(folder);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {TEST(test_windows),
                                       TEST(test_states),
                                       TEST(test_gguf),
                                       TEST(test_a_cache_that_grows),
                                       TEST(test_settings_that_do_not_count),
                                       TEST(test_layers_on_a_device),
                                       TEST(test_onnx)};
    find("gguf"); /* their libraries are in the usual store, and those that are open stay so */
    find("onnx");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
