/* What the keys of a manifest mean together, whether its model is there, and the settings of its engine. */
#include "base/values.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include "manifest/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- two of which one can be given ------------------------------------------------------------------------------- */

static void check_pairs(wi_parse_context *r)
{
    static const wi_field pairs[][2] = {{WI_NAME, WI_PROJECT_NAME},    {WI_MIN_MEMORY, WI_MIN_MEMORY_MB},
                                        {WI_MIN_VRAM, WI_MIN_VRAM_MB}, {WI_RESERVATION, WI_RESERVATION_MB},
                                        {WI_LIMIT, WI_LIMIT_MB},       {WI_DEVICE_ID, WI_DEVICE_IDS}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        wi_field one = pairs[i][0], other = pairs[i][1];
        if (!r->given[one] || !r->given[other])
            continue;
        bool first = r->key_at[one] > r->key_at[other];
        wi_problem_add(&r->problems, r->key_at[first ? one : other], "%s says again what %s says; keep one of them",
                       wi_field_name(first ? one : other), wi_field_name(first ? other : one));
    }
}

/* ---- what contradicts -------------------------------------------------------------------------------------------- */

static void check_shares(wi_parse_context *r)
{
    const weir_requirements *wanted = &r->held->manifest.requirements;
    wi_field reservation = r->given[WI_RESERVATION] ? WI_RESERVATION : WI_RESERVATION_MB;
    wi_field limit = r->given[WI_LIMIT] ? WI_LIMIT : WI_LIMIT_MB;
    if (wanted->maximum != 0 && wanted->guaranteed > wanted->maximum)
        wi_problem_add(&r->problems, r->value_at[reservation], "%s is more than %s", wi_field_name(reservation),
                       wi_field_name(limit));
    bool reserved = r->isolation && strcmp(r->isolation, "reserved") == 0;
    if (reserved && (!r->given[reservation] || wanted->guaranteed == 0))
        wi_problem_add(&r->problems, r->value_at[WI_ISOLATION],
                       "isolation_mode: \"reserved\" wants gpu_memory_reservation_mb, which says how much");
}

static bool lists_cpu(const weir_requirements *wanted)
{
    bool listed = wanted->preferred_provider && strcmp(wanted->preferred_provider, "cpu") == 0;
    for (size_t i = 0; i < wanted->fallback_count; i++)
        listed |= wanted->fallback_providers[i] && strcmp(wanted->fallback_providers[i], "cpu") == 0;
    return listed;
}

static void check_cpu(wi_parse_context *r)
{
    const weir_requirements *wanted = &r->held->manifest.requirements;
    if (wanted->cpu == WEIR_CPU_FORBIDDEN && lists_cpu(wanted))
        wi_problem_add(&r->problems, r->value_at[WI_ALLOW_CPU],
                       "allow_cpu is false, and a provider is cpu; keep one of them");
}

/* The larger of what was asked for by number and by precision. */
static void apply_precision(wi_parse_context *r)
{
    weir_version_number *least = &r->held->manifest.requirements.min_compute_capability;
    if (wi_version_compare(*least, r->precision) < 0)
        *least = r->precision;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* What kind of file model_file is; WI_FILE_MISSING, told as a problem, when it is none to be loaded. */
static wi_file_kind look_at_model(wi_parse_context *r, const char *path)
{
    const char *why = NULL;
    wi_shown shown;
    size_t at = r->value_at[WI_MODEL_FILE];
    const char *name = wi_show(&shown, r->held->manifest.model_file);
    wi_file_kind kind = wi_file_look(path, &why);
    int problem = errno; /* of one that is missing */
    if (kind == WI_FILE_MISSING && (problem == ELOOP || problem == EACCES))
        wi_problem_add(&r->problems, at, "model_file: cannot look at \"%s\": %s", name, strerror(problem));
    else if (kind == WI_FILE_MISSING)
        wi_problem_add(&r->problems, at, "model_file: there is no \"%s\"%s", name,
                       r->package ? " in the package" : "; a relative path begins where the manifest is");
    else if (kind == WI_FILE_REFUSED)
        wi_problem_add(&r->problems, at, "model_file: \"%s\" cannot be run: %s", name, why);
    else if (kind == WI_FILE_MANIFEST || kind == WI_FILE_PACKAGE)
        wi_problem_add(&r->problems, at, "model_file: \"%s\" is a %s, and no model", name,
                       kind == WI_FILE_MANIFEST ? "JSON file" : "package");
    else
        return kind;
    return WI_FILE_MISSING;
}

static void check_kind(wi_parse_context *r, wi_file_kind kind)
{
    const char **framework = &r->held->manifest.framework;
    const char *theirs = wi_file_framework(kind), *format = kind == WI_FILE_GENAI ? "genai" : theirs;
    if (!r->given[WI_FRAMEWORK])
        *framework = theirs;
    else if (*framework && theirs && strcmp(*framework, theirs) != 0 && wi_keyword(wi_frameworks, *framework))
        wi_problem_add(&r->problems, r->value_at[WI_FRAMEWORK], "framework: model_file is a model for \"%s\"%s", theirs,
                       strcmp(*framework, "llm") == 0 ? "; \"llm\" wants a folder with genai_config.json" : "");
    if (r->format && format && strcmp(r->format, format) != 0)
        wi_problem_add(&r->problems, r->value_at[WI_FORMAT], "format: model_file is in the format \"%s\"", format);
}

static void manifest_rules_check_model(wi_parse_context *r)
{
    weir_manifest *m = &r->held->manifest;
    if (!r->given[WI_MODEL_FILE] && !r->several[WI_MODEL_FILE])
        wi_problem_add(&r->problems, wi_location_first(r->text),
                       "model_file is missing: the path of the model, from where the manifest is");
    if (!m->model_file)
        return;
    if (r->package && !wi_path_stays(m->model_file)) {
        wi_problem_add(&r->problems, r->value_at[WI_MODEL_FILE], "model_file leads out of the package");
        return;
    }
    char *path = wi_path_in(r->folder, m->model_file);
    wi_file_kind kind = path ? look_at_model(r, path) : WI_FILE_MISSING;
    bool llm = m->framework && strcmp(m->framework, "llm") == 0;
    char *model = path ? wi_file_model(path, llm, &kind) : NULL;
    if (kind != WI_FILE_MISSING)
        check_kind(r, kind);
    r->problems.out_of_memory |= !model;
    m->model_file = model ? wi_keep_text(r, model, strlen(model)) : NULL;
    free(model);
    free(path);
}

/* Tuning: settings of Kapsl's names become the engine onnx's own, which do the same; what would have no meaning is a
 * problem */

/* Numbers beyond the bounds count as the bound, as they do there. */
static const struct other {
    const char *theirs, *ours;
    long least, most; /* 0 and 0: a switch, the other way round */
} others[] = {
    {"session_buckets", "buckets", 1, 64},
    {"bucket_dim_granularity", "bucket_granularity", 1, 1 << 20},
    {"bucket_max_dims", "bucket_dims", 1, WEIR_MAX_RANK},
    {"peak_concurrency_hint", "concurrency", 0, 256},
    {"disable_cpu_mem_arena", "cpu_arena", 0, 0},
};
enum { OTHERS = sizeof others / sizeof *others, BUCKETS = 0, GRANULARITY = 1, MAX_DIMS = 2 };

static const struct other *manifest_rules_find(const char *key)
{
    for (size_t i = 0; i < OTHERS; i++)
        if (strcmp(others[i].theirs, key) == 0)
            return &others[i];
    return NULL;
}

/* Where the setting of that key stands: itself, or its value. */
static size_t manifest_rules_place_of(wi_parse_context *r, const char *key, bool value)
{
    wi_walk walk = wi_walk_into(r->text, r->value_at[WI_TUNING]);
    size_t at = r->value_at[WI_TUNING];
    for (wi_location place; wi_walk_next(&walk, &place);) {
        json_t *decoded = wi_decoded(r, place.key, place.key_end);
        if (decoded && strcmp(json_string_value(decoded), key) == 0)
            at = value ? place.value : place.key;
        json_decref(decoded);
    }
    return at;
}

static void bad_value(wi_parse_context *r, const struct other *it, const weir_setting *s, const char *wanted)
{
    wi_shown shown;
    wi_problem_add(&r->problems, manifest_rules_place_of(r, it->theirs, true), "tuning: %s is \"%s\"; it has to be %s",
                   it->theirs, wi_show(&shown, s->value), wanted);
}

/* ---- for the engine onnx ----------------------------------------------------------------------------------------- */

static void manifest_rules_set_number(wi_parse_context *r, const struct other *it, weir_setting *s)
{
    size_t digits = strspn(s->value, "0123456789");
    char text[24];
    if (digits == 0 || s->value[digits]) {
        bad_value(r, it, s, "a whole number from 0");
        return;
    }
    long number = digits > 9 ? it->most : strtol(s->value, NULL, 10);
    number = number < it->least ? it->least : number > it->most ? it->most : number;
    int length = snprintf(text, sizeof text, "%ld", number);
    *s = (weir_setting){it->ours, wi_keep_text(r, text, (size_t)length)};
}

/* Translates a setting that forbids an arena; a setting that allows an arena is dropped, as weir has none. */
static void set_arena(wi_parse_context *r, const struct other *it, weir_setting *s)
{
    static const char *const yes[] = {"on", "true", "yes", "1", NULL}, *const no[] = {"off", "false", "no", "0", NULL};
    if (wi_keyword(yes, s->value))
        *s = (weir_setting){it->ours, "off"};
    else if (wi_keyword(no, s->value))
        s->key = NULL;
    else
        bad_value(r, it, s, "true or false");
}

static const weir_setting *manifest_rules_given(const weir_manifest *m, const char *key)
{
    for (size_t i = 0; i < m->setting_count; i++)
        if (m->settings[i].key && strcmp(m->settings[i].key, key) == 0)
            return &m->settings[i];
    return NULL;
}

/* How shapes are put into buckets says nothing where there is one. */
static bool has_buckets(const weir_manifest *m)
{
    const weir_setting *ours = manifest_rules_given(m, others[BUCKETS].ours),
                       *it = ours ? ours : manifest_rules_given(m, others[BUCKETS].theirs);
    return it && it->value && strtol(it->value, NULL, 10) > 1;
}

static void translate_one(wi_parse_context *r, weir_setting *s, bool buckets)
{
    const struct other *it = s->key && s->value ? manifest_rules_find(s->key) : NULL;
    if (!it)
        return;
    if (manifest_rules_given(&r->held->manifest, it->ours))
        wi_problem_add(&r->problems, manifest_rules_place_of(r, it->theirs, false),
                       "tuning: %s says again what %s says; keep one of them", it->theirs, it->ours);
    else if (it->most == 0)
        set_arena(r, it, s);
    else
        manifest_rules_set_number(r, it, s);
    bool idle = it == &others[GRANULARITY] || it == &others[MAX_DIMS];
    if (idle && !buckets)
        s->key = NULL;
}

static void translate(wi_parse_context *r)
{
    weir_manifest *m = &r->held->manifest;
    weir_setting *settings = (weir_setting *)m->settings;
    bool buckets = has_buckets(m);
    size_t left = 0;
    for (size_t i = 0; i < m->setting_count; i++)
        translate_one(r, &settings[i], buckets);
    for (size_t i = 0; i < m->setting_count; i++)
        if (settings[i].key)
            settings[left++] = settings[i];
    m->setting_count = left;
}

/* ---- for other engines ------------------------------------------------------------------------------------------- */

static void refuse_others(wi_parse_context *r)
{
    const weir_manifest *m = &r->held->manifest;
    for (size_t i = 0; i < m->setting_count; i++)
        if (m->settings[i].key && manifest_rules_find(m->settings[i].key))
            wi_problem_add(&r->problems, manifest_rules_place_of(r, m->settings[i].key, false),
                           "tuning: %s has no meaning for the engine %s, which has no sessions by shape; leave it out",
                           m->settings[i].key, m->framework);
}

/* Allows no level but "all" for an engine without levels of optimization. */
static void check_level(wi_parse_context *r)
{
    const weir_manifest *m = &r->held->manifest;
    const char *level = m->requirements.graph_optimization_level;
    if (level && !wi_level_is_all(level))
        wi_problem_add(&r->problems, r->value_at[WI_LEVEL],
                       "graph_optimization_level: the engine %s has no levels of optimization; leave it out, or say "
                       "\"all\"",
                       m->framework);
}

static void check_tuning(wi_parse_context *r)
{
    const char *framework = r->held->manifest.framework;
    if (!framework)
        return;
    if (strcmp(framework, "onnx") == 0) {
        translate(r);
        return;
    }
    check_level(r);
    if (strcmp(framework, "gguf") == 0 || strcmp(framework, "llm") == 0)
        refuse_others(r);
}

/* All of it -------------------------------------------------------------------------------------------------------- */

void wi_rules(wi_parse_context *r)
{
    check_pairs(r);
    check_shares(r);
    check_cpu(r);
    apply_precision(r);
    manifest_rules_check_model(r);
    check_tuning(r);
}
