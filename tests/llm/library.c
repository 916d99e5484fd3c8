/* library.c: finding and opening ONNX Runtime GenAI: what is missing is said, and nothing of the user's is touched. Each in a
 * process of its own, as libraries stay open. */
#include "answer.h"

#include "test_places.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/wait.h>

typedef int child(void);

enum { GOOD, BAD, NO_ENGINE = 77 };

/* The environment is read with the first call of weir's, so a child changes it before that. What a child says is shown if it is not GOOD. */
static void in_a_child(child *what, const char *name)
{
    int how = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(what());
    assert_true(pid > 0 && waitpid(pid, &how, 0) == pid);
    if (WIFEXITED(how) && WEXITSTATUS(how) == NO_ENGINE)
        missing("the engine llm");
    if (how != GOOD)
        print_error("%s: %s\n", name, "failed");
    assert_int_equal(how, GOOD);
}

static int says(const char *words)
{
    if (strstr(weir_detail(), words))
        return GOOD;
    fprintf(stderr, "'%s' is not in: %s\n", words, weir_detail());
    return BAD;
}

static const weir_engine *engine_here(void)
{
    const weir_engine *engine = NULL;
    return weir_engine_get("llm", &engine) == WEIR_OK ? engine : NULL;
}

static const char *genai_of(const weir_engine *engine, weir_engine_probe *probe)
{
    *probe = WEIR_INIT(weir_engine_probe);
    return engine->probe(probe) == WEIR_OK && probe->available ? probe->library : NULL;
}

/* Loads it, asks it, and unloads it. */
static weir_status use(const weir_engine *engine)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    bench it = {.engine = engine, .load = WEIR_INIT(weir_engine_load)};
    const weir_setting few[] = {GREEDY("3")};
    weir_tensor input = text_input("the page");
    weir_outputs outputs;
    client.name = "model";
    options.budget = 1u << 28;
    it.load.path = the_model(SHARED);
    weir_status status = weir_runtime_create("host", &options, &it.runtime);
    if (status == WEIR_OK)
        status = weir_client_create(it.runtime, &client, &it.client);
    if (status == WEIR_OK)
        status = bench_load(&it, one_thread, 1);
    if (status == WEIR_OK)
        status = infer(&it, &input, few, 2, &outputs);
    if (status != WEIR_OK)
        return status;
    release(&it, &outputs);
    bench_unload(&it);
    status = weir_client_destroy(it.client);
    return status == WEIR_OK ? weir_runtime_destroy(it.runtime) : status;
}

/* ---- what is missing --------------------------------------------------------------------------------------------- */

static int nothing_in_the_store(void)
{
    setenv("WEIR_HOME", "/nonexistent", 1);
    unsetenv("WEIR_ONNXRUNTIME_GENAI");
    const weir_engine *engine = engine_here();
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    weir_engine_provider cpu = WEIR_INIT(weir_engine_provider);
    if (!engine)
        return NO_ENGINE;
    if (engine->probe(&probe) != WEIR_OK || probe.available ||
        !strstr(probe.missing, "run scripts/engines onnxruntime-genai"))
        return BAD;
    if (engine->provider(1, &cpu) != WEIR_OK || cpu.state != WEIR_PROVIDER_NO_LIBRARY)
        return BAD;
    return use(engine) == WEIR_ERR_NOT_FOUND ? says("WEIR_ONNXRUNTIME_GENAI") : BAD;
}

static int a_name_that_is_none(void)
{
    setenv("WEIR_ONNXRUNTIME_GENAI", "/nonexistent/libonnxruntime-genai.so", 1);
    const weir_engine *engine = engine_here();
    if (!engine)
        return NO_ENGINE;
    return use(engine) == WEIR_ERR_NOT_FOUND ? says("names /nonexistent/libonnxruntime-genai.so, which cannot be read")
                                             : BAD;
}

static int no_onnx_runtime(void)
{
    setenv("WEIR_ONNXRUNTIME", "/nonexistent/libonnxruntime.so", 1);
    const weir_engine *engine = engine_here();
    if (!engine)
        return NO_ENGINE;
    weir_status status = use(engine);
    return status == WEIR_ERR_NOT_FOUND ? says("ONNX Runtime cannot be opened") : says("NOT_FOUND");
}

/* This one has none of GenAI's functions. */
static int another_library(void)
{
    setenv("WEIR_ONNXRUNTIME_GENAI", built_path("tests/libllm-no-genai.so"), 1);
    const weir_engine *engine = engine_here();
    if (!engine)
        return NO_ENGINE;
    return use(engine) == WEIR_ERR_UNSUPPORTED ? says("lacks the function OgaResultGetError") : says("UNSUPPORTED");
}

/* By the program, before weir is asked for anything. */
static int opened_by_the_program(void)
{
    static const char *const builds[] = {"-cuda", ""};
    void *handle = NULL;
    for (int i = 0; i < 2 && !handle; i++) {
        char genai[600], runtime[600];
        snprintf(genai, sizeof genai, "%s/engines/onnxruntime-genai%s/current/libonnxruntime-genai.so", WEIR_TEST_STORE,
                 builds[i]);
        snprintf(runtime, sizeof runtime, "%s/engines/onnxruntime%s/current/libonnxruntime.so", WEIR_TEST_STORE,
                 builds[i]);
        setenv("ORT_LIB_PATH", runtime, 1);
        setenv("WEIR_ONNXRUNTIME_GENAI", genai, 1);
        handle = access(runtime, R_OK) == 0 ? dlopen(genai, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    const weir_engine *engine = engine_here();
    if (!handle || !engine)
        return NO_ENGINE;
    return use(engine) == WEIR_ERR_CONFLICT ? says("is open in this process already") : says("CONFLICT");
}

static void test_what_is_missing_is_said(void **state)
{
    (void)state;
    in_a_child(nothing_in_the_store, "nothing_in_the_store");
    in_a_child(a_name_that_is_none, "a_name_that_is_none");
    in_a_child(no_onnx_runtime, "no_onnx_runtime");
    in_a_child(another_library, "another_library");
    in_a_child(opened_by_the_program, "opened_by_the_program");
}

/* ---- what is left alone ------------------------------------------------------------------------------------------ */

static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* GenAI and ONNX Runtime would make a data base there of what they report. */
static int nothing_is_written(void)
{
    char home[] = "/tmp/weir-home-XXXXXX";
    weir_engine_probe probe;
    if (!mkdtemp(home))
        return BAD;
    setenv("HOME", home, 1);
    setenv("XDG_CACHE_HOME", home, 1);
    setenv("WEIR_HOME", WEIR_TEST_STORE, 1);
    unsetenv("ORT_DISABLE_TELEMETRY");
    unsetenv("CI");
    const weir_engine *engine = engine_here();
    if (!engine || !genai_of(engine, &probe)) {
        rmdir(home);
        return NO_ENGINE;
    }
    if (use(engine) != WEIR_OK)
        return says("nothing");
    int count = entries(home);
    if (count != 2)
        fprintf(stderr, "%s has %d entries\n", home, count);
    else
        rmdir(home);
    return count == 2 ? GOOD : BAD;
}

/* Nor on the terminal: refusals are in the log, and in weir_detail. */
static int nothing_is_printed(void)
{
    char path[] = "/tmp/weir-printed-XXXXXX";
    weir_engine_probe probe;
    const weir_engine *engine = engine_here();
    if (!engine || !genai_of(engine, &probe))
        return NO_ENGINE;
    int file = mkstemp(path), terminal = dup(2);
    unlink(path);
    dup2(file, 1);
    dup2(file, 2);
    weir_status status = use(engine);
    bench it = {.engine = engine, .load = WEIR_INIT(weir_engine_load)};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "model";
    options.budget = 300000;
    it.load.path = the_model(CONCAT);
    if (weir_runtime_create("host", &options, &it.runtime) != WEIR_OK ||
        weir_client_create(it.runtime, &client, &it.client) != WEIR_OK)
        return BAD;
    weir_status refused = bench_load(&it, one_thread, 1);
    off_t printed = lseek(file, 0, SEEK_END);
    dup2(terminal, 2);
    if (status == WEIR_OK && refused == WEIR_ERR_OUT_OF_MEMORY && printed == 0)
        return GOOD;
    fprintf(stderr, "status %d, refused %d, %lld bytes printed\n", (int)status, (int)refused, (long long)printed);
    return BAD;
}

static void test_what_is_the_users_is_left_alone(void **state)
{
    (void)state;
    the_model(SHARED);
    the_model(CONCAT);
    in_a_child(nothing_is_written, "nothing_is_written");
    in_a_child(nothing_is_printed, "nothing_is_printed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_is_said),
        cmocka_unit_test(test_what_is_the_users_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
