/* library.c: finding and opening ONNX Runtime GenAI: what is missing is said, and nothing of the user's is touched. Each in a
 * process of its own, as libraries stay open. */
#include "answer.h"

#include "test_places.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef int child(void);

enum { GOOD, BAD, NO_ENGINE = 77 };

/* The environment is read with the first call of weir's, so a child changes it before that. What a child says is shown if it is not
 * GOOD. Where the engine may be missing that is no failure. */
static void in_a_child(child *what, const char *name, bool may_be_missing)
{
    int how = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(what());
    assert_true(pid > 0 && waitpid(pid, &how, 0) == pid);
    if (may_be_missing && WIFEXITED(how) && WEXITSTATUS(how) == NO_ENGINE)
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

static int the_engine_is_here(void)
{
    weir_engine_probe probe;
    const weir_engine *engine = engine_here();
    return engine && genai_of(engine, &probe) ? GOOD : NO_ENGINE;
}

static void test_what_is_missing_is_said(void **state)
{
    (void)state;
    in_a_child(the_engine_is_here, "the_engine_is_here", true);
    in_a_child(nothing_in_the_store, "nothing_in_the_store", false);
    in_a_child(a_name_that_is_none, "a_name_that_is_none", false);
    in_a_child(no_onnx_runtime, "no_onnx_runtime", false);
    in_a_child(another_library, "another_library", false);
    in_a_child(opened_by_the_program, "opened_by_the_program", false);
}

/* ---- which is taken ---------------------------------------------------------------------------------------------- */

/* Files that can be read, which is all that is asked before one is opened. */
enum { GENAI = 1, RUNTIME = 2, GENAI_CUDA = 4, RUNTIME_CUDA = 8, PLACES = 4 };
static const char *const places[PLACES] = {"engines/onnxruntime-genai/current/libonnxruntime-genai.so",
                                           "engines/onnxruntime/current/libonnxruntime.so",
                                           "engines/onnxruntime-genai-cuda/current/libonnxruntime-genai.so",
                                           "engines/onnxruntime-cuda/current/libonnxruntime.so"};

static void make_file(const char *home, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", home, name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    fclose(fopen(path, "wb"));
}

static void drop_store(const char *home)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", home);
    if (system(command) != 0)
        fprintf(stderr, "%s stays\n", home);
}

typedef struct choice {
    int here;
    int taken; /* -1: none */
    bool cuda;
    const char *words; /* of what is missing */
} choice;

static const choice choices[] = {
    {0, -1, false, "run scripts/engines onnxruntime-genai"},
    {RUNTIME, -1, false, "run scripts/engines onnxruntime-genai"},
    {GENAI, -1, false, "needs ONNX Runtime, which is not here: run scripts/engines onnxruntime, or"},
    {GENAI | RUNTIME, 0, false, ""},
    {GENAI | RUNTIME_CUDA, -1, false, "needs ONNX Runtime, which"},
    {GENAI_CUDA, -1, true, "needs ONNX Runtime's build for CUDA, which is not here: run scripts/engines --cuda "},
    {GENAI_CUDA | RUNTIME, -1, true, "needs ONNX Runtime's build for CUDA"},
    {GENAI_CUDA | RUNTIME_CUDA, 2, true, ""},
    {GENAI_CUDA | RUNTIME_CUDA | GENAI | RUNTIME, 2, true, ""},
    {GENAI_CUDA | GENAI | RUNTIME, 0, false, ""},
};

static bool is_chosen(const weir_engine *engine, const char *home, const choice *it)
{
    weir_engine_provider cuda = WEIR_INIT(weir_engine_provider), cpu = WEIR_INIT(weir_engine_provider);
    char path[256] = "";
    if (engine->provider(0, &cuda) != WEIR_OK || engine->provider(1, &cpu) != WEIR_OK)
        return false;
    if (it->taken < 0)
        return cpu.state == WEIR_PROVIDER_NO_LIBRARY && cuda.state == WEIR_PROVIDER_NO_LIBRARY &&
               strstr(cpu.missing, it->words) && strcmp(cuda.missing, cpu.missing) == 0;
    snprintf(path, sizeof path, "%s/%s", home, places[it->taken]);
    bool good = cpu.state == WEIR_PROVIDER_HERE && !cpu.missing[0] && !cpu.version[0] &&
                strcmp(cpu.library, path) == 0 && strcmp(cuda.library, path) == 0;
    if (!it->cuda)
        return good && cuda.state == WEIR_PROVIDER_NOT_BUILT && strstr(cuda.missing, "has no CUDA; run ");
    /* Whether CUDA's libraries are here is the machine's. */
    return good && (cuda.state == WEIR_PROVIDER_HERE
                        ? !cuda.missing[0]
                        : cuda.state == WEIR_PROVIDER_NOT_LOADABLE && strstr(cuda.missing, "need lib") != NULL);
}

static int each_store(void)
{
    const weir_engine *engine = engine_here();
    int result = engine ? GOOD : NO_ENGINE;
    if (weir_option_set("onnxruntime", "") != WEIR_OK || weir_option_set("onnxruntime_genai", "") != WEIR_OK)
        return BAD;
    for (size_t i = 0; engine && i < sizeof choices / sizeof *choices; i++) {
        char home[] = "/tmp/weir-store-XXXXXX";
        if (!mkdtemp(home) || weir_option_set("home", home) != WEIR_OK)
            return BAD;
        for (int k = 0; k < PLACES; k++)
            if (choices[i].here & 1 << k)
                make_file(home, places[k]);
        if (!is_chosen(engine, home, &choices[i])) {
            fprintf(stderr, "store %zu\n", i);
            result = BAD;
        }
        drop_store(home);
    }
    return result;
}

static weir_provider_state state_of(const weir_engine *engine)
{
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    return engine->provider(1, &found) == WEIR_OK ? found.state : WEIR_PROVIDER_NOT_LOADABLE;
}

/* Beside the library that is named lies what tells that it is for CUDA; the store has the ONNX Runtime for it, unless that is
 * named, too. */
static int one_that_is_named(void)
{
    int result = GOOD;
    const weir_engine *engine = engine_here();
    for (int cuda = 0; engine && cuda < 2; cuda++)
        for (int runtime = 0; runtime < 3; runtime++) {
            char home[] = "/tmp/weir-store-XXXXXX", path[128];
            if (!mkdtemp(home) || weir_option_set("home", home) != WEIR_OK)
                return BAD;
            make_file(home, "own/libonnxruntime-genai.so");
            if (cuda)
                make_file(home, "own/libonnxruntime-genai-cuda.so");
            if (runtime > 0)
                make_file(home, places[runtime == 1 ? 1 : 3]);
            snprintf(path, sizeof path, "%s/own/libonnxruntime-genai.so", home);
            if (weir_option_set("onnxruntime_genai", path) != WEIR_OK || weir_option_set("onnxruntime", "") != WEIR_OK)
                return BAD;
            bool found = state_of(engine) == WEIR_PROVIDER_HERE;
            if (weir_option_set("onnxruntime", "/named/libonnxruntime.so") != WEIR_OK)
                return BAD;
            if (found != (runtime == cuda + 1) || state_of(engine) != WEIR_PROVIDER_HERE)
                result = BAD;
            drop_store(home);
        }
    return engine ? result : NO_ENGINE;
}

static void test_which_is_taken(void **state)
{
    (void)state;
    in_a_child(the_engine_is_here, "the_engine_is_here", true);
    in_a_child(each_store, "each_store", false);
    in_a_child(one_that_is_named, "one_that_is_named", false);
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

/* Words of the environment that are set for GenAI are the program's again, and what it has said itself counts. */
static int the_environment_is_left(void)
{
    weir_engine_probe probe;
    setenv("ORT_DISABLE_TELEMETRY", "0", 1);
    unsetenv("ORT_LIB_PATH");
    const weir_engine *engine = engine_here();
    if (!engine || !genai_of(engine, &probe))
        return NO_ENGINE;
    const char *told = getenv("ORT_DISABLE_TELEMETRY");
    return !getenv("ORT_LIB_PATH") && told && strcmp(told, "0") == 0 ? GOOD : BAD;
}

static int a_path_of_its_own_is_left(void)
{
    weir_engine_probe probe;
    unsetenv("ORT_DISABLE_TELEMETRY");
    setenv("ORT_LIB_PATH", "/its/own.so", 1);
    const weir_engine *engine = engine_here();
    if (!engine || !genai_of(engine, &probe))
        return NO_ENGINE;
    const char *path = getenv("ORT_LIB_PATH"), *told = getenv("ORT_DISABLE_TELEMETRY");
    return path && strcmp(path, "/its/own.so") == 0 && told && strcmp(told, "1") == 0 ? GOOD : BAD;
}

static void test_what_is_the_users_is_left_alone(void **state)
{
    (void)state;
    in_a_child(the_engine_is_here, "the_engine_is_here", true);
    the_model(SHARED);
    the_model(CONCAT);
    in_a_child(nothing_is_written, "nothing_is_written", false);
    in_a_child(nothing_is_printed, "nothing_is_printed", false);
    in_a_child(the_environment_is_left, "the_environment_is_left", false);
    in_a_child(a_path_of_its_own_is_left, "a_path_of_its_own_is_left", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_is_said),
        cmocka_unit_test(test_which_is_taken),
        cmocka_unit_test(test_what_is_the_users_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
