/* Opens, loads and closes an instance of a model, and copies the details that its engine tells. */
#include "factory/model/model.h"
#include "base/values.h"
#include "runtime/runtime.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/stats.h>

#include <stdio.h>

enum { SUSPENDS_SINCE = 4 }; /* the version of an engine's table */

weir_status wi_instance_open(const weir_engine *engine, weir_runtime *runtime, const weir_client_options *options,
                             weir_client *given, atomic_bool *lent, wi_instance **out)
{
    wi_instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model");
    instance->engine = engine;
    weir_status status = given ? WEIR_OK : weir_client_create(runtime, options, &instance->client);
    if (given) {
        instance->client = given;
        instance->lent = lent;
        atomic_store(lent, true);
    }
    if (status != WEIR_OK)
        free(instance);
    else
        *out = instance;
    return status;
}

void wi_instance_free(wi_instance *instance)
{
    if (instance)
        free(instance->forecast);
    free(instance);
}

/* A load goes on without it. */
static void instance_predict(wi_instance *instance, const weir_engine_load *load, bool quick)
{
    wi_saved_detail saved;
    const char *device = wi_runtime_device(weir_client_runtime(instance->client));
    wi_forecast_ask ask = {.table = instance->engine,
                           .engine = instance->engine->name,
                           .path = load->path,
                           .provider = load->provider                    ? load->provider
                                       : strncmp(device, "cuda", 4) == 0 ? "cuda"
                                                                         : "cpu",
                           .device = device,
                           .version = "",
                           .settings = load->settings,
                           .setting_count = load->setting_count,
                           .quick = quick};
    wi_detail_save(&saved);
    instance->forecast = instance->forecast ? instance->forecast : malloc(sizeof *instance->forecast);
    if (instance->forecast && wi_forecast_make(&ask, instance->forecast) != WEIR_OK) {
        free(instance->forecast);
        instance->forecast = NULL;
    }
    if (instance->forecast)
        wi_ledger_note_predicted(&weir_client_runtime(instance->client)->ledger, &instance->client->account,
                                 instance->forecast->prediction.peak_total);
    wi_detail_restore(&saved);
}

/* `loaded`: it has just been; else it is about to be unloaded. A peak that a failed run may have reached teaches nothing: who
 * asks for too much must not raise what the model is thought to take, in every process, for good. What cannot be written
 * down is lost, and no more. */
static void instance_learn(wi_instance *instance, bool loaded)
{
    wi_saved_detail saved;
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    const weir_engine *engine = instance->engine;
    if (!instance->forecast || !wi_option_predictions())
        return;
    wi_detail_save(&saved);
    bool ran = !loaded && engine->metrics && engine->metrics(instance->loaded, &metrics) == WEIR_OK &&
               metrics.runs > 0 && wi_instance_peak(instance) > atomic_load(&instance->failed_peak);
    if ((loaded || ran) && engine->info(instance->loaded, &info) == WEIR_OK &&
        weir_client_info(instance->client, &stats) == WEIR_OK && stats.residency == WEIR_RESIDENT &&
        wi_forecast_learn(instance->forecast, info.version ? info.version : "", &stats, loaded, ran) != WEIR_OK)
        weir_log(WEIR_LOG_DEBUG, "%s: what it took is not remembered: %s", stats.name, weir_detail());
    if (!loaded && wi_forecast_count(instance->forecast) != WEIR_OK)
        weir_log(WEIR_LOG_DEBUG, "%s: its load is not counted: %s", wi_client_name(instance->client), weir_detail());
    wi_detail_restore(&saved);
}

/* What runs and caches take beside the weights; an eighth of the budget where nothing is predicted. */
static uint64_t instance_besides(const wi_instance *instance)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    const wi_forecast *known = instance->forecast;
    if (known && known->prediction.peak_total > known->prediction.peak[WEIR_CLASS_WEIGHTS])
        return known->prediction.peak_total - known->prediction.peak[WEIR_CLASS_WEIGHTS];
    return weir_snapshot(weir_client_runtime(instance->client), &stats, NULL, 0, NULL) == WEIR_OK ? stats.budget / 8
                                                                                                  : 0;
}

/* Weights without room may begin in memory of the host's, where that is other memory, is shown, and the engine can have pieces
 * come. Otherwise the model is loaded whole, or refused. */
static void instance_begin_overflow(wi_instance *instance)
{
    wi_saved_detail saved;
    instance->overflows &= instance->engine->abi >= SUSPENDS_SINCE && instance->engine->suspend &&
                           !wi_kind_is_own(weir_client_runtime(instance->client), WEIR_KIND_PINNED);
    if (!instance->overflows)
        return;
    wi_detail_save(&saved);
    instance->room = instance_besides(instance);
    instance->overflows = weir_client_set_overflow(instance->client, true, instance->room) == WEIR_OK;
    if (!instance->overflows)
        weir_log(WEIR_LOG_INFO, "%s is loaded whole: %s", wi_client_name(instance->client), weir_detail());
    wi_detail_restore(&saved);
}

weir_status wi_instance_load(wi_instance *instance, const weir_engine_load *load, bool quick)
{
    weir_engine_place place = {weir_client_runtime(instance->client), instance->client};
    weir_engine_load request = *load;
    request.places = &place;
    request.place_count = 1;
    weir_engine_model *loaded = NULL;
    instance_predict(instance, load, quick);
    uint64_t told = atomic_load(&instance->client->overflow); /* of a caller's client */
    instance_begin_overflow(instance);
    weir_status status = instance->engine->load(&request, &loaded);
    atomic_store(&instance->client->overflow, told);
    if (status != WEIR_OK)
        return status;
    instance->loaded = loaded;
    instance_learn(instance, true);
    return WEIR_OK;
}

void wi_instance_prepare(const wi_instance *instance)
{
    /* what runs leave behind need not be kept, or is little */
    const weir_prepare_options all_else = {.struct_size = sizeof all_else,
                                           .drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH) |
                                                   WEIR_CLASS_BIT(WEIR_CLASS_ACTIVATIONS)};
    wi_saved_detail saved;
    if (instance->engine->abi < SUSPENDS_SINCE || !instance->engine->suspend)
        return;
    wi_detail_save(&saved);
    if (weir_client_prepare(instance->client, &all_else) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s: no host memory is made ready for its first suspend: %s",
                 wi_client_name(instance->client), weir_detail());
    wi_detail_restore(&saved);
}

weir_status wi_instance_close(wi_instance *instance)
{
    weir_engine_model *loaded = instance->loaded;
    if (loaded)
        instance_learn(instance, false);
    instance->loaded = NULL;
    if (loaded)
        instance->engine->unload(loaded);
    if (instance->lent) {
        atomic_store(instance->lent, false);
        return WEIR_OK;
    }
    if (weir_client_destroy(instance->client) == WEIR_OK)
        return WEIR_OK;
    weir_log(WEIR_LOG_ERROR, "after %s: %s", loaded ? "unloading" : "a failed load", weir_detail());
    /* Not WEIR_ERR_BUSY, which would mean that the model is still loaded. */
    return weir_fail(WEIR_ERR_ENGINE, "the model is unloaded, but the engine %s kept memory: %s",
                     instance->engine->name, weir_detail());
}

uint64_t wi_instance_peak(const wi_instance *instance)
{
    return wi_ledger_peak(&weir_client_runtime(instance->client)->ledger, &instance->client->account);
}

/* Of failed runs at once the highest counts. */
void wi_instance_failed_run(wi_instance *instance, uint64_t before)
{
    uint64_t peak = wi_instance_peak(instance), known = atomic_load(&instance->failed_peak);
    while (peak > before && peak > known && !atomic_compare_exchange_weak(&instance->failed_peak, &known, peak))
        continue;
}

weir_status wi_engine_lacks(const weir_engine *engine, const char *what)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine %s has no %s", engine->name, what);
}

/* Copies ----------------------------------------------------------------------------------------------------------- */

/* `from` NULL: room alone. */
static void *pack(wi_packer *to, const void *from, size_t count)
{
    char *place = to->memory ? to->memory + to->used : NULL;
    to->used += count;
    if (place && from && count > 0)
        memcpy(place, from, count);
    return place;
}

static const char *pack_text(wi_packer *to, const char *text)
{
    return text ? pack(to, text, strlen(text) + 1) : NULL;
}

void wi_request_pack(wi_packer *to, const weir_inference *from, bool data, weir_inference *out)
{
    weir_tensor *inputs = pack(to, NULL, from->input_count * sizeof *inputs);
    weir_setting *settings = pack(to, NULL, from->setting_count * sizeof *settings);
    *out = *from;
    out->inputs = inputs;
    out->settings = settings;
    for (size_t i = 0; i < from->input_count; i++) {
        const weir_tensor *input = wi_tensor_at(from->inputs, i);
        weir_tensor copy = {0};
        memcpy(&copy, input, wi_min(input->struct_size, sizeof copy));
        copy.struct_size = sizeof copy;
        copy.name = pack_text(to, input->name);
        if (data) {
            to->used = wi_round_up(to->used, WI_DATA_ALIGNMENT);
            copy.data = pack(to, input->data, input->bytes);
        }
        if (inputs)
            inputs[i] = copy;
    }
    for (size_t i = 0; i < from->setting_count; i++) {
        const weir_setting copy = {pack_text(to, from->settings[i].key), pack_text(to, from->settings[i].value)};
        if (settings)
            settings[i] = copy;
    }
}

static void pack_names(wi_packer *to, weir_port *ports, const weir_port *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = pack_text(to, from[i].name);
        if (ports)
            ports[i].name = name;
    }
}

/* Arrays first, for their alignment. */
static void pack_info(wi_packer *to, const weir_model_details *from, weir_model_details *out)
{
    weir_port *inputs = pack(to, from->inputs, from->input_count * sizeof *from->inputs);
    weir_port *outputs = pack(to, from->outputs, from->output_count * sizeof *from->outputs);
    weir_provider_share *shares = pack(to, from->shares, from->share_count * sizeof *from->shares);
    *out = *from;
    out->inputs = inputs;
    out->outputs = outputs;
    out->shares = shares;
    pack_names(to, inputs, from->inputs, from->input_count);
    pack_names(to, outputs, from->outputs, from->output_count);
    for (size_t i = 0; i < from->share_count; i++) {
        const char *provider = pack_text(to, from->shares[i].provider);
        if (shares)
            shares[i].provider = provider;
    }
    out->engine = pack_text(to, from->engine);
    out->version = pack_text(to, from->version);
    out->provider = pack_text(to, from->provider);
    out->architecture = pack_text(to, from->architecture);
    out->remarks = pack_text(to, from->remarks);
}

wi_info_copy *wi_info_copy_make(const weir_model_details *info, size_t rank, bool answered)
{
    wi_packer to = {NULL, 0};
    weir_model_details counted;
    pack_info(&to, info, &counted);
    wi_info_copy *copy = malloc(sizeof *copy + to.used);
    if (!copy)
        return NULL;
    to = (wi_packer){copy->memory, 0};
    pack_info(&to, info, &copy->info);
    copy->rank = rank;
    copy->answered = answered;
    copy->next = NULL;
    return copy;
}

const wi_info_copy *wi_info_copy_find(const wi_info_copy *list, size_t rank, bool answered)
{
    while (list && (list->rank != rank || list->answered != answered))
        list = list->next;
    return list;
}

void wi_info_copy_free(wi_info_copy *list)
{
    for (wi_info_copy *next; list; list = next) {
        next = list->next;
        free(list);
    }
}
