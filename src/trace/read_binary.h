/* reader.h: reads a binary trace, as WEIR_SINK_BINARY writes it, event by event. Nothing in the file is believed: what
 * breaks the format is WEIR_ERR_CORRUPT with the offset where it stands, whatever the bytes. */
#ifndef WI_TRACE_READ_BINARY_H
#define WI_TRACE_READ_BINARY_H

#include <weir/trace.h>

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

#endif
