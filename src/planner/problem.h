/* What the solvers see: items with a length and the sections of time in which they are live.
 *
 * A section is a run of steps in which nothing is born after something has died: two items overlap in time exactly when
 * they share a section, and a section's load is the sum of the lengths of the items in it. */
#ifndef WI_ARENA_PROBLEM_H
#define WI_ARENA_PROBLEM_H

#include <weir/plan.h>

typedef struct wi_span {
    uint32_t left, right; /* sections left … right - 1 */
} wi_span;

typedef struct wi_item {
    uint64_t length, alignment;
    uint64_t offset; /* the answer; given for a fixed one */
    uint32_t left, right;
    uint32_t first_span, spans; /* the parts in which it is live; 0: all of left … right - 1 */
    uint32_t first_edge, edges; /* items in conflict with it */
    bool fixed;
} wi_item;

typedef struct wi_problem {
    wi_item *items;
    uint32_t count, sections;
    wi_span *spans;
    uint32_t *edges;
    uint64_t alignment; /* of every item at the least; lengths are multiples of it */
    uint64_t bound;     /* no arena is smaller */
    bool plain;         /* no gaps, no conflicts, nothing fixed, one alignment */
    bool in_place;      /* some may be written over others: plans exist that the items cannot tell */
} wi_problem;

/* Whether the two are ever live together, or in conflict. */
bool wi_items_meet(const wi_problem *problem, const wi_item *one, const wi_item *other);

/* The arena that the items' offsets make. */
uint64_t wi_problem_height(const wi_problem *problem);

#endif
