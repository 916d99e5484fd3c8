/* table.h: rows of cells in aligned columns. */
#ifndef WEIR_CLI_TABLE_H
#define WEIR_CLI_TABLE_H

#include <weir/base.h>

#include <stdio.h>

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
void table_print(const table *grid, FILE *file);
/* Breaks the last column into as many lines as its texts take, so that no line is longer than `columns`, but gives the
 * last column at least `least` columns. */
void table_print_within(const table *grid, size_t columns, size_t least, FILE *file);
void table_clear(table *grid);

#endif
