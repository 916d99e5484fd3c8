/* Devices of AMD's and Intel's, and memory that is the host's: counted once. */
#include "machine.h"
#include <weir/select.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPU(total, free) "cpu cpu - - host 0 " total " " free " hu 8 - -/- Test CPU\n"

static machine make(const char *name)
{
    machine m = machine_make(name);
    machine_host(&m, 32 * GIB, 30 * GIB);
    machine_file(&m, "dev/kfd", "%s", "");
    machine_file(&m, "sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    machine_file(&m, "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\nsimd_count 0\n");
    return m;
}

/* A node of KFD's with its card number `node`: 16 units, so many bytes of VRAM and of memory borrowed from the host. */
static void add_node(const machine *m, unsigned node, unsigned target, unsigned long long unique, uint64_t vram,
                     uint64_t gtt)
{
    char path[128], address[20];
    snprintf(address, sizeof address, "0000:%02x:00.0", node * 16);
#define NODE(name, ...)                                                                                                \
    (snprintf(path, sizeof path, "sys/class/kfd/kfd/topology/nodes/%u/" name, node), machine_file(m, path, __VA_ARGS__))
#define BUS(name, ...)                                                                                                 \
    (snprintf(path, sizeof path, "sys/bus/pci/devices/%s/" name, address), machine_file(m, path, __VA_ARGS__))
    NODE("gpu_id", "%u\n", 40000 + node);
    NODE("name", "card%u\n", node);
    NODE("properties",
         "cpu_cores_count 0\nsimd_count 64\nsimd_per_cu 4\ngfx_target_version %u\nlocation_id %u\ndomain 0\n"
         "drm_render_minor %u\nunique_id %llu\n",
         target, node << 12, 128 + node, unique);
    BUS("mem_info_vram_total", "%llu\n", (unsigned long long)vram);
    BUS("mem_info_vram_used", "%llu\n", (unsigned long long)(vram / 4));
    BUS("mem_info_gtt_total", "%llu\n", (unsigned long long)gtt);
    BUS("mem_info_gtt_used", "%llu\n", (unsigned long long)GIB);
#undef NODE
#undef BUS
    machine_card(m, node, address, 0x1002, 0x744c, "amdgpu");
    snprintf(path, sizeof path, "dev/dri/renderD%u", 128 + node);
    machine_file(m, path, "%s", "");
}

/* Cards have VRAM alone: what they could borrow is more, and the host's. */
static void cards_of_amd(void **state)
{
    (void)state;
    machine m = make("amd");
    add_node(&m, 1, 110000, 0x1234, 24 * GIB, 64 * GIB);
    add_node(&m, 2, 90010, 0, 64 * GIB, 16 * GIB);
    machine_file(&m, "sys/bus/pci/devices/0000:20:00.0/product_name", "Instinct MI210\n");
    machine_file(&m, "sys/module/amdgpu/version", "6.8.5\n");
    machine_file(&m, "opt/rocm/.info/version", "6.2.0-66\n");
    machine_card(&m, 3, "0000:30:00.0", 0x1002, 0x6779, "radeon");
    machine_expect(
        &m, NULL,
        CPU("32", "30") "rocm GPU-0000000000001234 - 0000:10:00.0 - 0 24 18 du 16 - 6.8.5/6.2.0 card1 (gfx1100)\n"
                        "rocm 0000:20:00.0 - 0000:20:00.0 - 1 64 48 du 16 - 6.8.5/6.2.0 Instinct MI210 (gfx90a)\n"
                        "rocm 0000:30:00.0 - 0000:30:00.0 - -1 ? ? d- 0 - -/- AMD 0x6779 [the kernel's compute driver "
                        "(/dev/kfd) "
                        "does not list it]\n");
    setenv("ROCR_VISIBLE_DEVICES", "1,GPU-0000000000001234", 1);
    setenv("HIP_VISIBLE_DEVICES", "1", 1);
    machine_expect(
        &m, NULL,
        CPU("32",
            "30") "rocm GPU-0000000000001234 - 0000:10:00.0 - 0 24 18 du 16 - 6.8.5/6.2.0 card1 (gfx1100)\n"
                  "rocm 0000:20:00.0 - 0000:20:00.0 - -1 64 48 d- 16 - 6.8.5/6.2.0 Instinct MI210 (gfx90a) [hidden by "
                  "HIP_VISIBLE_DEVICES=\"1\"]\n"
                  "rocm 0000:30:00.0 - 0000:30:00.0 - -1 ? ? d- 0 - -/- AMD 0x6779 [the kernel's compute driver "
                  "(/dev/kfd) "
                  "does not list it]\n");
    unsetenv("ROCR_VISIBLE_DEVICES");
    unsetenv("HIP_VISIBLE_DEVICES");
}

/* The names of the cards with an ordinal, in its order. */
static void expect_seen(const machine *m, const char *rocr, const char *hip, const char *cuda, const char *expected)
{
    static const char *const names[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"};
    const char *const lists[] = {rocr, hip, cuda};
    char seen[64] = "";
    for (size_t i = 0; i < 3; i++)
        if (lists[i])
            setenv(names[i], lists[i], 1);
    weir_hardware *hardware = machine_look(m, NULL);
    for (size_t i = 1; i < hardware->device_count; i++)
        if (hardware->devices[i].ordinal >= 0)
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.5s ", hardware->devices[i].name);
    weir_hardware_destroy(hardware);
    for (size_t i = 0; i < 3; i++)
        unsetenv(names[i]);
    assert_string_equal(seen, expected);
}

/* AMD's two lists have rules of their own, and HIP reads CUDA's where its own says nothing. */
static void lists_of_amd(void **state)
{
    (void)state;
    machine m = make("amd-lists");
    add_node(&m, 1, 110000, 0xa1, 24 * GIB, 0);
    add_node(&m, 2, 110000, 0xa2, 24 * GIB, 0);
    add_node(&m, 3, 110000, 0xb3, 24 * GIB, 0);
    expect_seen(&m, NULL, NULL, NULL, "card1 card2 card3 ");
    expect_seen(&m, "2,GPU-00000000000000a2", NULL, NULL, "card3 card2 ");
    expect_seen(&m, "1,1,0", NULL, NULL, "card2 ");
    expect_seen(&m, "1x,0", NULL, NULL, "");
    expect_seen(&m, "GPU-00000000000000a,0", NULL, NULL, "");
    expect_seen(&m, "", NULL, NULL, "");
    expect_seen(&m, NULL, "2,2,0", NULL, "card3 card1 ");
    expect_seen(&m, NULL, "", "1", "card2 ");
    expect_seen(&m, NULL, NULL, "0,7,1", "card1 ");
    expect_seen(&m, NULL, NULL, "", "card1 card2 card3 ");
    expect_seen(&m, "2,0", "1", "0", "card1 ");
}

/* A node that is a partition of the card at 0000:10:00.0: 4 units and 24 GiB of its 192, of which 48 are used. */
static void add_partition(const machine *m, unsigned node, uint64_t location, unsigned long long unique)
{
    char path[128];
#define NODE(name, ...)                                                                                                \
    (snprintf(path, sizeof path, "sys/class/kfd/kfd/topology/nodes/%u/" name, node), machine_file(m, path, __VA_ARGS__))
    NODE("gpu_id", "%u\n", 40000 + node);
    NODE("name", "ip discovery\n");
    NODE("properties",
         "cpu_cores_count 0\nsimd_count 16\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id %llu\ndomain 0\n"
         "drm_render_minor %u\nunique_id %llu\n",
         (unsigned long long)location, 128 + node, unique);
    NODE("mem_banks/0/properties", "heap_type 1\nsize_in_bytes %llu\nflags 0\n", (unsigned long long)(24 * GIB));
    NODE("mem_banks/1/properties", "heap_type 5\nsize_in_bytes 65536\nflags 0\n");
#undef NODE
    machine_pci(m, "0000:10:00.0", 0x1002, 0x74a1, "amdgpu");
    machine_file(m, "sys/bus/pci/devices/0000:10:00.0/mem_info_vram_total", "%llu\n", (unsigned long long)(192 * GIB));
    machine_file(m, "sys/bus/pci/devices/0000:10:00.0/mem_info_vram_used", "%llu\n", (unsigned long long)(48 * GIB));
    snprintf(path, sizeof path, "dev/dri/renderD%u", 128 + node);
    machine_file(m, path, "%s", "");
}

#define PARTITION(number)                                                                                              \
    " - 0000:10:00.0 - " number " 24 ? du 4 - -/- ip discovery (gfx942) [partition " number                            \
    " of the card at 0000:10:00.0, of which the kernel tells used bytes as a whole alone]\n"

/* Partitions of a card have keys of their own, whatever the kernel gives them, and never the memory of the card. */
static void partitions_of_a_card(void **state)
{
    (void)state;
    static const char numbered[] =
        CPU("32", "30") "rocm GPU-0000000000001234/0" PARTITION("0") "rocm GPU-0000000000001234/1" PARTITION("1");
    machine m = make("partitions");
    add_partition(&m, 1, 0x1000, 0x1234);
    add_partition(&m, 2, 0x10001000, 0x1234);
    machine_expect(&m, NULL, numbered);
    machine early = make("partitions-early"); /* the number stands where the function of the address does */
    add_partition(&early, 1, 0x1000, 0x1234);
    add_partition(&early, 2, 0x1001, 0x1234);
    machine_expect(&early, NULL, numbered);
    machine own = make("partitions-own"); /* with identities of their own */
    add_partition(&own, 1, 0x1000, 0xa);
    add_partition(&own, 2, 0x10001000, 0xb);
    machine_expect(
        &own, NULL,
        CPU("32", "30") "rocm GPU-000000000000000a" PARTITION("0") "rocm GPU-000000000000000b" PARTITION("1"));
    machine none = make("partitions-none"); /* and with none */
    add_partition(&none, 1, 0x1000, 0);
    add_partition(&none, 2, 0x10001000, 0);
    machine_expect(&none, NULL,
                   CPU("32", "30") "rocm 0000:10:00.0/0" PARTITION("0") "rocm 0000:10:00.0/1" PARTITION("1"));
    setenv("ROCR_VISIBLE_DEVICES", "GPU-000000000000000b", 1);
    weir_hardware *hardware = machine_look(&own, NULL);
    assert_string_equal(hardware->devices[1].key, "GPU-000000000000000b");
    assert_int_equal(hardware->devices[1].ordinal, 0);
    assert_false(hardware->devices[2].usable);
    weir_hardware_destroy(hardware);
    unsetenv("ROCR_VISIBLE_DEVICES");
}

/* Where nothing numbers them, the kernel's numbers of the nodes do. */
static void partitions_without_a_number(void **state)
{
    (void)state;
    machine m = make("partitions-alike");
    add_partition(&m, 1, 0x1000, 0x1234);
    add_partition(&m, 2, 0x1000, 0x1234);
    weir_hardware *hardware = machine_look(&m, NULL);
    assert_int_equal(hardware->device_count, 3);
    assert_string_equal(hardware->devices[1].key, "GPU-0000000000001234/40001");
    assert_string_equal(hardware->devices[2].key, "GPU-0000000000001234/40002");
    weir_hardware_destroy(hardware);
}

/* 128 GiB, of which firmware has carved 96 out for the graphics: the host has 32, the graphics 96, and the 16 that it
 * might borrow from the host are not counted again. */
static void a_carved_out_part_is_not_the_hosts(void **state)
{
    (void)state;
    machine m = make("carved-out");
    add_node(&m, 1, 110501, 0, 96 * GIB, 16 * GIB);
    machine_expect(&m, NULL, CPU("32", "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 96 72 u 16 - -/- card1 (gfx1151)\n");
}

/* With a small part carved out, the graphics lives in the host's memory, within what that has free. */
static void what_is_borrowed_is_the_hosts(void **state)
{
    (void)state;
    machine m = make("borrowed");
    add_node(&m, 1, 110003, 0, GIB / 2, 31 * GIB);
    machine_host(&m, 32 * GIB, 20 * GIB);
    machine_expect(&m, NULL,
                   CPU("32", "20") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 31 20 hu 16 - -/- card1 (gfx1103)\n");
}

static void amd_without_access(void **state)
{
    (void)state;
    machine m = make("amd-closed");
    add_node(&m, 1, 110000, 0, 24 * GIB, 64 * GIB);
    char path[600];
    snprintf(path, sizeof path, "%s/dev/dri/renderD129", m.root);
    assert_int_equal(remove(path), 0);
    machine_expect(
        &m, NULL,
        CPU("32",
            "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 24 18 d- 16 - -/- card1 (gfx1100) [this process cannot open "
                  "/dev/dri/renderD129: the group render may, or it is not in the container]\n");
}

static void intels(void **state)
{
    (void)state;
    machine m = machine_make("intel");
    machine_host(&m, 32 * GIB, 30 * GIB);
    machine_card(&m, 0, "0000:03:00.0", 0x8086, 0x56a0, "xe");
    machine_card(&m, 1, "0000:00:02.0", 0x8086, 0x7d55, "xe");
    machine_card(&m, 2, "0000:04:00.0", 0x8086, 0x56a5, "i915");
    machine_file(&m, "sys/class/drm/card0/device/tile0/physical_vram_size_bytes", "%llu\n",
                 (unsigned long long)(16 * GIB));
    machine_file(&m, "dev/dri/renderD128", "%s", "");
    machine_file(&m, "dev/dri/renderD129", "%s", "");
    machine_file(&m, "dev/accel/accel0", "%s", "");
    machine_file(&m, "sys/class/accel/accel0/device/vendor", "0x8086\n");
    machine_file(&m, "sys/class/accel/accel0/device/device", "0x7d1d\n");
    machine_file(&m, "sys/class/accel/accel0/device/uevent", "DRIVER=intel_vpu\nPCI_SLOT_NAME=0000:00:0b.0\n");
    machine_file(&m, "sys/class/accel/accel1/device/vendor", "0x1da3\n");
    machine_expect(
        &m, NULL,
        CPU("32", "30") "intel 0000:03:00.0 - 0000:03:00.0 - 0 16 ? du 0 - -/- Intel GPU 0x56a0 (xe)\n"
                        "intel 0000:00:02.0 - 0000:00:02.0 - 1 32 30 hu 0 - -/- Intel GPU 0x7d55 (xe)\n"
                        "intel 0000:04:00.0 - 0000:04:00.0 - 2 ? ? d- 0 - -/- Intel GPU 0x56a5 (i915) [this process "
                        "cannot open "
                        "/dev/dri/renderD130: the group render may, or it is not in the container]\n"
                        "intel 0000:00:0b.0 - 0000:00:0b.0 - 3 32 30 hu 0 - -/- Intel NPU 0x7d1d (intel_vpu)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_of_amd),
        cmocka_unit_test(lists_of_amd),
        cmocka_unit_test(partitions_of_a_card),
        cmocka_unit_test(partitions_without_a_number),
        cmocka_unit_test(a_carved_out_part_is_not_the_hosts),
        cmocka_unit_test(what_is_borrowed_is_the_hosts),
        cmocka_unit_test(amd_without_access),
        cmocka_unit_test(intels),
    };
    unsetenv("ROCR_VISIBLE_DEVICES");
    unsetenv("HIP_VISIBLE_DEVICES");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
