#include "memory/extents.h"
#include "memory/lanes.h"
#include "memory/marks.h"

#include <sys/mman.h>

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

enum { CHUNK = WI_EXTENT_CHUNK, MOST_CHUNKS = (int)(WI_SLOT_FREED / CHUNK) };

static void *lazy_table(uint64_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

static bool add_chunk(wi_extent_pool *pool)
{
    if (!pool->chunks)
        pool->chunks = lazy_table(MOST_CHUNKS * sizeof *pool->chunks);
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
        if (!add_chunk(pool))
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

static wi_extent *take_record(wi_space *space)
{
    wi_extent_pool *pool = &space->shared->pool;
    wi_law(pool->unused_count > 0); /* reserved before the first change */
    wi_extent *extent = pool->unused;
    pool->unused = extent->next;
    pool->unused_count--;
    uint32_t index = extent->index;
    wi_block_set(&extent->block, &(wi_block){0}); /* a second free may still look at it */
    memset((char *)extent + offsetof(wi_extent, offset), 0, sizeof *extent - offsetof(wi_extent, offset));
    extent->index = index;
    extent->space = space;
    return extent;
}

static void drop_record(wi_extent_pool *pool, wi_extent *extent)
{
    extent->next = pool->unused;
    pool->unused = extent;
    pool->unused_count++;
}

/* Bins: rows by the power of two, columns by the six bits below it ------------------------------------------------ */

static void bin_of(uint64_t bytes, unsigned *row, unsigned *column)
{
    uint64_t units = bytes / WI_UNIT;
    unsigned power = 63u - (unsigned)__builtin_clzll(units);
    *row = power;
    *column = (unsigned)(power >= 6 ? units >> (power - 6) : units << (6 - power)) & 63u;
}

static wi_shelf *shelf_of(const wi_shared *shared, unsigned number, const wi_lane *lane)
{
    return (wi_shelf *)(lane ? &lane->shelves[number] : &shared->shelves[number]);
}

static wi_shelf *shelf_for(const wi_space *space, const wi_lane *lane)
{
    return shelf_of(space->shared, space->number, lane);
}

static void enter_bin(wi_shelf *shelf, wi_extent *extent)
{
    unsigned row, column;
    bin_of(extent->bytes, &row, &column);
    wi_list_add(&shelf->bins[row][column], extent);
    shelf->column_bits[row] |= UINT64_C(1) << column;
    shelf->row_bits |= UINT64_C(1) << row;
}

static void leave_bin(wi_shelf *shelf, wi_extent *extent)
{
    unsigned row, column;
    bin_of(extent->bytes, &row, &column);
    wi_list_remove(&shelf->bins[row][column], extent);
    if (shelf->bins[row][column].first)
        return;
    shelf->column_bits[row] &= ~(UINT64_C(1) << column);
    if (!shelf->column_bits[row])
        shelf->row_bits &= ~(UINT64_C(1) << row);
}

/* Epochs only grow, so that what enters is mostly the newest. */
static void enter_lane(wi_lane *lane, wi_extent *extent)
{
    wi_extent *before = lane->last;
    while (before && before->epoch > extent->epoch)
        before = before->lane_previous;
    lane->bytes += extent->bytes;
    extent->lane_previous = before;
    extent->lane_next = before ? before->lane_next : lane->first;
    *(before ? &before->lane_next : &lane->first) = extent;
    *(extent->lane_next ? &extent->lane_next->lane_previous : &lane->last) = extent;
}

static void leave_lane(wi_lane *lane, wi_extent *extent)
{
    *(extent->lane_previous ? &extent->lane_previous->lane_next : &lane->first) = extent->lane_next;
    *(extent->lane_next ? &extent->lane_next->lane_previous : &lane->last) = extent->lane_previous;
    extent->lane_previous = extent->lane_next = NULL;
    lane->bytes -= extent->bytes;
}

uint64_t wi_extent_start(const wi_extent *extent, uint64_t alignment)
{
    uintptr_t base = (uintptr_t)extent->space->base;
    return wi_round_up(base + extent->offset, alignment) - base;
}

static bool holds(const wi_extent *extent, uint64_t bytes, uint64_t alignment)
{
    uint64_t start = wi_extent_start(extent, alignment);
    return start + bytes <= extent->offset + extent->bytes;
}

static bool is_better(const wi_extent *a, const wi_extent *b)
{
    if (a->bytes != b->bytes || !a->space->shared->by_address)
        return a->bytes < b->bytes;
    return a->space->base + a->offset < b->space->base + b->offset;
}

static wi_extent *best_in_bin(const wi_extent_list *bin, uint64_t bytes, uint64_t alignment)
{
    wi_extent *best = NULL;
    for (wi_extent *e = bin->first; e; e = e->list_next)
        if (holds(e, bytes, alignment) && (!best || is_better(e, best)))
            best = e;
    return best;
}

static wi_extent *best_on(const wi_shelf *shelf, uint64_t bytes, uint64_t alignment)
{
    unsigned row, column;
    bin_of(bytes, &row, &column);
    uint64_t rows = shelf->row_bits >> row << row;
    for (unsigned from = column; rows; rows &= rows - 1, from = 0) {
        unsigned r = (unsigned)__builtin_ctzll(rows);
        uint64_t columns = shelf->column_bits[r] >> (r == row ? from : 0) << (r == row ? from : 0);
        for (; columns; columns &= columns - 1) {
            wi_extent *best = best_in_bin(&shelf->bins[r][__builtin_ctzll(columns)], bytes, alignment);
            if (best)
                return best;
        }
    }
    return NULL;
}

wi_extent *wi_shared_best_of(const wi_shared *shared, unsigned number, const wi_lane *lane, uint64_t bytes,
                             uint64_t alignment)
{
    return best_on(shelf_of(shared, number, lane), bytes, alignment);
}

wi_extent *wi_shared_best(const wi_shared *shared, unsigned number, const wi_lane *lane, uint64_t bytes,
                          uint64_t alignment)
{
    wi_extent *mine = lane ? best_on(shelf_of(shared, number, lane), bytes, alignment) : NULL;
    if (mine && mine->bytes == bytes && !shared->by_address)
        return mine;
    wi_extent *anyones = best_on(shelf_of(shared, number, NULL), bytes, alignment);
    return !mine || (anyones && is_better(anyones, mine)) ? anyones : mine;
}

wi_extent *wi_space_best(wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment)
{
    return wi_shared_best(space->shared, space->number, lane, bytes, alignment);
}

/* Cutting and joining ---------------------------------------------------------------------------------------------- */

static void enlist(wi_space *space, wi_extent *extent)
{
    if (extent->kind == WI_FREE) {
        enter_bin(shelf_for(space, extent->lane), extent);
        space->free_bytes += extent->bytes;
        if (extent->lane) {
            enter_lane(extent->lane, extent);
            space->shared->in_order++;
        }
    } else if (extent->kind == WI_HOLE)
        wi_list_add(&space->holes, extent);
}

static void delist(wi_space *space, wi_extent *extent)
{
    if (extent->kind == WI_FREE) {
        leave_bin(shelf_for(space, extent->lane), extent);
        space->free_bytes -= extent->bytes;
        if (extent->lane) {
            leave_lane(extent->lane, extent);
            space->shared->in_order--;
        }
    } else if (extent->kind == WI_HOLE)
        wi_list_remove(&space->holes, extent);
}

wi_extent *wi_space_cut(wi_space *space, wi_extent *extent, uint64_t offset)
{
    wi_law(offset > extent->offset && offset < extent->offset + extent->bytes && offset % WI_UNIT == 0);
    wi_extent *rest = take_record(space);
    delist(space, extent);
    rest->kind = extent->kind;
    rest->last = extent->last;
    rest->freed_on = extent->freed_on;
    rest->lane = extent->lane;
    rest->epoch = extent->epoch;
    rest->offset = offset;
    rest->bytes = extent->offset + extent->bytes - offset;
    extent->bytes = offset - extent->offset;
    rest->previous = extent;
    rest->next = extent->next;
    if (rest->next)
        rest->next->previous = rest;
    extent->next = rest;
    enlist(space, extent);
    enlist(space, rest);
    return rest;
}

static bool in_use(wi_extent_kind kind)
{
    return kind == WI_USED || kind == WI_BUSY;
}

static void count_use(wi_shared *shared, uint64_t bytes)
{
    shared->in_use += bytes;
    shared->peak_in_use = wi_max(shared->peak_in_use, shared->in_use);
}

void wi_space_set(wi_space *space, wi_extent *extent, wi_extent_kind kind)
{
    bool before = in_use(extent->kind), after = in_use(kind);
    delist(space, extent);
    if (extent->kind == WI_USED)
        space->shared->in_use -= extent->bytes;
    extent->kind = kind;
    if (kind == WI_USED)
        count_use(space->shared, extent->bytes);
    extent->freed_on = kind == WI_HOLE ? WI_CLEAN : extent->freed_on;
    if (kind == WI_FREE && extent->lane && extent->epoch <= extent->lane->passed)
        extent->lane = NULL; /* it has passed while this was busy */
    enlist(space, extent);
    if (before != after)
        wi_backing_use(space, extent->offset, extent->bytes, after);
}

uint64_t wi_owners_mix(uint64_t a, uint64_t b)
{
    uint64_t secret = (a | b) & WI_SECRET, x = a & ~WI_SECRET, y = b & ~WI_SECRET;
    return (x == y || y == WI_CLEAN ? x : x == WI_CLEAN ? y : WI_MIXED) | secret;
}

static void absorb_next(wi_space *space, wi_extent *extent)
{
    wi_extent *next = extent->next;
    delist(space, extent);
    delist(space, next);
    extent->bytes += next->bytes;
    extent->last = wi_owners_mix(extent->last, next->last);
    extent->freed_on = wi_owners_mix(extent->freed_on, next->freed_on);
    if (next->lane) { /* of what is busy, a part may be anyone's: it joins the order of the rest */
        wi_law(!extent->lane || extent->lane == next->lane);
        extent->epoch = extent->lane ? wi_max(extent->epoch, next->epoch) : next->epoch;
        extent->lane = next->lane;
    }
    extent->next = next->next;
    if (extent->next)
        extent->next->previous = extent;
    drop_record(&space->shared->pool, next);
    enlist(space, extent);
}

static bool alike(const wi_extent *a, const wi_extent *b)
{
    return a->kind == b->kind && (a->kind != WI_FREE || a->lane == b->lane);
}

enum { SPREAD = 16 };

/* The same. And while there is one lane alone, its order comes to hold for what was anyone's beside it, which keeps memory in
 * one piece; but not for much more than was freed, as others would have to wait for that; nor does the order of a stream that
 * is gone, which serves nobody. */
static bool joinable(const wi_space *space, const wi_extent *a, const wi_extent *b)
{
    if (alike(a, b))
        return true;
    if (a->kind != WI_FREE || b->kind != WI_FREE || space->shared->lanes != 1 || (a->lane && b->lane))
        return false;
    if ((a->lane ? a->lane : b->lane)->gone)
        return false;
    return a->lane ? b->bytes <= SPREAD * a->bytes : a->bytes <= SPREAD * b->bytes;
}

wi_extent *wi_space_join(wi_space *space, wi_extent *extent)
{
    wi_law(extent->kind == WI_HOLE || extent->kind == WI_FREE);
    for (;;) { /* what joins on one side can change what does on the other */
        if (extent->previous && joinable(space, extent->previous, extent))
            extent = extent->previous;
        else if (!extent->next || !joinable(space, extent->next, extent))
            return extent;
        absorb_next(space, extent);
    }
}

void wi_space_merge_busy(wi_space *space, wi_extent *extent)
{
    wi_law(extent->kind == WI_BUSY && extent->next && extent->next->kind == WI_BUSY);
    absorb_next(space, extent);
}

void wi_space_give(wi_space *space, wi_extent *busy, wi_extent *used, uint64_t bytes)
{
    wi_law(busy->kind == WI_BUSY && used->kind == WI_USED && used->next == busy && bytes <= busy->bytes);
    if (bytes < busy->bytes) {
        wi_extent *rest = wi_space_cut(space, busy, busy->offset + bytes);
        wi_space_set(space, rest, WI_FREE);
        wi_space_join(space, rest);
    }
    busy->lane = NULL;
    count_use(space->shared, busy->bytes);
    absorb_next(space, used);
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static void free_rest(wi_space *space, wi_extent *extent)
{
    if (!extent || extent->kind == WI_FREE)
        return;
    wi_space_set(space, extent, WI_FREE);
    wi_space_join(space, extent);
}

void wi_space_note_start(wi_space *space, uint64_t offset, bool begins)
{
    uint64_t granule = offset / space->granule, bit = UINT64_C(1) << granule % 64;
    space->starts[granule] += begins ? 1u : -1u;
    if (space->starts[granule] > 0)
        space->started[granule / 64] |= bit;
    else
        space->started[granule / 64] &= ~bit;
}

wi_extent *wi_space_use(wi_space *space, wi_extent *extent, uint64_t offset, uint64_t bytes, uint64_t slack)
{
    wi_extent *front = offset > extent->offset ? extent : NULL;
    if (front)
        extent = wi_space_cut(space, front, offset);
    wi_extent *rest = bytes + slack < extent->bytes ? wi_space_cut(space, extent, offset + bytes) : NULL;
    wi_space_set(space, extent, WI_USED);
    extent->lane = NULL;
    free_rest(space, front);
    free_rest(space, rest);
    wi_space_set_slot(space, offset, extent->index + 1);
    wi_space_note_start(space, offset, true);
    return extent;
}

/* No block begins any more where the extent does; one was freed there. */
static void end_block(wi_space *space, wi_extent *extent)
{
    wi_space_set_slot(space, extent->offset, space->slots[extent->offset / WI_UNIT] | WI_SLOT_FREED);
    wi_space_note_start(space, extent->offset, false);
    wi_marks_free(extent->block.marks);
    wi_block_set(&extent->block, &(wi_block){0});
}

void wi_space_unite(wi_space *space, wi_extent *extent)
{
    wi_law(extent->kind == WI_USED && extent->next->kind == WI_USED && extent->next->block.before == 0);
    end_block(space, extent->next);
    absorb_next(space, extent);
}

wi_extent *wi_space_unuse(wi_space *space, wi_extent *extent, uint64_t last, wi_lane *lane)
{
    if (extent->block.before > 0) /* where a second free of it would look */
        wi_space_set_slot(space, (uint64_t)((char *)extent->block.pointer - space->base), WI_SLOT_FREED);
    extent->last = extent->bytes > extent->block.charged ? wi_owners_mix(extent->last, last) : last;
    extent->lane = lane;
    extent->epoch = lane ? lane->open : 0;
    extent->freed_on = lane ? wi_lane_number(lane->stream) : WI_CLEAN;
    end_block(space, extent);
    wi_space_set(space, extent, WI_FREE);
    return wi_space_join(space, extent);
}

wi_extent *wi_space_neutral(wi_space *space, wi_extent *extent)
{
    wi_law(extent->kind == WI_FREE && extent->lane);
    delist(space, extent);
    extent->lane = NULL;
    enlist(space, extent);
    return wi_space_join(space, extent);
}

#define NO_GRANULE UINT64_MAX

#ifdef WEIR_INVARIANTS
static bool is_started(const wi_space *space, uint64_t granule)
{
    return space->started[granule / 64] >> granule % 64 & 1;
}
#endif

/* The last granule before it in which a used extent begins. */
static uint64_t started_before(const wi_space *space, uint64_t granule)
{
    uint64_t word = granule / 64, bits = space->started[word] & ((UINT64_C(1) << granule % 64) - 1);
    while (bits == 0 && word > 0)
        bits = space->started[--word];
    return bits ? word * 64 + 63u - (unsigned)__builtin_clzll(bits) : NO_GRANULE;
}

/* The used extent that begins nearest at or before the offset: granules without one are passed over whole. */
static wi_extent *used_before(wi_space *space, uint64_t offset)
{
    uint64_t unit = offset / WI_UNIT, granule = offset / space->granule;
    for (; granule != NO_GRANULE; granule = started_before(space, granule)) {
        uint64_t first = granule * space->granule / WI_UNIT;
        for (uint64_t u = wi_min(unit, first + space->granule / WI_UNIT - 1) + 1;
             space->starts[granule] && u > first;) {
            uint32_t slot = space->slots[--u];
            if (slot == 0 || (slot & WI_SLOT_FREED))
                continue;
            return wi_record_at(&space->shared->pool, slot - 1);
        }
    }
    return NULL;
}

wi_extent *wi_space_find(wi_space *space, uint64_t offset, bool *freed)
{
    *freed = offset % WI_UNIT == 0 && (space->slots[offset / WI_UNIT] & WI_SLOT_FREED) != 0;
    wi_extent *extent = used_before(space, offset);
    return extent && offset < extent->offset + extent->bytes ? extent : NULL;
}

wi_extent *wi_space_at(wi_space *space, uint64_t offset)
{
    wi_extent *extent = used_before(space, offset);
    if (!extent)
        extent = space->first;
    while (offset >= extent->offset + extent->bytes)
        extent = extent->next;
    return extent;
}

/* The space -------------------------------------------------------------------------------------------------------- */

static uint64_t granules_of(const wi_space *space)
{
    return space->granule ? wi_round_up(space->bytes, space->granule) / space->granule : 0;
}

weir_status wi_space_init(wi_space *space, unsigned number, char *base, uint64_t bytes, uint64_t granule,
                          wi_shared *shared)
{
    *space = (wi_space){.bytes = bytes, .granule = granule, .shared = shared, .number = number};
    space->base = base;
    uint64_t granules = granules_of(space);
    space->slots = lazy_table(bytes / WI_UNIT * sizeof *space->slots);
    space->starts = lazy_table(granules * sizeof *space->starts);
    space->started = lazy_table((granules / 64 + 1) * sizeof *space->started);
    space->backings = lazy_table(granules * sizeof *space->backings);
    weir_status status = wi_extent_pool_reserve(&shared->pool, 1);
    if (!space->slots || !space->starts || !space->started || !space->backings)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for the tables of a range of %llu bytes",
                           (unsigned long long)bytes);
    if (status != WEIR_OK) {
        wi_space_destroy(space);
        return status;
    }
    space->first = take_record(space);
    space->first->bytes = bytes;
    space->first->kind = WI_HOLE;
    wi_list_add(&space->holes, space->first);
    return WEIR_OK;
}

void wi_space_destroy(wi_space *space)
{
    uint64_t granules = granules_of(space);
    for (wi_extent *e = space->first, *next; e; e = next) {
        next = e->next;
        drop_record(&space->shared->pool, e);
    }
    if (space->slots)
        munmap(space->slots, space->bytes / WI_UNIT * sizeof *space->slots);
    if (space->starts)
        munmap(space->starts, granules * sizeof *space->starts);
    if (space->started)
        munmap(space->started, (granules / 64 + 1) * sizeof *space->started);
    if (space->backings)
        munmap(space->backings, granules * sizeof *space->backings);
    *space = (wi_space){0};
}

void wi_space_check(wi_space *space)
{
#ifdef WEIR_INVARIANTS
    if (!space->first || (++space->changes % 64 != 0 && space->changes > 256))
        return; /* a full walk each time would make long runs quadratic */
    uint64_t at = 0, free_bytes = 0, granule = 0;
    uint32_t begin = 0; /* used extents in this granule */
    for (const wi_extent *e = space->first, *before = NULL; e; before = e, e = e->next) {
        wi_law(e->offset == at && e->bytes > 0 && e->bytes % WI_UNIT == 0 && e->previous == before);
        wi_law(!before || !alike(before, e) || e->kind == WI_USED || e->kind == WI_BUSY);
        wi_law(!e->lane || e->kind == WI_FREE || e->kind == WI_BUSY);
        wi_law(e->kind != WI_HOLE || (e->offset % space->granule == 0 && e->bytes % space->granule == 0));
        if (e->offset / space->granule != granule) {
            wi_law(space->starts[granule] == begin && is_started(space, granule) == (begin > 0));
            granule = e->offset / space->granule;
            begin = 0;
        }
        begin += e->kind == WI_USED;
        uint32_t slot = space->slots[e->offset / WI_UNIT];
        if (e->kind == WI_USED)
            wi_law(slot == e->index + 1 && e->bytes - e->block.charged <= space->most_slack &&
                   e->block.before + wi_load(e->block.bytes) + e->block.after <= e->block.charged &&
                   e->block.pointer == space->base + e->offset + e->block.before);
        else
            wi_law(slot == 0 || (slot & WI_SLOT_FREED));
        if (e->kind == WI_HOLE)
            wi_law(!space->backings[e->offset / space->granule]);
        if (e->kind == WI_FREE || e->kind == WI_USED)
            wi_law(space->backings[e->offset / space->granule] &&
                   space->backings[(e->offset + e->bytes - 1) / space->granule]);
        if (e->kind == WI_FREE)
            free_bytes += e->bytes;
        at += e->bytes;
    }
    wi_law(space->starts[granule] == begin);
    wi_law(at == space->bytes && free_bytes == space->free_bytes);
#else
    (void)space;
#endif
}
