/* An instance of a model: its client and what the engine has loaded. */
#include "model/model.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/stats.h>

#include <stdio.h>

weir_status wi_instance_open(const weir_engine *engine, weir_runtime *runtime, const weir_client_options *options,
                             wi_instance **out)
{
    wi_instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    instance->engine = engine;
    weir_status status = weir_client_create(runtime, options, &instance->client);
    if (status != WEIR_OK)
        free(instance);
    else
        *out = instance;
    return status;
}

weir_status wi_instance_load(wi_instance *instance, const weir_engine_load *load)
{
    weir_engine_place place = {weir_client_runtime(instance->client), instance->client};
    weir_engine_load request = *load;
    request.places = &place;
    request.place_count = 1;
    weir_engine_model *loaded = NULL;
    weir_status status = instance->engine->load(&request, &loaded);
    if (status == WEIR_OK)
        instance->loaded = loaded;
    return status;
}

weir_status wi_instance_close(wi_instance *instance)
{
    weir_engine_model *loaded = instance->loaded;
    instance->loaded = NULL;
    if (loaded)
        instance->engine->unload(loaded);
    if (weir_client_destroy(instance->client) == WEIR_OK)
        return WEIR_OK;
    weir_log(WEIR_LOG_ERROR, "after %s: %s", loaded ? "unloading" : "a failed load", weir_detail());
    /* Not WEIR_ERR_BUSY, which says that the model is still there. */
    return weir_fail(WEIR_ERR_ENGINE, "the model is unloaded, but the engine %s kept memory: %s",
                     instance->engine->name, weir_detail());
}

uint64_t wi_instance_peak(const wi_instance *instance)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    return weir_client_info(instance->client, &stats) == WEIR_OK ? stats.peak : 0;
}

weir_status wi_engine_lacks(const weir_engine *engine, const char *what)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s has no %s", engine->name, what);
}
