/* The order of what was accepted, and of the record. It depends on names and numbers alone, never on where a thing was found. */
#include "choice/context.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdio.h>

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_device(const wi_candidate *a, const wi_candidate *b)
{
    static const weir_hardware_device none = {.ordinal = -1};
    const weir_hardware_device *x = a->device ? a->device : &none, *y = b->device ? b->device : &none;
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    return strcmp(x->key, y->key);
}

static int by_name(const wi_candidate *a, const wi_candidate *b)
{
    int order = strcmp(a->engine->name, b->engine->name);
    if (order == 0)
        order = strcmp(wi_provider_name(a->provider), wi_provider_name(b->provider));
    return order ? order : by_device(a, b);
}

/* One that nobody knows is less than any. */
static uint64_t bytes_to_be_had(const wi_candidate *c)
{
    return c->obtainable == WEIR_BYTES_UNKNOWN ? 0 : c->obtainable;
}

static bool is_last_resort(const wi_world *world, const wi_candidate *c)
{
    return c->provider == WI_CPU && world->wish.cpu_last;
}

static uint64_t cost(const wi_world *world, const wi_candidate *c)
{
    if (world->wish.policy != WI_MEMORY)
        return 0;
    return c->prediction->told ? c->prediction->bytes : UINT64_MAX;
}

/* With a strategy, the manifest's ordinals are no limits, and come first. */
static bool is_preferred(const wi_world *world, const wi_candidate *c)
{
    const weir_requirements *needs = &world->wish.manifest.requirements;
    return needs->strategy && needs->device_count > 0 && wi_wish_lists(&world->wish, c->device);
}

static int by_rank(const wi_world *world, const wi_candidate *a, const wi_candidate *b)
{
    const wi_sequence *order = &world->wish.taken;
    int differs = compare(is_last_resort(world, a), is_last_resort(world, b));
    if (differs == 0)
        differs = compare(cost(world, a), cost(world, b));
    if (differs == 0)
        differs = wi_sequence_place(order, a->provider) - wi_sequence_place(order, b->provider);
    if (differs == 0)
        differs = strcmp(a->engine->name, b->engine->name);
    if (differs == 0)
        differs = compare(is_preferred(world, b), is_preferred(world, a));
    if (differs == 0)
        differs = compare(bytes_to_be_had(b), bytes_to_be_had(a));
    return differs ? differs : by_device(a, b);
}

static int in_order(const void *x, const void *y, void *user)
{
    const wi_candidate *a = x, *b = y;
    bool left = a->verdict == WEIR_VERDICT_ACCEPTED, right = b->verdict == WEIR_VERDICT_ACCEPTED;
    if (left != right)
        return left ? -1 : 1;
    return left ? by_rank(user, a, b) : by_name(a, b);
}

/* Reasons ---------------------------------------------------------------------------------------------------------- */

static const char *place_in_order(const wi_world *world, const wi_candidate *c, char *text, size_t capacity)
{
    const wi_fit_request *wish = &world->wish;
    if (is_last_resort(world, c))
        snprintf(text, capacity, wish->cpu_named ? "the processor comes last" : "the processor is the last resort");
    else if (wish->one_provider)
        snprintf(text, capacity, "%s was asked for", wi_provider_name(c->provider));
    else
        snprintf(text, capacity, "%s is number %d of %s", wi_provider_name(c->provider),
                 wi_sequence_place(&wish->taken, c->provider) + 1,
                 wish->by_order ? "the order" : "the manifest's providers");
    return text;
}

static bool all_exact(const weir_engine_plan *plan)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (!plan->exact[i])
            return false;
    return true;
}

static void say_rank(wi_world *world, wi_candidate *c)
{
    char place[96], wanted[24], there[24];
    const wi_prediction *told = c->prediction;
    place_in_order(world, c, place, sizeof place);
    weir_size_format(wi_candidate_bytes(world, c), wanted, sizeof wanted);
    if (c->obtainable == WEIR_BYTES_UNKNOWN)
        snprintf(there, sizeof there, "nobody knows how much");
    else
        weir_size_format(c->obtainable, there, sizeof there);
    if (told->told)
        c->reason = wi_string_pool_print(&world->texts, "%s; %s%s predicted, %s can be had", place,
                                         all_exact(&told->plan) ? "" : "at least ", wanted, there);
    else
        c->reason =
            wi_string_pool_print(&world->texts, "%s; %s can be had, the file has %s and no prediction is made: %s",
                                 place, there, wanted, told->reason);
}

void wi_rank(wi_world *world)
{
    if (world->count > 0)
        qsort_r(world->candidates, world->count, sizeof world->candidates[0], in_order, world);
    world->accepted = 0;
    while (world->accepted < world->count && world->candidates[world->accepted].verdict == WEIR_VERDICT_ACCEPTED)
        say_rank(world, &world->candidates[world->accepted++]);
}
