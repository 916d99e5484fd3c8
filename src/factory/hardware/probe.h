/* Probe threads: each source of a root is asked in a thread of its own, with a time limit. A source that hangs delays
 * only the first look, and a late answer serves the next look. */
#ifndef WI_HARDWARE_PROBE_H
#define WI_HARDWARE_PROBE_H

#include "factory/hardware/source.h"

/* The answer of a source, as far as it has come. */
typedef struct wi_answer {
    const char *source;
    wi_found found; /* the latest; empty if there is none yet; its cards are the caller's */
    bool late;      /* the source is still being asked */
    bool failed;    /* the source could not be asked this time: no thread, or no memory */
    bool left;      /* the source was not asked this time, as it fails slowly */
    /* Nanoseconds since the source was asked last; of a failed source, since it last could be asked; 0: never. */
    uint64_t since;
} wi_answer;

/* Asks all sources and waits for each until `limit` nanoseconds after it was asked; for one that was asked before and
 * has been silent for longer not at all, unless `ask_again`. A source that failed slowly is left alone for up to 5 s,
 * unless `ask_again`. Errors: WEIR_ERR_SYSTEM, with nothing to clear. */
weir_status wi_probe(const char *root, uint64_t limit, bool ask_again, wi_answer answers[WI_SOURCES]);
void wi_answers_clear(wi_answer answers[WI_SOURCES]);

#endif
