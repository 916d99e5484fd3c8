/* The resource "mapped", inside: its spaces, the handles under them and the spare ones. mapped.c makes and frees blocks;
 * growth.c finds where memory should be put so that a block can stand; handles.c puts it there; places.c tells what could
 * be had. */
#ifndef WI_MAPPED_H
#define WI_MAPPED_H

#include "memory/space/stream_order.h"

/* What lives long is kept apart from what comes and goes, so that the latter leaves whole handles behind; and what is small
 * lies in handles of its own, so that it does not hold larger ones down. */
enum { WI_LONG_LIVED = 0, WI_SHORT_LIVED = 1, WI_SMALL = 2, WI_REGIONS = WI_SIZE_INDEXES };

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_resource **out);

/* Time that may be spent on waiting for others rather than to hold more: nanoseconds, and when that was so. */
typedef struct wi_reuse_wait {
    unsigned percent; /* of the time */
    uint64_t left, at;
} wi_reuse_wait;

typedef struct wi_mapped {
    wi_resource resource;
    /* everything below is under the resource's lock */
    pthread_cond_t settled;
    size_t working; /* threads in the driver: what they have in hand is neither free nor a block's */
    wi_shared shared;
    wi_region regions[WI_REGIONS];
    wi_stream_lists stream_lists;
    wi_chunk *spare;   /* handles that are mapped nowhere, linked by next */
    wi_chunk *entered; /* handles that are mapped, linked by behind: leak checkers do not look into the tables */
    uint64_t spare_granules;
    uint64_t granule, range_bytes;
    uint64_t device_has;            /* granules, as far as a request has learnt that they are few; UINT64_MAX: enough */
    uint64_t spare_last;            /* whose bytes the spare handles hold; extents.h */
    uint64_t fresh_last;            /* ... and those that the driver gives: it may give back what it got */
    uint64_t move_tokens, credited; /* for moves, and the allocations that it was earned by: growth.c */
    uint64_t excess_moves;          /* how much more was moved lately than is worth it */
    uint64_t plans;                 /* made so far */
    uint64_t looks;                 /* for a place, each of which may make many plans */
    wi_reuse_wait reuse_wait;
    bool device_oom_seen; /* the device had no more, although the budget left room */
} wi_mapped;

/* Where memory is put so that a block can stand. The block's range is [start, start + bytes); [low, high) becomes busy, which
 * begins in `first`; [hole, hole + missing granules) in it is without memory. */
typedef struct wi_map_plan {
    wi_region *region;
    wi_extent *first;
    uint64_t start, low, high;
    uint64_t hole, missing;
    uint64_t room;        /* granules that may get memory; the hole's end, if `leftward`, else its start, is fixed */
    bool leftward, exact; /* exact: room = missing */
    uint64_t run_low, run_high; /* the free memory beside it, whose own handles are not moved */
    /* The means, once found: */
    size_t spare;         /* of the spare handles, the first so many */
    uint64_t fresh;       /* granules to be created */
    bool over_soft_limit; /* more than is liked to be held */
    wi_chunk *taken;      /* handles to be moved here, linked by chosen */
    size_t taken_count;
    /* Or, instead of them: an idle handle that has to be cut behind so many granules before another plan is made. */
    wi_chunk *cut;
    uint64_t cut_at;
} wi_map_plan;

typedef struct wi_fit_request {
    uint64_t bytes, alignment;
    const wi_stream_list *stream_list; /* in whose order the request may take what is not anyone's yet */
    bool apart;
    bool soft_limit; /* a plan that is beyond what is liked to be held is not carried out */
} wi_fit_request;

#define WI_ANY_STREAM_LIST ((const wi_stream_list *)1) /* whatever stands before its use */

/* Free for who allocates in that stream list. */
static inline bool wi_vacant(const wi_extent *extent, const wi_stream_list *stream_list)
{
    return extent->kind == WI_HOLE ||
           (extent->kind == WI_FREE &&
            (!extent->stream_list || extent->stream_list == stream_list || stream_list == WI_ANY_STREAM_LIST));
}

/* Growth; growth.c. WEIR_ERR_NO_ROOM: there is no place and means for it; else *out has both. */
weir_status wi_map_plan_make(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *out);
/* The same directly behind a used extent; WEIR_ERR_NO_ROOM: something stands there; WEIR_ERR_OUT_OF_MEMORY: no means. */
weir_status wi_map_plan_behind(wi_mapped *mapped, wi_extent *used, uint64_t more, wi_map_plan *out);
void wi_map_plan_begin(wi_mapped *mapped);

/* Patience; reuse wait.c. Whether the request may wait for what others have freed. */
bool wi_reuse_wait_has(const wi_mapped *mapped, const wi_placement *placement);
/* Waits for some of that, if there is any and until *deadline, which begins at 0; true: something has become anyone's. The
 * lock is released meanwhile. */
bool wi_reuse_wait_wait(wi_mapped *mapped, const wi_placement *placement, uint64_t *deadline);
void wi_reuse_wait_begin(wi_reuse_wait *reuse_wait);

/* How long new handles are where so many granules are created at once, in granules. */
uint64_t wi_map_plan_chunk(const wi_mapped *mapped, uint64_t fresh);

/* Means for a growth that has a place: spare handles, `freely` new granules, idle handles, and as many more new granules as
 * have to be, `most` in all. False when that is not enough. */
bool wi_map_plan_supply(wi_mapped *mapped, wi_map_plan *plan, uint64_t freely, uint64_t most, bool may_cut);

/* The last look before a refusal, whatever it costs; compaction.c. *busy is a busy extent with room for wish->bytes at *start, all
 * of it mapped. WEIR_ERR_NO_ROOM: brute force would find nothing either; WEIR_ERR_BUSY: one more try. */
weir_status wi_compact(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, uint64_t *start,
                       wi_extent **busy);
/* The same at a place that is given: behind a used extent. */
weir_status wi_compact_behind(wi_mapped *mapped, const wi_extent *used, uint64_t more, wi_extent **busy);

/* Instead of a plan that moves handles, as the budget leaves none to be made: where several holes are filled and little more is
 * missing. WEIR_ERR_NO_ROOM: the plan it is; WEIR_OK: *plan tells what was done. */
weir_status wi_compact_fill(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *plan,
                            wi_extent **busy);

/* Looking; places.c. */

/* A place for a block among what is free and holes, and the granules that it touches. What lies under it stays, so that it
 * costs one granule for each that is a hole or of a handle that could be moved. */
typedef struct wi_place {
    uint64_t start, end; /* bytes */
    uint64_t low, high;  /* granules */
    uint64_t cost, missing;
    wi_extent *first; /* of the run of extents that it is in */
} wi_place;

/* The cheapest place; false when there is none that costs at most so many. */
bool wi_place_find(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out);
/* The same for [start, end) of *place, in whose order the stream list says. */
bool wi_place_reckon(const wi_region *region, const wi_stream_list *stream_list, uint64_t most, wi_place *place);
/* The place where the least is missing, at most so many granules; its cost is told as well. */
bool wi_place_fill(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out);
/* Whether the handle could be put elsewhere: idle, and past its use unless stream list is WI_ANY_STREAM_LIST. */
bool wi_place_can_move(const wi_chunk *chunk, const wi_stream_list *stream_list);
/* Writes all of *shortage but its cause: what could be had by who allocates in the stream list. */
void wi_place_look(wi_mapped *mapped, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment,
                   wi_shortage *shortage);

/* Tells of every handle, and of what lies in it; mapped_layout.c. */
void wi_mapped_walk(wi_resource *resource, struct wi_layout *layout);

/* Handles; handles.c. With the lock held, which is released while the driver works. */

/* Carries a plan out: *busy is a busy extent from growth->low on, all of it mapped, and records for one more change are
 * reserved. What is busy there already stays so. On failure it has been dissolved into what it was made of, and *busy is
 * NULL, once it was begun. WEIR_ERR_BUSY: others took the means meanwhile, or the device has fewer than was thought. */
weir_status wi_chunks_grow(wi_mapped *mapped, const wi_map_plan *plan, wi_extent **busy);
/* Makes [low, high) of a growth, which consists of free memory and holes and begins in `first`, one busy extent. */
wi_extent *wi_chunks_make_busy(const wi_map_plan *plan);
/* Turns a busy extent back into free extents and holes. */
void wi_chunks_dissolve(wi_mapped *mapped, wi_extent *busy);
/* Cuts an idle handle in two where it lies, the first of so many granules. Costs what creating, moving and destroying cost. */
weir_status wi_chunks_cut(wi_mapped *mapped, wi_chunk *chunk, uint64_t first);
/* Gives idle and spare handles back to the driver until at most `keep` bytes are free and spare; answers the bytes. The last
 * three here are in trimming.c. */
uint64_t wi_chunks_trim(wi_mapped *mapped, uint64_t keep);
/* The same, until at most `keep` bytes are idle and spare. */
uint64_t wi_chunks_trim_idle(wi_mapped *mapped, uint64_t keep);
/* Gives one spare handle back. */
void wi_chunks_drop_spare(wi_mapped *mapped);
/* Granules that the budget leaves to be created, and the device as far as that is known. *held (may be NULL): the bytes held now. */
uint64_t wi_chunks_creatable(wi_mapped *mapped, uint64_t *held);
/* Granules that can be had without the driver making any: spare and idle; `later`: also what has not passed. */
uint64_t wi_chunks_obtainable(wi_mapped *mapped, bool later);
/* Whether the device is past all that was freed on an idle handle, so that it can be moved. */
bool wi_chunks_movable(const wi_chunk *chunk);
/* Whether another try is worth it: memory that was there was lost to another thread, or some was in the driver, which is
 * waited for. False at last, by *waits, which begins at 0. */
bool wi_chunks_synchronize(wi_mapped *mapped, bool lost, unsigned *waits);

#endif
