/* Greedy first, which also gives a bound from above; then the cheapest sixteen candidates are solved exactly, in two
 * halves (Horowitz and Sahni 1974): all sets of a half, without those that another one beats in bytes, cost and host at
 * once, or that cannot become cheaper than the greedy set, sorted by bytes; then for each set of a half the cheapest
 * set of the other half that completes the pair. No instance takes more than 3^8 sets in each half, which no bound of a
 * search could promise: costs that are proportional to bytes, the usual case, are the worst one for such a search. */
#include "pool/victims.h"
#include "base/internal.h"

enum { HALF = WP_EXACT / 2, MOST = 6561 /* 3^8 */ };

/* A set of one half. */
typedef struct part {
    uint64_t frees; /* at most what is needed */
    uint64_t cost;
    int64_t host;
    uint32_t picks; /* two bits for each candidate */
} part;

/* No two of a staircase beat each other: more bytes of the host, less cost. */
typedef struct step {
    int64_t host;
    uint64_t cost;
    uint32_t at; /* index of a part */
} step;

struct wp_solver {
    part lists[2][2][MOST]; /* by half; the second one is where the next is made */
    uint32_t lengths[2];
    step steps[MOST];
    uint32_t step_count;
    uint32_t *order; /* of candidates: the cheapest bytes first */
    /* Sums in that order, at the best price of each candidate. */
    uint64_t frees_before[WP_EXACT + 1], costs_before[WP_EXACT + 1];
    uint8_t *best;
    uint32_t room;
};

wp_solver *wp_solver_create(void)
{
    return calloc(1, sizeof(wp_solver));
}

void wp_solver_destroy(wp_solver *solver)
{
    if (!solver)
        return;
    free(solver->order);
    free(solver->best);
    free(solver);
}

static bool victims_reserve(wp_solver *s, uint32_t count)
{
    if (count < s->room)
        return true;
    uint32_t room = 2 * (count + 1), *order = realloc(s->order, (size_t)room * sizeof *order);
    if (order)
        s->order = order;
    uint8_t *best = realloc(s->best, room);
    if (best)
        s->best = best;
    if (!order || !best)
        return false;
    s->room = room;
    return true;
}

/* Greedy ----------------------------------------------------------------------------------------------------------- */

/* a / b < c / d, for costs and bytes. Without bytes it is worth nothing. */
static bool cheaper(const wp_way *a, const wp_way *b)
{
    if (a->frees == 0 || b->frees == 0)
        return a->frees > b->frees;
    return (unsigned __int128)a->cost * b->frees < (unsigned __int128)b->cost * a->frees;
}

static const wp_way *cheapest_way(const wp_candidate *c)
{
    return c->count > 1 && cheaper(&c->ways[1], &c->ways[0]) ? &c->ways[1] : &c->ways[0];
}

static uint64_t most_bytes(const wp_candidate *c)
{
    return c->count > 1 ? wi_max(c->ways[0].frees, c->ways[1].frees) : c->ways[0].frees;
}

/* By insertion: candidates are few, and often in order from the last time. */
static void victims_sort(wp_solver *s, const wp_candidate *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && cheaper(cheapest_way(&c[i]), cheapest_way(&c[s->order[at - 1]])); at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* What bytes cost at least if they could be taken in parts: the cheapest first, each candidate at its best price. */
static uint64_t bound_below(const wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < count && need > 0; i++) {
        const wp_candidate *one = &c[s->order[i]];
        const wp_way *way = cheapest_way(one);
        uint64_t part_of = wi_min(need, most_bytes(one));
        if (way->frees > 0)
            cost += (uint64_t)((unsigned __int128)way->cost * part_of / way->frees);
        need -= part_of;
    }
    return cost;
}

typedef struct sums {
    uint64_t frees, cost;
    int64_t host;
} sums;

static sums sums_of(const wp_candidate *c, uint32_t count, const uint8_t *chosen)
{
    sums all = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (chosen[i] == 0)
            continue;
        const wp_way *way = &c[i].ways[chosen[i] - 1];
        all.frees += way->frees;
        all.cost += way->cost;
        all.host += way->host;
    }
    return all;
}

static bool enough(const sums *all, uint64_t need, uint64_t host)
{
    return all->frees >= need && (all->host <= 0 || (uint64_t)all->host <= host);
}

/* Changes one candidate's way, if the set is still enough and costs less. */
static void victims_try_way(const wp_candidate *c, uint8_t *chosen, uint32_t i, uint8_t way, uint64_t need,
                            uint64_t host, sums *all)
{
    const wp_way none = {0}, *from = &c[i].ways[chosen[i] - 1], *to = way ? &c[i].ways[way - 1] : &none;
    sums then = {all->frees - from->frees + to->frees, all->cost - from->cost + to->cost,
                 all->host - from->host + to->host};
    if (!enough(&then, need, host) || then.cost >= all->cost)
        return;
    *all = then;
    chosen[i] = way;
}

/* Leaves out what is not needed, the dearest bytes first, and takes a cheaper way where that does. */
static void victims_improve(const wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host,
                            uint8_t *chosen)
{
    sums all = sums_of(c, count, chosen);
    for (uint32_t k = count; k-- > 0;) {
        uint32_t i = s->order[k];
        for (uint8_t way = 0; way <= c[i].count && chosen[i]; way++)
            if (way != chosen[i])
                victims_try_way(c, chosen, i, way, need, host, &all);
    }
}

/* Keeps the cheapest complete set: a candidate that completes the set is only tried in it, a candidate that does not is
 * added. So the kept set costs at most twice the cheapest possible set. */
static bool greedy_rounds(wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host,
                          uint8_t *chosen)
{
    sums all = {0};
    uint64_t best = UINT64_MAX;
    memset(s->best, 0, count);
    memset(chosen, 0, count);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = s->order[k], taken = 0;
        for (uint32_t w = 0; w < c[i].count; w++) {
            const wp_way *way = &c[i].ways[w];
            sums then = {all.frees + way->frees, all.cost + way->cost, all.host + way->host};
            if (enough(&then, need, host) && then.cost < best) {
                best = then.cost;
                memcpy(s->best, chosen, count);
                s->best[i] = (uint8_t)(w + 1);
            }
            bool fits = enough(&then, 0, host) && then.frees < need && way->frees > 0;
            if (fits && (taken == 0 || cheaper(way, &c[i].ways[taken - 1])))
                taken = w + 1;
        }
        if (taken == 0)
            continue;
        const wp_way *way = &c[i].ways[taken - 1];
        all = (sums){all.frees + way->frees, all.cost + way->cost, all.host + way->host};
        chosen[i] = (uint8_t)taken;
    }
    memcpy(chosen, s->best, count);
    return best < UINT64_MAX;
}

/* Takes all candidates, in the way that frees most. Where the host's bytes are short, turns suspends into evictions, or
 * drops the candidates. */
static bool victims_take_all(const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host, uint8_t *chosen)
{
    for (uint32_t i = 0; i < count; i++) {
        bool second =
            c[i].count > 1 && (c[i].ways[1].frees > c[i].ways[0].frees ||
                               (c[i].ways[1].frees == c[i].ways[0].frees && c[i].ways[1].host < c[i].ways[0].host));
        chosen[i] = second ? 2 : 1;
    }
    sums all = sums_of(c, count, chosen);
    for (uint32_t i = 0; i < count && all.host > 0 && (uint64_t)all.host > host; i++) {
        if (c[i].ways[chosen[i] - 1].host <= 0)
            continue;
        chosen[i] = c[i].count > 1 && c[i].ways[2 - chosen[i]].host <= 0 ? (uint8_t)(3 - chosen[i]) : 0;
        all = sums_of(c, count, chosen);
    }
    return enough(&all, need, host);
}

wp_set wp_victims_greedy(wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host,
                         uint8_t *chosen)
{
    memset(chosen, 0, count);
    if (!victims_reserve(s, count))
        return (wp_set){0};
    victims_sort(s, c, count);
    if (!greedy_rounds(s, c, count, need, host, chosen) && !victims_take_all(c, count, need, host, chosen)) {
        memset(chosen, 0, count);
        return (wp_set){0};
    }
    victims_improve(s, c, count, need, host, chosen);
    return (wp_set){true, sums_of(c, count, chosen).cost, bound_below(s, c, count, need)};
}

/* Exact ------------------------------------------------------------------------------------------------------------ */

/* Whether a set that frees as much or more, and was entered before, is as good in cost and host. Enters this one if not. */
static bool beaten(wp_solver *s, const part *new, uint32_t at)
{
    uint32_t low = 0, high = s->step_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->steps[middle].host <= new->host)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && s->steps[low - 1].cost <= new->cost)
        return true;
    uint32_t first = low > 0 && s->steps[low - 1].host == new->host ? low - 1 : low, last = first;
    while (last < s->step_count && s->steps[last].cost >= new->cost)
        last++;
    memmove(&s->steps[first + 1], &s->steps[last], (s->step_count - last) * sizeof *s->steps);
    s->step_count = s->step_count - last + first + 1;
    s->steps[first] = (step){new->host, new->cost, at};
    return false;
}

static part with(const part *p, const wp_way *way, uint64_t need, uint32_t pick)
{
    return (part){wi_min(need, p->frees + way->frees), p->cost + way->cost, p->host + way->host, p->picks | pick};
}

/* More bytes first; of the same, less cost, then less of the host: so a set comes after every set by which it is
 * beaten. */
static bool victims_goes_first(const part *a, const part *b)
{
    if (a->frees != b->frees)
        return a->frees > b->frees;
    return a->cost != b->cost ? a->cost < b->cost : a->host < b->host;
}

static void sum_up(wp_solver *s, const wp_candidate *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const wp_candidate *one = &c[s->order[i]];
        const wp_way *way = cheapest_way(one);
        uint64_t most = most_bytes(one);
        uint64_t cost = way->frees ? (uint64_t)((unsigned __int128)way->cost * most / way->frees) : 0;
        s->frees_before[i + 1] = s->frees_before[i] + most;
        s->costs_before[i + 1] = s->costs_before[i] + cost;
    }
}

/* What those of an order's stretch take at least for so many bytes, of which `left` says how many they do not have. */
static uint64_t least_cost(const wp_solver *s, const wp_candidate *c, uint32_t from, uint32_t end, uint64_t *left)
{
    uint32_t low = from, high = end;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (s->frees_before[middle] - s->frees_before[from] <= *left)
            low = middle;
        else
            high = middle - 1;
    }
    uint64_t cost = s->costs_before[low] - s->costs_before[from];
    *left -= s->frees_before[low] - s->frees_before[from];
    if (low == end || *left == 0)
        return cost;
    const wp_way *way = cheapest_way(&c[s->order[low]]);
    cost += (uint64_t)((unsigned __int128)way->cost * *left / way->frees);
    *left = 0;
    return cost;
}

/* Whether no set with this part, of which the candidates up to `decided` are decided, may cost as little as `dearest`. The
 * second half's parts may have the whole first half beside them. */
static bool hopeless(const wp_solver *s, const wp_candidate *c, const part *p, int half, uint32_t decided,
                     uint32_t count, uint64_t need, uint64_t dearest)
{
    uint64_t left = need - p->frees, cost = p->cost;
    if (half)
        cost += least_cost(s, c, 0, count / 2, &left);
    cost += least_cost(s, c, decided, count, &left);
    return left > 0 || cost > dearest;
}

/* Merges a list with itself under each way of one more candidate. The lists stay in order, as adding the same way to
 * two sets keeps their order, except where bytes are cut off at `need`: such sets may be entered in any order. */
static void victims_one_more(wp_solver *s, int half, const wp_candidate *all, uint32_t count, uint32_t k, uint64_t need,
                             uint64_t dearest, bool by_host)
{
    wp_candidate one = all[s->order[k]];
    const wp_candidate *c = &one;
    uint32_t place = k - (half ? count / 2 : 0);
    const part *from = s->lists[half][0];
    part *to = s->lists[half][1];
    uint32_t length = s->lengths[half], made = 0, next[WP_WAYS + 1] = {0};
    static const wp_way stays;
    s->step_count = 0;
    for (int w = 0; w < WP_WAYS && !by_host; w++)
        one.ways[w].host = 0;
    for (;;) {
        part best = {0};
        int source = -1;
        for (int w = 0; w <= (int)c->count; w++) {
            if (next[w] == length)
                continue;
            part p = with(&from[next[w]], w ? &c->ways[w - 1] : &stays, need, (uint32_t)w << 2 * place);
            if (source < 0 || victims_goes_first(&p, &best)) {
                best = p;
                source = w;
            }
        }
        if (source < 0)
            break;
        next[source]++;
        if (!hopeless(s, all, &best, half, k + 1, count, need, dearest) && !beaten(s, &best, made))
            to[made++] = best;
    }
    memcpy(s->lists[half][0], to, made * sizeof *to);
    s->lengths[half] = made;
}

/* Finds the cheapest pair: for each set of the first half, fewest bytes first, the cheapest set of the second half that
 * completes the pair. */
static bool victims_complete(wp_solver *s, uint64_t need, int64_t host, uint64_t dearest, uint32_t picks[2])
{
    const part *a = s->lists[0][0], *b = s->lists[1][0];
    uint64_t best = UINT64_MAX;
    uint32_t entered = 0;
    s->step_count = 0;
    for (uint32_t i = s->lengths[0]; i-- > 0;) {
        for (; entered < s->lengths[1] && b[entered].frees + a[i].frees >= need; entered++)
            (void)beaten(s, &b[entered], entered);
        uint32_t low = 0, high = s->step_count;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (s->steps[middle].host <= host - a[i].host)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0 || a[i].cost + s->steps[low - 1].cost >= best)
            continue;
        best = a[i].cost + s->steps[low - 1].cost;
        picks[0] = a[i].picks;
        picks[1] = b[s->steps[low - 1].at].picks;
    }
    return best <= dearest && best < UINT64_MAX;
}

/* Whether the host's bytes may decide: if not, the search leaves host bytes out, and far more sets beat each other. */
static bool host_matters(const wp_candidate *c, uint32_t count, uint64_t host)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t largest = 0;
        for (uint32_t w = 0; w < c[i].count; w++)
            largest = c[i].ways[w].host > largest ? c[i].ways[w].host : largest;
        most += (uint64_t)largest;
    }
    return most > host;
}

/* Of the first `count` candidates in their order; the others stay. */
static bool exact(wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host, bool by_host,
                  uint64_t dearest, uint8_t *chosen)
{
    uint32_t first = count / 2, picks[2] = {0};
    sum_up(s, c, count);
    for (int half = 0; half < 2; half++) {
        s->lists[half][0][0] = (part){0};
        s->lengths[half] = 1;
        for (uint32_t i = half ? first : 0; i < (half ? count : first); i++)
            victims_one_more(s, half, c, count, i, need, dearest, by_host);
    }
    if (!victims_complete(s, need, by_host ? (int64_t)wi_min(host, UINT64_C(1) << 60) : 0, dearest, picks))
        return false;
    for (uint32_t i = 0; i < count; i++)
        chosen[s->order[i]] = (uint8_t)((i < first ? picks[0] >> 2 * i : picks[1] >> 2 * (i - first)) & 3);
    return true;
}

wp_set wp_victims(wp_solver *s, const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host, uint8_t *chosen)
{
    wp_set set = wp_victims_greedy(s, c, count, need, host, chosen);
    bool by_host = host_matters(c, count, host);
    uint32_t most = by_host ? WP_EXACT_HOST : WP_EXACT, looked = count < most ? count : most;
    uint64_t dearest = set.found ? set.cost - (set.cost > 0) : UINT64_MAX - 1;
    if (s->room < count)
        return set;
    memset(s->best, 0, count);
    if (exact(s, c, looked, need, host, by_host, dearest, s->best)) {
        memcpy(chosen, s->best, count);
        set.found = true;
        set.cost = sums_of(c, count, chosen).cost;
        set.bound = wi_min(bound_below(s, c, count, need), set.cost);
    }
    if (looked == count)
        set.bound = set.cost;
    return set;
}

/* ---- how soon a model is wanted again ---------------------------------------------------------------------------- */

enum { SHARE = 4, LONGEST = 4, LEAST_SECONDS = 1 };

/* The mean of gaps is an exponential average: a gap counts for a quarter, and what is older for the rest. A gap counts for
 * four times the mean at the most: a model that comes back after hours is wanted again at once, and must not look for many
 * requests as if it were not. */
void wp_arrived(wp_arrivals *arrivals, uint64_t now)
{
    uint64_t gap = arrivals->count > 0 && now > arrivals->last ? now - arrivals->last : 0;
    uint64_t most = wi_max(arrivals->mean, LEAST_SECONDS * UINT64_C(1000000000));
    if (arrivals->count > 1 && gap / LONGEST > most)
        gap = LONGEST * most;
    if (arrivals->count == 1)
        arrivals->mean = gap;
    else if (arrivals->count > 1 && gap > arrivals->mean)
        arrivals->mean += (gap - arrivals->mean) / SHARE;
    else if (arrivals->count > 1)
        arrivals->mean -= (arrivals->mean - gap) / SHARE;
    arrivals->last = now;
    if (arrivals->count < UINT32_MAX)
        arrivals->count++;
}

uint64_t wp_gap(const wp_arrivals *arrivals, uint64_t now)
{
    uint64_t mean = arrivals->count < 2 ? WP_GAP_UNKNOWN : arrivals->mean;
    uint64_t age = arrivals->count > 0 && now > arrivals->last ? now - arrivals->last : 0;
    return wi_max(1, wi_max(mean, age));
}

uint64_t wp_chance(const wp_arrivals *arrivals, uint64_t now)
{
    unsigned __int128 horizon = (unsigned __int128)WP_HORIZON << 32;
    return (uint64_t)(horizon / ((unsigned __int128)WP_HORIZON + wp_gap(arrivals, now)));
}

uint64_t wp_weighed(uint64_t time, uint64_t chance)
{
    return (uint64_t)((unsigned __int128)time * chance >> 32);
}
