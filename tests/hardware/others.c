/* Devices of AMD's and Intel's, and memory that is the host's: counted once. */
#include "machine.h"
#include <weir/select.h>

#include <stdio.h>

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

/* A node of KFD's for the card at bus 0x10 times `card`: 16 units. */
static void add_node(const machine *m, unsigned node, unsigned card, unsigned target, unsigned partition)
{
    char path[128];
#define NODE(name, ...)                                                                                                \
    (snprintf(path, sizeof path, "sys/class/kfd/kfd/topology/nodes/%u/" name, node), machine_file(m, path, __VA_ARGS__))
    NODE("gpu_id", "%u\n", 40000 + node);
    NODE("properties",
         "cpu_cores_count 0\nsimd_count 64\nsimd_per_cu 4\ngfx_target_version %u\nlocation_id %u\ndomain 0\n", target,
         card << 12 | partition);
#undef NODE
}

/* A card with so many bytes of VRAM, a quarter of them used, and of memory borrowed from the host. */
static void add_card(const machine *m, unsigned card, uint64_t vram, uint64_t gtt)
{
    char path[128], address[20];
    snprintf(address, sizeof address, "0000:%02x:00.0", card * 16);
#define BUS(name, ...)                                                                                                 \
    (snprintf(path, sizeof path, "sys/bus/pci/devices/%s/" name, address), machine_file(m, path, __VA_ARGS__))
    BUS("mem_info_vram_total", "%llu\n", (unsigned long long)vram);
    BUS("mem_info_vram_used", "%llu\n", (unsigned long long)(vram / 4));
    BUS("mem_info_gtt_total", "%llu\n", (unsigned long long)gtt);
    BUS("mem_info_gtt_used", "%llu\n", (unsigned long long)GIB);
#undef BUS
    machine_card(m, card, address, 0x1002, 0x744c, "amdgpu");
    snprintf(path, sizeof path, "dev/dri/renderD%u", 128 + card);
    machine_file(m, path, "%s", "");
}

/* Cards have VRAM alone: what they could borrow is more, and the host's. */
static void cards_of_amd(void **state)
{
    (void)state;
    machine m = make("amd");
    add_card(&m, 2, 64 * GIB, 16 * GIB);
    add_node(&m, 1, 2, 90010, 0);
    add_card(&m, 1, 24 * GIB, 64 * GIB);
    add_node(&m, 2, 1, 110000, 0);
    machine_file(&m, "sys/bus/pci/devices/0000:20:00.0/product_name", "Instinct MI210\n");
    machine_file(&m, "sys/module/amdgpu/version", "6.8.5\n");
    machine_file(&m, "opt/rocm/.info/version", "6.2.0-66\n");
    machine_card(&m, 3, "0000:08:00.0", 0x1002, 0x6779, "radeon");
    machine_pci(&m, "0000:10:00.1", 0x1002, 0xab30, "snd_hda_intel");
    machine_expect(
        &m, NULL,
        CPU("32", "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 24 18 du 16 - 6.8.5/6.2.0 AMD 0x744c (gfx1100)\n"
                        "rocm 0000:20:00.0 - 0000:20:00.0 - 1 64 48 du 16 - 6.8.5/6.2.0 Instinct MI210 (gfx90a)\n"
                        "rocm 0000:08:00.0 - 0000:08:00.0 - -1 ? ? d- 0 - -/- AMD 0x6779 [the kernel's compute driver "
                        "(/dev/kfd) "
                        "does not list it]\n");
}

#define PARTITIONED                                                                                                    \
    CPU("32", "30")                                                                                                    \
    "rocm 0000:10:00.0 - 0000:10:00.0 - 0 ? ? du 16 - -/- AMD 0x744c (gfx942) [it is cut into 2 partitions, whose "    \
    "memory is not known]\n"

/* A partition never has the memory of its card. */
static void partitions_of_a_card(void **state)
{
    (void)state;
    machine m = make("partitions");
    add_card(&m, 1, 192 * GIB, 0);
    add_node(&m, 1, 1, 90402, 0);
    add_node(&m, 2, 1, 90402, 1u << 28);
    machine_expect(&m, NULL, PARTITIONED);
    machine early = make("partitions-early"); /* the number stands where the function of the address does */
    add_card(&early, 1, 192 * GIB, 0);
    add_node(&early, 1, 1, 90402, 0);
    add_node(&early, 2, 1, 90402, 1);
    machine_expect(&early, NULL, PARTITIONED);
}

/* Cards in partitions make more nodes than there may be cards. */
static void a_card_behind_many_nodes(void **state)
{
    (void)state;
    machine m = make("many-nodes");
    add_card(&m, 1, 24 * GIB, 0);
    for (unsigned node = 1; node < 150; node++)
        add_node(&m, node, 2, 90402, 0);
    add_node(&m, 150, 1, 110000, 0);
    machine_expect(&m, NULL,
                   CPU("32", "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 24 18 du 16 - -/- AMD 0x744c (gfx1100)\n");
}

/* 128 GiB, of which firmware has carved 96 out for the graphics: the host has 32, the graphics 96, and the 16 that it
 * might borrow from the host are not counted again. */
static void a_carved_out_part_is_not_the_hosts(void **state)
{
    (void)state;
    machine m = make("carved-out");
    add_card(&m, 1, 96 * GIB, 16 * GIB);
    add_node(&m, 1, 1, 110501, 0);
    machine_expect(&m, NULL,
                   CPU("32", "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 96 72 u 16 - -/- AMD 0x744c (gfx1151)\n");
}

/* With a small part carved out, the graphics lives in the host's memory, within what that has free. */
static void what_is_borrowed_is_the_hosts(void **state)
{
    (void)state;
    machine m = make("borrowed");
    add_card(&m, 1, GIB / 2, 31 * GIB);
    add_node(&m, 1, 1, 110003, 0);
    machine_host(&m, 32 * GIB, 20 * GIB);
    machine_expect(&m, NULL,
                   CPU("32", "20") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 31 20 hu 16 - -/- AMD 0x744c (gfx1103)\n");
}

static void amd_without_access(void **state)
{
    (void)state;
    machine m = make("amd-closed");
    add_card(&m, 1, 24 * GIB, 64 * GIB);
    add_node(&m, 1, 1, 110000, 0);
    char path[600];
    snprintf(path, sizeof path, "%s/dev/dri/renderD129", m.root);
    assert_int_equal(remove(path), 0);
    machine_expect(&m, NULL,
                   CPU("32", "30") "rocm 0000:10:00.0 - 0000:10:00.0 - 0 24 18 d- 16 - -/- AMD 0x744c (gfx1100) [this "
                                   "process cannot open "
                                   "/dev/dri/renderD129: the group render may, or it is not in the container]\n");
}

/* By address; an NPU, which is a processor's as well, has no card of the kernel's graphics. */
static void intels(void **state)
{
    (void)state;
    machine m = machine_make("intel");
    machine_host(&m, 32 * GIB, 30 * GIB);
    machine_card(&m, 0, "0000:03:00.0", 0x8086, 0x56a0, "xe");
    machine_card(&m, 1, "0000:00:02.0", 0x8086, 0x7d55, "xe");
    machine_card(&m, 2, "0000:04:00.0", 0x8086, 0x56a5, "i915");
    machine_pci(&m, "0000:00:0b.0", 0x8086, 0x7d1d, "intel_vpu");
    machine_pci(&m, "0000:00:1f.3", 0x8086, 0x7e28, "snd_hda_intel");
    machine_file(&m, "sys/bus/pci/devices/0000:03:00.0/tile0/physical_vram_size_bytes", "%llu\n",
                 (unsigned long long)(16 * GIB));
    machine_file(&m, "sys/bus/pci/devices/0000:00:0b.0/accel/accel0/dev", "261:0\n");
    machine_file(&m, "dev/dri/renderD128", "%s", "");
    machine_file(&m, "dev/dri/renderD129", "%s", "");
    machine_file(&m, "dev/accel/accel0", "%s", "");
    machine_expect(
        &m, NULL,
        CPU("32", "30") "intel 0000:00:02.0 - 0000:00:02.0 - 0 32 30 hu 0 - -/- Intel GPU 0x7d55 (xe)\n"
                        "intel 0000:00:0b.0 - 0000:00:0b.0 - 1 32 30 hu 0 - -/- Intel NPU 0x7d1d (intel_vpu)\n"
                        "intel 0000:03:00.0 - 0000:03:00.0 - 2 16 ? du 0 - -/- Intel GPU 0x56a0 (xe)\n"
                        "intel 0000:04:00.0 - 0000:04:00.0 - 3 ? ? d- 0 - -/- Intel GPU 0x56a5 (i915) [this process "
                        "cannot open "
                        "/dev/dri/renderD130: the group render may, or it is not in the container]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_of_amd),
        cmocka_unit_test(partitions_of_a_card),
        cmocka_unit_test(a_card_behind_many_nodes),
        cmocka_unit_test(a_carved_out_part_is_not_the_hosts),
        cmocka_unit_test(what_is_borrowed_is_the_hosts),
        cmocka_unit_test(amd_without_access),
        cmocka_unit_test(intels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
