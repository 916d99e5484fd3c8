/* shared_budget.h: the file in which the processes of one `weir exec` share their budget (src/interpose/preload/tree.c). */
#ifndef WEIR_CLI_EXEC_SHARED_BUDGET_H
#define WEIR_CLI_EXEC_SHARED_BUDGET_H

/* Returns the path of the file for a new tree; the first process that asks for memory creates the file. Removes the
 * files of trees in which no process has memory any more. The caller frees the path. NULL: there is no folder for the
 * file, and cli_fail has said so. */
char *shared_budget_new(void);

#endif
