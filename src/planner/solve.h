/* The solvers, which plan.c calls in turn, and their common data: the work that solvers may spend, and the best offsets
 * so far. */
#ifndef WI_PLANNER_SOLVE_H
#define WI_PLANNER_SOLVE_H

#include "planner/problem.h"
#include <weir/plan.h>

typedef struct wi_work {
    const weir_plan_options *options;
    uint64_t limit, spent; /* steps of the search */
    uint64_t looked;       /* at the clock, when so much was spent */
    uint64_t began, told;  /* nanoseconds of the clock */
    uint64_t arena, bound; /* of what progress tells: all kinds' together */
    uint64_t others;       /* arenas of the kinds that are placed, bounds of those to come */
    bool stopped;          /* by the clock or by `progress` */
} wi_work;

void wi_work_begin(wi_work *work, const weir_plan_options *options);

/* Spends so many steps; false when the search has to end. */
bool wi_work_spend(wi_work *work, uint64_t steps);

/* What is not counted in steps looks at the clock by this; false when it has to end. */
bool wi_work_goes_on(wi_work *work);

typedef struct wi_best {
    uint64_t *offsets; /* by item */
    uint64_t height;   /* UINT64_MAX: none yet */
    uint64_t enough;   /* what is looked for: the bound, or more */
    bool proven;
    const char *found_by;
} wi_best;

/* Keeps the items' offsets if their arena is smaller than the best so far; true if that is small enough. */
bool wi_best_keep(const wi_problem *problem, wi_best *best, const char *by);

/* interval_set.c: sets of addresses, as intervals with something free between them. A piece has consecutive intervals, and the length of the widest gap between two neighbours. */
typedef struct wi_interval_piece {
    struct wi_interval *intervals;
    uint32_t count, room;
    uint64_t widest;
} wi_interval_piece;

/* All zeros: an empty set. */
typedef struct wi_interval_set {
    wi_interval_piece *pieces;
    uint32_t count, room;
} wi_interval_set;

void wi_interval_set_empty(wi_interval_set *set); /* keeps the set's memory for later intervals */
void wi_interval_set_clear(wi_interval_set *set);

/* low … high - 1 too, whatever of it is in the set already. False without host memory. */
bool wi_interval_set_add(wi_interval_set *set, uint64_t low, uint64_t high);

/* The lowest multiple of `alignment` at or above `at`, which is one, from which on `length` addresses are not in the
 * set. `piece` says from where on to look: 0, or what it became when this was asked for a lower address. */
uint64_t wi_interval_set_gap(const wi_interval_set *set, uint32_t *piece, uint64_t at, uint64_t length,
                             uint64_t alignment);

/* greedy.c: items that are placed, found by time and address, and the lowest gap that another one fits into. */
typedef struct wi_placement_index wi_placement_index;

/* With nothing placed; NULL without host memory. */
wi_placement_index *wi_placement_index_create(const wi_problem *problem);
void wi_placement_index_destroy(wi_placement_index *index);

/* The item, at its offset. False without host memory. */
bool wi_placement_index_add(wi_placement_index *index, uint32_t item);

/* The lowest offset at or above `from`, aligned as the item wants, at which it meets none that is placed. False without
 * host memory. */
bool wi_placement_index_lowest(wi_placement_index *index, uint32_t item, uint64_t from, uint64_t *offset);

/* Places every item that is not fixed, in the order of `order`, into the lowest gap that has room. When the work has to
 * end, the remaining items are placed one behind the other. False without host memory. */
bool wi_place_in_order(wi_problem *problem, wi_placement_index *index, const uint32_t *order, wi_work *work);

/* The same for several orders, by size, by what lifetimes make of sizes and by lifetimes. */
bool wi_solve_greedily(wi_problem *problem, wi_work *work, wi_best *best);

/* skyline.c; of plain problems: one pass from below, in several orders. */
bool wi_solve_from_below(wi_problem *problem, wi_work *work, wi_best *best);

/* neighbourhood.c; of plain problems: the exact search, until the best is proven or the work is spent. */
bool wi_solve_by_search(wi_problem *problem, wi_work *work, wi_best *best);

/* Places the items one behind the other, in order, behind all fixed items. */
void wi_solve_bump(wi_problem *problem);

#endif
