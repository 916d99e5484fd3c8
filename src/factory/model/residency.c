/* A model is suspended to host memory (offload) and resumed between two of its runs, behind a gate for runs.
 *
 * The gate is presence.state, under the model's lock. Runs that pass the gate are counted in `inside` until they end.
 * The thread that sets WEIR_MOVING suspends or resumes the model without the lock, as the only thread; runs wait until
 * that thread sets another state. A suspend closes the gate before it waits for the runs inside, so that it is not
 * overtaken for ever. */
#include "factory/model/model.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <weir/engine.h>
#include <weir/exchange.h>
#include <weir/model.h>

#include <errno.h>
#include <time.h>

enum { ENGINES_SAY = 4 }; /* the first version of the table in which `suspend` is called */

/* The gate --------------------------------------------------------------------------------------------------------- */

/* With the lock. Steps of coming.c let those who wait pass first, and so have to hear when nobody waits any more. */
static void gate_wait(weir_model *model, size_t *waiting)
{
    ++*waiting;
    pthread_cond_wait(&model->changed, &model->lock);
    if (--*waiting == 0)
        pthread_cond_broadcast(&model->changed);
}

/* With the lock. False: somebody has the gate, and this thread must not wait for him. */
static bool gate_take(weir_model *model)
{
    while (model->presence.state == WEIR_MOVING && !wi_pressures_inside())
        gate_wait(model, &model->coming.calls_waiting);
    return model->presence.state != WEIR_MOVING;
}

static void gate_set(weir_model *model, weir_residency_state state)
{
    pthread_mutex_lock(&model->lock);
    model->presence.state = state;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* Of a model whose suspend or resume has ended one way or the other. */
static void gate_reopen(weir_model *model)
{
    pthread_mutex_lock(&model->lock);
    model->presence.state = model->coming.ready ? WEIR_SUSPENDED : WEIR_RESIDENT;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* With the lock, while nobody has the gate: whether there is nothing to bring back. A program may have suspended the
 * client itself. */
static bool model_residency_is_here(const weir_model *model)
{
    const wi_instance *at = model->present;
    bool usable = at->present && !at->lost;
    return !usable || (model->presence.state == WEIR_RESIDENT && wi_residency_is_here(at->client));
}

static weir_status moving(const weir_model *model, const char *call)
{
    return weir_fail(WEIR_ERR_BUSY, "%s: %s is being suspended or resumed by another thread", call,
                     wi_model_name(model));
}

/* Waiting for runs ------------------------------------------------------------------------------------------------- */

static struct timespec model_residency_after(uint64_t nanoseconds)
{
    const uint64_t second = 1000000000;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* which the condition goes by */
    now.tv_sec += (time_t)(nanoseconds / second);
    nanoseconds = nanoseconds % second + (uint64_t)now.tv_nsec;
    now.tv_sec += nanoseconds >= second;
    now.tv_nsec = (long)(nanoseconds % second);
    return now;
}

bool wi_model_is_in_a_run(const weir_model *model, const wi_run *other)
{
    bool here = false;
    for (const wi_run *run = model->under_way; run && !here; run = run->next)
        here = run != other && pthread_equal(run->thread, pthread_self());
    return here;
}

/* With the gate taken and the lock held. Who has outputs may stand at the gate, so that they are not waited for for ever. */
static weir_status model_residency_wait_for_runs(weir_model *model, const weir_model_suspend_options *o)
{
    struct timespec until = model_residency_after(o->wait);
    bool late = o->at_once || wi_pressures_inside() || wi_model_is_in_a_run(model, NULL);
    while ((model->inside > 0 || (o->wait && model->outputs > 0)) && !late)
        late = o->wait ? pthread_cond_timedwait(&model->changed, &model->lock, &until) == ETIMEDOUT
                       : pthread_cond_wait(&model->changed, &model->lock) != 0;
    if (model->inside == 0 && model->outputs == 0)
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_BUSY,
        "%s cannot be suspended or resumed: it has %zu runs under way and %zu results that are not released",
        wi_model_name(model), model->inside, model->outputs);
}

/* Coming back ------------------------------------------------------------------------------------------------------ */

void wi_model_note_back_locked(weir_model *model, uint64_t began, uint64_t bytes, bool by_run)
{
    weir_model_presence *p = &model->presence;
    p->resumes++;
    p->resumes_by_runs += by_run;
    p->returned = bytes;
    p->resumed_at = wi_now();
    p->resume_ms = (double)(p->resumed_at - began) / 1e6;
    p->away = 0;
    wi_coming_over_locked(model);
}

/* `here` is how the client's resume ended; what the engine says to it does not take the memory away again. A run that
 * has found the device lost may have moved the model meanwhile. */
static void note_resumed(weir_model *model, const wi_instance *at, weir_status here, uint64_t began, uint64_t bytes,
                         bool by_run)
{
    pthread_mutex_lock(&model->lock);
    if (here == WEIR_OK)
        wi_model_note_back_locked(model, began, bytes, by_run);
    model->presence.state = here == WEIR_OK || model->present != at ? WEIR_RESIDENT : WEIR_SUSPENDED;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

uint64_t wi_model_away_of(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    return weir_client_info(client, &stats) == WEIR_OK ? stats.away : 0;
}

/* `here` is how the client's resume ended. Opens the gate. */
static weir_status model_residency_arrive(weir_model *model, wi_instance *at, weir_stream stream, weir_status here,
                                          bool by_run, uint64_t began, uint64_t bytes)
{
    weir_status status = here;
    model->arriving = here == WEIR_OK && stream.id != WEIR_STREAM_HOST.id;
    if (here == WEIR_OK && at->engine->abi >= ENGINES_SAY && at->engine->resume)
        status = at->engine->resume(at->loaded);
    note_resumed(model, at, here, began, bytes, by_run);
    return status;
}

weir_status wi_model_bring_back(weir_model *model, wi_instance *at, weir_stream stream, bool by_run, uint64_t began,
                                uint64_t bytes)
{
    weir_status here = weir_client_resume(at->client, stream);
    return model_residency_arrive(model, at, stream, here, by_run, began, bytes);
}

/* The rest of a model that was used while it was shown, with the gate taken, which stays taken. */
static weir_status model_residency_complete(weir_model *model, const wi_instance *at, weir_stream stream)
{
    wi_coming *c = &model->coming;
    weir_status status = wi_coming_finish(model, at, stream);
    pthread_mutex_lock(&model->lock);
    if (wi_residency_is_here(at->client)) {
        wi_model_note_back_locked(model, c->began, c->bytes, c->by_run);
        model->arriving = stream.id != WEIR_STREAM_HOST.id;
    } else if (status != WEIR_OK)
        wi_coming_stop_locked(model, status);
    pthread_mutex_unlock(&model->lock);
    return status;
}

/* With the gate taken and the lock held, which it lets go of. */
static weir_status model_residency_resume_used(weir_model *model, weir_stream stream)
{
    static const weir_model_suspend_options for_runs = WEIR_INIT(weir_model_suspend_options);
    weir_status status = model_residency_wait_for_runs(model, &for_runs);
    wi_instance *at = status == WEIR_OK ? wi_model_join_locked(model) : NULL;
    pthread_mutex_unlock(&model->lock);
    if (at) {
        status = model_residency_complete(model, at, stream);
        wi_model_leave(model, at);
    }
    gate_reopen(model);
    return status;
}

/* With the gate taken and the lock held, which it lets go of. */
static weir_status model_residency_resume_unused(weir_model *model, weir_stream stream, bool behind)
{
    wi_instance *at = wi_model_join_locked(model);
    behind &= model->coming.shown && !model->coming.ready;
    pthread_mutex_unlock(&model->lock);
    weir_status status = behind ? wi_coming_begin(model, at, false)
                                : wi_model_bring_back(model, at, stream, false, wi_now(), wi_model_away_of(at->client));
    wi_model_leave(model, at);
    return status;
}

static weir_status model_residency_resume(weir_model *model, weir_stream stream, bool behind, const char *call)
{
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = wi_model_visit(model, call);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    bool taken = gate_take(model), away = taken && !model_residency_is_here(model);
    bool used = away && wi_coming_serves(model);
    if (used && behind)
        wi_coming_again_locked(model);
    else if (away) {
        model->presence.state = WEIR_MOVING;
        status =
            used ? model_residency_resume_used(model, stream) : model_residency_resume_unused(model, stream, behind);
        pthread_mutex_lock(&model->lock);
    }
    pthread_mutex_unlock(&model->lock);
    if (!taken)
        status = moving(model, call);
    wi_model_visit_end(model);
    return status;
}

weir_status weir_model_resume(weir_model *model, weir_stream stream)
{
    return model_residency_resume(model, stream, false, "weir_model_resume");
}

weir_status weir_model_resume_behind(weir_model *model)
{
    return model_residency_resume(model, WEIR_STREAM_HOST, true, "weir_model_resume_behind");
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* What a run finds at the gate does not let it in: does one thing about it, without the lock meanwhile. */
static weir_status model_residency_open_gate(weir_model *model)
{
    wi_instance *at = model->present;
    bool arrives = model_residency_is_here(model), begins = model->coming.shown && !model->coming.ready;
    weir_status status;
    if (model->presence.state == WEIR_SUSPENDED && model->refuses_runs)
        return weir_fail(WEIR_ERR_BUSY, "%s is suspended, and refuses runs until it is resumed", wi_model_name(model));
    model->presence.state = WEIR_MOVING;
    at->users++;
    pthread_mutex_unlock(&model->lock);
    if (arrives) {
        status = wi_residency_settle(at->client);
        model->arriving = status != WEIR_OK;
        gate_set(model, WEIR_RESIDENT);
    } else if (begins)
        status = wi_coming_begin(model, at, true);
    else
        status = wi_model_bring_back(model, at, WEIR_STREAM_HOST, true, wi_now(), wi_model_away_of(at->client));
    wi_model_leave(model, at);
    pthread_mutex_lock(&model->lock);
    return status;
}

weir_status wi_model_enter(weir_model *model, wi_run *run)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&model->lock);
    while (status == WEIR_OK && !atomic_load(&run->cancelled)) {
        bool closed = model->presence.state == WEIR_MOVING, serves = !closed && wi_coming_serves(model);
        if (closed && wi_pressures_inside())
            status = moving(model, "a run");
        else if (closed || (serves && wi_coming_is_first(model, run)))
            gate_wait(model, &model->coming.runs_waiting);
        else if (!serves && (!model_residency_is_here(model) || model->arriving))
            status = model_residency_open_gate(model);
        else
            break;
    }
    if (atomic_load(&run->cancelled))
        status = weir_fail(WEIR_ERR_CANCELLED, "stopped on request, before it was made");
    run->entered = status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST;
    if (run->entered) {
        model->inside++;
        run->instance = wi_model_join_locked(model);
    }
    pthread_mutex_unlock(&model->lock);
    return status;
}

void wi_model_exit_locked(weir_model *model, const wi_run *run)
{
    wi_coming_answered_locked(model, run);
    if (--model->inside == 0)
        pthread_cond_broadcast(&model->changed);
}

/* Leaving ---------------------------------------------------------------------------------------------------------- */

/* The model that comes where the leaving model was. */
typedef struct wi_comer {
    weir_model *model;
    weir_stream stream;
    wi_instance *at; /* NULL: its gate is not taken */
    uint64_t began, bytes;
} wi_comer;

/* Takes the gate of the comer, with the gate of the leaving model taken. Waits for nobody, as who has the gate may be
 * waiting for the leaving model. */
static weir_status model_residency_take_comer(wi_comer *comer)
{
    const char *call = "weir_model_exchange";
    weir_model *model = comer->model;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&model->lock);
    if (model->presence.state == WEIR_MOVING)
        status = moving(model, call);
    else if (model_residency_is_here(model) || wi_coming_serves(model))
        status = weir_fail(WEIR_ERR_BUSY, "%s: %s is not suspended, or is used while it comes back", call,
                           wi_model_name(model));
    else {
        model->presence.state = WEIR_MOVING;
        comer->at = wi_model_join_locked(model);
    }
    pthread_mutex_unlock(&model->lock);
    if (status == WEIR_OK) {
        comer->began = wi_now();
        comer->bytes = wi_model_away_of(comer->at->client);
    }
    return status;
}

/* Lets the comer go, whose client has come back if `status` is WEIR_OK. */
static weir_status model_residency_end_comer(const wi_comer *comer, weir_status status)
{
    wi_saved_detail why;
    if (!comer->at)
        return status;
    wi_detail_save(&why);
    weir_status ends =
        model_residency_arrive(comer->model, comer->at, comer->stream, status, false, comer->began, comer->bytes);
    if (status != WEIR_OK)
        wi_detail_restore(&why);
    wi_model_leave(comer->model, comer->at);
    return ends;
}

/* *gone: the client is suspended, also where an exchange has failed twice. */
static weir_status model_residency_leave(weir_model *model, const wi_instance *at, const weir_model_suspend_options *o,
                                         const wi_comer *comer, weir_residency *out, bool *gone)
{
    weir_engine_leaving says = WEIR_INIT(weir_engine_leaving);
    weir_status status = at->engine->suspend(at->loaded, &says);
    if (status != WEIR_OK)
        return status;
    if (o->show)
        wi_coming_list(model, at, o->unwritten | says.unwritten);
    weir_suspend_options options = {.struct_size = sizeof options,
                                    .stay = o->stay | says.stay,
                                    .drop = o->drop | says.drop,
                                    .unwritten = o->unwritten | says.unwritten,
                                    .verify = o->verify,
                                    .keep_guarantee = o->keep_guarantee,
                                    .wait = o->wait,
                                    .folder = o->folder,
                                    .show = o->show};
    status = comer ? weir_client_exchange(at->client, &options, comer->at->client, comer->stream, out)
                   : weir_client_suspend(at->client, &options, out);
    *gone = status == WEIR_OK || (comer && !wi_residency_is_here(at->client));
    if (!*gone && at->engine->resume) {
        wi_saved_detail why;
        wi_detail_save(&why);
        (void)at->engine->resume(at->loaded);
        wi_detail_restore(&why);
    }
    return status;
}

static void note_suspended(weir_model *model, const wi_instance *at, const weir_model_suspend_options *o,
                           uint64_t began)
{
    uint64_t bytes = wi_model_away_of(at->client);
    pthread_mutex_lock(&model->lock);
    weir_model_presence *p = &model->presence;
    model->refuses_runs = o->refuse_runs;
    model->arriving = false;
    p->suspends++;
    p->away = bytes;
    p->suspended_at = wi_now();
    p->suspend_ms = (double)(p->suspended_at - began) / 1e6;
    wi_coming_left_locked(model, at, o);
    pthread_mutex_unlock(&model->lock);
}

/* With the gate taken and the lock held, which it lets go of. */
static weir_status suspend_behind_gate(weir_model *model, const weir_model_suspend_options *o, wi_comer *comer,
                                       weir_residency *out)
{
    bool gone = false;
    weir_status status = model_residency_wait_for_runs(model, o);
    wi_instance *at = status == WEIR_OK ? wi_model_join_locked(model) : NULL;
    bool partly = model->coming.ready;
    pthread_mutex_unlock(&model->lock);
    if (status == WEIR_OK && !at)
        status = weir_fail(WEIR_ERR_DEVICE_LOST, "%s: the model is on no device since the last one failed",
                           comer ? "weir_model_exchange" : "weir_model_suspend");
    if (at && (at->engine->abi < ENGINES_SAY || !at->engine->suspend))
        status = wi_engine_lacks(at->engine, "way to suspend a model");
    if (at && status == WEIR_OK && partly)
        status = model_residency_complete(model, at, WEIR_STREAM_HOST);
    if (at && status == WEIR_OK && comer)
        status = model_residency_take_comer(comer);
    if (at && status == WEIR_OK) {
        uint64_t began = wi_now();
        status = model_residency_leave(model, at, o, comer, out, &gone);
        if (gone)
            note_suspended(model, at, o, began);
    }
    if (gone)
        gate_set(model, WEIR_SUSPENDED);
    else
        gate_reopen(model);
    if (at)
        wi_model_leave(model, at);
    return status;
}

/* With the lock held and the gate free. Nobody who is under pressure brings a model back first. */
static bool model_residency_may_leave(weir_model *model)
{
    if (model_residency_is_here(model))
        return true;
    bool used = wi_coming_serves(model);
    if (used && wi_pressures_inside())
        wi_coming_stop_locked(model, WEIR_ERR_BUSY);
    return used && !wi_pressures_inside();
}

/* `comer` may be NULL. */
static weir_status model_residency_suspend(weir_model *model, const weir_model_suspend_options *options,
                                           wi_comer *comer, weir_residency *out, const char *call)
{
    weir_model_suspend_options o = {.struct_size = sizeof o};
    weir_status status = WI_COPY_OPTIONS_IN(weir_model_suspend_options, &o, options, call);
    if (status == WEIR_OK && comer && o.show)
        status = weir_fail(WEIR_ERR_INVALID, "%s: what leaves cannot be shown", call);
    if (status == WEIR_OK)
        status = wi_model_visit(model, call);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    if (!gate_take(model)) {
        pthread_mutex_unlock(&model->lock);
        status = moving(model, call);
    } else if (!model_residency_may_leave(model)) {
        pthread_mutex_unlock(&model->lock);
        status = weir_fail(WEIR_ERR_BUSY, "%s: %s is suspended already", call, wi_model_name(model));
    } else {
        model->presence.state = WEIR_MOVING;
        status = suspend_behind_gate(model, &o, comer, out);
    }
    wi_model_visit_end(model);
    return status;
}

weir_status weir_model_suspend(weir_model *model, const weir_model_suspend_options *options, weir_residency *out)
{
    const char *call = "weir_model_suspend";
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    return model_residency_suspend(model, options, NULL, out, call);
}

weir_status weir_model_exchange(weir_model *leaves, const weir_model_suspend_options *options, weir_model *comes,
                                weir_stream stream, weir_residency *out)
{
    const char *call = "weir_model_exchange";
    wi_comer comer = {.model = comes, .stream = stream};
    WI_ENTER();
    if (!leaves || !comes || leaves == comes)
        return weir_fail(WEIR_ERR_INVALID, "%s: it takes two models", call);
    weir_status status = wi_model_visit(comes, call);
    if (status != WEIR_OK)
        return status;
    status = model_residency_end_comer(&comer, model_residency_suspend(leaves, options, &comer, out, call));
    wi_model_visit_end(comes);
    return status;
}

weir_status weir_model_residency(weir_model *model, weir_model_presence *out)
{
    WI_ENTER();
    if (!model || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_residency: NULL");
    pthread_mutex_lock(&model->lock);
    weir_model_presence now = model->presence;
    pthread_mutex_unlock(&model->lock);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_model_residency: member struct_size is not set");
}
