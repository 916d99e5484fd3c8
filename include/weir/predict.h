/* weir/predict.h: what a model will take, by class, before it is loaded, and what earlier loads of it took.
 *
 * The figure of a class comes from the best available of three sources: measurements of earlier loads of the same
 * model; the engine's own answer (llama.cpp lays a model out without memory); the structure of the model's file, which
 * needs no engine's library. Where none of them says anything, the size of the file stands for the weights. No device
 * memory is touched.
 *
 * What loads have measured is kept in the store, in the file `predictions` (the option `home`, WEIR_HOME): at most 512
 * models and settings, the one that was loaded longest ago goes first. weir_model_create and weir_model_create_chosen
 * write there once after a load and once before an unload, unless the option `predictions` (WEIR_PREDICTIONS) is 0; then
 * nothing is read there either. Several processes may do so at once. A file that cannot be read, or that is none of
 * weir's, is no error: it is logged, and replaced. docs/guide/predict.md has the whole. */
#ifndef WEIR_PREDICT_H
#define WEIR_PREDICT_H

#include <weir/model.h>
#include <weir/stats.h>

WEIR_BEGIN

/* What is asked for. Every member may be left out. */
typedef struct weir_predict_options {
    size_t struct_size;
    /* As weir_model_options and weir_engine_load have them. NULL: the engine by the file, "cpu" of the processor and "cuda"
     * of a CUDA device, "host". A candidate's take their place. */
    const char *engine, *provider, *device;
    const weir_setting *settings; /* before the manifest's of the same key */
    size_t setting_count;
    const weir_manifest *manifest; /* its settings and level count as at a load, and its file where no path is given */
    const weir_candidate *candidate; /* of a choice: its engine, provider and runtime */
    bool quick;       /* of the file alone and of what was measured, in milliseconds: no engine's library is opened */
    bool cold;        /* leaves out what earlier loads have measured */
    bool loaded_only; /* of weir_prediction_learn: nothing has run yet, so that runs may take more */
} weir_predict_options;

/* Bytes by weir_class, of one load. */
typedef struct weir_prediction {
    size_t struct_size;
    char engine[32], provider[32], device[32];
    char version[64]; /* of the engine; "": it was not asked for */
    /* What the client will have when the model is loaded and nothing runs, and at the moment at which it has the most,
     * loading and running. The classes add up to resident_total and peak_total. */
    uint64_t resident[WEIR_CLASS_MOST], peak[WEIR_CLASS_MOST];
    uint64_t resident_total, peak_total;
    weir_prediction_source source[WEIR_CLASS_MOST]; /* weir/engine.h */
    bool exact[WEIR_CLASS_MOST];                    /* or else an estimate, or what runs take at least */
    /* Of a model that is on a device: what of it is on the host beside. */
    uint64_t host[WEIR_CLASS_MOST], host_total;
    uint64_t context;   /* for which it holds: tokens of one sequence; 0: the model has none, or it was not told */
    uint32_t sequences; /* that go on together; 0: the same */
    uint32_t layers;    /* that the model has, the output layer counted; 0: the same */
    uint32_t layers_on_device;
    uint64_t loads; /* measured loads behind the prediction */
    /* The bytes needed to load the model and to begin a run: less than the peak where a class grows with use, as an
     * elastic cache does. A choice compares this need with the bytes that can be had. */
    uint64_t least[WEIR_CLASS_MOST], least_total;
} weir_prediction;

/* Predicts what the model at `path` will take (as of weir_model_create; NULL: the manifest's file). `options` may be NULL.
 * Errors: WEIR_ERR_NOT_FOUND (file, engine, device), WEIR_ERR_CORRUPT and WEIR_ERR_UNSUPPORTED for what the engine would not
 * load, WEIR_ERR_INVALID (settings, structures without a size), WEIR_ERR_SYSTEM. An engine whose library is not here is
 * no error: the file's structure answers. Any thread; may read the file's structure, and without `quick` open libraries. */
WEIR_API WEIR_NODISCARD weir_status weir_predict(const char *path, const weir_predict_options *options,
                                                 weir_prediction *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* What may be given up to make the model fit, and how far. */
typedef struct weir_fit_options {
    size_t struct_size;
    uint64_t most_context;  /* 0: the context of the settings, else the model's context without settings */
    uint64_t least_context; /* 0: the context stays as it is */
    bool layers;            /* layers may stay on the host (engine gguf, on a device) */
} weir_fit_options;

/* A way to have the model: the settings that are other than in the options, with the names of the engines gguf and llm. */
typedef struct weir_fit {
    size_t struct_size;
    bool fits;        /* else nothing does: `prediction` is of the least that is allowed */
    uint64_t context; /* the setting "context"; 0: as it is */
    int64_t layers;   /* the setting "gpu_layers"; -1: as it is */
    weir_prediction prediction;
} weir_fit;

/* The best way to have the model within `bytes` at its peak, on its device: as it is, else with the largest context, of
 * whole 256 tokens, down to least_context, with all layers on the device; else with the most layers there, at the
 * largest context that they leave room for. `fit_options` may be NULL: then nothing is given up, and it only says
 * whether the model fits. Errors as weir_predict; WEIR_ERR_UNSUPPORTED: something may be given up that the engine has
 * no setting for. Asks the engine some five to fifteen times. */
WEIR_API WEIR_NODISCARD weir_status weir_predict_fit(const char *path, const weir_predict_options *options,
                                                     uint64_t bytes, const weir_fit_options *fit_options,
                                                     weir_fit *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Remembers what a load took: `measured` is the client's line (weir_client_info), live_class while nothing runs, and
 * the peak with its classes. The next prediction for the same contents, engine and version, provider, device and
 * settings is no less than the most that was measured. The options' members quick and cold are left alone. The library
 * calls this function for its own loads; a program with loads of its own calls the function directly.
 * Errors: as weir_predict; WEIR_ERR_SYSTEM: the store cannot be written to. With the option `predictions` 0 it does
 * nothing. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prediction_learn(const char *path, const weir_predict_options *options,
                                                          const weir_client_stats *measured);

/* What was predicted for the model before it was loaded, and what it has taken since (source
 * WEIR_PREDICTED_MEASURED; the peak so far). Either place may be NULL. WEIR_ERR_NOT_FOUND: nothing was predicted.
 * WEIR_ERR_DEVICE_LOST: it is on no device. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_prediction(weir_model *model, weir_prediction *predicted,
                                                          weir_prediction *measured);

WEIR_END
#endif
