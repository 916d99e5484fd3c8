/* gpu_failing.c: the gguf engine on CUDA where memory is refused, at every place where it asks: a load fails and leaves
 * nothing, a run fails or goes on, the process lives, and models beside it do not notice. Over the stub of CUDA's
 * libraries (stub/cuda/control.h), whose device is full when the test says so. */
#include "rig.h"
#include "stub/cuda/control.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2, SKIPPED = 77 };

static char llama_path[64];
static const variant plain_one = {"-1", "auto", "f16", "f16"};
static void (*plant)(const char *function, int nth, int code);
static void (*take_device)(int device, uint64_t bytes);
static uint64_t (*counted)(const char *what);

/* ---- what the log says ------------------------------------------------------------------------------------------- */

static atomic_int overruns, refusals;
static char last_overrun[512];

static void on_log(weir_log_level level, const char *text, void *user)
{
    (void)user;
    if (getenv("FAILING_VERBOSE"))
        fprintf(stderr, "  log %d: %s\n", level, text);
    if (strstr(text, "past the budget")) {
        overruns++;
        snprintf(last_overrun, sizeof last_overrun, "%s", text);
    }
    refusals += strstr(text, " asked ") != NULL;
}

/* ---- a model beside another --------------------------------------------------------------------------------------- */

static rig beside(const rig *its, const char *name)
{
    rig other = *its;
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = name;
    other.model = NULL;
    OK(weir_client_create(its->it.runtime, &named, &other.it.client));
    return other;
}

static weir_status load_it(rig *its, const variant *v, const char *sequences)
{
    weir_setting settings[SETTINGS];
    size_t count = settings_of(v, "512", settings);
    settings[count++] = (weir_setting){"sequences", sequences};
    return bench_load(&its->it, settings, count, &its->model);
}

static weir_status ask_short(const rig *its, int prompt, int made)
{
    int32_t tokens[CONTEXT];
    char words[16];
    snprintf(words, sizeof words, "%d", made);
    const weir_setting settings[] = {{"tokens", words}, {"temperature", "0"}, {"ignore_eos", "1"}};
    fill_prompt(tokens, prompt, 1);
    weir_tensor input = token_input(tokens, 0, prompt);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = its->it.engine->infer(its->model, &inference, &outputs);
    if (status == WEIR_OK)
        its->it.engine->release_outputs(its->model, &outputs);
    return status;
}

/* Unloads, and every byte of it is back at once. */
static void unload_it(rig *its)
{
    its->it.engine->unload(its->model);
    its->model = NULL;
    assert_int_equal(stats_of(&its->it).live, 0);
}

typedef struct talker {
    const rig *its;
    atomic_bool stop;
    int asked, failed;
} talker;

static void *talk(void *user)
{
    talker *it = user;
    while (!atomic_load(&it->stop)) {
        it->asked++;
        it->failed += ask_short(it->its, 8 + it->asked % 3, 6) != WEIR_OK;
    }
    return NULL;
}

/* Frees wait while the other model's stream is captured; an unload is over when they are done. */
static void test_a_model_unloaded_while_another_decodes_leaves_nothing(void **state)
{
    enum { ROUNDS = 12 };
    (void)state;
    pthread_t thread;
    rig its = rig_open(llama_path, 1ull << 30), other = beside(&its, "other");
    talker it = {.its = &its};
    OK(load_it(&its, &plain_one, "1"));
    assert_int_equal(pthread_create(&thread, NULL, talk, &it), 0);
    for (int i = 0; i < ROUNDS; i++) {
        OK(load_it(&other, &plain_one, "1"));
        OK(ask_short(&other, 8, 4));
        unload_it(&other);
    }
    atomic_store(&it.stop, true);
    pthread_join(thread, NULL);
    assert_true(it.asked > 0);
    assert_int_equal(it.failed, 0);
    OK(weir_client_destroy(other.it.client));
    unload_it(&its);
    rig_close(&its);
}

/* ---- the driver refuses ------------------------------------------------------------------------------------------- */

/* Ends the test's runtimes; nothing is left of them on the device. */
static void close_it(rig *its)
{
    rig_close(its);
    assert_int_equal(counted("streams") + counted("allocations") + counted("pinned") + counted("handles"), 0);
    assert_int_equal(counted("captures broken"), 0);
}

static void test_each_request_of_a_load_is_refused_once(void **state)
{
    static const char *const functions[] = {"cuMemCreate", "cuMemAlloc", "cuMemHostAlloc"};
    enum { MOST = 20 };
    (void)state;
    for (int f = 0; f < 3; f++)
        for (int nth = 1; nth <= MOST; nth++) {
            rig its = rig_open(llama_path, 1ull << 30);
            uint64_t before = counted(functions[f]);
            plant(functions[f], nth, OUT_OF_MEMORY);
            weir_status status = load_it(&its, &plain_one, "1");
            if (status == WEIR_OK) {
                OK(ask_short(&its, 8, 4));
                its.it.engine->unload(its.model);
            } else {
                assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
            }
            bool came = counted(functions[f]) - before >= (uint64_t)nth;
            print_message("%s %d: %s%s\n", functions[f], nth, weir_name_of(WEIR_NAMES_STATUS, status),
                          came ? "" : " (not asked)");
            plant(functions[f], 0, 0);
            close_it(&its);
            if (!came)
                break;
        }
}

int main(int count, char **words)
{
    void *stub = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&plant = stub ? dlsym(stub, "stub_fail") : NULL;
    *(void **)&take_device = stub ? dlsym(stub, "stub_take") : NULL;
    *(void **)&counted = stub ? dlsym(stub, "stub_count") : NULL;
    if (!plant || !take_device || !counted) {
        printf("skipped: this is for the stub of CUDA alone\n");
        return SKIPPED;
    }
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-failing-%d.gguf", (int)getpid());
    write_llama(llama_path, &gpu_shape);
    if (weir_log_set(on_log, NULL, WEIR_LOG_DEBUG) != WEIR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_unloaded_while_another_decodes_leaves_nothing),
        cmocka_unit_test(test_each_request_of_a_load_is_refused_once),
    };
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(llama_path);
    return failed;
}
