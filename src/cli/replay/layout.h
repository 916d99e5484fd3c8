/* replay_layout.h: where memory lies when a trace has been replayed, before what it leaves live is freed. */
#ifndef REPLAY_LAYOUT_H
#define REPLAY_LAYOUT_H

#include "replay.h"

#include <jansson.h>

typedef struct replay_layout {
    json_t *traces; /* an array, one object for each walk */
    const char *trace;
} replay_layout;

/* Adds the target's layout to a replay_layout: at_end of wi_replay_settings. */
weir_status replay_layout_take(void *user, const wi_replay_target *target);
/* False when the file cannot be written. */
bool replay_layout_write(const replay_layout *layout, const char *path);

#endif
