#include "choice/settings.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#define LEVEL    "optimization"
#define FALLBACK "cpu_fallback"

bool wi_engine_has_levels(const char *engine)
{
    return strcmp(engine, "onnx") == 0;
}

static bool has(const wi_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->all[i].key, key) == 0)
            return true;
    return false;
}

weir_status wi_settings_merge(const weir_manifest *manifest, const weir_choice_options *options, const char *engine,
                              wi_settings *out)
{
    size_t most = options->setting_count + manifest->setting_count + 2;
    const char *level = manifest->requirements.graph_optimization_level;
    *out = (wi_settings){.all = calloc(most, sizeof *out->all)};
    if (!out->all)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for %zu settings", most);
    for (size_t i = 0; i < options->setting_count; i++)
        out->all[out->count++] = options->settings[i];
    for (size_t i = 0; i < manifest->setting_count; i++)
        if (!has(out, manifest->settings[i].key))
            out->all[out->count++] = manifest->settings[i];
    if (level && *level && wi_engine_has_levels(engine) && !has(out, LEVEL))
        out->all[out->count++] = (weir_setting){LEVEL, level};
    return WEIR_OK;
}

/* Refused before anything is loaded, and by the library itself. */
void wi_settings_all_on_provider(wi_settings *settings, const char *engine)
{
    if (strcmp(engine, "onnx") == 0 && !has(settings, FALLBACK))
        settings->all[settings->count++] = (weir_setting){FALLBACK, "off"};
}

void wi_settings_free(wi_settings *settings)
{
    free(settings->all);
    *settings = (wi_settings){.count = 0};
}
