/* csv.h: a trace as the CSV that RMM's logging adaptor writes, which its tools and `weir` read, with weir's own columns
 * behind RMM's six: Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds. */
#ifndef WEIR_TRACE_CSV_H
#define WEIR_TRACE_CSV_H

#include "trace/timeline.h"

/* Writes the kept events of a stopped timeline. On failure the file is removed and the detail says what went wrong. */
weir_status csv_write(timeline *line, const char *path);

#endif
