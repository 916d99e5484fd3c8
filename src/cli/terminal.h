/* terminal.h: colours and the progress bar, which only a terminal shows. */
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

#endif
