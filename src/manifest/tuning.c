/* Settings for the model's engine: those of Kapsl's names become the engine onnx's own, which do the same; what would have no meaning for
 * the engine is a problem, as the load would refuse it. */
#include "base/keywords.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include "manifest/locations.h"
#include "manifest/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const struct other *find(const char *key)
{
    for (size_t i = 0; i < OTHERS; i++)
        if (strcmp(others[i].theirs, key) == 0)
            return &others[i];
    return NULL;
}

/* Where the setting of that key stands: itself, or its value. */
static size_t place_of(wi_reading *r, const char *key, bool value)
{
    wi_walk walk = wi_walk_into(r->text, r->value_at[WI_TUNING]);
    size_t at = r->value_at[WI_TUNING];
    for (wi_place place; wi_walk_next(&walk, &place);) {
        json_t *decoded = wi_decoded(r, place.key, place.key_end);
        if (decoded && strcmp(json_string_value(decoded), key) == 0)
            at = value ? place.value : place.key;
        json_decref(decoded);
    }
    return at;
}

static void bad_value(wi_reading *r, const struct other *it, const weir_setting *s, const char *wanted)
{
    wi_shown shown;
    wi_problem_add(&r->problems, place_of(r, it->theirs, true), "tuning: %s is \"%s\"; it has to be %s", it->theirs,
                   wi_show(&shown, s->value), wanted);
}

/* ---- for the engine onnx --------------------------------------------------------------------------------------------- */

static void take_number(wi_reading *r, const struct other *it, weir_setting *s)
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

/* Weir has no arena, so that one that is not forbidden is nothing to set. */
static void take_arena(wi_reading *r, const struct other *it, weir_setting *s)
{
    static const char *const yes[] = {"on", "true", "yes", "1", NULL}, *const no[] = {"off", "false", "no", "0", NULL};
    if (wi_word(yes, s->value))
        *s = (weir_setting){it->ours, "off"};
    else if (wi_word(no, s->value))
        s->key = NULL;
    else
        bad_value(r, it, s, "true or false");
}

static const weir_setting *given(const weir_manifest *m, const char *key)
{
    for (size_t i = 0; i < m->setting_count; i++)
        if (m->settings[i].key && strcmp(m->settings[i].key, key) == 0)
            return &m->settings[i];
    return NULL;
}

/* How shapes are put into buckets says nothing where there is one. */
static bool has_buckets(const weir_manifest *m)
{
    const weir_setting *ours = given(m, others[BUCKETS].ours), *it = ours ? ours : given(m, others[BUCKETS].theirs);
    return it && it->value && strtol(it->value, NULL, 10) > 1;
}

static void take_one(wi_reading *r, weir_setting *s, bool buckets)
{
    const struct other *it = s->key && s->value ? find(s->key) : NULL;
    if (!it)
        return;
    if (given(&r->held->manifest, it->ours))
        wi_problem_add(&r->problems, place_of(r, it->theirs, false),
                       "tuning: %s says again what %s says; keep one of them", it->theirs, it->ours);
    else if (it->most == 0)
        take_arena(r, it, s);
    else
        take_number(r, it, s);
    bool idle = it == &others[GRANULARITY] || it == &others[MAX_DIMS];
    if (idle && !buckets)
        s->key = NULL;
}

static void take_others(wi_reading *r)
{
    weir_manifest *m = &r->held->manifest;
    weir_setting *settings = (weir_setting *)m->settings;
    bool buckets = has_buckets(m);
    size_t kept = 0;
    for (size_t i = 0; i < m->setting_count; i++)
        take_one(r, &settings[i], buckets);
    for (size_t i = 0; i < m->setting_count; i++)
        if (settings[i].key)
            settings[kept++] = settings[i];
    m->setting_count = kept;
}

/* ---- for other engines ----------------------------------------------------------------------------------------------- */

static void refuse_others(wi_reading *r)
{
    const weir_manifest *m = &r->held->manifest;
    for (size_t i = 0; i < m->setting_count; i++)
        if (m->settings[i].key && find(m->settings[i].key))
            wi_problem_add(
                &r->problems, place_of(r, m->settings[i].key, false),
                "tuning: %s has no meaning for the engine %s, which has one context and no sessions; leave it "
                "out",
                m->settings[i].key, m->framework);
}

/* "all", which any engine does that has no levels, may stand there. */
static void check_level(wi_reading *r)
{
    const weir_manifest *m = &r->held->manifest;
    const char *level = m->requirements.graph_optimization_level;
    if (level && !wi_level_is_all(level))
        wi_problem_add(&r->problems, r->value_at[WI_LEVEL],
                       "graph_optimization_level: the engine %s has no levels of optimization; leave it out, or say "
                       "\"all\"",
                       m->framework);
}

void wi_tuning(wi_reading *r)
{
    const char *framework = r->held->manifest.framework;
    if (!framework)
        return;
    if (strcmp(framework, "onnx") == 0) {
        take_others(r);
        return;
    }
    check_level(r);
    if (strcmp(framework, "gguf") == 0)
        refuse_others(r);
}
