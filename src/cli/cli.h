/* cli.h: common declarations of the verbs of the command: table, answers, failures. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <weir/cores.h>
#include <weir/engine.h>
#include <weir/manifest.h>
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

/* Nanoseconds of the monotonic clock. */
uint64_t cli_now(void);

/* {class: bytes} of WEIR_CLASS_COUNT classes. */
json_t *cli_classes_json(const uint64_t *bytes);

/* What weir_runtime_info and weir_client_info tell; of NULL, and of what they refuse, nothing: device is "" then. */
weir_runtime_details cli_runtime(const weir_runtime *runtime);
weir_client_stats cli_client(weir_client *client);

/* ---- beside.c: the programs beside this one: weir-sim, which has the simulated device, and weir-bench, which measures -- */

/* Becomes weir-sim with these arguments, from the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int beside_become_sim(char **argv);

/* Calls weir-sim with these arguments, which have to ask for JSON, and returns its answer. NULL: the call failed, and
 * the detail says how. */
json_t *beside_call_sim(const char *const *argv);

/* Becomes weir-bench, or where it does not lie beside this program the one in PATH, with these arguments, from the one
 * behind the verb to a NULL. Answers only if that fails: CLI_FAILED. */
int beside_become_bench(char **argv);

/* Becomes scripts/engines, which puts engines into the store, with these arguments to a NULL. Answers only if that fails:
 * CLI_FAILED. */
int beside_become_engines(char **argv);

/* ---- cores.c: who computes with what, of the ledger of cores (weir/cores.h) -------------------------------------- */

/* {least, most, last, leases, waits, waited_seconds} of a model's line. */
json_t *cores_line_json(const weir_cores_stats *line);
/* This process's ledger: {cores, leased, peak, waiting, coupled, models[] {name, now, and as above}}. Any thread. */
json_t *cores_json(void);

/* The sum of all lines of that name, in *out; false: there is none. A model that is replaced has two for a while. */
bool cores_of_model(const char *name, weir_cores_stats *out);

/* "cores: 2, all leased, 1 run waits; minilm computes with 2, chat computed with 1" of such an object, which another process may
 * have told; behind `title`. Nothing where no model has leased any. */
void cores_print(const char *title, const json_t *cores);

/* ---- model files before they are loaded: their paths and their engines (inspect/engines.c) ----------------------- */

/* The engine that takes a file of this name, or this folder; NULL if none does. */
const weir_engine *engine_for_file(const char *path);

/* The engine's provider number `index`, from 0; WEIR_ERR_NOT_FOUND past the last. */
weir_status engine_provider_at(const weir_engine *engine, size_t index, weir_engine_provider *out);

/* Opens the library of the file's engine. Failures are left to the load, which reports them. */
void engine_open_library(const char *path);

/* The path that a word on the command line means: a bare name that is no file here may be one of the store's models.
 * The caller frees it. */
char *engine_file_named(const char *word);

/* ---- manifest.c: reads, checks and clears manifests -------------------------------------------------------------- */

/* In a build without libweir-manifest reading, checking and clearing fail with WEIR_ERR_UNSUPPORTED, except manifest_read of a
 * model. */

/* As weir_manifest_read with its defaults. */
weir_status manifest_read(const char *path, weir_manifest **out);
void manifest_release(weir_manifest *manifest);

/* As weir_manifest_check. */
weir_status manifest_check(const char *path, weir_manifest_problems **out);
void manifest_problems_release(weir_manifest_problems *problems);

/* As weir_manifest_clear with its defaults: clears every package that is not in use. */
weir_status manifest_clear(weir_manifest_cleared *out);

#endif
