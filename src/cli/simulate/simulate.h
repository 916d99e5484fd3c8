/* simulate.h: what weir-sim's own files share. */
#ifndef WEIR_CLI_SIMULATE_SIMULATE_H
#define WEIR_CLI_SIMULATE_SIMULATE_H

#include "cli/replay/replay.h"
#include "sim/pool/traffic.h"

#include <jansson.h>

/* The simulated device in replays. */
extern const wi_replay_device simulate_replays;

/* weir simulate pool; argv[0] is "pool". Answers the exit status. */
int simulate_pool(int argc, char **argv);

/* ---- weir simulate pool: pool.c, pool_answer.c ------------------------------------------------------------------- */

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
