#include "planner/problem.h"
#include "base/internal.h"

static bool in_conflict(const wi_problem *problem, const wi_item *one, const wi_item *other)
{
    uint32_t index = (uint32_t)(other - problem->items);
    for (uint32_t i = 0; i < one->edges; i++)
        if (problem->edges[one->first_edge + i] == index)
            return true;
    return false;
}

static uint32_t parts(const wi_problem *problem, const wi_item *item, wi_span *whole, const wi_span **out)
{
    *whole = (wi_span){item->left, item->right};
    *out = item->spans ? &problem->spans[item->first_span] : whole;
    return item->spans ? item->spans : 1;
}

static bool spans_meet(const wi_problem *problem, const wi_item *one, const wi_item *other)
{
    wi_span whole[2];
    const wi_span *a, *b;
    uint32_t count_a = parts(problem, one, &whole[0], &a), count_b = parts(problem, other, &whole[1], &b);
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
