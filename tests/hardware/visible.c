/* Which devices a process sees, and as which ordinals: by CUDA's driver, and by CUDA's rules where the driver has not
 * answered. */
#include "machine.h"
#include <weir/select.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER "driver 580.65.06\ncuda 13000\n"
#define CPU    "cpu cpu - - host 0 64 60 hu 8 - -/- Test CPU\n"

/* Three devices: by address T4, A100, H200, and the fastest first the other way round. */
#define T4   "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define A100 "GPU-aaaabbbb-0000-0000-0000-000000000002"
#define H200 "GPU-cccccccc-0000-0000-0000-000000000003"
#define GPUS                                                                                                           \
    DRIVER "gpu " T4 " 0000:01:00.0 2 7.5 40 17179869184 17179869184 - T4\n"                                           \
           "gpu " A100 " 0000:02:00.0 1 8.0 108 42949672960 42949672960 - A100\n"                                      \
           "gpu " H200 " 0000:03:00.0 0 9.0 132 150323855360 150323855360 - H200\n"
/* The first is sliced, the second is not. */
#define SLICES                                                                                                         \
    DRIVER "gpu " A100 " 0000:02:00.0 0 8.0 108 42949672960 42949672960 - A100\n"                                      \
           "mig MIG-00000000-0000-0000-0000-00000000000a 42 21474836480 21474836480 A100 MIG 3g.20gb\n"                \
           "mig MIG-00000000-0000-0000-0000-00000000000b 14 5368709120 5368709120 A100 MIG 1g.5gb\n"                   \
           "gpu " H200 " 0000:03:00.0 1 9.0 132 150323855360 150323855360 - H200\n"
/* Two slices of one GPU instance, then one of another. */
#define INSTANCES                                                                                                      \
    "cuda 12080\ngpu " A100 " 0000:02:00.0 0 8.0 108 42949672960 42949672960 - A100\n"                                 \
    "mig MIG-00000000-0000-0000-0000-00000000000a 14 21474836480 21474836480 A100 MIG 1c.3g.20gb\n"                    \
    "mig+ MIG-00000000-0000-0000-0000-00000000000b 28 21474836480 21474836480 A100 MIG 2c.3g.20gb\n"                   \
    "mig MIG-00000000-0000-0000-0000-00000000000c 14 5368709120 5368709120 A100 MIG 1g.5gb\n"                          \
    "gpu " H200 " 0000:03:00.0 1 9.0 132 150323855360 150323855360 - H200\n"
#define MIG(letter) "MIG-00000000-0000-0000-0000-00000000000" letter
#define SLOW        "sleep 0 600000\n"

static machine make(const char *name, const char *gpus)
{
    machine m = machine_make(name);
    machine_host(&m, 64 * GIB, 60 * GIB);
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, gpus);
    return m;
}

/* The keys with an ordinal, in its order, and then how many have none: "T4 H200 1". */
static void write_seen(const machine *m, const weir_hardware_options *options, char *text, size_t capacity)
{
    weir_hardware *hardware = machine_look(m, options);
    size_t hidden = 0, used = 0;
    int32_t next = 0;
    for (size_t i = 1; i < hardware->device_count; i++) {
        const weir_hardware_device *d = &hardware->devices[i];
        char runtime[16];
        snprintf(runtime, sizeof runtime, "cuda:%d", d->ordinal);
        assert_string_equal(d->runtime, d->ordinal >= 0 ? runtime : "");
        assert_int_equal(d->usable, d->ordinal >= 0);
        hidden += d->ordinal < 0;
        if (d->ordinal < 0)
            assert_true(d->remark[0]);
        else
            assert_int_equal(d->ordinal, next++);
        if (d->ordinal >= 0)
            used += (size_t)snprintf(text + used, capacity - used, "%s ", d->name);
    }
    snprintf(text + used, capacity - used, "%zu", hidden);
    weir_hardware_destroy(hardware);
}

/* By the driver's word under CUDA_VISIBLE_DEVICES, and as `visible` beside a driver that knows all of them. */
static void check(const machine *m, const char *list, const char *expected)
{
    char seen[256];
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    write_seen(m, NULL, seen, sizeof seen);
    assert_string_equal(seen, expected);
    unsetenv("CUDA_VISIBLE_DEVICES");
    o.visible = list;
    write_seen(m, &o, seen, sizeof seen);
    assert_string_equal(seen, expected);
}

/* Whose word it is: the CUDA Programming Guide's, that of PyTorch's tests, which were fitted to driver 525, or that of
 * driver 580 itself on a machine with one GPU. */
typedef enum word_of { GUIDE, PYTORCH, DRIVER_580 } word_of;

static const struct {
    word_of by;
    const char *list, *seen; /* of H200, A100, T4, and how many are hidden */
} rules[] = {
    {GUIDE, "", "3"},
    {GUIDE, "1", "A100 2"},
    {GUIDE, "2,0", "T4 H200 1"},
    {GUIDE, "-1", "3"},
    {GUIDE, "0,-1,1", "H200 2"},
    {GUIDE, "0,7,1", "H200 2"},
    {GUIDE, T4 "," H200, "T4 H200 1"},
    {GUIDE, "GPU-cccc", "H200 2"},
    {GUIDE, "GPU-aaaa", "3"}, /* two begin so */
    {GUIDE, "GPU-cccc,GPU-aaaa,GPU-aaaab", "H200 2"},
    {GUIDE, "MIG-00000000-0000-0000-0000-00000000000a", "3"},
    {PYTORCH, "0,0", "3"},
    {PYTORCH, "0,1,2,1", "3"},
    {PYTORCH, "-1,0", "3"},
    {PYTORCH, "1gpu,2ampere", "A100 T4 1"},
    {PYTORCH, "2, +1, -0", "T4 A100 H200 0"},
    {PYTORCH, "one,2", "3"},
    {PYTORCH, "0,none,1", "H200 2"},
    {PYTORCH, "GPU-aaaab,0", "A100 2"}, /* numbers do not count among UUIDs */
    {PYTORCH, "0,GPU-aaaab", "H200 2"},
    {PYTORCH, T4 "," T4, "3"},
    {PYTORCH, H200 ",GPU-cccc", "3"}, /* one device, named in two ways */
    {DRIVER_580, H200 "0", "H200 2"},
    {DRIVER_580, H200 "x," T4, "H200 T4 1"},
    {DRIVER_580, H200 " ," T4, "H200 T4 1"},
    {DRIVER_580, H200 ", " T4, "H200 2"},
    {DRIVER_580, " " H200, "3"},
    {DRIVER_580, "gpu-cccccccc-0000-0000-0000-000000000003", "3"},
    {DRIVER_580, "GPU-AAAAB", "A100 2"},
    {DRIVER_580, H200 ",GPU-", "H200 2"},
    {DRIVER_580, " 1 ", "A100 2"},
    {DRIVER_580, "00", "H200 2"},
    {DRIVER_580, "0x1", "H200 2"},
    {DRIVER_580, ",0", "3"},
    {DRIVER_580, "0,,1", "H200 2"},
    {DRIVER_580, "0,9,0", "H200 2"}, /* the list has ended before it names one twice */
    {DRIVER_580, "99999999999999999999,0", "3"},
    {DRIVER_580, "GPU-", "3"},
    {DRIVER_580, "cccccccc-0000-0000-0000-000000000003", "3"},
};

static void lists(void **state)
{
    (void)state;
    machine m = make("lists", GPUS);
    char seen[256];
    write_seen(&m, NULL, seen, sizeof seen);
    assert_string_equal(seen, "H200 A100 T4 0");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        check(&m, rules[i].list, rules[i].seen);
}

static void the_text_of_what_is_hidden(void **state)
{
    (void)state;
    machine m = make("hidden", DRIVER "gpu " T4 " 0000:01:00.0 0 7.5 40 17179869184 17179869184 - T4\n");
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    machine_expect(&m, NULL,
                   CPU "cuda " T4 " - 0000:01:00.0 - -1 16 16 d- 0 7.5 580.65.6/13.0 T4 [hidden by "
                       "CUDA_VISIBLE_DEVICES=\"-1\"]\n");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* MIG User Guide: before driver 570 a process sees one slice, and nothing beside it. */
static void one_slice(void **state)
{
    (void)state;
    machine m = make("slices", "driver 535.161.08\n" INSTANCES);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID",
           1); /* as the driver shows one slice alone, its order of the rest is not known */
    check(&m, MIG("b"), "A100 MIG 2c.3g.20gb 4");
    check(&m, MIG("c") "," MIG("a"), "A100 MIG 1g.5gb 4");
    check(&m, MIG("c") ",1", "A100 MIG 1g.5gb 4");
    check(&m, "1", "H200 4");
    check(&m, "1,0", "A100 MIG 1c.3g.20gb 4");
    check(&m, A100, "A100 MIG 1c.3g.20gb 4");
    weir_hardware *hardware = machine_look(&m, NULL);
    for (size_t i = 0; i < hardware->device_count; i++)
        if (strcmp(hardware->devices[i].key, H200) == 0)
            assert_string_equal(hardware->devices[i].remark, "CUDA shows nothing beside a slice of MIG");
    weir_hardware_destroy(hardware);
    unsetenv("CUDA_DEVICE_ORDER");
}

/* From driver 570 on it sees one of each GPU instance, whose slices share its memory, beside whole devices. */
static void a_slice_of_each_instance(void **state)
{
    (void)state;
    machine m = make("instances", "driver 570.86.15\n" INSTANCES);
    char seen[256];
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    write_seen(&m, NULL, seen, sizeof seen);
    assert_string_equal(seen, "A100 MIG 1c.3g.20gb A100 MIG 1g.5gb H200 2");
    check(&m, MIG("c") "," MIG("b"), "A100 MIG 1g.5gb A100 MIG 2c.3g.20gb 3");
    check(&m, MIG("a") "," MIG("b") "," MIG("c"), "A100 MIG 1c.3g.20gb A100 MIG 1g.5gb 3");
    check(&m, H200 "," MIG("b"), "H200 A100 MIG 2c.3g.20gb 3");
    check(&m, MIG("b") "," A100, "A100 MIG 2c.3g.20gb 4"); /* nobody's word, too */
    check(&m, "1,0", "H200 A100 MIG 1c.3g.20gb 3");        /* nobody's word, and so said to be a guess */
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    o.visible = "1,0";
    weir_hardware *hardware = machine_look(&m, &o);
    assert_non_null(strstr(hardware->devices[2].remark, "a guess"));
    assert_non_null(strstr(hardware->devices[2].remark, "UUIDs in CUDA_VISIBLE_DEVICES"));
    assert_string_equal(hardware->devices[4].key, MIG("b"));
    assert_non_null(strstr(hardware->devices[4].remark, "one slice of a GPU instance"));
    weir_hardware_destroy(hardware);
    unsetenv("CUDA_DEVICE_ORDER");
}

/* With a driver that does not answer, ordinals follow from the rules; which is fastest is then a guess, and said to be
 * one. */
static void without_the_drivers_word(void **state)
{
    (void)state;
    machine m = make("rules", SLOW GPUS), cut = make("rules-slices", SLOW SLICES);
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    char seen[256];
    o.limit_ms = 200;
    weir_hardware *hardware = machine_look(&m, &o);
    assert_int_equal(hardware->device_count, 4);
    assert_string_equal(hardware->devices[1].key, H200);
    assert_non_null(strstr(hardware->devices[1].remark, "a guess"));
    machine_remarks(hardware, "cuda: no answer within", 1);
    weir_hardware_destroy(hardware);
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
    write_seen(&m, &o, seen, sizeof seen);
    assert_string_equal(seen, "T4 H200 1");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    hardware = machine_look(&m, &o);
    assert_string_equal(hardware->devices[1].key, H200);
    assert_string_equal(hardware->devices[1].remark, "");
    assert_string_equal(hardware->devices[1].runtime, "cuda:0");
    assert_int_equal(hardware->devices[2].ordinal, -1);
    weir_hardware_destroy(hardware);
    o.visible = "0,1";
    write_seen(&m, &o, seen, sizeof seen);
    assert_string_equal(seen, "T4 A100 1");
    unsetenv("CUDA_VISIBLE_DEVICES");
    o.visible = NULL;
    write_seen(&cut, &o, seen, sizeof seen);
    assert_string_equal(seen, "A100 MIG 3g.20gb A100 MIG 1g.5gb H200 1");
    unsetenv("CUDA_DEVICE_ORDER");
}

/* Lists drawn at random: what weir makes of them beside what the stub does, which has a reading of its own. */
static void random_lists(void **state)
{
    (void)state;
    static const char *const words[] = {"0",     "1", "2", "3",  "-1", T4,  A100, "GPU-c",
                                        "GPU-a", "x", "",  "00", "2",  "0", "1x"};
    machine m = make("random", GPUS);
    uint64_t seed = 88172645463325252;
    size_t some = 0;
    for (int i = 0; i < 200; i++) {
        char list[256] = "", by_driver[256], by_rules[256];
        seed = seed * 6364136223846793005 + 1442695040888963407;
        for (uint64_t n = 1 + (seed >> 33) % 4; n > 0; n--) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            strcat(list, words[(seed >> 33) % (sizeof words / sizeof words[0])]);
            strcat(list, n > 1 ? "," : "");
        }
        weir_hardware_options o = WEIR_INIT(weir_hardware_options);
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
        write_seen(&m, NULL, by_driver, sizeof by_driver);
        unsetenv("CUDA_VISIBLE_DEVICES");
        o.visible = list;
        write_seen(&m, &o, by_rules, sizeof by_rules);
        if (strcmp(by_driver, by_rules) != 0)
            fail_msg("\"%s\": %s by the driver, %s by the rules", list, by_driver, by_rules);
        some += strcmp(by_rules, "3") != 0;
    }
    assert_in_range(some, 50, 190);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(the_text_of_what_is_hidden),
        cmocka_unit_test(one_slice),
        cmocka_unit_test(a_slice_of_each_instance),
        cmocka_unit_test(without_the_drivers_word),
        cmocka_unit_test(random_lists),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
