/* The resource "mapped", inside: regions of reserved addresses, chunks mapped into them, and spare chunks.
 *
 *   mapped.c          allocates and grows blocks, and decides in which order things are tried
 *   growth_policy.c   when to map more instead of moving chunks or waiting; every number of that
 *   map_plan.c        where memory is mapped so that a block can stand, and from where it comes
 *   compaction.c      places over several holes, and the last search before a refusal
 *   chunks_driver.c   the driver's work: creates, maps, moves, splits and destroys chunks
 *   away.c            a client's chunks leave from under its blocks
 *   away_back.c       and memory comes back there
 *   away_begin.c      blocks that the device has no room for */
#ifndef WI_MAPPED_H
#define WI_MAPPED_H

#include "memory/mapped/growth_policy.h"
#include "memory/space/stream_order.h"

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_resource **out);

typedef struct wi_mapped {
    wi_base base;
    /* under the resource's lock: */
    pthread_cond_t returned;
    size_t working; /* threads in a driver call; what they work on is busy or in no list */
    wi_shared shared;
    wi_region regions[WI_REGIONS];
    wi_stream_lists stream_lists;
    wi_chunk *spare;   /* chunks that are mapped nowhere, linked by next */
    wi_chunk *entered; /* all mapped chunks, linked by behind, for leak checkers to find */
    uint64_t spare_granules;
    uint64_t granule, range_bytes;
    uint64_t device_has; /* granules that the device can give, once it has refused a request; UINT64_MAX: enough */
    uint64_t spare_last; /* owner of the bytes in spare chunks; block.h */
    uint64_t fresh_last; /* owner of the bytes in new chunks: the driver may return memory that weir gave back */
    uint64_t plans;      /* map plans so far */
    uint64_t looks;      /* searches so far; one search may make many plans */
    wi_growth_policy policy;
    struct wi_away *aways; /* of suspended clients, and of those that are being suspended or resumed; away.h */
    uint64_t away_bytes;   /* of used extents that have no memory */
    bool device_oom_seen;  /* the device was out of memory although the budget had room */
} wi_mapped;

/* A map plan: a block at [start, start + bytes). The range [low, high), which begins in `first`, becomes busy; in it
 * the granules from `hole` on, `missing` of them, have no memory. */
typedef struct wi_map_plan {
    wi_region *region;
    wi_extent *first;
    uint64_t start, low, high;
    uint64_t hole, missing;
    uint64_t room;              /* granules that may get memory, from the hole's start; if `leftward`, from its end */
    bool leftward, exact;       /* exact: room = missing */
    uint64_t run_low, run_high; /* the free memory around the hole, whose chunks stay */
    /* Supply: where the memory comes from. */
    size_t spare;         /* the first so many spare chunks */
    uint64_t fresh;       /* granules to be created, */
    bool one;             /* as one chunk */
    bool over_soft_limit; /* the growth policy would not allow it */
    wi_chunk *taken;      /* chunks to be moved here, linked by chosen */
    size_t taken_count;
    /* An idle chunk that has to be split first, and the length of its first part; then another plan is made. */
    wi_chunk *cut;
    uint64_t cut_at;
} wi_map_plan;

typedef struct wi_fit_request {
    uint64_t bytes, alignment;
    const wi_stream_list *stream_list; /* whose memory the request may use as well; NULL: none */
    bool guard_page;
    bool soft_limit; /* do not carry out a plan over the soft limit */
} wi_fit_request;

#define WI_ANY_STREAM_LIST ((const wi_stream_list *)1) /* moves memory of all streams, passed or not */

/* Whether the extent is a hole, or free for a request with that stream list. */
static inline bool wi_vacant(const wi_extent *extent, const wi_stream_list *stream_list)
{
    return extent->kind == WI_HOLE ||
           (extent->kind == WI_FREE &&
            (!extent->stream_list || extent->stream_list == stream_list || stream_list == WI_ANY_STREAM_LIST));
}

/* Makes a plan: the place, and where its memory comes from. WEIR_ERR_NO_ROOM: there is none. In map_plan.c. */
weir_status wi_map_plan_make(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *out);
/* The same behind a used extent. WEIR_ERR_NO_ROOM: something stands there; WEIR_ERR_OUT_OF_MEMORY: no memory for it. */
weir_status wi_map_plan_behind(wi_mapped *mapped, wi_extent *used, uint64_t more, wi_map_plan *out);

/* A plan for [first, first + count) granules of the region, which blocks lie over and which have no memory. False:
 * there is not enough. */
bool wi_map_plan_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, wi_map_plan *out);
/* The same with one chunk: the first spare one, or else a new one. */
bool wi_map_plan_one(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, bool spare,
                     wi_map_plan *out);

/* The usual length of new chunks in a region when so many granules are created at once, in granules. */
uint64_t wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh);

/* Finds supply for a plan: spare chunks, `freely` new granules, idle chunks, and more new granules, up to `most` in
 * all. False: there is not enough. */
bool wi_map_plan_supply(wi_mapped *mapped, wi_map_plan *plan, uint64_t freely, uint64_t most, bool may_cut);

/* The last search before a refusal, at any cost. *busy is a mapped extent with room for want->bytes at *start.
 * WEIR_ERR_NO_ROOM: there is no place; WEIR_ERR_BUSY: try again. In compaction.c. */
weir_status wi_compact(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, uint64_t *start,
                       wi_extent **busy);
/* The same behind a used extent. */
weir_status wi_compact_behind(wi_mapped *mapped, const wi_extent *used, uint64_t more, wi_extent **busy);

/* Fills several holes in place of a plan that moves chunks into one, if that takes little more. WEIR_OK: done, and
 * *plan says how; WEIR_ERR_NO_ROOM: carry out the plan. */
weir_status wi_compact_fill(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *plan,
                            wi_extent **busy);

/* Fit; compaction.c. */

/* A place for a block over free extents and holes, and the granules that it touches. The cost counts the granules
 * without memory, and the granules of chunks that could serve elsewhere. */
typedef struct wi_place {
    uint64_t start, end; /* bytes */
    uint64_t low, high;  /* granules */
    uint64_t cost, missing;
    wi_extent *first; /* of the run that the place is in */
} wi_place;

/* The cheapest place; false: none costs at most so many granules. */
bool wi_place_find(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out);
/* Computes the cost of [start, end) of *place for a request with that stream list. False: it is more than `most`. */
bool wi_place_reckon(const wi_region *region, const wi_stream_list *stream_list, uint64_t most, wi_place *place);
/* The place with the fewest holes, `most` granules or fewer, and its cost. */
bool wi_place_fill(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out);
/* Whether the chunk is idle, and the device is past it. With WI_ANY_STREAM_LIST, idle is enough. */
bool wi_place_can_move(const wi_chunk *chunk, const wi_stream_list *stream_list);
/* Finds the blocks that could be placed for a request with that stream list: fills in *shortage except its cause. */
void wi_place_look(wi_mapped *mapped, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment,
                   wi_shortage *shortage);

/* Writes every chunk and what lies in it; mapped.c. */
void wi_mapped_walk(wi_base *base, struct wi_layout *layout);

/* Chunks; chunks_driver.c. With the lock held, which is released while the driver works. */

/* Carries out a plan. *busy is a mapped extent from plan->low on, and records for one more change are reserved. On
 * failure nothing is busy and *busy is NULL. WEIR_ERR_BUSY: another thread took the memory, or the device has less
 * than was known. */
weir_status wi_chunks_grow(wi_mapped *mapped, const wi_map_plan *plan, wi_extent **busy);
/* Makes [low, high) of a plan one busy extent. */
wi_extent *wi_chunks_make_busy(const wi_map_plan *plan);
/* Turns a busy extent back into free extents and holes. */
void wi_chunks_dissolve(wi_mapped *mapped, wi_extent *busy);
/* Around calls of the driver: the lock is released in between. */
void wi_chunks_go_to_driver(wi_mapped *mapped);
void wi_chunks_come_back(wi_mapped *mapped);
/* Unmaps a chunk that acquired blocks lie on. It is in no list then, and the caller's. */
weir_status wi_chunks_take_away(wi_mapped *mapped, wi_chunk *chunk);
/* Maps a taken chunk again at its old place. */
weir_status wi_chunks_put_back(wi_mapped *mapped, wi_chunk *chunk);
/* Makes a taken chunk spare, for any client. `last`: owner of its bytes. */
void wi_chunks_give_away(wi_mapped *mapped, wi_chunk *chunk, uint64_t last);
/* Maps memory at granules that have none and lie under blocks. *last: owner of the bytes. WEIR_ERR_NO_ROOM: memory is
 * short; WEIR_ERR_BUSY: try again. On failure, some granules may be mapped. */
weir_status wi_chunks_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, uint64_t *last);
/* Splits an idle chunk; the first part gets so many granules. Costs two creations, a move and a destruction. */
weir_status wi_chunks_cut(wi_mapped *mapped, wi_chunk *chunk, uint64_t first);
/* Gives free and spare memory back until at most `keep` bytes of it are left; returns the bytes. */
uint64_t wi_chunks_trim(wi_mapped *mapped, uint64_t keep);
/* Gives idle and spare memory back until at most `keep` bytes of it are left; returns the bytes. */
uint64_t wi_chunks_trim_idle(wi_mapped *mapped, uint64_t keep);
/* Destroys one spare chunk. */
void wi_chunks_drop_spare(wi_mapped *mapped);
/* Granules that the budget, and the device as far as is known, allow to create. *held (may be NULL): the bytes
 * held. */
uint64_t wi_chunks_creatable(wi_mapped *mapped, uint64_t *held);
/* Granules of spare chunks and of idle ones that the device is past; `later`: of all idle ones. */
uint64_t wi_chunks_obtainable(wi_mapped *mapped, bool later);
/* Whether an idle chunk can be moved: the device is past all frees on the chunk. */
bool wi_chunks_movable(const wi_chunk *chunk);
/* Whether to try again: memory was `lost` to another thread, or threads in driver calls were waited for. *waits starts
 * at 0 and bounds the number of tries. */
bool wi_chunks_synchronize(wi_mapped *mapped, bool lost, unsigned *waits);

#endif
