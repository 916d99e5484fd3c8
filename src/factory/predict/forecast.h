/* What a model will take, of the best source that there is: earlier loads, the engine, the file's structure, its size. */
#ifndef WI_PREDICT_FORECAST_H
#define WI_PREDICT_FORECAST_H

#include "base/internal.h"

#include <weir/engine.h>
#include <weir/memory.h>
#include <weir/predict.h>

/* What a model is known by: contents.c ------------------------------------------------------------------------------ */

/* The digest of a model's contents, independent of its path and name. 128 bits. */
typedef struct wi_digest {
    uint64_t high, low;
} wi_digest;

extern const wi_digest wi_digest_none;
void wi_digest_add(wi_digest *to, const void *bytes, size_t length);
static inline void wi_digest_text(wi_digest *to, const char *text)
{
    wi_digest_add(to, text, strlen(text) + 1);
}

/* Of a file its size and samples of it: the whole of a small one, else its ends and places between them. Of a folder the
 * names and the same of the files in it; genai_config.json stands for its folder. It tells models apart by their structure
 * and most changes of their numbers; it is no seal. A file (not a folder) is read once, and again only where it may have
 * changed (base/stamp.h). False: it cannot be read. Any thread. */
bool wi_contents(const char *path, wi_digest *out);

/* What loads have measured: records.c ------------------------------------------------------------------------------- */

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

/* Forecasts --------------------------------------------------------------------------------------------------------- */

typedef struct wi_forecast_ask {
    const weir_engine *table; /* NULL: its plug-in is not here */
    const char *engine, *path;
    const char *provider; /* "cpu" */
    const char *device;   /* "host", "cuda:0"; of GPUs of one kind what loads have measured counts for all */
    const char *version;  /* of the engine; "": not known */
    const weir_setting *settings;
    size_t setting_count;
    bool quick, cold;
} wi_forecast_ask;

typedef struct wi_forecast {
    weir_prediction prediction;
    char key[WI_MEASURED_KEY]; /* "": nothing is to be learnt of it */
    wi_measured known;         /* what loads have measured; member loads 0: nothing */
    bool uncounted;            /* a load that has taught nothing waits to be counted */
} wi_forecast;

/* WEIR_OK, or what the engine says of file and settings. `out` is filled in any case: on failure with nothing but names.
 * The detail is set on failure. */
weir_status wi_forecast_make(const wi_forecast_ask *ask, wi_forecast *out);

/* Learns from a load with the forecast's key. `loaded`: counts as a further load; `ran`: runs were made. A load without
 * runs that teaches nothing is counted with the next call: a program that waits for its model does not wait for the
 * store. */
weir_status wi_forecast_learn(wi_forecast *forecast, const char *version, const weir_client_stats *measured,
                              bool loaded, bool ran);
/* Counts the uncounted load, if any. */
weir_status wi_forecast_count(wi_forecast *forecast);

/* The bytes of a file, or of the files in a folder; 0 where they cannot be told. */
uint64_t wi_forecast_size(const char *path);

/* gguf.c: what the file alone says, without the plug-in. */
weir_status wi_forecast_gguf(const wi_forecast_ask *ask, weir_engine_plan *out);

#endif
