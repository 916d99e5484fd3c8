/* A pool of two devices, each with a runtime and a budget of its own: WEIR_TEST_DEVICES names them. */
#include "pool/bed.h"

static bed b;
static char first[16], second[16];
#define BUDGET (16 * MIB)

static int begin(void **state)
{
    const char *names = getenv("WEIR_TEST_DEVICES");
    (void)state;
    assert_non_null(names);
    assert_int_equal(sscanf(names, "%15[^,],%15s", first, second), 2);
    make_bed_on(&b, BUDGET, NULL, (const char *const[]){first, second}, 2);
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_bed(&b);
    return 0;
}

static const char *others[1];

static weir_pool_spec either(const char *name, uint64_t weights)
{
    weir_pool_spec spec = spec_of(name, weights);
    others[0] = second;
    spec.devices = others;
    spec.device_count = 1;
    return spec;
}

static uint64_t held(weir_runtime *runtime)
{
    return take_snapshot(runtime).device.live;
}

static void it_goes_where_there_is_room(void **state)
{
    (void)state;
    add(&b, "a", 10 * MIB);
    add_spec(&b, either("b", 10 * MIB));
    ok(use(&b, "a"));
    ok(use(&b, "b"));
    assert_string_equal(entry_of(&b, "a").device, first);
    assert_string_equal(entry_of(&b, "b").device, second);
    in_state(&b, "a", WEIR_POOL_LOADED);
    assert_true(held(b.runtime) >= 10 * MIB && held(b.more[0]) >= 10 * MIB);
    /* what it comes back to is its own device, when that has room */
    ok(weir_pool_unload(b.pool, "a", 0, NULL));
    ok(weir_pool_unload(b.pool, "b", 0, NULL));
    assert_int_equal(held(b.more[0]), 0);
    ok(use(&b, "b"));
    assert_string_equal(entry_of(&b, "b").device, first);
    assert_non_null(strstr(b.lines, "> load model=1 variant=1 device=1"));
}

static void suspends_and_resumes_stay_on_the_device(void **state)
{
    (void)state;
    weir_pool_spec spec = either("b", 10 * MIB);
    spec.engine = "pool-double";
    add(&b, "a", 10 * MIB);
    add_spec(&b, spec);
    ok(use(&b, "a"));
    ok(use(&b, "b"));
    ok(weir_pool_suspend(b.pool, "b", 0));
    ok(weir_pool_unload(b.pool, "a", 0, NULL));
    ok(use(&b, "b"));
    assert_string_equal(entry_of(&b, "b").device, second);
    assert_int_equal(entry_of(&b, "b").resumes, 1);
}

static void what_is_too_large_for_both_is_refused(void **state)
{
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_request request = request_of("b");
    weir_lease *l;
    (void)state;
    add_spec(&b, either("b", 20 * MIB));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, &answer, &l));
    assert_int_equal(answer.cause, WEIR_POOL_NEVER_FITS);
}

static void wrong_devices_and_steps(void **state)
{
    static const weir_pool_step twice[] = {WEIR_POOL_STEP_EVICT, WEIR_POOL_STEP_EVICT},
                                middle[] = {WEIR_POOL_STEP_WAIT, WEIR_POOL_STEP_EVICT},
                                none[] = {WEIR_POOL_STEP_EVICT, WEIR_POOL_STEP_WAIT},
                                context[] = {WEIR_POOL_STEP_CONTEXT};
    weir_pool_spec spec = either("b", MIB);
    (void)state;
    others[0] = first;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    detail_names("given twice");
    others[0] = "cuda:63";
    fails(WEIR_ERR_NOT_FOUND, weir_pool_add(b.pool, &spec));
    others[0] = second;
    spec.gives_up = twice, spec.gives_up_count = 2;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    detail_names("\"evict\" comes twice");
    spec.gives_up = middle;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    detail_names("\"wait\" is not the last");
    spec.gives_up = none;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    detail_names("does not list \"device\"");
    spec.gives_up = context, spec.gives_up_count = 1;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    detail_names("needs a variant");
}

/* In random order, from several threads, with loads that fail: nothing is left, and no device has more than its budget. */
enum { ROUNDS = 60, THREADS = 4 };

static void *ask_at_random(void *user)
{
    unsigned seed = (unsigned)(uintptr_t)user;
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < ROUNDS; i++) {
        weir_pool_request request = request_of(names[rand_r(&seed) % 4]);
        weir_lease *l = NULL;
        request.bytes = (uint64_t)(rand_r(&seed) % 2) * MIB;
        if (weir_pool_acquire(b.pool, &request, NULL, &l) == WEIR_OK) {
            infer_in(l);
            weir_lease_release(l);
        }
    }
    return NULL;
}

static void several_threads_on_two_devices(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    add_spec(&b, either("a", 9 * MIB));
    add_spec(&b, either("b", 7 * MIB));
    add_spec(&b, either("c", 8 * MIB));
    add_spec(&b, either("d", 5 * MIB));
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_at_random, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weir_pool_usage usage = WEIR_INIT(weir_pool_usage);
    for (size_t d = 0; d < 2; d++) {
        ok(weir_pool_usage_info(b.pool, d, &usage));
        assert_true(usage.taken <= usage.ceiling);
        assert_true(take_snapshot(d ? b.more[0] : b.runtime).device.peak <= BUDGET);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_goes_where_there_is_room, begin, end),
        cmocka_unit_test_setup_teardown(suspends_and_resumes_stay_on_the_device, begin, end),
        cmocka_unit_test_setup_teardown(what_is_too_large_for_both_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(wrong_devices_and_steps, begin, end),
        cmocka_unit_test_setup_teardown(several_threads_on_two_devices, begin, end),
    };
    register_engines();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
