/* From a list of buffers to problems for the solvers: storage, sections of time, and the lower bound. */
#include "planner/problem.h"
#include <weir/plan.h>
#include "base/internal.h"

/* Roots ------------------------------------------------------------------------------------------------------------ */

static bool problem_is_root(const weir_buffers *buffers, size_t i)
{
    return buffers->items[i].root == i && buffers->items[i].bytes > 0;
}

static weir_status too_large(void)
{
    return weir_fail(WEIR_ERR_INVALID,
                     "a list of buffers to plan: their sizes, and offsets that are fixed, add up to more than 63 bits");
}

/* Measures the storages. The length of all storages, placed one behind the other behind the fixed storages, has to fit
 * into 63 bits, so that solvers need no overflow checks. */
static weir_status problem_measure(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    uint64_t sum = 0, pinned[WEIR_KIND_COUNT] = {0};
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        uint64_t alignment = wi_max(b->alignment, stores->alignment), padded;
        if (!problem_is_root(buffers, i))
            continue;
        if (__builtin_add_overflow(b->bytes, 2 * (alignment - 1), &padded) ||
            __builtin_add_overflow(sum, padded, &sum) || sum > INT64_MAX ||
            (b->fixed && (b->offset > INT64_MAX || b->offset + padded > INT64_MAX)))
            return too_large();
        if (b->fixed && b->offset % stores->alignment != 0)
            return weir_fail(WEIR_ERR_INVALID,
                             "buffer %.200s: its fixed offset %llu is no multiple of the plan's alignment %llu",
                             wi_buffer_name(buffers, (uint32_t)i), (unsigned long long)b->offset,
                             (unsigned long long)stores->alignment);
        stores->all[i].length = wi_round_up(b->bytes, stores->alignment);
        stores->unshared += stores->all[i].length;
        if (b->fixed)
            pinned[b->kind] = wi_max(pinned[b->kind], b->offset + padded);
    }
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        if (pinned[kind] > (uint64_t)INT64_MAX - sum)
            return too_large();
        else
            sum += pinned[kind];
    return WEIR_OK;
}

static void join_views(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    uint64_t steps = wi_buffers_steps(buffers);
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        wi_storage *s = &stores->all[b->root];
        bool first = b->root == i;
        s->begin = b->persistent ? 0 : first ? b->begin : wi_min(s->begin, b->begin);
        s->end = b->persistent ? steps : first ? b->end : wi_max(s->end, b->end);
        s->tied |= b->persistent;
        if (first) {
            s->leader = s->root = (uint32_t)i;
            s->fixed = b->fixed;
            s->offset = b->offset;
            s->over = s->above = WEIR_NO_BUFFER;
        }
    }
    for (size_t i = 0; i < buffers->count; i++)
        stores->all[i].own_end = stores->all[i].end;
    for (size_t i = 0; i < buffers->gap_count; i++)
        stores->all[buffers->gaps[i].buffer].tied = true;
    for (size_t i = 0; i < buffers->conflict_count; i++) {
        stores->all[buffers->conflicts[i].one].tied = true;
        stores->all[buffers->conflicts[i].other].tied = true;
    }
}

/* Sections --------------------------------------------------------------------------------------------------------- */

/* Births and deaths of the parts of items, and of storage as the bound sees it. A death comes before the births of its
 * step. */
typedef struct events {
    wi_key *keys, *spare; /* key: twice the step, plus 1 for a birth; value: the part's number */
    size_t count;
} events;

static void problem_add_part(events *e, uint32_t part, uint64_t begin, uint64_t end)
{
    e->keys[e->count++] = (wi_key){begin * 2 + 1, part};
    e->keys[e->count++] = (wi_key){end * 2, part};
}

/* Gaps in the order of their buffers; the gaps of one are told in the order of time. */
static void sort_gaps(const weir_buffers *buffers, wi_key *keys, wi_key *spare)
{
    for (size_t i = 0; i < buffers->gap_count; i++)
        keys[i] = (wi_key){buffers->gaps[i].buffer, (uint32_t)i};
    wi_radix_sort(keys, spare, buffers->gap_count);
}

static bool is_item(const wi_stores *stores, weir_kind kind, size_t i)
{
    const wi_buffer *b = &stores->buffers->items[i];
    return b->kind == kind && stores->all[i].length > 0 && stores->all[i].leader == i;
}

/* Makes the parts of every item: one part, or the parts between the item's gaps. */
static void make_parts(const wi_stores *stores, weir_kind kind, const wi_key *gaps, events *e)
{
    const weir_buffers *buffers = stores->buffers;
    uint32_t parts = 0;
    for (size_t i = 0, g = 0; i < buffers->count; i++) {
        while (g < buffers->gap_count && gaps[g].key < i)
            g++;
        if (!is_item(stores, kind, i))
            continue;
        const wi_storage *s = &stores->all[i];
        wi_item *item = &stores->problems[kind].items[s->item];
        uint64_t begin = s->begin + s->late;
        item->first_span = parts;
        for (; g < buffers->gap_count && gaps[g].key == i; g++) {
            const wi_gap *gap = &buffers->gaps[gaps[g].value];
            problem_add_part(e, parts++, begin, gap->begin);
            begin = gap->end;
        }
        problem_add_part(e, parts++, begin, s->end);
        item->spans = parts - item->first_span;
    }
}

static void number_sections(wi_problem *problem, events *e)
{
    uint32_t section = 0;
    bool died = false;
    wi_radix_sort(e->keys, e->spare, e->count);
    for (size_t i = 0; i < e->count; i++) {
        wi_span *span = &problem->spans[e->keys[i].value];
        if (e->keys[i].key & 1) {
            section += died;
            died = false;
            span->left = section;
        } else {
            died = true;
            span->right = section + 1;
        }
    }
    problem->sections = section + 1;
    for (uint32_t i = 0; i < problem->count; i++) {
        wi_item *item = &problem->items[i];
        item->left = problem->spans[item->first_span].left;
        item->right = problem->spans[item->first_span + item->spans - 1].right;
        if (item->spans == 1)
            item->spans = 0;
        else
            problem->plain = false;
    }
}

static weir_status make_edges(wi_stores *stores, weir_kind kind)
{
    const weir_buffers *buffers = stores->buffers;
    wi_problem *problem = &stores->problems[kind];
    size_t ends = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < buffers->conflict_count; i++) {
            wi_pair pair = buffers->conflicts[i];
            if (!is_item(stores, kind, pair.one) || !is_item(stores, kind, pair.other))
                continue;
            uint32_t one = stores->all[pair.one].item, other = stores->all[pair.other].item;
            if (round) {
                problem->edges[problem->items[one].first_edge + problem->items[one].edges++] = other;
                problem->edges[problem->items[other].first_edge + problem->items[other].edges++] = one;
            } else {
                problem->items[one].edges++;
                problem->items[other].edges++;
                ends += 2;
            }
        }
        if (round || ends == 0)
            return WEIR_OK;
        problem->plain = false;
        problem->edges = malloc(ends * sizeof *problem->edges);
        if (!problem->edges)
            return weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
        for (uint32_t i = 0, first = 0; i < problem->count; i++) {
            problem->items[i].first_edge = first;
            first += problem->items[i].edges;
            problem->items[i].edges = 0;
        }
    }
    return WEIR_OK;
}

/* The most that is live in a step, where what may be written over another is not counted beside it in the step in which
 * that happens. */
static uint64_t most_live(const wi_stores *stores, weir_kind kind, const wi_key *gaps, events *e)
{
    const weir_buffers *buffers = stores->buffers;
    e->count = 0;
    for (size_t i = 0, g = 0; i < buffers->count; i++) {
        while (g < buffers->gap_count && gaps[g].key < i)
            g++;
        const wi_storage *s = &stores->all[i];
        if (buffers->items[i].kind != kind || s->length == 0)
            continue;
        uint64_t begin = s->begin + (s->over != WEIR_NO_BUFFER);
        for (; g < buffers->gap_count && gaps[g].key == i; g++) {
            const wi_gap *gap = &buffers->gaps[gaps[g].value];
            if (begin < gap->begin)
                problem_add_part(e, (uint32_t)i, begin, gap->begin);
            begin = gap->end;
        }
        if (begin < s->own_end)
            problem_add_part(e, (uint32_t)i, begin, s->own_end);
    }
    wi_radix_sort(e->keys, e->spare, e->count);
    uint64_t live = 0, most = 0;
    for (size_t i = 0; i < e->count; i++) {
        uint64_t length = stores->all[e->keys[i].value].length;
        live = e->keys[i].key & 1 ? live + length : live - length;
        most = wi_max(most, live);
    }
    return most;
}

/* Fills in the sections, spans and edges of the kind's items, and its bound. */
static weir_status make_sections(wi_stores *stores, weir_kind kind)
{
    const weir_buffers *buffers = stores->buffers;
    wi_problem *problem = &stores->problems[kind];
    size_t parts = buffers->count + buffers->gap_count;
    events e = {.keys = malloc(2 * parts * sizeof *e.keys), .spare = malloc(2 * parts * sizeof *e.spare)};
    wi_key *gaps = calloc(buffers->gap_count + 1, sizeof *gaps);
    weir_status status;
    problem->spans = calloc(parts, sizeof *problem->spans);
    if (e.keys && e.spare && gaps && problem->spans) {
        sort_gaps(buffers, gaps, e.spare);
        make_parts(stores, kind, gaps, &e);
        number_sections(problem, &e);
        problem->bound = wi_max(problem->bound, most_live(stores, kind, gaps, &e));
        status = make_edges(stores, kind);
    } else {
        status = weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
    }
    free(e.keys);
    free(e.spare);
    free(gaps);
    return status;
}

/* Problems --------------------------------------------------------------------------------------------------------- */

static bool leads(const wi_stores *stores, size_t i)
{
    return problem_is_root(stores->buffers, i) && stores->all[i].leader == i;
}

static weir_status fill_problem(wi_stores *stores, weir_kind kind)
{
    const weir_buffers *buffers = stores->buffers;
    wi_problem *problem = &stores->problems[kind];
    for (size_t i = 0; i < buffers->count; i++)
        if (buffers->items[i].kind == kind && leads(stores, i))
            stores->all[i].item = problem->count++;
    problem->alignment = stores->alignment;
    problem->plain = true;
    if (problem->count == 0)
        return WEIR_OK;
    problem->items = calloc(problem->count, sizeof *problem->items);
    if (!problem->items)
        return weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        const wi_storage *s = &stores->all[i];
        if (b->kind != kind || !leads(stores, i))
            continue;
        uint64_t alignment = wi_max(b->alignment, stores->alignment);
        problem->plain &= alignment == stores->alignment && !s->fixed;
        problem->items[s->item] =
            (wi_item){.length = s->length, .alignment = alignment, .offset = s->offset, .fixed = s->fixed};
        if (s->fixed)
            problem->bound = wi_max(problem->bound, s->offset + s->length);
    }
    return make_sections(stores, kind);
}

weir_status wi_stores_make(const weir_buffers *buffers, uint64_t alignment, wi_stores *out)
{
    *out = (wi_stores){.buffers = buffers, .alignment = alignment};
    out->all = calloc(buffers->count ? buffers->count : 1, sizeof *out->all);
    weir_status status = out->all ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
    if (status == WEIR_OK)
        status = problem_measure(out);
    if (status == WEIR_OK) {
        join_views(out);
        status = wi_in_place_join(out);
        for (unsigned kind = 0; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++)
            status = fill_problem(out, (weir_kind)kind);
    }
    if (status != WEIR_OK)
        wi_stores_clear(out);
    return status;
}

void wi_stores_clear(wi_stores *stores)
{
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        free(stores->problems[kind].items);
        free(stores->problems[kind].spans);
        free(stores->problems[kind].edges);
    }
    free(stores->all);
    *stores = (wi_stores){0};
}

uint64_t wi_stores_offset(const wi_stores *stores, uint32_t buffer, uint32_t *root)
{
    const wi_buffer *b = &stores->buffers->items[buffer];
    const wi_storage *s = &stores->all[b->root];
    if (s->length == 0 || b->bytes == 0) {
        *root = b->root;
        return 0;
    }
    *root = s->root;
    uint32_t item = stores->all[s->leader].item;
    return stores->problems[b->kind].items[item].offset + s->shift + b->from;
}

/* Items ------------------------------------------------------------------------------------------------------------ */

static bool in_conflict(const wi_problem *problem, const wi_item *one, const wi_item *other)
{
    uint32_t index = (uint32_t)(other - problem->items);
    for (uint32_t i = 0; i < one->edges; i++)
        if (problem->edges[one->first_edge + i] == index)
            return true;
    return false;
}

uint32_t wi_item_spans(const wi_problem *problem, const wi_item *item, wi_span *whole, const wi_span **out)
{
    *whole = (wi_span){item->left, item->right};
    *out = item->spans ? &problem->spans[item->first_span] : whole;
    return item->spans ? item->spans : 1;
}

static bool spans_meet(const wi_problem *problem, const wi_item *one, const wi_item *other)
{
    wi_span whole[2];
    const wi_span *a, *b;
    uint32_t count_a = wi_item_spans(problem, one, &whole[0], &a);
    uint32_t count_b = wi_item_spans(problem, other, &whole[1], &b);
    for (uint32_t i = 0, j = 0; i < count_a && j < count_b;) {
        if (a[i].left < b[j].right && b[j].left < a[i].right)
            return true;
        if (a[i].right <= b[j].right)
            i++;
        else
            j++;
    }
    return false;
}

bool wi_items_meet(const wi_problem *problem, const wi_item *one, const wi_item *other)
{
    bool hulls = one->left < other->right && other->left < one->right;
    if (hulls && (one->spans | other->spans) == 0)
        return true;
    return (hulls && spans_meet(problem, one, other)) ||
           (one->edges && other->edges && in_conflict(problem, one, other));
}

uint64_t wi_problem_height(const wi_problem *problem)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < problem->count; i++)
        height = wi_max(height, problem->items[i].offset + problem->items[i].length);
    return height;
}

/* Keys ------------------------------------------------------------------------------------------------------------- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Digits that all keys have in common are passed over: keys of small ranges cost one or two rounds. */
void wi_radix_sort(wi_key *keys, wi_key *spare, size_t count)
{
    uint64_t any = 0, all = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        any |= keys[i].key;
        all &= keys[i].key;
    }
    wi_key *from = keys, *to = spare;
    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        if (((any ^ all) >> shift & (DIGITS - 1)) == 0)
            continue;
        size_t begins[DIGITS + 1] = {0};
        for (size_t i = 0; i < count; i++)
            begins[(from[i].key >> shift & (DIGITS - 1)) + 1]++;
        for (unsigned i = 1; i < DIGITS; i++)
            begins[i] += begins[i - 1];
        for (size_t i = 0; i < count; i++)
            to[begins[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        wi_key *other = from;
        from = to;
        to = other;
    }
    if (from != keys && count > 0)
        memcpy(keys, from, count * sizeof *keys);
}
