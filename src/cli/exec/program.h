/* program.h: finding a program as a shell does, and whether a library can be preloaded into it. */
#ifndef WEIR_CLI_EXEC_PROGRAM_H
#define WEIR_CLI_EXEC_PROGRAM_H

/* The file of a program: by its path, or in $PATH. The caller frees it; NULL: there is none, and cli_fail has said so. */
char *program_find(const char *name);

/* Whether what runs for the file (of a script, its interpreter) takes what LD_PRELOAD names: CLI_OK, or cli_fail's answer
 * with the reason and what helps. */
int program_check(const char *path);

#endif
