/* pool.h: weir simulate pool, in two files. */
#ifndef WEIR_CLI_SIMULATE_POOL_H
#define WEIR_CLI_SIMULATE_POOL_H

#include "sim/pool/traffic.h"

#include <jansson.h>

/* One policy under one traffic. */
typedef struct pool_run {
    const char *traffic; /* a kind's name, or a file's */
    const policy *policy;
    drive_result result;
    double beside; /* its reload seconds beside the best other pool's under the same traffic; 0: not known */
} pool_run;

typedef struct pool_args {
    const char *traffic, *models, *policy, *decisions, *replay, *save, *save_models;
    uint64_t budget, host, seed, gap, length, wait, passing, minimum_stay, queue;
    unsigned most_models, devices, length_given;
    bool json;
} pool_args;

/* Answers the exit status. */
int pool_answer(const pool_args *args, const pool_run *runs, size_t count);
int pool_answer_replay(const pool_args *args, const replay_result *result);

#endif
