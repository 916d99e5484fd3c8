/* A source that cannot be asked this time: what is shown is of before, and said to be. */
#include "machine.h"
#include <weir/select.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEY "GPU-11111111-2222-3333-4444-555555555555"

static bool no_threads;
static pthread_t beside; /* looks at `looked_at`, from when a look at it has begun to ask */
static machine *looked_at;
static weir_hardware *seen_beside;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *user);
static void *look_beside(void *user)
{
    seen_beside = machine_look(user, NULL);
    return NULL;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *user)
{
    if (looked_at) {
        void *m = looked_at;
        looked_at = NULL;
        assert_int_equal(__real_pthread_create(&beside, NULL, look_beside, m), 0);
        usleep(5000);
    }
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, start, user);
}

static machine make(const char *name)
{
    machine m = machine_make(name);
    machine_host(&m, 64 * GIB, 60 * GIB);
    machine_libraries(&m, MACHINE_BOTH, LIBRARIES,
                      "driver 580.65.06\ncuda 13000\n"
                      "gpu " KEY " 0000:3b:00.0 0 9.0 132 150323855360 149250113536 - NVIDIA H200\n");
    return m;
}

static void what_was_told_before_is_said_to_be(void **state)
{
    (void)state;
    machine m = make("stale");
    weir_hardware *hardware = machine_look(&m, NULL);
    assert_int_equal(hardware->device_count, 2);
    machine_remarks(hardware, "could not be asked", 0);
    weir_hardware_destroy(hardware);
    no_threads = true;
    hardware = machine_look(&m, NULL);
    no_threads = false;
    assert_int_equal(hardware->device_count, 2);
    assert_string_equal(hardware->devices[1].key, KEY);
    machine_remarks(hardware, "nvml: could not be asked; what it told ", 1);
    machine_remarks(hardware, "cuda: could not be asked; what it told ", 1);
    weir_hardware_destroy(hardware);
    hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "could not be asked", 0);
    weir_hardware_destroy(hardware);
}

static void what_was_never_told_is_not_there(void **state)
{
    (void)state;
    machine m = make("stale-never");
    no_threads = true;
    weir_hardware *hardware = machine_look(&m, NULL);
    no_threads = false;
    assert_int_equal(hardware->device_count, 1);
    machine_remarks(hardware, "nvml: could not be asked\n", 1);
    machine_remarks(hardware, "ms ago", 0);
    weir_hardware_destroy(hardware);
}

/* One that fails slowly is not asked each time: its failure is of before, too. */
static void a_failure_of_before_is_said_to_be(void **state)
{
    (void)state;
    machine m = machine_make("stale-failing");
    machine_host(&m, 64 * GIB, 60 * GIB);
    machine_libraries(&m, MACHINE_NVML, LIBRARIES, "sleep 400 0\nfail 9 0\n");
    weir_hardware *hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "nvml: nvmlInit_v2: Driver Not Loaded", 1);
    machine_remarks(hardware, "ms ago", 0);
    weir_hardware_destroy(hardware);
    hardware = machine_look(&m, NULL);
    machine_remarks(hardware, "nvml: nvmlInit_v2: Driver Not Loaded (", 1);
    machine_remarks(hardware, "ms ago; it takes long to fail, and is asked again later)", 1);
    weir_hardware_destroy(hardware);
}

/* Two looks at once share what one of them asks: to neither it is of before. */
static void what_another_look_asks_is_of_this_one(void **state)
{
    (void)state;
    bool of_before = true;
    for (int i = 0; of_before && i < 10; i++) { /* on a busy machine the failure may have taken long */
        char name[32];
        snprintf(name, sizeof name, "stale-beside-%d", i);
        machine m = machine_make(name);
        machine_host(&m, 64 * GIB, 60 * GIB);
        machine_libraries(&m, MACHINE_NVML, LIBRARIES, "sleep 25 0\nfail 9 0\n");
        looked_at = &m;
        weir_hardware *hardware = machine_look(&m, NULL);
        assert_int_equal(pthread_join(beside, NULL), 0);
        machine_remarks(hardware, "ms ago", 0);
        machine_remarks(seen_beside, "nvml: nvmlInit_v2: Driver Not Loaded", 1);
        of_before = strstr(seen_beside->remarks, "ms ago") != NULL;
        weir_hardware_destroy(hardware);
        weir_hardware_destroy(seen_beside);
    }
    assert_false(of_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_told_before_is_said_to_be),
        cmocka_unit_test(what_was_never_told_is_not_there),
        cmocka_unit_test(a_failure_of_before_is_said_to_be),
        cmocka_unit_test(what_another_look_asks_is_of_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
