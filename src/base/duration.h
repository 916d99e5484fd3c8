/* Durations in options. */
#ifndef WI_DURATION_H
#define WI_DURATION_H

#include <stdbool.h>
#include <stdint.h>

/* Reads digits and a unit: "30d", "12h", "15m", "0s"; at most 36500 days. False, with *seconds unchanged, for anything
 * else. */
bool wi_duration_read(const char *text, uint64_t *seconds);

#endif
