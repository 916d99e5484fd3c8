/* What a model will take, of the best source that there is: earlier loads, the engine, the file's structure, its size. */
#ifndef WI_PREDICT_FORECAST_H
#define WI_PREDICT_FORECAST_H

#include "factory/predict/records.h"

#include <weir/engine.h>
#include <weir/predict.h>

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

/* gguf.c: what the file alone says, without the plug-in. */
weir_status wi_forecast_gguf(const wi_forecast_ask *ask, weir_engine_plan *out);

#endif
