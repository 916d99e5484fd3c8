/* What a program says of a model that is to be in a pool, checked; and the entry that is made of it. */
#include "pool/pool.h"
#include "base/paths.h"
#include "base/system.h"
#include "factory/choice/criteria.h"

#include <weir/pool.h>

#include <unistd.h>

/* Reading --------------------------------------------------------------------------------------------------- */

static weir_status spec_bad(const char *what)
{
    return weir_fail(WEIR_ERR_INVALID, "weir_pool_add: %s", what);
}

weir_status wi_pool_read_variants(weir_pool_spec *spec, weir_pool_variant *variants)
{
    if (spec->variant_count >= WI_POOL_WAYS)
        return spec_bad("more than 7 variants");
    weir_status status = wi_check_list(spec->variants, spec->variant_count, "weir_pool_add", "variants");
    if (status == WEIR_OK)
        status = wi_check_list(spec->gives_up, spec->gives_up_count, "weir_pool_add", "gives_up");
    if (status == WEIR_OK)
        status = wi_check_settings(spec->settings, spec->setting_count, "weir_pool_add");
    weir_manifest manifest = {0};
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_manifest, &manifest, spec->manifest, "weir_pool_add");
    if (status == WEIR_OK)
        status = wi_manifest_check_lists(&manifest, "weir_pool_add");
    if (status != WEIR_OK)
        return status;
    size_t stride = spec->variant_count ? spec->variants[0].struct_size : 0;
    for (size_t i = 0; i < spec->variant_count; i++) {
        const weir_pool_variant *given = (const void *)((const char *)spec->variants + i * stride);
        status = wi_copy_in(&variants[i], sizeof *variants, given, stride, "weir_pool_add", "weir_pool_variant");
        if (status == WEIR_OK)
            status = wi_check_settings(variants[i].settings, variants[i].setting_count, "weir_pool_add");
        if (status != WEIR_OK)
            return status;
    }
    spec->variants = variants;
    return WEIR_OK;
}

static weir_status check_spec(const weir_pool_spec *spec)
{
    if (!spec->path == !spec->manifest)
        return spec_bad("a path or a manifest is needed, and not both");
    if (spec->manifest && !spec->manifest->model_file)
        return spec_bad("the manifest names no model file");
    if (spec->maximum != 0 && spec->guaranteed > spec->maximum)
        return spec_bad("more is guaranteed than the maximum");
    if (!spec->manifest && access(spec->path, R_OK) != 0)
        return wi_path_missing(spec->path);
    return WEIR_OK;
}

static weir_status name_entry(const weir_pool_spec *spec, wi_pool_entry *entry)
{
    const weir_manifest *manifest = spec->manifest;
    const char *name = spec->name ? spec->name : manifest ? manifest->name : NULL;
    const char *version = spec->version ? spec->version : manifest && manifest->version ? manifest->version : "";
    size_t length = name ? strlen(name) : 0;
    if (length == 0)
        name = wi_path_model_name(manifest ? manifest->model_file : spec->path, &length);
    if (length == 0 || length >= sizeof entry->name || strlen(version) >= sizeof entry->version)
        return spec_bad("a name has 1 to 63 bytes, and a version up to 63");
    memcpy(entry->name, name, length);
    memcpy(entry->version, version, strlen(version));
    return WEIR_OK;
}

static weir_status spec_find_device(const weir_pool *pool, const char *name, uint32_t *out)
{
    for (*out = 0; *out < pool->device_count; ++*out)
        if (!name || strcmp(pool->devices[*out].name, name) == 0)
            return WEIR_OK;
    return weir_fail(WEIR_ERR_NOT_FOUND, "%s is none of the pool's devices; its first is %s", name,
                     pool->devices[0].name);
}

static void write_spec(const weir_pool *pool, const weir_pool_spec *spec, wi_pool_entry *entry)
{
    const uint64_t second = 1000000000;
    wp_spec *to = &entry->spec;
    uint64_t bytes = to->variants[0].peak; /* guesses, until it is measured: a byte in a nanosecond */
    memcpy(to->name, entry->name, sizeof to->name);
    to->device = entry->device;
    to->host = to->variants[0].resident;
    to->can_suspend = to->can_suspend && !spec->stays && pool->limits.host > 0;
    to->may_evict = true;
    to->pinned = spec->pinned;
    to->shrink_first = spec->shrink_first;
    to->priority = spec->priority;
    to->weight = spec->weight ? spec->weight : 1;
    to->load_time = bytes;
    to->resume_time = to->suspend_time = bytes / 10;
    to->evict_cost = spec->evict_cost;
    to->minimum_stay = spec->minimum_stay == WEIR_POOL_NONE ? 0 : spec->minimum_stay ? spec->minimum_stay : second;
    to->keep_alive = spec->keep_alive ? spec->keep_alive : WP_FOREVER;
    to->suspend_after = spec->suspend_after ? spec->suspend_after : WP_FOREVER;
    to->slots = spec->slots ? spec->slots : 1;
}

/* Several devices, and what may be given up ------------------------------------------------------------------------ */

static weir_status spec_find_devices(const weir_pool *pool, const weir_pool_spec *spec, uint32_t *devices,
                                     size_t *count)
{
    if (spec->device_count >= WP_VARIANTS || (spec->device_count > 0 && !spec->devices))
        return spec_bad("other devices are NULL, or more than 15");
    weir_status status = spec_find_device(pool, spec->device, &devices[0]);
    *count = 1;
    for (size_t i = 0; i < spec->device_count && status == WEIR_OK; i++) {
        status = spec->devices[i] ? spec_find_device(pool, spec->devices[i], &devices[*count])
                                  : spec_bad("a device is NULL");
        for (size_t k = 0; k < *count && status == WEIR_OK; k++)
            if (devices[k] == devices[*count])
                status = weir_fail(WEIR_ERR_INVALID, "weir_pool_add: %s is given twice", spec->devices[i]);
        ++*count;
    }
    return status;
}

static bool lists(const weir_pool_spec *spec, weir_pool_step step)
{
    for (size_t i = 0; i < spec->gives_up_count; i++)
        if (spec->gives_up[i] == step)
            return true;
    return false;
}

static bool has_variant(const weir_pool_spec *spec, weir_pool_step gives)
{
    for (size_t i = 0; i < spec->variant_count; i++)
        if (spec->variants[i].gives == gives)
            return true;
    return false;
}

static weir_status check_step(const weir_pool_spec *spec, size_t at)
{
    weir_pool_step step = spec->gives_up[at];
    const char *wrong = NULL;
    if ((unsigned)step >= WEIR_POOL_STEP_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_add: %d is no step of what may be given up", (int)step);
    for (size_t i = 0; i < at; i++)
        if (spec->gives_up[i] == step)
            wrong = "comes twice";
    if (step == WEIR_POOL_STEP_WAIT && at + 1 < spec->gives_up_count)
        wrong = "is not the last";
    if (step == WEIR_POOL_STEP_CONTEXT && !has_variant(spec, step))
        wrong = "needs a variant";
    if (step == WEIR_POOL_STEP_DEVICE && spec->device_count == 0)
        wrong = "needs other devices";
    return wrong ? weir_fail(WEIR_ERR_INVALID, "weir_pool_add: of what may be given up, \"%s\" %s",
                             weir_pool_step_name(step), wrong)
                 : WEIR_OK;
}

static weir_status check_steps(const weir_pool_spec *spec)
{
    static const weir_pool_step gives[] = {WEIR_POOL_STEP_CONTEXT, WEIR_POOL_STEP_LAYERS};
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < spec->variant_count; i++)
        if (spec->variants[i].gives != WEIR_POOL_STEP_CONTEXT && spec->variants[i].gives != WEIR_POOL_STEP_LAYERS)
            return spec_bad("a variant gives up neither context nor layers");
    if (spec->gives_up_count == 0)
        return WEIR_OK;
    if (!spec->gives_up || spec->shrink_first)
        return spec_bad("gives_up is NULL, or stands beside shrink_first, which is an order of its own");
    for (size_t i = 0; i < spec->gives_up_count && status == WEIR_OK; i++)
        status = check_step(spec, i);
    for (size_t i = 0; i < sizeof gives / sizeof *gives && status == WEIR_OK; i++)
        if (has_variant(spec, gives[i]) && !lists(spec, gives[i]))
            status = weir_fail(WEIR_ERR_INVALID, "weir_pool_add: a variant gives up %s, and gives_up does not list it",
                               weir_pool_step_name(gives[i]));
    if (status == WEIR_OK && spec->device_count > 0 && !lists(spec, WEIR_POOL_STEP_DEVICE))
        status = spec_bad("there are other devices, and gives_up does not list \"device\"");
    return status;
}

/* Ways with fewer layers, as many as fit into parts of what the pool may take of its device. */
static weir_status add_layers(weir_pool *pool, wi_pool_source *source, uint32_t device, int32_t *layers)
{
    enum { PARTS = 4 };
    int64_t before = INT64_MAX;
    wi_pool_look(pool, device, true);
    pthread_mutex_lock(&pool->lock);
    uint64_t bytes = pool->devices[device].ceiling;
    pthread_mutex_unlock(&pool->lock);
    for (unsigned part = PARTS; part > 0 && source->ways < WI_POOL_WAYS; part--) {
        int64_t now;
        weir_status status = wi_pool_fit_layers(pool, source, device, bytes / PARTS * part, &now);
        if (status != WEIR_OK)
            return status;
        if (now < 0 || now >= before) /* all of them fit, or as many as before, or not even none */
            continue;
        layers[source->ways] = (int32_t)now;
        status = wi_pool_source_layers(source, now);
        if (status != WEIR_OK)
            return status;
        before = now;
    }
    return WEIR_OK;
}

/* A variant: a way, on a device. */
static weir_status predict_one(const weir_pool *pool, const weir_pool_spec *spec, wi_pool_entry *entry, size_t way,
                               uint32_t device, int32_t layers)
{
    const weir_pool_variant *other = way > 0 && way <= spec->variant_count ? &spec->variants[way - 1] : NULL;
    uint32_t number = entry->spec.variant_count;
    wp_variant *variant = &entry->spec.variants[number];
    wi_pool_prediction prediction;
    if (number == WP_VARIANTS)
        return spec_bad("more than 16 variants on all devices");
    weir_status status = wi_pool_predict(pool, entry->source, way, device, &prediction);
    if (status != WEIR_OK)
        return status;
    uint64_t given = other ? other->peak : way == 0 ? spec->peak : 0;
    *variant = (wp_variant){.peak = wi_max(given ? given : prediction.peak, entry->source->guaranteed),
                            .resident = wi_max(given ? given : prediction.resident, entry->source->guaranteed),
                            .context = other ? other->context : 0,
                            .layers = other     ? other->layers
                                      : way > 0 ? layers
                                                : -1,
                            .on = device == entry->device ? 0 : device + 1,
                            .same = device != entry->device,
                            .gives = other     ? (wp_step)other->gives
                                     : way > 0 ? WP_STEP_LAYERS
                                               : WP_STEP_CONTEXT};
    if (entry->source->maximum && variant->peak > entry->source->maximum)
        return weir_fail(WEIR_ERR_INVALID, "%s takes %llu bytes, and its maximum is %llu", entry->name,
                         (unsigned long long)variant->peak, (unsigned long long)entry->source->maximum);
    entry->settings_of[number] = (uint8_t)way;
    entry->spec.variant_count++;
    if (number > 0)
        return WEIR_OK;
    entry->predicted_peak = variant->peak;
    memcpy(entry->predicted, prediction.bytes, sizeof entry->predicted);
    entry->spec.can_suspend = prediction.suspends;
    return WEIR_OK;
}

static weir_status spec_predict(weir_pool *pool, const weir_pool_spec *spec, const uint32_t *devices, size_t count,
                                wi_pool_entry *entry)
{
    int32_t layers[WI_POOL_WAYS] = {0};
    weir_status status = WEIR_OK;
    if (lists(spec, WEIR_POOL_STEP_LAYERS) && !has_variant(spec, WEIR_POOL_STEP_LAYERS))
        status = add_layers(pool, entry->source, entry->device, layers);
    for (size_t way = 0; way < entry->source->ways && status == WEIR_OK; way++)
        for (size_t d = 0; d < count && status == WEIR_OK; d++)
            status = predict_one(pool, spec, entry, way, devices[d], layers[way]);
    for (size_t i = 0; i < spec->gives_up_count && status == WEIR_OK; i++)
        entry->spec.steps[entry->spec.step_count++] = (wp_step)spec->gives_up[i];
    if (status == WEIR_OK)
        write_spec(pool, spec, entry);
    return status;
}

weir_status wi_pool_entry_make(weir_pool *pool, const weir_pool_spec *spec, wi_pool_entry **out)
{
    uint32_t devices[WP_VARIANTS] = {0};
    size_t count = 0;
    wi_pool_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
    entry->pool = pool;
    weir_status status = check_spec(spec);
    if (status == WEIR_OK)
        status = check_steps(spec);
    if (status == WEIR_OK)
        status = name_entry(spec, entry);
    if (status == WEIR_OK)
        status = spec_find_devices(pool, spec, devices, &count);
    entry->device = devices[0];
    if (status == WEIR_OK)
        status = wi_pool_source_make(pool, spec, devices, count, &entry->source);
    if (status == WEIR_OK)
        status = spec_predict(pool, spec, devices, count, entry);
    if (status != WEIR_OK) {
        wi_pool_source_free(entry->source);
        free(entry);
    } else
        *out = entry;
    return status;
}
