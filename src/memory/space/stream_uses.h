/* Stream uses: where a block was used on streams, for which its free and its next uses must wait.
 *
 * Invariants: at most one read per stream; reads are later than the last write; a writer excludes readers and other
 * writers. NULL stands for a block without uses. Bookkeeping alone, under the resource's lock, except that `passed`
 * asks the driver, which does not block. */
#ifndef WI_STREAM_USES_H
#define WI_STREAM_USES_H

#include "driver/driver.h"

#include <weir/uses.h>

typedef struct wi_stream_uses {
    wi_event write; /* the last one; no stream: none, or passed */
    wi_event *reads;
    uint32_t read_count, read_capacity;
    uint32_t readers; /* launches between begin and end */
    bool writer;
} wi_stream_uses;

/* Opens a ticket; *opened false: another ticket conflicts. WEIR_ERR_SYSTEM: no host memory. The use must wait for
 * all points of wi_stream_uses_point. */
weir_status wi_stream_uses_open(wi_stream_uses **stream_uses, weir_access access, bool *opened);
/* Closes a ticket. *event, unless NULL, becomes the point of that use. */
void wi_stream_uses_close(wi_stream_uses *stream_uses, weir_access access, const wi_event *event);
bool wi_stream_uses_held(const wi_stream_uses *stream_uses); /* whether a ticket is open */

/* `event` is behind everything done to the block before its first declared use: it becomes the last write, unless
 * there is a later one. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_stream_uses_first_write(wi_stream_uses **stream_uses, wi_event event);

/* Point number `index` that a use of this kind waits for; false: there are no more. */
bool wi_stream_uses_point(const wi_stream_uses *stream_uses, weir_access access, uint32_t index, wi_event *out);

/* Whether the device is past all uses; else *waiting is one that it is not past. */
bool wi_stream_uses_passed(const wi_stream_uses *stream_uses, const wi_driver *driver, wi_device *device,
                           wi_event *waiting);

weir_status wi_stream_uses_copy(const wi_stream_uses *stream_uses, wi_stream_uses **out);
void wi_stream_uses_free(wi_stream_uses *stream_uses);

#endif
