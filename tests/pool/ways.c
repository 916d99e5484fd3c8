/* The ways in which a model may be had: on several devices, with less of it, in the order of its list. */
#include "pool/world.h"

enum { TWO = 2 };

static world begin(uint64_t first, uint64_t second)
{
    wp_limits limits = world_limits();
    world w = {.pool = wp_admission_create(&limits, TWO), .now = SECOND};
    assert_non_null(w.pool);
    wp_ceiling(w.pool, w.now, 0, first);
    wp_ceiling(w.pool, w.now, 1, second);
    return w;
}

/* On the first device, or the second. */
static wp_spec either(const char *name, uint64_t bytes)
{
    wp_spec spec = world_spec(name, bytes);
    spec.variants[1] = spec.variants[0];
    spec.variants[1].on = 2;
    spec.variants[1].same = true;
    spec.variant_count = 2;
    return spec;
}

static wp_spec on_second(const char *name, uint64_t bytes)
{
    wp_spec spec = world_spec(name, bytes);
    spec.device = 1;
    return spec;
}

static void steps(wp_spec *spec, const wp_step *list, uint32_t count)
{
    memcpy(spec->steps, list, count * sizeof *list);
    spec->step_count = count;
}
#define STEPS(spec, ...) steps(spec, (const wp_step[]){__VA_ARGS__}, sizeof((wp_step[]){__VA_ARGS__}) / sizeof(wp_step))

static uint32_t where(world *w, wp_model model)
{
    return wp_see(w->pool, model).device;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

static void another_device_with_room_goes_before_victims(void **state)
{
    (void)state;
    world w = begin(100, 100);
    wp_model a = world_add(&w, world_spec("a", 60)), b = world_add(&w, either("b", 60));
    world_load(&w, a);
    wp_ticket ticket = world_ask(&w, b, 10).ticket;
    assert_int_equal(world_last(&w, WP_LOAD, b)->device, 1);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    assert_int_equal(where(&w, b), 1);
    assert_int_equal(wp_taken(w.pool, 0), 60);
    assert_int_equal(wp_taken(w.pool, 1), 70);
    assert_int_equal(w.totals[WP_UNLOAD], 0);
    world_done(&w, ticket);
    /* it is asked for on its own device again when it has left */
    wp_answer why;
    assert_true(wp_want(w.pool, w.now, a, WP_UNLOADED, &why));
    assert_true(wp_want(w.pool, w.now, b, WP_UNLOADED, &why));
    world_run(&w);
    world_ask(&w, b, 0);
    assert_int_equal(world_last(&w, WP_LOAD, b)->device, 0);
    world_end(&w);
}

static void of_two_devices_the_one_with_cheaper_victims_is_taken(void **state)
{
    (void)state;
    for (int cheap = 0; cheap < 2; cheap++) {
        world w = begin(100, 100);
        wp_spec one = world_spec("one", 60), two = on_second("two", 60);
        one.load_time = cheap == 0 ? SECOND : 30 * SECOND;
        two.load_time = cheap == 1 ? SECOND : 30 * SECOND;
        wp_model a = world_add(&w, one), b = world_add(&w, two), c = world_add(&w, either("c", 70));
        world_load(&w, a);
        world_load(&w, b);
        wp_ticket ticket = world_ask(&w, c, 0).ticket;
        assert_int_equal(world_state(&w, cheap ? b : a), WP_UNLOADING);
        assert_int_equal(world_state(&w, cheap ? a : b), WP_LOADED);
        world_run(&w);
        assert_true(world_granted(&w, ticket));
        assert_int_equal(where(&w, c), cheap);
        world_end(&w);
    }
}

/* What both devices are too small for is refused; what one of them has room for is not. */
static void it_never_fits_only_if_it_fits_nowhere(void **state)
{
    (void)state;
    world w = begin(100, 200);
    wp_model a = world_add(&w, either("a", 150)), b = world_add(&w, either("b", 250));
    assert_int_equal(world_ask(&w, a, 0).cause, WP_WAITS_LOADING);
    assert_int_equal(world_last(&w, WP_LOAD, a)->device, 1);
    wp_answer answer = world_ask(&w, b, 0);
    assert_int_equal(answer.cause, WP_NEVER_FITS);
    assert_int_equal(answer.need, 250);
    assert_int_equal(answer.limit, 200);
    world_end(&w);
}

/* A request that waits for its own device is served by the other when that has room. */
static void who_waits_goes_where_room_comes_first(void **state)
{
    (void)state;
    world w = begin(100, 100);
    wp_model a = world_add(&w, world_spec("a", 60)), b = world_add(&w, on_second("b", 60)),
             c = world_add(&w, either("c", 60));
    world_load(&w, a);
    world_load(&w, b);
    wp_ticket first = world_ask(&w, a, 1).ticket, second = world_ask(&w, b, 1).ticket;
    assert_int_equal(wp_look(w.pool, w.now, first).cause, WP_GRANTED);
    wp_ticket third = world_ask(&w, c, 0).ticket;
    assert_int_equal(world_state(&w, c), WP_UNLOADED);
    world_done(&w, second);
    world_run(&w);
    assert_true(world_granted(&w, third));
    assert_int_equal(where(&w, c), 1);
    assert_int_equal(world_state(&w, a), WP_LOADED);
    world_done(&w, first);
    world_end(&w);
}

/* The list --------------------------------------------------------------------------------------------------------- */

/* Whole 60, context 40, layers 20; on the first device, and whole on the second. */
static wp_spec all_ways(void)
{
    wp_spec spec = either("it", 60);
    spec.variants[2] = (wp_variant){.peak = 40, .resident = 40, .context = 1024, .layers = -1};
    spec.variants[3] = (wp_variant){.peak = 20, .resident = 20, .layers = 5, .gives = WP_STEP_LAYERS};
    spec.variant_count = 4;
    spec.device = 0;
    return spec;
}

/* `free` bytes beside an idle model on each device; which variant comes, and whether others leave for it. */
static void comes_as(wp_spec spec, uint64_t free, uint64_t elsewhere, uint32_t variant, bool victims)
{
    world w = begin(100, 100);
    wp_model a = world_add(&w, world_spec("a", 100 - free)), b = world_add(&w, on_second("b", 100 - elsewhere)),
             it = world_add(&w, spec);
    world_load(&w, a);
    world_load(&w, b);
    wp_ticket ticket = world_ask(&w, it, 0).ticket;
    assert_int_equal(w.totals[WP_UNLOAD] + w.totals[WP_SUSPEND] > 0, victims);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    assert_int_equal(wp_see(w.pool, it).variant, variant);
    world_end(&w);
}

static void the_list_says_what_comes_first(void **state)
{
    (void)state;
    wp_spec spec = all_ways();
    comes_as(spec, 30, 70, 1, false); /* usual: another device, */
    comes_as(spec, 50, 50, 0, true);  /* then victims */
    STEPS(&spec, WP_STEP_CONTEXT, WP_STEP_LAYERS, WP_STEP_EVICT, WP_STEP_DEVICE, WP_STEP_WAIT);
    comes_as(spec, 70, 70, 0, false);
    comes_as(spec, 50, 70, 2, false);
    comes_as(spec, 30, 70, 3, false);
    comes_as(spec, 10, 70, 0, true);
    STEPS(&spec, WP_STEP_LAYERS, WP_STEP_CONTEXT, WP_STEP_WAIT);
    comes_as(spec, 50, 70, 3, false);
    STEPS(&spec, WP_STEP_DEVICE, WP_STEP_LAYERS, WP_STEP_WAIT);
    comes_as(spec, 50, 70, 1, false);
    comes_as(spec, 50, 50, 3, false);
    STEPS(&spec, WP_STEP_EVICT, WP_STEP_DEVICE, WP_STEP_WAIT);
    comes_as(spec, 50, 70, 0, true);
}

/* Suspended only: not unloaded, where the host has no room for it. */
static void a_list_without_evictions_has_none(void **state)
{
    (void)state;
    for (int suspends = 0; suspends < 2; suspends++) {
        world w = begin(100, 100);
        wp_spec other = world_spec("other", 80), spec = world_spec("it", 60);
        other.can_suspend = suspends;
        STEPS(&spec, WP_STEP_SUSPEND, WP_STEP_WAIT);
        wp_model o = world_add(&w, other), it = world_add(&w, spec);
        world_load(&w, o);
        assert_int_equal(world_ask(&w, it, 0).cause, WP_WAITS_ROOM);
        assert_int_equal(world_state(&w, o), suspends ? WP_SUSPENDING : WP_LOADED);
        world_end(&w);
    }
}

static void a_list_without_a_wait_refuses(void **state)
{
    (void)state;
    world w = begin(100, 100);
    wp_spec spec = world_spec("it", 60);
    STEPS(&spec, WP_STEP_EVICT);
    wp_model o = world_add(&w, world_spec("other", 60)), it = world_add(&w, spec);
    world_load(&w, o);
    wp_ticket busy = world_ask(&w, o, 0).ticket;
    wp_answer answer = world_ask(&w, it, 5);
    assert_int_equal(answer.cause, WP_NO_ROOM);
    assert_int_equal(answer.need, 65);
    assert_int_equal(answer.limit, 40);
    world_done(&w, busy);
    wp_ticket ticket = world_ask(&w, it, 5).ticket; /* others leave for it: a load is no wait for room */
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

/* What was learnt -------------------------------------------------------------------------------------------------- */

static void a_load_that_lacked_memory_is_tried_smaller(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec spec = world_spec("it", 90);
    spec.variants[1] = (wp_variant){.peak = 50, .resident = 50, .context = 1024};
    spec.variant_count = 2;
    wp_model it = world_add(&w, spec);
    wp_ticket ticket = world_ask(&w, it, 0).ticket;
    wp_loaded(w.pool, w.now, it, false, 120, 0);
    assert_int_equal(world_last(&w, WP_LOAD, it)->variant, 1);
    assert_int_equal(wp_see(w.pool, it).failures, 1);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

/* The same with more bytes, where there are any; a load that never has enough fails like others. */
static void it_is_tried_with_more_and_not_for_ever(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model it = world_add(&w, world_spec("it", 60));
    wp_ticket ticket = world_ask(&w, it, 0).ticket;
    wp_loaded(w.pool, w.now, it, false, 80, 0);
    assert_int_equal(world_state(&w, it), WP_LOADING);
    assert_int_equal(world_last(&w, WP_LOAD, it)->bytes, 80);
    assert_int_equal(wp_taken(w.pool, 0), 80);
    wp_loaded(w.pool, w.now, it, false, 90, 0);
    assert_int_equal(world_state(&w, it), WP_FAILED);
    assert_int_equal(world_refused(&w, ticket), WP_LOAD_FAILED);
    assert_int_equal(wp_taken(w.pool, 0), 0);
    world_end(&w);
}

/* Stopped --------------------------------------------------------------------------------------------------------- */

static uint32_t stops(const world *w)
{
    return w->totals[WP_STOP];
}

static void a_load_that_nobody_wants_is_stopped(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model it = world_add(&w, world_spec("it", 60));
    wp_ticket one = world_ask(&w, it, 0).ticket, two = world_ask(&w, it, 0).ticket;
    assert_true(wp_cancel(w.pool, w.now, one, true));
    world_take(&w);
    assert_int_equal(stops(&w), 0); /* another one waits */
    assert_true(wp_cancel(w.pool, w.now, two, true));
    world_take(&w);
    assert_int_equal(stops(&w), 1);
    wp_stopped(w.pool, w.now, it);
    assert_int_equal(world_state(&w, it), WP_UNLOADED);
    assert_int_equal(wp_taken(w.pool, 0), 0);
    assert_int_equal(wp_see(w.pool, it).failures, 0);
    /* whose time is over stops none, nor is one stopped that is loaded by hand */
    one = world_ask(&w, it, 0).ticket;
    assert_true(wp_cancel(w.pool, w.now, one, false));
    one = world_ask(&w, it, 0).ticket;
    wp_answer why;
    assert_true(wp_want(w.pool, w.now, it, WP_LOADED, &why));
    assert_true(wp_cancel(w.pool, w.now, one, true));
    world_take(&w);
    assert_int_equal(stops(&w), 1);
    /* but one that is removed */
    wp_remove(w.pool, w.now, it);
    world_take(&w);
    assert_int_equal(stops(&w), 2);
    wp_stopped(w.pool, w.now, it);
    world_end(&w);
}

/* Who comes while it is being stopped has it loaded again. */
static void a_stopped_load_begins_again_for_others(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model it = world_add(&w, world_spec("it", 60));
    wp_ticket one = world_ask(&w, it, 0).ticket;
    assert_true(wp_cancel(w.pool, w.now, one, true));
    wp_ticket two = world_ask(&w, it, 0).ticket;
    wp_stopped(w.pool, w.now, it);
    assert_int_equal(world_state(&w, it), WP_LOADING);
    world_run(&w);
    assert_true(world_granted(&w, two));
    assert_int_equal(stops(&w), 1);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_device_with_room_goes_before_victims),
        cmocka_unit_test(of_two_devices_the_one_with_cheaper_victims_is_taken),
        cmocka_unit_test(it_never_fits_only_if_it_fits_nowhere),
        cmocka_unit_test(who_waits_goes_where_room_comes_first),
        cmocka_unit_test(the_list_says_what_comes_first),
        cmocka_unit_test(a_list_without_evictions_has_none),
        cmocka_unit_test(a_list_without_a_wait_refuses),
        cmocka_unit_test(a_load_that_lacked_memory_is_tried_smaller),
        cmocka_unit_test(it_is_tried_with_more_and_not_for_ever),
        cmocka_unit_test(a_load_that_nobody_wants_is_stopped),
        cmocka_unit_test(a_stopped_load_begins_again_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
