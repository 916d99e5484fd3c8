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

void table_row(table *grid); /* the cells that follow belong to it */
void table_cell(table *grid, const char *text, const char *colour, bool right);
void table_print(const table *grid, FILE *file);
/* The last column goes on in as many lines as its texts take, so that none is longer than `columns`; it gets at least
 * `least` of them. */
void table_print_within(const table *grid, size_t columns, size_t least, FILE *file);
void table_clear(table *grid);

#endif
