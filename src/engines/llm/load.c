/* load.c: a model is read, loaded with its sessions' memory from the client, described, and given back. */
#include "wl.h"

#include "engines/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where it lies ----------------------------------------------------------------------------------------------- */

static weir_status llm_load_check_place(const weir_engine_load *load, bool planning, bool *cuda)
{
    weir_runtime_details runtime = WEIR_INIT(weir_runtime_details);
    *cuda = load->provider && strcmp(load->provider, "cuda") == 0;
    if (!load->path || (!planning && load->place_count == 0) || (load->place_count > 0 && !load->places))
        return weir_fail(WEIR_ERR_INVALID, "the engine llm needs a path and a place with a client");
    if (load->provider && !*cuda && strcmp(load->provider, "cpu") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the engine llm has no provider '%.32s'; it has cuda and cpu",
                         load->path, load->provider);
    if (load->place_count == 0)
        return WEIR_OK;
    if (!load->places[0].client)
        return weir_fail(WEIR_ERR_INVALID, "%s: place 0 has no client", load->path);
    weir_status status = weir_runtime_info(weir_client_runtime(load->places[0].client), &runtime);
    if (status != WEIR_OK)
        return status;
    bool on_cuda = strncmp(runtime.device, "cuda:", 5) == 0;
    if (!on_cuda && strcmp(runtime.device, "host") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the engine llm runs on host and cuda, not on %s", load->path,
                         runtime.device);
    if (load->provider && on_cuda != *cuda)
        return weir_fail(WEIR_ERR_INVALID, "%s: the provider '%s' does not run on %s", load->path, load->provider,
                         runtime.device);
    *cuda = on_cuda;
    return WEIR_OK;
}

static weir_status llm_load_read_request(const weir_engine_load *load, bool planning, weir_engine_model *model)
{
    weir_status status = llm_load_check_place(load, planning, &model->cuda);
    if (status == WEIR_OK)
        status = wl_settings_of_load(load->settings, load->setting_count, &model->load, &model->defaults);
    if (status == WEIR_OK)
        status = wl_folder_read(load->path, &model->folder);
    if (status != WEIR_OK)
        return status;
    /* GenAI fills shorter prompts up behind their end: where keys and values are appended, that is between them. */
    if (model->load.sequences > 1 && !model->folder.shares_cache && !model->folder.paged)
        return weir_fail(
            WEIR_ERR_UNSUPPORTED,
            "%s: the setting 'sequences' is %lld, and runs of this model are not decoded together: its keys "
            "and values are no buffer that is shared (\"past_present_share_buffer\")",
            model->folder.path, (long long)model->load.sequences);
    int64_t usual = model->folder.context < 4096 ? model->folder.context : 4096;
    int64_t wanted = model->load.context ? model->load.context : usual;
    if (wanted > model->folder.context)
        return weir_fail(WEIR_ERR_INVALID, "%s: the setting 'context' is %lld, and the model has positions for %lld",
                         model->folder.path, (long long)wanted, (long long)model->folder.context);
    model->longest = (uint32_t)wanted;
    if (model->load.batch && model->load.sequences > 1 && !model->folder.paged)
        return weir_fail(WEIR_ERR_INVALID,
                         "%s: the setting 'batch' is for models of one sequence, and 'sequences' is %lld: GenAI reads "
                         "prompts of several in one go",
                         model->folder.path, (long long)model->load.sequences);
    return WEIR_OK;
}

/* ---- GenAI's model ----------------------------------------------------------------------------------------------- */

weir_status wl_explain(weir_engine_model *model, const wl_phase *phase, const char *text, const char *doing)
{
    char refusal[1024];
    snprintf(refusal, sizeof refusal, "%s", text);
    weir_status refused = wl_phase_refused(phase, refusal, sizeof refusal);
    if (refused != WEIR_OK)
        return weir_fail(refused, "%s", refusal);
    if (strstr(text, "bad_alloc"))
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s: there is no host memory: %s", model->folder.path, doing, text);
    return weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime GenAI cannot %s: %s", model->folder.path, doing, text);
}

/* Blocks for the longest text of each sequence. */
static int64_t blocks_of(const weir_engine_model *model)
{
    return (model->longest + model->folder.block - 1) / model->folder.block * model->load.sequences;
}

/* What the folder says, but for what weir decides. */
static void write_overlay(const weir_engine_model *model, char *out, size_t capacity)
{
    const wl_load_settings *load = &model->load;
    char threads[64] = "", chunk[48] = "", together[160] = "";
    if (model->threads)
        snprintf(threads, sizeof threads, "\"intra_op_num_threads\":%lld", (long long)model->threads);
    if (load->batch)
        snprintf(chunk, sizeof chunk, ",\"chunk_size\":%lld", (long long)load->batch);
    if (model->folder.paged)
        snprintf(together, sizeof together,
                 ",\"engine\":{\"dynamic_batching\":{\"max_batch_size\":%lld,\"num_blocks\":%lld}}",
                 (long long)load->sequences, (long long)blocks_of(model));
    else if (load->sequences > 1)
        snprintf(together, sizeof together, ",\"engine\":{\"static_batching\":{\"max_batch_size\":%lld}}",
                 (long long)load->sequences);
    snprintf(out, capacity,
             "{\"model\":{\"decoder\":{\"session_options\":{%s}}},\"search\":{\"max_length\":%u,\"min_length\":0,"
             "\"num_beams\":1,\"num_return_sequences\":1,\"batch_size\":1,\"random_seed\":%lld%s}%s}",
             threads, model->longest, (long long)model->defaults.seed, chunk, together);
}

static weir_status configure(weir_engine_model *model, oga_config *config, char *text, size_t capacity)
{
    const wl_library *lib = model->library;
    char overlay[512];
    write_overlay(model, overlay, sizeof overlay);
    bool failed = wl_failed(lib, lib->OgaConfigClearProviders(config), text, capacity) ||
                  wl_failed(lib, lib->OgaConfigOverlay(config, overlay), text, capacity);
    if (!failed && model->cuda)
        failed = wl_failed(lib, lib->OgaConfigAppendProvider(config, "cuda"), text, capacity);
    return failed ? WEIR_ERR_ENGINE : WEIR_OK;
}

static weir_status llm_load_make_model(weir_engine_model *model)
{
    const wl_library *lib = model->library;
    oga_config *config = NULL;
    wl_phase phase;
    wt_ahead ahead;
    char text[1024] = "";
    wt_ahead_begin(&ahead, model->folder.path);
    wl_phase_begin(&phase, WL_LOADING, model->account);
    bool made = !wl_failed(lib, lib->OgaCreateConfig(model->folder.path, &config), text, sizeof text) &&
                configure(model, config, text, sizeof text) == WEIR_OK &&
                !wl_failed(lib, lib->OgaCreateModelFromConfig(config, &model->model), text, sizeof text) &&
                !wl_failed(lib, lib->OgaCreateTokenizer(model->model, &model->tokenizer), text, sizeof text);
    if (config)
        lib->OgaDestroyConfig(config);
    wl_phase_end(&phase);
    wt_ahead_end(&ahead);
    return made ? WEIR_OK : wl_explain(model, &phase, text, "load it");
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

void wl_unload(weir_engine_model *model)
{
    const wl_library *lib = model->library;
    wl_phase phase;
    wl_batch_drop(model);
    if (model->account)
        wl_phase_begin(&phase, WL_RUNNING, model->account);
    if (model->tokenizer)
        lib->OgaDestroyTokenizer(model->tokenizer);
    if (model->model)
        lib->OgaDestroyModel(model->model);
    if (model->account)
        wl_phase_end(&phase);
    wl_account_drop(model->account);
    if (model->library)
        wl_library_leave();
    if (model->on_device)
        wl_devices_close();
    weir_cores_close(model->cores);
    free(model->defaults.copies);
    pthread_mutex_destroy(&model->words);
    wt_runs_close(&model->runs);
    free(model);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void llm_load_describe(weir_engine_model *model)
{
    const wl_folder *folder = &model->folder;
    memcpy(model->inputs, wt_prompt_ports, sizeof wt_prompt_ports);
    memcpy(model->outputs, wt_answer_ports, sizeof wt_answer_ports);
    model->outputs[WT_ANSWER_PORTS] = (weir_port){"logits", WEIR_TYPE_F32, 1, {folder->vocabulary}, true};
    model->share =
        (weir_provider_share){model->cuda ? "cuda" : "cpu", (uint64_t)folder->layers, (uint64_t)folder->layers};
    snprintf(model->architecture, sizeof model->architecture, "%s, %lld layers, %llu nodes", folder->type,
             (long long)folder->layers, (unsigned long long)folder->nodes);
    snprintf(model->remarks, sizeof model->remarks,
             "outside the account stay the tokenizer, ONNX Runtime's graph and what GenAI keeps on the heap%s",
             model->cuda ? ", and its pool of pinned memory" : "");
}

/* How many threads the model gets: by the setting `threads`, else the config, else the process's cores; and its line in
 * weir's ledger of cores, under the name of its client. On CUDA there is none: nothing waits. */
static weir_status open_cores(weir_engine_model *model, weir_client *client)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    weir_cores_totals now = WEIR_INIT(weir_cores_totals);
    model->threads = model->load.threads ? model->load.threads : model->folder.threads;
    if (model->cuda)
        return WEIR_OK;
    weir_status status = weir_client_info(client, &account);
    if (status == WEIR_OK)
        status = weir_cores_info(&now);
    if (status != WEIR_OK)
        return status;
    if (model->threads == 0)
        model->threads = now.cores;
    return weir_cores_open(account.name, (uint32_t)model->threads, (uint32_t)model->threads, &model->cores);
}

static weir_status load_into(const weir_engine_load *load, weir_engine_model *model)
{
    weir_status status = llm_load_read_request(load, false, model);
    if (status == WEIR_OK)
        status = wt_choices_keep(&wl_choices, &model->defaults, &model->defaults.copies);
    if (status == WEIR_OK)
        status = wl_library_use(&model->library);
    if (status == WEIR_OK && model->cuda && !model->library->cuda)
        status =
            weir_fail(WEIR_ERR_UNSUPPORTED,
                      "%s: %s has no CUDA; run " WEIR_ENGINES_COMMAND " --cuda onnxruntime-cuda onnxruntime-genai-cuda",
                      model->folder.path, model->library->file);
    if (status == WEIR_OK && model->cuda) {
        status = wl_devices_open(model->library->file, load->places[0].client);
        model->on_device = status == WEIR_OK;
    }
    if (status == WEIR_OK)
        status = wl_account_make(model->library->api, model->library->env, ORT_API_WANTED, load->places[0].client,
                                 &model->account);
    if (status == WEIR_OK)
        status = open_cores(model, load->places[0].client);
    if (status == WEIR_OK)
        status = llm_load_make_model(model);
    if (status == WEIR_OK && model->cuda)
        wl_library_end_before_cuda();
    /* Blocks are handed out by GenAI's engine alone, even to one sequence. */
    if (status == WEIR_OK && (model->load.sequences > 1 || model->folder.paged))
        status = wl_batch_make(model);
    return status;
}

weir_status wl_load(const weir_engine_load *load, weir_engine_model **out)
{
    *out = NULL;
    weir_engine_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to begin with it", load->path ? load->path : "?");
    wt_runs_open(&model->runs);
    pthread_mutex_init(&model->words, NULL);
    weir_status status = load_into(load, model);
    if (status != WEIR_OK) {
        char why[1024]; /* what is given back may have words of its own */
        snprintf(why, sizeof why, "%s", weir_detail());
        wl_unload(model);
        return weir_fail(status, "%s", why);
    }
    llm_load_describe(model);
    if (load->progress)
        load->progress(1.0, load->progress_user);
    *out = model;
    return WEIR_OK;
}

/* Of `sequences` runs that use the whole context. Where past and present are not one buffer, a step has both. */
static uint64_t planned_cache(const weir_engine_model *model)
{
    const wl_folder *folder = &model->folder;
    if (folder->paged)
        return wl_folder_cache(folder, (uint64_t)blocks_of(model) * (uint64_t)folder->block);
    uint64_t one = wl_folder_cache(folder, model->longest), all, sequences = (uint64_t)model->load.sequences;
    return __builtin_mul_overflow(one, sequences * (folder->shares_cache ? 1 : 2), &all) ? UINT64_MAX / 2 : all;
}

/* On the host what nothing is multiplied by stays outside of the account. A run has a token to begin with and one that it
 * makes, and of activations the results of one step at least; longer prompts take more. */
weir_status wl_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    enum { TOKENS = 2 };
    weir_engine_model model = {0};
    weir_engine_plan made = {.struct_size = out->struct_size};
    weir_status status = llm_load_read_request(load, true, &model);
    if (status != WEIR_OK)
        return status;
    const wl_folder *folder = &model.folder;
    made.bytes[WEIR_CLASS_WEIGHTS] = folder->weight_bytes - (model.cuda ? 0 : folder->table_bytes);
    made.bytes[WEIR_CLASS_KV] = folder->paged ? planned_cache(&model) : wl_folder_cache(folder, TOKENS);
    made.whole[WEIR_CLASS_KV] = folder->paged ? 0 : planned_cache(&model);
    made.exact[WEIR_CLASS_KV] = folder->paged;
    made.bytes[WEIR_CLASS_ACTIVATIONS] = (uint64_t)model.load.sequences * (uint64_t)folder->vocabulary * sizeof(float);
    made.passing[WEIR_CLASS_ACTIVATIONS] = made.bytes[WEIR_CLASS_ACTIVATIONS];
    made.passing[WEIR_CLASS_KV] = folder->paged ? 0 : made.bytes[WEIR_CLASS_KV];
    made.source[WEIR_CLASS_WEIGHTS] = made.source[WEIR_CLASS_KV] = made.source[WEIR_CLASS_ACTIVATIONS] =
        made.source[WEIR_CLASS_SCRATCH] = WEIR_PREDICTED_METADATA;
    made.settings = wl_settings_number(&model.load);
    made.context = model.longest;
    made.sequences = (uint32_t)model.load.sequences;
    memcpy(out, &made, out->struct_size < sizeof made ? out->struct_size : sizeof made);
    return WEIR_OK;
}
