/* What an engine says beforehand. */
#include "choice/settings.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include "choice/context.h"

/* Since version 2 of the table an engine is asked without a place. */
static bool can_predict(const weir_engine *table)
{
    return table->abi >= 2 && table->plan != NULL;
}

static void take(wi_world *world, wi_prediction *prediction, weir_status status)
{
    prediction->told = status == WEIR_OK;
    if (status == WEIR_OK) {
        for (int i = 0; i < WEIR_CLASS_COUNT; i++)
            if (__builtin_add_overflow(prediction->bytes, prediction->plan.bytes[i], &prediction->bytes))
                prediction->bytes = UINT64_MAX - 1; /* which nothing has; the maximum means that nobody knows */
        return;
    }
    if (status == WEIR_ERR_INVALID)
        prediction->verdict = WEIR_VERDICT_BAD_SETTING;
    else if (status == WEIR_ERR_CORRUPT || status == WEIR_ERR_UNSUPPORTED)
        prediction->verdict = WEIR_VERDICT_OTHER_FORMAT;
    prediction->reason = wi_string_pool_print(&world->texts, "%s", weir_detail());
}

void wi_predict(wi_world *world, const wi_engine_facts *engine, wi_provider provider, wi_prediction *prediction)
{
    const weir_manifest *manifest = &world->wish.manifest;
    wi_settings settings;
    wi_kept_detail kept;
    if (prediction->asked)
        return;
    *prediction = (wi_prediction){.asked = true, .reason = "", .plan = {.struct_size = sizeof prediction->plan}};
    if (!can_predict(engine->table)) {
        prediction->reason = wi_string_pool_print(&world->texts, "the engine %s does not predict", engine->name);
        return;
    }
    wi_detail_keep(&kept);
    weir_status status = wi_settings_merge(manifest, &world->wish.options, engine->name, &settings);
    world->texts.failed |= status != WEIR_OK;
    if (status == WEIR_OK) {
        weir_engine_load load = {.struct_size = sizeof load,
                                 .path = manifest->model_file,
                                 .settings = settings.all,
                                 .setting_count = settings.count,
                                 .provider = wi_provider_name(provider)};
        status = engine->table->plan(&load, &prediction->plan);
    }
    take(world, prediction, status);
    wi_settings_free(&settings);
    wi_detail_restore(&kept);
}
