/* See criteria.h. */
#include "factory/choice/criteria.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#define DEFAULT_ORDER "cuda rocm coreml directml cpu"

/* Orders ----------------------------------------------------------------------------------------------------------- */

int wi_sequence_index(const wi_sequence *order, wi_provider provider)
{
    for (size_t i = 0; i < order->count; i++)
        if (order->of[i] == provider)
            return (int)i;
    return -1;
}

const char *wi_sequence_write(const wi_sequence *order, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < order->count && length < capacity; i++)
        length +=
            (size_t)snprintf(text + length, capacity - length, "%s%s", i ? ", " : "", wi_provider_name(order->of[i]));
    return text;
}

static void criteria_add(wi_sequence *order, wi_provider provider)
{
    if (wi_sequence_index(order, provider) < 0)
        order->of[order->count++] = provider;
}

static void criteria_take_out(wi_sequence *order, wi_provider provider)
{
    int at = wi_sequence_index(order, provider);
    if (at < 0)
        return;
    order->count--;
    memmove(&order->of[at], &order->of[at + 1], (order->count - (size_t)at) * sizeof order->of[0]);
}

static weir_status criteria_add_word(const char *what, const char *word, wi_sequence *order)
{
    wi_provider provider = WI_CPU;
    if (!word || !*word)
        return WEIR_OK;
    weir_status status = wi_provider_read(what, word, &provider);
    if (status == WEIR_OK)
        criteria_add(order, provider);
    return status;
}

static weir_status read_order(const char *text, wi_sequence *out)
{
    static const char between[] = " ,\t\r\n";
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && *(text += strspn(text, between))) {
        char word[64];
        size_t length = strcspn(text, between);
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        status = criteria_add_word("the order of providers:", word, out);
        text += length;
    }
    return status;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

/* Digits alone, as an ordinal. */
static bool read_ordinal(const char *text, int32_t *out)
{
    int64_t number = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
        number = number * 10 + (*text - '0');
        if (number > INT32_MAX)
            return false;
    }
    *out = (int32_t)number;
    return true;
}

static weir_status criteria_read_device(const char *text, wi_device_name *out)
{
    *out = (wi_device_name){.by = WI_ANY_DEVICE};
    if (!text)
        return WEIR_OK;
    *out = (wi_device_name){.by = WI_BY_KEY, .text = text};
    if (text[0] == '-' && isdigit((unsigned char)text[1]))
        return weir_fail(WEIR_ERR_INVALID,
                         "device \"%.40s\": ordinals go from 0; a device is cuda:0, cpu, a key, or an "
                         "ordinal",
                         text);
    if (read_ordinal(text, &out->ordinal)) {
        out->by = WI_BY_ORDINAL;
        return WEIR_OK;
    }
    if (strcasecmp(text, "host") == 0)
        text = "cpu";
    size_t length = strcspn(text, ":");
    for (int kind = 0; kind < WEIR_HARDWARE_COUNT; kind++) {
        const char *name = weir_name_of(WEIR_NAMES_HARDWARE, kind);
        if (strncasecmp(name, text, length) != 0 || name[length])
            continue;
        if (!text[length] || read_ordinal(text + length + 1, &out->ordinal)) {
            out->by = WI_BY_KIND;
            out->kind = (weir_hardware_kind)kind;
        }
    }
    return WEIR_OK;
}

bool wi_criteria_name(const wi_criteria *criteria, const weir_hardware_device *device)
{
    const wi_device_name *name = &criteria->device;
    switch (name->by) {
    case WI_ANY_DEVICE:
        return true;
    case WI_BY_KEY:
        return strcasecmp(name->text, device->key) == 0;
    case WI_BY_KIND:
        return device->kind == name->kind && (name->kind == WEIR_HARDWARE_CPU || device->ordinal == name->ordinal);
    case WI_BY_ORDINAL:
        return device->kind != WEIR_HARDWARE_CPU && device->ordinal == name->ordinal;
    }
    return false;
}

bool wi_criteria_list(const wi_criteria *criteria, const weir_hardware_device *device)
{
    const weir_requirements *needs = &criteria->manifest.requirements;
    if (needs->device_count == 0 || device->kind == WEIR_HARDWARE_CPU)
        return true;
    for (size_t i = 0; i < needs->device_count; i++)
        if (needs->device_ids[i] == device->ordinal)
            return true;
    return false;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

static void empty_is_none(const char **text)
{
    if (*text && !**text)
        *text = NULL;
}

static weir_status check_numbers(const weir_requirements *needs)
{
    for (size_t i = 0; i < needs->device_count; i++)
        if (needs->device_ids[i] < 0)
            return weir_fail(WEIR_ERR_INVALID, "the manifest's device id %d: ordinals go from 0",
                             (int)needs->device_ids[i]);
    if (needs->maximum > 0 && needs->guaranteed > needs->maximum) {
        char least[24], most[24];
        return weir_fail(WEIR_ERR_INVALID, "the manifest guarantees %s, which is more than its maximum of %s",
                         weir_size_format(needs->guaranteed, least, sizeof least),
                         weir_size_format(needs->maximum, most, sizeof most));
    }
    if (!(needs->min_coverage >= 0 && needs->min_coverage <= 1))
        return weir_fail(WEIR_ERR_INVALID, "the manifest's min_coverage is %g, and not a share from 0 to 1",
                         needs->min_coverage);
    if ((unsigned)needs->cpu > WEIR_CPU_FORBIDDEN)
        return weir_fail(WEIR_ERR_INVALID,
                         "the manifest's use of the processor is %d: there are 0 (the last resort), 1 "
                         "(if it is listed) and 2 (forbidden)",
                         (int)needs->cpu);
    return WEIR_OK;
}

weir_status wi_manifest_check_lists(const weir_manifest *manifest, const char *call)
{
    const weir_requirements *needs = &manifest->requirements;
    weir_status status =
        wi_check_list(needs->fallback_providers, needs->fallback_count, call, "the manifest's fallback_providers");
    if (status == WEIR_OK)
        status = wi_check_list(needs->device_ids, needs->device_count, call, "the manifest's device_ids");
    return status == WEIR_OK ? wi_check_settings(manifest->settings, manifest->setting_count, call) : status;
}

static weir_status check_option_lists(const weir_choice_options *o)
{
    static const char call[] = "weir_choice_create";
    weir_status status = wi_check_list(o->obtainable, o->obtainable_count, call, "obtainable");
    if (status == WEIR_OK && o->hardware)
        status = wi_check_list(o->hardware->devices, o->hardware->device_count, call, "the hardware's devices");
    return status == WEIR_OK ? wi_check_settings(o->settings, o->setting_count, call) : status;
}

static weir_status criteria_read_manifest(wi_criteria *criteria)
{
    weir_requirements *needs = &criteria->manifest.requirements;
    empty_is_none(&criteria->manifest.framework);
    empty_is_none(&needs->preferred_provider);
    empty_is_none(&needs->strategy);
    empty_is_none(&needs->graph_optimization_level);
    if (!criteria->manifest.model_file || !criteria->manifest.model_file[0])
        return weir_fail(WEIR_ERR_INVALID, "the manifest names no model file");
    weir_status status = wi_manifest_check_lists(&criteria->manifest, "weir_choice_create");
    if (status == WEIR_OK)
        status = criteria_add_word("the manifest's preferred provider", needs->preferred_provider, &criteria->listed);
    for (size_t i = 0; status == WEIR_OK && i < needs->fallback_count; i++)
        status = criteria_add_word("the manifest's fallback provider", needs->fallback_providers[i], &criteria->listed);
    if (status == WEIR_OK && needs->strategy)
        status = wi_strategy_check("the manifest's strategy", needs->strategy);
    if (status == WEIR_OK && needs->graph_optimization_level)
        status = wi_level_check("the manifest's graph_optimization_level", needs->graph_optimization_level);
    return status == WEIR_OK ? check_numbers(needs) : status;
}

/* An option's text: the call's, else the library's. */
static weir_status criteria_read_text(const char *given, const char *name, weir_option *option)
{
    if (given)
        return WEIR_OK;
    weir_status status = weir_option_info(name, 0, option);
    if (status == WEIR_OK && option->rejected)
        return weir_fail(WEIR_ERR_INVALID, "%s is not understood: %s", option->environment, option->help);
    return status;
}

static weir_status read_policy(wi_criteria *criteria)
{
    weir_option option = {.struct_size = sizeof option};
    const char *given = criteria->options.policy;
    weir_status status = criteria_read_text(given, "policy", &option);
    return status == WEIR_OK ? wi_policy_read("policy", given ? given : option.value, &criteria->policy) : status;
}

/* The order is checked even where the manifest's list is taken instead: a mistake in it must not wait for another
 * model. */
static weir_status read_given_order(const wi_criteria *criteria, wi_sequence *order)
{
    weir_option option = {.struct_size = sizeof option};
    const char *given = criteria->options.order;
    weir_status status = criteria_read_text(given, "providers", &option);
    if (status != WEIR_OK)
        return status;
    return read_order(given ? given : option.value, order);
}

/* Which providers are tried, and where the processor comes. */
static void criteria_put_in_order(wi_criteria *criteria, wi_provider only, const wi_sequence *given)
{
    bool accelerators = criteria->listed.count > (wi_sequence_index(&criteria->listed, WI_CPU) >= 0 ? 1u : 0u);
    if (criteria->one_provider) {
        criteria->order = (wi_sequence){.of = {only}, .count = 1};
        criteria->cpu_named = only == WI_CPU;
        return;
    }
    criteria->cpu_named = wi_sequence_index(&criteria->listed, WI_CPU) >= 0;
    criteria->by_order = criteria->policy != WI_MANIFEST && !accelerators;
    criteria->order = criteria->listed;
    if (criteria->by_order) {
        criteria->order = *given;
        if (given->count == 0)
            (void)read_order(DEFAULT_ORDER, &criteria->order);
        criteria->cpu_named |= wi_sequence_index(given, WI_CPU) >= 0;
    }
    bool in_its_place = criteria->policy == WI_MANIFEST || (criteria->by_order && given->count > 0);
    criteria->cpu_last = !in_its_place || wi_sequence_index(&criteria->order, WI_CPU) < 0;
    if (criteria->cpu_last) {
        criteria_take_out(&criteria->order, WI_CPU);
        criteria_add(&criteria->order, WI_CPU);
    }
}

weir_status wi_criteria_read(const weir_manifest *manifest, const weir_choice_options *options, wi_criteria *out)
{
    wi_provider only = WI_CPU;
    wi_sequence given = {.count = 0};
    *out = (wi_criteria){.policy = WI_FASTEST};
    weir_status status = WI_COPY_IN(weir_manifest, &out->manifest, manifest, "weir_choice_create");
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_choice_options, &out->options, options, "weir_choice_create");
    if (status != WEIR_OK)
        return status;
    weir_choice_options *o = &out->options;
    empty_is_none(&o->engine);
    empty_is_none(&o->provider);
    empty_is_none(&o->device);
    empty_is_none(&o->policy);
    empty_is_none(&o->order);
    status = criteria_read_manifest(out);
    if (status == WEIR_OK)
        status = check_option_lists(o);
    if (status == WEIR_OK && o->provider) {
        out->one_provider = true;
        status = wi_provider_read("provider", o->provider, &only);
    }
    if (status == WEIR_OK)
        status = criteria_read_device(o->device, &out->device);
    if (status == WEIR_OK)
        status = read_policy(out);
    if (status == WEIR_OK)
        status = read_given_order(out, &given);
    if (status != WEIR_OK)
        return status;
    out->cpu = o->no_cpu ? WEIR_CPU_FORBIDDEN : out->manifest.requirements.cpu;
    criteria_put_in_order(out, only, &given);
    return WEIR_OK;
}

/* Settings --------------------------------------------------------------------------------------------------------- */

#define LEVEL    "optimization"
#define FALLBACK "cpu_fallback"

bool wi_engine_has_levels(const char *engine)
{
    return strcmp(engine, "onnx") == 0;
}

static bool criteria_has(const wi_settings *settings, const char *key)
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
        if (!criteria_has(out, manifest->settings[i].key))
            out->all[out->count++] = manifest->settings[i];
    if (level && *level && wi_engine_has_levels(engine) && !criteria_has(out, LEVEL))
        out->all[out->count++] = (weir_setting){LEVEL, level};
    return WEIR_OK;
}

/* Refused before anything is loaded, and by the library itself. */
void wi_settings_forbid_cpu(wi_settings *settings, const char *engine)
{
    if (strcmp(engine, "onnx") == 0 && !criteria_has(settings, FALLBACK))
        settings->all[settings->count++] = (weir_setting){FALLBACK, "off"};
}

void wi_settings_free(wi_settings *settings)
{
    free(settings->all);
    *settings = (wi_settings){.count = 0};
}
