/* ollama.c: Ollama's interface: texts, chats and vectors. */
#include "completion.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECOND = 1000000000 };

/* ---- times -------------------------------------------------------------------------------------------------------------- */

void ollama_time(int64_t from_now, char *text, size_t room)
{
    struct timespec at;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &at);
    int64_t nanoseconds = at.tv_nsec + from_now % SECOND;
    time_t seconds = at.tv_sec + (time_t)(from_now / SECOND) + (time_t)(nanoseconds / SECOND);
    gmtime_r(&seconds, &parts);
    size_t used = strftime(text, room, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + used, room - used, ".%09lldZ", (long long)(nanoseconds % SECOND));
}

void ollama_add_times(json_t *to, const completion *it)
{
    json_object_set_new(to, "total_duration", json_integer((json_int_t)(cli_now() - it->began)));
    json_object_set_new(to, "load_duration", json_integer((json_int_t)(it->loaded - it->began)));
    json_object_set_new(to, "prompt_eval_count", json_integer((json_int_t)completion_prompt_tokens(it)));
    if (it->embeds)
        return;
    json_object_set_new(to, "prompt_eval_duration", json_integer((json_int_t)(it->first - it->loaded)));
    json_object_set_new(to, "eval_count", json_integer((json_int_t)completion_tokens(it)));
    json_object_set_new(to, "eval_duration", json_integer((json_int_t)(it->ended - it->first)));
}

/* ---- what a request says ------------------------------------------------------------------------------------------------- */

static bool read_context(completion *it, const json_t *options, served_model *model)
{
    json_int_t wanted = json_integer_value(json_object_get(options, "num_ctx"));
    uint64_t there = wanted > 0 ? ollama_context(model) : 0;
    if (there == 0 || (uint64_t)wanted <= there)
        return true;
    return completion_wrong(it,
                            "option 'num_ctx' is %lld, and '%s' is loaded with a context of %llu; the setting "
                            "'context' in its manifest makes it larger",
                            (long long)wanted, model->name, (unsigned long long)there);
}

/* Those of a load (num_gpu, num_thread …) are the server's to say, and are passed over. */
static bool ollama_read_options(completion *it, const json_t *options, const served_model *model)
{
    static const char *const names[] = {"temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "typical_p",
                                        "repeat_last_n",
                                        "repeat_penalty",
                                        "presence_penalty",
                                        "seed",
                                        "mirostat",
                                        "frequency_penalty",
                                        "mirostat_tau",
                                        "mirostat_eta"};
    const json_t *count = json_object_get(options, "num_predict"), *heat = json_object_get(options, "temperature");
    if (options && !json_is_null(options) && !json_is_object(options))
        return completion_wrong(it, "'options' is an object");
    if (it->embeds)
        return true;
    if (count && !json_is_integer(count))
        return completion_wrong(it, "option 'num_predict' is a whole number");
    json_int_t tokens = count ? json_integer_value(count) : -1;
    completion_set(it, "tokens", text_print("%lld", tokens < 0 ? -1LL : (long long)tokens));
    completion_set(it, "temperature", text_copy("0.8"));
    completion_set(it, "top_p", text_copy("0.9"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!completion_number(it, options, names[i], names[i]))
            return false;
    bool draws = !json_is_number(heat) || json_number_value(heat) > 0;
    if (draws && !json_is_number(json_object_get(options, "seed")) && strcmp(model->engine, "gguf") == 0)
        completion_seed(it);
    return completion_stop(it, json_object_get(options, "stop"));
}

static bool ollama_read_format(completion *it, const json_t *format, const char *model)
{
    const char *name = json_string_value(format);
    if (!format || json_is_null(format) || (name && *name == '\0'))
        return true;
    if (name && strcmp(name, "json") == 0)
        return completion_format(it, model, "format", NULL);
    return json_is_object(format) ? completion_format(it, model, "format", format)
                                  : completion_wrong(it, "'format' is \"json\" or a JSON Schema");
}

/* What would change the answer and is not there is refused, not passed over. */
static bool ollama_check_rest(completion *it, const json_t *body)
{
    const json_t *think = json_object_get(body, "think");
    static const char *const texts[] = {"suffix", "template"};
    static const char *const lists[] = {"images", "context", "tools"};
    static const char *const why[] = {"models are asked with texts alone", "send the conversation to /api/chat",
                                      "chat templates are applied without tools"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (json_string_length(json_object_get(body, texts[i])) > 0)
            return completion_wrong(it, "'%s' is not taken: the model has its own template", texts[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (json_array_size(json_object_get(body, lists[i])) > 0)
            return completion_wrong(it, "'%s' is not taken: %s", lists[i], why[i]);
    if (json_is_true(think) || json_string_length(think) > 0)
        return completion_wrong(it, "'think' is not taken: a text is not parted into thoughts and an answer");
    return true;
}

bool ollama_read(completion *it, const json_t *body, const char **model)
{
    const json_t *keep = json_object_get(body, "keep_alive"), *options = json_object_get(body, "options");
    bool good;
    served_model *found;
    *model = json_string_value(json_object_get(body, "model"));
    if (!*model || **model == '\0')
        return completion_wrong(it, "'model' is the name of one");
    found = served_find(it->run.all, *model);
    if (!found) {
        answer_failure(it->run.request, weir_fail(WEIR_ERR_NOT_FOUND, "model '%.100s' not found", *model));
        return false;
    }
    it->run.keep_set = keep && !json_is_null(keep);
    if (it->run.keep_set && !config_duration(keep, &it->run.keep))
        good = completion_wrong(it, "'keep_alive' is a number of seconds, or a duration like \"5m\"");
    else
        good = ollama_check_rest(it, body) && ollama_read_options(it, options, found) &&
               read_context(it, options, found) &&
               (it->embeds || ollama_read_format(it, json_object_get(body, "format"), *model));
    served_drop(found);
    return good;
}

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

typedef struct told {
    completion it; /* first */
    bool chat, streams;
    bool may_be_plain; /* a model without a chat template gets the prompt as it is */
} told;

/* A line: what is common, and the text. */
static json_t *line_json(const told *it, const char *text, size_t bytes, bool done)
{
    char now[64];
    const char *name = it->it.run.model ? it->it.run.model->name : "";
    json_t *said = text_json_bytes(text, bytes), *line;
    ollama_time(0, now, sizeof now);
    line = json_pack("{s:o, s:s}", "model", text_json(name), "created_at", now);
    if (it->chat)
        json_object_set_new(line, "message", json_pack("{s:s, s:o}", "role", "assistant", "content", said));
    else
        json_object_set_new(line, "response", said);
    json_object_set_new(line, "done", json_boolean(done));
    return line;
}

static bool ollama_take_text(completion *of, const char *text, size_t bytes, const weir_piece *piece)
{
    told *it = (told *)(void *)of;
    (void)piece;
    return !it->streams || bytes == 0 || completion_send(&it->it, false, line_json(it, text, bytes, false));
}

static void answer_line(told *it, json_t *line)
{
    if (it->streams)
        (void)completion_send(&it->it, false, line);
    else
        answer_json(it->it.run.request, 200, line);
}

/* Nothing was asked: the model is loaded, or unloaded. */
static void answer_nothing(told *it, const char *reason)
{
    json_t *line = line_json(it, "", 0, true);
    json_object_set_new(line, "done_reason", json_string(reason));
    answer_line(it, line);
}

static void answer_run(told *it)
{
    const weir_tensor *text = completion_output(&it->it, "text");
    json_t *line = it->streams ? line_json(it, it->it.part, it->it.part_bytes, true)
                               : line_json(it, text ? text->data : "", text ? text->bytes : 0, true);
    json_object_set_new(line, "done_reason", json_string(completion_finish(&it->it)));
    ollama_add_times(line, &it->it);
    answer_line(it, line);
    completion_release(&it->it);
}

/* ---- texts and chats ------------------------------------------------------------------------------------------------------- */

/* Unloads the model at once, or if it has leases, when the last lease ends. */
static void ollama_unload(told *it, const char *model)
{
    served_run *run = &it->it.run;
    run->model = served_find(run->all, model);
    weir_status status = run->model ? weir_pool_keep(run->all->pool, run->model->name, 0)
                                    : weir_fail(WEIR_ERR_NOT_FOUND, "model '%.100s' not found", model);
    if (run->model)
        atomic_store(&run->model->stay, 0);
    if (status == WEIR_OK)
        answer_nothing(it, "unload");
    else
        answer_failure(run->request, status);
    served_drop(run->model);
    run->model = NULL;
}

/* The one message of a prompt that the template is for is its last, and is as long as it was asked for. */
static void make_plain(told *it, const json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt");
    completion_text(&it->it, json_string_value(prompt), json_string_length(prompt));
}

static void ollama_run_it(told *it, const json_t *body)
{
    it->it.take = ollama_take_text;
    weir_status status = completion_run(&it->it);
    bool refused = status == WEIR_ERR_INVALID || status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_ENGINE;
    if (refused && !it->it.streams && it->may_be_plain) {
        make_plain(it, body);
        status = completion_run(&it->it);
    }
    if (status == WEIR_OK)
        answer_run(it);
    else
        completion_fail(&it->it, false, status, json_pack("{s:o}", "error", text_json(weir_detail())));
}

static void ollama_go_on(told *it, const char *model, const json_t *body, bool empty)
{
    if (empty && it->it.run.keep_set && it->it.run.keep == 0) {
        ollama_unload(it, model);
        return;
    }
    if (!completion_begin(&it->it, model))
        return;
    if (empty)
        answer_nothing(it, "load");
    else
        ollama_run_it(it, body);
    completion_end(&it->it);
}

static bool ollama_read_prompt(told *it, const json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    if (prompt && !json_is_null(prompt) && !json_is_string(prompt))
        return completion_wrong(&it->it, "'prompt' is a text");
    if (json_string_length(prompt) == 0)
        return true;
    if (json_is_true(json_object_get(body, "raw")))
        return completion_text(&it->it, json_string_value(prompt), json_string_length(prompt));
    FILE *file = text_stream(&it->it.prompt, &it->it.bytes);
    if (json_string_length(system) > 0)
        completion_message(file, "system", json_string_value(system), json_string_length(system));
    completion_message(file, "user", json_string_value(prompt), json_string_length(prompt));
    fclose(file);
    it->it.chat = true;
    it->may_be_plain = json_string_length(system) == 0;
    return true;
}

static void ollama_tell(served *all, ws_request *request, bool chat)
{
    told it = {.it = {.run = {.all = all, .request = request}}, .chat = chat};
    json_t *body = body_json(request);
    const char *model;
    it.streams = !json_is_false(json_object_get(body, "stream"));
    if (body && ollama_read(&it.it, body, &model)) {
        const json_t *messages = json_object_get(body, "messages");
        bool empty =
            chat ? !messages || json_is_null(messages) || (json_is_array(messages) && !json_array_size(messages))
                 : json_string_length(json_object_get(body, "prompt")) == 0;
        bool good = !chat ? ollama_read_prompt(&it, body) : empty || completion_messages(&it.it, messages);
        if (good)
            ollama_go_on(&it, model, body, empty);
    }
    completion_clear(&it.it);
    json_decref(body);
}

void ollama_generate(ws_request *request, void *all)
{
    ollama_tell(all, request, false);
}

void ollama_chat(ws_request *request, void *all)
{
    ollama_tell(all, request, true);
}

/* ---- vectors --------------------------------------------------------------------------------------------------------------- */

static void answer_vectors(completion *it, size_t count, bool one)
{
    const weir_tensor *rows = completion_vectors(it, count, true);
    if (!rows)
        return;
    if (one) {
        answer_json(it->run.request, 200, json_pack("{s:o}", "embedding", completion_vector_json(rows, 0)));
        return;
    }
    json_t *list = json_array(), *answer;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, completion_vector_json(rows, i));
    answer = json_pack("{s:o, s:o}", "model", text_json(it->run.model->name), "embeddings", list);
    ollama_add_times(answer, it);
    answer_json(it->run.request, 200, answer);
}

static void serve_ollama_embed(served *all, ws_request *request, const char *field, bool one)
{
    completion it = {.run = {.all = all, .request = request}, .embeds = true};
    json_t *body = body_json(request);
    const char *model;
    size_t count = 0;
    if (body && json_object_get(body, "dimensions"))
        completion_wrong(&it, "'dimensions' is not taken: vectors have the model's width");
    else if (body && ollama_read(&it, body, &model))
        count = completion_lines(&it, json_object_get(body, field));
    if (count > 0) {
        /* A text that is too long is cut, unless the request says that it is to be refused. */
        served_model *named = served_find(all, model);
        if (named && strcmp(named->engine, "gguf") == 0)
            completion_set(&it, "truncate", text_copy(json_is_false(json_object_get(body, "truncate")) ? "0" : "1"));
        served_drop(named);
        if (completion_begin(&it, model)) {
            weir_status status = completion_run(&it);
            if (status == WEIR_OK)
                answer_vectors(&it, count, one);
            else
                answer_failure(request, status);
            if (status == WEIR_OK)
                completion_release(&it);
            completion_end(&it);
        }
    }
    completion_clear(&it);
    json_decref(body);
}

void ollama_embed(ws_request *request, void *all)
{
    serve_ollama_embed(all, request, "input", false);
}

void ollama_embeddings(ws_request *request, void *all)
{
    serve_ollama_embed(all, request, "prompt", true);
}
