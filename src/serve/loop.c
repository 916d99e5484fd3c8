/* loop.c: the thread for all connections.
 *
 * libmicrohttpd's own loop over epoll waits for ever when a multiple of 128 connections are ready at once. Here it is
 * only asked to do what can be done now (MHD_run), whenever this loop wakes: for its events, for a client that is gone,
 * for news of a request, for a time that is over. Connections are accepted, and connections and requests end, only
 * behind the look at the events, so that the objects of all events still exist. */
#include "parts.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, MOST_LINGERING = 256, READS = 64, ACCEPTS = 64 };

/* A refused client may be sending still. If its bytes were refused, too, the refusal would be lost on the way: they are
 * read and dropped for a while. */
typedef struct lingering {
    ws_watched watched; /* first */
    int fd;
    ws_timer timer;
} lingering;

#define OWNER_OF(type, member, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* ---- news from other threads ------------------------------------------------------------------------------------- */

void ws_tell_loop(ws_server *server)
{
    uint64_t one = 1;
    ssize_t written = write(server->nudge, &one, sizeof one);
    (void)written; /* full: the loop is told already */
}

void ws_news_of(ws_request *request)
{
    ws_server *server = request->server;
    pthread_mutex_lock(&server->news_lock);
    bool first = server->first_news == NULL;
    if (!request->in_news) {
        request->in_news = true;
        request->next_news = NULL;
        *(first ? &server->first_news : &server->last_news->next_news) = request;
        server->last_news = request;
        atomic_fetch_add(&request->references, 1);
    }
    if (first)
        ws_tell_loop(server);
    pthread_mutex_unlock(&server->news_lock);
}

void ws_handled_less(ws_server *server)
{
    pthread_mutex_lock(&server->news_lock);
    server->handled--;
    if (server->stop)
        ws_tell_loop(server);
    pthread_mutex_unlock(&server->news_lock);
}

static void take_news(ws_server *server)
{
    for (;;) {
        pthread_mutex_lock(&server->news_lock);
        ws_request *request = server->first_news;
        if (request) {
            server->first_news = request->next_news;
            request->in_news = false;
        }
        pthread_mutex_unlock(&server->news_lock);
        if (!request)
            return;
        ws_request_wake(request);
        ws_request_drop(request);
    }
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void serve_loop_watch(const ws_server *server, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data.ptr = what};
    if (epoll_ctl(server->polling, EPOLL_CTL_ADD, fd, &event) != 0)
        weir_log(WEIR_LOG_ERROR, "serve: a connection cannot be watched: %s", strerror(errno));
}

static void accept_more(ws_server *server)
{
    uint64_t now = server->connection_count;
    if (server->accepting || server->draining || now >= server->options.limits.connections)
        return;
    server->accepting = true;
    serve_loop_watch(server, server->listening, EPOLLIN, &server->watch_listening);
}

static void stop_accepting(ws_server *server)
{
    if (server->accepting)
        epoll_ctl(server->polling, EPOLL_CTL_DEL, server->listening, NULL);
    server->accepting = false;
}

/* Accepts a few connections at once, as other events wait for the loop, too. When the process or the system has no more
 * files or memory for a connection, tries again later. */
static void accept_some(ws_server *server)
{
    server->to_accept = false;
    for (int i = 0; i < ACCEPTS && server->connection_count < server->options.limits.connections; i++) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        int fd = accept4(server->listening, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            (void)MHD_add_connection(server->daemon, fd, (struct sockaddr *)&from, bytes); /* closes it if it fails */
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            stop_accepting(server);
            ws_timer_set(&server->timers, &server->accept_again, WS_WAIT_ACCEPT, ws_clock());
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
    if (server->connection_count >= server->options.limits.connections)
        stop_accepting(server);
}

/* Watched for its end alone, once for its life: only a change wakes the loop. */
void ws_connection_begins(ws_server *server, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    ws_connection *connection = calloc(1, sizeof *connection);
    *context = connection;
    if (!connection || !info)
        return;
    *connection =
        (ws_connection){.watched = WS_WATCH_CONNECTION, .fd = info->connect_fd, .linger = -1, .server = server};
    connection->next = server->connections;
    if (connection->next)
        connection->next->previous = connection;
    server->connections = connection;
    atomic_fetch_add(&server->connection_count, 1);
    atomic_fetch_add(&server->accepted, 1);
    ws_timer_set(&server->timers, &connection->timer, WS_WAIT_HEAD, ws_clock());
    serve_loop_watch(server, connection->fd, EPOLLRDHUP | EPOLLET, connection);
}

static void begin_lingering(ws_server *server, int fd)
{
    lingering *rest = server->lingering < MOST_LINGERING ? calloc(1, sizeof *rest) : NULL;
    shutdown(fd, SHUT_WR);
    if (!rest) {
        close(fd);
        return;
    }
    server->lingering++;
    *rest = (lingering){.watched = WS_WATCH_LINGER, .fd = fd};
    ws_timer_set(&server->timers, &rest->timer, WS_WAIT_LINGER, ws_clock());
    serve_loop_watch(server, fd, EPOLLIN | EPOLLRDHUP, rest);
}

static void end_lingering(ws_server *server, lingering *rest)
{
    ws_timer_clear(&server->timers, &rest->timer);
    server->lingering--;
    close(rest->fd);
    free(rest);
}

static void drop_bytes(ws_server *server, lingering *rest)
{
    char bytes[16384];
    for (int i = 0; i < READS; i++) {
        ssize_t got = recv(rest->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            end_lingering(server, rest);
            return;
        }
    }
}

void ws_connection_ends(ws_server *server, void **context)
{
    ws_connection *connection = *context;
    *context = NULL;
    if (!connection)
        return;
    ws_timer_clear(&server->timers, &connection->timer);
    *(connection->previous ? &connection->previous->next : &server->connections) = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    /* The other number of a socket would keep it watched. */
    epoll_ctl(server->polling, EPOLL_CTL_DEL, connection->fd, NULL);
    if (connection->linger >= 0)
        begin_lingering(server, connection->linger);
    atomic_fetch_sub(&server->connection_count, 1);
    free(connection);
    if (!server->accept_again.set)
        accept_more(server);
}

void ws_linger(ws_connection *connection)
{
    if (connection->linger < 0 && !connection->server->options.certificate)
        connection->linger = dup(connection->fd);
}

/* ---- answers past libmicrohttpd ---------------------------------------------------------------------------------- */

/* Nothing of an answer was sent before, so that the socket's buffer has room for it. */
static void send_past(ws_connection *connection, unsigned status, const char *type, const void *body, size_t bytes)
{
    char head[512];
    size_t used = (size_t)snprintf(
        head, sizeof head, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
        status, MHD_get_reason_phrase_for(status), type ? type : "text/plain", bytes);
    struct iovec parts[] = {{head, used}, {(void *)(uintptr_t)body, bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    atomic_fetch_add(&connection->server->answered[status / 100 % 6], 1);
    if (!connection->server->options.certificate)
        (void)sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ws_answer_past(ws_request *request)
{
    const ws_answered *answer = &request->answer;
    ws_linger(request->connection);
    send_past(request->connection, answer->status, answer->type, answer->body, answer->bytes);
}

/* libmicrohttpd has no call that ends a connection, but notices the shutdown. */
void ws_connection_end(ws_connection *connection)
{
    shutdown(connection->fd, SHUT_RDWR);
}

/* ---- times that are over ----------------------------------------------------------------------------------------- */

static void head_is_late(ws_connection *connection)
{
    static const char body[] = "{\"error\": \"the head of the request took too long\"}\n";
    if (connection->begun)
        send_past(connection, 408, "application/json", body, sizeof body - 1);
}

static void body_is_late(ws_connection *connection)
{
    ws_request *request = connection->request;
    if (!request->answered)
        ws_refuse(request, 408, "too_slow", "the body of the request took too long", 0);
    send_past(connection, request->answer.status, request->answer.type, request->answer.body, request->answer.bytes);
}

static void timer_is_due(ws_server *server, ws_timer *timer)
{
    if (timer->kind == WS_WAIT_LINGER) {
        end_lingering(server, OWNER_OF(lingering, timer, timer));
        return;
    }
    if (timer->kind == WS_WAIT_CANCEL) {
        ws_request_ask_again(OWNER_OF(ws_request, again, timer));
        return;
    }
    if (timer->kind == WS_WAIT_ACCEPT) {
        accept_more(server);
        return;
    }
    ws_connection *connection = OWNER_OF(ws_connection, timer, timer);
    if (timer->kind == WS_WAIT_HEAD)
        head_is_late(connection);
    else if (timer->kind == WS_WAIT_BODY)
        body_is_late(connection);
    atomic_fetch_add(&server->timed_out, timer->kind == WS_WAIT_HEAD || timer->kind == WS_WAIT_BODY);
    ws_connection_end(connection);
}

/* ---- the end of the server --------------------------------------------------------------------------------------- */

static void begin_drain(ws_server *server, unsigned milliseconds)
{
    server->draining = true;
    server->drain_until = ws_clock() + milliseconds;
    stop_accepting(server);
    close(server->listening);
    server->listening = -1;
    for (ws_connection *c = server->connections; c; c = c->next)
        if (!c->request && !c->begun)
            ws_connection_end(c);
}

static void end_all(ws_server *server)
{
    server->past_drain = true;
    for (ws_connection *c = server->connections; c; c = c->next) {
        ws_connection_end(c);
        if (c->request && c->request->dispatched)
            ws_request_cancel(c->request);
    }
}

/* Answers whether all is over. */
static bool serve_loop_drain(ws_server *server)
{
    pthread_mutex_lock(&server->news_lock);
    bool stop = server->stop, handled = server->handled > 0 || server->first_news;
    unsigned milliseconds = server->drain_ms;
    pthread_mutex_unlock(&server->news_lock);
    if (stop && !server->draining)
        begin_drain(server, milliseconds);
    if (server->draining && !server->past_drain && ws_clock() >= server->drain_until)
        end_all(server);
    return server->draining && !server->connections && !handled;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Cancels the request of a client that has ended its side. A request with its whole answer is not cancelled: the client
 * may still read the answer. Without a dispatched request, the connection ends after WS_WAIT_GONE. */
static void client_is_gone(ws_connection *connection)
{
    ws_request *request = connection->request;
    connection->gone = true;
    if (!request || !request->dispatched) {
        ws_timer_set(&connection->server->timers, &connection->timer, WS_WAIT_GONE, ws_clock());
        return;
    }
    pthread_mutex_lock(&request->lock);
    bool streams = request->streams, waits = !request->answered || streams;
    pthread_mutex_unlock(&request->lock);
    if (waits)
        ws_request_cancel(request);
    if (streams && request->queued_answer)
        ws_connection_end(
            connection); /* libmicrohttpd may wait for room that a client that reads nothing never makes */
}

static void serve_loop_look_at(ws_server *server, void *what)
{
    ws_watched watched = *(ws_watched *)what;
    uint64_t count = 0;
    if (watched == WS_WATCH_CONNECTION)
        client_is_gone(what);
    else if (watched == WS_WATCH_LINGER)
        drop_bytes(server, what);
    else if (watched == WS_WATCH_LISTENING)
        server->to_accept = true;
    else if (watched == WS_WATCH_NUDGE && read(server->nudge, &count, sizeof count) < 0)
        weir_log(WEIR_LOG_DEBUG, "serve: woken for nothing");
}

static int next_wake(ws_server *server)
{
    MHD_UNSIGNED_LONG_LONG theirs = 0;
    uint64_t now = ws_clock();
    int64_t wait = ws_timers_next(&server->timers, now);
    if (MHD_get_timeout(server->daemon, &theirs) == MHD_YES && (wait < 0 || (int64_t)theirs < wait))
        wait = (int64_t)theirs;
    if (server->draining && !server->past_drain) {
        int64_t left = server->drain_until > now ? (int64_t)(server->drain_until - now) : 0;
        wait = wait < 0 || left < wait ? left : wait;
    }
    return wait > 60000 ? 60000 : (int)wait;
}

static void end_timers(ws_server *server)
{
    for (ws_timer *first; (first = server->timers.first[WS_WAIT_LINGER]);)
        end_lingering(server, OWNER_OF(lingering, timer, first));
    for (ws_timer *first; (first = server->timers.first[WS_WAIT_CANCEL]);) {
        ws_timer_clear(&server->timers, first);
        ws_request_drop(OWNER_OF(ws_request, again, first));
    }
}

void *ws_loop(void *user)
{
    ws_server *server = user;
    struct epoll_event events[EVENTS];
    ws_timer *due;
    accept_more(server);
    while (!serve_loop_drain(server)) {
        int count = epoll_wait(server->polling, events, EVENTS, next_wake(server));
        for (int i = 0; i < count; i++)
            serve_loop_look_at(server, events[i].data.ptr);
        take_news(server);
        for (uint64_t now = ws_clock(); (due = ws_timer_due(&server->timers, now));)
            timer_is_due(server, due);
        if (server->to_accept)
            accept_some(server);
        if (MHD_run(server->daemon) != MHD_YES)
            weir_log(WEIR_LOG_ERROR, "serve: libmicrohttpd cannot go on");
    }
    end_timers(server);
    return NULL;
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

uint64_t ws_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void ws_timer_clear(ws_timers *timers, ws_timer *timer)
{
    if (!timer->set) // NOLINT(clang-analyzer-unix.Malloc): what is freed was cleared before, and is in no list
        return;
    *(timer->previous ? &timer->previous->next : &timers->first[timer->kind]) = timer->next;
    *(timer->next ? &timer->next->previous : &timers->last[timer->kind]) = timer->previous;
    timer->set = false;
}

void ws_timer_set(ws_timers *timers, ws_timer *timer, ws_wait kind, uint64_t now)
{
    ws_timer_clear(timers, timer);
    *timer = (ws_timer){.previous = timers->last[kind], .due = now + timers->length[kind], .kind = kind, .set = true};
    *(timer->previous ? &timer->previous->next : &timers->first[kind]) = timer;
    timers->last[kind] = timer;
}

ws_timer *ws_timer_due(ws_timers *timers, uint64_t now)
{
    for (int kind = 0; kind < WS_WAITS; kind++) {
        ws_timer *first = timers->first[kind];
        if (first && first->due <= now) {
            ws_timer_clear(timers, first);
            return first;
        }
    }
    return NULL;
}

int64_t ws_timers_next(const ws_timers *timers, uint64_t now)
{
    int64_t next = -1;
    for (int kind = 0; kind < WS_WAITS; kind++) {
        const ws_timer *first = timers->first[kind];
        int64_t left = !first ? -1 : first->due > now ? (int64_t)(first->due - now) : 0;
        if (left >= 0 && (next < 0 || left < next))
            next = left;
    }
    return next;
}
