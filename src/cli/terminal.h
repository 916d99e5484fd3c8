/* terminal.h: colours and the progress bar, where somebody can see them. */
#ifndef WEIR_CLI_TERMINAL_H
#define WEIR_CLI_TERMINAL_H

#include <weir/base.h>

/* Control sequences for standard output; "" when it is no terminal, TERM is dumb or NO_COLOR is set. */
const char *terminal_bold(void);
const char *terminal_faint(void);
const char *terminal_red(void);
const char *terminal_green(void);
const char *terminal_yellow(void);
const char *terminal_plain(void);

/* Draws "loading NAME [#####     ] 45 %" over itself on standard error; nothing when that is no terminal. A fraction
 * that was drawn already, give or take, is not drawn again. Any one thread at a time. */
void terminal_progress(const char *name, double fraction);
/* The same for something else than loading. */
void terminal_progress_of(const char *doing, const char *name, double fraction);

/* Takes the bar away. */
void terminal_progress_end(void);

/* Columns of the terminal that standard output is; 120 where it is none. */
int terminal_columns(void);

#endif
