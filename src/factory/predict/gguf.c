/* gguf.c: what a GGUF file says of a model, where the engine's plug-in is not here. The plug-in has its own word for it
 * (gguf/engine/plan.c), with all settings checked. */
#include "factory/predict/forecast.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "gguf/file/layout.h"

static const char *setting(const wi_forecast_ask *ask, const char *key, const char *otherwise)
{
    for (size_t i = 0; i < ask->setting_count; i++)
        if (strcmp(ask->settings[i].key, key) == 0 && ask->settings[i].value)
            return ask->settings[i].value;
    return otherwise;
}

static uint32_t gguf_number(const wi_forecast_ask *ask, const char *key, uint32_t otherwise)
{
    const char *text = setting(ask, key, "");
    char *end;
    long value = strtol(text, &end, 10);
    return *text && *end == '\0' && value > 0 && value <= 1 << 24 ? (uint32_t)value : otherwise;
}

static bool gguf_is_on(const char *value)
{
    return strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 || strcasecmp(value, "on") == 0 ||
           strcasecmp(value, "yes") == 0;
}

static bool embeds(const wi_forecast_ask *ask, const wg_file *file, const wg_hyper *hyper)
{
    char name[96];
    const char *said = setting(ask, "pooling", "");
    snprintf(name, sizeof name, "%s.pooling_type", hyper->architecture);
    const wg_key *key = wi_gguf_file_key(file, name);
    return *said ? strcasecmp(said, "none") != 0 : key && key->kind == WG_U32 && key->integer > 0;
}

/* As the engine's defaults are. */
static weir_status read_asked(const wi_forecast_ask *ask, const wg_file *file, const wg_hyper *hyper, wg_asked *out)
{
    const char *layers = setting(ask, "gpu_layers", "-1");
    bool none = strcmp(layers, "0") == 0;
    bool device = strncmp(ask->device, "host", 4) != 0;
    *out = (wg_asked){.embeds = embeds(ask, file, hyper), .whole_windows = gguf_is_on(setting(ask, "swa_full", ""))};
    uint32_t trained = hyper->trained > 0 ? hyper->trained : UINT32_MAX, usual = out->embeds ? 512 : 4096;
    out->context = gguf_number(ask, "context", trained < usual ? trained : usual);
    uint32_t batch = gguf_number(ask, "batch", out->embeds ? 128 : 512);
    out->batch = out->embeds || batch > out->context ? out->context : batch;
    out->sequences = out->embeds ? 16 : gguf_number(ask, "sequences", 1);
    out->shared = out->embeds;
    out->outputs = out->embeds ? 0 : out->sequences;
    out->flash = strcasecmp(setting(ask, "flash_attention", "auto"), "off") != 0;
    if (device)
        out->device_layers = none ? 0 : gguf_number(ask, "gpu_layers", UINT32_MAX);
    if (!wi_gguf_cache_type(setting(ask, "cache_k", ""), &out->type_k) ||
        !wi_gguf_cache_type(setting(ask, "cache_v", ""), &out->type_v))
        return weir_fail(WEIR_ERR_INVALID, "the settings 'cache_k' and 'cache_v' are f32, f16, bf16, q8_0, q4_0, q4_1, "
                                           "q5_0, q5_1 or iq4_nl");
    return WEIR_OK;
}

static void gguf_put(const wg_bytes *from, uint64_t to[WEIR_CLASS_MOST])
{
    to[WEIR_CLASS_WEIGHTS] = from->weights;
    to[WEIR_CLASS_KV] = from->cache;
    to[WEIR_CLASS_SCRATCH] = from->compute;
    to[WEIR_CLASS_ACTIVATIONS] = from->outputs;
}

weir_status wi_forecast_gguf(const wi_forecast_ask *ask, weir_engine_plan *out)
{
    wg_file file;
    wg_asked asked;
    wg_layout layout;
    wg_hyper *hyper = malloc(sizeof *hyper);
    if (!hyper)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory to look at it", ask->path);
    weir_status status = wi_gguf_file_open(ask->path, &file);
    if (status == WEIR_OK)
        status = wi_gguf_hyper_read(&file, hyper);
    if (status == WEIR_OK)
        status = read_asked(ask, &file, hyper, &asked);
    wi_gguf_file_close(&file);
    if (status == WEIR_OK) {
        wi_gguf_layout_make(hyper, &asked, &layout);
        bool device = layout.device_layers > 0;
        gguf_put(device ? &layout.device : &layout.host, out->bytes);
        if (device)
            gguf_put(&layout.host, out->host);
        for (int i = 0; i < WEIR_CLASS_COUNT; i++)
            out->source[i] = WEIR_PREDICTED_METADATA;
        out->context = asked.context;
        out->sequences = asked.sequences;
        out->layers = layout.layers;
        out->layers_on_device = layout.device_layers;
    }
    free(hyper);
    return status;
}
