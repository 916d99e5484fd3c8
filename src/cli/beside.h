/* beside.h: the programs beside this one: weir-sim, which has the simulated device, and weir-bench, which measures. */
#ifndef WEIR_CLI_BESIDE_H
#define WEIR_CLI_BESIDE_H

#include <weir/base.h>

#include <jansson.h>

/* Becomes weir-sim with these arguments, from the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int beside_become_sim(char **argv);

/* Calls weir-sim with these arguments, which have to ask for JSON, and returns its answer. NULL: the call failed, and
 * the detail says how. */
json_t *beside_call_sim(const char *const *argv);

/* Becomes weir-bench, or where it does not lie beside this program the one in PATH, with these arguments, from the one
 * behind the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int beside_become_bench(char **argv);

#endif
