/* The cores that a process may compute on: physical ones of its affinity, and no more than its cgroups let it fill. */
#include "cores/machine.h"

#include "core/core.h"

#include <fcntl.h>
#include <sys/stat.h>

static char root[] = "/tmp/weir-cores-XXXXXX";

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command); // NOLINT(cert-env33-c)
}

static cpu_set_t set;

/* Processors of this thread's affinity. */
static uint32_t allowed(int *first)
{
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (*first = 0; !CPU_ISSET(*first, &set);)
        ++*first;
    return (uint32_t)CPU_COUNT(&set);
}

/* The threads of the core to which each of them belongs: all to `core`, or each to itself (-1). */
static void put_siblings(int core)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[128], list[64];
        if (!CPU_ISSET(cpu, &set))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        snprintf(list, sizeof list, core < 0 ? "%d\n" : "%d,900\n", core < 0 ? cpu : core);
        put(path, list);
    }
}

static void physical_cores_of_the_affinity_count(void **state)
{
    (void)state;
    int first;
    uint32_t count = allowed(&first);
    assert_int_equal(wi_cores_of_machine(root), count); /* nothing is told of them */
    put_siblings(first);
    assert_int_equal(wi_cores_of_machine(root), 1); /* all are threads of one core */
}

static void a_quota_counts(void **state)
{
    (void)state;
    int first;
    char list[64];
    uint32_t count = allowed(&first);
    snprintf(list, sizeof list, "%d-%d\n", first, first + 1023);
    put("/sys/devices/system/cpu/online", list);
    put_siblings(-1);
    put("/proc/self/cgroup", "0::/box\n");
    put("/sys/fs/cgroup/box/cpu.max", "max 100000\n");
    assert_int_equal(wi_cores_of_machine(root), count);
    put("/sys/fs/cgroup/box/cpu.max", "50000 100000\n");
    assert_int_equal(wi_cores_of_machine(root), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(physical_cores_of_the_affinity_count, make),
        cmocka_unit_test_teardown(a_quota_counts, drop),
    };
    return cmocka_run_group_tests_name("cores-machine", tests, NULL, NULL);
}
