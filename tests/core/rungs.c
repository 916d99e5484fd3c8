/* The ladder, rung by rung: what led to a block is counted; what is lent is counted; a refusal says what was in the way. */
#include "rungs.h"

/* Rungs ------------------------------------------------------------------------------------------------------------ */

static void create_and_fit(void **state)
{
    static const char *const resources[] = {"mapped", "segments"};
    (void)state;
    for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
        fixture f = start(resources[i]);
        weir_stats last = take_snapshot(f.runtime).device;
        void *p = allocate(f.one, QUARTER, f.a, WEIR_CLASS_KV);
        came_by(WEIR_RUNG_CREATE);
        ok(weir_free(f.one, p, WEIR_STREAM_HOST));
        p = allocate(f.one, QUARTER, f.a, WEIR_CLASS_KV);
        came_by(WEIR_RUNG_FIT);
        assert_int_equal(last.lent_clients + last.lent_streams, 0);
        ok(weir_free(f.one, p, WEIR_STREAM_HOST));
        end(&f);
    }
}

static void a_request_flushes_thread_caches(void **state)
{
    (void)state;
    ok(weir_option_set("thread_cache", "1MiB"));
    fixture f = start("mapped");
    ok(weir_option_set("thread_cache", NULL));
    ok(weir_free(f.one, allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV), f.a));
    void *p = allocate(f.two, 20000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_stats last = take_snapshot(f.runtime).device;
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    assert_true(take_snapshot(f.runtime).device.thread_cached > 0);
    p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_THREAD_CACHED);
    ok(weir_free(f.one, p, f.a));
    end(&f);
}

static void what_has_passed_meanwhile(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = {.struct_size = sizeof last};
    size_t ignored;
    wi_ledger_snapshot(&f.runtime->ledger, &last, NULL, 0, 0, &ignored); /* a look at more would find it first */
    ok(take_at_once(f.one, BUDGET, WEIR_STREAM_HOST, &p));
    came_by(WEIR_RUNG_COMPLETED);
    assert_int_equal(last.lent_streams, BUDGET);
    assert_int_equal(last.lent_clients, 0);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    end(&f);
}

static void spare_handles(void **state)
{
    (void)state;
    fixture f = start_over(&faulty_driver, BUDGET);
    void *p;
    fault.fail_at = fault.calls + 1; /* after the create comes the map */
    fails(WEIR_ERR_DRIVER, weir_alloc(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_int_equal(last.spare, QUARTER);
    p = allocate(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_SPARE);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    end(&f);
}

static void moved_handles(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *blocks[GRANULES];
    for (int i = 0; i < GRANULES; i++)
        blocks[i] = allocate(f.one, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (int i = 0; i < GRANULES; i += 2)
        ok(weir_free(f.one, blocks[i], WEIR_STREAM_HOST));
    weir_stats last = take_snapshot(f.runtime).device;
    void *p = allocate(f.two, 3 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_REMAP);
    assert_int_equal(last.lent_clients, 0); /* it took the driver */
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    for (int i = 1; i < GRANULES; i += 2)
        ok(weir_free(f.one, blocks[i], WEIR_STREAM_HOST));
    end(&f);
}

/* Two holes with something free between them take two handles, the end of all memory would take three. */
static void holes_are_filled_before_memory_wanders(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *blocks[GRANULES];
    static const int moved[] = {0, 2}, idle[] = {1, 5, 7, 9};
    for (int i = 0; i < GRANULES; i++)
        blocks[i] = allocate(f.one, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (size_t i = 0; i < 2; i++)
        ok(weir_free(f.one, blocks[moved[i]], WEIR_STREAM_HOST));
    void *at_the_end = allocate(f.one, 2 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (size_t i = 0; i < 4; i++)
        ok(weir_free(f.one, blocks[idle[i]], WEIR_STREAM_HOST));
    uint64_t before = take_snapshot(f.runtime).device.moved;
    void *p = allocate(f.one, 3 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, blocks[0]);
    assert_int_equal(take_snapshot(f.runtime).device.moved - before, 2);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    ok(weir_free(f.one, at_the_end, WEIR_STREAM_HOST));
    for (int i = 3; i < GRANULES; i++)
        if (i != 5 && i != 7 && i != 9)
            ok(weir_free(f.one, blocks[i], WEIR_STREAM_HOST));
    end(&f);
}

static void what_adaptors_keep_back(void **state)
{
    (void)state;
    fixture f = start("guard(zone=256, quarantine=16MiB, mapped)");
    ok(weir_free(f.one, allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    weir_stats last = take_snapshot(f.runtime).device;
    assert_true(last.pending >= HALF);
    void *p = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_KEPT_RELEASED);
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    end(&f);
}

static void what_is_waited_for(void **state)
{
    (void)state;
    fixture f = start("mapped");
    pthread_t opener;
    void *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    hold(&f, f.a, p, 1, 256);
    free_behind(f.one, p, f.a);
    weir_stats last = take_snapshot(f.runtime).device;
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    p = allocate(f.two, BUDGET, f.b, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_WAIT);
    pthread_join(opener, NULL);
    assert_int_equal(last.lent_clients, BUDGET);
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    end(&f);
}

/* Its bytes count for nobody any more, and still are in the order of a stream that the request is not on. */
static void what_has_yet_to_pass_is_waited_for(void **state)
{
    (void)state;
    fixture f = start("mapped");
    pthread_t opener;
    void *p = allocate(f.one, BUDGET, f.a, WEIR_CLASS_KV);
    hold(&f, f.a, p, 1, 256);
    ok(weir_free(f.one, p, f.a));
    weir_stats last = take_snapshot(f.runtime).device;
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    p = allocate(f.two, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    came_by(WEIR_RUNG_WAIT);
    pthread_join(opener, NULL);
    ok(weir_free(f.two, p, WEIR_STREAM_HOST));
    end(&f);
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

static void bytes_that_only_time_keeps_back(void **state)
{
    (void)state;
    fixture f = start("mapped");
    void *p = allocate(f.one, HALF, f.a, WEIR_CLASS_KV),
         *rest = allocate(f.one, QUARTER, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
    hold(&f, f.a, p, 1, HALF);
    ok(weir_free(f.one, p, f.a));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF, WEIR_STREAM_HOST, &q));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
    assert_int_equal(r.largest, QUARTER);                                                     /* at once */
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF + QUARTER, WEIR_STREAM_HOST, &q)); /* with what is there */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    ok(take_at_once(f.two, QUARTER, WEIR_STREAM_HOST, &q));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, BUDGET, WEIR_STREAM_HOST, &p)); /* time would not help */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    ok(weir_free(f.one, rest, WEIR_STREAM_HOST));
    let_go(&f, f.a);
    end(&f);
}

static void note_shortfall(const weir_pressure *pressure, void *user)
{
    *(uint64_t *)user = pressure->shortfall;
}

/* The budget would allow more than the device has. */
static void bytes_that_another_process_has(void **state)
{
    (void)state;
    fixture f = start_over(&faulty_driver, 4 * BUDGET);
    fault.limit = GRANULES;
    void *p = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV),
         *rest = allocate(f.one, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    void *q;
    ok(weir_free(f.one, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.two, HALF + 1, WEIR_STREAM_HOST, &q));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(r.largest, HALF);
    uint64_t shortfall = 0, id;
    ok(weir_pressure_register(f.runtime, 0, note_shortfall, &shortfall, &id));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.two, HALF + GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(shortfall, GRANULE); /* of one piece, and not of the budget */
    ok(weir_pressure_unregister(f.runtime, id));
    ok(take_at_once(f.two, r.largest, WEIR_STREAM_HOST, &q));
    ok(weir_free(f.two, q, WEIR_STREAM_HOST));
    ok(weir_free(f.one, rest, WEIR_STREAM_HOST));
    end(&f);
}

static void rungs_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_RUNG_COUNT; i++)
        assert_string_not_equal(weir_name_of(WEIR_NAMES_RUNG, i), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_RUNG, WEIR_RUNG_ORDER), "order");
    assert_string_equal(weir_name_of(WEIR_NAMES_RUNG, WEIR_RUNG_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_and_fit),
        cmocka_unit_test(a_request_flushes_thread_caches),
        cmocka_unit_test(what_has_passed_meanwhile),
        cmocka_unit_test(spare_handles),
        cmocka_unit_test(moved_handles),
        cmocka_unit_test(holes_are_filled_before_memory_wanders),
        cmocka_unit_test(what_adaptors_keep_back),
        cmocka_unit_test(what_is_waited_for),
        cmocka_unit_test(what_has_yet_to_pass_is_waited_for),
        cmocka_unit_test(bytes_that_only_time_keeps_back),
        cmocka_unit_test(bytes_that_another_process_has),
        cmocka_unit_test(rungs_have_names),
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* no thread cache keeps what is freed, but where a test asks for it */
    return cmocka_run_group_tests_name("rungs", tests, NULL, NULL);
}
