/* terminal.h: colours and the progress bar, which only a terminal shows; and tables. */
#ifndef WEIR_CLI_TERMINAL_H
#define WEIR_CLI_TERMINAL_H

#include <weir/base.h>
#include <stdio.h>

/* Control sequences for standard output; "" when it is no terminal, TERM is dumb or NO_COLOR is set. */
const char *terminal_bold(void);
const char *terminal_faint(void);
const char *terminal_red(void);
const char *terminal_green(void);
const char *terminal_yellow(void);
const char *terminal_plain(void);

/* Draws "loading NAME [##### ] 45 %" over itself on standard error, if that is a terminal. A percentage that is already
 * shown is not drawn again. May be called on any thread, by one thread at a time. */
void terminal_progress(const char *name, double fraction);
/* With another word than "loading". */
void terminal_progress_of(const char *doing, const char *name, double fraction);

/* Whether there is a bar to see. */
bool terminal_shows_progress(void);

/* Removes the bar. */
void terminal_progress_end(void);

/* Columns of the terminal that standard output is; 120 where it is none. */
int terminal_columns(void);

/* ---- tables: rows of cells in aligned columns -------------------------------------------------------------------- */

enum { TABLE_COLUMNS = 12 };

typedef struct table_cell_data {
    char *text;
    const char *colour;
    bool right;
} table_cell_data;

typedef struct table_row_data {
    table_cell_data cells[TABLE_COLUMNS];
    size_t count;
} table_row_data;

typedef struct table {
    table_row_data *rows;
    size_t count;
} table;

void table_row(table *grid); /* begins a row for the next cells */
void table_cell(table *grid, const char *text, const char *colour, bool right);
void table_own(table *grid, char *text, const char *colour, bool right); /* takes the text, of malloc's */
void table_size(table *grid, uint64_t bytes, const char *colour);        /* on the right; 0 as "-" */
void table_count(table *grid, uint64_t count, const char *colour);       /* on the right */
/* A row of titles, of which those from number `left` on are on the right. */
void table_titles(table *grid, const char *const *titles, size_t count, const char *colour, size_t left);
void table_print(const table *grid, FILE *file);
void table_end(table *grid); /* prints it on standard output, and clears it */
/* Breaks the last column into as many lines as its texts take, so that no line is longer than `columns`, but gives the
 * last column at least `least` columns. */
void table_print_within(const table *grid, size_t columns, size_t least, FILE *file);
void table_clear(table *grid);

#endif
