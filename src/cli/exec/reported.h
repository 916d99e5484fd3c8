/* reported.h: a program whose memory is recorded, and shown on pages when it has ended. */
#ifndef WEIR_CLI_EXEC_REPORTED_H
#define WEIR_CLI_EXEC_REPORTED_H

/* Runs the program and writes a page of its memory to `page`, and a page beside `page` for each further trace of the
 * program and its children. The caller has set the environment, except for the trace. Answers the program's exit
 * status; ends by the signal that has ended the program. */
int reported_run(const char *program, char **command, const char *page);

#endif
