/* The default budget keeps to the limits of the process's cgroup: by the kernel's controller dmem and by NVML. The device is the
 * stub of CUDA's, with 16 GiB, and its address is that of the stub of NVML's, whose limits tests.cmake writes down. */
#include "machine.h"
#include "runtime/limits.h"

#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

#define MARGIN (UINT64_C(512) << 20)

static machine there;

/* The budget that a runtime of the device gets in this group; 0: none is made. */
static uint64_t budget_in(const char *group, uint64_t asked)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    weir_runtime *runtime = NULL;
    machine_file(&there, "proc/self/cgroup", "0::%s\n", group);
    options.budget = asked;
    if (weir_runtime_create("cuda:0", &options, &runtime) != WEIR_OK)
        return 0;
    assert_int_equal(weir_runtime_info(runtime, &details), WEIR_OK);
    assert_int_equal(weir_runtime_destroy(runtime), WEIR_OK);
    return details.budget;
}

static void group(const char *name, const char *file, uint64_t bytes)
{
    char path[128];
    snprintf(path, sizeof path, "sys/fs/cgroup%s/%s", name, file);
    machine_file(&there, path, "nvidia/0000:01:00.0/vidmem %llu\n", (unsigned long long)bytes);
}

static void the_least_counts(void **state)
{
    (void)state;
    uint64_t free = budget_in("/none", 0);
    assert_in_range(free, 13 * GIB, 15 * GIB); /* a tenth of it is the margin */
    group("/dmem", "dmem.max", 4 * GIB);
    group("/dmem", "dmem.current", GIB);
    assert_int_equal(budget_in("/dmem", 0), 3 * GIB - MARGIN);
    assert_int_equal(budget_in("/dmem/below", 0), 3 * GIB - MARGIN);
    group("/dmem/below", "dmem.max", 64 * GIB);
    assert_int_equal(budget_in("/dmem/below", 0), 3 * GIB - MARGIN);
    group("/large", "dmem.max", 64 * GIB);
    assert_int_equal(budget_in("/large", 0), free);
    assert_int_equal(budget_in("/nvml", 0), 2 * GIB - MARGIN);
    group("/nvml", "dmem.max", 2 * GIB - (UINT64_C(1) << 20));
    assert_int_equal(budget_in("/nvml", 0), 2 * GIB - (UINT64_C(1) << 20) - MARGIN);
    assert_int_equal(budget_in("/guaranteed", 0), free);
}

/* What is asked for is given all the same: the driver refuses what is too much. */
static void a_budget_that_is_asked_for(void **state)
{
    (void)state;
    group("/asked", "dmem.max", 4 * GIB);
    assert_int_equal(budget_in("/asked", 8 * GIB), 8 * GIB);
}

static void nothing_is_left(void **state)
{
    (void)state;
    group("/small", "dmem.max", GIB);
    group("/small", "dmem.current", GIB - (UINT64_C(100) << 20));
    assert_int_equal(budget_in("/small", 0), 0);
    assert_non_null(strstr(weir_detail(), "has only 100 MiB free within the limits of this process's cgroup"));
}

static void look(const char *name, wi_device_limits *out)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_runtime *runtime = NULL;
    machine_file(&there, "proc/self/cgroup", "0::%s\n", name);
    options.budget = GIB;
    assert_int_equal(weir_runtime_create("cuda:0", &options, &runtime), WEIR_OK);
    *out = (wi_device_limits){0};
    (void)wi_limits_read(runtime, out);
    assert_int_equal(weir_runtime_destroy(runtime), WEIR_OK);
}

static void what_is_guaranteed(void **state)
{
    (void)state;
    wi_device_limits l;
    look("/nowhere", &l);
    assert_true(l.most == UINT64_MAX && l.left == UINT64_MAX && l.guaranteed == 0);
    look("/guaranteed", &l);
    assert_true(l.most == UINT64_MAX && l.left == UINT64_MAX && l.guaranteed == GIB);
    group("/guaranteed", "dmem.min", 2 * GIB);
    group("/guaranteed", "dmem.max", 6 * GIB);
    group("/guaranteed", "dmem.current", 7 * GIB);
    look("/guaranteed", &l);
    assert_true(l.most == 6 * GIB && l.left == 0 && l.guaranteed == 2 * GIB);
    look("/nvml-alone", &l);
    assert_true(l.most == 3 * GIB && l.left == 2 * GIB && l.guaranteed == GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_counts),
        cmocka_unit_test(a_budget_that_is_asked_for),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(what_is_guaranteed),
    };
    there = machine_make("limits-budget");
    wi_limits_root = there.root;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
