#include "core/could.h"
#include "core/toy.h"

#include <stdlib.h>

/* How the memory of an extent stands to the request. */
typedef enum stance {
    NEUTRAL, /* anyone's, or no memory at all */
    OURS,    /* for the request's stream alone: it can be used where it is, and cannot be moved */
    BLOCKED
} stance;

static stance stance_of(const wi_extent *e, const question *q)
{
    switch (e->kind) {
    case WI_HOLE:
        return NEUTRAL;
    case WI_FREE:
        return !e->stream_list || q->waits                                 ? NEUTRAL
               : q->stream.id && e->stream_list->stream.id == q->stream.id ? OURS
                                                                           : BLOCKED;
    case WI_USED:
        return q->waits && wi_block_phase_of(&e->block) == WI_PENDING ? NEUTRAL : BLOCKED;
    default:
        return BLOCKED;
    }
}

/* A space as two lists of sums: of the units that are blocked, and of the granules that cost, before each. */
typedef struct picture {
    uint64_t units, granules; /* behind them there are addresses alone */
    uint32_t *blocked, *cost;
    unsigned char *stances; /* by unit */
} picture;

static uint64_t sum(const uint32_t *sums, uint64_t count, uint64_t i, bool beyond_counts)
{
    return i <= count ? sums[i] : sums[count] + (beyond_counts ? i - count : 0);
}

static void draw_units(const wi_region *region, const question *q, picture *p)
{
    uint64_t top = 0;
    for (const wi_extent *e = region->first; e; e = e->next)
        if (e->kind != WI_HOLE)
            top = e->offset + e->bytes;
    p->granules = (top + region->granule - 1) / region->granule;
    p->units = p->granules * region->granule / WI_UNIT;
    p->stances = calloc(p->units + 1, 1);
    p->blocked = calloc(p->units + 1, sizeof *p->blocked);
    p->cost = calloc(p->granules + 1, sizeof *p->cost);
    for (const wi_extent *e = region->first; e && e->offset < top; e = e->next)
        for (uint64_t u = e->offset / WI_UNIT; u < (e->offset + e->bytes) / WI_UNIT && u < p->units; u++)
            p->stances[u] = (unsigned char)stance_of(e, q);
    for (uint64_t u = 0; u < p->units; u++)
        p->blocked[u + 1] = p->blocked[u] + (p->stances[u] == BLOCKED);
}

static bool is_neutral(const picture *p, uint64_t granule, uint64_t units)
{
    for (uint64_t u = granule * units; u < (granule + 1) * units; u++)
        if (p->stances[u] != NEUTRAL)
            return false;
    return true;
}

/* Answers how many granules are held down. */
static uint64_t draw(const wi_region *region, const question *q, picture *p)
{
    uint64_t units = region->granule / WI_UNIT, held_down = 0;
    draw_units(region, q, p);
    for (uint64_t g = 0, next; g < p->granules; g = next) {
        const toy_handle *handle = toy_handle_at(region->base + g * region->granule);
        bool free = true;
        next = g + (handle ? handle->granules : 1);
        for (uint64_t i = g; i < next; i++)
            free = free && is_neutral(p, i, units);
        for (uint64_t i = g; i < next; i++)
            p->cost[i + 1] = p->cost[i] + free;
        held_down += free ? 0 : next - g;
    }
    return held_down;
}

static void erase(picture *p)
{
    free(p->stances);
    free(p->blocked);
    free(p->cost);
}

uint64_t could_not_be_moved(wi_mapped *mapped, const question *q)
{
    uint64_t held_down = 0;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        picture p;
        held_down += draw(&mapped->regions[region_number], q, &p);
        erase(&p);
    }
    return held_down;
}

static uint64_t to_be_had(wi_mapped *mapped, const question *q)
{
    return wi_min(q->budget / mapped->granule, the_toy.capacity) - could_not_be_moved(mapped, q);
}

static bool stands(const wi_region *region, const picture *p, const question *q, uint64_t unit, uint64_t granules)
{
    uint64_t end = unit + q->bytes / WI_UNIT;
    if (end * WI_UNIT > region->bytes ||
        sum(p->blocked, p->units, unit, false) != sum(p->blocked, p->units, end, false))
        return false;
    uint64_t low = unit * WI_UNIT / region->granule, high = (end * WI_UNIT + region->granule - 1) / region->granule;
    return sum(p->cost, p->granules, high, true) - sum(p->cost, p->granules, low, true) <= granules;
}

bool could_place(wi_mapped *mapped, const question *q)
{
    uint64_t granules = to_be_had(mapped, q);
    bool could = false;
    for (int region_number = 0; region_number < WI_REGIONS && !could; region_number++) {
        const wi_region *region = &mapped->regions[region_number];
        picture p;
        (void)draw(region, q, &p);
        for (uint64_t u = 0; u < p.units + (q->alignment + region->granule) / WI_UNIT && !could; u++)
            could = u % (q->alignment / WI_UNIT) == 0 && stands(region, &p, q, u, granules);
        erase(&p);
    }
    return could;
}

bool could_extend(wi_mapped *mapped, const question *q, const void *end)
{
    uint64_t granules = to_be_had(mapped, q);
    bool could = false;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        const wi_region *region = &mapped->regions[region_number];
        if (!wi_region_holds(region, (const char *)end - 1))
            continue;
        picture p;
        (void)draw(region, q, &p);
        could = stands(region, &p, q, (uint64_t)((const char *)end - region->base) / WI_UNIT, granules);
        erase(&p);
    }
    return could;
}
