/* shared_budget.h: the file in which the processes of one `weir exec` share their budget (src/interpose/preload/tree.c). */
#ifndef WEIR_CLI_EXEC_SHARED_BUDGET_H
#define WEIR_CLI_EXEC_SHARED_BUDGET_H

/* Where that of a new tree will be: the first process that asks for memory makes it. Removes those of trees in which nobody has
 * memory any more. The caller frees it; NULL: there is no folder for it, and cli_fail has said so. */
char *shared_budget_new(void);

#endif
