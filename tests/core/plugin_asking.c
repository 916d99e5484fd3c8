/* A plug-in whose entry asks for engines itself. What it asks for is chosen when it is compiled; tests read what came of it. */
#include <weir/engine.h>

#include <stdatomic.h>
#include <time.h>

/* Of the plug-in's, for tests to look at: how often the entry was called, whether it is held there, how the engine PARTNER could
 * be opened, how many engines there were. */
WEIR_API extern atomic_int plugin_entries, plugin_held, plugin_partner, plugin_listed;
atomic_int plugin_entries, plugin_held, plugin_partner, plugin_listed;

static weir_status probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status load(const weir_engine_load *request, weir_engine_model **out)
{
    (void)request;
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "it loads nothing");
}

static weir_status infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model;
    (void)inference;
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "it has no models");
}

static void release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "it has no models");
}

static void unload(weir_engine_model *model)
{
    (void)model;
}

#define TABLE(called)                                                                                                  \
    {                                                                                                                  \
        .abi = WEIR_ENGINE_ABI, .struct_size = sizeof(weir_engine), .name = (called),                                  \
        .summary = "asks while it is opened", .suffixes = "", .probe = probe, .load = load, .infer = infer,            \
        .release_outputs = release_outputs, .info = info, .unload = unload                                             \
    }

static const weir_engine engine = TABLE(PLUGIN_NAME);
#ifdef BRINGS
static const weir_engine brought = TABLE(BRINGS);
#endif

static int count_engines(void)
{
    int count = 0;
    while (weir_engine_name_at((size_t)count))
        count++;
    return count;
}

WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    atomic_fetch_add(&plugin_entries, 1);
    while (atomic_load(&plugin_held))
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
#ifdef BRINGS
    if (weir_engine_register(&brought) != WEIR_OK)
        return NULL;
#endif
#ifdef PARTNER
    const weir_engine *partner;
    atomic_store(&plugin_partner, (int)weir_engine_get(PARTNER, &partner));
#endif
    atomic_store(&plugin_listed, count_engines());
    return abi >= WEIR_ENGINE_ABI ? &engine : NULL;
}
