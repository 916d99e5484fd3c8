/* cli.h: common declarations of the verbs of the command: table, answers, failures. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <weir/weir.h>

#include <jansson.h>

/* Exit statuses; the last one is what shells expect of a program that a signal ended. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef struct cli_verb {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv); /* argv[0] is the verb */
} cli_verb;

int verb_run(int argc, char **argv);
int verb_simulate(int argc, char **argv);
int verb_replay(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_exec(int argc, char **argv);
int verb_options(int argc, char **argv);
int verb_devices(int argc, char **argv);
int verb_engines(int argc, char **argv);
int verb_explain(int argc, char **argv);
int verb_predict(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_ps(int argc, char **argv);
int verb_top(int argc, char **argv);
int verb_serve(int argc, char **argv);
int verb_version(int argc, char **argv);

/* Opens an unusable file for each standard stream that is closed. Its number would be given to the next file that is
 * opened, and what is meant for the stream would be written there. */
void cli_keep_streams(void);

/* Writes "weir: …" as one line on standard error; control characters in it become '?'. Answers CLI_FAILED. */
int cli_fail(const char *format, ...) WEIR_PRINTF(1, 2);

/* Reports bad usage in the same way, and adds where help is. `verb` NULL: the command's own. Answers CLI_USAGE. */
int cli_usage(const char *verb, const char *format, ...) WEIR_PRINTF(2, 3);

/* Writes one JSON object on standard output and takes the reference. Answers CLI_OK, or CLI_FAILED with its line. */
int cli_print_json(json_t *object);

/* Ends a verb that was called with these arguments, up to a NULL. If it failed without an answer though --json was
 * given, the answer is {error: {detail}} with the last text of cli_fail. Answers `status`. */
int cli_end(int status, char **argv);

/* Flushes standard output; output that cannot be written is a failure. */
int cli_flush(int status);

/* What weir_runtime_info and weir_client_info tell; of NULL, and of what they refuse, nothing: device is "" then. */
weir_runtime_details cli_runtime(const weir_runtime *runtime);
weir_client_stats cli_client(weir_client *client);

#endif
