#include "planner/sections.h"
#include "planner/radix.h"
#include "base/internal.h"

/* Births and deaths of the parts of items, and of storage as the bound sees it. A death comes before the births of its
 * step. */
typedef struct events {
    wi_key *keys, *spare; /* key: twice the step, plus 1 for a birth; value: the part's number */
    size_t count;
} events;

static void add_part(events *e, uint32_t part, uint64_t begin, uint64_t end)
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

/* The parts of every item: one, or what its gaps leave. */
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
            add_part(e, parts++, begin, gap->begin);
            begin = gap->end;
        }
        add_part(e, parts++, begin, s->end);
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
            return weir_fail(WEIR_SYSTEM, "planning: no host memory");
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
                add_part(e, (uint32_t)i, begin, gap->begin);
            begin = gap->end;
        }
        if (begin < s->own_end)
            add_part(e, (uint32_t)i, begin, s->own_end);
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

weir_status wi_sections_make(wi_stores *stores, weir_kind kind)
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
        status = weir_fail(WEIR_SYSTEM, "planning: no host memory");
    }
    free(e.keys);
    free(e.spare);
    free(gaps);
    return status;
}
