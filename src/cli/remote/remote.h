/* remote.h: a server that runs (`weir serve`), as verbs ask it: over HTTP, by libcurl, which is opened when it is first needed. */
#ifndef WEIR_CLI_REMOTE_REMOTE_H
#define WEIR_CLI_REMOTE_REMOTE_H

#include <weir/base.h>

#include <jansson.h>
#include <stddef.h>

typedef struct remote_server {
    const char *url;         /* without a slash at its end; NULL: WEIR_SERVER, else the default */
    const char *key;         /* NULL: WEIR_KEY, else none */
    const char *certificate; /* a file in PEM that signs the server's own; NULL: the system's */
    bool chosen;             /* not the default address: a server has to answer there */
    bool off;                /* WEIR_SERVER is empty: no server is asked */
} remote_server;

/* The options of a verb that asks a server, in a table: `member` of `type` is a remote_server. */
#define ARGS_REMOTE(type, member)                                                                                      \
    {"server", "URL", "the server to ask (default: $WEIR_SERVER, else http://127.0.0.1:8000)", ARG_NAME,               \
     .at = offsetof(type, member.url)},                                                                                \
        {"key", "TEXT", "that it wants (default: $WEIR_KEY)", ARG_NAME, .at = offsetof(type, member.key)},             \
    {                                                                                                                  \
        "cacert", "FILE", "that signs its certificate, in PEM, where the system does not know it", ARG_FILE,           \
            .at = offsetof(type, member.certificate)                                                                   \
    }

/* Fills in what was not given. Answers -1, or the exit status: the address is none. */
int remote_defaults(remote_server *server, const char *verb);

/* What came of a request. */
typedef struct remote_answer {
    bool answered; /* else `failure` says why not */
    bool cannot;   /* there is nothing to ask with */
    long status;
    char *body; /* ends with a 0 */
    size_t bytes;
    char failure[256];
} remote_answer;

/* Is told of what comes of a body as it comes; false ends it. */
typedef bool remote_part(const char *data, size_t bytes, void *user);

typedef struct remote_request {
    const char *method, *path;
    const char *body;  /* JSON; NULL: none */
    unsigned seconds;  /* that it may last; 0: without end */
    remote_part *part; /* of an answer with 200; NULL: it is kept in the answer */
    void *user;
} remote_request;

/* Asks, on this thread; one connection is kept for the calls of one thread's `keep`, which begins as NULL and is given to
 * remote_end. `keep` may be NULL. The body of the answer is the caller's to free. */
void remote_ask(const remote_server *server, const remote_request *request, void **keep, remote_answer *out);
void remote_end(void *keep);

/* The answer's sentence, for the caller to free: why it is no success. */
char *remote_refusal(const remote_server *server, const remote_answer *answer);

/* What GET says at a path, or POST without a body. -1, or the exit status after its line. */
int remote_get(const remote_server *server, const char *path, json_t **out);
int remote_post(const remote_server *server, const char *path, json_t **out);

/* The server's state (docs/guide/serve.md), for verbs that show other things beside it: *out is NULL where none answers at the
 * default address. -1, or the exit status: it was chosen, and does not answer. */
int remote_look(const remote_server *server, json_t **out);

/* The same without a word: NULL where none answers. */
json_t *remote_state(const remote_server *server);

/* Prints a table of the server's models, with `all` also the unloaded and failed models. */
void remote_print_models(const json_t *state, bool all);
/* "2 minutes from now", "forever"; the caller frees it. */
char *remote_until(const json_t *model);

int verb_list(int argc, char **argv);
int verb_show(int argc, char **argv);
/* load, unload, stop, suspend, resume, pin, unpin: argv[0] says which. */
int verb_move(int argc, char **argv);
/* yield.c: of processes that can be watched, which are asked over their sockets. */
int verb_yield(int argc, char **argv);
/* Has a process suspend or resume clients that are idle, by name. Answers the exit status. */
int remote_move_clients(uint64_t pid, const char *verb, char *const *names, size_t count, bool json);

#endif
