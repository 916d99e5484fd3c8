/* fit.c: the best way to have a model in so many bytes. */
#include "factory/choice/predict.h"

#include <stdio.h>

/* A search for settings under which the model fits. */
typedef struct fitting {
    const wi_predict_wants *w;
    uint64_t bytes;
    weir_fit_options allowed;
    uint64_t context; /* that it begins with */
    weir_status status;
    weir_fit best;
} fitting;

/* Predicts with another context and number of layers; 0 and -1 leave the setting unchanged. False: the model does not
 * fit, or the engine has failed. */
static bool fit_fits(fitting *it, uint64_t context, int64_t layers, weir_prediction *out)
{
    weir_setting settings[2];
    char texts[2][24];
    wi_forecast said;
    size_t count = 0;
    if (context > 0) {
        snprintf(texts[count], sizeof texts[count], "%llu", (unsigned long long)context);
        settings[count] = (weir_setting){"context", texts[count]};
        count++;
    }
    if (layers >= 0) {
        snprintf(texts[count], sizeof texts[count], "%lld", (long long)layers);
        settings[count] = (weir_setting){"gpu_layers", texts[count]};
        count++;
    }
    it->status = wi_predict_with(it->w, settings, count, &said);
    *out = it->status == WEIR_OK ? said.prediction : (weir_prediction){.struct_size = sizeof *out};
    if (it->status != WEIR_OK)
        return false;
    return said.prediction.peak_total <= it->bytes;
}

static bool fit_try_way(fitting *it, uint64_t context, int64_t layers)
{
    weir_prediction said;
    bool good = fit_fits(it, context, layers, &said);
    if (it->status == WEIR_OK && (good || !it->best.fits))
        it->best = (weir_fit){.fits = good, .context = context, .layers = layers, .prediction = said};
    return good;
}

enum { CELLS = 256 };

/* Finds the largest multiple of 256 that fits, between a context that fits and a larger context that does not. Bytes
 * grow nearly evenly with the context: the line through both ends gives the next context to try, and every second time
 * the middle does. */
static void fit_widen(fitting *it, uint64_t fit, uint64_t fit_bytes, uint64_t more, uint64_t more_bytes, int64_t layers)
{
    for (int i = 0; it->status == WEIR_OK && more - fit > CELLS; i++) {
        uint64_t room = it->bytes - fit_bytes, rise = more_bytes > fit_bytes ? more_bytes - fit_bytes : 1;
        double share = (double)room / (double)rise;
        uint64_t at =
            i % 2 == 0 ? fit + (uint64_t)((double)(more - fit) * (share < 1 ? share : 1)) : fit + (more - fit) / 2;
        at = at / CELLS * CELLS;
        at = at <= fit ? fit / CELLS * CELLS + CELLS : at >= more ? (more - 1) / CELLS * CELLS : at;
        if (at <= fit || at >= more)
            return;
        weir_prediction said;
        if (fit_fits(it, at, layers, &said)) {
            it->best = (weir_fit){.fits = true, .context = at, .layers = layers, .prediction = said};
            fit = at;
            fit_bytes = said.peak_total;
        } else {
            more = at;
            more_bytes = said.peak_total;
        }
    }
}

/* With so many layers on the device. */
static bool fit_context(fitting *it, int64_t layers)
{
    weir_prediction whole;
    if (it->allowed.least_context == 0 || it->context <= it->allowed.least_context)
        return false;
    if (fit_fits(it, it->context, layers, &whole) || it->status != WEIR_OK)
        return it->status == WEIR_OK && fit_try_way(it, it->context, layers);
    if (!fit_try_way(it, it->allowed.least_context, layers))
        return false;
    fit_widen(it, it->allowed.least_context, it->best.prediction.peak_total, it->context, whole.peak_total, layers);
    return it->best.fits;
}

/* At the least context the most layers; then as much context as they leave room for. */
static void fit_layers(fitting *it, uint32_t all)
{
    uint64_t context = it->allowed.least_context > 0 ? it->allowed.least_context : 0;
    int64_t low = -1, high = (int64_t)all; /* which did not fit */
    while (it->status == WEIR_OK && high - low > 1) {
        int64_t middle = low < 0 ? (low + high) / 2 : low + (high - low) / 2;
        if (fit_try_way(it, context, middle))
            low = middle;
        else
            high = middle;
    }
    if (it->status == WEIR_OK && low >= 0)
        (void)fit_context(it, low);
}

static bool has_context(const wi_predict_wants *w)
{
    return strcmp(w->engine, "gguf") == 0 || strcmp(w->engine, "llm") == 0;
}

static weir_status check_allowed(const wi_predict_wants *w, const weir_fit_options *allowed)
{
    if (allowed->least_context > 0 && !has_context(w))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s has no setting 'context' that could be smaller",
                         w->engine);
    if (allowed->layers && strcmp(w->engine, "gguf") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s cannot leave layers on the host", w->engine);
    return WEIR_OK;
}

static weir_status search(fitting *it)
{
    bool as_it_is = fit_try_way(it, it->allowed.most_context, -1);
    if (it->status != WEIR_OK || as_it_is)
        return it->status;
    it->context = it->allowed.most_context > 0 ? it->allowed.most_context : it->best.prediction.context;
    uint32_t layers = it->best.prediction.layers_on_device;
    if (fit_context(it, -1) || it->status != WEIR_OK)
        return it->status;
    if (it->allowed.layers && layers > 0)
        fit_layers(it, layers);
    return it->status;
}

weir_status weir_predict_fit(const char *path, const weir_predict_options *options, uint64_t bytes,
                             const weir_fit_options *fit_options, weir_fit *out)
{
    WI_ENTER();
    wi_predict_wants w;
    fitting it = {.w = &w, .bytes = bytes, .best = {.layers = -1}};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_predict_fit: no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_fit_options, &it.allowed, fit_options, "weir_predict_fit");
    if (status == WEIR_OK)
        status = wi_predict_wants_read(path, options, "weir_predict_fit", &w);
    if (status == WEIR_OK)
        status = check_allowed(&w, &it.allowed);
    if (status == WEIR_OK)
        status = search(&it);
    if (status != WEIR_OK)
        return status;
    return wi_copy_out(out, out->struct_size, &it.best, sizeof it.best)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_predict_fit: member struct_size is not set");
}
