/* See crowd.h. */
#include "cores/crowd.h"

#include "base/system.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { FIRST_CROWD_DELAY = 50 * 1000 * 1000 };
static const uint64_t longest_crowd_delay = UINT64_C(64) * FIRST_CROWD_DELAY;

/* The times of getrusage are as old as the system's last tick: some milliseconds, a fifth of a window. */
wi_crowd_sample wi_crowd_look(uint64_t now)
{
    struct rusage used;
    struct timespec ran;
    getrusage(RUSAGE_THREAD, &used);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (wi_crowd_sample){.passed = now,
                             .ran = (uint64_t)ran.tv_sec * UINT64_C(1000000000) + (uint64_t)ran.tv_nsec,
                             .put_off = wi_clock ? 0 : (uint64_t)used.ru_nivcsw}; /* in simulated time nobody is */
}

void wi_crowd_begin(wi_crowd *crowd, uint32_t cores)
{
    *crowd = (wi_crowd){.limit = cores, .delay = FIRST_CROWD_DELAY};
}

/* A quarter, so that many threads become few soon, and few become one less. */
static uint32_t crowd_step(uint32_t threads)
{
    return threads / 4 > 0 ? threads / 4 : 1;
}

/* Being put off is the system's doing; time alone also passes while a file is read. */
static bool is_crowded(const wi_crowd_sample *window)
{
    return window->put_off > 0 && window->ran < window->passed - window->passed / 5;
}

static bool shrink_crowd(wi_crowd *crowd)
{
    if (crowd->trying)
        crowd->delay = wi_min(crowd->delay * 2, longest_crowd_delay);
    crowd->trying = false;
    crowd->quiet = 0;
    if (crowd->most <= 1)
        return false;
    crowd->limit = crowd->most - crowd_step(crowd->most);
    return true;
}

static bool grow_crowd(wi_crowd *crowd, uint32_t cores)
{
    if (crowd->trying && crowd->most < crowd->limit)
        return false; /* not tried yet */
    if (crowd->trying)
        crowd->delay = FIRST_CROWD_DELAY;
    crowd->trying = false;
    crowd->quiet += crowd->window.passed;
    if (crowd->limit >= cores || crowd->quiet < crowd->delay)
        return false;
    crowd->limit = (uint32_t)wi_min(crowd->limit + crowd_step(crowd->limit), cores);
    crowd->trying = true;
    crowd->quiet = 0;
    return true;
}

bool wi_crowd_add(wi_crowd *crowd, uint32_t cores, uint32_t threads, const wi_crowd_sample *sample)
{
    crowd->window.passed += sample->passed;
    crowd->window.ran += sample->ran;
    crowd->window.put_off += sample->put_off;
    crowd->most = (uint32_t)wi_max(crowd->most, threads);
    if (crowd->window.passed < WI_CROWD_WINDOW)
        return false;
    bool changed = is_crowded(&crowd->window) ? shrink_crowd(crowd) : grow_crowd(crowd, cores);
    crowd->window = (wi_crowd_sample){0};
    crowd->most = 0;
    return changed;
}

/* Cores ------------------------------------------------------------------------------------------------------------ */

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
