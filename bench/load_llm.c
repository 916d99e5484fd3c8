/* load_llm.c: ONNX Runtime GenAI by itself loads a model and its tokenizer. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/engine.h>

#include "engines/llm/oga.h"
#include "load_speed.h"

typedef struct alone {
#define MEMBER(name) __typeof__(&name) name;
    OGA_FUNCTIONS(MEMBER)
#undef MEMBER
    int context;
    bool cuda;
} alone;

typedef struct loaded {
    oga_model *model;
    oga_tokenizer *tokenizer;
} loaded;

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "GenAI by itself: %s failed\n", what);
    exit(1);
}

/* The libraries of the engine, which is what both sides run. */
static void *open_llm(const load_options *options)
{
    const weir_engine *engine = NULL;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    alone *it = calloc(1, sizeof *it);
    need(it && weir_engine_get("llm", &engine) == WEIR_OK && engine->probe(&probe) == WEIR_OK && probe.available,
         "the engine");
    it->context = options->context;
    it->cuda = options->cuda;
    char runtime[700];
    snprintf(runtime, sizeof runtime, "%s/engines/onnxruntime/current/lib/libonnxruntime.so", WEIR_BENCH_STORE);
    if (!getenv("ORT_LIB_PATH"))
        setenv("ORT_LIB_PATH", runtime, 1);
    void *handle = dlopen(probe.library, RTLD_NOW | RTLD_LOCAL);
    need(handle, probe.library);
#define TAKE(name)                                                                                                     \
    *(void **)&it->name = dlsym(handle, #name);                                                                        \
    need(it->name, #name);
    OGA_FUNCTIONS(TAKE)
#undef TAKE
    it->OgaSetTelemetryEnabled(false);
    return it;
}

static void *load_llm(void *engine, const char *path)
{
    const alone *it = engine;
    loaded *made = calloc(1, sizeof *made);
    oga_config *config = NULL;
    char overlay[160];
    need(made, "memory");
    snprintf(overlay, sizeof overlay, "{\"search\":{\"max_length\":%d,\"random_seed\":0}}",
             it->context ? it->context : 256);
    need(!it->OgaCreateConfig(path, &config) && !it->OgaConfigClearProviders(config) &&
             !it->OgaConfigOverlay(config, overlay) && (!it->cuda || !it->OgaConfigAppendProvider(config, "cuda")),
         "reading the folder");
    need(!it->OgaCreateModelFromConfig(config, &made->model), "loading");
    it->OgaDestroyConfig(config);
    need(!it->OgaCreateTokenizer(made->model, &made->tokenizer), "making the tokenizer");
    return made;
}

static void unload_llm(void *engine, void *model)
{
    const alone *it = engine;
    loaded *made = model;
    it->OgaDestroyTokenizer(made->tokenizer);
    it->OgaDestroyModel(made->model);
    free(made);
}

const load_plain_side load_plain_llm = {"llm", open_llm, load_llm, unload_llm};
