/* Lists the candidates, with the predicted bytes of each and the obtainable bytes of its device. */
#include "base/values.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include "factory/choice/context.h"
#include "factory/predict/forecast.h"
#include "runtime/runtime.h"

/* Providers and their devices -------------------------------------------------------------------------------------- */

#define KIND(kind) (1u << (WEIR_HARDWARE_##kind))

const wi_provider_needs wi_provider_needs_of[WI_PROVIDERS] = {
    [WI_TENSORRT] = {"a CUDA device", KIND(CUDA), false},
    [WI_CUDA] = {"a CUDA device", KIND(CUDA), false},
    [WI_ROCM] = {"a ROCm device", KIND(ROCM), false},
    [WI_COREML] = {"a Metal device", KIND(METAL), true},
    [WI_DIRECTML] = {"a DirectML device", KIND(DIRECTML), true},
    [WI_OPENVINO] = {"a processor or an Intel device", KIND(CPU) | KIND(INTEL), false},
    [WI_CPU] = {"a processor", KIND(CPU), false},
};

bool wi_provider_on(wi_provider provider, weir_hardware_kind kind)
{
    return (unsigned)kind < WEIR_HARDWARE_COUNT && (wi_provider_needs_of[provider].kinds & (1u << kind)) != 0;
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

#define NOBODY SIZE_MAX

typedef struct listing {
    wi_context *context;
    size_t room;
} listing;

/* `device`: its number, or NOBODY. */
static bool candidates_add(listing *list, wi_engine_info *engine, wi_provider provider, size_t device)
{
    wi_context *context = list->context;
    if (context->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        wi_candidate *more = realloc(context->candidates, room * sizeof *more);
        if (!more)
            return false;
        context->candidates = more;
        list->room = room;
    }
    size_t at = (size_t)(engine - context->engines.all) * WI_PROVIDERS + (size_t)provider;
    context->candidates[context->count++] =
        (wi_candidate){.engine = engine,
                       .provider = provider,
                       .device = device == NOBODY ? NULL : context->devices[device],
                       .prediction = &context->predictions[at],
                       .obtainable = device == NOBODY ? WEIR_BYTES_UNKNOWN : context->obtainable[device],
                       .reason = ""};
    return true;
}

/* Whether an ordinal is named, of the provider's kinds, that no device has. The processor has no ordinals. */
static bool is_missing(const wi_context *context, wi_provider provider, int32_t ordinal)
{
    bool any = false;
    for (size_t i = 0; i < context->hardware->device_count; i++) {
        const weir_hardware_device *device = context->devices[i];
        if (device->kind == WEIR_HARDWARE_CPU || !wi_provider_on(provider, device->kind))
            continue;
        if (device->ordinal == ordinal)
            return false;
        any = true;
    }
    return any;
}

static bool names_a_missing_one(const wi_context *context, wi_provider provider)
{
    const wi_device_name *name = &context->criteria.device;
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    if (name->by == WI_BY_ORDINAL || (name->by == WI_BY_KIND && wi_provider_on(provider, name->kind)))
        return name->kind != WEIR_HARDWARE_CPU || name->by == WI_BY_ORDINAL
                   ? is_missing(context, provider, name->ordinal)
                   : false;
    for (size_t i = 0; name->by == WI_ANY_DEVICE && !needs->strategy && i < needs->device_count; i++)
        if (is_missing(context, provider, needs->device_ids[i]))
            return true;
    return false;
}

static bool list_provider(listing *list, wi_engine_info *engine, wi_provider provider)
{
    const wi_context *context = list->context;
    bool good = true, any = false;
    for (size_t i = 0; good && i < context->hardware->device_count; i++)
        if (wi_provider_on(provider, context->devices[i]->kind)) {
            good = candidates_add(list, engine, provider, i);
            any = true;
        }
    if (good && (!any || names_a_missing_one(context, provider)))
        good = candidates_add(list, engine, provider, NOBODY);
    return good;
}

weir_status wi_candidates_list(wi_context *context)
{
    listing list = {.context = context};
    for (size_t i = 0; i < context->engines.count; i++)
        for (int provider = 0; provider < WI_PROVIDERS; provider++)
            if (!list_provider(&list, &context->engines.all[i], (wi_provider)provider))
                return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a list of candidates");
    return WEIR_OK;
}

const char *wi_candidate_runtime(const wi_candidate *candidate)
{
    return candidate->device && candidate->device->runtime[0] ? candidate->device->runtime : "host";
}

/* What an engine says beforehand ----------------------------------------------------------------------------------- */

/* A model that cannot be planned could not be loaded either. What has failed here for want of something may be had where
 * it is loaded. */
static weir_verdict verdict_of(weir_status status)
{
    switch (status) {
    case WEIR_ERR_INVALID:
        return WEIR_VERDICT_BAD_SETTING;
    case WEIR_ERR_OUT_OF_MEMORY:
    case WEIR_ERR_DRIVER:
    case WEIR_ERR_DEVICE_LOST:
    case WEIR_ERR_CANCELLED:
        return WEIR_VERDICT_ACCEPTED;
    default:
        return WEIR_VERDICT_OTHER_FORMAT;
    }
}

static void candidates_take(wi_context *context, wi_prediction *prediction, weir_status status,
                            const weir_prediction *said)
{
    prediction->known = status == WEIR_OK;
    if (status == WEIR_OK) {
        prediction->said = *said;
        prediction->bytes = said->least_total;
        return;
    }
    prediction->verdict = verdict_of(status);
    prediction->reason = wi_string_pool_print(&context->strings, "%s", weir_detail());
}

static weir_status candidates_ask(wi_context *context, const wi_engine_info *engine, wi_provider provider,
                                  wi_forecast *out)
{
    const weir_manifest *manifest = &context->criteria.manifest;
    wi_settings settings;
    weir_status status = wi_settings_merge(manifest, &context->criteria.options, engine->name, &settings);
    context->strings.failed |= status != WEIR_OK;
    if (status == WEIR_OK) {
        wi_forecast_ask request = {.table = engine->table,
                                   .engine = engine->name,
                                   .path = manifest->model_file,
                                   .provider = wi_provider_name(provider),
                                   /* as the runtime of the model's client is called */
                                   .device = provider == WI_CUDA || provider == WI_TENSORRT ? "cuda:0" : "host",
                                   .version = engine->providers[provider].version,
                                   .settings = settings.all,
                                   .setting_count = settings.count};
        status = wi_forecast_make(&request, out);
    }
    wi_settings_free(&settings);
    return status;
}

void wi_predict(wi_context *context, const wi_engine_info *engine, wi_provider provider, wi_prediction *prediction)
{
    wi_forecast forecast;
    wi_saved_detail saved;
    if (prediction->asked)
        return;
    *prediction = (wi_prediction){.asked = true, .reason = ""};
    if (!engine->table->plan) {
        prediction->reason = wi_string_pool_print(&context->strings, "the engine %s does not predict", engine->name);
        return;
    }
    wi_detail_save(&saved);
    weir_status status = candidates_ask(context, engine, provider, &forecast);
    candidates_take(context, prediction, status, &forecast.prediction);
    wi_detail_restore(&saved);
}

/* Obtainable bytes of a device: what a budget leaves, or the free bytes less a margin ------------------------------ */

/* The margin that a runtime leaves by default, for what others on the machine may want. */
static uint64_t less_margin(uint64_t bytes)
{
    return bytes - wi_min(bytes, wi_max(bytes / 10, 512 * WI_MIB));
}

/* Where the process has a runtime, its budget decides, as far as the device can still give what is not held already. */
static uint64_t of_runtime(const wi_context *context, weir_runtime *runtime, uint64_t available)
{
    const weir_client *client = context->client;
    const wi_account *own = client && weir_client_runtime(client) == runtime ? &client->account : NULL;
    uint64_t idle, left = wi_ledger_left_for(&runtime->ledger, own, &idle);
    return available == WEIR_BYTES_UNKNOWN ? left : wi_min(left, idle + available);
}

/* Where it will have one, its budget is the option's, else what is free less the margin. */
static uint64_t of_device(const char *runtime, uint64_t available)
{
    uint64_t budget = 0;
    if (runtime[0] && wi_option_budget(runtime, &budget) == WEIR_OK && budget > 0)
        return wi_min(budget, available);
    return available == WEIR_BYTES_UNKNOWN ? available : less_margin(available);
}

static bool candidates_is_given(const wi_context *context, const weir_hardware_device *device, uint64_t *bytes)
{
    const weir_choice_options *options = &context->criteria.options;
    for (size_t i = 0; i < options->obtainable_count; i++)
        if (options->obtainable[i].device && strcmp(options->obtainable[i].device, device->key) == 0) {
            *bytes = options->obtainable[i].bytes;
            return true;
        }
    return false;
}

static uint64_t of_one(const wi_context *context, const weir_hardware_device *device)
{
    uint64_t bytes;
    if (candidates_is_given(context, device, &bytes))
        return bytes;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    weir_runtime *runtime = device->runtime[0] ? wi_runtime_there(device->runtime) : NULL;
    bytes = runtime ? of_runtime(context, runtime, device->free) : of_device(device->runtime, device->free);
    wi_detail_restore(&saved);
    return bytes;
}

/* Memory that is the processor's as well can be had once. */
uint64_t wi_obtainable(const wi_context *context, const weir_hardware_device *device)
{
    uint64_t bytes = of_one(context, device);
    if (device->shares_host && device->kind != WEIR_HARDWARE_CPU && context->processor)
        bytes = wi_min(bytes, of_one(context, context->processor));
    return bytes;
}
