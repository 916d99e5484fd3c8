/* The connections of a process that can be watched: one thread, a few at a time, each with a limit of time and of bytes. */
#include "base/system.h"
#include "base/paths.h"
#include "runtime/watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECOND = 1000000000, MILLISECOND = 1000000, JOB_LOOK = 2 * MILLISECOND };

/* Free while file.number < 0. It reads its request first; then it has `job`, until a command is carried out, or `rest`, the
 * part of the answer that the socket had no room for. */
typedef struct connection {
    wi_watch_file file;
    bool owner; /* of the process: its peer may have commands carried out */
    wi_watch_job *job;
    uint64_t until;
    char request[WI_WATCH_REQUEST];
    size_t got;
    char *rest;
    size_t sent, length;
} connection;

static struct server {
    wi_watch_file listener;
    const char *command;
    uint64_t paused; /* until then nobody is accepted: the process has no more files */
    connection connections[WI_WATCH_CONNECTIONS];
    weir_client_stats *clients;
    char *answer; /* the answer that is being made */
} server = {.listener = {.number = -1}};

/* Held while a file is opened or closed, so that the child of a fork knows which there are. */
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

/* Files ------------------------------------------------------------------------------------------------------------ */

wi_watch_file wi_watch_file_of(int number)
{
    struct stat found;
    if (number < 0 || fstat(number, &found) != 0)
        return (wi_watch_file){.number = -1};
    return (wi_watch_file){number, found.st_dev, found.st_ino};
}

bool wi_watch_file_is(const wi_watch_file *file)
{
    wi_watch_file now = wi_watch_file_of(file->number);
    return now.number >= 0 && now.device == file->device && now.inode == file->inode;
}

/* The lock is held, or the thread is gone. */
static void watch_serve_close_file(wi_watch_file *file)
{
    if (wi_watch_file_is(file))
        close(file->number);
    file->number = -1;
}

void wi_watch_before_fork(void)
{
    pthread_mutex_lock(&files_lock);
}

void wi_watch_after_fork(bool child)
{
    if (child) {
        watch_serve_close_file(&server.listener);
        for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++)
            watch_serve_close_file(&server.connections[i].file);
    }
    pthread_mutex_unlock(&files_lock);
}

static void watch_serve_drop(connection *c)
{
    pthread_mutex_lock(&files_lock);
    watch_serve_close_file(&c->file);
    pthread_mutex_unlock(&files_lock);
    wi_watch_leave(c->job);
    c->job = NULL;
    free(c->rest);
    c->rest = NULL;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

/* Sends what the socket has room for. False: the reader is gone. */
static bool send_some(const connection *c, const char *text, size_t length, size_t *sent)
{
    while (*sent < length) {
        ssize_t count = send(c->file.number, text + *sent, length - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        *sent += (size_t)count;
    }
    return true;
}

/* What does not go at once is kept for the connection, so that the next answer can be made. */
static void watch_serve_send(connection *c, const char *answer, size_t length)
{
    size_t sent = 0;
    bool there = send_some(c, answer, length, &sent);
    if (there && sent < length && (c->rest = malloc(length - sent)) != NULL) {
        memcpy(c->rest, answer + sent, length - sent);
        c->length = length - sent;
        c->sent = 0;
        wi_watch_leave(c->job);
        c->job = NULL;
        return;
    }
    watch_serve_drop(c);
}

static void watch_serve_answer(connection *c)
{
    if (c->owner && wi_watch_is_command(c->request) && (c->job = wi_watch_begin(c->request, server.command)) != NULL) {
        c->until = wi_now() + WI_WATCH_COMMAND_SECONDS * (uint64_t)SECOND;
        return;
    }
    size_t length = wi_watch_answer(c->request, server.command, server.clients, server.answer);
    watch_serve_send(c, server.answer, length);
}

/* Sends the answer to a command that has been carried out. */
static void watch_serve_finish(connection *c)
{
    size_t length;
    const char *answer = wi_watch_result(c->job, &length);
    if (answer && wi_watch_file_is(&c->file)) {
        c->until = wi_now() + WI_WATCH_SECONDS * (uint64_t)SECOND;
        watch_serve_send(c, answer, length);
    } else if (answer)
        watch_serve_drop(c);
}

static void watch_serve_read_request(connection *c)
{
    ssize_t count = recv(c->file.number, c->request + c->got, sizeof c->request - c->got, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    char *end = count > 0 ? memchr(c->request + c->got, '\n', (size_t)count) : NULL;
    c->got += count > 0 ? (size_t)count : 0;
    if (count <= 0) {
        watch_serve_drop(c);
    } else if (end || c->got == sizeof c->request) {
        *(end ? end : c->request) = '\0'; /* a request without an end is refused like an empty request, */
        if (end && strlen(c->request) < (size_t)(end - c->request))
            c->request[0] = '\0'; /* and so is a request that contains a 0 */
        watch_serve_answer(c);
    }
}

static void watch_serve_go_on(connection *c)
{
    bool here = wi_watch_file_is(&c->file) && !c->job; /* with a command under way its reader is gone */
    if (here && !c->rest)
        watch_serve_read_request(c);
    else if (!here || !send_some(c, c->rest, c->length, &c->sent) || c->sent == c->length)
        watch_serve_drop(c);
}

/* Connections ------------------------------------------------------------------------------------------------------ */

static connection *free_connection(void)
{
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++)
        if (server.connections[i].file.number < 0)
            return &server.connections[i];
    return NULL;
}

/* A file whose peer is asked: it may be of another user, where the folder was opened up. *owner: it is the process's own,
 * and not only root. */
static bool is_allowed(int file, bool *owner)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return false;
    *owner = peer.uid == geteuid();
    return wi_watch_allows(geteuid(), peer.uid);
}

static void accept_one(connection *c)
{
    pthread_mutex_lock(&files_lock);
    int file = accept4(server.listener.number, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    bool owner = false,
         failed = file < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED;
    if (file >= 0 && !is_allowed(file, &owner))
        close(file);
    else if (file >= 0)
        *c = (connection){
            .file = wi_watch_file_of(file), .owner = owner, .until = wi_now() + WI_WATCH_SECONDS * (uint64_t)SECOND};
    pthread_mutex_unlock(&files_lock);
    if (failed)
        server.paused = wi_now() + SECOND;
}

/* Milliseconds until the first limit passes, or a command is looked for; -1: there is none. */
static int time_left(void)
{
    uint64_t now = wi_now(), first = server.paused > now ? server.paused : UINT64_MAX;
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++)
        if (server.connections[i].file.number >= 0)
            first = wi_min(first, server.connections[i].job ? now + JOB_LOOK : server.connections[i].until);
    if (first == UINT64_MAX)
        return -1;
    return first <= now ? 0 : (int)((first - now) / MILLISECOND + 1);
}

/* Waits until something can be done. The last file is the listening socket; it is left out while there is no place for a
 * connection. */
static void wait_for_files(struct pollfd files[WI_WATCH_CONNECTIONS + 1])
{
    bool accepts = free_connection() && server.paused <= wi_now();
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++) {
        const connection *c = &server.connections[i];
        files[i] = (struct pollfd){.fd = c->file.number, .events = c->job ? 0 : c->rest ? POLLOUT : POLLIN};
    }
    files[WI_WATCH_CONNECTIONS] = (struct pollfd){.fd = accepts ? server.listener.number : -1, .events = POLLIN};
    if (poll(files, WI_WATCH_CONNECTIONS + 1, time_left()) < 0)
        for (size_t i = 0; i <= WI_WATCH_CONNECTIONS; i++)
            files[i].revents = 0;
}

static void serve_once(void)
{
    struct pollfd files[WI_WATCH_CONNECTIONS + 1];
    wait_for_files(files);
    uint64_t now = wi_now();
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++) {
        connection *c = &server.connections[i];
        if (c->file.number >= 0 && files[i].revents)
            watch_serve_go_on(c);
        if (c->file.number >= 0 && c->job)
            watch_serve_finish(c);
        if (c->file.number >= 0 && c->until <= now)
            watch_serve_drop(c);
    }
    connection *next = free_connection();
    if (next && files[WI_WATCH_CONNECTIONS].revents && wi_watch_file_is(&server.listener))
        accept_one(next);
}

void wi_watch_serve(void)
{
    while (wi_watch_file_is(&server.listener))
        serve_once();
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++)
        if (server.connections[i].file.number >= 0)
            watch_serve_drop(&server.connections[i]);
}

/* Beginning -------------------------------------------------------------------------------------------------------- */

int wi_watch_open(void)
{
    pthread_mutex_lock(&files_lock);
    for (size_t i = 0; i < WI_WATCH_CONNECTIONS; i++)
        server.connections[i].file.number = -1;
    server.listener = wi_watch_file_of(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    pthread_mutex_unlock(&files_lock);
    return server.listener.number;
}

void wi_watch_close(void)
{
    pthread_mutex_lock(&files_lock);
    watch_serve_close_file(&server.listener);
    pthread_mutex_unlock(&files_lock);
}

bool wi_watch_prepare(const char *command)
{
    server.command = command;
    server.clients = calloc(WI_WATCH_CLIENTS, sizeof *server.clients);
    server.answer = malloc(WI_WATCH_BYTES);
    if (server.clients && server.answer)
        return true;
    free(server.clients);
    free(server.answer);
    return false;
}
