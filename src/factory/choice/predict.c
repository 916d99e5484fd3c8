/* predict.c: what a model will take, as callers ask for it; and what they have measured. */
#include "factory/choice/predict.h"
#include "factory/choice/criteria.h"
#include "factory/registry.h"

#include <stdio.h>
#include <unistd.h>

static bool choice_predict_is_cuda(const char *text)
{
    return strncmp(text, "cuda", 4) == 0 || strcmp(text, "tensorrt") == 0;
}

/* By the candidate, the options, and for what is left open each by the other. */
static void choose_place(wi_predict_wants *w)
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
static weir_status choose_engine(wi_predict_wants *w)
{
    wi_kept_detail reason;
    const char *named = w->options.candidate ? w->candidate.engine : w->options.engine;
    weir_status status = named && *named ? weir_engine_get(named, &w->table) : wi_engine_for(w->path, &w->table);
    if (status == WEIR_OK) {
        w->engine = w->table->name;
        return WEIR_OK;
    }
    wi_detail_keep(&reason);
    w->table = NULL;
    w->engine = named && *named ? named : wi_suffix_of(".gguf", w->path) ? "gguf" : NULL;
    if (status == WEIR_ERR_NOT_FOUND && w->engine && strcmp(w->engine, "gguf") == 0)
        return WEIR_OK;
    wi_detail_restore(&reason);
    return status;
}

static weir_status choice_predict_copy_in(const char *path, const weir_predict_options *options, const char *call,
                                          wi_predict_wants *w)
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
static void find_version(wi_predict_wants *w)
{
    weir_engine_probe probe = {.struct_size = sizeof probe};
    if (w->options.candidate && w->candidate.version)
        snprintf(w->version, sizeof w->version, "%s", w->candidate.version);
    else if (!w->options.quick && w->table && w->table->probe(&probe) == WEIR_OK && probe.available)
        snprintf(w->version, sizeof w->version, "%s", probe.version);
}

weir_status wi_predict_wants_read(const char *path, const weir_predict_options *options, const char *call,
                                  wi_predict_wants *w)
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

weir_status wi_predict_with(const wi_predict_wants *w, const weir_setting *more, size_t more_count, wi_forecast *out)
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
    wi_predict_wants w;
    wi_forecast said;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_predict: no place for the result");
    weir_status status = wi_predict_wants_read(path, options, "weir_predict", &w);
    if (status == WEIR_OK)
        status = wi_predict_with(&w, NULL, 0, &said);
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
    wi_predict_wants w;
    wi_forecast said;
    weir_client_stats stats;
    weir_status status = WI_COPY_IN(weir_client_stats, &stats, measured, "weir_prediction_learn");
    if (status == WEIR_OK)
        status = wi_predict_wants_read(path, options, "weir_prediction_learn", &w);
    if (status != WEIR_OK)
        return status;
    w.options.quick = w.options.cold = true;
    status = wi_predict_with(&w, NULL, 0, &said);
    return status == WEIR_OK ? wi_forecast_learn(&said, w.version, &stats, true, !w.options.loaded_only) : status;
}
