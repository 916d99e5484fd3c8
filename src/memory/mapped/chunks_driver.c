/* Chunks and the driver: creates, maps, moves, splits and destroys them. The lock is released around driver calls;
 * what the calling thread works on is busy, or in no list. */
#include "base/system.h"
#include "memory/mapped/mapped.h"

static inline uint64_t chunk_bytes(const wi_chunk *chunk, const wi_mapped *mapped)
{
    return chunk->count * mapped->granule;
}

static inline uint64_t chunk_start(const wi_chunk *chunk)
{
    return chunk->first * chunk->region->granule;
}

static inline char *chunk_address(const wi_chunk *chunk)
{
    return chunk->region->base + chunk_start(chunk);
}

/* Around calls of the driver: the lock is released in between. */
void wi_chunks_go_to_driver(wi_mapped *mapped)
{
    mapped->working++;
    pthread_mutex_unlock(&mapped->base.lock);
}

void wi_chunks_come_back(wi_mapped *mapped)
{
    pthread_mutex_lock(&mapped->base.lock);
    mapped->working--;
    pthread_cond_broadcast(&mapped->returned);
}

bool wi_chunks_synchronize(wi_mapped *mapped, bool lost, unsigned *waits)
{
    enum { MOST_WAITS = 64 }; /* Other threads may come and go for ever, and a refusal must not wait for all of them. */
    if (++*waits > MOST_WAITS || (mapped->working == 0 && !lost))
        return false;
    if (mapped->working > 0 && wi_alone)
        return lost;
    if (mapped->working > 0)
        pthread_cond_wait(&mapped->returned, &mapped->base.lock);
    return true;
}

/* What there is ---------------------------------------------------------------------------------------------------- */

uint64_t wi_chunks_creatable(wi_mapped *mapped, uint64_t *held)
{
    uint64_t ignored, allocations;
    uint64_t room =
        wi_ledger_room(mapped->base.resource.ledger, held ? held : &ignored, &allocations) / mapped->granule;
    return wi_min(room, mapped->device_has);
}

bool wi_chunks_movable(const wi_chunk *b)
{
    if (b->region->shared->in_order == 0) /* without stream-ordered memory the check is not worth a search */
        return true;
    uint64_t end = chunk_start(b) + b->count * b->region->granule;
    for (const wi_extent *e = wi_region_at(b->region, chunk_start(b)); e && e->offset < end; e = e->next)
        if (!wi_chunk_has_passed(b, e))
            return false;
    return true;
}

uint64_t wi_chunks_obtainable(wi_mapped *mapped, bool later)
{
    uint64_t granules = mapped->spare_granules;
    for (const wi_chunk *b = mapped->shared.idle.first; b; b = b->next)
        granules += later || wi_chunks_movable(b) ? b->count : 0;
    return granules;
}

/* Cargo: chunks that one thread has unmapped or created ------------------------------------------------------------ */

/* Chunks that a thread has taken out of all lists, in order. */
typedef struct cargo {
    wi_chunk *first, **end;
    uint64_t last; /* owner of their bytes; block.h */
} cargo;

static void chunks_load(cargo *c, wi_chunk *b)
{
    b->next = NULL;
    *c->end = b;
    c->end = &b->next;
}

static void chunks_keep_spare(wi_mapped *mapped, cargo *c)
{
    mapped->spare_last = c->first ? wi_owners_mix(mapped->spare_last, c->last) : mapped->spare_last;
    for (wi_chunk *b = c->first, *next; b; b = next) {
        next = b->next;
        b->next = mapped->spare;
        mapped->spare = b;
        mapped->spare_granules += b->count;
    }
    *c = (cargo){.end = &c->first};
}

/* Makes an idle chunk that can be moved, and the extents on it, busy; no stream's order holds for them any more.
 * Records were reserved, WI_RECORDS_PER_CHANGE for each chunk. *before, which may be NULL: a busy extent of this thread
 * that ends where the chunk may begin, which saves a search. */
static wi_extent *chunks_seize(const wi_mapped *mapped, const wi_chunk *b, const wi_extent *before)
{
    wi_region *region = b->region;
    uint64_t start = chunk_start(b), end = start + b->count * region->granule;
    bool adjoins = before && before->region == region && before->offset + before->bytes == start;
    wi_extent *extent = adjoins ? before->next : wi_region_at(region, start);
    if (extent->offset < start)
        extent = wi_region_cut(region, extent, start);
    for (wi_extent *e = extent; e && e->offset < end; e = extent->next) {
        if (e->offset + e->bytes > end)
            wi_region_cut(region, e, end);
        if (e->stream_list) /* the device is past its frees, which the stream list does not know of it yet */
            wi_stream_lists_trace(&mapped->stream_lists, e, e->stream_list->stream);
        wi_region_set(region, e, WI_BUSY);
        e->stream_list = NULL;
        if (e != extent)
            wi_region_merge_busy(region, extent);
    }
    return extent;
}

static void chunks_enter(wi_mapped *mapped, wi_chunk *b, wi_region *region, uint64_t first)
{
    b->before = NULL;
    b->behind = mapped->entered;
    if (b->behind)
        b->behind->before = b;
    mapped->entered = b;
    wi_chunk_enter(b, region, first);
}

static void chunks_leave(wi_mapped *mapped, wi_chunk *b)
{
    atomic_fetch_sub(&mapped->base.sealed, b->sealed); /* unmapping has opened it */
    *(b->before ? &b->before->behind : &mapped->entered) = b->behind;
    if (b->behind)
        b->behind->before = b->before;
    wi_chunk_leave(b);
}

/* A busy chunk was unmapped: its addresses become a hole, and its bytes are spare in the ledger. *last: mixed with the
 * owner of its bytes. */
static void chunks_vacate(wi_mapped *mapped, wi_chunk *b, wi_extent *busy, uint64_t *last)
{
    chunks_leave(mapped, b);
    wi_ledger_unmapped(mapped->base.resource.ledger, chunk_bytes(b, mapped));
    *last = wi_owners_mix(*last, busy->last);
    busy->last = WI_CLEAN;
    wi_region_set(busy->region, busy, WI_HOLE);
    wi_region_join(busy->region, busy);
}

void wi_chunks_dissolve(wi_mapped *mapped, wi_extent *busy)
{
    wi_region *region = busy->region;
    uint64_t end = busy->offset + busy->bytes;
    while (busy) {
        uint64_t g = busy->offset / mapped->granule, edge = (g + 1) * mapped->granule;
        bool backed = region->chunks[g];
        while (edge < end && !!region->chunks[edge / mapped->granule] == backed)
            edge += mapped->granule;
        if (edge < end && wi_extent_pool_reserve(&mapped->shared.pool, 1) != WEIR_OK)
            return; /* Without a record to split it, the rest stays busy: addresses are lost, but no sum is wrong. */
        wi_extent *rest = edge < end ? wi_region_cut(region, busy, edge) : NULL;
        if (!backed)
            busy->stream_list = NULL;
        wi_region_set(region, busy, backed ? WI_FREE : WI_HOLE);
        wi_region_join(region, busy);
        busy = rest;
    }
}

/* Growing ---------------------------------------------------------------------------------------------------------- */

/* The work of one thread on one map plan. */
typedef struct job {
    wi_mapped *mapped;
    const wi_map_plan *plan;
    wi_extent **seized; /* the busy extents of the chunks to be moved, in their order */
    size_t vacated;     /* how many of them are unmapped */
    cargo new, moved;   /* unmapped, and in no list */
    uint64_t created, mapped_granules;
    uint64_t handles_created;
    uint64_t calls; /* of the driver, which the ledger counts */
    uint64_t last;  /* owner of the bytes that were mapped; block.h */
} job;

static weir_status chunks_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of handles");
}

/* Makes records for the chunks to be created: as many of the usual length as fit, and one for the rest. */
static weir_status chunks_prepare_new(job *j, uint64_t granules)
{
    uint64_t usual = j->plan->one                          ? granules
                     : j->plan->region->number == WI_SMALL ? 1
                                                           : wi_map_plan_chunk(j->mapped, granules);
    while (granules > 0) {
        wi_chunk *b = wi_chunk_new();
        if (!b)
            return chunks_no_memory();
        b->count = wi_min(usual, granules);
        granules -= b->count;
        chunks_load(&j->new, b);
    }
    return WEIR_OK;
}

static void chunks_free_records(wi_chunk *b)
{
    for (wi_chunk *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

/* Before the lock is released: makes everything busy that the driver will work on, or takes it into the cargo. The
 * lock is held. */
static weir_status chunks_begin(job *j)
{
    wi_mapped *m = j->mapped;
    const wi_map_plan *g = j->plan;
    uint64_t fresh = g->fresh * m->granule;
    j->seized = calloc(g->taken_count + 1, sizeof(wi_extent *));
    weir_status status = j->seized ? chunks_prepare_new(j, g->fresh) : chunks_no_memory();
    if (status == WEIR_OK)
        status = wi_extent_pool_reserve(&m->shared.pool, 2 * g->taken_count + WI_RECORDS_PER_CHANGE);
    uint64_t got = status == WEIR_OK && fresh ? wi_ledger_hold(m->base.resource.ledger, fresh) : 0;
    if (status == WEIR_OK && got < fresh) {
        if (got)
            wi_ledger_release(m->base.resource.ledger, got);
        status = WEIR_ERR_BUSY;
    }
    if (status != WEIR_OK) {
        chunks_free_records(j->new.first);
        free(j->seized);
        return status;
    }
    for (size_t i = 0; i < g->spare; i++) {
        wi_chunk *b = m->spare;
        m->spare = b->next;
        m->spare_granules -= b->count;
        chunks_load(&j->moved, b);
    }
    j->moved.last = g->spare ? m->spare_last : WI_CLEAN;
    j->new.last = m->fresh_last;
    if (!m->spare)
        m->spare_last = WI_CLEAN;
    size_t i = 0;
    for (const wi_chunk *b = g->taken; b; b = b->chosen, i++)
        j->seized[i] = chunks_seize(m, b, i ? j->seized[i - 1] : NULL);
    return WEIR_OK;
}

wi_extent *wi_chunks_make_busy(const wi_map_plan *plan)
{
    wi_region *region = plan->region;
    wi_extent *extent = plan->first;
    while (extent->offset + extent->bytes <= plan->low)
        extent = extent->next;
    if (plan->low > extent->offset)
        extent = wi_region_cut(region, extent, plan->low);
    for (wi_extent *e = extent; e && e->offset < plan->high; e = extent->next) {
        if (e->offset + e->bytes > plan->high)
            wi_region_cut(region, e, plan->high);
        wi_region_set(region, e, WI_BUSY);
        if (e != extent)
            wi_region_merge_busy(region, extent);
    }
    return extent;
}

static weir_status chunks_create_run(job *j, wi_chunk *first, size_t count)
{
    const wi_resource *r = &j->mapped->base.resource;
    wi_handle *handles = malloc(count * sizeof *handles);
    weir_status status =
        handles ? r->driver->create(r->device, chunk_bytes(first, j->mapped), count, handles) : chunks_no_memory();
    j->calls++;
    for (size_t i = 0; i < count && status == WEIR_OK; i++, first = first->next) {
        first->handle = handles[i];
        j->created += first->count;
        j->handles_created++;
    }
    free(handles);
    return status;
}

static size_t chunks_same_length(const wi_chunk *first)
{
    size_t count = 0;
    for (const wi_chunk *b = first; b && b->count == first->count; b = b->next)
        count++;
    return count;
}

static wi_chunk *chunks_skip(wi_chunk *b, size_t count)
{
    for (; count > 0; count--)
        b = b->next;
    return b;
}

/* Creates the chunks, in runs of equal length. A run is created whole or not at all; chunks that were not created
 * leave the list. */
static weir_status chunks_create_all(job *j)
{
    weir_status status = WEIR_OK;
    wi_chunk **link = &j->new.first;
    while (*link && status == WEIR_OK) {
        size_t count = chunks_same_length(*link);
        status = chunks_create_run(j, *link, count);
        if (status == WEIR_OK)
            for (; count > 0; count--)
                link = &(*link)->next;
    }
    chunks_free_records(*link);
    *link = NULL;
    j->new.end = link;
    return status;
}

static weir_status chunks_unmap_all(job *j)
{
    const wi_resource *r = &j->mapped->base.resource;
    for (wi_chunk *b = j->plan->taken; b; b = b->chosen, j->vacated++) {
        weir_status status = r->driver->unmap(r->device, chunk_address(b), chunk_bytes(b, j->mapped), 1, &b->handle);
        j->calls++;
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* After the lock was taken again: chunks that were unmapped go into the cargo, the others become idle again. */
static void chunks_collect_unmapped(job *j)
{
    size_t i = 0;
    for (wi_chunk *b = j->plan->taken, *next; b; b = next, i++) {
        next = b->chosen;
        if (i < j->vacated) {
            chunks_vacate(j->mapped, b, j->seized[i], &j->moved.last);
            chunks_load(&j->moved, b);
        } else {
            wi_region_set(b->region, j->seized[i], WI_FREE);
            wi_region_join(b->region, j->seized[i]);
        }
    }
}

static weir_status chunks_map_run(job *j, wi_chunk *first, size_t count, uint64_t granule)
{
    const wi_resource *r = &j->mapped->base.resource;
    const wi_chunk *b = first;
    wi_handle *handles = malloc(count * sizeof *handles);
    if (!handles)
        return chunks_no_memory();
    for (size_t i = 0; i < count; i++, b = b->next)
        handles[i] = b->handle;
    char *address = j->plan->region->base + granule * j->mapped->granule;
    weir_status status = r->driver->map(r->device, address, chunk_bytes(first, j->mapped), count, handles);
    j->calls++;
    for (size_t i = 0; i < count; i++, first = first->next)
        first->handle = handles[i];
    free(handles);
    return status;
}

/* Maps the cargo in order, from the start of the hole. */
static weir_status chunks_map_all(job *j, wi_chunk *first)
{
    uint64_t granule = j->plan->hole / j->mapped->granule + j->mapped_granules;
    weir_status status = WEIR_OK;
    while (first && status == WEIR_OK) {
        size_t count = chunks_same_length(first);
        status = chunks_map_run(j, first, count, granule);
        if (status != WEIR_OK)
            break;
        granule += count * first->count;
        j->mapped_granules += count * first->count;
        first = chunks_skip(first, count);
    }
    return status;
}

/* Enters what was mapped under the busy extent. What was not mapped remains in the cargo. */
static void chunks_enter_mapped(job *j, cargo *c, uint64_t *granule)
{
    wi_mapped *m = j->mapped;
    uint64_t end = j->plan->hole / m->granule + j->mapped_granules;
    while (c->first && *granule < end) {
        wi_chunk *b = c->first;
        c->first = b->next;
        chunks_enter(m, b, j->plan->region, *granule);
        wi_ledger_mapped(m->base.resource.ledger, chunk_bytes(b, m));
        *granule += b->count;
    }
    if (!c->first)
        c->end = &c->first;
}

/* The device had less memory than the budget allows. Remembers how much; WEIR_ERR_BUSY: the next plan knows, and may
 * do. */
static weir_status chunks_learn_limit(job *j, uint64_t available)
{
    j->mapped->device_has = wi_growth_device_has(available / j->mapped->granule, j->plan->fresh - j->created);
    return WEIR_ERR_BUSY;
}

/* Fills the cargo: takes spare chunks, creates new ones, unmaps those to be moved. */
static weir_status chunks_gather(job *j)
{
    const wi_resource *r = &j->mapped->base.resource;
    uint64_t available = 0, total;
    wi_chunks_go_to_driver(j->mapped);
    weir_status status = chunks_unmap_all(j);
    if (status == WEIR_OK)
        status = chunks_create_all(j);
    else
        chunks_free_records(j->new.first);
    bool lacking = status == WEIR_ERR_OUT_OF_MEMORY && r->driver->memory(r->device, &available, &total) == WEIR_OK;
    wi_chunks_come_back(j->mapped);
    j->mapped->device_oom_seen |= status == WEIR_ERR_OUT_OF_MEMORY;
    if (lacking)
        status = chunks_learn_limit(j, available);
    if (j->created == 0)
        j->new = (cargo){.end = &j->new.first};
    chunks_collect_unmapped(j);
    wi_ledger_release(j->mapped->base.resource.ledger, (j->plan->fresh - j->created) * j->mapped->granule);
    return status;
}

static weir_status chunks_map_cargo(job *j)
{
    wi_chunks_go_to_driver(j->mapped);
    weir_status status = chunks_map_all(j, j->moved.first);
    if (status == WEIR_OK)
        status = chunks_map_all(j, j->new.first);
    wi_chunks_come_back(j->mapped);
    return status;
}

/* Enters what was mapped, and makes the rest of the cargo spare. */
static void chunks_put_down(job *j)
{
    uint64_t granule = j->plan->hole / j->mapped->granule;
    j->last = j->created ? wi_owners_mix(j->moved.last, j->new.last) : j->moved.last;
    chunks_enter_mapped(j, &j->moved, &granule);
    chunks_enter_mapped(j, &j->new, &granule);
    chunks_keep_spare(j->mapped, &j->moved);
    chunks_keep_spare(j->mapped, &j->new);
    wi_ledger_worked(j->mapped->base.resource.ledger, j->calls, j->handles_created, j->vacated);
    wi_ledger_segments(j->mapped->base.resource.ledger, j->handles_created, 0);
    free(j->seized);
}

/* Follows chunks_begin. Enters the mapped chunks even if not every chunk was mapped. */
static weir_status chunks_work(job *j)
{
    weir_status status = chunks_gather(j);
    if (status == WEIR_OK)
        status = chunks_map_cargo(j);
    chunks_put_down(j);
    return status;
}

weir_status wi_chunks_grow(wi_mapped *mapped, const wi_map_plan *plan, wi_extent **busy)
{
    job j = {.mapped = mapped, .plan = plan};
    j.new.end = &j.new.first;
    j.moved.end = &j.moved.first;
    weir_status status = chunks_begin(&j);
    if (status != WEIR_OK)
        return status;
    wi_extent *target = *busy = wi_chunks_make_busy(plan);
    status = chunks_work(&j);
    target->last = wi_owners_mix(target->last, j.last);
    if (status == WEIR_OK)
        status = wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE);
    if (status != WEIR_OK) {
        wi_chunks_dissolve(mapped, target);
        *busy = NULL;
    }
    return status;
}

/* Chunks that blocks lie on ---------------------------------------------------------------------------------------- */

weir_status wi_chunks_take_away(wi_mapped *mapped, wi_chunk *chunk)
{
    wi_resource *r = &mapped->base.resource;
    wi_chunks_go_to_driver(mapped);
    weir_status status =
        r->driver->unmap(r->device, chunk_address(chunk), chunk_bytes(chunk, mapped), 1, &chunk->handle);
    wi_chunks_come_back(mapped);
    wi_ledger_worked(r->ledger, 1, 0, 0);
    if (status == WEIR_OK)
        chunks_leave(mapped, chunk);
    return status;
}

weir_status wi_chunks_put_back(wi_mapped *mapped, wi_chunk *chunk)
{
    wi_resource *r = &mapped->base.resource;
    wi_chunks_go_to_driver(mapped);
    weir_status status = r->driver->map(r->device, chunk_address(chunk), chunk_bytes(chunk, mapped), 1, &chunk->handle);
    wi_chunks_come_back(mapped);
    wi_ledger_worked(r->ledger, 1, 0, 0);
    if (status == WEIR_OK)
        chunks_enter(mapped, chunk, chunk->region, chunk->first);
    return status;
}

void wi_chunks_give_away(wi_mapped *mapped, wi_chunk *chunk, uint64_t last)
{
    cargo c = {.last = last};
    c.end = &c.first;
    wi_ledger_unmapped(mapped->base.resource.ledger, chunk_bytes(chunk, mapped));
    chunks_load(&c, chunk);
    chunks_keep_spare(mapped, &c);
}

/* Puts a spare chunk of this length in front of the others. */
static bool chunks_find_spare(wi_mapped *m, uint64_t count)
{
    for (wi_chunk **link = &m->spare, *b; (b = *link); link = &b->next)
        if (b->count == count) {
            *link = b->next;
            b->next = m->spare;
            m->spare = b;
            return true;
        }
    return false;
}

/* Plans one chunk for a piece that comes back, as the piece had when it left: otherwise a piece would have more and
 * shorter chunks after each return. Destroys spare chunks of other lengths to make room. False: the room is not
 * enough. */
static bool chunks_plan_one(wi_mapped *m, wi_region *region, uint64_t first, uint64_t count, wi_map_plan *out)
{
    bool enough = m->device_has == UINT64_MAX && wi_chunks_creatable(m, NULL) + m->spare_granules >= count;
    while (enough && m->spare && wi_chunks_creatable(m, NULL) < count && !chunks_find_spare(m, count))
        wi_chunks_drop_spare(m);
    return wi_map_plan_one(m, region, first, count, chunks_find_spare(m, count), out);
}

weir_status wi_chunks_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, uint64_t *last)
{
    wi_map_plan plan;
    bool one = chunks_plan_one(mapped, region, first, count, &plan);
    while (!one && !wi_map_plan_fill(mapped, region, first, count, &plan)) {
        if (!mapped->spare)
            return WEIR_ERR_NO_ROOM;
        wi_chunks_drop_spare(mapped); /* longer than what is missing; the driver has it back, and makes another */
    }
    if (plan.cut) {
        weir_status status = wi_chunks_cut(mapped, plan.cut, plan.cut_at);
        return status == WEIR_OK ? WEIR_ERR_BUSY : status;
    }
    job j = {.mapped = mapped, .plan = &plan};
    j.new.end = &j.new.first;
    j.moved.end = &j.moved.first;
    weir_status status = chunks_begin(&j);
    if (status != WEIR_OK)
        return status;
    status = chunks_work(&j);
    *last = j.last;
    return status;
}

/* Cutting ---------------------------------------------------------------------------------------------------------- */

/* Replaces an unmapped chunk by two, of which the first has `first` granules. On failure b and rest are what could be
 * created, as their counts say. Counts the calls of the driver, and the handles that it has created. */
static weir_status chunks_remake(wi_mapped *m, wi_chunk *b, wi_chunk *rest, uint64_t first, uint64_t *calls,
                                 uint64_t *created)
{
    const wi_resource *r = &m->base.resource;
    wi_chunk *parts[2] = {b, rest};
    r->driver->destroy(r->device, chunk_bytes(b, m), 1, &b->handle);
    ++*calls;
    rest->count = b->count - first;
    rest->first = b->first + first;
    b->count = first;
    for (int i = 0; i < 2; i++) {
        weir_status status = r->driver->create(r->device, chunk_bytes(parts[i], m), 1, &parts[i]->handle);
        ++*calls;
        if (status == WEIR_OK) {
            status = r->driver->map(r->device, chunk_address(parts[i]), chunk_bytes(parts[i], m), 1, &parts[i]->handle);
            ++*calls;
            ++*created;
            if (status != WEIR_OK) {
                r->driver->destroy(r->device, chunk_bytes(parts[i], m), 1, &parts[i]->handle);
                ++*calls;
            }
        }
        if (status != WEIR_OK) {
            for (int k = i; k < 2; k++)
                parts[k]->count = 0;
            return status;
        }
    }
    return WEIR_OK;
}

weir_status wi_chunks_cut(wi_mapped *mapped, wi_chunk *chunk, uint64_t first)
{
    wi_resource *r = &mapped->base.resource;
    wi_chunk *rest = wi_chunk_new(), old = *chunk;
    wi_chunk copy = *chunk; /* is worked on instead of the chunk, which a walk may look at without waiting for this */
    weir_status status =
        rest ? wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE) : chunks_no_memory();
    if (status != WEIR_OK) {
        free(rest);
        return status;
    }
    *rest = (wi_chunk){.region = chunk->region};
    wi_extent *busy = chunks_seize(mapped, chunk, NULL);
    wi_chunks_go_to_driver(mapped);
    status = r->driver->unmap(r->device, chunk_address(&copy), chunk_bytes(&copy, mapped), 1, &copy.handle);
    bool remade = status == WEIR_OK;
    uint64_t calls = 1, created = 0;
    if (remade)
        status = chunks_remake(mapped, &copy, rest, first, &calls, &created);
    wi_chunks_come_back(mapped);
    chunk->count = copy.count;
    chunk->handle = copy.handle;
    wi_ledger_worked(r->ledger, calls, created, 0);
    if (remade) {
        uint64_t lost = (old.count - chunk->count - rest->count) * mapped->granule;
        old.occupied = 1;
        old.before = chunk->before; /* the list may have changed while the lock was released */
        old.behind = chunk->behind;
        chunks_leave(mapped, &old);
        wi_ledger_unmapped(r->ledger, lost);
        wi_ledger_release(r->ledger, lost);
        wi_ledger_segments(r->ledger, (chunk->count > 0) + (rest->count > 0), 1);
        if (chunk->count > 0)
            chunks_enter(mapped, chunk, old.region, old.first);
        else
            free(chunk);
        if (rest->count > 0)
            chunks_enter(mapped, rest, old.region, rest->first);
    }
    if (rest->count == 0)
        free(rest);
    wi_chunks_dissolve(mapped, busy);
    return status;
}

/* Trimming --------------------------------------------------------------------------------------------------------- */

/* Chunks go back to the driver in batches: neighbours in one call, with the lock released. */

enum { MOST_AT_ONCE = 64 };

/* Chunks of one length that a thread has taken out of all lists. Chunks that were mapped are neighbours. */
typedef struct batch {
    wi_chunk *of[MOST_AT_ONCE];
    wi_extent *busy[MOST_AT_ONCE];
    wi_handle handles[MOST_AT_ONCE];
    size_t count;
    bool dropped; /* unmapped and destroyed in one step */
} batch;

static void chunks_add(batch *b, wi_chunk *chunk)
{
    b->handles[b->count] = chunk->handle;
    b->of[b->count++] = chunk;
}

static bool chunks_enough(const wi_mapped *mapped, const wi_chunk *like, size_t count, uint64_t wanted)
{
    return count == MOST_AT_ONCE || count * chunk_bytes(like, mapped) >= wanted;
}

/* Takes destroyed chunks out of the ledger. Returns their bytes. */
static uint64_t chunks_destroy(wi_mapped *mapped, batch *b)
{
    wi_resource *r = &mapped->base.resource;
    uint64_t each = chunk_bytes(b->of[0], mapped), bytes = b->count * each;
    wi_chunks_go_to_driver(mapped);
    if (!b->dropped) {
        r->driver->destroy(r->device, each, b->count, b->handles);
        wi_ledger_driver_call(r->ledger);
    }
    wi_ledger_release(r->ledger, bytes);
    wi_ledger_segments(r->ledger, 0, b->count);
    wi_chunks_come_back(mapped);
    if (mapped->device_has != UINT64_MAX)
        mapped->device_has += bytes / mapped->granule;
    for (size_t i = 0; i < b->count; i++)
        free(b->of[i]);
    return bytes;
}

static uint64_t chunks_destroy_spare(wi_mapped *mapped, uint64_t wanted)
{
    batch b = {.count = 0};
    do {
        wi_chunk *spare = mapped->spare;
        mapped->spare = spare->next;
        mapped->spare_granules -= spare->count;
        chunks_add(&b, spare);
    } while (mapped->spare && mapped->spare->count == b.of[0]->count &&
             !chunks_enough(mapped, b.of[0], b.count, wanted));
    mapped->fresh_last = wi_owners_mix(mapped->fresh_last, mapped->spare_last);
    return chunks_destroy(mapped, &b);
}

void wi_chunks_drop_spare(wi_mapped *mapped)
{
    (void)chunks_destroy_spare(mapped, 1);
}

/* The neighbour of `like` at that granule, if it has the same length and can be destroyed as well; else NULL. */
static wi_chunk *chunks_neighbour(const wi_chunk *like, uint64_t granule)
{
    wi_region *region = like->region;
    wi_chunk *b = granule < region->bytes / region->granule ? region->chunks[granule] : NULL;
    return b && b->occupied == 0 && b->count == like->count && wi_chunks_movable(b) ? b : NULL;
}

/* Collects the chunk that has been idle for longest and can be destroyed, with as many neighbours as are wanted, and
 * makes them busy. False: there is none. */
static bool chunks_collect(wi_mapped *mapped, uint64_t wanted, batch *out)
{
    wi_chunk *first = mapped->shared.idle.first, *more;
    size_t count = 1;
    out->count = 0;
    while (first && !wi_chunks_movable(first))
        first = first->next;
    if (!first || wi_extent_pool_reserve(&mapped->shared.pool, MOST_AT_ONCE * (size_t)WI_RECORDS_PER_CHANGE) != WEIR_OK)
        return false;
    for (; !chunks_enough(mapped, first, count, wanted) && (more = chunks_neighbour(first, first->first - 1)); count++)
        first = more;
    for (more = first; more && !chunks_enough(mapped, first, out->count, wanted);
         more = chunks_neighbour(more, more->first + more->count))
        chunks_add(out, more);
    for (size_t i = 0; i < out->count; i++)
        out->busy[i] = chunks_seize(mapped, out->of[i], i ? out->busy[i - 1] : NULL);
    return out->count > 0;
}

static weir_status chunks_unmap_batch(wi_mapped *mapped, batch *b)
{
    const wi_resource *r = &mapped->base.resource;
    char *address = chunk_address(b->of[0]);
    uint64_t each = chunk_bytes(b->of[0], mapped);
    if (!r->driver->drop)
        return r->driver->unmap(r->device, address, each, b->count, b->handles);
    weir_status status = r->driver->drop(r->device, address, each, b->count, b->handles);
    b->dropped = status == WEIR_OK;
    return status;
}

/* Destroys one batch of idle chunks. Returns the bytes; 0: there are none, or the driver refuses. */
static uint64_t chunks_destroy_idle(wi_mapped *mapped, uint64_t wanted)
{
    uint64_t last = WI_CLEAN;
    batch b = {0};
    if (!chunks_collect(mapped, wanted, &b))
        return 0;
    wi_chunks_go_to_driver(mapped);
    weir_status status = chunks_unmap_batch(mapped, &b);
    wi_ledger_driver_call(mapped->base.resource.ledger);
    wi_chunks_come_back(mapped);
    for (size_t i = 0; i < b.count; i++)
        if (status == WEIR_OK)
            chunks_vacate(mapped, b.of[i], b.busy[i], &last);
        else
            wi_chunks_dissolve(mapped, b.busy[i]);
    mapped->fresh_last = wi_owners_mix(mapped->fresh_last, last);
    return status == WEIR_OK ? chunks_destroy(mapped, &b) : 0;
}

static uint64_t chunks_give_back(wi_mapped *mapped, uint64_t there, uint64_t keep)
{
    return there <= keep   ? 0
           : mapped->spare ? chunks_destroy_spare(mapped, there - keep)
                           : chunks_destroy_idle(mapped, there - keep);
}

uint64_t wi_chunks_trim(wi_mapped *mapped, uint64_t keep)
{
    uint64_t released = 0, given;
    do {
        uint64_t there = mapped->spare_granules * mapped->granule;
        for (int region_number = 0; region_number < WI_REGIONS; region_number++)
            there += mapped->regions[region_number].free_bytes;
        given = chunks_give_back(mapped, there, keep);
        released += given;
    } while (given > 0);
    return released;
}

uint64_t wi_chunks_trim_idle(wi_mapped *mapped, uint64_t keep)
{
    uint64_t released = 0, given;
    do {
        given =
            chunks_give_back(mapped, (mapped->spare_granules + mapped->shared.idle.granules) * mapped->granule, keep);
        released += given;
    } while (given > 0);
    return released;
}
