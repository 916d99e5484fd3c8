/* What hardware_requirements ask for, key by key: enforced, or refused in words. */
#include "base/keywords.h"
#include <weir/manifest.h>
#include "manifest/locations.h"
#include "manifest/words.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEVICES = 64 };

static weir_requirements *wanted(wi_reading *r)
{
    return &r->held->manifest.requirements;
}

/* ---- providers ------------------------------------------------------------------------------------------------------- */

/* The text of a value, for a check whose words are told when it fails; NULL if it is none. */
static const char *word_of(wi_reading *r, const wi_value *v)
{
    if (!json_is_string(v->json))
        wi_wrong_type(r, v, "a text");
    return json_string_value(v->json);
}

static bool passed(wi_reading *r, const wi_value *v, weir_status status)
{
    if (status != WEIR_OK)
        wi_problem_add(&r->problems, v->at, "%s", weir_detail());
    return status == WEIR_OK;
}

void wi_take_provider(wi_reading *r, const wi_value *v, void *to)
{
    wi_provider provider = WI_CPU;
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_provider_read(wi_field_name(v->field), word, &provider)))
        *(const char **)to = wi_provider_name(provider);
}

void wi_take_providers(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json)) {
        wi_wrong_type(r, v, "a list of providers");
        return;
    }
    const char **list = wi_keep(r, json_array_size(v->json) * sizeof *list);
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_place place;
    for (size_t i = 0; list && wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        wi_take_provider(r, &one, &list[i]);
    }
    wanted(r)->fallback_providers = list;
    wanted(r)->fallback_count = list ? json_array_size(v->json) : 0;
}

void wi_take_cpu(wi_reading *r, const wi_value *v, void *to)
{
    weir_cpu_use *cpu = to;
    if (json_is_boolean(v->json))
        *cpu = json_is_true(v->json) ? WEIR_CPU_LAST : WEIR_CPU_FORBIDDEN;
    else if (json_is_string(v->json) && strcasecmp(json_string_value(v->json), "listed") == 0)
        *cpu = WEIR_CPU_LISTED;
    else
        wi_wrong_type(r, v, "true (the last resort), false (never) or \"listed\" (where a provider says cpu)");
}

void wi_take_coverage(wi_reading *r, const wi_value *v, void *to)
{
    double share = json_number_value(v->json);
    if (!json_is_number(v->json) || !(share >= 0 && share <= 1))
        wi_wrong_type(r, v, "a number from 0 to 1: the share of nodes or layers");
    else
        *(double *)to = share;
}

/* ---- devices --------------------------------------------------------------------------------------------------------- */

static bool read_device(wi_reading *r, const wi_value *v, int32_t *out)
{
    if (!json_is_integer(v->json)) {
        wi_wrong_type(r, v, "a whole number");
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

void wi_take_device(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    int32_t *device = wi_keep(r, sizeof *device);
    if (!device || !read_device(r, v, device))
        return;
    wanted(r)->device_ids = device;
    wanted(r)->device_count = 1;
}

void wi_take_devices(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_array(v->json) || json_array_size(v->json) > MOST_DEVICES) {
        wi_wrong_type(r, v, "a list of up to 64 devices");
        return;
    }
    r->given[v->field] = json_array_size(v->json) > 0; /* of none: as if it were left out */
    if (!r->given[v->field])
        return;
    int32_t *list = wi_keep(r, json_array_size(v->json) * sizeof *list);
    size_t count = 0;
    wi_walk walk = wi_walk_into(r->text, v->at);
    wi_place place;
    for (size_t i = 0; list && wi_walk_next(&walk, &place); i++) {
        wi_value one = {v->field, json_array_get(v->json, i), place.value, place.value_end};
        if (!read_device(r, &one, &list[count]))
            continue;
        for (size_t k = 0; k < count; k++)
            if (list[k] == list[count])
                wi_problem_add(&r->problems, one.at, "gpu_device_ids: the device %d is there twice", (int)list[k]);
        count++;
    }
    wanted(r)->device_ids = count > 0 ? list : NULL;
    wanted(r)->device_count = count;
}

void wi_take_strategy(wi_reading *r, const wi_value *v, void *to)
{
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_strategy_check(wi_field_name(v->field), word)))
        *(const char **)to = word;
}

/* ---- the model on the device ----------------------------------------------------------------------------------------- */

void wi_take_level(wi_reading *r, const wi_value *v, void *to)
{
    const char *word = word_of(r, v);
    if (word && passed(r, v, wi_level_check(wi_field_name(v->field), word)))
        *(const char **)to = word;
}

/* A CUDA device has arithmetic of a kind from a compute capability on (CUDA C++ Programming Guide, appendix on compute
 * capabilities); processors compute in all of them. */
void wi_take_precision(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    static const struct {
        const char *names[2];
        weir_version_number least;
    } precisions[] = {{{"fp32", "float32"}, {{0}, 0}},
                      {{"fp16", "float16"}, {{5, 3}, 2}},
                      {{"bf16", "bfloat16"}, {{8, 0}, 2}},
                      {{"int8", "uint8"}, {{6, 1}, 2}},
                      {{"fp8", "fp8"}, {{8, 9}, 2}}};
    const char *word = wi_word_of(r, v, wi_words_precisions, "precision");
    for (size_t i = 0; word && i < sizeof precisions / sizeof *precisions; i++)
        if (wi_word((const char *const[]){precisions[i].names[0], precisions[i].names[1], NULL}, word))
            r->precision = precisions[i].least;
}

/* ---- shares and isolation -------------------------------------------------------------------------------------------- */

void wi_take_share(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    if (!json_is_integer(v->json))
        wi_wrong_type(r, v, "a whole number");
    else if (json_integer_value(v->json) != 1000)
        wi_problem_add(&r->problems, v->at,
                       "gpu_compute_share_milli is %" JSON_INTEGER_FORMAT
                       ": weir divides a device's memory and not its "
                       "computing, so that only 1000 (all of it) can be had",
                       json_integer_value(v->json));
}

void wi_take_isolation(wi_reading *r, const wi_value *v, void *to)
{
    (void)to;
    r->isolation = wi_word_of(r, v, wi_words_isolation, "isolation mode");
    if (r->isolation && strcmp(r->isolation, "hard") == 0)
        wi_problem_add(&r->problems, v->at,
                       "isolation_mode: the models of a process share its context, so that \"hard\" cannot be had; "
                       "\"reserved\" with gpu_memory_reservation_mb keeps memory for this one");
}
