/* view.h: what a process that is watched looks like, line by line. */
#ifndef WEIR_CLI_WATCH_VIEW_H
#define WEIR_CLI_WATCH_VIEW_H

#include "find.h"

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
