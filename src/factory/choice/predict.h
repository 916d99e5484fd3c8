/* A call for a prediction: the arguments, in this library's struct sizes, and the values derived from them. */
#ifndef WI_CHOICE_PREDICT_H
#define WI_CHOICE_PREDICT_H

#include "base/paths.h"
#include "factory/predict/forecast.h"

#include <weir/predict.h>

typedef struct wi_predict_wants {
    weir_predict_options options;
    weir_manifest manifest;
    weir_candidate candidate;
    const char *path, *engine, *provider, *device; /* the caller's; or the path is: */
    char stored[PATH_MAX];
    const weir_engine *table; /* NULL: its plug-in is not here */
    char version[64];
} wi_predict_wants;

/* Errors as weir_predict's. */
weir_status wi_predict_wants_read(const char *path, const weir_predict_options *options, const char *call,
                                  wi_predict_wants *w);
/* Predicts with `more` settings before the others. */
weir_status wi_predict_with(const wi_predict_wants *w, const weir_setting *more, size_t more_count, wi_forecast *out);

#endif
