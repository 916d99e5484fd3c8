/* What the keys of a manifest mean together, and whether its model is there. */
#include "manifest/files.h"
#include <weir/manifest.h>
#include "manifest/locations.h"
#include "manifest/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- two of which one can be given ----------------------------------------------------------------------------------- */

static void check_pairs(wi_reading *r)
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

/* ---- what contradicts ------------------------------------------------------------------------------------------------ */

static void check_shares(wi_reading *r)
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

static void check_cpu(wi_reading *r)
{
    const weir_requirements *wanted = &r->held->manifest.requirements;
    if (wanted->cpu == WEIR_CPU_FORBIDDEN && lists_cpu(wanted))
        wi_problem_add(&r->problems, r->value_at[WI_ALLOW_CPU],
                       "allow_cpu is false, and a provider is cpu; keep one of them");
}

/* The larger of what was asked for by number and by precision. */
static void apply_precision(wi_reading *r)
{
    weir_version_number *least = &r->held->manifest.requirements.min_compute_capability;
    if (weir_version_compare(*least, r->precision) < 0)
        *least = r->precision;
}

/* ---- the model ------------------------------------------------------------------------------------------------------- */

/* What kind of file model_file is; WI_FILE_MISSING, told as a problem, when it is none to be loaded. */
static wi_file_kind look_at_model(wi_reading *r, const char *path)
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

static void check_kind(wi_reading *r, wi_file_kind kind)
{
    const char **framework = &r->held->manifest.framework;
    const char *theirs = wi_file_framework(kind), *format = wi_file_format(kind);
    if (!r->given[WI_FRAMEWORK])
        *framework = theirs;
    else if (*framework && theirs && strcmp(*framework, theirs) != 0 && wi_word(wi_words_frameworks, *framework))
        wi_problem_add(&r->problems, r->value_at[WI_FRAMEWORK], "framework: model_file is a model for \"%s\"%s", theirs,
                       strcmp(*framework, "llm") == 0 ? "; \"llm\" wants a folder with genai_config.json" : "");
    if (r->format && format && strcmp(r->format, format) != 0)
        wi_problem_add(&r->problems, r->value_at[WI_FORMAT], "format: model_file is in the format \"%s\"", format);
}

static void check_model(wi_reading *r)
{
    weir_manifest *m = &r->held->manifest;
    if (!r->given[WI_MODEL_FILE] && !r->several[WI_MODEL_FILE])
        wi_problem_add(&r->problems, wi_place_first(r->text),
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

void wi_rules(wi_reading *r)
{
    check_pairs(r);
    check_shares(r);
    check_cpu(r);
    apply_precision(r);
    check_model(r);
    wi_tuning(r);
}
