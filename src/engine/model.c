/* A model: an engine's model, the client it draws from, and the count of what is under way. */
#include "engine/registry.h"

#include <weir/log.h>
#include <weir/model.h>

#include <stdio.h>
#include <unistd.h>

struct weir_model {
    const weir_engine *engine;
    weir_engine_model *loaded;
    weir_client *client;
    pthread_mutex_t lock;
    size_t runs, outputs; /* under way; not released */
    bool unloading;
};

/* Loading ---------------------------------------------------------------------------------------------------------- */

static weir_status find_engine(const char *path, const char *name, const weir_engine **out)
{
    return name ? weir_engine_open(name, out) : wi_engine_for(path, out);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static weir_status open_client(const weir_model_options *o, const char *path, weir_client **out)
{
    weir_runtime *runtime = o->runtime;
    weir_status status = WEIR_OK;
    if (!runtime)
        status = weir_runtime_get(o->device ? o->device : "host", &runtime);
    weir_client_options options = {.size = sizeof options,
                                   .name = o->name ? o->name : base_name(path),
                                   .guaranteed = o->guaranteed,
                                   .maximum = o->maximum};
    return status == WEIR_OK ? weir_client_open(runtime, &options, out) : status;
}

/* An engine that fails must have given everything back; what it did not is said, and kept apart from its reason. */
static void close_after_failure(weir_client *client)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weir_detail());
    if (weir_client_close(client) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "after a failed load: %s", weir_detail());
    (void)weir_fail(WEIR_OK, "%s", reason);
}

static weir_status load(weir_model *model, const char *path, const weir_model_options *o)
{
    weir_engine_place place = {weir_client_runtime(model->client), model->client};
    weir_engine_load request = {.size = sizeof request,
                                .path = path,
                                .places = &place,
                                .place_count = 1,
                                .settings = o->settings,
                                .setting_count = o->setting_count,
                                .progress = o->progress,
                                .progress_user = o->progress_user};
    return model->engine->load(&request, &model->loaded);
}

weir_status weir_model_load(const char *path, const weir_model_options *options, weir_model **out)
{
    WI_ENTER();
    weir_model_options o = {0};
    if (!path || !out || (options && !wi_copy_in(&o, sizeof o, options, options->size)))
        return weir_fail(WEIR_INVALID, "weir_model_load: NULL, or member size is not set");
    *out = NULL;
    if (access(path, R_OK) != 0)
        return weir_fail(WEIR_NOT_FOUND, "%s is not there or cannot be read", path);
    weir_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_SYSTEM, "no host memory for a model");
    weir_status status = find_engine(path, o.engine, &model->engine);
    if (status == WEIR_OK)
        status = open_client(&o, path, &model->client);
    if (status == WEIR_OK) {
        status = load(model, path, &o);
        if (status != WEIR_OK)
            close_after_failure(model->client);
    }
    if (status != WEIR_OK) {
        free(model);
        return status;
    }
    pthread_mutex_init(&model->lock, NULL);
    *out = model;
    return WEIR_OK;
}

weir_status weir_model_unload(weir_model *model)
{
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_INVALID, "weir_model_unload: NULL");
    pthread_mutex_lock(&model->lock);
    size_t runs = model->runs, outputs = model->outputs;
    bool first = !model->unloading;
    if (runs == 0 && outputs == 0)
        model->unloading = true;
    pthread_mutex_unlock(&model->lock);
    if (runs > 0 || outputs > 0 || !first)
        return weir_fail(WEIR_BUSY, "%s has %zu runs under way and %zu results that are not released",
                         weir_client_name(model->client), runs, outputs);
    model->engine->unload(model->loaded);
    weir_status status = weir_client_close(model->client);
    if (status != WEIR_OK) { /* the engine kept bytes: they stay charged, and are named */
        weir_log(WEIR_LOG_ERROR, "after unloading: %s", weir_detail());
        /* Not WEIR_BUSY, which says that the model is still there. */
        status = weir_fail(WEIR_ENGINE, "the model is unloaded, but the engine %s kept memory: %s", model->engine->name,
                           weir_detail());
    }
    pthread_mutex_destroy(&model->lock);
    free(model);
    return status;
}

/* Running ---------------------------------------------------------------------------------------------------------- */

static weir_status begin_run(weir_model *model, const void *inference, weir_outputs *out, const char *call)
{
    WI_ENTER();
    if (!model || !inference || !out)
        return weir_fail(WEIR_INVALID, "%s: NULL", call);
    pthread_mutex_lock(&model->lock);
    bool gone = model->unloading;
    if (!gone)
        model->runs++;
    pthread_mutex_unlock(&model->lock);
    if (gone)
        return weir_fail(WEIR_INVALID, "%s: the model is being unloaded", call);
    return WEIR_OK;
}

static weir_status end_run(weir_model *model, weir_status status)
{
    pthread_mutex_lock(&model->lock);
    model->runs--;
    if (status == WEIR_OK)
        model->outputs++;
    pthread_mutex_unlock(&model->lock);
    return status;
}

weir_status weir_model_infer(weir_model *model, const weir_inference *inference, weir_outputs *out)
{
    weir_status status = begin_run(model, inference, out, "weir_model_infer");
    return status == WEIR_OK ? end_run(model, model->engine->infer(model->loaded, inference, out)) : status;
}

static weir_status lacks(const weir_model *model, const char *what)
{
    return weir_fail(WEIR_UNSUPPORTED, "the engine %s has no %s", model->engine->name, what);
}

weir_status weir_model_infer_stream(weir_model *model, const weir_inference *inference, weir_piece_fn piece, void *user,
                                    weir_outputs *out)
{
    weir_status status = begin_run(model, inference, out, "weir_model_infer_stream");
    if (status != WEIR_OK)
        return status;
    if (!piece)
        status = weir_fail(WEIR_INVALID, "weir_model_infer_stream: no function for the pieces");
    else if (!model->engine->infer_stream)
        status = lacks(model, "answers in pieces");
    else
        status = model->engine->infer_stream(model->loaded, inference, piece, user, out);
    return end_run(model, status);
}

void weir_model_release_outputs(weir_model *model, weir_outputs *outputs)
{
    if (!model || !outputs || atomic_load(&wi_forked))
        return;
    pthread_mutex_lock(&model->lock);
    bool any = model->outputs > 0;
    pthread_mutex_unlock(&model->lock);
    if (!any) {
        weir_log(WEIR_LOG_ERROR, "%s: outputs are released that were released before", weir_client_name(model->client));
        return;
    }
    model->engine->release_outputs(model->loaded, outputs);
    pthread_mutex_lock(&model->lock);
    model->outputs--; /* after the engine is done with it: unload may follow at once */
    pthread_mutex_unlock(&model->lock);
}

/* The rest --------------------------------------------------------------------------------------------------------- */

static weir_status check(const weir_model *model, bool arguments, const char *call)
{
    WI_ENTER();
    return model && arguments ? WEIR_OK : weir_fail(WEIR_INVALID, "%s: NULL", call);
}

weir_status weir_model_cancel(weir_model *model, uint64_t id)
{
    weir_status status = check(model, true, "weir_model_cancel");
    if (status != WEIR_OK)
        return status;
    return model->engine->cancel ? model->engine->cancel(model->loaded, id) : lacks(model, "way to cancel a run");
}

weir_status weir_model_warm_up(weir_model *model)
{
    weir_status status = check(model, true, "weir_model_warm_up");
    if (status != WEIR_OK)
        return status;
    return model->engine->warm_up ? model->engine->warm_up(model->loaded) : lacks(model, "warm-up");
}

weir_status weir_model_health(weir_model *model)
{
    weir_status status = check(model, true, "weir_model_health");
    if (status != WEIR_OK)
        return status;
    return model->engine->health ? model->engine->health(model->loaded) : lacks(model, "health check");
}

weir_status weir_model_metrics(weir_model *model, weir_engine_metrics *out)
{
    weir_status status = check(model, out != NULL, "weir_model_metrics");
    if (status != WEIR_OK)
        return status;
    return model->engine->metrics ? model->engine->metrics(model->loaded, out) : lacks(model, "metrics");
}

weir_status weir_model_info_get(weir_model *model, weir_model_info *out)
{
    weir_status status = check(model, out != NULL, "weir_model_info_get");
    return status == WEIR_OK ? model->engine->info(model->loaded, out) : status;
}

weir_client *weir_model_client(const weir_model *model)
{
    return model ? model->client : NULL;
}

const weir_engine *weir_model_engine(const weir_model *model)
{
    return model ? model->engine : NULL;
}
