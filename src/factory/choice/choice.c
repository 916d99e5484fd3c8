/* The choice as callers see it: what is looked at, and the record of it. */
#include "factory/choice/context.h"
#include "factory/predict/forecast.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <unistd.h>

typedef struct record {
    weir_choice choice; /* first: callers have its address */
    wi_string_pool strings;
    weir_candidate *candidates;
} record;

/* What is looked at ------------------------------------------------------------------------------------------------ */

static weir_status look_at_file(const char *path, uint64_t *bytes)
{
    if (access(path, R_OK) != 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not there or cannot be read", path);
    *bytes = wi_forecast_size(path);
    return WEIR_OK;
}

static weir_status check_engines(const wi_context *context)
{
    const char *framework = context->criteria.manifest.framework, *engine = context->criteria.options.engine;
    weir_status status =
        framework ? wi_engines_check(&context->engines, "the manifest's framework", framework) : WEIR_OK;
    return status == WEIR_OK && engine ? wi_engines_check(&context->engines, "engine", engine) : status;
}

static int by_kind(const void *x, const void *y)
{
    const weir_hardware_device *a = *(const weir_hardware_device *const *)x;
    const weir_hardware_device *b = *(const weir_hardware_device *const *)y;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    uint32_t left = (uint32_t)a->ordinal, right = (uint32_t)b->ordinal; /* hidden ones last */
    return left != right ? (left < right ? -1 : 1) : strcmp(a->key, b->key);
}

static weir_status look_at_devices(wi_context *context)
{
    size_t count = context->hardware->device_count;
    context->devices = calloc(count + 1, sizeof(void *));
    context->obtainable = calloc(count + 1, sizeof *context->obtainable);
    if (!context->devices || !context->obtainable)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a list of devices");
    for (size_t i = 0; i < count; i++)
        context->devices[i] = &context->hardware->devices[i];
    qsort(context->devices, count, sizeof(void *), by_kind);
    if (count > 0 && context->devices[0]->kind == WEIR_HARDWARE_CPU)
        context->processor = context->devices[0];
    for (size_t i = 0; i < count; i++)
        context->obtainable[i] = wi_obtainable(context, context->devices[i]);
    context->host = context->processor ? context->obtainable[0] : WEIR_BYTES_UNKNOWN;
    return WEIR_OK;
}

weir_status wi_decide(wi_context *context)
{
    weir_status status = look_at_devices(context);
    context->predictions = calloc(context->engines.count * WI_PROVIDERS + 1, sizeof *context->predictions);
    if (status == WEIR_OK && !context->predictions)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for predictions");
    if (status == WEIR_OK)
        status = wi_candidates_list(context);
    if (status != WEIR_OK)
        return status;
    for (size_t i = 0; i < context->count; i++)
        wi_judge(context, &context->candidates[i]);
    wi_rank(context);
    return WEIR_OK;
}

void wi_context_clear(wi_context *context)
{
    wi_engines_free(&context->engines);
    wi_string_pool_free(&context->strings);
    free(context->candidates);
    free(context->devices);
    free(context->obtainable);
    free(context->predictions);
}

/* The record ------------------------------------------------------------------------------------------------------- */

static weir_candidate write_candidate(wi_context *context, wi_candidate *c, int32_t rank)
{
    const weir_engine_provider *provider = &c->engine->providers[c->provider];
    weir_candidate out = {.struct_size = sizeof out,
                          .engine = wi_string_pool_print(&context->strings, "%s", c->engine->name),
                          .provider = wi_provider_name(c->provider),
                          .device = c->device ? wi_string_pool_print(&context->strings, "%s", c->device->key) : "",
                          .runtime =
                              c->device ? wi_string_pool_print(&context->strings, "%s", wi_candidate_runtime(c)) : "",
                          .library = wi_string_pool_print(&context->strings, "%s", provider->library),
                          .version = wi_string_pool_print(&context->strings, "%s", provider->version),
                          .verdict = c->verdict,
                          .reason = c->reason,
                          .rank = rank,
                          .predicted = c->prediction->known,
                          .obtainable = c->obtainable};
    if (c->prediction->known && c->device) {
        memcpy(out.bytes, c->prediction->said.least, sizeof out.bytes);
        memcpy(out.exact, c->prediction->said.exact, sizeof out.exact);
    }
    return out;
}

static weir_status write_record(wi_context *context, weir_choice **out)
{
    record *made = calloc(1, sizeof *made);
    if (made)
        made->candidates = calloc(context->count + 1, sizeof *made->candidates);
    if (made && made->candidates)
        for (size_t i = 0; i < context->count; i++)
            made->candidates[i] =
                write_candidate(context, &context->candidates[i], i < context->accepted ? (int32_t)i : -1);
    const char *rule = wi_explain(context);
    if (!made || !made->candidates || context->strings.failed) {
        if (made)
            free(made->candidates);
        free(made);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the record of a choice");
    }
    made->choice = (weir_choice){.struct_size = sizeof made->choice,
                                 .candidates = made->candidates,
                                 .count = context->count,
                                 .accepted = context->accepted,
                                 .policy = wi_policy_name(context->criteria.policy),
                                 .rule = rule};
    made->strings = context->strings;
    context->strings = (wi_string_pool){.last = NULL};
    *out = &made->choice;
    return WEIR_OK;
}

weir_status weir_choice_create(const weir_manifest *manifest, const weir_choice_options *options, weir_choice **out)
{
    return wi_choice_create(manifest, options, NULL, out);
}

weir_status wi_choice_create(const weir_manifest *manifest, const weir_choice_options *options,
                             const weir_client *client, weir_choice **out)
{
    WI_ENTER();
    wi_context context = {.client = client};
    weir_hardware *looked = NULL;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_choice_create: no place for the result");
    *out = NULL;
    weir_status status = wi_criteria_read(manifest, options, &context.criteria);
    if (status == WEIR_OK)
        status = look_at_file(context.criteria.manifest.model_file, &context.file_bytes);
    if (status == WEIR_OK)
        status = wi_engines_find(context.criteria.manifest.model_file, &context.engines);
    if (status == WEIR_OK)
        status = check_engines(&context);
    context.hardware = context.criteria.options.hardware;
    if (status == WEIR_OK && !context.hardware) {
        const weir_hardware_options patient = {.struct_size = sizeof patient, .limit_ms = WEIR_HARDWARE_PATIENT_MS};
        status = weir_hardware_create(&patient, &looked);
        context.hardware = looked;
    }
    if (status == WEIR_OK)
        status = wi_decide(&context);
    if (status == WEIR_OK)
        status = write_record(&context, out);
    weir_hardware_destroy(looked);
    wi_context_clear(&context);
    return status;
}

void weir_choice_destroy(weir_choice *choice)
{
    record *made = (record *)choice;
    if (!made)
        return;
    wi_string_pool_free(&made->strings);
    free(made->candidates);
    free(made);
}
