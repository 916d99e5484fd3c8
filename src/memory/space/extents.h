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
 *   starts[granule] counts those that begin in it; its bit in `started` says that there are any
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
    _Alignas(WI_LINE) wi_block block; /* when used */
    uint64_t offset, bytes;
    wi_extent_kind kind;
    uint32_t index; /* of this record in the pool */
    /* owner of the bytes before: of a free or busy extent; of a used one, behind its charge; block.h */
    uint64_t last;
    uint64_t freed_on;           /* the stream of the last free: wi_stream_list_number; mixed as owners are */
    wi_stream_list *stream_list; /* when free or busy: only this stream may use it yet; NULL: any may; stream_lists.h */
    uint64_t epoch;              /* of that stream list */
    wi_region *region;
    struct wi_extent *stream_previous, *stream_next; /* when free: in the stream list's list */
    struct wi_extent *previous, *next;               /* by address */
    struct wi_extent *list_previous, *list_next;     /* in a bin, the holes, or a list of the resource's */
} wi_extent;

typedef struct wi_extent_list {
    wi_extent *first, *last;
} wi_extent_list;

enum { WI_BIN_ROWS = 48, WI_BIN_COLUMNS = 64 };

/* Free extents by size: rows by the power of two, columns by the bits below it. */
typedef struct wi_size_index {
    wi_extent_list bins[WI_BIN_ROWS][WI_BIN_COLUMNS];
    uint64_t row_bits;
    uint64_t column_bits[WI_BIN_ROWS];
} wi_size_index;

enum { WI_SIZE_INDEXES = 3 }; /* of a stream list: one for each region of a resource */

enum { WI_EXTENT_SLAB = 1024 };

/* Records of extents in slabs. Neither slabs nor their list ever move, so that an index finds a record without a
 * lock. */
typedef struct wi_extent_pool {
    wi_extent **chunks; /* lazily backed: as many as indices can name */
    size_t chunk_count;
    wi_extent *unused; /* linked by next */
    size_t unused_count;
} wi_extent_pool;

/* What the regions of a resource share. */
typedef struct wi_shared {
    wi_extent_pool pool;
    wi_idle idle;
    wi_size_index size_indexes[WI_SIZE_INDEXES]; /* what is free and in no stream list, by the number of its region */
    bool by_address;                             /* of free extents of one size the lowest serves */
    unsigned stream_lists;                       /* that have a stream; stream_lists.h */
    size_t in_order;                             /* free extents that are in one of them */
    uint64_t in_use, peak_in_use;                /* bytes of used extents */
} wi_shared;

struct wi_region {
    char *base;
    uint64_t bytes, granule;
    wi_shared *shared;
    wi_extent *first;
    unsigned number;     /* which size indexes its free extents are on; several regions may have one */
    uint64_t most_slack; /* bytes behind a block's charge that are not worth an extent: 0, unless set */
    wi_extent_list holes;
    uint32_t *slots; /* per unit: index + 1 of the used extent that begins there; with WI_SLOT_FREED, of a former one */
    uint32_t *starts;  /* per granule: used extents that begin in it */
    uint64_t *started; /* a bit per granule */
    wi_chunk **chunks; /* per granule */
    uint64_t free_bytes;
    uint64_t changes; /* for the invariant checker */
};

#define WI_SLOT_FREED UINT32_C(0x80000000)

/* The tables lie in lazily backed memory; `base` is a reserved range, or a piece that begins with a granule and may
 * end in one. WEIR_ERR_SYSTEM when there is none. */
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
/* Reserves the records for the next `count` splits. */
weir_status wi_extent_pool_reserve(wi_extent_pool *pool, size_t count);

/* Best fit: the smallest free extent that holds `bytes` at `alignment` and that the stream may use; NULL: none does. */
wi_extent *wi_region_best(wi_region *region, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment);
/* The same in all regions of that number. */
wi_extent *wi_shared_best(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list, uint64_t bytes,
                          uint64_t alignment);
/* Best fit in the stream list alone; NULL: among the extents that any stream may use. */
wi_extent *wi_shared_best_of(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list,
                             uint64_t bytes, uint64_t alignment);

/* Splits the extent at `offset` of the region. Returns the rest, which is of the same kind. */
wi_extent *wi_region_cut(wi_region *region, wi_extent *extent, uint64_t offset);
/* Changes the kind without coalescing. */
void wi_region_set(wi_region *region, wi_extent *extent, wi_extent_kind kind);
/* Coalesces a hole or a free extent with its neighbours; returns the joined extent. */
wi_extent *wi_region_join(wi_region *region, wi_extent *extent);
/* A used extent absorbs the used extent behind it, whose block has ended. */
void wi_region_unite(wi_region *region, wi_extent *extent);
/* A busy extent absorbs the busy extent behind it, of the same thread. */
void wi_region_merge_busy(wi_region *region, wi_extent *extent);
/* A used extent gets `bytes` from the front of the busy extent behind it, whose rest becomes free. */
void wi_region_give(wi_region *region, wi_extent *busy, wi_extent *used, uint64_t bytes);

/* The first aligned offset in the extent, from the start of the region. */
uint64_t wi_extent_start(const wi_extent *extent, uint64_t alignment);
/* [offset, offset + bytes) of a free or busy extent is a block's, the rest becomes free; but no more than `slack`
 * bytes stay behind the block, whose extent is then longer than its charge. */
wi_extent *wi_region_use(wi_region *region, wi_extent *extent, uint64_t offset, uint64_t bytes, uint64_t slack);
/* A used extent becomes free in the order of the stream list (NULL: for anyone), and its bytes are `last`'s; its slot
 * remembers that a block was freed there. */
wi_extent *wi_region_unuse(wi_region *region, wi_extent *extent, uint64_t last, wi_stream_list *stream_list);
/* A free extent leaves its stream list: any stream may use it now. */
wi_extent *wi_region_neutral(wi_region *region, wi_extent *extent);

/* Notes that a used extent begins at `offset`, or no longer. */
void wi_region_note_start(wi_region *region, uint64_t offset, bool begins);
/* The extent that covers `offset`, of whatever kind. */
wi_extent *wi_region_at(wi_region *region, uint64_t offset);
/* The used extent that begins at `offset` or covers it; NULL if none. *freed: a block that was freed began there. */
wi_extent *wi_region_find(wi_region *region, uint64_t offset, bool *freed);

/* The owner of joined bytes; WI_CLEAN mixes with any. */
uint64_t wi_owners_mix(uint64_t a, uint64_t b);

uint64_t wi_region_largest_free(const wi_region *region);
/* Walks everything and executes the invariant above; nothing in builds without WEIR_INVARIANTS. */
void wi_region_check(wi_region *region);

static inline bool wi_region_holds(const wi_region *region, const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)region->base < region->bytes;
}

/* Slots are written under the lock of the resource, and wi_region_peek reads them without it. */
static inline void wi_region_set_slot(wi_region *region, uint64_t offset, uint32_t slot)
{
    __atomic_store_n(&region->slots[offset / WI_UNIT], slot, __ATOMIC_RELEASE);
}

void wi_list_add(wi_extent_list *list, wi_extent *extent); /* at the end */
void wi_list_remove(wi_extent_list *list, wi_extent *extent);

/* The used extent that begins at `offset`, or that did a moment ago; NULL if none. Needs no lock. */
static inline wi_extent *wi_region_peek(const wi_region *region, uint64_t offset)
{
    uint32_t slot = __atomic_load_n(&region->slots[offset / WI_UNIT], __ATOMIC_ACQUIRE);
    return offset % WI_UNIT != 0 || slot == 0 || (slot & WI_SLOT_FREED) ? NULL
                                                                        : wi_record_at(&region->shared->pool, slot - 1);
}

#endif
