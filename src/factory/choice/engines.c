/* What engines tell of themselves. */
#include "factory/choice/context.h"
#include <weir/engine.h>
#include "base/paths.h"
#include "factory/registry.h"

#include <stdio.h>
#include <strings.h>

static const char *suffixes_of(const wi_engine_info *engine)
{
    const wi_own_engine *own = engine->table ? NULL : wi_own_engine_of(engine->name);
    return engine->table ? engine->table->suffixes : own ? own->suffixes : "";
}

static const wi_engine_info *choice_engines_find_named(const wi_engines *engines, const char *name)
{
    for (size_t i = 0; i < engines->count; i++)
        if (strcasecmp(engines->all[i].name, name) == 0)
            return &engines->all[i];
    return NULL;
}

static weir_status choice_engines_add(wi_engines *engines, const char *name)
{
    if (choice_engines_find_named(engines, name))
        return WEIR_OK;
    wi_engine_info *more = realloc(engines->all, (engines->count + 1) * sizeof *more);
    if (!more)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the list of engines");
    engines->all = more;
    wi_engine_info *engine = &more[engines->count];
    memset(engine, 0, sizeof *engine);
    engine->name = strdup(name);
    if (!engine->name)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the list of engines");
    engines->count++;
    weir_status status = weir_engine_get(name, &engine->table);
    if (status != WEIR_OK) { /* the detail says why, and the way to get it */
        engine->table = NULL;
        snprintf(engine->missing, sizeof engine->missing, "%s", weir_detail());
    }
    return status == WEIR_ERR_SYSTEM ? status : WEIR_OK;
}

/* Marks the engines with suffixes that `taken` finds in `path` (a path, or a suffix), and returns their number. */
static size_t match(wi_engines *engines, bool taken(const char *words, const char *path), const char *path)
{
    size_t found = 0;
    for (size_t i = 0; i < engines->count; i++) {
        engines->all[i].takes_file = taken(suffixes_of(&engines->all[i]), path);
        found += engines->all[i].takes_file;
    }
    return found;
}

static void match_file(wi_engines *engines, const char *path)
{
    if (match(engines, wi_path_taken, path) == 0)
        (void)match(engines, wi_suffix_of, wi_suffix_by_content(path));
}

weir_status wi_engines_find(const char *path, wi_engines *out)
{
    wi_saved_detail saved; /* that a plug-in is not here is no failure of the caller's */
    *out = (wi_engines){.count = 0};
    weir_status status = WEIR_OK;
    wi_detail_save(&saved);
    const char *name;
    for (size_t i = 0; status == WEIR_OK && (name = weir_engine_name_at(i)); i++)
        status = choice_engines_add(out, name);
    for (size_t i = 0; status == WEIR_OK && i < WI_OWN_ENGINES; i++)
        status = choice_engines_add(out, wi_own_engines[i].name);
    if (status != WEIR_OK)
        return status;
    wi_detail_restore(&saved);
    match_file(out, path);
    return WEIR_OK;
}

void wi_engines_free(wi_engines *engines)
{
    for (size_t i = 0; i < engines->count; i++)
        free((char *)engines->all[i].name);
    free(engines->all);
    *engines = (wi_engines){.count = 0};
}

/* The first name behind `last`; NULL past the last one. */
static const char *next_name(const wi_engines *engines, const char *last)
{
    const char *next = NULL;
    for (size_t i = 0; i < engines->count; i++) {
        const char *name = engines->all[i].name;
        if (strcmp(name, last) > 0 && (!next || strcmp(name, next) < 0))
            next = name;
    }
    return next;
}

weir_status wi_engines_check(const wi_engines *engines, const char *what, const char *name)
{
    char list[512] = "";
    if (choice_engines_find_named(engines, name))
        return WEIR_OK;
    for (const char *one = ""; (one = next_name(engines, one));) {
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", length ? ", " : "", one);
    }
    return weir_fail(WEIR_ERR_INVALID, "%s \"%.60s\" is no engine; there are %s", what, name, list);
}

/* Providers -------------------------------------------------------------------------------------------------------- */

/* Whether the table reaches as far as `provider`: one of version 1 does not. */
static bool reports_providers(const weir_engine *table)
{
    return table->struct_size >= offsetof(weir_engine, provider) + sizeof table->provider && table->provider;
}

/* Without a word on providers an engine runs on the processor, if its library is here. */
static void ask_probe(wi_engine_info *engine)
{
    weir_engine_probe probe = {.struct_size = sizeof probe};
    weir_engine_provider *cpu = &engine->providers[WI_CPU];
    bool answered = engine->table->probe(&probe) == WEIR_OK;
    snprintf(cpu->name, sizeof cpu->name, "cpu");
    cpu->state = answered && probe.available ? WEIR_PROVIDER_HERE : WEIR_PROVIDER_NO_LIBRARY;
    snprintf(cpu->library, sizeof cpu->library, "%s", probe.library);
    snprintf(cpu->version, sizeof cpu->version, "%s", probe.version);
    snprintf(cpu->missing, sizeof cpu->missing, "%s", answered ? probe.missing : weir_detail());
}

static void ask_providers(wi_engine_info *engine)
{
    enum { MOST = 64 };
    for (size_t i = 0; i < MOST; i++) {
        weir_engine_provider reported = {.struct_size = sizeof reported};
        wi_provider provider;
        if (engine->table->provider(i, &reported) != WEIR_OK)
            return;
        if (wi_provider_read("", reported.name, &provider) == WEIR_OK && !engine->providers[provider].name[0])
            engine->providers[provider] = reported;
    }
}

void wi_engine_ask(wi_engine_info *engine)
{
    if (engine->asked || !engine->table)
        return;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    engine->asked = true;
    if (reports_providers(engine->table))
        ask_providers(engine);
    else
        ask_probe(engine);
    wi_detail_restore(&saved);
}
