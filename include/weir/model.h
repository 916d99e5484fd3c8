/* weir/model.h: a model loaded by an engine, with an account of its own. */
#ifndef WEIR_MODEL_H
#define WEIR_MODEL_H

#include <weir/engine.h>

WEIR_BEGIN

typedef struct weir_model weir_model;

typedef struct weir_model_options {
    size_t struct_size;
    const char *name;             /* of the client; NULL: the file's name */
    const char *engine;           /* NULL: by the file's suffix, else by its first bytes */
    const char *device;           /* NULL: "host" */
    weir_runtime *runtime;        /* use this one instead of weir_runtime_get(device) */
    uint64_t guaranteed, maximum; /* of the client; weir/client.h */
    const weir_setting *settings;
    size_t setting_count;
    void (*progress)(double fraction, void *user);
    void *progress_user;
} weir_model_options;

/* Loads the model at `path`. `options` may be NULL. On failure nothing is left of it. Errors: WEIR_ERR_NOT_FOUND (file,
 * engine, device), WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_ENGINE, WEIR_ERR_INVALID. Any thread; loads of
 * several models may run at once. */
WEIR_API WEIR_NODISCARD weir_status weir_model_create(const char *path, const weir_model_options *options,
                                                      weir_model **out);

/* Unloads it and closes its client. WEIR_ERR_BUSY while a run or a warm-up is under way or outputs are not released: nothing has
 * changed. WEIR_ERR_ENGINE: it is gone, but its engine has kept memory, which stays charged and is named; of a model that has moved
 * also one before. Waits for other calls that have begun: a cancel, a look at its metrics. */
WEIR_API WEIR_NODISCARD weir_status weir_model_destroy(weir_model *model);

/* As the functions of the same names in weir_engine. Optional ones that the engine lacks: WEIR_ERR_UNSUPPORTED. Outputs are
 * to be released before the model is unloaded. */
WEIR_API WEIR_NODISCARD weir_status weir_model_infer(weir_model *model, const weir_inference *inference,
                                                     weir_outputs *out);
WEIR_API WEIR_NODISCARD weir_status weir_model_infer_stream(weir_model *model, const weir_inference *inference,
                                                            weir_piece_fn piece, void *user, weir_outputs *out);
WEIR_API void weir_model_release_outputs(weir_model *model, weir_outputs *outputs);
/* Stops the runs of that id (0: every run, warm-ups too) wherever they are: in the engine, about to be made, or between two
 * candidates of a weir_model_create_chosen. WEIR_OK: there was one, and each of them answers WEIR_ERR_CANCELLED, at the latest when the engine
 * would have answered. WEIR_ERR_NOT_FOUND: no such run has begun, or all have ended. */
WEIR_API WEIR_NODISCARD weir_status weir_model_cancel(weir_model *model, uint64_t id);
/* A run without inputs and outputs: of a model that weir_model_create_chosen made it falls back as a first run does. */
WEIR_API WEIR_NODISCARD weir_status weir_model_warm_up(weir_model *model);
WEIR_API WEIR_NODISCARD weir_status weir_model_health(weir_model *model);
WEIR_API WEIR_NODISCARD weir_status weir_model_metrics(weir_model *model, weir_engine_metrics *out);
WEIR_API WEIR_NODISCARD weir_status weir_model_info(weir_model *model, weir_model_details *out);

/* The model's account and engine; valid until it is unloaded, and the account of one that weir_model_create_chosen made until it moves:
 * NULL while that is on no device. */
WEIR_API weir_client *weir_model_client(const weir_model *model);
WEIR_API const weir_engine *weir_model_engine(const weir_model *model);

WEIR_END
#endif
