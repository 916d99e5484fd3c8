/* Runs that failed, and whether another candidate can answer them. */
#include "model/open.h"

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
typedef struct trouble {
    remedy remedy;
    wi_failure how;
    wi_instance *from; /* NULL: the model was on no device */
    weir_runtime *runtime;
    bool anew; /* nothing has worked there since it failed so before: loaded anew it may */
} trouble;

static weir_status tell(const trouble *it)
{
    wi_detail_restore(&it->how.detail);
    return it->how.status;
}

/* The same, with what became of the candidates since the attempt number `first`. */
static weir_status tell_since(wi_opening *opening, size_t first, const trouble *it)
{
    return wi_record_count(opening) > first ? wi_told_attempts(opening, first, it->how.status, it->how.detail.text)
                                            : tell(it);
}

/* Whether an instance that failed in a way of its engine's own is still good for others. */
static bool healthy(const wi_instance *instance)
{
    return !instance->engine->health || instance->engine->health(instance->loaded) == WEIR_OK;
}

/* It may be the request or the instance that is bad. One request is no reason to give a place up, but when nothing works there
 * after it. Answers whether that is so. */
static bool note_illness(weir_model *model, wi_instance *instance)
{
    pthread_mutex_lock(&model->lock);
    bool again = instance->ill;
    instance->ill = true;
    pthread_mutex_unlock(&model->lock);
    return again;
}

/* No such call at all. */
static bool lacks(const wi_run *run, const weir_engine *engine)
{
    return (run->piece && !engine->infer_stream) || (run->warms && !engine->warm_up);
}

static remedy remedy_of(weir_model *model, const wi_run *run, trouble *it)
{
    switch (it->how.status) {
    case WEIR_ERR_DEVICE_LOST:
        return REPLACE;
    case WEIR_ERR_UNSUPPORTED: /* by the engine as such is by its models anywhere */
        return lacks(run, it->from->engine) ? NONE : TRY;
    case WEIR_ERR_OUT_OF_MEMORY:
    case WEIR_ERR_DRIVER:
        return TRY;
    case WEIR_ERR_ENGINE:
        if (healthy(it->from))
            return it->how.stage == WEIR_STAGE_FIRST_RUN ? TRY : NONE;
        it->anew = note_illness(model, it->from);
        return TRY;
    default:
        return NONE;
    }
}

/* What later requests are told while there is no place. With the model's lock held. */
static void name_loss(wi_opening *opening, size_t rank, const wi_failure *how)
{
    char name[WI_TOLD_BYTES];
    snprintf(opening->loss, sizeof opening->loss, "%.60s is on no device since %s failed: %.300s",
             opening->manifest.name, wi_told_candidate(&opening->choice->candidates[rank], name), how->detail.text);
}

/* Runs that begin from here on wait for another. Who moves the model may be another run than the one that knows why, so
 * the first says it. */
static void lose(weir_model *model, wi_instance *from, const wi_failure *how)
{
    wi_opening *opening = model->opening;
    pthread_mutex_lock(&model->lock);
    if (from->present && !from->lost) {
        opening->lost = *how;
        name_loss(opening, from->rank, how);
    }
    from->lost = true;
    pthread_mutex_unlock(&model->lock);
}

/* With the run still on the instance. */
static void take_trouble(weir_model *model, wi_run *run, weir_status status, trouble *out)
{
    wi_opening *opening = model->opening;
    wi_instance *from = run->instance;
    *out = (trouble){.remedy = REPLACE, .how = {.status = status, .ms = run->ms}, .from = from};
    if (!from) {
        pthread_mutex_lock(&model->lock);
        (void)weir_fail(status, "%s", opening->loss);
        pthread_mutex_unlock(&model->lock);
        wi_detail_keep(&out->how.detail);
        return;
    }
    wi_detail_keep(&out->how.detail);
    out->runtime = weir_client_runtime(from->client);
    pthread_mutex_lock(&model->lock);
    out->how.stage = from->answered > 0 ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN;
    pthread_mutex_unlock(&model->lock);
    out->remedy = remedy_of(model, run, out);
    if (out->remedy == REPLACE)
        lose(model, from, &out->how);
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

typedef enum turn { MINE, MOVED, IN_VAIN, STOPPED } turn;

/* One thread moves the model; the others wait for what comes of it. The run leaves its instance. */
static turn take_turn(weir_model *model, wi_run *run)
{
    wi_instance *from = run->instance;
    uint64_t number = from ? from->number : 0; /* it may be gone when the run has left it */
    pthread_mutex_lock(&model->lock);
    run->instance = NULL;
    uint64_t vain = model->vain;
    pthread_mutex_unlock(&model->lock);
    if (from)
        wi_model_leave(model, from);
    pthread_mutex_lock(&model->lock);
    while (model->moving && !atomic_load(&run->cancelled))
        pthread_cond_wait(&model->moved, &model->lock);
    const wi_instance *now = model->present;
    turn answer = atomic_load(&run->cancelled)                          ? STOPPED
                  : now->number != number && now->present && !now->lost ? MOVED
                  : model->vain != vain                                 ? IN_VAIN
                                                                        : MINE;
    if (answer == MINE)
        model->moving = true;
    pthread_mutex_unlock(&model->lock);
    return answer;
}

/* In vain: there was no place for the model, and who waits for one need not look again. */
static void give_turn(weir_model *model, bool in_vain)
{
    pthread_mutex_lock(&model->lock);
    model->moving = false;
    model->vain += in_vain;
    pthread_cond_broadcast(&model->moved);
    pthread_mutex_unlock(&model->lock);
}

/* Requests elsewhere ----------------------------------------------------------------------------------------------- */

/* Inputs in the memory of a device can be read there alone. */
static bool travels(const wi_run *run, const weir_runtime *from, const char *to)
{
    return !from || strcmp(weir_runtime_device(from), to) == 0 || !wi_input_on_device(run->inference);
}

/* What the inputs are ordered on is a stream of the device that they come from: elsewhere it is waited for. */
static weir_status wait_for_inputs(wi_run *run, const trouble *t)
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

/* Makes the inputs good for the device called `to`. */
static weir_status bring(const weir_model *model, wi_run *run, const trouble *t, const char *to)
{
    if (!t->runtime) { /* it began between two, and nobody has looked at its inputs */
        weir_status status = wi_run_check_inputs(model, run);
        if (status != WEIR_OK)
            return status;
    } else if (strcmp(weir_runtime_device(t->runtime), to) == 0)
        return WEIR_OK;
    else if (wi_input_on_device(run->inference))
        return weir_fail(t->how.status, "%.600s; its inputs lie on %s, and the model is on %s now", t->how.detail.text,
                         weir_runtime_device(t->runtime), to);
    return wait_for_inputs(run, t);
}

static weir_status stop(void)
{
    return weir_fail(WEIR_ERR_CANCELLED, "stopped on request, before it was made again");
}

/* On the present instance. *again: the answer is a failure of its, or of there being none, and not the request's end. */
static weir_status make_again(weir_model *model, wi_run *run, const trouble *t, bool *again)
{
    pthread_mutex_lock(&model->lock);
    run->instance = wi_model_join_locked(model);
    pthread_mutex_unlock(&model->lock);
    *again = !run->instance;
    if (!run->instance)
        return WEIR_ERR_DEVICE_LOST;
    weir_status status = bring(model, run, t, weir_runtime_device(weir_client_runtime(run->instance->client)));
    *again = status == WEIR_OK;
    return status == WEIR_OK ? wi_run_make(run) : status;
}

/* Moves ------------------------------------------------------------------------------------------------------------ */

typedef struct move {
    weir_model *model;
    wi_opening *opening;
    wi_run *run;
    const trouble *trouble;
    wi_instance *old;
    bool gone;    /* the old one is let go */
    size_t first; /* attempt of this move */
} move;

/* The old one serves no longer: into the record, and told. */
static void note_old(const move *m, const wi_failure *how)
{
    weir_attempt attempt = {.stage = how->stage,
                            .status = how->status,
                            .reason = how->detail.text,
                            .ms = how->ms,
                            .bytes = wi_instance_peak(m->old)};
    wi_record_note(m->opening, m->old->attempt, &attempt);
    wi_open_failed(m->opening, m->old->rank, &attempt);
}

static void let_go(move *m, const wi_failure *how)
{
    note_old(m, how);
    pthread_mutex_lock(&m->model->lock);
    name_loss(m->opening, m->old->rank, how);
    pthread_mutex_unlock(&m->model->lock);
    wi_model_switch(m->model, NULL);
    wi_record_adrift(m->opening, true);
    m->gone = true;
}

/* One that will answer nothing any more, if it is that. */
static void let_go_if_lost(move *m)
{
    wi_failure how;
    pthread_mutex_lock(&m->model->lock);
    bool lost = m->old->present && m->old->lost;
    how = m->opening->lost;
    pthread_mutex_unlock(&m->model->lock);
    if (!lost)
        return;
    wi_open_spoil(m->opening, m->old->rank, how.status);
    let_go(m, &how);
}

static const char *device_of(const move *m, size_t rank)
{
    return m->opening->choice->candidates[rank].runtime;
}

/* Nobody but the model itself keeps the old one. */
static bool idle(const move *m)
{
    pthread_mutex_lock(&m->model->lock);
    bool answer = m->old->users == 1;
    pthread_mutex_unlock(&m->model->lock);
    return answer;
}

/* Where there is not enough memory for both on one device, the old one goes first. */
static weir_status load_next(move *m, size_t rank, wi_instance **out)
{
    weir_status status = wi_open_try(m->opening, rank, false, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY || m->gone || strcmp(device_of(m, rank), device_of(m, m->old->rank)) != 0 ||
        !idle(m))
        return status;
    m->opening->chances[m->old->rank].tried = WI_TRIED_FOR_ALL;
    let_go(m, &m->trouble->how);
    return wi_open_try(m->opening, rank, false, out);
}

/* The candidate is no place for requests that fail as this one did. */
static void note_tried(const move *m, size_t rank)
{
    m->opening->chances[rank].tried |= wi_tried(m->trouble->how.status);
}

/* Runs the request on an instance that nobody else knows yet. */
static weir_status try_on(move *m, wi_instance *instance)
{
    pthread_mutex_lock(&m->model->lock);
    m->run->instance = instance;
    pthread_mutex_unlock(&m->model->lock);
    return wi_run_make(m->run);
}

/* `to_blame`: the candidate could not answer the request. One that was stopped, or not asked before that, may be able to. */
static void end_trial(move *m, wi_instance *instance, weir_status status, bool to_blame)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weir_detail());
    weir_attempt attempt = {.stage = m->run->asked ? WEIR_STAGE_FIRST_RUN : WEIR_STAGE_LOAD,
                            .status = status,
                            .reason = reason,
                            .ms = m->run->ms,
                            .bytes = wi_instance_peak(instance)};
    if (to_blame && status == WEIR_ERR_DEVICE_LOST)
        wi_open_spoil(m->opening, instance->rank, status);
    if (to_blame)
        note_tried(m, instance->rank);
    wi_record_note(m->opening, instance->attempt, &attempt);
    wi_open_failed(m->opening, instance->rank, &attempt);
    pthread_mutex_lock(&m->model->lock);
    m->run->instance = NULL;
    pthread_mutex_unlock(&m->model->lock);
    wi_model_leave(m->model, instance);
    (void)weir_fail(status, "%s", reason);
}

/* What comes of a move. */
typedef enum outcome {
    NOBODY, /* no candidate is left */
    HERE,   /* the model is somewhere else now, where the request is to be made */
    OVER    /* the request has ended; *status says how */
} outcome;

/* A candidate's turn. */
static outcome take(move *m, size_t rank, weir_status *status)
{
    wi_instance *instance = NULL;
    if (!m->gone) { /* before anything is loaded for it */
        *status = bring(m->model, m->run, m->trouble, device_of(m, rank));
        if (*status != WEIR_OK)
            return OVER;
    }
    if (load_next(m, rank, &instance) != WEIR_OK) {
        note_tried(m, rank);
        return NOBODY;
    }
    wi_model_add(m->model, instance);
    if (m->gone) {
        wi_opening_settle(m->model, instance);
        wi_model_leave(m->model, instance);
        return HERE;
    }
    *status = try_on(m, instance);
    if (*status == WEIR_OK) {
        if (rank != m->old->rank)
            m->opening->chances[m->old->rank].tried = WI_TRIED_FOR_ALL;
        note_old(m, &m->trouble->how);
        wi_opening_settle(m->model, instance);
        return OVER;
    }
    bool to_blame = *status != WEIR_ERR_CANCELLED;
    bool over = m->run->handed || !to_blame;
    end_trial(m, instance, *status, to_blame);
    return over ? OVER : NOBODY;
}

static bool eligible(const move *m, size_t rank)
{
    const wi_chance *chance = &m->opening->chances[rank];
    if (chance->dead || rank == m->old->rank)
        return false;
    return m->gone || (!(chance->tried & wi_tried(m->trouble->how.status)) &&
                       travels(m->run, m->trouble->runtime, device_of(m, rank)));
}

static outcome search(move *m, weir_status *status)
{
    const size_t count = m->opening->choice->accepted;
    for (size_t rank = 0; rank < count; rank++) {
        /* Others wait for the model where its place is gone: then the move is theirs, too. */
        if (!m->gone && atomic_load(&m->run->cancelled)) {
            *status = stop();
            return OVER;
        }
        outcome come = eligible(m, rank) ? take(m, rank, status) : NOBODY;
        if (come != NOBODY)
            return come;
    }
    if (!m->gone)
        return m->trouble->anew ? take(m, m->old->rank, status) : NOBODY;
    if (m->opening->chances[m->old->rank].dead)
        return NOBODY;
    /* Nobody else would have the model: it goes back to where it was. A request that found no answer there is not made again; one
     * that began while there was no place is. */
    outcome back = take(m, m->old->rank, status);
    return m->trouble->runtime ? NOBODY : back;
}

/* Moves the model for the run, or not; the caller has the turn, which is given back. */
static outcome look_elsewhere(weir_model *model, wi_run *run, const trouble *t, weir_status *status)
{
    wi_opening *opening = model->opening;
    move m = {.model = model,
              .opening = opening,
              .run = run,
              .trouble = t,
              .old = model->present,
              .first = wi_record_count(opening)};
    m.gone = !m.old->present;
    let_go_if_lost(&m);
    outcome come = search(&m, status);
    give_turn(model, come == NOBODY && m.gone);
    if (come == NOBODY) /* without a place all of its history is why */
        *status = tell_since(opening, m.gone ? 0 : m.first, t);
    return come;
}

static weir_status recover(weir_model *model, wi_run *run, weir_status status)
{
    for (bool again = true;;) {
        trouble t;
        take_trouble(model, run, status, &t);
        if (t.remedy == NONE || run->handed)
            return tell(&t);
        switch (take_turn(model, run)) {
        case IN_VAIN:
            return tell_since(model->opening, 0, &t);
        case STOPPED:
            return stop();
        case MINE:
            if (look_elsewhere(model, run, &t, &status) != HERE)
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
    wi_record_note(model->opening, instance->attempt, &now);
}

const wi_route wi_opening_route = {.recover = recover, .ran = ran, .end = wi_opening_end};
