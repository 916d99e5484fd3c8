/* The parsers of the keys' values: texts, sizes, versions, lists, settings; and what hardware_requirements ask for. */
#include "base/values.h"
#include "manifest/parse.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Keywords --------------------------------------------------------------------------------------------------------- */

const char *const wi_frameworks[] = {"onnx", "gguf", "llm", NULL};
static const char *const formats[] = {"onnx", "gguf", "genai", NULL};
static const char *const precisions[] = {"fp32",     "float32", "fp16",  "float16", "bf16",
                                         "bfloat16", "int8",    "uint8", "fp8",     NULL};
static const char *const isolation_modes[] = {"best_effort", "reserved", "hard", NULL};

const char *wi_keyword(const char *const *words, const char *text)
{
    for (; *words; words++)
        if (strcasecmp(*words, text) == 0)
            return *words;
    return NULL;
}

const char *wi_keyword_near(const char *const *words, const char *text)
{
    const char *best = NULL;
    size_t least = strlen(text) / 2; /* more than half of it is another word */
    for (; *words; words++) {
        size_t distance = wi_edit_distance(text, *words);
        if (distance <= least && (!best || distance < least)) {
            best = *words;
            least = distance;
        }
    }
    return best;
}

/* ---- wrong types ------------------------------------------------------------------------------------------------- */

const char *wi_kind_name(const json_t *json)
{
    static const char *const names[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_STRING] = "a text",
                                        [JSON_INTEGER] = "a whole number",
                                        [JSON_REAL] = "a number with a fraction",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    return names[json_typeof(json)];
}

static void wrong_type(wi_parse_context *r, const wi_value *v, const char *wanted)
{
    wi_problem_add(&r->problems, v->at, "%s: this is %s; it has to be %s", wi_field_name(v->field),
                   wi_kind_name(v->json), wanted);
}

/* Finds the value's keyword in a list. Otherwise adds a problem that lists the keywords and names the nearest, and
 * returns NULL. */
static const char *keyword_of(wi_parse_context *r, const wi_value *v, const char *const *words, const char *what)
{
    if (!json_is_string(v->json)) {
        wrong_type(r, v, "a text");
        return NULL;
    }
    const char *text = json_string_value(v->json), *word = wi_keyword(words, text);
    if (word)
        return word;
    char list[256] = "";
    for (size_t i = 0, used = 0; words[i] && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    const char *near = wi_keyword_near(words, text);
    wi_shown shown;
    wi_problem_add(&r->problems, v->at, "%s: there is no %s \"%s\"; there are %s%s%s", wi_field_name(v->field), what,
                   wi_show(&shown, text), list, near ? ", the nearest is " : "", near ? near : "");
    return NULL;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

void wi_parse_text(wi_parse_context *r, const wi_value *v, void *to)
{
    if (!json_is_string(v->json))
        wrong_type(r, v, "a text");
    else if (json_string_length(v->json) == 0)
        wi_problem_add(&r->problems, v->at, "%s is empty; leave it out where there is nothing to say",
                       wi_field_name(v->field));
    else
        *(const char **)to = json_string_value(v->json);
}

/* For people alone: any text. */
void wi_parse_described(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_string(v->json))
        wrong_type(r, v, "a text");
}

void wi_parse_texts(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json)) {
        wrong_type(r, v, "a list of texts");
        return;
    }
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_location place;
    for (size_t i = 0; wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        if (!json_is_string(one.json))
            wrong_type(r, &one, "a text");
    }
}

void wi_parse_framework(wi_parse_context *r, const wi_value *v, void *to)
{
    const char *name;
    /* An engine of somebody's own is a framework, too, where it is here. */
    for (size_t i = 0; json_is_string(v->json) && (name = weir_engine_name_at(i)); i++)
        if (strcmp(name, json_string_value(v->json)) == 0) {
            *(const char **)to = json_string_value(v->json);
            return;
        }
    *(const char **)to = keyword_of(r, v, wi_frameworks, "framework");
}

void wi_parse_format(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    r->format = keyword_of(r, v, formats, "format");
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

void wi_parse_bytes(wi_parse_context *r, const wi_value *v, void *to)
{
    wi_shown shown;
    const char *name = wi_field_name(v->field);
    if (!json_is_string(v->json))
        wi_problem_add(&r->problems, v->at,
                       "%s: this is %s; it has to be a text with a size, like \"8GiB\" (%s_mb takes "
                       "a number, of MiB)",
                       name, wi_kind_name(v->json), name);
    else if (wi_size_parse(json_string_value(v->json), to) != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s: \"%s\" is no size; sizes are like \"512MiB\" or \"1.5GiB\"", name,
                       wi_show(&shown, json_string_value(v->json)));
}

/* A megabyte is 2^20 bytes here as everywhere in weir. */
void wi_parse_mib(wi_parse_context *r, const wi_value *v, void *to)
{
    const json_int_t most = (json_int_t)(UINT64_MAX >> 20);
    if (!json_is_integer(v->json)) {
        wrong_type(r, v, "a whole number of MiB");
        return;
    }
    json_int_t number = json_integer_value(v->json);
    if (number < 0 || number > most)
        wi_problem_add(&r->problems, v->at,
                       "%s is %" JSON_INTEGER_FORMAT "; it has to be 0 to %" JSON_INTEGER_FORMAT " MiB",
                       wi_field_name(v->field), number, most);
    else
        *(uint64_t *)to = (uint64_t)number << 20;
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

void wi_parse_version(wi_parse_context *r, const wi_value *v, void *to)
{
    wi_shown shown;
    const char *name = wi_field_name(v->field);
    if (json_is_number(v->json))
        wi_problem_add(&r->problems, v->at, "%s: a version is a text, \"%.*s\": as a number, 12.10 would be 12.1", name,
                       (int)(v->end - v->at < 40 ? v->end - v->at : 40), r->text + v->at);
    else if (!json_is_string(v->json))
        wrong_type(r, v, "a text with a version, like \"12.4\"");
    else if (wi_version_read(json_string_value(v->json), to) != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s: \"%s\" is no version; versions are like \"12.4\" or \"535.129.03\"",
                       name, wi_show(&shown, json_string_value(v->json)));
}

/* ---- tuning ------------------------------------------------------------------------------------------------------ */

/* The value as the text that engines take; NULL where it has none. */
static const char *setting_text(wi_parse_context *r, const json_t *json, const wi_location *place)
{
    switch (json_typeof(json)) {
    case JSON_STRING:
        return json_string_value(json);
    case JSON_TRUE:
        return "on";
    case JSON_FALSE:
        return "off";
    case JSON_INTEGER:
    case JSON_REAL: /* as it is written: 0.7 is not 0.69999999999999996 */
        return wi_keep_text(r, r->text + place->value, place->value_end - place->value);
    default:
        return NULL;
    }
}

static void parse_setting(wi_parse_context *r, const wi_location *place, const char *key, const json_t *json,
                          weir_setting *to)
{
    wi_shown shown;
    to->key = key;
    to->value = setting_text(r, json, place);
    if (!*key)
        wi_problem_add(&r->problems, place->key, "tuning: a setting without a name");
    else if (!to->value && !r->problems.out_of_memory)
        wi_problem_add(&r->problems, place->value, "tuning: %s is %s; settings are texts, numbers, true or false",
                       wi_show(&shown, key), wi_kind_name(json));
}

void wi_parse_tuning(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_object(v->json)) {
        wrong_type(r, v, "an object with the engine's settings");
        return;
    }
    weir_manifest *m = &r->held->manifest;
    weir_setting *settings = wi_keep(r, json_object_size(v->json) * sizeof *settings);
    m->settings = settings;
    wi_walk walk = wi_walk_into(r->text, v->at);
    for (wi_location place; settings && wi_walk_next(&walk, &place);) {
        json_t *decoded = wi_decoded(r, place.key, place.key_end);
        void *member = decoded ? json_object_iter_at(v->json, json_string_value(decoded)) : NULL;
        if (member && !json_is_null(json_object_iter_value(member)) && m->setting_count < json_object_size(v->json))
            parse_setting(r, &place, json_object_iter_key(member), json_object_iter_value(member),
                          &settings[m->setting_count++]);
        json_decref(decoded);
    }
}

void wi_parse_requirements(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (json_is_object(v->json))
        wi_fields_read(r, v->at, v->json, true);
    else
        wrong_type(r, v, "an object");
}

void wi_parse_jobs(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    bool none = (json_is_array(v->json) && json_array_size(v->json) == 0) ||
                (json_is_object(v->json) && json_object_size(v->json) == 0);
    if (!none)
        wi_problem_add(&r->problems, v->at,
                       "cron_jobs: weir runs nothing by the clock; take the jobs out and have the "
                       "system's timers run them");
}

/* Requirements: enforced, or refused in words ---------------------------------------------------------------------- */

enum { MOST_DEVICES = 64 };

static weir_requirements *value_parsers_wanted(wi_parse_context *r)
{
    return &r->held->manifest.requirements;
}

/* ---- providers --------------------------------------------------------------------------------------------------- */

/* The text of a value, for a check whose words are told when it fails; NULL if it is none. */
static const char *word_of(wi_parse_context *r, const wi_value *v)
{
    if (!json_is_string(v->json))
        wrong_type(r, v, "a text");
    return json_string_value(v->json);
}

static bool passed(wi_parse_context *r, const wi_value *v, weir_status status)
{
    if (status != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s", weir_detail());
    return status == WEIR_OK;
}

void wi_parse_provider(wi_parse_context *r, const wi_value *v, void *to)
{
    wi_provider provider = WI_CPU;
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_provider_read(wi_field_name(v->field), word, &provider)))
        *(const char **)to = wi_provider_name(provider);
}

void wi_parse_providers(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json)) {
        wrong_type(r, v, "a list of providers");
        return;
    }
    const char **list = wi_keep(r, json_array_size(v->json) * sizeof *list);
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_location place;
    for (size_t i = 0; list && wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        wi_parse_provider(r, &one, &list[i]);
    }
    value_parsers_wanted(r)->fallback_providers = list;
    value_parsers_wanted(r)->fallback_count = list ? json_array_size(v->json) : 0;
}

void wi_parse_cpu(wi_parse_context *r, const wi_value *v, void *to)
{
    weir_cpu_use *cpu = to;
    if (json_is_boolean(v->json))
        *cpu = json_is_true(v->json) ? WEIR_CPU_LAST : WEIR_CPU_FORBIDDEN;
    else if (json_is_string(v->json) && strcasecmp(json_string_value(v->json), "listed") == 0)
        *cpu = WEIR_CPU_LISTED;
    else
        wrong_type(r, v, "true (the last resort), false (never) or \"listed\" (where a provider says cpu)");
}

void wi_parse_coverage(wi_parse_context *r, const wi_value *v, void *to)
{
    double share = json_number_value(v->json);
    if (!json_is_number(v->json) || !(share >= 0 && share <= 1))
        wrong_type(r, v, "a number from 0 to 1: the share of nodes or layers");
    else
        *(double *)to = share;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static bool value_parsers_read_device(wi_parse_context *r, const wi_value *v, int32_t *out)
{
    if (!json_is_integer(v->json)) {
        wrong_type(r, v, "a whole number");
        return false;
    }
    json_int_t number = json_integer_value(v->json);
    *out = (int32_t)number;
    if (number >= 0 && number <= INT32_MAX)
        return true;
    wi_problem_add(&r->problems, v->at, "%s: there is no device %" JSON_INTEGER_FORMAT "; the first is 0",
                   wi_field_name(v->field), number);
    return false;
}

void wi_parse_device(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    int32_t *device = wi_keep(r, sizeof *device);
    if (!device || !value_parsers_read_device(r, v, device))
        return;
    value_parsers_wanted(r)->device_ids = device;
    value_parsers_wanted(r)->device_count = 1;
}

void wi_parse_devices(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json) || json_array_size(v->json) > MOST_DEVICES) {
        wrong_type(r, v, "a list of up to 64 devices");
        return;
    }
    r->given[v->field] = json_array_size(v->json) > 0; /* of none: as if it were left out */
    if (!r->given[v->field])
        return;
    int32_t *list = wi_keep(r, json_array_size(v->json) * sizeof *list);
    size_t count = 0;
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_location place;
    for (size_t i = 0; list && wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        if (!value_parsers_read_device(r, &one, &list[count]))
            continue;
        for (size_t k = 0; k < count; k++)
            if (list[k] == list[count])
                wi_problem_add(&r->problems, one.at, "gpu_device_ids: the device %d is there twice", (int)list[k]);
        count++;
    }
    value_parsers_wanted(r)->device_ids = count > 0 ? list : NULL;
    value_parsers_wanted(r)->device_count = count;
}

void wi_parse_strategy(wi_parse_context *r, const wi_value *v, void *to)
{
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_strategy_check(wi_field_name(v->field), word)))
        *(const char **)to = word;
}

/* ---- the model on the device ------------------------------------------------------------------------------------- */

void wi_parse_level(wi_parse_context *r, const wi_value *v, void *to)
{
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_level_check(wi_field_name(v->field), word)))
        *(const char **)to = word;
}

/* A CUDA device has arithmetic of a kind from a compute capability on (CUDA C++ Programming Guide, appendix on compute
 * capabilities); processors compute in every precision. */
void wi_parse_precision(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    static const weir_version_number least[] = {{{0}, 0},    {{0}, 0},    {{5, 3}, 2}, {{5, 3}, 2}, {{8, 0}, 2},
                                                {{8, 0}, 2}, {{6, 1}, 2}, {{6, 1}, 2}, {{8, 9}, 2}};
    const char *word = keyword_of(r, v, precisions, "precision");
    for (size_t i = 0; word && i < sizeof least / sizeof *least; i++)
        if (word == precisions[i])
            r->precision = least[i];
}

/* ---- shares and isolation ---------------------------------------------------------------------------------------- */

void wi_parse_share(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_integer(v->json))
        wrong_type(r, v, "a whole number");
    else if (json_integer_value(v->json) != 1000)
        wi_problem_add(&r->problems, v->at,
                       "gpu_compute_share_milli is %" JSON_INTEGER_FORMAT
                       ": weir divides a device's memory and not its "
                       "computing, so that only 1000 (all of it) can be had",
                       json_integer_value(v->json));
}

void wi_parse_isolation(wi_parse_context *r, const wi_value *v, void *to)
{
    (void)to;
    r->isolation = keyword_of(r, v, isolation_modes, "isolation mode");
    if (r->isolation && strcmp(r->isolation, "hard") == 0)
        wi_problem_add(&r->problems, v->at,
                       "isolation_mode: the models of a process share its context, so that \"hard\" cannot be had; "
                       "\"reserved\" with gpu_memory_reservation_mb keeps memory for this one");
}
