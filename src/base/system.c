#include "base/system.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

uint64_t (*wi_clock)(void);
bool wi_alone;

uint64_t wi_now(void)
{
    if (wi_clock)
        return wi_clock();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t wi_thread_number(void)
{
    static atomic_uint_fast64_t last;
    static _Thread_local uint64_t mine;
    if (mine == 0)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
}

/* Forks ------------------------------------------------------------------------------------------------------------ */

atomic_bool wi_forked;

static void in_child(void)
{
    atomic_store(&wi_forked, true);
}

static void watch_forks_once(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void wi_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks_once);
}

void wi_fail_forked(void)
{
    (void)weir_fail(WEIR_FORKED, "this process was forked from one that used weir, and device memory and threads do "
                                 "not survive a fork; use exec, or fork before the first call");
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

/* Reads one number from a file; false when there is none ("max" in a cgroup file). */
static bool read_number(const char *path, uint64_t *out)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    unsigned long long value;
    bool found = fscanf(file, "%llu", &value) == 1;
    fclose(file);
    *out = value;
    return found;
}

static void apply_group(const char *limit_path, const char *usage_path, uint64_t *available, uint64_t *total)
{
    uint64_t limit, usage = 0;
    if (!read_number(limit_path, &limit) || limit >= *total)
        return;
    *total = limit;
    if (read_number(usage_path, &usage))
        *available = wi_min(*available, limit > usage ? limit - usage : 0);
    else
        *available = wi_min(*available, limit);
}

/* Walks from the process's own group to the root: every group on the way may limit it. */
static void apply_groups(const char *root, char *group, const char *limit_name, const char *usage_name,
                         uint64_t *available, uint64_t *total)
{
    for (;;) {
        char limit[768], usage[768];
        snprintf(limit, sizeof limit, "%s%s/%s", root, group, limit_name);
        snprintf(usage, sizeof usage, "%s%s/%s", root, group, usage_name);
        apply_group(limit, usage, available, total);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

static void apply_cgroups(uint64_t *available, uint64_t *total)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (strcmp(controllers, ":") == 0)
            apply_groups("/sys/fs/cgroup", group, "memory.max", "memory.current", available, total);
        else if (strstr(controllers, "memory"))
            apply_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", available,
                         total);
    }
    fclose(file);
}

void wi_system_memory(uint64_t *available, uint64_t *total)
{
    *total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/meminfo", "re");
    if (file) {
        char line[128];
        unsigned long long kib;
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
                *available = kib * WI_KIB;
        fclose(file);
    }
    apply_cgroups(available, total);
}
