#include "check_engine.h"

#include "engine_file.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

WEIR_PRINTF(2, 3)
static void remark(check_engine *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    out->remarks = text_grow(out->remarks, out->remark_count + 1, sizeof *out->remarks);
    out->remarks[out->remark_count++] = text_vprint(format, arguments);
    va_end(arguments);
}

/* ---- what is not here ------------------------------------------------------------------------------------------------ */

static bool find_provider(const weir_engine *engine, const char *name, weir_engine_provider *out)
{
    for (size_t i = 0; engine_provider_at(engine, i, out) == WEIR_OK; i++)
        if (strcasecmp(out->name, name) == 0)
            return true;
    return false;
}

static bool has_any(const weir_engine *engine)
{
    weir_engine_provider provider;
    for (size_t i = 0; engine_provider_at(engine, i, &provider) == WEIR_OK; i++)
        if (provider.state == WEIR_PROVIDER_HERE)
            return true;
    return false;
}

/* The processor's is what there is for every machine. */
static void remark_missing(check_engine *out, const weir_engine *engine)
{
    weir_engine_provider provider;
    bool told = find_provider(engine, "cpu", &provider) || engine_provider_at(engine, 0, &provider) == WEIR_OK;
    remark(out, "the engine %s cannot run a model here: %s", out->name, told ? provider.missing : "it has no provider");
}

/* One that the manifest names, and would have done without a word. */
static void remark_provider(check_engine *out, const weir_engine *engine, const char *name)
{
    weir_engine_provider provider;
    if (strcasecmp(name, "cpu") == 0)
        return;
    if (!find_provider(engine, name, &provider))
        remark(out, "the engine %s has no provider %s", out->name, name);
    else if (provider.state != WEIR_PROVIDER_HERE)
        remark(out, "the provider %s of the engine %s is not here: %s", name, out->name, provider.missing);
}

static void look_at_providers(check_engine *out, const weir_engine *engine, const weir_requirements *needs)
{
    out->here = has_any(engine);
    if (!out->here)
        remark_missing(out, engine);
    if (needs->preferred_provider)
        remark_provider(out, engine, needs->preferred_provider);
    for (size_t i = 0; i < needs->fallback_count; i++)
        if (!needs->preferred_provider || strcasecmp(needs->preferred_provider, needs->fallback_providers[i]) != 0)
            remark_provider(out, engine, needs->fallback_providers[i]);
}

/* ---- settings -------------------------------------------------------------------------------------------------------- */

/* What else a plan finds is the load's to say. */
static bool takes_settings(const weir_engine *engine, const weir_manifest *manifest, const char *provider)
{
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = manifest->model_file;
    load.settings = manifest->settings;
    load.setting_count = manifest->setting_count;
    load.provider = provider;
    return engine->plan(&load, &plan) != WEIR_ERR_INVALID;
}

typedef struct asking {
    check_engine *out;
    const weir_engine *engine;
    const weir_manifest *manifest;
    char *why; /* the first refusal; NULL: none yet */
} asking;

static bool ask(asking *it, const char *provider, bool named)
{
    if (takes_settings(it->engine, it->manifest, provider))
        return true;
    if (named)
        remark(it->out, "the provider %s is passed over, as the settings are not for it: %s", provider, weir_detail());
    if (!it->why)
        it->why = text_copy(weir_detail());
    return false;
}

static bool ask_named(asking *it, const char *provider, bool *named)
{
    if (!provider || strcasecmp(provider, "cpu") == 0)
        return false;
    *named = true;
    return ask(it, provider, true);
}

/* Whichever provider a model may come to: those that are named and the processor, or by the command's words any. */
static bool takes_settings_somehow(asking *it)
{
    const weir_requirements *needs = &it->manifest->requirements;
    weir_engine_provider provider;
    bool named = false, taken = ask_named(it, needs->preferred_provider, &named);
    for (size_t i = 0; i < needs->fallback_count; i++)
        taken |= ask_named(it, needs->fallback_providers[i], &named);
    if (!taken && needs->cpu != WEIR_CPU_FORBIDDEN)
        taken = ask(it, "cpu", false);
    for (size_t i = 0; !named && !taken && engine_provider_at(it->engine, i, &provider) == WEIR_OK; i++)
        taken = ask(it, provider.name, false);
    return taken;
}

static weir_status look_at_settings(check_engine *out, const weir_engine *engine, const weir_manifest *manifest)
{
    asking it = {.out = out, .engine = engine, .manifest = manifest};
    bool asks = manifest->setting_count > 0 && engine->abi >= 2 && engine->plan != NULL;
    weir_status status = WEIR_OK;
    if (asks && !takes_settings_somehow(&it))
        status = weir_fail(WEIR_ERR_INVALID, "%s: tuning: %s", manifest->path, it.why ? it.why : "nobody takes it");
    free(it.why);
    return status;
}

weir_status check_engine_look(const weir_manifest *manifest, check_engine *out)
{
    const weir_engine *engine = NULL;
    *out = (check_engine){.name = NULL};
    if (manifest->framework) {
        out->name = text_copy(manifest->framework);
        if (weir_engine_open(out->name, &engine) != WEIR_OK) {
            remark(out, "%s", weir_detail());
            return WEIR_OK;
        }
    } else if ((engine = engine_for_file(manifest->model_file)) == NULL) {
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s is neither a manifest nor a model that an engine here takes; 'weir engines' lists them",
                         manifest->model_file);
    } else {
        out->name = text_copy(engine->name);
    }
    look_at_providers(out, engine, &manifest->requirements);
    return look_at_settings(out, engine, manifest);
}

void check_engine_clear(check_engine *engine)
{
    for (size_t i = 0; i < engine->remark_count; i++)
        free(engine->remarks[i]);
    free(engine->remarks);
    free(engine->name);
    *engine = (check_engine){.name = NULL};
}
