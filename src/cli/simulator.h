/* simulator.h: the program weir-sim beside this one, which has the simulated device. */
#ifndef WEIR_CLI_SIMULATOR_H
#define WEIR_CLI_SIMULATOR_H

#include <weir/base.h>

#include <jansson.h>

/* Becomes weir-sim with these arguments, from the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int simulator_become(char **argv);

/* Calls it with these arguments, which ask for JSON, and answers that; NULL: it failed, and the detail says how. */
json_t *simulator_call(const char *const *argv);

#endif
