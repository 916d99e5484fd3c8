/* Traces as RMM's logging adaptor writes them, plain or compressed by gzip. */
#ifndef WI_TRACE_READ_RMM_H
#define WI_TRACE_READ_RMM_H

#include <weir/memory.h>

/* A text file line by line. */
typedef struct lines lines;

enum { LINES_MOST = 16384 }; /* bytes of a line */

/* WEIR_ERR_SYSTEM: the file cannot be read. */
weir_status lines_open(const char *path, lines **out);

/* The next line without its end, terminated by a zero and the caller's to change until the next call; NULL at the end.
 * *whole is false and the text empty for a line that is longer than any, that has a zero inside, or that the end of the
 * data cuts. WEIR_ERR_CORRUPT for compressed data that is none, WEIR_ERR_SYSTEM. A compressed file that lacks its end,
 * as a killed program leaves, ends where the data stops: see lines_cut. */
weir_status lines_next(lines *l, char **text, bool *whole);

/* The number of the line that was read last, from 1. */
uint64_t lines_number(const lines *l);
/* After the end: whether compressed data was missing. */
bool lines_cut(const lines *l);

void lines_close(lines *l);

/* Rows: Thread,Time,Action,Pointer,Size,Stream, in any order, with or without the columns that weir adds. Nothing in
 * them is guessed: what is no row is told in words. */

typedef enum rmm_action { RMM_ALLOCATE, RMM_FREE, RMM_FAILURE } rmm_action;

typedef struct rmm_row {
    rmm_action action;
    weir_class memory_class; /* WEIR_CLASS_OTHER without such a column */
    uint64_t pointer, stream;
    uint64_t bytes;               /* of a refusal at most INT64_MAX, whatever was asked for */
    uint64_t key;                 /* weir's order, else the time in nanoseconds, else 0 */
    bool of_day;                  /* that is a time of the day, and starts again at midnight */
    const char *client, *tag;     /* in the line; "" without such a column */
    uint64_t nanoseconds, thread; /* each 0 without its column */
} rmm_row;

enum { RMM_COLUMNS = 11, RMM_FIELDS = 64 };

typedef struct rmm_columns {
    int place[RMM_COLUMNS]; /* the field of a row that has the column; -1: none */
    int count;              /* of a row's fields */
    bool weirs;             /* weir wrote the file: stream 0 is WEIR_STREAM_HOST */
    bool timed;             /* keys are times; row_order.h makes an order of them */
    bool threaded;          /* rows have threads */
    bool clocked;           /* rows have nanoseconds */
} rmm_columns;

/* Opens a file and reads its first line. WEIR_ERR_SYSTEM; WEIR_ERR_CORRUPT: it names no such columns, and the detail
 * says which are missing; WEIR_ERR_UNSUPPORTED: another kind of file that was compressed, a zip archive, or UTF-16. */
weir_status rmm_open(const char *path, lines **out, rmm_columns *columns);

/* The next row that is not empty; *got is false at the end. Of a line that is none, *wrong says why; static storage. As
 * lines_next. */
weir_status rmm_next(lines *l, const rmm_columns *columns, rmm_row *out, const char **wrong, bool *got);

#endif
