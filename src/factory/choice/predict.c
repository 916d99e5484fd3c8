/* predict.c: what a model will take, as callers ask for it; what they have measured; and the best way to have a model in
 * so many bytes. */
#include "base/paths.h"
#include "factory/choice/criteria.h"
#include "factory/predict/forecast.h"
#include "factory/registry.h"

#include <weir/predict.h>

#include <stdio.h>
#include <unistd.h>

/* Calls ------------------------------------------------------------------------------------------------------------ */

/* A call's arguments, in this library's struct sizes, and the values derived from them. */
typedef struct wants {
    weir_predict_options options;
    weir_manifest manifest;
    weir_candidate candidate;
    const char *path, *engine, *provider, *device; /* the caller's; or the path is: */
    char stored[PATH_MAX];
    const weir_engine *table; /* NULL: its plug-in is not here */
    char version[64];
} wants;

static bool choice_predict_is_cuda(const char *text)
{
    return strncmp(text, "cuda", 4) == 0 || strcmp(text, "tensorrt") == 0;
}

/* By the candidate, the options, and for what is left open each by the other. */
static void choose_place(wants *w)
{
    const weir_candidate *candidate = w->options.candidate ? &w->candidate : NULL;
    w->provider = candidate ? candidate->provider : w->options.provider;
    w->device = candidate ? candidate->runtime : w->options.device;
    if (!w->device || !*w->device)
        w->device = w->provider && choice_predict_is_cuda(w->provider) ? "cuda:0" : "host";
    if (!w->provider || !*w->provider)
        w->provider = choice_predict_is_cuda(w->device) ? "cuda" : "cpu";
}

/* An engine that weir knows by name, and whose plug-in is not here, is no error where the file alone can answer. */
static weir_status choose_engine(wants *w)
{
    wi_saved_detail reason;
    const char *named = w->options.candidate ? w->candidate.engine : w->options.engine;
    weir_status status = named && *named ? weir_engine_get(named, &w->table) : wi_engine_for(w->path, &w->table);
    if (status == WEIR_OK) {
        w->engine = w->table->name;
        return WEIR_OK;
    }
    wi_detail_save(&reason);
    w->table = NULL;
    w->engine = named && *named ? named : wi_suffix_of(".gguf", w->path) ? "gguf" : NULL;
    if (status == WEIR_ERR_NOT_FOUND && w->engine && strcmp(w->engine, "gguf") == 0)
        return WEIR_OK;
    wi_detail_restore(&reason);
    return status;
}

static weir_status choice_predict_copy_in(const char *path, const weir_predict_options *options, const char *call,
                                          wants *w)
{
    weir_status status = WI_COPY_OPTIONS_IN(weir_predict_options, &w->options, options, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_manifest, &w->manifest, w->options.manifest, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_candidate, &w->candidate, w->options.candidate, call);
    if (status == WEIR_OK)
        status = wi_check_settings(w->options.settings, w->options.setting_count, call);
    if (status == WEIR_OK)
        status = wi_manifest_check_lists(&w->manifest, call);
    w->manifest.struct_size = sizeof w->manifest;
    w->path = path && *path ? wi_path_meant(path, w->stored) : w->manifest.model_file;
    if (status == WEIR_OK && (!w->path || !*w->path))
        status = weir_fail(WEIR_ERR_INVALID, "%s: no path, and no manifest that names one", call);
    if (status == WEIR_OK && access(w->path, R_OK) != 0)
        status = wi_path_missing(w->path);
    return status;
}

/* Of a candidate it is known; else the engine is asked, which opens its library. */
static void find_version(wants *w)
{
    weir_engine_probe probe = {.struct_size = sizeof probe};
    if (w->options.candidate && w->candidate.version)
        snprintf(w->version, sizeof w->version, "%s", w->candidate.version);
    else if (!w->options.quick && w->table && w->table->probe(&probe) == WEIR_OK && probe.available)
        snprintf(w->version, sizeof w->version, "%s", probe.version);
}

/* Errors as weir_predict's. */
static weir_status choice_predict_read(const char *path, const weir_predict_options *options, const char *call,
                                       wants *w)
{
    memset(w, 0, sizeof *w);
    weir_status status = choice_predict_copy_in(path, options, call, w);
    if (status == WEIR_OK) {
        choose_place(w);
        status = choose_engine(w);
    }
    if (status == WEIR_OK)
        find_version(w);
    return status;
}

/* Joins the settings of `more` with the settings of other keys in `settings`. NULL without host memory. */
static weir_setting *choice_predict_join(const weir_setting *more, size_t more_count, const wi_settings *settings,
                                         size_t *count)
{
    weir_setting *all = calloc(settings->count + more_count + 1, sizeof *all);
    *count = 0;
    for (size_t i = 0; all && i < more_count; i++)
        all[(*count)++] = more[i];
    for (size_t i = 0; all && i < settings->count; i++) {
        bool replaced = false;
        for (size_t k = 0; k < more_count; k++)
            replaced = replaced || strcmp(more[k].key, settings->all[i].key) == 0;
        if (!replaced)
            all[(*count)++] = settings->all[i];
    }
    return all;
}

/* Predicts with `more` settings before the others. */
static weir_status choice_predict_with(const wants *w, const weir_setting *more, size_t more_count, wi_forecast *out)
{
    weir_choice_options asked = {
        .struct_size = sizeof asked, .settings = w->options.settings, .setting_count = w->options.setting_count};
    wi_settings settings;
    size_t count;
    weir_status status = wi_settings_merge(&w->manifest, &asked, w->engine, &settings);
    if (status != WEIR_OK)
        return status;
    weir_setting *all = choice_predict_join(more, more_count, &settings, &count);
    wi_forecast_ask ask = {.table = w->table,
                           .engine = w->engine,
                           .path = w->path,
                           .provider = w->provider,
                           .device = w->device,
                           .version = w->version,
                           .settings = all,
                           .setting_count = count,
                           .quick = w->options.quick,
                           .cold = w->options.cold};
    status = all ? wi_forecast_make(&ask, out) : weir_fail(WEIR_ERR_SYSTEM, "no host memory for settings");
    free(all);
    wi_settings_free(&settings);
    return status;
}

weir_status weir_predict(const char *path, const weir_predict_options *options, weir_prediction *out)
{
    WI_ENTER();
    wants w;
    wi_forecast said;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_predict: no place for the result");
    weir_status status = choice_predict_read(path, options, "weir_predict", &w);
    if (status == WEIR_OK)
        status = choice_predict_with(&w, NULL, 0, &said);
    if (status != WEIR_OK)
        return status;
    return wi_copy_out(out, out->struct_size, &said.prediction, sizeof said.prediction)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_predict: member struct_size is not set");
}

weir_status weir_prediction_learn(const char *path, const weir_predict_options *options,
                                  const weir_client_stats *measured)
{
    WI_ENTER();
    wants w;
    wi_forecast said;
    weir_client_stats stats;
    weir_status status = WI_COPY_IN(weir_client_stats, &stats, measured, "weir_prediction_learn");
    if (status == WEIR_OK)
        status = choice_predict_read(path, options, "weir_prediction_learn", &w);
    if (status != WEIR_OK)
        return status;
    w.options.quick = w.options.cold = true;
    status = choice_predict_with(&w, NULL, 0, &said);
    return status == WEIR_OK ? wi_forecast_learn(&said, w.version, &stats, true, !w.options.loaded_only) : status;
}

/* The best fit ----------------------------------------------------------------------------------------------------- */

/* A search for settings under which the model fits. */
typedef struct fitting {
    const wants *w;
    uint64_t bytes;
    weir_fit_options allowed;
    uint64_t context; /* that it begins with */
    weir_status status;
    weir_fit best;
} fitting;

/* Predicts with another context and number of layers; 0 and -1 leave the setting unchanged. False: the model does not
 * fit, or the engine has failed. */
static bool choice_predict_fit_fits(fitting *it, uint64_t context, int64_t layers, weir_prediction *out)
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
    it->status = choice_predict_with(it->w, settings, count, &said);
    *out = it->status == WEIR_OK ? said.prediction : (weir_prediction){.struct_size = sizeof *out};
    if (it->status != WEIR_OK)
        return false;
    return said.prediction.peak_total <= it->bytes;
}

static bool choice_predict_fit_try_way(fitting *it, uint64_t context, int64_t layers)
{
    weir_prediction said;
    bool good = choice_predict_fit_fits(it, context, layers, &said);
    if (it->status == WEIR_OK && (good || !it->best.fits))
        it->best = (weir_fit){.fits = good, .context = context, .layers = layers, .prediction = said};
    return good;
}

enum { CELLS = 256 };

/* Finds the largest multiple of 256 that fits, between a context that fits and a larger context that does not. Bytes
 * grow nearly evenly with the context: the line through both ends gives the next context to try, and every second time
 * the middle does. */
static void choice_predict_fit_widen(fitting *it, uint64_t fit, uint64_t fit_bytes, uint64_t more, uint64_t more_bytes,
                                     int64_t layers)
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
        if (choice_predict_fit_fits(it, at, layers, &said)) {
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
static bool choice_predict_fit_context(fitting *it, int64_t layers)
{
    weir_prediction whole;
    if (it->allowed.least_context == 0 || it->context <= it->allowed.least_context)
        return false;
    if (choice_predict_fit_fits(it, it->context, layers, &whole) || it->status != WEIR_OK)
        return it->status == WEIR_OK && choice_predict_fit_try_way(it, it->context, layers);
    if (!choice_predict_fit_try_way(it, it->allowed.least_context, layers))
        return false;
    choice_predict_fit_widen(it, it->allowed.least_context, it->best.prediction.peak_total, it->context,
                             whole.peak_total, layers);
    return it->best.fits;
}

/* At the least context the most layers; then as much context as they leave room for. */
static void choice_predict_fit_layers(fitting *it, uint32_t all)
{
    uint64_t context = it->allowed.least_context > 0 ? it->allowed.least_context : 0;
    int64_t low = -1, high = (int64_t)all; /* which did not fit */
    while (it->status == WEIR_OK && high - low > 1) {
        int64_t middle = low < 0 ? (low + high) / 2 : low + (high - low) / 2;
        if (choice_predict_fit_try_way(it, context, middle))
            low = middle;
        else
            high = middle;
    }
    if (it->status == WEIR_OK && low >= 0)
        (void)choice_predict_fit_context(it, low);
}

static weir_status check_allowed(const wants *w, const weir_fit_options *allowed)
{
    bool has_context = strcmp(w->engine, "gguf") == 0 || strcmp(w->engine, "llm") == 0;
    if (allowed->least_context > 0 && !has_context)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s has no setting 'context' that could be smaller",
                         w->engine);
    if (allowed->layers && strcmp(w->engine, "gguf") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s cannot leave layers on the host", w->engine);
    return WEIR_OK;
}

static weir_status search(fitting *it)
{
    bool as_it_is = choice_predict_fit_try_way(it, it->allowed.most_context, -1);
    if (it->status != WEIR_OK || as_it_is)
        return it->status;
    it->context = it->allowed.most_context > 0 ? it->allowed.most_context : it->best.prediction.context;
    uint32_t layers = it->best.prediction.layers_on_device;
    if (choice_predict_fit_context(it, -1) || it->status != WEIR_OK)
        return it->status;
    if (it->allowed.layers && layers > 0)
        choice_predict_fit_layers(it, layers);
    return it->status;
}

weir_status weir_predict_fit(const char *path, const weir_predict_options *options, uint64_t bytes,
                             const weir_fit_options *fit_options, weir_fit *out)
{
    WI_ENTER();
    wants w;
    fitting it = {.w = &w, .bytes = bytes, .best = {.layers = -1}};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_predict_fit: no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_fit_options, &it.allowed, fit_options, "weir_predict_fit");
    if (status == WEIR_OK)
        status = choice_predict_read(path, options, "weir_predict_fit", &w);
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
