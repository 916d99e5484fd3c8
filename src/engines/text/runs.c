/* runs.c: the runs of a model, waiting or under way, stand in a list, where a cancel finds them. Where one computes at a
 * time, the others wait. Cores are leased while a run computes. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

void wt_runs_open(wt_runs *it)
{
    pthread_mutex_init(&it->lock, NULL);
    pthread_cond_init(&it->changed, NULL);
}

void wt_runs_close(wt_runs *it)
{
    pthread_cond_destroy(&it->changed);
    pthread_mutex_destroy(&it->lock);
}

void wt_run_begin(wt_runs *it, wt_run *run, uint64_t id)
{
    *run = (wt_run){.id = id};
    pthread_cond_init(&run->wake, NULL);
    pthread_mutex_lock(&it->lock);
    run->next = it->first;
    it->first = run;
    pthread_mutex_unlock(&it->lock);
}

void wt_run_leave(wt_runs *it, wt_run *run)
{
    for (wt_run **at = &it->first; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
}

bool wt_run_was_stopped(wt_runs *it, wt_run *run)
{
    pthread_mutex_lock(&it->lock);
    wt_run_leave(it, run);
    pthread_mutex_unlock(&it->lock);
    return atomic_load(&run->stop);
}

bool wt_run_is_stopped(void *run)
{
    return atomic_load(&((wt_run *)run)->stop);
}

void wt_run_end(wt_runs *it, wt_run *run, weir_status status, uint64_t in, uint64_t out)
{
    pthread_mutex_lock(&it->lock);
    wt_run_leave(it, run);
    it->metrics.runs += status == WEIR_OK;
    it->metrics.cancelled += status == WEIR_ERR_CANCELLED;
    it->metrics.failures += status != WEIR_OK && status != WEIR_ERR_CANCELLED;
    it->metrics.tokens_in += in;
    it->metrics.tokens_out += out;
    pthread_mutex_unlock(&it->lock);
    pthread_cond_destroy(&run->wake);
}

weir_status wt_runs_cancel(wt_runs *it, uint64_t id, weir_cores *cores, void (*stop)(void *user, wt_run *run),
                           void *user)
{
    bool found = false;
    pthread_mutex_lock(&it->lock);
    for (wt_run *run = it->first; run; run = run->next)
        if (id == 0 || run->id == id) {
            atomic_store(&run->stop, true);
            if (stop)
                stop(user, run);
            pthread_cond_signal(&run->wake);
            found = true;
        }
    pthread_cond_broadcast(&it->changed);
    pthread_mutex_unlock(&it->lock);
    if (found)
        weir_cores_wake(cores);
    if (found)
        return WEIR_OK;
    if (id == 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no run is under way on this model");
    return weir_fail(WEIR_ERR_NOT_FOUND, "no run %llu is under way on this model", (unsigned long long)id);
}

weir_status wt_runs_enter(wt_runs *it, wt_run *run)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&it->lock);
    while (atomic_load(&it->active) && !atomic_load(&run->stop))
        pthread_cond_wait(&it->changed, &it->lock);
    if (atomic_load(&run->stop))
        status = weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled before it began");
    else
        atomic_store(&it->active, run);
    pthread_mutex_unlock(&it->lock);
    return status;
}

void wt_runs_leave(wt_runs *it, double seconds)
{
    pthread_mutex_lock(&it->lock);
    atomic_store(&it->active, NULL);
    it->metrics.busy_seconds += seconds;
    pthread_cond_broadcast(&it->changed);
    pthread_mutex_unlock(&it->lock);
}

weir_status wt_runs_metrics(wt_runs *it, weir_engine_metrics *out)
{
    size_t size = out->struct_size < sizeof *out ? out->struct_size : sizeof *out;
    pthread_mutex_lock(&it->lock);
    weir_engine_metrics now = it->metrics;
    pthread_mutex_unlock(&it->lock);
    now.struct_size = out->struct_size;
    memcpy(out, &now, size);
    return WEIR_OK;
}

weir_status wt_warm_up(const weir_engine *engine, weir_engine_model *model, int32_t token, const weir_setting *settings,
                       size_t count)
{
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = 1,
                         .shape = {1},
                         .data = &token,
                         .bytes = sizeof token};
    weir_inference inference = {.struct_size = sizeof inference,
                                .inputs = &input,
                                .input_count = 1,
                                .settings = settings,
                                .setting_count = count};
    weir_outputs outputs = {.struct_size = sizeof outputs};
    weir_status status = engine->infer(model, &inference, &outputs);
    if (status == WEIR_OK)
        engine->release_outputs(model, &outputs);
    return status;
}

weir_status wt_cores_take(weir_cores *cores, bool (*stops)(void *user), void *user, bool *leased, uint32_t *count)
{
    if (!cores)
        return WEIR_OK;
    weir_status status =
        *leased ? weir_cores_renew(cores, stops, user, count) : weir_cores_take(cores, stops, user, count);
    *leased = status == WEIR_OK;
    return status;
}

void wt_cores_give(weir_cores *cores, bool *leased)
{
    if (*leased)
        weir_cores_give(cores);
    *leased = false;
}
