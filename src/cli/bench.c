/* bench.c: `weir bench`: times every row in turn, round after round, so that what disturbs the machine disturbs all. */
#include "bench.h"
#include "cli.h"
#include "table.h"
#include "terminal.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: weir bench [OPTION…]\n\n"
    "Times single operations of weir's, by each resource, and beside them, in the same run, what a program would call\n"
    "instead: the C library on the host, CUDA's driver on a GPU. Every row is measured in every round; the figures "
    "are\n"
    "those of its best round, in nanoseconds, and the ratio is that of the medians to the first peer's.\n\n"
    "  --device NAME    host, cuda, cuda:1 (default host)\n"
    "  --rounds N       how many rounds (default 7)\n"
    "  --laps N         how often an operation is run in a round (default 2000)\n"
    "  --json           the answer as JSON: device, rows[] {operation, who, peer, median, p99, ratio}\n";

typedef struct words {
    const char *device;
    uint64_t rounds, laps;
    bool json;
} words;

bench_row *bench_add(bench *b, const char *operation, const char *who, bool (*run)(void *user), void *user)
{
    static bench_row spare; /* more rows than there is room for would be a mistake of this program's */
    bench_row *row = b->count < BENCH_ROWS ? &b->rows[b->count++] : &spare;
    *row = (bench_row){.operation = operation, .run = run, .user = user, .median = UINT64_MAX, .p99 = UINT64_MAX};
    snprintf(row->who, sizeof row->who, "%s", who);
    return row;
}

/* Timing ------------------------------------------------------------------------------------------------------------ */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* What a reading of the clock takes of every sample. */
static uint64_t clock_cost(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = now(), took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static bool time_row(bench_row *row, uint64_t laps, uint64_t cost, uint64_t *samples)
{
    for (uint64_t i = 0; i < laps; i++) {
        uint64_t start = now();
        if (!row->run(row->user))
            return false;
        uint64_t took = now() - start;
        samples[i] = took > cost ? took - cost : 0;
    }
    qsort(samples, laps, sizeof *samples, by_size);
    uint64_t median = samples[laps / 2];
    if (median < row->median) {
        row->median = median;
        row->p99 = samples[laps - 1 - laps / 100];
    }
    return true;
}

static int time_all(bench *b, const words *w)
{
    uint64_t cost = clock_cost(), *samples = calloc(w->laps, sizeof *samples);
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

/* Answers ----------------------------------------------------------------------------------------------------------- */

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

static int print_table(const bench *b)
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
    return cli_flush(CLI_OK);
}

static int print_json(const bench *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *row = &b->rows[i];
        double r = ratio(b, row);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:I, s:o}", "operation", row->operation, "who",
                                              row->who, "peer", row->peer, "median", (json_int_t)row->median, "p99",
                                              (json_int_t)row->p99, "ratio", r > 0 ? json_real(r) : json_null()));
    }
    return cli_print_json(json_pack("{s:s, s:o}", "device", b->device, "rows", list));
}

/* Words ------------------------------------------------------------------------------------------------------------- */

enum { W_DEVICE = 256, W_ROUNDS, W_LAPS, W_JSON };

static const struct option long_words[] = {{"device", required_argument, NULL, W_DEVICE},
                                           {"rounds", required_argument, NULL, W_ROUNDS},
                                           {"laps", required_argument, NULL, W_LAPS},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* Answers -1 to go on, else the exit status. */
static int read_count(const char *option, uint64_t most, uint64_t *out)
{
    if (text_number(optarg, 1, most, out))
        return -1;
    return cli_usage("bench", "%s %s: a whole number from 1 to %llu is wanted", option, optarg,
                     (unsigned long long)most);
}

static int read_words(int argc, char **argv, words *w)
{
    *w = (words){.device = "host", .rounds = 7, .laps = 2000};
    opterr = 0;
    optind = 1;
    for (int code, status = -1; (code = getopt_long(argc, argv, ":h", long_words, NULL)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == W_DEVICE)
            w->device = optarg;
        else if (code == W_ROUNDS)
            status = read_count("--rounds", 1000, &w->rounds);
        else if (code == W_LAPS)
            status = read_count("--laps", 10000000, &w->laps);
        else if (code == W_JSON)
            w->json = true;
        else
            return cli_bad_option("bench", code, argv);
        if (status >= 0)
            return status;
    }
    return optind < argc ? cli_usage("bench", "what is '%s'?", argv[optind]) : -1;
}

int verb_bench(int argc, char **argv)
{
    words w;
    int status = read_words(argc, argv, &w);
    if (status >= 0)
        return status;
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return cli_fail("no memory for a bench");
    b->device = w.device;
    bench_peers_begin(b);
    if (bench_weir_begin(b) != WEIR_OK)
        status = cli_fail("%s", weir_detail());
    if (status < 0) {
        status = time_all(b, &w);
        if (status == CLI_OK)
            status = w.json ? print_json(b) : print_table(b);
    }
    bench_weir_end();
    bench_peers_end();
    free(b);
    return status;
}
