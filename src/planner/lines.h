/* A text by lines, and the numbers in it. */
#ifndef WI_PLANNER_LINES_H
#define WI_PLANNER_LINES_H

#include <weir/base.h>

typedef struct wi_lines {
    const char *name; /* of the text, for messages */
    const char *next, *end;
    const char *text; /* the line at hand, without its end */
    size_t length;
    uint64_t number; /* from 1 */
} wi_lines;

/* False behind the last line. Lines end with a line feed, and may have a carriage return before it. */
bool wi_lines_next(wi_lines *lines);

/* WEIR_ERR_CORRUPT, naming the text and the line. */
weir_status wi_lines_wrong(const wi_lines *lines, const char *format, ...) WEIR_PRINTF(2, 3);

/* Puts the text and the line before the thread's detail; answers `status`. */
weir_status wi_lines_prefix(const wi_lines *lines, weir_status status);

/* A decimal number that is the whole text; false if it is none, or needs more than 64 bits. */
bool wi_lines_number(const char *text, size_t length, uint64_t *out);

/* A file's content, for free(). WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM. */
weir_status wi_lines_read_file(const char *path, char **text, size_t *bytes);

#endif
