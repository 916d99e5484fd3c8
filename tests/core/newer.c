/* Options of callers that were compiled against a newer header: what this library does not know of is 0, or refused. */
#include "core.h"

#include <weir/adaptor.h>
#include <weir/driver.h>
#include <weir/arena.h>
#include <weir/trace.h>
#include <weir/block_pool.h>
#include <weir/elastic.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/plan.h>
#include <weir/onnxruntime.h>
#include <weir/model.h>

enum { ROOM = 16384, LATER = 4096 };

static weir_runtime *runtime;
static weir_client *client;
static weir_model *model;

/* An engine that answers nothing to anything. */
static weir_status engine_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}
static weir_status engine_info(weir_engine_model *m, weir_model_details *out)
{
    (void)m, (void)out;
    return WEIR_OK;
}
static weir_status engine_load(const weir_engine_load *load, weir_engine_model **out)
{
    (void)load;
    *out = (weir_engine_model *)&model;
    return WEIR_OK;
}
static weir_status engine_infer(weir_engine_model *m, const weir_inference *request, weir_outputs *out)
{
    (void)m, (void)out;
    assert_int_equal(request->struct_size, sizeof *request);
    return WEIR_OK;
}
static void engine_release(weir_engine_model *m, weir_outputs *out)
{
    (void)m, (void)out;
}
static void engine_unload(weir_engine_model *m)
{
    (void)m;
}
static const weir_engine engine = {.abi = WEIR_ENGINE_ABI,
                                   .struct_size = sizeof(weir_engine),
                                   .name = "nothing",
                                   .summary = "answers nothing",
                                   .suffixes = "",
                                   .probe = engine_probe,
                                   .info = engine_info,
                                   .load = engine_load,
                                   .infer = engine_infer,
                                   .release_outputs = engine_release,
                                   .unload = engine_unload};

/* One call for each kind of structure that weir takes. Those that would make something are given too little to make it. */
static weir_status of_runtime_get(const void *s)
{
    weir_runtime *out;
    return weir_runtime_get("nowhere", s, &out);
}
static weir_status of_runtime_create(const void *s)
{
    weir_runtime *out;
    return weir_runtime_create("nowhere", s, &out);
}
static weir_status of_client(const void *s)
{
    weir_client *out;
    return weir_client_create(runtime, s, &out);
}
static weir_status of_pressure(const void *s)
{
    uint64_t id;
    return weir_pressure_register_with(runtime, s, &id);
}
static weir_status of_request(const void *s)
{
    weir_block out;
    return weir_alloc_with(client, s, &out);
}
static weir_status of_trace(const void *s)
{
    weir_trace *out;
    weir_status status = weir_trace_create(runtime, s, &out);
    if (status == WEIR_OK)
        weir_trace_destroy(out);
    return status;
}
static weir_status of_sink(const void *s)
{
    weir_trace *trace;
    ok(weir_trace_create(runtime, NULL, &trace));
    weir_status status = weir_trace_add_sink(trace, s);
    weir_trace_destroy(trace);
    return status;
}
static weir_status of_sinks(const void *s)
{
    weir_trace_options options = {.struct_size = sizeof options, .sinks = s, .sink_count = 1};
    return of_trace(&options);
}
static weir_status of_blocks(const void *s)
{
    weir_block_pool *out;
    return weir_block_pool_create(client, s, &out);
}
static weir_status of_elastic(const void *s)
{
    weir_elastic *out;
    return weir_elastic_create(client, s, &out);
}
static weir_status of_arena(const void *s)
{
    weir_arena *out;
    return weir_arena_create(client, s, &out);
}
static weir_status of_arena_pool(const void *s)
{
    weir_arena_pool *out;
    weir_status status = weir_arena_pool_acquire(runtime, s, &out);
    return status == WEIR_OK ? weir_arena_pool_release(out) : status;
}
static weir_status of_parameters(const void *s)
{
    weir_parameters *out;
    weir_status status = weir_parameters_create(client, s, &out);
    return status == WEIR_OK ? weir_parameters_release(out) : status;
}
static weir_status of_plan(const void *s)
{
    weir_buffers *list;
    weir_plan *out;
    ok(weir_buffers_create(&list));
    weir_status status = weir_plan_create(list, s, &out);
    if (status == WEIR_OK)
        weir_plan_destroy(out);
    weir_buffers_destroy(list);
    return status;
}
static weir_status of_buffer(const void *s)
{
    weir_buffers *list;
    ok(weir_buffers_create(&list));
    weir_status status = weir_buffers_add(list, s, NULL);
    weir_buffers_destroy(list);
    return status;
}
static weir_status of_nodes(const void *s)
{
    weir_buffers *out;
    weir_status status = weir_buffers_from_nodes(s, 1, NULL, &out);
    if (status == WEIR_OK)
        weir_buffers_destroy(out);
    return status;
}
static weir_status of_node_rules(const void *s)
{
    weir_buffers *out;
    weir_status status = weir_buffers_from_nodes(NULL, 0, s, &out);
    if (status == WEIR_OK)
        weir_buffers_destroy(out);
    return status;
}
static weir_status of_model(const void *s)
{
    weir_model *out;
    return weir_model_create("/there/is/no/such.model", s, &out);
}
static weir_status of_manifest(const void *s)
{
    weir_choice *out;
    weir_status status = weir_choice_create(s, NULL, &out);
    if (status == WEIR_OK)
        weir_choice_destroy(out);
    return status;
}
static weir_status of_choice(const void *s)
{
    weir_manifest manifest = WEIR_INIT(weir_manifest);
    weir_choice *out;
    weir_status status = weir_choice_create(&manifest, s, &out);
    if (status == WEIR_OK)
        weir_choice_destroy(out);
    return status;
}
static weir_status of_opening_manifest(const void *s)
{
    weir_model *out;
    return weir_model_create_chosen(s, NULL, &out);
}
static weir_status of_opening(const void *s)
{
    weir_manifest manifest = WEIR_INIT(weir_manifest);
    weir_model *out;
    return weir_model_create_chosen(&manifest, s, &out);
}
static weir_status of_opening_choice(const void *s)
{
    weir_opening_options options = {.struct_size = sizeof options, .choice = s};
    return of_opening(&options);
}
static weir_status of_hardware(const void *s)
{
    weir_hardware *out;
    weir_status status = weir_hardware_create(s, &out);
    if (status == WEIR_OK)
        weir_hardware_destroy(out);
    return status;
}
static weir_status of_trim(const void *s)
{
    return weir_runtime_trim(runtime, s, NULL);
}
static weir_status of_base(const void *s)
{
    return weir_base_register(s);
}
static weir_status of_adaptor(const void *s)
{
    return weir_adaptor_register(s);
}
static weir_status of_driver(const void *s)
{
    return weir_driver_register(s);
}
static weir_status of_inference(const void *s)
{
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_status status = weir_model_infer(model, s, &out);
    if (status == WEIR_OK)
        weir_model_release_outputs(model, &out);
    return status;
}
static weir_status of_outputs(const void *s)
{
    weir_inference request = WEIR_INIT(weir_inference);
    weir_outputs *out = (void *)(uintptr_t)s;
    weir_status status = weir_model_infer(model, &request, out);
    if (status == WEIR_OK)
        weir_model_release_outputs(model, out);
    return status;
}
static weir_status of_input(const void *s)
{
    weir_inference request = WEIR_INIT(weir_inference);
    request.inputs = s;
    request.input_count = 1;
    return of_inference(&request);
}
static weir_status of_bridge(const void *s)
{
    weir_onnxruntime *out;
    return weir_onnxruntime_create(s, &out);
}

static const struct {
    const char *type;
    size_t size;
    weir_status (*call)(const void *structure);
} table[] = {
#define ROW(type, call)                                                                                                \
    {                                                                                                                  \
#type, sizeof(type), call                                                                                      \
    }
    ROW(weir_runtime_options, of_runtime_get),
    ROW(weir_runtime_options, of_runtime_create),
    ROW(weir_client_options, of_client),
    ROW(weir_request, of_request),
    ROW(weir_trace_options, of_trace),
    ROW(weir_sink, of_sink),
    ROW(weir_sink, of_sinks),
    ROW(weir_block_pool_options, of_blocks),
    ROW(weir_elastic_options, of_elastic),
    ROW(weir_arena_options, of_arena),
    ROW(weir_arena_pool_options, of_arena_pool),
    ROW(weir_parameters_options, of_parameters),
    ROW(weir_plan_options, of_plan),
    ROW(weir_buffer, of_buffer),
    ROW(weir_node, of_nodes),
    ROW(weir_node_rules, of_node_rules),
    ROW(weir_model_options, of_model),
    ROW(weir_manifest, of_manifest),
    ROW(weir_choice_options, of_choice),
    ROW(weir_manifest, of_opening_manifest),
    ROW(weir_opening_options, of_opening),
    ROW(weir_choice_options, of_opening_choice),
    ROW(weir_hardware_options, of_hardware),
    ROW(weir_onnxruntime_options, of_bridge),
    ROW(weir_trim_options, of_trim),
    ROW(weir_pressure_options, of_pressure),
    ROW(weir_base_table, of_base),
    ROW(weir_adaptor_table, of_adaptor),
    ROW(weir_driver_table, of_driver),
    ROW(weir_inference, of_inference),
    ROW(weir_outputs, of_outputs),
};
enum { KINDS = sizeof table / sizeof table[0] };

/* A structure of `size` bytes that is all 0, and so asks for nothing. */
static void *empty(size_t size)
{
    static _Alignas(16) unsigned char raw[ROOM];
    memset(raw, 0, sizeof raw);
    memcpy(raw, &size, sizeof size);
    return raw;
}

static void an_option_that_this_library_does_not_know_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        char sizes[2][32];
        size_t larger = table[i].size + 24;
        unsigned char *raw = empty(larger);
        raw[larger - 1] = 1;
        fails(WEIR_ERR_UNSUPPORTED, table[i].call(raw));
        snprintf(sizes[0], sizeof sizes[0], "%zu bytes", larger);
        snprintf(sizes[1], sizeof sizes[1], "the %zu that", table[i].size);
        detail_names(table[i].type);
        detail_names(sizes[0]);
        detail_names(sizes[1]);
        detail_names("leave members of later versions 0");
        raw[larger - 1] = 0;
        raw[table[i].size] = 1; /* the first byte that is not known */
        fails(WEIR_ERR_UNSUPPORTED, table[i].call(raw));
    }
}

static void members_that_this_library_does_not_know_and_nobody_set_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        weir_status exact = table[i].call(empty(table[i].size));
        fails(exact, table[i].call(empty(table[i].size + 8)));
        fails(exact, table[i].call(empty(table[i].size + LATER)));
    }
}

static void a_size_that_no_header_ever_had_is_invalid(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        const size_t wrong[] = {0, sizeof(size_t), table[i].size + LATER + 1, SIZE_MAX};
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            fails(WEIR_ERR_INVALID, table[i].call(empty(wrong[k])));
            detail_names(table[i].type);
            detail_names("WEIR_INIT");
        }
    }
}

/* An input that is longer than this library knows, which older callers' inputs are not. */
static void an_input_with_a_member_that_this_library_does_not_know_is_refused(void **state)
{
    (void)state;
    unsigned char *raw = empty(sizeof(weir_tensor) + 8);
    ok(of_input(raw));
    raw[sizeof(weir_tensor)] = 1;
    fails(WEIR_ERR_UNSUPPORTED, of_input(raw));
    detail_names("weir_tensor");
}

static int open_all(void **state)
{
    (void)state;
    runtime = make_runtime(4 * MIB);
    client = open_client(runtime, "x", 0, 0);
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.engine = "nothing";
    options.runtime = runtime;
    ok(weir_engine_register(&engine));
    ok(weir_model_create("/proc/self/exe", &options, &model));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_that_this_library_does_not_know_is_refused),
        cmocka_unit_test(members_that_this_library_does_not_know_and_nobody_set_change_nothing),
        cmocka_unit_test(a_size_that_no_header_ever_had_is_invalid),
        cmocka_unit_test(an_input_with_a_member_that_this_library_does_not_know_is_refused),
    };
    return cmocka_run_group_tests_name("newer", tests, open_all, close_all);
}
