/* Sources that are slow, fail, hang and come back. */
#include "machine.h"
#include <weir/select.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DRIVER "driver 580.65.06\ncuda 13000\n"
#define KEY    "GPU-11111111-2222-3333-4444-555555555555"
#define GPU    "gpu " KEY " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n"
#define LINE   "cuda " KEY " - 0000:3b:00.0 cuda:0 0 140 139 du 132 9.0 580.65.6/13.0 NVIDIA H200\n"
#define CPU    "cpu cpu - - host 0 64 60 hu 8 - -/- Test CPU\n"

static machine make(const char *name)
{
    machine m = machine_make(name);
    machine_host(&m, 64 * GIB, 60 * GIB);
    return m;
}

static weir_hardware_options limit(uint32_t ms)
{
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    o.limit_ms = ms;
    return o;
}

static void wait_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* 11: NVML takes an hour. The first look waits its limit, the others do not wait at all: so many would take half an
 * hour. The GPU is there by CUDA's driver, and the program can end while the thread hangs: this test's does. */
static void a_probe_of_an_hour(void **state)
{
    (void)state;
    machine m = make("slow");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, "sleep 3600000 0\n" DRIVER GPU);
    machine_file(&m, "sys/module/nvidia/version", "580.65.06\n");
    for (int i = 0; i < 900; i++) {
        weir_hardware_options o = limit(2000);
        weir_hardware *hardware = machine_look(&m, &o);
        machine_expect_of(hardware,
                          CPU "cuda " KEY " - 0000:3b:00.0 cuda:0 0 140 ? du 132 9.0 580.65.6/13.0 NVIDIA H200 "
                              "[without NVML its free bytes cannot be told without a context]\n");
        machine_remarks(hardware, "nvml: no answer within", 1);
        machine_remarks(hardware, "cuda:", 0);
        if (i == 0)
            assert_true(hardware->seconds >= 2); /* and no less */
        weir_hardware_destroy(hardware);
    }
}

/* D29: one look that came too early made the process one without GPUs for life. */
static void d29_a_late_answer_is_taken(void **state)
{
    (void)state;
    machine m = make("late");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, "sleep 600 600\n" DRIVER GPU);
    weir_hardware_options o = limit(20);
    machine_expect(&m, &o, CPU);
    wait_ms(1500);
    o = limit(10000);
    machine_expect(&m, &o, CPU LINE);
}

/* D29: what was not there is asked for again, and so is what failed. */
static void d29_a_negative_result_is_asked_again(void **state)
{
    (void)state;
    machine m = make("again");
    machine_expect(&m, NULL, CPU);
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, "fail 9 999\n" DRIVER GPU);
    weir_hardware *hardware = machine_look(&m, NULL);
    /* On a machine so busy that finding no library took long, that is believed for a while. */
    for (int i = 0; i < 100 && strstr(hardware->remarks, "is not here"); i++) {
        weir_hardware_destroy(hardware);
        usleep(100000);
        hardware = machine_look(&m, NULL);
    }
    machine_expect_of(hardware, CPU);
    machine_remarks(hardware, "nvml: nvmlInit_v2: Driver Not Loaded", 1);
    machine_remarks(hardware, "cuda: cuInit: CUDA_ERROR_UNKNOWN", 1);
    weir_hardware_destroy(hardware);
    machine_file(&m, LIBRARIES "/gpus.txt", "%s", DRIVER GPU);
    machine_expect_soon(&m, CPU LINE);
}

/* One that fails slowly is left alone for at most 5 s, unless all is asked anew. */
static void a_slow_failure_is_not_repeated_at_once(void **state)
{
    (void)state;
    machine m = make("failing");
    machine_libraries(&m, MACHINE_NVML, LIBRARIES, "sleep 400 0\nfail 9 0\n" DRIVER GPU);
    machine_expect(&m, NULL, CPU);
    machine_file(&m, LIBRARIES "/gpus.txt", "%s", DRIVER GPU);
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_expect_of(hardware, CPU);
    machine_remarks(hardware, "nvml: nvmlInit_v2: Driver Not Loaded", 1);
    weir_hardware_destroy(hardware);
    weir_hardware_options o = limit(10000);
    o.anew = true;
    hardware = machine_look(&m, &o);
    assert_int_equal(hardware->device_count, 2);
    weir_hardware_destroy(hardware);
    machine other = make("failing-for-a-while");
    machine_libraries(&other, MACHINE_NVML, LIBRARIES, "sleep 400 0\nfail 9 0\n" DRIVER GPU);
    machine_expect(&other, NULL, CPU);
    machine_file(&other, LIBRARIES "/gpus.txt", "%s", DRIVER GPU);
    wait_ms(5100);
    hardware = machine_look(&other, NULL);
    assert_int_equal(hardware->device_count, 2);
    weir_hardware_destroy(hardware);
}

/* Free bytes are of the moment. */
static void free_bytes_are_asked_each_time(void **state)
{
    (void)state;
    machine m = make("moment");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, DRIVER GPU);
    machine_expect(&m, NULL, CPU LINE);
    machine_host(&m, 64 * GIB, 12 * GIB);
    weir_hardware *hardware = machine_look(&m, NULL);
    assert_int_equal(hardware->devices[0].free, 12 * GIB);
    weir_hardware_destroy(hardware);
}

static void *look_often(void *user)
{
    for (int i = 0; i < 25; i++) {
        weir_hardware *hardware = machine_look(user, NULL);
        machine_expect_of(hardware, CPU LINE);
        weir_hardware_destroy(hardware);
    }
    return NULL;
}

static void many_threads_look(void **state)
{
    (void)state;
    machine m = make("threads");
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES, DRIVER GPU);
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look_often, &m), 0);
    for (size_t i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_of_an_hour),
        cmocka_unit_test(d29_a_late_answer_is_taken),
        cmocka_unit_test(d29_a_negative_result_is_asked_again),
        cmocka_unit_test(a_slow_failure_is_not_repeated_at_once),
        cmocka_unit_test(free_bytes_are_asked_each_time),
        cmocka_unit_test(many_threads_look),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
