/* Extents: split, coalesce, find the best fit by size (segregated free lists of size classes), and find by address. */
#include "memory/space/extents.h"
#include "memory/space/stream_lists.h"
#include "memory/space/stream_order.h"

#include <sys/mman.h>
#include <unistd.h>

/* Lists and records ------------------------------------------------------------------------------------------------ */

void wi_list_add(wi_extent_list *list, wi_extent *extent)
{
    extent->list_previous = list->last;
    extent->list_next = NULL;
    *(list->last ? &list->last->list_next : &list->first) = extent;
    list->last = extent;
}

void wi_list_remove(wi_extent_list *list, wi_extent *extent)
{
    *(extent->list_previous ? &extent->list_previous->list_next : &list->first) = extent->list_next;
    *(extent->list_next ? &extent->list_next->list_previous : &list->last) = extent->list_previous;
    extent->list_previous = extent->list_next = NULL;
}

enum { CHUNK = WI_EXTENT_SLAB, MOST_CHUNKS = (int)(WI_SLOT_FREED / CHUNK) };

static void *region_lazy_table(uint64_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

static bool extent_pool_grow(wi_extent_pool *pool)
{
    if (!pool->chunks)
        pool->chunks = region_lazy_table(MOST_CHUNKS * sizeof *pool->chunks);
    wi_extent *chunk =
        pool->chunks && pool->chunk_count < MOST_CHUNKS ? aligned_alloc(WI_LINE, CHUNK * sizeof *chunk) : NULL;
    if (!chunk)
        return false;
    memset(chunk, 0, CHUNK * sizeof *chunk);
    pool->chunks[pool->chunk_count] = chunk;
    for (size_t i = 0; i < CHUNK; i++) {
        chunk[i].index = (uint32_t)(pool->chunk_count * CHUNK + i);
        chunk[i].next = pool->unused;
        pool->unused = &chunk[i];
    }
    pool->chunk_count++;
    pool->unused_count += CHUNK;
    return true;
}

weir_status wi_extent_pool_reserve(wi_extent_pool *pool, size_t count)
{
    while (pool->unused_count < count)
        if (!extent_pool_grow(pool))
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of blocks");
    return WEIR_OK;
}

void wi_extent_pool_destroy(wi_extent_pool *pool)
{
    for (size_t i = 0; i < pool->chunk_count; i++)
        free(pool->chunks[i]);
    if (pool->chunks)
        munmap(pool->chunks, MOST_CHUNKS * sizeof *pool->chunks);
}

/* Returns a record without a block and in no list. Its bytes, their kind, owners and order, and its neighbours are for the
 * caller to set. */
static wi_extent *region_take_record(wi_region *region)
{
    wi_extent_pool *pool = &region->shared->pool;
    wi_assert(pool->unused_count > 0); /* callers reserve before the first change */
    wi_extent *extent = pool->unused;
    pool->unused = extent->next;
    pool->unused_count--;
    wi_assert(!extent->block.pointer && extent->block.word == 0); /* a second free may still look at it */
    extent->region = region;
    extent->stream_previous = extent->stream_next = NULL;
    extent->list_previous = extent->list_next = NULL;
    return extent;
}

static void region_drop_record(wi_extent_pool *pool, wi_extent *extent)
{
    extent->next = pool->unused;
    pool->unused = extent;
    pool->unused_count++;
}

/* Size index: a row for each power of two, 64 bins in each --------------------------------------------------------- */

/* Computes the size class of a request or of free memory: a row and a bin of the size index. The six bits behind the
 * highest one that is set are the column. Thread caches have bins of their own (`wi_tcache_bin_of`). */
static void size_index_bin(uint64_t bytes, unsigned *row, unsigned *column)
{
    uint64_t units = bytes / WI_UNIT;
    unsigned zeros = (unsigned)__builtin_clzll(units);
    *row = 63u ^ zeros;
    *column = (unsigned)(units << zeros >> 57) & 63u;
}

static wi_size_index *size_index_of(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list)
{
    return (wi_size_index *)(stream_list ? &stream_list->size_indexes[number] : &shared->size_indexes[number]);
}

static wi_size_index *size_index_for(const wi_region *region, const wi_stream_list *stream_list)
{
    return size_index_of(region->shared, region->number, stream_list);
}

static void size_index_enter(wi_size_index *size_index, wi_extent *extent)
{
    unsigned row, column;
    size_index_bin(extent->bytes, &row, &column);
    wi_list_add(&size_index->bins[row][column], extent);
    size_index->column_bits[row] |= UINT64_C(1) << column;
    size_index->row_bits |= UINT64_C(1) << row;
}

static void size_index_leave(wi_size_index *size_index, wi_extent *extent)
{
    unsigned row, column;
    size_index_bin(extent->bytes, &row, &column);
    wi_extent_list *bin = &size_index->bins[row][column];
    wi_list_remove(bin, extent);
    if (bin->first)
        return;
    size_index->column_bits[row] &= ~(UINT64_C(1) << column);
    if (!size_index->column_bits[row])
        size_index->row_bits &= ~(UINT64_C(1) << row);
}

/* Inserts by epoch. Epochs only grow: mostly the extent goes at the end. */
static void stream_list_enter(wi_stream_list *stream_list, wi_extent *extent)
{
    wi_extent *before = stream_list->last;
    while (before && before->epoch > extent->epoch)
        before = before->stream_previous;
    stream_list->bytes += extent->bytes;
    extent->stream_previous = before;
    extent->stream_next = before ? before->stream_next : stream_list->first;
    *(before ? &before->stream_next : &stream_list->first) = extent;
    *(extent->stream_next ? &extent->stream_next->stream_previous : &stream_list->last) = extent;
}

static void stream_list_leave(wi_stream_list *stream_list, wi_extent *extent)
{
    *(extent->stream_previous ? &extent->stream_previous->stream_next : &stream_list->first) = extent->stream_next;
    *(extent->stream_next ? &extent->stream_next->stream_previous : &stream_list->last) = extent->stream_previous;
    extent->stream_previous = extent->stream_next = NULL;
    stream_list->bytes -= extent->bytes;
}

uint64_t wi_extent_start(const wi_extent *extent, uint64_t alignment)
{
    uintptr_t base = (uintptr_t)extent->region->base;
    return wi_round_up(base + extent->offset, alignment) - base;
}

static bool region_holds(const wi_extent *extent, uint64_t bytes, uint64_t alignment)
{
    uint64_t start = wi_extent_start(extent, alignment);
    return start + bytes <= extent->offset + extent->bytes;
}

static bool region_is_better(const wi_extent *a, const wi_extent *b)
{
    if (a->bytes != b->bytes || !a->region->shared->by_address)
        return a->bytes < b->bytes;
    return a->region->base + a->offset < b->region->base + b->offset;
}

static wi_extent *size_index_best_in_bin(const wi_extent_list *bin, uint64_t bytes, uint64_t alignment)
{
    wi_extent *best = NULL;
    for (wi_extent *e = bin->first; e; e = e->list_next)
        if (region_holds(e, bytes, alignment) && (!best || region_is_better(e, best)))
            best = e;
    return best;
}

/* The best fit in these rows of the size index, in `row` from the column on. Apart, as often no row has so much. */
static __attribute__((noinline)) wi_extent *size_index_best_in_rows(const wi_size_index *size_index, uint64_t rows,
                                                                    unsigned row, unsigned column, uint64_t bytes,
                                                                    uint64_t alignment)
{
    for (unsigned from = column; rows; rows &= rows - 1, from = 0) {
        unsigned r = (unsigned)__builtin_ctzll(rows);
        uint64_t columns = size_index->column_bits[r] >> (r == row ? from : 0) << (r == row ? from : 0);
        for (; columns; columns &= columns - 1) {
            wi_extent *best = size_index_best_in_bin(&size_index->bins[r][__builtin_ctzll(columns)], bytes, alignment);
            if (best)
                return best;
        }
    }
    return NULL;
}

static wi_extent *size_index_best(const wi_size_index *size_index, uint64_t bytes, uint64_t alignment)
{
    unsigned row, column;
    size_index_bin(bytes, &row, &column);
    uint64_t rows = size_index->row_bits >> row << row;
    return rows ? size_index_best_in_rows(size_index, rows, row, column, bytes, alignment) : NULL;
}

wi_extent *wi_shared_best_of(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list,
                             uint64_t bytes, uint64_t alignment)
{
    return size_index_best(size_index_of(shared, number, stream_list), bytes, alignment);
}

wi_extent *wi_shared_best(const wi_shared *shared, unsigned number, const wi_stream_list *stream_list, uint64_t bytes,
                          uint64_t alignment)
{
    wi_extent *mine =
        stream_list ? size_index_best(size_index_of(shared, number, stream_list), bytes, alignment) : NULL;
    if (mine && mine->bytes == bytes && !shared->by_address)
        return mine;
    wi_extent *anyones = size_index_best(size_index_of(shared, number, NULL), bytes, alignment);
    return !mine || (anyones && region_is_better(anyones, mine)) ? anyones : mine;
}

wi_extent *wi_region_best(wi_region *region, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment)
{
    return wi_shared_best(region->shared, region->number, stream_list, bytes, alignment);
}

/* Cutting and joining ---------------------------------------------------------------------------------------------- */

static void region_enlist(wi_region *region, wi_extent *extent)
{
    if (extent->kind == WI_FREE) {
        size_index_enter(size_index_for(region, extent->stream_list), extent);
        region->free_bytes += extent->bytes;
        if (extent->stream_list) {
            stream_list_enter(extent->stream_list, extent);
            region->shared->in_order++;
        }
    } else if (extent->kind == WI_HOLE)
        wi_list_add(&region->holes, extent);
}

static void region_delist(wi_region *region, wi_extent *extent)
{
    if (extent->kind == WI_FREE) {
        size_index_leave(size_index_for(region, extent->stream_list), extent);
        region->free_bytes -= extent->bytes;
        if (extent->stream_list) {
            stream_list_leave(extent->stream_list, extent);
            region->shared->in_order--;
        }
    } else if (extent->kind == WI_HOLE)
        wi_list_remove(&region->holes, extent);
}

/* Splits an extent that is in no list; neither is the rest. */
static wi_extent *region_split(wi_region *region, wi_extent *extent, uint64_t offset)
{
    wi_assert(offset > extent->offset && offset < extent->offset + extent->bytes && offset % WI_UNIT == 0);
    wi_extent *rest = region_take_record(region);
    rest->kind = extent->kind;
    rest->last = extent->last;
    rest->freed_on = extent->freed_on;
    rest->stream_list = extent->stream_list;
    rest->epoch = extent->epoch;
    rest->offset = offset;
    rest->bytes = extent->offset + extent->bytes - offset;
    extent->bytes = offset - extent->offset;
    rest->previous = extent;
    rest->next = extent->next;
    if (rest->next)
        rest->next->previous = rest;
    extent->next = rest;
    return rest;
}

wi_extent *wi_region_cut(wi_region *region, wi_extent *extent, uint64_t offset)
{
    region_delist(region, extent);
    wi_extent *rest = region_split(region, extent, offset);
    region_enlist(region, extent);
    region_enlist(region, rest);
    return rest;
}

static bool region_in_use(wi_extent_kind kind)
{
    return kind == WI_USED || kind == WI_BUSY;
}

static void region_count_use(wi_shared *shared, uint64_t bytes)
{
    shared->in_use += bytes;
    shared->peak_in_use = wi_max(shared->peak_in_use, shared->in_use);
}

/* Changes the kind of an extent that is in no list. */
static void region_set_kind(wi_region *region, wi_extent *extent, wi_extent_kind kind)
{
    bool before = region_in_use(extent->kind), after = region_in_use(kind);
    if (extent->kind == WI_USED)
        region->shared->in_use -= extent->bytes;
    extent->kind = kind;
    if (kind == WI_USED)
        region_count_use(region->shared, extent->bytes);
    extent->freed_on = kind == WI_HOLE ? WI_CLEAN : extent->freed_on;
    region->emptied += kind == WI_HOLE ? extent->bytes : 0;
    if (kind == WI_FREE && extent->stream_list && extent->epoch <= extent->stream_list->passed)
        extent->stream_list = NULL; /* the epoch passed while the extent was busy */
    if (before != after)
        wi_chunk_use(region, extent->offset, extent->bytes, after);
}

void wi_region_set(wi_region *region, wi_extent *extent, wi_extent_kind kind)
{
    region_delist(region, extent);
    region_set_kind(region, extent, kind);
    region_enlist(region, extent);
}

uint64_t wi_owners_mix(uint64_t a, uint64_t b)
{
    uint64_t secret = (a | b) & WI_SECRET, x = a & ~WI_SECRET, y = b & ~WI_SECRET;
    return (x == y || y == WI_CLEAN ? x : x == WI_CLEAN ? y : WI_MIXED) | secret;
}

/* Both are in no list. */
static void region_absorb_next(wi_region *region, wi_extent *extent)
{
    wi_extent *next = extent->next;
    extent->bytes += next->bytes;
    extent->last = wi_owners_mix(extent->last, next->last);
    extent->freed_on = wi_owners_mix(extent->freed_on, next->freed_on);
    if (next->stream_list) { /* only parts of busy memory may be ordered: the whole joins that order */
        wi_assert(!extent->stream_list || extent->stream_list == next->stream_list);
        extent->epoch = extent->stream_list ? wi_max(extent->epoch, next->epoch) : next->epoch;
        extent->stream_list = next->stream_list;
    }
    extent->next = next->next;
    if (extent->next)
        extent->next->previous = extent;
    region_drop_record(&region->shared->pool, next);
}

static bool region_alike(const wi_extent *a, const wi_extent *b)
{
    return a->kind == b->kind && (a->kind != WI_FREE || a->stream_list == b->stream_list);
}

enum { SPREAD = 16 };

/* Whether two neighbours coalesce. Beyond equal ones: if only one stream has a list, memory without order joins that
 * stream's memory, which keeps extents large. The unordered part may be at most SPREAD times larger, as other streams
 * have to wait for all of it then. A stream that has ended takes nothing, as its list serves no requests. */
static bool region_joinable(const wi_region *region, const wi_extent *a, const wi_extent *b)
{
    if (region_alike(a, b))
        return true;
    if (a->kind != WI_FREE || b->kind != WI_FREE || region->shared->stream_lists != 1 ||
        (a->stream_list && b->stream_list))
        return false;
    const wi_stream_list *order = a->stream_list ? a->stream_list : b->stream_list;
    if (!order || order->gone)
        return false;
    return a->stream_list ? b->bytes <= SPREAD * a->bytes : a->bytes <= SPREAD * b->bytes;
}

/* The neighbour that joins the extent; NULL: neither does. */
static wi_extent *region_partner(const wi_region *region, const wi_extent *extent)
{
    if (extent->previous && region_joinable(region, extent->previous, extent))
        return extent->previous;
    return extent->next && region_joinable(region, extent->next, extent) ? extent->next : NULL;
}

/* Joins an extent that is in no list, and enlists it. A join on one side can change which neighbour joins on the other
 * side. */
static wi_extent *region_join_and_enlist(wi_region *region, wi_extent *extent)
{
    for (wi_extent *partner; (partner = region_partner(region, extent));) {
        region_delist(region, partner);
        extent = partner->next == extent ? partner : extent;
        region_absorb_next(region, extent);
    }
    region_enlist(region, extent);
    return extent;
}

static void region_forget_slots(wi_region *region)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (const wi_extent *e = region->holes.first; e; e = e->list_next) {
        uint32_t *first = &region->slots[e->offset / WI_UNIT], *end = first + e->bytes / WI_UNIT;
        uint64_t before = wi_round_up((uintptr_t)first, page) - (uintptr_t)first, after = (uintptr_t)end % page;
        uint64_t bytes = (uint64_t)((char *)end - (char *)first);
        if (bytes > before + after) /* what is locked stays: the table is right all the same */
            (void)madvise((char *)first + before, bytes - before - after, MADV_DONTNEED);
    }
    region->emptied = 0;
}

wi_extent *wi_region_join(wi_region *region, wi_extent *extent)
{
    wi_assert(extent->kind == WI_HOLE || extent->kind == WI_FREE);
    if (region->emptied >= WI_EMPTIED_MOST)
        region_forget_slots(region);
    if (!region_partner(region, extent))
        return extent;
    region_delist(region, extent);
    return region_join_and_enlist(region, extent);
}

void wi_region_merge_busy(wi_region *region, wi_extent *extent)
{
    wi_assert(extent->kind == WI_BUSY && extent->next && extent->next->kind == WI_BUSY);
    region_absorb_next(region, extent);
}

void wi_region_give(wi_region *region, wi_extent *busy, wi_extent *used, uint64_t bytes)
{
    wi_assert(busy->kind == WI_BUSY && used->kind == WI_USED && used->next == busy && bytes <= busy->bytes);
    if (bytes < busy->bytes) {
        wi_extent *rest = wi_region_cut(region, busy, busy->offset + bytes);
        wi_region_set(region, rest, WI_FREE);
        wi_region_join(region, rest);
    }
    busy->stream_list = NULL;
    region_count_use(region->shared, busy->bytes);
    region_absorb_next(region, used);
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static void region_free_rest(wi_region *region, wi_extent *extent)
{
    if (!extent || extent->kind == WI_FREE)
        return;
    wi_region_set(region, extent, WI_FREE);
    wi_region_join(region, extent);
}

void wi_region_note_start(wi_region *region, uint64_t offset, bool begins)
{
    uint64_t granule = offset / region->granule, bit = UINT64_C(1) << granule % 64;
    uint32_t unit = (uint32_t)(offset % region->granule / WI_UNIT);
    wi_starts *starts = &region->starts[granule];
    if (begins) {
        starts->count++;
        starts->last = wi_max(starts->last, unit);
        region->started[granule / 64] |= bit;
    } else if (--starts->count == 0) {
        starts->last = 0;
        region->started[granule / 64] &= ~bit;
    }
}

wi_extent *wi_region_use(wi_region *region, wi_extent *extent, uint64_t offset, uint64_t bytes, uint64_t slack)
{
    wi_extent *before = offset > extent->offset ? extent : NULL;
    if (before)
        extent = wi_region_cut(region, before, offset);
    region_delist(region, extent);
    wi_extent *rest = bytes + slack < extent->bytes ? region_split(region, extent, offset + bytes) : NULL;
    if (rest)
        region_enlist(region, rest);
    region_set_kind(region, extent, WI_USED);
    extent->stream_list = NULL;
    region_free_rest(region, before);
    region_free_rest(region, rest);
    wi_region_set_slot(region, offset, extent->index + 1);
    wi_region_note_start(region, offset, true);
    return extent;
}

/* Ends the block of an extent. The slot records the start of a freed block. */
static void region_end_block(wi_region *region, wi_extent *extent)
{
    static const wi_block blank;
    wi_region_set_slot(region, extent->offset, region->slots[extent->offset / WI_UNIT] | WI_SLOT_FREED);
    wi_region_note_start(region, extent->offset, false);
    if (extent->block.stream_uses)
        wi_stream_uses_free(extent->block.stream_uses);
    wi_block_set(&extent->block, &blank);
}

void wi_region_unite(wi_region *region, wi_extent *extent)
{
    wi_assert(extent->kind == WI_USED && extent->next->kind == WI_USED && extent->next->block.before == 0);
    region_end_block(region, extent->next);
    region_absorb_next(region, extent);
}

wi_extent *wi_region_unuse(wi_region *region, wi_extent *extent, uint64_t last, wi_stream_list *stream_list)
{
    if (extent->block.before > 0) /* where a second free would look */
        wi_region_set_slot(region, (uint64_t)((char *)extent->block.pointer - region->base), WI_SLOT_FREED);
    extent->last = extent->bytes > extent->block.charged ? wi_owners_mix(extent->last, last) : last;
    extent->stream_list = stream_list;
    extent->epoch = stream_list ? stream_list->open : 0;
    extent->freed_on = stream_list ? wi_stream_list_number(stream_list->stream) : WI_CLEAN;
    region_end_block(region, extent);
    region_set_kind(region, extent, WI_FREE); /* a used one is in no list */
    return region_join_and_enlist(region, extent);
}

void wi_region_end(wi_region *region, wi_extent *extent, uint64_t last)
{
    if (extent->block.before > 0)
        wi_region_set_slot(region, (uint64_t)((char *)extent->block.pointer - region->base), WI_SLOT_FREED);
    extent->last = last;
    extent->freed_on = WI_CLEAN;
    region_end_block(region, extent);
    region_set_kind(region, extent, WI_BUSY);
}

wi_extent *wi_region_neutral(wi_region *region, wi_extent *extent)
{
    wi_assert(extent->kind == WI_FREE && extent->stream_list);
    region_delist(region, extent);
    extent->stream_list = NULL;
    region_enlist(region, extent);
    return wi_region_join(region, extent);
}

#define NO_GRANULE UINT64_MAX

#ifdef WEIR_INVARIANTS
static bool region_is_started(const wi_region *region, uint64_t granule)
{
    return region->started[granule / 64] >> granule % 64 & 1;
}
#endif

/* The last granule before this one in which a used extent begins. The bitmap `started` skips 64 granules at a time. */
static uint64_t region_started_before(const wi_region *region, uint64_t granule)
{
    uint64_t word = granule / 64, bits = region->started[word] & ((UINT64_C(1) << granule % 64) - 1);
    while (bits == 0 && word > 0)
        bits = region->started[--word];
    return bits ? word * 64 + 63u - (unsigned)__builtin_clzll(bits) : NO_GRANULE;
}

/* The used extent that begins at or nearest before the offset. The search begins at the last unit of a granule where one
 * may begin: behind the start of a long block there are thousands of empty slots. */
static wi_extent *region_used_before(wi_region *region, uint64_t offset)
{
    uint64_t unit = offset / WI_UNIT, granule = offset / region->granule;
    for (; granule != NO_GRANULE; granule = region_started_before(region, granule)) {
        uint64_t first = granule * region->granule / WI_UNIT;
        wi_starts starts = region->starts[granule];
        for (uint64_t u = wi_min(unit, first + starts.last) + 1; starts.count && u > first;) {
            uint32_t slot = region->slots[--u];
            if (slot == 0 || (slot & WI_SLOT_FREED))
                continue;
            return wi_record_at(&region->shared->pool, slot - 1);
        }
    }
    return NULL;
}

wi_extent *wi_region_find(wi_region *region, uint64_t offset, bool *freed)
{
    *freed = offset % WI_UNIT == 0 && (region->slots[offset / WI_UNIT] & WI_SLOT_FREED) != 0;
    wi_extent *extent = region_used_before(region, offset);
    return extent && offset < extent->offset + extent->bytes ? extent : NULL;
}

wi_extent *wi_region_at(wi_region *region, uint64_t offset)
{
    wi_extent *extent = region_used_before(region, offset);
    if (!extent)
        extent = region->first;
    while (offset >= extent->offset + extent->bytes)
        extent = extent->next;
    return extent;
}

/* The region ------------------------------------------------------------------------------------------------------- */

static uint64_t region_granules(const wi_region *region)
{
    return region->granule ? wi_round_up(region->bytes, region->granule) / region->granule : 0;
}

weir_status wi_region_init(wi_region *region, unsigned number, char *base, uint64_t bytes, uint64_t granule,
                           wi_shared *shared)
{
    *region = (wi_region){.bytes = bytes, .granule = granule, .shared = shared, .number = number};
    region->base = base;
    uint64_t granules = region_granules(region);
    region->slots = region_lazy_table(bytes / WI_UNIT * sizeof *region->slots);
    region->starts = region_lazy_table(granules * sizeof *region->starts);
    region->started = region_lazy_table((granules / 64 + 1) * sizeof *region->started);
    region->chunks = region_lazy_table(granules * sizeof *region->chunks);
    weir_status status = wi_extent_pool_reserve(&shared->pool, 1);
    if (!region->slots || !region->starts || !region->started || !region->chunks)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for the tables of a range of %llu bytes",
                           (unsigned long long)bytes);
    if (status != WEIR_OK) {
        wi_region_destroy(region);
        return status;
    }
    region->first = region_take_record(region);
    region->first->offset = 0;
    region->first->bytes = bytes;
    region->first->kind = WI_HOLE;
    region->first->last = region->first->freed_on = WI_CLEAN;
    region->first->stream_list = NULL;
    region->first->epoch = 0;
    region->first->previous = region->first->next = NULL;
    wi_list_add(&region->holes, region->first);
    return WEIR_OK;
}

void wi_region_destroy(wi_region *region)
{
    uint64_t granules = region_granules(region);
    for (wi_extent *e = region->first, *next; e; e = next) {
        next = e->next;
        region_drop_record(&region->shared->pool, e);
    }
    if (region->slots)
        munmap(region->slots, region->bytes / WI_UNIT * sizeof *region->slots);
    if (region->starts)
        munmap(region->starts, granules * sizeof *region->starts);
    if (region->started)
        munmap(region->started, (granules / 64 + 1) * sizeof *region->started);
    if (region->chunks)
        munmap(region->chunks, granules * sizeof *region->chunks);
    *region = (wi_region){0};
}

void wi_region_check(wi_region *region)
{
#ifdef WEIR_INVARIANTS
    if (!region->first || (++region->changes % 64 != 0 && region->changes > 256))
        return; /* with every change, long runs would be quadratic */
    uint64_t at = 0, free_bytes = 0, granule = 0;
    uint32_t begin = 0; /* used extents in this granule */
    for (const wi_extent *e = region->first, *before = NULL; e; before = e, e = e->next) {
        wi_assert(e->offset == at && e->bytes > 0 && e->bytes % WI_UNIT == 0 && e->previous == before);
        wi_assert(!before || !region_alike(before, e) || e->kind == WI_USED || e->kind == WI_BUSY);
        wi_assert(!e->stream_list || e->kind == WI_FREE || e->kind == WI_BUSY);
        wi_assert(e->kind != WI_HOLE || (e->offset % region->granule == 0 && e->bytes % region->granule == 0));
        if (e->offset / region->granule != granule) {
            wi_assert(region->starts[granule].count == begin && region_is_started(region, granule) == (begin > 0));
            granule = e->offset / region->granule;
            begin = 0;
        }
        begin += e->kind == WI_USED;
        wi_assert(e->kind != WI_USED || e->offset % region->granule / WI_UNIT <= region->starts[granule].last);
        uint32_t slot = region->slots[e->offset / WI_UNIT];
        if (e->kind == WI_USED)
            wi_assert(slot == e->index + 1 && e->bytes - e->block.charged <= region->most_slack &&
                      e->block.before + wi_load(e->block.bytes) + e->block.after <= e->block.charged &&
                      e->block.pointer == region->base + e->offset + e->block.before);
        else
            wi_assert(slot == 0 || (slot & WI_SLOT_FREED));
        if (e->kind == WI_HOLE)
            wi_assert(!region->chunks[e->offset / region->granule]);
        if (e->kind == WI_FREE || (e->kind == WI_USED && e->block.away == 0 && !e->block.leaving))
            wi_assert(region->chunks[e->offset / region->granule] &&
                      region->chunks[(e->offset + e->bytes - 1) / region->granule]);
        if (e->kind == WI_FREE)
            free_bytes += e->bytes;
        at += e->bytes;
    }
    wi_assert(region->starts[granule].count == begin);
    wi_assert(at == region->bytes && free_bytes == region->free_bytes);
#else
    (void)region;
#endif
}
