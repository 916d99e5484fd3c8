/* The resource "mapped", inside: its two spaces and its spare handles. mapped.c places and frees blocks; handles.c gets
 * physical memory under them. */
#ifndef WI_MAPPED_H
#define WI_MAPPED_H

#include "memory/extents.h"
#include "memory/resource.h"

/* Weights live as long as their model, and are kept apart from what comes and goes, so that the latter leaves whole
 * handles behind. */
enum { WI_RECORDS_PER_CHANGE = 8 }; /* more than any one change of the extents cuts */

enum { WI_LONG_LIVED = 0, WI_SHORT_LIVED = 1, WI_SIDES = 2 };

typedef struct wi_mapped {
    wi_resource resource;
    pthread_mutex_t lock; /* everything below; never held across a driver call that can block */
    wi_extent_pool pool;
    wi_space sides[WI_SIDES];
    wi_extent_list pending; /* oldest first; extents of both sides; wi_extent.event */
    wi_handle *spare;
    size_t spare_count, spare_capacity;
    uint64_t granule, range_bytes;
} wi_mapped;

/* With the lock held; it is released while the driver works. `busy` is a busy extent: afterwards every granule under it
 * is mapped, it is still busy and records for one more change are reserved; or, when that cannot be, it has been dissolved
 * into what it was made of. *device_full: the device had no more, though the budget would have allowed it. */
weir_status wi_mapped_back(wi_mapped *mapped, wi_extent *busy, bool *device_full);
/* The same lock rules. Turns a busy extent back into free extents and holes. */
void wi_mapped_dissolve(wi_mapped *mapped, wi_extent *busy);
/* Bytes that could be mapped into one place: spare, within the budget, and under wholly free granules. */
uint64_t wi_mapped_obtainable(wi_mapped *mapped);
/* Takes wholly free granules, at most `most` of them, off their addresses; their handles become spare. The lock is
 * released while the driver works. Answers how many. */
size_t wi_mapped_unmap_free(wi_mapped *mapped, size_t most);
/* Destroys spare handles until at most `keep` bytes of them are left; the same lock rules. */
uint64_t wi_mapped_destroy_spare(wi_mapped *mapped, uint64_t keep);

#endif
