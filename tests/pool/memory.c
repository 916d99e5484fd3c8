/* Admission without host memory, at each place where some is asked for: the call fails, or works all the same; nothing is
 * lost, and the next call goes on. */
#include "pool/bed.h"
#include "pool/admission.h"

#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

static _Thread_local long blocks;    /* blocks, less those given back, of this thread */
static _Thread_local long left = -1; /* requests that are met; -1: all */

static bool fails_now(void)
{
    return left >= 0 && left-- == 0;
}

static void *counted(void *block)
{
    blocks += block != NULL;
    return block;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : counted(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fails_now())
        return NULL;
    void *block = __real_realloc(old, bytes);
    return old ? block : counted(block);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *block)
{
    blocks -= block != NULL;
    __real_free(block);
}

/* The state machine ------------------------------------------------------------------------------------------------ */

enum { MODELS = 20, REQUESTS = 150 }; /* more than its tables have at first */

static void take_all(wp_admission *it)
{
    for (wp_action action; wp_next(it, &action);)
        if (action.kind == WP_LOAD)
            wp_loaded(it, 1, action.model, true, action.bytes, 0);
        else if (action.kind == WP_UNLOAD)
            wp_unloaded(it, 1, action.model, 0);
        else if (action.kind == WP_GRANT)
            wp_done(it, 1, action.answer.ticket);
    assert_true(wp_invariants(it));
}

/* Answers how many calls failed; *all: none had to. */
static long decide_without(long nth, bool *all)
{
    const wp_limits limits = {.queue = 1000, .queue_bytes = WP_FOREVER, .longest = WP_FOREVER, .host = WP_FOREVER};
    long failed = 0;
    left = nth;
    wp_admission *it = wp_admission_create(&limits, 2);
    if (!it) {
        left = -1;
        return 1;
    }
    for (uint32_t d = 0; d < 2; d++)
        wp_ceiling(it, 1, d, 100);
    for (uint32_t i = 0; i < MODELS; i++) {
        wp_spec spec = {
            .device = i % 2, .variants[0] = {.peak = 60, .resident = 60}, .variant_count = 1, .may_evict = true};
        wp_model model;
        spec.keep_alive = spec.suspend_after = WP_FOREVER;
        if (!wp_add(it, 1, &spec, &model)) {
            failed++;
            assert_true(wp_invariants(it));
            assert_true(wp_add(it, 1, &spec, &model));
        }
        assert_int_equal(model, i);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        wp_request request = {.model = i % MODELS, .bytes = i % 7, .deadline = WP_FOREVER};
        wp_answer answer = wp_ask(it, 1, &request);
        if (answer.cause == WP_QUEUE_FULL) {
            failed++;
            assert_true(answer.ticket == 0 && wp_invariants(it));
            answer = wp_ask(it, 1, &request);
        }
        assert_true(answer.ticket > 0);
        if (answer.cause == WP_GRANTED)
            wp_done(it, 1, answer.ticket);
    }
    *all = left >= 0;
    left = -1;
    take_all(it);
    for (uint32_t i = 0; i < MODELS; i++)
        assert_true(wp_see(it, i).waiting == 0 && wp_see(it, i).running == 0); /* each had its turn */
    wp_admission_destroy(it);
    return failed;
}

static void the_machine_without_memory(void **state)
{
    (void)state;
    long failures = 0, before = blocks;
    bool all = false;
    for (long nth = 0; !all; nth++) {
        long failed = decide_without(nth, &all);
        assert_true(failed <= 1 && (failed == 1) != all); /* nothing has failed in silence */
        failures += failed;
        assert_int_equal(blocks, before);
    }
    assert_true(failures >= 12);
}

/* The pool --------------------------------------------------------------------------------------------------------- */

static bed b;

/* Each call of a model's life, with the nth request for memory refused; whether one was. */
static bool call_without(long nth, int which, weir_status *status)
{
    weir_pool_request request = request_of("a");
    weir_pool_spec spec = spec_of("a", MIB);
    weir_lease *l = NULL;
    weir_pool_entry entries[4];
    size_t count;
    entries[0].struct_size = sizeof entries[0];
    request.bytes = 4096;
    spec.version = "2";
    left = nth;
    switch (which) {
    case 0:
        *status = weir_pool_acquire(b.pool, &request, NULL, &l);
        break;
    case 1:
        *status = weir_pool_add(b.pool, &spec);
        break;
    case 2:
        *status = weir_pool_unload(b.pool, "a", 0, NULL);
        break;
    case 3:
        *status = weir_pool_list(b.pool, entries, 4, &count);
        break;
    default:
        *status = weir_pool_suspend(b.pool, "a", 0);
    }
    bool refused = left < 0;
    left = -1;
    if (l) {
        left = nth; /* the end of a lease cannot fail */
        weir_lease_release(l);
        left = -1;
    }
    return refused;
}

static void a_pool_without_memory(void **state)
{
    (void)state;
    enum { CALLS = 5, MOST = 400 };
    long failures = 0;
    for (int which = 0; which < CALLS; which++)
        for (long nth = 0, refused = 1; refused; nth++) {
            weir_status status;
            make_bed(&b, 10 * MIB, NULL);
            weir_pool_spec spec = spec_of("a", MIB);
            spec.version = "1";
            spec.engine = "pool-double";
            add_spec(&b, spec);
            ok(use(&b, "a"));
            refused = call_without(nth, which, &status);
            assert_true(status == WEIR_OK || status == WEIR_ERR_SYSTEM || (status == WEIR_ERR_BUSY && which == 0));
            assert_true(refused || status == WEIR_OK);
            failures += status != WEIR_OK;
            ok(use(&b, "a")); /* it goes on */
            assert_true(nth < MOST);
            end_bed(&b);
        }
    assert_true(failures >= 8);
}

static void making_without_memory(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_runtime *runtime = make_runtime_here(10 * MIB);
    weir_pool_device device = {NULL, runtime};
    options.devices = &device;
    options.device_count = 1;
    options.threads = 1;
    bool all = false;
    for (long nth = 0; !all; nth++) {
        weir_pool *pool = NULL;
        left = nth;
        weir_status status = weir_pool_create(&options, &pool);
        all = left >= 0;
        left = -1;
        assert_true(status == WEIR_OK || (status == WEIR_ERR_SYSTEM && !pool));
        if (pool)
            ok(weir_pool_destroy(pool));
    }
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_without_memory),
        cmocka_unit_test(a_pool_without_memory),
        cmocka_unit_test(making_without_memory),
    };
    register_engines();
    return cmocka_run_group_tests_name("pool-memory", tests, NULL, NULL);
}
