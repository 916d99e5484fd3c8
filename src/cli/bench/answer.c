#include "answer.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <math.h>
#include <stdio.h>

void bench_titles(table *t, const char *const *words, size_t count, size_t left)
{
    table_row(t);
    for (size_t i = 0; i < count; i++)
        table_cell(t, words[i], terminal_bold(), i >= left);
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
    static const char *const words[] = {"goal", "in", "at most", "measured", ""};
    *goals = (bench_goals){.list = json_array()};
    bench_titles(&goals->grid, words, sizeof words / sizeof words[0], 2);
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
