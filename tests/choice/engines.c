/* The choice with the real engines and the demo's models: what they predict, and how long it takes. */
#include "core/core.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdio.h>

enum { TRIES = 5, MOST_READ = 64 << 10 }; /* what the machine says of itself, and no vocabulary */

static const char *const models[] = {"minilm.onnx", "minilm.gguf", "tiny-llama.gguf"};

static bool is_there(const char *path)
{
    return access(path, R_OK) == 0;
}

/* Of the process: others on the machine are none of it. Printed alone (docs/benchmarks.md). */
static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Bytes that the process has read from files by now. */
static uint64_t read_by_now(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");
    if (!file || fscanf(file, "rchar: %llu", &bytes) != 1)
        skip(); /* a kernel without the account */
    fclose(file);
    return bytes;
}

static void check_choice(const weir_choice *choice, const char *engine)
{
    if (choice->accepted != 1)
        print_error("%s\n", choice->rule);
    assert_int_equal(choice->accepted, 1);
    const weir_candidate *c = &choice->candidates[0];
    assert_string_equal(c->engine, engine);
    assert_true(c->predicted);
    assert_true(c->bytes[WEIR_CLASS_WEIGHTS] > 20 * MIB);
    assert_true(c->library[0] != '\0' && c->version[0] != '\0');
}

/* What a choice looks at is remembered, but for the model's own graph: later ones lay nothing out again, which takes
 * llama.cpp most of a tenth of a second, and find the same. */
static void one_model(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/models/%s", WEIR_TEST_STORE, name);
    const char *engine = strrchr(name, '.') + 1;
    weir_manifest manifest = {.struct_size = sizeof manifest, .path = "", .model_file = path};
    weir_choice_options options = {.struct_size = sizeof options, .provider = "cpu"};
    uint64_t bytes[WEIR_CLASS_COUNT];
    uint64_t cold = 0, warm = UINT64_MAX;
    double first = 0, best = 1e9;
    for (int i = 0; i <= TRIES; i++) {
        weir_choice *choice;
        uint64_t before = read_by_now();
        double begin = cpu_ms();
        ok(weir_choice_create(&manifest, &options, &choice));
        double ms = cpu_ms() - begin;
        first = i == 0 ? ms : first;
        best = i > 0 && ms < best ? ms : best;
        uint64_t took = read_by_now() - before;
        cold = i == 0 ? took : cold;
        warm = i > 0 && took < warm ? took : warm;
        check_choice(choice, engine);
        if (i == 0)
            memcpy(bytes, choice->candidates[0].bytes, sizeof bytes);
        assert_memory_equal(bytes, choice->candidates[0].bytes, sizeof bytes);
        weir_choice_destroy(choice);
    }
    print_message("%s: %.1f ms and %llu bytes read the first time, %.1f ms and %llu warm\n", name, first,
                  (unsigned long long)cold, best, (unsigned long long)warm);
    const char *sanitized = getenv("WEIR_TEST_SANITIZE"); /* which reads for itself, too */
    if (!sanitized || !*sanitized)
        assert_in_range(warm, 1, MOST_READ);
}

static void what_a_choice_costs(void **state)
{
    (void)state;
    const weir_engine *engine;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s", WEIR_TEST_STORE, models[i]);
        if (!is_there(path) || weir_engine_get(strrchr(models[i], '.') + 1, &engine) != WEIR_OK) {
            const char *require = getenv("WEIR_REQUIRE_ENGINES");
            if (require && strcmp(require, "1") == 0)
                fail_msg("WEIR_REQUIRE_ENGINES is set, and %s or its engine is not here", models[i]);
            print_message("%s, or its engine, is not here\n", models[i]);
            skip();
        }
        one_model(models[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_choice_costs)};
    setenv("WEIR_HOME", WEIR_TEST_STORE, 1);
    unsetenv("WEIR_BUDGET");
    return cmocka_run_group_tests_name("choice-engines", tests, NULL, NULL);
}
