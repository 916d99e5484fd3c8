/* run_options.h: the words of `weir run`, checked as far as that can be done before a model is loaded. */
#ifndef WEIR_CLI_RUN_OPTIONS_H
#define WEIR_CLI_RUN_OPTIONS_H

#include "given.h"

#include <weir/choice.h>

enum { RUN_MODELS_MOST = 64 };

typedef struct run_model_words {
    char *path;
    char *name; /* of its client: the file's name, "#2" behind the second of the same name */
    uint64_t guaranteed, maximum;
    weir_setting *settings;
    size_t setting_count;
    bool chosen; /* its engine, provider and device are: it is a manifest, or some of these were named */
} run_model_words;

typedef struct run_budget {
    char *device; /* "": of each device that models come to */
    uint64_t bytes;
} run_budget;

typedef struct run_options {
    run_model_words *models;
    size_t model_count;
    run_budget *budgets; /* the devices named under --budget; a size alone is the models' */
    size_t budget_count;
    given_input *inputs; /* --input and --prompt */
    size_t input_count;
    uint64_t tokens; /* 0: the engine's own choice */
    uint64_t repeat;
    bool serial, json, stream;
    const char *driver;         /* the device's name, as weir_runtime_get takes it; NULL: not given */
    weir_choice_options choice; /* the words for it */
    bool chooses;               /* any of them, or no_fallback, was given */
    bool no_fallback;
    const char *output, *trace, *report;
    char *command; /* as typed, for the report */
} run_options;

/* The device of models that are not chosen for. */
const char *run_driver(const run_options *options);

/* Answers -1 to go on, else the exit status: help was asked for, or the usage was wrong and has been told. */
int run_options_read(int argc, char **argv, run_options *out);
void run_options_clear(run_options *options);

#endif
