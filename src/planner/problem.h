/* What the solvers see: items with a length and the sections of time in which they are live.
 *
 * A section is a run of steps in which nothing is born after something has died: two items overlap in time exactly when
 * they share a section, and a section's load is the sum of the lengths of the items in it. */
#ifndef WI_PLANNER_PROBLEM_H
#define WI_PLANNER_PROBLEM_H

#include "planner/buffers.h"

#include <weir/plan.h>

typedef struct wi_span {
    uint32_t left, right; /* sections left … right - 1 */
} wi_span;

typedef struct wi_item {
    uint64_t length, alignment;
    uint64_t offset; /* the answer; given for a fixed one */
    uint32_t left, right;
    uint32_t first_span, spans; /* the parts in which the item is live; 0: all of left … right - 1 */
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
    bool in_place;      /* a storage may be written over another: plans exist that the items cannot express */
} wi_problem;

/* Points *out at the spans in which the item is live; an item without gaps has one, written to *whole. Returns their
 * count. */
uint32_t wi_item_spans(const wi_problem *problem, const wi_item *item, wi_span *whole, const wi_span **out);

/* Whether the two are ever live together, or in conflict. */
bool wi_items_meet(const wi_problem *problem, const wi_item *one, const wi_item *other);

/* The arena that the items' offsets make. */
uint64_t wi_problem_height(const wi_problem *problem);

/* The storage behind a list of buffers: views joined with their roots, what is written in place joined with what it is
 * written over, a problem for each kind of memory, and the lower bound. */

/* Of a buffer with storage of its own. */
typedef struct wi_storage {
    uint64_t begin, end; /* of the storage and its views; of a leader: of every storage in its item */
    uint64_t own_end;    /* of the storage and its views */
    uint64_t length;     /* rounded up to the plan's alignment */
    uint64_t shift;      /* in its item */
    uint64_t offset;     /* of a fixed one */
    uint32_t over;       /* the storage below, which a plan may write this storage over; WEIR_NO_BUFFER: none */
    uint32_t leader;     /* the storage in whose item this storage lies: itself, or a storage below */
    uint32_t root;  /* the lowest storage that it lies over in the items' offsets, even in another item; or itself */
    uint32_t item;  /* in the problem of its kind */
    uint32_t above; /* the storage that may be written over this storage; WEIR_NO_BUFFER: none */
    bool tied;      /* gaps, conflicts or a lifetime of all steps: the planner joins it with nothing */
    bool fixed;     /* by the list, or because the storage below is */
    bool late;      /* its first step belongs to the item of the storage below */
} wi_storage;

typedef struct wi_stores {
    const weir_buffers *buffers;
    wi_storage *all; /* by buffer; of views and empty ones nothing but zeros */
    uint64_t alignment;
    uint64_t unshared;
    wi_problem problems[WEIR_KIND_COUNT];
} wi_stores;

/* WEIR_ERR_INVALID for sizes beyond what 63 bits can add up to; WEIR_ERR_SYSTEM without host memory. Clear in both
 * cases too. */
weir_status wi_stores_make(const weir_buffers *buffers, uint64_t alignment, wi_stores *out);
void wi_stores_clear(wi_stores *stores);

/* Returns the offset of the buffer's storage or view, by the items' offsets. *root: the lowest storage under the
 * buffer, or the buffer's own storage. */
uint64_t wi_stores_offset(const wi_stores *stores, uint32_t buffer, uint32_t *root);

/* in_place.c: joins storages that are written over other storages into items. Sets over, above, leader, shift and root,
 * and fixed, late and offset where a fixed storage below decides the place. WEIR_ERR_SYSTEM without host memory. */
weir_status wi_in_place_join(wi_stores *stores);

/* Sorting by numbers: stable, and linear in the count. */
typedef struct wi_key {
    uint64_t key;
    uint32_t value;
} wi_key;

/* Smallest key first; `spare` is as long as `keys`, and what is in it afterwards is of no meaning. */
void wi_radix_sort(wi_key *keys, wi_key *spare, size_t count);

#endif
