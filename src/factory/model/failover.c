/* Failover, the fallback to another candidate: what becomes of a run that has failed, or that found the model on no
 * device. The order of the candidates is made in choice/rank.c, the fallback while a model is loaded in open.c. The
 * table of weir/model.h is here: `failover_row_of` finds what a run needs, `find_candidate` and `try_candidate` do it.
 * Numbers are the table's rows. */
#include "factory/model/open.h"
#include "runtime/runtime.h"

#include <weir/stream.h>
#include <weir/engine.h>
#include <weir/model.h>

#include <stdio.h>

/* Rows ------------------------------------------------------------------------------------------------------------- */

typedef enum row {
    FAILS, /* 1: it would come again anywhere */
    TRIED, /* 2 to 5: another candidate may answer it */
    LOST,  /* 6: the instance will answer nothing any more */
    PLACED /* 7 and 8: there is no instance, and the model gets one first */
} row;

typedef struct failure {
    weir_status status;
    weir_stage stage;
    double ms;
    wi_saved_detail detail;
} failure;

/* A run's way from one candidate to the next. */
typedef struct failover {
    weir_model *model;
    wi_opening *opening;
    wi_run *run;
    failure last;
    weir_runtime *home; /* of the instance on which the run failed; NULL: on none yet */
    size_t rank;        /* of its candidate */
    /* 4: the instance failed like this before, and has answered no run since; loading it again may help. */
    bool reload;
    uint32_t statuses; /* a bit for each status with which the run was to be tried elsewhere */

    /* While the run makes the failover. */
    wi_instance *old;
    bool unplaced; /* the model has no instance */
    size_t first;  /* attempt of this failover */
} failover;

_Static_assert(WEIR_STATUS_COUNT <= 31, "a bit for each status, and one for numbers that are none");

static uint32_t failover_status_bit(weir_status status)
{
    return UINT32_C(1) << ((unsigned)status < WEIR_STATUS_COUNT ? (unsigned)status : 31);
}

static row failover_row_of(const wi_run *run, weir_status status)
{
    if (!run->instance)
        return PLACED;
    switch (status) {
    case WEIR_ERR_DEVICE_LOST:
        return LOST;
    case WEIR_ERR_UNSUPPORTED: /* what the engine cannot do, none of its models can */
        return wi_run_lacks(run) ? FAILS : TRIED;
    case WEIR_ERR_OUT_OF_MEMORY:
    case WEIR_ERR_DRIVER:
    case WEIR_ERR_ENGINE:
        return TRIED;
    default:
        return FAILS;
    }
}

static weir_status failover_tell(const failover *f)
{
    wi_detail_restore(&f->last.detail);
    return f->last.status;
}

/* The same, with what became of the candidates since the attempt number `first`. */
static weir_status tell_since(const failover *f, size_t first)
{
    return wi_attempts_count(f->opening) > first
               ? wi_attempts_fail(f->opening, first, f->last.status, f->last.detail.text)
               : failover_tell(f);
}

/* The model's instance, or one that was loaded for the run, serves no longer: that is recorded and reported. */
static void record_end(wi_opening *opening, const wi_instance *instance, const failure *how)
{
    weir_attempt attempt = {.stage = how->stage,
                            .status = how->status,
                            .reason = how->detail.text,
                            .ms = how->ms,
                            .bytes = wi_instance_peak(instance)};
    if (wi_attempts_update(opening, instance->attempt, &attempt))
        wi_report_failure(opening, instance->rank, &attempt);
}

/* Runs that begin from here on wait for another instance. */
static void lose(const failover *f, wi_instance *from)
{
    wi_opening *opening = f->opening;
    char name[WI_CANDIDATE_TEXT], reason[300];
    pthread_mutex_lock(&f->model->lock);
    bool first = from->present && !from->lost;
    if (first)
        snprintf(opening->loss_text, sizeof opening->loss_text, "%.60s is on no device since %s failed: %s",
                 opening->manifest.name, wi_candidate_text(&opening->choice->candidates[from->rank], name),
                 wi_shorten(f->last.detail.text, reason, sizeof reason));
    from->lost = true;
    pthread_mutex_unlock(&f->model->lock);
    if (first)
        record_end(opening, from, &f->last);
}

/* Whether loading the instance again may help: the instance fails good input or calls itself unhealthy, and not for the
 * first time since it worked, as the present request may have broken it. A request may break every instance that is
 * loaded, so such loads become ever rarer. */
static bool is_worn(const wi_run *run, wi_fault fault)
{
    const wi_instance *at = run->instance;
    if (fault != WI_FAULT_INSTANCE && (!at->engine->health || at->engine->health(at->loaded) == WEIR_OK))
        return false;
    return run->failures > 1 && wi_fault_looks_again(run->failures);
}

/* With the run still on the instance. */
static row read_failure(failover *f, weir_status status)
{
    wi_instance *from = f->run->instance;
    wi_fault fault = from ? wi_fault_of(f->model, f->run, &status) : WI_FAULT_UNKNOWN;
    row answer = fault == WI_FAULT_REQUEST ? FAILS : failover_row_of(f->run, status);
    f->last = (failure){.status = status, .stage = WEIR_STAGE_FIRST_RUN, .ms = f->run->ms};
    pthread_mutex_lock(&f->model->lock);
    if (!from)
        (void)weir_fail(status, "%s", f->opening->loss_text);
    else if (from->answered > 0)
        f->last.stage = WEIR_STAGE_LATER_RUN;
    pthread_mutex_unlock(&f->model->lock);
    wi_detail_save(&f->last.detail);
    if (from) {
        f->home = weir_client_runtime(from->client);
        f->rank = from->rank;
    }
    f->statuses |= answer == TRIED ? failover_status_bit(status) : 0;
    f->reload = from && status == WEIR_ERR_ENGINE && is_worn(f->run, fault);
    if (answer == LOST)
        lose(f, from);
    return answer;
}

/* Beginning and end ------------------------------------------------------------------------------------------------ */

typedef enum begun { MINE, MOVED, NO_CANDIDATE, STOPPED } begun;

/* 9: one thread makes the failover; other threads wait for the outcome. The run leaves its instance. */
static begun failover_begin(weir_model *model, wi_run *run)
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
    begun answer = atomic_load(&run->cancelled)                          ? STOPPED
                   : now->number != number && now->present && !now->lost ? MOVED
                   : model->failed_failovers != before                   ? NO_CANDIDATE
                                                                         : MINE;
    if (answer == MINE)
        model->failing_over = true;
    pthread_mutex_unlock(&model->lock);
    return answer;
}

/* Fruitless: no candidate loaded the model, and who waits need not look again. */
static void failover_end(weir_model *model, bool fruitless)
{
    pthread_mutex_lock(&model->lock);
    model->failing_over = false;
    model->failed_failovers += fruitless;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* Requests elsewhere ----------------------------------------------------------------------------------------------- */

static const char *failover_device_of(const failover *f, size_t rank)
{
    return f->opening->choice->candidates[rank].runtime;
}

/* Returns the device of inputs in memory that is not weir's: the device on which the run failed, or for a run without a
 * device yet `to`. */
static const char *failover_home_of(const failover *f, const char *to)
{
    return f->home ? wi_runtime_device(f->home) : to;
}

/* The inputs are ordered on a stream of the device that they come from: another device waits for that. */
static weir_status wait_for_inputs(wi_run *run)
{
    if (run->inference->stream.id == WEIR_STREAM_HOST.id)
        return WEIR_OK;
    weir_status status = weir_stream_synchronize(run->inference->stream);
    if (status != WEIR_OK)
        return weir_fail(status, "elsewhere its inputs' stream is to be waited for, and cannot be: %s", weir_detail());
    run->asked.stream = WEIR_STREAM_HOST;
    return WEIR_OK;
}

/* Makes the inputs readable by the device called `to`; where that cannot be, the request has failed as it did. */
static weir_status bring(const failover *f, const char *to)
{
    const char *home = failover_home_of(f, to);
    weir_status status = wi_run_check_inputs(f->model, f->run, home, to);
    if (status == WEIR_OK && (!f->home || strcmp(home, to) != 0))
        status = wait_for_inputs(f->run);
    if (status == WEIR_OK || !f->home)
        return status;
    char first[600];
    return weir_fail(f->last.status, "%s; %s", wi_shorten(f->last.detail.text, first, sizeof first), weir_detail());
}

static weir_status failover_stop(void)
{
    return weir_fail(WEIR_ERR_CANCELLED, "stopped on request, before it was made again");
}

/* On the present instance. *again: the run failed there, or there is no present instance: the request has not ended. */
static weir_status make_again(const failover *f, bool *again)
{
    wi_run *run = f->run;
    pthread_mutex_lock(&f->model->lock);
    run->instance = wi_model_join_locked(f->model);
    pthread_mutex_unlock(&f->model->lock);
    *again = !run->instance;
    if (!run->instance)
        return WEIR_ERR_DEVICE_LOST;
    weir_status status = bring(f, wi_runtime_device(weir_client_runtime(run->instance->client)));
    *again = status == WEIR_OK;
    return status == WEIR_OK ? wi_run_make(run) : status;
}

/* Trying the candidates -------------------------------------------------------------------------------------------- */

static void unplace(failover *f)
{
    wi_model_switch(f->model, NULL);
    f->unplaced = true;
}

/* Whether only the model itself uses the old instance. */
static bool failover_idle(const failover *f)
{
    pthread_mutex_lock(&f->model->lock);
    bool answer = f->old->users == 1;
    pthread_mutex_unlock(&f->model->lock);
    return answer;
}

/* 5: where there is not enough memory for both on one device, the old one goes first. */
static weir_status load_next(failover *f, size_t rank, wi_instance **out)
{
    weir_status status = wi_attempt_load(f->opening, rank, false, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY || f->unplaced ||
        strcmp(failover_device_of(f, rank), failover_device_of(f, f->old->rank)) != 0 || !failover_idle(f))
        return status;
    lose(f, f->old);
    unplace(f);
    return wi_attempt_load(f->opening, rank, false, out);
}

/* The candidate is not tried again for requests that fail as this one did. */
static void note_failed(const failover *f, size_t rank)
{
    f->opening->states[rank].failed_with |= f->statuses;
}

/* Runs the request on an instance that nobody else knows yet. */
static weir_status run_on(const failover *f, wi_instance *instance)
{
    pthread_mutex_lock(&f->model->lock);
    f->run->instance = instance;
    pthread_mutex_unlock(&f->model->lock);
    return wi_run_make(f->run);
}

/* The candidate could not answer the request. A candidate on which the request was cancelled may be tried again. */
static void end_attempt(const failover *f, wi_instance *instance, weir_status status)
{
    failure how = {.status = status, .stage = WEIR_STAGE_FIRST_RUN, .ms = f->run->ms};
    wi_detail_save(&how.detail);
    if (status == WEIR_ERR_DEVICE_LOST)
        wi_exclude(f->opening, instance->rank, status);
    if (status != WEIR_ERR_CANCELLED)
        note_failed(f, instance->rank);
    record_end(f->opening, instance, &how);
    pthread_mutex_lock(&f->model->lock);
    f->run->instance = NULL;
    pthread_mutex_unlock(&f->model->lock);
    wi_model_leave(f->model, instance);
    wi_detail_restore(&how.detail);
}

/* What comes of a failover. */
typedef enum outcome {
    NONE_LEFT, /* no candidate is left */
    MOVED_ON,  /* the model has another instance, on which the request is to be made */
    ENDED      /* the request has ended; *status says how */
} outcome;

static outcome try_candidate(failover *f, size_t rank, weir_status *status)
{
    wi_instance *instance = NULL;
    if (!f->unplaced) { /* before anything is loaded for it */
        *status = bring(f, failover_device_of(f, rank));
        if (*status != WEIR_OK)
            return ENDED;
    }
    if (load_next(f, rank, &instance) != WEIR_OK) {
        note_failed(f, rank);
        return NONE_LEFT;
    }
    wi_model_add(f->model, instance);
    if (f->unplaced) {
        wi_opening_adopt(f->model, instance);
        wi_model_leave(f->model, instance);
        return MOVED_ON;
    }
    *status = run_on(f, instance);
    if (*status == WEIR_OK) {
        record_end(f->opening, f->old, &f->last);
        wi_opening_adopt(f->model, instance);
        return ENDED;
    }
    end_attempt(f, instance, *status);
    return f->run->delivered || *status == WEIR_ERR_CANCELLED ? ENDED : NONE_LEFT;
}

static bool eligible(const failover *f, size_t rank)
{
    const wi_candidate_state *state = &f->opening->states[rank];
    const char *to = failover_device_of(f, rank);
    if (state->excluded || f->unplaced)
        return !state->excluded;
    if (rank == f->old->rank)
        return f->reload;
    return !(state->failed_with & f->statuses) &&
           wi_run_check_inputs(f->model, f->run, failover_home_of(f, to), to) == WEIR_OK;
}

/* 2 and 7: by rank, and the one that the model is on, or was, after all others (4 and 7). */
static outcome find_candidate(failover *f, weir_status *status)
{
    const size_t count = f->opening->choice->accepted, own = f->old->rank;
    outcome come = NONE_LEFT;
    for (size_t i = 0; i < count && come == NONE_LEFT; i++) {
        size_t rank = i + 1 == count ? own : i + (i >= own);
        /* Others wait for the model where it has no instance: then the failover is theirs, too. */
        if (!f->unplaced && atomic_load(&f->run->cancelled)) {
            *status = failover_stop();
            return ENDED;
        }
        if (eligible(f, rank))
            come = try_candidate(f, rank, status);
    }
    return come;
}

/* Fails over for the run, if a candidate will have it; the caller has begun the failover, which ends here. */
static outcome fail_over(failover *f, weir_status *status)
{
    pthread_mutex_lock(&f->model->lock);
    f->old = f->model->present;
    bool lost = f->old->present && f->old->lost;
    pthread_mutex_unlock(&f->model->lock);
    f->unplaced = !f->old->present;
    f->first = wi_attempts_count(f->opening);
    if (f->home)
        note_failed(f, f->rank);
    if (lost) {
        wi_exclude(f->opening, f->old->rank, WEIR_ERR_DEVICE_LOST);
        unplace(f);
    }
    outcome come = find_candidate(f, status);
    failover_end(f->model, come == NONE_LEFT && f->unplaced);
    if (come == NONE_LEFT) /* without an instance, all of its history is why */
        *status = tell_since(f, f->unplaced ? 0 : f->first);
    return come;
}

static weir_status recover(weir_model *model, wi_run *run, weir_status status)
{
    failover f = {.model = model, .opening = model->opening, .run = run};
    for (bool again = true; again;) {
        if (read_failure(&f, status) == FAILS || run->delivered)
            return failover_tell(&f);
        switch (failover_begin(model, run)) {
        case NO_CANDIDATE:
            return tell_since(&f, 0);
        case STOPPED:
            return failover_stop();
        case MINE:
            if (fail_over(&f, &status) != MOVED_ON)
                return status;
            break;
        case MOVED:
            break;
        }
        status = make_again(&f, &again);
        again = again && status != WEIR_OK;
    }
    return status;
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
