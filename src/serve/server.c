/* server.c: an HTTP server is made and ended. */
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES_BESIDE = 64, GONE_MS = 500, LINGER_MS = 2000, CANCEL_MS = 50, ACCEPT_MS = 100 };

ws_limits ws_limits_default(void)
{
    return (ws_limits){.head_bytes = 8192,
                       .bodies = UINT64_C(1) << 30,
                       .connections = 12000,
                       .waiting = 512,
                       .workers = 16,
                       .stream_bytes = 65536,
                       .head_ms = 10000,
                       .body_ms = 30000,
                       .idle_ms = 75000,
                       .stall_ms = 60000};
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static weir_status listen_on(const struct addrinfo *at, int *out)
{
    int yes = 1, fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 4096) == 0) {
        *out = fd;
        return WEIR_OK;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return error == EADDRINUSE ? WEIR_ERR_BUSY : error == EADDRNOTAVAIL ? WEIR_ERR_INVALID : WEIR_ERR_SYSTEM;
}

static void note_address(ws_server *server)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    char host[64] = "", port[16] = "0";
    if (getsockname(server->listening, (struct sockaddr *)&own, &bytes) == 0)
        (void)getnameinfo((struct sockaddr *)&own, bytes, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    server->port = (uint16_t)strtoul(port, NULL, 10);
    bool six = strchr(host, ':') != NULL;
    snprintf(server->address, sizeof server->address, "http%s://%s%s%s:%s", server->options.certificate ? "s" : "",
             six ? "[" : "", host, six ? "]" : "", port);
}

static weir_status begin_listening(ws_server *server)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[8];
    const char *host = server->options.host;
    snprintf(port, sizeof port, "%u", server->options.port);
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return weir_fail(WEIR_ERR_INVALID, "'%.80s' is no address to listen at: %s", host, gai_strerror(error));
    weir_status status = listen_on(found, &server->listening);
    freeaddrinfo(found);
    if (status != WEIR_OK)
        return weir_fail(status, "cannot listen at %.80s, port %s: %s", host, port, strerror(errno));
    note_address(server);
    return WEIR_OK;
}

/* ---- libmicrohttpd ----------------------------------------------------------------------------------------------- */

static void log_theirs(void *user, const char *format, va_list arguments)
{
    char text[512];
    (void)user;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    weir_log(WEIR_LOG_DEBUG, "serve: %s", text);
}

static void connection_changes(void *server, struct MHD_Connection *mhd, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        ws_connection_begins(server, mhd, context);
    else
        ws_connection_ends(server, context);
}

/* The first line has come: from here the head has its time. That of a new connection began with it. */
static void *line_has_come(void *user, const char *uri, struct MHD_Connection *mhd)
{
    ws_server *server = user;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ws_connection *connection = info ? info->socket_context : NULL;
    (void)uri;
    if (connection) {
        connection->begun = true;
        if (connection->timer.kind != WS_WAIT_HEAD)
            ws_timer_set(&server->timers, &connection->timer, WS_WAIT_HEAD, ws_clock());
    }
    return NULL;
}

/* Paths are decoded here, where it is known what a segment is. */
static size_t leave_escapes(void *user, struct MHD_Connection *mhd, char *text)
{
    (void)user;
    (void)mhd;
    return strlen(text);
}

/* Returns the seconds after which libmicrohttpd ends a connection on which nothing moves. This is how a client that
 * takes nothing is noticed (stall_ms). libmicrohttpd has a single limit for all connections, which therefore is not
 * shorter than the other limits. */
static unsigned seconds_of_silence(const ws_limits *limits)
{
    unsigned most = limits->stall_ms;
    most = limits->idle_ms > most ? limits->idle_ms : most;
    most = limits->head_ms > most ? limits->head_ms : most;
    most = limits->body_ms > most ? limits->body_ms : most;
    return (most + 999) / 1000;
}

static weir_status begin_daemon(ws_server *server)
{
    const ws_options *o = &server->options;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (o->certificate ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->key},
                                   {MHD_OPTION_TLS_NO_ALPN, 1, NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    if (o->certificate && (!o->key || MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "TLS needs a certificate and its key, and a libmicrohttpd that has it");
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, ws_access, server, MHD_OPTION_EXTERNAL_LOGGER, log_theirs, server,
        MHD_OPTION_CONNECTION_LIMIT, o->limits.connections + 1, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        o->limits.head_bytes, MHD_OPTION_CONNECTION_TIMEOUT, seconds_of_silence(&o->limits),
        MHD_OPTION_NOTIFY_COMPLETED, ws_completed, server, MHD_OPTION_NOTIFY_CONNECTION, connection_changes, server,
        MHD_OPTION_URI_LOG_CALLBACK, line_has_come, server, MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, o->certificate ? tls : &tls[3], MHD_OPTION_END);
    if (!server->daemon)
        return weir_fail(WEIR_ERR_INVALID, "libmicrohttpd does not start%s",
                         o->certificate ? ": are the certificate and its key good?" : "");
    return WEIR_OK;
}

/* ---- the loop's thread ------------------------------------------------------------------------------------------- */

static weir_status watch_own(ws_server *server)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event theirs = {.events = EPOLLIN, .data.ptr = &server->watch_daemon};
    struct epoll_event own = {.events = EPOLLIN, .data.ptr = &server->watch_nudge};
    server->watch_daemon = WS_WATCH_DAEMON;
    server->watch_nudge = WS_WATCH_NUDGE;
    server->watch_listening = WS_WATCH_LISTENING;
    server->polling = epoll_create1(EPOLL_CLOEXEC);
    server->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!info || server->polling < 0 || server->nudge < 0 ||
        epoll_ctl(server->polling, EPOLL_CTL_ADD, info->epoll_fd, &theirs) != 0 ||
        epoll_ctl(server->polling, EPOLL_CTL_ADD, server->nudge, &own) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot watch connections: %s", strerror(errno));
    return WEIR_OK;
}

/* Signals are the program's own threads'. */
static weir_status begin_threads(ws_server *server)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    weir_status status = ws_workers_begin(server);
    int error = status == WEIR_OK ? pthread_create(&server->loop, NULL, ws_loop, server) : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    server->has_loop = status == WEIR_OK && error == 0;
    return error ? weir_fail(WEIR_ERR_SYSTEM, "no thread for connections: %s", strerror(error)) : status;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static weir_status server_check(const ws_options *options)
{
    const ws_limits *l = &options->limits;
    if (!l->head_bytes || !l->connections || !l->workers || !l->stream_bytes || !l->head_ms || !l->body_ms ||
        !l->idle_ms)
        return weir_fail(WEIR_ERR_INVALID, "a limit of the server is 0; ws_limits_default has good ones");
    for (const ws_route *route = options->routes; route->path; route++)
        if (route->path[0] != '/' || !route->handler || !route->method)
            return weir_fail(WEIR_ERR_INVALID, "the route '%s' has no method, no handler, or does not begin with '/'",
                             route->path);
    return WEIR_OK;
}

/* A connection is a file, and a lingering one another. */
static void fit_files(ws_limits *limits)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= (rlim_t)limits->connections + FILES_BESIDE)
        return;
    unsigned most = files.rlim_cur > (rlim_t)2 * FILES_BESIDE ? (unsigned)files.rlim_cur - FILES_BESIDE : FILES_BESIDE;
    weir_log(WEIR_LOG_WARNING, "serve: %u connections at most, as the process may have %llu files open", most,
             (unsigned long long)files.rlim_cur);
    limits->connections = most;
}

static ws_server *server_allocate(const ws_options *options)
{
    ws_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->options = *options;
    if (!server->options.host)
        server->options.host = "127.0.0.1";
    server->listening = server->polling = server->nudge = -1;
    const ws_limits *l = &server->options.limits;
    const unsigned lengths[WS_WAITS] = {l->head_ms, l->body_ms, l->idle_ms, GONE_MS, LINGER_MS, CANCEL_MS, ACCEPT_MS};
    memcpy(server->timers.length, lengths, sizeof lengths);
    pthread_mutex_init(&server->news_lock, NULL);
    pthread_mutex_init(&server->queue_lock, NULL);
    pthread_cond_init(&server->queue_changed, NULL);
    fit_files(&server->options.limits);
    return server;
}

static void server_close_file(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Once no thread of it runs. */
static void server_release(ws_server *server)
{
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    server_close_file(server->listening);
    server_close_file(server->nudge);
    server_close_file(server->polling);
    pthread_mutex_lock(&server->news_lock); /* whoever has ended the last request has let go of it */
    pthread_mutex_unlock(&server->news_lock);
    pthread_mutex_destroy(&server->news_lock);
    pthread_mutex_destroy(&server->queue_lock);
    pthread_cond_destroy(&server->queue_changed);
    free(server);
}

weir_status ws_server_create(const ws_options *options, ws_server **out)
{
    weir_status status = server_check(options);
    ws_server *server = status == WEIR_OK ? server_allocate(options) : NULL;
    *out = NULL;
    if (status == WEIR_OK && !server)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a server");
    if (status == WEIR_OK)
        status = begin_listening(server);
    if (status == WEIR_OK)
        status = begin_daemon(server);
    if (status == WEIR_OK)
        status = watch_own(server);
    if (status == WEIR_OK)
        status = begin_threads(server);
    if (status == WEIR_OK) {
        *out = server;
    } else if (server) {
        if (server->workers)
            ws_workers_end(server);
        server_release(server);
    }
    return status;
}

void ws_server_destroy(ws_server *server, unsigned drain_ms)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->news_lock);
    server->stop = true;
    server->drain_ms = drain_ms;
    ws_tell_loop(server);
    pthread_mutex_unlock(&server->news_lock);
    pthread_join(server->loop, NULL);
    ws_workers_end(server);
    server_release(server);
}

uint16_t ws_server_port(const ws_server *server)
{
    return server->port;
}

const char *ws_server_address(const ws_server *server)
{
    return server->address;
}

void ws_server_info(ws_server *server, ws_server_stats *out)
{
    *out = (ws_server_stats){.connections = server->connection_count,
                             .accepted = server->accepted,
                             .requests = server->requests,
                             .streams = server->streams,
                             .cancelled = server->cancelled,
                             .cancelled_waiting = server->cancelled_waiting,
                             .timed_out = server->timed_out,
                             .stream_bytes = server->stream_bytes,
                             .body_bytes = server->body_bytes};
    for (int i = 0; i < 6; i++)
        out->answered[i] = server->answered[i];
    pthread_mutex_lock(&server->news_lock);
    out->handled = server->handled;
    pthread_mutex_unlock(&server->news_lock);
    pthread_mutex_lock(&server->queue_lock);
    out->waiting = server->waiting;
    pthread_mutex_unlock(&server->queue_lock);
}
