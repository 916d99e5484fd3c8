/* simulate.h: what weir-sim's own files share. */
#ifndef WEIR_CLI_SIMULATE_SIMULATE_H
#define WEIR_CLI_SIMULATE_SIMULATE_H

#include "cli/replay/replay.h"

/* The simulated device in replays. */
extern const wi_replay_device simulate_replays;

/* weir simulate pool; argv[0] is "pool". Answers the exit status. */
int simulate_pool(int argc, char **argv);

#endif
