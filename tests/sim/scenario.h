/* A scenario of up to 300 calls of the driver that can fail, written down once from a random world without faults. */
#ifndef TESTS_SCENARIO_H
#define TESTS_SCENARIO_H

#include "sim.h"

enum { SCENARIO_STEPS = 1500, SCENARIO_CALLS = 300 };

static inline world_options scenario_world(void)
{
    simulate_options o;
    simulate_defaults(&o);
    o.world.seed = 11;
    o.world.budget = 16 * WI_MIB;
    o.world.device = 64 * WI_MIB;
    o.world.clients = 2;
    o.world.streams = 3;
    o.world.faults = false;
    return o.world;
}

/* Answers how many calls the steps make. */
static inline uint64_t write_scenario(const world_options *options, step *steps, size_t *count)
{
    uint64_t before = wi_sim_calls(WI_SIM_FALLIBLE);
    world *w = world_create(options);
    assert_non_null(w);
    for (*count = 0; *count < SCENARIO_STEPS && wi_sim_calls(WI_SIM_FALLIBLE) - before < SCENARIO_CALLS - 10;
         ++*count) {
        world_choose(w, &steps[*count]);
        world_step(w, &steps[*count]);
    }
    uint64_t calls = wi_sim_calls(WI_SIM_FALLIBLE) - before;
    world_end(w);
    assert_int_equal(world_found(w)->violations, 0);
    world_destroy(w);
    return calls;
}

static inline void run_with_faults(const world_options *options, const step *steps, size_t count)
{
    steps_outcome outcome;
    assert_true(run_steps(options, steps, count, &outcome));
    if (outcome.found.violations + outcome.found.count[ORACLE_USER] > 0)
        fail_msg("call %ld (%s) and %ld: %s", options->first.at, weir_status_name(options->first.status),
                 options->second.at, outcome.found.first);
}

#endif
