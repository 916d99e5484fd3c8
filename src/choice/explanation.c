/* What decided, in a sentence. */
#include "choice/context.h"
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdio.h>

static const char *device_of(const wi_candidate *c)
{
    return c->device->runtime[0] && c->device->kind != WEIR_HARDWARE_CPU ? c->device->runtime : c->device->key;
}

static void tell_order(const wi_world *world, FILE *out)
{
    const wi_fit_request *wish = &world->wish;
    char list[128];
    fprintf(out, "policy %s: ", wi_policy_name(wish->policy));
    if (wish->policy == WI_MEMORY)
        fputs("what is predicted to need the fewest bytes, then ", out);
    wi_sequence_write(&wish->taken, list, sizeof list);
    if (wish->one_provider)
        fprintf(out, "exactly %s, which was asked for", list);
    else if (wish->by_order)
        fprintf(out, "the manifest names no provider%s, so in the order %s", wish->listed.count ? " but cpu" : "",
                list);
    else
        fprintf(out, "in the manifest's order %s", list);
    if (wish->cpu_last && !wish->cpu_named && wish->cpu == WEIR_CPU_LAST)
        fputs(" (cpu as the last resort)", out);
    if (wish->manifest.requirements.strategy)
        fprintf(out, "; strategy %s: any one device that qualifies", wish->manifest.requirements.strategy);
}

/* Which refusals are told. */
typedef bool worth(const wi_world *world, const wi_candidate *c);

/* Where nothing was accepted: what was never meant, or can never be, is not worth a word. */
static bool matters(const wi_world *world, const wi_candidate *c)
{
    (void)world;
    return c->verdict != WEIR_VERDICT_NOT_ASKED && c->verdict != WEIR_VERDICT_NOT_LISTED &&
           c->verdict != WEIR_VERDICT_OTHER_FORMAT && c->verdict != WEIR_VERDICT_OTHER_PLATFORM;
}

static bool any(const wi_world *world, const wi_candidate *c)
{
    (void)world, (void)c;
    return true;
}

/* Where the processor is the last resort: what its engine could have had instead, by the list. */
static bool was_listed(const wi_world *world, const wi_candidate *c)
{
    return c->provider != WI_CPU && c->engine == world->candidates[0].engine &&
           wi_sequence_place(&world->wish.taken, c->provider) >= 0;
}

/* The engine takes such files, and has found this one to be none: it is so with every provider. */
static bool cannot_be_read(const wi_candidate *c)
{
    return c->verdict == WEIR_VERDICT_OTHER_FORMAT && c->reason == c->prediction->reason;
}

/* Of an engine: why it cannot read the file; NULL: it has not said so. */
static const char *why_not_read(const wi_world *world, const wi_engine_facts *engine)
{
    for (size_t i = 0; i < world->count; i++)
        if (world->candidates[i].engine == engine && cannot_be_read(&world->candidates[i]))
            return world->candidates[i].reason;
    return NULL;
}

/* An engine that is not here says the same with every provider, and is named without. */
static bool said_before(const wi_world *world, size_t at)
{
    return at > 0 && world->candidates[at - 1].engine == world->candidates[at].engine &&
           strcmp(world->candidates[at - 1].reason, world->candidates[at].reason) == 0;
}

/* `goes_on`: something has been told before, also of the engines that cannot read the file. */
static size_t tell_refusals(const wi_world *world, worth *which, bool goes_on, FILE *out)
{
    size_t told = 0;
    for (size_t i = 0; i < world->count; i++) {
        const wi_candidate *c = &world->candidates[i];
        if (c->verdict == WEIR_VERDICT_ACCEPTED || !which(world, c) || said_before(world, i) ||
            (goes_on && why_not_read(world, c->engine)))
            continue;
        fprintf(out, "%s%s", told++ || goes_on ? "; " : "", c->engine->name);
        if (c->engine->table)
            fprintf(out, " with %s%s%s", wi_provider_name(c->provider), c->device ? " on " : "",
                    c->device ? device_of(c) : "");
        fprintf(out, ": %s", c->reason);
    }
    return told;
}

/* What is wrong with the file comes before what is wrong with the machine, which is not told of the same engine. */
static void tell_why_nothing(const wi_world *world, FILE *out)
{
    size_t told = 0;
    for (size_t i = 0; i < world->count; i++) {
        const wi_engine_facts *engine = world->candidates[i].engine;
        bool told_already = i > 0 && world->candidates[i - 1].engine == engine;
        const char *why = told_already ? NULL : why_not_read(world, engine);
        if (why)
            fprintf(out, "%s%s: %s", told++ ? "; " : "", engine->name, why);
    }
    told += tell_refusals(world, matters, told > 0, out);
    if (told == 0)
        (void)tell_refusals(world, any, false, out);
}

static bool device_exists(const wi_world *world)
{
    for (size_t i = 0; i < world->hardware->device_count; i++)
        if (wi_wish_names(&world->wish, world->devices[i]))
            return true;
    return false;
}

static void tell_devices(const wi_world *world, FILE *out)
{
    fprintf(out, "there is no device %s; there are", world->wish.options.device);
    for (size_t i = 0; i < world->hardware->device_count; i++) {
        const weir_hardware_device *d = world->devices[i];
        bool numbered = d->kind != WEIR_HARDWARE_CPU && d->ordinal >= 0;
        fprintf(out, "%s %s", i ? "," : "", numbered ? weir_hardware_kind_name(d->kind) : d->key);
        if (numbered)
            fprintf(out, ":%d (%s)", (int)d->ordinal, d->key);
    }
}

static void tell(const wi_world *world, FILE *out)
{
    const wi_candidate *first = world->candidates;
    tell_order(world, out);
    if (world->accepted > 0) {
        fprintf(out, ". Chosen: %s with %s on %s", first->engine->name, wi_provider_name(first->provider),
                device_of(first));
        if (first->provider == WI_CPU && world->wish.cpu_last && !world->wish.cpu_named) {
            fputs(", as the last resort: ", out);
            if (tell_refusals(world, matters, false, out) == 0 && tell_refusals(world, was_listed, false, out) == 0)
                fputs("nothing else was listed", out);
        }
        return;
    }
    fputs(". Nothing is accepted: ", out);
    if (device_exists(world))
        tell_why_nothing(world, out);
    else
        tell_devices(world, out);
}

const char *wi_rule(wi_world *world)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out) {
        tell(world, out);
        if (fclose(out) != 0 || !text)
            world->texts.failed = true;
    } else {
        world->texts.failed = true;
    }
    const char *kept = world->texts.failed ? "" : wi_string_pool_print(&world->texts, "%s", text);
    free(text);
    return kept;
}
