#include "terminal.h"
#include "text.h"

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

#define COLOUR(name, sequence)                                                                                         \
    const char *terminal_##name(void)                                                                                  \
    {                                                                                                                  \
        return colour(sequence);                                                                                       \
    }
COLOUR(bold, "\x1b[1m")
COLOUR(faint, "\x1b[2m")
COLOUR(red, "\x1b[31m")
COLOUR(green, "\x1b[32m")
COLOUR(yellow, "\x1b[33m")
COLOUR(plain, "\x1b[0m")

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

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void table_row(table *grid)
{
    grid->rows = text_grow(grid->rows, grid->count + 1, sizeof *grid->rows);
    grid->rows[grid->count++] = (table_row_data){.count = 0};
}

void table_cell(table *grid, const char *text, const char *colour, bool right)
{
    table_row_data *row = &grid->rows[grid->count - 1];
    if (row->count < TABLE_COLUMNS)
        row->cells[row->count++] = (table_cell_data){text_clean(text, strlen(text), false), colour, right};
}

void table_own(table *grid, char *text, const char *colour, bool right)
{
    table_cell(grid, text, colour, right);
    free(text);
}

void table_size(table *grid, uint64_t bytes, const char *colour)
{
    char text[24];
    table_cell(grid, bytes == 0 ? "-" : weir_size_format(bytes, text, sizeof text), colour, true);
}

void table_count(table *grid, uint64_t count, const char *colour)
{
    table_own(grid, text_print("%llu", (unsigned long long)count), colour, true);
}

void table_titles(table *grid, const char *const *titles, size_t count, const char *colour, size_t left)
{
    table_row(grid);
    for (size_t i = 0; i < count; i++)
        table_cell(grid, titles[i], colour, i >= left);
}

static void cli_table_print_cell(const table_cell_data *cell, size_t width, bool last, FILE *file)
{
    size_t columns = text_columns(cell->text);
    int blanks = (int)(width > columns ? width - columns : 0);
    const char *end = cell->colour[0] != '\0' ? terminal_plain() : "";
    if (cell->right)
        fprintf(file, "%*s%s%s%s", blanks, "", cell->colour, cell->text, end);
    else
        fprintf(file, "%s%s%s%*s", cell->colour, cell->text, end, last ? 0 : blanks, "");
    fputs(last ? "\n" : "  ", file);
}

static void find_widths(const table *grid, size_t *widths)
{
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++) {
            size_t columns = text_columns(grid->rows[i].cells[j].text);
            widths[j] = columns > widths[j] ? columns : widths[j];
        }
}

void table_print(const table *grid, FILE *file)
{
    size_t widths[TABLE_COLUMNS] = {0};
    find_widths(grid, widths);
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++)
            cli_table_print_cell(&grid->rows[i].cells[j], widths[j], j + 1 == grid->rows[i].count, file);
}

/* In lines of at most `room` columns, the second and later ones behind `before` blanks. */
static void print_folded(const char *text, size_t before, size_t room, FILE *file)
{
    const char *rest = text;
    do {
        size_t length = text_line(rest, room);
        fprintf(file, "%*s%.*s\n", rest == text ? 0 : (int)before, "", (int)length, rest);
        rest += length;
        rest += *rest == ' ';
    } while (*rest != '\0');
}

void table_print_within(const table *grid, size_t columns, size_t least, FILE *file)
{
    size_t widths[TABLE_COLUMNS] = {0}, before = 0;
    find_widths(grid, widths);
    size_t last = grid->count > 0 ? grid->rows[0].count - 1 : 0;
    for (size_t j = 0; j < last; j++)
        before += widths[j] + 2;
    size_t room = columns > before + least ? columns - before : least;
    for (size_t i = 0; i < grid->count; i++) {
        for (size_t j = 0; j < last; j++)
            cli_table_print_cell(&grid->rows[i].cells[j], widths[j], false, file);
        print_folded(grid->rows[i].cells[last].text, before, room, file);
    }
}

void table_clear(table *grid)
{
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++)
            free(grid->rows[i].cells[j].text);
    free(grid->rows);
    *grid = (table){0};
}

void table_end(table *grid)
{
    table_print(grid, stdout);
    table_clear(grid);
}
