/* sink.h: a file that is written as a whole or not at all. */
#ifndef WI_TRACE_OUTPUT_FILE_H
#define WI_TRACE_OUTPUT_FILE_H

#include <weir/base.h>

#include <stdio.h>

/* Whether a file could be made or written over there, as far as one can tell without doing it: WEIR_ERR_SYSTEM says why
 * not. */
weir_status output_file_check(const char *path, const char *what);

/* `what` is for the detail: "the trace", "the report"; "" for none. NULL with WEIR_ERR_SYSTEM set in the detail. */
FILE *output_file_open(const char *path, const char *what);

/* Removes a file that is not whole, unless it is none that can be made again: a device or a pipe stays. */
void output_file_remove(const char *path);

/* Closes it. When anything did not arrive, or `problem` is an errno of the caller's, the half-written file is removed,
 * unless it is none that can be made again: a device or a pipe stays. */
weir_status output_file_close(FILE *file, const char *path, const char *what, int problem);

#endif
