/* bench_answer.h: how the parts of `weir bench` tell figures and goals. Figures that there are not are NAN. */
#ifndef WEIR_CLI_BENCH_ANSWER_H
#define WEIR_CLI_BENCH_ANSWER_H

#include "cli/table.h"

#include <jansson.h>

/* The first row of a table; words from `left` on stand at the right. */
void bench_titles(table *t, const char *const *words, size_t count, size_t left);
void bench_number(table *t, double number, int digits); /* a cell; empty for NAN */
json_t *bench_number_json(double number);               /* null for NAN */

/* A line for each text. */
void bench_print_left_out(const json_t *texts);

/* Goals, kept until they are told. */
typedef struct bench_goals {
    table grid;
    json_t *list;
} bench_goals;

void bench_goals_begin(bench_goals *goals);
/* Adds one, unless it was not measured (NAN): at most `wanted` of `what`, by `load`. */
void bench_goal(bench_goals *goals, const char *load, const char *what, double wanted, double measured);
void bench_goals_print(bench_goals *goals);
json_t *bench_goals_json(bench_goals *goals); /* the caller's reference */
void bench_goals_end(bench_goals *goals);

#endif
