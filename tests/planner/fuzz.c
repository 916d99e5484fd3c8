/* Hostile texts for the readers of lists and plans: the first byte says which reader. What is read is planned, and the
 * plan has to be one that the checker accepts. A plan's text gets the sum that it ought to have, as nothing would be
 * read of it otherwise. */
#include "info.h"
#include "base/texts.h"
#include "planner/buffers.h"

#include <weir/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    abort();
}

static void plan_it(const weir_buffers *list, unsigned how)
{
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    options.effort = 200;
    options.mode = (weir_plan_mode)(how % 3);
    options.alignment = (uint64_t)1 << (how / 3 % 12);
    weir_plan *plan;
    weir_status status = weir_plan_create(list, &options, &plan);
    require(status == WEIR_OK || status == WEIR_ERR_INVALID || status == WEIR_ERR_CONFLICT, "planned");
    if (status != WEIR_OK)
        return;
    require(weir_plan_check(plan, list) == WEIR_OK, "checked");
    weir_plan_destroy(plan);
}

static void read_list(const char *text, size_t size, unsigned how)
{
    weir_buffers *list = NULL;
    if (wi_buffers_parse_csv(text, size, "list", &list) != WEIR_OK)
        return;
    if (list_details(list).count <= 200)
        plan_it(list, how);
    weir_buffers_destroy(list);
}

static void read_plan(const char *text, size_t size)
{
    char *whole = malloc(size + 32);
    weir_plan *plan = NULL;
    require(whole, "memory");
    if (size > 0)
        memcpy(whole, text, size);
    snprintf(whole + size, 32, "sum %016llx\n", (unsigned long long)wi_fnv1a(whole, size));
    if (wi_plan_parse(whole, size + 21, "plan", &plan) == WEIR_OK)
        require(weir_plan_check(plan, NULL) == WEIR_OK, "loaded");
    weir_plan_destroy(plan);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 0x80)
        read_plan((const char *)data + 1, size - 1);
    else
        read_list((const char *)data + 1, size - 1, data[0]);
    return 0;
}
