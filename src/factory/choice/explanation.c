/* What decided, in a sentence. */
#include "factory/choice/context.h"
#include <weir/manifest.h>
#include <weir/select.h>

#include <stdio.h>

static const char *explanation_device_of(const wi_candidate *c)
{
    return c->device->runtime[0] && c->device->kind != WEIR_HARDWARE_CPU ? c->device->runtime : c->device->key;
}

static void write_order(const wi_context *context, FILE *out)
{
    const wi_criteria *criteria = &context->criteria;
    char list[128];
    fprintf(out, "policy %s: ", wi_policy_name(criteria->policy));
    if (criteria->policy == WI_MEMORY)
        fputs("what is predicted to need the fewest bytes, then ", out);
    wi_sequence_write(&criteria->order, list, sizeof list);
    if (criteria->one_provider)
        fprintf(out, "exactly %s, which was asked for", list);
    else if (criteria->by_order)
        fprintf(out, "the manifest names no provider%s, so in the order %s", criteria->listed.count ? " but cpu" : "",
                list);
    else
        fprintf(out, "in the manifest's order %s", list);
    if (criteria->cpu_last && !criteria->cpu_named && criteria->cpu == WEIR_CPU_LAST)
        fputs(" (cpu as the last resort)", out);
    if (criteria->manifest.requirements.strategy)
        fprintf(out, "; strategy %s: any one device that qualifies", criteria->manifest.requirements.strategy);
}

/* Which refusals are written. */
typedef bool worth(const wi_context *context, const wi_candidate *c);

/* Where nothing was accepted: what was never meant, or can never be, is not worth a word. */
static bool matters(const wi_context *context, const wi_candidate *c)
{
    (void)context;
    return c->verdict != WEIR_VERDICT_NOT_ASKED && c->verdict != WEIR_VERDICT_NOT_LISTED &&
           c->verdict != WEIR_VERDICT_OTHER_FORMAT && c->verdict != WEIR_VERDICT_OTHER_PLATFORM;
}

static bool any(const wi_context *context, const wi_candidate *c)
{
    (void)context, (void)c;
    return true;
}

/* Where the processor is the last resort: what its engine could have had instead, by the list. */
static bool was_listed(const wi_context *context, const wi_candidate *c)
{
    return c->provider != WI_CPU && c->engine == context->candidates[0].engine &&
           wi_sequence_index(&context->criteria.order, c->provider) >= 0;
}

/* The engine takes files of this name, but has found this file to be of another format: every provider says the
 * same. */
static bool cannot_be_read(const wi_candidate *c)
{
    return c->verdict == WEIR_VERDICT_OTHER_FORMAT && c->reason == c->prediction->reason;
}

/* Of an engine: why it cannot read the file; NULL: it has not said so. */
static const char *why_not_read(const wi_context *context, const wi_engine_info *engine)
{
    for (size_t i = 0; i < context->count; i++)
        if (context->candidates[i].engine == engine && cannot_be_read(&context->candidates[i]))
            return context->candidates[i].reason;
    return NULL;
}

/* An engine that is not here says the same with every provider, and is named without. */
static bool said_before(const wi_context *context, size_t at)
{
    return at > 0 && context->candidates[at - 1].engine == context->candidates[at].engine &&
           strcmp(context->candidates[at - 1].reason, context->candidates[at].reason) == 0;
}

/* `continues`: something stands before, also of the engines that cannot read the file. */
static size_t write_refusals(const wi_context *context, worth *which, bool continues, FILE *out)
{
    size_t written = 0;
    for (size_t i = 0; i < context->count; i++) {
        const wi_candidate *c = &context->candidates[i];
        if (c->verdict == WEIR_VERDICT_ACCEPTED || !which(context, c) || said_before(context, i) ||
            (continues && why_not_read(context, c->engine)))
            continue;
        fprintf(out, "%s%s", written++ || continues ? "; " : "", c->engine->name);
        if (c->engine->table)
            fprintf(out, " with %s%s%s", wi_provider_name(c->provider), c->device ? " on " : "",
                    c->device ? explanation_device_of(c) : "");
        fprintf(out, ": %s", c->reason);
    }
    return written;
}

/* What is wrong with the file comes before what is wrong with the machine, which is not told of the same engine. */
static void write_why_nothing(const wi_context *context, FILE *out)
{
    size_t written = 0;
    for (size_t i = 0; i < context->count; i++) {
        const wi_engine_info *engine = context->candidates[i].engine;
        bool written_already = i > 0 && context->candidates[i - 1].engine == engine;
        const char *why = written_already ? NULL : why_not_read(context, engine);
        if (why)
            fprintf(out, "%s%s: %s", written++ ? "; " : "", engine->name, why);
    }
    written += write_refusals(context, matters, written > 0, out);
    if (written == 0)
        (void)write_refusals(context, any, false, out);
}

static bool device_exists(const wi_context *context)
{
    for (size_t i = 0; i < context->hardware->device_count; i++)
        if (wi_criteria_name(&context->criteria, context->devices[i]))
            return true;
    return false;
}

static void write_devices(const wi_context *context, FILE *out)
{
    fprintf(out, "there is no device %s; there are", context->criteria.options.device);
    for (size_t i = 0; i < context->hardware->device_count; i++) {
        const weir_hardware_device *d = context->devices[i];
        bool numbered = d->kind != WEIR_HARDWARE_CPU && d->ordinal >= 0;
        fprintf(out, "%s %s", i ? "," : "", numbered ? weir_name_of(WEIR_NAMES_HARDWARE, d->kind) : d->key);
        if (numbered)
            fprintf(out, ":%d (%s)", (int)d->ordinal, d->key);
    }
}

static void write_explanation(const wi_context *context, FILE *out)
{
    const wi_candidate *first = context->candidates;
    write_order(context, out);
    if (context->accepted > 0) {
        fprintf(out, ". Chosen: %s with %s on %s", first->engine->name, wi_provider_name(first->provider),
                explanation_device_of(first));
        if (first->provider == WI_CPU && context->criteria.cpu_last && !context->criteria.cpu_named) {
            fputs(", as the last resort: ", out);
            if (write_refusals(context, matters, false, out) == 0 &&
                write_refusals(context, was_listed, false, out) == 0)
                fputs("nothing else was listed", out);
        }
        return;
    }
    fputs(". Nothing is accepted: ", out);
    if (device_exists(context))
        write_why_nothing(context, out);
    else
        write_devices(context, out);
}

const char *wi_explain(wi_context *context)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out) {
        write_explanation(context, out);
        if (fclose(out) != 0 || !text)
            context->strings.failed = true;
    } else {
        context->strings.failed = true;
    }
    const char *stored = context->strings.failed ? "" : wi_string_pool_print(&context->strings, "%s", text);
    free(text);
    return stored;
}
