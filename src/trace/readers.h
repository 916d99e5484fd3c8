/* Readers of the files that traces are in: weir's binary file, rows of a CSV and their order, pickles. */
#ifndef WI_TRACE_READERS_H
#define WI_TRACE_READERS_H

#include <weir/trace.h>
#include <weir/memory.h>
#include <weir/base.h>

/* Binary ----------------------------------------------------------------------------------------------------------- */

/* Reads a binary trace, as WEIR_SINK_BINARY writes it, event by event. Nothing in the file is believed: what
 * breaks the format is WEIR_ERR_CORRUPT with the offset where it stands, whatever the bytes. */

typedef struct reader reader;

/* WEIR_ERR_SYSTEM: the file cannot be read; WEIR_ERR_CORRUPT: it is no trace; WEIR_ERR_UNSUPPORTED: of a later
 * version. */
weir_status reader_open(const char *path, reader **out);

/* The next event; its texts live as long as the reader. *got is false at the end. A file that lacks its end, as a
 * killed program leaves, ends where the data stops: see reader_cut. */
weir_status reader_next(reader *r, weir_event *out, bool *got);

/* After the end: whether the file was cut off, and where. */
bool reader_cut(const reader *r, uint64_t *offset);
/* Events that the file lacks, as far as is known: the gaps between the events that were read, or the losses that the
 * file's end tells, whichever is more. */
uint64_t reader_lost(const reader *r);

void reader_close(reader *r);

/* Rows ------------------------------------------------------------------------------------------------------------- */

/* Traces as RMM's logging adaptor writes them, plain or compressed by gzip. */

/* A text file line by line. */
typedef struct lines lines;

enum { LINES_MOST = 16384 }; /* bytes of a line */

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
    bool timed;             /* keys are times; rows_sort makes an order of them */
    bool threaded;          /* rows have threads */
    bool clocked;           /* rows have nanoseconds */
} rmm_columns;

/* Opens a file and reads its first line. WEIR_ERR_SYSTEM; WEIR_ERR_CORRUPT: it names no such columns, and the detail
 * says which are missing; WEIR_ERR_UNSUPPORTED: another kind of file that was compressed, a zip archive, or UTF-16. */
weir_status rmm_open(const char *path, lines **out, rmm_columns *columns);

/* The next row that is not empty; *got is false at the end. Of a line that is none, *wrong says why; static storage.
 * WEIR_ERR_CORRUPT for compressed data that is none, WEIR_ERR_SYSTEM. A compressed file that lacks its end, as a killed
 * program leaves, ends where the data stops: see lines_cut. */
weir_status rmm_next(lines *l, const rmm_columns *columns, rmm_row *out, const char **wrong, bool *got);

/* The order of rows ------------------------------------------------------------------------------------------------ */

/* The order in which the rows of a log happened that has only times of the day, or other times that go back.
 * RMM writes a free before it happens and an allocation after, so that the file's own order is right, whatever the clock
 * did: it passed midnight, or was set back when summer time ended. But where the rows of several threads were written
 * later, thread after thread, the times alone say what happened first. */

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

/* Pickles ---------------------------------------------------------------------------------------------------------- */

/* Reads pickles of plain data, of protocol 0 to 5: dictionaries, lists, tuples, texts, numbers, True, False and None.
 * An instruction that would find a class or call something is refused, as is everything else: nothing in the file is
 * believed, and nothing in it runs. The memory taken is bounded by the size of the file. */

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INTEGER,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_LIST,  /* or a tuple */
    PICKLE_PAIRS, /* a dictionary: key, value, key, value … */
} pickle_kind;

typedef struct pickle_value pickle_value;

struct pickle_value {
    pickle_kind kind;
    bool negative;  /* of an integer: `number` is a two's complement */
    uint64_t count; /* of the items; the bytes of a text */
    union {
        uint64_t number;
        double real;
        const char *text; /* not terminated */
        pickle_value **items;
    };
};

typedef struct pickle pickle;

/* WEIR_ERR_SYSTEM: it cannot be read; WEIR_ERR_CORRUPT: it is no pickle, with the byte where it stops being one;
 * WEIR_ERR_UNSUPPORTED: it has more than plain data. */
weir_status pickle_load(const char *path, pickle **out);
const pickle_value *pickle_root(const pickle *p);
void pickle_free(pickle *p);

/* Looking takes steps, of which there are as many as a file of that size can need: values that stand in many places at
 * once would otherwise be looked at for ever. Once the steps are spent, pickle_get and pickle_item find nothing. */
const pickle_value *pickle_get(pickle *p, const pickle_value *pairs, const char *key); /* NULL: it has none */
const pickle_value *pickle_item(pickle *p, const pickle_value *list, uint64_t place);  /* NULL: it has none */
bool pickle_spent(const pickle *p);

/* The number; `otherwise` where it is none, or less than 0. */
uint64_t pickle_number(const pickle_value *value, uint64_t otherwise);
bool pickle_is(const pickle_value *value, const char *text);

#endif
