/* samples.h: who held what over a recording, as a bounded number of points. What the totals of the trace change by at
 * an event belongs to its client and class. Of each stretch of events the first, the last, the highest, the lowest and
 * those where most was held and most was away stay, and so does the whole's peak: a short spike is never smoothed away. */
#ifndef WI_TRACE_SAMPLES_H
#define WI_TRACE_SAMPLES_H

#include "base/pointer_map.h"
#include "trace/lifetimes.h"

typedef struct sampled_client {
    const char *name;
    int64_t bytes[WEIR_CLASS_COUNT], at_peak[WEIR_CLASS_COUNT]; /* live and pending: at the end, at its own peak */
    uint64_t peak, allocations, refused;
    uint64_t away, peak_away; /* at the end, at most */
    uint64_t lent, borrowed;  /* for whoever counts that */
    size_t row; /* in the points: the client's own row, or the last row, which the remaining clients share */
} sampled_client;

/* Rows of the points. */
enum { SAMPLES_CLIENTS = 24, SAMPLES_WIDTH = (SAMPLES_CLIENTS + 1) * WEIR_CLASS_COUNT };

typedef struct sample {
    uint32_t event; /* in the recording */
    uint64_t live, pending, held, away;
    uint64_t values[SAMPLES_WIDTH];            /* live and pending, by row and class */
    uint64_t away_values[SAMPLES_CLIENTS + 1]; /* by row */
} sample;

typedef struct samples {
    sampled_client *clients; /* in the order in which they were first seen */
    size_t client_count, client_room;
    wi_pointer_map numbers; /* of the clients, by name */
    size_t rows;            /* with a client of their own */
    bool others;            /* the row after `rows` has clients */
    sample *points;
    size_t count, room;
    bool used[SAMPLES_WIDTH];                          /* the series that are not 0 throughout */
    uint64_t peak, peak_live, peak_pending, peak_held; /* live and pending; each by itself */
    uint64_t peak_away;
    uint32_t peak_event, peak_held_event, peak_away_event;
} samples;

/* Makes about `wanted` points, fewer where they would have more than so many numbers; those of an empty recording are
 * none. WEIR_ERR_SYSTEM: no memory. */
weir_status samples_make(const lifetimes *blocks, size_t wanted, size_t numbers, samples *out);
void samples_clear(samples *all);

/* The number of a client that the recording names. */
size_t samples_client(const samples *all, const char *name);

#endif
