/* The system's ONNX Runtime beside the store's: both have the same name inside, and both are there. */
#include "common.h"

#include "test_places.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

#include "onnx/engine/foresee.h"

static const char *cache_path; /* that is read as the dynamic linker's cache; NULL: the system's */

int __real_open(const char *path, int flags, ...);
__attribute__((visibility("default"))) int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return __real_open(cache_path && strcmp(path, "/etc/ld.so.cache") == 0 ? cache_path : path, flags, mode);
}

static void the_systems_own_is_found_behind_the_stores(void **state)
{
    (void)state;
    const onnx_library *store, *system;
    char real[PATH_MAX];
    assert_ok(onnx_library_get(ONNX_CPU, &store));
    assert_ok(onnx_library_look(ONNX_ROCM, &system));
    assert_ptr_not_equal(system, store);
    assert_int_equal(system->has[ONNX_ROCM], 1u << 1); /* the second of its kinds */
    assert_string_equal(system->version, "1.30.0");
    assert_non_null(realpath(built_path("tests/system/libonnxruntime.so.1"), real));
    char *its = realpath(system->path, NULL);
    assert_non_null(its);
    assert_string_equal(its, real);
    free(its);
    assert_string_not_equal(store->version, system->version);
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider(ONNX_ROCM, &found)); /* by the file that is asked for */
    assert_int_equal(found.state, WEIR_PROVIDER_NOT_LOADABLE);
    assert_non_null(strstr(found.missing, "libonnxruntime_providers_rocm.so is not beside ONNX Runtime 1.30.0"));
}

/* As the dynamic linker has it: it read LD_LIBRARY_PATH at the start. */
static void later_paths_are_not_heeded(void **state)
{
    (void)state;
    char path[512];
    assert_true(onnx_needs_find("libonnxruntime.so.1", path, sizeof path));
    assert_string_equal(path, built_path("tests/system/libonnxruntime.so.1"));
    assert_false(onnx_needs_find("libonnxruntime.so.1", path, 4));
    assert_false(onnx_needs_find("libnobody.so.1", path, sizeof path));
    assert_true(onnx_needs_find("libm.so.6", path, sizeof path));
    unsetenv("LD_LIBRARY_PATH");
    assert_true(onnx_needs_find("libonnxruntime.so.1", path, sizeof path));
    setenv("LD_LIBRARY_PATH", built_path("tests/needs/there"), 1);
    assert_false(onnx_needs_find("libonnx-needed.so.3", path, sizeof path));
    assert_null(dlopen("libonnx-needed.so.3", RTLD_LAZY)); /* nor does it itself */
    (void)dlerror();
    unsetenv("LD_LIBRARY_PATH");
}

/* Versions are told in the order in which the places are looked through: LD_LIBRARY_PATH before the library's own RUNPATH, and behind
 * its RPATH. */
static void places_are_looked_through_in_order(void **state)
{
    char text[256];
    (void)state;
    assert_int_equal(onnx_needs_missing(built_path("tests/needs/libonnx-needing.so"), NULL, text, sizeof text), 1);
    assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.1, libonnx-needed.so.2)");
    assert_int_equal(onnx_needs_missing(built_path("tests/needs/libonnx-needing-before.so"), NULL, text, sizeof text),
                     1);
    assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.2, libonnx-needed.so.1)");
}

/* A cache of these names and paths, as glibc lays it out; NULL: a text that is not in the file. It ends behind so many bytes. */
typedef struct cached {
    const char *name, *path;
} cached;

static void write_cache(const char *magic, const cached *list, size_t count, size_t claimed, size_t most)
{
    enum { HEADER = 48, ENTRY = 24 };
    static char bytes[4096];
    uint32_t number = (uint32_t)claimed;
    size_t size = HEADER + count * ENTRY;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, magic, 20);
    memcpy(bytes + 20, &number, sizeof number);
    for (size_t i = 0; i < 2 * count; i++) {
        const char *text = i % 2 ? list[i / 2].path : list[i / 2].name;
        uint32_t at = text ? (uint32_t)size : UINT32_MAX;
        memcpy(bytes + HEADER + i / 2 * ENTRY + 4 + i % 2 * 4, &at, sizeof at);
        if (text)
            size += (size_t)snprintf(bytes + size, sizeof bytes - size, "%s", text) + 1;
        assert_true(size < sizeof bytes);
    }
    FILE *out = fopen(cache_path, "wb");
    assert_non_null(out);
    size = size < most ? size : most;
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

/* What the dynamic linker's cache has is found there by the whole name, and other versions are told; one that is damaged or of
 * another form has nothing. */
static void the_linkers_cache_is_read(void **state)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    char cache[512], library[512], path[512], text[256];
    const char *needing = built_path("tests/needs/libonnx-needing.so");
    (void)state;
    snprintf(cache, sizeof cache, "%s", built_path("tests/cache-%d", (int)getpid()));
    snprintf(library, sizeof library, "%s", built_path("tests/needs/there/libonnx-needed.so.3"));
    const cached list[] = {{NULL, library},
                           {"libcached.so.4", NULL},
                           {"libcached.so.4", "/nowhere/libcached.so.4"},
                           {"libcached.so.40", "/nowhere/libcached.so.40"},
                           {"libcached.so.4", library},
                           {"libcached.so.6", library}};
    cache_path = cache;
    write_cache(magic, list, 6, 6, SIZE_MAX);
    assert_true(onnx_needs_find("libcached.so.4", path, sizeof path));
    assert_string_equal(path, library);
    assert_true(onnx_needs_find("libcached.so.6", path, sizeof path));
    assert_false(onnx_needs_find("libcached.so", path, sizeof path));
    assert_false(onnx_needs_find("libcached.so.40", path, sizeof path)); /* which is not where the cache has it */
    assert_int_equal(onnx_needs_missing(needing, "libcached.so.5", text, sizeof text), 2);
    assert_non_null(strstr(text, "libcached.so.5 (found libcached.so.4, libcached.so.40, libonnx-needed.so.3)"));
    write_cache(magic, list, 6, 5, SIZE_MAX);
    assert_true(onnx_needs_find("libcached.so.4", path, sizeof path));
    assert_false(onnx_needs_find("libcached.so.6", path, sizeof path));
    write_cache(magic, list, 6, UINT32_MAX, SIZE_MAX);
    assert_true(onnx_needs_find("libcached.so.6", path, sizeof path));
    assert_false(onnx_needs_find("libcached.so.7", path, sizeof path));
    for (size_t size = 1; size < 48 + 6 * 24; size += 7) { /* without its texts, and then its entries */
        write_cache(magic, list, 6, 6, size);
        assert_false(onnx_needs_find("libcached.so.6", path, sizeof path));
    }
    write_cache("glibc-ld.so.cache1.0", list, 6, 6, SIZE_MAX);
    assert_false(onnx_needs_find("libcached.so.6", path, sizeof path));
    cache_path = NULL;
    assert_int_equal(unlink(cache), 0);
    assert_false(onnx_needs_find("libcached.so.6", path, sizeof path));
}

int main(void)
{
    int status = need_onnxruntime();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_systems_own_is_found_behind_the_stores),
        cmocka_unit_test(places_are_looked_through_in_order),
        cmocka_unit_test(the_linkers_cache_is_read),
        cmocka_unit_test(later_paths_are_not_heeded),
    };
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
