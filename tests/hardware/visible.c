/* Which devices a process sees, and as which ordinals: by CUDA's driver, and by CUDA's rules where the driver has not answered. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER    "driver 580.65.06\ncuda 13000\n"
#define LIBRARIES "usr/lib/x86_64-linux-gnu"
#define CPU       "cpu cpu - - host 0 64 60 hu 8 - -/- Test CPU\n"

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
#define SLOW "sleep 0 600000\n"

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
    weir_hardware_release(hardware);
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

static void lists(void **state)
{
    (void)state;
    machine m = make("lists", GPUS);
    char seen[256];
    write_seen(&m, NULL, seen, sizeof seen);
    assert_string_equal(seen, "H200 A100 T4 0");
    check(&m, "1", "A100 2");
    check(&m, "2,0", "T4 H200 1");
    check(&m, "", "3");
    check(&m, "-1", "3");
    check(&m, "0,-1,1", "H200 2");
    check(&m, "0,7,1", "H200 2");
    check(&m, "0,none,1", "H200 2");
    check(&m, T4 "," H200, "T4 H200 1");
    check(&m, "GPU-cccc", "H200 2");
    check(&m, "GPU-aaaa", "3"); /* two begin so */
    check(&m, "GPU-aaaab,0", "A100 H200 1");
    check(&m, "0,0", "3");
    check(&m, "MIG-00000000-0000-0000-0000-00000000000a", "3");
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

static void slices(void **state)
{
    (void)state;
    machine m = make("slices", SLICES);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID",
           1); /* as the driver shows one slice alone, its order of the rest is not known */
    check(&m, "MIG-00000000-0000-0000-0000-00000000000b", "A100 MIG 1g.5gb 3");
    check(&m, "MIG-00000000-0000-0000-0000-00000000000b,1", "A100 MIG 1g.5gb 3");
    check(&m, "1", "H200 3");
    check(&m, "1,0", "A100 MIG 3g.20gb 3");
    check(&m, A100, "A100 MIG 3g.20gb 3");
    unsetenv("CUDA_DEVICE_ORDER");
}

/* With a driver that does not answer, ordinals follow from the rules; which is fastest is then a guess, and said to be one. */
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
    weir_hardware_release(hardware);
    setenv("CUDA_VISIBLE_DEVICES", "2,GPU-cc", 1);
    write_seen(&m, &o, seen, sizeof seen);
    assert_string_equal(seen, "T4 H200 1");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    hardware = machine_look(&m, &o);
    assert_string_equal(hardware->devices[1].key, H200);
    assert_string_equal(hardware->devices[1].remark, "");
    assert_string_equal(hardware->devices[1].runtime, "cuda:0");
    assert_int_equal(hardware->devices[2].ordinal, -1);
    weir_hardware_release(hardware);
    o.visible = "0,1";
    write_seen(&m, &o, seen, sizeof seen);
    assert_string_equal(seen, "T4 A100 1");
    unsetenv("CUDA_VISIBLE_DEVICES");
    o.visible = NULL;
    write_seen(&cut, &o, seen, sizeof seen);
    assert_string_equal(seen, "A100 MIG 3g.20gb 3");
    unsetenv("CUDA_DEVICE_ORDER");
}

/* Lists drawn at random: what weir makes of them beside what the stub does, which has a reading of its own. */
static void random_lists(void **state)
{
    (void)state;
    static const char *const words[] = {"0",     "1", "2", "3",  "-1", T4,  A100, "GPU-c",
                                        "GPU-a", "x", "",  "00", "2",  "0", "1"};
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
        cmocka_unit_test(lists),        cmocka_unit_test(the_text_of_what_is_hidden),
        cmocka_unit_test(slices),       cmocka_unit_test(without_the_drivers_word),
        cmocka_unit_test(random_lists),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
