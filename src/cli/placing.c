#include "placing.h"

#include "cli.h"
#include "manifest.h"
#include "measure.h"
#include "terminal.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* --driver names the device as runtimes are called, --device as devices are. */
static const char *device_of(const run_options *options)
{
    const char *driver = options->driver;
    if (driver == NULL)
        return options->choice.device;
    return strcmp(driver, "host") == 0 ? "cpu" : strcmp(driver, "cuda") == 0 ? "cuda:0" : driver;
}

static weir_choice_options words_of(const job *work)
{
    weir_choice_options choice = work->options->choice;
    choice.device = device_of(work->options);
    choice.settings = work->words->settings;
    choice.setting_count = work->words->setting_count;
    return choice;
}

/* ---- before the load ---- */

/* Where the manifest alone would do, the words of the command do not. */
static bool words_are_wrong(const job *work)
{
    weir_choice *choice = NULL;
    bool wrong = weir_choice_make(work->manifest, NULL, &choice) == WEIR_OK;
    weir_choice_release(choice);
    return wrong;
}

static int tell_wrong_words(void)
{
    char *reason = text_copy(weir_detail());
    int status = cli_usage("run", "%s", reason);
    free(reason);
    return status;
}

/* The first device on which there is a runtime; that a candidate's has none is for the opening to find out. */
static void predict(job *work, const weir_choice *choice)
{
    for (size_t i = 0; i < choice->accepted; i++)
        if (weir_runtime_get(choice->candidates[i].runtime, &work->runtime) == WEIR_OK)
            return;
}

/* Asking engines for their providers opens their libraries: what those take, once in a process, is not the model's. */
static weir_status choose(job *work)
{
    weir_runtime *host = NULL;
    weir_choice *choice = NULL;
    measure before, after;
    weir_choice_options words = words_of(work);
    bool measured = weir_runtime_get("host", &host) == WEIR_OK && measure_now(host, &before);
    weir_status status = weir_choice_make(work->manifest, &words, &choice);
    if (status != WEIR_OK)
        return status;
    work->outside_once = measured && measure_now(host, &after) ? measure_outside(&before, &after) : 0;
    predict(work, choice);
    weir_choice_release(choice);
    return WEIR_OK;
}

int placing_look(job *work)
{
    weir_status status = manifest_read(work->words->path, &work->manifest);
    if (status == WEIR_OK) {
        work->path = work->manifest->model_file;
        status = choose(work);
        if (status == WEIR_ERR_INVALID) {
            char *reason = text_copy(weir_detail());
            bool wrong = words_are_wrong(work);
            (void)weir_fail(status, "%s", reason);
            free(reason);
            if (wrong)
                return tell_wrong_words();
        }
    }
    failure_take(&work->failed, status, "choice");
    return -1;
}

/* ---- the load, and after ---- */

/* What fails while the model is being opened is told when it is open: where it cannot be, the failure says all of it. */
static void notice(const char *text, void *user)
{
    job *work = user;
    terminal_progress_end();
    if (work->model != NULL) {
        cli_fail("%s", text);
        return;
    }
    work->notices = text_grow(work->notices, work->notice_count + 1, sizeof *work->notices);
    work->notices[work->notice_count++] = text_copy(text);
}

static void end_notices(job *work, bool tell)
{
    for (size_t i = 0; i < work->notice_count; i++) {
        if (tell)
            cli_fail("%s", work->notices[i]);
        free(work->notices[i]);
    }
    free(work->notices);
    work->notices = NULL;
    work->notice_count = 0;
}

weir_status placing_open(job *work)
{
    weir_manifest manifest = *work->manifest;
    weir_choice_options choice = words_of(work);
    weir_opening_options options = WEIR_INIT(weir_opening_options);
    manifest.name = work->words->name; /* by which the other words of the command call it */
    options.choice = &choice;
    options.no_fallback = work->options->no_fallback;
    options.guaranteed = work->words->guaranteed;
    options.maximum = work->words->maximum;
    options.progress = job_progress;
    options.notice = notice;
    options.user = work;
    weir_status status = weir_model_open(&manifest, &options, &work->model);
    end_notices(work, status == WEIR_OK);
    return status;
}

static json_t *attempt_json(const weir_attempt *attempt)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:f, s:I, s:I, s:I}", "engine", attempt->engine, "provider",
                     attempt->provider, "device", text_json(attempt->device), "stage", weir_stage_name(attempt->stage),
                     "code", weir_status_name(attempt->status), "reason", text_json(attempt->reason), "ms", attempt->ms,
                     "bytes", (json_int_t)attempt->bytes, "parts", (json_int_t)attempt->parts, "of",
                     (json_int_t)attempt->of);
}

void placing_follow(job *work)
{
    weir_record record = WEIR_INIT(weir_record);
    weir_runtime *now = weir_client_runtime(weir_model_client(work->model)); /* NULL: on no device any more */
    if (!work->words->chosen || weir_model_record(work->model, &record) != WEIR_OK)
        return;
    work->moved = work->moved || now != work->runtime;
    work->runtime = now ? now : work->runtime;
    work->last_resort = record.on_cpu_unasked;
    work->left_out = record.left_out;
    json_decref(work->attempts);
    work->attempts = json_array();
    for (size_t i = 0; i < record.attempt_count; i++)
        json_array_append_new(work->attempts, attempt_json(&record.attempts[i]));
}

void placing_clear(job *work)
{
    manifest_release(work->manifest);
    json_decref(work->attempts);
    json_decref(work->shares);
}
