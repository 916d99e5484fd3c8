/* cores.c: hardware threads of one core share its multipliers, so a matrix product gains nothing from the second. */
#include "cores.h"

#include <sched.h>
#include <stdio.h>

/* The first processor of the core that `cpu` belongs to; `cpu` itself where the system does not tell. */
static int first_of_core(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *list = fopen(path, "re");
    if (!list)
        return cpu;
    if (fscanf(list, "%d", &first) != 1)
        first = cpu;
    fclose(list);
    return first;
}

int wg_cores(void)
{
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            int first = first_of_core(cpu);
            if (first >= 0 && first < CPU_SETSIZE)
                CPU_SET(first, &cores);
        }
    return CPU_COUNT(&cores) > 0 ? CPU_COUNT(&cores) : 1;
}
