/* failure.c: what went wrong with a model, and which limit would have avoided it. */
#include "run.h"
#include <weir/engine.h>
#include <weir/model.h>

#include "cli/cli.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void failure_note(failure *out, weir_status status, const char *stage)
{
    static _Thread_local uint64_t told; /* the number of the refusal that this thread has noted last */
    if (status == WEIR_OK || out->status != WEIR_OK)
        return;
    *out = (failure){.status = status, .stage = stage, .detail = text_copy(weir_detail())};
    out->refusal = WEIR_INIT(weir_refusal);
    if (status != WEIR_ERR_OUT_OF_MEMORY || weir_refusal_last(&out->refusal) != WEIR_OK || out->refusal.number == told)
        out->refusal = (weir_refusal){0};
    else
        told = out->refusal.number;
}

void failure_print(const failure *failed, const char *model)
{
    /* A refusal's detail begins with the client's name already. */
    bool named = strncmp(failed->detail, model, strlen(model)) == 0;
    cli_fail("%s%s%s%s%s", named ? "" : model, named ? "" : ": ",
             failed->detail[0] != '\0' ? failed->detail : weir_name_of(WEIR_NAMES_STATUS, failed->status),
             failed->suggestion != NULL ? "; " : "", failed->suggestion != NULL ? failed->suggestion : "");
}

static json_t *refusal_json(const weir_refusal *refusal)
{
    json_t *holders = json_array();
    for (int i = 0; i < WEIR_REFUSAL_HOLDERS && refusal->holders[i].client[0] != '\0'; i++)
        json_array_append_new(holders, json_pack("{s:o, s:I}", "client", text_json(refusal->holders[i].client), "bytes",
                                                 (json_int_t)refusal->holders[i].bytes));
    return json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "cause",
                     weir_name_of(WEIR_NAMES_CAUSE, refusal->cause), "client", text_json(refusal->client), "device",
                     refusal->device, "class", weir_name_of(WEIR_NAMES_CLASS, refusal->memory_class), "requested",
                     (json_int_t)refusal->requested, "current", (json_int_t)refusal->current, "remaining",
                     (json_int_t)refusal->remaining, "limit", (json_int_t)refusal->limit, "largest",
                     (json_int_t)refusal->largest, "needed", (json_int_t)refusal->needed, "holders", holders);
}

json_t *failure_json(const failure *failed, const char *model)
{
    json_t *object = json_pack("{s:s, s:o, s:o, s:s}", "status", weir_name_of(WEIR_NAMES_STATUS, failed->status),
                               "detail", text_json(failed->detail), "model",
                               model != NULL ? text_json(model) : json_null(), "stage", failed->stage);
    if (failed->suggestion != NULL)
        json_object_set_new(object, "remedy", text_json(failed->suggestion));
    if (failed->refusal.cause != WEIR_CAUSE_NONE)
        json_object_set_new(object, "refusal", refusal_json(&failed->refusal));
    return object;
}

void failure_clear(failure *failed)
{
    free(failed->detail);
    free(failed->suggestion);
    *failed = (failure){0};
}

/* A limit that would do -------------------------------------------------------------------------------------------- */

/* The engine that the model is on; NULL: it is on no device. */
static const weir_engine *engine_of(weir_model *model)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    const weir_engine *engine;
    bool known = weir_model_info(model, &info) == WEIR_OK && weir_engine_get(info.engine, &engine) == WEIR_OK;
    return known ? engine : NULL;
}

/* The bytes of the whole model, as its engine predicts them, or as many of them as are certain; answers whether that is
 * all. */
static bool predict_total(const model_run *m, uint64_t *total)
{
    /* The engine that has loaded the file, or would have. */
    const weir_engine *engine = m->model != NULL ? engine_of(m->model) : engine_for_file(m->path);
    weir_engine_place place = {.runtime = m->runtime};
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    options.name = m->args->name;
    *total = 0;
    if (engine == NULL || engine->plan == NULL || weir_client_create(m->runtime, &options, &place.client) != WEIR_OK)
        return false;
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = m->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = m->args->settings;
    load.setting_count = m->args->setting_count;
    bool predicted = engine->plan(&load, &plan) == WEIR_OK, exact = predicted;
    for (int i = 0; predicted && i < WEIR_CLASS_COUNT; i++) {
        exact = exact && plan.exact[i];
        *total += plan.exact[i] ? plan.bytes[i] : 0;
    }
    return weir_client_destroy(place.client) == WEIR_OK && exact;
}

/* Physical memory comes in chunks: a suggestion that is a few bytes short would be useless. */
enum { CHUNK = 65536 };

static uint64_t in_chunks(uint64_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

/* Returns the bytes that the other clients need: each client may reach its peak while this model is loaded, and strand
 * one chunk with small blocks. Reads all clients in a single snapshot, as clients come and go while models run. */
static uint64_t others_at_peak(const model_run *m)
{
    weir_stats whole = WEIR_INIT(weir_stats);
    weir_client_stats clients[RUN_MODELS_MOST + 1];
    size_t count = 0;
    uint64_t bytes = 0;
    clients[0].struct_size = sizeof clients[0];
    if (weir_snapshot(m->runtime, &whole, clients, RUN_MODELS_MOST + 1, &count) != WEIR_OK)
        return 0;
    for (size_t i = 0; i < count && i < RUN_MODELS_MOST + 1; i++) {
        const weir_client_stats *other = &clients[i];
        uint64_t held = other->live + other->pending;
        uint64_t most = held + (other->peak > held ? in_chunks(other->peak - held) : 0) + CHUNK;
        if (strcmp(other->name, m->args->name) != 0 && other->peak + other->guaranteed > 0)
            bytes += most > other->guaranteed ? most : other->guaranteed;
    }
    return bytes;
}

void suggestion_find(model_run *m)
{
    const weir_refusal *refusal = &m->failed.refusal;
    bool budget = refusal->cause == WEIR_CAUSE_BUDGET, maximum = refusal->cause == WEIR_CAUSE_MAXIMUM;
    uint64_t planned = 0, limit = refusal->needed, with_this = refusal->current + refusal->requested;
    char more[24], size[24];
    if ((!budget && !maximum) || limit <= refusal->limit || limit == UINT64_MAX)
        return;
    bool exact = predict_total(m, &planned);
    uint64_t rest = planned > with_this ? in_chunks(planned - with_this) : 0;
    limit += rest;
    if (exact && budget) { /* else the least that is certain */
        uint64_t all = others_at_peak(m) + with_this + rest;
        limit = all > limit ? all : limit;
    }
    weir_size_format(limit, size, sizeof size);
    weir_size_format(limit - refusal->limit, more, sizeof more);
    char *option =
        budget ? text_print("--budget %" PRIu64, limit) : text_print("--maximum %s=%" PRIu64, m->args->name, limit);
    m->failed.suggestion = exact ? text_print("with %s (%s) all of it fits", option, size)
                                 : text_print("the model needs at least %s more: %s", more, option);
    free(option);
}
