/* The cores that this process may compute on. */
#ifndef WI_CORES_MACHINE_H
#define WI_CORES_MACHINE_H

#include "base/internal.h"

/* Physical cores among the processors of the process's affinity, and no more than its cgroups' share of time fills; at
 * least 1. Hardware threads of one core share its multipliers, so that a matrix product gains nothing from the second.
 * `root` is what stands before /sys and /proc: "". */
uint32_t wi_cores_of_machine(const char *root);

#endif
