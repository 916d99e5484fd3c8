/* Memory and processors that this process may use: the machine's, within the limits of its cgroup and of all parents of
 * that, in both versions of cgroups, and within its affinity.
 *
 * `root` is what stands before every path: "", or the directory of another machine's files. */
#ifndef WI_CGROUP_H
#define WI_CGROUP_H

#include "base/internal.h"

/* Bytes of memory that the process may use, and how many of them are free. Files that a group has read and not used
 * since (inactive_file) are free, as the kernel gives them up first. Of memory.max and memory.high the smaller is the
 * limit: above memory.high a group is throttled until it is as good as stopped. A limit of 0 is valid. False, with 0
 * and 0: unknown. */
bool wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total);

/* Processors that the process may use: those of its affinity and cpuset, and no more than its groups' share of time
 * fills (cpu.max, rounded up). 0: unknown. */
uint32_t wi_cgroup_processors(const char *root);

/* Processors that the groups' share of time fills. 0: there is no such limit. */
uint32_t wi_cgroup_quota(const char *root);

#endif
