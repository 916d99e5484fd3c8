/* What lists of buffers and plans tell of themselves, where one member is asked for; of NULL nothing. */
#ifndef WEIR_CLI_PLAN_LOOK_H
#define WEIR_CLI_PLAN_LOOK_H

#include <weir/plan.h>

static inline weir_buffers_details plan_list_info(const weir_buffers *buffers)
{
    weir_buffers_details details = WEIR_INIT(weir_buffers_details);
    if (!buffers || weir_buffers_info(buffers, &details) != WEIR_OK)
        details.count = 0;
    return details;
}

static inline weir_plan_details plan_info(const weir_plan *plan)
{
    weir_plan_details details = WEIR_INIT(weir_plan_details);
    if (!plan || weir_plan_info(plan, &details) != WEIR_OK)
        details.list = NULL;
    return details;
}

#endif
