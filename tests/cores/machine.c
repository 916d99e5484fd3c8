/* The cores that a process may compute on: physical ones of its affinity, and no more than its cgroups let it fill. */
#include "cores/crowd.h"

#include "core/core.h"

#include <fcntl.h>
#include <sys/stat.h>

static int looks; /* at which processors are of one core */
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_open(const char *path, int flags, ...);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    looks += strstr(path, "thread_siblings_list") != NULL;
    return __real_open(path, flags, mode);
}

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

/* Each load asks for the machine's own cores: which processors are of one is read at the first alone. */
static void the_machine_is_looked_at_once(void **state)
{
    (void)state;
    int first;
    uint32_t count = allowed(&first);
    looks = 0;
    uint32_t cores = wi_cores_of_machine("");
    assert_int_equal(looks, count);
    assert_true(cores >= 1 && cores <= count);
    assert_int_equal(wi_cores_of_machine(""), cores);
    assert_int_equal(looks, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(physical_cores_of_the_affinity_count, make),
        cmocka_unit_test_teardown(a_quota_counts, drop),
        cmocka_unit_test(the_machine_is_looked_at_once),
    };
    return cmocka_run_group_tests_name("cores-machine", tests, NULL, NULL);
}
