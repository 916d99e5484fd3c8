/* The limit that a refusal's sentence names, while other models allocate and free: never more than what all of them need at
 * their peaks, and never less than what this model and what is always there need. */
#include "../core/core.h"

#include "cli/cli.h"
#include "cli/run/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { OTHERS = 2, ROUNDS = 3000, CHUNK = 65536 };

static const size_t most[OTHERS] = {5 << 20, 3 << 20};
static const uint64_t whole = 40 << 20; /* of the model that is refused */

static weir_runtime *runtime;
static atomic_bool over;
static bool exact;

static weir_status plan(const weir_engine_load *load, weir_engine_plan *out)
{
    (void)load;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        out->exact[i] = exact;
    out->bytes[WEIR_CLASS_WEIGHTS] = whole;
    return WEIR_OK;
}

static const weir_engine engine = {.struct_size = sizeof engine, .name = "planned", .plan = plan};

const weir_engine *engine_for_file(const char *path)
{
    (void)path;
    return &engine;
}

int cli_fail(const char *format, ...)
{
    (void)format;
    return 1;
}

/* For threads, which cmocka cannot end. */
static void must(weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        abort();
    }
}

/* Holds one block all the time, and a second one now and then. */
static void *come_and_go(void *user)
{
    size_t index = (size_t)(uintptr_t)user;
    weir_client *client;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = index == 0 ? "first" : "second";
    must(weir_client_create(runtime, &options, &client));
    void *kept, *passing;
    must(weir_alloc(client, 1 << 20, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &kept));
    while (!atomic_load(&over)) {
        must(weir_alloc(client, most[index] - (1 << 20), WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &passing));
        must(weir_free(client, passing, WEIR_STREAM_HOST));
    }
    must(weir_free(client, kept, WEIR_STREAM_HOST));
    must(weir_client_destroy(client));
    return NULL;
}

/* Answers the number in the sentence about a request that is refused now. */
static uint64_t told(weir_client *client)
{
    run_model_args args = {.path = "model.planned", .name = "refused"};
    model_run m = {.args = &args, .path = args.path, .runtime = runtime};
    void *pointer;
    failure_note(&m.failed, weir_alloc(client, whole, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &pointer), "load");
    assert_int_equal(m.failed.refusal.cause, WEIR_CAUSE_BUDGET);
    suggestion_find(&m);
    assert_non_null(m.failed.suggestion);
    const char *option = strstr(m.failed.suggestion, "--budget ");
    assert_non_null(option);
    assert_true((strstr(m.failed.suggestion, "needs at least") == NULL) == exact);
    uint64_t number = strtoull(option + strlen("--budget "), NULL, 10);
    failure_clear(&m.failed);
    return number;
}

static void run_beside(bool knows)
{
    pthread_t threads[OTHERS];
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options named = WEIR_INIT(weir_client_options);
    weir_client *client;
    uint64_t peaks = 0;
    exact = knows;
    options.budget = 32 << 20;
    named.name = "refused";
    atomic_store(&over, false);
    ok(weir_runtime_create("host", &options, &runtime));
    ok(weir_client_create(runtime, &named, &client));
    for (size_t i = 0; i < OTHERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, (void *)(uintptr_t)i), 0);
        peaks += most[i] + 2 * CHUNK; /* its peak in whole chunks, and a chunk for small blocks */
    }
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t number = told(client);
        assert_true(number >= whole);
        assert_true(number <= whole + peaks);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < OTHERS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void test_all_of_it(void **state)
{
    (void)state;
    run_beside(true);
}

static void test_at_least(void **state)
{
    (void)state;
    run_beside(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_at_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
