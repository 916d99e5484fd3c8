/* A plan: offsets by buffer, and what is told of them. */
#ifndef WI_PLANNER_PLAN_H
#define WI_PLANNER_PLAN_H

#include "planner/buffers.h"

#include <weir/plan.h>

struct weir_plan {
    weir_buffers *buffers;
    uint64_t *offsets;
    uint32_t *roots;
    uint64_t arenas[WEIR_KIND_COUNT], bounds[WEIR_KIND_COUNT];
    weir_plan_details summary;
};

/* A plan of a copy of the list, with room for its offsets; NULL without host memory. */
weir_plan *wi_plan_create(const weir_buffers *buffers);

/* The length of the buffer's slot. */
uint64_t wi_plan_length(const weir_plan *plan, uint32_t index);

/* Computes the plan's arenas and the sums of its summary. */
void wi_plan_sum_up(weir_plan *plan);

/* As weir_plan_load, of a text; `name` stands for it in messages. */
weir_status wi_plan_parse(const char *text, size_t bytes, const char *name, weir_plan **out);

/* plan_file.c: the line that a plan's text begins with, and the sum that a plan's text ends with. */
#define WI_PLAN_FIRST_LINE "weir-plan 1"
uint64_t wi_plan_text_sum(const char *bytes, size_t length);

#endif
