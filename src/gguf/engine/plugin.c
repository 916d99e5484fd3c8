/* plugin.c: the table by which weir knows this engine. */
#include "wg.h"
#include <weir/residency.h>

#include <stdio.h>
#include <string.h>

static const weir_engine table; /* not by its entry: a program may export one of the same name */

static weir_status gguf_plugin_probe(weir_engine_probe *out)
{
    const wg_library *library = NULL;
    weir_engine_probe found = {.struct_size = out->struct_size};
    if (wg_library_get("", &library) == WEIR_OK) {
        found.available = true;
        snprintf(found.library, sizeof found.library, "%s", library->file);
        snprintf(found.version, sizeof found.version, "%s", library->version);
    } else {
        snprintf(found.missing, sizeof found.missing, "%s", weir_detail());
    }
    memcpy(out, &found, out->struct_size < sizeof found ? out->struct_size : sizeof found);
    return WEIR_OK;
}

/* Describes the provider by its libraries, without a look at devices; weir/select.h lists the devices. */
static void describe_cuda(weir_engine_provider *out)
{
    if (out->state != WEIR_PROVIDER_HERE)
        return;
    weir_status status = wg_devices_find("", out->library, sizeof out->library);
    if (status == WEIR_OK) {
        status = wg_devices_needs(out->missing, sizeof out->missing);
        out->state = status == WEIR_OK ? WEIR_PROVIDER_HERE : WEIR_PROVIDER_NOT_LOADABLE;
        return;
    }
    out->state = WEIR_PROVIDER_NOT_BUILT;
    out->library[0] = '\0';
    snprintf(out->missing, sizeof out->missing, "%s", weir_detail());
}

static weir_status gguf_plugin_provider(size_t index, weir_engine_provider *out)
{
    static const char *const names[] = {"cuda", "cpu"};
    weir_engine_probe here = {.struct_size = sizeof here};
    weir_engine_provider found = {.struct_size = out->struct_size};
    if (index >= 2)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the engine gguf has two providers");
    weir_status status = gguf_plugin_probe(&here);
    snprintf(found.name, sizeof found.name, "%s", names[index]);
    found.state = here.available ? WEIR_PROVIDER_HERE : WEIR_PROVIDER_NO_LIBRARY;
    snprintf(found.library, sizeof found.library, "%s", here.library);
    snprintf(found.version, sizeof found.version, "%s", here.version);
    snprintf(found.missing, sizeof found.missing, "%s", here.missing);
    if (index == 0)
        describe_cuda(&found);
    memcpy(out, &found, out->struct_size < sizeof found ? out->struct_size : sizeof found);
    return status;
}

static void gguf_plugin_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    if (wt_release_outputs(model->devices.host, outputs) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "gguf: results could not be given back: %s", weir_detail());
}

static weir_status gguf_plugin_embed(weir_engine_model *model, const weir_inference *inference,
                                     const wg_run_settings *settings, wt_run *run, weir_outputs *out, uint64_t *in)
{
    weir_status status = wt_runs_enter(&model->runs, run);
    if (status != WEIR_OK)
        return status;
    double begin = wt_seconds_now();
    status = wg_embed(model, inference, settings, run, out, in);
    wt_runs_leave(&model->runs, wt_seconds_now() - begin);
    if (!wt_run_was_stopped(&model->runs, run) || status != WEIR_OK)
        return status;
    gguf_plugin_release_outputs(model, out);
    return weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled");
}

static weir_status gguf_plugin_run(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                   void *user, weir_outputs *out)
{
    wg_run_settings settings = model->defaults;
    wt_run here;
    uint64_t in = 0, made = 0;
    weir_status status = wt_choices_take(&wg_choices, inference->settings, inference->setting_count, NULL, &settings);
    if (status != WEIR_OK)
        return status;
    wt_run_begin(&model->runs, &here, inference->id);
    status = wg_health(model);
    if (status == WEIR_OK)
        status = model->embeds ? gguf_plugin_embed(model, inference, &settings, &here, out, &in)
                               : wg_generate(model, inference, &settings, &here, piece, user, out, &in, &made);
    wt_run_end(&model->runs, &here, status, in, made);
    return status;
}

static weir_status gguf_plugin_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    return gguf_plugin_run(model, inference, NULL, NULL, out);
}

static weir_status infer_stream(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                void *user, weir_outputs *out)
{
    if (model->embeds)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "this model gives embeddings, which come whole");
    return gguf_plugin_run(model, inference, piece, user, out);
}

/* Computes one short run, so that graphs, work buffers and page tables exist. */
static weir_status gguf_plugin_warm_up(weir_engine_model *model)
{
    static const weir_setting one[] = {{"tokens", "1"}};
    int32_t token = model->library->llama_vocab_bos(model->vocab);
    return wt_warm_up(&table, model, token < 0 ? 0 : token, one, 1);
}

/* What sequences have left behind; of a model under way that is between two decodes, too. */
static weir_status gguf_plugin_trim(weir_engine_model *model, uint64_t wanted, uint64_t *released)
{
    (void)wanted;
    *released = wg_cache_rest(model, true);
    return WEIR_OK;
}

/* No run is under way: the pages of sequences that are gone need not wait for somebody who needs memory. A graph's
 * buffers and the outputs' are written by each step before it reads them. */
static weir_status gguf_plugin_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)wg_cache_rest(model, true);
    model->library->llama_synchronize(model->context);
    out->drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH) | WEIR_CLASS_BIT(WEIR_CLASS_ACTIVATIONS);
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return WEIR_OK;
}

static weir_status gguf_plugin_metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    return wt_runs_metrics(&model->runs, out);
}

static weir_status gguf_plugin_info(weir_engine_model *model, weir_model_details *out)
{
    weir_model_details about = {
        .struct_size = out->struct_size,
        .engine = "gguf",
        .version = model->version,
        .provider = model->devices.count > 0 ? "cuda" : "cpu",
        .architecture = model->architecture,
        .inputs = model->inputs,
        .input_count = model->input_count,
        .outputs = model->outputs,
        .output_count = model->output_count,
        .generates = !model->embeds,
        .remarks = model->remarks,
        .shares = model->shares,
        .share_count = model->share_count,
    };
    memcpy(out, &about, out->struct_size < sizeof about ? out->struct_size : sizeof about);
    return WEIR_OK;
}

static const weir_engine table = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof(weir_engine),
    .name = "gguf",
    .summary = "GGUF models through llama.cpp, on the host and on CUDA",
    .suffixes = ".gguf",
    .probe = gguf_plugin_probe,
    .plan = wg_plan,
    .load = wg_load,
    .infer = gguf_plugin_infer,
    .infer_stream = infer_stream,
    .release_outputs = gguf_plugin_release_outputs,
    .cancel = wg_cancel,
    .warm_up = gguf_plugin_warm_up,
    .trim = gguf_plugin_trim,
    .suspend = gguf_plugin_suspend,
    .health = wg_health,
    .metrics = gguf_plugin_metrics,
    .info = gguf_plugin_info,
    .unload = wg_unload,
    .provider = gguf_plugin_provider,
};

WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &table : NULL;
}
