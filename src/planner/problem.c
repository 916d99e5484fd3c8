#include "planner/storage.h"
#include "planner/in_place.h"
#include "planner/sections.h"
#include "base/internal.h"

/* Roots ------------------------------------------------------------------------------------------------------------ */

static bool is_root(const weir_buffers *buffers, size_t i)
{
    return buffers->items[i].root == i && buffers->items[i].bytes > 0;
}

static weir_status too_large(void)
{
    return weir_fail(WEIR_INVALID,
                     "a list of buffers to plan: their sizes, and offsets that are fixed, add up to more than 63 bits");
}

/* What all of them could take one behind the other, and behind what is fixed, has to be a number, so that no solver has to look again. */
static weir_status measure(wi_stores *stores)
{
    const weir_buffers *buffers = stores->buffers;
    uint64_t sum = 0, pinned[WEIR_KIND_COUNT] = {0};
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
    uint64_t steps = weir_buffers_steps(buffers);
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
        problem->plain &= alignment == stores->alignment && !s->fixed;
        problem->items[s->item] =
            (wi_item){.length = s->length, .alignment = alignment, .offset = s->offset, .fixed = s->fixed};
        if (s->fixed)
            problem->bound = wi_max(problem->bound, s->offset + s->length);
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
