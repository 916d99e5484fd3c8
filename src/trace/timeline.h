/* timeline.h: collects a runtime's trace while a program runs: follows who holds what, notes the moment of the peak and,
 * if wanted, keeps every event in a temporary file. A file and not memory, because the memory of the process is what is
 * being measured. */
#ifndef WEIR_TRACE_TIMELINE_H
#define WEIR_TRACE_TIMELINE_H

#include "fold.h"
#include <weir/trace.h>

typedef struct timeline timeline;

/* Starts collecting on a thread of its own. */
weir_status timeline_start(weir_runtime *runtime, bool keep, timeline **out);

/* Takes what is still waiting and stops recording. Anything that went wrong while collecting is answered here. The calls
 * below are for a timeline that was stopped. */
weir_status timeline_stop(timeline *line);

const fold *timeline_peak(const timeline *line); /* as things were when live + pending was highest */
const fold *timeline_end(const timeline *line);
uint64_t timeline_events(const timeline *line);
uint64_t timeline_lost(const timeline *line);

/* Reads the kept events again: from the start, then piece by piece; 0 at the end. */
weir_status timeline_rewind(timeline *line);
size_t timeline_next(timeline *line, weir_event *events, size_t capacity);

void timeline_free(timeline *line);

#endif
