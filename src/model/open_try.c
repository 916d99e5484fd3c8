/* One candidate, from a look at its device to a model that is loaded there. */
#include "model/open.h"
#include "choice/settings.h"

#include <weir/stats.h>
#include <weir/engine.h>
#include <weir/select.h>
#include <weir/model.h>

#include <stdio.h>
#include <time.h>

typedef struct trial {
    wi_opening *opening;
    size_t rank;
    const weir_candidate *candidate;
    wi_instance *instance; /* NULL: none yet */
    weir_stage stage;
    double started;             /* the stage, in milliseconds */
    uint64_t parts, on_cpu, of; /* of the model that its provider runs, and leaves to the processor; 0: not told */
} trial;

static double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void enter(trial *it, weir_stage stage)
{
    it->stage = stage;
    it->started = clock_ms();
}

/* Stages ----------------------------------------------------------------------------------------------------------- */

static weir_status find(const weir_hardware *hardware, const weir_candidate *candidate)
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

static weir_status detect(const trial *it)
{
    if (it->opening->chances[it->rank].lost)
        return weir_fail(WEIR_ERR_DEVICE_LOST, "%s was lost to this process", it->candidate->device);
    if (!it->opening->looks || !it->candidate->device[0])
        return WEIR_OK;
    weir_hardware *hardware = NULL;
    weir_status status = weir_hardware_create(NULL, &hardware);
    if (status == WEIR_OK)
        status = find(hardware, it->candidate);
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
    return status == WEIR_OK ? wi_instance_open(engine, runtime, &options, &it->instance) : status;
}

static weir_status load(const trial *it)
{
    const wi_opening *opening = it->opening;
    wi_settings settings;
    weir_status status = wi_settings_merge(&opening->manifest, &opening->asked, it->candidate->engine, &settings);
    if (status != WEIR_OK)
        return status;
    if (opening->coverage >= 1 && strcmp(it->candidate->provider, "cpu") != 0)
        wi_settings_all_on_provider(&settings, it->candidate->engine);
    weir_engine_load request = {.struct_size = sizeof request,
                                .path = opening->manifest.model_file,
                                .settings = settings.all,
                                .setting_count = settings.count,
                                .progress = opening->given.progress,
                                .progress_user = opening->given.user,
                                .provider = it->candidate->provider};
    status = wi_instance_load(it->instance, &request);
    wi_settings_free(&settings);
    return status;
}

static const weir_provider_share *share_of(const weir_model_details *info, const char *provider)
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
    const weir_provider_share *own = share_of(&info, provider), *cpu = share_of(&info, "cpu");
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

static weir_status go(trial *it, bool warm)
{
    enter(it, WEIR_STAGE_DETECT);
    weir_status status = detect(it);
    if (status != WEIR_OK)
        return status;
    enter(it, WEIR_STAGE_CONSTRUCT);
    status = construct(it);
    if (status != WEIR_OK)
        return status;
    enter(it, WEIR_STAGE_LOAD);
    status = load(it);
    if (status == WEIR_OK)
        status = covers(it);
    /* Without a warm-up the first request is the first run. */
    if (status != WEIR_OK || !warm || !it->instance->engine->warm_up)
        return status;
    enter(it, WEIR_STAGE_FIRST_RUN);
    return it->instance->engine->warm_up(it->instance->loaded);
}

/* Its end ---------------------------------------------------------------------------------------------------------- */

/* All candidates of a device that is lost are. */
static void note_loss(wi_opening *opening, size_t rank)
{
    const weir_candidate *all = opening->choice->candidates;
    for (size_t i = 0; i < opening->choice->accepted; i++)
        if (strcmp(all[i].device, all[rank].device) == 0)
            opening->chances[i].lost = true;
}

void wi_open_spoil(wi_opening *opening, size_t rank, weir_status status)
{
    if (status == WEIR_ERR_DEVICE_LOST)
        note_loss(opening, rank);
    /* Memory may be there another time. */
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        opening->chances[rank].dead = true;
}

void wi_open_failed(wi_opening *opening, size_t rank, const weir_attempt *attempt)
{
    char name[WI_TOLD_BYTES];
    wi_told_notice(opening, "%s: %s failed (%s): %s", opening->manifest.name,
                   wi_told_candidate(&opening->choice->candidates[rank], name), weir_stage_name(attempt->stage),
                   attempt->reason);
}

/* What the engine has kept is part of why. */
static void give_up(trial *it, weir_status status)
{
    double ms = clock_ms() - it->started;
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weir_detail());
    weir_attempt attempt = {
        .stage = it->stage, .status = status, .reason = reason, .ms = ms, .parts = it->parts, .of = it->of};
    if (it->instance) {
        attempt.bytes = wi_instance_peak(it->instance);
        if (wi_instance_close(it->instance) != WEIR_OK) {
            size_t length = strlen(reason);
            snprintf(reason + length, sizeof reason - length, "; %.400s", weir_detail());
        }
        free(it->instance);
    }
    wi_open_spoil(it->opening, it->rank, status);
    (void)wi_record_add(it->opening, it->rank, &attempt);
    wi_open_failed(it->opening, it->rank, &attempt);
    (void)weir_fail(status, "%s", reason);
}

weir_status wi_open_try(wi_opening *opening, size_t rank, bool warm, wi_instance **out)
{
    trial it = {.opening = opening, .rank = rank, .candidate = &opening->choice->candidates[rank]};
    weir_status status = go(&it, warm);
    if (status != WEIR_OK) {
        give_up(&it, status);
        return status;
    }
    weir_attempt attempt = {.stage = it.stage,
                            .ms = clock_ms() - it.started,
                            .bytes = wi_instance_peak(it.instance),
                            .reason = "",
                            .parts = it.parts,
                            .of = it.of};
    it.instance->rank = rank;
    it.instance->on_cpu = it.on_cpu;
    it.instance->of = it.of;
    it.instance->attempt = wi_record_add(opening, rank, &attempt);
    *out = it.instance;
    return WEIR_OK;
}
