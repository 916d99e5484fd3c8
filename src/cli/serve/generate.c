/* generate.c: the generate extension of the Open Inference Protocol: a text in, a text out, whole or as a stream. */
#include "completion.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct generation {
    completion it; /* first */
    json_t *body;
    bool streams;
} generation;

/* ---- what is asked for --------------------------------------------------------------------------------------------- */

/* Words of a parameter that clients of Triton's backends send, as the engines' own `stop`; an empty one is none. */
static bool rename_words(generation *it, json_t *parameters, const char *key)
{
    json_t *words = json_object_get(parameters, key);
    char *lines = words ? completion_words(words) : NULL;
    bool good = lines || !words, refused = lines && lines[0] && strcmp(key, "bad_words") == 0;
    if (!good)
        completion_wrong(&it->it, "'%s' is a word or an array of words", key);
    else if (refused)
        completion_wrong(&it->it, "'bad_words' are not supported");
    else if (lines && lines[0])
        json_object_set_new(parameters, "stop", json_string(lines));
    if (lines && (!lines[0] || strcmp(key, "stop") != 0))
        json_object_del(parameters, key);
    free(lines);
    return good && !refused;
}

static bool read_parameters(generation *it)
{
    static const char *const words[] = {"bad_words", "stop_words", "stop"};
    json_t *parameters = json_object_get(it->body, "parameters"), *most = json_object_get(parameters, "max_tokens");
    if (parameters && !json_is_object(parameters))
        return completion_wrong(&it->it, "'parameters' is an object");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!rename_words(it, parameters, words[i]))
            return false;
    if (most) {
        json_object_set(parameters, "tokens", most);
        json_object_del(parameters, "max_tokens");
    }
    it->it.setting_count = v2_settings(it->body, it->it.settings);
    return true;
}

static bool serve_generate_read_body(generation *it)
{
    const char *text = json_string_value(json_object_get(it->body, "text_input"));
    if (!text || !*text)
        return completion_wrong(&it->it, "'text_input' is a text");
    return completion_text(&it->it, text, strlen(text)) && read_parameters(it);
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

static json_t *answer_object(const generation *it, const char *text, size_t bytes)
{
    json_t *object = json_pack("{s:o, s:s, s:o}", "model_name", text_json(it->it.run.model->name), "model_version", "1",
                               "text_output", text_json_bytes(text, bytes));
    if (json_object_get(it->body, "id"))
        json_object_set(object, "id", json_object_get(it->body, "id"));
    return object;
}

/* The last event has what is left of the text and how it ended. */
static void serve_generate_finish(generation *it)
{
    const weir_tensor *text = completion_output(&it->it, "text"), *reason = completion_output(&it->it, "finish_reason");
    const char *data = it->streams ? it->it.part : text ? text->data : "";
    size_t bytes = it->streams ? it->it.part_bytes : text ? text->bytes : 0;
    json_t *object = answer_object(it, data ? data : "", bytes);
    if (reason)
        json_object_set_new(object, "finish_reason", text_json_bytes(reason->data, reason->bytes));
    if (it->streams)
        (void)completion_send(&it->it, true, object);
    else
        answer_json(it->it.run.request, 200, object);
}

static bool serve_generate_take_text(completion *of, const char *text, size_t bytes, const weir_piece *piece)
{
    (void)piece;
    return bytes == 0 || completion_send(of, true, answer_object((generation *)(void *)of, text, bytes));
}

static void serve_generate_run_it(generation *it)
{
    it->it.take = it->streams ? serve_generate_take_text : NULL;
    weir_status status = completion_run(&it->it);
    if (status != WEIR_OK) {
        completion_fail(&it->it, true, status, json_pack("{s:o}", "error", text_json(weir_detail())));
        return;
    }
    serve_generate_finish(it);
    completion_release(&it->it);
}

static void generate(ws_request *request, served *all, bool streams)
{
    generation it = {.it = {.run = {.all = all, .request = request}}, .streams = streams};
    it.body = body_json(request);
    if (it.body && serve_generate_read_body(&it) && completion_begin(&it.it, ws_segment(request, 0))) {
        serve_generate_run_it(&it);
        completion_end(&it.it);
    }
    completion_clear(&it.it);
    json_decref(it.body);
}

void v2_generate(ws_request *request, void *all)
{
    generate(request, all, false);
}

void v2_generate_stream(ws_request *request, void *all)
{
    generate(request, all, true);
}
