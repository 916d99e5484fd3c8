/* series.h: a trace as a bounded number of points for a picture. Of each stretch of events the first, the last, the
 * highest and the lowest stay, and the whole's peak always does: a short spike is never smoothed away. */
#ifndef WI_TRACE_SERIES_H
#define WI_TRACE_SERIES_H

#include "timeline.h"

typedef struct series_point {
    uint64_t order, nanoseconds, total, held;
} series_point;

typedef struct series {
    const holdings *end; /* the clients, in the order of the values */
    series_point *points;
    uint64_t *values; /* points × clients × classes; live + pending */
    size_t count;
    size_t peak; /* which point is the moment of the peak */
} series;

/* Makes about `wanted` points of a stopped timeline that kept its events. */
weir_status series_make(timeline *line, size_t wanted, series *out);
uint64_t series_value(const series *all, size_t point, size_t client, weir_class memory_class);
void series_clear(series *all);

#endif
