/* screen.h: use of the whole terminal: the alternate screen and the keys. The terminal's former state comes back
 * however the command ends. */
#ifndef WEIR_CLI_WATCH_SCREEN_H
#define WEIR_CLI_WATCH_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

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

/* Takes the terminal, until screen_leave or the end of the process, whichever way that comes. */
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

#endif
