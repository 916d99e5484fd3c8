/* bench_operations.c: times every row in turn, round after round, so that what disturbs the machine disturbs all. */
#include "operations.h"
#include "bench.h"
#include "clock.h"
#include "cli/table.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>

bench_row *bench_add(bench *b, const char *operation, const char *who, bool (*run)(void *user), void *user)
{
    static bench_row spare; /* more rows than there is room for would be a mistake of this program's */
    bench_row *row = b->count < BENCH_ROWS ? &b->rows[b->count++] : &spare;
    *row = (bench_row){.operation = operation, .run = run, .user = user, .median = UINT64_MAX, .p99 = UINT64_MAX};
    snprintf(row->who, sizeof row->who, "%s", who);
    return row;
}

/* Timing ----------------------------------------------------------------------------------------------------------- */

static bool time_row(bench_row *row, uint64_t laps, uint64_t cost, uint64_t *samples)
{
    for (uint64_t i = 0; i < laps; i++) {
        uint64_t start = bench_now();
        if (!row->run(row->user))
            return false;
        uint64_t took = bench_now() - start;
        samples[i] = took > cost ? took - cost : 0;
    }
    bench_sort(samples, laps);
    uint64_t median = samples[laps / 2];
    if (median < row->median) {
        row->median = median;
        row->p99 = samples[laps - 1 - laps / 100];
    }
    return true;
}

static int time_all(bench *b, const bench_options *w)
{
    uint64_t cost = bench_clock_cost(), *samples = calloc(w->laps, sizeof *samples);
    if (!samples)
        return cli_fail("no memory for %llu samples", (unsigned long long)w->laps);
    int status = CLI_OK;
    for (uint64_t round = 0; round < w->rounds && status == CLI_OK; round++)
        for (size_t i = 0; i < b->count && status == CLI_OK; i++)
            if (!time_row(&b->rows[i], w->laps, cost, samples))
                status = cli_fail("%s by %s: %s", b->rows[i].operation, b->rows[i].who, weir_detail());
    free(samples);
    return status;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

/* To the first peer of the operation; 0: there is none, or it took no time that could be measured. */
static double ratio(const bench *b, const bench_row *row)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->rows[i].peer && b->rows[i].operation == row->operation)
            return b->rows[i].median ? (double)row->median / (double)b->rows[i].median : 0;
    return 0;
}

/* The place of the operation among all, in the order of their first rows. */
static size_t place(const bench *b, const bench_row *row)
{
    size_t i = 0;
    while (b->rows[i].operation != row->operation)
        i++;
    return i;
}

static void print_rows(const bench *b, table *grid, size_t first)
{
    char number[40];
    for (size_t i = first; i < b->count; i++) {
        const bench_row *row = &b->rows[i];
        if (place(b, row) != first)
            continue;
        table_row(grid);
        table_cell(grid, i == first ? row->operation : "", "", false);
        table_cell(grid, row->who, "", false);
        snprintf(number, sizeof number, "%llu", (unsigned long long)row->median);
        table_cell(grid, number, "", true);
        snprintf(number, sizeof number, "%llu", (unsigned long long)row->p99);
        table_cell(grid, number, "", true);
        double r = ratio(b, row);
        number[0] = '\0';
        if (r > 0)
            snprintf(number, sizeof number, "%.2f", r);
        table_cell(grid, number, "", true);
    }
}

static void print_table(const bench *b)
{
    static const char *const titles[] = {"operation", "by", "median ns", "p99 ns", "ratio"};
    table grid = {0};
    table_row(&grid);
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        table_cell(&grid, titles[i], terminal_bold(), i > 1);
    for (size_t i = 0; i < b->count; i++)
        if (place(b, &b->rows[i]) == i)
            print_rows(b, &grid, i);
    table_print(&grid, stdout);
    table_clear(&grid);
    if (b->missing[0])
        printf("\n%s\n", b->missing);
}

static void fill_json(const bench *b, json_t *answer)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *row = &b->rows[i];
        double r = ratio(b, row);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:I, s:o}", "operation", row->operation, "who",
                                              row->who, "peer", row->peer, "median", (json_int_t)row->median, "p99",
                                              (json_int_t)row->p99, "ratio", r > 0 ? json_real(r) : json_null()));
    }
    json_object_set_new(answer, "rows", list);
}

int bench_part_operations(const bench_options *options, json_t *answer)
{
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return cli_fail("no memory for a bench");
    b->device = options->device;
    bench_peers_begin(b);
    int status = bench_weir_begin(b) == WEIR_OK ? time_all(b, options) : cli_fail("%s", weir_detail());
    if (status == CLI_OK && answer)
        fill_json(b, answer);
    else if (status == CLI_OK)
        print_table(b);
    bench_weir_end();
    bench_peers_end();
    free(b);
    return status;
}
