/* answer.c: a handler's view of its request, and its answer. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the request ------------------------------------------------------------------------------------------------- */

ws_server *ws_server_of(const ws_request *request)
{
    return request->server;
}

const char *ws_method(const ws_request *request)
{
    return request->method;
}

const char *ws_path(const ws_request *request)
{
    return request->path;
}

const char *ws_segment(const ws_request *request, size_t index)
{
    return index < WS_SEGMENTS && request->segments[index] ? request->segments[index] : "";
}

const char *ws_header(const ws_request *request, const char *name)
{
    const char *at = request->fields.data, *end = at ? at + request->fields.bytes : NULL;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

const char *ws_body(const ws_request *request, size_t *bytes)
{
    *bytes = request->body.data ? request->body.bytes : 0;
    return request->body.data;
}

bool ws_cancelled(ws_request *request)
{
    pthread_mutex_lock(&request->lock);
    bool cancelled = request->cancelled;
    pthread_mutex_unlock(&request->lock);
    return cancelled;
}

void ws_on_cancel(ws_request *request, void (*cancel)(void *user), void *user)
{
    pthread_mutex_lock(&request->lock);
    request->cancel = cancel;
    request->cancel_user = user;
    pthread_mutex_unlock(&request->lock);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

void ws_answer_clear(ws_answered *answer)
{
    for (size_t i = 0; i < answer->fields; i++) {
        free(answer->names[i]);
        free(answer->values[i]);
    }
    free(answer->body);
    *answer = (ws_answered){0};
}

void ws_add_header(ws_request *request, const char *name, const char *value)
{
    ws_answered *answer = &request->answer;
    pthread_mutex_lock(&request->lock);
    if (!request->answered && value[0] && answer->fields < WS_FIELDS) {
        char *a = strdup(name), *b = strdup(value);
        if (a && b) {
            answer->names[answer->fields] = a;
            answer->values[answer->fields++] = b;
        } else {
            free(a);
            free(b);
        }
    }
    pthread_mutex_unlock(&request->lock);
}

static void serve_answer_wake(ws_request *request)
{
    if (request->sleeping)
        ws_news_of(request);
    request->sleeping = false;
}

void ws_answer_own(ws_request *request, unsigned status, const char *type, void *body, size_t bytes)
{
    pthread_mutex_lock(&request->lock);
    bool first = !request->answered;
    if (first) {
        request->answered = true;
        request->answer.status = status;
        request->answer.type = type;
        request->answer.body = body;
        request->answer.bytes = bytes;
        serve_answer_wake(request);
    }
    pthread_mutex_unlock(&request->lock);
    if (!first)
        free(body);
}

void ws_answer(ws_request *request, unsigned status, const char *type, const void *body, size_t bytes)
{
    void *copy = bytes ? malloc(bytes) : NULL;
    if (copy)
        memcpy(copy, body, bytes);
    if (bytes && !copy)
        ws_answer_own(request, 500, NULL, NULL, 0);
    else
        ws_answer_own(request, status, type, copy, bytes);
}

void ws_refuse(ws_request *request, unsigned status, const char *code, const char *sentence, unsigned retry_after)
{
    char text[1024], seconds[16];
    const ws_options *options = &request->server->options;
    size_t bytes = 0;
    if (options->refusal)
        bytes = options->refusal(request->path ? request->path : "", status, code, sentence, text, sizeof text);
    if (bytes == 0 || bytes >= sizeof text)
        bytes = (size_t)snprintf(text, sizeof text, "{\"error\": \"%s\"}\n", sentence);
    if (retry_after) {
        snprintf(seconds, sizeof seconds, "%u", retry_after);
        ws_add_header(request, "Retry-After", seconds);
    }
    ws_answer(request, status, "application/json", text, bytes < sizeof text ? bytes : sizeof text - 1);
}

void ws_stream(ws_request *request, unsigned status, const char *type)
{
    pthread_mutex_lock(&request->lock);
    if (!request->answered) {
        request->answered = request->streams = true;
        request->answer.status = status;
        request->answer.type = type;
        serve_answer_wake(request);
    }
    pthread_mutex_unlock(&request->lock);
}

void ws_keep(ws_request *request)
{
    request->retained = true;
}

void ws_end(ws_request *request)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&request->lock);
    request->ended = true;
    while (request->cancelling)
        pthread_cond_wait(&request->changed, &request->lock);
    request->cancel = NULL;
    serve_answer_wake(request);
    pthread_mutex_unlock(&request->lock);
    ws_request_drop(request);
    ws_handled_less(server);
}

/* ---- for libmicrohttpd ------------------------------------------------------------------------------------------- */

static void release_stream(void *request)
{
    ws_request_drop(request);
}

static struct MHD_Response *make_response(ws_request *request)
{
    ws_answered *answer = &request->answer;
    if (!request->streams) {
        void *body = answer->body;
        answer->body = NULL;
        struct MHD_Response *response = MHD_create_response_from_buffer(answer->bytes, body, MHD_RESPMEM_MUST_FREE);
        if (!response)
            free(body);
        return response;
    }
    atomic_fetch_add(&request->references, 1);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, ws_stream_read, request, release_stream);
    if (!response)
        ws_request_drop(request);
    return response;
}

struct MHD_Response *ws_response_of(ws_request *request)
{
    ws_answered *answer = &request->answer;
    struct MHD_Response *response = make_response(request);
    if (!response)
        return NULL;
    bool good = !answer->type || MHD_add_response_header(response, "Content-Type", answer->type) == MHD_YES;
    for (size_t i = 0; i < answer->fields; i++)
        good = MHD_add_response_header(response, answer->names[i], answer->values[i]) == MHD_YES && good;
    if (request->streams)
        good = MHD_add_response_header(response, "Cache-Control", "no-cache") == MHD_YES && good;
    if (request->server->draining)
        good = MHD_add_response_header(response, "Connection", "close") == MHD_YES && good;
    if (good)
        return response;
    MHD_destroy_response(response);
    return NULL;
}
