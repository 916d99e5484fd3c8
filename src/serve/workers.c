/* workers.c: the threads that run handlers, and the queue of requests in front of them. */
#include "parts.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The handler's reference is the caller's; ws_end gives it back. */
void ws_handle(ws_request *request, ws_handler handler)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&server->news_lock);
    server->handled++;
    pthread_mutex_unlock(&server->news_lock);
    atomic_fetch_add(&request->references, 1); /* a request that is kept may end before its handler */
    handler(request, server->options.user);
    if (!request->retained)
        ws_end(request);
    ws_request_drop(request);
}

static ws_request *take_first(ws_server *server)
{
    ws_request *first = server->first;
    server->first = first->after;
    *(first->after ? &first->after->before : &server->last) = NULL;
    first->waiting = false;
    server->waiting--;
    return first;
}

static void *workers_work(void *user)
{
    ws_server *server = user;
    pthread_mutex_lock(&server->queue_lock);
    while (!server->no_more || server->first) {
        if (!server->first) {
            server->idle_workers++;
            pthread_cond_wait(&server->queue_changed, &server->queue_lock);
            server->idle_workers--;
            continue;
        }
        ws_request *request = take_first(server);
        pthread_mutex_unlock(&server->queue_lock);
        ws_handle(request, request->route->handler);
        pthread_mutex_lock(&server->queue_lock);
    }
    pthread_mutex_unlock(&server->queue_lock);
    return NULL;
}

/* Those that go straight to an idle worker do not count as waiting, so that `waiting` 0 is a queue, too. */
bool ws_workers_take(ws_request *request)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&server->queue_lock);
    bool takes = server->waiting < server->options.limits.waiting + server->idle_workers;
    if (takes) {
        request->before = server->last;
        *(server->last ? &server->last->after : &server->first) = request;
        server->last = request;
        request->waiting = true;
        server->waiting++;
        pthread_cond_signal(&server->queue_changed);
    }
    pthread_mutex_unlock(&server->queue_lock);
    return takes;
}

bool ws_workers_give_up(ws_request *request)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&server->queue_lock);
    bool waited = request->waiting;
    if (waited) {
        *(request->before ? &request->before->after : &server->first) = request->after;
        *(request->after ? &request->after->before : &server->last) = request->before;
        request->waiting = false;
        server->waiting--;
    }
    pthread_mutex_unlock(&server->queue_lock);
    return waited;
}

weir_status ws_workers_begin(ws_server *server)
{
    unsigned count = server->options.limits.workers;
    server->workers = calloc(count + 1, sizeof *server->workers);
    if (!server->workers)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %u workers", count);
    for (; server->worker_count < count; server->worker_count++) {
        int error = pthread_create(&server->workers[server->worker_count], NULL, workers_work, server);
        if (error)
            return weir_fail(WEIR_ERR_SYSTEM, "no thread for worker %u of %u: %s", server->worker_count + 1, count,
                             strerror(error));
    }
    return WEIR_OK;
}

void ws_workers_end(ws_server *server)
{
    pthread_mutex_lock(&server->queue_lock);
    server->no_more = true;
    pthread_cond_broadcast(&server->queue_changed);
    pthread_mutex_unlock(&server->queue_lock);
    for (unsigned i = 0; i < server->worker_count; i++)
        pthread_join(server->workers[i], NULL);
    free(server->workers);
    server->workers = NULL;
    server->worker_count = 0;
}
