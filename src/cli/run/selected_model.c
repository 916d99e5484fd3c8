/* selected_model.c: models whose engine, provider and device are selected: manifests, and what an option selects. */
#include "measure.h"
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>
#include "run.h"

#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

/* --driver takes the name of a runtime, --device that of a device. */
static const char *selected_model_device_of(const run_args *args)
{
    const char *driver = args->driver;
    if (driver == NULL)
        return args->choice.device;
    return strcmp(driver, "host") == 0 ? "cpu" : strcmp(driver, "cuda") == 0 ? "cuda:0" : driver;
}

static weir_choice_options choice_of(const model_run *m)
{
    weir_choice_options choice = m->run_args->choice;
    choice.device = selected_model_device_of(m->run_args);
    choice.settings = m->args->settings;
    choice.setting_count = m->args->setting_count;
    return choice;
}

/* Before the load -------------------------------------------------------------------------------------------------- */

/* The options are at fault if the manifest is acceptable without them. */
static bool options_are_wrong(const model_run *m)
{
    weir_choice *choice = NULL;
    bool wrong = weir_choice_create(m->manifest, NULL, &choice) == WEIR_OK;
    weir_choice_destroy(choice);
    return wrong;
}

/* The first device with a runtime. Candidates without one are told when the model is opened. */
static void selected_model_predict(model_run *m, const weir_choice *choice)
{
    for (size_t i = 0; i < choice->accepted; i++)
        if (weir_runtime_get(choice->candidates[i].runtime, NULL, &m->runtime) == WEIR_OK)
            return;
}

/* Asking engines for their providers opens their libraries. What those take once per process is not the model's. */
static weir_status selected_model_choose(model_run *m)
{
    weir_runtime *host = NULL;
    weir_choice *choice = NULL;
    measure before, after;
    weir_choice_options wanted = choice_of(m);
    bool measured = weir_runtime_get("host", NULL, &host) == WEIR_OK && measure_now(host, &before);
    weir_status status = weir_choice_create(m->manifest, &wanted, &choice);
    if (status != WEIR_OK)
        return status;
    m->outside_once = measured && measure_now(host, &after) ? measure_opened(&before, &after) : 0;
    selected_model_predict(m, choice);
    weir_choice_destroy(choice);
    return WEIR_OK;
}

int selected_model_prepare(model_run *m)
{
    weir_status status = manifest_read(m->args->path, &m->manifest);
    if (status == WEIR_OK) {
        m->path = m->manifest->model_file;
        status = selected_model_choose(m);
        if (status == WEIR_ERR_INVALID) {
            char *reason = text_copy(weir_detail());
            bool wrong = options_are_wrong(m);
            (void)weir_fail(status, "%s", reason);
            free(reason);
            if (wrong)
                return cli_usage("run", "%s", weir_detail());
        }
    }
    failure_note(&m->failed, status, "choice");
    return -1;
}

/* The load, and after ---------------------------------------------------------------------------------------------- */

/* Prints a notice; while the model is being opened, keeps the notice until the model is open. If the model cannot be
 * opened, kept notices are not printed, as the failure contains them. */
static void notice(const char *text, void *user)
{
    model_run *m = user;
    terminal_progress_end();
    if (m->model != NULL) {
        cli_fail("%s", text);
        return;
    }
    m->notices = text_grow(m->notices, m->notice_count + 1, sizeof *m->notices);
    m->notices[m->notice_count++] = text_copy(text);
}

static void end_notices(model_run *m, bool tell)
{
    for (size_t i = 0; i < m->notice_count; i++) {
        if (tell)
            cli_fail("%s", m->notices[i]);
        free(m->notices[i]);
    }
    free(m->notices);
    m->notices = NULL;
    m->notice_count = 0;
}

weir_status selected_model_open(model_run *m)
{
    weir_manifest manifest = *m->manifest;
    weir_choice_options choice = choice_of(m);
    weir_opening_options options = WEIR_INIT(weir_opening_options);
    manifest.name = m->args->name; /* the name of the model in other options */
    options.choice = &choice;
    options.no_fallback = m->run_args->no_fallback;
    options.guaranteed = m->args->guaranteed;
    options.maximum = m->args->maximum;
    options.client = m->client;
    options.prepare = m->run_args->prepare;
    options.progress = model_run_progress;
    options.notice = notice;
    options.user = m;
    weir_status status = weir_model_create_chosen(&manifest, &options, &m->model);
    end_notices(m, status == WEIR_OK);
    return status;
}

static json_t *attempt_json(const weir_attempt *attempt)
{
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:o, s:f, s:I, s:I, s:I}", "engine", attempt->engine, "provider", attempt->provider,
        "device", text_json(attempt->device), "stage", weir_name_of(WEIR_NAMES_STAGE, attempt->stage), "code",
        weir_name_of(WEIR_NAMES_STATUS, attempt->status), "reason", text_json(attempt->reason), "ms", attempt->ms,
        "bytes", (json_int_t)attempt->bytes, "parts", (json_int_t)attempt->parts, "of", (json_int_t)attempt->of);
}

void selected_model_follow(model_run *m)
{
    weir_record record = WEIR_INIT(weir_record);
    weir_runtime *now = cli_client(weir_model_client(m->model)).runtime; /* NULL: on no device any more */
    if (!m->args->selects || weir_model_record(m->model, &record) != WEIR_OK)
        return;
    m->moved = m->moved || now != m->runtime;
    m->runtime = now ? now : m->runtime;
    m->last_resort = record.on_cpu_unasked;
    m->left_out = record.left_out;
    json_decref(m->attempts);
    m->attempts = json_array();
    for (size_t i = 0; i < record.attempt_count; i++)
        json_array_append_new(m->attempts, attempt_json(&record.attempts[i]));
}

void selected_model_clear(model_run *m)
{
    manifest_release(m->manifest);
    json_decref(m->attempts);
    json_decref(m->shares);
}
