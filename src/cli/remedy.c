#include "remedy.h"

#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
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

/* The bytes of the whole model, as far as its engine can tell; answers whether that is all of them. */
static bool plan_total(const job *work, uint64_t *total)
{
    const weir_engine *engine = engine_of(work);
    weir_engine_place place = {.runtime = work->runtime};
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    options.name = work->words->name;
    *total = 0;
    if (engine == NULL || engine->plan == NULL || weir_client_open(work->runtime, &options, &place.client) != WEIR_OK)
        return false;
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = work->words->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = work->words->settings;
    load.setting_count = work->words->setting_count;
    bool told = engine->plan(&load, &plan) == WEIR_OK, exact = told;
    for (int i = 0; told && i < WEIR_CLASS_COUNT; i++) {
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

/* What is needed comes in pieces of physical memory: a remedy that is a few bytes short would be none. */
static uint64_t in_pieces(uint64_t bytes)
{
    enum { PIECE = 65536 };
    return (bytes + PIECE - 1) / PIECE * PIECE;
}

void remedy_find(job *work)
{
    const weir_refusal *refusal = &work->failed.refusal;
    bool budget = refusal->cause == WEIR_CAUSE_BUDGET, maximum = refusal->cause == WEIR_CAUSE_MAXIMUM;
    uint64_t planned = 0, limit = refusal->needed, with_this = refusal->current + refusal->requested;
    char more[24], size[24];
    if ((!budget && !maximum) || limit <= refusal->limit || limit == UINT64_MAX)
        return;
    bool exact = plan_total(work, &planned);
    limit += planned > with_this ? in_pieces(planned - with_this) : 0;
    limit += budget ? in_pieces(others_to_come(work)) : 0;
    weir_size_format(limit, size, sizeof size);
    weir_size_format(limit - refusal->limit, more, sizeof more);
    char *option =
        budget ? text_print("--budget %" PRIu64, limit) : text_print("--maximum %s=%" PRIu64, work->words->name, limit);
    work->failed.remedy = exact ? text_print("with %s (%s) all of it fits", option, size)
                                : text_print("at least %s more is needed: %s", more, option);
    free(option);
}
