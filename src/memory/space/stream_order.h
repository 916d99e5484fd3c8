/* Stream order: what the bases "mapped" and "segments" share, whose blocks are extents and whose frees follow the
 * order of streams. Before it the uses of blocks on streams, which frees wait for.
 *
 * Such a base sets base->stream_lists, and resizes through table->charge. The functions are those of
 * wi_base_table; a table takes all of them with WI_ORDERED. */
#ifndef WI_STREAM_ORDER_H
#define WI_STREAM_ORDER_H

#include <weir/uses.h>

#include "driver/driver.h"
#include "memory/space/stream_lists.h"

/* ---- stream_uses.c ----------------------------------------------------------------------------------------------- */

/* Stream uses: the uses of a block on streams. The block's free and its next uses wait for them.
 *
 * Invariants: a stream has at most one read; reads are later than the last write; a writer excludes readers and other
 * writers. Moves are beside that order: a launch may have begun before a move, and end behind it. NULL stands for a
 * block without uses.
 *
 * Everything is under the resource's lock. Only `passed` calls the driver, which does not block. */

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

/* ---- stream_order.c ---------------------------------------------------------------------------------------------- */

enum {
    WI_RECORDS_PER_CHANGE = 8, /* an upper bound for the splits of one change */
    WI_MOST_RENEWALS = 8       /* looks for one request: other threads may free and allocate for ever */
};

/* The block is the first member of its extent. */
static inline wi_extent *wi_extent_of(wi_block *block)
{
    return (wi_extent *)block;
}

void wi_ordered_discard(wi_resource *resource, wi_block *block, const wi_placement *placement);
void wi_ordered_publish(wi_resource *resource, wi_block *block);
bool wi_ordered_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past);
void wi_ordered_retire_list(wi_base *base, wi_block *list, weir_stream stream, void *native);
weir_status wi_ordered_release(wi_resource *resource, wi_block *block);
weir_status wi_ordered_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail);
bool wi_ordered_join(wi_base *base, wi_block *block, wi_block *next);
bool wi_ordered_follow(wi_base *base, weir_stream stream, void *native);
uint64_t wi_ordered_pass(wi_base *base, uint64_t *left);
uint64_t wi_ordered_released(wi_base *base);
bool wi_ordered_await(wi_base *base, uint64_t deadline);
void wi_ordered_forget(wi_base *base, weir_stream stream);
bool wi_ordered_bound(wi_base *base);
void wi_ordered_abandon(wi_base *base, weir_stream stream);

#define WI_ORDERED                                                                                                     \
    .all.discard = wi_ordered_discard, .all.publish = wi_ordered_publish, .all.retire = wi_ordered_retire,             \
    .retire_list = wi_ordered_retire_list, .all.release = wi_ordered_release, .all.shrink = wi_ordered_shrink,         \
    .follow = wi_ordered_follow, .pass = wi_ordered_pass, .released = wi_ordered_released, .await = wi_ordered_await,  \
    .forget = wi_ordered_forget, .bound = wi_ordered_bound, .abandon = wi_ordered_abandon, .join = wi_ordered_join

/* With the lock held: */

/* The stream list whose memory the request may use; NULL: none. */
const wi_stream_list *wi_ordered_list(const wi_base *base, const wi_placement *placement);
/* Places the measured request in a free or busy extent. At most `slack` bytes, where the region allows it, stay behind
 * the block. */
wi_block *wi_ordered_use(wi_extent *extent, uint64_t start, wi_placement *placement, uint64_t slack);
/* The same in one step with the ledger, whose limits may forbid it: false, and nothing has changed. */
bool wi_ordered_place(wi_base *base, wi_extent *extent, wi_placement *placement, weir_block *out);
/* Places it in memory of other streams, in the regions of that number; its stream is made to wait for them. NULL:
 * there is none. The lock is released while the driver works. */
wi_block *wi_ordered_use_behind(wi_base *base, wi_shared *shared, unsigned number, wi_placement *placement,
                                uint64_t slack);
/* Makes `more` bytes of free memory behind a used extent busy. NULL: fewer bytes are free, or a stream list holds
 * them. */
wi_extent *wi_ordered_take_behind(wi_extent *extent, uint64_t more);
/* WEIR_ERR_NO_ROOM, and why the extent cannot grow in place. */
weir_status wi_ordered_no_room(const wi_extent *extent);
/* Writes the growth of a block into it and the ledger. */
void wi_ordered_grown(wi_base *base, wi_block *block, uint64_t bytes, uint64_t charged);

#endif
