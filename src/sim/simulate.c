#include "sim/simulate.h"
#include "base/system.h"

#include <stdio.h>

wi_bug wi_seeded_bug = WI_BUG_NONE;

static const char *const defects[WI_BUGS] = {"nothing",         "early-reuse", "drop-wait",
                                             "unmap-under-use", "lost-reader", "free-under-use",
                                             "leave-early",     "arrive-late", "exchange-early"};

const char *defect_name(wi_bug defect)
{
    return defect < WI_BUGS ? defects[defect] : "?";
}

wi_bug defect_called(const char *name)
{
    for (unsigned i = 1; i < WI_BUGS; i++)
        if (strcmp(defects[i], name) == 0)
            return (wi_bug)i;
    return WI_BUGS;
}

const simulate_names simulate_words = {defect_name,    defect_called,    ladder_name,
                                       operation_name, oracle_kind_name, oracle_reuse_name};

/* The weights: most steps where most can happen, few where each is slow. */
static const struct {
    const char *text;
    unsigned percent;
} stacks[] = {{"mapped", 46},           {"direct", 12},       {"async", 12},   {"guard(mapped)", 3},
              {"log(guard(async))", 2}, {"log(segments)", 5}, {"segments", 20}};
enum { STACKS = sizeof stacks / sizeof stacks[0] };
_Static_assert((int)STACKS <= (int)SIMULATE_STACKS, "a result has a place for each");

const char *simulate_stack(size_t index)
{
    return index < STACKS ? stacks[index].text : NULL;
}

/* How many of the steps; the first gets what is left over. */
static uint64_t sim_simulate_share_of(uint64_t steps, size_t index)
{
    uint64_t others = 0;
    for (size_t i = 1; i < STACKS; i++)
        others += steps / 100 * stacks[i].percent;
    return index == 0 ? steps - others : steps / 100 * stacks[index].percent;
}

void simulate_defaults(simulate_options *options)
{
    *options = (simulate_options){.steps = 1000000,
                                  .shrink_steps = 500000,
                                  .world = {.seed = 1,
                                            .budget = 64 * WI_MIB,
                                            .device = 256 * WI_MIB,
                                            .granule = 2 * WI_MIB,
                                            .clients = 4,
                                            .streams = 8,
                                            .faults = true,
                                            .nested = true,
                                            .first = {.at = -1},
                                            .second = {.at = -1}}};
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
        used += world_step(w, steps + used, count - used);
    uint64_t after = wi_sim_calls(WI_SIM_FALLIBLE);
    world_end(w);
    *out = (steps_outcome){.found = *world_found(w), .faults = w->faults, .used = used, .calls = after - before};
    memcpy(out->ladder, w->ladder, sizeof out->ladder);
    memcpy(out->done, w->done, sizeof out->done);
    world_destroy(w);
    return true;
}

/* The random steps until the first finding, once more, this time kept. */
static bool keep_steps(const world_options *options, uint64_t count, step_list *stored)
{
    world *w = world_create(options);
    bool room = w != NULL;
    *stored = (step_list){0};
    for (uint64_t i = 0; room && i < count; i++)
        room = world_advance(w, stored);
    if (w) {
        world_end(w);
        world_destroy(w);
    }
    return room && stored->count > 0;
}

/* The shortest script that shows what was found in this world. */
static void sim_simulate_explain(const world_options *one, uint64_t most, uint64_t count, simulate_result *out)
{
    step_list stored;
    if (keep_steps(one, count, &stored)) {
        out->script_steps = stored.count;
        shrink(one, out->found.first_kind, most, stored.list, &out->script_steps);
        out->script = script_write(one, out->plant, stored.list, out->script_steps);
        steps_outcome outcome; /* what is told is what the script shows */
        if (run_steps(one, stored.list, out->script_steps, &outcome) && anything(&outcome.found))
            memcpy(out->found.first, outcome.found.first, sizeof out->found.first);
    }
    free(stored.list);
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

static void sim_simulate_add_up(simulate_result *out, const char *resource, uint64_t steps,
                                const oracle_findings *found, const uint64_t *ladder, const uint64_t *done,
                                uint64_t faults)
{
    simulate_part *part = &out->parts[out->part_count++];
    *part = (simulate_part){.resource = resource, .steps = steps, .violations = found->violations};
    memcpy(part->ladder, ladder, sizeof part->ladder);
    out->found = *found;
    out->steps += steps;
    out->faults += faults;
    for (unsigned i = 0; i < LADDER_RUNGS; i++)
        out->ladder[i] += ladder[i];
    for (unsigned i = 0; i < ORACLE_REUSES; i++)
        out->reuse[i] += found->reuse[i];
    for (unsigned i = 0; i < sizeof out->done / sizeof out->done[0]; i++)
        out->done[i] += done[i];
}

/* Steps of one world; those until the first finding are counted. */
static bool run_world(const world_options *options, uint64_t steps, simulate_result *out)
{
    uint64_t i = 0;
    world *w = make_world(options, out);
    if (!w)
        return false;
    while (i < steps && !anything(world_found(w))) {
        (void)world_advance(w, NULL);
        i++;
    }
    world_end(w);
    sim_simulate_add_up(out, options->resource, i, world_found(w), w->ladder, w->done, w->faults);
    world_destroy(w);
    return true;
}

/* One world after another, until something is found. */
static bool sim_simulate_run_random(const simulate_options *options, simulate_result *out)
{
    bool named = options->world.resource != NULL, ran = true;
    size_t count = named ? 1 : STACKS;
    for (size_t i = 0; ran && i < count && !anything(&out->found); i++) {
        world_options one = options->world;
        uint64_t steps = named ? options->steps : sim_simulate_share_of(options->steps, i);
        if (!named) {
            one.resource = simulate_stack(i);
            one.seed += i * UINT64_C(0x9e3779b97f4a7c15);
        }
        if (steps == 0)
            continue;
        ran = run_world(&one, steps, out);
        if (ran && anything(&out->found))
            sim_simulate_explain(&one, options->shrink_steps, out->parts[out->part_count - 1].steps, out);
    }
    return ran;
}

static bool run_script(const simulate_options *options, simulate_result *out)
{
    world_options given = options->world;
    steps_outcome outcome;
    step *steps;
    size_t count;
    if (!script_read(options->script, &given, &out->plant, &steps, &count, out->error, sizeof out->error))
        return false;
    if (!given.resource)
        given.resource = simulate_stack(0);
    world *w = make_world(&given, out);
    if (!w) {
        free(steps);
        return false;
    }
    world_end(w);
    world_destroy(w);
    wi_seeded_bug = out->plant;
    bool ran = run_steps(&given, steps, count, &outcome);
    free(steps);
    if (ran)
        sim_simulate_add_up(out, given.resource, outcome.used, &outcome.found, outcome.ladder, outcome.done,
                            outcome.faults);
    return ran;
}

bool simulate(const simulate_options *options, simulate_result *out)
{
    *out = (simulate_result){.plant = options->plant};
    double start = wi_real_seconds();
    wi_seeded_bug = options->plant;
    bool ran = options->script ? run_script(options, out) : sim_simulate_run_random(options, out);
    out->seconds = wi_real_seconds() - start;
    wi_seeded_bug = WI_BUG_NONE;
    return ran;
}
