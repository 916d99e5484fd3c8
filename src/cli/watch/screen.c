#include "watch.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* The other screen, without a cursor, and without lines that go on in the next row. */
#define TAKE "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
#define GIVE "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { HANDLED = sizeof handled / sizeof handled[0], DEADLY = sizeof deadly / sizeof deadly[0] };

static volatile sig_atomic_t taken, has_keys;
static volatile sig_atomic_t asked_to_end, asked_to_stop;
static struct termios before;
static sigset_t outside; /* the signals that were blocked before */

bool screen_is_there(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

void screen_size(int *rows, int *columns)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *rows = known && size.ws_row > 0 ? size.ws_row : 24;
    *columns = known && size.ws_col > 0 ? size.ws_col : 80;
}

/* Taking and giving back ------------------------------------------------------------------------------------------- */

static bool write_whole(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = write(STDOUT_FILENO, text, length);
        if (count < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        text += count > 0 ? count : 0;
        length -= count > 0 ? (size_t)count : 0;
    }
    return true;
}

static void screen_take(void)
{
    has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (has_keys) {
        struct termios raw = before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    }
    taken = 1;
    (void)write_whole(TAKE, sizeof TAKE - 1);
}

/* Also in a handler of signals: calls nothing that may not be called there. */
static void screen_give(void)
{
    if (!taken)
        return;
    taken = 0;
    (void)!write(STDOUT_FILENO, GIVE, sizeof GIVE - 1);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static void on_signal(int number)
{
    if (number == SIGTSTP)
        asked_to_stop = 1;
    else if (number != SIGWINCH)
        asked_to_end = number;
}

static void on_death(int number)
{
    screen_give();
    raise(number); /* with what was to happen to it before */
}

static void handle_signals(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < HANDLED; i++)
        sigaddset(&blocked, handled[i]);
    sigprocmask(SIG_BLOCK, &blocked, &outside);
    for (size_t i = 0; i < HANDLED; i++)
        sigaction(handled[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
    for (size_t i = 0; i < DEADLY; i++) {
        struct sigaction now;
        if (sigaction(deadly[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(deadly[i], &(struct sigaction){.sa_handler = on_death, .sa_flags = (int)SA_RESETHAND}, NULL);
    }
}

void screen_enter(void)
{
    handle_signals();
    atexit(screen_leave);
    screen_take();
}

void screen_leave(void)
{
    screen_give();
}

static void screen_stop(void)
{
    sigset_t only;
    asked_to_stop = 0;
    screen_give();
    sigemptyset(&only);
    sigaddset(&only, SIGTSTP);
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &only, NULL); /* stops here, until the user has it go on */
    sigprocmask(SIG_BLOCK, &only, NULL);
    sigaction(SIGTSTP, &(struct sigaction){.sa_handler = on_signal}, NULL);
    screen_take();
}

void screen_obey(void)
{
    int number = asked_to_end;
    if (number == 0)
        return;
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

/* Drawing ---------------------------------------------------------------------------------------------------------- */

/* The end of a sequence that begins at `text`. */
static const char *behind_sequence(const char *text)
{
    for (text++; *text != '\0'; text++)
        if (*text >= '@' && *text <= '~' && *text != '[')
            return text + 1;
    return text;
}

size_t screen_fit(const char *line, int columns)
{
    const char *at = line;
    while (*at != '\0') {
        if (*at == '\x1b') {
            at = behind_sequence(at);
            continue;
        }
        columns -= (int)text_character_columns(at);
        if (columns < 0)
            break;
        size_t length = text_character(at, strlen(at));
        at += length > 0 ? length : 1;
    }
    return (size_t)(at - line);
}

bool screen_draw(char *const *lines, size_t count)
{
    int rows, columns;
    char *frame = NULL;
    size_t length = 0;
    screen_size(&rows, &columns);
    FILE *out = text_stream(&frame, &length);
    fputs("\x1b[H", out);
    for (size_t i = 0; i < count && i < (size_t)rows; i++)
        fprintf(out, "%s%.*s%s\x1b[K", i > 0 ? "\r\n" : "", (int)screen_fit(lines[i], columns), lines[i],
                terminal_plain());
    fputs(count < (size_t)rows ? "\r\n\x1b[J" : "", out);
    fclose(out);
    bool drawn = write_whole(frame, length);
    free(frame);
    return drawn;
}

/* Keys ------------------------------------------------------------------------------------------------------------- */

/* What a terminal sends for the arrows: ESC, then [ or O, then a letter, which may come one by one. */
static int screen_key_of(unsigned char byte)
{
    static int within;
    int was = within;
    within = 0;
    if (was == 0 && byte == '\x1b') {
        within = 1;
    } else if (was == 1 && (byte == '[' || byte == 'O')) {
        within = 2;
    } else if (was == 2) {
        const char *arrows = "ABDC", *found = strchr(arrows, byte);
        within = byte >= '0' && byte <= ';' ? 2 : 0;
        return found != NULL && byte != '\0' ? SCREEN_UP + (int)(found - arrows) : SCREEN_NOTHING;
    } else if (was == 0) {
        return byte;
    }
    return SCREEN_NOTHING;
}

static int screen_read_key(void)
{
    unsigned char byte;
    ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return SCREEN_NOTHING;
    return count == 1 ? screen_key_of(byte) : SCREEN_END;
}

int screen_key_pressed(int milliseconds)
{
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    int count = ppoll(&keys, 1, milliseconds < 0 ? NULL : &time, &outside);
    if (asked_to_end)
        return SCREEN_END;
    if (asked_to_stop)
        screen_stop();
    return count > 0 ? screen_read_key() : SCREEN_NOTHING;
}
