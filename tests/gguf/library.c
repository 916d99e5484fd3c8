/* library.c: which llama.cpp is taken and which refused. In a process of its own, since the first one taken stays. */
#include "common.h"
#include <weir/engine.h>

#include <sys/stat.h>
#include <unistd.h>

static char model_path[64], folder[64];

static void put_file(const char *name, const char *content)
{
    char full[128];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(content, file);
    fclose(file);
}

static weir_status load_with(bench *it, const char *where)
{
    weir_engine_model *model = NULL;
    weir_setting setting = {"llama", where};
    weir_status status = bench_load(it, &setting, 1, &model);
    if (status == WEIR_OK)
        it->engine->unload(model);
    return status;
}

/* Before anything asks for the store's own library. */
static void test_others_are_refused(void **state)
{
    (void)state;
    bench it = {0};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    if (weir_engine_get("gguf", &it.engine) != WEIR_OK)
        the_engine();
    client.name = "model";
    options.budget = 64 << 20;
    OK(weir_runtime_create("host", &options, &it.runtime));
    OK(weir_client_create(it.runtime, &client, &it.client));
    it.load = WEIR_INIT(weir_engine_load);
    it.load.path = model_path;

    assert_int_equal(load_with(&it, folder), WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(weir_detail(), folder));
    assert_non_null(strstr(weir_detail(), "scripts/engines"));

    put_file("libllama.so", "");
    put_file("commit", "commit=feedfacecafe0000\n");
    assert_int_equal(load_with(&it, folder), WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(weir_detail(), "feedfacecafe"));
    assert_non_null(strstr(weir_detail(), "0c1e57098bba"));

    put_file("commit", "commit=0c1e57098bba43ac29e6e3b677cdceebdd22334f\n");
    assert_int_equal(load_with(&it, folder), WEIR_ERR_ENGINE);
    bench_close(&it);
}

static void test_the_right_one_stays(void **state)
{
    (void)state;
    char store[512];
    bench it = bench_open(model_path, 64 << 20);
    snprintf(store, sizeof store, "%s/engines/llama/current", WEIR_TEST_STORE);
    OK(load_with(&it, ""));
    OK(load_with(&it, store));
    assert_int_equal(load_with(&it, folder), WEIR_ERR_CONFLICT);
    assert_non_null(strstr(weir_detail(), folder));
    bench_close(&it);
}

int main(void)
{
    char command[128];
    snprintf(model_path, sizeof model_path, "/tmp/weir-library-%d.gguf", (int)getpid());
    snprintf(folder, sizeof folder, "/tmp/weir-library-%d", (int)getpid());
    mkdir(folder, 0700);
    write_llama(model_path, &small_shape);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_others_are_refused),
                                       cmocka_unit_test(test_the_right_one_stays)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(model_path);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 ? 1 : failed;
}
