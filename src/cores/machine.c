/* See machine.h. */
#include "cores/machine.h"

#include "base/system.h"

#include <sched.h>
#include <stdatomic.h>

/* The first processor of the core that `cpu` belongs to; `cpu` itself where the system does not tell. */
static uint64_t first_of_core(const char *root, int cpu)
{
    uint64_t first = (uint64_t)cpu;
    wi_sysfs_number(&first, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    return first;
}

/* Of this machine (an empty root) it is read once: a processor stays in its core. */
static uint64_t known_first_of_core(const char *root, int cpu)
{
    static atomic_uint known[CPU_SETSIZE]; /* the first processor and 1; 0: not read yet */
    if (*root)
        return first_of_core(root, cpu);
    uint64_t first = atomic_load_explicit(&known[cpu], memory_order_relaxed);
    if (first == 0) {
        first = first_of_core(root, cpu) + 1;
        if (first <= CPU_SETSIZE)
            atomic_store_explicit(&known[cpu], (unsigned)first, memory_order_relaxed);
    }
    return first - 1;
}

uint32_t wi_cores_of_machine(const char *root)
{
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            uint64_t first = known_first_of_core(root, cpu);
            if (first < CPU_SETSIZE)
                CPU_SET((int)first, &cores);
        }
    /* The affinity lies within all cpusets. Each load asks. */
    uint32_t count = (uint32_t)CPU_COUNT(&cores);
    uint32_t processors = count > 0 ? wi_cgroup_quota(root) : wi_cgroup_processors(root);
    if (count == 0 || (processors > 0 && processors < count))
        count = processors;
    return count > 0 ? count : 1;
}
