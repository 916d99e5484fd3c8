/* completion.c: what the protocols share that go on with a text: settings, prompts, the run and its pieces. */
#include "completion.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

bool completion_wrong(completion *it, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = text_vprint(format, arguments);
    va_end(arguments);
    answer_wrong(it->run.request, "%s", text);
    free(text);
    return false;
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

void completion_stream(completion *it, bool events)
{
    if (!it->streams)
        ws_stream(it->run.request, 200, events ? "text/event-stream" : "application/x-ndjson");
    it->streams = true;
}

bool completion_send(completion *it, bool events, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    char *whole = text_print(events ? "data: %s\n\n" : "%s\n", text ? text : "{}");
    completion_stream(it, events);
    bool sent = ws_write(it->run.request, whole, strlen(whole)) == WEIR_OK;
    json_decref(object);
    free(whole);
    free(text);
    return sent;
}

void completion_fail(completion *it, bool events, weir_status status, json_t *error)
{
    if (it->streams) {
        (void)completion_send(it, events, error);
    } else {
        json_decref(error);
        answer_failure(it->run.request, status);
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------------- */

void completion_set(completion *it, const char *key, char *value)
{
    for (size_t i = 0; i < it->setting_count; i++)
        if (strcmp(it->settings[i].key, key) == 0) {
            free((char *)(uintptr_t)it->settings[i].value);
            it->settings[i].value = value;
            return;
        }
    if (it->setting_count < COMPLETION_SETTINGS)
        it->settings[it->setting_count++] = (weir_setting){key, value};
    else
        free(value);
}

bool completion_number(completion *it, const json_t *object, const char *field, const char *key)
{
    const json_t *value = json_object_get(object, field);
    if (!value || json_is_null(value))
        return true;
    if (!json_is_number(value))
        return completion_wrong(it, "'%s' is a number", field);
    completion_set(it, key, json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT));
    return true;
}

char *completion_words(const json_t *words)
{
    char *lines = NULL;
    size_t bytes = 0, count = json_is_array(words) ? json_array_size(words) : 1;
    bool good = true;
    FILE *list = text_stream(&lines, &bytes);
    for (size_t i = 0; i < count && good; i++) {
        const char *at = json_string_value(json_is_array(words) ? json_array_get(words, i) : words);
        good = at != NULL;
        fputs(good && *at && ftell(list) > 0 ? "\n" : "", list);
        for (; good && *at; at++)
            if (*at == '\n' || *at == '\t' || *at == '\\')
                fprintf(list, "\\%c", *at == '\n' ? 'n' : *at == '\t' ? 't' : '\\');
            else
                fputc(*at, list);
    }
    fclose(list);
    if (good)
        return lines;
    free(lines);
    return NULL;
}

bool completion_stop(completion *it, const json_t *stop)
{
    size_t count = json_is_array(stop) ? json_array_size(stop) : stop && !json_is_null(stop);
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good = good && json_string_length(json_is_array(stop) ? json_array_get(stop, i) : stop) > 0;
    if (good && count > 0)
        completion_set(it, "stop", completion_words(stop));
    return good || completion_wrong(it, "'stop' is a word or an array of words");
}

void completion_seed(completion *it)
{
    uint32_t seed = (uint32_t)cli_now();
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed ^= (uint32_t)it->run.all->began;
    completion_set(it, "seed", text_print("%u", seed & INT32_MAX));
}

static bool completion_set_format(completion *it, const served_model *named, const char *field, const json_t *schema)
{
    char *why = NULL, *grammar;
    if (strcmp(named->engine, "llm") == 0) {
        completion_set(it, "json_schema",
                       schema ? json_dumps(schema, JSON_COMPACT) : text_copy("{\"type\":\"object\"}"));
        return true;
    }
    if (strcmp(named->engine, "gguf") != 0)
        return completion_wrong(it, "'%s' needs grammars, and the engine '%s' of the model '%s' has none", field,
                                named->engine, named->name);
    grammar = schema_grammar(schema, &why);
    if (!grammar) {
        completion_wrong(it, "'%s': %s", field, why);
        free(why);
        return false;
    }
    completion_set(it, "grammar", grammar);
    return true;
}

bool completion_format(completion *it, const char *model, const char *field, const json_t *schema)
{
    served_model *named = served_find(it->run.all, model);
    bool good = !named || completion_set_format(it, named, field, schema); /* without one the model's name is refused */
    served_drop(named);
    return good;
}

/* ---- the prompt -------------------------------------------------------------------------------------------------------- */

/* A line with the role and how many bytes follow, so that no text ends its message early. */
void completion_message(FILE *to, const char *role, const char *text, size_t bytes)
{
    fprintf(to, "%s %zu\n", role, bytes);
    fwrite(text, 1, bytes, to);
    fputc('\n', to);
}

static bool add_parts(completion *it, FILE *text, const json_t *content)
{
    size_t i;
    json_t *part;
    json_array_foreach(content, i, part)
    {
        const json_t *words = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && strcmp(type, "text") != 0)
            return completion_wrong(it, "'messages': a part of the type '%.40s' is not taken, only texts", type);
        if (!json_is_string(words))
            return completion_wrong(it, "'messages': a part without a text");
        fwrite(json_string_value(words), 1, json_string_length(words), text);
    }
    return true;
}

static bool add_content(completion *it, FILE *text, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (json_array_size(json_object_get(message, "images")) > 0)
        return completion_wrong(it, "'images' are not taken: models are asked with texts alone");
    if (json_array_size(json_object_get(message, "tool_calls")) > 0)
        return completion_wrong(it, "'tool_calls' are not taken: chat templates are applied without tools");
    if (json_is_string(content)) {
        fwrite(json_string_value(content), 1, json_string_length(content), text);
        return true;
    }
    return json_is_array(content) ? add_parts(it, text, content)
                                  : completion_wrong(it, "'messages': a message without a content of text");
}

static bool add_message(completion *it, FILE *all, const json_t *message)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role || strpbrk(role, " \n") || !*role)
        return completion_wrong(it, "'messages': a message without a role");
    FILE *file = text_stream(&text, &bytes);
    bool good = add_content(it, file, message);
    fclose(file);
    if (good)
        completion_message(all, strcmp(role, "developer") == 0 ? "system" : role, text, bytes);
    free(text);
    return good;
}

bool completion_messages(completion *it, const json_t *messages)
{
    size_t i;
    json_t *message;
    if (json_array_size(messages) == 0)
        return completion_wrong(it, "'messages' is an array of messages, each with a role and a content of text");
    FILE *file = text_stream(&it->prompt, &it->bytes);
    bool good = true;
    json_array_foreach(messages, i, message) good = good && add_message(it, file, message);
    fclose(file);
    it->chat = true;
    return good;
}

bool completion_text(completion *it, const char *text, size_t bytes)
{
    free(it->prompt);
    it->chat = false;
    it->bytes = bytes;
    it->prompt = text_zeroed(bytes + 1, 1);
    memcpy(it->prompt, text, bytes);
    return true;
}

size_t completion_lines(completion *it, const json_t *input)
{
    size_t count = json_is_string(input) ? 1 : json_array_size(input);
    FILE *text = text_stream(&it->prompt, &it->bytes);
    bool good = count > 0;
    for (size_t i = 0; i < count && good; i++) {
        const json_t *one = json_is_string(input) ? input : json_array_get(input, i);
        good = json_string_length(one) > 0;
        fputs(i ? "\n" : "", text);
        for (const char *at = good ? json_string_value(one) : ""; *at; at++)
            fputc(*at == '\n' || *at == '\r' ? ' ' : *at, text);
    }
    fclose(text);
    it->embeds = true;
    if (!good)
        completion_wrong(it, "'input' is a text or an array of texts, none of them empty");
    return good ? count : 0;
}

/* ---- the run ----------------------------------------------------------------------------------------------------------- */

/* Bytes at the end that are the beginning of a character. */
static size_t unfinished(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char c = (unsigned char)text[bytes - back];
        if (c >= 0xc0)
            return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) > back ? back : 0;
        if (c < 0x80)
            break;
    }
    return 0;
}

static bool completion_take_piece(const weir_piece *piece, void *user)
{
    completion *it = user;
    if (it->first == 0)
        it->first = cli_now();
    if (ws_cancelled(it->run.request))
        return false;
    size_t bytes = it->part_bytes + piece->bytes;
    char *text = text_zeroed(bytes + 1, 1);
    memcpy(text, it->part, it->part_bytes);
    if (piece->bytes)
        memcpy(text + it->part_bytes, piece->text, piece->bytes);
    it->part_bytes = unfinished(text, bytes);
    bytes -= it->part_bytes;
    memcpy(it->part, text + bytes, it->part_bytes);
    bool goes_on = it->take(it, text, bytes, piece);
    free(text);
    return goes_on;
}

bool completion_begin(completion *it, const char *model)
{
    it->began = cli_now();
    bool there = served_take(&it->run, model);
    it->loaded = cli_now();
    return there;
}

static void fill_input(const completion *it, weir_tensor *input)
{
    *input = WEIR_INIT(weir_tensor);
    input->name = it->tokens ? "tokens" : it->chat ? "messages" : "text";
    input->type = it->tokens ? WEIR_TYPE_I32 : WEIR_TYPE_TEXT;
    input->rank = 1;
    input->shape[0] = (int64_t)(it->tokens ? it->token_count : it->bytes);
    input->data = it->tokens ? (void *)it->tokens : it->prompt;
    input->bytes = it->tokens ? it->token_count * sizeof *it->tokens : it->bytes;
}

/* Refuses a model without the wanted output before the run, so that no text is made in vain. */
static weir_status completion_check_model(const completion *it)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_status status = weir_model_info(it->run.loaded, &info);
    const char *name = it->run.model->name;
    if (status != WEIR_OK)
        return status;
    for (size_t i = 0; it->embeds && i < info.output_count; i++)
        if (strcmp(info.outputs[i].name, "embeddings") == 0)
            return WEIR_OK;
    if (it->embeds)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the model '%s' makes no embeddings of texts", name);
    return info.generates ? WEIR_OK : weir_fail(WEIR_ERR_UNSUPPORTED, "the model '%s' makes no text", name);
}

weir_status completion_run(completion *it)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_tensor input;
    it->out = WEIR_INIT(weir_outputs);
    it->part_bytes = 0;
    it->first = 0;
    fill_input(it, &input);
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = it->settings;
    inference.setting_count = it->setting_count;
    inference.piece = it->take ? completion_take_piece : NULL;
    inference.piece_user = it;
    weir_status status = completion_check_model(it);
    if (status == WEIR_OK)
        status = served_infer(&it->run, &inference, &it->out);
    it->ended = cli_now();
    if (it->first == 0)
        it->first = it->ended;
    return status;
}

void completion_release(completion *it)
{
    weir_model_release_outputs(it->run.loaded, &it->out);
    it->out = WEIR_INIT(weir_outputs);
}

void completion_end(completion *it)
{
    if (it->run.lease)
        served_leave(&it->run);
}

void completion_clear(completion *it)
{
    for (size_t i = 0; i < it->setting_count; i++)
        free((char *)(uintptr_t)it->settings[i].value);
    free(it->prompt);
    free(it->tokens);
}

/* ---- results ----------------------------------------------------------------------------------------------------------- */

const weir_tensor *completion_output(const completion *it, const char *name)
{
    for (size_t i = 0; i < it->out.count; i++)
        if (strcmp(it->out.tensors[i].name, name) == 0)
            return &it->out.tensors[i];
    return NULL;
}

const weir_tensor *completion_vectors(const completion *it, size_t count, bool as_numbers)
{
    const weir_tensor *rows = completion_output(it, "embeddings");
    const char *name = it->run.model->name;
    weir_status status = WEIR_OK;
    size_t at;
    if (!rows || rows->rank != 2 || rows->type != WEIR_TYPE_F32 || rows->shape[0] != (int64_t)count)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "the model '%s' did not make one vector for each text", name);
    else if (as_numbers && wire_find_not_finite(rows, &at))
        status =
            weir_fail(WEIR_ERR_ENGINE,
                      "the model '%s' gave a number that is not finite at position %zu of vector %zu, and JSON has "
                      "no form for it; /v1/embeddings with encoding_format base64 has",
                      name, at % (size_t)rows->shape[1], at / (size_t)rows->shape[1]);
    if (status == WEIR_OK)
        return rows;
    answer_failure(it->run.request, status);
    return NULL;
}

json_t *completion_vector_json(const weir_tensor *rows, size_t at)
{
    json_t *list = json_array();
    size_t width = (size_t)rows->shape[1];
    for (size_t i = 0; i < width; i++) {
        float value;
        memcpy(&value, (const char *)rows->data + (at * width + i) * sizeof value, sizeof value);
        json_array_append_new(list, json_real((double)value));
    }
    return list;
}

const char *completion_finish(const completion *it)
{
    const weir_tensor *finish = completion_output(it, "finish_reason");
    bool length = finish && finish->bytes == 6 && memcmp(finish->data, "length", 6) == 0;
    return length ? "length" : "stop";
}

uint64_t completion_prompt_tokens(const completion *it)
{
    const weir_tensor *prompt = completion_output(it, "prompt_tokens");
    uint64_t all = 0;
    for (size_t i = 0; prompt && prompt->type == WEIR_TYPE_I32 && i < prompt->bytes / sizeof(int32_t); i++) {
        int32_t count;
        memcpy(&count, (const char *)prompt->data + i * sizeof count, sizeof count);
        all += count > 0 ? (uint64_t)count : 0;
    }
    return all;
}

uint64_t completion_tokens(const completion *it)
{
    const weir_tensor *tokens = completion_output(it, "tokens");
    return tokens && tokens->type == WEIR_TYPE_I32 ? tokens->bytes / sizeof(int32_t) : 0;
}
