/* rmm.h: the rows of a trace as RMM's logging adaptor writes one: Thread,Time,Action,Pointer,Size,Stream, in any order, with
 * or without the columns that weir adds. Nothing in them is guessed: what is no row is told in words. */
#ifndef WEIR_TRACE_RMM_H
#define WEIR_TRACE_RMM_H

#include <weir/memory.h>

typedef enum rmm_action { RMM_ALLOCATE, RMM_FREE, RMM_FAILURE } rmm_action;

typedef struct rmm_row {
    rmm_action action;
    weir_class memory_class; /* WEIR_CLASS_OTHER where there is no such column */
    uint64_t pointer, bytes, stream;
    uint64_t key; /* rows happened in the order of their keys: weir's order, else nanoseconds of the day, else 0 */
} rmm_row;

enum { RMM_COLUMNS = 7, RMM_FIELDS = 64 };

typedef struct rmm_columns {
    int place[RMM_COLUMNS]; /* which field of a row has it; -1: none */
    int count;              /* of a row's fields */
    bool weirs;             /* weir wrote it, so that stream 0 is WEIR_STREAM_HOST */
    bool timed;             /* keys are times of the day, which begin anew at midnight */
} rmm_columns;

/* Reads the first line, which it changes. WEIR_ERR_CORRUPT: it names no such columns; the detail says which are missing. */
weir_status rmm_header(const char *path, char *line, rmm_columns *out);

/* Reads a line, which it changes. NULL, or what is wrong with it; static storage. */
const char *rmm_read(const rmm_columns *columns, char *line, rmm_row *out);

#endif
