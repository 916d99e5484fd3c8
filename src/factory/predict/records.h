/* What loads have measured, in the store's file `predictions`.
 *
 * A line for each model with its settings, with a sum over it. Readers take the file as it is; a writer holds a lock
 * (`predictions.lock`, of flock's), reads, changes one line and puts a new file in the place of the old one, so that
 * neither sees half of it. What cannot be right is left out, with a line in the log, and gone with the next writing. */
#ifndef WI_PREDICT_RECORDS_H
#define WI_PREDICT_RECORDS_H

#include "base/internal.h"

#include <weir/memory.h>

enum { WI_MEASURED_MOST = 512, WI_MEASURED_KEY = 33, WI_MEASURED_VERSION = 64 };

typedef struct wi_measured {
    char key[WI_MEASURED_KEY];         /* of contents, engine, provider, device and settings: 32 digits */
    char version[WI_MEASURED_VERSION]; /* of the engine, without white space */
    int64_t seen;                      /* seconds since 1970, of the last load */
    uint64_t loads;
    bool ran; /* runs were measured, and not only loads */
    uint64_t resident[WEIR_CLASS_COUNT], peak[WEIR_CLASS_COUNT];
} wi_measured;

/* The record of that key and version; without a version (""), the one that was seen last. False: there is none, or
 * nothing can be read. The detail is left alone. */
bool wi_measured_find(const char *key, const char *version, wi_measured *out);

/* Takes a measured load in: what is remembered grows to the most that was measured. WEIR_ERR_SYSTEM: the store cannot be
 * written to. */
weir_status wi_measured_add(const wi_measured *measured);

#endif
