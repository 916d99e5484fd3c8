/* forecast.c: see forecast.h. */
#include "factory/predict/forecast.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/values.h"

/* What the engine says ---------------------------------------------------------------------------------------------- */

uint64_t wi_forecast_size(const char *path)
{
    uint64_t bytes = 0;
    struct stat about;
    if (stat(path, &about) != 0)
        return 0;
    if (!S_ISDIR(about.st_mode))
        return (uint64_t)about.st_size;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (fstatat(dirfd(folder), entry->d_name, &about, 0) == 0 && S_ISREG(about.st_mode))
            bytes += (uint64_t)about.st_size;
    if (folder)
        closedir(folder);
    return bytes;
}

static void plan_by_size(const char *path, weir_engine_plan *out)
{
    out->bytes[WEIR_CLASS_WEIGHTS] = wi_forecast_size(path);
    out->source[WEIR_CLASS_WEIGHTS] = WEIR_PREDICTED_SIZE;
}

/* An engine of before says not where its figures come from. */
static void name_sources(const weir_engine *table, weir_engine_plan *plan)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (table->abi < 5 || plan->source[i] >= WEIR_PREDICTED_MEASURED)
            plan->source[i] = plan->exact[i] ? WEIR_PREDICTED_DRY_RUN : WEIR_PREDICTED_METADATA;
}

static weir_status forecast_ask_engine(const wi_forecast_ask *ask, weir_engine_plan *out)
{
    weir_engine_load load = {.struct_size = sizeof load,
                             .path = ask->path,
                             .settings = ask->settings,
                             .setting_count = ask->setting_count,
                             .provider = ask->provider,
                             .quick = ask->quick};
    weir_status status = ask->table->plan(&load, out);
    if (status == WEIR_OK)
        name_sources(ask->table, out);
    return status;
}

static weir_status plan_of(const wi_forecast_ask *ask, weir_engine_plan *out)
{
    *out = (weir_engine_plan){.struct_size = sizeof *out};
    if (ask->table && ask->table->plan)
        return forecast_ask_engine(ask, out);
    if (!ask->table && strcmp(ask->engine, "gguf") == 0)
        return wi_forecast_gguf(ask, out);
    plan_by_size(ask->path, out);
    return WEIR_OK;
}

/* What a load is known by -------------------------------------------------------------------------------------------- */

static int forecast_by_key(const void *a, const void *b)
{
    const weir_setting *one = a, *other = b;
    int order = strcmp(one->key, other->key);
    return order != 0 ? order : strcmp(one->value, other->value);
}

static bool add_settings(const wi_forecast_ask *ask, wi_digest *to)
{
    weir_setting *sorted = calloc(ask->setting_count + 1, sizeof *sorted);
    if (!sorted)
        return false;
    for (size_t i = 0; i < ask->setting_count; i++)
        sorted[i] = ask->settings[i];
    qsort(sorted, ask->setting_count, sizeof *sorted, forecast_by_key);
    for (size_t i = 0; i < ask->setting_count; i++) {
        wi_digest_text(to, sorted[i].key ? sorted[i].key : "");
        wi_digest_text(to, sorted[i].value ? sorted[i].value : "");
    }
    free(sorted);
    return true;
}

/* "" where the file cannot be read. GPUs are told by their kind. */
static void forecast_make_key(const wi_forecast_ask *ask, const weir_engine_plan *plan, char key[WI_MEASURED_KEY])
{
    wi_digest digest;
    char kind[16];
    key[0] = '\0';
    if (!wi_contents(ask->path, &digest))
        return;
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(ask->device, ":"), ask->device);
    wi_digest_text(&digest, ask->engine);
    wi_digest_text(&digest, ask->provider);
    wi_digest_text(&digest, kind);
    if (plan->settings != 0)
        wi_digest_add(&digest, &plan->settings, sizeof plan->settings);
    else if (!add_settings(ask, &digest))
        return;
    snprintf(key, WI_MEASURED_KEY, "%016llx%016llx", (unsigned long long)digest.high, (unsigned long long)digest.low);
}

/* A version is one word in a record. */
static void one_word(const char *version, char out[WI_MEASURED_VERSION])
{
    snprintf(out, WI_MEASURED_VERSION, "%s", version);
    for (char *at = out; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            *at = '_';
}

/* Both together ------------------------------------------------------------------------------------------------------ */

static uint64_t total(const uint64_t bytes[WEIR_CLASS_MOST])
{
    uint64_t sum = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (__builtin_add_overflow(sum, bytes[i], &sum))
            return UINT64_MAX - 1; /* more than any device has; UINT64_MAX means not known */
    return sum;
}

static void take_plan(const weir_engine_plan *plan, weir_prediction *out)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        out->least[i] = plan->bytes[i];
        out->peak[i] = wi_max(plan->bytes[i], plan->whole[i]);
        out->resident[i] = plan->bytes[i] - wi_min(plan->passing[i], plan->bytes[i]);
        out->host[i] = plan->host[i];
        out->exact[i] = plan->exact[i];
        out->source[i] = plan->source[i];
    }
    out->context = plan->context;
    out->sequences = plan->sequences;
    out->layers = plan->layers;
    out->layers_on_device = plan->layers_on_device;
}

/* What was measured counts, but never for less than what is certain, or promised to a class that grows, and of loads that
 * have not run for no less than what runs are thought to take. */
static void take_measured(const wi_measured *measured, const weir_engine_plan *plan, weir_prediction *out)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        bool grows = plan->whole[i] > 0, certain = out->exact[i];
        bool replaced = measured->ran || measured->peak[i] >= out->peak[i];
        out->resident[i] = certain ? wi_max(measured->resident[i], out->resident[i]) : measured->resident[i];
        if (!certain && replaced && !grows)
            out->source[i] = WEIR_PREDICTED_MEASURED;
        uint64_t peak =
            certain || grows || !measured->ran ? wi_max(measured->peak[i], out->peak[i]) : measured->peak[i];
        out->peak[i] = wi_max(peak, out->resident[i]);
        out->least[i] = grows ? wi_min(out->least[i], out->peak[i]) : out->peak[i];
    }
    out->loads = measured->loads;
}

weir_status wi_forecast_make(const wi_forecast_ask *ask, wi_forecast *out)
{
    weir_engine_plan plan;
    char version[WI_MEASURED_VERSION];
    *out = (wi_forecast){.prediction = {.struct_size = sizeof out->prediction}};
    weir_prediction *prediction = &out->prediction;
    snprintf(prediction->engine, sizeof prediction->engine, "%s", ask->engine);
    snprintf(prediction->provider, sizeof prediction->provider, "%s", ask->provider);
    snprintf(prediction->device, sizeof prediction->device, "%s", ask->device);
    snprintf(prediction->version, sizeof prediction->version, "%s", ask->version);
    weir_status status = plan_of(ask, &plan);
    if (status != WEIR_OK)
        return status;
    take_plan(&plan, prediction);
    if (wi_option_predictions()) {
        forecast_make_key(ask, &plan, out->key);
        one_word(ask->version, version);
        if (!ask->cold && out->key[0] && wi_measured_find(out->key, version, &out->known))
            take_measured(&out->known, &plan, prediction);
    }
    prediction->resident_total = total(prediction->resident);
    prediction->peak_total = total(prediction->peak);
    prediction->least_total = total(prediction->least);
    prediction->host_total = total(prediction->host);
    return WEIR_OK;
}

static int64_t forecast_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec;
}

static bool is_no_more(const uint64_t *bytes, const uint64_t *than)
{
    uint64_t sum = 0, other = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        sum += bytes[i];
        other += than[i];
    }
    return sum <= other;
}

static bool teaches_nothing(const wi_measured *record, const wi_measured *known)
{
    return known->loads > 0 && !record->ran && strcmp(record->version, known->version) == 0 &&
           is_no_more(record->resident, known->resident) && is_no_more(record->peak, known->peak);
}

weir_status wi_forecast_learn(wi_forecast *forecast, const char *version, const weir_client_stats *measured,
                              bool loaded, bool ran)
{
    wi_measured record = {.loads = loaded + forecast->uncounted, .ran = ran, .seen = forecast_seconds_now()};
    if (!forecast->key[0] || !wi_option_predictions())
        return WEIR_OK;
    memcpy(record.key, forecast->key, sizeof record.key);
    one_word(version, record.version);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        record.resident[i] = measured->live_class[i];
        record.peak[i] = measured->peak_class[i];
    }
    forecast->uncounted = loaded && teaches_nothing(&record, &forecast->known);
    return forecast->uncounted ? WEIR_OK : wi_measured_add(&record);
}

weir_status wi_forecast_count(wi_forecast *forecast)
{
    if (!forecast->uncounted || !wi_option_predictions())
        return WEIR_OK;
    forecast->uncounted = false;
    wi_measured record = forecast->known;
    record.loads = 1;
    record.seen = forecast_seconds_now();
    return wi_measured_add(&record);
}
