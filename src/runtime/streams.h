/* A runtime's streams: a pool of the driver's, handed out under ids that are never given twice.
 *
 * An id is the runtime's number (16 bits, from 1), a generation (32 bits) and a place in the table (16 bits). */
#ifndef WI_STREAMS_H
#define WI_STREAMS_H

#include "driver/driver.h"

#include <weir/stream.h>

enum { WI_STREAMS = 1024 };

typedef struct wi_stream_place {
    void *stream; /* the driver's; kept for the next user when released */
    uint32_t generation;
    bool acquired;
} wi_stream_place;

typedef struct wi_streams {
    pthread_mutex_t lock;
    uint16_t pool; /* the runtime's number */
    uint32_t used; /* places below it have a stream */
    wi_stream_place places[WI_STREAMS];
} wi_streams;

void wi_streams_init(wi_streams *streams);
void wi_streams_destroy(wi_streams *streams, const wi_driver *driver, wi_device *device);

/* The driver's stream behind an id; NULL for WEIR_STREAM_HOST. WEIR_STREAM_MISUSE for one that is not acquired here. */
weir_status wi_streams_resolve(wi_streams *streams, weir_stream stream, const char *runtime, void **out);
/* The same without a failure: false when the id is none that is acquired, or WEIR_STREAM_HOST. */
bool wi_streams_find(wi_streams *streams, weir_stream stream, void **out);
bool wi_streams_any(wi_streams *streams);

#endif
