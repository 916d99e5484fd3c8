/* See settings.h.
 *
 * Defaults. prepack=on: without it the MLAS kernels repack their weights in every run, a third slower on short inputs.
 * optimization=extended on host: the levels above only rewrite the weights of convolutions into another layout, and do that
 * on the heap, outside the client's account; "all" is there for models whose speed lives from convolutions. On cuda they
 * cost nothing. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN                                                                                                          \
    "prepack=on|off, weights=ours|engine, memory_pattern=on|off, optimization=disable|basic|extended|layout|all, "     \
    "threads=0..256; on cuda also provider=cuda|tensorrt, cuda_graph=on|off, cuda.OPTION=VALUE and "                   \
    "tensorrt.OPTION=VALUE for the providers' own options"

typedef struct choice {
    const char *word;
    int value;
} choice;

static const choice switches[] = {{"on", 1}, {"off", 0}, {NULL, 0}};
static const choice owners[] = {{"ours", 1}, {"engine", 0}, {NULL, 0}};
static const choice levels[] = {{"disable", 0}, {"basic", 1}, {"extended", 2}, {"layout", 3}, {"all", 99}, {NULL, 0}};
static const choice providers[] = {{"cuda", ONNX_CUDA}, {"tensorrt", ONNX_TENSORRT}, {NULL, 0}};
static const choice places[] = {{"host", 0}, {"device", 1}, {NULL, 0}};

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

/* ---- the providers' own options -------------------------------------------------------------------------------------- */

const char *onnx_setting_option(const weir_setting *setting, const char *provider)
{
    size_t length = strlen(provider);
    if (!setting->key || strncmp(setting->key, provider, length) != 0 || setting->key[length] != '.')
        return NULL;
    return setting->key + length + 1;
}

/* Options that would take the order of streams, or memory, out of weir's hands. */
static weir_status check_option(const weir_setting *setting, const char *option)
{
    static const char *const weirs[] = {"device_id",
                                        "user_compute_stream",
                                        "has_user_compute_stream",
                                        "do_copy_in_default_stream",
                                        "use_ep_level_unified_stream",
                                        "enable_cuda_graph",
                                        "trt_cuda_graph_enable",
                                        "gpu_external_alloc",
                                        "gpu_external_free",
                                        "gpu_external_empty_cache"};
    static const char *const arenas[] = {"gpu_mem_limit", "arena_extend_strategy", "default_memory_arena_cfg"};
    for (size_t i = 0; i < sizeof weirs / sizeof *weirs; i++)
        if (strcmp(weirs[i], option) == 0)
            return weir_fail(WEIR_INVALID, "setting %s: weir sets that option itself; known: " KNOWN, setting->key);
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++)
        if (strcmp(arenas[i], option) == 0)
            return weir_fail(WEIR_INVALID,
                             "setting %s: it is for ONNX Runtime's own arena, which weir's memory replaces; limit the "
                             "client instead (its maximum)",
                             setting->key);
    return WEIR_OK;
}

/* ---- a model's ------------------------------------------------------------------------------------------------------ */

enum { PREPACK, OURS, PATTERN, LEVEL, THREADS, PROVIDER, GRAPH, KEYS };

static weir_status read_one(const weir_setting *setting, bool cuda, int *values)
{
    static const char *const keys[] = {"prepack", "weights",  "memory_pattern", "optimization",
                                       "threads", "provider", "cuda_graph"};
    static const choice *const choices[] = {switches, owners, switches, levels, NULL, providers, switches};
    if (!setting->key || !setting->value)
        return weir_fail(WEIR_INVALID, "a setting without key or value; known: " KNOWN);
    const char *option = onnx_setting_option(setting, "cuda");
    if (!option)
        option = onnx_setting_option(setting, "tensorrt");
    bool of_cuda = option || strcmp(setting->key, keys[PROVIDER]) == 0 || strcmp(setting->key, keys[GRAPH]) == 0;
    if (of_cuda && !cuda)
        return weir_fail(WEIR_INVALID, "setting %s: the model is on host; known: " KNOWN, setting->key);
    if (option)
        return check_option(setting, option);
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

/* Options of a provider that is not asked for would do nothing. */
static weir_status check_provider(const weir_setting *settings, size_t count, int provider)
{
    for (size_t i = 0; provider != ONNX_TENSORRT && i < count; i++)
        if (onnx_setting_option(&settings[i], "tensorrt"))
            return weir_fail(WEIR_INVALID, "setting %s: TensorRT does not run the model; set provider=tensorrt, too",
                             settings[i].key);
    return WEIR_OK;
}

weir_status onnx_settings_read(const weir_setting *settings, size_t count, bool cuda, onnx_settings *out)
{
    int values[KEYS] = {
        [PREPACK] = 1, [OURS] = 1, [PATTERN] = -1, [LEVEL] = cuda ? 99 : 2, [PROVIDER] = cuda ? ONNX_CUDA : ONNX_CPU};
    for (size_t i = 0; i < count; i++) {
        weir_status status = read_one(&settings[i], cuda, values);
        if (status != WEIR_OK)
            return status;
    }
    weir_status status = check_provider(settings, count, values[PROVIDER]);
    if (status != WEIR_OK)
        return status;
    /* Without prepacking, ONNX Runtime's memory pattern reserves a block as large as the weights left in the file, and
     * never writes to it (seen in 1.23 to 1.31). */
    out->memory_pattern = values[PATTERN] < 0 ? values[PREPACK] : values[PATTERN];
    out->pattern_open = values[PATTERN] < 0;
    out->prepack = values[PREPACK];
    out->ours = values[OURS];
    out->optimization = values[LEVEL];
    out->threads = values[THREADS];
    out->provider = (onnx_provider)values[PROVIDER];
    out->cuda_graph = values[GRAPH];
    return WEIR_OK;
}

/* ---- a run's -------------------------------------------------------------------------------------------------------- */

#define KNOWN_OF_RUNS "outputs=host|device"

static weir_status read_run_setting(const weir_setting *setting, int *outputs)
{
    const char *key = setting->key ? setting->key : "", *value = setting->value ? setting->value : "";
    if (strcmp(key, "outputs") == 0)
        return choose(places, value, outputs)
                   ? WEIR_OK
                   : weir_fail(WEIR_INVALID, "setting outputs: \"%s\" is no value of it; " KNOWN_OF_RUNS, value);
    /* It would fail every run: ONNX Runtime looks for an arena of its own. There is nothing to shrink, weir keeps no arena
     * for a session. */
    if (strcmp(key, "memory.enable_memory_arena_shrinkage") == 0)
        return WEIR_OK;
    if (strcmp(key, "disable_synchronize_execution_providers") == 0)
        return weir_fail(WEIR_INVALID,
                         "setting %s: outputs would be handed out while the device still writes them; "
                         "known: " KNOWN_OF_RUNS,
                         key);
    return weir_fail(WEIR_INVALID, "a run of the engine onnx has no setting \"%s\"; known: " KNOWN_OF_RUNS, key);
}

weir_status onnx_run_settings_read(const weir_setting *settings, size_t count, onnx_run_settings *out)
{
    int outputs = 0;
    for (size_t i = 0; i < count; i++) {
        weir_status status = read_run_setting(&settings[i], &outputs);
        if (status != WEIR_OK)
            return status;
    }
    out->device_outputs = outputs != 0;
    return WEIR_OK;
}
