/* Machines and engines that tests of the choice make up. */
#ifndef TESTS_CHOICE_MACHINE_H
#define TESTS_CHOICE_MACHINE_H

#include "core/core.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#define GIB ((uint64_t)1 << 30)

enum { MOST_DEVICES = 16, DOUBLES = 3, KINDS_OF_PROVIDERS = 7 };

/* A machine is plain data: a processor with `memory` free bytes first. */
typedef struct machine {
    weir_hardware hardware;
    weir_hardware_device devices[MOST_DEVICES];
} machine;

void machine_begin(machine *m, uint64_t memory);
/* Usable, with ordinal and key by how many there are of the kind: "cuda-0". */
weir_hardware_device *machine_add(machine *m, weir_hardware_kind kind, uint64_t bytes);
weir_version_number version(const char *text);

/* The engines "onnx", "gguf" and "llm" of these tests: what they say of providers and models is what stands here. */
typedef struct double_engine {
    weir_provider_state states[KINDS_OF_PROVIDERS];
    bool has[KINDS_OF_PROVIDERS];
    weir_status plan;                   /* what a prediction fails with */
    uint64_t bytes[KINDS_OF_PROVIDERS]; /* predicted */
    unsigned plans, asked;              /* how often */
    const char *setting;                /* the value of the setting "optimization" that it was last given; "" */
} double_engine;
extern double_engine doubles[DOUBLES];
/* What a double does when it is told to load, and to unload; NULL: it refuses. */
extern weir_status (*double_loads)(const double_engine *engine, const weir_engine_load *load, weir_engine_model **out);
extern void (*double_unloads)(weir_engine_model *model);
extern const char *const provider_names[KINDS_OF_PROVIDERS];

/* Registers the first two, and the third; once in a process. */
void doubles_register(void);
void double_llm_register(void);
/* By its name, in any case; NULL if there is no such engine, or none yet. */
double_engine *double_called(const char *engine);
/* Every provider is here, nothing is predicted to be needed but a byte. */
void doubles_reset(void);

/* A model file of some bytes that tests may name; removed at exit. */
const char *model_file(const char *name, size_t bytes);
/* The same, a folder with a genai_config.json of so many bytes. */
const char *model_folder(const char *name, size_t bytes);

/* Chooses, and must be able to. */
weir_choice *choose(const weir_manifest *manifest, const weir_choice_options *options);
const weir_candidate *candidate(const weir_choice *choice, const char *engine, const char *provider,
                                const char *device);

#endif
