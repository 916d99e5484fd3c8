#include "pool/world.h"

/* Room ------------------------------------------------------------------------------------------------------------- */

static void a_request_loads_its_model_and_is_granted(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 60));
    wp_answer answer = world_ask(&w, a, 10);
    assert_int_equal(answer.cause, WP_WAITS_LOADING);
    assert_int_equal(answer.position, 1);
    assert_int_equal(answer.expected, SECOND);
    assert_int_equal(wp_taken(w.pool, 0), 70); /* its request's bytes are reserved with it */
    world_run(&w);
    assert_true(world_granted(&w, answer.ticket));
    assert_int_equal(wp_see(w.pool, a).promised, 10);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_GRANTED);
    world_done(&w, answer.ticket);
    assert_int_equal(wp_see(w.pool, a).promised, 0);
    world_end(&w);
}

/* 64 clients ask for what can never fit, again and again: the residents stay. */
static void what_can_never_fit_is_refused_and_nobody_leaves(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 40)), b = world_add(&w, world_spec("b", 50));
    wp_spec large = world_spec("large", 150);
    large.variants[0].context = 8192;
    large.variants[1] = (wp_variant){.peak = 120, .resident = 110, .context = 4096};
    large.variants[2] = (wp_variant){.peak = 90, .resident = 80, .context = 2048, .layers = 12};
    large.variant_count = 2;
    wp_model never = world_add(&w, large);
    world_load(&w, a);
    world_load(&w, b);
    for (int i = 0; i < 640; i++) {
        wp_answer answer = world_ask(&w, never, 0);
        assert_int_equal(answer.cause, WP_NEVER_FITS);
        assert_int_equal(answer.need, 120);
        assert_int_equal(answer.limit, 100);
        assert_int_equal(answer.variant, WP_VARIANTS);
        wp_ticket ticket = world_ask(&w, i % 2 ? a : b, 1).ticket;
        assert_int_equal(wp_look(w.pool, w.now, ticket).cause, WP_GRANTED);
        world_done(&w, ticket);
        w.now += SECOND / 64;
    }
    assert_int_equal(w.totals[WP_UNLOAD] + w.totals[WP_SUSPEND], 0);
    large.variant_count = 3;
    wp_change(w.pool, w.now, never, &large);
    wp_answer answer = world_ask(&w, never, 30);
    assert_int_equal(answer.cause, WP_NEVER_FITS);
    assert_int_equal(answer.fits, 20);
    assert_int_equal(answer.variant, 2);
    assert_int_equal(answer.context, 2048);
    assert_int_equal(answer.layers, 12);
    assert_int_equal(world_ask(&w, never, 20).cause, WP_WAITS_ROOM);
    world_end(&w);
}

static void pinned_models_are_out_of_reach(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec pinned = world_spec("pinned", 60);
    pinned.pinned = true;
    pinned.keep_alive = SECOND;
    wp_model p = world_add(&w, pinned), a = world_add(&w, world_spec("a", 50));
    world_load(&w, p);
    wp_answer answer = world_ask(&w, a, 0), why;
    assert_int_equal(answer.cause, WP_NEVER_FITS);
    assert_int_equal(answer.limit, 40);
    world_pass(&w, 10 * SECOND);
    assert_int_equal(world_state(&w, p), WP_LOADED);
    assert_false(wp_want(w.pool, w.now, p, WP_UNLOADED, &why));
    assert_int_equal(why.cause, WP_PINNED);
    pinned.pinned = false;
    wp_change(w.pool, w.now, p, &pinned);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_WAITS_ROOM);
    assert_int_equal(world_state(&w, p), WP_UNLOADING);
    world_end(&w);
}

static void the_cheapest_one_leaves_and_its_bytes_are_kept(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec dear = world_spec("dear", 45), cheap = world_spec("cheap", 50);
    dear.load_time = 30 * SECOND;
    wp_model d = world_add(&w, dear), c = world_add(&w, cheap), a = world_add(&w, world_spec("a", 50)),
             small = world_add(&w, world_spec("small", 5));
    world_load(&w, d);
    world_load(&w, c);
    wp_ticket ticket = world_ask(&w, a, 5).ticket;
    assert_int_equal(world_state(&w, c), WP_UNLOADING);
    assert_int_equal(world_state(&w, d), WP_LOADED);
    /* the five bytes that are free, and those that come free, are the earmark's */
    assert_int_equal(world_ask(&w, small, 0).cause, WP_WAITS_ROOM);
    wp_answer why;
    assert_false(wp_want(w.pool, w.now, c, WP_LOADED, &why));
    world_answer(&w, c);
    assert_int_equal(world_state(&w, a), WP_LOADING);
    assert_int_equal(world_state(&w, small), WP_UNLOADED);
    assert_int_equal(wp_taken(w.pool, 0), 100);
    world_answer(&w, a);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

static void none_leaves_if_all_together_are_not_enough(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 50)), b = world_add(&w, world_spec("b", 40)),
             c = world_add(&w, world_spec("c", 70));
    world_load(&w, a);
    world_load(&w, b);
    wp_ticket busy = world_ask(&w, a, 0).ticket, ticket = world_ask(&w, c, 0).ticket;
    assert_int_equal(w.totals[WP_UNLOAD], 0);
    assert_int_equal(world_state(&w, b), WP_LOADED);
    world_done(&w, busy);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

/* Of two that wait for their victims, the bytes of the second one's victim are the second one's. */
static void what_a_victim_frees_is_for_whom_it_left(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 50)), b = world_add(&w, world_spec("b", 50)),
             c = world_add(&w, world_spec("c", 50)), d = world_add(&w, world_spec("d", 50));
    world_load(&w, a);
    world_load(&w, b);
    world_ask(&w, c, 0);
    world_ask(&w, d, 0);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    assert_int_equal(world_state(&w, b), WP_UNLOADING);
    world_answer(&w, world_last(&w, WP_UNLOAD, a)->why == 1 ? b : a);
    assert_int_equal(world_state(&w, c), WP_UNLOADED);
    assert_int_equal(world_state(&w, d), WP_LOADING);
    world_run(&w);
    assert_int_equal(world_state(&w, c), WP_LOADED);
    world_end(&w);
}

static void who_has_priority_comes_first(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.passing = 1000 * SECOND;
    world w = world_begin(limits, 100);
    wp_spec first = world_spec("c", 60);
    first.priority = 1;
    wp_model x = world_add(&w, world_spec("x", 90)), a = world_add(&w, world_spec("a", 60)), c = world_add(&w, first);
    world_ask(&w, x, 0);
    world_ask(&w, a, 0);
    wp_answer answer = world_ask(&w, c, 0);
    assert_int_equal(answer.position, 1);
    wp_loaded(w.pool, w.now, x, false, 0, 0);
    world_take(&w);
    assert_int_equal(world_state(&w, c), WP_LOADING);
    assert_int_equal(world_state(&w, a), WP_UNLOADED);
    world_end(&w);
}

static wp_spec two_variants(bool shrink_first)
{
    wp_spec spec = world_spec("two", 80);
    spec.variants[1] = (wp_variant){.peak = 40, .resident = 40, .context = 1024};
    spec.variant_count = 2;
    spec.shrink_first = shrink_first;
    return spec;
}

static void a_smaller_variant_goes_before_or_after_victims_as_the_spec_says(void **state)
{
    (void)state;
    for (int shrink = 0; shrink < 2; shrink++) {
        world w = world_begin(world_limits(), 100);
        wp_model a = world_add(&w, world_spec("a", 50)), two = world_add(&w, two_variants(shrink));
        world_load(&w, a);
        world_ask(&w, two, 0);
        world_run(&w);
        assert_int_equal(wp_see(w.pool, two).variant, shrink);
        assert_int_equal(world_state(&w, a), shrink ? WP_LOADED : WP_UNLOADED);
        world_end(&w);
    }
}

static void without_victims_a_smaller_variant_is_loaded(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 50)), two = world_add(&w, two_variants(false));
    world_load(&w, a);
    world_ask(&w, a, 0); /* busy */
    world_ask(&w, two, 0);
    world_run(&w);
    assert_int_equal(wp_see(w.pool, two).variant, 1);
    world_end(&w);
}

static void loads_overlap_where_both_fit(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 50)), b = world_add(&w, world_spec("b", 50));
    world_ask(&w, a, 0);
    world_ask(&w, b, 0);
    assert_int_equal(world_state(&w, a), WP_LOADING);
    assert_int_equal(world_state(&w, b), WP_LOADING);
    world_end(&w);
}

/* Suspends --------------------------------------------------------------------------------------------------------- */

static wp_spec suspendable(const char *name, uint64_t bytes)
{
    wp_spec spec = world_spec(name, bytes);
    spec.can_suspend = true;
    spec.host = bytes;
    spec.stays = 2;
    spec.load_time = 20 * SECOND;
    spec.resume_time = SECOND;
    return spec;
}

static void a_suspend_is_preferred_while_the_host_has_room(void **state)
{
    (void)state;
    for (uint64_t host = 50; host <= 60; host += 10) {
        wp_limits limits = world_limits();
        limits.host = host;
        world w = world_begin(limits, 100);
        wp_model a = world_add(&w, suspendable("a", 60)), b = world_add(&w, world_spec("b", 90));
        world_load(&w, a);
        world_ask(&w, b, 0);
        assert_int_equal(world_state(&w, a), host < 60 ? WP_UNLOADING : WP_SUSPENDING);
        world_run(&w);
        assert_int_equal(world_state(&w, b), WP_LOADED);
        assert_int_equal(wp_see(w.pool, a).taken, host < 60 ? 0 : 2);
        world_end(&w);
    }
}

static void a_suspended_one_is_evicted_for_the_hosts_bytes(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.host = 60;
    world w = world_begin(limits, 100);
    wp_spec first = suspendable("a", 60), second = suspendable("b", 60);
    first.load_time = 2 * SECOND;
    second.load_time = 200 * SECOND;
    wp_model a = world_add(&w, first), b = world_add(&w, second), c = world_add(&w, world_spec("c", 90));
    wp_answer why;
    world_load(&w, a);
    assert_true(wp_want(w.pool, w.now, a, WP_SUSPENDED, &why));
    world_run(&w);
    world_load(&w, b);
    wp_ticket ticket = world_ask(&w, c, 0).ticket;
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    assert_int_equal(world_state(&w, b), WP_LOADED); /* held until the host has room */
    assert_int_equal(world_ask(&w, b, 0).cause, WP_WAITS_OTHERS);
    world_answer(&w, a);
    assert_int_equal(world_state(&w, b), WP_SUSPENDING);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

static void a_suspend_or_a_resume_that_fails_is_not_the_end(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, suspendable("a", 60)), b = world_add(&w, world_spec("b", 90));
    wp_answer why;
    world_load(&w, a);
    wp_ticket ticket = world_ask(&w, b, 0).ticket;
    wp_suspended(w.pool, w.now, a, false, 0, 0);
    world_take(&w);
    assert_int_equal(world_state(&w, a), WP_UNLOADING); /* for a while it is evicted instead */
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_done(&w, ticket);
    assert_true(wp_want(w.pool, w.now, b, WP_UNLOADED, &why));
    world_run(&w);
    world_load(&w, a);
    w.now += 2 * SECOND;
    assert_true(wp_want(w.pool, w.now, a, WP_SUSPENDED, &why));
    world_run(&w);
    ticket = world_ask(&w, a, 0).ticket;
    assert_int_equal(world_state(&w, a), WP_RESUMING);
    wp_resumed(w.pool, w.now, a, false, 0, 0);
    world_take(&w);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    world_end(&w);
}

static void who_is_pinned_while_it_is_held_stays(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.host = 60;
    world w = world_begin(limits, 162);
    wp_spec first = suspendable("a", 60), second = suspendable("b", 60);
    second.load_time = 200 * SECOND;
    wp_model a = world_add(&w, first), b = world_add(&w, second), c = world_add(&w, world_spec("c", 90));
    wp_spec dear = world_spec("d", 60);
    dear.evict_cost = 1000 * SECOND;
    wp_model d = world_add(&w, dear);
    wp_answer why;
    world_load(&w, d);
    world_load(&w, a);
    assert_true(wp_want(w.pool, w.now, a, WP_SUSPENDED, &why));
    world_run(&w);
    world_load(&w, b);
    /* b waits until a has given up the host's bytes */
    wp_ticket ticket = world_ask(&w, c, 0).ticket;
    second.pinned = true;
    wp_change(w.pool, w.now, b, &second);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    assert_int_equal(world_state(&w, d), WP_UNLOADED);
    assert_int_equal(world_state(&w, b), WP_LOADED);
    assert_int_equal(world_ask(&w, b, 0).cause, WP_GRANTED);
    world_end(&w);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

static void a_minimum_stay_ends_early_only_for_a_higher_priority(void **state)
{
    (void)state;
    for (int32_t priority = 0; priority < 2; priority++) {
        world w = world_begin(world_limits(), 100);
        wp_spec stays = world_spec("a", 60), other = world_spec("b", 60);
        stays.minimum_stay = 5 * SECOND;
        other.priority = priority;
        wp_model a = world_add(&w, stays), b = world_add(&w, other);
        world_load(&w, a);
        world_ask(&w, b, 0);
        assert_int_equal(world_state(&w, a), priority ? WP_UNLOADING : WP_LOADED);
        if (!priority) {
            assert_int_equal(wp_wake(w.pool), w.now + 5 * SECOND);
            world_pass(&w, 5 * SECOND - 1);
            assert_int_equal(world_state(&w, a), WP_LOADED);
            world_pass(&w, 1);
            assert_int_equal(world_state(&w, a), WP_UNLOADING);
        }
        world_end(&w);
    }
}

static void idle_models_are_suspended_and_unloaded_in_time(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec spec = suspendable("a", 60);
    spec.suspend_after = 3 * SECOND;
    spec.keep_alive = 10 * SECOND;
    wp_model a = world_add(&w, spec);
    world_load(&w, a);
    wp_ticket ticket = world_ask(&w, a, 0).ticket;
    world_pass(&w, 30 * SECOND);
    assert_int_equal(world_state(&w, a), WP_LOADED); /* it runs */
    assert_int_equal(wp_wake(w.pool), WP_FOREVER);
    world_done(&w, ticket);
    uint64_t used = w.now;
    assert_int_equal(wp_wake(w.pool), used + 3 * SECOND);
    world_pass(&w, 3 * SECOND - 1);
    assert_int_equal(world_state(&w, a), WP_LOADED);
    world_pass(&w, 1);
    assert_int_equal(world_state(&w, a), WP_SUSPENDING);
    world_run(&w);
    assert_int_equal(wp_wake(w.pool), used + 10 * SECOND);
    world_pass(&w, 7 * SECOND);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    world_run(&w);
    assert_int_equal(wp_taken(w.pool, 0), 0);
    world_end(&w);
}

static void who_waits_too_long_is_refused(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 60));
    wp_ticket late = world_ask(&w, a, 0).ticket;
    wp_ticket soon = wp_ask(w.pool, w.now, &(wp_request){.model = a, .deadline = w.now + 5 * SECOND}).ticket;
    assert_int_equal(wp_wake(w.pool), w.now + 5 * SECOND);
    world_pass(&w, 5 * SECOND);
    assert_int_equal(world_refused(&w, soon), WP_TOO_LATE);
    world_pass(&w, 55 * SECOND);
    assert_int_equal(world_refused(&w, late), WP_TOO_LATE);
    world_run(&w);
    assert_int_equal(world_state(&w, a), WP_LOADED); /* the load goes on */
    world_end(&w);
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

static void the_queue_is_bounded(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.queue = 2;
    limits.queue_bytes = 15;
    world w = world_begin(limits, 100);
    wp_spec spec = world_spec("a", 50);
    spec.slots = 1;
    wp_model a = world_add(&w, spec);
    world_load(&w, a);
    wp_ticket running = world_ask(&w, a, 10).ticket, waits = world_ask(&w, a, 10).ticket;
    assert_int_equal(world_ask(&w, a, 10).cause, WP_QUEUE_FULL); /* bytes */
    wp_answer answer = world_ask(&w, a, 0);
    assert_int_equal(answer.cause, WP_WAITS_BUSY);
    assert_int_equal(answer.position, 2);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_QUEUE_FULL);
    assert_true(wp_cancel(w.pool, w.now, waits, false));
    assert_int_equal(world_refused(&w, waits), WP_CANCELLED);
    assert_false(wp_cancel(w.pool, w.now, waits, false));
    assert_false(wp_cancel(w.pool, w.now, running, false));
    world_done(&w, running);
    assert_true(world_granted(&w, answer.ticket));
    world_end(&w);
}

/* Two models in turn that do not fit together, of which always one has requests that wait. */
static void two_models_change_places_once_a_while(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.passing = 10 * SECOND;
    world w = world_begin(limits, 100);
    wp_spec a_spec = world_spec("a", 60), b_spec = world_spec("b", 60);
    a_spec.slots = b_spec.slots = 1;
    wp_model m[2] = {world_add(&w, a_spec), world_add(&w, b_spec)};
    wp_ticket tickets[2][4];
    for (int k = 0; k < 8; k++)
        tickets[k % 2][k / 2] = world_ask(&w, m[k % 2], 0).ticket;
    uint32_t ended[2] = {0};
    /* Each of four clients asks again as soon as its request has ended, and a request takes a tenth of a second. */
    for (int step = 0; step < 1000; step++) {
        world_run(&w);
        w.now += SECOND / 10;
        bool runs[8];
        for (int k = 0; k < 8; k++)
            runs[k] = wp_look(w.pool, w.now, tickets[k % 2][k / 2]).cause == WP_GRANTED;
        for (int k = 0; k < 8; k++) {
            wp_ticket *ticket = &tickets[k % 2][k / 2];
            if (!runs[k])
                continue;
            wp_ticket old = *ticket;
            ended[k % 2]++;
            *ticket = world_ask(&w, m[k % 2], 0).ticket;
            world_done(&w, old);
        }
        world_pass(&w, 0);
    }
    /* a hundred seconds, and ten in each place at least */
    assert_in_range(w.totals[WP_UNLOAD], 5, 10);
    assert_in_range(ended[0], 400, 600);
    assert_in_range(ended[1], 400, 600);
    world_end(&w);
}

static void grants_go_by_weight_and_priority_goes_first(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec specs[3] = {world_spec("a", 10), world_spec("b", 10), world_spec("c", 10)};
    specs[1].weight = 3;
    specs[2].priority = 1;
    wp_model m[3];
    for (int i = 0; i < 3; i++) {
        m[i] = world_add(&w, specs[i]);
        world_load(&w, m[i]);
    }
    /* one at a time fits beside them */
    wp_ticket running = world_ask(&w, m[0], 70).ticket;
    uint32_t granted[3] = {0};
    for (int k = 0; k < 24; k++)
        for (int i = 0; i < 3; i++)
            if (i < 2 || k < 4)
                world_ask(&w, m[i], 70);
    w.count = 0;
    for (int k = 0; k < 20; k++) {
        w.count = 0;
        world_done(&w, running);
        assert_int_equal(w.count, 1);
        assert_int_equal(w.log[0].kind, WP_GRANT);
        running = w.log[0].why;
        for (int i = 0; i < 3; i++)
            granted[i] += w.log[0].model == m[i];
        assert_true(k >= 4 || granted[2] == (uint32_t)k + 1);
    }
    assert_int_equal(granted[2], 4);
    assert_int_equal(granted[0], 4);
    assert_int_equal(granted[1], 12);
    world_end(&w);
}

/* A model that has requests without end is held after `passing`, so that the other one has its turn. */
static void nobody_starves(void **state)
{
    (void)state;
    wp_limits limits = world_limits();
    limits.passing = 5 * SECOND;
    world w = world_begin(limits, 100);
    wp_spec spec = world_spec("busy", 60);
    wp_model busy = world_add(&w, spec), other = world_add(&w, world_spec("other", 60));
    world_load(&w, busy);
    wp_ticket running = world_ask(&w, busy, 0).ticket, waits = world_ask(&w, other, 0).ticket;
    uint64_t begun = w.now;
    for (int i = 0; i < 100 && !world_granted(&w, waits); i++) {
        wp_answer next = world_ask(&w, busy, 0); /* before the last one has ended, so that it is never idle */
        if (w.now < begun + limits.passing)
            assert_int_equal(next.cause, WP_GRANTED);
        else
            assert_int_equal(next.cause, WP_WAITS_OTHERS);
        world_done(&w, running);
        running = next.ticket;
        world_run(&w);
        w.now += SECOND / 2;
        wp_tick(w.pool, w.now);
    }
    assert_true(world_granted(&w, waits));
    assert_true(w.now <= begun + limits.passing + SECOND);
    world_end(&w);
}

/* Failures, removal, ceilings -------------------------------------------------------------------------------------- */

static void a_model_that_fails_is_tried_again_later(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 60));
    for (uint64_t wait = 1; wait <= 4; wait *= 2) {
        wp_ticket one = world_ask(&w, a, 0).ticket, two = world_ask(&w, a, 0).ticket;
        assert_int_equal(world_state(&w, a), WP_LOADING);
        wp_loaded(w.pool, w.now, a, false, 0, 0);
        assert_int_equal(world_refused(&w, one), WP_LOAD_FAILED);
        assert_int_equal(world_refused(&w, two), WP_LOAD_FAILED);
        assert_int_equal(world_state(&w, a), WP_FAILED);
        assert_int_equal(wp_taken(w.pool, 0), 0);
        w.now += wait * SECOND - 1;
        wp_answer answer = world_ask(&w, a, 0);
        assert_int_equal(answer.cause, WP_LOAD_FAILED);
        assert_int_equal(answer.until, w.now + 1);
        w.now += 1;
    }
    wp_ticket ticket = world_ask(&w, a, 0).ticket;
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    assert_int_equal(wp_see(w.pool, a).failures, 3);
    world_end(&w);
}

static void a_residue_is_taken_until_another_number_is_told(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 60)), b = world_add(&w, world_spec("b", 90));
    world_load(&w, a);
    wp_ticket ticket = world_ask(&w, b, 0).ticket;
    wp_unloaded(w.pool, w.now, a, 15);
    world_take(&w);
    assert_int_equal(wp_taken(w.pool, 0), 15);
    assert_int_equal(world_state(&w, b), WP_UNLOADED);
    wp_measured(w.pool, w.now, a, 10);
    world_take(&w);
    assert_int_equal(world_state(&w, b), WP_LOADING);
    world_run(&w);
    assert_true(world_granted(&w, ticket));
    assert_int_equal(wp_taken(w.pool, 0), 100);
    world_end(&w);
}

static void a_removed_model_leaves_when_it_is_idle(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec spec = world_spec("a", 60);
    spec.pinned = true;
    spec.slots = 1;
    wp_model a = world_add(&w, spec);
    world_load(&w, a);
    wp_ticket running = world_ask(&w, a, 0).ticket, waits = world_ask(&w, a, 0).ticket;
    wp_remove(w.pool, w.now, a);
    assert_int_equal(world_refused(&w, waits), WP_REMOVED);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_REMOVED);
    assert_int_equal(world_state(&w, a), WP_LOADED);
    world_done(&w, running);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    world_run(&w);
    assert_int_equal(world_add(&w, world_spec("again", 1)), a);
    world_end(&w);
}

static void idle_models_leave_when_the_ceiling_falls(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_spec stays = world_spec("b", 40);
    stays.minimum_stay = WP_FOREVER;
    wp_model a = world_add(&w, world_spec("a", 40)), b = world_add(&w, stays);
    world_load(&w, a);
    world_load(&w, b);
    wp_ticket running = world_ask(&w, a, 5).ticket;
    wp_ceiling(w.pool, w.now, 0, 30);
    world_take(&w);
    assert_int_equal(world_state(&w, b), WP_UNLOADING);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_WAITS_OTHERS); /* held, as it has to go */
    world_run(&w);
    world_done(&w, running);
    assert_int_equal(world_state(&w, a), WP_UNLOADING);
    world_run(&w);
    assert_int_equal(wp_taken(w.pool, 0), 0);
    assert_int_equal(world_ask(&w, a, 0).cause, WP_NEVER_FITS);
    world_end(&w);
}

static void more_than_was_foreseen_is_remembered(void **state)
{
    (void)state;
    world w = world_begin(world_limits(), 100);
    wp_model a = world_add(&w, world_spec("a", 60)), b = world_add(&w, world_spec("b", 30));
    world_ask(&w, a, 0);
    wp_loaded(w.pool, w.now, a, true, 75, 3 * SECOND);
    assert_int_equal(wp_taken(w.pool, 0), 75);
    assert_int_equal(wp_see(w.pool, a).load_time, 3 * SECOND);
    world_ask(&w, b, 0);
    assert_int_equal(world_state(&w, b), WP_UNLOADED);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_loads_its_model_and_is_granted),
        cmocka_unit_test(what_can_never_fit_is_refused_and_nobody_leaves),
        cmocka_unit_test(pinned_models_are_out_of_reach),
        cmocka_unit_test(the_cheapest_one_leaves_and_its_bytes_are_kept),
        cmocka_unit_test(none_leaves_if_all_together_are_not_enough),
        cmocka_unit_test(what_a_victim_frees_is_for_whom_it_left),
        cmocka_unit_test(who_has_priority_comes_first),
        cmocka_unit_test(who_is_pinned_while_it_is_held_stays),
        cmocka_unit_test(a_smaller_variant_goes_before_or_after_victims_as_the_spec_says),
        cmocka_unit_test(without_victims_a_smaller_variant_is_loaded),
        cmocka_unit_test(loads_overlap_where_both_fit),
        cmocka_unit_test(a_suspend_is_preferred_while_the_host_has_room),
        cmocka_unit_test(a_suspended_one_is_evicted_for_the_hosts_bytes),
        cmocka_unit_test(a_suspend_or_a_resume_that_fails_is_not_the_end),
        cmocka_unit_test(a_minimum_stay_ends_early_only_for_a_higher_priority),
        cmocka_unit_test(idle_models_are_suspended_and_unloaded_in_time),
        cmocka_unit_test(who_waits_too_long_is_refused),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(two_models_change_places_once_a_while),
        cmocka_unit_test(grants_go_by_weight_and_priority_goes_first),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(a_model_that_fails_is_tried_again_later),
        cmocka_unit_test(a_residue_is_taken_until_another_number_is_told),
        cmocka_unit_test(a_removed_model_leaves_when_it_is_idle),
        cmocka_unit_test(idle_models_leave_when_the_ceiling_falls),
        cmocka_unit_test(more_than_was_foreseen_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
