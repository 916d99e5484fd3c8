/* lines.h: files of lines "WORD key=value key=value flag", read strictly: every problem has its line. Comments begin with
 * '#'. Times are "250ms", "1.5s", "5m", "forever"; sizes as everywhere ("1.5GiB"). */
#ifndef SIM_POOL_LINES_H
#define SIM_POOL_LINES_H

#include <weir/base.h>

#include <stddef.h>
#include <stdio.h>

enum { LINE_BYTES = 1024, LINE_WORDS = 40 };

typedef struct line_reader {
    FILE *file;
    const char *path; /* as it was opened; the caller keeps it */
    uint64_t number;  /* of the line, from 1 */
    char text[LINE_BYTES + 2];
    const char *word; /* its first; the others are pairs */
    struct {
        const char *key, *value; /* value NULL: a flag */
    } pairs[LINE_WORDS];
    unsigned count;
} line_reader;

typedef enum line_type {
    LINE_SIZE, /* a uint64_t, bytes */
    LINE_TIME, /* a uint64_t, nanoseconds; "forever" is 2^64-1 */
    LINE_U32,
    LINE_I32,
    LINE_NAME, /* char[64], not empty */
    LINE_SET,  /* a bool, which the flag sets to true */
    LINE_CLEAR /* a bool, which the flag sets to false */
} line_type;

/* A key of a line and where its value goes. */
typedef struct line_field {
    const char *key;
    line_type type;
    bool wanted; /* a line without it is refused */
    size_t at;
    uint64_t least, most; /* of numbers, sizes and times; both 0: any */
} line_field;

/* WEIR_ERR_SYSTEM: it cannot be opened. */
weir_status line_open(line_reader *reader, const char *path);
void line_close(line_reader *reader);
/* The next line that has words. *got false: there is none. */
weir_status line_next(line_reader *reader, bool *got);
/* WEIR_ERR_INVALID with "PATH, line N: …". */
weir_status line_fail(const line_reader *reader, const char *format, ...) WEIR_PRINTF(2, 3);
/* Reads the line's pairs into `to`. A key that is not there, comes twice or is missing is refused, as is a value that is
 * none. *seen, unless NULL, gets a bit for each field that was given. */
weir_status line_fill(const line_reader *reader, const line_field *fields, size_t count, void *to, uint64_t *seen);

/* "1.5s" in nanoseconds; parts of a nanosecond, signs and other units are refused. */
bool line_time_read(const char *text, uint64_t *out);
/* Writes the time so that line_time_read reads the same value: "1500ms". Returns `text`, which has at least 24
 * bytes. */
char *line_time_write(uint64_t time, char *text, size_t capacity);

#endif
