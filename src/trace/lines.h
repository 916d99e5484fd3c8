/* lines.h: a text file line by line, plain or compressed by gzip. */
#ifndef WEIR_TRACE_LINES_H
#define WEIR_TRACE_LINES_H

#include <weir/base.h>

typedef struct lines lines;

enum { LINES_MOST = 16384 }; /* bytes of a line */

/* WEIR_ERR_SYSTEM: the file cannot be read. */
weir_status lines_open(const char *path, lines **out);

/* The next line without its end, terminated by a zero and the caller's to change until the next call; NULL at the end.
 * *whole is false and the text empty for a line that is longer than any, that has a zero inside, or that the end of the
 * data cuts. WEIR_ERR_CORRUPT for compressed data that is none, WEIR_ERR_SYSTEM. A compressed file that stops before its end, as that of a
 * program that was killed, ends there: lines_cut. */
weir_status lines_next(lines *l, char **text, bool *whole);

/* The number of the line that was read last, from 1. */
uint64_t lines_number(const lines *l);
/* After the end: whether compressed data was missing. */
bool lines_cut(const lines *l);

void lines_close(lines *l);

#endif
