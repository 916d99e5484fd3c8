/* row_order.h: the order in which the rows of a log happened that has only times of the day, or other times that go back.
 * RMM writes a free before it happens and an allocation after, so that the file's own order is right, whatever the clock
 * did: it passed midnight, or was set back when summer time ended. But where the rows of several threads were written
 * later, thread after thread, the times alone say what happened first. */
#ifndef WI_TRACE_ROW_ORDER_H
#define WI_TRACE_ROW_ORDER_H

#include "trace/read_rmm.h"

typedef struct row_step {
    uint64_t logged;                 /* nanoseconds */
    uint64_t time;                   /* out: nanoseconds on a clock that never goes back */
    uint64_t thread, pointer, place; /* the place in the file */
    rmm_action action;
    bool of_day; /* as in rmm_row */
} row_step;

/* Puts the rows, which stand as in the file, into the order in which they happened. Rows of one thread stay as they are
 * in the file; without threads (`threaded` is false) rows count as of the same thread until a time goes back. Takes the
 * possible order in which the fewest rows make no sense: frees of pointers that are not live, allocations at pointers
 * that are live. WEIR_ERR_SYSTEM: no memory. */
weir_status rows_sort(row_step *rows, size_t count, bool threaded);

#endif
