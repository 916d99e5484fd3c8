/* A plug-in of the tests. What is wrong with it is chosen when it is compiled. */
#include <weir/engine.h>

#include <string.h>

static weir_status probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}
static weir_status load(const weir_engine_load *request, weir_engine_model **out)
{
    (void)request;
    *out = (weir_engine_model *)out;
    return WEIR_OK;
}
static weir_status infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model;
    (void)inference;
    out->count = 0;
    return WEIR_OK;
}
static void release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}
static weir_status info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    out->engine = "plugin";
    return WEIR_OK;
}
static void unload(weir_engine_model *model)
{
    (void)model;
}

static const weir_engine engine = {
#ifdef NEWER_ABI
    .abi = WEIR_ENGINE_ABI + 1,
#elif defined OLD_ABI
    .abi = WEIR_ENGINE_ABI_OLDEST - 1,
#else
    .abi = WEIR_ENGINE_ABI,
#endif
#ifdef SMALL_TABLE
    .struct_size = offsetof(weir_engine, unload),
#else
    .struct_size = sizeof(weir_engine) + 8, /* more than this weir looks at */
#endif
    .name = PLUGIN_NAME,
    .summary = "a plug-in of the tests",
    .suffixes = ".tst .test",
    .probe = probe,
#ifndef NO_LOAD
    .load = load,
#endif
    .infer = infer,
    .release_outputs = release_outputs,
    .info = info,
    .unload = unload,
};

#ifdef NO_ENTRY
#define ENTRY some_other_entry
#else
#define ENTRY weir_engine_entry
#endif

WEIR_API const weir_engine *ENTRY(uint32_t abi);

const weir_engine *ENTRY(uint32_t abi)
{
    (void)abi;
    (void)engine;
    (void)load;
#ifdef NO_TABLE
    return NULL;
#else
    return abi >= 1 ? &engine : NULL;
#endif
}
