/* Every allocation of libweir-manifest fails once, wherever it is: the call says so, has given back all that it took,
 * and is never content with a part of the manifest. Those of jansson do not: where it has no memory, 2.14 loses letters
 * of texts without a word and leaves a hash table broken. */
#include "manifest/manifest.h"
#include <weir/manifest.h>

static long left = -1; /* allocations until one fails; below 0: none does */
static long taken;     /* blocks that nobody has given back */

static bool fails_now(void)
{
    return left >= 0 && left-- == 0;
}

/* Visible, as the linker takes the shared library's own uses for uses of these. */
void *__real_malloc(size_t bytes);
WEIR_API void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t each);
WEIR_API void *__wrap_calloc(size_t count, size_t each);
char *__real_strdup(const char *text);
WEIR_API char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);
WEIR_API char *__wrap_strndup(const char *text, size_t length);
WEIR_API int __wrap_asprintf(char **out, const char *format, ...);
int __real_vasprintf(char **out, const char *format, va_list arguments);
WEIR_API int __wrap_vasprintf(char **out, const char *format, va_list arguments);
/* As glibc's headers name it where the compiler has calls checked (_FORTIFY_SOURCE). */
WEIR_API int __wrap___vasprintf_chk(char **out, int flag, const char *format, va_list arguments);
WEIR_API int __wrap___asprintf_chk(char **out, int flag, const char *format, ...);
void __real_free(void *block);
WEIR_API void __wrap_free(void *block);

static void *counted(void *block)
{
    taken += block != NULL;
    return block;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t each)
{
    return fails_now() ? NULL : counted(__real_calloc(count, each));
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t length)
{
    return fails_now() ? NULL : counted(__real_strndup(text, length));
}

int __wrap_vasprintf(char **out, const char *format, va_list arguments)
{
    int length = fails_now() ? -1 : __real_vasprintf(out, format, arguments);
    taken += length >= 0;
    return length;
}

int __wrap___vasprintf_chk(char **out, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return __wrap_vasprintf(out, format, arguments);
}

int __wrap___asprintf_chk(char **out, int flag, const char *format, ...)
{
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = __wrap_vasprintf(out, format, arguments);
    va_end(arguments);
    return length;
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = __wrap_vasprintf(out, format, arguments);
    va_end(arguments);
    return length;
}

void __wrap_free(void *block)
{
    taken -= block != NULL;
    __real_free(block);
}

/* ---- the calls
 * ------------------------------------------------------------------------------------------------------- */

static const char text[] =
    "{\"framework\": \"onnx\", \"model_file\": \"m.onnx\", \"n\\u0061me\": \"x\", \"metadata\": {\"a\": [{}]},\n"
    "\"hardware_requirements\": {\"fallback_providers\": [\"cuda\", \"cpu\"], \"gpu_device_ids\": [0, 1],\n"
    "\"min_cuda_version\": \"12.4\", \"optimized_for\": [\"x\"]}, \"tuning\": {\"threads\": 4, \"session_buckets\": 2, "
    "\"a\": \"b\"}}";

static void is_whole(const weir_manifest *m)
{
    assert_string_equal(m->path, "m.json");
    assert_string_equal(m->name, "x");
    assert_string_equal(m->model_file, "m.onnx");
    assert_int_equal(m->requirements.fallback_count, 2);
    assert_string_equal(m->requirements.fallback_providers[1], "cpu");
    assert_int_equal(m->requirements.device_count, 2);
    assert_int_equal(m->setting_count, 3);
    assert_string_equal(m->settings[0].value, "4");
    assert_string_equal(m->settings[1].key, "buckets");
}

static void each_fault_of_a_read_is_told(void **state)
{
    (void)state;
    size_t faults = 0;
    write_model("m.onnx");
    write_text("m.json", text);
    for (bool done = false; !done; faults++) {
        weir_manifest *m = NULL;
        long before = taken;
        left = (long)faults;
        weir_status status = weir_manifest_read("m.json", NULL, &m);
        done = left >= 0;
        left = -1;
        if (status == WEIR_OK)
            is_whole(m);
        else if (status != WEIR_ERR_SYSTEM || m)
            fail_msg("fault %zu: %s, %s", faults, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
        weir_manifest_destroy(m);
        assert_int_equal(taken, before);
        assert_true(!done || status == WEIR_OK);
    }
    assert_in_range(faults, 12, 1000);
}

static void each_fault_of_a_check_is_told(void **state)
{
    (void)state;
    static const char *const files[][2] = {{"bad.json", "{\"nme\": 1, \"a\": {\"b\": 1, \"b\": 2}}"},
                                           {"no.json", "{\"a\" 1}"}};
    for (size_t i = 0; i < 2; i++) {
        size_t faults = 0, wanted = i == 0 ? 4 : 1;
        write_text(files[i][0], files[i][1]);
        for (bool done = false; !done; faults++) {
            weir_manifest_problems *list = NULL;
            long before = taken;
            left = (long)faults;
            weir_status status = weir_manifest_check(files[i][0], NULL, &list);
            done = left >= 0;
            left = -1;
            assert_true(status == WEIR_OK || (status == WEIR_ERR_SYSTEM && !list));
            assert_true(status != WEIR_OK || list->count == wanted);
            weir_manifest_problems_destroy(list);
            assert_int_equal(taken, before);
            assert_true(!done || status == WEIR_OK);
        }
        assert_in_range(faults, 8, 1000);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_make, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(each_fault_of_a_read_is_told),
        TEST(each_fault_of_a_check_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
