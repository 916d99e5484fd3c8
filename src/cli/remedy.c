#include "remedy.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

/* Is one of the words of `suffixes` the end of `path`? */
static bool has_suffix(const char *path, const char *suffixes)
{
    size_t length = strlen(path);
    while (suffixes != NULL && *suffixes != '\0') {
        size_t word = strcspn(suffixes, " ");
        if (word > 0 && word < length && strncmp(path + length - word, suffixes, word) == 0)
            return true;
        suffixes += word + strspn(suffixes + word, " ");
    }
    return false;
}

/* The engine that loads, or would have loaded, the job's file. */
static const weir_engine *engine_of(const job *work)
{
    const char *name;
    const weir_engine *engine = NULL;
    if (work->model != NULL)
        return weir_model_engine(work->model);
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++)
        if (weir_engine_open(name, &engine) == WEIR_OK && has_suffix(work->words->path, engine->suffixes))
            return engine;
    return NULL;
}

/* All bytes the model will take; false unless the engine knows them exactly. */
static bool exact_plan(const job *work, uint64_t *total)
{
    const weir_engine *engine = engine_of(work);
    weir_engine_place place = {.runtime = work->runtime};
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    options.name = work->words->name;
    if (engine == NULL || engine->plan == NULL || weir_client_open(work->runtime, &options, &place.client) != WEIR_OK)
        return false;
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = work->words->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = work->words->settings;
    load.setting_count = work->words->setting_count;
    bool exact = engine->plan(&load, &plan) == WEIR_OK;
    *total = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        exact = exact && plan.exact[i];
        *total += plan.bytes[i];
    }
    return weir_client_close(place.client) == WEIR_OK && exact;
}

/* What the other clients will want again: they were at their peaks before, and will be while this one is there. */
static uint64_t others_to_come(const job *work)
{
    weir_stats whole = WEIR_INIT(weir_stats);
    weir_client_stats clients[RUN_MODELS_MOST + 1];
    size_t count = 0;
    uint64_t bytes = 0;
    clients[0].size = sizeof clients[0];
    if (weir_snapshot(work->runtime, &whole, clients, RUN_MODELS_MOST + 1, &count) != WEIR_OK)
        return 0;
    for (size_t i = 0; i < count && i < RUN_MODELS_MOST + 1; i++)
        if (strcmp(clients[i].name, work->words->name) != 0)
            bytes += clients[i].peak - clients[i].live - clients[i].pending;
    return bytes;
}

void remedy_find(job *work)
{
    const weir_refusal *refusal = &work->failed.refusal;
    bool budget = refusal->cause == WEIR_CAUSE_BUDGET, maximum = refusal->cause == WEIR_CAUSE_MAXIMUM;
    uint64_t planned = 0, limit = refusal->needed;
    char size[24];
    if ((!budget && !maximum) || limit <= refusal->limit)
        return;
    if (!exact_plan(work, &planned)) {
        work->failed.remedy = text_print("at least %s more is needed",
                                         weir_size_format(limit - refusal->limit, size, sizeof size));
        return;
    }
    uint64_t with_this = refusal->current + refusal->requested;
    limit += planned > with_this ? planned - with_this : 0;
    limit += budget ? others_to_come(work) : 0;
    weir_size_format(limit, size, sizeof size);
    work->failed.remedy = budget ? text_print("--budget %" PRIu64 " (%s) would do", limit, size)
                                 : text_print("--maximum %s=%" PRIu64 " (%s) would do", work->words->name, limit, size);
}
