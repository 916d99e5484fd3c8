/* How the cuda driver starts and ends: without its library, with one that lacks a function, with other devices than asked
 * for, and in a process that is ending. Each case is a process of its own, so that what one loads is not there in the next:
 * the test runs itself again with a case's name. */
#include "info.h"
#include "driver/device.h"
#include "test_places.h"

#include <weir/weir.h>

#include <dlfcn.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child; the first failed expectation ends it. */
#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static weir_status get(const char *device, weir_runtime **runtime)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 64u << 20;
    return weir_runtime_get(device, &options, runtime);
}

/* Cases ------------------------------------------------------------------------------------------------------------ */

/* LD_LIBRARY_PATH is an empty directory, in which the library appears bit by bit. */
static void case_installed_later(void)
{
    char link[512];
    weir_runtime *runtime;
    snprintf(link, sizeof link, "%s/libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    expect(get("cuda:0", &runtime) == WEIR_ERR_NOT_FOUND);
    expect(strstr(weir_detail(), "libcuda.so.1"));
    expect(strstr(weir_detail(), "install the NVIDIA driver"));
    expect(symlink(built_path("stub/lacking/libcuda.so.1"), link) == 0);
    for (int i = 0; i < 2; i++) {
        expect(get("cuda:0", &runtime) == WEIR_ERR_NOT_FOUND);
        expect(strstr(weir_detail(), "cuMemSetAccess"));
    }
    expect(unlink(link) == 0 && symlink(built_path("stub/cuda/libcuda.so.1"), link) == 0);
    expect(get("cuda:0", &runtime) == WEIR_OK);
    weir_runtime *again;
    expect(get("cuda", &again) == WEIR_OK && again == runtime);
    expect(unlink(link) == 0);
}

static void case_ordinals(void)
{
    weir_runtime *runtime;
    expect(get("cuda:2", &runtime) == WEIR_ERR_NOT_FOUND);
    expect(strstr(weir_detail(), "cuda:2") && strstr(weir_detail(), "2 CUDA devices"));
    expect(get("cuda:63", &runtime) == WEIR_ERR_NOT_FOUND);
    expect(get("cuda:64", &runtime) == WEIR_ERR_NOT_FOUND && strstr(weir_detail(), "64"));
    expect(get("cuda:9999", &runtime) == WEIR_ERR_NOT_FOUND);
    expect(get("cuda:12345", &runtime) == WEIR_ERR_INVALID);
    expect(get("cuda:", &runtime) != WEIR_OK || runtime);
    expect(get("cuda:-1", &runtime) == WEIR_ERR_INVALID);
    expect(get("cuda:1", &runtime) == WEIR_OK && runtime_details(runtime).ordinal == 1);
    expect(strcmp(runtime_details(runtime).device, "cuda:1") == 0);
}

static void case_many_devices(void)
{
    weir_runtime *runtime;
    expect(get("cuda:63", &runtime) == WEIR_OK && runtime_details(runtime).ordinal == 63);
    expect(get("cuda:64", &runtime) == WEIR_ERR_NOT_FOUND);
}

static void case_no_device(void)
{
    weir_runtime *runtime;
    expect(get("cuda:0", &runtime) == WEIR_ERR_NOT_FOUND);
    expect(strstr(weir_detail(), "CUDA_ERROR_NO_DEVICE"));
}

static void case_unmanaged(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64u << 20, .resource = "mapped"};
    weir_runtime *runtime;
    weir_client *client;
    void *p;
    expect(weir_runtime_create("cuda:0", &options, &runtime) == WEIR_ERR_UNSUPPORTED);
    expect(strstr(weir_detail(), "virtual-memory management"));
    expect(get("cuda:0", &runtime) == WEIR_OK);
    expect(strcmp(runtime_details(runtime).resource, "budget(segments)") == 0);
    expect(weir_client_create(runtime, &(weir_client_options){.struct_size = sizeof(weir_client_options), .name = "x"},
                              &client) == WEIR_OK);
    expect(weir_alloc(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_OK);
    expect(weir_free(client, p, WEIR_STREAM_HOST) == WEIR_OK);
    expect(weir_client_destroy(client) == WEIR_OK);
}

/* STUB_CUDA_FAIL makes the first cuInit fail: a failed start leaves nothing, and the next call tries again. */
static void case_second_try(void)
{
    weir_runtime *runtime;
    expect(get("cuda:0", &runtime) == WEIR_ERR_DRIVER && !runtime);
    expect(strstr(weir_detail(), "cuInit"));
    expect(get("cuda:0", &runtime) == WEIR_OK);
}

/* Once exit has begun: what a program's own exit handlers and destructors call must not reach the driver. */
static struct {
    weir_runtime *runtime, *other;
    weir_client *client;
    weir_stream stream;
    void *block, *second;
    gate gate;
} ending;

static void call_everything(void)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_client *client;
    weir_stream stream;
    void *block;
    char byte = 0;
    control.stub_forbid();
    expect(weir_free(ending.client, ending.block, ending.stream) == WEIR_OK);
    expect(weir_free(ending.client, ending.second, WEIR_STREAM_HOST) == WEIR_OK);
    expect(weir_alloc(ending.client, 32u << 20, ending.stream, WEIR_CLASS_OTHER, &block) != WEIR_OK);
    expect(weir_fill(ending.runtime, ending.block, 1, 1, ending.stream) == WEIR_ERR_DRIVER);
    expect(weir_copy(ending.runtime, &byte, ending.block, 1, WEIR_STREAM_HOST) == WEIR_ERR_DRIVER);
    expect(weir_call(ending.runtime, hold, &ending.gate, ending.stream) == WEIR_ERR_DRIVER);
    expect(weir_stream_synchronize(ending.stream) == WEIR_ERR_DRIVER);
    expect(weir_stream_acquire(ending.runtime, &stream) == WEIR_ERR_DRIVER);
    expect(weir_snapshot(ending.runtime, &stats, NULL, 0, NULL) == WEIR_OK);
    expect(stats.live == 0 && stats.pending == 0);
    expect(weir_runtime_trim(ending.runtime, NULL, NULL) == WEIR_OK);
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "late";
    expect(weir_client_create(ending.runtime, &options, &client) == WEIR_OK);
    expect(weir_client_destroy(client) == WEIR_OK);
    expect(weir_client_destroy(ending.client) == WEIR_OK);
    expect(get("cuda:1", &ending.other) == WEIR_ERR_DRIVER);
    expect(strstr(weir_detail(), "ending"));
}

static void case_exit(void)
{
    expect(atexit(call_everything) == 0); /* before weir's own, so that it runs after that */
    expect(get("cuda:0", &ending.runtime) == WEIR_OK);
    expect(find_controls());
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "ending";
    expect(weir_client_create(ending.runtime, &options, &ending.client) == WEIR_OK);
    expect(weir_stream_acquire(ending.runtime, &ending.stream) == WEIR_OK);
    expect(weir_alloc(ending.client, 8u << 20, ending.stream, WEIR_CLASS_OTHER, &ending.block) == WEIR_OK);
    expect(weir_alloc(ending.client, 1000, ending.stream, WEIR_CLASS_WEIGHTS, &ending.second) == WEIR_OK);
    expect(weir_call(ending.runtime, hold, &ending.gate, ending.stream) == WEIR_OK);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"installed-later", case_installed_later},
    {"ordinals", case_ordinals},
    {"many-devices", case_many_devices},
    {"no-device", case_no_device},
    {"unmanaged", case_unmanaged},
    {"second-try", case_second_try},
    {"exit", case_exit},
};

/* The tests -------------------------------------------------------------------------------------------------------- */

static void expect_child(const char *name, const char *libraries, const char *setting)
{
    char path[600], copy[64], *arguments[] = {(char *)"test-driver-start", (char *)name, NULL};
    char *environment[256];
    size_t count = 0;
    pid_t child;
    int status = 0;
    for (char **e = environ; *e && count < 250; e++)
        if (strncmp(*e, "LD_LIBRARY_PATH=", 16) != 0 && strncmp(*e, "STUB_CUDA_", 10) != 0)
            environment[count++] = *e;
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", libraries);
    snprintf(copy, sizeof copy, "%s", setting ? setting : "STUB_CUDA_DEVICES=2");
    environment[count++] = path;
    environment[count++] = copy;
    environment[count] = NULL;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environment), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: %s %d", name, WIFEXITED(status) ? "exit status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void test_a_library_installed_later(void **state)
{
    (void)state;
    char directory[] = "/tmp/weir-start-XXXXXX";
    void *here = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (here) { /* and would be found before it is installed */
        dlclose(here);
        skip();
    }
    assert_non_null(mkdtemp(directory));
    expect_child("installed-later", directory, NULL);
    assert_int_equal(rmdir(directory), 0);
}

static void test_ordinals(void **state)
{
    (void)state;
    expect_child("ordinals", built_path("stub/cuda"), NULL);
    expect_child("many-devices", built_path("stub/cuda"), "STUB_CUDA_DEVICES=70");
}

static void test_no_device(void **state)
{
    (void)state;
    expect_child("no-device", built_path("stub/cuda"), "STUB_CUDA_DEVICES=0");
}

static void test_no_virtual_memory_management(void **state)
{
    (void)state;
    expect_child("unmanaged", built_path("stub/cuda"), "STUB_CUDA_UNMANAGED=1");
}

static void test_a_failed_start_is_tried_again(void **state)
{
    (void)state;
    expect_child("second-try", built_path("stub/cuda"), "STUB_CUDA_FAIL=cuInit:1:999");
}

static void test_no_call_once_exit_has_begun(void **state)
{
    (void)state;
    expect_child("exit", built_path("stub/cuda"), NULL);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    const struct CMUnitTest start[] = {
        cmocka_unit_test(test_a_library_installed_later),
        cmocka_unit_test(test_ordinals),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_no_virtual_memory_management),
        cmocka_unit_test(test_a_failed_start_is_tried_again),
        cmocka_unit_test(test_no_call_once_exit_has_begun),
    };
    return cmocka_run_group_tests(start, NULL, NULL);
}
