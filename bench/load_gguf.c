/* load_gguf.c: llama.cpp by itself loads a model and makes a context, with the parameters that the engine chooses. */
#include <string.h>

#include <weir/engine.h>

#include "load_speed.h"
#include "plain.h"

typedef struct alone {
    plain lib;
    int mmap, context;
} alone;

static void *open_gguf(const load_options *options)
{
    const weir_engine *engine = NULL;
    alone *it = calloc(1, sizeof *it);
    plain_need(!options->cuda, "a device: bench-llama-plain and bench-llama-engine tell how long that takes; this");
    plain_need(it && weir_engine_get("gguf", &engine) == WEIR_OK, "the engine");
    it->lib = plain_of(engine);
    it->mmap = options->mmap;
    it->context = options->context;
    return it;
}

/* A copy, as models of one library are several in a process. */
static void *load_gguf(void *engine, const char *path)
{
    static ggml_backend_dev_t no_devices[1];
    const alone *it = engine;
    plain *made = malloc(sizeof *made);
    plain_need(made != NULL, "memory");
    *made = it->lib;
    struct llama_model_params model = made->llama_model_default_params();
    struct llama_context_params params = made->llama_context_default_params();
    int embeds = strstr(path, "minilm") != NULL;
    model.load_mode = it->mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    model.devices = no_devices;
    model.n_gpu_layers = 0;
    made->model = made->llama_model_load_from_file(path, model);
    plain_need(made->model != NULL, "loading");
    params.n_ctx = (uint32_t)(it->context ? it->context : embeds ? 512 : 4096);
    params.n_batch = params.n_ubatch = embeds ? params.n_ctx : 512;
    params.no_perf = true;
    params.embeddings = embeds;
    if (embeds) {
        params.n_seq_max = 16;
        params.kv_unified = true;
    } else {
        params.n_outputs_max = 1;
    }
    made->context = made->llama_init_from_model(made->model, params);
    plain_need(made->context != NULL, "making a context");
    return made;
}

static void unload_gguf(void *engine, void *model)
{
    (void)engine;
    plain_close(model);
    free(model);
}

const load_plain_side load_plain_gguf = {"gguf", open_gguf, load_gguf, unload_gguf};
