/* The file behind a sink: pieces go in whole, so that what arrives ends where a piece ends.
 *
 * Not a FILE: a child made by fork would write its copy of the buffer, too. A file that fails once takes nothing more,
 * and is cut back to the last whole piece that is known to have arrived. */
#ifndef WI_TRACE_WRITE_FILE_H
#define WI_TRACE_WRITE_FILE_H

#include "base/internal.h"

#include <weir/trace.h>

typedef struct wi_trace_file wi_trace_file;

/* WEIR_ERR_SYSTEM names the file. */
weir_status wi_trace_file_open(const char *path, wi_trace_file **out);
/* One piece, at most WI_FILE_PIECE bytes. */
enum { WI_FILE_PIECE = 8192 };
weir_status wi_trace_file_add(wi_trace_file *file, const void *bytes, size_t count);
weir_status wi_trace_file_flush(wi_trace_file *file);
/* Frees it in any case. */
weir_status wi_trace_file_close(wi_trace_file *file);

/* Sinks that write files, as weir_sink_file makes them. */
weir_status wi_sink_csv(const char *path, weir_sink *out);
weir_status wi_sink_binary(const char *path, weir_sink *out);

#endif
