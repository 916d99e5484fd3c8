/* Where a block was used on streams: what its free and its next uses must wait for.
 *
 * Laws: at most one read per stream; reads are later than the last write; a writer excludes everyone: writer implies
 * readers = 0. A NULL pointer stands for a block that was never used. Pure bookkeeping under the resource's lock, but for
 * `passed`, which the driver answers without blocking. */
#ifndef WI_MARKS_H
#define WI_MARKS_H

#include "driver/driver.h"

#include <weir/uses.h>

typedef struct wi_marks {
    wi_event write; /* the last one; no stream: none, or passed */
    wi_event *reads;
    uint32_t read_count, read_capacity;
    uint32_t readers; /* launches between begin and end */
    bool writer;
} wi_marks;

/* Opens a ticket; false when another ticket conflicts. WEIR_ERR_SYSTEM without host memory. What the use must wait for is then
 * the first wi_marks_points of wi_marks_point. */
weir_status wi_marks_open(wi_marks **marks, weir_access access, bool *opened);
/* Gives a ticket back. `event`, if there is one, becomes the point of that use. */
void wi_marks_close(wi_marks *marks, weir_access access, const wi_event *event);
bool wi_marks_held(const wi_marks *marks); /* any ticket open */

/* `event` stands behind what was done to the block before any declared use: it is the last write, unless there is one,
 * which came later. WEIR_ERR_SYSTEM without host memory. */
weir_status wi_marks_first_write(wi_marks **marks, wi_event event);

/* The points that a use of this kind waits for: number `index` of them; false past the last. */
bool wi_marks_point(const wi_marks *marks, weir_access access, uint32_t index, wi_event *out);

/* Is everything passed? If not, *waiting is one point that is not. */
bool wi_marks_passed(const wi_marks *marks, const wi_driver *driver, wi_device *device, wi_event *waiting);

weir_status wi_marks_copy(const wi_marks *marks, wi_marks **out);
void wi_marks_free(wi_marks *marks);

#endif
