/* Runs of a model: begun, made on an instance, handed over to another, cancelled; and their results. */
#include "factory/model/model.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/model.h>

#include <time.h>

/* Begin and end ---------------------------------------------------------------------------------------------------- */

/* Engines get structures as this version knows them: a request of a newer caller is understood whole, or refused. */
weir_status wi_request_check(const weir_inference *asked, const char *call, weir_inference *out)
{
    weir_tensor input;
    weir_status status = WI_COPY_IN(weir_inference, out, asked, call);
    if (status == WEIR_OK)
        status = wi_check_list(out->inputs, out->input_count, call, "inputs");
    if (status == WEIR_OK)
        status = wi_check_settings(out->settings, out->setting_count, call);
    out->struct_size = sizeof *out;
    size_t count = status == WEIR_OK && out->inputs ? out->input_count : 0;
    size_t stride = count > 0 ? out->inputs->struct_size : 0;
    for (size_t i = 0; i < count && stride > sizeof input && status == WEIR_OK; i++)
        status = wi_copy_in(&input, sizeof input, (const char *)out->inputs + i * stride, stride, call, "weir_tensor");
    return status;
}

static weir_status runs_copy_request(wi_run *run, const char *call)
{
    weir_outputs ignored;
    weir_status status = wi_request_check(run->inference, call, &run->asked);
    if (status == WEIR_OK)
        status = WI_COPY_IN(weir_outputs, &ignored, run->out, call);
    run->inference = &run->asked;
    return status;
}

static weir_status runs_check(const weir_model *model, wi_run *run, const char *call)
{
    WI_ENTER();
    if (!model || !run->inference || !run->out)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = runs_copy_request(run, call);
    if (status != WEIR_OK)
        return status;
    /* Where results may come from several instances, they say from which. */
    if (model->failover && run->out->struct_size < offsetof(weir_outputs, instance) + sizeof run->out->instance)
        return weir_fail(WEIR_ERR_INVALID, "%s: member struct_size of the outputs is not set", call);
    return WEIR_OK;
}

static weir_status runs_begin(weir_model *model, wi_run *run, const char *call)
{
    weir_status status = runs_check(model, run, call);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    bool gone = model->unloading;
    if (!gone) {
        model->runs++;
        run->id = run->inference->id;
        run->thread = pthread_self();
        run->next = model->under_way;
        run->link = &model->under_way;
        if (run->next)
            run->next->link = &run->next;
        model->under_way = run;
    }
    pthread_mutex_unlock(&model->lock);
    return gone ? weir_fail(WEIR_ERR_INVALID, "%s: the model is being unloaded", call) : WEIR_OK;
}

/* Takes the run out of the list, where a cancel would find it. Returns whether a cancel has reached the run, which is
 * final. */
static bool runs_strike(weir_model *model, wi_run *run)
{
    pthread_mutex_lock(&model->lock);
    *run->link = run->next;
    if (run->next)
        run->next->link = run->link;
    bool cancelled = atomic_load(&run->cancelled);
    pthread_mutex_unlock(&model->lock);
    return cancelled;
}

/* A run that has been cancelled has no results, also where the engine had them already. */
static weir_status runs_stop(const wi_run *run, weir_status status)
{
    if (status == WEIR_OK && !run->warms)
        run->instance->engine->release_outputs(run->instance->loaded, run->out);
    return status == WEIR_ERR_CANCELLED ? status : weir_fail(WEIR_ERR_CANCELLED, "stopped on request");
}

/* Answers how many runs the instance has answered. */
static uint64_t count_answer(weir_model *model, const wi_run *run)
{
    wi_instance *at = run->instance;
    pthread_mutex_lock(&model->lock);
    model->outputs += !run->warms;
    at->outputs += !run->warms;
    at->answered += !run->warms;
    if (run->judged == atomic_load(&at->judged)) /* what began before a failure says nothing of what came after it */
        wi_fault_forget_locked(at);
    uint64_t answered = at->answered;
    if (model->failover && !run->warms)
        run->out->instance = at;
    pthread_mutex_unlock(&model->lock);
    return answered;
}

/* Results keep the instance, in place of their run. The model's own count comes last: unload may follow at once. */
static weir_status runs_end(weir_model *model, wi_run *run, weir_status status)
{
    wi_instance *at = run->instance;
    if (runs_strike(model, run))
        status = runs_stop(run, status);
    if (status == WEIR_OK)
        wi_good_keep(model, run);
    uint64_t answered = status == WEIR_OK ? count_answer(model, run) : 0;
    bool telling = run->warms ? answered == 0 : answered <= 2;
    if (model->failover && status == WEIR_OK && telling)
        model->failover->ran(model, at, answered, run->ms);
    if (at && (status != WEIR_OK || run->warms))
        wi_model_leave(model, at);
    pthread_mutex_lock(&model->lock);
    if (run->entered)
        wi_model_exit_locked(model, run);
    model->runs--;
    pthread_mutex_unlock(&model->lock);
    return status;
}

/* Made once -------------------------------------------------------------------------------------------------------- */

static bool hand_piece(const weir_piece *piece, void *user)
{
    wi_run *run = user;
    if (atomic_load(&run->cancelled))
        return false;
    run->delivered = true;
    return run->piece(piece, run->user);
}

static weir_status runs_ask_engine(wi_run *run)
{
    const wi_instance *at = run->instance;
    if (run->warms)
        return at->engine->warm_up ? at->engine->warm_up(at->loaded) : wi_engine_lacks(at->engine, "warm-up");
    if (!run->piece)
        return at->engine->infer(at->loaded, run->inference, run->out);
    return at->engine->infer_stream ? at->engine->infer_stream(at->loaded, run->inference, hand_piece, run, run->out)
                                    : wi_engine_lacks(at->engine, "answers in pieces");
}

bool wi_run_lacks(const wi_run *run)
{
    const weir_engine *engine = run->instance->engine;
    return (run->piece && !engine->infer_stream) || (run->warms && !engine->warm_up);
}

weir_status wi_run_make(wi_run *run)
{
    uint64_t start = wi_now();
    uint64_t peak = wi_instance_peak(run->instance);
    run->judged = atomic_load(&run->instance->judged);
    weir_status status = atomic_load(&run->cancelled)
                             ? weir_fail(WEIR_ERR_CANCELLED, "stopped on request, before it was made")
                             : runs_ask_engine(run);
    run->ms = (double)(wi_now() - start) * 1e-6;
    if (status != WEIR_OK)
        wi_instance_failed_run(run->instance, peak);
    return status;
}

/* The first input that lies in the memory of a device; NULL: none. */
static const weir_tensor *input_on_device(const weir_inference *inference)
{
    const weir_tensor *first = inference->inputs;
    /* A caller whose header is older has no such member. */
    bool told = first && inference->input_count > 0 && first->struct_size > offsetof(weir_tensor, on_device);
    for (size_t i = 0; told && i < inference->input_count; i++)
        if (wi_tensor_at(first, i)->on_device)
            return wi_tensor_at(first, i);
    return NULL;
}

weir_status wi_run_check_inputs(const weir_model *model, const wi_run *run, const char *from, const char *to)
{
    const weir_tensor *input = input_on_device(run->inference);
    if (!input)
        return WEIR_OK;
    const weir_runtime *owner = wi_runtime_of(input->data);
    const char *there = owner ? wi_runtime_device(owner) : from;
    wi_runtimes_unlock();
    if (strcmp(there, to) == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: the input %s lies on %s, and the model is on %s", model->name, input->name,
                     there, to);
}

/* A model that moves may have left the device that its caller made the inputs on. */
static weir_status runs_check_inputs(const weir_model *model, const wi_run *run)
{
    if (!model->failover || !run->instance)
        return WEIR_OK;
    const char *here = wi_runtime_device(weir_client_runtime(run->instance->client));
    return wi_run_check_inputs(model, run, here, here);
}

static weir_status runs_make(weir_model *model, wi_run *run)
{
    weir_status status = wi_model_enter(model, run);
    bool ready = status == WEIR_OK;
    if (ready)
        status = runs_check_inputs(model, run);
    if (status != WEIR_OK && (ready || !run->entered))
        return runs_end(model, run, status);
    if (ready)
        status = run->instance ? wi_run_make(run) : WEIR_ERR_DEVICE_LOST;
    if (status != WEIR_OK && model->failover)
        status = model->failover->recover(model, run, status);
    else if (status != WEIR_OK)
        (void)wi_fault_of(model, run, &status);
    return runs_end(model, run, status);
}

weir_status weir_model_infer(weir_model *model, const weir_inference *inference, weir_outputs *out)
{
    wi_run run = {.inference = inference, .out = out};
    weir_status status = runs_begin(model, &run, "weir_model_infer");
    if (status != WEIR_OK)
        return status;
    if (inference->struct_size >= sizeof *inference) { /* an older caller's ends before them */
        run.piece = inference->piece;
        run.user = inference->piece_user;
    }
    return runs_make(model, &run);
}

/* It fails over as a first run does, but leaves no results. */
weir_status weir_model_warm_up(weir_model *model)
{
    static const weir_inference nothing = WEIR_INIT(weir_inference);
    weir_outputs none = WEIR_INIT(weir_outputs);
    wi_run run = {.inference = &nothing, .out = &none, .warms = true};
    weir_status status = runs_begin(model, &run, "weir_model_warm_up");
    return status == WEIR_OK ? runs_make(model, &run) : status;
}

/* Results ---------------------------------------------------------------------------------------------------------- */

/* Returns the instance that gave out the outputs, or NULL if no outputs of the instance are left. With the lock
 * held. */
static wi_instance *giver(const weir_model *model, const weir_outputs *outputs)
{
    wi_instance *from = model->newest;
    while (from && model->failover && from != outputs->instance)
        from = from->older;
    return from && from->outputs > 0 ? from : NULL;
}

void weir_model_release_outputs(weir_model *model, weir_outputs *outputs)
{
    if (!model || !outputs || atomic_load(&wi_forked))
        return;
    pthread_mutex_lock(&model->lock);
    wi_instance *from = giver(model, outputs);
    if (from)
        from->outputs--;
    pthread_mutex_unlock(&model->lock);
    if (!from) {
        weir_log(WEIR_LOG_ERROR, "%s: outputs are released that were released before", wi_model_name(model));
        return;
    }
    from->engine->release_outputs(from->loaded, outputs);
    if (model->failover)
        outputs->instance = NULL;
    wi_model_leave(model, from);
    pthread_mutex_lock(&model->lock);
    if (--model->outputs == 0) /* after the engine is done with it: unload may follow at once */
        pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* Cancelling ------------------------------------------------------------------------------------------------------- */

static bool can_cancel(const wi_instance *instance)
{
    return !instance || instance->engine->cancel;
}

static bool is_called(const wi_run *run, uint64_t id)
{
    return id == 0 || run->id == id;
}

typedef struct found {
    bool any;                 /* run that is stopped */
    const weir_engine *lacks; /* of one that cannot be */
} found;

/* Marks the runs, wherever they are: a run looks at the mark before it is made on another instance, and when it
 * ends. */
static found runs_mark(weir_model *model, uint64_t id)
{
    found f = {0};
    pthread_mutex_lock(&model->lock);
    model->cancels++;
    for (wi_run *run = model->under_way; run; run = run->next) {
        if (!is_called(run, id))
            continue;
        if (can_cancel(run->instance)) {
            atomic_store(&run->cancelled, true);
            run->cancel_marked = model->cancels;
            f.any = true;
        } else
            f.lacks = run->instance->engine;
    }
    if (f.any)
        pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
    return f;
}

/* An instance, with a user more, whose engine has not been sent the cancel of a run there that is marked. */
static wi_instance *join_uncancelled(weir_model *model, uint64_t id, uint64_t *last)
{
    wi_instance *at = NULL;
    pthread_mutex_lock(&model->lock);
    for (wi_run *run = model->under_way; run && !at; run = run->next)
        if (is_called(run, id) && run->cancel_sent < run->cancel_marked)
            at = run->instance;
    if (at)
        at->users++;
    *last = model->cancels;
    pthread_mutex_unlock(&model->lock);
    return at;
}

/* Notes the cancel as sent for the instance's runs marked up to the cancel number `last`. Runs may have been marked
 * since. */
static void note_cancel_sent(weir_model *model, uint64_t id, const wi_instance *at, uint64_t last)
{
    pthread_mutex_lock(&model->lock);
    for (wi_run *run = model->under_way; run; run = run->next)
        if (is_called(run, id) && run->instance == at && run->cancel_marked <= last)
            run->cancel_sent = run->cancel_marked;
    pthread_mutex_unlock(&model->lock);
}

/* Makes engines stop the marked runs. An engine may not know a run yet that is on its way in, and is asked some times
 * more. A run that comes still later is made for nothing. */
static void tell_engines(weir_model *model, uint64_t id)
{
    enum { TIMES = 40, PAUSE_NS = 50 * 1000 };
    int times = 0;
    uint64_t last;
    for (wi_instance *at; (at = join_uncancelled(model, id, &last));) {
        bool known = !at->engine->cancel || at->engine->cancel(at->loaded, id) != WEIR_ERR_NOT_FOUND;
        if (known || ++times == TIMES) {
            note_cancel_sent(model, id, at, last);
            times = 0;
        } else
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        wi_model_leave(model, at);
    }
}

/* No run of the model has the id. Does not ask the engine, which might stop a run that has begun since: the run would
 * then go on with another instance. */
static weir_status find_none(weir_model *model, uint64_t id)
{
    pthread_mutex_lock(&model->lock);
    wi_instance *at = wi_model_join_locked(model);
    pthread_mutex_unlock(&model->lock);
    bool lacks = at && !at->engine->cancel;
    weir_status status =
        lacks ? wi_engine_lacks(at->engine, "way to cancel a run")
              : weir_fail(WEIR_ERR_NOT_FOUND, "no run with the id %llu is under way", (unsigned long long)id);
    if (at)
        wi_model_leave(model, at);
    return status;
}

weir_status weir_model_cancel(weir_model *model, uint64_t id)
{
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_cancel: NULL");
    weir_status status = wi_model_visit(model, "weir_model_cancel");
    if (status != WEIR_OK)
        return status;
    found f = runs_mark(model, id);
    if (f.any)
        tell_engines(model, id);
    else if (f.lacks)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s has no way to cancel a run", f.lacks->name);
    else
        status = find_none(model, id);
    wi_model_visit_end(model);
    return status;
}
