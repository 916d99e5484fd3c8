/* Stream uses: the uses of a block on streams. The block's free and its next uses wait for them.
 *
 * Invariants: a stream has at most one read; reads are later than the last write; a writer excludes readers and other
 * writers. Moves are beside that order: a launch may have begun before a move, and end behind it. NULL stands for a
 * block without uses.
 *
 * Everything is under the resource's lock. Only `passed` calls the driver, which does not block. */
#ifndef WI_STREAM_USES_H
#define WI_STREAM_USES_H

#include "driver/driver.h"

#include <weir/uses.h>

typedef struct wi_stream_uses {
    wi_event write; /* the last write; no stream: none, or it has passed */
    wi_event moved; /* behind what weir itself last did with the contents, for the block's client; no stream: nothing */
    wi_event *reads;
    uint32_t read_count, read_capacity;
    uint32_t readers; /* open read tickets: launches between begin and end */
    bool writer;
    bool adrift; /* weir moves the contents, and has no point behind that */
} wi_stream_uses;

/* Opens a ticket. *opened false: another ticket conflicts. The use then has to wait for all points of
 * wi_stream_uses_point. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_stream_uses_open(wi_stream_uses **stream_uses, weir_access access, bool *opened);
/* Closes a ticket. *event, unless NULL, is the point behind that use. */
void wi_stream_uses_close(wi_stream_uses *stream_uses, weir_access access, const wi_event *event);
/* Notes that weir moves the contents, out or in, and that *event is behind it; NULL: there is no such point, and the
 * block is held until wi_stream_uses_rest. Moves of a block are on one stream, or earlier moves are done. Declared uses
 * do not change, even open uses. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_stream_uses_moved(wi_stream_uses **stream_uses, const wi_event *event);
void wi_stream_uses_rest(wi_stream_uses *stream_uses); /* moves of the contents are done */
/* Names the reason why the block cannot be given back yet: an open ticket, or a move without a point. NULL:
 * nothing holds the block. */
const char *wi_stream_uses_holder(const wi_stream_uses *stream_uses);
static inline bool wi_stream_uses_held(const wi_stream_uses *stream_uses)
{
    return wi_stream_uses_holder(stream_uses) != NULL;
}

/* Sets the last write, unless there is a later one: `event` is behind everything that was done to the block before its first
 * declared use. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_stream_uses_first_write(wi_stream_uses **stream_uses, wi_event event);

/* Point number `index` that a use with this access waits for; false: there are no more. */
bool wi_stream_uses_point(const wi_stream_uses *stream_uses, weir_access access, uint32_t index, wi_event *out);

/* Whether the device is past all uses; if not, *waiting is the event of a use that the device is not past. */
bool wi_stream_uses_passed(const wi_stream_uses *stream_uses, const wi_driver *driver, wi_device *device,
                           wi_event *waiting);

weir_status wi_stream_uses_copy(const wi_stream_uses *stream_uses, wi_stream_uses **out);
void wi_stream_uses_free(wi_stream_uses *stream_uses);

#endif
