/* The resource async from the inside: what happens while the driver gives an address out again; of both, that faults lose
 * nothing. */
#include "bases_single.h"

/* Handing over ----------------------------------------------------------------------------------------------------- */

static void an_address_serves_again_in_stream_order(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    gate g = GATE;
    unsigned char *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV);
    weir_block old = details_of(p).block;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_fill(f->runtime, p, 1, 1000, f->a));
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    void *elsewhere = allocate(f->two, 1000, f->b, WEIR_CLASS_OTHER);
    assert_ptr_not_equal(elsewhere, p);
    assert_ptr_equal(allocate(f->two, 1000, f->a, WEIR_CLASS_WEIGHTS), p);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.pending, 1024);
    assert_int_equal(s.live, 2048);
    assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
    assert_ptr_equal(details_of(p).client, f->two);
    fails(WEIR_ERR_FOREIGN, weir_free(f->one, p, f->a));
    fails(WEIR_ERR_STALE, weir_free_block(f->one, old, f->a));
    /* On another stream it is used behind what the one before it queued. */
    weir_use use = {.block = details_of(p).block, .access = WEIR_ACCESS_WRITE};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, f->b, &use, 1, &launch));
    ok(weir_fill(f->runtime, p, 2, 1000, f->b));
    ok(weir_launch_end(launch));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(p[0], 2);
    assert_int_equal(p[999], 2);
    s = stats_of(f->runtime);
    assert_int_equal(s.pending, 0);
    assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
    ok(weir_free(f->two, p, f->a));
    ok(weir_free(f->two, elsewhere, f->b));
    end(f);
}

static void *hook_got;

static void allocate_meanwhile(void)
{
    hook_got = allocate(in_hook->two, 1000, in_hook->a, WEIR_CLASS_KV);
}

/* The driver gives the address out again before it has answered the one who gave it back. */
static void an_address_serves_again_before_the_answer(void **state)
{
    (void)state;
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        fixture *f = in_hook = make("async", MIB);
        void *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV);
        gate g = GATE;
        if (on_stream)
            ok(weir_call(f->runtime, pass_gate, &g, f->a));
        script.released = allocate_meanwhile;
        ok(weir_free(f->one, p, f->a));
        assert_ptr_equal(hook_got, p);
        assert_ptr_equal(details_of(p).client, f->two);
        assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
        open_gate(&g);
        ok(weir_stream_synchronize(f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.live, 1024);
        assert_int_equal(s.pending, 0);
        ok(weir_free(f->two, p, f->a));
        end(f);
    }
}

static void several_wait_at_one_address(void **state)
{
    (void)state;
    fixture *f = make("async", 64 * KIB);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    void *p = NULL, *q;
    for (int i = 0; i < 16; i++) {
        q = allocate(f->one, 4 * KIB, f->a, WEIR_CLASS_KV);
        assert_true(!p || p == q);
        p = q;
        ok(weir_free(f->one, p, f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.pending, (uint64_t)(i + 1) * 4 * KIB);
    }
    weir_request request = {.struct_size = sizeof request, .bytes = 1, .stream = f->a, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &none)); /* each counts until its event is passed */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(stats_of(f->runtime).pending, 0);
    assert_int_equal(stats_of(f->runtime).held, pool_held());
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    end(f);
}

/* The free holds all the same: the block waits as one that was never handed over, and the driver is asked again. */
static void a_refused_hand_over_loses_nothing(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    gate g = GATE;
    unsigned char *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    snapshot before = take_snapshot(f->runtime);
    script.refused_releases = 1;
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(script.refused_releases, 0);
    snapshot after = take_snapshot(f->runtime);
    assert_int_equal(after.device.live, 0);
    assert_int_equal(after.device.pending, before.device.live);
    assert_int_equal(details_of(p + 10).state, WEIR_BLOCK_PENDING);
    void *other = allocate(f->two, 1000, f->a, WEIR_CLASS_KV);
    assert_ptr_not_equal(other, p); /* the driver has not got it yet */
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    ok(weir_free(f->two, other, f->a));
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(stats_of(f->runtime).live + stats_of(f->runtime).pending, 0);
    end(f);
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    static const weir_status statuses[] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DEVICE_LOST};
    for (int i = 0; i < 6; i++)
        a_fault_at_every_call(both[i % 2], statuses[i / 2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_serves_again_in_stream_order),
        cmocka_unit_test(an_address_serves_again_before_the_answer),
        cmocka_unit_test(several_wait_at_one_address),
        cmocka_unit_test(a_refused_hand_over_loses_nothing),
        cmocka_unit_test(faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
