/* Map plans: where a block that fits nowhere can stand, and which chunks are mapped there.
 *
 * A candidate is a hole with the free memory beside it: extending free memory keeps it in one piece, which matters most
 * here. The candidate that lacks the fewest granules is chosen. New chunks are created as far as the growth policy
 * allows. Beyond that, idle chunks are moved, longest idle first; but the smallest chunk that covers all missing
 * granules comes before several chunks. */
#include "memory/mapped/mapped.h"

/* What the growth policy decides by. */
static wi_growth_view plan_view(wi_mapped *m)
{
    wi_growth_view view = {.granule = m->granule,
                           .in_use = m->shared.in_use - m->away_bytes,
                           .peak_in_use = m->shared.peak_in_use,
                           .most_partly = m->shared.idle.most_partly,
                           .stream_lists = m->shared.stream_lists};
    view.creatable = wi_chunks_creatable(m, &view.held);
    return view;
}

uint64_t wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh)
{
    wi_growth_view view = plan_view((wi_mapped *)mapped);
    return region == WI_SMALL        ? 1
           : region == WI_LONG_LIVED ? wi_growth_long_chunk(&view, fresh)
                                     : wi_growth_chunk(&view, fresh);
}

static void plan_earn(wi_mapped *m)
{
    uint64_t held, allocations;
    (void)wi_ledger_room(m->base.resource.ledger, &held, &allocations);
    wi_growth_earn(&m->policy, allocations);
}

/* Candidates ------------------------------------------------------------------------------------------------------- */

typedef struct candidates {
    wi_map_plan *at;
    size_t count;
} candidates;

/* A hole with the free memory on both sides, as far as the request may use it. */
typedef struct gap {
    wi_extent *first; /* the leftmost of these extents */
    wi_extent *hole;
    uint64_t low, hole_low, hole_high, high;
} gap;

static gap gap_at(wi_extent *hole, const wi_stream_list *stream_list)
{
    gap g = {.first = hole, .hole = hole, .low = hole->offset, .hole_low = hole->offset};
    g.hole_high = g.high = hole->offset + hole->bytes;
    while (g.first->previous && g.first->previous->kind == WI_FREE && wi_vacant(g.first->previous, stream_list)) {
        g.first = g.first->previous;
        g.low = g.first->offset;
    }
    for (const wi_extent *e = hole->next; e && e->kind == WI_FREE && wi_vacant(e, stream_list); e = e->next)
        g.high = e->offset + e->bytes;
    return g;
}

static wi_map_plan plan_candidate(const wi_mapped *m, wi_region *region, const gap *g, uint64_t start, uint64_t bytes)
{
    (void)m;
    return (wi_map_plan){.region = region,
                         .first = g->first,
                         .start = start,
                         .low = start,
                         .high = start + bytes,
                         .run_low = g->low,
                         .run_high = g->high};
}

/* A candidate that begins in the free memory on the left and goes on into the hole, or through it into the free memory
 * behind it. */
static bool plan_rightward(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                           wi_map_plan *out)
{
    uint64_t granule = m->granule, start = wi_round_up(g->low, want->alignment), end = start + want->bytes;
    if (start >= g->hole_high || end > g->high || end <= g->hole_low)
        return false;
    *out = plan_candidate(m, region, g, start, want->bytes);
    out->hole = wi_max(g->hole_low, start); /* behind hole_low only an alignment of whole granules has put it */
    out->low = wi_min(start, out->hole);
    out->exact = end > g->hole_high;
    uint64_t filled = out->exact ? g->hole_high : wi_round_up(end, granule);
    out->missing = (filled - out->hole) / granule;
    out->room = out->exact ? out->missing : (g->hole_high - out->hole) / granule;
    return true;
}

/* A candidate that ends in the free memory on the right and begins in the hole. */
static bool plan_leftward(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                          wi_map_plan *out)
{
    uint64_t granule = m->granule;
    if (g->high == g->hole_high || want->bytes > g->high - g->hole_low)
        return false;
    uint64_t start = (g->high - want->bytes) & ~(want->alignment - 1);
    if (start < g->hole_low || start >= g->hole_high || start + want->bytes <= g->hole_high)
        return false;
    *out = plan_candidate(m, region, g, start, want->bytes);
    out->leftward = true;
    out->first = g->hole;
    out->hole = start & ~(granule - 1);
    out->low = out->hole;
    out->missing = (g->hole_high - out->hole) / granule;
    out->room = (g->hole_high - g->hole_low) / granule;
    return true;
}

/* A candidate with a guard page: the block ends at the end of its memory, and the granule behind it stays unmapped; so
 * does the granule before the block, unless the hole is at the beginning of the region. */
static bool plan_guard_page(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                            wi_map_plan *out)
{
    uint64_t granule = m->granule, before = g->hole->previous ? granule : 0;
    uint64_t start = wi_round_up(g->hole_low + before, want->alignment),
             high = wi_round_up(start + want->bytes, granule);
    if (high + granule > g->hole_high)
        return false;
    start =
        (high - want->bytes) & ~(want->alignment - 1); /* ends at the edge, or as near to it as the alignment allows */
    gap hole_alone = *g;
    hole_alone.first = g->hole;
    *out = plan_candidate(m, region, &hole_alone, start, want->bytes);
    out->low = out->hole = start & ~(granule - 1);
    out->high = high;
    out->missing = out->room = (high - out->hole) / granule;
    out->exact = true;
    return true;
}

/* The order of candidates: fewest missing granules; extending free memory before a new run; lowest address. */
static int plan_better(const void *a, const void *b)
{
    const wi_map_plan *x = a, *y = b;
    if (x->missing != y->missing)
        return x->missing < y->missing ? -1 : 1;
    bool anew_x = x->run_low == x->hole && !x->leftward, anew_y = y->run_low == y->hole && !y->leftward;
    if (anew_x != anew_y)
        return anew_x ? 1 : -1;
    return (x->start > y->start) - (x->start < y->start);
}

static weir_status plan_find_candidates(const wi_mapped *m, wi_region *region, const wi_fit_request *want,
                                        candidates *out)
{
    size_t holes = 0;
    for (const wi_extent *hole = region->holes.first; hole; hole = hole->list_next)
        holes++;
    *out = (candidates){malloc((2 * holes + 1) * sizeof *out->at), 0};
    if (!out->at)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for a place");
    for (wi_extent *hole = region->holes.first; hole; hole = hole->list_next) {
        gap g = gap_at(hole, want->stream_list);
        if (want->guard_page) {
            out->count += plan_guard_page(m, region, &g, want, &out->at[out->count]);
            continue;
        }
        out->count += plan_rightward(m, region, &g, want, &out->at[out->count]);
        out->count += plan_leftward(m, region, &g, want, &out->at[out->count]);
    }
    for (size_t i = 0; i < out->count && region->number == WI_SMALL; i++) {
        out->at[i].room = out->at[i].missing; /* without room for more: no long chunk is moved for small blocks */
        out->at[i].exact = true;
    }
    qsort(out->at, out->count, sizeof *out->at, plan_better);
    return WEIR_OK;
}

/* Memory for a plan ------------------------------------------------------------------------------------------------ */

static bool plan_beside(const wi_chunk *b, const wi_map_plan *g)
{
    uint64_t granule = g->region->granule;
    return b->region == g->region && b->first * granule < g->run_high && (b->first + b->count) * granule > g->run_low;
}

/* Whether the chunk can be moved. The answer is kept for the search, as nothing moves during it. */
static bool plan_movable(const wi_mapped *m, wi_chunk *b)
{
    if (b->looked != m->looks)
        b->movable = wi_chunks_movable(b);
    b->looked = m->looks;
    return b->movable;
}

static bool plan_choosable(const wi_mapped *m, wi_chunk *b, const wi_map_plan *g)
{
    return b->plan != m->plans && !plan_beside(b, g) && plan_movable(m, b);
}

/* The chunk to move next when `rest` granules are missing and there is room for `room`; NULL: none can be moved. */
static wi_chunk *plan_next_chunk(const wi_mapped *m, const wi_map_plan *g, uint64_t rest, uint64_t room)
{
    wi_chunk *covering = NULL, *oldest = NULL;
    for (wi_chunk *b = m->shared.idle.first; b; b = b->next) {
        bool covers = b->count >= rest && (!covering || b->count < covering->count);
        if (b->count > room || (!covers && oldest) || !plan_choosable(m, b, g))
            continue; /* it would not be chosen: saves the search whether it can be moved */
        if (covers)
            covering = b;
        if (!oldest)
            oldest = b;
    }
    return covering ? covering : oldest;
}

/* The smallest chunk longer than what is missing, which is split for it; NULL: there is none. */
static wi_chunk *plan_chunk_to_split(const wi_mapped *m, const wi_map_plan *g, uint64_t rest)
{
    wi_chunk *smallest = NULL;
    for (wi_chunk *b = m->shared.idle.first; b; b = b->next)
        if (b->count > rest && (!smallest || b->count < smallest->count) && plan_choosable(m, b, g))
            smallest = b;
    return smallest;
}

static void plan_choose(wi_mapped *m, wi_map_plan *g, wi_chunk *b, wi_chunk ***end)
{
    b->plan = m->plans;
    b->chosen = NULL;
    **end = b;
    *end = &b->chosen;
    g->taken_count++;
}

/* Compares two spare chunks where `rest` granules are missing: the longest chunk up to that length fits best, or else
 * the shortest of the longer chunks. */
static bool plan_fits_better(uint64_t count, uint64_t than, uint64_t rest)
{
    return count <= rest ? than > rest || count > than : than > rest && count < than;
}

/* Puts the spare chunk that fits best, and in the room, behind the first `taken` of their list. NULL: none fits. */
static const wi_chunk *plan_bring_spare(wi_mapped *m, size_t taken, uint64_t rest, uint64_t room)
{
    wi_chunk **place = &m->spare, **best = NULL;
    for (; taken > 0; taken--)
        place = &(*place)->next;
    for (wi_chunk **link = place; *link; link = &(*link)->next)
        if ((*link)->count <= room && (!best || plan_fits_better((*link)->count, (*best)->count, rest)))
            best = link;
    if (!best)
        return NULL;
    wi_chunk *b = *best;
    *best = b->next;
    b->next = *place;
    *place = b;
    return b;
}

/* Takes spare chunks into the plan; returns their granules. A long-lived block has no longer chunk than it lacks where
 * one may be created instead: the next model would lie on the rest, and neither could leave with that chunk. */
static uint64_t plan_take_spare(wi_mapped *m, wi_map_plan *g, uint64_t freely)
{
    uint64_t had = 0;
    const wi_chunk *s;
    for (; had < g->missing; g->spare++, had += s->count) {
        uint64_t rest = g->missing - had, room = g->room - had;
        bool exact = g->region->number == WI_LONG_LIVED && rest <= freely;
        s = plan_bring_spare(m, g->spare, rest, exact ? wi_min(rest, room) : room);
        if (!s)
            break;
    }
    return had;
}

bool wi_map_plan_supply(wi_mapped *m, wi_map_plan *g, uint64_t freely, uint64_t most, bool may_cut)
{
    wi_chunk **end = &g->taken;
    g->spare = g->taken_count = 0;
    g->taken = NULL;
    g->cut = NULL;
    m->plans++;
    uint64_t had = plan_take_spare(m, g, freely);
    g->fresh = wi_min(freely, g->missing - wi_min(had, g->missing));
    had += g->fresh;
    while (had < g->missing) {
        wi_chunk *b = plan_next_chunk(m, g, g->missing - had, g->room - had);
        if (!b && may_cut && (g->cut = plan_chunk_to_split(m, g, g->missing - had))) {
            g->cut_at = g->missing - had;
            return true;
        }
        if (!b && g->fresh + g->missing - had > most)
            return false;
        if (b)
            plan_choose(m, g, b, &end);
        else
            g->fresh += g->missing - had;
        had = b ? had + b->count : g->missing;
    }
    uint64_t surplus = wi_min(had - g->missing, g->fresh);
    g->fresh -= surplus;
    had -= surplus;
    if (g->leftward)
        g->low = g->hole = g->hole - (had - g->missing) * m->granule;
    else
        g->high = wi_max(g->high, g->hole + had * m->granule);
    g->missing = had;
    return true;
}

/* The first candidate for which `creatable` new granules are enough. */
static bool plan_try_candidates(wi_mapped *m, const candidates *all, uint64_t creatable, bool may_cut, wi_map_plan *out)
{
    for (size_t i = 0; i < all->count; i++) {
        *out = all->at[i];
        if (wi_map_plan_supply(m, out, creatable, creatable, may_cut))
            return true;
    }
    return false;
}

/* The candidate that needs the fewest new granules beyond `freely`, if as many idle chunks are moved as can be. */
static bool plan_find_fewest_new(wi_mapped *m, const candidates *all, uint64_t freely, uint64_t most, wi_map_plan *out)
{
    uint64_t fewest = UINT64_MAX;
    size_t best = 0;
    for (size_t i = 0; i < all->count; i++) {
        *out = all->at[i];
        if (wi_map_plan_supply(m, out, freely, most, false) && out->fresh < fewest) {
            fewest = out->fresh;
            best = i;
        }
    }
    if (fewest == UINT64_MAX)
        return false;
    *out = all->at[best];
    return wi_map_plan_supply(m, out, freely, most,
                              false); /* again, as the marks on the chunks are those of the last candidate tried */
}

static bool plan_find(wi_mapped *m, const candidates *all, const wi_fit_request *want, wi_map_plan *out)
{
    m->looks++;
    uint64_t creatable = wi_chunks_creatable(m, NULL);
    wi_growth_view view = plan_view(m);
    uint64_t freely = wi_min(wi_growth_soft_limit(&m->policy, &view, want->bytes), creatable);
    bool found = plan_try_candidates(m, all, freely, false, out) ||
                 (freely < creatable && plan_find_fewest_new(m, all, freely, creatable, out)) ||
                 plan_try_candidates(m, all, creatable, true, out);
    out->over_soft_limit = found && !out->cut && out->fresh > freely;
    return found;
}

static void plan_pay(wi_mapped *m, const wi_map_plan *g)
{
    if (g->taken_count > 0)
        wi_growth_pay(&m->policy);
}

weir_status wi_map_plan_make(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *out)
{
    candidates all;
    weir_status status = plan_find_candidates(mapped, region, want, &all);
    plan_earn(mapped);
    if (status == WEIR_OK && !plan_find(mapped, &all, want, out))
        status = WEIR_ERR_NO_ROOM;
    if (status == WEIR_OK && !(want->soft_limit && out->over_soft_limit))
        plan_pay(mapped, out);
    free(all.at);
    return status;
}

static wi_map_plan plan_of_granules(const wi_mapped *m, wi_region *region, uint64_t first, uint64_t count)
{
    uint64_t low = first * m->granule, high = low + count * m->granule;
    return (wi_map_plan){.region = region,
                         .start = low,
                         .low = low,
                         .high = high,
                         .hole = low,
                         .missing = count,
                         .room = count,
                         .exact = true,
                         .run_low = low,
                         .run_high = high};
}

bool wi_map_plan_one(wi_mapped *m, wi_region *region, uint64_t first, uint64_t count, bool spare, wi_map_plan *out)
{
    *out = plan_of_granules(m, region, first, count);
    out->spare = spare;
    out->fresh = spare ? 0 : count;
    out->one = true;
    return spare || wi_chunks_creatable(m, NULL) >= count;
}

bool wi_map_plan_fill(wi_mapped *m, wi_region *region, uint64_t first, uint64_t count, wi_map_plan *out)
{
    uint64_t creatable = wi_chunks_creatable(m, NULL);
    *out = plan_of_granules(m, region, first, count);
    m->looks++;
    return wi_map_plan_supply(m, out, creatable, creatable, true);
}

weir_status wi_map_plan_behind(wi_mapped *mapped, wi_extent *used, uint64_t more, wi_map_plan *out)
{
    wi_extent *free_part = used->next && used->next->kind == WI_FREE ? used->next : NULL;
    wi_extent *hole = free_part ? free_part->next : used->next;
    const wi_fit_request want = {.bytes = more, .alignment = WI_UNIT};
    if ((free_part && free_part->stream_list) || !hole || hole->kind != WI_HOLE)
        return WEIR_ERR_NO_ROOM;
    gap g = gap_at(hole, NULL);
    wi_map_plan *base = malloc(sizeof *base);
    if (!base)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for a place");
    weir_status status = plan_rightward(mapped, used->region, &g, &want, base) ? WEIR_OK : WEIR_ERR_NO_ROOM;
    if (status == WEIR_OK && !plan_find(mapped, &(candidates){base, 1}, &want, out))
        status = WEIR_ERR_OUT_OF_MEMORY;
    free(base);
    return status;
}
