/* The order of what was accepted (first choice, then each fallback), and of the record. It depends on names and
 * numbers alone, never on where a thing was found. */
#include "factory/choice/context.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdio.h>

static int rank_compare(uint64_t a, uint64_t b)
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

static int rank_by_name(const wi_candidate *a, const wi_candidate *b)
{
    int order = strcmp(a->engine->name, b->engine->name);
    if (order == 0)
        order = strcmp(wi_provider_name(a->provider), wi_provider_name(b->provider));
    return order ? order : by_device(a, b);
}

/* An unknown number of bytes ranks below every known number. */
static uint64_t bytes_to_be_had(const wi_candidate *c)
{
    return c->obtainable == WEIR_BYTES_UNKNOWN ? 0 : c->obtainable;
}

static bool is_last_resort(const wi_context *context, const wi_candidate *c)
{
    return c->provider == WI_CPU && context->criteria.cpu_last;
}

static uint64_t cost(const wi_context *context, const wi_candidate *c)
{
    if (context->criteria.policy != WI_MEMORY)
        return 0;
    return c->prediction->known ? c->prediction->bytes : UINT64_MAX;
}

/* With a strategy, the manifest's ordinals are no limits, and come first. */
static bool is_preferred(const wi_context *context, const wi_candidate *c)
{
    const weir_requirements *needs = &context->criteria.manifest.requirements;
    return needs->strategy && needs->device_count > 0 && wi_criteria_list(&context->criteria, c->device);
}

static int by_rank(const wi_context *context, const wi_candidate *a, const wi_candidate *b)
{
    const wi_sequence *order = &context->criteria.order;
    int differs = rank_compare(is_last_resort(context, a), is_last_resort(context, b));
    if (differs == 0)
        differs = rank_compare(cost(context, a), cost(context, b));
    if (differs == 0)
        differs = wi_sequence_index(order, a->provider) - wi_sequence_index(order, b->provider);
    if (differs == 0)
        differs = strcmp(a->engine->name, b->engine->name);
    if (differs == 0)
        differs = rank_compare(is_preferred(context, b), is_preferred(context, a));
    if (differs == 0)
        differs = rank_compare(bytes_to_be_had(b), bytes_to_be_had(a));
    return differs ? differs : by_device(a, b);
}

static int rank_in_order(const void *x, const void *y, void *user)
{
    const wi_candidate *a = x, *b = y;
    bool left = a->verdict == WEIR_VERDICT_ACCEPTED, right = b->verdict == WEIR_VERDICT_ACCEPTED;
    if (left != right)
        return left ? -1 : 1;
    return left ? by_rank(user, a, b) : rank_by_name(a, b);
}

/* Reasons ---------------------------------------------------------------------------------------------------------- */

static const char *place_in_order(const wi_context *context, const wi_candidate *c, char *text, size_t capacity)
{
    const wi_criteria *criteria = &context->criteria;
    if (is_last_resort(context, c))
        snprintf(text, capacity, criteria->cpu_named ? "the processor comes last" : "the processor is the last resort");
    else if (criteria->one_provider)
        snprintf(text, capacity, "%s was asked for", wi_provider_name(c->provider));
    else
        snprintf(text, capacity, "%s is number %d of %s", wi_provider_name(c->provider),
                 wi_sequence_index(&criteria->order, c->provider) + 1,
                 criteria->by_order ? "the order" : "the manifest's providers");
    return text;
}

static bool all_exact(const weir_prediction *said)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (!said->exact[i])
            return false;
    return true;
}

static void say_rank(wi_context *context, wi_candidate *c)
{
    char place[96], wanted[24], there[24];
    const wi_prediction *prediction = c->prediction;
    place_in_order(context, c, place, sizeof place);
    weir_size_format(wi_candidate_bytes(context, c), wanted, sizeof wanted);
    if (c->obtainable == WEIR_BYTES_UNKNOWN)
        snprintf(there, sizeof there, "nobody knows how much");
    else
        weir_size_format(c->obtainable, there, sizeof there);
    if (prediction->known)
        c->reason = wi_string_pool_print(&context->strings, "%s; %s%s predicted, %s can be had", place,
                                         all_exact(&prediction->said) ? "" : "at least ", wanted, there);
    else
        c->reason =
            wi_string_pool_print(&context->strings, "%s; %s can be had, the file has %s and no prediction is made: %s",
                                 place, there, wanted, prediction->reason);
}

void wi_rank(wi_context *context)
{
    if (context->count > 0)
        qsort_r(context->candidates, context->count, sizeof context->candidates[0], rank_in_order, context);
    context->accepted = 0;
    while (context->accepted < context->count &&
           context->candidates[context->accepted].verdict == WEIR_VERDICT_ACCEPTED)
        say_rank(context, &context->candidates[context->accepted++]);
}
