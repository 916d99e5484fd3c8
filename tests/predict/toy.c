/* toy.c: see toy.h. */
#include "toy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

toy_state toy = {.run = TOY_RUN, .version = "1.0 of the toys"};

struct weir_engine_model {
    weir_client *client;
    weir_block weights, cache;
    uint64_t runs;
};

static weir_status probe(weir_engine_probe *out)
{
    out->available = true;
    snprintf(out->version, sizeof out->version, "%s", toy.version);
    out->library[0] = out->missing[0] = '\0';
    return WEIR_OK;
}

static uint64_t number(const weir_engine_load *load, const char *key, uint64_t otherwise)
{
    for (size_t i = 0; i < load->setting_count; i++)
        if (strcmp(load->settings[i].key, key) == 0)
            return strtoull(load->settings[i].value, NULL, 10);
    return otherwise;
}

static weir_status plan(const weir_engine_load *load, weir_engine_plan *out)
{
    toy.plans++;
    toy.quick_plans += load->quick;
    if (toy.plan != WEIR_OK)
        return weir_fail(toy.plan, "the toy was told to fail");
    bool device = load->provider && strcmp(load->provider, "cuda") == 0;
    uint64_t layers = number(load, "gpu_layers", TOY_LAYERS), context = number(load, "context", 1024);
    layers = !device || layers > TOY_LAYERS ? TOY_LAYERS : layers;
    out->bytes[WEIR_CLASS_WEIGHTS] = TOY_WEIGHTS * layers / TOY_LAYERS;
    out->bytes[WEIR_CLASS_KV] = context * TOY_CELL * layers / TOY_LAYERS;
    out->bytes[WEIR_CLASS_ACTIVATIONS] = out->passing[WEIR_CLASS_ACTIVATIONS] = TOY_FORESEEN;
    out->exact[WEIR_CLASS_WEIGHTS] = out->exact[WEIR_CLASS_KV] = toy.exact;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        out->source[i] = load->quick ? WEIR_PREDICTED_METADATA : WEIR_PREDICTED_DRY_RUN;
    out->context = context;
    out->layers = device ? TOY_LAYERS : 0;
    out->layers_on_device = device ? (uint32_t)layers : 0;
    return WEIR_OK;
}

static weir_status take(weir_client *client, size_t bytes, weir_class memory_class, weir_block *out)
{
    weir_request request = WEIR_INIT(weir_request);
    request.bytes = bytes;
    request.memory_class = memory_class;
    return weir_alloc_with(client, &request, out);
}

static void give(weir_client *client, weir_block block)
{
    if (block.pointer && weir_free_block(client, block, WEIR_STREAM_HOST) != WEIR_OK)
        abort();
}

static void unload(weir_engine_model *model)
{
    give(model->client, model->weights);
    give(model->client, model->cache);
    free(model);
}

static weir_status load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    if (!model)
        abort();
    model->client = load->places[0].client;
    weir_status status = take(model->client, TOY_WEIGHTS, WEIR_CLASS_WEIGHTS, &model->weights);
    if (status == WEIR_OK)
        status = take(model->client, number(load, "context", 1024) * TOY_CELL, WEIR_CLASS_KV, &model->cache);
    if (status != WEIR_OK) {
        unload(model);
        return status;
    }
    *out = model;
    return WEIR_OK;
}

static weir_status infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    weir_block block;
    (void)inference;
    weir_status status = take(model->client, toy.run, WEIR_CLASS_ACTIVATIONS, &block);
    if (status != WEIR_OK)
        return status;
    give(model->client, block);
    if (toy.refuse)
        return weir_fail(WEIR_ERR_INVALID, "the toy was told to refuse");
    model->runs++;
    out->count = 0;
    return WEIR_OK;
}

static void release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model, (void)outputs;
}

static weir_status metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    out->runs = model->runs;
    return WEIR_OK;
}

static weir_status info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    out->version = toy.version;
    out->provider = "cpu";
    out->architecture = "toy";
    return WEIR_OK;
}

void toy_register(const char *name)
{
    static weir_engine table;
    table = (weir_engine){.abi = WEIR_ENGINE_ABI,
                          .struct_size = sizeof table,
                          .name = name,
                          .summary = "a toy",
                          .suffixes = ".toy",
                          .probe = probe,
                          .plan = plan,
                          .load = load,
                          .infer = infer,
                          .release_outputs = release,
                          .metrics = metrics,
                          .info = info,
                          .unload = unload};
    if (weir_engine_register(&table) != WEIR_OK)
        abort();
}
