/* A model: loading and unloading, its instances, and what can be asked of it. */
#include "factory/model/model.h"
#include "base/paths.h"
#include "factory/registry.h"
#include "runtime/runtime.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/model.h>

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Instances -------------------------------------------------------------------------------------------------------- */

weir_status wi_model_make(weir_model **out)
{
    weir_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    pthread_mutex_init(&model->lock, NULL);
    pthread_cond_init(&model->changed, NULL);
    *out = model;
    return WEIR_OK;
}

void wi_model_free(weir_model *model)
{
    for (wi_instance *older; model->newest; model->newest = older) {
        older = model->newest->older;
        wi_instance_free(model->newest);
    }
    wi_info_copy_free(model->infos);
    wi_good_free(model);
    if (model->failover)
        model->failover->end(model);
    free(model->left_behind);
    free(model->coming.order);
    pthread_cond_destroy(&model->changed);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

void wi_model_add(weir_model *model, wi_instance *instance)
{
    pthread_mutex_lock(&model->lock);
    instance->users = 1;
    instance->number = ++model->instances;
    instance->older = model->newest;
    model->newest = instance;
    pthread_mutex_unlock(&model->lock);
}

static void add_metrics(weir_engine_metrics *to, const weir_engine_metrics *more)
{
    to->runs += more->runs;
    to->failures += more->failures;
    to->cancelled += more->cancelled;
    to->tokens_in += more->tokens_in;
    to->tokens_out += more->tokens_out;
    to->busy_seconds += more->busy_seconds;
    to->sessions += more->sessions;
    to->sessions_failed += more->sessions_failed;
}

/* The last user but one has left it: what its engine has counted goes over to the model, in one step with the user, so
 * that the model's metrics never go back. Answers whether nobody has joined meanwhile. */
static bool model_retire(weir_model *model, wi_instance *instance)
{
    weir_engine_metrics last = WEIR_INIT(weir_engine_metrics);
    bool counted =
        instance->loaded && instance->engine->metrics && instance->engine->metrics(instance->loaded, &last) == WEIR_OK;
    last.sessions = 0; /* they go with it; all the others are counts */
    pthread_mutex_lock(&model->lock);
    bool alone = --instance->users == 0;
    if (alone && counted)
        add_metrics(&model->past, &last);
    pthread_mutex_unlock(&model->lock);
    return alone;
}

static void end_instance(weir_model *model, wi_instance *instance)
{
    if (wi_instance_close(instance) == WEIR_OK)
        return;
    pthread_mutex_lock(&model->lock); /* for weir_model_destroy to tell */
    model->left_behind = model->left_behind ? model->left_behind : strdup(weir_detail());
    pthread_mutex_unlock(&model->lock);
}

/* With the lock held. Unlinks and frees an ended instance, which no other thread knows any more. */
static void model_forget(weir_model *model, wi_instance *instance)
{
    wi_instance **link = &model->newest;
    while (*link != instance)
        link = &(*link)->older;
    *link = instance->older;
    wi_instance_free(instance);
}

static void leave_last(weir_model *model, wi_instance *instance)
{
    wi_saved_detail caller;
    wi_detail_save(&caller);
    if (model_retire(model, instance)) {
        end_instance(model, instance);
        pthread_mutex_lock(&model->lock);
        instance->ended = true;
        if (instance != model->present)
            model_forget(model, instance);
        pthread_mutex_unlock(&model->lock);
    }
    wi_detail_restore(&caller);
}

void wi_model_leave(weir_model *model, wi_instance *instance)
{
    pthread_mutex_lock(&model->lock);
    wi_assert(instance->users > 0);
    bool last = instance->users == 1;
    instance->users -= !last;
    pthread_mutex_unlock(&model->lock);
    if (last)
        leave_last(model, instance);
}

void wi_model_switch(weir_model *model, wi_instance *instance)
{
    pthread_mutex_lock(&model->lock);
    wi_instance *old = model->present;
    bool lets_go = old && old->present;
    if (old)
        old->present = false;
    /* The client of an old instance is closed with the instance, and the client's record may serve another model. */
    atomic_store(&model->client, instance ? instance->client : NULL);
    if (model->presence.state == WEIR_SUSPENDED) /* the suspended instance is given up */
        model->presence.state = WEIR_RESIDENT;
    model->arriving = false;
    wi_coming_over_locked(model);
    if (instance) {
        instance->present = true;
        instance->users++;
        model->present = instance;
        atomic_store(&model->engine, instance->engine);
        if (old && old->ended)
            model_forget(model, old);
    }
    pthread_mutex_unlock(&model->lock);
    if (lets_go)
        wi_model_leave(model, old);
}

wi_instance *wi_model_join_locked(weir_model *model)
{
    wi_instance *instance = model->present;
    if (!instance->present || instance->lost)
        return NULL;
    instance->users++;
    return instance;
}

static wi_instance *model_join(weir_model *model)
{
    pthread_mutex_lock(&model->lock);
    wi_instance *instance = wi_model_join_locked(model);
    pthread_mutex_unlock(&model->lock);
    return instance;
}

/* Loading ---------------------------------------------------------------------------------------------------------- */

static weir_status open_instance(weir_model *model, const weir_model_options *o, const char *path, wi_instance **out)
{
    const weir_engine *engine = NULL;
    weir_runtime *runtime = o->runtime;
    char own_name[NAME_MAX + 1];
    size_t length;
    const char *last = wi_path_model_name(path, &length);
    snprintf(own_name, sizeof own_name, "%.*s", (int)wi_min(length, NAME_MAX), last);
    weir_status status = o->engine ? weir_engine_get(o->engine, &engine) : wi_engine_for(path, &engine);
    if (status == WEIR_OK && o->client)
        status = wi_client_check(o->client, "weir_model_create");
    else if (status == WEIR_OK && !runtime)
        status = weir_runtime_get(o->device ? o->device : "host", NULL, &runtime);
    weir_client_options options = {.struct_size = sizeof options,
                                   .name = o->name ? o->name : own_name,
                                   .guaranteed = o->guaranteed,
                                   .maximum = o->maximum};
    return status == WEIR_OK ? wi_instance_open(engine, runtime, &options, o->client, &model->lent, out) : status;
}

static weir_status model_load(weir_model *model, const weir_model_options *o, const char *path, wi_instance **out)
{
    weir_engine_load request = {.struct_size = sizeof request,
                                .path = path,
                                .settings = o->settings,
                                .setting_count = o->setting_count,
                                .progress = o->progress,
                                .progress_user = o->progress_user,
                                .stops = o->stops};
    weir_status status = open_instance(model, o, path, out);
    if (status != WEIR_OK)
        return status;
    (*out)->overflows = o->residency == WEIR_ROOM_AUTO;
    status = wi_instance_load(*out, &request, true);
    if (status != WEIR_OK) { /* its own reason comes first */
        wi_saved_detail reason;
        wi_detail_save(&reason);
        (void)wi_instance_close(*out);
        wi_instance_free(*out);
        wi_detail_restore(&reason);
    }
    return status;
}

/* Of a model that is loaded and yet is refused, for a reason that is told already. */
static void model_give_up(weir_model *model)
{
    wi_saved_detail reason;
    wi_detail_save(&reason);
    (void)!weir_model_destroy(model);
    wi_detail_restore(&reason);
}

weir_status weir_model_create(const char *path, const weir_model_options *options, weir_model **out)
{
    WI_ENTER();
    weir_model_options o = {0};
    if (!path || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_create: no path, or no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_model_options, &o, options, "weir_model_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    if ((unsigned)o.residency >= WEIR_ROOM_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_create: %d is no weir_model_room", (int)o.residency);
    status = wi_check_settings(o.settings, o.setting_count, "weir_model_create");
    if (status != WEIR_OK)
        return status;
    char stored[PATH_MAX];
    path = wi_path_meant(path, stored);
    if (access(path, R_OK) != 0)
        return wi_path_missing(path);
    weir_model *model = NULL;
    wi_instance *instance = NULL;
    status = wi_model_make(&model);
    if (status != WEIR_OK)
        return status;
    status = model_load(model, &o, path, &instance);
    if (status != WEIR_OK) {
        wi_model_free(model);
        return status;
    }
    wi_model_add(model, instance);
    wi_model_switch(model, instance);
    status = instance->overflows ? wi_coming_loaded(model, instance) : WEIR_OK;
    if (status == WEIR_OK && o.prepare && wi_residency_is_here(instance->client))
        wi_instance_prepare(instance);
    wi_model_leave(model, instance); /* the instance stays as the present instance */
    if (status == WEIR_OK)
        *out = model;
    else
        model_give_up(model);
    return status;
}

weir_status weir_model_destroy(weir_model *model)
{
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_destroy: NULL");
    pthread_mutex_lock(&model->lock);
    size_t runs = model->runs, outputs = model->outputs, calls = model->calls;
    bool first = !model->unloading, keeps = wi_coming_keeps(model);
    if (runs == 0 && outputs == 0 && calls == 0 && !keeps)
        model->unloading = true;
    while (first && model->unloading && model->visits > 0)
        pthread_cond_wait(&model->changed, &model->lock);
    wi_instance *instance = model->present;
    pthread_mutex_unlock(&model->lock);
    if (runs > 0 || outputs > 0 || calls > 0 || !first)
        return weir_fail(
            WEIR_ERR_BUSY,
            "%s has %zu runs under way and %zu results that are not released, and %zu calls of it are prepared",
            wi_model_name(model), runs, outputs, calls);
    if (keeps)
        return weir_fail(WEIR_ERR_BUSY, "%s is coming back, and cannot be unloaded in a pressure callback meanwhile",
                         wi_model_name(model));
    wi_coming_end(model);
    weir_status status = instance->present ? wi_instance_close(instance) : WEIR_OK;
    if (status == WEIR_OK && model->left_behind)
        status = weir_fail(WEIR_ERR_ENGINE, "%s", model->left_behind);
    wi_model_free(model);
    return status;
}

const char *wi_model_name(const weir_model *model)
{
    weir_client *client = weir_model_client(model);
    return client ? wi_client_name(client) : model->name;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

weir_status wi_model_visit(weir_model *model, const char *call)
{
    pthread_mutex_lock(&model->lock);
    bool gone = model->unloading;
    model->visits += !gone;
    pthread_mutex_unlock(&model->lock);
    return gone ? weir_fail(WEIR_ERR_INVALID, "%s: the model is being unloaded", call) : WEIR_OK;
}

void wi_model_visit_end(weir_model *model)
{
    pthread_mutex_lock(&model->lock);
    if (--model->visits == 0)
        pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* A visit, and a user of the instance that is asked. */
static weir_status model_ask(weir_model *model, bool arguments, const char *call, wi_instance **out)
{
    WI_ENTER();
    if (!model || !arguments)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = wi_model_visit(model, call);
    if (status != WEIR_OK)
        return status;
    *out = model_join(model);
    if (*out)
        return WEIR_OK;
    wi_model_visit_end(model);
    return weir_fail(WEIR_ERR_DEVICE_LOST, "%s: the model is on no device since the last one failed", call);
}

static void asked(weir_model *model, wi_instance *at)
{
    wi_model_leave(model, at);
    wi_model_visit_end(model);
}

weir_status weir_model_health(weir_model *model)
{
    wi_instance *at;
    weir_status status = model_ask(model, true, "weir_model_health", &at);
    if (status != WEIR_OK)
        return status;
    status = wi_fault_health(model, at);
    if (status == WEIR_OK)
        status = at->engine->health ? at->engine->health(at->loaded) : wi_engine_lacks(at->engine, "health check");
    asked(model, at);
    return status;
}

/* From `at` on the first that has users; with the lock held. */
static wi_instance *model_used(wi_instance *at)
{
    while (at && at->users == 0)
        at = at->older;
    return at;
}

/* Adds a user to every instance that has users, so that no instance's counts move to the past meanwhile. Returns the
 * newest such instance. *past: the counts of the instances that are gone. */
static wi_instance *join_all(weir_model *model, weir_engine_metrics *past)
{
    pthread_mutex_lock(&model->lock);
    wi_instance *newest = model_used(model->newest);
    for (wi_instance *at = newest; at; at = model_used(at->older))
        at->users++;
    add_metrics(past, &model->past);
    pthread_mutex_unlock(&model->lock);
    return newest;
}

/* Leaves `one` and returns the next older instance with users. New instances come before the newest, and no instance
 * gets its first user twice. */
static wi_instance *leave_for_next(weir_model *model, wi_instance *one)
{
    pthread_mutex_lock(&model->lock);
    wi_instance *next = model_used(one->older);
    pthread_mutex_unlock(&model->lock);
    wi_model_leave(model, one);
    return next;
}

/* Sums the metrics of all instances. An old instance whose engine cannot tell its metrics adds nothing. */
static weir_status sum_metrics(weir_model *model, weir_engine_metrics *all)
{
    wi_instance *present = model_join(model); /* NULL: on no device, and what was counted there is still true */
    const weir_engine *engine = present ? present->engine : atomic_load(&model->engine);
    weir_status status = engine->metrics ? WEIR_OK : wi_engine_lacks(engine, "metrics");
    for (wi_instance *one = join_all(model, all); one; one = leave_for_next(model, one)) {
        weir_engine_metrics its = WEIR_INIT(weir_engine_metrics);
        weir_status asked = one->engine->metrics ? one->engine->metrics(one->loaded, &its) : WEIR_ERR_UNSUPPORTED;
        if (asked == WEIR_OK)
            add_metrics(all, &its);
        else if (one == present && one->engine->metrics)
            status = asked;
    }
    if (present)
        wi_model_leave(model, present);
    return status;
}

weir_status weir_model_metrics(weir_model *model, weir_engine_metrics *out)
{
    WI_ENTER();
    if (!model || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_metrics: NULL");
    weir_status status = wi_model_visit(model, "weir_model_metrics");
    if (status != WEIR_OK)
        return status;
    weir_engine_metrics all = WEIR_INIT(weir_engine_metrics);
    status = sum_metrics(model, &all);
    wi_model_visit_end(model);
    if (status != WEIR_OK)
        return status;
    return wi_copy_out(out, out->struct_size, &all, sizeof all)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_model_metrics: member struct_size is not set");
}

static const wi_info_copy *model_known(weir_model *model, const wi_instance *at, bool *answered)
{
    pthread_mutex_lock(&model->lock);
    *answered = at->answered > 0;
    const wi_info_copy *copy = wi_info_copy_find(model->infos, at->rank, *answered);
    pthread_mutex_unlock(&model->lock);
    return copy;
}

/* Asked of the engine once before an instance of the candidate has answered and once after, and kept: texts stay when
 * the instance goes. */
static weir_status model_learn(weir_model *model, wi_instance *at, const weir_model_details **out)
{
    bool answered;
    const wi_info_copy *copy = model_known(model, at, &answered);
    if (!copy) {
        weir_model_details info = WEIR_INIT(weir_model_details);
        weir_status status = at->engine->info(at->loaded, &info);
        if (status != WEIR_OK)
            return status;
        wi_info_copy *mine = wi_info_copy_make(&info, at->rank, answered);
        if (!mine)
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for what the model is");
        pthread_mutex_lock(&model->lock);
        copy = wi_info_copy_find(model->infos, at->rank, answered);
        if (!copy) {
            mine->next = model->infos;
            model->infos = mine;
        }
        pthread_mutex_unlock(&model->lock);
        if (copy) /* another thread was faster */
            wi_info_copy_free(mine);
        else
            copy = mine;
    }
    *out = &copy->info;
    return WEIR_OK;
}

weir_status weir_model_info(weir_model *model, weir_model_details *out)
{
    wi_instance *at;
    const weir_model_details *info = NULL;
    weir_status status = model_ask(model, out != NULL, "weir_model_info", &at);
    if (status != WEIR_OK)
        return status;
    status = model_learn(model, at, &info);
    const char *engine = at->engine->name;
    asked(model, at);
    if (status != WEIR_OK)
        return status;
    weir_model_details details = *info;
    details.engine = engine;
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_model_info: member struct_size is not set");
    return WEIR_OK;
}

/* What the client of the instance has had so far. */
static weir_status model_measure(wi_instance *at, weir_prediction *out)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_status status = weir_client_info(at->client, &stats);
    if (at->forecast)
        *out = at->forecast->prediction;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        out->resident[i] = stats.live_class[i];
        out->peak[i] = stats.peak_class[i];
        out->source[i] = WEIR_PREDICTED_MEASURED;
        out->least[i] = stats.live_class[i];
        out->exact[i] = true;
        out->host[i] = 0;
    }
    out->least_total = stats.live;
    out->resident_total = stats.live;
    out->peak_total = stats.peak;
    out->host_total = 0;
    return status;
}

static weir_status both(wi_instance *at, weir_prediction *predicted, weir_prediction *measured)
{
    weir_prediction taken = {.struct_size = sizeof taken};
    if (!at->forecast)
        return weir_fail(WEIR_ERR_NOT_FOUND, "nothing was predicted for the model before it was loaded");
    weir_status status = measured ? model_measure(at, &taken) : WEIR_OK;
    if (status == WEIR_OK && ((predicted && !wi_copy_out(predicted, predicted->struct_size, &at->forecast->prediction,
                                                         sizeof at->forecast->prediction)) ||
                              (measured && !wi_copy_out(measured, measured->struct_size, &taken, sizeof taken))))
        status = weir_fail(WEIR_ERR_INVALID, "weir_model_prediction: member struct_size is not set");
    return status;
}

weir_status weir_model_prediction(weir_model *model, weir_prediction *predicted, weir_prediction *measured)
{
    wi_instance *at;
    weir_status status = model_ask(model, true, "weir_model_prediction", &at);
    if (status != WEIR_OK)
        return status;
    status = both(at, predicted, measured);
    asked(model, at);
    return status;
}

weir_client *weir_model_client(const weir_model *model)
{
    return model ? atomic_load(&((weir_model *)model)->client) : NULL;
}
