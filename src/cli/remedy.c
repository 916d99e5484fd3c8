#include "remedy.h"

#include "engine_file.h"

#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of the whole model, as far as its engine can tell; answers whether that is all of them. */
static bool plan_total(const job *work, uint64_t *total)
{
    /* The one that has loaded the file, or would have. */
    const weir_engine *engine = work->model != NULL ? weir_model_engine(work->model) : engine_for_file(work->path);
    weir_engine_place place = {.runtime = work->runtime};
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    options.name = work->words->name;
    *total = 0;
    if (engine == NULL || engine->plan == NULL || weir_client_open(work->runtime, &options, &place.client) != WEIR_OK)
        return false;
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = work->path;
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

/* What is needed comes in pieces of physical memory: a remedy that is a few bytes short would be none. */
enum { PIECE = 65536 };
static uint64_t in_pieces(uint64_t bytes)
{
    return (bytes + PIECE - 1) / PIECE * PIECE;
}

/* What the other clients will want again: they were at their peaks before, and will be while this one is there, each with
 * a piece that its small blocks may keep from being put together with others. */
static uint64_t others_to_come(const job *work)
{
    weir_stats whole = WEIR_INIT(weir_stats);
    weir_client_stats clients[RUN_MODELS_MOST + 1];
    size_t count = 0;
    uint64_t bytes = 0;
    clients[0].struct_size = sizeof clients[0];
    if (weir_snapshot(work->runtime, &whole, clients, RUN_MODELS_MOST + 1, &count) != WEIR_OK)
        return 0;
    for (size_t i = 0; i < count && i < RUN_MODELS_MOST + 1; i++)
        if (strcmp(clients[i].name, work->words->name) != 0)
            bytes += in_pieces(clients[i].peak - clients[i].live - clients[i].pending) + PIECE;
    return bytes;
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
    limit += budget ? others_to_come(work) : 0;
    weir_size_format(limit, size, sizeof size);
    weir_size_format(limit - refusal->limit, more, sizeof more);
    char *option =
        budget ? text_print("--budget %" PRIu64, limit) : text_print("--maximum %s=%" PRIu64, work->words->name, limit);
    work->failed.remedy = exact ? text_print("with %s (%s) all of it fits", option, size)
                                : text_print("the model needs at least %s more: %s", more, option);
    free(option);
}
