/* cores.h: who computes with what, of the ledger of cores (weir/cores.h): as JSON, and a line for people. */
#ifndef WEIR_CLI_CORES_H
#define WEIR_CLI_CORES_H

#include <weir/cores.h>

#include <jansson.h>

/* {least, most, last, leases, waits, waited_seconds} of a model's line. */
json_t *cores_line_json(const weir_cores_stats *line);
/* This process's ledger: {cores, leased, peak, waiting, coupled, models[] {name, now, and as above}}. Any thread. */
json_t *cores_json(void);

/* The sum of all lines of that name, in *out; false: there is none. A model that is replaced has two for a while. */
bool cores_of_model(const char *name, weir_cores_stats *out);

/* "cores: 2, all leased, 1 run waits; minilm computes with 2, chat computed with 1" of such an object, which another process may
 * have told; behind `title`. Nothing where no model has leased any. */
void cores_print(const char *title, const json_t *cores);

#endif
