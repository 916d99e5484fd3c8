/* The text of a plan: its first line, "plan COUNT ALIGNMENT PROVEN", a line for each buffer with its slot, for each gap and
 * conflict, for some steps of the schedule, and "sum" with the sum over all before. */
#ifndef WI_ARENA_PLAN_TEXT_H
#define WI_ARENA_PLAN_TEXT_H

#include <weir/base.h>

#define WI_PLAN_FIRST_LINE "weir-plan 1"
enum { WI_PLAN_STEPS_A_LINE = 16 };

uint64_t wi_plan_text_sum(const char *bytes, size_t length);

#endif
