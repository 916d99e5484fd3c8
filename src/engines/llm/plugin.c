/* plugin.c: the table by which weir knows this engine. */
#include "wl.h"

#include "engines/command.h"

#include <weir/residency.h>

#include <stdio.h>
#include <string.h>

static const weir_engine table; /* not by its entry: a program may export one of the same name */

/* Opens the library, so that memory that the library takes once in a process is charged to no model. */
static weir_status llm_plugin_probe(weir_engine_probe *out)
{
    weir_engine_probe found = {.struct_size = out->struct_size};
    const wl_library *library;
    found.available = wl_library_use(&library) == WEIR_OK;
    if (found.available) {
        snprintf(found.library, sizeof found.library, "%s", library->file);
        snprintf(found.version, sizeof found.version, "%.63s", library->version);
        wl_library_leave();
    } else {
        snprintf(found.missing, sizeof found.missing, "%s", weir_detail());
    }
    memcpy(out, &found, out->struct_size < sizeof found ? out->struct_size : sizeof found);
    return WEIR_OK;
}

static weir_status llm_plugin_provider(size_t index, weir_engine_provider *out)
{
    static const char *const names[] = {"cuda", "cpu"};
    weir_engine_provider found = {.struct_size = out->struct_size};
    bool cuda = false;
    if (index >= 2)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the engine llm has two providers");
    bool here =
        wl_library_look(found.library, sizeof found.library, found.version, sizeof found.version, &cuda) == WEIR_OK;
    snprintf(found.name, sizeof found.name, "%s", names[index]);
    found.state = !here ? WEIR_PROVIDER_NO_LIBRARY : index == 0 && !cuda ? WEIR_PROVIDER_NOT_BUILT : WEIR_PROVIDER_HERE;
    if (found.state == WEIR_PROVIDER_HERE && index == 0 &&
        wl_devices_needs(found.missing, sizeof found.missing) != WEIR_OK)
        found.state = WEIR_PROVIDER_NOT_LOADABLE;
    if (!here)
        snprintf(found.missing, sizeof found.missing, "%s", weir_detail());
    else if (found.state == WEIR_PROVIDER_NOT_BUILT)
        snprintf(found.missing, sizeof found.missing,
                 "%.300s has no CUDA; run " WEIR_ENGINES_COMMAND " --cuda onnxruntime-cuda onnxruntime-genai-cuda",
                 found.library);
    memcpy(out, &found, out->struct_size < sizeof found ? out->struct_size : sizeof found);
    return WEIR_OK;
}

static weir_status llm_plugin_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    return wl_run_model(model, inference, NULL, NULL, out);
}

static void llm_plugin_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    if (wt_release_outputs(wl_account_client(model->account), outputs) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "llm: results could not be given back: %s", weir_detail());
}

/* Runs a single token, so that kernels and page tables are ready. */
static weir_status llm_plugin_warm_up(weir_engine_model *model)
{
    static const weir_setting one[] = {{"tokens", "1"}, {"temperature", "0"}, {"chat", "0"}};
    return wt_warm_up(&table, model, 0, one, 3);
}

static weir_status llm_plugin_trim(weir_engine_model *model, uint64_t wanted, uint64_t *released)
{
    (void)wanted;
    *released = wl_batch_rest(model);
    return WEIR_OK;
}

/* What GenAI has for searching is made for each run, and its engine's blocks are given up here; the sessions' memory is
 * read alone. */
static weir_status llm_plugin_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    wl_batch_settle(model);
    wl_account_settle(model->account);
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return WEIR_OK;
}

static weir_status llm_plugin_health(weir_engine_model *model)
{
    (void)model;
    return WEIR_OK;
}

static weir_status llm_plugin_metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    return wt_runs_metrics(&model->runs, out);
}

static weir_status llm_plugin_info(weir_engine_model *model, weir_model_details *out)
{
    weir_model_details about = {
        .struct_size = out->struct_size,
        .engine = "llm",
        .version = model->library->version,
        .provider = model->cuda ? "cuda" : "cpu",
        .architecture = model->architecture,
        .inputs = model->inputs,
        .input_count = WL_INPUTS,
        .outputs = model->outputs,
        .output_count = WL_OUTPUTS,
        .generates = true,
        .remarks = model->remarks,
        .shares = &model->share,
        .share_count = 1,
    };
    memcpy(out, &about, out->struct_size < sizeof about ? out->struct_size : sizeof about);
    return WEIR_OK;
}

static const weir_engine table = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof(weir_engine),
    .name = "llm",
    .summary = "language models in ONNX form through ONNX Runtime GenAI, on the host and on CUDA",
    .suffixes = "genai_config.json",
    .probe = llm_plugin_probe,
    .plan = wl_plan,
    .load = wl_load,
    .infer = llm_plugin_infer,
    .infer_stream = wl_run_model,
    .release_outputs = llm_plugin_release_outputs,
    .cancel = wl_cancel,
    .warm_up = llm_plugin_warm_up,
    .trim = llm_plugin_trim,
    .suspend = llm_plugin_suspend,
    .health = llm_plugin_health,
    .metrics = llm_plugin_metrics,
    .info = llm_plugin_info,
    .unload = wl_unload,
    .provider = llm_plugin_provider,
};

WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &table : NULL;
}
