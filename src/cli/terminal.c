#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_COLUMNS = 32 };

static bool is_terminal(int file)
{
    const char *term = getenv("TERM");
    return isatty(file) && !(term != NULL && strcmp(term, "dumb") == 0);
}

static const char *colour(const char *sequence)
{
    static int wanted = -1;
    if (wanted < 0) {
        const char *no = getenv("NO_COLOR");
        wanted = is_terminal(STDOUT_FILENO) && (no == NULL || no[0] == '\0');
    }
    return wanted ? sequence : "";
}

const char *terminal_bold(void)
{
    return colour("\x1b[1m");
}

const char *terminal_faint(void)
{
    return colour("\x1b[2m");
}

const char *terminal_red(void)
{
    return colour("\x1b[31m");
}

const char *terminal_green(void)
{
    return colour("\x1b[32m");
}

const char *terminal_yellow(void)
{
    return colour("\x1b[33m");
}

const char *terminal_plain(void)
{
    return colour("\x1b[0m");
}

static int drawn_percent = -1;

static int columns_of(int file, int otherwise)
{
    struct winsize size;
    return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

int terminal_columns(void)
{
    return columns_of(STDOUT_FILENO, 120);
}

void terminal_progress_of(const char *doing, const char *name, double fraction)
{
    int percent = !(fraction > 0) ? 0 : fraction >= 1 ? 100 : (int)(fraction * 100);
    if (percent == drawn_percent || !is_terminal(STDERR_FILENO))
        return;
    drawn_percent = percent;
    int filled = percent * BAR_COLUMNS / 100;
    int room = columns_of(STDERR_FILENO, 80) - BAR_COLUMNS - 13 - (int)strlen(doing);
    fprintf(stderr, "\r\x1b[K%s %.*s [%.*s%*s] %d %%", doing, room > 4 ? room : 4, name, filled,
            "################################", BAR_COLUMNS - filled, "", percent);
    fflush(stderr);
}

bool terminal_shows_progress(void)
{
    return is_terminal(STDERR_FILENO);
}

void terminal_progress(const char *name, double fraction)
{
    terminal_progress_of("loading", name, fraction);
}

void terminal_progress_end(void)
{
    if (drawn_percent >= 0)
        fputs("\r\x1b[K", stderr);
    drawn_percent = -1;
}
