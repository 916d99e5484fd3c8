/* model_run.c: a model of a run, from load to unload. */
#include "measure.h"
#include <weir/engine.h>
#include <weir/model.h>
#include "run.h"

#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

/* Generated text --------------------------------------------------------------------------------------------------- */

/* Control characters are dropped: a model may generate anything, and a terminal may obey it. */
static bool is_shown(unsigned char byte)
{
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
}

static void print_line(stream_print *out)
{
    if (out->used > 0)
        fprintf(out->file, "%s: %.*s\n", out->label, (int)out->used, out->line);
    out->used = 0;
}

static void put_byte(stream_print *out, char byte)
{
    if (out->label == NULL) {
        fputc(byte, out->file);
        return;
    }
    if (byte == '\n') {
        print_line(out);
        return;
    }
    if (out->used == out->capacity) {
        out->capacity = out->capacity * 2 + 128;
        out->line = text_grow(out->line, out->capacity, 1);
    }
    out->line[out->used++] = byte;
}

/* A weir_piece_fn; `user` is the stream_print. */
static bool stream_print_piece(const weir_piece *piece, void *user)
{
    stream_print *out = user;
    for (size_t i = 0; i < piece->bytes; i++)
        if (is_shown((unsigned char)piece->text[i]))
            put_byte(out, piece->text[i]);
    fflush(out->file);
    return !interrupt_seen();
}

/* The answer is complete. */
static void stream_print_end(stream_print *out)
{
    if (out->label == NULL)
        fputc('\n', out->file);
    else
        print_line(out);
    fflush(out->file);
    free(out->line);
    out->line = NULL;
    out->used = out->capacity = 0;
}

/* Load, run, unload ------------------------------------------------------------------------------------------------ */

double run_clock(void)
{
    return (double)cli_now() / 1e9;
}

bool model_run_good(const model_run *m)
{
    return m->loaded && m->failed.status == WEIR_OK;
}

void model_run_begin(model_run *m, const run_args *args, int index)
{
    *m = (model_run){.run_args = args, .args = &args->models[index], .index = index};
    m->path = m->args->path;
    m->stats = WEIR_INIT(weir_client_stats);
}

void model_run_progress(double fraction, void *user)
{
    const model_run *m = user;
    terminal_progress(m->args->name, fraction);
}

weir_status model_run_open(model_run *m)
{
    const weir_requirements *needs = m->manifest != NULL ? &m->manifest->requirements : NULL;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = m->args->name;
    options.guaranteed = m->args->guaranteed;
    options.maximum = m->args->maximum;
    if (needs != NULL && options.guaranteed == 0)
        options.guaranteed = needs->guaranteed;
    if (needs != NULL && options.maximum == 0)
        options.maximum = needs->maximum;
    return weir_client_create(m->runtime, &options, &m->client);
}

static weir_status load_on_driver(model_run *m)
{
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.client = m->client;
    options.prepare = m->run_args->prepare;
    options.residency = m->run_args->overflows ? WEIR_ROOM_AUTO : WEIR_ROOM_WHOLE;
    options.settings = m->args->settings;
    options.setting_count = m->args->setting_count;
    options.progress = model_run_progress;
    options.progress_user = m;
    return weir_model_create(m->path, &options, &m->model);
}

static weir_status load_model(model_run *m)
{
    double start = run_clock();
    model_run_progress(0, m);
    weir_status status = m->args->selects ? selected_model_open(m) : load_on_driver(m);
    terminal_progress_end();
    m->load_seconds = run_clock() - start;
    if (status == WEIR_OK)
        interrupt_add(m->model);
    else
        m->model = NULL;
    return status;
}

static void model_run_keep_text(char **stored, const char *text)
{
    free(*stored);
    *stored = text_copy(text != NULL ? text : "");
}

static void note_info(model_run *m, const weir_model_details *info)
{
    model_run_keep_text(&m->engine, info->engine);
    model_run_keep_text(&m->version, info->version);
    model_run_keep_text(&m->provider, info->provider);
    model_run_keep_text(&m->architecture, info->architecture);
    model_run_keep_text(&m->remarks, info->remarks);
    json_decref(m->shares);
    m->shares = json_array();
    for (size_t i = 0; i < info->share_count; i++)
        json_array_append_new(m->shares,
                              json_pack("{s:o, s:I, s:I}", "provider", text_json(info->shares[i].provider), "parts",
                                        (json_int_t)info->shares[i].parts, "of", (json_int_t)info->shares[i].of));
    m->generates = info->generates;
    m->loaded = true;
}

/* `tokens` limits models that generate; 0: the engine's default. `keep`, unless NULL, gets a copy of the outputs. */
static weir_status run_once(model_run *m, uint64_t id, uint64_t tokens, bool stream, outputs *keep)
{
    char number[24];
    weir_setting limit = {"tokens", number};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs results = WEIR_INIT(weir_outputs);
    inference.id = id;
    inference.inputs = m->in.tensors;
    inference.input_count = m->in.count;
    inference.stream = WEIR_STREAM_HOST;
    if (m->generates && tokens > 0) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)tokens);
        inference.settings = &limit;
        inference.setting_count = 1;
    }
    if (interrupt_seen())
        return weir_fail(WEIR_ERR_CANCELLED, "stopped");
    if (stream) {
        inference.piece = stream_print_piece;
        inference.piece_user = &m->stream;
    }
    weir_status status = weir_model_infer(m->model, &inference, &results);
    if (status != WEIR_OK)
        return status;
    if (keep != NULL) {
        outputs_clear(keep);
        status = outputs_keep(&results, keep);
    }
    weir_model_release_outputs(m->model, &results);
    return status;
}

/* Engines leave work to the first run: buffers, plans, threads. A run of a single token causes all of this work. */
static weir_status model_run_first_run(model_run *m)
{
    double start = run_clock();
    weir_status status = run_once(m, 1, 1, false, NULL);
    m->first_seconds = run_clock() - start;
    return status;
}

static measure model_run_sum_of(const measure *a, const measure *b)
{
    return (measure){.anonymous = a->anonymous + b->anonymous,
                     .own = a->own + b->own,
                     .device = a->device + b->device,
                     .held = a->held + b->held};
}

/* The growth over the load and over the first run. What the command itself reads in between is not counted. */
static void note_outside(model_run *m, const measure span[4])
{
    measure before = model_run_sum_of(&span[0], &span[2]), after = model_run_sum_of(&span[1], &span[3]);
    selected_model_follow(m);
    m->measured = m->measured && !m->moved; /* growth on two devices says nothing */
    if (!m->measured)
        return;
    m->outside_host = measure_outside(&before, &after);
    m->outside = measure_is_device(m->runtime) ? measure_outside_device(&before, &after) : m->outside_host;
    m->measured =
        weir_client_note_outside(weir_model_client(m->model), m->outside, measure_method(m->runtime)) == WEIR_OK;
}

/* Notes the failure at once: measuring asks weir about foreign addresses, which overwrites the detail. */
static bool failed_at(model_run *m, weir_status status, const char *stage)
{
    failure_note(&m->failed, status, stage);
    if (status != WEIR_OK)
        suggestion_find(m);
    return status != WEIR_OK;
}

static void prepare_inputs(model_run *m, input_arg *args, size_t arg_count)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_status status = weir_model_info(m->model, &info);
    if (status == WEIR_OK) {
        note_info(m, &info);
        status = inputs_make(&info, m->index, args, arg_count, inputs_extents[0], &m->in);
    }
    failed_at(m, status, "inputs");
}

/* Opens the engine's library first, so that what it takes once per process is not counted for the model. */
static void open_engine(model_run *m)
{
    measure before, after;
    bool measured = measure_now(m->runtime, &before);
    engine_open_library(m->path);
    m->outside_once = measured && measure_now(m->runtime, &after) ? measure_opened(&before, &after) : 0;
}

/* The inputs may be to blame: none of theirs was refused for want of memory, or stopped. */
static bool may_be_unfit(weir_status status)
{
    return status == WEIR_ERR_INVALID || status == WEIR_ERR_ENGINE || status == WEIR_ERR_UNSUPPORTED;
}

static weir_status fill_with(model_run *m, input_arg *args, size_t arg_count, int64_t extent)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_status status = weir_model_info(m->model, &info);
    inputs_clear(&m->in);
    return status == WEIR_OK ? inputs_make(&info, m->index, args, arg_count, extent, &m->in) : status;
}

/* Tries what the model's own constants ask for, beside small extents for the others. */
static weir_status first_run_demanded(model_run *m, input_arg *args, size_t arg_count, weir_status status)
{
    enum { BESIDE = 5 };
    for (size_t i = 0; i < BESIDE && may_be_unfit(status) && !interrupt_seen(); i++)
        if (fill_with(m, args, arg_count, inputs_extents[i]) == WEIR_OK && extents_demand(m->path, &m->in))
            status = model_run_first_run(m);
    return status;
}

/* Inputs that were filled may not be what the model can take: others are tried. */
static weir_status first_run_filled(model_run *m, input_arg *args, size_t arg_count)
{
    weir_status first = model_run_first_run(m), status = first;
    if (!m->in.filled || !may_be_unfit(first))
        return first;
    char *why = text_copy(weir_detail());
    for (size_t i = 1; i < INPUTS_EXTENTS && may_be_unfit(status) && !interrupt_seen(); i++) {
        status = fill_with(m, args, arg_count, inputs_extents[i]);
        if (status == WEIR_OK)
            status = model_run_first_run(m);
    }
    status = first_run_demanded(m, args, arg_count, status);
    if (may_be_unfit(status)) {
        status = fill_with(m, args, arg_count, inputs_extents[0]);
        if (status == WEIR_OK)
            status = weir_fail(
                first,
                "%s; inputs that were not given were filled: %s, and with other extents up to %lld: give them, "
                "as --input NAME=shape:1x16",
                why, m->in.filled, (long long)inputs_extents[INPUTS_EXTENTS - 1]);
    }
    free(why);
    return status;
}

void model_run_load(model_run *m, input_arg *args, size_t arg_count)
{
    measure span[4];
    if (!m->args->selects)
        open_engine(m);
    m->measured = measure_now(m->runtime, &span[0]);
    if (failed_at(m, load_model(m), "load"))
        return;
    selected_model_follow(m);
    m->measured = measure_now(m->runtime, &span[1]) && m->measured;
    prepare_inputs(m, args, arg_count);
    if (m->failed.status != WEIR_OK)
        return;
    m->measured = measure_now(m->runtime, &span[2]) && m->measured;
    failed_at(m, first_run_filled(m, args, arg_count), "first run");
    m->measured = measure_now(m->runtime, &span[3]) && m->measured;
    note_outside(m, span);
}

void model_run_run(model_run *m)
{
    bool stream = m->run_args->stream && m->generates;
    double start = run_clock();
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; status == WEIR_OK && i < m->run_args->repeat; i++) {
        bool last = i + 1 == m->run_args->repeat;
        status = run_once(m, i + 2, m->run_args->tokens, stream, last ? &m->out : NULL);
        if (stream)
            stream_print_end(&m->stream);
        m->runs += status == WEIR_OK;
    }
    m->seconds = run_clock() - start;
    failed_at(m, status, "run");
}

static void model_run_close_client(model_run *m)
{
    if (m->client != NULL)
        failure_note(&m->failed, weir_client_destroy(m->client), "unload");
    m->client = NULL;
}

/* The line of its client's name. */
static void note_cores(model_run *m, const weir_client_stats *client)
{
    weir_cores_stats line = WEIR_INIT(weir_cores_stats);
    for (size_t i = 0; weir_cores_look(i, &line) == WEIR_OK; i++)
        if (strcmp(line.name, client->name) == 0) {
            m->cores = line;
            return;
        }
}

void model_run_unload(model_run *m)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    if (m->model == NULL) {
        model_run_close_client(m);
        return;
    }
    interrupt_remove(m->model);
    selected_model_follow(m);
    if (m->loaded && weir_model_info(m->model, &info) == WEIR_OK)
        note_info(m, &info);                           /* engines learn from runs, and models may move */
    weir_client *client = weir_model_client(m->model); /* NULL: on no device; a request has failed for it */
    if (client)
        failure_note(&m->failed, weir_client_info(client, &m->stats), "unload");
    note_cores(m, &m->stats);
    inputs_clear(&m->in); /* their names belong to the model */
    failure_note(&m->failed, weir_model_destroy(m->model), "unload");
    m->model = NULL;
    model_run_close_client(m);
}

void model_run_clear(model_run *m)
{
    outputs_clear(&m->out);
    model_run_close_client(m);
    inputs_clear(&m->in);
    failure_clear(&m->failed);
    selected_model_clear(m);
    free(m->engine);
    free(m->version);
    free(m->provider);
    free(m->architecture);
    free(m->remarks);
    free(m->asides);
}
