/* weir_plan_check: whether a plan serves a list. Knows lists, offsets and nothing of the planner: storage, lifetimes
 * and what may lie over what are worked out here once more, from the contracts in the headers alone. */
#include "planner/buffers.h"
#include <weir/plan.h>
#include "base/internal.h"

/* One part of a lifetime in which bytes are taken. */
typedef struct stay {
    uint64_t begin, end, low, high;
    uint32_t buffer;
} stay;

typedef struct looker {
    const weir_plan *plan;
    const weir_buffers *list;
    uint64_t *begins, *ends; /* of storage, by buffer */
    bool *written_over;      /* something lies over it in its last step */
    bool *late; /* the storage lies over another storage in its first step: its bytes count from the next step */
    stay *stays;
    size_t stay_count;
} looker;

static weir_status plan_check_wrong(const looker *l, uint32_t buffer, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "a plan that does not serve its buffers: %.200s %s",
                     wi_buffer_name(l->list, buffer), what);
}

/* Slots one by one ------------------------------------------------------------------------------------------------- */

static bool same_schedule(const weir_buffers *a, const weir_buffers *b)
{
    return a->schedule_steps == b->schedule_steps &&
           (a->schedule_steps == 0 || memcmp(a->schedule, b->schedule, a->schedule_steps * sizeof *a->schedule) == 0);
}

static bool lies_in_root(const weir_plan *plan, const weir_buffers *list, uint32_t i)
{
    uint32_t root = plan->roots[i];
    return root < list->count && list->items[root].kind == list->items[i].kind &&
           plan->offsets[root] <= plan->offsets[i] && wi_plan_length(plan, i) <= wi_plan_length(plan, root) &&
           plan->offsets[i] - plan->offsets[root] <= wi_plan_length(plan, root) - wi_plan_length(plan, i);
}

static weir_status check_slot(const looker *l, uint32_t i)
{
    const weir_plan *plan = l->plan;
    const wi_buffer *b = &l->list->items[i];
    uint64_t offset = plan->offsets[i], end;
    if (plan->buffers->items[i].bytes != b->bytes || plan->buffers->items[i].kind != b->kind)
        return plan_check_wrong(l, i, "has another size or kind of memory in it");
    if (b->bytes == 0)
        return WEIR_OK;
    uint64_t length = wi_plan_length(plan, i);
    if (length < b->bytes || __builtin_add_overflow(offset, length, &end) || end > plan->arenas[b->kind])
        return plan_check_wrong(l, i, "does not lie inside its arena");
    if (b->alignment > 1 && offset % b->alignment != 0)
        return plan_check_wrong(l, i, "is not aligned as it wants");
    if (!lies_in_root(plan, l->list, i))
        return plan_check_wrong(l, i, "does not lie in its root");
    if (b->sharing == WEIR_SHARING_VIEW)
        return offset == plan->offsets[b->of] + b->view_offset ? WEIR_OK
                                                               : plan_check_wrong(l, i, "is a view of another place");
    if (offset % plan->summary.alignment != 0)
        return plan_check_wrong(l, i, "is not aligned as the plan wants");
    return !b->fixed || offset == b->offset ? WEIR_OK : plan_check_wrong(l, i, "is fixed, and lies elsewhere");
}

static weir_status check_arenas(const looker *l)
{
    uint64_t highest[WEIR_KIND_COUNT] = {0};
    for (uint32_t i = 0; i < l->list->count; i++)
        if (l->list->items[i].bytes > 0)
            highest[l->list->items[i].kind] =
                wi_max(highest[l->list->items[i].kind], l->plan->offsets[i] + wi_plan_length(l->plan, i));
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        if (l->plan->arenas[kind] != highest[kind])
            return weir_fail(WEIR_ERR_CORRUPT, "a plan whose arena of %llu bytes is not what its slots take, %llu",
                             (unsigned long long)l->plan->arenas[kind], (unsigned long long)highest[kind]);
    return WEIR_OK;
}

/* Lifetimes -------------------------------------------------------------------------------------------------------- */

static uint32_t plan_check_storage_of(const weir_buffers *list, uint32_t i)
{
    while (list->items[i].sharing == WEIR_SHARING_VIEW)
        i = list->items[i].of;
    return i;
}

static void find_lifetimes(looker *l)
{
    uint64_t steps = wi_buffers_steps(l->list);
    for (uint32_t i = 0; i < l->list->count; i++) {
        const wi_buffer *b = &l->list->items[i];
        uint32_t s = plan_check_storage_of(l->list, i);
        uint64_t begin = b->persistent ? 0 : b->begin, end = b->persistent ? steps : b->end;
        l->begins[s] = s == i ? begin : wi_min(l->begins[s], begin);
        l->ends[s] = s == i ? end : wi_max(l->ends[s], end);
    }
}

/* True: storage i lies inside the storage below, which dies in the first step of storage i. The first step then belongs
 * to the storage below. */
static bool lies_over(looker *l, uint32_t i)
{
    const weir_plan *plan = l->plan;
    const wi_buffer *b = &l->list->items[i];
    if (b->sharing != WEIR_SHARING_IN_PLACE || b->bytes == 0)
        return false;
    uint32_t under = plan_check_storage_of(l->list, b->of);
    uint64_t low = plan->offsets[under];
    if (l->list->items[under].bytes == 0 || l->written_over[under] || l->ends[under] != l->begins[i] + 1 ||
        l->begins[under] >= l->begins[i] || l->list->items[under].persistent || b->persistent ||
        plan->offsets[i] != plan->offsets[b->of] ||
        plan->offsets[i] + wi_plan_length(plan, i) > low + wi_plan_length(plan, under))
        return false;
    return l->written_over[under] = true;
}

static void add_stay(looker *l, uint32_t i, uint64_t begin, uint64_t end)
{
    uint64_t low = l->plan->offsets[i];
    if (begin < end)
        l->stays[l->stay_count++] = (stay){begin, end, low, low + wi_plan_length(l->plan, i), i};
}

static int by_buffer(const void *a, const void *b)
{
    const wi_gap *one = a, *other = b;
    if (one->buffer != other->buffer)
        return one->buffer < other->buffer ? -1 : 1;
    return one->begin < other->begin ? -1 : one->begin > other->begin;
}

/* `gaps` in the order of their buffers. */
static void find_stays(looker *l, weir_kind kind, const wi_gap *gaps)
{
    const weir_buffers *list = l->list;
    l->stay_count = 0;
    for (uint32_t i = 0, g = 0; i < list->count; i++) {
        bool here =
            list->items[i].kind == kind && list->items[i].bytes > 0 && list->items[i].sharing != WEIR_SHARING_VIEW;
        uint64_t begin = l->begins[i] + l->late[i];
        for (; g < list->gap_count && gaps[g].buffer == i; g++) {
            if (here)
                add_stay(l, i, begin, gaps[g].begin);
            begin = gaps[g].end;
        }
        if (here)
            add_stay(l, i, begin, l->ends[i]);
    }
}

/* Bytes shared ----------------------------------------------------------------------------------------------------- */

/* The highest address taken so far, at each point in time at which a stay begins or ends. Stays are added in the order
 * of their lowest address, so that a stay that begins below the skyline overlaps an earlier stay. */
typedef struct skyline {
    uint64_t *points;
    size_t count;
    uint64_t *most, *all; /* by node: the highest address at any point; the highest address taken throughout */
} skyline;

static uint64_t highest(const skyline *s, size_t node, size_t low, size_t high, size_t from, size_t to)
{
    if (from >= high || to <= low)
        return 0;
    if (from <= low && high <= to)
        return s->most[node];
    size_t middle = (low + high) / 2;
    return wi_max(s->all[node], wi_max(highest(s, 2 * node, low, middle, from, to),
                                       highest(s, 2 * node + 1, middle, high, from, to)));
}

static void raise_to(skyline *s, size_t node, size_t low, size_t high, size_t from, size_t to, uint64_t address)
{
    if (from >= high || to <= low)
        return;
    s->most[node] = wi_max(s->most[node], address);
    if (from <= low && high <= to) {
        s->all[node] = wi_max(s->all[node], address);
        return;
    }
    size_t middle = (low + high) / 2;
    raise_to(s, 2 * node, low, middle, from, to, address);
    raise_to(s, 2 * node + 1, middle, high, from, to, address);
}

static int plan_check_by_address(const void *a, const void *b)
{
    const stay *one = a, *other = b;
    if (one->low != other->low)
        return one->low < other->low ? -1 : 1;
    return one->buffer < other->buffer ? -1 : one->buffer > other->buffer;
}

static weir_status shared_bytes(const looker *l, size_t later)
{
    const stay *b = &l->stays[later];
    for (size_t i = 0; i < later; i++) {
        const stay *a = &l->stays[i];
        if (a->high > b->low && a->begin < b->end && b->begin < a->end)
            return weir_fail(WEIR_ERR_CORRUPT,
                             "a plan that does not serve its buffers: %.200s and %.200s share bytes from %llu on, and "
                             "both are live in step %llu",
                             wi_buffer_name(l->list, a->buffer), wi_buffer_name(l->list, b->buffer),
                             (unsigned long long)b->low, (unsigned long long)wi_max(a->begin, b->begin));
    }
    return weir_fail(WEIR_ERR_CORRUPT, "a plan in which %.200s shares bytes", wi_buffer_name(l->list, b->buffer));
}

static weir_status check_stays(looker *l, skyline *s)
{
    size_t points = 0;
    for (size_t i = 0; i < l->stay_count; i++) {
        s->points[points++] = l->stays[i].begin;
        s->points[points++] = l->stays[i].end;
    }
    s->count = wi_numbers_sort(s->points, points);
    memset(s->most, 0, 4 * (s->count + 1) * sizeof *s->most);
    memset(s->all, 0, 4 * (s->count + 1) * sizeof *s->all);
    qsort(l->stays, l->stay_count, sizeof *l->stays, plan_check_by_address);
    for (size_t i = 0; i < l->stay_count; i++) {
        const stay *a = &l->stays[i];
        size_t from = wi_numbers_find(s->points, s->count, a->begin);
        size_t to = wi_numbers_find(s->points, s->count, a->end);
        if (highest(s, 1, 0, s->count, from, to) > a->low)
            return shared_bytes(l, i);
        raise_to(s, 1, 0, s->count, from, to, a->high);
    }
    return WEIR_OK;
}

static weir_status check_conflicts(const looker *l)
{
    for (size_t i = 0; i < l->list->conflict_count; i++) {
        wi_pair pair = l->list->conflicts[i];
        uint64_t one = l->plan->offsets[pair.one], other = l->plan->offsets[pair.other];
        if (l->list->items[pair.one].kind == l->list->items[pair.other].kind && l->list->items[pair.one].bytes > 0 &&
            l->list->items[pair.other].bytes > 0 && one < other + wi_plan_length(l->plan, pair.other) &&
            other < one + wi_plan_length(l->plan, pair.one))
            return weir_fail(WEIR_ERR_CORRUPT,
                             "a plan that does not serve its buffers: %.200s and %.200s are in conflict, "
                             "and share bytes",
                             wi_buffer_name(l->list, pair.one), wi_buffer_name(l->list, pair.other));
    }
    return WEIR_OK;
}

/* All of it -------------------------------------------------------------------------------------------------------- */

static weir_status check_times(looker *l, skyline *s, wi_gap *gaps)
{
    weir_status status = check_conflicts(l);
    if (l->list->gap_count > 0)
        memcpy(gaps, l->list->gaps, l->list->gap_count * sizeof *gaps);
    qsort(gaps, l->list->gap_count, sizeof *gaps, by_buffer);
    find_lifetimes(l);
    for (uint32_t i = 0; i < l->list->count; i++)
        l->late[i] = lies_over(l, i);
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++) {
        find_stays(l, (weir_kind)kind, gaps);
        status = check_stays(l, s);
    }
    return status;
}

static weir_status check_everything(looker *l)
{
    size_t count = l->list->count + 1, stays = count + l->list->gap_count;
    weir_status status = check_arenas(l);
    for (uint32_t i = 0; i < l->list->count && status == WEIR_OK; i++)
        status = check_slot(l, i);
    if (status != WEIR_OK)
        return status;
    skyline s = {.points = malloc(2 * stays * sizeof *s.points),
                 .most = malloc(4 * (2 * stays + 1) * sizeof *s.most),
                 .all = malloc(4 * (2 * stays + 1) * sizeof *s.all)};
    wi_gap *gaps = malloc((l->list->gap_count + 1) * sizeof *gaps);
    l->begins = calloc(count, sizeof *l->begins);
    l->ends = calloc(count, sizeof *l->ends);
    l->written_over = calloc(count, sizeof *l->written_over);
    l->late = calloc(count, sizeof *l->late);
    l->stays = malloc(stays * sizeof *l->stays);
    if (s.points && s.most && s.all && gaps && l->begins && l->ends && l->written_over && l->late && l->stays)
        status = check_times(l, &s, gaps);
    else
        status = weir_fail(WEIR_ERR_SYSTEM, "checking a plan: no host memory");
    void *const all[] = {s.points, s.most, s.all, gaps, l->begins, l->ends, l->written_over, l->late, l->stays};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return status;
}

weir_status weir_plan_check(const weir_plan *plan, const weir_buffers *buffers)
{
    if (!plan)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_check: NULL");
    looker l = {.plan = plan, .list = buffers ? buffers : plan->buffers};
    if (l.list->count != plan->buffers->count)
        return weir_fail(WEIR_ERR_CORRUPT, "a plan of %zu buffers does not serve a list of %zu", plan->buffers->count,
                         l.list->count);
    if (!same_schedule(l.list, plan->buffers))
        return weir_fail(WEIR_ERR_CORRUPT, "a plan for another schedule than the list states");
    return check_everything(&l);
}
