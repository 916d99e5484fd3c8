/* reported.h: a program whose memory is recorded, and shown on pages when it has ended. */
#ifndef WEIR_CLI_EXEC_REPORTED_H
#define WEIR_CLI_EXEC_REPORTED_H

/* Runs the program, the environment being set but for the traces, and writes its page there, with one beside it for each
 * other trace of it and its children. Answers the program's exit status; ends by the signal that has ended the program. */
int reported_run(const char *program, char **command, const char *page);

#endif
