/* explain_print.h: a choice as people and as programs want to read it. */
#ifndef WEIR_CLI_EXPLAIN_PRINT_H
#define WEIR_CLI_EXPLAIN_PRINT_H

#include <weir/choice.h>

#include <jansson.h>

/* The rule, then a row for each candidate; refused ones of an engine with one reason are one row. */
void explain_print(const weir_choice *choice);

/* {policy, rule, chosen, candidates[]} */
json_t *explain_json(const weir_choice *choice);

#endif
