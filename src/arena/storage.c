#include "arena/storage.h"
#include "arena/sections.h"
#include "base/internal.h"

/* Roots ------------------------------------------------------------------------------------------------------------ */

static bool is_root(const weir_buffers *buffers, size_t i)
{
    return buffers->items[i].root == i && buffers->items[i].bytes > 0;
}

static weir_status too_large(void)
{
    return weir_fail(WEIR_INVALID, "a list of buffers to plan: their sizes add up to more than 63 bits");
}

/* What all of them could take one behind the other has to be a number, so that no solver has to look again. */
static weir_status measure(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    uint64_t sum = 0;
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        uint64_t alignment = wi_max(b->alignment, stores->alignment), padded;
        if (!is_root(buffers, i))
            continue;
        if (__builtin_add_overflow(b->bytes, 2 * (alignment - 1), &padded) ||
            __builtin_add_overflow(sum, padded, &sum) || sum > INT64_MAX ||
            (b->fixed && (b->offset > INT64_MAX || b->offset + padded > INT64_MAX)))
            return too_large();
        if (b->fixed && b->offset % stores->alignment != 0)
            return weir_fail(WEIR_INVALID,
                             "buffer %.200s: its fixed offset %llu is no multiple of the plan's alignment %llu",
                             wi_buffer_name(buffers, (uint32_t)i), (unsigned long long)b->offset,
                             (unsigned long long)stores->alignment);
        stores->all[i].length = wi_round_up(b->bytes, stores->alignment);
        stores->unshared += stores->all[i].length;
    }
    for (size_t i = 0; i < buffers->count; i++)
        if (is_root(buffers, i) && buffers->items[i].fixed && buffers->items[i].offset > (uint64_t)INT64_MAX - sum)
            return too_large();
    return WEIR_OK;
}

static void join_views(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    uint64_t steps = weir_buffers_steps(buffers);
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        wi_storage *s = &stores->all[b->root];
        bool first = b->root == i;
        s->begin = b->persistent ? 0 : first ? b->begin : wi_min(s->begin, b->begin);
        s->end = b->persistent ? steps : first ? b->end : wi_max(s->end, b->end);
        s->tied |= b->persistent;
        if (first) {
            s->leader = (uint32_t)i;
            s->over = s->cover = WEIR_NO_BUFFER;
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

/* What is written in place ----------------------------------------------------------------------------------------- */

/* Whether some plan may write it over the other: that one dies where this is born, and this fits. */
static bool may_cover(const wi_stores *stores, size_t i)
{
    const weir_buffers *buffers = stores->buffers;
    const wi_buffer *b = &buffers->items[i];
    if (!is_root(buffers, i) || b->sharing != WEIR_SHARING_IN_PLACE)
        return false;
    const wi_buffer *of = &buffers->items[b->of];
    const wi_storage *s = &stores->all[i], *under = &stores->all[of->root];
    return under->length > 0 && !buffers->items[of->root].persistent && under->end == s->begin + 1 &&
           under->begin < s->begin && of->from + s->length <= under->length;
}

/* Whether the two can be one item, wherever that comes to lie. */
static bool can_join(const wi_stores *stores, size_t i, uint32_t root)
{
    const wi_buffer *items = stores->buffers->items;
    const wi_storage *s = &stores->all[i], *under = &stores->all[root];
    return s->length == under->length && !s->tied && !under->tied &&
           wi_max(items[i].alignment, stores->alignment) <= wi_max(items[root].alignment, stores->alignment);
}

/* Of several that may be written over one the largest has it, so that the bound holds; of those the first that can be
 * joined. */
static void find_covers(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    for (size_t i = 0; i < buffers->count; i++) {
        if (!may_cover(stores, i))
            continue;
        uint32_t root = buffers->items[buffers->items[i].of].root;
        wi_storage *s = &stores->all[i], *under = &stores->all[root];
        if (under->cover != WEIR_NO_BUFFER) {
            wi_storage *other = &stores->all[under->cover];
            if (s->length < other->length ||
                (s->length == other->length && (can_join(stores, under->cover, root) || !can_join(stores, i, root))))
                continue;
            other->over = WEIR_NO_BUFFER;
        }
        s->over = root;
        under->cover = (uint32_t)i;
        stores->problems[buffers->items[i].kind].in_place = true;
    }
}

/* Whether a fixed buffer of another item lies at the leader's place while this is live, but for what is written over this. */
static bool is_taken(const wi_stores *stores, size_t i, uint32_t leader)
{
    const weir_buffers *buffers = stores->buffers;
    const wi_storage *s = &stores->all[i];
    uint64_t low = buffers->items[leader].offset, high = low + s->length;
    for (size_t j = 0; j < buffers->count; j++) {
        const wi_buffer *b = &buffers->items[j];
        const wi_storage *other = &stores->all[j];
        if (!b->fixed || !is_root(buffers, j) || other->leader == leader || b->kind != buffers->items[i].kind ||
            (other->over == i && b->offset == low && can_join(stores, j, (uint32_t)i)))
            continue;
        if (b->offset < high && low < b->offset + other->length && other->begin < s->own_end &&
            s->begin < other->own_end)
            return true;
    }
    return false;
}

/* A fixed buffer has to be fixed where the leader is; one that is not must not be drawn to where another is fixed. */
static bool pins_allow(const wi_stores *stores, size_t i, uint32_t leader)
{
    const wi_buffer *b = &stores->buffers->items[i], *first = &stores->buffers->items[leader];
    if (b->fixed)
        return first->fixed && first->offset == b->offset;
    return !first->fixed || !is_taken(stores, i, leader);
}

/* Equal lengths are joined wherever pins allow it: that leaves the load of every step as low as it can be. */
static void join_covers(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    for (size_t i = 0; i < buffers->count; i++) {
        wi_storage *s = &stores->all[i];
        if (!is_root(buffers, i) || s->over == WEIR_NO_BUFFER || !can_join(stores, i, s->over))
            continue;
        const wi_storage *under = &stores->all[s->over];
        if (!pins_allow(stores, i, under->leader))
            continue;
        s->leader = under->leader;
        s->shift = under->shift;
        stores->all[s->leader].end = wi_max(stores->all[s->leader].end, s->end);
    }
}

/* Problems --------------------------------------------------------------------------------------------------------- */

static bool leads(const wi_stores *stores, size_t i)
{
    return is_root(stores->buffers, i) && stores->all[i].leader == i;
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
        return weir_fail(WEIR_SYSTEM, "planning: no host memory");
    for (size_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        const wi_storage *s = &stores->all[i];
        if (b->kind != kind || !leads(stores, i))
            continue;
        uint64_t alignment = wi_max(b->alignment, stores->alignment);
        problem->plain &= alignment == stores->alignment && !b->fixed;
        problem->items[s->item] =
            (wi_item){.length = s->length, .alignment = alignment, .offset = b->offset, .fixed = b->fixed};
        if (b->fixed)
            problem->bound = wi_max(problem->bound, b->offset + s->length);
    }
    return wi_sections_make(stores, kind);
}

weir_status wi_stores_make(const weir_buffers *buffers, uint64_t alignment, wi_stores *out)
{
    *out = (wi_stores){.buffers = buffers, .alignment = alignment};
    out->all = calloc(buffers->count ? buffers->count : 1, sizeof *out->all);
    weir_status status = out->all ? WEIR_OK : weir_fail(WEIR_SYSTEM, "planning: no host memory");
    if (status == WEIR_OK)
        status = measure(out);
    if (status == WEIR_OK) {
        join_views(out);
        find_covers(out);
        join_covers(out);
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
    *root = s->leader;
    uint32_t item = stores->all[s->leader].item;
    return stores->problems[b->kind].items[item].offset + s->shift + b->from;
}
