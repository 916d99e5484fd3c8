/* The rules: a function for every rule, with its code and its sentence. The first that refuses a candidate is its
 * verdict. */
#include "factory/choice/context.h"
#include "base/values.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

typedef weir_verdict rule(wi_context *context, wi_candidate *candidate);

WEIR_PRINTF(4, 5)
static weir_verdict verdicts_refuse(wi_context *context, wi_candidate *candidate, weir_verdict verdict,
                                    const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    candidate->reason = wi_string_pool_vprint(&context->strings, format, arguments);
    va_end(arguments);
    return verdict;
}

/* Engines ---------------------------------------------------------------------------------------------------------- */

static weir_verdict engine_is_asked_for(wi_context *context, wi_candidate *c)
{
    const char *option = context->criteria.options.engine, *framework = context->criteria.manifest.framework;
    if (option && strcasecmp(option, c->engine->name) != 0)
        return verdicts_refuse(context, c, WEIR_VERDICT_NOT_ASKED, "the engine %s was asked for", option);
    if (framework && strcasecmp(framework, c->engine->name) != 0)
        return verdicts_refuse(context, c, WEIR_VERDICT_NOT_ASKED, "the manifest's framework is %s", framework);
    return WEIR_VERDICT_ACCEPTED;
}

/* An engine named by the caller or the manifest tries the file, whatever the file's name. */
static weir_verdict engine_takes_the_file(wi_context *context, wi_candidate *c)
{
    if (context->criteria.options.engine || context->criteria.manifest.framework || c->engine->takes_file)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_OTHER_FORMAT,
                           "the engine %s does not take %s, by its name or its first bytes", c->engine->name,
                           context->criteria.manifest.model_file);
}

static weir_verdict engine_is_here(wi_context *context, wi_candidate *c)
{
    if (c->engine->table)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_NO_ENGINE, "%s", c->engine->missing);
}

/* Providers -------------------------------------------------------------------------------------------------------- */

static weir_verdict provider_is_asked_for(wi_context *context, wi_candidate *c)
{
    const wi_criteria *criteria = &context->criteria;
    const char *name = wi_provider_name(c->provider);
    char list[128];
    if (c->provider == WI_CPU && !criteria->one_provider && !criteria->cpu_named && criteria->cpu == WEIR_CPU_LISTED)
        return verdicts_refuse(context, c, WEIR_VERDICT_NO_CPU,
                               "the processor would do, and is taken only where it is listed by name");
    if (wi_sequence_index(&criteria->order, c->provider) >= 0)
        return WEIR_VERDICT_ACCEPTED;
    if (criteria->one_provider)
        return verdicts_refuse(context, c, WEIR_VERDICT_NOT_ASKED, "the provider %s was asked for",
                               criteria->options.provider);
    if (!criteria->by_order)
        return verdicts_refuse(
            context, c, WEIR_VERDICT_NOT_LISTED, "the manifest lists %s, and not %s",
            criteria->listed.count ? wi_sequence_write(&criteria->listed, list, sizeof list) : "no provider", name);
    return verdicts_refuse(context, c, WEIR_VERDICT_NOT_LISTED, "%s is taken where it is named; the order is %s", name,
                           wi_sequence_write(&criteria->order, list, sizeof list));
}

static weir_verdict processor_may_be_used(wi_context *context, wi_candidate *c)
{
    if (!c->device || c->device->kind != WEIR_HARDWARE_CPU || context->criteria.cpu != WEIR_CPU_FORBIDDEN)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_NO_CPU, "the processor would do, and is forbidden");
}

static weir_verdict refuse_state(wi_context *context, wi_candidate *c, weir_verdict verdict, const char *sentence)
{
    const char *missing = c->engine->providers[c->provider].missing;
    return verdicts_refuse(context, c, verdict, "%s %s of the engine %s%s%s", wi_provider_name(c->provider), sentence,
                           c->engine->name, missing[0] ? ": " : "", missing);
}

static weir_verdict library_has_the_provider(wi_context *context, wi_candidate *c)
{
    wi_engine_ask(c->engine);
    const weir_engine_provider *provider = &c->engine->providers[c->provider];
    if (!provider->name[0])
        return refuse_state(context, c, WEIR_VERDICT_NOT_BUILT, "is no provider");
    switch (provider->state) {
    case WEIR_PROVIDER_HERE:
        return WEIR_VERDICT_ACCEPTED;
    case WEIR_PROVIDER_NOT_BUILT:
        return refuse_state(context, c, WEIR_VERDICT_NOT_BUILT, "is in no library");
    case WEIR_PROVIDER_NOT_LOADABLE:
        return refuse_state(context, c, WEIR_VERDICT_NOT_LOADABLE, "cannot be loaded by a library");
    case WEIR_PROVIDER_NO_LIBRARY:
        return refuse_state(context, c, WEIR_VERDICT_NO_ENGINE, "needs a library that is not here");
    }
    return refuse_state(context, c, WEIR_VERDICT_NOT_LOADABLE, "is in an unknown state, in a library");
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

/* The ordinals of the devices that the provider could use. */
static const char *ordinals(const wi_context *context, wi_provider provider, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < context->hardware->device_count && length < capacity; i++) {
        const weir_hardware_device *d = context->devices[i];
        if (d->kind != WEIR_HARDWARE_CPU && d->ordinal >= 0 && wi_provider_on(provider, d->kind))
            length += (size_t)snprintf(text + length, capacity - length, "%s%d", length ? ", " : "", (int)d->ordinal);
    }
    return length ? text : "none that this process may use";
}

static bool has_a_device(const wi_context *context, wi_provider provider)
{
    for (size_t i = 0; i < context->hardware->device_count; i++)
        if (wi_provider_on(provider, context->devices[i]->kind))
            return true;
    return false;
}

static weir_verdict device_is_here(wi_context *context, wi_candidate *c)
{
    char list[128], ids[128] = "";
    const wi_provider_needs *wants = &wi_provider_needs_of[c->provider];
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    const char *name = wi_provider_name(c->provider), *named = context->criteria.options.device;
    if (c->device)
        return WEIR_VERDICT_ACCEPTED;
    if (!has_a_device(context, c->provider))
        return verdicts_refuse(context, c, wants->elsewhere ? WEIR_VERDICT_OTHER_PLATFORM : WEIR_VERDICT_NO_DEVICE,
                               wants->elsewhere ? "%s needs %s, which exists on another system only"
                                                : "%s needs %s, and none was found on this machine",
                               name, wants->wants);
    for (size_t i = 0, length = 0; !named && i < needs->device_count && length < sizeof ids; i++)
        length += (size_t)snprintf(ids + length, sizeof ids - length, "%s%d", i ? ", " : "", needs->device_ids[i]);
    return verdicts_refuse(context, c, WEIR_VERDICT_NO_DEVICE,
                           "of the device%s %s that %s named, one is not found for %s; there are %s",
                           !named && needs->device_count > 1 ? "s" : "", named ? named : ids,
                           named ? "was" : "the manifest has", name, ordinals(context, c->provider, list, sizeof list));
}

static weir_verdict device_is_asked_for(wi_context *context, wi_candidate *c)
{
    const wi_criteria *criteria = &context->criteria;
    if (!wi_criteria_name(criteria, c->device))
        return verdicts_refuse(context, c, WEIR_VERDICT_NOT_ASKED, "the device %s was asked for",
                               criteria->options.device);
    /* A strategy means any device; those with the given ordinals come first then. */
    if (criteria->device.by == WI_ANY_DEVICE && !criteria->manifest.requirements.strategy &&
        !wi_criteria_list(criteria, c->device))
        return verdicts_refuse(context, c, WEIR_VERDICT_NOT_ASKED, "the manifest names other devices than %d",
                               (int)c->device->ordinal);
    return WEIR_VERDICT_ACCEPTED;
}

static weir_verdict device_can_be_used(wi_context *context, wi_candidate *c)
{
    const weir_hardware_device *d = c->device;
    if (d->usable)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_DEVICE_UNUSABLE, "%s (%s) cannot be used: %s", d->key, d->name,
                           d->remark[0] ? d->remark : "nobody says why");
}

/* An unknown version counts as older than every version. */
static weir_verdict is_new_enough(wi_context *context, wi_candidate *c, weir_verdict verdict, const char *what,
                                  weir_version_number there, weir_version_number wanted)
{
    char has[48], wants[48];
    if (wanted.count == 0 || wi_version_compare(there, wanted) >= 0)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, verdict, "%s of %s is %s, and the manifest wants %s or later", what,
                           c->device->key, wi_version_write(there, has, sizeof has),
                           wi_version_write(wanted, wants, sizeof wants));
}

static weir_verdict cuda_is_new_enough(wi_context *context, wi_candidate *c)
{
    if (c->device->kind != WEIR_HARDWARE_CUDA)
        return WEIR_VERDICT_ACCEPTED;
    return is_new_enough(context, c, WEIR_VERDICT_OLD_CUDA, "the CUDA version that the driver serves",
                         c->device->driver_runtime, context->criteria.manifest.requirements.min_cuda_version);
}

static weir_verdict driver_is_new_enough(wi_context *context, wi_candidate *c)
{
    if (c->device->kind == WEIR_HARDWARE_CPU)
        return WEIR_VERDICT_ACCEPTED;
    return is_new_enough(context, c, WEIR_VERDICT_OLD_DRIVER, "the driver", c->device->driver,
                         context->criteria.manifest.requirements.min_driver_version);
}

static weir_verdict device_is_new_enough(wi_context *context, wi_candidate *c)
{
    if (c->device->kind != WEIR_HARDWARE_CUDA)
        return WEIR_VERDICT_ACCEPTED;
    return is_new_enough(context, c, WEIR_VERDICT_OLD_DEVICE, "the compute capability", c->device->capability,
                         context->criteria.manifest.requirements.min_compute_capability);
}

/* The model -------------------------------------------------------------------------------------------------------- */

static weir_verdict settings_are_taken(wi_context *context, wi_candidate *c)
{
    const char *level = context->criteria.manifest.requirements.graph_optimization_level;
    if (level && !wi_engine_has_levels(c->engine->name) && !wi_level_is_all(level))
        return verdicts_refuse(context, c, WEIR_VERDICT_BAD_SETTING,
                               "the engine %s has no levels of optimization: leave graph_optimization_level \"%s\" out",
                               c->engine->name, level);
    wi_predict(context, c->engine, c->provider, c->prediction);
    c->reason = c->prediction->reason;
    return c->prediction->verdict;
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

uint64_t wi_candidate_bytes(const wi_context *context, const wi_candidate *c)
{
    return c->prediction->known ? c->prediction->bytes : context->file_bytes;
}

static bool on_processor(const wi_candidate *c)
{
    return c->device->kind == WEIR_HARDWARE_CPU;
}

/* Whether the model's account is of the host, for want of a driver for its device. */
static bool account_elsewhere(const wi_candidate *c)
{
    return !on_processor(c) && strcmp(wi_candidate_runtime(c), "host") == 0;
}

/* Bytes that a candidate wants of the host and of its device, if that is another. */
typedef struct need {
    uint64_t host, device;
} need;

static need verdicts_need_of(const wi_context *context, const wi_candidate *c)
{
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    uint64_t bytes = wi_candidate_bytes(context, c);
    bool here = on_processor(c);
    uint64_t here_too = here ? wi_max(bytes, needs->guaranteed) : account_elsewhere(c) ? needs->guaranteed : 0;
    uint64_t there = here ? 0 : wi_max(bytes, wi_max(needs->min_vram, account_elsewhere(c) ? 0 : needs->guaranteed));
    return (need){.host = wi_max(needs->min_memory, here_too), .device = there};
}

/* Returns the origin of a demand for `bytes`, for the reason. */
static const char *who_wants(const wi_context *context, const wi_candidate *c, uint64_t bytes, const char *least)
{
    if (least)
        return least;
    if (bytes == wi_candidate_bytes(context, c))
        return c->prediction->known ? "what the engine predicts" : "the size of the file; the engine predicts nothing";
    return "what is guaranteed to the model";
}

static weir_verdict maximum_is_enough(wi_context *context, wi_candidate *c)
{
    char wanted[24], most[24];
    uint64_t maximum = context->criteria.manifest.requirements.maximum;
    if (maximum == 0 || !c->prediction->known || account_elsewhere(c) || c->prediction->bytes <= maximum)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, on_processor(c) ? WEIR_VERDICT_LITTLE_MEMORY : WEIR_VERDICT_LITTLE_VRAM,
                           "the model may take %s, and %s are predicted; raise its maximum",
                           weir_size_format(maximum, most, sizeof most),
                           weir_size_format(c->prediction->bytes, wanted, sizeof wanted));
}

static weir_verdict host_has_memory(wi_context *context, wi_candidate *c)
{
    char wanted[24], there[24];
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    need wants = verdicts_need_of(context, c);
    bool demanded = needs->min_memory > 0 || wants.host == needs->guaranteed;
    const char *who =
        who_wants(context, c, wants.host, wants.host == needs->min_memory ? "the manifest's min_memory" : NULL);
    weir_size_format(wants.host, wanted, sizeof wanted);
    if (wants.host == 0 || (context->host == WEIR_BYTES_UNKNOWN && !demanded))
        return WEIR_VERDICT_ACCEPTED;
    if (context->host == WEIR_BYTES_UNKNOWN)
        return verdicts_refuse(context, c, WEIR_VERDICT_LITTLE_MEMORY,
                               "insufficient memory: %s are wanted of the host (%s), and nobody can tell what it has",
                               wanted, who);
    if (wants.host <= context->host)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_LITTLE_MEMORY,
                           "insufficient memory: %s can be had of the host, and %s are wanted (%s)",
                           weir_size_format(context->host, there, sizeof there), wanted, who);
}

static weir_verdict device_has_memory(wi_context *context, wi_candidate *c)
{
    char wanted[24], there[24], besides[24];
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    need wants = verdicts_need_of(context, c);
    bool demanded = needs->min_vram > 0 || (!account_elsewhere(c) && needs->guaranteed > 0);
    const char *who =
        who_wants(context, c, wants.device, wants.device == needs->min_vram ? "the manifest's min_vram" : NULL);
    weir_size_format(wants.device, wanted, sizeof wanted);
    if (wants.device == 0 || (c->obtainable == WEIR_BYTES_UNKNOWN && !demanded))
        return WEIR_VERDICT_ACCEPTED;
    if (c->obtainable == WEIR_BYTES_UNKNOWN)
        return verdicts_refuse(context, c, WEIR_VERDICT_LITTLE_VRAM,
                               "insufficient VRAM: %s are wanted of %s (%s), and nobody can tell what it has", wanted,
                               c->device->key, who);
    /* A device that shares the host's memory has to fit both parts of the model. */
    uint64_t host = c->device->shares_host ? wants.host : 0;
    if (wants.device <= c->obtainable && host <= c->obtainable - wants.device)
        return WEIR_VERDICT_ACCEPTED;
    return verdicts_refuse(context, c, WEIR_VERDICT_LITTLE_VRAM,
                           "insufficient VRAM: %s can be had of %s, and %s are wanted (%s)%s%s%s",
                           weir_size_format(c->obtainable, there, sizeof there), c->device->key, wanted, who,
                           host ? ", besides " : "", host ? weir_size_format(host, besides, sizeof besides) : "",
                           host ? " of the host's, which are the same memory" : "");
}

/* Rules in order of the reason: not asked for, not here, not suitable, too large. */
static rule *const rules[] = {
    engine_is_asked_for,   engine_takes_the_file, engine_is_here,       provider_is_asked_for,
    processor_may_be_used, device_is_here,        device_is_asked_for,  library_has_the_provider,
    device_can_be_used,    cuda_is_new_enough,    driver_is_new_enough, device_is_new_enough,
    settings_are_taken,    maximum_is_enough,     host_has_memory,      device_has_memory,
};

void wi_judge(wi_context *context, wi_candidate *candidate)
{
    candidate->verdict = WEIR_VERDICT_ACCEPTED;
    for (size_t i = 0; candidate->verdict == WEIR_VERDICT_ACCEPTED && i < sizeof rules / sizeof rules[0]; i++)
        candidate->verdict = rules[i](context, candidate);
}
