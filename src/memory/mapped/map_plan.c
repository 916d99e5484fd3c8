/* Where a block that fits nowhere can stand, and what has to be put there: the base is chosen so that the least memory is
 * missing, and the means so that as few handles as possible are moved.
 *
 * A base is free memory with a hole beside it: extending what is there keeps the memory in one piece, which is worth more
 * than anything else here. New handles are made as far as the budget allows. Beyond it, idle handles are moved from
 * elsewhere, the longest idle first; but one that covers all that is missing, and the smallest such one, before several. */
#include "memory/mapped/mapped.h"

/* The length of handles: each block that shares one with a neighbour strands half of it, so that handles of a fixed share of
 * the budget bound the waste (half of ten of them, at 1/512, is a hundredth), while longer ones mean fewer moves and calls of
 * the driver, whose cost does not depend on the length (measured on an H200, up to 64 MiB: creating 8 to 11 us, mapping 22 to
 * 30, unmapping 14 to 19, releasing 10 to 25). The more blocks share handles, the shorter they are made, but up to that share
 * not so short that what is put somewhere at once is made of more than so many parts. Where the budget is far away, what is
 * stranded matters little. */
enum { SHARE = 512, SHARED_SHARE = 35, SHARED_BY_ORDERS = 50, FAR_SHARE = 64, PARTS = 64 };
#define LONGEST (64 * WI_MIB)

/* Where the budget is far away, more is created only up to a little above what was ever in use; then idle handles are moved
 * as long as that is rare: each allocation earns a little credit, and a batch of moves costs some, in 1/2000 of a batch. Where
 * it is not, more is created up to a bound; and beyond it, a percent for each 1024 of strain, where as many as one allocation in
 * 16 moves, as there each of them would, forever. */
enum {
    FAR = 4,
    SLACK_PERCENT = 3,
    MOST_PERCENT = 9,
    EARNED = 1,
    COST = 2000,
    FIRST_CREDIT = 48000,
    MOST_CREDIT = 256000,
    STRAINED = 16,
    STRAIN_OF_A_PERCENT = 1024,
    MOST_STRAIN = 100 * STRAIN_OF_A_PERCENT
};

static uint64_t plan_reach(const wi_mapped *m, uint64_t bytes, uint64_t held)
{
    return wi_max(held, wi_max(m->shared.peak_in_use, m->shared.in_use + bytes));
}

static uint64_t budget_of(wi_mapped *m, uint64_t *held)
{
    uint64_t creatable = wi_chunks_creatable(m, held);
    return *held + creatable * m->granule;
}

uint64_t wi_map_plan_chunk(const wi_mapped *mapped, uint64_t fresh)
{
    wi_mapped *m = (wi_mapped *)mapped;
    bool thread_bound = m->shared.stream_lists <= 1; /* else what is stranded is often stranded for one order alone */
    uint64_t held, budget = budget_of(m, &held), most = plan_reach(m, 0, held),
                   bytes = most / (thread_bound ? FAR_SHARE : SHARE);
    if (budget < FAR * most) { /* it counts, and the more blocks share handles, the more of it they strand */
        uint64_t share = thread_bound ? SHARED_SHARE : SHARED_BY_ORDERS;
        bytes = wi_min(budget / SHARE, budget / (share * (1 + m->shared.idle.most_partly)));
    }
    if (thread_bound)
        bytes = wi_max(bytes, wi_min(fresh * m->granule / PARTS, budget / SHARE));
    return wi_max(wi_min(bytes, LONGEST) / m->granule, 1);
}

void wi_map_plan_begin(wi_mapped *mapped)
{
    mapped->move_tokens = FIRST_CREDIT;
}

static void plan_earn(wi_mapped *m)
{
    uint64_t held, allocations;
    (void)wi_ledger_room(m->resource.ledger, &held, &allocations);
    uint64_t since = allocations - m->credited;
    m->move_tokens = wi_min(m->move_tokens + EARNED * since, MOST_CREDIT);
    m->excess_moves -= wi_min(m->excess_moves, since);
    m->credited = allocations;
}

/* Granules that may be created for the request without a thought. */
static uint64_t plan_allowed(wi_mapped *m, uint64_t bytes)
{
    uint64_t held, creatable = wi_chunks_creatable(m, &held), basis = plan_reach(m, bytes, 0);
    if (held + creatable * m->granule < FAR * wi_max(basis, held))
        return creatable;
    uint64_t percent = m->move_tokens < COST ? MOST_PERCENT + m->excess_moves / STRAIN_OF_A_PERCENT : SLACK_PERCENT;
    uint64_t most = basis + basis * percent / 100;
    return most > held ? wi_min(creatable, (most - held + m->granule - 1) / m->granule) : 0;
}

/* Bases ------------------------------------------------------------------------------------------------------------ */

typedef struct bases {
    wi_map_plan *at;
    size_t count;
} bases;

/* A hole, and the free memory on both sides of it that the stream list may have. */
typedef struct gap {
    wi_extent *first; /* the leftmost extent of all that */
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

static wi_map_plan plan_base_of(const wi_mapped *m, wi_region *region, const gap *g, uint64_t start, uint64_t bytes)
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

/* From the free memory on the left into the hole, and where the hole is filled by that, into what lies behind. */
static bool plan_rightward(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                           wi_map_plan *out)
{
    uint64_t granule = m->granule, start = wi_round_up(g->low, want->alignment), end = start + want->bytes;
    if (start >= g->hole_high || end > g->high || end <= g->hole_low)
        return false;
    *out = plan_base_of(m, region, g, start, want->bytes);
    out->hole = wi_max(g->hole_low, start & ~(granule - 1));
    out->low = wi_min(start, out->hole);
    out->exact = end > g->hole_high;
    uint64_t filled = out->exact ? g->hole_high : wi_round_up(end, granule);
    out->missing = (filled - out->hole) / granule;
    out->room = out->exact ? out->missing : (g->hole_high - out->hole) / granule;
    return true;
}

/* From the free memory on the right back into the hole. */
static bool plan_leftward(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                          wi_map_plan *out)
{
    uint64_t granule = m->granule;
    if (g->high == g->hole_high || want->bytes > g->high - g->hole_low)
        return false;
    uint64_t start = (g->high - want->bytes) & ~(want->alignment - 1);
    if (start < g->hole_low || start >= g->hole_high || start + want->bytes <= g->hole_high)
        return false;
    *out = plan_base_of(m, region, g, start, want->bytes);
    out->leftward = true;
    out->first = g->hole;
    out->hole = start & ~(granule - 1);
    out->low = out->hole;
    out->missing = (g->hole_high - out->hole) / granule;
    out->room = (g->hole_high - g->hole_low) / granule;
    return true;
}

/* A block that ends where memory ends, with a granule behind it, and before it unless it is the first, that stay without. */
static bool plan_apart(const wi_mapped *m, wi_region *region, const gap *g, const wi_fit_request *want,
                       wi_map_plan *out)
{
    uint64_t granule = m->granule, before = g->hole->previous ? granule : 0;
    uint64_t start = wi_round_up(g->hole_low + before, want->alignment),
             high = wi_round_up(start + want->bytes, granule);
    if (high + granule > g->hole_high)
        return false;
    start =
        (high - want->bytes) & ~(want->alignment - 1); /* the end at the edge, or as near as the alignment lets it be */
    gap thread_bound = *g;
    thread_bound.first = g->hole;
    *out = plan_base_of(m, region, &thread_bound, start, want->bytes);
    out->low = out->hole = start & ~(granule - 1);
    out->high = high;
    out->missing = out->room = (high - out->hole) / granule;
    out->exact = true;
    return true;
}

/* The least that is missing first; then what extends memory before what begins anew; then the lowest. */
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

static weir_status find_bases(const wi_mapped *m, wi_region *region, const wi_fit_request *want, bases *out)
{
    size_t holes = 0;
    for (const wi_extent *hole = region->holes.first; hole; hole = hole->list_next)
        holes++;
    *out = (bases){malloc((2 * holes + 1) * sizeof *out->at), 0};
    if (!out->at)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for a place");
    for (wi_extent *hole = region->holes.first; hole; hole = hole->list_next) {
        gap g = gap_at(hole, want->stream_list);
        if (want->apart) {
            out->count += plan_apart(m, region, &g, want, &out->at[out->count]);
            continue;
        }
        out->count += plan_rightward(m, region, &g, want, &out->at[out->count]);
        out->count += plan_leftward(m, region, &g, want, &out->at[out->count]);
    }
    for (size_t i = 0; i < out->count && region->number == WI_SMALL; i++) {
        out->at[i].room = out->at[i].missing; /* no long handle is spent on small blocks */
        out->at[i].exact = true;
    }
    qsort(out->at, out->count, sizeof *out->at, plan_better);
    return WEIR_OK;
}

/* Means ------------------------------------------------------------------------------------------------------------ */

static bool plan_beside(const wi_chunk *b, const wi_map_plan *g)
{
    uint64_t granule = g->region->granule;
    return b->region == g->region && b->first * granule < g->run_high && (b->first + b->count) * granule > g->run_low;
}

/* A search that has one answer as long as nothing is moved. */
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

/* What to move next when `rest` is missing and there is room for `room`: NULL, nothing that fits. */
static wi_chunk *next_handle(const wi_mapped *m, const wi_map_plan *g, uint64_t rest, uint64_t room)
{
    wi_chunk *covering = NULL, *oldest = NULL;
    for (wi_chunk *b = m->shared.idle.first; b; b = b->next) {
        bool covers = b->count >= rest && (!covering || b->count < covering->count);
        if (b->count > room || (!covers && oldest) || !plan_choosable(m, b, g))
            continue; /* what nobody would choose is not looked at, which takes long */
        if (covers)
            covering = b;
        if (!oldest)
            oldest = b;
    }
    return covering ? covering : oldest;
}

/* The smallest one that is too long. */
static wi_chunk *handle_to_cut(const wi_mapped *m, const wi_map_plan *g, uint64_t rest)
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

bool wi_map_plan_supply(wi_mapped *m, wi_map_plan *g, uint64_t freely, uint64_t most, bool may_cut)
{
    uint64_t had = 0;
    wi_chunk **end = &g->taken;
    g->spare = g->taken_count = 0;
    g->taken = NULL;
    g->cut = NULL;
    m->plans++;
    for (const wi_chunk *s = m->spare; s && had < g->missing && had + s->count <= g->room; s = s->next, g->spare++)
        had += s->count;
    g->fresh = wi_min(freely, g->missing - wi_min(had, g->missing));
    had += g->fresh;
    while (had < g->missing) {
        wi_chunk *b = next_handle(m, g, g->missing - had, g->room - had);
        if (!b && may_cut && (g->cut = handle_to_cut(m, g, g->missing - had))) {
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
    uint64_t over_soft_limit = wi_min(had - g->missing, g->fresh);
    g->fresh -= over_soft_limit;
    had -= over_soft_limit;
    if (g->leftward)
        g->low = g->hole = g->hole - (had - g->missing) * m->granule;
    else
        g->high = wi_max(g->high, g->hole + had * m->granule);
    g->missing = had;
    return true;
}

/* The first base for which `creatable` new granules are enough. */
static bool try_bases(wi_mapped *m, const bases *all, uint64_t creatable, bool may_cut, wi_map_plan *out)
{
    for (size_t i = 0; i < all->count; i++) {
        *out = all->at[i];
        if (wi_map_plan_supply(m, out, creatable, creatable, may_cut))
            return true;
    }
    return false;
}

/* The base for which the fewest have to be created beyond what may be freely, when everything else is moved. */
static bool find_thriftiest(wi_mapped *m, const bases *all, uint64_t freely, uint64_t most, wi_map_plan *out)
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
    return wi_map_plan_supply(m, out, freely, most, false); /* again: the handles are marked for the last plan alone */
}

static bool plan_find(wi_mapped *m, const bases *all, const wi_fit_request *want, wi_map_plan *out)
{
    m->looks++;
    uint64_t creatable = wi_chunks_creatable(m, NULL);
    uint64_t freely = wi_min(plan_allowed(m, want->bytes), creatable);
    bool found = try_bases(m, all, freely, false, out) ||
                 (freely < creatable && find_thriftiest(m, all, freely, creatable, out)) ||
                 try_bases(m, all, creatable, true, out);
    out->over_soft_limit = found && !out->cut && out->fresh > freely;
    return found;
}

static void plan_pay(wi_mapped *m, const wi_map_plan *g)
{
    if (g->taken_count == 0)
        return;
    m->move_tokens -= wi_min(m->move_tokens, COST);
    m->excess_moves = wi_min(m->excess_moves + STRAINED, MOST_STRAIN);
}

weir_status wi_map_plan_make(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *out)
{
    bases all;
    weir_status status = find_bases(mapped, region, want, &all);
    plan_earn(mapped);
    if (status == WEIR_OK && !plan_find(mapped, &all, want, out))
        status = WEIR_ERR_NO_ROOM;
    if (status == WEIR_OK && !(want->soft_limit && out->over_soft_limit))
        plan_pay(mapped, out);
    free(all.at);
    return status;
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
    if (status == WEIR_OK && !plan_find(mapped, &(bases){base, 1}, &want, out))
        status = WEIR_ERR_OUT_OF_MEMORY;
    free(base);
    return status;
}
