/* What decided, in a sentence. */
#include "choice/world.h"

#include <stdio.h>

static const char *device_of(const wi_candidate *c)
{
    return c->device->runtime[0] && c->device->kind != WEIR_HARDWARE_CPU ? c->device->runtime : c->device->key;
}

static void tell_order(const wi_world *world, FILE *out)
{
    const wi_wish *wish = &world->wish;
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

/* Whether the refusal is worth a word where nothing was accepted: what was never meant, or can never
 * be, is not. */
static bool matters(const wi_candidate *c)
{
    return c->verdict != WEIR_NOT_ASKED && c->verdict != WEIR_NOT_LISTED && c->verdict != WEIR_OTHER_FORMAT &&
           c->verdict != WEIR_OTHER_PLATFORM;
}

/* An engine that is not here says the same with every provider, and is named without. */
static bool said_before(const wi_world *world, size_t at)
{
    return at > 0 && world->candidates[at - 1].engine == world->candidates[at].engine &&
           strcmp(world->candidates[at - 1].reason, world->candidates[at].reason) == 0;
}

static size_t tell_refusals(const wi_world *world, bool all, FILE *out)
{
    size_t told = 0;
    for (size_t i = 0; i < world->count; i++) {
        const wi_candidate *c = &world->candidates[i];
        if (c->verdict == WEIR_ACCEPTED || !(all || matters(c)) || said_before(world, i))
            continue;
        fprintf(out, "%s%s", told++ ? "; " : "", c->engine->name);
        if (c->engine->table)
            fprintf(out, " with %s%s%s", wi_provider_name(c->provider), c->device ? " on " : "",
                    c->device ? device_of(c) : "");
        fprintf(out, ": %s", c->reason);
    }
    return told;
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
    fprintf(out, ". There is no device %s; there are", world->wish.options.device);
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
            if (tell_refusals(world, false, out) == 0)
                fputs("nothing else was listed", out);
        }
        return;
    }
    fputs(". Nothing is accepted: ", out);
    if (tell_refusals(world, false, out) == 0)
        (void)tell_refusals(world, true, out);
    if (!device_exists(world))
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
    const char *kept = world->texts.failed ? "" : wi_text(&world->texts, "%s", text);
    free(text);
    return kept;
}
