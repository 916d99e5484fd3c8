#include "engine_file.h"
#include "text.h"

#include "base/paths.h"

#include <weir/engine.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const weir_engine *engine_for_file(const char *path)
{
    const char *name;
    const weir_engine *engine;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++)
        if (weir_engine_get(name, &engine) == WEIR_OK && wi_path_taken(engine->suffixes, path))
            return engine;
    return NULL;
}

/* An engine without the function `provider` has only the processor, in the state that `probe` tells. */
static weir_status provider_by_probe(const weir_engine *engine, size_t index, weir_engine_provider *out)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    if (index > 0)
        return WEIR_ERR_NOT_FOUND;
    weir_status status = engine->probe(&probe);
    snprintf(out->name, sizeof out->name, "cpu");
    snprintf(out->library, sizeof out->library, "%s", probe.library);
    snprintf(out->version, sizeof out->version, "%s", probe.version);
    snprintf(out->missing, sizeof out->missing, "%s", status == WEIR_OK ? probe.missing : weir_detail());
    out->state = status == WEIR_OK && probe.available ? WEIR_PROVIDER_HERE : WEIR_PROVIDER_NO_LIBRARY;
    return WEIR_OK;
}

weir_status engine_provider_at(const weir_engine *engine, size_t index, weir_engine_provider *out)
{
    *out = WEIR_INIT(weir_engine_provider);
    bool tells =
        engine->struct_size >= offsetof(weir_engine, provider) + sizeof engine->provider && engine->provider != NULL;
    return tells ? engine->provider(index, out) : provider_by_probe(engine, index, out);
}

void engine_open_library(const char *path)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    const weir_engine *engine = engine_for_file(path);
    if (engine != NULL)
        (void)engine->probe(&probe);
}

char *engine_file_named(const char *word)
{
    char stored[PATH_MAX];
    return text_copy(wi_path_meant(word, stored));
}
