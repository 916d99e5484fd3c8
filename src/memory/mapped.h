/* The resource "mapped", inside: its two spaces and its spare handles. mapped.c makes and frees blocks; places.c finds
 * where they can stand; handles.c gets physical memory under them. */
#ifndef WI_MAPPED_H
#define WI_MAPPED_H

#include "memory/lanes.h"
#include "memory/resource.h"

/* Weights live as long as their model, and are kept apart from what comes and goes, so that the latter leaves whole
 * handles behind. */
enum { WI_RECORDS_PER_CHANGE = 8 }; /* more than any one change of the extents cuts */

enum { WI_LONG_LIVED = 0, WI_SHORT_LIVED = 1, WI_SIDES = 2 };

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_resource **out);

typedef struct wi_mapped {
    wi_resource resource;
    /* everything below is under the resource's lock */
    pthread_cond_t settled;
    size_t working; /* threads in the driver: what they have in hand is neither free nor a block's */
    wi_extent_pool pool;
    wi_space sides[WI_SIDES];
    wi_lanes lanes;
    wi_handle *spare;
    size_t spare_count, spare_capacity;
    uint64_t granule, range_bytes;
    uint64_t spare_last; /* whose bytes the spare handles hold; extents.h */
    uint64_t fresh_last; /* ... and those that the driver gives: it may give back what it got */
} wi_mapped;

/* A place for a block: `whole` counts the granules in it that are no other block's, each of which needs a handle. */
typedef struct wi_place {
    wi_extent *extent;         /* `low` lies in it */
    uint64_t start, low, high; /* the block's start; what becomes busy and is backed, low <= start */
    uint64_t whole;
} wi_place;

#define WI_ANY_LANE ((const wi_lane *)1) /* whatever stands before its use */

/* A place in what is the lane's or anyone's, that no more than `handles` whole granules belong to: the one that needs the fewest new ones if that fits,
 * else the tightest. False: there is none. */
bool wi_place_find(const wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment, uint64_t handles,
                   wi_place *out);
/* A place in a hole that ends where memory ends, with a granule before it, unless it is the first, and one behind that stay
 * unmapped as long as all blocks are placed so. */
bool wi_place_apart(const wi_space *space, uint64_t bytes, uint64_t alignment, uint64_t handles, wi_place *out);
/* The place for `more` bytes directly behind a used extent; false when something stands there. */
bool wi_place_behind(const wi_space *space, const wi_lane *lane, wi_extent *used, uint64_t more, wi_place *out);
/* The largest block that `handles` handles could be put under, those under free memory included, once everything freed has
 * passed. */
uint64_t wi_place_largest(const wi_space *space, uint64_t handles);
/* The fewest handles with which `bytes` could stand somewhere then; UINT64_MAX: nowhere. */
uint64_t wi_place_handles(const wi_space *space, uint64_t bytes, uint64_t alignment);

/* With the lock held; it is released while the driver works. `busy` is a busy extent: afterwards every granule under it
 * is mapped, it is still busy and records for one more change are reserved; or, when that cannot be, it has been dissolved
 * into what it was made of. WEIR_BUSY: others took the handles meanwhile; WEIR_OUT_OF_MEMORY: the device has no more. */
weir_status wi_mapped_back(wi_mapped *mapped, wi_extent *busy);
/* The same lock rules. Turns a busy extent back into free extents and holes. */
void wi_mapped_dissolve(wi_mapped *mapped, wi_extent *busy);
/* Handles that can be had without moving any: spare and within the budget. *held (may be NULL): what is held now. */
uint64_t wi_mapped_at_hand(wi_mapped *mapped, uint64_t *held);
/* Handles that can be had: spare, within the budget, and under wholly free granules; `later`: also under those that have not
 * passed. */
uint64_t wi_mapped_obtainable(wi_mapped *mapped, bool later);
/* Bytes that would have to be held for `count` handles to be had. */
uint64_t wi_mapped_held_for(wi_mapped *mapped, uint64_t count);
/* Whether another try is worth it: handles that were there were lost to another thread, or one was in the driver, which is
 * waited for. False at last, by *waits, which begins at 0. */
bool wi_mapped_settle(wi_mapped *mapped, bool lost, unsigned *waits);
/* Takes wholly free granules, at most `most` of them, off their addresses; their handles become spare. The lock is
 * released while the driver works. *done tells how many, also when the driver fails. */
weir_status wi_mapped_unmap_free(wi_mapped *mapped, size_t most, size_t *done);
/* Destroys spare handles until at most `keep` bytes of them are left; the same lock rules. */
uint64_t wi_mapped_destroy_spare(wi_mapped *mapped, uint64_t keep);

#endif
