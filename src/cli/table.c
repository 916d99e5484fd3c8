#include "table.h"
#include "terminal.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

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
