/* simulate.h: what weir-sim's own files share. */
#ifndef WEIR_CLI_SIMULATE_SIMULATE_H
#define WEIR_CLI_SIMULATE_SIMULATE_H

#include "cli/replay/replay.h"

/* The simulated device in replays. */
extern const wi_replay_device simulate_replays;

#endif
