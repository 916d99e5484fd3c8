/* Runs of a model: begun, made on an instance, handed over to another, cancelled; and their results. */
#include "engine/model.h"
#include "runtime/runtime.h"

#include <weir/log.h>

#include <time.h>

/* Begin and end ---------------------------------------------------------------------------------------------------- */

static weir_status check(const weir_model *model, const wi_run *run, const char *call)
{
    WI_ENTER();
    if (!model || !run->inference || !run->out)
        return weir_fail(WEIR_INVALID, "%s: NULL", call);
    /* Where results may come from several instances, they say from which. */
    if (model->route && run->out->size < offsetof(weir_outputs, instance) + sizeof run->out->instance)
        return weir_fail(WEIR_INVALID, "%s: member size of the outputs is not set", call);
    return WEIR_OK;
}

static weir_status begin(weir_model *model, wi_run *run, const char *call)
{
    weir_status status = check(model, run, call);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    bool gone = model->unloading;
    if (!gone) {
        model->runs++;
        run->next = model->under_way;
        run->link = &model->under_way;
        if (run->next)
            run->next->link = &run->next;
        model->under_way = run;
        run->instance = wi_model_join_locked(model);
    }
    pthread_mutex_unlock(&model->lock);
    return gone ? weir_fail(WEIR_INVALID, "%s: the model is being unloaded", call) : WEIR_OK;
}

/* Results keep the instance, in place of their run. The model's own counts come last: unload may follow at once. */
static weir_status end(weir_model *model, wi_run *run, weir_status status)
{
    wi_instance *at = run->instance;
    if (status != WEIR_OK && at)
        wi_model_leave(model, at);
    pthread_mutex_lock(&model->lock);
    *run->link = run->next;
    if (run->next)
        run->next->link = run->link;
    model->runs--;
    uint64_t answered = 0;
    if (status == WEIR_OK) {
        model->outputs++;
        at->outputs++;
        answered = ++at->answered;
        if (model->route)
            run->out->instance = at;
    }
    const wi_route *route = model->route;
    pthread_mutex_unlock(&model->lock);
    if (route && status == WEIR_OK && answered <= 2)
        route->ran(model, at, answered, run->ms);
    return status;
}

/* Made once -------------------------------------------------------------------------------------------------------- */

static double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static bool hand_piece(const weir_piece *piece, void *user)
{
    wi_run *run = user;
    run->handed = true;
    return run->piece(piece, run->user);
}

weir_status wi_run_make(wi_run *run)
{
    const wi_instance *at = run->instance;
    double start = clock_ms();
    weir_status status;
    if (!run->piece)
        status = at->engine->infer(at->loaded, run->inference, run->out);
    else if (at->engine->infer_stream)
        status = at->engine->infer_stream(at->loaded, run->inference, hand_piece, run, run->out);
    else
        status = weir_fail(WEIR_UNSUPPORTED, "the engine %s has no answers in pieces", at->engine->name);
    run->ms = clock_ms() - start;
    return status;
}

const weir_tensor *wi_input_on_device(const weir_inference *inference)
{
    size_t count = inference->inputs ? inference->input_count : 0, stride = count > 0 ? inference->inputs->size : 0;
    /* A caller whose header is older has no such member. */
    for (size_t i = 0; i < count && stride > offsetof(weir_tensor, on_device); i++) {
        const void *at = (const char *)inference->inputs + i * stride;
        if (((const weir_tensor *)at)->on_device)
            return at;
    }
    return NULL;
}

/* A model that moves may have left the device that its caller made the inputs on. */
weir_status wi_run_check_inputs(const weir_model *model, const wi_run *run)
{
    const weir_tensor *input = model->route && run->instance ? wi_input_on_device(run->inference) : NULL;
    if (!input)
        return WEIR_OK;
    const char *here = weir_runtime_device(weir_client_runtime(run->instance->client));
    const weir_runtime *owner = wi_runtime_of(input->data);
    const char *there = owner ? weir_runtime_device(owner) : here;
    wi_runtimes_unlock();
    if (strcmp(there, here) == 0)
        return WEIR_OK;
    return weir_fail(WEIR_INVALID, "%s: the input %s lies on %s, and the model is on %s",
                     weir_client_name(run->instance->client), input->name, there, here);
}

static weir_status make(weir_model *model, wi_run *run)
{
    weir_status status = wi_run_check_inputs(model, run);
    if (status != WEIR_OK)
        return end(model, run, status);
    status = run->instance ? wi_run_make(run) : WEIR_DEVICE_LOST;
    if (status != WEIR_OK && model->route)
        status = model->route->recover(model, run, status);
    return end(model, run, status);
}

weir_status weir_model_infer(weir_model *model, const weir_inference *inference, weir_outputs *out)
{
    wi_run run = {.inference = inference, .out = out};
    weir_status status = begin(model, &run, "weir_model_infer");
    return status == WEIR_OK ? make(model, &run) : status;
}

weir_status weir_model_infer_stream(weir_model *model, const weir_inference *inference, weir_piece_fn piece, void *user,
                                    weir_outputs *out)
{
    wi_run run = {.inference = inference, .out = out, .piece = piece, .user = user};
    weir_status status = begin(model, &run, "weir_model_infer_stream");
    if (status != WEIR_OK)
        return status;
    if (!piece)
        return end(model, &run, weir_fail(WEIR_INVALID, "weir_model_infer_stream: no function for the pieces"));
    return make(model, &run);
}

/* Results ---------------------------------------------------------------------------------------------------------- */

/* Whose they are, if any that it gave out are left; with the lock held. */
static wi_instance *giver(const weir_model *model, const weir_outputs *outputs)
{
    wi_instance *from = model->newest;
    while (from && model->route && from != outputs->instance)
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
        weir_log(WEIR_LOG_ERROR, "%s: outputs are released that were released before",
                 weir_client_name(weir_model_client(model)));
        return;
    }
    from->engine->release_outputs(from->loaded, outputs);
    if (model->route)
        outputs->instance = NULL;
    wi_model_leave(model, from);
    pthread_mutex_lock(&model->lock);
    model->outputs--; /* after the engine is done with it: unload may follow at once */
    pthread_mutex_unlock(&model->lock);
}

/* Cancelling ------------------------------------------------------------------------------------------------------- */

/* Runs that are on no instance at the moment see it before they are made again. */
static bool cancel_between(weir_model *model, uint64_t id)
{
    bool any = false;
    pthread_mutex_lock(&model->lock);
    for (wi_run *run = model->under_way; run; run = run->next)
        if (!run->instance && (id == 0 || run->inference->id == id))
            any = run->cancelled = true;
    if (any)
        pthread_cond_broadcast(&model->moved);
    pthread_mutex_unlock(&model->lock);
    return any;
}

/* The next instance from `from` on that has users, with one more. */
static wi_instance *join_next(weir_model *model, wi_instance *from)
{
    pthread_mutex_lock(&model->lock);
    while (from && from->users == 0)
        from = from->older;
    if (from)
        from->users++;
    pthread_mutex_unlock(&model->lock);
    return from;
}

weir_status weir_model_cancel(weir_model *model, uint64_t id)
{
    WI_ENTER();
    if (!model)
        return weir_fail(WEIR_INVALID, "weir_model_cancel: NULL");
    bool found = cancel_between(model, id);
    weir_status last = weir_fail(WEIR_NOT_FOUND, "there is no run to cancel");
    pthread_mutex_lock(&model->lock);
    wi_instance *from = model->newest;
    pthread_mutex_unlock(&model->lock);
    for (wi_instance *at; (at = join_next(model, from)); from = at->older) {
        last = at->engine->cancel
                   ? at->engine->cancel(at->loaded, id)
                   : weir_fail(WEIR_UNSUPPORTED, "the engine %s has no way to cancel a run", at->engine->name);
        found = found || last == WEIR_OK;
        wi_model_leave(model, at);
    }
    return found ? WEIR_OK : last;
}
