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

static void print_cell(const table_cell_data *cell, size_t width, bool last, FILE *file)
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

void table_print(const table *grid, FILE *file)
{
    size_t widths[TABLE_COLUMNS] = {0};
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++) {
            size_t columns = text_columns(grid->rows[i].cells[j].text);
            widths[j] = columns > widths[j] ? columns : widths[j];
        }
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++)
            print_cell(&grid->rows[i].cells[j], widths[j], j + 1 == grid->rows[i].count, file);
}

void table_clear(table *grid)
{
    for (size_t i = 0; i < grid->count; i++)
        for (size_t j = 0; j < grid->rows[i].count; j++)
            free(grid->rows[i].cells[j].text);
    free(grid->rows);
    *grid = (table){0};
}
