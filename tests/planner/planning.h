/* What the tests of plans share: buffers in a line, plans made and checked. */
#ifndef TESTS_PLANNING_H
#define TESTS_PLANNING_H

#include "core/core.h"
#include <weir/plan.h>

static inline weir_buffers *empty_list(void)
{
    weir_buffers *list;
    ok(weir_buffers_create(&list));
    return list;
}

static inline uint32_t add(weir_buffers *list, uint64_t begin, uint64_t end, uint64_t bytes)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    uint32_t index;
    b.begin = begin;
    b.end = end;
    b.bytes = bytes;
    ok(weir_buffers_add(list, &b, &index));
    return index;
}

static inline uint32_t add_sharing(weir_buffers *list, uint64_t begin, uint64_t end, uint64_t bytes,
                                   weir_sharing sharing, uint32_t of, uint64_t view_offset)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    uint32_t index;
    b.begin = begin;
    b.end = end;
    b.bytes = bytes;
    b.sharing = sharing;
    b.of = of;
    b.view_offset = view_offset;
    ok(weir_buffers_add(list, &b, &index));
    return index;
}

static inline weir_plan *plan_of(const weir_buffers *list, weir_plan_mode mode, uint64_t alignment)
{
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    weir_plan *plan;
    options.mode = mode;
    options.alignment = alignment;
    ok(weir_plan_create(list, &options, &plan));
    ok(weir_plan_check(plan, NULL));
    ok(weir_plan_check(plan, list));
    return plan;
}

static inline weir_plan_details summary_of(const weir_plan *plan)
{
    weir_plan_details summary = WEIR_INIT(weir_plan_details);
    ok(weir_plan_info(plan, &summary));
    return summary;
}

static inline weir_slot slot_of(const weir_plan *plan, uint32_t index)
{
    weir_slot slot = WEIR_INIT(weir_slot);
    ok(weir_plan_slot(plan, index, &slot));
    return slot;
}

static inline uint64_t offset_of(const weir_plan *plan, uint32_t index)
{
    return slot_of(plan, index).offset;
}

#endif
