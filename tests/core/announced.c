/* Lists that are announced and are not there: every public call that takes a pointer and a count says so
 * (WEIR_ERR_INVALID), and reads nothing. */
#include "core.h"

#include <weir/block_pool.h>
#include <weir/engine.h>
#include <weir/guard.h>
#include <weir/model.h>
#include <weir/plan.h>
#include <weir/pool.h>
#include <weir/predict.h>
#include <weir/select.h>
#include <weir/trace.h>
#include <weir/uses.h>
#include <weir/arena.h>

enum { COUNT = 3, BLOCK = 4096 };

/* What refuses a list says which, or that there is none. */
#define refuses(call) fails(WEIR_ERR_INVALID, call)

/* An engine that does nothing ----------------------------------------------------------------------------------------- */

static int loads, runs;
static int the_model;

static weir_status probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status plan(const weir_engine_load *load, weir_engine_plan *out)
{
    (void)load;
    (void)out;
    loads++;
    return WEIR_OK;
}

static weir_status load(const weir_engine_load *load, weir_engine_model **out)
{
    (void)load;
    loads++;
    *out = (weir_engine_model *)&the_model;
    return WEIR_OK;
}

static weir_status infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model;
    (void)inference;
    runs++;
    out->count = 0;
    return WEIR_OK;
}

static void release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    out->engine = "idle";
    return WEIR_OK;
}

static void unload(weir_engine_model *model)
{
    (void)model;
}

static const weir_engine idle = {.abi = WEIR_ENGINE_ABI,
                                 .struct_size = sizeof(weir_engine),
                                 .name = "idle",
                                 .summary = "does nothing",
                                 .suffixes = ".idle",
                                 .probe = probe,
                                 .plan = plan,
                                 .load = load,
                                 .infer = infer,
                                 .release_outputs = release_outputs,
                                 .info = info,
                                 .unload = unload};

static char file[] = "/tmp/weir-announced-XXXXXX.idle";
static weir_runtime *runtime;
static weir_client *client;

static int set_up(void **state)
{
    (void)state;
    int descriptor = mkstemps(file, 5);
    assert_true(descriptor >= 0);
    close(descriptor);
    ok(weir_engine_register(&idle));
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 16 * MIB;
    options.resource = "guard(cache)";
    ok(weir_runtime_create("host", &options, &runtime));
    client = open_client(runtime, "client", 0, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    return unlink(file);
}

/* Settings -------------------------------------------------------------------------------------------------------------- */

/* There are none; there is one without a key; one without a value. */
static const struct {
    weir_setting list[1];
    bool there;
} bad_settings[] = {{{{NULL, NULL}}, false}, {{{NULL, "1"}}, true}, {{{"", "1"}}, true}, {{{"key", NULL}}, true}};
enum { BAD_SETTINGS = sizeof bad_settings / sizeof *bad_settings };

static const weir_setting *bad(int i, size_t *count)
{
    *count = bad_settings[i].there ? 1 : COUNT;
    return bad_settings[i].there ? bad_settings[i].list : NULL;
}

static void settings_of_models(void **state)
{
    (void)state;
    weir_model *model = NULL;
    for (int i = 0; i < BAD_SETTINGS; i++) {
        weir_model_options options = WEIR_INIT(weir_model_options);
        options.runtime = runtime;
        options.settings = bad(i, &options.setting_count);
        refuses(weir_model_create(file, &options, &model));
        detail_names("setting");
        assert_null(model);
        weir_inference inference = WEIR_INIT(weir_inference);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        options.setting_count = 0;
        ok(weir_model_create(file, &options, &model));
        inference.settings = bad(i, &inference.setting_count);
        refuses(weir_model_infer(model, &inference, &outputs));
        detail_names("setting");
        ok(weir_model_destroy(model));
        model = NULL;
    }
    assert_int_equal(runs, 0);
}

static void settings_of_choices(void **state)
{
    (void)state;
    for (int i = 0; i < BAD_SETTINGS; i++) {
        weir_manifest manifest = WEIR_INIT(weir_manifest);
        weir_choice_options options = WEIR_INIT(weir_choice_options);
        weir_opening_options opening = WEIR_INIT(weir_opening_options);
        weir_choice *choice = NULL;
        weir_model *model = NULL;
        manifest.model_file = file;
        opening.choice = &options;
        options.settings = bad(i, &options.setting_count);
        refuses(weir_choice_create(&manifest, &options, &choice));
        detail_names("setting");
        refuses(weir_model_create_chosen(&manifest, &opening, &model));
        options.settings = NULL;
        options.setting_count = 0;
        manifest.settings = bad(i, &manifest.setting_count);
        refuses(weir_choice_create(&manifest, &options, &choice));
        refuses(weir_model_create_chosen(&manifest, &opening, &model));
        assert_null(choice);
        assert_null(model);
    }
}

static void settings_of_predictions(void **state)
{
    (void)state;
    weir_prediction prediction = WEIR_INIT(weir_prediction);
    weir_client_stats measured = WEIR_INIT(weir_client_stats);
    weir_fit fit = WEIR_INIT(weir_fit);
    int before = loads;
    for (int i = 0; i < 2 * BAD_SETTINGS; i++) {
        weir_manifest manifest = WEIR_INIT(weir_manifest);
        weir_predict_options options = WEIR_INIT(weir_predict_options);
        manifest.model_file = file;
        options.manifest = &manifest;
        if (i < BAD_SETTINGS)
            options.settings = bad(i, &options.setting_count);
        else
            manifest.settings = bad(i - BAD_SETTINGS, &manifest.setting_count);
        refuses(weir_predict(file, &options, &prediction));
        detail_names("setting");
        refuses(weir_predict_fit(file, &options, MIB, NULL, &fit));
        refuses(weir_prediction_learn(file, &options, &measured));
    }
    assert_int_equal(loads, before);
}

static void settings_of_pools(void **state)
{
    (void)state;
    weir_pool_device device = {NULL, runtime};
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_pool *pool;
    options.devices = &device;
    options.device_count = 1;
    ok(weir_pool_create(&options, &pool));
    for (int i = 0; i < 3 * BAD_SETTINGS; i++) {
        weir_manifest manifest = WEIR_INIT(weir_manifest);
        weir_pool_variant variant = WEIR_INIT(weir_pool_variant);
        weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
        int which = i / BAD_SETTINGS;
        manifest.model_file = file;
        spec.path = which == 2 ? NULL : file;
        spec.manifest = which == 2 ? &manifest : NULL;
        spec.variants = &variant;
        spec.variant_count = which == 1;
        *(which == 0   ? &spec.settings
          : which == 1 ? &variant.settings
                       : &manifest.settings) = bad(i % BAD_SETTINGS, which == 0   ? &spec.setting_count
                                                                     : which == 1 ? &variant.setting_count
                                                                                  : &manifest.setting_count);
        refuses(weir_pool_add(pool, &spec));
        detail_names("setting");
    }
    ok(weir_pool_destroy(pool));
}

/* Other lists of models ------------------------------------------------------------------------------------------------- */

static void inputs_of_a_run(void **state)
{
    (void)state;
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_model *model;
    options.runtime = runtime;
    ok(weir_model_create(file, &options, &model));
    inference.input_count = COUNT;
    refuses(weir_model_infer(model, &inference, &outputs));
    detail_names("inputs");
    assert_int_equal(runs, 0);
    ok(weir_model_destroy(model));
}

static void lists_of_a_manifest_and_a_choice(void **state)
{
    (void)state;
    weir_hardware hardware = WEIR_INIT(weir_hardware);
    for (int which = 0; which < 4; which++) {
        weir_manifest manifest = WEIR_INIT(weir_manifest);
        weir_choice_options options = WEIR_INIT(weir_choice_options);
        weir_choice *choice = NULL;
        manifest.model_file = file;
        manifest.requirements.fallback_count = which == 0 ? COUNT : 0;
        manifest.requirements.device_count = which == 1 ? COUNT : 0;
        options.obtainable_count = which == 2 ? COUNT : 0;
        hardware.device_count = which == 3 ? COUNT : 0;
        options.hardware = &hardware;
        refuses(weir_choice_create(&manifest, &options, &choice));
        detail_names("is NULL");
        assert_null(choice);
    }
}

static void lists_of_a_pool(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_pool_device device = {NULL, runtime};
    weir_pool *pool = NULL;
    size_t count;
    options.device_count = COUNT;
    refuses(weir_pool_create(&options, &pool));
    assert_null(pool);
    options.devices = &device;
    options.device_count = 1;
    ok(weir_pool_create(&options, &pool));
    for (int which = 0; which < 4; which++) {
        weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
        spec.path = file;
        spec.variant_count = which == 0 ? COUNT : 0;
        spec.device_count = which == 1 ? COUNT : 0;
        spec.gives_up_count = which == 2 ? COUNT : 0;
        if (which < 3)
            refuses(weir_pool_add(pool, &spec));
    }
    refuses(weir_pool_list(pool, NULL, COUNT, &count));
    ok(weir_pool_destroy(pool));
}

/* The engines that are here, called as a plug-in's table may be ----------------------------------------------------------- */

static void lists_of_engines(void **state)
{
    (void)state;
    static const char *const names[] = {"gguf", "onnx", "llm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const weir_engine *engine;
        weir_engine_model *model = NULL;
        if (weir_engine_get(names[i], &engine) != WEIR_OK)
            continue;
        weir_engine_load request = WEIR_INIT(weir_engine_load);
        weir_engine_plan foreseen = WEIR_INIT(weir_engine_plan);
        weir_engine_place place = {runtime, client};
        request.path = file;
        request.place_count = 1;
        refuses(engine->load(&request, &model));
        refuses(engine->plan(&request, &foreseen));
        request.places = &place;
        request.setting_count = COUNT;
        refuses(engine->load(&request, &model));
        refuses(engine->plan(&request, &foreseen));
        detail_names("settings");
        assert_null(model);
    }
}

/* Memory ---------------------------------------------------------------------------------------------------------------- */

static void lists_of_block_pools(void **state)
{
    (void)state;
    weir_block_pool_options options = WEIR_INIT(weir_block_pool_options);
    weir_block_pool *pool;
    weir_block_pool_member *member;
    weir_block_pool_stats stats = WEIR_INIT(weir_block_pool_stats);
    size_t found;
    options.bytes = BLOCK;
    options.count = 8;
    ok(weir_block_pool_create(client, &options, &pool));
    ok(weir_block_pool_member_create(pool, client, 0, &member));
    refuses(weir_block_pool_alloc(member, COUNT, 0, WEIR_STREAM_HOST, NULL));
    refuses(weir_block_pool_free(member, NULL, NULL, COUNT, 0, WEIR_STREAM_HOST));
    refuses(weir_block_pool_info(pool, &stats, NULL, COUNT, &found));
    ok(weir_block_pool_destroy(pool));
}

static void lists_of_runtimes(void **state)
{
    (void)state;
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_launch *launch = NULL;
    weir_trace_options options = WEIR_INIT(weir_trace_options);
    weir_trace *trace = NULL;
    size_t count;
    refuses(weir_snapshot(runtime, &stats, NULL, COUNT, &count));
    refuses(weir_guard_reports(runtime, NULL, COUNT, &count));
    refuses(weir_guard_leaks(runtime, NULL, COUNT, &count));
    refuses(weir_launch_begin(runtime, WEIR_STREAM_HOST, NULL, COUNT, &launch));
    options.sink_count = COUNT;
    refuses(weir_trace_create(runtime, &options, &trace));
    detail_names("sinks");
    assert_null(trace);
    ok(weir_trace_create(runtime, NULL, &trace));
    refuses(weir_trace_read(trace, NULL, COUNT, &count));
    weir_trace_destroy(trace);
    char byte;
    refuses(weir_copy(runtime, NULL, &byte, 1, WEIR_STREAM_HOST));
    refuses(weir_copy(runtime, &byte, NULL, 1, WEIR_STREAM_HOST));
    refuses(weir_fill(runtime, NULL, 0, 1, WEIR_STREAM_HOST));
    refuses(weir_read_file(client, NULL, file, 0, 1, WEIR_STREAM_HOST));
}

static void lists_of_plans(void **state)
{
    (void)state;
    weir_buffers *buffers = NULL;
    weir_node node = WEIR_INIT(weir_node);
    weir_arena_options options = WEIR_INIT(weir_arena_options);
    weir_arena *arena = NULL;
    size_t bytes;
    refuses(weir_buffers_from_nodes(NULL, COUNT, NULL, &buffers));
    node.input_count = COUNT;
    refuses(weir_buffers_from_nodes(&node, 1, NULL, &buffers));
    assert_null(buffers);
    ok(weir_buffers_create(&buffers));
    refuses(weir_buffers_schedule(buffers, NULL, COUNT));
    weir_buffers_destroy(buffers);
    options.plan_count = COUNT;
    refuses(weir_arena_create(client, &options, &arena));
    assert_null(arena);
    refuses(weir_tensor_bytes(WEIR_TYPE_F32, COUNT, NULL, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_of_models),      cmocka_unit_test(settings_of_choices),
        cmocka_unit_test(settings_of_predictions), cmocka_unit_test(settings_of_pools),
        cmocka_unit_test(inputs_of_a_run),         cmocka_unit_test(lists_of_a_manifest_and_a_choice),
        cmocka_unit_test(lists_of_a_pool),         cmocka_unit_test(lists_of_engines),
        cmocka_unit_test(lists_of_block_pools),    cmocka_unit_test(lists_of_runtimes),
        cmocka_unit_test(lists_of_plans),
    };
    return cmocka_run_group_tests_name("announced", tests, set_up, tear_down);
}
