/* bench_trace_goals.c: the goals of replays. A goal beside peers that are not there is not measured. */
#include "traces.h"

#include <math.h>
#include <string.h>

typedef struct sides {
    const bench_replayed *own, *torch, *expandable, *pool; /* NULL: not there */
} sides;

static sides find_sides(const bench_trace *trace, const bench_allocators *all)
{
    sides s = {0};
    for (size_t i = 0; i < all->count; i++) {
        const char *name = all->at[i].by.name;
        if (all->at[i].own && !s.own)
            s.own = &trace->by[i];
        else if (strstr(name, "PyTorch") && strstr(name, "expandable"))
            s.expandable = &trace->by[i];
        else if (strstr(name, "PyTorch"))
            s.torch = &trace->by[i];
        else if (strstr(name, "cuMemAllocAsync"))
            s.pool = &trace->by[i];
    }
    return s;
}

static double of(const bench_replayed *r, size_t member)
{
    double value = NAN;
    if (r)
        memcpy(&value, (const char *)r + member, sizeof value);
    return value;
}

/* Over the best of the peers; NAN without one. */
static double of_best(const sides *s, size_t member)
{
    double best = fmin(fmin(of(s->torch, member), of(s->expandable, member)), of(s->pool, member));
    return of(s->own, member) / best; /* fmin leaves NANs out */
}

/* What a small cap may cost: bert_serve, whose blocks hardly fit, has figures of its own. */
static void cost_goals(const bench_trace *trace, const bench_replayed *own, bench_goals *goals)
{
    const char *name = trace->name;
    if (strcmp(name, "bert_serve") == 0) {
        bench_goal(goals, name, "ns per event, cap 1.05", 400, own->ns_105);
        bench_goal(goals, name, "ns per event, cap 1.10", 200, own->ns_110);
    } else {
        bench_goal(goals, name, "cost under 1.05, of that without", 1.2, own->ns_105 / own->ns);
        bench_goal(goals, name, "cost under 1.10, of that without", 1.2, own->ns_110 / own->ns);
    }
}

void bench_trace_goals(const bench_trace *trace, const bench_allocators *all, bench_goals *goals)
{
    sides s = find_sides(trace, all);
    const bench_replayed *own = s.own;
    const char *name = trace->name;
    if (!own)
        return;
    bench_goal(goals, name, "least cap over requested", trace->plan.streams > 1 ? 1.03 : 1.01, own->cap);
    bench_goal(goals, name, "cost there, of expandable segments' at theirs", 2,
               own->cap_ns / of(s.expandable, offsetof(bench_replayed, cap_ns)));
    bench_goal(goals, name, "least cap with lag, of the best peer's", 1,
               of_best(&s, offsetof(bench_replayed, lag_cap)));
    cost_goals(trace, own, goals);
    bench_goal(goals, name, "held without a cap, of the best peer's", 1, of_best(&s, offsetof(bench_replayed, held)));
    bench_goal(goals, name, "held without a cap over requested", 1.10, own->held);
    bench_goal(goals, name, "moves per allocation", 0.002, own->moves);
    bench_goal(goals, name, "driver calls per allocation", 0.001, own->calls);
}
