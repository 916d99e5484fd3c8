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
#include <weir/model.h>

#include <errno.h>
#include <time.h>

enum { ENGINES_SAY = 4 }; /* the first version of the table in which `suspend` is called */

/* The gate --------------------------------------------------------------------------------------------------------- */

/* With the lock. False: somebody has the gate, and this thread must not wait for him. */
static bool gate_take(weir_model *model)
{
    while (model->presence.state == WEIR_MOVING && !wi_pressures_inside())
        pthread_cond_wait(&model->changed, &model->lock);
    return model->presence.state != WEIR_MOVING;
}

static void gate_set(weir_model *model, weir_residency_state state)
{
    pthread_mutex_lock(&model->lock);
    model->presence.state = state;
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

/* Coming back ------------------------------------------------------------------------------------------------------ */

/* `here` is how the client's resume ended; what the engine says to it does not take the memory away again. A run that
 * has found the device lost may have moved the model meanwhile. */
static void note_resumed(weir_model *model, const wi_instance *at, weir_status here, uint64_t began, uint64_t bytes,
                         bool by_run)
{
    pthread_mutex_lock(&model->lock);
    weir_model_presence *p = &model->presence;
    if (here == WEIR_OK) {
        p->resumes++;
        p->resumes_by_runs += by_run;
        p->returned = bytes;
        p->resumed_at = wi_now();
        p->resume_ms = (double)(p->resumed_at - began) / 1e6;
        p->away = 0;
    }
    p->state = here == WEIR_OK || model->present != at ? WEIR_RESIDENT : WEIR_SUSPENDED;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

static uint64_t model_residency_away_of(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    return weir_client_info(client, &stats) == WEIR_OK ? stats.away : 0;
}

/* With the gate taken; opens it. */
static weir_status bring_back(weir_model *model, wi_instance *at, weir_stream stream, bool by_run)
{
    uint64_t began = wi_now(), bytes = model_residency_away_of(at->client);
    weir_status here = weir_client_resume(at->client, stream), status = here;
    model->arriving = here == WEIR_OK && stream.id != WEIR_STREAM_HOST.id;
    if (here == WEIR_OK && at->engine->abi >= ENGINES_SAY && at->engine->resume)
        status = at->engine->resume(at->loaded);
    note_resumed(model, at, here, began, bytes, by_run);
    return status;
}

weir_status weir_model_resume(weir_model *model, weir_stream stream)
{
    const char *call = "weir_model_resume";
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = wi_model_visit(model, call);
    if (status != WEIR_OK)
        return status;
    wi_instance *at = NULL;
    pthread_mutex_lock(&model->lock);
    bool taken = gate_take(model);
    if (taken && !model_residency_is_here(model)) {
        at = wi_model_join_locked(model);
        model->presence.state = WEIR_MOVING;
    }
    pthread_mutex_unlock(&model->lock);
    if (!taken)
        status = moving(model, call);
    if (at) {
        status = bring_back(model, at, stream, false);
        wi_model_leave(model, at);
    }
    wi_model_visit_end(model);
    return status;
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* What a run finds at the gate does not let it in: does one thing about it, without the lock meanwhile. */
static weir_status model_residency_open_gate(weir_model *model)
{
    wi_instance *at = model->present;
    bool arrives = model_residency_is_here(model);
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
    } else
        status = bring_back(model, at, WEIR_STREAM_HOST, true);
    wi_model_leave(model, at);
    pthread_mutex_lock(&model->lock);
    return status;
}

weir_status wi_model_enter(weir_model *model, wi_run *run)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&model->lock);
    while (status == WEIR_OK && !atomic_load(&run->cancelled)) {
        if (model->presence.state == WEIR_MOVING && wi_pressures_inside())
            status = moving(model, "a run");
        else if (model->presence.state == WEIR_MOVING)
            pthread_cond_wait(&model->changed, &model->lock);
        else if (!model_residency_is_here(model) || model->arriving)
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

void wi_model_exit_locked(weir_model *model)
{
    if (--model->inside == 0)
        pthread_cond_broadcast(&model->changed);
}

/* Leaving ---------------------------------------------------------------------------------------------------------- */

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

/* Whether this thread is inside of a run, as in the reader of its pieces, which cannot be waited for. With the lock held. */
static bool is_in_a_run(const weir_model *model)
{
    bool here = false;
    for (const wi_run *run = model->under_way; run && !here; run = run->next)
        here = pthread_equal(run->thread, pthread_self());
    return here;
}

/* With the gate taken and the lock held. Who has outputs may stand at the gate, so that they are not waited for for ever. */
static weir_status model_residency_wait_for_runs(weir_model *model, const weir_model_suspend_options *o)
{
    struct timespec until = model_residency_after(o->wait);
    bool late = o->at_once || wi_pressures_inside() || is_in_a_run(model);
    while ((model->inside > 0 || (o->wait && model->outputs > 0)) && !late)
        late = o->wait ? pthread_cond_timedwait(&model->changed, &model->lock, &until) == ETIMEDOUT
                       : pthread_cond_wait(&model->changed, &model->lock) != 0;
    if (model->inside == 0 && model->outputs == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_BUSY,
                     "%s cannot be suspended: it has %zu runs under way and %zu results that are not released",
                     wi_model_name(model), model->inside, model->outputs);
}

static weir_status model_residency_leave(const wi_instance *at, const weir_model_suspend_options *o,
                                         weir_residency *out)
{
    weir_engine_leaving says = WEIR_INIT(weir_engine_leaving);
    weir_status status = at->engine->suspend(at->loaded, &says);
    if (status != WEIR_OK)
        return status;
    weir_suspend_options options = {.struct_size = sizeof options,
                                    .stay = o->stay | says.stay,
                                    .drop = o->drop | says.drop,
                                    .unwritten = o->unwritten | says.unwritten,
                                    .verify = o->verify,
                                    .keep_guarantee = o->keep_guarantee,
                                    .wait = o->wait,
                                    .folder = o->folder};
    status = weir_client_suspend(at->client, &options, out);
    if (status != WEIR_OK && at->engine->resume) {
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
    uint64_t bytes = model_residency_away_of(at->client);
    pthread_mutex_lock(&model->lock);
    weir_model_presence *p = &model->presence;
    model->refuses_runs = o->refuse_runs;
    model->arriving = false;
    p->suspends++;
    p->away = bytes;
    p->suspended_at = wi_now();
    p->suspend_ms = (double)(p->suspended_at - began) / 1e6;
    pthread_mutex_unlock(&model->lock);
}

/* With the gate taken and the lock held, which it lets go of. */
static weir_status suspend_behind_gate(weir_model *model, const weir_model_suspend_options *o, weir_residency *out)
{
    weir_status status = model_residency_wait_for_runs(model, o);
    wi_instance *at = status == WEIR_OK ? wi_model_join_locked(model) : NULL;
    pthread_mutex_unlock(&model->lock);
    if (status == WEIR_OK && !at)
        status =
            weir_fail(WEIR_ERR_DEVICE_LOST, "weir_model_suspend: the model is on no device since the last one failed");
    if (at && (at->engine->abi < ENGINES_SAY || !at->engine->suspend))
        status = wi_engine_lacks(at->engine, "way to suspend a model");
    if (at && status == WEIR_OK) {
        uint64_t began = wi_now();
        status = model_residency_leave(at, o, out);
        if (status == WEIR_OK)
            note_suspended(model, at, o, began);
    }
    gate_set(model, status == WEIR_OK ? WEIR_SUSPENDED : WEIR_RESIDENT);
    if (at)
        wi_model_leave(model, at);
    return status;
}

weir_status weir_model_suspend(weir_model *model, const weir_model_suspend_options *options, weir_residency *out)
{
    const char *call = "weir_model_suspend";
    weir_model_suspend_options o = {.struct_size = sizeof o};
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = WI_COPY_OPTIONS_IN(weir_model_suspend_options, &o, options, call);
    if (status == WEIR_OK)
        status = wi_model_visit(model, call);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    if (!gate_take(model)) {
        pthread_mutex_unlock(&model->lock);
        status = moving(model, call);
    } else if (!model_residency_is_here(model)) {
        pthread_mutex_unlock(&model->lock);
        status = weir_fail(WEIR_ERR_BUSY, "%s: %s is suspended already", call, wi_model_name(model));
    } else {
        model->presence.state = WEIR_MOVING;
        status = suspend_behind_gate(model, &o, out);
    }
    wi_model_visit_end(model);
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
