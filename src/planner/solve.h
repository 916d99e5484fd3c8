/* The solvers, which plan.c calls in turn, and their common data: the work that solvers may spend, and the best offsets
 * so far. With them stand sets of intervals, and the structures of the exact search. */
#ifndef WI_PLANNER_SOLVE_H
#define WI_PLANNER_SOLVE_H

#include <weir/plan.h>

#include "planner/problem.h"

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

/* interval_set.c: sets of addresses, as intervals with something free between them. A piece has consecutive intervals, and the
 * length of the widest gap between two neighbours. */
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

/* ---- search_problem.c, search.c ---------------------------------------------------------------------------------- */

/* The exact search: whether items fit under a height.
 *
 * Items are put down from below, each onto the skyline that those before leave. In a valley of the skyline (a run of
 * equal levels between higher ones) only what lies inside it can be put down. So a section of a valley has these
 * options: one of the items that cover the section and lie in the valley is put there, or the section is left empty up
 * to the level at which that can change. The options exclude each other and leave nothing out, in whatever order
 * sections are taken. What is left empty is paid from the section's slack: the height less the level and all that is
 * still to come in the section.
 *
 * Where no item that is left crosses a border between sections, the two sides are solved one after the other: if one
 * fails, nothing has to be tried again in the other. States that failed are remembered. */

/* Sorted by left, right, height, so that equal items are neighbours. */
typedef struct wi_search_item {
    int64_t height; /* in units */
    uint64_t key;   /* equal items, equal keys */
    uint32_t left, right;
    uint32_t source;               /* in the problem */
    int32_t log_height, log_width; /* of base 2, in fixed point */
    bool twin;                     /* equal to the one before */
} wi_search_item;

typedef struct wi_search {
    uint32_t count, sections;
    uint64_t unit; /* of heights */
    int64_t cap;
    int64_t failed_cap; /* the highest since failed states were forgotten */
    uint64_t salt;      /* sets the states of this try apart; 0: all tries share them */
    wi_search_item *items;
    uint32_t *first;      /* of a section: the first item with its left there or behind */
    uint64_t *waiting;    /* bits of items that are not put down */
    int64_t *levels;      /* by section: the skyline */
    int64_t *rest;        /* by section: heights of all waiting items */
    uint32_t *crossing;   /* by section: waiting items that are live in the section and in the section before */
    int64_t *bottoms;     /* by item: where it was put down */
    uint32_t *failures;   /* by section: how often it was the reason of one */
    double *weights;      /* by section: 1 / (1 + its failures) */
    bool *changed;        /* by section: since its options were counted */
    uint64_t *level_keys; /* by section: numbers for hashing */
    struct wi_search_move *moves;
    size_t move_count, moves_room;
    struct wi_search_valleys *valleys;
    struct wi_search_failed *failed;
    uint64_t random;
} wi_search;

/* How a try chooses: which options come first. An item's score is the sum of what is told here times the logarithms of
 * its height and its width, the number of its edges that lie flush, and a random number from 0 to 1/4 … */
typedef struct wi_strategy {
    int8_t height, width, edges, noise;
    bool weighted;  /* sections that were the reason of failures are chosen sooner */
    uint64_t nodes; /* at the most */
} wi_strategy;

typedef enum wi_search_result {
    WI_SEARCH_FOUND,
    WI_SEARCH_NONE,
    WI_SEARCH_GAVE_UP,
    WI_SEARCH_NO_MEMORY
} wi_search_result;

/* Of a plain problem. NULL without host memory. */
wi_search *wi_search_create(const wi_problem *problem);
void wi_search_destroy(wi_search *search);
/* search.c: the tables that tries use; false without host memory. */
bool wi_search_tables_make(wi_search *search);
void wi_search_tables_clear(wi_search *search);
uint64_t wi_search_random(wi_search *search);

/* Sets the cap; forgets failures under a lower cap. */
void wi_search_limit(wi_search *search, int64_t cap);
/* The same for one try under a higher cap, whose failures say nothing of other tries, nor theirs of it. */
void wi_search_limit_once(wi_search *search, int64_t cap);

/* A solution found before, perhaps under a higher cap, of which a try keeps the items that lie below the cuts and on
 * nothing that is free. */
typedef struct wi_search_solution {
    const int64_t *bottoms; /* by item */
    const uint32_t *order;  /* items, the lowest bottom first */
    int64_t *cuts;          /* by section; lowered by the try */
} wi_search_solution;

/* One try, from the beginning, or from what is kept of a solution (NULL: nothing), which then is never WI_SEARCH_NONE.
 * `bottoms` are the solution when one is found. */
wi_search_result wi_search_try(wi_search *search, const wi_strategy *strategy, const wi_search_solution *solution,
                               wi_work *work);

#endif
