/* drive.h: a pool under traffic, in virtual time. A policy decides; doubles of the models carry it out. A load, a
 * resume and a suspend take the time of the model's line if nothing else goes on; loads and resumes share the device's
 * way in, suspends share its way out (link.h). A request runs for its own time. Beside the policy the driver keeps
 * books of its own, by which the policy is judged: bytes over the ceiling, requests that are lost, actions that make no
 * sense. */
#ifndef SIM_POOL_DRIVE_H
#define SIM_POOL_DRIVE_H

#include "sim/pool/policy.h"

#include <stdio.h>

/* An unload takes so long. */
#define DRIVE_UNLOAD (10 * TRAFFIC_SECOND / 1000)

typedef struct drive_options {
    const policy *policy;
    const traffic_models *models;
    traffic *requests; /* read to its end */
    wp_limits limits;
    uint64_t budget; /* of each device */
    uint32_t most_models;
    uint64_t seed; /* which loads fail */
    FILE *log;     /* of decisions (pool/decisions.h); NULL: none */
    void (*progress)(void *user, double fraction);
    void *user;
} drive_options;

enum { DRIVE_WAITS = 64 * 64 };

typedef struct drive_result {
    uint64_t requests, granted, done, refused[WP_CAUSES];
    uint64_t loads, resumes, suspends, unloads, failures;
    uint64_t evictions;  /* unloads and suspends for a request */
    uint64_t reload;     /* nanoseconds that the ways in were busy: the sum of the loads' and resumes' times alone */
    uint64_t coming;     /* nanoseconds that models were on their way in: more where they shared it */
    uint64_t suspending; /* nanoseconds that models were on their way out to the host */
    uint64_t bytes_in, bytes_out;
    uint64_t most_taken, over; /* bytes of a device; over its ceiling: at the worst moment */
    uint64_t most_host, over_host;
    uint64_t wait_sum, wait_most;
    uint32_t waits[DRIVE_WAITS]; /* of granted requests, by length: drive_wait */
    uint64_t events, actions;    /* that the policy was told; that it answered with */
    uint64_t virtual_end;        /* nanoseconds */
    double seconds;              /* of real time */
    uint64_t violations;
    char first[256]; /* of them */
} drive_result;

/* WEIR_OK also with violations. WEIR_ERR_INVALID: the requests cannot be read; WEIR_ERR_SYSTEM: no memory, or the log cannot be
 * written. */
weir_status drive(const drive_options *options, drive_result *out);

/* The wait that so much of the granted requests did not pass, in nanoseconds: at most 1.6 % too much. `part` is from 0 to 1. */
uint64_t drive_wait(const drive_result *result, double part);
/* All refusals. */
uint64_t drive_refusals(const drive_result *result);

#endif
