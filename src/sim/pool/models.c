/* The models of a simulated pool: the default models, and files of models. */
#include "sim/pool/traffic.h"
#include "base/internal.h"
#include "base/values.h"
#include "pool/decisions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_DAYS = 1000 };
#define TIME_MOST (LONGEST_DAYS * TRAFFIC_DAY)
#define SIZE_MOST (UINT64_C(1) << 50)

static const traffic_model unsaid = {.spec = {.variant_count = 1,
                                              .variants[0].layers = -1,
                                              .may_evict = true,
                                              .weight = 1,
                                              .keep_alive = WP_FOREVER,
                                              .suspend_after = WP_FOREVER,
                                              .slots = 4},
                                     .popular = 1,
                                     .request_time = 2 * TRAFFIC_SECOND};

/* NULL: no memory, or there are too many. */
static traffic_model *pool_models_one_more(traffic_models *models)
{
    traffic_model *grown =
        models->count < TRAFFIC_MODELS ? realloc(models->list, (models->count + 1) * sizeof *models->list) : NULL;
    if (!grown)
        return NULL;
    models->list = grown;
    models->list[models->count] = unsaid;
    return &models->list[models->count++];
}

void traffic_models_free(traffic_models *models)
{
    free(models->list);
    *models = (traffic_models){0};
}

/* ---- the default ones -------------------------------------------------------------------------------------------- */

static uint64_t at_rate(uint64_t bytes, uint64_t per_second)
{
    return (uint64_t)((unsigned __int128)bytes * TRAFFIC_SECOND / per_second);
}

weir_status traffic_models_default(traffic_models *out)
{
    static const struct {
        const char *name;
        uint64_t mib;
    } sizes[] = {{"chat-70b", 40960},   {"code-32b", 26624}, {"vision-27b", 24576}, {"chat-24b", 18432},
                 {"reason-14b", 16384}, {"image", 14336},    {"chat-8b", 8192},     {"code-7b", 8192},
                 {"speech", 5120},      {"chat-3b", 4096},   {"transcribe", 2560},  {"rerank", 1536},
                 {"embed", 1024},       {"classify", 512}};
    traffic_models models = {.devices = 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        traffic_model *m = pool_models_one_more(&models);
        if (!m) {
            traffic_models_free(&models);
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu models", sizeof sizes / sizeof *sizes);
        }
        uint64_t bytes = sizes[i].mib * WI_MIB;
        snprintf(m->spec.name, sizeof m->spec.name, "%s", sizes[i].name);
        m->spec.variants[0].peak = m->spec.variants[0].resident = m->spec.host = bytes;
        m->spec.can_suspend = true;
        m->spec.load_time = 3 * TRAFFIC_SECOND / 2 + at_rate(bytes, 5 * WI_GIB / 2);
        m->spec.resume_time = m->spec.suspend_time = TRAFFIC_SECOND / 20 + at_rate(bytes, 40 * WI_GIB);
        m->request_time = TRAFFIC_SECOND / 2 + at_rate(bytes, 8 * WI_GIB);
        m->request_bytes = bytes / 64;
    }
    *out = models;
    return WEIR_OK;
}

/* ---- read -------------------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(traffic_model, member)

static const line_field model_fields[] = {
    {"name", LINE_NAME, true, AT(spec.name), 0, 0},
    {"bytes", LINE_SIZE, true, AT(spec.variants[0].peak), 1, SIZE_MOST},
    {"load", LINE_TIME, true, AT(spec.load_time), 0, TIME_MOST},
    {"resident", LINE_SIZE, false, AT(spec.variants[0].resident), 1, SIZE_MOST},
    {"resume", LINE_TIME, false, AT(spec.resume_time), 0, TIME_MOST},
    {"suspend", LINE_TIME, false, AT(spec.suspend_time), 0, TIME_MOST},
    {"stays", LINE_SIZE, false, AT(spec.stays), 0, SIZE_MOST},
    {"host", LINE_SIZE, false, AT(spec.host), 0, SIZE_MOST},
    {"device", LINE_U32, false, AT(spec.device), 0, TRAFFIC_DEVICES - 1},
    {"context", LINE_U32, false, AT(spec.variants[0].context), 0, 0},
    {"layers", LINE_I32, false, AT(spec.variants[0].layers), 0, 0},
    {"pinned", LINE_SET, false, AT(spec.pinned), 0, 0},
    {"no-evict", LINE_CLEAR, false, AT(spec.may_evict), 0, 0},
    {"priority", LINE_I32, false, AT(spec.priority), 0, 0},
    {"weight", LINE_U32, false, AT(spec.weight), 1, UINT32_MAX},
    {"evict-cost", LINE_TIME, false, AT(spec.evict_cost), 0, TIME_MOST},
    {"minimum-stay", LINE_TIME, false, AT(spec.minimum_stay), 0, TIME_MOST},
    {"keep-alive", LINE_TIME, false, AT(spec.keep_alive), 0, UINT64_MAX},
    {"suspend-after", LINE_TIME, false, AT(spec.suspend_after), 0, UINT64_MAX},
    {"slots", LINE_U32, false, AT(spec.slots), 1, 4096},
    {"popular", LINE_U32, false, AT(popular), 1, 1000000},
    {"fails", LINE_U32, false, AT(fails), 0, 0},
    {"request-time", LINE_TIME, false, AT(request_time), 0, TIME_MOST / LONGEST_DAYS},
    {"request-bytes", LINE_SIZE, false, AT(request_bytes), 0, SIZE_MOST},
    {"shrink-first", LINE_SET, false, AT(spec.shrink_first), 0, 0},
    {"gives-up", LINE_NAME, false, AT(gives_up), 0, 0}};

/* A variant's line, and what is read of it first. */
typedef struct variant_line {
    wp_variant variant;
    uint32_t device;
    bool fewer_layers;
} variant_line;

static const line_field variant_fields[] = {
    {"bytes", LINE_SIZE, true, offsetof(wp_variant, peak), 1, SIZE_MOST},
    {"resident", LINE_SIZE, false, offsetof(wp_variant, resident), 1, SIZE_MOST},
    {"context", LINE_U32, false, offsetof(wp_variant, context), 0, 0},
    {"layers", LINE_I32, false, offsetof(wp_variant, layers), 0, 0},
    {"device", LINE_U32, false, offsetof(variant_line, device), 0, TRAFFIC_DEVICES - 1},
    {"same", LINE_SET, false, offsetof(wp_variant, same), 0, 0},
    {"fewer-layers", LINE_SET, false, offsetof(variant_line, fewer_layers), 0, 0}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool pool_models_given(uint64_t seen, const char *key)
{
    for (size_t i = 0; i < COUNT(model_fields); i++)
        if (strcmp(model_fields[i].key, key) == 0)
            return seen >> i & 1;
    return false;
}

static weir_status check_variant(const line_reader *r, wp_variant *v)
{
    if (v->resident == 0)
        v->resident = v->peak;
    return v->resident <= v->peak ? WEIR_OK
                                  : line_fail(r, "resident= is more than bytes=, which is the most while it is loaded");
}

static weir_status pool_models_read_steps(const line_reader *r, traffic_model *m)
{
    for (const char *at = m->gives_up; *at;) {
        size_t length = strcspn(at, ",");
        wp_step step = WP_STEP_CONTEXT;
        while (step < WP_STEPS && (strlen(wp_step_name(step)) != length || memcmp(wp_step_name(step), at, length) != 0))
            step++;
        if (step == WP_STEPS || m->spec.step_count == WP_STEPS)
            return line_fail(r, "gives-up=%s: context, layers, suspend, evict, device and wait are the steps",
                             m->gives_up);
        m->spec.steps[m->spec.step_count++] = step;
        at += length + (at[length] == ',');
    }
    return WEIR_OK;
}

static weir_status pool_models_read_model(const line_reader *r, traffic_models *models)
{
    uint64_t seen;
    if (models->count == TRAFFIC_MODELS)
        return line_fail(r, "more than %d models", TRAFFIC_MODELS);
    traffic_model *m = pool_models_one_more(models);
    if (!m)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for another model", r->path);
    weir_status status = line_fill(r, model_fields, COUNT(model_fields), m, &seen);
    if (status != WEIR_OK)
        return status;
    for (uint32_t i = 0; i + 1 < models->count; i++)
        if (strcmp(models->list[i].spec.name, m->spec.name) == 0)
            return line_fail(r, "there is a model %s already", m->spec.name);
    if (pool_models_given(seen, "resume") != pool_models_given(seen, "suspend"))
        return line_fail(r, "resume= and suspend= go together");
    m->spec.can_suspend = pool_models_given(seen, "resume");
    if (!m->spec.can_suspend && (pool_models_given(seen, "stays") || pool_models_given(seen, "host") ||
                                 pool_models_given(seen, "suspend-after")))
        return line_fail(r, "stays=, host= and suspend-after= are of models with resume= and suspend=");
    if (m->spec.can_suspend && !pool_models_given(seen, "host"))
        m->spec.host = m->spec.variants[0].peak;
    models->devices = m->spec.device >= models->devices ? m->spec.device + 1 : models->devices;
    status = pool_models_read_steps(r, m);
    if (status == WEIR_OK)
        status = check_variant(r, &m->spec.variants[0]);
    if (status == WEIR_OK && m->spec.stays > m->spec.variants[0].resident)
        status = line_fail(r, "stays= is more than the model has");
    return status;
}

static weir_status pool_models_read_variant(const line_reader *r, traffic_models *models)
{
    wp_spec *s = models->count > 0 ? &models->list[models->count - 1].spec : NULL;
    if (!s)
        return line_fail(r, "a variant belongs to the model above it, and there is none");
    if (s->variant_count == WP_VARIANTS)
        return line_fail(r, "%s has more than %d variants", s->name, WP_VARIANTS);
    variant_line line = {.variant.layers = -1, .device = s->device};
    weir_status status = line_fill(r, variant_fields, COUNT(variant_fields), &line, NULL);
    if (status != WEIR_OK)
        return status;
    line.variant.on = line.device == s->device ? 0 : line.device + 1;
    line.variant.gives = line.fewer_layers ? WP_STEP_LAYERS : WP_STEP_CONTEXT;
    models->devices = wi_max(models->devices, line.device + 1);
    status = check_variant(r, &line.variant);
    s->variants[s->variant_count++] = line.variant;
    return status;
}

bool traffic_models_spread(traffic_models *models, uint32_t devices)
{
    for (uint32_t i = 0; i < models->count; i++) {
        wp_spec *s = &models->list[i].spec;
        wp_variant all[WP_VARIANTS];
        uint32_t count = 0;
        bool placed = false;
        for (uint32_t v = 0; v < s->variant_count; v++)
            placed |= s->variants[v].on != 0;
        if (placed || devices == 1)
            continue;
        if (s->variant_count * devices > WP_VARIANTS)
            return false;
        s->device = i % devices;
        for (uint32_t v = 0; v < s->variant_count; v++)
            for (uint32_t d = 0; d < devices; d++) {
                all[count] = s->variants[v];
                all[count].on = d ? (s->device + d) % devices + 1 : 0;
                all[count++].same = d > 0;
            }
        memcpy(s->variants, all, count * sizeof *all);
        s->variant_count = count;
    }
    models->devices = wi_max(models->devices, devices);
    return true;
}

weir_status traffic_models_read(const char *path, traffic_models *out)
{
    line_reader r;
    bool got;
    traffic_models models = {.devices = 1};
    weir_status status = line_open(&r, path);
    if (status != WEIR_OK)
        return status;
    while ((status = line_next(&r, &got)) == WEIR_OK && got) {
        if (strcmp(r.word, "model") == 0)
            status = pool_models_read_model(&r, &models);
        else if (strcmp(r.word, "variant") == 0)
            status = pool_models_read_variant(&r, &models);
        else
            status = line_fail(&r, "%s is neither model nor variant", r.word);
        if (status != WEIR_OK)
            break;
    }
    line_close(&r);
    if (status == WEIR_OK && models.count == 0)
        status = weir_fail(WEIR_ERR_INVALID, "%s has no model", path);
    if (status == WEIR_OK)
        *out = models;
    else
        traffic_models_free(&models);
    return status;
}

/* ---- written ----------------------------------------------------------------------------------------------------- */

static void write_time(FILE *file, const char *key, uint64_t time, uint64_t usual)
{
    char text[32];
    if (time != usual)
        fprintf(file, " %s=%s", key, line_time_write(time, text, sizeof text));
}

static void write_size(FILE *file, const char *key, uint64_t bytes, uint64_t usual)
{
    char text[32];
    wi_size_write(bytes, text, sizeof text);
    if (bytes != usual)
        fprintf(file, " %s=%s", key, text);
}

static void pool_models_write_number(FILE *file, const char *key, int64_t number, int64_t usual)
{
    if (number != usual)
        fprintf(file, " %s=%" PRId64, key, number);
}

static void write_variant(FILE *file, const wp_variant *v)
{
    write_size(file, "bytes", v->peak, 0);
    write_size(file, "resident", v->resident, v->peak);
    pool_models_write_number(file, "context", v->context, 0);
    pool_models_write_number(file, "layers", v->layers, -1);
}

static void write_way(FILE *file, const wp_spec *s, const wp_variant *v)
{
    write_variant(file, v);
    pool_models_write_number(file, "device", v->on ? v->on - 1 : s->device, s->device);
    fputs(v->same ? " same" : "", file);
    fputs(v->gives == WP_STEP_LAYERS ? " fewer-layers" : "", file);
}

static void write_model(FILE *file, const traffic_model *m)
{
    const wp_spec *s = &m->spec;
    fprintf(file, "model name=%s", s->name);
    write_variant(file, &s->variants[0]);
    write_time(file, "load", s->load_time, UINT64_MAX);
    if (s->can_suspend) {
        write_time(file, "resume", s->resume_time, UINT64_MAX);
        write_time(file, "suspend", s->suspend_time, UINT64_MAX);
        write_size(file, "stays", s->stays, 0);
        write_size(file, "host", s->host, s->variants[0].peak);
    }
    pool_models_write_number(file, "device", s->device, 0);
    fputs(s->pinned ? " pinned" : "", file);
    fputs(s->may_evict ? "" : " no-evict", file);
    pool_models_write_number(file, "priority", s->priority, 0);
    pool_models_write_number(file, "weight", s->weight, 1);
    write_time(file, "evict-cost", s->evict_cost, 0);
    write_time(file, "minimum-stay", s->minimum_stay, 0);
    write_time(file, "keep-alive", s->keep_alive, WP_FOREVER);
    write_time(file, "suspend-after", s->suspend_after, WP_FOREVER);
    pool_models_write_number(file, "slots", s->slots, unsaid.spec.slots);
    pool_models_write_number(file, "popular", m->popular, 1);
    pool_models_write_number(file, "fails", m->fails, 0);
    write_time(file, "request-time", m->request_time, unsaid.request_time);
    write_size(file, "request-bytes", m->request_bytes, 0);
    fputs(s->shrink_first ? " shrink-first" : "", file);
    if (m->gives_up[0])
        fprintf(file, " gives-up=%s", m->gives_up);
    fputc('\n', file);
    for (uint32_t i = 1; i < s->variant_count; i++) {
        fputs("variant", file);
        write_way(file, s, &s->variants[i]);
        fputc('\n', file);
    }
}

void traffic_models_write(const traffic_models *models, FILE *file)
{
    for (uint32_t i = 0; i < models->count; i++)
        write_model(file, &models->list[i]);
}
