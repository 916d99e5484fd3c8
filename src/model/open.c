/* Opening a model: the candidates by rank, until one has loaded it. */
#include "model/open.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>
#include "choice/criteria.h"

#include <stdio.h>

/* What is kept for later loads -------------------------------------------------------------------------------------- */

static bool copy_text(const char *from, const char **out)
{
    *out = from ? strdup(from) : NULL;
    return !from || *out;
}

static bool copy_settings(const weir_setting *from, size_t count, const weir_setting **out, size_t *out_count)
{
    weir_setting *copies = calloc(count + 1, sizeof *copies);
    bool good = copies != NULL;
    *out = copies;
    *out_count = copies ? count : 0;
    for (size_t i = 0; good && i < count; i++)
        good = copy_text(from[i].key, &copies[i].key) && copy_text(from[i].value, &copies[i].value);
    return good;
}

static void free_settings(const weir_setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((char *)settings[i].key);
        free((char *)settings[i].value);
    }
    free((weir_setting *)settings);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool copy_wants(wi_opening *opening, const weir_manifest *manifest, const weir_choice_options *asked)
{
    weir_manifest *kept = &opening->manifest;
    const char *name = manifest->name && *manifest->name ? manifest->name : base_name(manifest->model_file);
    return copy_text(manifest->model_file, &kept->model_file) && copy_text(name, &kept->name) &&
           copy_text(manifest->requirements.graph_optimization_level, &kept->requirements.graph_optimization_level) &&
           copy_settings(manifest->settings, manifest->setting_count, &kept->settings, &kept->setting_count) &&
           copy_settings(asked->settings, asked->setting_count, &opening->asked.settings,
                         &opening->asked.setting_count);
}

static void end_opening(wi_opening *opening)
{
    free((char *)opening->manifest.model_file);
    free((char *)opening->manifest.name);
    free((char *)opening->manifest.requirements.graph_optimization_level);
    free_settings(opening->manifest.settings, opening->manifest.setting_count);
    free_settings(opening->asked.settings, opening->asked.setting_count);
    wi_record_clear(opening);
    weir_choice_destroy(opening->choice);
    pthread_mutex_destroy(&opening->lock);
    free(opening->chances);
    free(opening);
}

void wi_opening_end(weir_model *model)
{
    end_opening(model->opening);
}

/* Made ------------------------------------------------------------------------------------------------------------- */

/* A call's arguments, of this library's sizes. */
typedef struct wants {
    weir_manifest manifest;
    weir_opening_options options;
    weir_choice_options choice;
} wants;

static weir_status read_wants(const weir_manifest *manifest, const weir_opening_options *options, wants *out)
{
    *out = (wants){0};
    weir_status status = WI_COPY_IN(weir_manifest, &out->manifest, manifest, "weir_model_create_chosen");
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_opening_options, &out->options, options, "weir_model_create_chosen");
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_choice_options, &out->choice, out->options.choice, "weir_model_create_chosen");
    if (status != WEIR_OK)
        return status;
    out->choice.struct_size = sizeof out->choice;
    out->manifest.struct_size = sizeof out->manifest;
    /* The choice has to know of them, too. */
    if (out->options.guaranteed)
        out->manifest.requirements.guaranteed = out->options.guaranteed;
    if (out->options.maximum)
        out->manifest.requirements.maximum = out->options.maximum;
    return WEIR_OK;
}

/* Whether running on the processor is what was asked for, and not what was left. */
static bool asks_for_cpu(const wants *w)
{
    wi_fit_request wish;
    return wi_wish_read(&w->manifest, &w->choice, &wish) == WEIR_OK &&
           (wish.cpu_named || (wish.device.by == WI_BY_KIND && wish.device.kind == WEIR_HARDWARE_CPU));
}

/* The opening has the choice from here on, also on failure. */
static weir_status make_opening(const wants *w, weir_choice *choice, wi_opening **out)
{
    wi_opening *opening = calloc(1, sizeof *opening);
    if (!opening) {
        weir_choice_destroy(choice);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    }
    const weir_requirements *needs = &w->manifest.requirements;
    opening->choice = choice;
    opening->given = w->options;
    opening->given.choice = NULL;
    opening->guaranteed = needs->guaranteed;
    opening->maximum = needs->maximum;
    opening->coverage = needs->min_coverage;
    opening->looks = !w->choice.hardware;
    opening->cpu_asked = asks_for_cpu(w);
    opening->cpu_forbidden = w->choice.no_cpu || needs->cpu == WEIR_CPU_FORBIDDEN;
    opening->adrift = SIZE_MAX;
    pthread_mutex_init(&opening->lock, NULL);
    opening->chances = calloc(choice->accepted + 1, sizeof *opening->chances);
    if (!opening->chances || !copy_wants(opening, &w->manifest, &w->choice)) {
        end_opening(opening);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    }
    for (size_t i = 1; w->options.no_fallback && i < choice->accepted; i++)
        opening->chances[i].dead = true;
    *out = opening;
    return WEIR_OK;
}

/* Opened ----------------------------------------------------------------------------------------------------------- */

/* What is wrong with the request, or with the file, is so everywhere. */
static bool moves_on(weir_status status)
{
    return status != WEIR_ERR_INVALID && status != WEIR_ERR_CANCELLED && status != WEIR_ERR_CORRUPT &&
           status != WEIR_ERR_FORKED;
}

/* A forbidden processor runs nothing without a word. */
static void tell_of_parts(const wi_opening *opening, const wi_instance *instance)
{
    if (!opening->cpu_forbidden || instance->on_cpu == 0)
        return;
    wi_told_notice(opening,
                   "%s: %s leaves %llu of %llu parts to the processor, which is forbidden as a provider alone; "
                   "min_provider_coverage in the manifest refuses that",
                   opening->manifest.name, opening->choice->candidates[instance->rank].provider,
                   (unsigned long long)instance->on_cpu, (unsigned long long)instance->of);
}

void wi_opening_settle(weir_model *model, wi_instance *instance)
{
    wi_opening *opening = model->opening;
    const weir_candidate *candidate = &opening->choice->candidates[instance->rank];
    bool last_resort = strcmp(candidate->provider, "cpu") == 0 && !opening->cpu_asked;
    wi_model_switch(model, instance);
    wi_record_adrift(opening, false);
    pthread_mutex_lock(&opening->lock);
    opening->on_cpu = last_resort;
    pthread_mutex_unlock(&opening->lock);
    tell_of_parts(opening, instance);
    if (!last_resort)
        return;
    size_t before = wi_record_count(opening) - 1;
    if (before > 0)
        wi_told_notice(opening, "%s runs on the processor, as the last resort: %zu before it failed",
                       opening->manifest.name, before);
    else
        wi_told_notice(opening, "%s runs on the processor, as the last resort: %s", opening->manifest.name,
                       opening->choice->rule);
}

static weir_status open_first(weir_model *model)
{
    wi_opening *opening = model->opening;
    weir_status status = WEIR_ERR_UNSUPPORTED;
    for (size_t rank = 0; rank < opening->choice->accepted; rank++) {
        wi_instance *instance;
        if (opening->chances[rank].dead)
            continue;
        status = wi_open_try(opening, rank, opening->given.first_run, &instance);
        if (status == WEIR_OK) {
            wi_model_add(model, instance);
            wi_opening_settle(model, instance);
            wi_model_leave(model, instance); /* it stays as the present one */
            return WEIR_OK;
        }
        if (!moves_on(status))
            break;
    }
    if (wi_record_count(opening) == 1)
        return status; /* the detail is its own */
    char lead[120];
    snprintf(lead, sizeof lead, "%.80s could not be opened", opening->manifest.name);
    return wi_told_attempts(opening, 0, status, lead);
}

static weir_status open_chosen(const wants *w, weir_choice *choice, weir_model **out)
{
    weir_model *model = NULL;
    wi_opening *opening = NULL;
    weir_status status = make_opening(w, choice, &opening);
    if (status == WEIR_OK) {
        status = wi_model_make(&model);
        if (status != WEIR_OK)
            end_opening(opening);
    }
    if (status != WEIR_OK)
        return status;
    model->opening = opening;
    model->name = opening->manifest.name;
    model->route = &wi_opening_route;
    status = open_first(model);
    if (status != WEIR_OK)
        wi_model_free(model);
    else
        *out = model;
    return status;
}

weir_status weir_model_create_chosen(const weir_manifest *manifest, const weir_opening_options *options,
                                     weir_model **out)
{
    WI_ENTER();
    wants w;
    weir_choice *choice = NULL;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_create_chosen: NULL");
    *out = NULL;
    weir_status status = read_wants(manifest, options, &w);
    if (status == WEIR_OK)
        status = weir_choice_create(&w.manifest, &w.choice, &choice);
    if (status != WEIR_OK)
        return status;
    if (choice->accepted == 0) {
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "%.120s: %s", base_name(w.manifest.model_file), choice->rule);
        weir_choice_destroy(choice);
        return status;
    }
    return open_chosen(&w, choice, out);
}
