/* find.h: the processes of this user that can be watched, and what each tells of itself. */
#ifndef WEIR_CLI_WATCH_FIND_H
#define WEIR_CLI_WATCH_FIND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct watched {
    uint64_t pid;   /* 0: a server (`weir serve`), asked over HTTP */
    char *command;  /* clean */
    json_t *answer; /* NULL: it does not answer; else an object with a list `runtimes` of objects */
} watched;

typedef struct watched_list {
    watched *list; /* by pid */
    size_t count;
    char *problem; /* why a folder was not looked into; NULL: none */
} watched_list;

/* Asks all of them, or the one with this pid, if it is not 0; sockets of processes that are gone are removed. None is waited
 * for longer than two seconds, and all are waited for together. `request` is "stats" or "layout". */
void watched_find(uint64_t pid, const char *request, watched_list *out);
void watched_clear(watched_list *list);
/* A server's state (docs/guide/serve.md), in the form of a process's answer, before all processes. Takes the reference. */
void watched_add_server(watched_list *list, const char *url, json_t *state);

/* Of an answer's objects: 0 and "" where there is no such member. */
uint64_t watched_number(const json_t *object, const char *key);
const char *watched_text(const json_t *object, const char *key);
/* The sum of a member over a list, of `inner` (a key of an object in each) if it is not NULL. */
uint64_t watched_sum(const json_t *list, const char *inner, const char *key);

#endif
