/* Machines on which others have found the wrong devices or none: the whole list of each. */
#include "machine.h"
#include <weir/select.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define H200     "GPU-11111111-2222-3333-4444-555555555555"
#define OTHER    "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
#define CPU      "cpu cpu - - host 0 64 60 hu 8 - -/- Test CPU\n"
#define DRIVER   "driver 580.65.06\ncuda 13000\n"
#define ONE_GPU  DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"
#define ONE_LINE "cuda " H200 " - 0000:3b:00.0 cuda:0 0 140 139 du 132 9.0 580.65.6/13.0 NVIDIA H200\n"

static machine make(const char *name)
{
    machine m = machine_make(name);
    machine_host(&m, 64 * GIB, 60 * GIB);
    return m;
}

static void a_plain_machine(void **state)
{
    (void)state;
    machine m = make("plain");
    machine_expect(&m, NULL, CPU);
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "nvml: libnvidia-ml.so.1 is not here",
                    1); /* on a busy machine that it was so a while ago */
    machine_remarks(hardware, "cuda: libcuda.so.1 is not here", 1);
    machine_remarks(hardware, "metal, directml: not of this platform", 1);
    weir_hardware_destroy(hardware);
}

/* 1: a first card without a vendor hid all that come after it. */
static void simple_framebuffer_as_card0(void **state)
{
    (void)state;
    machine m = make("simple-framebuffer");
    machine_file(&m, "sys/class/drm/card0/device/uevent", "DRIVER=simple-framebuffer\n");
    machine_card(&m, 1, "0000:00:02.0", 0x8086, 0x4680, "i915");
    machine_file(&m, "dev/dri/renderD129", "%s", "");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE_GPU);
    machine_expect(&m, NULL,
                   CPU ONE_LINE "intel 0000:00:02.0 - 0000:00:02.0 - 0 64 60 hu 0 - -/- Intel GPU 0x4680 (i915)\n");
}

/* 2: under WSL the only card is vgem, and libraries lie in a directory of their own. */
static void vgem_and_wsl(void **state)
{
    (void)state;
    machine m = make("wsl");
    machine_file(&m, "sys/class/drm/card0/device/uevent", "DRIVER=vgem\n");
    machine_file(&m, "dev/dxg", "%s", "");
    machine_libraries(&m, MACHINE_BOTH, "usr/lib/wsl/lib", ONE_GPU);
    machine_expect(&m, NULL, CPU ONE_LINE);
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "wsl: ", 1);
    weir_hardware_destroy(hardware);
}

/* 3: on EC2 the first card is Amazon's own, the GPU has none, and virtio has another. */
static void ec2_vgpu(void **state)
{
    (void)state;
    machine m = make("ec2");
    machine_card(&m, 0, "0000:00:03.0", 0x1d0f, 0x1111, "");
    machine_card(&m, 1, "0000:00:04.0", 0x1af4, 0x1050, "virtio-pci");
    machine_pci(&m, "0000:3b:00.0", 0x10de, 0x2335, "nvidia");
    machine_libraries(&m, MACHINE_BOTH, "usr/lib64", ONE_GPU);
    machine_expect(&m, NULL, CPU ONE_LINE);
}

/* 4: a Jetson has no bus, NVML does not tell its memory, and that is the processor's. */
static void jetson(void **state)
{
    (void)state;
    machine m = make("jetson");
    static const char gpus[] = DRIVER "gpu " OTHER " 0000:00:00.0 0 8.7 16 65498251264 1 integrated,unknown Orin\n";
    static const char lines[] = CPU "cuda " OTHER " - 0000:00:00.0 cuda:0 0 61 60 hu 16 8.7 %s/13.0 Orin\n";
    char expected[512];
    machine_libraries(&m, MACHINE_CUDA, "usr/lib", gpus);
    machine_file(&m, "sys/module/nvidia/version", "540.4.0\n");
    snprintf(expected, sizeof expected, lines, "540.4.0");
    machine_expect(&m, NULL, expected);
    machine with = make("jetson-nvml");
    machine_libraries(&with, MACHINE_BOTH, "usr/lib", gpus);
    snprintf(expected, sizeof expected, lines, "580.65.6");
    machine_expect(&with, NULL, expected);
}

#define SLICES                                                                                                         \
    DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"                             \
           "mig MIG-00000000-0000-0000-0000-000000000001 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n"         \
           "mig MIG-00000000-0000-0000-0000-000000000002 16 18253611008 18253611008 NVIDIA H200 MIG 1g.18gb\n"         \
           "gpu " OTHER " 0000:5e:00.0 1 9.0 132 150323855360 149250113536 - NVIDIA H200\n"

#define SLICE_1(ordinal, total, free, units)                                                                           \
    "cuda MIG-00000000-0000-0000-0000-000000000001 " H200 " 0000:3b:00.0 " ordinal " " total " " free " du " units     \
    " 9.0 580.65.6/13.0 NVIDIA H200 MIG 3g.71gb"
#define WHOLE                                                                                                          \
    "cuda " H200 " - 0000:3b:00.0 - -1 140 139 d- 0 9.0 580.65.6/13.0 NVIDIA H200 [MIG is on: its slices are used "    \
    "instead of it]\n"

/* 5: slices have UUIDs and memory of their own, and a process sees one of each GPU instance. */
static void mig(void **state)
{
    (void)state;
    machine m = make("mig");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, SLICES);
    machine_expect(&m, NULL,
                   CPU SLICE_1("cuda:0 0", "70", "69",
                               "60") "\n"
                                     "cuda MIG-00000000-0000-0000-0000-000000000002 " H200
                                     " 0000:3b:00.0 cuda:1 1 17 17 du 16 9.0 580.65.6/13.0 NVIDIA H200 MIG 1g.18gb\n"
                                     "cuda " OTHER
                                     " - 0000:5e:00.0 cuda:2 2 140 139 du 132 9.0 580.65.6/13.0 NVIDIA H200\n" WHOLE);
}

/* A driver before CUDA 11.4 gives a slice the UUID of the device that it is cut from, and another none: neither makes
 * the slice that device, with its bytes. */
static void a_slice_without_a_uuid(void **state)
{
    (void)state;
    static const char gpus[] =
        DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 %s NVIDIA H200\n"
               "mig MIG-00000000-0000-0000-0000-000000000001 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n";
    static const struct {
        const char *name, *stub, *flags;
    } drivers[] = {{"mig-old", "libcuda-old.so", "-"}, {"mig-anonymous", "libcuda.so", "anonymous"}};
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        char text[1024];
        machine m = make(drivers[i].name);
        snprintf(text, sizeof text, gpus, drivers[i].flags);
        machine_libraries(&m, MACHINE_NVML, LIBRARIES, text);
        machine_library(&m, drivers[i].stub, LIBRARIES, "libcuda.so.1");
        machine_expect(&m, NULL, CPU SLICE_1("cuda:0 0", "70", "69", "60") "\n" WHOLE);
    }
}

/* Where it could be one of two alike, it is neither: its bytes that are free are not known. */
static void a_slice_that_is_not_known(void **state)
{
    (void)state;
    machine m = make("mig-two");
    machine_libraries(
        &m, MACHINE_NVML, LIBRARIES,
        DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"
               "mig MIG-00000000-0000-0000-0000-000000000001 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n"
               "mig+ MIG-00000000-0000-0000-0000-000000000002 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n");
    machine_library(&m, "libcuda-old.so", LIBRARIES, "libcuda.so.1");
    weir_hardware *hardware = machine_look(&m, NULL);
    const weir_hardware_device *d = &hardware->devices[1];
    assert_int_equal(hardware->device_count, 5);
    assert_string_equal(d->key, "MIG-11111111-2222-3333-4444-555555555555");
    assert_string_equal(d->parent, H200);
    assert_string_equal(d->runtime, "cuda:0");
    assert_int_equal(d->total, UINT64_C(75161927680));
    assert_int_equal(d->free, WEIR_BYTES_UNKNOWN);
    assert_string_equal(d->remark, "CUDA's driver does not say which of NVML's slices it is");
    for (size_t i = 2; i < hardware->device_count; i++)
        assert_int_equal(hardware->devices[i].ordinal, -1);
    weir_hardware_destroy(hardware);
}

/* Nor are two of them one, though they have one UUID. */
static void two_slices_of_one_uuid(void **state)
{
    (void)state;
    static const char gpus[] =
        DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"
               "mig MIG-00000000-0000-0000-0000-000000000001 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n"
               "mig MIG-00000000-0000-0000-0000-000000000002 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n";
    for (int with_nvml = 0; with_nvml <= 1; with_nvml++) {
        machine m = make(with_nvml ? "mig-one-uuid" : "mig-one-uuid-alone");
        machine_libraries(&m, with_nvml ? MACHINE_NVML : 0, LIBRARIES, gpus);
        machine_library(&m, "libcuda-old.so", LIBRARIES, "libcuda.so.1");
        weir_hardware *hardware = machine_look(&m, NULL);
        assert_int_equal(hardware->device_count, with_nvml ? 6 : 3);
        for (int i = 0; i < 2; i++) {
            const weir_hardware_device *d = &hardware->devices[1 + i];
            assert_string_equal(d->key, i ? "MIG-11111111-2222-3333-4444-555555555555/1"
                                          : "MIG-11111111-2222-3333-4444-555555555555");
            assert_string_equal(d->runtime, i ? "cuda:1" : "cuda:0");
            assert_string_equal(d->parent, with_nvml ? H200 : "");
            assert_true(d->usable);
        }
        weir_hardware_destroy(hardware);
    }
}

/* What NVML does not tell of a slice's memory its profile does. */
static void a_slice_without_memory(void **state)
{
    (void)state;
    machine m = make("mig-memory");
    machine_libraries(
        &m, MACHINE_NVML, LIBRARIES,
        DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 unknown NVIDIA H200\n"
               "mig MIG-00000000-0000-0000-0000-000000000001 60 75161927680 74088185856 NVIDIA H200 MIG 3g.71gb\n");
    weir_hardware *hardware = machine_look(&m, NULL);
    assert_int_equal(hardware->device_count, 3);
    assert_string_equal(hardware->devices[2].parent, H200);
    assert_int_equal(hardware->devices[1].total, WEIR_BYTES_UNKNOWN);
    assert_int_equal(hardware->devices[2].total, UINT64_C(75161927680));
    assert_int_equal(hardware->devices[2].free, WEIR_BYTES_UNKNOWN);
    weir_hardware_destroy(hardware);
}

/* 7: CUDA counts the fastest first, NVML by address; both in the order of addresses if that is asked for. */
static void reordered(void **state)
{
    (void)state;
    static const char gpus[] = DRIVER "gpu " OTHER " 0000:01:00.0 1 7.5 40 17179869184 16106127360 - Tesla T4\n"
                                      "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n";
    machine m = make("reordered");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, gpus);
    machine_expect(&m, NULL,
                   CPU ONE_LINE "cuda " OTHER " - 0000:01:00.0 cuda:1 1 16 15 du 40 7.5 580.65.6/13.0 Tesla T4\n");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    machine_expect(&m, NULL,
                   CPU "cuda " OTHER " - 0000:01:00.0 cuda:0 0 16 15 du 40 7.5 580.65.6/13.0 Tesla T4\n"
                       "cuda " H200 " - 0000:3b:00.0 cuda:1 1 140 139 du 132 9.0 580.65.6/13.0 NVIDIA H200\n");
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    machine_expect(&m, NULL,
                   CPU ONE_LINE "cuda " OTHER " - 0000:01:00.0 cuda:1 1 16 15 du 40 7.5 580.65.6/13.0 Tesla T4\n");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
}

/* 8: one card that NVML, CUDA's driver and the bus with the kernel's graphics all show. */
static void the_same_card_four_times(void **state)
{
    (void)state;
    machine m = make("four-times");
    machine_card(&m, 0, "0000:3b:00.0", 0x10de, 0x2335, "nvidia");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE_GPU);
    machine_expect(&m, NULL, CPU ONE_LINE);
}

/* NVML does not tell its address: that is CUDA's driver's, by which the bus does not show it again. */
static void an_address_that_cuda_alone_tells(void **state)
{
    (void)state;
    machine m = make("address");
    machine_pci(&m, "0000:3b:00.0", 0x10de, 0x2335, "nvidia");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES,
                      DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 nowhere NVIDIA H200\n");
    machine_expect(&m, NULL, CPU ONE_LINE);
}

/* 9: an integrated GPU has the host's memory, more than the card has, and is none the better for it. */
static void integrated_with_more_than_the_card(void **state)
{
    (void)state;
    machine m = make("integrated");
    machine_card(&m, 0, "0000:00:02.0", 0x8086, 0xa780, "i915");
    machine_file(&m, "dev/dri/renderD128", "%s", "");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES,
                      DRIVER "gpu " OTHER " 0000:01:00.0 0 8.9 24 8589934592 7516192768 - NVIDIA GeForce RTX 4060\n");
    machine_expect(&m, NULL,
                   CPU "cuda " OTHER " - 0000:01:00.0 cuda:0 0 8 7 du 24 8.9 580.65.6/13.0 NVIDIA GeForce RTX 4060\n"
                       "intel 0000:00:02.0 - 0000:00:02.0 - 0 64 60 hu 0 - -/- Intel GPU 0xa780 (i915)\n");
}

/* 10: 0 of 0 bytes is not a size. */
static void no_memory_told(void **state)
{
    (void)state;
    machine m = make("zero");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, DRIVER "gpu " H200 " 0000:3b:00.0 0 9.0 132 0 0 - NVIDIA H200\n");
    machine_expect(&m, NULL,
                   CPU "cuda " H200 " - 0000:3b:00.0 cuda:0 0 ? ? du 132 9.0 580.65.6/13.0 NVIDIA H200 "
                       "[nobody tells its memory]\n");
}

/* 12: without NVML there is CUDA's driver, and without that NVML. */
static void one_library_alone(void **state)
{
    (void)state;
    machine m = make("no-nvml");
    machine_libraries(&m, MACHINE_CUDA, LIBRARIES, ONE_GPU);
    machine_file(&m, "sys/module/nvidia/version", "580.65.06\n");
    machine_expect(&m, NULL,
                   CPU "cuda " H200
                       " - 0000:3b:00.0 cuda:0 0 140 ? du 132 9.0 580.65.6/13.0 NVIDIA H200 [without NVML its free "
                       "bytes cannot be told without a context]\n");
    machine other = make("no-cuda");
    machine_libraries(&other, MACHINE_NVML, LIBRARIES, ONE_GPU);
    machine_expect(&other, NULL,
                   CPU "cuda " H200 " - 0000:3b:00.0 - -1 140 139 d- 0 9.0 580.65.6/13.0 NVIDIA H200 [CUDA's "
                       "driver: libcuda.so.1 is not here]\n");
}

/* A lost device says so, and hides no other. */
static void a_lost_device(void **state)
{
    (void)state;
    machine m = make("lost");
    machine_pci(&m, "0000:5e:00.0", 0x10de, 0x2335, "nvidia");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES,
                      DRIVER "gpu " OTHER " 0000:5e:00.0 0 9.0 132 150323855360 149250113536 lost NVIDIA H200\n"
                             "gpu " H200 " 0000:3b:00.0 1 9.0 132 150323855360 149250113536 - NVIDIA H200\n");
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_expect_of(
        hardware, CPU ONE_LINE
        "cuda 0000:5e:00.0 - 0000:5e:00.0 - -1 ? ? d- 0 - -/- NVIDIA 0x2335 [neither NVML nor CUDA's driver "
        "names it; the kernel's driver for it is nvidia]\n");
    machine_remarks(hardware, "nvml: device number 0: GPU is lost", 1);
    weir_hardware_destroy(hardware);
}

static void drivers_that_do_not_serve(void **state)
{
    (void)state;
    machine none = make("nouveau");
    machine_pci(&none, "0000:3b:00.0", 0x10de, 0x2335, "nouveau");
    machine_expect(&none, NULL,
                   CPU "cuda 0000:3b:00.0 - 0000:3b:00.0 - -1 ? ? d- 0 - -/- NVIDIA 0x2335 [neither NVML nor "
                       "CUDA's driver names it; the kernel's driver for it is nouveau]\n");
    machine mismatch = make("mismatch");
    machine_libraries(&mismatch, MACHINE_BOTH, LIBRARIES, "fail 0 803\n" ONE_GPU);
    machine_expect(&mismatch, NULL,
                   CPU "cuda " H200 " - 0000:3b:00.0 - -1 140 139 d- 0 9.0 580.65.6/13.0 NVIDIA H200 [CUDA's "
                       "driver: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH]\n");
    machine old = make("old");
    machine_libraries(&old, MACHINE_BOTH, LIBRARIES,
                      "driver 470.82.01\ncuda 11040\ngpu " H200
                      " 0000:3b:00.0 0 8.0 108 42949672960 42949672960 - NVIDIA A100\n");
    machine_expect(&old, NULL,
                   CPU "cuda " H200 " - 0000:3b:00.0 - 0 40 40 du 108 8.0 470.82.1/11.4 NVIDIA A100 [its driver "
                       "serves CUDA 11.4; weir's driver cuda needs one that serves 12 or later]\n");
}

/* NVML counts devices when it begins: one that comes later is found all the same. */
static void a_device_that_comes_later(void **state)
{
    (void)state;
    machine m = make("later");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, DRIVER);
    machine_expect(&m, NULL, CPU);
    machine_file(&m, LIBRARIES "/gpus.txt", "%s", ONE_GPU);
    machine_expect(&m, NULL, CPU ONE_LINE);
}

/* Before 510 NVML tells memory in its first form only. */
static void an_old_nvml(void **state)
{
    (void)state;
    machine m = make("old-nvml");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE_GPU);
    machine_library(&m, "libnvml-old.so", LIBRARIES, "libnvidia-ml.so.1");
    machine_expect(&m, NULL, CPU ONE_LINE);
}

/* A library that lacks what is needed is let go, so that the one put in its place is found. */
static void libraries_that_lack_functions(void **state)
{
    (void)state;
    machine m = make("lacking");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE_GPU);
    machine_library(&m, "libcuda.so", LIBRARIES, "libnvidia-ml.so.1");
    machine_library(&m, "libnvml.so", LIBRARIES, "libcuda.so.1");
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_expect_of(hardware, CPU);
    machine_remarks(hardware, "nvml: libnvidia-ml.so.1 has no nvml", 1);
    machine_remarks(hardware, "cuda: libcuda.so.1 has no cu", 1);
    weir_hardware_destroy(hardware);
    machine_library(&m, "libnvml.so", LIBRARIES, "libnvidia-ml.so.1");
    machine_library(&m, "libcuda.so", LIBRARIES, "libcuda.so.1");
    machine_expect_soon(&m, CPU ONE_LINE);
    machine_file(&m, LIBRARIES "/libnvidia-ml.so.1", "no library at all\n");
    machine_expect(&m, NULL, CPU ONE_LINE); /* what is open serves on */
}

static void a_library_that_is_none(void **state)
{
    (void)state;
    machine m = make("no-library");
    machine_file(&m, LIBRARIES "/libcuda.so.1", "no library at all\n");
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_expect_of(hardware, CPU);
    machine_remarks(hardware, LIBRARIES "/libcuda.so.1: ", 1);
    weir_hardware_destroy(hardware);
}

/* More devices than anybody has hide none of the others. */
static void too_many(void **state)
{
    (void)state;
    enum { CARDS = 140, ROOM = 128 };
    machine m = make("many");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, ONE_GPU);
    for (unsigned i = 0; i < CARDS; i++) {
        char address[20];
        snprintf(address, sizeof address, "0000:%02x:02.0", i);
        machine_card(&m, i, address, 0x8086, 0x4680, "i915");
    }
    weir_hardware *hardware = machine_look(&m, NULL);
    assert_int_equal(hardware->device_count, ROOM);
    assert_string_equal(hardware->devices[0].key, "cpu");
    assert_string_equal(hardware->devices[1].runtime, "cuda:0");
    machine_remarks(hardware, "there is room for 128 devices", 1);
    weir_hardware_destroy(hardware);
}

/* What is called as a library, and is a pipe: nobody waits for one who writes into it. */
static void libraries_that_are_none(void **state)
{
    (void)state;
    static const char *const names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    machine m = make("pipes");
    machine_file(&m, LIBRARIES "/gpus.txt", "%s", "");
    for (size_t i = 0; i < 2; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/" LIBRARIES "/%s", m.root, names[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
    }
    machine_expect(&m, NULL, CPU);
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "libcuda.so.1 is no regular file", 1);
    machine_remarks(hardware, "libnvidia-ml.so.1 is no regular file", 1);
    weir_hardware_destroy(hardware);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_machine),
        cmocka_unit_test(simple_framebuffer_as_card0),
        cmocka_unit_test(vgem_and_wsl),
        cmocka_unit_test(ec2_vgpu),
        cmocka_unit_test(jetson),
        cmocka_unit_test(mig),
        cmocka_unit_test(a_slice_without_a_uuid),
        cmocka_unit_test(a_slice_that_is_not_known),
        cmocka_unit_test(two_slices_of_one_uuid),
        cmocka_unit_test(too_many),
        cmocka_unit_test(libraries_that_are_none),
        cmocka_unit_test(a_slice_without_memory),
        cmocka_unit_test(reordered),
        cmocka_unit_test(the_same_card_four_times),
        cmocka_unit_test(an_address_that_cuda_alone_tells),
        cmocka_unit_test(integrated_with_more_than_the_card),
        cmocka_unit_test(no_memory_told),
        cmocka_unit_test(one_library_alone),
        cmocka_unit_test(a_lost_device),
        cmocka_unit_test(drivers_that_do_not_serve),
        cmocka_unit_test(a_device_that_comes_later),
        cmocka_unit_test(an_old_nvml),
        cmocka_unit_test(libraries_that_lack_functions),
        cmocka_unit_test(a_library_that_is_none),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
