/* Opening a model, with the fallback to the next provider: tries the candidates by rank, each through all stages,
 * until a candidate has loaded the model. */
#include "base/paths.h"
#include "base/system.h"
#include "factory/choice/criteria.h"
#include "factory/model/open.h"
#include "runtime/runtime.h"

#include <weir/stats.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

#include <stdio.h>

/* An attempt: a candidate, from the look at the device to the loaded model ----------------------------------------- */

typedef struct trial {
    wi_opening *opening;
    size_t rank;
    const weir_candidate *candidate;
    wi_instance *instance; /* NULL: none yet */
    weir_stage stage;
    uint64_t started;           /* the stage; nanoseconds */
    uint64_t parts, on_cpu, of; /* of the model that its provider runs, and leaves to the processor; 0: not known */
} trial;

static void open_enter(trial *it, weir_stage stage)
{
    it->stage = stage;
    it->started = wi_now();
}

/* Stages ----------------------------------------------------------------------------------------------------------- */

static weir_status open_find(const weir_hardware *hardware, const weir_candidate *candidate)
{
    for (size_t i = 0; i < hardware->device_count; i++) {
        const weir_hardware_device *device = &hardware->devices[i];
        if (strcmp(device->key, candidate->device) != 0)
            continue;
        return device->usable
                   ? WEIR_OK
                   : weir_fail(WEIR_ERR_NOT_FOUND, "%s cannot be used any more: %s", candidate->device, device->remark);
    }
    return weir_fail(WEIR_ERR_NOT_FOUND, "%s was there when it was chosen, and is not any more", candidate->device);
}

/* The processor does not go away, and a look at the hardware costs more than the load of a small model. */
static bool is_processor(const weir_candidate *candidate)
{
    return strcmp(candidate->device, "cpu") == 0;
}

static weir_status detect(const trial *it)
{
    if (it->opening->states[it->rank].device_lost)
        return weir_fail(WEIR_ERR_DEVICE_LOST, "%s was lost to this process", it->candidate->device);
    if (!it->opening->checks_devices || !it->candidate->device[0] || is_processor(it->candidate))
        return WEIR_OK;
    weir_hardware *hardware = NULL;
    weir_status status = weir_hardware_create(NULL, &hardware);
    if (status == WEIR_OK)
        status = open_find(hardware, it->candidate);
    weir_hardware_destroy(hardware);
    return status;
}

static weir_status construct(trial *it)
{
    const wi_opening *opening = it->opening;
    const weir_engine *engine = NULL;
    weir_runtime *runtime = NULL;
    weir_client_options options = {.struct_size = sizeof options,
                                   .name = opening->manifest.name,
                                   .guaranteed = opening->guaranteed,
                                   .maximum = opening->maximum};
    weir_status status = weir_engine_get(it->candidate->engine, &engine);
    if (status == WEIR_OK)
        status = weir_runtime_get(it->candidate->runtime, NULL, &runtime);
    if (status != WEIR_OK)
        return status;
    weir_client *given = opening->options.client;
    bool fits = given && weir_client_runtime(given) == runtime && !atomic_load(opening->lent);
    return wi_instance_open(engine, runtime, &options, fits ? given : NULL, opening->lent, &it->instance);
}

static weir_status open_load(const trial *it)
{
    const wi_opening *opening = it->opening;
    wi_settings settings;
    weir_status status =
        wi_settings_merge(&opening->manifest, &opening->choice_options, it->candidate->engine, &settings);
    if (status != WEIR_OK)
        return status;
    if (opening->coverage >= 1 && strcmp(it->candidate->provider, "cpu") != 0)
        wi_settings_forbid_cpu(&settings, it->candidate->engine);
    weir_engine_load request = {.struct_size = sizeof request,
                                .path = opening->manifest.model_file,
                                .settings = settings.all,
                                .setting_count = settings.count,
                                .progress = opening->options.progress,
                                .progress_user = opening->options.user,
                                .stops = opening->options.stops,
                                .provider = it->candidate->provider};
    status = wi_instance_load(it->instance, &request, false); /* the choice has asked for the same */
    wi_settings_free(&settings);
    return status;
}

static const weir_provider_share *open_share_of(const weir_model_details *info, const char *provider)
{
    for (size_t i = 0; i < info->share_count; i++)
        if (strcmp(info->shares[i].provider, provider) == 0)
            return &info->shares[i];
    return NULL;
}

/* "cuda 94, cpu 6 of 100 parts" */
static const char *write_shares(const weir_model_details *info, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < info->share_count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s %llu", i ? ", " : "", info->shares[i].provider,
                                 (unsigned long long)info->shares[i].parts);
    if (info->share_count > 0 && used < capacity)
        snprintf(text + used, capacity - used, " of %llu parts", (unsigned long long)info->shares[0].of);
    return text;
}

/* What the provider leaves to others is looked at after the load: nobody can tell before. */
static weir_status covers(trial *it)
{
    const char *provider = it->candidate->provider;
    double wanted = it->opening->coverage;
    char shares[160];
    weir_model_details info = WEIR_INIT(weir_model_details);
    bool elsewhere = strcmp(provider, "cpu") != 0, demands = wanted > 0 && elsewhere;
    weir_status status = it->instance->engine->info(it->instance->loaded, &info);
    if (status != WEIR_OK)
        return demands ? status : WEIR_OK;
    const weir_provider_share *own = open_share_of(&info, provider), *cpu = open_share_of(&info, "cpu");
    it->parts = own ? own->parts : 0;
    it->of = info.share_count > 0 ? info.shares[0].of : 0;
    it->on_cpu = elsewhere && cpu ? cpu->parts : 0;
    if (elsewhere && it->opening->cpu_forbidden && cpu && cpu->of > 0 && cpu->parts == cpu->of)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s runs none of the model's %llu parts and leaves all to the processor, which is forbidden",
                         provider, (unsigned long long)cpu->of);
    if (!demands)
        return WEIR_OK;
    if (info.share_count == 0)
        return weir_fail(
            WEIR_ERR_UNSUPPORTED,
            "the engine cannot tell how much of the model it runs, and the manifest wants %.4g %% of it on %s",
            wanted * 100, provider);
    double part = own && own->of > 0 ? (double)own->parts / (double)own->of : 0;
    if (part >= wanted)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s runs %.4g %% of the model (%s), and the manifest wants %.4g %%: its min_provider_coverage, or "
                     "another provider",
                     provider, part * 100, write_shares(&info, shares, sizeof shares), wanted * 100);
}

static weir_status open_go(trial *it, bool warm)
{
    open_enter(it, WEIR_STAGE_DETECT);
    weir_status status = detect(it);
    if (status != WEIR_OK)
        return status;
    open_enter(it, WEIR_STAGE_CONSTRUCT);
    status = construct(it);
    if (status != WEIR_OK)
        return status;
    open_enter(it, WEIR_STAGE_LOAD);
    status = open_load(it);
    if (status == WEIR_OK)
        status = covers(it);
    /* Without a warm-up the first request is the first run. */
    if (status != WEIR_OK || !warm || !it->instance->engine->warm_up)
        return status;
    open_enter(it, WEIR_STAGE_FIRST_RUN);
    return it->instance->engine->warm_up(it->instance->loaded);
}

/* Its end ---------------------------------------------------------------------------------------------------------- */

/* All candidates of a device that is lost are. */
static void note_loss(wi_opening *opening, size_t rank)
{
    const weir_candidate *all = opening->choice->candidates;
    for (size_t i = 0; i < opening->choice->accepted; i++)
        if (strcmp(all[i].device, all[rank].device) == 0)
            opening->states[i].device_lost = true;
}

void wi_exclude(wi_opening *opening, size_t rank, weir_status status)
{
    if (status == WEIR_ERR_DEVICE_LOST)
        note_loss(opening, rank);
    /* Memory may suffice at a later load. */
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        opening->states[rank].excluded = true;
}

void wi_report_failure(wi_opening *opening, size_t rank, const weir_attempt *attempt)
{
    char name[WI_CANDIDATE_TEXT];
    wi_notify(opening, "%s: %s failed (%s): %s", opening->manifest.name,
              wi_candidate_text(&opening->choice->candidates[rank], name),
              weir_name_of(WEIR_NAMES_STAGE, attempt->stage), attempt->reason);
}

/* What the engine has kept is part of why. */
static void open_give_up(trial *it, weir_status status)
{
    double ms = (double)(wi_now() - it->started) * 1e-6;
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weir_detail());
    weir_attempt attempt = {
        .stage = it->stage, .status = status, .reason = reason, .ms = ms, .parts = it->parts, .of = it->of};
    if (it->instance) {
        attempt.bytes = wi_instance_peak(it->instance);
        if (wi_instance_close(it->instance) != WEIR_OK) {
            char first[600];
            wi_shorten(reason, first, sizeof first);
            snprintf(reason, sizeof reason, "%s; ", first);
            wi_shorten(weir_detail(), reason + strlen(reason), sizeof reason - strlen(reason));
        }
        wi_instance_free(it->instance);
    }
    wi_exclude(it->opening, it->rank, status);
    (void)wi_attempts_add(it->opening, it->rank, &attempt);
    wi_report_failure(it->opening, it->rank, &attempt);
    (void)weir_fail(status, "%s", reason);
}

weir_status wi_attempt_load(wi_opening *opening, size_t rank, bool warm, wi_instance **out)
{
    trial it = {.opening = opening, .rank = rank, .candidate = &opening->choice->candidates[rank]};
    weir_status status = open_go(&it, warm);
    if (status != WEIR_OK) {
        open_give_up(&it, status);
        return status;
    }
    weir_attempt attempt = {.stage = it.stage,
                            .ms = (double)(wi_now() - it.started) * 1e-6,
                            .bytes = wi_instance_peak(it.instance),
                            .reason = "",
                            .parts = it.parts,
                            .of = it.of};
    it.instance->rank = rank;
    it.instance->on_cpu = it.on_cpu;
    it.instance->of = it.of;
    it.instance->attempt = wi_attempts_add(opening, rank, &attempt);
    *out = it.instance;
    return WEIR_OK;
}

/* What is kept for later loads ------------------------------------------------------------------------------------- */

static bool copy_text(const char *from, const char **out)
{
    *out = from ? strdup(from) : NULL;
    return !from || *out;
}

static bool open_copy_settings(const weir_setting *from, size_t count, const weir_setting **out, size_t *out_count)
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

static bool copy_name(const weir_manifest *manifest, const char **out)
{
    size_t length;
    const char *own = wi_path_model_name(manifest->model_file, &length);
    bool given = manifest->name && *manifest->name;
    *out = given ? strdup(manifest->name) : strndup(own, length);
    return *out != NULL;
}

static bool copy_wants(wi_opening *opening, const weir_manifest *manifest, const weir_choice_options *asked)
{
    weir_manifest *stored = &opening->manifest;
    return copy_text(manifest->model_file, &stored->model_file) && copy_name(manifest, &stored->name) &&
           copy_text(manifest->requirements.graph_optimization_level, &stored->requirements.graph_optimization_level) &&
           open_copy_settings(manifest->settings, manifest->setting_count, &stored->settings, &stored->setting_count) &&
           open_copy_settings(asked->settings, asked->setting_count, &opening->choice_options.settings,
                              &opening->choice_options.setting_count);
}

static void end_opening(wi_opening *opening)
{
    free((char *)opening->manifest.model_file);
    free((char *)opening->manifest.name);
    free((char *)opening->manifest.requirements.graph_optimization_level);
    free_settings(opening->manifest.settings, opening->manifest.setting_count);
    free_settings(opening->choice_options.settings, opening->choice_options.setting_count);
    wi_attempts_clear(opening);
    weir_choice_destroy(opening->choice);
    pthread_mutex_destroy(&opening->lock);
    free(opening->states);
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
    wi_criteria criteria;
    return wi_criteria_read(&w->manifest, &w->choice, &criteria) == WEIR_OK &&
           (criteria.cpu_named || (criteria.device.by == WI_BY_KIND && criteria.device.kind == WEIR_HARDWARE_CPU));
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
    opening->options = w->options;
    opening->options.choice = NULL;
    opening->guaranteed = needs->guaranteed;
    opening->maximum = needs->maximum;
    opening->coverage = needs->min_coverage;
    opening->checks_devices = !w->choice.hardware;
    opening->cpu_asked = asks_for_cpu(w);
    opening->cpu_forbidden = w->choice.no_cpu || needs->cpu == WEIR_CPU_FORBIDDEN;
    pthread_mutex_init(&opening->lock, NULL);
    opening->states = calloc(choice->accepted + 1, sizeof *opening->states);
    if (!opening->states || !copy_wants(opening, &w->manifest, &w->choice)) {
        end_opening(opening);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    }
    for (size_t i = 1; w->options.no_fallback && i < choice->accepted; i++)
        opening->states[i].excluded = true;
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
    wi_notify(opening,
              "%s: %s leaves %llu of %llu parts to the processor, which is forbidden as a provider alone; "
              "min_provider_coverage in the manifest refuses that",
              opening->manifest.name, opening->choice->candidates[instance->rank].provider,
              (unsigned long long)instance->on_cpu, (unsigned long long)instance->of);
}

bool wi_opening_last_resort(const wi_opening *opening, size_t rank)
{
    return strcmp(opening->choice->candidates[rank].provider, "cpu") == 0 && !opening->cpu_asked;
}

void wi_opening_adopt(weir_model *model, wi_instance *instance)
{
    wi_opening *opening = model->opening;
    wi_model_switch(model, instance);
    if (opening->options.prepare)
        wi_instance_prepare(instance);
    tell_of_parts(opening, instance);
    if (!wi_opening_last_resort(opening, instance->rank))
        return;
    size_t before = wi_attempts_count(opening) - 1;
    if (before > 0)
        wi_notify(opening, "%s runs on the processor, as the last resort: %zu before it failed", opening->manifest.name,
                  before);
    else
        wi_notify(opening, "%s runs on the processor, as the last resort: %s", opening->manifest.name,
                  opening->choice->rule);
}

static weir_status open_first(weir_model *model)
{
    wi_opening *opening = model->opening;
    weir_status status = WEIR_ERR_UNSUPPORTED;
    for (size_t rank = 0; rank < opening->choice->accepted; rank++) {
        wi_instance *instance;
        if (opening->states[rank].excluded)
            continue;
        status = wi_attempt_load(opening, rank, opening->options.first_run, &instance);
        if (status == WEIR_OK) {
            wi_model_add(model, instance);
            wi_opening_adopt(model, instance);
            wi_model_leave(model, instance); /* the instance stays as the present instance */
            return WEIR_OK;
        }
        if (!moves_on(status))
            break;
    }
    if (wi_attempts_count(opening) == 1)
        return status; /* the detail is its own */
    char lead[120];
    snprintf(lead, sizeof lead, "%.80s could not be opened", opening->manifest.name);
    return wi_attempts_fail(opening, 0, status, lead);
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
    opening->lent = &model->lent;
    model->name = opening->manifest.name;
    model->failover = &wi_opening_failover;
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
    if (status == WEIR_OK && w.options.client)
        status = wi_client_check(w.options.client, "weir_model_create_chosen");
    if (status == WEIR_OK)
        status = wi_choice_create(&w.manifest, &w.choice, w.options.client, &choice);
    if (status != WEIR_OK)
        return status;
    if (choice->accepted == 0) {
        size_t length;
        const char *name = wi_path_model_name(w.manifest.model_file, &length);
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "%.*s: %s", (int)wi_min(length, 120), name, choice->rule);
        weir_choice_destroy(choice);
        return status;
    }
    return open_chosen(&w, choice, out);
}
