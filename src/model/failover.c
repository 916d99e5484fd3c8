/* Failover: runs that failed, and whether another candidate can answer them. */
#include "model/open.h"
#include "runtime/runtime.h"

#include <weir/stream.h>
#include <weir/engine.h>
#include <weir/model.h>

#include <stdio.h>

/* Failures --------------------------------------------------------------------------------------------------------- */

typedef enum remedy {
    NONE,   /* it would come again anywhere, or the answer has begun */
    TRY,    /* another candidate may answer it */
    REPLACE /* the instance will answer nothing any more */
} remedy;

/* A run's failure. */
typedef struct failure {
    remedy remedy;
    wi_failure how;
    wi_instance *from; /* NULL: the model was on no device */
    weir_runtime *runtime;
    bool reload; /* it failed so before, and nothing has worked there since: loaded again it may work */
} failure;

static weir_status tell(const failure *it)
{
    wi_detail_restore(&it->how.detail);
    return it->how.status;
}

/* The same, with what became of the candidates since the attempt number `first`. */
static weir_status tell_since(wi_opening *opening, size_t first, const failure *it)
{
    return wi_attempts_count(opening) > first ? wi_attempts_fail(opening, first, it->how.status, it->how.detail.text)
                                              : tell(it);
}

/* Whether an instance whose engine failed is still good for other requests. */
static bool healthy(const wi_instance *instance)
{
    return !instance->engine->health || instance->engine->health(instance->loaded) == WEIR_OK;
}

/* Either the request or the instance is bad. One failed request is no reason to give the instance up; a second one in a
 * row is. Answers whether this is a second one. */
static bool mark_unhealthy(weir_model *model, wi_instance *instance)
{
    pthread_mutex_lock(&model->lock);
    bool again = instance->unhealthy;
    instance->unhealthy = true;
    pthread_mutex_unlock(&model->lock);
    return again;
}

/* Whether the engine has no such call at all. */
static bool lacks(const wi_run *run, const weir_engine *engine)
{
    return (run->piece && !engine->infer_stream) || (run->warms && !engine->warm_up);
}

static remedy remedy_of(weir_model *model, const wi_run *run, failure *it)
{
    switch (it->how.status) {
    case WEIR_ERR_DEVICE_LOST:
        return REPLACE;
    case WEIR_ERR_UNSUPPORTED: /* what the engine cannot do, none of its models can */
        return lacks(run, it->from->engine) ? NONE : TRY;
    case WEIR_ERR_OUT_OF_MEMORY:
    case WEIR_ERR_DRIVER:
        return TRY;
    case WEIR_ERR_ENGINE:
        if (healthy(it->from))
            return it->how.stage == WEIR_STAGE_FIRST_RUN ? TRY : NONE;
        it->reload = mark_unhealthy(model, it->from);
        return TRY;
    default:
        return NONE;
    }
}

/* What later requests are told while the model has no instance. With the model's lock held. */
static void name_loss(wi_opening *opening, size_t rank, const wi_failure *how)
{
    char name[WI_CANDIDATE_TEXT];
    snprintf(opening->loss_text, sizeof opening->loss_text, "%.60s is on no device since %s failed: %.300s",
             opening->manifest.name, wi_candidate_text(&opening->choice->candidates[rank], name), how->detail.text);
}

/* Runs that begin from here on wait for another instance. The run that makes the failover may be another one than the
 * first that failed, which knows why: so that one says it. */
static void lose(weir_model *model, wi_instance *from, const wi_failure *how)
{
    wi_opening *opening = model->opening;
    pthread_mutex_lock(&model->lock);
    if (from->present && !from->lost) {
        opening->loss = *how;
        name_loss(opening, from->rank, how);
    }
    from->lost = true;
    pthread_mutex_unlock(&model->lock);
}

/* With the run still on the instance. */
static void take_failure(weir_model *model, wi_run *run, weir_status status, failure *out)
{
    wi_opening *opening = model->opening;
    wi_instance *from = run->instance;
    *out = (failure){.remedy = REPLACE, .how = {.status = status, .ms = run->ms}, .from = from};
    if (!from) {
        pthread_mutex_lock(&model->lock);
        (void)weir_fail(status, "%s", opening->loss_text);
        pthread_mutex_unlock(&model->lock);
        wi_detail_keep(&out->how.detail);
        return;
    }
    wi_detail_keep(&out->how.detail);
    out->runtime = wi_client_runtime(from->client);
    pthread_mutex_lock(&model->lock);
    out->how.stage = from->answered > 0 ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN;
    pthread_mutex_unlock(&model->lock);
    out->remedy = remedy_of(model, run, out);
    if (out->remedy == REPLACE)
        lose(model, from, &out->how);
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

typedef enum turn { MINE, MOVED, NO_CANDIDATE, STOPPED } turn;

/* One thread makes the failover; the others wait for its outcome. The run leaves its instance. */
static turn take_turn(weir_model *model, wi_run *run)
{
    wi_instance *from = run->instance;
    uint64_t number = from ? from->number : 0; /* it may be gone when the run has left it */
    pthread_mutex_lock(&model->lock);
    run->instance = NULL;
    uint64_t before = model->failed_failovers;
    pthread_mutex_unlock(&model->lock);
    if (from)
        wi_model_leave(model, from);
    pthread_mutex_lock(&model->lock);
    while (model->failing_over && !atomic_load(&run->cancelled))
        pthread_cond_wait(&model->changed, &model->lock);
    const wi_instance *now = model->present;
    turn answer = atomic_load(&run->cancelled)                          ? STOPPED
                  : now->number != number && now->present && !now->lost ? MOVED
                  : model->failed_failovers != before                   ? NO_CANDIDATE
                                                                        : MINE;
    if (answer == MINE)
        model->failing_over = true;
    pthread_mutex_unlock(&model->lock);
    return answer;
}

/* Fruitless: no candidate loaded the model, and who waits need not look again. */
static void give_turn(weir_model *model, bool fruitless)
{
    pthread_mutex_lock(&model->lock);
    model->failing_over = false;
    model->failed_failovers += fruitless;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* Requests elsewhere ----------------------------------------------------------------------------------------------- */

/* Inputs in the memory of a device can be read there alone. */
static bool travels(const wi_run *run, const weir_runtime *from, const char *to)
{
    return !from || strcmp(wi_runtime_device(from), to) == 0 || !wi_input_on_device(run->inference);
}

/* The inputs are ordered on a stream of the device that they come from: another device waits for that. */
static weir_status wait_for_inputs(wi_run *run, const failure *t)
{
    if (run->inference->stream.id == WEIR_STREAM_HOST.id)
        return WEIR_OK;
    weir_status status = weir_stream_synchronize(run->inference->stream);
    if (status != WEIR_OK && t->runtime) /* it fails as it first did */
        return weir_fail(t->how.status, "%.600s; elsewhere its inputs' stream is to be waited for, and cannot be: %s",
                         t->how.detail.text, weir_detail());
    if (status != WEIR_OK)
        return status;
    run->elsewhere = *run->inference;
    run->elsewhere.stream = WEIR_STREAM_HOST;
    run->inference = &run->elsewhere;
    return WEIR_OK;
}

/* Makes the inputs readable by the device called `to`. */
static weir_status bring(const weir_model *model, wi_run *run, const failure *t, const char *to)
{
    if (!t->runtime) { /* it began between two instances, and its inputs have not been checked */
        weir_status status = wi_run_check_inputs(model, run);
        if (status != WEIR_OK)
            return status;
    } else if (strcmp(wi_runtime_device(t->runtime), to) == 0)
        return WEIR_OK;
    else if (wi_input_on_device(run->inference))
        return weir_fail(t->how.status, "%.600s; its inputs lie on %s, and the model is on %s now", t->how.detail.text,
                         wi_runtime_device(t->runtime), to);
    return wait_for_inputs(run, t);
}

static weir_status stop(void)
{
    return weir_fail(WEIR_ERR_CANCELLED, "stopped on request, before it was made again");
}

/* On the present instance. *again: it failed there, or there is none, so that the request has not ended. */
static weir_status make_again(weir_model *model, wi_run *run, const failure *t, bool *again)
{
    pthread_mutex_lock(&model->lock);
    run->instance = wi_model_join_locked(model);
    pthread_mutex_unlock(&model->lock);
    *again = !run->instance;
    if (!run->instance)
        return WEIR_ERR_DEVICE_LOST;
    weir_status status = bring(model, run, t, wi_runtime_device(wi_client_runtime(run->instance->client)));
    *again = status == WEIR_OK;
    return status == WEIR_OK ? wi_run_make(run) : status;
}

/* Failovers -------------------------------------------------------------------------------------------------------- */

typedef struct failover {
    weir_model *model;
    wi_opening *opening;
    wi_run *run;
    const failure *failure;
    wi_instance *old;
    bool released; /* the old one */
    size_t first;  /* attempt of this failover */
} failover;

/* The old one serves no longer, which is recorded and reported. */
static void note_released(const failover *m, const wi_failure *how)
{
    weir_attempt attempt = {.stage = how->stage,
                            .status = how->status,
                            .reason = how->detail.text,
                            .ms = how->ms,
                            .bytes = wi_instance_peak(m->old)};
    wi_attempts_update(m->opening, m->old->attempt, &attempt);
    wi_report_failure(m->opening, m->old->rank, &attempt);
}

static void release(failover *m, const wi_failure *how)
{
    note_released(m, how);
    pthread_mutex_lock(&m->model->lock);
    name_loss(m->opening, m->old->rank, how);
    pthread_mutex_unlock(&m->model->lock);
    wi_model_switch(m->model, NULL);
    wi_attempts_unplaced(m->opening, true);
    m->released = true;
}

/* The old one, if it will answer nothing any more. */
static void release_if_lost(failover *m)
{
    wi_failure how;
    pthread_mutex_lock(&m->model->lock);
    bool lost = m->old->present && m->old->lost;
    how = m->opening->loss;
    pthread_mutex_unlock(&m->model->lock);
    if (!lost)
        return;
    wi_exclude(m->opening, m->old->rank, how.status);
    release(m, &how);
}

static const char *device_of(const failover *m, size_t rank)
{
    return m->opening->choice->candidates[rank].runtime;
}

/* Whether nobody but the model itself uses the old one. */
static bool idle(const failover *m)
{
    pthread_mutex_lock(&m->model->lock);
    bool answer = m->old->users == 1;
    pthread_mutex_unlock(&m->model->lock);
    return answer;
}

/* Where there is not enough memory for both on one device, the old one goes first. */
static weir_status load_next(failover *m, size_t rank, wi_instance **out)
{
    weir_status status = wi_attempt_load(m->opening, rank, false, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY || m->released ||
        strcmp(device_of(m, rank), device_of(m, m->old->rank)) != 0 || !idle(m))
        return status;
    m->opening->states[m->old->rank].failed_with = WI_ALL_STATUSES;
    release(m, &m->failure->how);
    return wi_attempt_load(m->opening, rank, false, out);
}

/* The candidate is not tried again for requests that fail as this one did. */
static void note_failed(const failover *m, size_t rank)
{
    m->opening->states[rank].failed_with |= wi_status_bit(m->failure->how.status);
}

/* Runs the request on an instance that nobody else knows yet. */
static weir_status run_on(failover *m, wi_instance *instance)
{
    pthread_mutex_lock(&m->model->lock);
    m->run->instance = instance;
    pthread_mutex_unlock(&m->model->lock);
    return wi_run_make(m->run);
}

/* `to_blame`: the candidate could not answer the request. One that was stopped, or not asked before that, may be able
 * to. */
static void end_attempt(failover *m, wi_instance *instance, weir_status status, bool to_blame)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weir_detail());
    weir_attempt attempt = {.stage = m->run->started ? WEIR_STAGE_FIRST_RUN : WEIR_STAGE_LOAD,
                            .status = status,
                            .reason = reason,
                            .ms = m->run->ms,
                            .bytes = wi_instance_peak(instance)};
    if (to_blame && status == WEIR_ERR_DEVICE_LOST)
        wi_exclude(m->opening, instance->rank, status);
    if (to_blame)
        note_failed(m, instance->rank);
    wi_attempts_update(m->opening, instance->attempt, &attempt);
    wi_report_failure(m->opening, instance->rank, &attempt);
    pthread_mutex_lock(&m->model->lock);
    m->run->instance = NULL;
    pthread_mutex_unlock(&m->model->lock);
    wi_model_leave(m->model, instance);
    (void)weir_fail(status, "%s", reason);
}

/* What comes of a failover. */
typedef enum outcome {
    NONE_LEFT, /* no candidate is left */
    MOVED_ON,  /* the model has another instance, on which the request is to be made */
    ENDED      /* the request has ended; *status says how */
} outcome;

/* A candidate's turn. */
static outcome try_candidate(failover *m, size_t rank, weir_status *status)
{
    wi_instance *instance = NULL;
    if (!m->released) { /* before anything is loaded for it */
        *status = bring(m->model, m->run, m->failure, device_of(m, rank));
        if (*status != WEIR_OK)
            return ENDED;
    }
    if (load_next(m, rank, &instance) != WEIR_OK) {
        note_failed(m, rank);
        return NONE_LEFT;
    }
    wi_model_add(m->model, instance);
    if (m->released) {
        wi_opening_adopt(m->model, instance);
        wi_model_leave(m->model, instance);
        return MOVED_ON;
    }
    *status = run_on(m, instance);
    if (*status == WEIR_OK) {
        if (rank != m->old->rank)
            m->opening->states[m->old->rank].failed_with = WI_ALL_STATUSES;
        note_released(m, &m->failure->how);
        wi_opening_adopt(m->model, instance);
        return ENDED;
    }
    bool to_blame = *status != WEIR_ERR_CANCELLED;
    bool over = m->run->delivered || !to_blame;
    end_attempt(m, instance, *status, to_blame);
    return over ? ENDED : NONE_LEFT;
}

static bool eligible(const failover *m, size_t rank)
{
    const wi_candidate_state *state = &m->opening->states[rank];
    if (state->excluded || rank == m->old->rank)
        return false;
    return m->released || (!(state->failed_with & wi_status_bit(m->failure->how.status)) &&
                           travels(m->run, m->failure->runtime, device_of(m, rank)));
}

static outcome find_candidate(failover *m, weir_status *status)
{
    const size_t count = m->opening->choice->accepted;
    for (size_t rank = 0; rank < count; rank++) {
        /* Others wait for the model where its instance is released: then the failover is theirs, too. */
        if (!m->released && atomic_load(&m->run->cancelled)) {
            *status = stop();
            return ENDED;
        }
        outcome come = eligible(m, rank) ? try_candidate(m, rank, status) : NONE_LEFT;
        if (come != NONE_LEFT)
            return come;
    }
    if (!m->released)
        return m->failure->reload ? try_candidate(m, m->old->rank, status) : NONE_LEFT;
    if (m->opening->states[m->old->rank].excluded)
        return NONE_LEFT;
    /* No other candidate loads the model: it goes back to where it was. A request that failed there is not made again;
     * one that began while there was no instance is. */
    outcome back = try_candidate(m, m->old->rank, status);
    return m->failure->runtime ? NONE_LEFT : back;
}

/* Fails over for the run, if a candidate will have it; the caller has the turn, which is given back. */
static outcome fail_over(weir_model *model, wi_run *run, const failure *t, weir_status *status)
{
    wi_opening *opening = model->opening;
    failover m = {.model = model,
                  .opening = opening,
                  .run = run,
                  .failure = t,
                  .old = model->present,
                  .first = wi_attempts_count(opening)};
    m.released = !m.old->present;
    release_if_lost(&m);
    outcome come = find_candidate(&m, status);
    give_turn(model, come == NONE_LEFT && m.released);
    if (come == NONE_LEFT) /* without an instance, all of its history is why */
        *status = tell_since(opening, m.released ? 0 : m.first, t);
    return come;
}

static weir_status recover(weir_model *model, wi_run *run, weir_status status)
{
    for (bool again = true;;) {
        failure t;
        take_failure(model, run, status, &t);
        if (t.remedy == NONE || run->delivered)
            return tell(&t);
        switch (take_turn(model, run)) {
        case NO_CANDIDATE:
            return tell_since(model->opening, 0, &t);
        case STOPPED:
            return stop();
        case MINE:
            if (fail_over(model, run, &t, &status) != MOVED_ON)
                return status;
            break;
        case MOVED:
            break;
        }
        status = make_again(model, run, &t, &again);
        if (status == WEIR_OK || !again)
            return status;
    }
}

static void ran(weir_model *model, const wi_instance *instance, uint64_t answered, double ms)
{
    weir_attempt now = {.stage = answered > 1 ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN,
                        .status = WEIR_OK,
                        .reason = "",
                        .ms = ms,
                        .bytes = wi_instance_peak(instance)};
    wi_attempts_update(model->opening, instance->attempt, &now);
}

const wi_failover wi_opening_failover = {.recover = recover, .ran = ran, .end = wi_opening_end};
