/* exec.h: what the files of the verb exec share. */
#ifndef WEIR_CLI_EXEC_EXEC_H
#define WEIR_CLI_EXEC_EXEC_H

/* ---- program.c: finds a program as a shell does, and whether a library can be preloaded into it ------------------ */

/* The file of a program: by its path, or in $PATH. The caller frees it; NULL: there is none, and cli_fail has said so. */
char *program_find(const char *name);

/* Whether what runs for the file (of a script, its interpreter) takes what LD_PRELOAD names: CLI_OK, or cli_fail's answer
 * with the reason and what helps. */
int program_check(const char *path);

/* ---- reported.c: a program whose memory is recorded, and shown on pages when it has ended ------------------------ */

/* Runs the program and writes a page of its memory to `page`, and a page beside `page` for each further trace of the
 * program and its children. The caller has set the environment, except for the trace. Answers the program's exit
 * status; ends by the signal that has ended the program. */
int reported_run(const char *program, char **command, const char *page);

#endif
