#include "planner/plan.h"
#include "base/internal.h"

weir_plan *wi_plan_create(const weir_buffers *buffers)
{
    weir_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    size_t count = buffers->count ? buffers->count : 1;
    plan->buffers = wi_buffers_copy(buffers);
    plan->offsets = calloc(count, sizeof *plan->offsets);
    plan->roots = calloc(count, sizeof *plan->roots);
    if (plan->buffers && plan->offsets && plan->roots)
        return plan;
    weir_plan_destroy(plan);
    return NULL;
}

void weir_plan_destroy(weir_plan *plan)
{
    if (!plan)
        return;
    weir_buffers_destroy(plan->buffers);
    free(plan->offsets);
    free(plan->roots);
    free(plan);
}

uint64_t wi_plan_length(const weir_plan *plan, uint32_t index)
{
    const wi_buffer *b = &plan->buffers->items[index];
    return b->root == index ? wi_round_up(b->bytes, plan->summary.alignment) : b->bytes;
}

void wi_plan_sum_up(weir_plan *plan)
{
    const weir_buffers *buffers = plan->buffers;
    weir_plan_summary *sum = &plan->summary;
    sum->buffers = (uint32_t)buffers->count;
    sum->steps = weir_buffers_steps(buffers);
    sum->arena = sum->lower_bound = sum->unshared = sum->in_place = 0;
    memset(plan->arenas, 0, sizeof plan->arenas);
    for (uint32_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        if (b->root != i || b->bytes == 0)
            continue;
        uint64_t length = wi_plan_length(plan, i);
        plan->arenas[b->kind] = wi_max(plan->arenas[b->kind], plan->offsets[i] + length);
        sum->unshared += length;
        sum->in_place += plan->roots[i] != i;
    }
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        sum->arena += plan->arenas[kind];
        sum->lower_bound += plan->bounds[kind];
    }
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

weir_status weir_plan_summarize(const weir_plan *plan, weir_plan_summary *out)
{
    if (!plan || !out || !wi_copy_out(out, out->size, &plan->summary, sizeof plan->summary))
        return weir_fail(WEIR_INVALID, "weir_plan_summarize: NULL, or a structure without its size");
    return WEIR_OK;
}

weir_status weir_plan_slot(const weir_plan *plan, uint32_t index, weir_slot *out)
{
    if (!plan || !out)
        return weir_fail(WEIR_INVALID, "weir_plan_slot: NULL");
    if (index >= plan->buffers->count)
        return weir_fail(WEIR_INVALID, "weir_plan_slot: there is no buffer %u; the plan has %zu", index,
                         plan->buffers->count);
    const wi_buffer *b = &plan->buffers->items[index];
    weir_slot slot = {.offset = plan->offsets[index],
                      .bytes = b->bytes,
                      .length = wi_plan_length(plan, index),
                      .kind = (weir_kind)b->kind,
                      .root = plan->roots[index]};
    if (!wi_copy_out(out, out->size, &slot, sizeof slot))
        return weir_fail(WEIR_INVALID, "weir_plan_slot: a structure without its size");
    return WEIR_OK;
}

uint64_t weir_plan_arena(const weir_plan *plan, weir_kind kind)
{
    return plan && (unsigned)kind < WEIR_KIND_COUNT ? plan->arenas[kind] : 0;
}

uint64_t weir_plan_lower_bound(const weir_plan *plan, weir_kind kind)
{
    return plan && (unsigned)kind < WEIR_KIND_COUNT ? plan->bounds[kind] : 0;
}

const weir_buffers *weir_plan_buffers(const weir_plan *plan)
{
    return plan ? plan->buffers : NULL;
}

const uint32_t *weir_plan_schedule(const weir_plan *plan, size_t *steps)
{
    if (steps)
        *steps = plan ? plan->buffers->schedule_steps : 0;
    return plan ? plan->buffers->schedule : NULL;
}
