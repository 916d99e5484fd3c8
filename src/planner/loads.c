/* A tree over the points in time: what is added to all of a node, and the most that comes together below it. */
#include "planner/loads.h"
#include "base/internal.h"

struct wi_loads {
    const uint64_t *points;
    size_t count;
    int64_t *all, *most; /* by node; `most` has what is added to the node in it */
};

static int by_number(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

wi_loads *wi_loads_create(uint64_t *points, size_t count)
{
    wi_loads *loads = calloc(1, sizeof *loads);
    if (!loads)
        return NULL;
    qsort(points, count, sizeof *points, by_number);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || points[i] != points[i - 1])
            points[loads->count++] = points[i];
    loads->points = points;
    loads->all = calloc(4 * (loads->count + 1), sizeof *loads->all);
    loads->most = calloc(4 * (loads->count + 1), sizeof *loads->most);
    if (loads->all && loads->most)
        return loads;
    wi_loads_destroy(loads);
    return NULL;
}

void wi_loads_destroy(wi_loads *loads)
{
    if (!loads)
        return;
    free(loads->all);
    free(loads->most);
    free(loads);
}

/* Points low … high - 1. */
typedef struct node {
    size_t number, low, high;
} node;

static node half_of(node n, size_t which)
{
    size_t middle = (n.low + n.high) / 2;
    return which ? (node){2 * n.number + 1, middle, n.high} : (node){2 * n.number, n.low, middle};
}

static void add(wi_loads *l, node n, size_t from, size_t to, int64_t bytes)
{
    if (from >= n.high || to <= n.low)
        return;
    if (from <= n.low && n.high <= to) {
        l->all[n.number] += bytes;
        l->most[n.number] += bytes;
        return;
    }
    add(l, half_of(n, 0), from, to, bytes);
    add(l, half_of(n, 1), from, to, bytes);
    int64_t a = l->most[2 * n.number], b = l->most[2 * n.number + 1];
    l->most[n.number] = l->all[n.number] + (a > b ? a : b);
}

static int64_t most(const wi_loads *l, node n, size_t from, size_t to)
{
    if (from >= n.high || to <= n.low)
        return INT64_MIN;
    if (from <= n.low && n.high <= to)
        return l->most[n.number];
    int64_t a = most(l, half_of(n, 0), from, to), b = most(l, half_of(n, 1), from, to);
    return l->all[n.number] + (a > b ? a : b);
}

static size_t point_of(const wi_loads *l, uint64_t time)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (l->points[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void wi_loads_add(wi_loads *loads, uint64_t begin, uint64_t end, int64_t bytes)
{
    if (begin < end)
        add(loads, (node){1, 0, loads->count}, point_of(loads, begin), point_of(loads, end), bytes);
}

int64_t wi_loads_most(const wi_loads *loads, uint64_t begin, uint64_t end)
{
    return begin < end ? most(loads, (node){1, 0, loads->count}, point_of(loads, begin), point_of(loads, end))
                       : INT64_MIN;
}
