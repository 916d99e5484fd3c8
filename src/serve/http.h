/* http.h: an HTTP/1.1 server: requests in, answers and streams out.
 *
 * A single thread serves all connections (loop.c): it accepts, reads and writes, and waits for nothing. Handlers that
 * may take long run on workers, a few threads in front of which requests wait in order, or wherever a handler takes its
 * request (ws_keep). There is no thread for each connection, and none for each stream.
 *
 * The life of a request:
 *
 * | it is | on | ends by |
 * |---|---|---|
 * | read: its head, then its body | the loop | a refusal; a limit; the client that goes |
 * | waiting for a worker | the loop | the client that goes; ws_server_stop |
 * | handled | a worker, or who has kept it | ws_answer, or ws_stream and ws_end |
 * | sent | the loop | the last byte; the client that goes, or that takes nothing for `stall_ms` |
 *
 * A client is gone when its connection breaks, and also when it ends its own side of it (a half-closed connection): nobody
 * can tell these apart before an answer is sent. That is noticed at once, also while nothing is read or written. Its
 * request is then cancelled: out of the queue if it waits there; else `cancel` is called (ws_on_cancel), and what is
 * written to its stream is refused.
 *
 * Everything that a client sends has a limit (ws_limits). What breaks one is refused with a status and a sentence, and
 * its connection is closed. HTTP/2 is not spoken. */
#ifndef WEIR_SERVE_HTTP_H
#define WEIR_SERVE_HTTP_H

#include <weir/base.h>

typedef struct ws_server ws_server;
typedef struct ws_request ws_request;

typedef void (*ws_handler)(ws_request *request, void *user);

/* The handler of a method at a path. A table of routes ends with a route whose path is NULL, and is valid as long as
 * the server. */
typedef struct ws_route {
    const char *method; /* "GET", which answers HEAD as well, "POST", "DELETE"; OPTIONS is answered for every path */
    const char *path;   /* "/v2/models/{}/infer"; {} stands for one segment that is not empty: ws_segment */
    ws_handler handler; /* gets the request with its body */
    uint64_t most_body; /* bytes of the body, as they are sent and when they are inflated; 0: it takes none */
    bool on_loop;       /* the handler is called on the loop's thread: it may not wait; else on a worker */
    bool open;          /* no key is asked for */
} ws_route;

typedef struct ws_limits {
    size_t head_bytes;    /* of the request line and all header fields, and what an idle connection costs */
    uint64_t bodies;      /* bytes of all bodies that are in memory at once */
    unsigned connections; /* more of them wait in the kernel's queue */
    unsigned waiting;     /* requests that wait for a worker; one more is refused with 429 */
    unsigned workers;     /* threads */
    size_t stream_bytes;  /* bytes that a stream keeps for its client */
    unsigned head_ms;     /* from the first line (of a new connection: from its beginning) to the end of the head */
    unsigned body_ms;     /* for each 64 KiB of a body, or what is left of it */
    unsigned idle_ms;     /* between two requests of one connection */
    unsigned stall_ms;    /* for which a client may take none of the bytes that are ready; whole seconds count */
} ws_limits;

ws_limits ws_limits_default(void);

typedef struct ws_options {
    const char *host; /* an address to listen at: "127.0.0.1", "::1", "0.0.0.0"; NULL: 127.0.0.1 */
    uint16_t port;    /* 0: any that is free */
    const ws_route *routes;
    void *user; /* of all handlers */
    ws_limits limits;
    const char *const *keys; /* "Authorization: Bearer KEY" has to have one of them; ends with NULL; NULL: none asked */
    const char *certificate, *key; /* texts in PEM: with them TLS is spoken, and nothing else; NULL: no TLS */
    /* Optional. Writes the body of a refusal by the server itself, in the form of the protocol that has this path. `code`
     * and `sentence` need no escaping in JSON. Answers its bytes, fewer than `room`. NULL: {"error": "SENTENCE"}. Any thread. */
    size_t (*refusal)(const char *path, unsigned status, const char *code, const char *sentence, char *body,
                      size_t room);
} ws_options;

/* Starts it: when this returns, connections are accepted. Strings and tables of `options` stay valid until it is destroyed.
 * Errors: WEIR_ERR_INVALID (an address, a route), WEIR_ERR_BUSY (the port is taken), WEIR_ERR_UNSUPPORTED (TLS),
 * WEIR_ERR_SYSTEM. */
WEIR_NODISCARD weir_status ws_server_create(const ws_options *options, ws_server **out);

/* The port that it listens at, and where: "http://127.0.0.1:8000". Any thread. */
uint16_t ws_server_port(const ws_server *server);
const char *ws_server_address(const ws_server *server);

/* Ends it: from now on no connection is accepted, and each is closed after its answer. After `drain_ms` what still waits,
 * runs or streams is cancelled, and its connections are closed. Returns when every request has been given back (ws_end)
 * and all threads have ended; frees it. NULL is allowed. Not from a handler. */
void ws_server_destroy(ws_server *server, unsigned drain_ms);

typedef struct ws_server_stats {
    uint64_t connections, accepted;     /* now, and ever */
    uint64_t requests, answered[6];     /* heads that were understood; answers by the hundred of their status */
    uint64_t waiting, handled, streams; /* now: in the queue, at a handler, answers in pieces that are not over */
    uint64_t cancelled;                 /* requests whose client went before the answer was there */
    uint64_t cancelled_waiting;         /* of those, requests that no handler has seen */
    uint64_t timed_out;                 /* connections closed for one of the times in ws_limits */
    uint64_t stream_bytes, body_bytes;  /* now: in the queues of streams; of bodies in memory */
} ws_server_stats;

/* Any thread. */
void ws_server_info(ws_server *server, ws_server_stats *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* A request. Its handler has it until it returns, or, once ws_keep was called, until ws_end; only then may what follows be
 * called. Texts are valid as long. */

/* Its server: a handler may be called before ws_server_create has returned. */
ws_server *ws_server_of(const ws_request *request);
const char *ws_method(const ws_request *request);
/* As it was sent, without what follows a "?". */
const char *ws_path(const ws_request *request);
/* What stands where the route's path has its {} number `index`, from 0, decoded; "" past the last. It has no control
 * characters, is UTF-8, and is neither "." nor "..". It may hold '/' (sent as %2F). */
const char *ws_segment(const ws_request *request, size_t index);
/* The value of a header field, whatever the case of its name; NULL: there is none. Authorization is never shown. */
const char *ws_header(const ws_request *request, const char *name);
/* The body, inflated, behind which stands a 0; NULL where there is none. */
const char *ws_body(const ws_request *request, size_t *bytes);

/* One field more of the answer; before it. At most 8; `value` has no control characters. An
 * empty one adds nothing. */
void ws_add_header(ws_request *request, const char *name, const char *value);

/* Answers, once: a second answer is dropped. The bytes are copied; ws_answer_own takes memory of malloc's. Without
 * memory for it the answer is 500. */
void ws_answer(ws_request *request, unsigned status, const char *type, const void *body, size_t bytes);
void ws_answer_own(ws_request *request, unsigned status, const char *type, void *body, size_t bytes);
/* A refusal in the form of the path's protocol (ws_options.refusal). `retry_after` seconds; 0: the field is left out. */
void ws_refuse(ws_request *request, unsigned status, const char *code, const char *sentence, unsigned retry_after);

/* Begins an answer in pieces, chunked for HTTP/1.1. It ends with ws_end. */
void ws_stream(ws_request *request, unsigned status, const char *type);
/* Appends to the stream. While its queue is full it waits for the client to read. WEIR_ERR_CANCELLED: the client is gone,
 * or the request is cancelled; nothing more is sent. WEIR_ERR_SYSTEM: no memory. Any thread but the loop's. */
WEIR_NODISCARD weir_status ws_write(ws_request *request, const void *data, size_t bytes);
/* The same without waiting: WEIR_ERR_BUSY if there is no room; nothing is appended then. What is larger than the queue has
 * room when it is empty. Any thread. */
WEIR_NODISCARD weir_status ws_try_write(ws_request *request, const void *data, size_t bytes);

/* Whether its client is gone or the server has cancelled it. Any thread. */
bool ws_cancelled(ws_request *request);
/* `cancel` is called when that happens or has happened, and again every 50 ms until ws_end, as what it stops may not have
 * begun. On the loop's thread: it may not wait. Not any more when ws_end has returned. */
void ws_on_cancel(ws_request *request, void (*cancel)(void *user), void *user);

/* The handler returns and the request goes on; whoever has it ends it. */
void ws_keep(ws_request *request);
/* Gives the request back, from any thread: a stream ends, and a request without an answer is answered with 500. */
void ws_end(ws_request *request);

#endif
