/* A whole simulation: random steps or a script, the oracle's findings, and the shortest script that shows the first. */
#ifndef SIM_SIMULATE_H
#define SIM_SIMULATE_H

#include "base/probes.h"
#include "sim/world.h"

/* A world for each of these stacks of resources, where none is named. */
enum { SIMULATE_STACKS = 12 };

typedef struct simulate_options {
    world_options world; /* resource NULL: the steps are divided over all */
    uint64_t steps;
    wi_bug plant;
    const char *script;    /* its text, instead of random steps; its first line has the world */
    uint64_t shrink_steps; /* so many are run, at the most, in search of the shortest script */
} simulate_options;

typedef struct simulate_part {
    const char *resource;
    uint64_t steps, violations, ladder[LADDER_RUNGS];
} simulate_part;

typedef struct simulate_result {
    uint64_t steps;
    simulate_part parts[SIMULATE_STACKS];
    size_t part_count;
    oracle_findings found;
    uint64_t ladder[LADDER_RUNGS], reuse[ORACLE_REUSES], done[256], faults;
    wi_bug plant;
    double seconds;
    char *script; /* NULL: nothing was found; for free() */
    size_t script_steps;
    char error[256]; /* the reason, if nothing ran */
} simulate_result;

/* What the command calls things. An operation past the last is "?". */
typedef struct simulate_names {
    const char *(*defect)(wi_bug defect);
    wi_bug (*defect_called)(const char *name);
    const char *(*rung)(ladder_rung rung);
    const char *(*operation)(unsigned operation);
    const char *(*finding)(oracle_kind kind);
    const char *(*reuse)(oracle_reuse kind);
} simulate_names;
extern const simulate_names simulate_words;

void simulate_defaults(simulate_options *options);
/* False: `error` says why nothing ran. */
bool simulate(const simulate_options *options, simulate_result *out);
const char *defect_name(wi_bug defect);
wi_bug defect_called(const char *name); /* WI_BUGS: none */

/* Scripts: a line for the world, then one per step. */
char *script_write(const world_options *options, wi_bug plant, const step *steps, size_t count);
bool script_read(const char *text, world_options *options, wi_bug *plant, step **steps, size_t *count, char *error,
                 size_t capacity);

/* The stack of number `index`, from 0; NULL past the last. */
const char *simulate_stack(size_t index);

/* Leaves out what the finding does not need; the steps left are in place, *count of them. */
void shrink(const world_options *options, oracle_kind kind, uint64_t most, step *steps, size_t *count);

/* Runs the steps until something is found, and ends the world. */
typedef struct steps_outcome {
    oracle_findings found;
    uint64_t ladder[LADDER_RUNGS], done[256], faults;
    size_t used;    /* steps until the first finding, those within them counted in */
    uint64_t calls; /* that could have failed */
} steps_outcome;
bool run_steps(const world_options *options, const step *steps, size_t count, steps_outcome *out);

#endif
