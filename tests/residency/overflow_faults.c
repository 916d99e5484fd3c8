/* Weights that begin in memory of the host's, with calls of the driver, or of malloc, that fail: a refused request changes nothing. */
#include "core/faulty.h"

#define HEAP_REFUSES refuse_malloc()
#include "core/heap.h"
#include "residency/residency.h"

#include "runtime/runtime.h"

enum { GRANULES = 16, HOST_GRANULES = 64, LONG = 5 * (int)GRANULE + 300 };

typedef struct scene {
    weir_runtime *runtime, *host;
    weir_client *model, *other;
    void *first, *taken;
} scene;

static long fails_at = -1, failures;

static void open_scene(scene *s)
{
    weir_runtime_options o = {.struct_size = sizeof o, .budget = HOST_GRANULES * GRANULE};
    ok(weir_runtime_create("host", &o, &s->host));
    o.budget = GRANULES * GRANULE;
    o.host = s->host;
    ok(wi_runtime_create_over(&faulty_driver, 0, &o, &s->runtime));
    s->model = open_client(s->runtime, "model", 0, 0);
    s->other = open_client(s->runtime, "other", 0, 0);
    ok(weir_client_set_overflow(s->model, true, 0));
    s->first = allocate(s->model, 3 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(s->runtime, s->first, 3 * GRANULE, 1);
    s->taken = allocate(s->other, (GRANULES - 6) * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
}

static void end_scene(const scene *s)
{
    (void)weir_client_forget_copies(s->model);
    ok(weir_free(s->model, s->first, WEIR_STREAM_HOST));
    ok(weir_client_destroy(s->model));
    ok(weir_client_destroy(s->other));
    ok(weir_runtime_trim(s->runtime, NULL, NULL));
    check_empty(s->runtime);
    assert_int_equal(take_snapshot(s->runtime).device.held, 0);
    ok(weir_runtime_trim(s->host, NULL, NULL));
    check_empty(s->host);
    ok(weir_runtime_destroy(s->runtime));
    ok(weir_runtime_destroy(s->host));
    assert_true(faults_nothing_left());
}

static weir_status try_long(const scene *s, bool zeroed, weir_block *block)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = LONG,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .flags = zeroed ? WEIR_ALLOC_ZEROED : 0};
    fault.calls = 0;
    fault.fail_at = fails_at;
    mallocs = 0;
    malloc_armed = true;
    weir_status status = weir_alloc_with(s->model, &request, block);
    malloc_armed = false;
    fault.fail_at = -1;
    return status;
}

static void is_as_it_was(const scene *s, const snapshot *before, weir_residency_state state, uint64_t away)
{
    snapshot now = take_snapshot(s->runtime);
    weir_residency r = residency(s->model);
    check_sums(&now);
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.promised, before->device.promised);
    assert_int_equal(r.away, away);
    assert_int_equal(r.shown, away);
    assert_int_equal(r.state, state);
    block_holds(s->runtime, s->first, 3 * GRANULE, 1);
}

/* `again`: the client has such a block already. Answers the calls that there were. */
static long live(bool zeroed, bool again)
{
    scene s;
    weir_block before = {0}, block = {0};
    faults_reset(-1);
    open_scene(&s);
    long at = fails_at, malloc_at = malloc_fails_at;
    fails_at = malloc_fails_at = -1;
    if (again) {
        ok(try_long(&s, false, &before));
        write_block(s.runtime, before.pointer, LONG, 2);
    }
    fails_at = at;
    malloc_fails_at = malloc_at;
    uint64_t away = residency(s.model).away, stored = residency(s.model).stored;
    snapshot then = take_snapshot(s.runtime);
    weir_status status = try_long(&s, zeroed, &block);
    long calls = malloc_at >= 0 ? mallocs : atomic_load(&fault.calls);
    if (status != WEIR_OK) {
        failures++;
        is_as_it_was(&s, &then, again ? WEIR_SUSPENDED : WEIR_RESIDENT, away);
        assert_int_equal(residency(s.model).stored, stored);
        fails_at = malloc_fails_at = -1;
        ok(try_long(&s, zeroed, &block)); /* and then it works, at addresses that are there */
    }
    fails_at = at;
    malloc_fails_at = malloc_at;
    is_as_it_was(&s, &then, WEIR_SUSPENDED, away + (LONG + 255) / 256 * 256);
    if (zeroed)
        block_holds_zeros(s.runtime, block.pointer, LONG);
    write_block(s.runtime, block.pointer, LONG, 3);
    if (again)
        block_holds(s.runtime, before.pointer, LONG, 2);
    ok(weir_free(s.other, s.taken, WEIR_STREAM_HOST));
    ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    block_holds(s.runtime, block.pointer, LONG, 3);
    ok(weir_free_block(s.model, block, WEIR_STREAM_HOST));
    if (again) {
        block_holds(s.runtime, before.pointer, LONG, 2);
        ok(weir_free_block(s.model, before, WEIR_STREAM_HOST));
    }
    end_scene(&s);
    return calls;
}

static void at_each_call(bool again, weir_status status)
{
    failures = 0;
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        fault.status = status;
        fails_at = -1;
        long there = live(zeroed, again);
        assert_true(there > 0);
        for (fails_at = 0; fails_at < there + 1; fails_at++) {
            fault.status = status;
            (void)live(zeroed, again);
        }
        fails_at = -1;
    }
    assert_true(failures > 4);
}

static void each_driver_call_fails(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        at_each_call(again, WEIR_ERR_DRIVER);
        at_each_call(again, WEIR_ERR_OUT_OF_MEMORY);
    }
}

static void each_allocation_of_host_memory_fails(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        failures = 0;
        long there = 1;
        for (malloc_fails_at = 0; malloc_fails_at < there; malloc_fails_at++)
            there = live(true, again) + 1;
        malloc_fails_at = -1;
        assert_true(failures > 2);
    }
}

/* Addresses of refused requests are used again: they do not run out. */
static void refusals_do_not_use_addresses_up(void **state)
{
    scene s;
    weir_block first = {0}, second = {0};
    (void)state;
    faults_reset(-1);
    open_scene(&s);
    ok(try_long(&s, false, &first));
    ok(weir_free_block(s.model, first, WEIR_STREAM_HOST));
    void *held = allocate(s.other, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    weir_request much = {
        .struct_size = sizeof much, .bytes = (HOST_GRANULES + 1) * GRANULE, .memory_class = WEIR_CLASS_WEIGHTS};
    for (int i = 0; i < 50; i++)
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(s.model, &much, &second));
    ok(try_long(&s, false, &second));
    assert_ptr_equal(second.pointer, first.pointer);
    ok(weir_free_block(s.model, second, WEIR_STREAM_HOST));
    ok(weir_free(s.other, held, WEIR_STREAM_HOST));
    ok(weir_free(s.other, s.taken, WEIR_STREAM_HOST));
    ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    end_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_driver_call_fails),
        cmocka_unit_test(each_allocation_of_host_memory_fails),
        cmocka_unit_test(refusals_do_not_use_addresses_up),
    };
    return cmocka_run_group_tests_name("residency-overflow-faults", tests, NULL, NULL);
}
