/* Values that have no meaning of their own yet: texts, sizes, versions, lists, settings. */
#include "manifest/locations.h"
#include "manifest/words.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>

#include <inttypes.h>
#include <string.h>

/* ---- wrong types ----------------------------------------------------------------------------------------------------- */

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

void wi_wrong_type(wi_reading *r, const wi_value *v, const char *wanted)
{
    wi_problem_add(&r->problems, v->at, "%s: this is %s; it has to be %s", wi_field_name(v->field),
                   wi_kind_name(v->json), wanted);
}

/* ---- texts ----------------------------------------------------------------------------------------------------------- */

void wi_take_text(wi_reading *r, const wi_value *v, void *to)
{
    if (!json_is_string(v->json))
        wi_wrong_type(r, v, "a text");
    else if (json_string_length(v->json) == 0)
        wi_problem_add(&r->problems, v->at, "%s is empty; leave it out where there is nothing to say",
                       wi_field_name(v->field));
    else
        *(const char **)to = json_string_value(v->json);
}

/* For people alone: any text. */
void wi_take_described(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_string(v->json))
        wi_wrong_type(r, v, "a text");
}

void wi_take_texts(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json)) {
        wi_wrong_type(r, v, "a list of texts");
        return;
    }
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_place place;
    for (size_t i = 0; wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        if (!json_is_string(one.json))
            wi_wrong_type(r, &one, "a text");
    }
}

void wi_take_framework(wi_reading *r, const wi_value *v, void *to)
{
    const char *name;
    /* An engine of somebody's own is a framework, too, where it is here. */
    for (size_t i = 0; json_is_string(v->json) && (name = weir_engine_name_at(i)); i++)
        if (strcmp(name, json_string_value(v->json)) == 0) {
            *(const char **)to = json_string_value(v->json);
            return;
        }
    *(const char **)to = wi_word_of(r, v, wi_words_frameworks, "framework");
}

void wi_take_format(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    r->format = wi_word_of(r, v, wi_words_formats, "format");
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------- */

void wi_take_bytes(wi_reading *r, const wi_value *v, void *to)
{
    wi_shown shown;
    const char *name = wi_field_name(v->field);
    if (!json_is_string(v->json))
        wi_problem_add(&r->problems, v->at,
                       "%s: this is %s; it has to be a text with a size, like \"8GiB\" (%s_mb takes "
                       "a number, of MiB)",
                       name, wi_kind_name(v->json), name);
    else if (weir_size_parse(json_string_value(v->json), to) != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s: \"%s\" is no size; sizes are like \"512MiB\" or \"1.5GiB\"", name,
                       wi_show(&shown, json_string_value(v->json)));
}

/* A megabyte is 2^20 bytes here as everywhere in weir. */
void wi_take_mib(wi_reading *r, const wi_value *v, void *to)
{
    const json_int_t most = (json_int_t)(UINT64_MAX >> 20);
    if (!json_is_integer(v->json)) {
        wi_wrong_type(r, v, "a whole number of MiB");
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

/* ---- versions -------------------------------------------------------------------------------------------------------- */

void wi_take_version(wi_reading *r, const wi_value *v, void *to)
{
    wi_shown shown;
    const char *name = wi_field_name(v->field);
    if (json_is_number(v->json))
        wi_problem_add(&r->problems, v->at, "%s: a version is a text, \"%.*s\": as a number, 12.10 would be 12.1", name,
                       (int)(v->end - v->at < 40 ? v->end - v->at : 40), r->text + v->at);
    else if (!json_is_string(v->json))
        wi_wrong_type(r, v, "a text with a version, like \"12.4\"");
    else if (weir_version_read(json_string_value(v->json), to) != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s: \"%s\" is no version; versions are like \"12.4\" or \"535.129.03\"",
                       name, wi_show(&shown, json_string_value(v->json)));
}

/* ---- tuning ---------------------------------------------------------------------------------------------------------- */

/* The value as the text that engines take; NULL where it has none. */
static const char *setting_text(wi_reading *r, const json_t *json, const wi_place *place)
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

static void take_setting(wi_reading *r, const wi_place *place, const char *key, const json_t *json, weir_setting *to)
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

void wi_take_tuning(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_object(v->json)) {
        wi_wrong_type(r, v, "an object with the engine's settings");
        return;
    }
    weir_manifest *m = &r->held->manifest;
    weir_setting *settings = wi_keep(r, json_object_size(v->json) * sizeof *settings);
    m->settings = settings;
    wi_walk walk = wi_walk_into(r->text, v->at);
    for (wi_place place; settings && wi_walk_next(&walk, &place);) {
        json_t *decoded = wi_decoded(r, place.key, place.key_end);
        void *member = decoded ? json_object_iter_at(v->json, json_string_value(decoded)) : NULL;
        if (member && !json_is_null(json_object_iter_value(member)) && m->setting_count < json_object_size(v->json))
            take_setting(r, &place, json_object_iter_key(member), json_object_iter_value(member),
                         &settings[m->setting_count++]);
        json_decref(decoded);
    }
}

void wi_take_requirements(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (json_is_object(v->json))
        wi_fields_read(r, v->at, v->json, true);
    else
        wi_wrong_type(r, v, "an object");
}

void wi_take_jobs(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    bool none = (json_is_array(v->json) && json_array_size(v->json) == 0) ||
                (json_is_object(v->json) && json_object_size(v->json) == 0);
    if (!none)
        wi_problem_add(&r->problems, v->at,
                       "cron_jobs: weir runs nothing by the clock; take the jobs out and have the "
                       "system's timers run them");
}
