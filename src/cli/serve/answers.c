/* answers.c: JSON in and out, with bounds; failures in the form of the protocol that a path belongs to. */
#include "serve.h"

#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* True: the text stays within the limits of values and levels. jansson keeps 20 to 60 bytes for each value and recurses
 * for each level, so values and levels are counted before jansson reads the text. */
static bool is_bounded(const char *text, size_t bytes, size_t most_values)
{
    size_t depth = 0, values = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        values += c == ',' || c == '[' || c == '{';
        if (depth > JSON_DEEPEST || values > most_values)
            return false;
    }
    return true;
}

enum { MOST_VALUES = 4 << 20 };

json_t *text_to_json(ws_request *request, const char *text, size_t bytes)
{
    json_error_t error;
    if (!is_bounded(text, bytes, MOST_VALUES)) {
        answer_wrong(request, "the JSON is nested deeper than %d, or has more than %d values", JSON_DEEPEST,
                     MOST_VALUES);
        return NULL;
    }
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(object))
        return object;
    json_decref(object);
    answer_wrong(request, "the body is no JSON object: line %d: %s", object ? 1 : error.line,
                 object ? "something else" : error.text);
    return NULL;
}

json_t *body_json(ws_request *request)
{
    size_t bytes;
    const char *body = ws_body(request, &bytes);
    if (bytes == 0) {
        answer_wrong(request, "the body is empty; a JSON object is needed");
        return NULL;
    }
    return text_to_json(request, body, bytes);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

void answer_json(ws_request *request, unsigned status, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text)
        ws_answer_own(request, status, "application/json", text, strlen(text));
    else
        ws_refuse(request, 500, "internal_error", "the answer could not be made", 0);
}

/* OpenAI's clients read error.message; clients of the other protocols read error, a text. */
static json_t *failure_json(const char *path, unsigned status, const char *code, const char *text)
{
    const char *type = status == 429   ? "rate_limit_error"
                       : status == 401 ? "authentication_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    if (strncmp(path, "/v1/", 4) != 0)
        return json_pack("{s:o}", "error", text_json(text));
    return json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", text_json(text), "type", type, "param", "code",
                     code);
}

size_t write_refusal(const char *path, unsigned status, const char *code, const char *sentence, char *body, size_t room)
{
    json_t *object = failure_json(path, status, code, sentence);
    size_t bytes = json_dumpb(object, body, room, JSON_COMPACT);
    json_decref(object);
    return bytes;
}

/* What it is of, and when it is worth while to ask again. */
static const struct {
    weir_status status;
    unsigned http;
    const char *code;
    const char *retry;
} kinds[] = {
    {WEIR_ERR_NOT_FOUND, 404, "not_found", ""},
    {WEIR_ERR_INVALID, 400, "invalid_request", ""},
    {WEIR_ERR_UNSUPPORTED, 400, "unsupported", ""},
    {WEIR_ERR_BUSY, 503, "model_unavailable", "5"},
    {WEIR_ERR_OUT_OF_MEMORY, 503, "insufficient_memory", "1"},
    {WEIR_ERR_DEVICE_LOST, 503, "device_lost", "5"},
    {WEIR_ERR_CANCELLED, 503, "cancelled", ""},
};

static void serve_answers_fail(ws_request *request, unsigned status, const char *code, const char *retry,
                               const char *text)
{
    ws_add_header(request, "Retry-After", retry);
    answer_json(request, status, failure_json(ws_path(request), status, code, text));
}

void answer_failure(ws_request *request, weir_status status)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].status == status) {
            serve_answers_fail(request, kinds[i].http, kinds[i].code, kinds[i].retry, weir_detail());
            return;
        }
    serve_answers_fail(request, 500, "internal_error", "", weir_detail());
}

/* 429: others have asked for too much; 503: it cannot be had now. */
void answer_refusal(ws_request *request, weir_status status, const weir_pool_answer *answer, const char *name)
{
    enum { SECOND = 1000000000, AGAIN = 5 };
    char retry[24];
    uint64_t seconds = answer->retry_after ? (answer->retry_after + SECOND - 1) / SECOND : AGAIN;
    snprintf(retry, sizeof retry, "%llu", (unsigned long long)seconds);
    if (answer->cause == WEIR_POOL_QUEUE_FULL) {
        serve_answers_fail(request, 429, "queue_full", retry, weir_detail());
    } else if (answer->cause == WEIR_POOL_LOAD_FAILED) {
        char *text = text_print("the model '%s' could not be loaded: %s", name, weir_detail());
        serve_answers_fail(request, 503, "model_unavailable", retry, text);
        free(text);
    } else if (status == WEIR_ERR_OUT_OF_MEMORY) {
        bool never = answer->cause == WEIR_POOL_NEVER_FITS;
        serve_answers_fail(request, 503, "insufficient_memory", never ? "" : retry, weir_detail());
    } else if (status == WEIR_ERR_BUSY) {
        serve_answers_fail(request, 503, "model_unavailable", retry, weir_detail());
    } else {
        answer_failure(request, status);
    }
}

void answer_wrong(ws_request *request, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = text_vprint(format, arguments);
    va_end(arguments);
    serve_answers_fail(request, 400, "invalid_request", "", text);
    free(text);
}
