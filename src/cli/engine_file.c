#include "engine_file.h"

#include "text.h"

#include <weir/options.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool takes(const weir_engine *engine, const char *path)
{
    size_t length = strlen(path);
    for (const char *suffix = engine->suffixes; suffix != NULL && *suffix != '\0';) {
        size_t one = strcspn(suffix, " ");
        if (one > 0 && one < length && strncasecmp(path + length - one, suffix, one) == 0)
            return true;
        suffix += one + strspn(suffix + one, " ");
    }
    return false;
}

const weir_engine *engine_for_file(const char *path)
{
    const char *name;
    const weir_engine *engine;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++)
        if (weir_engine_open(name, &engine) == WEIR_OK && takes(engine, path))
            return engine;
    return NULL;
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
    weir_option home = WEIR_INIT(weir_option);
    if (word[0] == '\0' || strchr(word, '/') != NULL || access(word, F_OK) == 0 ||
        weir_option_get("home", &home) != WEIR_OK)
        return text_copy(word);
    char *stored = text_print("%s/models/%s", home.value, word);
    if (access(stored, F_OK) == 0)
        return stored;
    free(stored);
    return text_copy(word);
}
