/* A scenario of up to 400 calls of the driver that can fail, drawn once from a random world without faults, and run with
 * faults at its calls. */
#ifndef TESTS_SCENARIO_H
#define TESTS_SCENARIO_H

#include "sim.h"

enum { SCENARIO_STEPS = 1500, SCENARIO_CALLS = 400 };

typedef struct scenario {
    world_options options;
    step_list steps;
    uint64_t calls;
} scenario;

static inline scenario draw_scenario(const char *resource, uint64_t seed)
{
    simulate_options o;
    simulate_defaults(&o);
    scenario s = {.options = o.world};
    s.options.resource = resource;
    s.options.seed = seed;
    s.options.budget = 16 * WI_MIB;
    s.options.device = 64 * WI_MIB;
    s.options.clients = 2;
    s.options.streams = 3;
    s.options.faults = false;
    uint64_t before = wi_sim_calls(WI_SIM_FALLIBLE);
    world *w = world_create(&s.options);
    assert_non_null(w);
    for (int i = 0; i < SCENARIO_STEPS && wi_sim_calls(WI_SIM_FALLIBLE) - before < SCENARIO_CALLS / 2; i++)
        assert_true(world_advance(w, &s.steps));
    s.calls = wi_sim_calls(WI_SIM_FALLIBLE) - before;
    world_end(w);
    if (world_found(w)->violations > 0)
        fail_msg("%s: %s", resource, world_found(w)->first);
    world_destroy(w);
    return s;
}

/* The first with as many calls as it should have; of worlds whose threads keep what they free. */
static inline scenario make_scenario(const char *resource)
{
    for (uint64_t seed = 11; seed < 51; seed += 2) {
        scenario s = draw_scenario(resource, seed);
        if (s.calls >= SCENARIO_CALLS / 3 && s.calls <= SCENARIO_CALLS)
            return s;
        free(s.steps.list);
    }
    fail_msg("%s: no scenario has the right length", resource);
    return (scenario){0};
}

static inline void run_with_faults(const scenario *s, wi_sim_fault first, wi_sim_fault second)
{
    world_options options = s->options;
    steps_outcome outcome;
    options.first = first;
    options.second = second;
    assert_true(run_steps(&options, s->steps.list, s->steps.count, &outcome));
    if (outcome.found.violations + outcome.found.count[ORACLE_USER] > 0)
        fail_msg("%s, call %ld (%s) and %ld: %s", options.resource, first.at,
                 weir_name_of(WEIR_NAMES_STATUS, first.status), second.at, outcome.found.first);
}

static inline wi_sim_fault fault_at(uint64_t at)
{
    return (wi_sim_fault){WI_SIM_CALLS, (long)at, false, WEIR_ERR_DRIVER};
}

static inline void for_all_stacks(void (*fn)(const scenario *s))
{
    for (size_t i = 0; simulate_stack(i); i++) {
        scenario s = make_scenario(simulate_stack(i));
        fn(&s);
        free(s.steps.list);
    }
}

#endif
