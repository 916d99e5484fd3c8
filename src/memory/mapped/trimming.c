/* Handles that go back to the driver: those that lie side by side in one call, with the lock released. */
#include "memory/mapped/chunks_driver.h"

enum { MOST_AT_ONCE = 64 };

/* Handles of one length in the hands of a thread; those that were mapped lie side by side. */
typedef struct batch {
    wi_chunk *of[MOST_AT_ONCE];
    wi_extent *busy[MOST_AT_ONCE];
    wi_handle handles[MOST_AT_ONCE];
    size_t count;
} batch;

static void chunks_add(batch *b, wi_chunk *chunk)
{
    b->handles[b->count] = chunk->handle;
    b->of[b->count++] = chunk;
}

static bool chunks_enough(const wi_mapped *mapped, const wi_chunk *like, size_t count, uint64_t wanted)
{
    return count == MOST_AT_ONCE || count * wi_chunk_bytes(like, mapped) >= wanted;
}

/* The handle is the driver's again; answers the bytes. */
static uint64_t chunks_destroy(wi_mapped *mapped, batch *b)
{
    wi_resource *r = &mapped->resource;
    uint64_t each = wi_chunk_bytes(b->of[0], mapped), bytes = b->count * each;
    wi_chunks_go_to_driver(mapped);
    r->driver->destroy(r->device, each, b->count, b->handles);
    wi_ledger_driver_call(r->ledger);
    wi_ledger_release(r->ledger, bytes);
    wi_ledger_segments(r->ledger, 0, b->count);
    wi_chunks_come_back(mapped);
    if (mapped->device_has != UINT64_MAX)
        mapped->device_has += bytes / mapped->granule;
    for (size_t i = 0; i < b->count; i++)
        free(b->of[i]);
    return bytes;
}

static uint64_t destroy_spare(wi_mapped *mapped, uint64_t wanted)
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
    (void)destroy_spare(mapped, 1);
}

/* The handle there, if it can be had as well as `like` and is as long. */
static wi_chunk *chunks_neighbour(const wi_chunk *like, uint64_t granule)
{
    wi_region *region = like->region;
    wi_chunk *b = granule < region->bytes / region->granule ? region->chunks[granule] : NULL;
    return b && b->occupied == 0 && b->count == like->count && wi_chunks_movable(b) ? b : NULL;
}

/* The longest idle handle that can be had, and as many beside it as are wanted, busy now; false: there is none. */
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
        out->busy[i] = wi_chunks_seize(out->of[i], i ? out->busy[i - 1] : NULL);
    return out->count > 0;
}

/* 0: none can be had, or the driver keeps them. */
static uint64_t destroy_idle(wi_mapped *mapped, uint64_t wanted)
{
    wi_resource *r = &mapped->resource;
    uint64_t last = WI_CLEAN;
    batch b = {0};
    if (!chunks_collect(mapped, wanted, &b))
        return 0;
    wi_chunks_go_to_driver(mapped);
    weir_status status =
        r->driver->unmap(r->device, wi_chunk_address(b.of[0]), wi_chunk_bytes(b.of[0], mapped), b.count, b.handles);
    wi_ledger_driver_call(r->ledger);
    wi_chunks_come_back(mapped);
    for (size_t i = 0; i < b.count; i++)
        if (status == WEIR_OK)
            wi_chunks_vacate(mapped, b.of[i], b.busy[i], &last);
        else
            wi_chunks_dissolve(mapped, b.busy[i]);
    mapped->fresh_last = wi_owners_mix(mapped->fresh_last, last);
    return status == WEIR_OK ? chunks_destroy(mapped, &b) : 0;
}

static uint64_t chunks_give(wi_mapped *mapped, uint64_t there, uint64_t keep)
{
    return there <= keep ? 0 : mapped->spare ? destroy_spare(mapped, there - keep) : destroy_idle(mapped, there - keep);
}

uint64_t wi_chunks_trim(wi_mapped *mapped, uint64_t keep)
{
    uint64_t released = 0, given;
    do {
        uint64_t there = mapped->spare_granules * mapped->granule;
        for (int region_number = 0; region_number < WI_REGIONS; region_number++)
            there += mapped->regions[region_number].free_bytes;
        given = chunks_give(mapped, there, keep);
        released += given;
    } while (given > 0);
    return released;
}

uint64_t wi_chunks_trim_idle(wi_mapped *mapped, uint64_t keep)
{
    uint64_t released = 0, given;
    do {
        given = chunks_give(mapped, (mapped->spare_granules + mapped->shared.idle.granules) * mapped->granule, keep);
        released += given;
    } while (given > 0);
    return released;
}
