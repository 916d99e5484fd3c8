/* A timeline collects a runtime's trace while a program runs: follows who holds what, notes the moment of the peak and,
 * if wanted, keeps every event in a temporary file. A file and not memory, because the memory of the process is what is
 * being measured. */
#ifndef WI_TRACE_TIMELINE_H
#define WI_TRACE_TIMELINE_H

#include <weir/trace.h>

/* The bytes of each client by class, followed event by event. Every event carries the runtime's totals after it, in
 * ledger order: what the totals changed by belongs to the event's client and class. That is exact for every action,
 * pending bytes included, as long as no event was lost. */

typedef struct holder {
    const char *name;                /* of the trace: lives as long as the process */
    int64_t bytes[WEIR_CLASS_COUNT]; /* live + pending */
} holder;

typedef struct holdings {
    holder *clients; /* in the order in which they were first seen */
    size_t count, capacity;
    uint64_t total; /* live + pending of the runtime */
    uint64_t held;
    uint64_t nanoseconds, order; /* of the last event */
} holdings;

/* Takes the next event in. False when there is no memory for a new client. */
bool holdings_add(holdings *state, const weir_event *event);

/* The place of a client of that name; `count` if it was not seen. */
size_t holdings_find(const holdings *state, const char *name);

/* Makes `to` as `from` is; false when there is no memory. */
bool holdings_copy(holdings *to, const holdings *from);

void holdings_clear(holdings *state);

typedef struct timeline timeline;

/* Starts collecting on a thread of its own. */
weir_status timeline_start(weir_runtime *runtime, bool keep, timeline **out);

/* Takes what is still waiting and stops recording. Anything that went wrong while collecting is answered here. The
 * calls below are for a timeline that was stopped. */
weir_status timeline_stop(timeline *line);

const holdings *timeline_peak(const timeline *line); /* as things were when live + pending was highest */
const holdings *timeline_end(const timeline *line);
uint64_t timeline_events(const timeline *line);
uint64_t timeline_lost(const timeline *line);

/* Reads the kept events again: from the start, then piece by piece; 0 at the end. */
weir_status timeline_rewind(timeline *line);
size_t timeline_next(timeline *line, weir_event *events, size_t capacity);

void timeline_free(timeline *line);

/* Writes the kept events of a stopped timeline as the CSV of RMM's logging adaptor, with weir's own columns behind
 * RMM's six. On failure the file is removed and the detail says what went wrong. */
weir_status timeline_write_csv(timeline *line, const char *path);

/* Points ----------------------------------------------------------------------------------------------------------- */

/* A trace as a bounded number of points for a picture. Of each stretch of events the first, the last, the
 * highest and the lowest stay, and the whole's peak always does: a short spike is never smoothed away. */

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
