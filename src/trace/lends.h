/* lends.h: bytes that passed between clients, and between streams. A block may lie where an earlier block lay:
 * addresses that were last another client's or another stream's have been lent. Memory that the driver has moved to
 * other addresses, as that of suspended clients, is not seen, for a trace does not tell where it lay. */
#ifndef WI_TRACE_LENDS_H
#define WI_TRACE_LENDS_H

#include "trace/lifetimes.h"

typedef struct lend {
    const char *from, *to;           /* clients of the recording; NULL between streams */
    uint64_t from_stream, to_stream; /* of one client's blocks */
    uint64_t bytes, count;           /* in so many blocks */
    uint32_t first, last;            /* events */
} lend;

typedef struct lends {
    lend *clients, *streams; /* most bytes first */
    size_t client_count, stream_count;
    uint64_t client_bytes, stream_bytes; /* of all */
} lends;

weir_status lends_make(const lifetimes *all, lends *out);
void lends_clear(lends *all);

#endif
