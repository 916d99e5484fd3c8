/* cores.c: the cores that a model computes with.
 *
 * Without a pool ggml starts threads for each graph and ends them behind it. A model has a pool of its own from its first
 * step with several cores on: a context that changes to another pool has ggml pause the one before, in which another
 * model's step would then hang. Its threads sleep between two steps. A step with one core needs no pool. */
#include "wg.h"

#include <weir/cores.h>

#include <stdlib.h>

enum { POLLING = 0 }; /* threads without work sleep at once: the core is another model's by then */

int wg_cores(void)
{
    weir_cores_totals now = {.struct_size = sizeof now};
    return weir_cores_info(&now) == WEIR_OK && now.cores > 0 ? (int)now.cores : 1;
}

static bool is_on_devices(const weir_engine_model *model)
{
    return model->devices.count > 0 &&
           (model->load.gpu_layers < 0 || (uint64_t)model->load.gpu_layers > model->facts.layers);
}

weir_status wg_cores_open(weir_engine_model *model)
{
    weir_client_stats client = {.struct_size = sizeof client};
    uint32_t fixed = (uint32_t)model->load.threads;
    if (is_on_devices(model))
        return WEIR_OK;
    weir_status status = weir_client_info(model->devices.host, &client);
    if (status == WEIR_OK)
        status = weir_cores_open(client.name, fixed ? fixed : 1, fixed, &model->cores);
    return status;
}

int wg_threads(const weir_engine_model *model)
{
    return model->load.threads ? (int)model->load.threads : wg_cores();
}

void wg_cores_close(weir_engine_model *model)
{
    /* Threads of a step that an exception has ended are never done. */
    if (model->pool && !atomic_load(&model->broken))
        model->library->ggml_threadpool_free(model->pool);
    model->pool = NULL;
    weir_cores_close(model->cores);
    model->cores = NULL;
}

static void gguf_cores_make_pool(void *user)
{
    weir_engine_model *model = user;
    struct ggml_threadpool_params params = model->library->ggml_threadpool_params_default(model->pool_threads);
    params.poll = POLLING;
    model->pool = model->library->ggml_threadpool_new(&params);
}

/* Without threads for a pool, ggml starts them as it did before there were pools. */
static void need_pool(weir_engine_model *model, int threads)
{
    char thrown[512];
    if (model->pool || model->pool_threads)
        return;
    int most = wg_threads(model);
    model->pool_threads = threads > most ? threads : most;
    if (!wg_guarded(gguf_cores_make_pool, model, thrown, sizeof thrown))
        model->pool = NULL;
}

static void set_threads(weir_engine_model *model, int threads)
{
    const wg_library *lib = model->library;
    if (threads > 1)
        need_pool(model, threads);
    if (model->pool && threads > model->pool_threads)
        threads = model->pool_threads;
    if (threads == model->threads)
        return;
    lib->llama_set_n_threads(model->context, threads, threads);
    if (threads > 1 && model->pool)
        lib->llama_attach_threadpool(model->context, model->pool, model->pool);
    else
        lib->llama_detach_threadpool(model->context);
    model->threads = threads;
}

weir_status wg_cores_take(weir_engine_model *model, bool (*stops)(void *user), void *user, bool *leased)
{
    uint32_t cores = 0;
    weir_status status = wt_cores_take(model->cores, stops, user, leased, &cores);
    if (*leased)
        set_threads(model, model->load.threads ? (int)model->load.threads : (int)cores);
    return status;
}
