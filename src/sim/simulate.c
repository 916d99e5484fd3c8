#include "sim/simulate.h"

#include <stdio.h>
#include <time.h>

static const char *const defects[WI_DEFECTS] = {"nothing",         "early-reuse", "drop-wait",
                                                "unmap-under-use", "lost-reader", "free-under-use"};

const char *defect_name(wi_defect defect)
{
    return defect < WI_DEFECTS ? defects[defect] : "?";
}

wi_defect defect_called(const char *name)
{
    for (unsigned i = 1; i < WI_DEFECTS; i++)
        if (strcmp(defects[i], name) == 0)
            return (wi_defect)i;
    return WI_DEFECTS;
}

const simulate_names simulate_words = {defect_name, defect_called, ladder_name, operation_name, oracle_kind_name};

void simulate_defaults(simulate_options *options)
{
    *options = (simulate_options){.steps = 1000000,
                                  .shrink_seconds = 20,
                                  .world = {.seed = 1,
                                            .budget = 64 * WI_MIB,
                                            .device = 256 * WI_MIB,
                                            .granule = 2 * WI_MIB,
                                            .clients = 4,
                                            .streams = 8,
                                            .faults = true,
                                            .first = {.at = -1},
                                            .second = {.at = -1}}};
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool anything(const oracle_findings *found)
{
    return found->violations + found->count[ORACLE_USER] > 0;
}

bool run_steps(const world_options *options, const step *steps, size_t count, steps_outcome *out)
{
    uint64_t before = wi_sim_calls(WI_SIM_FALLIBLE);
    world *w = world_create(options);
    if (!w)
        return false;
    size_t used = 0;
    while (used < count && !anything(world_found(w)))
        world_step(w, &steps[used++]);
    uint64_t after = wi_sim_calls(WI_SIM_FALLIBLE);
    world_end(w);
    *out = (steps_outcome){.found = *world_found(w), .faults = w->faults, .used = used, .calls = after - before};
    memcpy(out->ladder, w->ladder, sizeof out->ladder);
    memcpy(out->done, w->done, sizeof out->done);
    world_destroy(w);
    return true;
}

/* The random steps until the first finding, once more, this time kept. */
static bool keep_steps(const world_options *options, uint64_t count, step **steps)
{
    world *w = world_create(options);
    *steps = w ? malloc((count + 1) * sizeof **steps) : NULL;
    for (uint64_t i = 0; *steps && i < count; i++) {
        world_choose(w, &(*steps)[i]);
        world_step(w, &(*steps)[i]);
    }
    if (w) {
        world_end(w);
        world_destroy(w);
    }
    return *steps != NULL;
}

static void explain(const simulate_options *options, simulate_result *out)
{
    step *steps;
    if (!keep_steps(&options->world, out->steps, &steps))
        return;
    out->script_steps = out->steps;
    shrink(&options->world, out->found.first_kind, options->shrink_seconds, steps, &out->script_steps);
    out->script = script_write(&options->world, out->plant, steps, out->script_steps);
    steps_outcome outcome; /* what is told is what the script shows */
    if (run_steps(&options->world, steps, out->script_steps, &outcome) && anything(&outcome.found))
        memcpy(out->found.first, outcome.found.first, sizeof out->found.first);
    free(steps);
}

/* A world whose runtime could be made, or why not. */
static world *make_world(const world_options *options, simulate_result *out)
{
    world *w = world_create(options);
    if (w && w->runtime)
        return w;
    snprintf(out->error, sizeof out->error, "%s", w ? weir_detail() : "no host memory for a world");
    if (w)
        world_destroy(w);
    return NULL;
}

static bool run_random(const simulate_options *options, simulate_result *out)
{
    world *w = make_world(&options->world, out);
    step s;
    if (!w)
        return false;
    for (; out->steps < options->steps && !anything(world_found(w)); out->steps++) {
        world_choose(w, &s);
        world_step(w, &s);
    }
    world_end(w);
    out->found = *world_found(w);
    memcpy(out->ladder, w->ladder, sizeof out->ladder);
    memcpy(out->done, w->done, sizeof out->done);
    out->faults = w->faults;
    world_destroy(w);
    return true;
}

static bool run_script(const simulate_options *options, simulate_result *out)
{
    world_options given = options->world;
    steps_outcome outcome;
    step *steps;
    size_t count;
    if (!script_read(options->script, &given, &out->plant, &steps, &count, out->error, sizeof out->error))
        return false;
    world *w = make_world(&given, out);
    if (!w) {
        free(steps);
        return false;
    }
    world_end(w);
    world_destroy(w);
    wi_plant = out->plant;
    bool ran = run_steps(&given, steps, count, &outcome);
    free(steps);
    if (ran) {
        out->found = outcome.found;
        out->steps = outcome.used;
        out->faults = outcome.faults;
        memcpy(out->ladder, outcome.ladder, sizeof out->ladder);
        memcpy(out->done, outcome.done, sizeof out->done);
    }
    return ran;
}

bool simulate(const simulate_options *options, simulate_result *out)
{
    *out = (simulate_result){.plant = options->plant};
    double start = seconds_now();
    wi_plant = options->plant;
    bool ran = options->script ? run_script(options, out) : run_random(options, out);
    out->seconds = seconds_now() - start;
    if (ran && !options->script && anything(&out->found))
        explain(options, out);
    wi_plant = WI_PLANT_NOTHING;
    return ran;
}
