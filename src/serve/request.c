/* request.c: the life of a request on the loop: its head, its body, the wait for an answer, the answer, its end. */
#include "parts.h"

#include <stdlib.h>

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static ws_request *request_create(ws_server *server, ws_connection *connection, struct MHD_Connection *mhd)
{
    ws_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->server = server;
    request->connection = connection;
    request->mhd = mhd;
    atomic_init(&request->references, 1);
    pthread_mutex_init(&request->lock, NULL);
    pthread_cond_init(&request->changed, NULL);
    connection->request = request;
    return request;
}

void ws_request_drop(ws_request *request)
{
    if (atomic_fetch_sub(&request->references, 1) > 1)
        return;
    ws_body_clear(request);
    ws_answer_clear(&request->answer);
    atomic_fetch_sub(&request->server->stream_bytes, request->stream.bytes);
    free(request->stream.data);
    free(request->fields.data);
    free(request->segment_text);
    free(request->path);
    pthread_cond_destroy(&request->changed);
    pthread_mutex_destroy(&request->lock);
    free(request);
}

/* A reference beside the loop's, which stays. */
static void request_let_go(ws_request *request)
{
    atomic_fetch_sub(&request->references, 1);
}

void ws_completed(void *user, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    ws_server *server = user;
    ws_request *request = *context;
    (void)mhd;
    (void)code;
    *context = NULL;
    if (!request)
        return;
    ws_connection *connection = request->connection;
    if (request->queued_answer && request->streams)
        atomic_fetch_sub(&server->streams, 1);
    request->mhd = NULL;
    request->connection = NULL;
    request->suspended = false;
    connection->request = NULL;
    connection->begun = false;
    if (connection->gone)
        ws_connection_end(connection);
    ws_timer_set(&server->timers, &connection->timer, WS_WAIT_IDLE, ws_clock());
    if (request->dispatched)
        ws_request_cancel(request); /* what is over is not affected */
    ws_request_drop(request);
}

/* ---- cancel ------------------------------------------------------------------------------------------------------ */

/* Not under the lock: what is called may wait for a thread that writes to the stream. ws_end waits for it. */
static void call_cancel(ws_request *request)
{
    pthread_mutex_lock(&request->lock);
    void (*cancel)(void *user) = request->ended ? NULL : request->cancel;
    void *user = request->cancel_user;
    request->cancelling = cancel != NULL;
    pthread_mutex_unlock(&request->lock);
    if (!cancel)
        return;
    cancel(user);
    pthread_mutex_lock(&request->lock);
    request->cancelling = false;
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);
}

static bool mark_cancelled(ws_request *request)
{
    pthread_mutex_lock(&request->lock);
    bool over = request->ended || (request->answered && !request->streams);
    bool marks = !over && !request->cancelled;
    request->cancelled = request->cancelled || marks;
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);
    return marks;
}

void ws_request_ask_again(ws_request *request)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&request->lock);
    bool over = request->ended;
    pthread_mutex_unlock(&request->lock);
    if (over) {
        ws_request_drop(request);
        return;
    }
    call_cancel(request);
    ws_timer_set(&server->timers, &request->again, WS_WAIT_CANCEL, ws_clock());
}

void ws_request_cancel(ws_request *request)
{
    ws_server *server = request->server;
    if (mark_cancelled(request)) {
        atomic_fetch_add(&server->cancelled, 1);
        if (ws_workers_give_up(request)) {
            atomic_fetch_add(&server->cancelled_waiting, 1);
            pthread_mutex_lock(&request->lock);
            request->ended = true;
            pthread_mutex_unlock(&request->lock);
            request_let_go(request); /* the queue's */
        } else {
            atomic_fetch_add(&request->references, 1); /* the timer's */
            call_cancel(request);
            ws_timer_set(&server->timers, &request->again, WS_WAIT_CANCEL, ws_clock());
        }
    }
    ws_request_wake(request);
}

void ws_request_wake(ws_request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    MHD_resume_connection(request->mhd);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* libmicrohttpd refuses an answer only where one was given already. */
static enum MHD_Result send_answer(ws_request *request)
{
    struct MHD_Response *response = ws_response_of(request);
    if (!response)
        return MHD_NO;
    unsigned status = request->answer.status;
    request->queued_answer = true;
    if (request->streams)
        atomic_fetch_add(&request->server->streams, 1);
    atomic_fetch_add(&request->server->answered[status / 100 % 6], 1);
    enum MHD_Result result = MHD_queue_response(request->mhd, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result sleep_for_news(ws_request *request)
{
    request->suspended = true;
    MHD_suspend_connection(request->mhd);
    return MHD_YES;
}

/* Goes on with a request that its handler may have answered: ends the connection, sleeps, or sends the answer. */
static enum MHD_Result request_go_on(ws_request *request)
{
    pthread_mutex_lock(&request->lock);
    bool cancelled = request->cancelled, answered = request->answered, ended = request->ended;
    request->sleeping = !cancelled && !answered && !ended;
    bool sleeps = request->sleeping;
    pthread_mutex_unlock(&request->lock);
    if (cancelled)
        return MHD_NO;
    if (sleeps)
        return sleep_for_news(request);
    if (!answered)
        ws_refuse(request, 500, "not_answered", "the request was given up without an answer", 0);
    return send_answer(request);
}

static enum MHD_Result dispatch(ws_request *request)
{
    const ws_route *route = request->route;
    request->dispatched = true;
    atomic_fetch_add(&request->references, 1); /* the handler's */
    if (route->on_loop) {
        ws_handle(request, route->handler);
    } else if (request->connection->gone) {
        mark_cancelled(request);
        atomic_fetch_add(&request->server->cancelled, 1);
        atomic_fetch_add(&request->server->cancelled_waiting, 1);
        request->ended = true;
        request_let_go(request);
    } else if (!ws_workers_take(request)) {
        ws_refuse(request, 429, "queue_full", "as many requests wait as may", 1);
        request->ended = true;
        request_let_go(request);
    }
    return request_go_on(request);
}

/* ---- what libmicrohttpd tells ------------------------------------------------------------------------------------ */

static bool has_body(const ws_request *request)
{
    return request->chunked || request->announced > 0;
}

/* A small body is read and dropped, so that the connection can go on. A large one is not; neither is one whose client
 * waits for a word before it sends. */
static enum MHD_Result refuse_early(ws_request *request)
{
    bool swallows = !has_body(request) || (!request->expects && !request->chunked && request->announced <= WS_SWALLOW);
    if (swallows && !request->broken)
        return MHD_YES;
    ws_linger(request->connection);
    return send_answer(request);
}

static enum MHD_Result request_begin(ws_server *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                     const char *version, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ws_connection *connection = info ? info->socket_context : NULL;
    ws_request *request = connection ? request_create(server, connection, mhd) : NULL;
    if (!request)
        return MHD_NO;
    *context = request;
    atomic_fetch_add(&server->requests, 1);
    ws_timer_clear(&server->timers, &connection->timer);
    if (ws_head_read(request, url, method, version) != WEIR_OK)
        return MHD_NO;
    if (has_body(request))
        ws_timer_set(&server->timers, &connection->timer, WS_WAIT_BODY, ws_clock());
    return request->answered ? refuse_early(request) : MHD_YES;
}

static enum MHD_Result request_take(ws_request *request, const char *data, size_t *bytes)
{
    size_t got = *bytes;
    *bytes = 0;
    request->body_step += got;
    if (request->body_step >= WS_BODY_STEP) {
        request->body_step = 0;
        ws_timer_set(&request->server->timers, &request->connection->timer, WS_WAIT_BODY, ws_clock());
    }
    if (!request->answered && ws_body_take(request, data, got))
        return MHD_YES;
    request->swallowed += got;
    if (request->swallowed <= WS_SWALLOW)
        return MHD_YES;
    ws_answer_past(request);
    return MHD_NO;
}

enum MHD_Result ws_access(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                          const char *version, const char *data, size_t *bytes, void **context)
{
    ws_request *request = *context;
    if (!request)
        return request_begin(server, mhd, url, method, version, context);
    if (*bytes > 0)
        return request_take(request, data, bytes);
    if (request->dispatched)
        return request_go_on(request);
    ws_timer_clear(&request->server->timers, &request->connection->timer);
    if (request->answered || !ws_body_ends(request))
        return send_answer(request);
    return dispatch(request);
}
