/* openai.c: OpenAI's interface: models, completions and chats. */
#include "completion.h"

#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- models -------------------------------------------------------------------------------------------------------- */

static json_t *openai_model_json(served *all, served_model *model)
{
    return json_pack("{s:o, s:s, s:I, s:s}", "id", text_json(model->name), "object", "model", "created",
                     (json_int_t)all->began, "owned_by", "weir");
}

void openai_models(ws_request *request, void *user)
{
    answer_json(request, 200,
                json_pack("{s:s, s:o}", "object", "list", "data", served_list_json(user, openai_model_json)));
}

void openai_model(ws_request *request, void *user)
{
    served_model *model = v2_find(user, request);
    if (model)
        answer_json(request, 200, openai_model_json(user, model));
    served_drop(model);
}

/* ---- what a completion is asked for ------------------------------------------------------------------------------------ */

enum { MOST_CHOICES = 64, MOST_PROMPTS = 64, MOST_TOP = 20 };

typedef struct asked {
    completion it; /* first */
    json_t *body;
    bool chat, streams, wants_usage, opened; /* opened: the choice, with its role */
    const json_t *prompts;                   /* texts, each with `n` choices; NULL: a single prompt */
    size_t n, choice;
    bool seeded, drawn; /* by the request; a seed is drawn for each choice */
    int logprobs;       /* likely tokens to be told beside each; -1: no probabilities */
    char *said;         /* the texts of the tokens, one behind the other, and where each ends */
    size_t said_bytes, *ends, end_count;
    uint64_t prompt_tokens, tokens;
    json_t *choices;
    char id[40];
    int64_t created;
} asked;

static bool set_tokens(asked *it)
{
    const char *field = json_object_get(it->body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    if (!json_is_integer(json_object_get(it->body, field)))
        completion_set(&it->it, "tokens", text_copy(it->chat ? "256" : "16"));
    return completion_number(&it->it, it->body, field, "tokens");
}

static bool openai_set_count(asked *it)
{
    const json_t *n = json_object_get(it->body, "n"), *best = json_object_get(it->body, "best_of");
    it->n = 1;
    if (n && !json_is_null(n)) {
        json_int_t count = json_integer_value(n);
        if (!json_is_integer(n) || count < 1 || count > MOST_CHOICES)
            return completion_wrong(&it->it, "'n' is a whole number from 1 to %d", MOST_CHOICES);
        it->n = (size_t)count;
    }
    if (json_number_value(best) > (double)it->n)
        return completion_wrong(&it->it, "'best_of' is not more than 'n': no answer is thrown away");
    return true;
}

/* A chat says whether, and apart from that how many; a completion a number alone. */
static bool set_logprobs(asked *it)
{
    const json_t *wanted = json_object_get(it->body, "logprobs"), *top = json_object_get(it->body, "top_logprobs");
    const json_t *count = it->chat ? top : wanted;
    json_int_t many = json_integer_value(count);
    it->logprobs = -1;
    if (it->chat && count && !json_is_null(count) && !json_is_true(wanted))
        return completion_wrong(&it->it, "'top_logprobs' needs 'logprobs' to be true");
    if (it->chat ? !json_is_true(wanted) : !wanted || json_is_null(wanted) || json_is_false(wanted))
        return true;
    if ((count && !json_is_null(count) && !json_is_integer(count)) || many < 0 || many > MOST_TOP)
        return completion_wrong(&it->it, "'%s' is a whole number up to %d", it->chat ? "top_logprobs" : "logprobs",
                                MOST_TOP);
    it->logprobs = (int)many;
    completion_set(&it->it, "logprobs", text_print("%d", many > 0 ? (int)many : 1));
    return true;
}

static bool openai_set_format(asked *it, const char *model)
{
    const json_t *format = json_object_get(it->body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (!format || json_is_null(format) || (type && strcmp(type, "text") == 0))
        return true;
    if (type && strcmp(type, "json_object") == 0)
        return completion_format(&it->it, model, "response_format", NULL);
    if (!type || strcmp(type, "json_schema") != 0 || !json_is_object(schema))
        return completion_wrong(&it->it, "'response_format' has the type text, json_object, or json_schema with a "
                                         "'json_schema' that has a 'schema'");
    return completion_format(&it->it, model, "response_format", schema);
}

/* Numbers of tokens and what is added to their logits, of which the engine reads a list. */
static bool set_bias(asked *it, const served_model *named)
{
    const json_t *bias = json_object_get(it->body, "logit_bias");
    const char *token;
    json_t *value;
    char *list = NULL;
    size_t bytes = 0;
    uint64_t number;
    bool good = json_is_object(bias);
    if (!bias || json_is_null(bias) || (good && json_object_size(bias) == 0) || !named)
        return true; /* without a model its name is refused */
    if (strcmp(named->engine, "gguf") != 0)
        return completion_wrong(&it->it, "'logit_bias' is not taken: the engine '%s' of the model '%s' has no biases",
                                named->engine, named->name);
    FILE *to = text_stream(&list, &bytes);
    json_object_foreach((json_t *)(uintptr_t)bias, token, value)
    {
        double by = json_number_value(value);
        good = good && text_number(token, 0, INT32_MAX, &number) && json_is_number(value) && by >= -100 && by <= 100;
        if (good)
            fprintf(to, "%s%" PRIu64 ":%g", ftell(to) > 0 ? "," : "", number, by);
    }
    fclose(to);
    completion_set(&it->it, "logit_bias", list);
    return good ||
           completion_wrong(&it->it, "'logit_bias' is an object: of each token's number a number from -100 to 100");
}

/* Fields that would change the answer, each with the value that changes nothing; NULL: there is none. */
static const struct untaken {
    const char *field, *harmless, *why;
} untaken[] = {
    {"audio", NULL, "answers are texts"},
    {"function_call", "none", "chat templates are applied without tools"},
    {"reasoning_effort", "none", "how long a model thinks is not told to its template"},
    {"verbosity", "medium", "how long an answer is, is said in the prompt"},
    {"web_search_options", NULL, "no model here searches the web"},
};

static bool check_untaken(asked *it)
{
    const json_t *modality, *modalities = json_object_get(it->body, "modalities");
    size_t k;
    for (size_t i = 0; i < sizeof untaken / sizeof untaken[0]; i++) {
        const json_t *value = json_object_get(it->body, untaken[i].field);
        const char *text = json_string_value(value);
        if (value && !json_is_null(value) && !(text && untaken[i].harmless && strcmp(text, untaken[i].harmless) == 0))
            return completion_wrong(&it->it, "'%s' is not taken: %s", untaken[i].field, untaken[i].why);
    }
    json_array_foreach(
        modalities, k,
        modality) if (!json_is_string(modality) ||
                      strcmp(json_string_value(modality), "text") !=
                          0) return completion_wrong(&it->it,
                                                     "'modalities' are not taken but for text: answers are texts");
    return true;
}

/* What would change the answer and is not there is refused, not passed over. */
static bool openai_check_rest(asked *it)
{
    const char *choice = json_string_value(json_object_get(it->body, "tool_choice"));
    bool none = choice && strcmp(choice, "none") == 0;
    const json_t *suffix = json_object_get(it->body, "suffix");
    if (!none && (json_array_size(json_object_get(it->body, "tools")) > 0 ||
                  json_array_size(json_object_get(it->body, "functions")) > 0))
        return completion_wrong(&it->it, "'tools' are not taken: chat templates are applied without tools");
    if (json_string_length(suffix) > 0)
        return completion_wrong(&it->it, "'suffix' is not taken: texts are gone on with at their end");
    if (json_is_true(json_object_get(it->body, "echo")))
        return completion_wrong(&it->it, "'echo' is not taken: the answer is the new text alone");
    return check_untaken(it);
}

static bool openai_read_settings(asked *it, const char *model)
{
    completion *to = &it->it;
    const json_t *temperature = json_object_get(it->body, "temperature");
    served_model *named = served_find(to->run.all, model);
    if (json_is_true(json_object_get(it->body, "ignore_eos")))
        completion_set(to, "ignore_eos", text_copy("1"));
    /* OpenAI's default; engines take the likeliest token without it. */
    if (!json_is_number(temperature))
        completion_set(to, "temperature", text_copy("1"));
    it->seeded = json_is_number(json_object_get(it->body, "seed"));
    it->drawn = named && strcmp(named->engine, "gguf") == 0 &&
                (!json_is_number(temperature) || json_number_value(temperature) > 0);
    bool good = set_bias(it, named);
    served_drop(named);
    return good && openai_check_rest(it) && openai_set_count(it) && set_tokens(it) && set_logprobs(it) &&
           openai_set_format(it, model) && completion_number(to, it->body, "temperature", "temperature") &&
           completion_number(to, it->body, "top_p", "top_p") && completion_number(to, it->body, "seed", "seed") &&
           completion_number(to, it->body, "frequency_penalty", "frequency_penalty") &&
           completion_number(to, it->body, "presence_penalty", "presence_penalty") &&
           completion_stop(to, json_object_get(it->body, "stop"));
}

/* ---- the prompt -------------------------------------------------------------------------------------------------------- */

static bool read_tokens(asked *it, const json_t *prompt)
{
    completion *to = &it->it;
    to->token_count = json_array_size(prompt);
    to->tokens = text_grow(NULL, to->token_count, sizeof *to->tokens);
    for (size_t i = 0; i < to->token_count; i++) {
        const json_t *one = json_array_get(prompt, i);
        json_int_t token = json_integer_value(one);
        if (!json_is_integer(one) || token < 0 || token > INT32_MAX)
            return completion_wrong(to, "'prompt' is a text, an array of texts, or an array of tokens");
        to->tokens[i] = (int32_t)token;
    }
    return true;
}

static bool openai_read_prompt(asked *it)
{
    const json_t *prompt = json_object_get(it->body, "prompt"), *first = json_array_get(prompt, 0);
    if (it->chat)
        return completion_messages(&it->it, json_object_get(it->body, "messages"));
    if (json_is_integer(first))
        return read_tokens(it, prompt);
    it->prompts = json_is_array(prompt) ? prompt : NULL;
    if (json_array_size(prompt) > MOST_PROMPTS)
        return completion_wrong(&it->it, "'prompt' has more than %d texts", MOST_PROMPTS);
    for (size_t i = 0; i < json_array_size(prompt); i++)
        if (json_string_length(json_array_get(prompt, i)) == 0)
            return completion_wrong(&it->it, "'prompt' has a text that is empty, or none");
    prompt = it->prompts ? first : prompt;
    if (!json_is_string(prompt) || json_string_length(prompt) == 0)
        return completion_wrong(&it->it, "'prompt' is a text");
    return completion_text(&it->it, json_string_value(prompt), json_string_length(prompt));
}

static bool openai_read_body(asked *it)
{
    const char *model = json_string_value(json_object_get(it->body, "model"));
    if (!model)
        return completion_wrong(&it->it, "'model' is the name of one");
    it->streams = json_is_true(json_object_get(it->body, "stream"));
    it->wants_usage = json_is_true(json_object_get(json_object_get(it->body, "stream_options"), "include_usage"));
    return openai_read_prompt(it) && openai_read_settings(it, model);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------------- */

/* Answers the logarithm number `at`. JSON has no number for that of a token that cannot come; OpenAI writes -9999 there. */
static double openai_number_at(const weir_tensor *of, size_t at)
{
    const double never = -9999;
    float value = 0;
    if (of && (at + 1) * sizeof value <= of->bytes)
        memcpy(&value, (const char *)of->data + at * sizeof value, sizeof value);
    return isfinite(value) ? (double)value : never;
}

static int32_t openai_whole_at(const weir_tensor *of, size_t at)
{
    int32_t value = 0;
    if (of && (at + 1) * sizeof value <= of->bytes)
        memcpy(&value, (const char *)of->data + at * sizeof value, sizeof value);
    return value;
}

/* The text of the likely token number `at`, else its number, where the engine tells no texts. */
static char *top_text(const asked *it, size_t at, size_t *bytes)
{
    const weir_tensor *texts = completion_output(&it->it, "top_texts"),
                      *ends = completion_output(&it->it, "top_text_ends");
    if (!texts || !ends) {
        char *text = text_print("token_id:%d", openai_whole_at(completion_output(&it->it, "top_tokens"), at));
        *bytes = strlen(text);
        return text;
    }
    size_t begin = at > 0 ? (size_t)openai_whole_at(ends, at - 1) : 0, end = (size_t)openai_whole_at(ends, at);
    *bytes = end >= begin && end <= texts->bytes ? end - begin : 0;
    char *text = text_zeroed(*bytes + 1, 1);
    if (*bytes > 0)
        memcpy(text, (const char *)texts->data + begin, *bytes);
    return text;
}

static json_t *likely_json(const char *text, size_t bytes, double probability)
{
    json_t *list = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(list, json_integer((unsigned char)text[i]));
    return json_pack("{s:o, s:f, s:o}", "token", text_json_bytes(text, bytes), "logprob", probability, "bytes", list);
}

/* A chat's, of the tokens from `from` up to `to`. */
static json_t *chat_probabilities(const asked *it, size_t from, size_t to)
{
    const weir_tensor *own = completion_output(&it->it, "logprobs"), *top = completion_output(&it->it, "top_logprobs");
    size_t width = top && top->rank == 2 ? (size_t)top->shape[1] : 0;
    json_t *content = json_array();
    for (size_t i = from; i < to; i++) {
        size_t begin = i > 0 ? it->ends[i - 1] : 0;
        json_t *one = likely_json(it->said + begin, it->ends[i] - begin, openai_number_at(own, i)),
               *others = json_array();
        for (size_t k = 0; k < width && k < (size_t)it->logprobs; k++) {
            size_t bytes;
            char *text = top_text(it, i * width + k, &bytes);
            json_array_append_new(others, likely_json(text, bytes, openai_number_at(top, i * width + k)));
            free(text);
        }
        json_object_set_new(one, "top_logprobs", others);
        json_array_append_new(content, one);
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

static json_t *text_probabilities(const asked *it, size_t from, size_t to)
{
    const weir_tensor *own = completion_output(&it->it, "logprobs"), *top = completion_output(&it->it, "top_logprobs");
    size_t width = top && top->rank == 2 ? (size_t)top->shape[1] : 0;
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = from; i < to; i++) {
        size_t begin = i > 0 ? it->ends[i - 1] : 0;
        json_t *others = json_object();
        json_array_append_new(tokens, text_json_bytes(it->said + begin, it->ends[i] - begin));
        json_array_append_new(values, json_real(openai_number_at(own, i)));
        json_array_append_new(offsets, json_integer((json_int_t)begin));
        for (size_t k = 0; k < width && k < (size_t)it->logprobs; k++) {
            size_t bytes;
            char *text = top_text(it, i * width + k, &bytes);
            json_t *name = text_json_bytes(text, bytes);
            json_object_set_new(others, json_string_value(name), json_real(openai_number_at(top, i * width + k)));
            json_decref(name);
            free(text);
        }
        json_array_append_new(tops, others);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                     "text_offset", offsets);
}

static size_t openai_told(const asked *it)
{
    const weir_tensor *own = completion_output(&it->it, "logprobs");
    size_t count = own ? own->bytes / sizeof(float) : 0;
    return count < it->end_count ? count : it->end_count;
}

static json_t *probabilities(const asked *it, size_t from, size_t to)
{
    if (it->logprobs < 0)
        return json_null();
    return it->chat ? chat_probabilities(it, from, to) : text_probabilities(it, from, to);
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

/* Takes `likely`. */
static json_t *openai_choice_json(const asked *it, const char *text, size_t bytes, const char *finish, bool whole,
                                  json_t *likely)
{
    json_t *said = text_json_bytes(text, bytes), *choice = json_pack("{s:I}", "index", (json_int_t)it->choice);
    if (!it->chat)
        json_object_set_new(choice, "text", said);
    else if (whole)
        json_object_set_new(choice, "message", json_pack("{s:s, s:o}", "role", "assistant", "content", said));
    else
        json_object_set_new(choice, "delta", json_pack("{s:o}", "content", said));
    json_object_set_new(choice, "logprobs", likely);
    json_object_set_new(choice, "finish_reason", finish ? json_string(finish) : json_null());
    return choice;
}

/* Takes the choices. */
static json_t *object_json(const asked *it, json_t *choices, bool whole)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", it->id, "object",
                     !it->chat ? "text_completion"
                     : whole   ? "chat.completion"
                               : "chat.completion.chunk",
                     "created", (json_int_t)it->created, "model", text_json(it->it.run.model->name), "choices",
                     choices);
}

static json_t *usage_json(const asked *it)
{
    json_int_t read = (json_int_t)it->prompt_tokens, made = (json_int_t)it->tokens;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", read, "completion_tokens", made, "total_tokens", read + made);
}

static bool send_choice(asked *it, json_t *choice)
{
    json_t *choices = json_array();
    json_array_append_new(choices, choice);
    return completion_send(&it->it, true, object_json(it, choices, false));
}

static bool open_choice(asked *it)
{
    bool opened = it->opened || !it->chat;
    completion_stream(&it->it, true);
    it->opened = true;
    if (opened)
        return true;
    return send_choice(it, json_pack("{s:I, s:{s:s, s:s}, s:n}", "index", (json_int_t)it->choice, "delta", "role",
                                     "assistant", "content", "", "finish_reason"));
}

/* With probabilities the tokens' texts are kept, as those are told when the run has ended. */
static void keep_token(asked *it, const weir_piece *piece)
{
    size_t bytes = it->said_bytes + piece->bytes;
    it->said = text_grow(it->said, bytes + 1, 1);
    if (piece->bytes)
        memcpy(it->said + it->said_bytes, piece->text, piece->bytes);
    it->said_bytes = bytes;
    it->ends = text_grow(it->ends, it->end_count + 1, sizeof *it->ends);
    it->ends[it->end_count++] = bytes;
}

static bool openai_take_text(completion *of, const char *text, size_t bytes, const weir_piece *piece)
{
    asked *it = (asked *)(void *)of;
    if (it->logprobs >= 0) {
        keep_token(it, piece);
        return true;
    }
    return open_choice(it) &&
           (bytes == 0 || send_choice(it, openai_choice_json(it, text, bytes, NULL, false, json_null())));
}

static bool send_tokens(asked *it)
{
    bool sent = true;
    for (size_t i = 0, count = openai_told(it); i < count && sent; i++) {
        size_t begin = i > 0 ? it->ends[i - 1] : 0;
        sent = send_choice(it, openai_choice_json(it, it->said + begin, it->ends[i] - begin, NULL, false,
                                                  probabilities(it, i, i + 1)));
    }
    return sent;
}

static bool end_choice(asked *it)
{
    bool sent = open_choice(it) && (it->logprobs < 0 || send_tokens(it));
    const char *rest = it->logprobs >= 0 ? "" : it->it.part;
    return sent && send_choice(it, openai_choice_json(it, rest, it->logprobs >= 0 ? 0 : it->it.part_bytes,
                                                      completion_finish(&it->it), false, json_null()));
}

static void end_stream(asked *it)
{
    static const char done[] = "data: [DONE]\n\n";
    bool sent = true;
    completion_stream(&it->it, true);
    if (it->wants_usage) {
        json_t *last = object_json(it, json_array(), false);
        json_object_set_new(last, "usage", usage_json(it));
        sent = completion_send(&it->it, true, last);
    }
    sent = sent && ws_write(it->it.run.request, done, sizeof done - 1) == WEIR_OK;
    (void)sent;
}

static void keep_choice(asked *it)
{
    const weir_tensor *text = completion_output(&it->it, "text");
    json_array_append_new(it->choices,
                          openai_choice_json(it, text ? text->data : "", text ? text->bytes : 0,
                                             completion_finish(&it->it), true, probabilities(it, 0, openai_told(it))));
}

/* ---- a completion --------------------------------------------------------------------------------------------------------- */

/* Gives each choice a seed of its own: counted up from the request's seed, or drawn. */
static void seed_choice(asked *it)
{
    json_int_t seed = (json_int_t)json_number_value(json_object_get(it->body, "seed"));
    if (it->seeded && it->n > 1)
        completion_set(&it->it, "seed", text_print("%lld", (long long)(seed + (json_int_t)(it->choice % it->n))));
    else if (!it->seeded && it->drawn)
        completion_seed(&it->it);
}

static weir_status run_choice(asked *it)
{
    size_t prompt = it->choice / it->n;
    if (it->prompts) {
        const json_t *text = json_array_get(it->prompts, prompt);
        completion_text(&it->it, json_string_value(text), json_string_length(text));
    }
    it->said_bytes = it->end_count = 0;
    it->opened = false;
    seed_choice(it);
    weir_status status = completion_run(&it->it);
    if (status != WEIR_OK)
        return status;
    it->prompt_tokens += it->choice % it->n == 0 ? completion_prompt_tokens(&it->it) : 0;
    it->tokens += completion_tokens(&it->it);
    if (!it->streams)
        keep_choice(it);
    else if (!end_choice(it))
        status = weir_fail(WEIR_ERR_CANCELLED, "the client is gone");
    completion_release(&it->it);
    return status;
}

static void openai_run_all(asked *it)
{
    size_t count = it->n * (it->prompts ? json_array_size(it->prompts) : 1);
    weir_status status = WEIR_OK;
    it->it.take = it->streams || it->logprobs >= 0 ? openai_take_text : NULL;
    it->choices = json_array();
    for (it->choice = 0; it->choice < count && status == WEIR_OK; it->choice++)
        status = run_choice(it);
    if (status != WEIR_OK) {
        completion_fail(
            &it->it, true, status,
            json_pack("{s:{s:o, s:s}}", "error", "message", text_json(weir_detail()), "type", "server_error"));
    } else if (it->streams) {
        end_stream(it);
    } else {
        json_t *object = object_json(it, json_incref(it->choices), true);
        json_object_set_new(object, "usage", usage_json(it));
        answer_json(it->it.run.request, 200, object);
    }
    json_decref(it->choices);
}

static void openai_complete(served *all, ws_request *request, bool chat)
{
    asked it = {.it = {.run = {.all = all, .request = request}}, .chat = chat, .created = (int64_t)time(NULL)};
    it.body = body_json(request);
    snprintf(it.id, sizeof it.id, "%s-%" PRIuFAST64, chat ? "chatcmpl" : "cmpl",
             atomic_fetch_add(&all->next_run, 1) + 1);
    if (it.body && openai_read_body(&it) &&
        completion_begin(&it.it, json_string_value(json_object_get(it.body, "model")))) {
        openai_run_all(&it);
        completion_end(&it.it);
    }
    completion_clear(&it.it);
    free(it.said);
    free(it.ends);
    json_decref(it.body);
}

void openai_completions(ws_request *request, void *all)
{
    openai_complete(all, request, false);
}

void openai_chat(ws_request *request, void *all)
{
    openai_complete(all, request, true);
}
