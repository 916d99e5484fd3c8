/* What a process may have of its machine: cgroups of both versions, affinity, quotas. */
#include "machine.h"
#include <weir/select.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The processor of a machine with 64 GiB, 60 free, and 8 processors. */
static weir_hardware_device processor(const machine *m)
{
    weir_hardware *hardware = machine_look(m, NULL);
    assert_int_equal(hardware->device_count, 1);
    weir_hardware_device device = hardware->devices[0];
    weir_hardware_destroy(hardware);
    assert_string_equal(device.key, "cpu");
    assert_true(device.shares_host && device.usable && !device.discrete);
    return device;
}

static machine make(const char *name, const char *groups)
{
    machine m = machine_make(name);
    machine_host(&m, 64 * GIB, 60 * GIB);
    machine_file(&m, "proc/self/cgroup", "%s", groups);
    return m;
}

static void expect(const machine *m, double total, double free, uint32_t units)
{
    weir_hardware_device device = processor(m);
    assert_int_equal(device.total, (uint64_t)(total * GIB));
    assert_int_equal(device.free, (uint64_t)(free * GIB));
    assert_int_equal(device.units, units);
}

#define GROUP(m, group, file, ...) machine_file(m, "sys/fs/cgroup" group "/" file, __VA_ARGS__)

/* D26: bytes are bytes. */
static void d26_a_machine_without_limits(void **state)
{
    (void)state;
    machine m = make("limits-none", "0::/user.slice\n");
    GROUP(&m, "/user.slice", "memory.max", "max\n");
    GROUP(&m, "/user.slice", "memory.high", "max\n");
    GROUP(&m, "/user.slice", "cpu.max", "max 100000\n");
    expect(&m, 64, 60, 8);
}

/* The second version: of all groups on the way the least counts, whichever it is. */
static void nested_groups(void **state)
{
    (void)state;
    machine m = make("limits-nested", "0::/kube.slice/pod.slice/app\n");
    GROUP(&m, "/kube.slice", "memory.max", "%llu\n", (unsigned long long)(16 * GIB));
    GROUP(&m, "/kube.slice", "memory.current", "%llu\n", (unsigned long long)(15 * GIB));
    GROUP(&m, "/kube.slice/pod.slice", "memory.max", "%llu\n", (unsigned long long)(8 * GIB));
    GROUP(&m, "/kube.slice/pod.slice", "memory.current", "%llu\n", (unsigned long long)(3 * GIB));
    GROUP(&m, "/kube.slice/pod.slice/app", "memory.max", "max\n");
    GROUP(&m, "/kube.slice/pod.slice/app", "memory.current", "%llu\n", (unsigned long long)(2 * GIB));
    GROUP(&m, "/kube.slice/pod.slice", "cpu.max", "250000 100000\n");
    GROUP(&m, "/kube.slice/pod.slice/app", "cpu.max", "400000 100000\n");
    expect(&m, 8, 1, 3); /* 8 of its own, but the group above has only 1 left */
    GROUP(&m, "/kube.slice", "memory.stat", "anon 5\nfile 9\ninactive_file %llu\nactive_file 7\n",
          (unsigned long long)(11 * GIB));
    expect(&m, 8, 5, 3); /* files that the kernel gives up first are as good as free */
    GROUP(&m, "/kube.slice/pod.slice/app", "memory.high", "%llu\n", (unsigned long long)(4 * GIB));
    expect(&m, 4, 2, 3);
    GROUP(&m, "/kube.slice/pod.slice/app", "memory.current", "%llu\n", (unsigned long long)(5 * GIB));
    expect(&m, 4, 0, 3);
}

/* Pages of files that were read again are given up as well, but for the machine's low watermark, or half of them. */
static void files_read_again(void **state)
{
    (void)state;
    machine m = make("limits-files", "0::/app\n");
    long page = sysconf(_SC_PAGESIZE);
    GROUP(&m, "/app", "memory.max", "%llu\n", (unsigned long long)(8 * GIB));
    GROUP(&m, "/app", "memory.current", "%llu\n", (unsigned long long)(7 * GIB));
    GROUP(&m, "/app", "memory.stat", "anon 5\ninactive_file %llu\nactive_file %llu\n", (unsigned long long)GIB,
          (unsigned long long)(5 * GIB));
    expect(&m, 8, 7, 8);
    machine_file(&m, "proc/zoneinfo",
                 "Node 0, zone DMA\n  pages free 9\n        low      %llu\n"
                 "Node 0, zone Normal\n        min 7\n        low      %llu\n        high 9\n",
                 (unsigned long long)(GIB / 2) / (unsigned long long)page,
                 3 * (unsigned long long)(GIB / 2) / (unsigned long long)page);
    expect(&m, 8, 5, 8);
    GROUP(&m, "/app", "memory.stat", "inactive_file 0\nactive_file %llu\n", (unsigned long long)(2 * GIB));
    expect(&m, 8, 2, 8);
    machine first = make("limits-files-first", "7:memory:/app\n");
    GROUP(&first, "/memory/app", "memory.limit_in_bytes", "%llu\n", (unsigned long long)(8 * GIB));
    GROUP(&first, "/memory/app", "memory.usage_in_bytes", "%llu\n", (unsigned long long)(7 * GIB));
    GROUP(&first, "/memory/app", "memory.stat", "active_file 1\ntotal_inactive_file %llu\ntotal_active_file %llu\n",
          (unsigned long long)GIB, (unsigned long long)(3 * GIB));
    expect(&first, 8, 5, 8);
}

/* In a container with a namespace of its own the group is called "/", and its limits lie at the top. */
static void a_group_at_the_top(void **state)
{
    (void)state;
    machine m = make("limits-top", "0::/\n");
    GROUP(&m, "", "memory.max", "%llu\n", (unsigned long long)(2 * GIB));
    GROUP(&m, "", "memory.current", "%llu\n", (unsigned long long)GIB);
    GROUP(&m, "", "cpu.max", "100000 100000\n");
    GROUP(&m, "", "cpuset.cpus.effective", "2-5\n");
    expect(&m, 2, 1, 1);
    GROUP(&m, "", "cpu.max", "max 100000\n");
    expect(&m, 2, 1, 4);
    machine_file(&m, "proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0,4-7\nMems_allowed:\t1\n");
    expect(&m, 2, 1, 2);
}

/* The first version, with controllers in one mount, a name that another begins with, and the second beside it. */
static void the_first_version(void **state)
{
    (void)state;
    machine m = make("limits-first", "12:cpu,cpuacct:/docker/abc\n9:memory_other:/no\n7:memory:/docker/abc\n"
                                     "3:cpuset:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n");
    GROUP(&m, "/memory_other/no", "memory.limit_in_bytes", "%llu\n", (unsigned long long)GIB);
    GROUP(&m, "/memory/docker", "memory.limit_in_bytes", "9223372036854771712\n");
    GROUP(&m, "/memory/docker", "memory.usage_in_bytes", "%llu\n", (unsigned long long)(50 * GIB));
    GROUP(&m, "/memory/docker/abc", "memory.limit_in_bytes", "%llu\n", (unsigned long long)(6 * GIB));
    GROUP(&m, "/memory/docker/abc", "memory.usage_in_bytes", "%llu\n", (unsigned long long)(5 * GIB));
    GROUP(&m, "/memory/docker/abc", "memory.stat", "inactive_file 1\ntotal_inactive_file %llu\n",
          (unsigned long long)(2 * GIB));
    GROUP(&m, "/cpu,cpuacct/docker/abc", "cpu.cfs_quota_us", "150000\n");
    GROUP(&m, "/cpu,cpuacct/docker/abc", "cpu.cfs_period_us", "100000\n");
    expect(&m, 6, 3, 2);
    GROUP(&m, "/cpu,cpuacct/docker/abc", "cpu.cfs_quota_us", "-1\n");
    GROUP(&m, "/cpuset/docker/abc", "cpuset.effective_cpus", "0-2\n");
    expect(&m, 6, 3, 3);
}

/* In a container that sees the host's name of its group, the files of that name are not there and its limits lie at the
 * top. */
static void a_name_from_outside(void **state)
{
    (void)state;
    machine m = make("limits-outside", "7:memory:/docker/abc\n");
    GROUP(&m, "/memory", "memory.limit_in_bytes", "%llu\n", (unsigned long long)(4 * GIB));
    GROUP(&m, "/memory", "memory.usage_in_bytes", "%llu\n", (unsigned long long)GIB);
    expect(&m, 4, 3, 8);
}

/* 0 is a limit, and one below what is used leaves nothing: neither is a memory that nobody tells. */
static void nothing_left(void **state)
{
    (void)state;
    machine m = make("limits-zero", "0::/app\n");
    GROUP(&m, "/app", "memory.max", "0\n");
    GROUP(&m, "/app", "memory.current", "%llu\n", (unsigned long long)GIB);
    expect(&m, 0, 0, 8);
    assert_string_equal(processor(&m).remark, "");
    GROUP(&m, "/app", "memory.max", "%llu\n", (unsigned long long)(2 * GIB));
    GROUP(&m, "/app", "memory.current", "%llu\n", (unsigned long long)(3 * GIB));
    expect(&m, 2, 0, 8);
    machine first = make("limits-zero-first", "7:memory:/app\n");
    GROUP(&first, "/memory/app", "memory.limit_in_bytes", "0\n");
    expect(&first, 0, 0, 8);
}

#define DRIVER "driver 615.10.01\ncuda 13040\n"
#define GPU    "GPU-11111111-2222-3333-4444-555555555555"
#define ONE    DRIVER "gpu " GPU " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"
#define CPU    "cpu cpu - - host 0 64 60 hu 8 - -/- Test CPU\n"
#define LINE(total, free, remark)                                                                                      \
    CPU "cuda " GPU " - 0000:3b:00.0 cuda:0 0 " total " " free " du 132 9.0 615.10.1/13.4 NVIDIA H200" remark "\n"

/* Linux 6.14: a line for each region of a device's memory, named by the driver and the address; of nested groups the least
 * counts, and the least guarantee. */
static void device_memory(void **state)
{
    (void)state;
    machine m = make("limits-dmem", "0::/pod/app\n");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE);
    machine_expect(&m, NULL, LINE("140", "139", ""));
    GROUP(&m, "/pod/app", "dmem.max", "nvidia/0000:3c:00.0/vidmem 1\nnvidia/0000:3b:00.0/vidmem max\n");
    machine_expect(&m, NULL, LINE("140", "139", ""));
    GROUP(&m, "/pod", "dmem.max", "nvidia/0000:3b:00.0/vidmem %llu\n", (unsigned long long)(40 * GIB));
    GROUP(&m, "/pod", "dmem.current", "nvidia/0000:3c:00.0/vidmem 5\nnvidia/0000:3b:00.0/vidmem %llu\n",
          (unsigned long long)(10 * GIB));
    machine_expect(&m, NULL, LINE("40", "30", " [this process's cgroup may have 40 GiB of its memory]"));
    GROUP(&m, "/pod/app", "dmem.max", "drm/0000:3b:00.0/gtt 7\nnvidia/00000000:3B:00.0/vidmem %llu\n",
          (unsigned long long)(8 * GIB));
    GROUP(&m, "/pod/app", "dmem.min", "nvidia/0000:3b:00.0/vidmem %llu\n", (unsigned long long)(4 * GIB));
    GROUP(&m, "/pod", "dmem.min", "nvidia/0000:3b:00.0/vidmem %llu\n", (unsigned long long)(3 * GIB));
    machine_expect(&m, NULL,
                   LINE("8", "8", " [this process's cgroup may have 8 GiB of its memory, and is guaranteed 3 GiB]"));
    GROUP(&m, "/pod/app", "dmem.current", "nvidia/0000:3b:00.0/vidmem %llu\n", (unsigned long long)(9 * GIB));
    machine_expect(&m, NULL,
                   LINE("8", "0", " [this process's cgroup may have 8 GiB of its memory, and is guaranteed 3 GiB]"));
}

/* A device in two regions has what both may have. */
static void two_regions(void **state)
{
    (void)state;
    machine m = make("limits-regions", "0::/app\n");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE);
    GROUP(&m, "/app", "dmem.max", "drm/0000:3b:00.0/vram0 %llu\ndrm/0000:3b:00.0/vram1 %llu\n",
          (unsigned long long)(2 * GIB), (unsigned long long)(3 * GIB));
    machine_expect(&m, NULL, LINE("5", "5", " [this process's cgroup may have 5 GiB of its memory]"));
    GROUP(&m, "/app", "dmem.max", "drm/0000:3b:00.0/vram0 %llu\ndrm/0000:3b:00.0/vram1 max\n",
          (unsigned long long)(2 * GIB));
    machine_expect(&m, NULL, LINE("140", "139", ""));
}

/* CUDA 13.4 without the kernel's controller: NVML knows the limits, of the group or of the nearest above it. */
static void limits_of_nvml(void **state)
{
    (void)state;
    machine m = make("limits-nvml", "0::/pod/app\n");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES,
                      ONE "limit 0000:3c:00.0 /pod/app 1 1 1\n"
                          "limit 0000:3b:00.0 /pod 4294967296 21474836480 1073741824\n"
                          "limit 0000:3b:00.0 / 1 1 1\n");
    machine_expect(&m, NULL,
                   LINE("20", "19", " [this process's cgroup may have 20 GiB of its memory, and is guaranteed 4 GiB]"));
    GROUP(&m, "/pod", "dmem.max", "nvidia/0000:3b:00.0/vidmem %llu\n", (unsigned long long)(10 * GIB));
    machine_expect(&m, NULL,
                   LINE("10", "10", " [this process's cgroup may have 10 GiB of its memory, and is guaranteed 4 GiB]"));
    machine none = make("limits-nvml-none", "0::/pod/app\n");
    machine_libraries(&none, MACHINE_BOTH, LIBRARIES, ONE "limit 0000:3b:00.0 /pod/app 1073741824 0 5\n");
    machine_expect(&none, NULL,
                   LINE("140", "139", " [this process's cgroup may have all of its memory, and is guaranteed 1 GiB]"));
}

static void nothing_told(void **state)
{
    (void)state;
    machine m = machine_make("limits-nothing");
    weir_hardware_device device = processor(&m);
    assert_int_equal(device.total, WEIR_BYTES_UNKNOWN);
    assert_int_equal(device.free, WEIR_BYTES_UNKNOWN);
    assert_int_equal(device.units, 0);
    assert_string_equal(device.remark, "/proc/meminfo does not tell its memory");
}

static void this_machine(void **state)
{
    (void)state;
    weir_hardware *hardware = NULL;
    assert_int_equal(weir_hardware_create(NULL, &hardware), WEIR_OK);
    const weir_hardware_device *device = &hardware->devices[0];
    assert_int_equal(device->kind, WEIR_HARDWARE_CPU);
    assert_string_equal(device->runtime, "host");
    assert_in_range(device->units, 1, 8192);
    assert_in_range(device->total, 64 << 20, UINT64_C(1) << 50);
    assert_in_range(device->free, 1, device->total);
    assert_true(hardware->seconds > 0 && strlen(device->name) > 0 && !strchr(device->name, '\n'));
    weir_hardware_destroy(hardware);
    weir_hardware_destroy(NULL);
}

static void refusals(void **state)
{
    (void)state;
    weir_hardware *hardware = (weir_hardware *)8;
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    assert_int_equal(weir_hardware_create(NULL, NULL), WEIR_ERR_INVALID);
    o.sysroot = "/proc/version";
    assert_int_equal(weir_hardware_create(&o, &hardware), WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(weir_detail(), "/proc/version is no directory"));
    o.sysroot = "/nowhere/at/all";
    assert_int_equal(weir_hardware_create(&o, &hardware), WEIR_ERR_NOT_FOUND);
    o.struct_size = 0;
    assert_int_equal(weir_hardware_create(&o, &hardware), WEIR_ERR_INVALID);
    assert_ptr_equal(hardware, (weir_hardware *)8);
    assert_string_equal(weir_name_of(WEIR_NAMES_HARDWARE, WEIR_HARDWARE_DIRECTML), "directml");
    assert_string_equal(weir_name_of(WEIR_NAMES_HARDWARE, WEIR_HARDWARE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d26_a_machine_without_limits),
        cmocka_unit_test(nested_groups),
        cmocka_unit_test(files_read_again),
        cmocka_unit_test(a_group_at_the_top),
        cmocka_unit_test(the_first_version),
        cmocka_unit_test(a_name_from_outside),
        cmocka_unit_test(nothing_left),
        cmocka_unit_test(device_memory),
        cmocka_unit_test(two_regions),
        cmocka_unit_test(limits_of_nvml),
        cmocka_unit_test(nothing_told),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
