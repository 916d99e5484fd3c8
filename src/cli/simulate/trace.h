/* simulate_trace.h: `weir simulate --trace`: the check of a recorded program. */
#ifndef WEIR_CLI_SIMULATE_TRACE_H
#define WEIR_CLI_SIMULATE_TRACE_H

#include <stdbool.h>

/* Answers the exit status: CLI_OK when nothing was found. */
int simulate_trace(const char *path, bool json);

#endif
