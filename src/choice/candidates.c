/* Which candidates there are. */
#include "choice/context.h"
#include <weir/manifest.h>
#include <weir/select.h>

#define NOBODY SIZE_MAX

typedef struct listing {
    wi_world *world;
    size_t room;
} listing;

/* `device`: its number, or NOBODY. */
static bool add(listing *list, wi_engine_facts *engine, wi_provider provider, size_t device)
{
    wi_world *world = list->world;
    if (world->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        wi_candidate *more = realloc(world->candidates, room * sizeof *more);
        if (!more)
            return false;
        world->candidates = more;
        list->room = room;
    }
    size_t at = (size_t)(engine - world->engines.all) * WI_PROVIDERS + (size_t)provider;
    world->candidates[world->count++] =
        (wi_candidate){.engine = engine,
                       .provider = provider,
                       .device = device == NOBODY ? NULL : world->devices[device],
                       .prediction = &world->predictions[at],
                       .obtainable = device == NOBODY ? WEIR_BYTES_UNKNOWN : world->obtainable[device],
                       .reason = ""};
    return true;
}

/* Whether an ordinal is named, of the provider's kinds, that no device has. Ordinals of the processor are nobody's. */
static bool is_missing(const wi_world *world, wi_provider provider, int32_t ordinal)
{
    bool any = false;
    for (size_t i = 0; i < world->hardware->device_count; i++) {
        const weir_hardware_device *device = world->devices[i];
        if (device->kind == WEIR_HARDWARE_CPU || !wi_provider_on(provider, device->kind))
            continue;
        if (device->ordinal == ordinal)
            return false;
        any = true;
    }
    return any;
}

static bool names_a_missing_one(const wi_world *world, wi_provider provider)
{
    const wi_device_name *name = &world->wish.device;
    const weir_requirements *needs = &world->wish.manifest.requirements;
    if (name->by == WI_BY_ORDINAL || (name->by == WI_BY_KIND && wi_provider_on(provider, name->kind)))
        return name->kind != WEIR_HARDWARE_CPU || name->by == WI_BY_ORDINAL ? is_missing(world, provider, name->ordinal)
                                                                            : false;
    for (size_t i = 0; name->by == WI_ANY_DEVICE && !needs->strategy && i < needs->device_count; i++)
        if (is_missing(world, provider, needs->device_ids[i]))
            return true;
    return false;
}

static bool list_provider(listing *list, wi_engine_facts *engine, wi_provider provider)
{
    const wi_world *world = list->world;
    bool good = true, any = false;
    for (size_t i = 0; good && i < world->hardware->device_count; i++)
        if (wi_provider_on(provider, world->devices[i]->kind)) {
            good = add(list, engine, provider, i);
            any = true;
        }
    if (good && (!any || names_a_missing_one(world, provider)))
        good = add(list, engine, provider, NOBODY);
    return good;
}

weir_status wi_candidates_list(wi_world *world)
{
    listing list = {.world = world};
    for (size_t i = 0; i < world->engines.count; i++)
        for (int provider = 0; provider < WI_PROVIDERS; provider++)
            if (!list_provider(&list, &world->engines.all[i], (wi_provider)provider))
                return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a list of candidates");
    return WEIR_OK;
}

const char *wi_candidate_runtime(const wi_candidate *candidate)
{
    return candidate->device && candidate->device->runtime[0] ? candidate->device->runtime : "host";
}
