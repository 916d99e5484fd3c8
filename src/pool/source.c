/* What a pool loads: copies of the spec's members, and the bytes that the engine predicts. */
#include "pool/pool.h"
#include "base/paths.h"
#include "factory/registry.h"

#include <weir/engine.h>
#include <weir/pool.h>
#include <weir/predict.h>
#include <weir/select.h>

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

/* Settings --------------------------------------------------------------------------------------------------------- */

static bool pool_source_has_key(const weir_setting *settings, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(settings[i].key, key) == 0)
            return true;
    return false;
}

static bool pool_source_add_setting(wi_pool_settings *to, const weir_setting *setting)
{
    weir_setting *copy = &to->all[to->count++];
    copy->key = strdup(setting->key);
    copy->value = strdup(setting->value);
    return copy->key && copy->value;
}

/* Copies the settings of `first`, and from `others` the settings with keys that `first` lacks. */
static bool pool_source_copy_settings(const weir_setting *first, size_t first_count, const weir_setting *others,
                                      size_t other_count, wi_pool_settings *out)
{
    out->all = calloc(first_count + other_count + 1, sizeof *out->all);
    bool good = out->all != NULL;
    for (size_t i = 0; good && i < first_count; i++)
        good = pool_source_add_setting(out, &first[i]);
    for (size_t i = 0; good && i < other_count; i++)
        if (!pool_source_has_key(first, first_count, others[i].key))
            good = pool_source_add_setting(out, &others[i]);
    return good;
}

static bool copy_all_settings(const weir_pool_spec *spec, wi_pool_source *source)
{
    bool good = pool_source_copy_settings(spec->settings, spec->setting_count, NULL, 0, &source->settings[0]);
    for (size_t i = 0; good && i < spec->variant_count; i++) {
        const weir_pool_variant *variant = &spec->variants[i];
        good = pool_source_copy_settings(variant->settings, variant->setting_count, spec->settings, spec->setting_count,
                                         &source->settings[i + 1]);
    }
    source->ways = spec->variant_count + 1;
    return good;
}

weir_status wi_pool_source_layers(wi_pool_source *source, int64_t layers)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)layers);
    const weir_setting setting = {"gpu_layers", text};
    wi_assert(source->ways < WI_POOL_WAYS);
    wi_pool_settings *whole = &source->settings[0], *to = &source->settings[source->ways++];
    return pool_source_copy_settings(&setting, 1, whole->all, whole->count, to)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
}

void wi_pool_source_free(wi_pool_source *source)
{
    if (!source)
        return;
    for (size_t i = 0; i < WI_POOL_WAYS; i++) {
        for (size_t k = 0; k < source->settings[i].count; k++) {
            free((char *)source->settings[i].all[k].key);
            free((char *)source->settings[i].all[k].value);
        }
        free(source->settings[i].all);
    }
    weir_hardware_destroy(source->hardware);
    free(source->keys);
    free(source->path);
    free(source->engine);
    free(source);
}

/* Manifests -------------------------------------------------------------------------------------------------------- */

/* The device's key on this machine. A manifest's model is loaded on the process's runtime of it. */
static weir_status pool_source_find_device(wi_pool_source *source, const wi_pool_device *device, char *key)
{
    weir_runtime *shared = NULL;
    weir_status status = weir_runtime_get(device->name, NULL, &shared);
    if (status == WEIR_OK && shared != device->runtime)
        status = weir_fail(WEIR_ERR_UNSUPPORTED,
                           "a manifest's model is loaded on the process's runtime of %s, and the pool has another one: "
                           "give its file as `path`",
                           device->name);
    if (status == WEIR_OK && !source->hardware)
        status = weir_hardware_create(NULL, &source->hardware);
    for (size_t i = 0; status == WEIR_OK && i < source->hardware->device_count; i++)
        if (strcmp(source->hardware->devices[i].runtime, device->name) == 0)
            snprintf(key, sizeof *source->keys, "%s", source->hardware->devices[i].key);
    if (status == WEIR_OK && !key[0])
        status = weir_fail(WEIR_ERR_NOT_FOUND, "%s is no device that weir finds on this machine", device->name);
    return status;
}

static weir_status pool_source_fill(const weir_pool *pool, const weir_pool_spec *spec, const uint32_t *devices,
                                    size_t count, wi_pool_source *source)
{
    const weir_manifest *manifest = spec->manifest;
    source->references = 1;
    source->chosen = manifest != NULL;
    if (manifest)
        source->manifest = *manifest;
    source->guaranteed = spec->guaranteed ? spec->guaranteed : manifest ? manifest->requirements.guaranteed : 0;
    source->maximum = spec->maximum ? spec->maximum : manifest ? manifest->requirements.maximum : 0;
    source->first_run = spec->first_run;
    source->prepare = spec->prepare && !spec->stays;
    const char *path = manifest ? manifest->model_file : spec->path;
    source->path = strdup(path);
    source->engine = spec->engine ? strdup(spec->engine) : NULL;
    source->keys = calloc(pool->device_count, sizeof *source->keys);
    if (!source->path || !source->keys || (spec->engine && !source->engine) || !copy_all_settings(spec, source))
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
    weir_status status = WEIR_OK;
    for (size_t i = 0; manifest && i < count && status == WEIR_OK; i++)
        status = pool_source_find_device(source, &pool->devices[devices[i]], source->keys[devices[i]]);
    return status;
}

weir_status wi_pool_source_make(const weir_pool *pool, const weir_pool_spec *spec, const uint32_t *devices,
                                size_t count, wi_pool_source **out)
{
    wi_pool_source *source = calloc(1, sizeof *source);
    if (!source)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
    weir_status status = pool_source_fill(pool, spec, devices, count, source);
    if (status != WEIR_OK)
        wi_pool_source_free(source);
    else
        *out = source;
    return status;
}

/* Predictions ------------------------------------------------------------------------------------------------------ */

/* Of a file, or of what lies in a folder. */
static uint64_t pool_source_size_of(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return 0;
    if (!S_ISDIR(s.st_mode))
        return (uint64_t)s.st_size;
    uint64_t bytes = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (fstatat(dirfd(folder), entry->d_name, &s, 0) == 0 && S_ISREG(s.st_mode))
            bytes += (uint64_t)s.st_size;
    if (folder)
        closedir(folder);
    return bytes;
}

static void sum(wi_pool_prediction *out)
{
    uint64_t bytes = 0;
    for (int i = 0; i < WEIR_CLASS_MOST; i++)
        if (__builtin_add_overflow(bytes, out->bytes[i], &bytes))
            bytes = UINT64_MAX - 1;
    out->peak = out->resident = bytes;
}

static weir_status predict_path(const wi_pool_source *source, const wi_pool_settings *settings,
                                const wi_pool_device *device, const weir_engine **engine, wi_pool_prediction *out)
{
    weir_predict_options options = {.struct_size = sizeof options,
                                    .engine = source->engine,
                                    .device = device->name,
                                    .settings = settings->all,
                                    .setting_count = settings->count};
    weir_prediction prediction = WEIR_INIT(weir_prediction);
    weir_status status = source->engine ? weir_engine_get(source->engine, engine) : wi_engine_for(source->path, engine);
    if (status == WEIR_OK)
        status = weir_predict(source->path, &options, &prediction);
    if (status == WEIR_OK)
        memcpy(out->bytes, prediction.least, sizeof out->bytes);
    /* What is wrong with the file or with settings is known now; that an engine cannot tell is no reason. */
    return !*engine || status == WEIR_ERR_INVALID || status == WEIR_ERR_CORRUPT || status == WEIR_ERR_UNSUPPORTED
               ? status
               : WEIR_OK;
}

static weir_status predict_manifest(const wi_pool_source *source, const wi_pool_settings *settings, const char *key,
                                    const weir_engine **engine, wi_pool_prediction *out)
{
    weir_choice *choice = NULL;
    weir_obtainable obtainable = {key, WEIR_BYTES_UNKNOWN - 1};
    weir_choice_options options = {.struct_size = sizeof options,
                                   .engine = source->engine,
                                   .device = key,
                                   .hardware = source->hardware,
                                   .obtainable = &obtainable,
                                   .obtainable_count = 1,
                                   .settings = settings->all,
                                   .setting_count = settings->count};
    weir_status status = weir_choice_create(&source->manifest, &options, &choice);
    if (status != WEIR_OK)
        return status;
    if (choice->accepted == 0)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "no engine takes %s there: %s", source->path, choice->rule);
    else {
        if (choice->candidates[0].predicted)
            memcpy(out->bytes, choice->candidates[0].bytes, sizeof out->bytes);
        status = weir_engine_get(choice->candidates[0].engine, engine);
    }
    weir_choice_destroy(choice);
    return status;
}

weir_status wi_pool_predict(const weir_pool *pool, const wi_pool_source *source, size_t way, uint32_t device,
                            wi_pool_prediction *out)
{
    enum { SUSPENDS = 4 }; /* the first version of an engine's table in which `suspend` counts */
    const weir_engine *engine = NULL;
    const wi_pool_settings *settings = &source->settings[way];
    *out = (wi_pool_prediction){0};
    weir_status status = source->chosen ? predict_manifest(source, settings, source->keys[device], &engine, out)
                                        : predict_path(source, settings, &pool->devices[device], &engine, out);
    if (status != WEIR_OK)
        return status;
    sum(out);
    if (out->peak == 0) {
        out->bytes[WEIR_CLASS_WEIGHTS] = pool_source_size_of(source->path);
        sum(out);
    }
    out->suspends = engine->abi >= SUSPENDS && engine->suspend;
    return WEIR_OK;
}

weir_status wi_pool_fit_layers(const weir_pool *pool, const wi_pool_source *source, uint32_t device, uint64_t bytes,
                               int64_t *layers)
{
    const wi_pool_settings *settings = &source->settings[0];
    weir_predict_options options = {.struct_size = sizeof options,
                                    .engine = source->engine,
                                    .device = pool->devices[device].name,
                                    .settings = settings->all,
                                    .setting_count = settings->count,
                                    .manifest = source->chosen ? &source->manifest : NULL};
    weir_fit_options may = {.struct_size = sizeof may, .layers = true};
    weir_fit fit = WEIR_INIT(weir_fit);
    weir_status status = weir_predict_fit(source->path, &options, bytes, &may, &fit);
    *layers = status == WEIR_OK && fit.fits ? fit.layers : -1;
    return status;
}
