/* opening.c: how src/engines/llm/library.c opens ONNX Runtime and GenAI: what each step is given, what is said where it fails, and when
 * GenAI is shut down. Both libraries are made up. */
#include "common.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "engines/llm/wl.h"

/* ---- what is made up --------------------------------------------------------------------------------------------- */

static char home[64], genai_path[96], runtime_path[96], beside[112];
static char genai, runtime, status, env; /* handles and answers */

typedef struct makings {
    bool no_runtime, no_base, no_api, no_env, no_table, is_open, no_genai, no_copy;
    const char *version, *lacks;
    int opened, closed, released, shut, loud; /* how often; loud: telemetry was left on */
    int told;                                 /* about telemetry */
    char led[512], silent[8];                 /* what the environment said while GenAI was opened */
} makings;
static makings it;
static ort_log_fn first_log; /* that ONNX Runtime was given */

static void some_function(void) {}

static void its_telemetry(bool enabled)
{
    it.told++;
    it.loud += enabled;
}

static void its_shutdown(void)
{
    it.shut++;
}

static ort_status *make_env(ort_log_fn log, void *user, int severity, const char *log_id, ort_env **out)
{
    assert_null(user);
    assert_int_equal(severity, ORT_LOG_ERROR);
    assert_string_equal(log_id, "weir");
    first_log = log;
    *out = it.no_env ? NULL : (ort_env *)(void *)&env;
    return it.no_env ? (ort_status *)(void *)&status : NULL;
}

static const char *its_message(const ort_status *of)
{
    assert_ptr_equal(of, &status);
    return "no threads";
}

static void release_status(ort_status *of)
{
    assert_ptr_equal(of, &status);
    it.released++;
}

static const ort_api api = {
    .CreateEnvWithCustomLogger = make_env, .GetErrorMessage = its_message, .ReleaseStatus = release_status};

static const ort_api *get_api(uint32_t version)
{
    assert_int_equal(version, ORT_API_WANTED);
    return it.no_api ? NULL : &api;
}

static const char *get_version(void)
{
    return it.version;
}

static const ort_base its_base = {get_api, get_version};

static const ort_base *get_base(void)
{
    return &its_base;
}

weir_status wl_table_make(const ort_base *base, void *handle)
{
    assert_ptr_equal(base, &its_base);
    assert_ptr_equal(handle, &runtime);
    return it.no_table ? weir_fail(WEIR_ERR_UNSUPPORTED, "no table") : WEIR_OK;
}

/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
#define VISIBLE __attribute__((visibility("default")))
VISIBLE void *__wrap_dlopen(const char *file, int mode);
VISIBLE void *__wrap_dlsym(void *handle, const char *name);
VISIBLE int __wrap_dlclose(void *handle);
VISIBLE char *__wrap_strdup(const char *text);
VISIBLE int __wrap_atexit(void (*call)(void));
void *__real_dlopen(const char *file, int mode);
void *__real_dlsym(void *handle, const char *name);
int __real_dlclose(void *handle);
char *__real_strdup(const char *text);

void *__wrap_dlopen(const char *file, int mode)
{
    bool is_genai = file && strcmp(file, genai_path) == 0, is_runtime = file && strcmp(file, runtime_path) == 0;
    if (is_runtime && !it.no_runtime)
        return &runtime;
    if (is_genai && (mode & RTLD_NOLOAD))
        return it.is_open ? &genai : NULL;
    if (is_genai) {
        const char *led = getenv("ORT_LIB_PATH"), *silent = getenv("ORT_DISABLE_TELEMETRY");
        snprintf(it.led, sizeof it.led, "%s", led ? led : "");
        snprintf(it.silent, sizeof it.silent, "%s", silent ? silent : "");
        it.opened++;
    }
    if (is_genai && !it.no_genai)
        return &genai;
    return __real_dlopen(is_genai || is_runtime ? "/nonexistent" : file, mode);
}

void *__wrap_dlsym(void *handle, const char *name)
{
    void (*found)(void) = some_function;
    void *symbol;
    if (handle != &genai && handle != &runtime)
        return __real_dlsym(handle, name);
    if (handle == &runtime) {
        assert_string_equal(name, "OrtGetApiBase");
        found = it.no_base ? NULL : (void (*)(void))get_base;
    } else if (it.lacks && strcmp(name, it.lacks) >= 0) {
        found = NULL; /* and others do not matter */
    } else if (strcmp(name, "OgaSetTelemetryEnabled") == 0) {
        found = (void (*)(void))its_telemetry;
    } else if (strcmp(name, "OgaShutdown") == 0) {
        found = its_shutdown;
    }
    memcpy(&symbol, &found, sizeof symbol);
    return symbol;
}

int __wrap_dlclose(void *handle)
{
    if (handle != &genai)
        return __real_dlclose(handle);
    it.closed++;
    return 0;
}

char *__wrap_strdup(const char *text)
{
    return it.no_copy ? NULL : __real_strdup(text);
}

static void (*at_end)(void);
static int at_ends;

int __wrap_atexit(void (*call)(void))
{
    at_end = call;
    at_ends++;
    return 0;
}

static void make_file(const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    snprintf(home, sizeof home, "/tmp/weir-opening-XXXXXX");
    assert_non_null(mkdtemp(home));
    snprintf(genai_path, sizeof genai_path, "%s/libonnxruntime-genai.so", home);
    snprintf(runtime_path, sizeof runtime_path, "%s/libonnxruntime.so", home);
    snprintf(beside, sizeof beside, "%s/libonnxruntime-genai-cuda.so", home);
    make_file(genai_path);
    make_file(beside);
    OK(weir_option_set("home", home));
    OK(weir_option_set("onnxruntime", runtime_path));
    OK(weir_option_set("onnxruntime_genai", genai_path));
    return 0;
}

static int finish(void **state)
{
    (void)state;
    unlink(genai_path);
    unlink(beside);
    return rmdir(home);
}

static int begin_one(void **state)
{
    (void)state;
    it = (makings){.version = "1.23.1"};
    unsetenv("ORT_LIB_PATH");
    unsetenv("ORT_DISABLE_TELEMETRY");
    return 0;
}

/* ---- tests: one behind the other, as they stay open once they are ------------------------------------------------- */

static void fails(weir_status expected, const char *words)
{
    const wl_library *out = (const wl_library *)(void *)&it;
    assert_int_equal(wl_library_use(&out), expected);
    assert_words(weir_detail(), words);
    assert_null(out);
    assert_int_equal(it.told, 0);
}

static void test_what_cannot_be_opened_is_said(void **state)
{
    static const char *const versions[] = {"1.22.9", "2.23.0", "", "x", "0.99"};
    (void)state;
    it.no_runtime = true;
    fails(WEIR_ERR_NOT_FOUND, "ONNX Runtime cannot be opened: /nonexistent");
    it.no_runtime = false;
    it.no_base = true;
    fails(WEIR_ERR_ENGINE, "libonnxruntime.so is no ONNX Runtime: it has no OrtGetApiBase");
    it.no_base = false;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char words[64];
        it.version = versions[i];
        snprintf(words, sizeof words, "libonnxruntime.so is ONNX Runtime %s; weir needs 1.23 or a later 1.x",
                 it.version);
        fails(WEIR_ERR_UNSUPPORTED, words);
    }
    it.version = "1.23.1";
    it.no_api = true;
    fails(WEIR_ERR_UNSUPPORTED, "(ONNX Runtime 1.23.1) does not offer version 23 of its interface");
    it.no_api = false;
    it.no_env = true;
    fails(WEIR_ERR_ENGINE, "ONNX Runtime 1.23.1 could not be started: no threads");
    assert_int_equal(it.released, 1);
    it.no_env = false;
    it.no_table = true;
    fails(WEIR_ERR_UNSUPPORTED, "no table");
    it.no_table = false;
    it.is_open = true;
    fails(WEIR_ERR_CONFLICT, "libonnxruntime-genai.so is open in this process already");
    assert_int_equal(it.closed, 1);
    assert_int_equal(it.opened, 0);
    it.is_open = false;
    it.no_genai = true;
    fails(WEIR_ERR_NOT_FOUND, "ONNX Runtime GenAI cannot be opened: /nonexistent");
    assert_null(getenv("ORT_LIB_PATH"));
    assert_int_equal(it.opened, 1);
    assert_int_equal(it.closed, 1);
}

/* Each of the functions, of which the first that is not there is told, however often it is tried: the library is open by then. */
static void test_a_library_that_lacks_a_function_is_told(void **state)
{
    static const char *const names[] = {
#define NAME(name) #name,
        OGA_FUNCTIONS(NAME)
#undef NAME
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *first = NULL;
        char words[128];
        it.lacks = names[i];
        it.is_open = i > 0;
        for (size_t k = 0; !first; k++) /* as it looks for them */
            first = strcmp(names[k], it.lacks) >= 0 ? names[k] : NULL;
        snprintf(words, sizeof words, "lacks the function %s; weir needs ONNX Runtime GenAI", first);
        fails(WEIR_ERR_UNSUPPORTED, words);
    }
}

/* While GenAI is opened its word leads to this code, and then it is as before. */
static void test_the_words_of_the_environment_are_put_back(void **state)
{
    (void)state;
    Dl_info here;
    assert_true(dladdr((void *)&it, &here) != 0);
    it.no_genai = true;
    for (int own = 0; own < 2; own++) {
        if (own) {
            setenv("ORT_LIB_PATH", "/its/own.so", 1);
            setenv("ORT_DISABLE_TELEMETRY", "0", 1);
        }
        fails(WEIR_ERR_NOT_FOUND, "cannot be opened");
        assert_string_equal(it.led, here.dli_fname);
        assert_string_equal(it.silent, own ? "0" : "1");
        assert_int_equal(it.opened, own + 1);
        const char *now = getenv("ORT_LIB_PATH");
        assert_string_equal(now ? now : "", own ? "/its/own.so" : "");
    }
    /* What cannot be put back is not changed. */
    it.no_copy = true;
    fails(WEIR_ERR_NOT_FOUND, "GenAI cannot be opened");
    assert_int_equal(it.opened, 2);
    assert_string_equal(getenv("ORT_LIB_PATH"), "/its/own.so");
}

/* Once, for all that use it; it is shut down at the end of the process if no model is left, and those that could not be had
 * count for nothing. */
static void test_it_is_opened_once_and_shut_down_behind_the_last_model(void **state)
{
    (void)state;
    const wl_library *first = NULL, *second = NULL;
    char file[512], version[96];
    bool cuda = false;
    OK(wl_library_look(file, sizeof file, version, sizeof version, &cuda));
    assert_string_equal(file, genai_path);
    assert_string_equal(version, "");
    assert_true(cuda);
    setenv("ORT_LIB_PATH", "/its/own.so", 1);
    OK(wl_library_use(&first));
    OK(wl_library_use(&second));
    assert_ptr_equal(first, second);
    assert_int_equal(it.opened, 1);
    assert_int_equal(it.closed, 0);
    assert_int_equal(it.told, 1);
    assert_int_equal(it.loud, 0);
    assert_string_equal(getenv("ORT_LIB_PATH"), "/its/own.so");
    assert_string_equal(first->file, genai_path);
    assert_string_equal(first->version, "ONNX Runtime 1.23.1");
    assert_true(first->cuda);
    assert_ptr_equal(first->api, &api);
    assert_ptr_equal(first->env, &env);
    assert_true(first->OgaShutdown == its_shutdown);
    OK(wl_library_look(file, sizeof file, version, sizeof version, &cuda));
    assert_string_equal(version, "ONNX Runtime 1.23.1");
    for (int i = 0; i < 2; i++)
        wl_library_end_before_cuda();
    assert_int_equal(at_ends, 1);
    for (int users = 2; users >= 0; users--) {
        at_end();
        assert_int_equal(it.shut, users == 0);
        if (users > 0)
            wl_library_leave();
    }
}

static weir_log_level heard;
static char heard_words[256];

static void hear(weir_log_level level, const char *text, void *user)
{
    (void)user;
    heard = level;
    snprintf(heard_words, sizeof heard_words, "%s", text);
}

static void test_what_onnx_runtime_logs_is_in_weirs_log(void **state)
{
    static const weir_log_level levels[] = {WEIR_LOG_DEBUG, WEIR_LOG_DEBUG, WEIR_LOG_WARNING, WEIR_LOG_ERROR,
                                            WEIR_LOG_ERROR};
    (void)state;
    assert_non_null(first_log);
    OK(weir_log_set(hear, NULL, WEIR_LOG_DEBUG));
    for (int severity = 0; severity <= ORT_LOG_FATAL; severity++) {
        first_log(NULL, severity, "category", "id", "graph.cc:7", "a node");
        assert_int_equal(heard, levels[severity]);
        assert_string_equal(heard_words, "onnxruntime: a node (graph.cc:7)");
    }
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
}

/* ---- words of a failure ------------------------------------------------------------------------------------------- */

static const char *words_of_it;
static int destroyed;

static const char *its_words(const oga_result *result)
{
    assert_ptr_equal(result, &status);
    return words_of_it;
}

static void destroy(oga_result *result)
{
    assert_ptr_equal(result, &status);
    destroyed++;
}

static void test_words_of_a_failure_are_one_line(void **state)
{
    (void)state;
    static const wl_library own = {.OgaResultGetError = its_words, .OgaDestroyResult = destroy};
    oga_result *result = (oga_result *)(void *)&status;
    char text[16] = "as before";
    assert_false(wl_failed(&own, NULL, text, sizeof text));
    assert_string_equal(text, "as before");
    assert_int_equal(destroyed, 0);
    words_of_it = "a\nb\r\nc and so on and on";
    assert_true(wl_failed(&own, result, text, sizeof text));
    assert_string_equal(text, "a b  c and so o");
    words_of_it = NULL;
    assert_true(wl_failed(&own, result, text, sizeof text));
    assert_string_equal(text, "no reason given");
    assert_int_equal(destroyed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_cannot_be_opened_is_said, begin_one),
        cmocka_unit_test_setup(test_a_library_that_lacks_a_function_is_told, begin_one),
        cmocka_unit_test_setup(test_the_words_of_the_environment_are_put_back, begin_one),
        cmocka_unit_test_setup(test_it_is_opened_once_and_shut_down_behind_the_last_model, begin_one),
        cmocka_unit_test_setup(test_what_onnx_runtime_logs_is_in_weirs_log, begin_one),
        cmocka_unit_test(test_words_of_a_failure_are_one_line),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
