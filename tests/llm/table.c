/* table.c: the table of ONNX Runtime's that GenAI gets: which functions of it are others, and what those do. The ONNX Runtime is
 * made up: its functions are this program's own. */
#include "common.h"

#include <dlfcn.h>

#include "engines/llm/wl.h"

/* ---- what is made up --------------------------------------------------------------------------------------------- */

enum { SLOTS = 1024 };
static union {
    ort_api api;
    void (*slots[SLOTS])(void);
} theirs;

static char made[512];       /* a line for each call */
static char session, status; /* what functions answer */
static const char *fails;    /* an entry of a session that is refused */
static bool cannot_be_made, cannot_be_entered;
static ort_allocator its_allocator;

static void note(const char *format, const char *what, const char *value)
{
    size_t at = strlen(made);
    snprintf(made + at, sizeof made - at, format, what, value);
}

static void was_made(const char *expected)
{
    assert_string_equal(made, expected);
    made[0] = 0;
}

static void some_function(void) {}

static ort_status *a_status(void)
{
    return (ort_status *)(void *)&status;
}

static ort_status *their_status(int code, const char *message)
{
    assert_int_equal(code, ORT_FAIL_CODE);
    note("status %s\n", message, "");
    return a_status();
}

static ort_status *their_entry(ort_session_options *options, const char *key, const char *value)
{
    assert_ptr_equal(options, &theirs);
    note("%s=%s\n", key, value);
    return fails && strcmp(fails, key) == 0 ? a_status() : NULL;
}

static ort_status *their_session(const ort_env *env, const char *path, const ort_session_options *options,
                                 ort_session **out)
{
    assert_null(env);
    assert_ptr_equal(options, &theirs);
    note("session %s%s\n", path, "");
    *out = (ort_session *)(void *)&session;
    return NULL;
}

static weir_class asked_as;

static ort_status *their_tensor(ort_allocator *allocator, const int64_t *shape, size_t rank, int type, ort_value **out)
{
    (void)allocator, (void)shape, (void)rank, (void)type;
    asked_as = wl_memory_class(WEIR_CLASS_SCRATCH);
    wl_memory_class(asked_as);
    *out = NULL;
    return a_status();
}

static ort_status *their_default(ort_allocator **out)
{
    *out = &its_allocator;
    return NULL;
}

static bool makes_no_allocator, answers_nothing;

static ort_status *their_allocator(const ort_session *of, const ort_memory_info *info, ort_allocator **out)
{
    assert_ptr_equal(of, &session);
    assert_null(info);
    if (!answers_nothing)
        *out = &its_allocator; /* also where it fails */
    return makes_no_allocator ? a_status() : NULL;
}

static void their_release(ort_allocator *allocator)
{
    note("release %s%s\n", allocator == &its_allocator ? "theirs" : "another", "");
}

static ort_status *their_option(ort_cuda_options *options, const char *key, void *value)
{
    assert_ptr_equal(options, &theirs);
    note("%s %s\n", key, value ? "set" : "unset");
    return a_status();
}

static ort_status *never(ort_env *env, const ort_memory_info *info, const void *config)
{
    (void)env, (void)info, (void)config;
    note("register%s%s\n", "", "");
    return a_status();
}

static const ort_api *their_api(uint32_t version)
{
    return version <= ORT_API_WANTED ? &theirs.api : NULL;
}

static const char *their_version(void)
{
    return "1.31.1";
}

static const ort_base base = {their_api, their_version};

weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out);
weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *it);
weir_status __wrap_weir_onnxruntime_info(weir_onnxruntime *it, weir_onnxruntime_details *out);
weir_status __wrap_weir_onnxruntime_enter(weir_onnxruntime *it);
void __wrap_weir_onnxruntime_leave(weir_onnxruntime *it);

weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out)
{
    (void)options;
    if (cannot_be_made)
        return weir_fail(WEIR_ERR_SYSTEM, "no bridge");
    *out = (weir_onnxruntime *)(void *)&session;
    return WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *it)
{
    assert_ptr_equal(it, &session);
    return WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_info(weir_onnxruntime *it, weir_onnxruntime_details *out)
{
    assert_ptr_equal(it, &session);
    out->refused = 0;
    return WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_enter(weir_onnxruntime *it)
{
    assert_ptr_equal(it, &session);
    if (cannot_be_entered)
        return weir_fail(WEIR_ERR_BUSY, "it is entered");
    note("enter%s%s\n", "", "");
    return WEIR_OK;
}

void __wrap_weir_onnxruntime_leave(weir_onnxruntime *it)
{
    assert_ptr_equal(it, &session);
    note("leave%s%s\n", "", "");
}

wi_cuda_redirect *wl_devices_redirect(void)
{
    return NULL;
}

static void fill_table(size_t count)
{
    for (size_t i = 0; i < SLOTS; i++)
        theirs.slots[i] = i < count ? some_function : NULL;
    if (count < SLOTS)
        return;
    theirs.api.CreateStatus = their_status;
    theirs.api.AddSessionConfigEntry = their_entry;
    theirs.api.CreateSession = their_session;
    theirs.api.CreateTensorAsOrtValue = their_tensor;
    theirs.api.GetAllocatorWithDefaultOptions = their_default;
    theirs.api.CreateAllocator = their_allocator;
    theirs.api.ReleaseAllocator = their_release;
    theirs.api.UpdateCUDAProviderOptionsWithValue = their_option;
    theirs.api.CreateAndRegisterAllocator = never;
}

static weir_runtime *runtime;
static weir_client *client;
static wl_account *account;
const ort_base *OrtGetApiBase(void); /* as GenAI finds it */
static const ort_api *table;

static int begin(void **state)
{
    (void)state;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "model";
    void *itself = dlopen(NULL, RTLD_NOW);
    /* memory.c refuses by a function of the C++ library's, which a program in C has to open. */
    assert_non_null(dlopen("libstdc++.so.6", RTLD_NOW));
    OK(weir_runtime_create("host", NULL, &runtime));
    OK(weir_client_create(runtime, &options, &client));
    fill_table(SLOTS);
    OK(wl_table_make(&base, itself));
    OK(wl_account_make(&theirs.api, NULL, 1, client, &account));
    table = OrtGetApiBase()->GetApi(ORT_API_WANTED);
    return table ? 0 : -1;
}

static int finish(void **state)
{
    (void)state;
    wl_account_drop(account);
    OK(weir_client_destroy(client));
    OK(weir_runtime_destroy(runtime));
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_the_table_is_as_long_as_theirs(void **state)
{
    (void)state;
    void *itself = dlopen(NULL, RTLD_NOW);
    size_t needed = offsetof(ort_api, SyncStream_GetHandle) / sizeof(void *) + 1;
    fill_table(needed - 1);
    assert_int_equal(wl_table_make(&base, itself), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "ONNX Runtime 1.31.1: its table of functions has");
    fill_table(SLOTS);
    OK(wl_table_make(&base, itself));
    assert_null(OrtGetApiBase()->GetApi(ORT_API_WANTED + 1));
    assert_string_equal(OrtGetApiBase()->GetVersionString(), "1.31.1");
    /* What is not replaced is theirs. */
    const void *const *here = (const void *const *)(const void *)table, *const *there =
                                                                            (const void *const *)(void *)&theirs;
    int others = 0;
    for (size_t i = 0; i < SLOTS; i++)
        others += here[i] != there[i];
    assert_int_equal(others, 7);
}

static ort_status *make_session(ort_session **out)
{
    *out = NULL;
    return table->CreateSession(NULL, "a.onnx", (const ort_session_options *)(const void *)&theirs, out);
}

#define TWO     "session.use_env_allocators=1\nsession.force_spinning_stop=1\n"
#define ENTRIES TWO "session.intra_op.spin_duration_us=50\n"

/* Sessions of a load have the model's bridge; others are a program's own. */
static void test_sessions_of_a_load_get_the_bridge(void **state)
{
    (void)state;
    ort_session *out;
    wl_phase phase;
    assert_null(make_session(&out));
    was_made("session a.onnx\n");
    wl_phase_begin(&phase, WL_RUNNING, account);
    assert_null(make_session(&out));
    was_made("session a.onnx\n");
    wl_phase_end(&phase);
    wl_phase_begin(&phase, WL_LOADING, account);
    cannot_be_made = true;
    assert_ptr_equal(make_session(&out), &status);
    was_made(ENTRIES "status no bridge\n");
    cannot_be_made = false;
    cannot_be_entered = true;
    assert_ptr_equal(make_session(&out), &status);
    was_made(ENTRIES "status it is entered\n");
    cannot_be_entered = false;
    fails = "session.use_env_allocators";
    assert_ptr_equal(make_session(&out), &status);
    was_made("session.use_env_allocators=1\n");
    fails = "session.force_spinning_stop";
    assert_ptr_equal(make_session(&out), &status);
    was_made(TWO);
    fails = "session.intra_op.spin_duration_us";
    assert_ptr_equal(make_session(&out), &status);
    was_made(ENTRIES);
    fails = NULL;
    assert_null(out);
    assert_null(make_session(&out));
    was_made(ENTRIES "enter\nsession a.onnx\nleave\n");
    assert_ptr_equal(out, &session);
    wl_phase_end(&phase);
}

static void test_tensors_are_told_by_their_rank(void **state)
{
    (void)state;
    static const int64_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t rank = 0; rank < 7; rank++) {
        ort_value *out;
        assert_int_equal(wl_memory_class(WEIR_CLASS_OTHER), rank ? WEIR_CLASS_OTHER : WEIR_CLASS_SCRATCH);
        assert_ptr_equal(table->CreateTensorAsOrtValue(&its_allocator, shape, rank, 1, &out), &status);
        assert_int_equal(asked_as, rank >= 4 ? WEIR_CLASS_KV : WEIR_CLASS_ACTIVATIONS);
    }
    assert_int_equal(wl_memory_class(WEIR_CLASS_SCRATCH), WEIR_CLASS_OTHER);
}

static void test_allocators_are_weirs(void **state)
{
    (void)state;
    ort_allocator *host = NULL, *device = NULL;
    assert_null(table->GetAllocatorWithDefaultOptions(&host));
    assert_ptr_equal(host, wl_memory_of_host());
    makes_no_allocator = true;
    assert_ptr_equal(table->CreateAllocator((ort_session *)(void *)&session, NULL, &device), &status);
    assert_ptr_equal(device, &its_allocator); /* what they leave there is theirs */
    device = NULL;
    makes_no_allocator = false;
    answers_nothing = true;
    assert_null(table->CreateAllocator((ort_session *)(void *)&session, NULL, &device));
    assert_null(device);
    answers_nothing = false;
    assert_null(table->CreateAllocator((ort_session *)(void *)&session, NULL, &device));
    assert_ptr_equal(wl_memory_theirs(device), &its_allocator);
    assert_ptr_not_equal(device, &its_allocator);
    table->ReleaseAllocator(device);
    was_made("release theirs\n");
    table->ReleaseAllocator(&its_allocator);
    was_made("release theirs\n");
    table->ReleaseAllocator(host); /* one for the process */
    assert_null(table->CreateAndRegisterAllocator(NULL, NULL, NULL));
    was_made("");
}

static void test_options_of_cuda_are_passed_on(void **state)
{
    (void)state;
    ort_cuda_options *options = (ort_cuda_options *)(void *)&theirs;
    assert_ptr_equal(table->UpdateCUDAProviderOptionsWithValue(options, "user_compute_stream", &session), &status);
    was_made("user_compute_stream set\n");
    assert_ptr_equal(table->UpdateCUDAProviderOptionsWithValue(options, "other", NULL), &status);
    was_made("other unset\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table_is_as_long_as_theirs), cmocka_unit_test(test_sessions_of_a_load_get_the_bridge),
        cmocka_unit_test(test_tensors_are_told_by_their_rank), cmocka_unit_test(test_allocators_are_weirs),
        cmocka_unit_test(test_options_of_cuda_are_passed_on),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
