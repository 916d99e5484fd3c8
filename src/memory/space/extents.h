/* Extents: a region is a reserved range of addresses, cut without gaps into extents.
 *
 *   hole   addresses without memory        free   mapped memory that no block has
 *   used   a block, live or pending        busy   being mapped or unmapped by one thread, outside the lock
 *
 * Invariants:
 *   extents cover the region in address order
 *   no two neighbours are both holes, or both free in the order of the same stream list
 *   holes begin and end on granules
 *   size indexes hold exactly the free extents; the list of holes holds exactly the holes
 *   slots[offset / unit] names a used extent if and only if one begins there
 *   starts[granule] counts the used extents that begin in it, none of them behind its last unit; its bit in `started` is
 *   set if the count is not 0
 *
 * Bookkeeping alone: no locks, no driver. The caller holds the lock of the resource. */
#ifndef WI_EXTENTS_H
#define WI_EXTENTS_H

#include "memory/space/chunks.h"
#include "memory/space/block.h"

typedef enum wi_extent_kind { WI_HOLE = 0, WI_FREE = 1, WI_USED = 2, WI_BUSY = 3 } wi_extent_kind;

typedef struct wi_region wi_region;
typedef struct wi_stream_list wi_stream_list;

typedef struct wi_extent {
    _Alignas(WI_LINE) wi_block block; /* while used */
    uint64_t offset, bytes;
    wi_extent_kind kind;
    uint32_t index; /* its position in the pool */
    /* owner (block.h) of the bytes of a free or busy extent, or of the bytes behind the charge of a used extent */
    uint64_t last;
    uint64_t freed_on; /* the stream of the last free (wi_stream_list_number), or mixed, as owners are */
    wi_stream_list
        *stream_list; /* while free or busy: only this stream may use it yet; NULL: all may; stream_lists.h */
    uint64_t epoch;   /* in that list */
    wi_region *region;
    struct wi_extent *stream_previous, *stream_next; /* while free: neighbours in that list */
    struct wi_extent *previous, *next;               /* by address */
    struct wi_extent *list_previous, *list_next;     /* in a bin, in the list of holes, or in a list of the resource */
} wi_extent;

typedef struct wi_extent_list {
    wi_extent *first, *last;
} wi_extent_list;

enum { WI_BIN_ROWS = 48, WI_BIN_COLUMNS = 64 };

/* A size index (TLSF): free extents by size; a row for each power of two, 64 bins in each. */
typedef struct wi_size_index {
    wi_extent_list bins[WI_BIN_ROWS][WI_BIN_COLUMNS];
    uint64_t row_bits;
    uint64_t column_bits[WI_BIN_ROWS];
} wi_size_index;

enum { WI_SIZE_INDEXES = 3 }; /* of one stream list: one for each region */

enum { WI_EXTENT_SLAB = 1024 };

/* Records of extents, in slabs that never move. So an index finds a record without a lock. */
typedef struct wi_extent_pool {
    wi_extent **chunks; /* lazily backed, with room for all slabs that indices can name */
    size_t chunk_count;
    wi_extent *unused; /* linked by next */
    size_t unused_count;
} wi_extent_pool;

/* What the regions of a resource share. */
typedef struct wi_shared {
    wi_extent_pool pool;
    wi_idle idle;
    wi_size_index size_indexes[WI_SIZE_INDEXES]; /* free extents that any stream may use, by the number of the region */
    bool by_address;                             /* among free extents of one size, the lowest address serves */
    unsigned stream_lists;                       /* lists that have a stream; stream_lists.h */
    size_t in_order;                             /* free extents in those lists */
    uint64_t in_use, peak_in_use;                /* bytes of used extents */
} wi_shared;

/* Used extents that begin in a granule. */
typedef struct wi_starts {
    uint32_t count;
    uint32_t last; /* the unit of the granule behind which none begins; 0 without any */
} wi_starts;

struct wi_region {
    char *base;
    uint64_t bytes, granule;
    wi_shared *shared;
    wi_extent *first;
    unsigned number;     /* which size indexes its free extents are in; several regions may share one */
    uint64_t most_slack; /* slack: so many bytes behind a block's charge are not worth an extent; 0 unless set */
    wi_extent_list holes;
    uint32_t *slots; /* per unit: index + 1 of the used extent that begins there; with WI_SLOT_FREED, of a former one */
    wi_starts *starts; /* per granule */
    uint64_t *started; /* a bit per granule: whether any does */
    wi_chunk **chunks; /* per granule */
    uint64_t free_bytes;
    uint64_t emptied; /* bytes that became holes since the slots of holes were given back */
    uint64_t changes; /* for the invariant checker */
};

#define WI_SLOT_FREED UINT32_C(0x80000000)

/* When so many bytes have become holes, the pages of `slots` that tell of holes alone go back to the system: blocks
 * wander through the addresses, and their table, 1/64 of what it tells of, would follow them. The starts of freed
 * blocks are forgotten with these pages. */
#define WI_EMPTIED_MOST (UINT64_C(256) << 20)

/* Tables are lazily backed. `base` is a reserved range, or a segment that begins at a granule and may end within one.
 * WEIR_ERR_SYSTEM: no memory for the tables. */
weir_status wi_region_init(wi_region *region, unsigned number, char *base, uint64_t bytes, uint64_t granule,
                           wi_shared *shared);
void wi_region_destroy(wi_region *region);
void wi_extent_pool_destroy(wi_extent_pool *pool);

static inline wi_extent *wi_record_at(const wi_extent_pool *pool, uint32_t index)
{
    return &pool->chunks[index / WI_EXTENT_SLAB][index % WI_EXTENT_SLAB];
}

/* Whether the next `count` splits have their records. */
static inline bool wi_extent_pool_has(const wi_extent_pool *pool, size_t count)
{
    return pool->unused_count >= count;
}
/* Reserves records for the next `count` splits, so that these cannot fail. */
weir_status wi_extent_pool_reserve(wi_extent_pool *pool, size_t count);

/* Best fit: the smallest free extent that holds `bytes` at `alignment` and that the stream may use; NULL: none does. */
wi_extent *wi_region_best(wi_region *region, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment);
/* The same in all regions of that number. */
wi_extent *wi_shared_best(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list, uint64_t bytes,
                          uint64_t alignment);
/* Best fit in that stream list alone; NULL: among the extents that any stream may use. */
wi_extent *wi_shared_best_of(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list,
                             uint64_t bytes, uint64_t alignment);

/* Splits the extent at `offset` of the region. Returns the second part, of the same kind. */
wi_extent *wi_region_cut(wi_region *region, wi_extent *extent, uint64_t offset);
/* Changes the kind without coalescing. */
void wi_region_set(wi_region *region, wi_extent *extent, wi_extent_kind kind);
/* Coalesces a hole or a free extent with its neighbours; returns the joined extent. */
wi_extent *wi_region_join(wi_region *region, wi_extent *extent);
/* A used extent absorbs the used extent behind it, whose block has ended. */
void wi_region_unite(wi_region *region, wi_extent *extent);
/* A busy extent absorbs the busy extent behind it, of the same thread. */
void wi_region_merge_busy(wi_region *region, wi_extent *extent);
/* A used extent gets the first `bytes` of the busy extent behind it. The rest becomes free. */
void wi_region_give(wi_region *region, wi_extent *busy, wi_extent *used, uint64_t bytes);

/* The first aligned offset in the extent, relative to the region. */
uint64_t wi_extent_start(const wi_extent *extent, uint64_t alignment);
/* [offset, offset + bytes) of a free or busy extent becomes a block, the rest free. At most `slack` bytes stay behind
 * the block, in its extent. */
wi_extent *wi_region_use(wi_region *region, wi_extent *extent, uint64_t offset, uint64_t bytes, uint64_t slack);
/* A used extent becomes free in the order of the stream list (NULL: for all streams). `last`: the owner of its bytes.
 * The slot records the start of a freed block. */
wi_extent *wi_region_unuse(wi_region *region, wi_extent *extent, uint64_t last, wi_stream_list *stream_list);
/* A used extent becomes busy: its block has ended, and parts of it may have no memory. */
void wi_region_end(wi_region *region, wi_extent *extent, uint64_t last);
/* Takes a free extent out of its stream list: any stream may use it. */
wi_extent *wi_region_neutral(wi_region *region, wi_extent *extent);

/* Counts a used extent that begins at `offset`, or no longer does. */
void wi_region_note_start(wi_region *region, uint64_t offset, bool begins);
/* The extent that covers `offset`, of whatever kind. */
wi_extent *wi_region_at(wi_region *region, uint64_t offset);
/* The used extent that covers `offset`; NULL: none. *freed: a freed block began exactly there. */
wi_extent *wi_region_find(wi_region *region, uint64_t offset, bool *freed);

/* Returns the owner of coalesced bytes. WI_CLEAN does not change the other owner. */
uint64_t wi_owners_mix(uint64_t a, uint64_t b);

uint64_t wi_region_largest_free(const wi_region *region);
/* Checks all invariants; does nothing in builds without WEIR_INVARIANTS. */
void wi_region_check(wi_region *region);

static inline bool wi_region_holds(const wi_region *region, const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)region->base < region->bytes;
}

/* Slots are written under the lock, and read by wi_region_peek without it. */
static inline void wi_region_set_slot(wi_region *region, uint64_t offset, uint32_t slot)
{
    __atomic_store_n(&region->slots[offset / WI_UNIT], slot, __ATOMIC_RELEASE);
}

void wi_list_add(wi_extent_list *list, wi_extent *extent); /* at the end */
void wi_list_remove(wi_extent_list *list, wi_extent *extent);

/* The used extent that begins at `offset`, or did a moment ago; NULL: none. Takes no lock. */
static inline wi_extent *wi_region_peek(const wi_region *region, uint64_t offset)
{
    uint32_t slot = __atomic_load_n(&region->slots[offset / WI_UNIT], __ATOMIC_ACQUIRE);
    return offset % WI_UNIT != 0 || slot == 0 || (slot & WI_SLOT_FREED) ? NULL
                                                                        : wi_record_at(&region->shared->pool, slot - 1);
}

#endif
