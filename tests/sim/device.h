/* A simulated device by itself, of 16 MiB in granules of 2 MiB, and what it last complained about. */
#ifndef TESTS_SIM_DEVICE_H
#define TESTS_SIM_DEVICE_H

#include "sim.h"

static const wi_driver *const sim = &wi_sim_driver;
static char wrong[256];
static uint64_t told_held;

static inline void note_wrong(void *user, const char *what)
{
    (void)user;
    snprintf(wrong, sizeof wrong, "%s", what);
}

static inline void note_held(void *user, uint64_t bytes)
{
    (void)user;
    told_held = bytes;
}

static inline wi_device *open_device(void)
{
    static const wi_sim_watcher watcher = {.wrong = note_wrong, .hold = note_held};
    wi_device *device;
    wrong[0] = '\0';
    told_held = 0;
    wi_sim_configure(&(wi_sim_options){.bytes = 16 * WI_MIB, .granule = 2 * WI_MIB, .watcher = &watcher});
    assert_int_equal(sim->open(0, &device), WEIR_OK);
    wi_sim_configure(NULL);
    return device;
}

#endif
