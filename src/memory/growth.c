/* Where a block that fits nowhere can stand, and what has to be put there: the base is chosen so that the least memory is
 * missing, and the means so that as few handles as possible are moved.
 *
 * A base is free memory with a hole beside it: extending what is there keeps the memory in one piece, which is worth more
 * than anything else here. New handles are made as far as the budget allows. Beyond it, idle handles are moved from
 * elsewhere, the longest idle first; but one that covers all that is missing, and the smallest such one, before several. */
#include "memory/mapped.h"

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

static uint64_t reach(const wi_mapped *m, uint64_t bytes, uint64_t held)
{
    return wi_max(held, wi_max(m->shared.peak_in_use, m->shared.in_use + bytes));
}

static uint64_t budget_of(wi_mapped *m, uint64_t *held)
{
    uint64_t creatable = wi_handles_creatable(m, held);
    return *held + creatable * m->granule;
}

uint64_t wi_growth_handle(const wi_mapped *mapped, uint64_t fresh)
{
    wi_mapped *m = (wi_mapped *)mapped;
    bool alone = m->shared.lanes <= 1; /* else what is stranded is often stranded for one order alone */
    uint64_t held, budget = budget_of(m, &held), most = reach(m, 0, held), bytes = most / (alone ? FAR_SHARE : SHARE);
    if (budget < FAR * most) { /* it counts, and the more blocks share handles, the more of it they strand */
        uint64_t share = alone ? SHARED_SHARE : SHARED_BY_ORDERS;
        bytes = wi_min(budget / SHARE, budget / (share * (1 + m->shared.idle.most_partly)));
    }
    if (alone)
        bytes = wi_max(bytes, wi_min(fresh * m->granule / PARTS, budget / SHARE));
    return wi_max(wi_min(bytes, LONGEST) / m->granule, 1);
}

void wi_growth_begin(wi_mapped *mapped)
{
    mapped->credit = FIRST_CREDIT;
}

static void earn(wi_mapped *m)
{
    uint64_t held, allocations;
    (void)wi_ledger_room(m->resource.ledger, &held, &allocations);
    uint64_t since = allocations - m->credited;
    m->credit = wi_min(m->credit + EARNED * since, MOST_CREDIT);
    m->strain -= wi_min(m->strain, since);
    m->credited = allocations;
}

/* Granules that may be created for the request without a thought. */
static uint64_t allowed(wi_mapped *m, uint64_t bytes)
{
    uint64_t held, creatable = wi_handles_creatable(m, &held), basis = reach(m, bytes, 0);
    if (held + creatable * m->granule < FAR * wi_max(basis, held))
        return creatable;
    uint64_t percent = m->credit < COST ? MOST_PERCENT + m->strain / STRAIN_OF_A_PERCENT : SLACK_PERCENT;
    uint64_t most = basis + basis * percent / 100;
    return most > held ? wi_min(creatable, (most - held + m->granule - 1) / m->granule) : 0;
}

/* Bases ------------------------------------------------------------------------------------------------------------ */

typedef struct bases {
    wi_growth *at;
    size_t count;
} bases;

/* A hole, and the free memory on both sides of it that the lane may have. */
typedef struct gap {
    wi_extent *first; /* the leftmost extent of all that */
    wi_extent *hole;
    uint64_t low, hole_low, hole_high, high;
} gap;

static gap gap_at(wi_extent *hole, const wi_lane *lane)
{
    gap g = {.first = hole, .hole = hole, .low = hole->offset, .hole_low = hole->offset};
    g.hole_high = g.high = hole->offset + hole->bytes;
    while (g.first->previous && g.first->previous->kind == WI_FREE && wi_vacant(g.first->previous, lane)) {
        g.first = g.first->previous;
        g.low = g.first->offset;
    }
    for (const wi_extent *e = hole->next; e && e->kind == WI_FREE && wi_vacant(e, lane); e = e->next)
        g.high = e->offset + e->bytes;
    return g;
}

static wi_growth base_of(const wi_mapped *m, wi_space *space, const gap *g, uint64_t start, uint64_t bytes)
{
    (void)m;
    return (wi_growth){.space = space,
                       .first = g->first,
                       .start = start,
                       .low = start,
                       .high = start + bytes,
                       .run_low = g->low,
                       .run_high = g->high};
}

/* From the free memory on the left into the hole, and where the hole is filled by that, into what lies behind. */
static bool rightward(const wi_mapped *m, wi_space *space, const gap *g, const wi_wish *wish, wi_growth *out)
{
    uint64_t granule = m->granule, start = wi_round_up(g->low, wish->alignment), end = start + wish->bytes;
    if (start >= g->hole_high || end > g->high || end <= g->hole_low)
        return false;
    *out = base_of(m, space, g, start, wish->bytes);
    out->hole = wi_max(g->hole_low, start & ~(granule - 1));
    out->low = wi_min(start, out->hole);
    out->exact = end > g->hole_high;
    uint64_t filled = out->exact ? g->hole_high : wi_round_up(end, granule);
    out->missing = (filled - out->hole) / granule;
    out->room = out->exact ? out->missing : (g->hole_high - out->hole) / granule;
    return true;
}

/* From the free memory on the right back into the hole. */
static bool leftward(const wi_mapped *m, wi_space *space, const gap *g, const wi_wish *wish, wi_growth *out)
{
    uint64_t granule = m->granule;
    if (g->high == g->hole_high || wish->bytes > g->high - g->hole_low)
        return false;
    uint64_t start = (g->high - wish->bytes) & ~(wish->alignment - 1);
    if (start < g->hole_low || start >= g->hole_high || start + wish->bytes <= g->hole_high)
        return false;
    *out = base_of(m, space, g, start, wish->bytes);
    out->leftward = true;
    out->first = g->hole;
    out->hole = start & ~(granule - 1);
    out->low = out->hole;
    out->missing = (g->hole_high - out->hole) / granule;
    out->room = (g->hole_high - g->hole_low) / granule;
    return true;
}

/* A block that ends where memory ends, with a granule behind it, and before it unless it is the first, that stay without. */
static bool apart(const wi_mapped *m, wi_space *space, const gap *g, const wi_wish *wish, wi_growth *out)
{
    uint64_t granule = m->granule, before = g->hole->previous ? granule : 0;
    uint64_t start = wi_round_up(g->hole_low + before, wish->alignment),
             high = wi_round_up(start + wish->bytes, granule);
    if (high + granule > g->hole_high)
        return false;
    start =
        (high - wish->bytes) & ~(wish->alignment - 1); /* the end at the edge, or as near as the alignment lets it be */
    gap alone = *g;
    alone.first = g->hole;
    *out = base_of(m, space, &alone, start, wish->bytes);
    out->low = out->hole = start & ~(granule - 1);
    out->high = high;
    out->missing = out->room = (high - out->hole) / granule;
    out->exact = true;
    return true;
}

/* The least that is missing first; then what extends memory before what begins anew; then the lowest. */
static int better(const void *a, const void *b)
{
    const wi_growth *x = a, *y = b;
    if (x->missing != y->missing)
        return x->missing < y->missing ? -1 : 1;
    bool anew_x = x->run_low == x->hole && !x->leftward, anew_y = y->run_low == y->hole && !y->leftward;
    if (anew_x != anew_y)
        return anew_x ? 1 : -1;
    return (x->start > y->start) - (x->start < y->start);
}

static weir_status find_bases(const wi_mapped *m, wi_space *space, const wi_wish *wish, bases *out)
{
    size_t holes = 0;
    for (const wi_extent *hole = space->holes.first; hole; hole = hole->list_next)
        holes++;
    *out = (bases){malloc((2 * holes + 1) * sizeof *out->at), 0};
    if (!out->at)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for a place");
    for (wi_extent *hole = space->holes.first; hole; hole = hole->list_next) {
        gap g = gap_at(hole, wish->lane);
        if (wish->apart) {
            out->count += apart(m, space, &g, wish, &out->at[out->count]);
            continue;
        }
        out->count += rightward(m, space, &g, wish, &out->at[out->count]);
        out->count += leftward(m, space, &g, wish, &out->at[out->count]);
    }
    for (size_t i = 0; i < out->count && space->number == WI_SMALL; i++) {
        out->at[i].room = out->at[i].missing; /* no long handle is spent on small blocks */
        out->at[i].exact = true;
    }
    qsort(out->at, out->count, sizeof *out->at, better);
    return WEIR_OK;
}

/* Means ------------------------------------------------------------------------------------------------------------ */

static bool beside(const wi_backing *b, const wi_growth *g)
{
    uint64_t granule = g->space->granule;
    return b->space == g->space && b->first * granule < g->run_high && (b->first + b->count) * granule > g->run_low;
}

/* A search that has one answer as long as nothing is moved. */
static bool movable(const wi_mapped *m, wi_backing *b)
{
    if (b->looked != m->looks)
        b->movable = wi_handles_movable(b);
    b->looked = m->looks;
    return b->movable;
}

static bool choosable(const wi_mapped *m, wi_backing *b, const wi_growth *g)
{
    return b->plan != m->plans && !beside(b, g) && movable(m, b);
}

/* What to move next when `rest` is missing and there is room for `room`: NULL, nothing that fits. */
static wi_backing *next_handle(const wi_mapped *m, const wi_growth *g, uint64_t rest, uint64_t room)
{
    wi_backing *covering = NULL, *oldest = NULL;
    for (wi_backing *b = m->shared.idle.first; b; b = b->next) {
        bool covers = b->count >= rest && (!covering || b->count < covering->count);
        if (b->count > room || (!covers && oldest) || !choosable(m, b, g))
            continue; /* what nobody would choose is not looked at, which takes long */
        if (covers)
            covering = b;
        if (!oldest)
            oldest = b;
    }
    return covering ? covering : oldest;
}

/* The smallest one that is too long. */
static wi_backing *handle_to_cut(const wi_mapped *m, const wi_growth *g, uint64_t rest)
{
    wi_backing *smallest = NULL;
    for (wi_backing *b = m->shared.idle.first; b; b = b->next)
        if (b->count > rest && (!smallest || b->count < smallest->count) && choosable(m, b, g))
            smallest = b;
    return smallest;
}

static void choose(wi_mapped *m, wi_growth *g, wi_backing *b, wi_backing ***end)
{
    b->plan = m->plans;
    b->chosen = NULL;
    **end = b;
    *end = &b->chosen;
    g->taken_count++;
}

bool wi_growth_means(wi_mapped *m, wi_growth *g, uint64_t freely, uint64_t most, bool may_cut)
{
    uint64_t had = 0;
    wi_backing **end = &g->taken;
    g->spare = g->taken_count = 0;
    g->taken = NULL;
    g->cut = NULL;
    m->plans++;
    for (const wi_backing *s = m->spare; s && had < g->missing && had + s->count <= g->room; s = s->next, g->spare++)
        had += s->count;
    g->fresh = wi_min(freely, g->missing - wi_min(had, g->missing));
    had += g->fresh;
    while (had < g->missing) {
        wi_backing *b = next_handle(m, g, g->missing - had, g->room - had);
        if (!b && may_cut && (g->cut = handle_to_cut(m, g, g->missing - had))) {
            g->cut_at = g->missing - had;
            return true;
        }
        if (!b && g->fresh + g->missing - had > most)
            return false;
        if (b)
            choose(m, g, b, &end);
        else
            g->fresh += g->missing - had;
        had = b ? had + b->count : g->missing;
    }
    uint64_t beyond = wi_min(had - g->missing, g->fresh);
    g->fresh -= beyond;
    had -= beyond;
    if (g->leftward)
        g->low = g->hole = g->hole - (had - g->missing) * m->granule;
    else
        g->high = wi_max(g->high, g->hole + had * m->granule);
    g->missing = had;
    return true;
}

/* The first base for which `creatable` new granules are enough. */
static bool try_bases(wi_mapped *m, const bases *all, uint64_t creatable, bool may_cut, wi_growth *out)
{
    for (size_t i = 0; i < all->count; i++) {
        *out = all->at[i];
        if (wi_growth_means(m, out, creatable, creatable, may_cut))
            return true;
    }
    return false;
}

/* The base for which the fewest have to be created beyond what may be freely, when everything else is moved. */
static bool find_thriftiest(wi_mapped *m, const bases *all, uint64_t freely, uint64_t most, wi_growth *out)
{
    uint64_t fewest = UINT64_MAX;
    size_t best = 0;
    for (size_t i = 0; i < all->count; i++) {
        *out = all->at[i];
        if (wi_growth_means(m, out, freely, most, false) && out->fresh < fewest) {
            fewest = out->fresh;
            best = i;
        }
    }
    if (fewest == UINT64_MAX)
        return false;
    *out = all->at[best];
    return wi_growth_means(m, out, freely, most, false); /* again: the handles are marked for the last plan alone */
}

static bool find(wi_mapped *m, const bases *all, const wi_wish *wish, wi_growth *out)
{
    m->looks++;
    uint64_t creatable = wi_handles_creatable(m, NULL);
    uint64_t freely = wi_min(allowed(m, wish->bytes), creatable);
    bool found = try_bases(m, all, freely, false, out) ||
                 (freely < creatable && find_thriftiest(m, all, freely, creatable, out)) ||
                 try_bases(m, all, creatable, true, out);
    out->beyond = found && !out->cut && out->fresh > freely;
    return found;
}

static void pay(wi_mapped *m, const wi_growth *g)
{
    if (g->taken_count == 0)
        return;
    m->credit -= wi_min(m->credit, COST);
    m->strain = wi_min(m->strain + STRAINED, MOST_STRAIN);
}

weir_status wi_growth_plan(wi_mapped *mapped, wi_space *space, const wi_wish *wish, wi_growth *out)
{
    bases all;
    weir_status status = find_bases(mapped, space, wish, &all);
    earn(mapped);
    if (status == WEIR_OK && !find(mapped, &all, wish, out))
        status = WEIR_ERR_NO_ROOM;
    if (status == WEIR_OK && !(wish->thrifty && out->beyond))
        pay(mapped, out);
    free(all.at);
    return status;
}

weir_status wi_growth_behind(wi_mapped *mapped, wi_extent *used, uint64_t more, wi_growth *out)
{
    wi_extent *free_part = used->next && used->next->kind == WI_FREE ? used->next : NULL;
    wi_extent *hole = free_part ? free_part->next : used->next;
    const wi_wish wish = {.bytes = more, .alignment = WI_UNIT};
    if ((free_part && free_part->lane) || !hole || hole->kind != WI_HOLE)
        return WEIR_ERR_NO_ROOM;
    gap g = gap_at(hole, NULL);
    wi_growth *base = malloc(sizeof *base);
    if (!base)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for a place");
    weir_status status = rightward(mapped, used->space, &g, &wish, base) ? WEIR_OK : WEIR_ERR_NO_ROOM;
    if (status == WEIR_OK && !find(mapped, &(bases){base, 1}, &wish, out))
        status = WEIR_ERR_OUT_OF_MEMORY;
    free(base);
    return status;
}
