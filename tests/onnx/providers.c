/* Providers: which are here, one model by several of them in one process, and who runs which nodes. */
#include "common.h"

#include <weir/engine.h>

#include <math.h>

#include "onnx/engine/model.h"

static bool has_openvino, has_cuda, has_cuda_build;

static weir_engine_provider provider_at(size_t index)
{
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider(index, &found));
    return found;
}

static weir_engine_provider provider_named(const char *name)
{
    onnx_provider index;
    assert_true(onnx_provider_find(name, &index));
    return provider_at(index);
}

/* The options that OpenVINO was last appended with, "key=value;". */
static ort_api watched;
static const ort_api *real;
static char appended[256];

static ort_status *note_openvino(ort_session_options *options, const char *const *keys, const char *const *values,
                                 size_t count)
{
    appended[0] = 0;
    for (size_t i = 0, at = 0; i < count && at < sizeof appended; i++)
        at += (size_t)snprintf(appended + at, sizeof appended - at, "%s=%s;", keys[i], values[i]);
    return real->SessionOptionsAppendExecutionProvider_OpenVINO_V2(options, keys, values, count);
}

static int options_left; /* of sessions: made and not released */

static ort_status *count_options(ort_session_options **out)
{
    ort_status *status = real->CreateSessionOptions(out);
    options_left += !status;
    return status;
}

static void release_options(ort_session_options *options)
{
    options_left -= options != NULL;
    real->ReleaseSessionOptions(options);
}

static weir_status load_by(loaded *l, const char *name, const char *provider, const weir_setting *settings,
                           size_t count)
{
    weir_engine_place place = {l->runtime, l->client};
    weir_engine_load load = {.struct_size = sizeof load,
                             .path = model_path(name),
                             .places = &place,
                             .place_count = 1,
                             .settings = settings,
                             .setting_count = count,
                             .provider = provider};
    return l->engine->load(&load, &l->model);
}

static weir_model_details info_of(const loaded *l)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l->engine->info(l->model, &info));
    return info;
}

/* ---- which are here ------------------------------------------------------------------------------------------------- */

static void every_provider_is_told(void **state)
{
    (void)state;
    static const char *const names[] = {"tensorrt", "cuda", "rocm", "coreml", "directml", "openvino", "cpu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weir_engine_provider found = provider_at(i);
        assert_string_equal(found.name, names[i]);
        assert_int_equal(found.missing[0] == 0, found.state == WEIR_PROVIDER_HERE);
        assert_true(found.library[0] != 0);
        assert_true(found.version[0] != 0);
    }
    weir_engine_provider beyond = WEIR_INIT(weir_engine_provider);
    assert_status(weir_engine_entry(WEIR_ENGINE_ABI)->provider(ONNX_PROVIDERS, &beyond), WEIR_ERR_NOT_FOUND);
    assert_int_equal(provider_named("cpu").state, WEIR_PROVIDER_HERE);
}

static void assert_refused(const char *provider, weir_status status, const char *words)
{
    loaded l = open_client(0);
    assert_status(load_by(&l, "mlp", provider, NULL, 0), status);
    assert_detail(words);
    assert_int_equal(live(&l), 0);
    close_client(&l);
}

/* Not on this system, and not in this library: two refusals, told apart. */
static void what_is_not_built_is_said(void **state)
{
    (void)state;
    assert_int_equal(provider_named("METAL").state, WEIR_PROVIDER_NOT_BUILT); /* coreml's other name */
    assert_non_null(strstr(provider_named("metal").missing, "Apple"));
    assert_non_null(strstr(provider_named("directml").missing, "Windows"));
    assert_non_null(strstr(provider_named("rocm").missing, "has no MIGraphXExecutionProvider"));
    assert_refused("coreml", WEIR_ERR_UNSUPPORTED, "has no provider coreml");
    assert_refused("directml", WEIR_ERR_UNSUPPORTED, "has no provider directml");
    assert_refused("rocm", WEIR_ERR_UNSUPPORTED, "WEIR_ONNXRUNTIME");
    assert_refused("cuda", WEIR_ERR_INVALID, "the model is on host");
    assert_refused("tpu", WEIR_ERR_INVALID, "it has tensorrt, cuda, rocm, coreml, directml, openvino and cpu");
}

static void what_cannot_be_loaded_is_named(void **state)
{
    (void)state;
    if (!has_cuda_build)
        skip();
    weir_engine_provider tensorrt = provider_named("tensorrt");
    assert_int_equal(tensorrt.state, WEIR_PROVIDER_NOT_LOADABLE);
    assert_non_null(strstr(tensorrt.missing, "libnvinfer.so.10"));
    assert_non_null(strstr(tensorrt.missing, "libnvonnxparser.so.10"));
    if (has_cuda)
        assert_null(strstr(tensorrt.missing, "libcudart.so.13"));
    assert_null(strstr(tensorrt.missing, "libstdc++"));
}

static loaded open_on_device(void)
{
    loaded l = {.engine = weir_engine_entry(WEIR_ENGINE_ABI)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 256u << 20};
    weir_client_options named = {.struct_size = sizeof named, .name = "device"};
    assert_ok(weir_runtime_create("cuda:0", &options, &l.runtime));
    assert_ok(weir_client_create(l.runtime, &named, &l.client));
    return l;
}

/* Options of a provider, as many as there is room for beside weir's own. */
static void so_many_options_are_taken(void **state)
{
    enum { ROOM = 32, CUDAS = 3 };
    static const struct {
        const char *provider, *key, *value;
        int most;
        weir_status good; /* of as many */
    } cases[] = {{"cuda", "cuda.use_tf32", "0", ROOM - CUDAS, WEIR_OK},
                 {"tensorrt", "tensorrt.trt_fp16_enable", "1", ROOM - 1, WEIR_ERR_UNSUPPORTED},
                 {"openvino", "openvino.num_streams", "1", ROOM, WEIR_OK}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool on_host = strcmp(cases[i].provider, "openvino") == 0;
        weir_setting list[ROOM + 1];
        if (on_host ? !has_openvino : !has_cuda)
            continue;
        for (int k = 0; k <= ROOM; k++)
            list[k] = (weir_setting){cases[i].key, cases[i].value};
        loaded l = on_host ? open_client(0) : open_on_device();
        assert_status(load_by(&l, "mlp", cases[i].provider, list, (size_t)cases[i].most), cases[i].good);
        if (l.model)
            unload_model(&l);
        assert_status(load_by(&l, "mlp", cases[i].provider, list, (size_t)cases[i].most + 1), WEIR_ERR_INVALID);
        assert_detail("more than 32 settings");
        assert_detail(cases[i].provider);
        assert_int_equal(live(&l), 0);
        close_client(&l);
    }
}

/* ---- which runs the model --------------------------------------------------------------------------------------------- */

static void a_conflict_is_an_error(void **state)
{
    (void)state;
    loaded l = open_client(0);
    const weir_setting set = {"provider", "openvino"};
    assert_status(load_by(&l, "mlp", "cpu", &set, 1), WEIR_ERR_INVALID);
    assert_detail("the load asks for the provider cpu");
    const weir_setting of_openvino = {"openvino.num_streams", "1"};
    assert_status(load_by(&l, "mlp", NULL, &of_openvino, 1), WEIR_ERR_INVALID);
    assert_detail("set provider=openvino, too");
    const weir_setting of_cpu = {"cpu.use_arena", "1"};
    assert_status(load_by(&l, "mlp", NULL, &of_cpu, 1), WEIR_ERR_INVALID);
    assert_detail("the provider cpu has no options of its own");
    onnx_settings read;
    const weir_setting adapters[] = {
        {"directml.device_id", "1"}, {"directml.device_id", "one"}, {"directml.nothing", "1"}};
    assert_ok(onnx_settings_read(&adapters[0], 1, false, "directml", &read));
    assert_status(onnx_settings_read(&adapters[1], 1, false, "directml", &read), WEIR_ERR_INVALID);
    assert_status(onnx_settings_read(&adapters[2], 1, false, "directml", &read), WEIR_ERR_INVALID);
    const weir_setting same = {"provider", "cpu"};
    assert_ok(load_by(&l, "mlp", "CPU", &same, 1));
    assert_string_equal(info_of(&l).provider, "cpu");
    unload_model(&l);
    close_client(&l);
}

static void assert_near(const weir_tensor *a, const weir_tensor *b)
{
    assert_int_equal(a->bytes, b->bytes);
    if (a->type != WEIR_TYPE_F32) {
        assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    const float *x = a->data, *y = b->data;
    for (size_t i = 0; i < a->bytes / sizeof *x; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-4f + 1e-3f * fabsf(x[i])))
            fail_msg("%s[%zu]: %g and %g", a->name, i, (double)x[i], (double)y[i]);
}

static void same_by_openvino(const char *name, int64_t extent)
{
    loaded cpu = open_client(0), openvino = open_client(0);
    weir_tensor inputs[PLAIN_VALUES];
    weir_outputs a, b;
    assert_ok(load_by(&cpu, name, "cpu", NULL, 0));
    assert_ok(load_by(&openvino, name, "openvino", NULL, 0));
    size_t count = make_inputs(&cpu, extent, inputs, PLAIN_VALUES);
    for (int run = 0; run < 2; run++) {
        assert_ok(infer(&cpu, inputs, count, &a));
        assert_ok(infer(&openvino, inputs, count, &b));
        assert_int_equal(a.count, b.count);
        for (size_t i = 0; i < a.count; i++)
            assert_near(&a.tensors[i], output(&b, a.tensors[i].name));
        cpu.engine->release_outputs(cpu.model, &a);
        openvino.engine->release_outputs(openvino.model, &b);
    }
    weir_model_details info = info_of(&openvino);
    assert_string_equal(info.provider, "openvino");
    assert_non_null(strstr(info.remarks, "outside: weights"));
    assert_ptr_not_equal(cpu.model->library, openvino.model->library);
    free_inputs(inputs, count);
    unload_model(&cpu);
    unload_model(&openvino);
    close_client(&cpu);
    close_client(&openvino);
}

static void openvino_answers_as_the_cpu(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp", "conv", "default", "folded", "scalar", "chain", "beside"};
    if (!has_openvino)
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        same_by_openvino(models[i], 5);
}

static void openvino_answers_as_the_cpu_with_minilm(void **state)
{
    (void)state;
    char path[512];
    if (!has_openvino)
        skip();
    snprintf(path, sizeof path, "%s/models/minilm.onnx", WEIR_TEST_STORE);
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    else
        skip_without(path);
    same_by_openvino(path, 3);
}

static void options_reach_openvino(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    const onnx_library *library;
    loaded l = open_client(0);
    assert_ok(onnx_library_get(ONNX_OPENVINO, &library));
    real = library->api;
    memcpy(&watched, real, sizeof watched);
    watched.SessionOptionsAppendExecutionProvider_OpenVINO_V2 = note_openvino;
    watched.CreateSessionOptions = count_options;
    watched.ReleaseSessionOptions = release_options;
    options_left = 0;
    ((onnx_library *)(uintptr_t)library)->api = &watched;
    assert_ok(load_by(&l, "mlp", "openvino", NULL, 0));
    assert_string_equal(appended, "device_type=CPU;");
    unload_model(&l);
    const weir_setting some[] = {{"threads", "1"}, {"openvino.num_streams", "1"}};
    assert_ok(load_by(&l, "mlp", "openvino", some, 2));
    assert_string_equal(appended, "num_streams=1;device_type=CPU;num_of_threads=1;");
    unload_model(&l);
    const weir_setting unknown = {"openvino.no_such_option", "1"};
    assert_status(load_by(&l, "mlp", "openvino", &unknown, 1), WEIR_ERR_INVALID);
    assert_detail("no_such_option");
    assert_int_equal(live(&l), 0);
    assert_int_equal(options_left, 0);
    ((onnx_library *)(uintptr_t)library)->api = real;
    close_client(&l);
}

/* ---- providers that no build here has ---------------------------------------------------------------------------------- */

/* Calls in their order, with their words; `failing` names the call that fails, NULL: none. */
static char asked[512];
static const char *failing;

static ort_status *note(const char *call, const char *words)
{
    size_t used = strlen(asked);
    snprintf(asked + used, sizeof asked - used, "%s%s%s;", call, *words ? " " : "", words);
    return failing && strcmp(failing, call) == 0 ? real->CreateStatus(ORT_FAIL_CODE, "failed on purpose") : NULL;
}

static const char *in_words(const char *const *keys, const char *const *values, size_t count)
{
    static char words[128];
    words[0] = 0;
    for (size_t i = 0, at = 0; i < count && at < sizeof words; i++)
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s=%s", i ? " " : "", keys[i], values[i]);
    return words;
}

static ort_status *append_named(ort_session_options *options, const char *provider, const char *const *keys,
                                const char *const *values, size_t count)
{
    (void)options;
    return note(provider, in_words(keys, values, count));
}

static ort_status *make_rocm(ort_rocm_options **out)
{
    ort_status *status = note("make", "");
    *out = status ? NULL : (ort_rocm_options *)(void *)asked;
    return status;
}

static ort_status *update_rocm(ort_rocm_options *rocm, const char *const *keys, const char *const *values, size_t count)
{
    assert_ptr_equal(rocm, asked);
    return note("update", in_words(keys, values, count));
}

static ort_status *append_rocm(ort_session_options *options, const ort_rocm_options *rocm)
{
    (void)options;
    assert_ptr_equal(rocm, asked);
    return note("append", "");
}

static void release_rocm(ort_rocm_options *rocm)
{
    assert_ptr_equal(rocm, asked);
    (void)note("release", "");
}

static ort_status *append_directml(ort_session_options *options, int device)
{
    char words[16];
    (void)options;
    snprintf(words, sizeof words, "%d", device);
    return note("directml", words);
}

static ort_status *find_interface(const char *provider, uint32_t version, const void **out)
{
    static ort_status *(*const interface[])(ort_session_options *, int) = {append_directml};
    (void)version;
    *out = interface;
    return note("find", provider);
}

/* Options go where the provider takes them, and objects that were made for that are released whichever call fails. */
static void other_providers_get_their_options(void **state)
{
    static const struct {
        onnx_provider provider;
        unsigned kinds; /* of the provider, that the library has */
        const char *key, *value, *fails, *wanted;
    } cases[] = {
        {ONNX_COREML, 1, "coreml.MLComputeUnits", "ALL", NULL, "CoreML MLComputeUnits=ALL;"},
        {ONNX_ROCM, 1, "rocm.device_id", "1", NULL, "MIGraphX device_id=1;"},
        {ONNX_ROCM, 3, "rocm.device_id", "1", NULL, "MIGraphX device_id=1;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", NULL, "make;update device_id=1;append;release;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "make", "make;make;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "update", "make;update device_id=1;release;make;update;release;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "append",
         "make;update device_id=1;append;release;make;update;append;release;"},
        {ONNX_ROCM, 2, NULL, NULL, "append", "make;update;append;release;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", NULL, "find DML;directml 3;"},
        {ONNX_DIRECTML, 1, NULL, NULL, NULL, "find DML;directml 0;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", "find", "find DML;find DML;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", "directml", "find DML;directml 3;find DML;directml 0;"},
    };
    const onnx_library *library;
    const onnx_device host = {.name = "host"};
    (void)state;
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    onnx_library other = *library;
    real = library->api;
    memcpy(&watched, real, sizeof watched);
    watched.CreateSessionOptions = count_options;
    watched.ReleaseSessionOptions = release_options;
    watched.SessionOptionsAppendExecutionProvider = append_named;
    watched.CreateROCMProviderOptions = make_rocm;
    watched.UpdateROCMProviderOptions = update_rocm;
    watched.SessionOptionsAppendExecutionProvider_ROCM = append_rocm;
    watched.ReleaseROCMProviderOptions = release_rocm;
    watched.GetExecutionProviderApi = find_interface;
    other.api = &watched;
    options_left = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const onnx_settings settings = {.provider = cases[i].provider};
        const weir_setting option = {cases[i].key, cases[i].value};
        const weir_engine_load load = {
            .struct_size = sizeof load, .settings = &option, .setting_count = cases[i].key != NULL};
        asked[0] = 0;
        failing = cases[i].fails;
        other.has[cases[i].provider] = cases[i].kinds;
        weir_status status = onnx_device_provide(&other, &host, WEIR_STREAM_HOST, &settings, &load, NULL);
        assert_string_equal(asked, cases[i].wanted);
        assert_status(status, cases[i].fails ? WEIR_ERR_UNSUPPORTED : WEIR_OK);
        assert_int_equal(options_left, 0);
    }
    failing = NULL;
}

/* Before there is a place, the provider says by its name where the model would be; in whatever case. */
static void a_plan_needs_no_place(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda", "CUDA", "TensorRT"};
    weir_engine_plan plans[3];
    for (size_t i = 0; i < 3; i++) {
        weir_engine_load load = {.struct_size = sizeof load, .path = model_path("mlp"), .provider = names[i]};
        plans[i] = WEIR_INIT(weir_engine_plan);
        assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->plan(&load, &plans[i]));
        assert_true(plans[i].bytes[WEIR_CLASS_WEIGHTS] > 0);
        assert_memory_equal(plans[i].bytes, plans[0].bytes, sizeof plans[i].bytes);
    }
}

static void cuda_runs_its_share(void **state)
{
    (void)state;
    if (!has_cuda)
        skip();
    loaded l = open_on_device();
    const weir_setting off = {"cpu_fallback", "off"};
    assert_ok(load_by(&l, "mlp", "cuda", &off, 1));
    weir_model_details info = info_of(&l);
    assert_string_equal(info.provider, "cuda");
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "cuda");
    assert_int_equal(info.shares[0].parts, info.shares[0].of);
    unload_model(&l);
    assert_status(load_by(&l, "mlp", "cpu", NULL, 0), WEIR_ERR_INVALID);
    assert_detail("the model is on cuda");
    assert_status(load_by(&l, "mlp", "tensorrt", NULL, 0), WEIR_ERR_UNSUPPORTED);
    assert_detail("libnvonnxparser.so.10");
    close_client(&l);
}

/* Both builds' providers in one process: each is answered by its own ONNX Runtime. */
static void builds_lie_beside_each_other(void **state)
{
    (void)state;
    if (!has_openvino || !has_cuda)
        skip();
    for (int turn = 0; turn < 2; turn++) {
        loaded on_device = open_on_device();
        assert_ok(load_by(&on_device, "mlp", "cuda", NULL, 0));
        same_by_openvino("mlp", 3);
        assert_string_equal(info_of(&on_device).provider, "cuda");
        unload_model(&on_device);
        close_client(&on_device);
    }
}

/* ---- who runs which nodes --------------------------------------------------------------------------------------------- */

static void shares_are_of_all_nodes(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    weir_model_details info = info_of(&l);
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "cpu");
    assert_true(info.shares[0].parts > 0);
    assert_int_equal(info.shares[0].parts, info.shares[0].of);
    unload_model(&l);
    close_client(&l);
}

/* Operators that OpenVINO does not take stay on the CPU: said by the shares, and refused where that is not wanted. */
static void the_cpu_behind_is_told(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    const weir_setting off = {"cpu_fallback", "off"};
    loaded l = open_client(0);
    assert_ok(load_by(&l, PARTLY, "openvino", NULL, 0));
    weir_model_details info = info_of(&l);
    assert_int_equal(info.share_count, 2);
    assert_int_equal(info.shares[0].parts + info.shares[1].parts, info.shares[0].of);
    assert_true(info.shares[0].parts >= info.shares[1].parts);
    unload_model(&l);
    assert_status(load_by(&l, PARTLY, "openvino", &off, 1), WEIR_ERR_UNSUPPORTED);
    assert_detail("cpu_fallback=off");
    assert_int_equal(live(&l), 0);
    assert_ok(load_by(&l, "mlp", "openvino", &off, 1));
    info = info_of(&l);
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "openvino");
    unload_model(&l);
    assert_status(load_by(&l, "mlp", "cpu", &off, 1), WEIR_ERR_INVALID);
    close_client(&l);
}

/* The last one, as a library that was opened stays. */
static void a_named_library_serves_all(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    char path[512];
    snprintf(path, sizeof path, "%s", provider_named("openvino").library);
    weir_engine_provider stored = provider_named("cpu");
    assert_string_not_equal(stored.library, path);
    assert_ok(weir_option_set("onnxruntime", path));
    assert_string_equal(provider_named("cpu").library, path);
    assert_string_equal(provider_named("openvino").library, path);
    weir_engine_provider cuda = provider_named("cuda");
    assert_int_equal(cuda.state, WEIR_PROVIDER_NOT_BUILT);
    assert_non_null(strstr(cuda.missing, path));
    loaded l = load_model("mlp", NULL);
    assert_string_equal(info_of(&l).version, provider_named("openvino").version);
    unload_model(&l);
    /* Another one is not taken for it. */
    assert_ok(weir_option_set("onnxruntime", stored.library));
    assert_status(load_by(&l, "mlp", "cpu", NULL, 0), WEIR_ERR_CONFLICT);
    assert_detail(path);
    assert_int_equal(provider_named("cpu").state, WEIR_PROVIDER_NO_LIBRARY);
    close_client(&l);
    assert_ok(weir_option_set("onnxruntime", NULL));
    assert_string_equal(provider_named("cpu").library, stored.library);
}

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    has_openvino = provider_named("openvino").state == WEIR_PROVIDER_HERE;
    has_cuda = provider_named("cuda").state == WEIR_PROVIDER_HERE;
    has_cuda_build = provider_named("tensorrt").state == WEIR_PROVIDER_NOT_LOADABLE;
    if (!has_openvino || !has_cuda || !has_cuda_build) {
        printf("parts are skipped: %s %s\n", provider_named("openvino").missing, provider_named("cuda").missing);
        if (engines_are_required())
            return 1;
    }
    has_openvino = has_openvino && !SANITIZED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_provider_is_told),
        cmocka_unit_test(what_is_not_built_is_said),
        cmocka_unit_test(what_cannot_be_loaded_is_named),
        cmocka_unit_test(a_conflict_is_an_error),
        cmocka_unit_test(openvino_answers_as_the_cpu),
        cmocka_unit_test(options_reach_openvino),
        cmocka_unit_test(other_providers_get_their_options),
        cmocka_unit_test(a_plan_needs_no_place),
        cmocka_unit_test(cuda_runs_its_share),
        cmocka_unit_test(builds_lie_beside_each_other),
        cmocka_unit_test(shares_are_of_all_nodes),
        cmocka_unit_test(the_cpu_behind_is_told),
        cmocka_unit_test(so_many_options_are_taken),
        cmocka_unit_test(a_named_library_serves_all),
        cmocka_unit_test(openvino_answers_as_the_cpu_with_minilm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
