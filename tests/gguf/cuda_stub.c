/* cuda_stub.c: the store's real libggml-cuda.so over the stub of CUDA's libraries, its memory redirected to a client of
 * weir: a model is loaded, decodes and is freed. Kernels do nothing there, so that nothing is said about answers.
 * cuda_replay.c does the same with a stand-in for the module, where the store has none.
 *
 *   test-gguf-cuda-stub                 the tests; WEIR_LLAMA_CUDA names another folder than the store's
 *   test-gguf-cuda-stub pool            a model whose first run is refused its memory
 *   test-gguf-cuda-stub record [MODEL]  what cuda_replay.c replays (tests/data/gguf/cuda_calls.txt), on standard output */
#include "core/core.h"
#include "stub/cuda/control.h"

#include <sys/wait.h>

#include "cuda_llama.h"
#include "cuda_record.h"
#include "interpose/redirect_stats.h"
#include "writer.h"

enum { CONTEXT = 256, BATCH = 64, SKIPPED = 77, ENDED_BY_ASSERTION = 42 };

/* Heads of 64, for which the module has flash attention; matrices of f32, which it multiplies by cuBLAS. */
static const model_shape shape = {
    .layers = 2, .width = 256, .heads = 4, .heads_kv = 2, .wide = 512, .context = CONTEXT};
static char written[64];                 /* the model of the tests */
static const char *model_path = written; /* that which is loaded */
static cuda_llama lib;
static uint64_t (*counted)(const char *what);

typedef struct side {
    weir_runtime *host, *runtime;
    weir_client *client;
    wi_cuda_redirect *redirect;
    struct llama_model *model;
    struct llama_context *context;
} side;

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (getenv("WEIR_LOG") && level >= GGML_LOG_LEVEL_INFO)
        fputs(text, stderr);
}

static weir_client_stats account(const side *it)
{
    weir_client_stats s = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(it->client, &s));
    return s;
}

static wi_cuda_redirect_stats stats(const side *it)
{
    return redirect_stats(it->redirect);
}

static uint64_t pinned(const side *it)
{
    snapshot s = take_snapshot(it->host);
    uint64_t live = 0;
    for (size_t i = 0; i < s.count; i++)
        live += s.clients[i].live;
    return live;
}

/* Everything but the model. `most`: the client may have so many bytes of the device, or 0; `most_pinned`: all of them so
 * many of the host. The module asks once for what it has; that has to be asked through a redirect. */
static side prepare(uint64_t most, uint64_t most_pinned)
{
    side it = {.host = make_runtime_on("host", most_pinned)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 512 * MIB, .host = it.host};
    ok(weir_runtime_create("cuda:0", &options, &it.runtime));
    it.client = open_client(it.runtime, "model", 0, most);
    wi_cuda_redirect_options to = {
        .module = lib.path, .clients = &it.client, .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH};
    ok(wi_cuda_redirect_begin(&to, &it.redirect));
    const char *problem = lib.device ? NULL : cuda_llama_register(&lib);
    if (problem)
        fail_msg("%s", problem);
    return it;
}

static void load(side *it)
{
    ggml_backend_dev_t devices[] = {lib.device, NULL};
    struct llama_model_params params = lib.llama_model_default_params();
    params.devices = devices;
    params.n_gpu_layers = 99;
    params.load_mode = LLAMA_LOAD_MODE_NONE;
    cuda_llama_is_for(&lib, it->redirect, WEIR_CLASS_WEIGHTS);
    it->model = lib.llama_model_load_from_file(model_path, params);
    cuda_llama_is_for(&lib, NULL, WEIR_CLASS_OTHER);
}

static void open_context(side *it)
{
    struct llama_context_params params = lib.llama_context_default_params();
    params.n_ctx = CONTEXT;
    params.n_batch = params.n_ubatch = BATCH;
    params.n_threads = params.n_threads_batch = 1;
    cuda_llama_is_for(&lib, it->redirect, WEIR_CLASS_SCRATCH);
    it->context = lib.llama_init_from_model(it->model, params);
    cuda_llama_is_for(&lib, NULL, WEIR_CLASS_OTHER);
}

static void decode(side *it, int count)
{
    int32_t tokens[BATCH];
    for (int i = 0; i < count; i++)
        tokens[i] = 3 + i;
    cuda_llama_is_for(&lib, it->redirect, WEIR_CLASS_SCRATCH);
    assert_int_equal(lib.llama_decode(it->context, lib.llama_batch_get_one(tokens, count)), 0);
    lib.llama_synchronize(it->context);
    cuda_llama_is_for(&lib, NULL, WEIR_CLASS_OTHER);
}

static void unload(side *it)
{
    if (it->context)
        lib.llama_free(it->context);
    if (it->model)
        lib.llama_model_free(it->model);
    it->context = NULL;
    it->model = NULL;
}

/* Succeeds only when every byte came back. */
static void finish(side *it)
{
    uint64_t drained;
    unload(it);
    wi_cuda_redirect_stats s = stats(it);
    assert_int_equal(s.device_blocks + s.pinned_blocks + s.waiting + s.streams, 0);
    assert_int_equal(s.allocations, s.frees);
    assert_int_equal(s.passed_on, 0);
    assert_int_equal(account(it).live, 0);
    ok(wi_cuda_redirect_end(it->redirect));
    ok(weir_client_destroy(it->client));
    ok(weir_runtime_drain(it->runtime, &drained));
    check_empty(it->runtime);
    check_empty(it->host);
    ok(weir_runtime_destroy(it->runtime));
    ok(weir_runtime_destroy(it->host));
    assert_int_equal(counted("streams") + counted("allocations") + counted("pinned") + counted("captures broken"), 0);
}

/* Tests ------------------------------------------------------------------------------------------------------------ */

/* Of the device by class, and pinned: after each phase of a model's life. */
typedef struct held {
    uint64_t weights, kv, scratch, pinned;
} held;

static held look(const side *it)
{
    weir_client_stats s = account(it);
    wi_cuda_redirect_stats r = stats(it);
    held h = {s.live_class[WEIR_CLASS_WEIGHTS], s.live_class[WEIR_CLASS_KV], s.live_class[WEIR_CLASS_SCRATCH],
              pinned(it)};
    assert_int_equal(h.weights + h.kv + h.scratch, s.live);
    assert_true(r.device_bytes <= s.live && r.pinned_bytes <= h.pinned);
    assert_true((r.pinned_bytes > 0) == (h.pinned > 0));
    return h;
}

static uint64_t kv_bytes(void)
{
    return 2 * shape.layers * CONTEXT * (shape.width / shape.heads * shape.heads_kv) * sizeof(uint16_t);
}

static void all_memory_of_a_model_is_the_clients_by_class(void **state)
{
    (void)state;
    side it = prepare(0, 256 * MIB);
    load(&it);
    assert_non_null(it.model);
    held loaded = look(&it);
    assert_true(loaded.weights > 2 * MIB && loaded.kv == 0 && loaded.scratch == 0);
    assert_true(loaded.pinned > 0); /* the table of tokens stays on the host */

    open_context(&it);
    assert_non_null(it.context);
    held ready = look(&it);
    assert_int_equal(ready.weights, loaded.weights);
    assert_int_equal(ready.kv, kv_bytes());
    assert_true(ready.scratch > 0 && ready.pinned > loaded.pinned);

    decode(&it, BATCH);
    for (int i = 0; i < 4; i++)
        decode(&it, 1);
    held ran = look(&it);
    assert_int_equal(ran.weights, loaded.weights);
    assert_int_equal(ran.kv, ready.kv);
    assert_true(ran.scratch >= ready.scratch + 32 * MIB); /* cuBLAS's workspace and the pool */
    assert_non_null(lib.llama_get_logits_ith(it.context, -1));
    assert_int_equal(stats(&it).refused, 0);
    finish(&it);
}

static void the_model_is_told_what_the_client_may_have(void **state)
{
    (void)state;
    size_t available, total;
    side it = prepare(96 * MIB, 256 * MIB);
    lib.ggml_backend_dev_memory(lib.device, &available, &total);
    assert_int_equal(total, 96 * MIB);
    assert_int_equal(available, 96 * MIB);
    load(&it);
    assert_non_null(it.model);
    lib.ggml_backend_dev_memory(lib.device, &available, &total);
    assert_int_equal(total, 96 * MIB);
    assert_int_equal(available, 96 * MIB - account(&it).live);
    finish(&it);
}

/* A model gets the device's memory in this order; each of them refused in turn. */
static void a_refused_buffer_is_a_clean_failure(void **state)
{
    (void)state;
    side whole = prepare(0, 256 * MIB);
    load(&whole);
    open_context(&whole);
    held all = look(&whole);
    finish(&whole);
    const uint64_t most[] = {all.weights - 1, all.weights + all.kv - 1, all.weights + all.kv + all.scratch - 1};
    for (size_t i = 0; i < 3; i++) {
        side it = prepare(most[i], 256 * MIB);
        load(&it);
        assert_int_equal(it.model == NULL, i == 0);
        if (it.model) {
            assert_int_equal(look(&it).weights, all.weights);
            open_context(&it);
            assert_null(it.context);
            assert_int_equal(account(&it).live, all.weights);
        }
        assert_true(stats(&it).refused > 0);
        assert_non_null(strstr(stats(&it).refusal, "model"));
        finish(&it);
    }
    side again = prepare(all.weights + all.kv + all.scratch, 256 * MIB);
    load(&again);
    open_context(&again);
    assert_non_null(again.context);
    finish(&again);
}

/* ggml then takes memory that is not pinned, of which weir learns nothing. */
static void a_model_does_without_pinned_memory(void **state)
{
    (void)state;
    side it = prepare(0, 64 * KIB);
    load(&it);
    open_context(&it);
    assert_non_null(it.context);
    decode(&it, BATCH);
    assert_true(stats(&it).refused > 0);
    assert_true(pinned(&it) <= 64 * KIB);
    finish(&it);
}

static void what_is_captured_is_run_and_keeps_nothing(void **state)
{
    (void)state;
    uint64_t captures = counted("cuStreamBeginCapture"), launches = counted("cuGraphLaunch");
    side it = prepare(0, 256 * MIB);
    load(&it);
    open_context(&it);
    decode(&it, BATCH);
    for (int i = 0; i < 6; i++)
        decode(&it, 1);
    assert_true(counted("cuStreamBeginCapture") > captures);
    assert_true(counted("cuGraphLaunch") > launches);
    assert_int_equal(stats(&it).captured, 0);
    assert_int_equal(stats(&it).waiting, 0);
    finish(&it);
}

static void two_models_share_the_module(void **state)
{
    (void)state;
    side it = prepare(0, 256 * MIB);
    side other = it;
    load(&it);
    held one = look(&it);
    load(&other);
    assert_int_equal(look(&it).weights, 2 * one.weights);
    open_context(&it);
    open_context(&other);
    decode(&it, BATCH);
    decode(&other, BATCH);
    unload(&other);
    assert_int_equal(look(&it).weights, one.weights);
    assert_int_equal(look(&it).kv, kv_bytes());
    finish(&it);
}

static int made; /* by the module, past the redirect */

static int count_made(void)
{
    made++;
    return 2;
}

static void what_the_redirect_cannot_see_is_not_used(void **state)
{
    (void)state;
    const wi_replacement unseen = {"cuMemCreate", (void (*)(void))count_made, true};
    wi_interpose *slots;
    side it = prepare(0, 256 * MIB);
    assert_string_equal(stats(&it).unseen, unseen.name);
    ok(wi_interpose_open(lib.path, &unseen, 1, &slots));
    ok(wi_interpose_apply(slots));
    load(&it);
    open_context(&it);
    decode(&it, BATCH);
    decode(&it, 1);
    assert_int_equal(made, 0);
    finish(&it);
    ok(wi_interpose_undo(slots));
    ok(wi_interpose_close(slots));
}

/* The pool has no way to say no: the assertion is llama.cpp's. In a process of its own. */
static void a_refused_pool_is_an_assertion(void **state)
{
    (void)state;
    char command[600], self[512] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "%s pool", self);
    int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), ENDED_BY_ASSERTION);
}

static void end_by_assertion(const char *message)
{
    _exit(strstr(message, "CUDA error") ? ENDED_BY_ASSERTION : 1);
}

static int refuse_the_pool(void)
{
    side it = prepare(0, 256 * MIB);
    load(&it);
    open_context(&it);
    lib.ggml_set_abort_callback(end_by_assertion);
    ok(weir_client_set_limits(it.client, 0, account(&it).live));
    decode(&it, BATCH);
    return 1;
}

/* Without a redirect, as the program would be without weir. */
static int record(void)
{
    side it = {0};
    const char *problem = record_begin(lib.path);
    if (!problem)
        problem = cuda_llama_register(&lib);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    record_phase("weights");
    load(&it);
    record_phase("context");
    open_context(&it);
    record_phase("prompt");
    decode(&it, BATCH);
    record_phase("tokens");
    for (int i = 0; i < 4; i++)
        decode(&it, 1);
    record_phase("free");
    unload(&it);
    record_end();
    return 0;
}

static const char *find_all(void)
{
    static char folder[600];
    const char *named = getenv("WEIR_LLAMA_CUDA");
    snprintf(folder, sizeof folder, "%s/lib", named ? named : WEIR_TEST_STORE "/engines/llama-cuda/current");
    const char *problem = cuda_llama_open(&lib, WEIR_TEST_STORE "/engines/llama/current/lib");
    if (problem)
        return problem;
    char file[700];
    snprintf(file, sizeof file, "%s/libggml-cuda.so", folder);
    if (access(file, R_OK) != 0)
        return "scripts/engines --cuda --arch 90 llama-cuda puts llama.cpp's CUDA module into the store";
    problem = cuda_llama_open_module(&lib, folder);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        exit(1);
    }
    void *stub = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&counted = stub ? dlsym(stub, "stub_count") : NULL;
    return counted ? NULL : "this is for the stub of CUDA alone";
}

int main(int argc, char **argv)
{
    const char *missing = find_all();
    if (missing) {
        const char *required = getenv("WEIR_REQUIRE_CUDA");
        printf("skipped: %s\n", missing);
        return required && strcmp(required, "1") == 0 ? EXIT_FAILURE : SKIPPED;
    }
    lib.llama_log_set(quiet, NULL);
    snprintf(written, sizeof written, "/tmp/weir-cuda-stub-%d.gguf", (int)getpid());
    write_llama(written, &shape);
    model_path = argc > 2 ? argv[2] : written;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_memory_of_a_model_is_the_clients_by_class),
        cmocka_unit_test(the_model_is_told_what_the_client_may_have),
        cmocka_unit_test(a_refused_buffer_is_a_clean_failure),
        cmocka_unit_test(a_model_does_without_pinned_memory),
        cmocka_unit_test(what_is_captured_is_run_and_keeps_nothing),
        cmocka_unit_test(two_models_share_the_module),
        cmocka_unit_test(what_the_redirect_cannot_see_is_not_used),
        cmocka_unit_test(a_refused_pool_is_an_assertion),
    };
    int failed = argc > 1 && strcmp(argv[1], "pool") == 0     ? refuse_the_pool()
                 : argc > 1 && strcmp(argv[1], "record") == 0 ? record()
                                                              : cmocka_run_group_tests(tests, NULL, NULL);
    unlink(written);
    return failed;
}
