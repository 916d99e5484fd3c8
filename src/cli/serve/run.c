/* run.c: one run of a model for one request: it waits for the model, and both end when its client goes. */
#include "serve.h"

#include "cli/cli.h"
#include <time.h>

/* Both are called again until the call has ended: what is about to begin is not found the first time. */
static void stop_waiting(void *user)
{
    const served_run *run = user;
    (void)!weir_pool_cancel(run->all->pool, run->id);
}

static void serve_run_stop(void *user)
{
    const served_run *run = user;
    (void)!weir_model_cancel(run->loaded, run->id);
}

/* How long the model is to stay idle once this and others have left it. */
static void serve_run_keep(const served_run *run)
{
    uint64_t wanted = run->keep_set ? run->keep : atomic_load(&run->model->keep_alive);
    if (atomic_exchange(&run->model->stay, wanted) != wanted &&
        weir_pool_keep(run->all->pool, run->model->name, wanted) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "serve: %s", weir_detail());
}

bool served_take(served_run *run, const char *name)
{
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    run->model = served_find(run->all, name);
    run->id = atomic_fetch_add(&run->all->next_run, 1) + 1;
    run->asked = cli_now();
    run->began = run->ended = 0;
    request.name = run->model ? run->model->name : name;
    request.id = run->id;
    ws_on_cancel(run->request, stop_waiting, run);
    state_run_begins(run);
    weir_status status = !run->model ? weir_fail(WEIR_ERR_NOT_FOUND, "there is no model '%.100s' here", name)
                         : ws_cancelled(run->request)
                             ? weir_fail(WEIR_ERR_CANCELLED, "the client is gone")
                             : weir_pool_acquire(run->all->pool, &request, &answer, &run->lease);
    ws_on_cancel(run->request, NULL, NULL);
    run->had = cli_now();
    if (status != WEIR_OK) {
        state_run_ends(run);
        answer_refusal(run->request, status, &answer, name);
        served_drop(run->model);
        run->model = NULL;
        return false;
    }
    run->loaded = weir_lease_model(run->lease);
    /* While it waited another version may have come. */
    state_run_granted(run, served_version(run->all, run->model->name, weir_lease_version(run->lease)));
    serve_run_keep(run);
    return true;
}

void served_leave(served_run *run)
{
    state_run_ends(run);
    served_count(run);
    weir_lease_release(run->lease);
    served_drop(run->model);
    run->lease = NULL;
    run->loaded = NULL;
    run->model = NULL;
}

void served_describe(served *all, ws_request *request,
                     json_t *(*make)(const served_model *model, const weir_model_details *info))
{
    served_run run = {.all = all, .request = request};
    weir_model_details info = WEIR_INIT(weir_model_details);
    if (!served_take(&run, ws_segment(request, 0)))
        return;
    weir_status status = weir_model_info(run.loaded, &info);
    if (status == WEIR_OK)
        answer_json(request, 200, make(run.model, &info));
    else
        answer_failure(request, status);
    served_leave(&run);
}

weir_status served_infer(served_run *run, weir_inference *inference, weir_outputs *out)
{
    served_count(run);
    run->began = cli_now();
    inference->id = run->id;
    inference->stream = WEIR_STREAM_HOST;
    ws_on_cancel(run->request, serve_run_stop, run);
    weir_status status = ws_cancelled(run->request) ? weir_fail(WEIR_ERR_CANCELLED, "the client is gone")
                                                    : weir_model_infer(run->loaded, inference, out);
    ws_on_cancel(run->request, NULL, NULL);
    run->ended = cli_now();
    run->status = status;
    run->together = status == WEIR_OK ? out->together : 0;
    served_count_call(run);
    return status;
}
