#include "pool/world.h"

world world_begin(wp_limits limits, uint64_t ceiling)
{
    world w = {.pool = wp_admission_create(&limits, 1), .now = SECOND};
    assert_non_null(w.pool);
    wp_ceiling(w.pool, w.now, 0, ceiling);
    return w;
}

void world_end(world *w)
{
    wp_admission_destroy(w->pool);
    free(w->log);
}

wp_limits world_limits(void)
{
    return (wp_limits){.queue = 100, .queue_bytes = 1000000, .longest = 60 * SECOND, .retry = SECOND, .host = 1000000};
}

wp_spec world_spec(const char *name, uint64_t bytes)
{
    wp_spec spec = {.variants = {{.peak = bytes, .resident = bytes, .layers = -1}},
                    .variant_count = 1,
                    .may_evict = true,
                    .weight = 1,
                    .load_time = SECOND,
                    .keep_alive = WP_FOREVER,
                    .suspend_after = WP_FOREVER,
                    .slots = 8};
    strncpy(spec.name, name, WP_NAME - 1);
    return spec;
}

wp_model world_add(world *w, wp_spec spec)
{
    wp_model model = UINT32_MAX;
    assert_true(wp_add(w->pool, w->now, &spec, &model));
    world_take(w);
    return model;
}

void world_take(world *w)
{
    for (wp_action action; wp_next(w->pool, &action);) {
        if (w->count == w->room) {
            w->room = w->room ? 2 * w->room : 64;
            w->log = realloc(w->log, w->room * sizeof *w->log);
            assert_non_null(w->log);
        }
        w->log[w->count++] = action;
        w->totals[action.kind]++;
    }
    assert_true(wp_invariants(w->pool));
}

const wp_action *world_last(world *w, wp_action_kind kind, wp_model model)
{
    world_take(w);
    for (size_t i = w->count; i-- > 0;)
        if (w->log[i].kind == kind && w->log[i].model == model)
            return &w->log[i];
    return NULL;
}

uint32_t world_number(world *w, wp_action_kind kind, wp_model model)
{
    uint32_t number = 0;
    world_take(w);
    for (size_t i = 0; i < w->count; i++)
        number += w->log[i].kind == kind && w->log[i].model == model;
    return number;
}

void world_answer(world *w, wp_model model)
{
    world_take(w);
    switch (world_state(w, model)) {
    case WP_LOADING:
        wp_loaded(w->pool, w->now, model, true, world_last(w, WP_LOAD, model)->bytes, 0);
        break;
    case WP_RESUMING:
        wp_resumed(w->pool, w->now, model, true, world_last(w, WP_RESUME, model)->bytes, 0);
        break;
    case WP_SUSPENDING:
        wp_suspended(w->pool, w->now, model, true, world_last(w, WP_SUSPEND, model)->bytes, 0);
        break;
    case WP_UNLOADING:
        wp_unloaded(w->pool, w->now, model, 0);
        break;
    default:
        fail();
    }
    world_take(w);
}

void world_run(world *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (wp_model m = 0; m < 64; m++) {
            wp_state state = world_state(w, m);
            if (state == WP_LOADING || state == WP_RESUMING || state == WP_SUSPENDING || state == WP_UNLOADING) {
                world_answer(w, m);
                moved = true;
            }
        }
    }
}

wp_answer world_ask(world *w, wp_model model, uint64_t bytes)
{
    wp_answer answer = wp_ask(w->pool, w->now, &(wp_request){.model = model, .bytes = bytes, .deadline = WP_FOREVER});
    world_take(w);
    return answer;
}

void world_done(world *w, wp_ticket ticket)
{
    wp_done(w->pool, w->now, ticket);
    world_take(w);
}

void world_pass(world *w, uint64_t time)
{
    w->now += time;
    wp_tick(w->pool, w->now);
    world_take(w);
}

wp_state world_state(world *w, wp_model model)
{
    return wp_see(w->pool, model).state;
}

bool world_granted(world *w, wp_ticket ticket)
{
    world_take(w);
    for (size_t i = 0; i < w->count; i++)
        if (w->log[i].kind == WP_GRANT && w->log[i].answer.ticket == ticket)
            return true;
    return false;
}

wp_cause world_refused(world *w, wp_ticket ticket)
{
    world_take(w);
    for (size_t i = 0; i < w->count; i++)
        if (w->log[i].kind == WP_REFUSE && w->log[i].answer.ticket == ticket)
            return w->log[i].answer.cause;
    return WP_CAUSES;
}

void world_load(world *w, wp_model model)
{
    wp_answer why;
    assert_true(wp_want(w->pool, w->now, model, WP_LOADED, &why));
    world_run(w);
    assert_int_equal(world_state(w, model), WP_LOADED);
}
