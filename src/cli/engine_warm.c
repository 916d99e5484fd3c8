#include "engine_warm.h"

#include <weir/engine.h>

#include <string.h>
#include <strings.h>

static bool takes(const weir_engine *engine, const char *path)
{
    size_t length = strlen(path);
    for (const char *suffix = engine->suffixes; suffix != NULL && *suffix != '\0';) {
        size_t one = strcspn(suffix, " ");
        if (one > 0 && one <= length && strncasecmp(path + length - one, suffix, one) == 0)
            return true;
        suffix += one + strspn(suffix + one, " ");
    }
    return false;
}

void engine_warm(const char *path)
{
    const char *name;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++) {
        const weir_engine *engine;
        weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
        if (weir_engine_open(name, &engine) != WEIR_OK || !takes(engine, path))
            continue;
        (void)!engine->probe(&probe);
        return;
    }
}
