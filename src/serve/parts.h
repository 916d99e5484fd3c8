/* parts.h: what the files of the HTTP server share. */
#ifndef WEIR_SERVE_PARTS_H
#define WEIR_SERVE_PARTS_H

#include "serve/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zlib.h>

enum {
    WS_SEGMENTS = 4,     /* {} in a route's path, at most */
    WS_FIELDS = 8,       /* header fields that a handler adds */
    WS_SWALLOW = 65536,  /* bytes of a refused body that are read and dropped, so that the connection can go on */
    WS_BODY_STEP = 65536 /* bytes of a body in body_ms */
};

/* What the loop waits for, each kind always equally long: so every list is in order of time. */
typedef enum ws_wait {
    WS_WAIT_HEAD,
    WS_WAIT_BODY,
    WS_WAIT_IDLE,
    WS_WAIT_GONE,   /* for bytes before the end of a client's side: libmicrohttpd may have read them without the end */
    WS_WAIT_LINGER, /* a refused client's bytes are read and dropped for so long */
    WS_WAIT_CANCEL, /* until a cancelled request is asked to end again */
    WS_WAIT_ACCEPT, /* until connections are accepted again, when there was no file for one */
    WS_WAITS
} ws_wait;

typedef struct ws_timer {
    struct ws_timer *previous, *next;
    uint64_t due; /* milliseconds of ws_clock */
    ws_wait kind;
    bool set;
} ws_timer;

typedef struct ws_timers {
    ws_timer *first[WS_WAITS], *last[WS_WAITS];
    unsigned length[WS_WAITS]; /* milliseconds */
} ws_timers;

/* What the kernel is asked to watch for the loop. */
typedef enum ws_watched {
    WS_WATCH_CONNECTION,
    WS_WATCH_LINGER,
    WS_WATCH_NUDGE,
    WS_WATCH_DAEMON,
    WS_WATCH_LISTENING
} ws_watched;

typedef struct ws_connection {
    ws_watched watched; /* first */
    int fd;
    bool gone;  /* the client has ended its side, or the connection is broken */
    bool begun; /* the first line of a request has come */
    int linger; /* another number of the same socket, or -1: it keeps the socket open when libmicrohttpd has closed it */
    ws_timer timer; /* HEAD, BODY or IDLE */
    ws_request *request;
    ws_server *server;
    struct ws_connection *previous, *next;
} ws_connection;

typedef struct ws_text {
    char *data;
    size_t bytes, room;
} ws_text;

typedef struct ws_answered {
    unsigned status;
    const char *type;
    void *body;
    size_t bytes;
    char *names[WS_FIELDS], *values[WS_FIELDS];
    size_t fields;
} ws_answered;

struct ws_request {
    ws_server *server;
    const ws_route *route;
    atomic_uint references; /* the loop's, the handler's, one while it is in the list of news */

    /* The loop's alone. */
    ws_connection *connection; /* NULL: it is closed, or the request is over */
    struct MHD_Connection *mhd;
    bool suspended, dispatched, queued_answer;
    uint64_t body_sent, body_step, swallowed; /* bytes as they were sent */
    ws_timer again;                           /* CANCEL */

    /* Written before a handler sees them. */
    char method[16];
    char *path;         /* as it was sent */
    char *segment_text; /* where the segments lie, decoded */
    const char *segments[WS_SEGMENTS];
    ws_text fields; /* name, 0, value, 0, … */
    ws_text body;
    z_stream *inflating;
    bool expects, chunked;
    bool broken;        /* where it ends cannot be told */
    uint64_t announced; /* Content-Length */

    /* Under the queue's lock. */
    struct ws_request *before, *after; /* waiting for a worker */
    bool waiting;
    struct ws_request *next_news; /* under the lock of the news */
    bool in_news;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under `lock`. */
    bool answered, streams, ended, retained, cancelled, sleeping, cancelling;
    ws_answered answer;
    ws_text stream; /* from stream_at on, as a ring would hold it */
    size_t stream_at;
    void (*cancel)(void *user);
    void *cancel_user;
};

struct ws_server {
    ws_options options;
    char address[128];
    uint16_t port;
    struct MHD_Daemon *daemon;
    int listening, polling, nudge;
    ws_watched watch_nudge, watch_daemon, watch_listening; /* what their events point at */
    pthread_t loop;
    bool has_loop;

    /* The loop's alone. */
    ws_timers timers;
    ws_connection *connections;
    unsigned lingering;
    bool accepting, to_accept, draining, past_drain;
    ws_timer accept_again;
    uint64_t drain_until;

    pthread_mutex_t news_lock;
    ws_request *first_news, *last_news; /* requests that the loop is to look at */
    bool stop;                          /* and what ws_server_destroy asks for */
    unsigned drain_ms;
    uint64_t handled; /* requests that handlers have, kept requests included */

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_changed;
    ws_request *first, *last; /* requests that wait for a worker */
    unsigned waiting, idle_workers;
    bool no_more;
    pthread_t *workers;
    unsigned worker_count;

    atomic_uint_fast64_t connection_count, accepted, requests, answered[6], streams, cancelled, cancelled_waiting,
        timed_out, stream_bytes, body_bytes;
};

/* loop.c */
uint64_t ws_clock(void);
void ws_timer_set(ws_timers *timers, ws_timer *timer, ws_wait kind, uint64_t now);
void ws_timer_clear(ws_timers *timers, ws_timer *timer);
/* The first that is due, cleared; NULL if there is none. */
ws_timer *ws_timer_due(ws_timers *timers, uint64_t now);
/* Milliseconds until the next is due; -1: none is set. */
int64_t ws_timers_next(const ws_timers *timers, uint64_t now);
void *ws_loop(void *user);
void ws_tell_loop(ws_server *server);    /* any thread */
void ws_news_of(ws_request *request);    /* any thread; keeps a reference */
void ws_handled_less(ws_server *server); /* the last that a thread does with the server for a request */
void ws_connection_begins(ws_server *server, struct MHD_Connection *mhd, void **context);
void ws_connection_ends(ws_server *server, void **context);
void ws_connection_end(ws_connection *connection);
void ws_linger(ws_connection *connection); /* the answer that follows has to reach a client that may be sending */
/* Writes a short answer past libmicrohttpd, which takes none while a body is being read; the connection is to be closed. */
void ws_answer_past(ws_request *request);

/* request.c */
enum MHD_Result ws_access(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                          const char *version, const char *data, size_t *bytes, void **context);
void ws_completed(void *user, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code);
void ws_request_drop(ws_request *request);
/* The client is gone, or the time for draining is over: takes it out of the queue, or tells its handler, unless it is
 * over or its whole answer is there. On the loop. */
void ws_request_cancel(ws_request *request);
void ws_request_ask_again(ws_request *request);
/* On the loop, when its state may have changed. */
void ws_request_wake(ws_request *request);

/* head.c: fills the request from the head; a refusal is its answer. WEIR_ERR_SYSTEM: no memory. */
weir_status ws_head_read(ws_request *request, const char *url, const char *method, const char *version);

/* route.c */
typedef enum ws_match { WS_MATCH, WS_NO_PATH, WS_NO_METHOD, WS_BAD_PATH } ws_match;
/* Decodes `path` in place, splits it, and finds the route. `allowed`, 64 bytes, gets the methods of the path. */
ws_match ws_route_find(const ws_route *routes, const char *method, char *path, const ws_route **out,
                       const char *segments[WS_SEGMENTS], char *allowed);

/* body.c */
/* Takes a part as it was sent. False: the request is answered with a refusal. */
bool ws_body_take(ws_request *request, const void *data, size_t bytes);
bool ws_body_ends(ws_request *request);
weir_status ws_body_begin(ws_request *request, const char *encoding);
void ws_body_clear(ws_request *request);

/* answer.c */
struct MHD_Response *ws_response_of(ws_request *request);
void ws_answer_clear(ws_answered *answer);

/* stream.c */
ssize_t ws_stream_read(void *user, uint64_t at, char *to, size_t most);

/* workers.c */
weir_status ws_workers_begin(ws_server *server);
void ws_workers_end(ws_server *server);
/* False: as many wait as may. */
bool ws_workers_take(ws_request *request);
/* True: the request was waiting, and is out of the queue now. */
bool ws_workers_give_up(ws_request *request);
void ws_handle(ws_request *request, ws_handler handler);

#endif
