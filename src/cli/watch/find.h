/* find.h: the watchable processes of this user, and their answers. */
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

/* Asks all processes, or only process `pid` if `pid` is not 0. Removes the sockets of processes that are gone. Waits
 * for the processes at the same time, at most two seconds for each. `request` is "stats" or "layout". */
void watched_find(uint64_t pid, const char *request, watched_list *out);
void watched_clear(watched_list *list);
/* A server's state (docs/guide/serve.md), in the form of a process's answer, before all processes. Takes the reference. */
void watched_add_server(watched_list *list, const char *url, json_t *state);

/* Read a member of an object of an answer; 0 and "" where the member is missing. */
uint64_t watched_number(const json_t *object, const char *key);
const char *watched_text(const json_t *object, const char *key);
/* The sum of a member over a list, of `inner` (a key of an object in each) if it is not NULL. */
uint64_t watched_sum(const json_t *list, const char *inner, const char *key);

#endif
