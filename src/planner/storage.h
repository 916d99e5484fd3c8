/* The storage behind a list of buffers: views joined with their roots, what is written in place joined with what it is
 * written over, a problem for the solvers for each kind of memory, and the lower bound. */
#ifndef WI_ARENA_STORAGE_H
#define WI_ARENA_STORAGE_H

#include "planner/buffers.h"
#include "planner/problem.h"

/* Of a buffer with storage of its own. */
typedef struct wi_storage {
    uint64_t begin, end; /* of it and its views; of a leader, of all that lies in its item */
    uint64_t own_end;    /* of it and its views */
    uint64_t length;     /* rounded up to the plan's alignment */
    uint64_t shift;      /* in its item */
    uint64_t offset;     /* of a fixed one */
    uint32_t over;       /* the storage that a plan may write it over; WEIR_NO_BUFFER: none */
    uint32_t leader;     /* whose item it lies in: itself, or what it is written over */
    uint32_t root;       /* what it is written over in the end, though it may be an item of its own; or itself */
    uint32_t item;       /* in the problem of its kind */
    uint32_t cover;      /* what may be written over it; WEIR_NO_BUFFER: nothing */
    bool tied;           /* gaps, conflicts or a lifetime of all steps: the planner joins it with nothing */
    bool fixed;          /* as told, or because what it is written over is */
    bool late;           /* its first step belongs to the item of what it is written over */
} wi_storage;

typedef struct wi_stores {
    const weir_buffers *buffers;
    wi_storage *all; /* by buffer; of views and empty ones nothing but zeros */
    uint64_t alignment;
    uint64_t unshared;
    wi_problem problems[WEIR_KIND_COUNT];
} wi_stores;

/* WEIR_INVALID for sizes beyond what 63 bits can add up to; WEIR_SYSTEM without host memory. Clear in both cases too. */
weir_status wi_stores_make(const weir_buffers *buffers, uint64_t alignment, wi_stores *out);
void wi_stores_clear(wi_stores *stores);

/* Where the buffer's storage or view lies, by the items' offsets; its root is the storage that it lies in. */
uint64_t wi_stores_offset(const wi_stores *stores, uint32_t buffer, uint32_t *root);

#endif
