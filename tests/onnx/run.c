/* Answers: bit-equal to ONNX Runtime alone, for every type and shape; and wrong questions refused in words. */
#include "common.h"
#include <weir/engine.h>

#include "older.h"
#include "written.h"

static const onnx_library *library;

static void same_as_plain(const char *name, const char *const *settings, int64_t extent)
{
    loaded l = load_model(name, settings);
    weir_setting list[MAX_SETTINGS];
    char texts[MAX_SETTINGS][64];
    size_t count = 0;
    for (; settings && settings[count]; count++) {
        snprintf(texts[count], sizeof *texts, "%s", settings[count]);
        char *equals = strchr(texts[count], '=');
        *equals = 0;
        list[count] = (weir_setting){texts[count], equals + 1};
    }
    onnx_settings read;
    assert_ok(onnx_settings_read(list, count, false, NULL, &read));
    plain p = plain_open(library, model_path(name), &read);

    weir_tensor inputs[PLAIN_VALUES];
    size_t input_count = make_inputs(&l, extent, inputs, PLAIN_VALUES);
    for (int run = 0; run < 3; run++) { /* ONNX Runtime allocates differently from the second run on */
        weir_outputs out;
        ort_value *values[PLAIN_VALUES];
        const char *names[PLAIN_VALUES];
        assert_ok(infer(&l, inputs, input_count, &out));
        assert_true(out.count > 0);
        for (size_t i = 0; i < out.count; i++)
            names[i] = out.tensors[i].name;
        plain_run(&p, inputs, input_count, names, out.count, values);
        for (size_t i = 0; i < out.count; i++) {
            if (out.tensors[i].bytes)
                assert_memory_equal(out.tensors[i].data, plain_data(&p, values[i]), out.tensors[i].bytes);
            library->api->ReleaseValue(values[i]);
        }
        l.engine->release_outputs(l.model, &out);
        assert_null(out.tensors);
    }
    free_inputs(inputs, input_count);
    plain_close(&p);
    unload_model(&l);
    close_client(&l);
}

static void outputs_are_bit_equal(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp",      "typed",     "beside", "types",  "scalar",  "conv",     "branch",
                                         "loop",     "default",   "folded", "turned", "hidden",  "function", "layout",
                                         "constant", "recurrent", "inner",  "bytes",  "unpacked"};
    static const char *const choices[][4] = {{NULL},
                                             {"prepack=off", NULL},
                                             {"memory_pattern=off", "threads=1", NULL},
                                             {"optimization=disable", NULL},
                                             {"optimization=all", NULL},
                                             {"weights=engine", NULL}};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t c = 0; c < sizeof choices / sizeof *choices; c++)
            same_as_plain(models[m], choices[c], 5);
}

static void minilm_is_bit_equal(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/models/minilm.onnx", WEIR_TEST_STORE);
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    else
        skip_without(path);
    same_as_plain(path, (const char *const[]){"threads=2", NULL}, 3);
    same_as_plain(path, (const char *const[]){"threads=2", "prepack=off", NULL}, 3);
}

static void every_type_passes(void **state)
{
    (void)state;
    loaded l = load_model("types", NULL);
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l.engine->info(l.model, &info));
    assert_int_equal(info.input_count, 15);
    weir_tensor inputs[PLAIN_VALUES];
    size_t count = make_inputs(&l, 3, inputs, PLAIN_VALUES);
    weir_outputs out;
    assert_ok(infer(&l, inputs, count, &out));
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_out", inputs[i].name);
        const weir_tensor *t = output(&out, name);
        assert_string_equal(weir_name_of(WEIR_NAMES_TYPE, t->type),
                            inputs[i].name); /* the ports are named after their types */
        assert_int_equal(t->bytes, inputs[i].bytes);
        assert_memory_equal(t->data, inputs[i].data, t->bytes);
    }
    l.engine->release_outputs(l.model, &out);
    free_inputs(inputs, count);
    unload_model(&l);
    close_client(&l);
}

static void scalars(void **state)
{
    (void)state;
    loaded l = load_model("scalar", NULL);
    float a = 2.5f, b = 1.25f;
    weir_tensor inputs[] = {tensor("b", WEIR_TYPE_F32, 0, NULL, &b), tensor("a", WEIR_TYPE_F32, 0, NULL, &a)};
    weir_outputs out;
    assert_ok(infer(&l, inputs, 2, &out));
    assert_int_equal(output(&out, "sum")->rank, 0);
    assert_int_equal(output(&out, "sum")->bytes, 4);
    assert_true(*(float *)output(&out, "sum")->data == 3.75f);
    assert_int_equal(output(&out, "more")->type, WEIR_TYPE_BOOL);
    assert_int_equal(*(uint8_t *)output(&out, "more")->data, 1);
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

static void empty_tensors(void **state)
{
    (void)state;
    loaded l = load_model("empty", NULL);
    weir_tensor none = tensor("x", WEIR_TYPE_F32, SHAPE(0, 3), NULL);
    weir_outputs out;
    assert_ok(infer(&l, &none, 1, &out));
    assert_int_equal(output(&out, "both")->shape[0], 0);
    assert_int_equal(output(&out, "both")->bytes, 0);
    assert_int_equal(output(&out, "where")->shape[1], 0);
    l.engine->release_outputs(l.model, &out);

    float zeros[6] = {0}; /* a full input, and one output that is empty all the same */
    weir_tensor some = tensor("x", WEIR_TYPE_F32, SHAPE(2, 3), zeros);
    assert_ok(infer(&l, &some, 1, &out));
    assert_int_equal(output(&out, "both")->shape[0], 4);
    assert_int_equal(output(&out, "where")->bytes, 0);
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

static void defaults_and_open_ranks(void **state)
{
    (void)state;
    float x[2] = {1, 2}, ten = 10;
    weir_outputs out;
    loaded l = load_model("default", NULL);
    weir_tensor inputs[] = {tensor("x", WEIR_TYPE_F32, SHAPE(2), x), tensor("scale", WEIR_TYPE_F32, SHAPE(1), &ten)};
    assert_ok(infer(&l, inputs, 1, &out));
    assert_true(((float *)out.tensors[0].data)[1] == 6);
    l.engine->release_outputs(l.model, &out);
    assert_ok(infer(&l, inputs, 2, &out));
    assert_true(((float *)out.tensors[0].data)[1] == 20);
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);

    /* where the file says no rank, that of the input's own value is none either */
    l = load_model(written("in x f32 n; in scale f32 *; weight scale f32 1 = 32; Mul x scale > y; out y f32 n"), NULL);
    assert_ok(infer(&l, inputs, 1, &out));
    assert_true(((float *)out.tensors[0].data)[1] == 6);
    l.engine->release_outputs(l.model, &out);
    assert_ok(infer(&l, inputs, 2, &out));
    assert_true(((float *)out.tensors[0].data)[1] == 20);
    l.engine->release_outputs(l.model, &out);
    inputs[1] = tensor("scale", WEIR_TYPE_F32, SHAPE(1, 1), &ten);
    assert_ok(infer(&l, inputs, 2, &out));
    assert_int_equal(out.tensors[0].rank, 2);
    l.engine->release_outputs(l.model, &out);
    inputs[1] = tensor("scale", WEIR_TYPE_I32, SHAPE(1, 1), &ten);
    assert_status(infer(&l, inputs, 2, &out), WEIR_ERR_INVALID);
    assert_detail("input \"scale\": expected f32 [...], given i32 [1, 1]");
    unload_model(&l);
    close_client(&l);
    written_clear();

    l = load_model("rankless", NULL);
    weir_tensor any = tensor("x", WEIR_TYPE_F32, SHAPE(1, 2, 1), x);
    assert_ok(infer(&l, &any, 1, &out));
    assert_int_equal(out.tensors[0].rank, 3);
    assert_true(((float *)out.tensors[0].data)[1] == -2);
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    float x[32] = {0};
    weir_outputs out;
    weir_tensor good = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x), bad = good;
    uint64_t before = live(&l);

    weir_inference nothing = {.struct_size = sizeof nothing};
    memset(&out, 0xa5, sizeof out);
    out.struct_size = sizeof out;
    assert_status(l.engine->infer(l.model, &nothing, &out), WEIR_ERR_INVALID);
    assert_true(!out.tensors && out.count == 0 && !out.engine_data); /* whatever was there before */
    assert_detail("input \"x\" is missing (f32 [?, 16])");
    bad.name = "y";
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("no input \"y\"; its inputs are: x");
    bad = good, bad.type = WEIR_TYPE_I32;
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("input \"x\": expected f32 [?, 16], given i32 [2, 16]");
    bad = tensor("x", WEIR_TYPE_F32, SHAPE(32), x);
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("given f32 [32]");
    bad = tensor("x", WEIR_TYPE_F32, SHAPE(4, 8), x);
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("given f32 [4, 8]");
    bad = good, bad.bytes--;
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("takes 128 bytes, given 127");
    bad = good, bad.bytes++;
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("takes 128 bytes, given 129");
    bad = good, bad.data = NULL;
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    bad = good, bad.shape[0] = -1;
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    weir_tensor twice[] = {good, good};
    assert_status(infer(&l, twice, 2, &out), WEIR_ERR_INVALID);
    assert_detail("given twice");
    weir_setting setting = {"speed", "high"};
    weir_inference with = {
        .struct_size = sizeof with, .inputs = &good, .input_count = 1, .settings = &setting, .setting_count = 1};
    assert_status(l.engine->infer(l.model, &with, &out), WEIR_ERR_INVALID);

    assert_int_equal(live(&l), before);
    assert_ok(infer(&l, &good, 1, &out)); /* and it still works */
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

/* What only a kernel sees is the caller's mistake all the same, and nothing against the engine. */
static void inputs_that_a_kernel_refuses(void **state)
{
    (void)state;
    loaded l = load_model("looked_up", NULL);
    float x[] = {0, 1, 2, 3};
    weir_tensor good = tensor("x", WEIR_TYPE_F32, SHAPE(4), x), bad = tensor("x", WEIR_TYPE_F32, SHAPE(3), x);
    weir_outputs out;
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    uint64_t before = live(&l);
    assert_status(infer(&l, &bad, 1, &out), WEIR_ERR_INVALID);
    assert_detail("the model does not take these inputs: ONNX Runtime ");
    assert_detail("out of data bounds, idx=3");
    assert_ok(l.engine->health(l.model));
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.failures, 1);
    assert_int_equal(live(&l), before);
    assert_ok(infer(&l, &good, 1, &out));
    assert_true(((float *)out.tensors[0].data)[0] == 3);
    l.engine->release_outputs(l.model, &out);
    assert_status(l.engine->warm_up(l.model), WEIR_ERR_ENGINE); /* one value is nobody's mistake there */
    assert_detail("cannot be warmed up with zeros");
    assert_detail("out of data bounds");
    unload_model(&l);
    close_client(&l);
}

static void refused_models(void **state)
{
    (void)state;
    static const struct {
        const char *model, *words;
        weir_status status;
    } list[] = {{"strings", "input \"words\" is a tensor of string", WEIR_ERR_UNSUPPORTED},
                {"sequence", "output \"parts\" is a sequence", WEIR_ERR_UNSUPPORTED},
                {"int4", "input \"q\" is a tensor of int4", WEIR_ERR_UNSUPPORTED},
                {"escape", "leaves the model's folder", WEIR_ERR_CORRUPT},
                {"memory", "_ORT_MEM_ADDR_", WEIR_ERR_CORRUPT},
                {"/nowhere/at-all.onnx", "/nowhere/at-all.onnx", WEIR_ERR_NOT_FOUND}};
    loaded l = open_client(0);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_status(load_into(&l, list[i].model, NULL), list[i].status);
        assert_detail(list[i].words);
        assert_null(l.model);
        assert_int_equal(live(&l), 0);
    }
    /* of whose output the file says nothing */
    assert_status(load_into(&l, written("in x f32 4; SplitToSequence x > y | axis=0; out y"), NULL),
                  WEIR_ERR_UNSUPPORTED);
    assert_detail("output \"y\" is no tensor; only tensors of numbers or bool go in and out");
    assert_null(l.model);
    assert_int_equal(live(&l), 0);
    close_client(&l);
    written_clear();
}

static void unknown_settings_are_listed(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"speed=high", NULL},      {"prepack=maybe", NULL}, {"threads=-1", NULL},
                                           {"threads=1000000", NULL}, {"threads=", NULL},      {"weights=mine", NULL},
                                           {"optimization=12", NULL}};
    loaded l = open_client(0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_status(load_into(&l, "mlp", wrong[i]), WEIR_ERR_INVALID);
        assert_detail("prepack=on|off");
        assert_detail("threads=0..256");
    }
    close_client(&l);
}

/* Numbers are of digits alone, and have their ends. */
static void numbers_have_their_ends(void **state)
{
    static const struct {
        const char *key, *other; /* without which it would do nothing */
        int least, most;
        size_t at;
    } keys[] = {{"threads", "prepack", 0, 256, offsetof(onnx_settings, threads)},
                {"concurrency", "prepack", 0, 256, offsetof(onnx_settings, concurrency)},
                {"buckets", "prepack", 1, 64, offsetof(onnx_settings, buckets)},
                {"bucket_granularity", "buckets", 1, 1 << 20, offsetof(onnx_settings, granularity)},
                {"bucket_dims", "buckets", 1, WEIR_MAX_RANK, offsetof(onnx_settings, bucket_dims)},
                {"max_batch_size", "prepack", 0, 1024, offsetof(onnx_settings, batch)},
                {"max_queue_delay_microseconds", "max_batch_size", 0, 60000000, offsetof(onnx_settings, batch_delay)}};
    static const char *const none[] = {"", " 2", "+2", "2 ", "2x", "0x2", "2.0", "2,", "-0", "two"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[32];
        onnx_settings read;
        weir_setting both[] = {{keys[i].other, strcmp(keys[i].other, "prepack") == 0 ? "off" : "2"},
                               {keys[i].key, text}};
        for (int number = keys[i].least - 1; number <= keys[i].most + 1;
             number += number == keys[i].least + 1 ? keys[i].most - keys[i].least - 2 : 1) {
            bool good = number >= keys[i].least && number <= keys[i].most;
            snprintf(text, sizeof text, "%d", number);
            assert_status(onnx_settings_read(both, 2, false, NULL, &read), good ? WEIR_OK : WEIR_ERR_INVALID);
            if (good)
                assert_int_equal(*(const int *)(const void *)((const char *)&read + keys[i].at), number);
            else
                assert_detail(keys[i].key);
        }
        for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
            snprintf(text, sizeof text, "%s", none[k]);
            assert_status(onnx_settings_read(both, 2, false, NULL, &read), WEIR_ERR_INVALID);
            assert_detail("is no value of it");
        }
    }
}

/* What nobody chooses, on the host, on cuda, by another provider and with sessions by shape. */
static void what_nobody_chooses(void **state)
{
    (void)state;
    onnx_settings host, cuda, other, shaped, shaped_there;
    const weir_setting buckets = {"buckets", "2"};
    assert_ok(onnx_settings_read(NULL, 0, false, NULL, &host));
    assert_ok(onnx_settings_read(NULL, 0, true, NULL, &cuda));
    assert_ok(onnx_settings_read(NULL, 0, false, "openvino", &other));
    assert_ok(onnx_settings_read(&buckets, 1, false, NULL, &shaped));
    assert_ok(onnx_settings_read(&buckets, 1, true, NULL, &shaped_there));
    const onnx_settings wanted = {.prepack = true,
                                  .ours = true,
                                  .memory_pattern = true,
                                  .pattern_open = true,
                                  .optimization = 2,
                                  .level_open = true,
                                  .provider = ONNX_CPU,
                                  .cpu_fallback = true,
                                  .buckets = 1,
                                  .granularity = 64,
                                  .bucket_dims = 4};
#define SAME(is, member) assert_int_equal((is).member, wanted.member)
#define ALL(is)                                                                                                        \
    SAME(is, outside_counts), SAME(is, pattern_open), SAME(is, level_open), SAME(is, threads), SAME(is, cuda_graph),   \
        SAME(is, cpu_fallback), SAME(is, cpu_arena_off), SAME(is, granularity), SAME(is, bucket_dims),                 \
        SAME(is, batch), SAME(is, batch_delay)
    ALL(host), ALL(cuda), ALL(other), ALL(shaped), ALL(shaped_there);
    SAME(host, prepack), SAME(cuda, prepack), SAME(other, prepack), SAME(shaped_there, prepack);
    SAME(host, ours), SAME(cuda, ours), SAME(shaped, ours), SAME(shaped_there, ours);
    SAME(host, optimization), SAME(other, optimization), SAME(shaped, optimization);
    SAME(host, concurrency), SAME(other, concurrency), SAME(shaped, concurrency);
    SAME(host, buckets), SAME(cuda, buckets), SAME(other, buckets);
    SAME(host, provider), SAME(shaped, provider);
    assert_false(shaped.prepack || shaped.memory_pattern || other.ours);
    assert_true(host.memory_pattern && cuda.memory_pattern && shaped_there.memory_pattern);
    assert_int_equal(cuda.optimization, 99);
    assert_int_equal(shaped_there.optimization, 99);
    assert_int_equal(cuda.provider, ONNX_CUDA);
    assert_int_equal(other.provider, ONNX_OPENVINO);
    assert_int_equal(cuda.concurrency, 1);
    assert_int_equal(shaped.buckets + shaped_there.buckets, 4);
#undef ALL
#undef SAME
    assert_false(onnx_settings_outside(&host) || onnx_settings_outside(&cuda));
    assert_true(onnx_settings_outside(&other));
}

/* In whatever case, for either word, and whether or not there is another choice. */
static void words_are_chosen(void **state)
{
    static const struct {
        const char *key, *on, *off;
        size_t at;
    } keys[] = {{"prepack", "on", "off", offsetof(onnx_settings, prepack)},
                {"weights", "ours", "engine", offsetof(onnx_settings, ours)},
                {"outside", "counted", "told", offsetof(onnx_settings, outside_counts)},
                {"memory_pattern", "on", "off", offsetof(onnx_settings, memory_pattern)},
                {"cuda_graph", "on", "off", offsetof(onnx_settings, cuda_graph)},
                {"cpu_fallback", "ON", "Off", offsetof(onnx_settings, cpu_fallback)},
                {"weights", "Ours", "ENGINE", offsetof(onnx_settings, ours)}};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int on = 0; on < 2; on++) {
            onnx_settings read;
            const weir_setting one = {keys[i].key, on ? keys[i].on : keys[i].off};
            assert_ok(onnx_settings_read(&one, 1, true, NULL, &read));
            assert_int_equal(*(const bool *)((const char *)&read + keys[i].at), on);
            assert_int_equal(read.pattern_open, strcmp(keys[i].key, "memory_pattern") != 0);
            assert_status(onnx_settings_read(&(weir_setting){keys[i].key, "perhaps"}, 1, true, NULL, &read),
                          WEIR_ERR_INVALID);
        }
    onnx_settings read;
    assert_status(onnx_settings_read(&(weir_setting){"cpu_fallback", "off"}, 1, false, NULL, &read), WEIR_ERR_INVALID);
    assert_status(onnx_settings_read(&(weir_setting){NULL, "off"}, 1, false, NULL, &read), WEIR_ERR_INVALID);
    assert_status(onnx_settings_read(&(weir_setting){"prepack", NULL}, 1, false, NULL, &read), WEIR_ERR_INVALID);
    assert_status(onnx_settings_read(NULL, 1, false, NULL, &read), WEIR_ERR_INVALID);
    assert_ok(onnx_settings_read(&(weir_setting){"cpu_arena", "off"}, 1, false, NULL, &read));
    assert_true(read.cpu_arena_off);
}

/* What belongs to CUDA is told apart: on host it is refused, on cuda what would take streams or memory out of weir's hands. */
static void settings_of_cuda(void **state)
{
    (void)state;
    static const char *const hosts[][2] = {{"provider=cuda", NULL},
                                           {"cuda_graph=on", NULL},
                                           {"cuda.use_tf32=0", NULL},
                                           {"tensorrt.trt_fp16_enable=1", NULL}};
    static const char *const kept[] = {"cuda.user_compute_stream", "cuda.do_copy_in_default_stream",
                                       "cuda.gpu_external_alloc", "tensorrt.has_user_compute_stream", "cuda.device_id"};
    loaded l = open_client(0);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        assert_status(load_into(&l, "mlp", hosts[i]), WEIR_ERR_INVALID);
        assert_detail("the model is on host");
    }
    close_client(&l);
    onnx_settings read;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        assert_status(onnx_settings_read(&(weir_setting){kept[i], "1"}, 1, true, NULL, &read), WEIR_ERR_INVALID);
        assert_detail(kept[i]);
        assert_detail("weir sets that option itself");
    }
    assert_status(onnx_settings_read(&(weir_setting){"cuda.gpu_mem_limit", "1"}, 1, true, NULL, &read),
                  WEIR_ERR_INVALID);
    assert_detail("its maximum");
    const weir_setting good[] = {{"cuda.use_tf32", "0"}, {"provider", "tensorrt"}, {"cuda_graph", "on"}};
    assert_ok(onnx_settings_read(good, 3, true, NULL, &read));
    assert_int_equal(read.provider, ONNX_TENSORRT);
    assert_true(read.cuda_graph);
    assert_string_equal(onnx_setting_option(&good[0], "cuda"), "use_tf32");
    assert_null(onnx_setting_option(&good[0], "tensorrt"));
    assert_null(onnx_setting_option(&good[2], "cuda"));
}

/* Addresses as text: a provider follows them, wherever they lead. */
static void settings_that_are_pointers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        const char *provider;
    } pointers[] = {{"rocm.user_compute_stream", "rocm"},
                    {"rocm.gpu_external_alloc", "rocm"},
                    {"rocm.gpu_external_free", "rocm"},
                    {"rocm.gpu_external_empty_cache", "rocm"},
                    {"rocm.migraphx_external_alloc", "rocm"},
                    {"rocm.default_memory_arena_cfg", "rocm"},
                    {"openvino.context", "openvino"},
                    {"tensorrt.trt_onnx_bytestream", "tensorrt"},
                    {"tensorrt.trt_external_data_bytestream_size", "tensorrt"}};
    onnx_settings read;
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        weir_setting setting = {pointers[i].key, "4096"};
        bool cuda = strcmp(pointers[i].provider, "tensorrt") == 0;
        assert_status(onnx_settings_read(&setting, 1, cuda, pointers[i].provider, &read), WEIR_ERR_INVALID);
        assert_detail(pointers[i].key);
        assert_detail("an address in this process");
    }
    assert_ok(onnx_settings_read(&(weir_setting){"rocm.device_id", "0"}, 1, false, "rocm", &read));
    assert_ok(onnx_settings_read(&(weir_setting){"openvino.cache_dir", "/tmp"}, 1, false, "openvino", &read));
}

static weir_status run_with(loaded *l, const char *key, const char *value, weir_outputs *out)
{
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_setting setting = {key, value};
    weir_inference with = {
        .struct_size = sizeof with, .inputs = &in, .input_count = 1, .settings = &setting, .setting_count = 1};
    return l->engine->infer(l->model, &with, out);
}

static void settings_of_a_run(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    weir_outputs out;
    assert_status(run_with(&l, "disable_synchronize_execution_providers", "1", &out), WEIR_ERR_INVALID);
    assert_detail("while the device still writes them");
    assert_status(run_with(&l, "outputs", "elsewhere", &out), WEIR_ERR_INVALID);
    assert_detail("outputs=host|device");
    /* ONNX Runtime itself fails such a run where the memory is not its own. */
    assert_ok(run_with(&l, "memory.enable_memory_arena_shrinkage", "cpu:0", &out));
    l.engine->release_outputs(l.model, &out);
    assert_ok(run_with(&l, "outputs", "device", &out)); /* the host is this model's device */
    assert_false(out.tensors[0].on_device);
    l.engine->release_outputs(l.model, &out);

    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    in.on_device = true;
    assert_status(infer(&l, &in, 1, &out), WEIR_ERR_INVALID);
    assert_detail("it lies on a device, and the model on host");
    in.struct_size = offsetof(weir_tensor, on_device); /* a caller that does not know the member */
    assert_ok(infer(&l, &in, 1, &out));
    l.engine->release_outputs(l.model, &out);
    in.struct_size = offsetof(weir_tensor, bytes); /* nobody can say how much there is */
    assert_status(infer(&l, &in, 1, &out), WEIR_ERR_INVALID);
    assert_detail("inputs without their size");
    unload_model(&l);
    close_client(&l);
}

static void what_a_model_says_of_itself(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->info(l.model, &info));
    assert_string_equal(info.engine, "onnx");
    assert_string_equal(info.version, library->version);
    assert_string_equal(info.architecture, "onnx graph of 4 nodes");
    assert_int_equal(info.input_count, 1);
    assert_int_equal(info.output_count, 3);
    assert_int_equal(info.inputs[0].rank, 2);
    assert_int_equal(info.inputs[0].shape[0], -1);
    assert_int_equal(info.inputs[0].shape[1], 16);
    assert_int_equal(info.outputs[2].type, WEIR_TYPE_I64);
    assert_true(strlen(info.remarks) > 0);
    assert_ok(l.engine->warm_up(l.model));
    assert_ok(l.engine->health(l.model));
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.runs, 1);
    assert_true(metrics.busy_seconds > 0);
    assert_int_equal(live_class(&l, WEIR_CLASS_SCRATCH), 0);
    unload_model(&l);
    close_client(&l);
}

#define SIXTEEN "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 n"

/* As many dimensions as a tensor of weir's has. */
static void the_highest_rank_passes(void **state)
{
    (void)state;
    float x[2] = {1, 2};
    weir_outputs out;
    loaded l = load_model(written("in x f32 " SIXTEEN "; Neg x > y; out y f32 " SIXTEEN), NULL);
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2), x);
    assert_ok(infer(&l, &in, 1, &out));
    assert_int_equal(out.tensors[0].rank, WEIR_MAX_RANK);
    assert_int_equal(out.tensors[0].shape[WEIR_MAX_RANK - 1], 2);
    assert_true(((float *)out.tensors[0].data)[1] == -2);
    l.engine->release_outputs(l.model, &out);
    in.rank++;
    assert_status(infer(&l, &in, 1, &out), WEIR_ERR_INVALID);
    assert_detail("rank 17 is more than 16");
    unload_model(&l);
    static const char *const higher[] = {"in x f32 1 " SIXTEEN "; ReduceSum x > y | keepdims=0; out y f32",
                                         "in x f32 n; weight s i64 17 = 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 -1; "
                                         "Reshape x s > y; out y f32 1 " SIXTEEN};
    for (size_t i = 0; i < 2; i++) {
        assert_status(load_into(&l, written(higher[i]), NULL), WEIR_ERR_UNSUPPORTED);
        assert_detail(i ? "output \"y\"" : "input \"x\"");
        assert_detail("17 dimensions");
    }
    written_clear();
    close_client(&l);
}

static void older_callers_get_what_they_have_room_for(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    weir_engine_load load = {.struct_size = sizeof load, .path = model_path("mlp")};
    assert_int_equal(older_callers_get_too_much(&(older){l.engine, l.model, &load}), 0);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    if (onnx_library_get(ONNX_CPU, &library) != WEIR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_bit_equal),
        cmocka_unit_test(minilm_is_bit_equal),
        cmocka_unit_test(every_type_passes),
        cmocka_unit_test(scalars),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(defaults_and_open_ranks),
        cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(inputs_that_a_kernel_refuses),
        cmocka_unit_test(refused_models),
        cmocka_unit_test(unknown_settings_are_listed),
        cmocka_unit_test(numbers_have_their_ends),
        cmocka_unit_test(what_nobody_chooses),
        cmocka_unit_test(words_are_chosen),
        cmocka_unit_test(settings_of_cuda),
        cmocka_unit_test(settings_that_are_pointers),
        cmocka_unit_test(settings_of_a_run),
        cmocka_unit_test(what_a_model_says_of_itself),
        cmocka_unit_test(the_highest_rank_passes),
        cmocka_unit_test(older_callers_get_what_they_have_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
