/* simulator.h: the program weir-sim beside this one, which has the simulated device. */
#ifndef WEIR_CLI_SIMULATOR_H
#define WEIR_CLI_SIMULATOR_H

#include <weir/base.h>

#include <jansson.h>

/* Becomes weir-sim with these arguments, from the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int simulator_become(char **argv);

/* Calls weir-sim with these arguments, which have to ask for JSON, and returns its answer. NULL: the call failed, and
 * the detail says how. */
json_t *simulator_call(const char *const *argv);

#endif
