/* Where a block was used on streams: what its free and its next uses must wait for.
 *
 * Invariants: at most one read per stream; reads are later than the last write; a writer excludes everyone: writer implies
 * readers = 0. A NULL pointer stands for a block that was never used. Pure bookkeeping under the resource's lock, but for
 * `passed`, which the driver answers without blocking. */
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

/* Opens a ticket; false when another ticket conflicts. WEIR_ERR_SYSTEM without host memory. What the use must wait for is then
 * the first wi_stream_uses_points of wi_stream_uses_point. */
weir_status wi_stream_uses_open(wi_stream_uses **stream_uses, weir_access access, bool *opened);
/* Gives a ticket back. `event`, if there is one, becomes the point of that use. */
void wi_stream_uses_close(wi_stream_uses *stream_uses, weir_access access, const wi_event *event);
bool wi_stream_uses_held(const wi_stream_uses *stream_uses); /* any ticket open */

/* `event` stands behind what was done to the block before any declared use: it is the last write, unless there is one,
 * which came later. WEIR_ERR_SYSTEM without host memory. */
weir_status wi_stream_uses_first_write(wi_stream_uses **stream_uses, wi_event event);

/* The points that a use of this kind waits for: number `index` of them; false past the last. */
bool wi_stream_uses_point(const wi_stream_uses *stream_uses, weir_access access, uint32_t index, wi_event *out);

/* Is everything passed? If not, *waiting is one point that is not. */
bool wi_stream_uses_passed(const wi_stream_uses *stream_uses, const wi_driver *driver, wi_device *device,
                           wi_event *waiting);

weir_status wi_stream_uses_copy(const wi_stream_uses *stream_uses, wi_stream_uses **out);
void wi_stream_uses_free(wi_stream_uses *stream_uses);

#endif
