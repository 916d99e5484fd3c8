#include "job.h"

#include "engine_file.h"
#include "interrupt.h"
#include "measure.h"
#include "placing.h"
#include "remedy.h"
#include "terminal.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double job_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool job_good(const job *work)
{
    return work->loaded && work->failed.status == WEIR_OK;
}

void job_begin(job *work, const run_options *options, int index)
{
    *work = (job){.options = options, .words = &options->models[index], .index = index};
    work->path = work->words->path;
    work->stats = WEIR_INIT(weir_client_stats);
}

void job_progress(double fraction, void *user)
{
    const job *work = user;
    terminal_progress(work->words->name, fraction);
}

static weir_status load_there(job *work)
{
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.name = work->words->name;
    options.runtime = work->runtime;
    options.guaranteed = work->words->guaranteed;
    options.maximum = work->words->maximum;
    options.settings = work->words->settings;
    options.setting_count = work->words->setting_count;
    options.progress = job_progress;
    options.progress_user = work;
    return weir_model_load(work->path, &options, &work->model);
}

static weir_status load_model(job *work)
{
    double start = job_clock();
    job_progress(0, work);
    weir_status status = work->words->chosen ? placing_open(work) : load_there(work);
    terminal_progress_end();
    work->load_seconds = job_clock() - start;
    if (status == WEIR_OK)
        interrupt_covers(work->model);
    else
        work->model = NULL;
    return status;
}

static void keep_text(char **kept, const char *text)
{
    free(*kept);
    *kept = text_copy(text != NULL ? text : "");
}

static void note_info(job *work, const weir_model_info *info)
{
    keep_text(&work->engine, info->engine);
    keep_text(&work->version, info->version);
    keep_text(&work->provider, info->provider);
    keep_text(&work->architecture, info->architecture);
    keep_text(&work->remarks, info->remarks);
    json_decref(work->shares);
    work->shares = json_array();
    for (size_t i = 0; i < info->share_count; i++)
        json_array_append_new(work->shares,
                              json_pack("{s:o, s:I, s:I}", "provider", text_json(info->shares[i].provider), "parts",
                                        (json_int_t)info->shares[i].parts, "of", (json_int_t)info->shares[i].of));
    work->generates = info->generates;
    work->loaded = true;
}

/* One run. `tokens` is for models that generate; 0 leaves it to the engine. Outputs are copied into `keep` if wanted. */
static weir_status run_once(job *work, uint64_t id, uint64_t tokens, bool stream, outputs *keep)
{
    char number[24];
    weir_setting limit = {"tokens", number};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs results = WEIR_INIT(weir_outputs);
    inference.id = id;
    inference.inputs = work->in.tensors;
    inference.input_count = work->in.count;
    inference.stream = WEIR_STREAM_HOST;
    if (work->generates && tokens > 0) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)tokens);
        inference.settings = &limit;
        inference.setting_count = 1;
    }
    if (interrupt_seen())
        return weir_fail(WEIR_ERR_CANCELLED, "stopped");
    weir_status status =
        stream ? weir_model_infer_stream(work->model, &inference, stream_print_piece, &work->stream, &results)
               : weir_model_infer(work->model, &inference, &results);
    if (status != WEIR_OK)
        return status;
    if (keep != NULL) {
        outputs_clear(keep);
        status = outputs_keep(&results, keep);
    }
    weir_model_release_outputs(work->model, &results);
    return status;
}

/* The first run does what engines leave to it: buffers, plans, threads. One token shows all of that. */
static weir_status first_run(job *work)
{
    double start = job_clock();
    weir_status status = run_once(work, 1, 1, false, NULL);
    work->first_seconds = job_clock() - start;
    return status;
}

/* The growth of both spans together: the load, and the first run. What this command reads in between is not counted. */
static void note_outside(job *work, const measure span[4])
{
    measure before = {span[0].anonymous + span[2].anonymous, span[0].own + span[2].own, span[0].device + span[2].device,
                      span[0].held + span[2].held};
    measure after = {span[1].anonymous + span[3].anonymous, span[1].own + span[3].own, span[1].device + span[3].device,
                     span[1].held + span[3].held};
    placing_follow(work);
    work->measured = work->measured && !work->moved; /* what one device gave and another took tells nothing */
    if (!work->measured)
        return;
    work->outside_host = measure_outside(&before, &after);
    work->outside = measure_is_device(work->runtime) ? measure_outside_device(&before, &after) : work->outside_host;
    work->measured = weir_client_note_outside(weir_model_client(work->model), work->outside,
                                              measure_method(work->runtime)) == WEIR_OK;
}

/* Takes the failure at once: measuring asks weir about addresses that are not its own, which is a failing call too. */
static bool failed_at(job *work, weir_status status, const char *stage)
{
    failure_take(&work->failed, status, stage);
    if (status != WEIR_OK)
        remedy_find(work);
    return status != WEIR_OK;
}

static void prepare_inputs(job *work, given_input *given, size_t given_count)
{
    weir_model_info info = WEIR_INIT(weir_model_info);
    weir_status status = weir_model_info_get(work->model, &info);
    if (status == WEIR_OK) {
        note_info(work, &info);
        status = inputs_make(&info, work->index, given, given_count, &work->in);
    }
    failed_at(work, status, "inputs");
}

/* Opens the engine's library, so that what it takes for itself, once in a process, is not taken for the model's. */
static void open_engine(job *work)
{
    measure before, after;
    bool measured = measure_now(work->runtime, &before);
    engine_open_library(work->path);
    work->outside_once = measured && measure_now(work->runtime, &after) ? measure_outside(&before, &after) : 0;
}

void job_load(job *work, given_input *given, size_t given_count)
{
    measure span[4];
    if (!work->words->chosen)
        open_engine(work);
    work->measured = measure_now(work->runtime, &span[0]);
    if (failed_at(work, load_model(work), "load"))
        return;
    placing_follow(work);
    work->measured = measure_now(work->runtime, &span[1]) && work->measured;
    prepare_inputs(work, given, given_count);
    if (work->failed.status != WEIR_OK)
        return;
    work->measured = measure_now(work->runtime, &span[2]) && work->measured;
    failed_at(work, first_run(work), "first run");
    work->measured = measure_now(work->runtime, &span[3]) && work->measured;
    note_outside(work, span);
}

void job_run(job *work)
{
    bool stream = work->options->stream && work->generates;
    double start = job_clock();
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; status == WEIR_OK && i < work->options->repeat; i++) {
        bool last = i + 1 == work->options->repeat;
        status = run_once(work, i + 2, work->options->tokens, stream, last ? &work->out : NULL);
        if (stream)
            stream_print_end(&work->stream);
        work->runs += status == WEIR_OK;
    }
    work->seconds = job_clock() - start;
    failed_at(work, status, "run");
}

void job_unload(job *work)
{
    weir_model_info info = WEIR_INIT(weir_model_info);
    if (work->model == NULL)
        return;
    interrupt_forgets(work->model);
    placing_follow(work);
    if (work->loaded && weir_model_info_get(work->model, &info) == WEIR_OK)
        note_info(work, &info);                           /* engines learn from runs, and models move */
    weir_client *client = weir_model_client(work->model); /* NULL: on no device, which a request has failed of */
    if (client)
        failure_take(&work->failed, weir_client_snapshot(client, &work->stats), "unload");
    inputs_clear(&work->in); /* their names are the model's */
    failure_take(&work->failed, weir_model_unload(work->model), "unload");
    work->model = NULL;
}

void job_clear(job *work)
{
    outputs_clear(&work->out);
    inputs_clear(&work->in);
    failure_clear(&work->failed);
    placing_clear(work);
    free(work->engine);
    free(work->version);
    free(work->provider);
    free(work->architecture);
    free(work->remarks);
}
