/* Chunks: the granules that a chunk covers, and how much of the chunk is in use. */
#include "memory/space/chunks.h"
#include "memory/space/extents.h"
#include "memory/ledger/ledger.h"

static void chunk_enlist(wi_chunk *chunk)
{
    wi_idle *idle = &chunk->region->shared->idle;
    chunk->previous = idle->last;
    chunk->next = NULL;
    chunk->idle_since = idle->clock;
    *(idle->last ? &idle->last->next : &idle->first) = chunk;
    idle->last = chunk;
    idle->granules += chunk->count;
}

static void chunk_delist(wi_chunk *chunk)
{
    wi_idle *idle = &chunk->region->shared->idle;
    *(chunk->previous ? &chunk->previous->next : &idle->first) = chunk->next;
    *(chunk->next ? &chunk->next->previous : &idle->last) = chunk->previous;
    idle->granules -= chunk->count;
}

wi_chunk *wi_chunk_new(void)
{
    wi_chunk *chunk = aligned_alloc(WI_LINE, wi_round_up(sizeof *chunk, WI_LINE));
    if (chunk)
        memset(chunk, 0, sizeof *chunk);
    return chunk;
}

void wi_chunk_enter(wi_chunk *chunk, wi_region *region, uint64_t first)
{
    chunk->region = region;
    chunk->first = first;
    chunk->bytes = wi_min(chunk->count * region->granule, region->bytes - first * region->granule);
    chunk->occupied = chunk->bytes;
    chunk->sealed = chunk->written = false;
    for (uint64_t g = first; g < first + chunk->count; g++) {
        wi_assert(!region->chunks[g]);
        region->chunks[g] = chunk;
    }
}

void wi_chunk_leave(wi_chunk *chunk)
{
    wi_assert(chunk->occupied > 0); /* it was busy */
    for (uint64_t g = chunk->first; g < chunk->first + chunk->count; g++)
        chunk->region->chunks[g] = NULL;
}

static void chunk_count_split(wi_idle *idle, uint64_t before, uint64_t now)
{
    if (now > before) {
        wi_gauge_up(&idle->split, now - before);
        if (before == 0) {
            wi_gauge_up(&idle->split_segments, 1);
            idle->most_partly = wi_max(idle->most_partly, idle->split_segments.current);
        }
    } else if (now < before) {
        wi_gauge_down(&idle->split, before - now);
        if (now == 0)
            wi_gauge_down(&idle->split_segments, 1);
    }
}

/* Split bytes of a chunk: unused, but the chunk cannot be given back, as part of it is used. */
static uint64_t chunk_split_bytes(const wi_chunk *chunk, uint64_t occupied)
{
    return occupied > 0 ? chunk->bytes - occupied : 0;
}

static void chunk_change(wi_chunk *chunk, uint64_t bytes, bool in_use)
{
    wi_idle *idle = &chunk->region->shared->idle;
    uint64_t before = chunk->occupied, after = in_use ? before + bytes : before - bytes;
    wi_assert(after <= chunk->bytes);
    if (before == 0)
        chunk_delist(chunk);
    chunk->occupied = after;
    chunk_count_split(idle, chunk_split_bytes(chunk, before), chunk_split_bytes(chunk, after));
    if (after == 0)
        chunk_enlist(chunk);
}

/* Where the bytes lie on several chunks, or not all of them on one. Apart, as most blocks lie on one chunk. */
static __attribute__((noinline)) void chunk_use_each(wi_region *region, uint64_t offset, uint64_t end, bool in_use)
{
    while (offset < end) {
        wi_chunk *chunk = region->chunks[offset / region->granule];
        uint64_t behind = chunk ? chunk->first + chunk->count : offset / region->granule + 1;
        uint64_t next = wi_min(end, behind * region->granule);
        if (next < end)
            __builtin_prefetch(region->chunks[behind]);
        if (chunk)
            chunk_change(chunk, next - offset, in_use);
        offset = next;
    }
}

void wi_chunk_use(wi_region *region, uint64_t offset, uint64_t bytes, bool in_use)
{
    wi_chunk *chunk = bytes > 0 ? region->chunks[offset / region->granule] : NULL;
    if (wi_likely(chunk) && wi_likely(offset + bytes <= (chunk->first + chunk->count) * region->granule))
        chunk_change(chunk, bytes, in_use);
    else
        chunk_use_each(region, offset, offset + bytes, in_use);
}
