/* The keys of a manifest: their names, the parsers of their values, and the members that hold the values. */
#include "manifest/parse.h"
#include <weir/manifest.h>

#include <string.h>

typedef struct entry {
    const char *name;
    wi_parse_value *parse;
    size_t to; /* of weir_manifest */
} entry;

#define TOP(member)    offsetof(weir_manifest, member)
#define WANTED(member) offsetof(weir_manifest, requirements.member)
enum { FIRST_REQUIREMENT = WI_PREFERRED_PROVIDER };

static const entry entries[WI_FIELDS] = {
    [WI_FRAMEWORK] = {"framework", wi_parse_framework, TOP(framework)},
    [WI_MODEL_FILE] = {"model_file", wi_parse_text, TOP(model_file)},
    [WI_NAME] = {"name", wi_parse_text, TOP(name)},
    [WI_PROJECT_NAME] = {"project_name", wi_parse_text, TOP(name)},
    [WI_VERSION] = {"version", wi_parse_text, TOP(version)},
    [WI_FORMAT] = {"format", wi_parse_format, 0},
    [WI_CREATED_AT] = {"created_at", wi_parse_described, 0},
    [WI_MODEL_TYPE] = {"model_type", wi_parse_described, 0},
    [WI_TASK] = {"task", wi_parse_described, 0},
    [WI_METADATA] = {"metadata", NULL, 0},
    [WI_CRON_JOBS] = {"cron_jobs", wi_parse_jobs, 0},
    [WI_REQUIREMENTS] = {"hardware_requirements", wi_parse_requirements, 0},
    [WI_TUNING] = {"tuning", wi_parse_tuning, 0},
    [WI_PREFERRED_PROVIDER] = {"preferred_provider", wi_parse_provider, WANTED(preferred_provider)},
    [WI_FALLBACK_PROVIDERS] = {"fallback_providers", wi_parse_providers, 0},
    [WI_MIN_MEMORY] = {"min_memory", wi_parse_bytes, WANTED(min_memory)},
    [WI_MIN_MEMORY_MB] = {"min_memory_mb", wi_parse_mib, WANTED(min_memory)},
    [WI_MIN_VRAM] = {"min_vram", wi_parse_bytes, WANTED(min_vram)},
    [WI_MIN_VRAM_MB] = {"min_vram_mb", wi_parse_mib, WANTED(min_vram)},
    [WI_RESERVATION] = {"gpu_memory_reservation", wi_parse_bytes, WANTED(guaranteed)},
    [WI_RESERVATION_MB] = {"gpu_memory_reservation_mb", wi_parse_mib, WANTED(guaranteed)},
    [WI_LIMIT] = {"gpu_memory_limit", wi_parse_bytes, WANTED(maximum)},
    [WI_LIMIT_MB] = {"gpu_memory_limit_mb", wi_parse_mib, WANTED(maximum)},
    [WI_MIN_CUDA] = {"min_cuda_version", wi_parse_version, WANTED(min_cuda_version)},
    [WI_MIN_DRIVER] = {"min_driver_version", wi_parse_version, WANTED(min_driver_version)},
    [WI_MIN_CAPABILITY] = {"min_compute_capability", wi_parse_version, WANTED(min_compute_capability)},
    [WI_PRECISION] = {"required_precision", wi_parse_precision, 0},
    [WI_OPTIMIZED_FOR] = {"optimized_for", wi_parse_texts, 0},
    [WI_LEVEL] = {"graph_optimization_level", wi_parse_level, WANTED(graph_optimization_level)},
    [WI_DEVICE_ID] = {"device_id", wi_parse_device, 0},
    [WI_DEVICE_IDS] = {"gpu_device_ids", wi_parse_devices, 0},
    [WI_STRATEGY] = {"strategy", wi_parse_strategy, WANTED(strategy)},
    [WI_COMPUTE_SHARE] = {"gpu_compute_share_milli", wi_parse_share, 0},
    [WI_ISOLATION] = {"isolation_mode", wi_parse_isolation, 0},
    [WI_ALLOW_CPU] = {"allow_cpu", wi_parse_cpu, WANTED(cpu)},
    [WI_COVERAGE] = {"min_provider_coverage", wi_parse_coverage, WANTED(min_coverage)},
};

const char *wi_field_name(wi_field field)
{
    return entries[field].name;
}

/* ---- unknown keys ------------------------------------------------------------------------------------------------ */

static void fields_unknown(wi_parse_context *r, const char *key, size_t at, bool requirements)
{
    const char *here[WI_FIELDS + 1] = {NULL}, *there[WI_FIELDS + 1] = {NULL};
    size_t here_count = 0, there_count = 0;
    for (int i = 0; i < WI_FIELDS; i++)
        if (requirements == (i >= FIRST_REQUIREMENT))
            here[here_count++] = entries[i].name;
        else
            there[there_count++] = entries[i].name;
    wi_shown shown;
    const char *name = wi_show(&shown, key), *near = wi_keyword_near(here, key);
    if (wi_keyword(there, key))
        wi_problem_add(&r->problems, at, "the key \"%s\" belongs %s", name,
                       requirements ? "outside of hardware_requirements, into the manifest itself"
                                    : "into hardware_requirements");
    else if (near)
        wi_problem_add(&r->problems, at, "there is no key \"%s\"; the nearest is \"%s\"", name, near);
    else
        wi_problem_add(&r->problems, at, "there is no key \"%s\"%s; what is for people alone goes into metadata", name,
                       requirements ? " in hardware_requirements" : "");
}

static int fields_find(const char *key, bool requirements)
{
    int first = requirements ? FIRST_REQUIREMENT : 0, end = requirements ? (int)WI_FIELDS : (int)FIRST_REQUIREMENT;
    for (int i = first; i < end; i++)
        if (strcmp(entries[i].name, key) == 0)
            return i;
    return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void fields_read_one(wi_parse_context *r, int field, const wi_location *place, json_t *json)
{
    r->problems.out_of_memory |= !json; /* jansson loses letters when it has no memory, and here a key with them */
    if (!json || json_is_null(json))
        return;
    r->given[field] = true;
    r->key_at[field] = place->key;
    r->value_at[field] = place->value;
    wi_value value = {(wi_field)field, json, place->value, place->value_end};
    if (entries[field].parse)
        entries[field].parse(r, &value, (char *)&r->held->manifest + entries[field].to);
}

/* Reads the keys of an object, except keys that are given twice: the tree has only one of the values, and its place in
 * the text is unknown. text.c reports such keys. */
void wi_fields_read(wi_parse_context *r, size_t at, json_t *object, bool requirements)
{
    unsigned times[WI_FIELDS] = {0};
    for (int pass = 0; pass < 2; pass++) {
        wi_walk walk = wi_walk_into(r->text, at);
        for (wi_location place; wi_walk_next(&walk, &place);) {
            json_t *decoded = wi_decoded(r, place.key, place.key_end);
            const char *key = decoded ? json_string_value(decoded) : "";
            int field = fields_find(key, requirements);
            if (pass == 0 && field >= 0)
                r->several[field] = ++times[field] > 1;
            else if (pass == 1 && field >= 0 && times[field] == 1)
                fields_read_one(r, field, &place, json_object_get(object, key));
            else if (pass == 1 && field < 0 && decoded)
                fields_unknown(r, key, place.key, requirements);
            json_decref(decoded);
        }
    }
}
