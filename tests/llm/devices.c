/* devices.c: GenAI's library for CUDA: when it is opened, whose its memory is, and until when. The redirect of its memory and the
 * library itself are made up. */
#include "common.h"

#include <dlfcn.h>

#include "engines/llm/wl.h"
#include "interpose/cuda_redirect.h"

/* ---- what is made up --------------------------------------------------------------------------------------------- */

static const char *lacks; /* a library of CUDA's */

const char *wi_cuda_missing(const char *const *more)
{
    assert_string_equal(more[0], "libcublasLt.so.13");
    assert_string_equal(more[3], "libcudnn.so.9");
    assert_null(more[4]);
    return lacks;
}

void *__real_dlopen(const char *file, int mode);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) void *__wrap_dlopen(const char *file, int mode);

static char opened[256];
static int opens;
static bool cannot_be_opened;

void *__wrap_dlopen(const char *file, int mode)
{
    if (!file || !strstr(file, "genai-cuda"))
        return __real_dlopen(file, mode);
    opens++;
    snprintf(opened, sizeof opened, "%s", file);
    return cannot_be_opened ? __real_dlopen("/nonexistent", mode) : (void *)opened;
}

typedef struct redirects {
    int begun, ended, settled;
    bool cannot_begin, cannot_end, does_not_settle;
    weir_client *client; /* its own */
} redirects;
static redirects its;
static weir_runtime *first, *other;
static weir_client *client, *others;
static int ordinal;
static bool tells_nothing; /* the runtime, of itself */

weir_status wi_cuda_redirect_begin(const wi_cuda_redirect_options *options, wi_cuda_redirect **out)
{
    assert_string_equal(options->module, opened);
    assert_int_equal(options->client_count, 1);
    assert_int_equal(options->memory_class, WEIR_CLASS_SCRATCH);
    assert_true(options->pinned_passes && !options->managed_on_device);
    its.client = options->clients[0];
    assert_string_equal(stats_of_client(its.client).name, "onnxruntime-genai");
    if (its.cannot_begin)
        return weir_fail(WEIR_ERR_BUSY, "no more redirects");
    its.begun++;
    *out = (wi_cuda_redirect *)(void *)&its;
    return WEIR_OK;
}

weir_client *wi_cuda_redirect_client(const wi_cuda_redirect *redirect, const weir_runtime *runtime)
{
    (void)runtime;
    assert_ptr_equal(redirect, &its);
    return its.client;
}

bool wi_cuda_redirect_settle(wi_cuda_redirect *redirect, uint32_t most_ms)
{
    assert_ptr_equal(redirect, &its);
    assert_true(most_ms > 0);
    its.settled++;
    return !its.does_not_settle;
}

weir_status wi_cuda_redirect_end(wi_cuda_redirect *redirect)
{
    assert_ptr_equal(redirect, &its);
    if (its.cannot_end)
        return weir_fail(WEIR_ERR_BUSY, "memory of it is live");
    its.ended++;
    return WEIR_OK;
}

weir_status __real_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);
weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);

weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out)
{
    weir_status status = __real_weir_runtime_info(of, out);
    if (tells_nothing)
        return weir_fail(WEIR_ERR_FORKED, "of another process");
    out->device = ordinal ? "cuda:1" : "cuda:0";
    out->ordinal = ordinal;
    return status;
}

static int said; /* errors in the log */
static char said_last[512];

static void keep_word(weir_log_level level, const char *text, void *user)
{
    (void)user;
    said += level == WEIR_LOG_ERROR;
    snprintf(said_last, sizeof said_last, "%s", text);
}

static weir_client *client_on(weir_runtime *on)
{
    weir_client *made;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "model";
    OK(weir_client_create(on, &options, &made));
    return made;
}

static int begin(void **state)
{
    (void)state;
    OK(weir_runtime_create("host", NULL, &first));
    OK(weir_runtime_create("host", NULL, &other));
    client = client_on(first);
    others = client_on(other);
    OK(weir_log_set(keep_word, NULL, WEIR_LOG_ERROR));
    return 0;
}

/* Runtimes without other clients than these. */
static int finish(void **state)
{
    (void)state;
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
    OK(weir_client_destroy(client));
    OK(weir_client_destroy(others));
    OK(weir_runtime_destroy(other));
    OK(weir_runtime_destroy(first));
    return 0;
}

static size_t clients_on(weir_runtime *on)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    size_t count = 0;
    OK(weir_snapshot(on, &stats, NULL, 0, &count));
    return count;
}

/* ---- tests: one behind the other, as the library stays open once it is ------------------------------------------- */

static void test_what_is_needed_is_told_by_name(void **state)
{
    (void)state;
    char missing[512] = "";
    OK(wl_devices_needs(missing, sizeof missing));
    assert_string_equal(missing, "");
    lacks = "libcudnn.so.9";
    assert_int_equal(wl_devices_needs(missing, sizeof missing), WEIR_ERR_NOT_FOUND);
    assert_words(missing, "need libcudnn.so.9 for CUDA");
    assert_int_equal(wl_devices_open("/a/libonnxruntime-genai.so", client), WEIR_ERR_ENGINE);
    assert_words(weir_detail(), "need libcudnn.so.9 for CUDA");
    assert_int_equal(opens, 0);
    assert_null(wl_devices_redirect());
    lacks = NULL;
}

static void test_what_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    ordinal = 1;
    assert_int_equal(wl_devices_open("/a/libonnxruntime-genai.so", client), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "on the first device of CUDA alone, and cuda:1 is another");
    assert_int_equal(opens, 0);
    ordinal = 0;
    cannot_be_opened = true;
    assert_int_equal(wl_devices_open("here.so", client), WEIR_ERR_ENGINE);
    assert_words(weir_detail(), "GenAI's library for CUDA cannot be opened");
    assert_string_equal(opened, "./libonnxruntime-genai-cuda.so");
    cannot_be_opened = false;
    its.cannot_begin = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wl_devices_open("/a/b/libonnxruntime-genai.so", client), WEIR_ERR_BUSY);
        assert_words(weir_detail(), "no more redirects");
        assert_int_equal(clients_on(first), 1);
    }
    assert_string_equal(opened, "/a/b/libonnxruntime-genai-cuda.so");
    assert_int_equal(opens, 2); /* once it is open it stays */
    assert_null(wl_devices_redirect());
    its.cannot_begin = false;
}

/* One for all models, from the first to the last. */
static void test_it_lasts_as_long_as_there_are_models(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        its = (redirects){0};
        for (int i = 0; i < 3; i++) {
            OK(wl_devices_open("/a/b/libonnxruntime-genai.so", client));
            assert_int_equal(its.begun, 1);
            assert_ptr_equal(wl_devices_redirect(), &its);
        }
        assert_int_equal(wl_devices_open("/a/b/libonnxruntime-genai.so", others), WEIR_ERR_BUSY);
        assert_words(weir_detail(), "has models on cuda:0 in another runtime");
        tells_nothing = true;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(wl_devices_open("/a/b/libonnxruntime-genai.so", i ? others : client), WEIR_ERR_FORKED);
            assert_words(weir_detail(), "of another process");
        }
        tells_nothing = false;
        assert_ptr_equal(wl_devices_redirect(), &its);
        assert_int_equal(clients_on(first), 2);
        assert_int_equal(clients_on(other), 1);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(its.ended, 0);
            wl_devices_close();
            assert_int_equal(its.settled, i + 1);
            assert_ptr_equal(wl_devices_redirect(), i < 2 ? &its : NULL);
        }
        assert_int_equal(its.ended, 1);
        assert_int_equal(clients_on(first), 1);
    }
    OK(wl_devices_open("/a/b/libonnxruntime-genai.so", others));
    wl_devices_close();
    assert_int_equal(opens, 2);
    assert_int_equal(said, 0);
}

/* What GenAI keeps without a model is told, and the next model finds it. */
static void test_what_stays_is_told(void **state)
{
    (void)state;
    its = (redirects){.does_not_settle = true, .cannot_end = true};
    OK(wl_devices_open("/a/b/libonnxruntime-genai.so", client));
    wl_devices_close();
    assert_int_equal(said, 2);
    assert_words(said_last, "GenAI keeps memory of CUDA without a model: memory of it is live");
    assert_ptr_equal(wl_devices_redirect(), &its);
    its.does_not_settle = its.cannot_end = false;
    OK(wl_devices_open("/a/b/libonnxruntime-genai.so", client));
    assert_int_equal(its.begun, 1);
    wl_devices_close();
    assert_int_equal(said, 2);
    assert_null(wl_devices_redirect());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_needed_is_told_by_name),
        cmocka_unit_test(test_what_cannot_be_had_leaves_nothing),
        cmocka_unit_test(test_it_lasts_as_long_as_there_are_models),
        cmocka_unit_test(test_what_stays_is_told),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
