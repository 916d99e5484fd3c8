/* others.c: who else uses the same ONNX Runtime in this process notices nothing: the engine onnx, and a program that has
 * sessions of its own, from other threads and from within a run's reader. */
#include "answer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "onnx/bridge/api.h"
#include "test_places.h"

enum { PROMPT = 20, ROWS = 3, ORT_ERROR_ONLY = 3, F32 = 1 };

static const weir_setting greedy[] = {GREEDY("6")};
static int32_t prompt[PROMPT];

/* ---- ONNX Runtime by itself -------------------------------------------------------------------------------------- */

static const ort_api *direct;
static ort_env *direct_env;

static void must(ort_status *status)
{
    if (status)
        fail_msg("ONNX Runtime: %s", direct->GetErrorMessage(status));
}

static const ort_api *open_directly(const weir_engine *engine)
{
    char path[600];
    const ort_base *(*get_base)(void) = NULL;
    runtime_path(engine, path, sizeof path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    *(void **)&get_base = dlsym(handle, "OrtGetApiBase");
    assert_non_null(get_base);
    return get_base()->GetApi(ORT_API_WANTED);
}

typedef struct own_session {
    ort_session *session;
    ort_memory_info *info;
} own_session;

static own_session make_session(void)
{
    own_session made;
    ort_session_options *options;
    must(direct->CreateSessionOptions(&options));
    must(direct->SetIntraOpNumThreads(options, 1));
    must(direct->CreateSession(direct_env, data_path("onnx/mlp.onnx"), options, &made.session));
    must(direct->CreateCpuMemoryInfo(0, 0, &made.info));
    direct->ReleaseSessionOptions(options);
    return made;
}

/* y = x·w + b, in memory of ONNX Runtime's. */
static void run_session(const own_session *it, float *y)
{
    static const int64_t shape[] = {ROWS, 16};
    static const char *const in[] = {"x"}, *const out[] = {"y"};
    float x[ROWS * 16];
    ort_value *input, *output = NULL;
    void *data;
    for (int i = 0; i < ROWS * 16; i++)
        x[i] = (float)(i % 7) - 3;
    must(direct->CreateTensorWithDataAsOrtValue(it->info, x, sizeof x, shape, 2, F32, &input));
    must(direct->Run(it->session, NULL, in, (const ort_value *const *)&input, 1, out, 1, &output));
    must(direct->GetTensorMutableData(output, &data));
    memcpy(y, data, ROWS * 17 * sizeof *y);
    direct->ReleaseValue(output);
    direct->ReleaseValue(input);
}

static void drop_session(own_session *it)
{
    direct->ReleaseSession(it->session);
    direct->ReleaseMemoryInfo(it->info);
}

/* Its own allocators serve it, whichever thread asks. */
static void use_the_default_allocator(void)
{
    static const int64_t shape[] = {1, 2, 3, 4};
    ort_allocator *allocator;
    ort_value *value;
    must(direct->GetAllocatorWithDefaultOptions(&allocator));
    void *bytes = allocator->Alloc(allocator, 1 << 20);
    assert_non_null(bytes);
    allocator->Free(allocator, bytes);
    must(direct->CreateTensorAsOrtValue(allocator, shape, 4, F32, &value));
    direct->ReleaseValue(value);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_the_table_of_others_is_as_it_was(void **state)
{
    (void)state;
    enum { SLOTS = offsetof(ort_api, SyncStream_GetHandle) / sizeof(void *) };
    void *before[SLOTS];
    ort_allocator *allocator, *later;
    setenv("ORT_LIB_PATH", "/nowhere/at/all", 1); /* where a program has its own */
    const weir_engine *engine = the_engine();
    direct = open_directly(engine);
    memcpy(before, direct, sizeof before);
    must(direct->GetAllocatorWithDefaultOptions(&allocator));
    bench it = bench_open(the_model(SHARED));
    assert_ptr_equal(open_directly(engine), direct);
    assert_memory_equal(before, direct, sizeof before);
    must(direct->GetAllocatorWithDefaultOptions(&later));
    assert_ptr_equal(later, allocator);
    assert_string_equal(getenv("ORT_LIB_PATH"), "/nowhere/at/all");
    bench_close(&it);
}

typedef struct stranger {
    own_session session;
    float expected[ROWS * 17];
    int wrong;
} stranger;

/* To the bit. */
static bool same_bits(const void *one, const void *other, size_t bytes)
{
    return memcmp(one, other, bytes) == 0;
}

static void *use_it(void *given)
{
    stranger *its = given;
    float y[ROWS * 17];
    for (int i = 0; i < 50; i++) {
        run_session(&its->session, y);
        its->wrong += !same_bits(y, its->expected, sizeof y);
        own_session another = make_session();
        run_session(&another, y);
        its->wrong += !same_bits(y, its->expected, sizeof y);
        drop_session(&another);
        use_the_default_allocator();
    }
    return NULL;
}

/* Made before the engine's, used while it runs, and gone after it. */
static void test_sessions_of_a_programs_own(void **state)
{
    (void)state;
    static stranger its;
    pthread_t thread;
    weir_outputs outputs;
    direct = open_directly(the_engine());
    must(direct->CreateEnv(ORT_ERROR_ONLY, "own", &direct_env));
    its = (stranger){.session = make_session()};
    run_session(&its.session, its.expected);
    bench it = bench_open(the_model(SHARED));
    weir_tensor input = token_input(prompt, PROMPT);
    OK(infer(&it, &input, greedy, 2, &outputs));
    release(&it, &outputs);
    OK(infer(&it, &input, greedy, 2, &outputs));
    release(&it, &outputs);
    uint64_t before = stats_of(&it).allocations, weights = stats_of(&it).live;
    OK(infer(&it, &input, greedy, 2, &outputs));
    release(&it, &outputs);
    uint64_t of_a_run = stats_of(&it).allocations - before;
    before += of_a_run;
    use_it(&its);
    assert_int_equal(stats_of(&it).allocations, before);
    assert_int_equal(pthread_create(&thread, NULL, use_it, &its), 0);
    for (int i = 0; i < 20; i++) {
        OK(infer(&it, &input, greedy, 2, &outputs));
        release(&it, &outputs);
    }
    pthread_join(thread, NULL);
    assert_int_equal(its.wrong, 0);
    assert_int_equal(stats_of(&it).allocations, before + 20 * of_a_run);
    assert_int_equal(stats_of(&it).live, weights);
    bench_close(&it);
    float y[ROWS * 17];
    run_session(&its.session, y);
    assert_memory_equal(y, its.expected, sizeof y);
    drop_session(&its.session);
    direct->ReleaseEnv(direct_env);
}

/* The engine onnx has an account of its own, that is what it is without this engine. */
typedef struct neighbour {
    const weir_engine *engine;
    weir_runtime *runtime;
    weir_client *client;
    weir_engine_model *model;
    float expected[ROWS * 17];
    int wrong;
} neighbour;

static weir_status ask_neighbour(const neighbour *it, float *y)
{
    float x[ROWS * 16];
    for (int i = 0; i < ROWS * 16; i++)
        x[i] = (float)(i % 7) - 3;
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "x",
                         .type = WEIR_TYPE_F32,
                         .rank = 2,
                         .shape = {ROWS, 16},
                         .data = x,
                         .bytes = sizeof x};
    weir_inference inference = inference_of(&input, NULL, 0);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = it->engine->infer(it->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    memcpy(y, find_output(&outputs, "y")->data, ROWS * 17 * sizeof *y);
    it->engine->release_outputs(it->model, &outputs);
    return WEIR_OK;
}

static void *use_neighbour(void *given)
{
    neighbour *it = given;
    float y[ROWS * 17];
    for (int i = 0; i < 200; i++)
        it->wrong += ask_neighbour(it, y) != WEIR_OK || !same_bits(y, it->expected, sizeof y);
    return NULL;
}

static neighbour open_neighbour(void)
{
    neighbour it = {.wrong = 0};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    client.name = "neighbour";
    options.budget = 1 << 20;
    if (weir_engine_get("onnx", &it.engine) != WEIR_OK)
        missing(weir_detail());
    OK(weir_runtime_create("host", &options, &it.runtime));
    OK(weir_client_create(it.runtime, &client, &it.client));
    weir_engine_place place = {it.runtime, it.client};
    load.path = data_path("onnx/mlp.onnx");
    load.places = &place;
    load.place_count = 1;
    OK(it.engine->load(&load, &it.model));
    return it;
}

static void close_neighbour(neighbour *it)
{
    it->engine->unload(it->model);
    assert_int_equal(stats_of_client(it->client).live, 0);
    OK(weir_client_destroy(it->client));
    OK(weir_runtime_destroy(it->runtime));
}

static void test_the_engine_onnx(void **state)
{
    (void)state;
    pthread_t thread;
    weir_outputs outputs;
    the_engine();
    neighbour alone = open_neighbour(), beside;
    OK(ask_neighbour(&alone, alone.expected));
    OK(ask_neighbour(&alone, alone.expected));
    weir_client_stats expected = stats_of_client(alone.client);
    bench it = bench_open(the_model(CONCAT));
    uint64_t weights = stats_of(&it).live;
    weir_tensor input = token_input(prompt, PROMPT);
    beside = open_neighbour();
    OK(ask_neighbour(&beside, beside.expected));
    OK(ask_neighbour(&beside, beside.expected));
    assert_memory_equal(beside.expected, alone.expected, sizeof alone.expected);
    weir_client_stats got = stats_of_client(beside.client);
    assert_int_equal(got.live, expected.live);
    assert_int_equal(got.peak, expected.peak);
    assert_int_equal(got.allocations, expected.allocations);
    assert_memory_equal(got.live_class, expected.live_class, sizeof got.live_class);
    assert_int_equal(stats_of(&it).live, weights);
    assert_int_equal(pthread_create(&thread, NULL, use_neighbour, &beside), 0);
    for (int i = 0; i < 20; i++) {
        OK(infer(&it, &input, greedy, 2, &outputs));
        release(&it, &outputs);
    }
    pthread_join(thread, NULL);
    assert_int_equal(beside.wrong, 0);
    assert_int_equal(stats_of_client(beside.client).live, expected.live);
    assert_int_equal(stats_of(&it).live, weights);
    close_neighbour(&beside);
    bench_close(&it);
    OK(ask_neighbour(&alone, alone.expected));
    close_neighbour(&alone);
}

/* ---- from within a run ------------------------------------------------------------------------------------------- */

typedef struct inner {
    const bench *outer, *other;
    neighbour *onnx;
    own_session *session;
    uint64_t taken; /* by the outer model, while others were at work in its reader */
    size_t calls;
} inner;

static bool use_all(const weir_piece *piece, void *user)
{
    inner *it = user;
    float y[ROWS * 17];
    weir_outputs outputs;
    weir_tensor input = token_input(prompt, PROMPT);
    uint64_t before = stats_of(it->outer).allocations, others = stats_of(it->other).allocations;
    (void)piece;
    run_session(it->session, y);
    own_session another = make_session();
    drop_session(&another);
    use_the_default_allocator();
    OK(ask_neighbour(it->onnx, y));
    OK(infer(it->other, &input, greedy, 2, &outputs));
    release(it->other, &outputs);
    it->taken += stats_of(it->outer).allocations - before;
    assert_true(stats_of(it->other).allocations > others);
    it->calls++;
    return true;
}

static void test_what_a_reader_does_is_its_own(void **state)
{
    (void)state;
    direct = open_directly(the_engine());
    bench outer = bench_open(the_model(SHARED)), other = bench_open(the_model(CONCAT));
    neighbour onnx = open_neighbour();
    must(direct->CreateEnv(ORT_ERROR_ONLY, "own", &direct_env));
    own_session session = make_session();
    uint64_t weights = stats_of(&outer).live, weights_of_other = stats_of(&other).live;
    inner it = {&outer, &other, &onnx, &session, 0, 0};
    weir_tensor input = token_input(prompt, PROMPT);
    weir_inference inference = inference_of(&input, greedy, 2);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(outer.engine->infer_stream(outer.model, &inference, use_all, &it, &outputs));
    release(&outer, &outputs);
    assert_int_equal(it.calls, 6);
    assert_int_equal(it.taken, 0);
    assert_int_equal(stats_of(&outer).live, weights);
    assert_int_equal(stats_of(&other).live, weights_of_other);
    drop_session(&session);
    direct->ReleaseEnv(direct_env);
    close_neighbour(&onnx);
    bench_close(&other);
    bench_close(&outer);
}

int main(void)
{
    fill_prompt(prompt, PROMPT, 6);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table_of_others_is_as_it_was),
        cmocka_unit_test(test_sessions_of_a_programs_own),
        cmocka_unit_test(test_the_engine_onnx),
        cmocka_unit_test(test_what_a_reader_does_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
