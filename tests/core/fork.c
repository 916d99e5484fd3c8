/* In a forked child every call answers WEIR_ERR_FORKED, or its neutral value, and none of them waits for a lock that a thread
 * of the parent held. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>
#include <weir/adaptor.h>
#include <weir/cores.h>
#include <weir/driver.h>
#include <weir/elastic.h>
#include <weir/engine.h>
#include <weir/guard.h>
#include <weir/model.h>
#include <weir/onnxruntime.h>
#include <weir/pool.h>
#include <weir/predict.h>
#include <weir/pressure.h>
#include <weir/residency.h>
#include <weir/select.h>
#include <weir/arena.h>

#include <stdatomic.h>
#include <sys/wait.h>

static weir_runtime *runtime, *own;
static weir_client *client;
static weir_stream stream;
static weir_trace *trace;
static void *block;
static atomic_bool stop;

#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                        \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define forked(call) expect((call) == WEIR_ERR_FORKED)

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

static void nothing(void *user)
{
    (void)user;
}

/* Those that ask whether this is such a child before they look at anything else. */
static void calls_of_nothing(void)
{
    forked(weir_adaptor_register(NULL));
    forked(weir_block_pool_create(NULL, NULL, NULL));
    forked(weir_block_pool_destroy(NULL));
    forked(weir_block_pool_member_create(NULL, NULL, 0, NULL));
    forked(weir_block_pool_member_destroy(NULL));
    forked(weir_block_pool_member_set_cap(NULL, 0));
    forked(weir_block_pool_alloc(NULL, 0, 0, WEIR_STREAM_HOST, NULL));
    forked(weir_block_pool_free(NULL, NULL, NULL, 0, 0, WEIR_STREAM_HOST));
    forked(weir_block_pool_block_info(NULL, 0, NULL));
    forked(weir_block_pool_info(NULL, NULL, NULL, 0, NULL));
    forked(weir_block_pool_member_info(NULL, NULL));
    forked(weir_reservation_create(NULL, 0, 0, NULL));
    forked(weir_reservation_destroy(NULL));
    forked(weir_cores_open(NULL, 0, 0, NULL));
    forked(weir_cores_take(NULL, NULL, NULL, NULL));
    forked(weir_cores_renew(NULL, NULL, NULL, NULL));
    forked(weir_cores_info(NULL));
    forked(weir_cores_look(0, NULL));
    forked(weir_driver_register(NULL));
    forked(weir_elastic_create(NULL, NULL, NULL));
    forked(weir_elastic_commit(NULL, 0, 0, WEIR_STREAM_HOST));
    forked(weir_elastic_release(NULL, 0, 0, WEIR_STREAM_HOST));
    forked(weir_elastic_destroy(NULL, WEIR_STREAM_HOST));
    forked(weir_elastic_info(NULL, NULL));
    forked(weir_elastic_check(NULL));
    forked(weir_guard_reports(NULL, NULL, 0, NULL));
    forked(weir_guard_check(NULL));
    forked(weir_guard_leaks(NULL, NULL, 0, NULL));
    forked(weir_model_call_create(NULL, NULL, NULL, NULL));
    forked(weir_model_call_run(NULL, NULL));
    forked(weir_model_call_destroy(NULL));
    forked(weir_model_suspend(NULL, NULL, NULL));
    forked(weir_model_resume(NULL, WEIR_STREAM_HOST));
    forked(weir_model_resume_behind(NULL));
    forked(weir_model_exchange(NULL, NULL, NULL, WEIR_STREAM_HOST, NULL));
    forked(weir_model_residency(NULL, NULL));
    forked(weir_onnxruntime_register(NULL));
    forked(weir_onnxruntime_unregister(NULL, NULL));
    forked(weir_onnxruntime_create(NULL, NULL));
    forked(weir_onnxruntime_enter(NULL));
    forked(weir_onnxruntime_destroy(NULL));
    forked(weir_onnxruntime_info(NULL, NULL));
    forked(weir_onnxruntime_explain(NULL, 0, NULL, 0));
    forked(weir_pool_create(NULL, NULL));
    forked(weir_pool_destroy(NULL));
    forked(weir_pool_add(NULL, NULL));
    forked(weir_pool_remove(NULL, NULL, 0, NULL));
    forked(weir_pool_load(NULL, NULL, 0));
    forked(weir_pool_suspend(NULL, NULL, 0));
    forked(weir_pool_unload(NULL, NULL, 0, NULL));
    forked(weir_pool_pin(NULL, NULL, false));
    forked(weir_pool_keep(NULL, NULL, 0));
    forked(weir_pool_acquire(NULL, NULL, NULL, NULL));
    forked(weir_pool_infer(NULL, NULL, NULL, NULL, NULL, NULL));
    forked(weir_pool_cancel(NULL, 0));
    forked(weir_pool_waiting(NULL, 0, NULL));
    forked(weir_pool_list(NULL, NULL, 0, NULL));
    forked(weir_pool_usage_info(NULL, 0, NULL));
    forked(weir_predict(NULL, NULL, NULL));
    forked(weir_predict_fit(NULL, NULL, 0, NULL, NULL));
    forked(weir_prediction_learn(NULL, NULL, NULL));
    forked(weir_model_prediction(NULL, NULL, NULL));
    forked(weir_pressure_register(NULL, 0, NULL, NULL, NULL));
    forked(weir_pressure_register_with(NULL, NULL, NULL));
    forked(weir_pressure_unregister(NULL, 0));
    forked(weir_client_suspend(NULL, NULL, NULL));
    forked(weir_client_resume(NULL, WEIR_STREAM_HOST));
    forked(weir_client_resume_some(NULL, NULL, WEIR_STREAM_HOST, NULL));
    forked(weir_client_residency(NULL, NULL));
    forked(weir_client_prepare(NULL, NULL));
    forked(weir_client_preparation(NULL, NULL));
    forked(weir_client_set_overflow(NULL, true, 0));
    forked(weir_read_file(NULL, NULL, NULL, 0, 0, WEIR_STREAM_HOST));
    forked(weir_alloc_from_file(NULL, NULL, NULL, 0, NULL));
    forked(weir_base_register(NULL));
    forked(weir_hardware_create(NULL, NULL));
    forked(weir_choice_create(NULL, NULL, NULL));
    forked(weir_memory_stats_info(NULL, NULL));
    forked(weir_layout_walk(NULL, NULL, NULL, NULL));
    forked(weir_capture_pool_create(NULL, NULL));
    forked(weir_capture_pool_destroy(NULL, WEIR_STREAM_HOST));
    forked(weir_capture_pool_info(NULL, NULL));
    forked(weir_sink_file(NULL, 0, NULL));
    forked(weir_trace_add_sink(NULL, NULL));
    forked(weir_trace_flush(NULL));
    forked(weir_trace_note(NULL, NULL));
    forked(weir_launch_begin(NULL, WEIR_STREAM_HOST, NULL, 0, NULL));
    forked(weir_launch_end(NULL));
    forked(weir_arena_pool_acquire(NULL, NULL, NULL));
    forked(weir_arena_pool_release(NULL));
    forked(weir_arena_pool_trim(NULL, NULL, 0, NULL));
    forked(weir_arena_pool_info(NULL, NULL));
    forked(weir_parameters_create(NULL, NULL, NULL));
    forked(weir_parameters_acquire(NULL));
    forked(weir_parameters_release(NULL));
    forked(weir_parameters_add(NULL, NULL, 0, 0, NULL, WEIR_STREAM_HOST, NULL));
    forked(weir_parameters_alias(NULL, NULL, NULL, 0, 0));
    forked(weir_parameter_info(NULL, NULL, 0, NULL));
    forked(weir_parameters_info(NULL, NULL));
    forked(weir_arena_create(NULL, NULL, NULL));
    forked(weir_arena_destroy(NULL, WEIR_STREAM_HOST));
    forked(weir_arena_add(NULL, NULL, WEIR_STREAM_HOST, NULL));
    forked(weir_arena_tensor_info(NULL, 0, 0, NULL));
    forked(weir_arena_set_length(NULL, 0, 0, 0));
    forked(weir_arena_write(NULL, 0, 0, 0, NULL, 0, WEIR_STREAM_HOST));
    forked(weir_arena_read(NULL, 0, 0, 0, NULL, 0, WEIR_STREAM_HOST));
    forked(weir_arena_begin(NULL, 0, WEIR_STREAM_HOST));
    forked(weir_arena_end(NULL));
    forked(weir_arena_info(NULL, NULL));
}

static void in_child(void)
{
    weir_runtime *r;
    weir_client *c;
    weir_stream s;
    weir_trace *t;
    weir_model *m;
    void *p;
    size_t count;
    weir_block b = {block, 1};
    weir_request request = {.struct_size = sizeof request, .bytes = 1};
    weir_client_options co = {.struct_size = sizeof co, .name = "x"};
    weir_block_details details = WEIR_INIT(weir_block_details);
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_client_stats cs = WEIR_INIT(weir_client_stats);
    weir_option option = WEIR_INIT(weir_option);
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    weir_runtime_details rd = WEIR_INIT(weir_runtime_details);
    weir_trace_details td = WEIR_INIT(weir_trace_details);
    weir_event event = WEIR_INIT(weir_event);
    const weir_engine *engine;
    alarm(20); /* a call that waits ends the child */
    forked(weir_runtime_get("host", NULL, &r));
    forked(weir_runtime_get("host", NULL, &r));
    forked(weir_runtime_create("host", NULL, &r));
    forked(weir_runtime_destroy(own));
    forked(weir_runtime_set_budget(runtime, MIB));
    forked(weir_runtime_trim(runtime, NULL, NULL));
    forked(weir_runtime_drain(runtime, NULL));
    forked(weir_runtime_info(runtime, &rd));
    forked(weir_client_create(runtime, &co, &c));
    forked(weir_client_destroy(client));
    forked(weir_client_set_limits(client, 0, 0));
    forked(weir_client_note_outside(client, 1, "x"));
    forked(weir_client_info(client, &cs));
    forked(weir_stream_acquire(runtime, &s));
    forked(weir_stream_release(stream));
    forked(weir_stream_synchronize(stream));
    forked(weir_stream_synchronize(WEIR_STREAM_HOST));
    expect(weir_stream_native(stream) == NULL);
    forked(weir_stream_register(runtime, &s, &s));
    forked(weir_stream_unregister(stream));
    forked(weir_stream_default(runtime, WEIR_DEFAULT_STREAM_LEGACY, &s));
    forked(weir_capture_begin(stream, NULL));
    forked(weir_capture_end(stream, NULL));
    forked(weir_runtime_enter(runtime));
    weir_runtime_leave(runtime);
    forked(weir_copy(runtime, block, block, 1, stream));
    forked(weir_fill(runtime, block, 0, 1, stream));
    forked(weir_call(runtime, nothing, NULL, WEIR_STREAM_HOST));
    forked(weir_alloc(client, 1, stream, WEIR_CLASS_KV, &p));
    forked(weir_alloc(client, 0, stream, WEIR_CLASS_KV, &p));
    forked(weir_alloc_with(client, &request, &b));
    forked(weir_free(client, block, stream));
    forked(weir_free(client, NULL, stream));
    forked(weir_free_block(client, b, stream));
    forked(weir_use_record(runtime, (weir_block){.pointer = block}, stream));
    forked(weir_use_record(runtime, b, stream));
    forked(weir_resize(client, block, 1, stream));
    forked(weir_block_info(block, &details));
    forked(weir_snapshot(runtime, &stats, NULL, 0, NULL));
    forked(weir_stats_reset(runtime, WEIR_RESET_PEAKS));
    forked(weir_trace_create(own, NULL, &t));
    forked(weir_trace_read(trace, &event, 1, &count));
    forked(weir_trace_info(trace, &td));
    weir_trace_destroy(trace);
    weir_runtime *noted[] = {runtime, own}; /* traced, and not */
    for (int i = 0; i < 2; i++) {
        forked(note_record(noted[i], 1, stream));
        forked(note_wait(noted[i], 1, stream));
        forked(note_use(noted[i], block, 1, stream, WEIR_ACCESS_READ));
    }
    forked(weir_refusal_last(&refusal));
    forked(weir_log_set(listen, NULL, WEIR_LOG_DEBUG));
    weir_log(WEIR_LOG_ERROR, "nobody hears this");
    forked(weir_option_info(NULL, 0, &option));
    forked(weir_option_info("wait", 0, &option));
    forked(weir_option_set("wait", "1s"));
    forked(weir_engine_get("x", &engine));
    forked(weir_engine_register(NULL));
    expect(weir_engine_name_at(0) == NULL);
    forked(weir_model_create("/x", NULL, &m));
    forked(weir_model_create_chosen(NULL, NULL, &m));
    forked(weir_model_record(NULL, NULL));
    forked(weir_model_destroy(NULL));
    forked(weir_model_infer(NULL, NULL, NULL));
    weir_model_release_outputs(NULL, NULL);
    forked(weir_model_cancel(NULL, 0));
    forked(weir_model_warm_up(NULL));
    forked(weir_model_health(NULL));
    forked(weir_model_metrics(NULL, NULL));
    forked(weir_model_info(NULL, NULL));
    calls_of_nothing();
    /* What needs neither a device nor a lock still works. */
    char text[24];
    expect(strcmp(weir_size_format(1024, text, sizeof text), "1 KiB") == 0);
    expect(weir_fail(WEIR_ERR_BUSY, "x") == WEIR_ERR_BUSY && strcmp(weir_detail(), "x") == 0);
    expect(strcmp(weir_name_of(WEIR_NAMES_STATUS, WEIR_ERR_FORKED), "WEIR_ERR_FORKED") == 0);
    _exit(0);
}

static void whatever(weir_status status)
{
    (void)status;
}

/* Holds now this lock, now that. */
static void *be_busy(void *user)
{
    uint64_t random = (uintptr_t)user;
    while (!atomic_load(&stop)) {
        void *p;
        weir_stream s;
        weir_option option = WEIR_INIT(weir_option);
        weir_block_details details = WEIR_INIT(weir_block_details);
        if (weir_alloc(client, 1 + next_random(&random) % MIB, stream, WEIR_CLASS_KV, &p) == WEIR_OK) {
            whatever(weir_block_info(p, &details));
            whatever(weir_free(client, p, stream));
        }
        whatever(weir_runtime_trim(runtime, NULL, NULL));
        whatever(weir_option_info("wait", 0, &option));
        whatever(weir_log_set(listen, NULL, WEIR_LOG_DEBUG));
        weir_log(WEIR_LOG_DEBUG, "text");
        if (weir_stream_acquire(runtime, &s) == WEIR_OK)
            whatever(weir_stream_release(s));
        (void)weir_engine_name_at(0);
    }
    return NULL;
}

static void every_call_in_a_child(void **state)
{
    (void)state;
    pthread_t threads[3];
    ok(weir_option_set("budget", "16MiB"));
    ok(weir_runtime_get("host", NULL, &runtime));
    own = make_runtime(MIB);
    client = open_client(runtime, "parent", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_trace_create(runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 16},
                         &trace));
    block = allocate(client, 1000, stream, WEIR_CLASS_KV);
    weir_trace_destroy(trace);
    ok(weir_trace_create(runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 1 << 20},
                         &trace));
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, be_busy, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (child == 0)
            in_child();
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            print_error("the child ended with %d\n", status);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    weir_trace_destroy(trace);
    ok(weir_free(client, block, stream)); /* the parent goes on */
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_in_a_child)};
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
