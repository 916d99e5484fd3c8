/* generate.c: the generate extension of the Open Inference Protocol: a text in, a text out, whole or as a stream. */
#include "serve.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct generation {
    served_run run;
    json_t *body;
    const char *prompt;
    weir_setting settings[V2_SETTINGS];
    size_t setting_count;
    bool streams, began;
    char *part; /* of a character that the next piece ends */
    size_t part_bytes;
} generation;

/* ---- what is asked for --------------------------------------------------------------------------------------------- */

static bool serve_generate_is_word(const json_t *words, size_t index, const char **text)
{
    const json_t *one = json_is_array(words) ? json_array_get(words, index) : words;
    *text = json_string_value(one);
    return *text && strlen(*text) == json_string_length(one);
}

/* Lines of words for the engine, with a backslash before what would be no part of one. Empty ones are none. NULL: they
 * are no words. */
static char *lines_of(const json_t *words)
{
    char *lines = NULL;
    size_t bytes = 0, count = json_is_array(words) ? json_array_size(words) : 1;
    const char *word;
    bool good = true;
    FILE *file = text_stream(&lines, &bytes);
    for (size_t i = 0; i < count && good; i++) {
        good = serve_generate_is_word(words, i, &word);
        for (const char *at = word; good && *at; at++)
            if (*at == '\n' || *at == '\t' || *at == '\\')
                fprintf(file, "\\%c", *at == '\n' ? 'n' : *at == '\t' ? 't' : '\\');
            else
                fputc(*at, file);
        if (good && *word)
            fputc('\n', file);
    }
    fclose(file);
    if (bytes > 0)
        lines[bytes - 1] = '\0';
    if (good)
        return lines;
    free(lines);
    return NULL;
}

/* Words of a parameter that clients of Triton's backends send, as the engines' own `stop`; an empty one is none. */
static bool rename_words(generation *it, json_t *parameters, const char *key)
{
    json_t *words = json_object_get(parameters, key);
    if (!words)
        return true;
    char *lines = lines_of(words);
    if (!lines)
        answer_wrong(it->run.request, "'%s' is a word or an array of words", key);
    bool good = lines != NULL, refused = good && lines[0] && strcmp(key, "bad_words") == 0;
    if (refused)
        answer_wrong(it->run.request, "'bad_words' are not supported");
    else if (good && lines[0])
        json_object_set_new(parameters, "stop", json_string(lines));
    if (good && (!lines[0] || strcmp(key, "stop") != 0))
        json_object_del(parameters, key);
    free(lines);
    return good && !refused;
}

static bool read_parameters(generation *it)
{
    static const char *const words[] = {"bad_words", "stop_words", "stop"};
    json_t *parameters = json_object_get(it->body, "parameters"), *most = json_object_get(parameters, "max_tokens");
    if (parameters && !json_is_object(parameters)) {
        answer_wrong(it->run.request, "'parameters' is an object");
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!rename_words(it, parameters, words[i]))
            return false;
    if (most) {
        json_object_set(parameters, "tokens", most);
        json_object_del(parameters, "max_tokens");
    }
    it->setting_count = v2_settings(it->body, it->settings);
    return true;
}

static bool serve_generate_read_body(generation *it)
{
    const json_t *text = json_object_get(it->body, "text_input");
    it->prompt = json_string_value(text);
    if (!it->prompt || !*it->prompt) {
        answer_wrong(it->run.request, "'text_input' is a text");
        return false;
    }
    return read_parameters(it);
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

static json_t *answer_object(const generation *it, const char *text, size_t bytes)
{
    json_t *object = json_pack("{s:o, s:s, s:o}", "model_name", text_json(it->run.model->name), "model_version", "1",
                               "text_output", text_json_bytes(text, bytes));
    if (json_object_get(it->body, "id"))
        json_object_set(object, "id", json_object_get(it->body, "id"));
    return object;
}

static bool serve_generate_send_event(generation *it, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT), *event = text_print("data: %s\n\n", text ? text : "{}");
    if (!it->began)
        ws_stream(it->run.request, 200, "text/event-stream");
    it->began = true;
    bool sent = ws_write(it->run.request, event, strlen(event)) == WEIR_OK;
    json_decref(object);
    free(event);
    free(text);
    return sent;
}

/* Returns the bytes of the whole characters; the bytes behind begin a character whose rest is still to come. */
static size_t whole_bytes(const char *text, size_t bytes)
{
    size_t back = 1;
    while (back <= 3 && back <= bytes && ((unsigned char)text[bytes - back] & 0xc0) == 0x80)
        back++;
    if (back > 3 || back > bytes)
        return bytes;
    unsigned char first = (unsigned char)text[bytes - back];
    size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return wanted > back ? bytes - back : bytes;
}

static bool serve_generate_take_piece(const weir_piece *piece, void *user)
{
    generation *it = user;
    if (ws_cancelled(it->run.request))
        return false;
    it->part = text_grow(it->part, it->part_bytes + piece->bytes + 1, 1);
    if (piece->bytes)
        memcpy(it->part + it->part_bytes, piece->text, piece->bytes);
    size_t bytes = it->part_bytes + piece->bytes, whole = whole_bytes(it->part, bytes);
    bool goes_on = whole == 0 || serve_generate_send_event(it, answer_object(it, it->part, whole));
    it->part_bytes = bytes - whole;
    memmove(it->part, it->part + whole, it->part_bytes);
    return goes_on;
}

static const weir_tensor *output(const weir_outputs *out, const char *name)
{
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->tensors[i].name, name) == 0)
            return &out->tensors[i];
    return NULL;
}

/* The last event has what is left of the text and how it ended. */
static void serve_generate_finish(generation *it, const weir_outputs *out)
{
    const weir_tensor *text = output(out, "text"), *reason = output(out, "finish_reason");
    const char *data = it->streams ? it->part : text ? text->data : "";
    size_t bytes = it->streams ? it->part_bytes : text ? text->bytes : 0;
    json_t *object = answer_object(it, data ? data : "", bytes);
    if (reason)
        json_object_set_new(object, "finish_reason", text_json_bytes(reason->data, reason->bytes));
    if (it->streams)
        (void)serve_generate_send_event(it, object);
    else
        answer_json(it->run.request, 200, object);
}

/* In the middle of a stream the status is sent already. */
static void serve_generate_fail(generation *it, weir_status status)
{
    if (it->began)
        (void)serve_generate_send_event(it, json_pack("{s:o}", "error", text_json(weir_detail())));
    else
        answer_failure(it->run.request, status);
}

static void serve_generate_run_it(generation *it)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_tensor input = WEIR_INIT(weir_tensor);
    weir_model_details info = WEIR_INIT(weir_model_details);
    input.name = "text";
    input.type = WEIR_TYPE_TEXT;
    input.rank = 1;
    input.bytes = strlen(it->prompt);
    input.shape[0] = (int64_t)input.bytes;
    input.data = (char *)(uintptr_t)it->prompt;
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = it->settings;
    inference.setting_count = it->setting_count;
    inference.piece = it->streams ? serve_generate_take_piece : NULL;
    inference.piece_user = it;
    weir_status status = weir_model_info(it->run.loaded, &info);
    if (status == WEIR_OK && !info.generates)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "the model '%s' makes no text", it->run.model->name);
    if (status == WEIR_OK)
        status = served_infer(&it->run, &inference, &out);
    if (status != WEIR_OK) {
        serve_generate_fail(it, status);
        return;
    }
    serve_generate_finish(it, &out);
    weir_model_release_outputs(it->run.loaded, &out);
}

static void generate(ws_request *request, served *all, bool streams)
{
    generation it = {.run = {.all = all, .request = request}, .streams = streams};
    it.body = body_json(request);
    if (it.body && serve_generate_read_body(&it) && served_take(&it.run, ws_segment(request, 0))) {
        serve_generate_run_it(&it);
        served_leave(&it.run);
    }
    v2_settings_clear(it.settings, it.setting_count);
    free(it.part);
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
