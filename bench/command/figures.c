/* figures.c: the files to measure, the clock, tables of figures, goals. */
#include "bench.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Files ------------------------------------------------------------------------------------------------------------ */

char **bench_files(const char *path, const char *suffix, size_t *count)
{
    struct stat status;
    struct dirent **entries = NULL;
    bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    int found = folder ? scandir(path, &entries, NULL, alphasort) : 0;
    char **files = text_zeroed(found > 0 ? (size_t)found : 1, sizeof *files);
    *count = 0;
    if (!folder)
        files[(*count)++] = text_copy(path);
    for (int i = 0; i < found; i++) {
        const char *name = entries[i]->d_name;
        size_t length = strlen(name), tail = strlen(suffix);
        if (name[0] != '.' && length > tail && strcmp(name + length - tail, suffix) == 0)
            files[(*count)++] = text_print("%s/%s", path, name);
        free(entries[i]);
    }
    free(entries);
    return files;
}

void bench_files_free(char **files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(files[i]);
    free(files);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t bench_clock_cost(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = bench_now(), took = bench_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static int bench_figures_by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void bench_sort(uint64_t *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, bench_figures_by_size);
}

/* Tables and goals ------------------------------------------------------------------------------------------------- */

void bench_titles(table *t, const char *const *titles, size_t count, size_t left)
{
    table_row(t);
    for (size_t i = 0; i < count; i++)
        table_cell(t, titles[i], terminal_bold(), i >= left);
}

void bench_number(table *t, double number, int digits)
{
    char text[40] = "";
    if (!isnan(number))
        snprintf(text, sizeof text, "%.*f", digits, number);
    table_cell(t, text, "", true);
}

json_t *bench_number_json(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

void bench_print_left_out(const json_t *texts)
{
    for (size_t i = 0; i < json_array_size(texts); i++)
        printf("Left out: %s\n", json_string_value(json_array_get(texts, i)));
}

/* Goals ------------------------------------------------------------------------------------------------------------ */

void bench_goals_begin(bench_goals *goals)
{
    static const char *const titles[] = {"goal", "in", "at most", "measured", ""};
    *goals = (bench_goals){.list = json_array()};
    bench_titles(&goals->grid, titles, sizeof titles / sizeof titles[0], 2);
}

void bench_goal(bench_goals *goals, const char *load, const char *what, double wanted, double measured)
{
    if (isnan(measured))
        return;
    bool met = measured <= wanted;
    table *t = &goals->grid;
    table_row(t);
    table_cell(t, load, "", false);
    table_cell(t, what, "", false);
    bench_number(t, wanted, wanted < 10 ? 4 : 1);
    bench_number(t, measured, wanted < 10 ? 4 : 1);
    table_cell(t, met ? "met" : "missed", met ? terminal_green() : terminal_red(), false);
    json_array_append_new(goals->list,
                          json_pack("{s:o, s:s, s:f, s:o, s:b}", "load", text_json(load), "what", what, "wanted",
                                    wanted, "measured", bench_number_json(measured), "met", met));
}

void bench_goals_print(bench_goals *goals)
{
    puts("");
    if (goals->grid.count > 1)
        table_print(&goals->grid, stdout);
}

json_t *bench_goals_json(bench_goals *goals)
{
    return json_incref(goals->list);
}

void bench_goals_end(bench_goals *goals)
{
    table_clear(&goals->grid);
    json_decref(goals->list);
    *goals = (bench_goals){0};
}
