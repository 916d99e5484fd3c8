/* serve.h: what the files of the verb serve share: models by name, and the protocols in which they are asked for. */
#ifndef WEIR_CLI_SERVE_SERVE_H
#define WEIR_CLI_SERVE_SERVE_H

#include <weir/manifest.h>
#include <weir/model.h>
#include <weir/pool.h>
#include <weir/select.h>

#include "cli/serve/config.h"
#include "serve/http.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- statistics.c: what the statistics extension tells of a model ------------------------------------------------- */

/* By how many runs were computed together; the last is of that many and more. */
enum { STATISTICS_BATCHES = 128 };

typedef struct served_batches {
    uint64_t runs, input, infer, output;
} served_batches;

/* Sums over its runs, in nanoseconds, under the model's `counting`. */
typedef struct served_statistics {
    served_batches batches[STATISTICS_BATCHES];
    uint64_t succeeded, success, failed, failure, queue, input, infer, output;
    uint64_t last;                                /* began: milliseconds since 1970; 0: none did */
    uint64_t runs, failures, cancelled, computed; /* as soon as the engine is done; the last is its time */
} served_statistics;

/* ---- models.c: the pool's, by name ------------------------------------------------------------------------------- */

/* A model that is served, in one version. It stays as long as somebody has a reference: the table, the pool, a request. */
typedef struct served_model {
    atomic_uint references;
    char *name, *path; /* the last as it was given */
    char *version;     /* the manifest's; "1.0+2": the second replacement in this server */
    json_t *config;    /* the model's part of the configuration, as config.h has it; settings point to its texts */
    char *stamp;       /* of the files when they were read; a new stamp, or other settings, make a new version */
    weir_manifest *manifest; /* as it was read; `chosen` is the manifest with only the chosen provider */
    weir_manifest chosen;
    char *engine, *provider, *device;  /* the last as the runtime's name */
    atomic_uint_fast64_t keep_alive;   /* nanoseconds of stay without requests; WEIR_POOL_NONE: for ever */
    atomic_uint_fast64_t context;      /* tokens; 0: not looked for yet, WEIR_POOL_NONE: unknown */
    atomic_uint_fast64_t stay;         /* the stay that the pool was told last; WEIR_POOL_NONE: for ever */
    struct served_model *next_in_pool; /* list of the versions that the pool has not removed yet */
    pthread_mutex_t counting;          /* guards `statistics` */
    served_statistics statistics;
} served_model;

typedef struct served_state served_state;
typedef struct shared_regions shared_regions;

typedef struct served {
    weir_pool *pool;
    pthread_mutex_t lock;  /* of the table */
    served_model **models; /* what is served now, by name; one reference of each */
    size_t count;
    served_model *in_pool; /* every version that the pool has; one reference of each */
    unsigned replaced;     /* number of replacements */
    const weir_choice_options *choice;
    uint32_t runs; /* requests at once */
    unsigned
        sequences; /* runs of a language model that are decoded together, where its engine takes them in and lets them out
                           at every token */
    ws_server *server;
    atomic_uint_fast64_t next_run;
    int64_t began; /* seconds since 1970 */
    served_state *state;
    shared_regions *regions; /* NULL: tensors in shared memory are not allowed */
} served;

/* A model of that file, manifest or package, which is called `name` (NULL: as its manifest or file is) and has what `config`
 * says (NULL: nothing), chosen for a device here. *out is the caller's reference. */
weir_status served_model_make(const served *all, const char *name, const char *path, const json_t *config,
                              served_model **out);
/* Writes a line that changes with the file; served_model.stamp has a line for each of the model's files. */
void served_stamp(FILE *to, const char *path);
char *served_stamp_now(const served_model *model); /* for the caller to free */

/* Makes the pool for the devices that `models` are on. */
weir_status served_open(served *all, served_model *const *models, size_t count);
/* Serves the model from here on, in place of the current version; waiting requests go to the new version. Where there
 * is no room for both, the old version is unloaded first. The table takes a reference of its own. */
weir_status served_put(served *all, served_model *model);
/* Stops serving the model; running requests may end. */
void served_remove(served *all, const char *name);
/* Ends the pool and thereby unloads all models; no run may be under way. Answers as weir_pool_destroy. */
weir_status served_clear(served *all);
/* Gives back the reference of a version that the pool has removed. */
void served_removed(served *all, const char *name, const char *version);

/* Finds a model by its name or an alias; the reference is the caller's. NULL: there is no such model. */
served_model *served_find(served *all, const char *name);
bool served_is_called(const served_model *model, const char *name);
/* The version that the pool has, or had last, by these words; the caller's reference. */
served_model *served_version(served *all, const char *name, const char *version);
/* All, by name: a list for served_list_free. */
served_model **served_list(served *all, size_t *count);
void served_list_free(served_model **list, size_t count);
/* Returns an array of the objects that `make` returns for the models; leaves out models with NULL from `make`. */
json_t *served_list_json(served *all, json_t *(*make)(served *all, served_model *model));
/* Gives a reference back; NULL is nothing. */
void served_drop(served_model *model);
/* Why a request for it would be refused now, for the caller to free; NULL: it would be met. */
char *served_obstacle(served *all, const weir_pool_entry *entry);
/* All that the pool has, for the caller to free. */
weir_pool_entry *served_entries(served *all, size_t *count);
/* Reads the pool's entry of the model. False: the pool has no entry. */
bool served_look(served *all, const served_model *model, weir_pool_entry *out);

/* ---- run.c: one run for one request ------------------------------------------------------------------------------ */

typedef struct served_run {
    served *all;
    ws_request *request;
    served_model *model; /* as long as the lease */
    weir_model *loaded;  /* the same */
    weir_lease *lease;
    uint64_t id;
    bool keep_set; /* the request says how long the model is to stay without others: */
    uint64_t keep; /* nanoseconds; WEIR_POOL_NONE: for ever */
    /* By the monotonic clock: when it was asked for and had; when the last run of it began, and ended so. */
    uint64_t asked, had, began, ended;
    weir_status status;
    uint64_t together;
    uint64_t since, granted; /* when it began, and when it had the model; 0: it has not yet */
    struct served_run *next; /* list of the runs under way: state.c */
} served_run;

/* statistics.c, any thread: adds the engine call that has just ended; adds the run that has ended, if any, with its
 * time up to now; copies the statistics under the lock. */
void served_count_call(served_run *run);
void served_count(served_run *run);
void served_counted(served_model *model, served_statistics *out);

/* Has the model of that name loaded, where it stays until served_leave. False: the request is answered with the refusal. Waits
 * in the pool's queue, and no longer than the client does. */
bool served_take(served_run *run, const char *name);
void served_leave(served_run *run);
/* Answers with what `make` tells of the model that the path's first segment names, which is loaded for that. */
void served_describe(served *all, ws_request *request,
                     json_t *(*make)(const served_model *model, const weir_model_details *info));
/* Runs the model for the request, and stops when its client goes. */
weir_status served_infer(served_run *run, weir_inference *inference, weir_outputs *out);

/* ---- answers.c: JSON in and out, and failures in each protocol's form -------------------------------------------- */

enum { JSON_DEEPEST = 32 };

/* The body as an object. NULL: the request is refused with 400. Nested at most JSON_DEEPEST deep, and with as many values as
 * its route's limit allows for. */
json_t *body_json(ws_request *request);
json_t *text_to_json(ws_request *request, const char *text, size_t bytes);
/* Takes the reference. */
void answer_json(ws_request *request, unsigned status, json_t *object);
/* A failed call, with the thread's detail; and a request that the pool has refused. */
void answer_failure(ws_request *request, weir_status status);
void answer_refusal(ws_request *request, weir_status status, const weir_pool_answer *answer, const char *name);
void answer_wrong(ws_request *request, const char *format, ...) WEIR_PRINTF(2, 3);
size_t write_refusal(const char *path, unsigned status, const char *code, const char *sentence, char *body,
                     size_t room);

/* ---- the protocols ----------------------------------------------------------------------------------------------- */

/* tensors.c: Open Inference Protocol, JSON and binary. */
typedef struct wire_inputs {
    weir_tensor *list;
    void **owned; /* data that wire_read allocated */
    char **names;
    size_t count;
} wire_inputs;

const char *wire_type(weir_type type); /* "FP32"; NULL: it has none */
/* Finds the first number of a tensor that JSON has no form for: a NaN or an infinity; false: there is none. */
bool wire_find_not_finite(const weir_tensor *tensor, size_t *at);
/* False: the request is refused. `binary` is what follows the JSON; `regions` may be NULL. */
bool wire_read(ws_request *request, shared_regions *regions, const json_t *head, const char *binary, size_t bytes,
               wire_inputs *out);
void wire_clear(wire_inputs *all);
/* Answers with the results, as numbers, behind the JSON or in shared memory, as `head` asks for each. */
void wire_answer(ws_request *request, shared_regions *regions, const json_t *head, const char *model,
                 const weir_outputs *out);

/* shared_memory.c: of this machine, which clients name. Any thread. */
shared_regions *shared_create(void);
void shared_free(shared_regions *all); /* NULL is nothing; no request is under way */
/* Whether a tensor's parameters mean shared memory. */
bool shared_is_meant(const json_t *parameters);
/* Copies a tensor's bytes from shared memory, for the caller to free; copies bytes to shared memory. */
weir_status shared_read(shared_regions *all, const json_t *parameters, char **data, size_t *bytes);
weir_status shared_write(shared_regions *all, const json_t *parameters, const void *data, size_t bytes);
void shared_status(ws_request *request, void *user);
void shared_register(ws_request *request, void *user);
void shared_unregister(ws_request *request, void *user);

void v2_live(ws_request *request, void *all);
void v2_server(ws_request *request, void *all);
void v2_model(ws_request *request, void *all);
void v2_model_ready(ws_request *request, void *all);
void v2_infer(ws_request *request, void *all);
void v2_index(ws_request *request, void *all);
void v2_load(ws_request *request, void *all);
void v2_unload(ws_request *request, void *user);
/* statistics.c, configuration.c, generate.c */
void v2_statistics(ws_request *request, void *user);
void v2_configuration(ws_request *request, void *all);
void v2_generate(ws_request *request, void *all);
void v2_generate_stream(ws_request *request, void *all);
/* What of the protocol is not here: says so. */
void v2_lacking(ws_request *request, void *user);
/* The model that the path names, a reference; NULL: the request is refused. */
served_model *v2_find(served *all, ws_request *request);

/* A request's `parameters`, but for those that are the protocol's, as settings of a run. */
enum { V2_SETTINGS = 32 };
size_t v2_settings(const json_t *head, weir_setting settings[V2_SETTINGS]);
void v2_settings_clear(weir_setting *settings, size_t count);

void openai_models(ws_request *request, void *user);
void openai_model(ws_request *request, void *user);
void openai_completions(ws_request *request, void *all);
void openai_chat(ws_request *request, void *all);
void openai_embeddings(ws_request *request, void *all);

/* ollama.c, ollama_models.c: Ollama's. */
void ollama_generate(ws_request *request, void *all);
void ollama_chat(ws_request *request, void *all);
void ollama_embed(ws_request *request, void *all);
void ollama_embeddings(ws_request *request, void *all);
void ollama_tags(ws_request *request, void *all);
void ollama_ps(ws_request *request, void *all);
void ollama_show(ws_request *request, void *user);
void ollama_version(ws_request *request, void *user);
void ollama_registry(ws_request *request, void *user);
/* openapi.json: all that is answered. */
extern const char serve_openapi[];
/* page.html: the page at /. */
extern const char serve_page[];

void metrics_page(ws_request *request, void *user);

/* ---- state.c, actions.c: what the server shows of itself, and what can be done there ------------------------- */

/* A request that wants a model, from served_take to served_leave. */
void state_run_begins(served_run *run);
/* Of that version, which is served_run.model from here on: the reference passes on, and the one before is given back. */
void state_run_granted(served_run *run, served_model *version);
void state_run_ends(served_run *run);

void state_now(ws_request *request, void *user);
void state_history(ws_request *request, void *user);
void state_page(ws_request *request, void *all);
/* POST /weir/models/{}/ACTION: load, resume, unload, suspend, pin, unpin. */
void state_action(ws_request *request, void *all);

/* Before the pool is made: its events and runs are noted from here on. NULL: no memory; nothing is noted then. */
served_state *state_create(void);
/* Once the pool is there: looks at the memory of its devices every second, until state_free. A thread; without one there is
 * no past to see. */
void state_watch(served *all);
/* Ends the thread, before the pool goes; frees it, after the pool, which tells events to the end. NULL is allowed. */
void state_unwatch(served_state *state);
void state_free(served_state *state);

/* Of the pool, on any thread. Decisions are not kept. */
void state_event(served_state *state, const weir_pool_event *event);

/* ---- history.c --------------------------------------------------------------------------------------------------- */

/* The past bytes of each client and class on each device. */
typedef struct history history;

history *history_create(void);
void history_free(history *past);
/* Looks at the devices, and notes it. */
void history_look(history *past, weir_pool *pool, double time);
/* Every second, each client's bytes by class, the newest last, as docs/guide/serve.md shows it. */
json_t *history_json(history *past);

/* Returns a device's memory now: the statistics of the runtime and of its clients. NULL: there is no such runtime. */
json_t *device_json(weir_pool *pool, size_t index);

/* ---- sources.c: where models come from: words of the command line, folders, a configuration; and changes there --- */

typedef struct sources sources;

/* `words` and `options` stay valid. Takes the configuration, which may be NULL, as the one at `path`. */
sources *sources_create(served *all, char **words, size_t count, const char *path, server_config *file,
                        const arg *options);
void sources_free(sources *from); /* NULL is nothing */

/* Finds the models, makes a pool for them and serves them. With `load` loads all models, else the models whose
 * configuration asks for it. Prints a failure. Answers -1 when the models are served, else the exit status. */
int sources_begin(sources *from, bool load);

/* From here on a thread looks once a second whether files have changed, and has what is served follow. */
weir_status sources_watch(sources *from);
/* The configuration is read again, soon. Not in a signal's handler. */
void sources_again(sources *from);
/* Ends the thread; a load in progress is given up. */
void sources_unwatch(sources *from);

#endif
