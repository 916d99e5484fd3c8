/* See settings.h.
 *
 * Defaults. prepack=on: without it the MLAS kernels repack their weights in every run, a third slower on short inputs.
 * optimization=extended: the levels above only rewrite the weights of convolutions into another layout, and do that on
 * the heap, outside the client's account; "all" is there for models whose speed lives from convolutions. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN                                                                                                          \
    "prepack=on|off, weights=ours|engine, memory_pattern=on|off, optimization=disable|basic|extended|layout|all, "     \
    "threads=0..256"

typedef struct choice {
    const char *word;
    int value;
} choice;

static const choice switches[] = {{"on", 1}, {"off", 0}, {NULL, 0}};
static const choice owners[] = {{"ours", 1}, {"engine", 0}, {NULL, 0}};
static const choice levels[] = {{"disable", 0}, {"basic", 1}, {"extended", 2}, {"layout", 3}, {"all", 99}, {NULL, 0}};

static bool choose(const choice *choices, const char *value, int *out)
{
    for (; choices->word; choices++)
        if (strcmp(choices->word, value) == 0) {
            *out = choices->value;
            return true;
        }
    return false;
}

static bool read_threads(const char *value, int *out)
{
    char *end;
    long number = strtol(value, &end, 10);
    *out = (int)number;
    return value[0] >= '0' && value[0] <= '9' && *end == 0 && number >= 0 && number <= 256;
}

enum { PREPACK, OURS, PATTERN, LEVEL, THREADS, KEYS };

static weir_status read_one(const weir_setting *setting, int *values)
{
    static const char *const keys[] = {"prepack", "weights", "memory_pattern", "optimization", "threads"};
    static const choice *const choices[] = {switches, owners, switches, levels, NULL};
    if (!setting->key || !setting->value)
        return weir_fail(WEIR_INVALID, "a setting without key or value; known: " KNOWN);
    for (int i = 0; i < KEYS; i++) {
        if (strcmp(keys[i], setting->key) != 0)
            continue;
        bool good =
            choices[i] ? choose(choices[i], setting->value, &values[i]) : read_threads(setting->value, &values[i]);
        return good ? WEIR_OK
                    : weir_fail(WEIR_INVALID, "setting %s: \"%s\" is no value of it; known: " KNOWN, setting->key,
                                setting->value);
    }
    return weir_fail(WEIR_INVALID, "the engine onnx has no setting \"%s\"; known: " KNOWN, setting->key);
}

weir_status onnx_settings_read(const weir_setting *settings, size_t count, onnx_settings *out)
{
    int values[KEYS] = {[PREPACK] = 1, [OURS] = 1, [PATTERN] = -1, [LEVEL] = 2, [THREADS] = 0};
    for (size_t i = 0; i < count; i++) {
        weir_status status = read_one(&settings[i], values);
        if (status != WEIR_OK)
            return status;
    }
    /* Without prepacking, ONNX Runtime's memory pattern reserves a block as large as the weights left in the file, and
     * never writes to it (seen in 1.23 to 1.31). */
    out->memory_pattern = values[PATTERN] < 0 ? values[PREPACK] : values[PATTERN];
    out->prepack = values[PREPACK];
    out->ours = values[OURS];
    out->optimization = values[LEVEL];
    out->threads = values[THREADS];
    return WEIR_OK;
}
