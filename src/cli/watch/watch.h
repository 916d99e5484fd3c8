/* watch.h: what the verbs ps and top share. */
#ifndef WEIR_CLI_WATCH_WATCH_H
#define WEIR_CLI_WATCH_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- find.c: the watchable processes of this user, and their answers --------------------------------------------- */

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
/* The same for a command of one process's (runtime/watch/watch.h), which may take its time: at most two minutes. */
void watched_command(uint64_t pid, const char *request, watched_list *out);
void watched_clear(watched_list *list);
/* A server's state (docs/guide/serve.md), in the form of a process's answer, before all processes. Takes the reference. */
void watched_add_server(watched_list *list, const char *url, json_t *state);

/* The sum of a member over a list, of `inner` (a key of an object in each) if it is not NULL. */
uint64_t watched_sum(const json_t *list, const char *inner, const char *key);

/* ---- screen.c: use of the whole terminal: the alternate screen and the keys -------------------------------------- */

/* A letter stands for itself. */
typedef enum screen_key {
    SCREEN_NOTHING = 0, /* the time is over, or the terminal has another size */
    SCREEN_END = -1,    /* a signal asked for the end, or the terminal is gone */
    SCREEN_UP = 256,
    SCREEN_DOWN,
    SCREEN_LEFT,
    SCREEN_RIGHT
} screen_key;

/* Whether standard output is a terminal on which the cursor can be moved. */
bool screen_is_there(void);

/* Takes the terminal, until screen_leave or the end of the process, whichever way that comes: its former state comes back
 * however the command ends. */
void screen_enter(void);
void screen_leave(void);

/* At least 1 each. */
void screen_size(int *rows, int *columns);

/* Draws the lines from the top, and nothing below them. They are cut at the right border. False: the terminal is gone. */
bool screen_draw(char *const *lines, size_t count);

/* Waits for a key, as long as `milliseconds`; -1: for ever. Stops and goes on as the terminal's user asks. */
int screen_key_pressed(int milliseconds);

/* Ends the process as the signal does that ended screen_key_pressed; returns if there was none. */
void screen_obey(void);

/* Bytes of the line that fit into so many columns. Sequences that begin with ESC take none. */
size_t screen_fit(const char *line, int columns);

/* ---- view.c: what a process that is watched looks like, line by line --------------------------------------------- */

typedef enum view_sort { VIEW_BY_LIVE, VIEW_BY_PEAK, VIEW_BY_REFUSALS, VIEW_BY_NAME, VIEW_SORTS } view_sort;

const char *view_sort_name(view_sort sort);

typedef struct view_lines {
    char **list;
    size_t count;
} view_lines;

/* What was live and held of one runtime, the newest last. */
typedef struct view_series view_series;

typedef struct view {
    view_sort sort;
    bool by_client, by_class; /* which tables are shown */
    bool unicode;
    int columns;
    view_series *series; /* a series for each runtime of the last view_note; NULL: none */
    size_t series_count;
} view;

/* Whether the locale's characters are UTF-8. */
bool view_is_unicode(void);

/* Notes the current memory of the processes. Forgets the series of runtimes that are not in `found`. */
void view_note(view *v, const watched_list *found);
void view_clear(view *v);

/* Appends the process's lines: for each runtime its sums, a bar of the budget, the lines of what was live and held, and its
 * clients and classes with a bar for each. */
void view_process(const view *v, const watched *process, view_lines *out);

/* Appends a line; takes ownership of `line`. */
void view_line(const view *v, view_lines *out, char *line);
void view_lines_clear(view_lines *lines);

#endif
