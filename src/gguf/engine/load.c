/* load.c: a model is checked, loaded with its weights in the client's memory, and given the one context it runs in.
 *
 * llama.cpp reads the weights in `gguf_load_make_model`; buffers.c (alloc_buffer) takes their memory from the client. */
#include "wg.h"

#include <weir/stats.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

/* Decides by the pooling whether the model embeds texts or generates text. */
static weir_status choose_use(weir_engine_model *model, const char *path)
{
    static const char *const ways[] = {"none", "mean", "cls", "last"};
    wg_facts *facts = &model->facts;
    for (int i = 0; i < 4; i++)
        if (strcmp(model->load.pooling, ways[i]) == 0)
            facts->pooling = i;
    if (facts->pooling == LLAMA_POOLING_TYPE_RANK)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: ranks pairs of texts, which this engine does not offer", path);
    model->embeds = facts->pooling > LLAMA_POOLING_TYPE_NONE;
    if (!model->embeds && strcmp(facts->architecture, "bert") == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: a bert without pooling gives one vector for each token; the setting "
                         "'pooling' (mean, cls, last) makes it one for each text",
                         path);
    return WEIR_OK;
}

enum { STEPS_QUEUED = 4 }; /* as upstream: n_batch over n_ubatch */

static weir_status choose_sizes(weir_engine_model *model, const char *path)
{
    uint32_t trained = model->facts.context, usual = model->embeds ? 512 : 4096;
    uint32_t wanted = model->load.context ? (uint32_t)model->load.context : trained < usual ? trained : usual;
    if (model->embeds && wanted > trained)
        return weir_fail(WEIR_ERR_INVALID, "%s: the setting 'context' is %u, and the model has positions for %u", path,
                         wanted, trained);
    uint32_t batch = model->load.batch ? (uint32_t)model->load.batch : model->embeds ? WG_EMBED_PACK : WG_BATCH;
    model->longest = wanted;
    model->pack = batch < wanted ? batch : wanted;
    /* One token of every sequence has to fit into a step. */
    if (!model->embeds && model->pack < model->load.sequences)
        model->pack = (uint32_t)model->load.sequences;
    model->step = model->devices.count > 0 && model->pack * STEPS_QUEUED <= model->longest ? model->pack * STEPS_QUEUED
                                                                                           : model->pack;
    return wg_context_check(&model->load, path);
}

weir_status wg_read_request(const weir_engine_load *load, bool planning, weir_engine_model *model)
{
    weir_status status = wg_devices_read(load, planning, &model->devices);
    if (status == WEIR_OK)
        status = wg_settings_of_load(load->settings, load->setting_count, &model->load, &model->defaults);
    return status;
}

weir_status wg_look(const weir_engine_load *load, weir_engine_model *model)
{
    weir_status status = wg_check_once(load->path, &model->facts, NULL);
    if (status == WEIR_OK)
        status = choose_use(model, load->path);
    return status == WEIR_OK ? choose_sizes(model, load->path) : status;
}

weir_status wg_open(weir_engine_model *model)
{
    weir_status status = wg_library_get(model->load.llama, &model->library);
    return status == WEIR_OK ? wg_devices_open(model->library, model->load.llama_cuda, &model->devices) : status;
}

/* ---- llama.cpp's model ------------------------------------------------------------------------------------------- */

typedef struct making {
    weir_engine_model *model;
    const weir_engine_load *load;
    bool no_alloc;
} making;

/* Nobody wants it any more. */
static bool stopped(const weir_engine_load *load)
{
    return load->struct_size > offsetof(weir_engine_load, stops) && load->stops && load->stops(load->progress_user);
}

static bool gguf_load_on_progress(float fraction, void *user)
{
    const weir_engine_load *load = user;
    if (load->progress)
        load->progress((double)fraction * 0.95, load->progress_user);
    return !stopped(load);
}

static void gguf_load_make_model(void *user)
{
    making *it = user;
    struct llama_model_params params = it->model->library->llama_model_default_params();
    params.devices = it->model->devices.list; /* none: the host */
    params.n_gpu_layers = it->model->devices.count > 0 ? (int32_t)it->model->load.gpu_layers : 0;
    /* For a plan llama.cpp maps nothing, and asserts that it was not asked to. */
    params.load_mode = it->model->load.mmap && !it->no_alloc ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    params.no_alloc = it->no_alloc;
    params.progress_callback = gguf_load_on_progress;
    params.progress_callback_user_data = (void *)it->load;
    it->model->model = it->model->library->llama_model_load_from_file(it->load->path, params);
}

static void make_context(void *user)
{
    making *it = user;
    weir_engine_model *model = it->model;
    struct llama_context_params params = model->library->llama_context_default_params();
    int threads = wg_threads(model);
    params.n_batch = model->step;
    params.n_ubatch = model->pack;
    params.n_threads = params.n_threads_batch = threads;
    params.no_perf = true;
    params.abort_callback = wg_stopped;
    params.abort_callback_data = model;
    params.embeddings = model->embeds;
    params.pooling_type = model->embeds ? (enum llama_pooling_type)model->facts.pooling : LLAMA_POOLING_TYPE_NONE;
    wg_context_fill(model, &params);
    model->context = model->library->llama_init_from_model(model->model, params);
}

/* What went wrong, in the order of how much it explains: weir's refusal, the exception, llama.cpp's first error. */
static weir_status gguf_load_explain(const wg_phase *phase, const char *path, const char *thrown, const char *doing)
{
    if (phase->refusal != WEIR_OK)
        return weir_fail(phase->refusal, "%s", phase->detail);
    const char *words = thrown[0] ? thrown : wg_log_first_error();
    return weir_fail(WEIR_ERR_ENGINE, "%s: llama.cpp %s: %s", path, doing, words[0] ? words : "no reason given");
}

weir_status wg_make_model(weir_engine_model *model, const weir_engine_load *load, wg_phase *phase, bool no_alloc)
{
    char thrown[512] = "";
    making it = {model, load, no_alloc};
    wg_log_forget();
    wg_phase_begin(phase, no_alloc ? WG_PLANNING : WG_LOADING, model);
    wg_guarded(gguf_load_make_model, &it, thrown, sizeof thrown);
    wg_phase_end(phase);
    if (!no_alloc && stopped(load))
        return weir_fail(WEIR_ERR_CANCELLED, "%s: its load was stopped", load->path);
    if (!model->model)
        return gguf_load_explain(phase, load->path, thrown, "cannot load it");
    const wg_library *lib = model->library;
    model->vocab = lib->llama_model_get_vocab(model->model);
    if (lib->llama_model_has_encoder(model->model) && lib->llama_model_has_decoder(model->model))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: a '%s' has an encoder and a decoder, which this engine does not run", load->path,
                         model->facts.architecture);
    return WEIR_OK;
}

weir_status wg_make_context(weir_engine_model *model, wg_phase *phase)
{
    char thrown[512] = "";
    making it = {.model = model};
    bool planning = phase->stage == WG_PLANNING;
    wg_log_forget();
    wg_phase_begin(phase, planning ? WG_PLANNING : WG_CONTEXT, model);
    wg_guarded(make_context, &it, thrown, sizeof thrown);
    wg_phase_end(phase);
    if (!model->context)
        return gguf_load_explain(phase, model->facts.architecture, thrown, "cannot make a context for it");
    return wg_cache_settle(model);
}

typedef struct trial {
    weir_engine_model *model;
    int code;
} trial;

static void compute_little(void *user)
{
    trial *it = user;
    const wg_library *lib = it->model->library;
    int32_t tokens[2] = {0, 0};
    struct llama_batch batch = lib->llama_batch_get_one(tokens, 2);
    lib->llama_set_n_threads(it->model->context, 1, 1);
    it->code = lib->llama_get_memory(it->model->context) ? lib->llama_decode(it->model->context, batch)
                                                         : lib->llama_encode(it->model->context, batch);
    lib->llama_set_n_threads(it->model->context, wg_threads(it->model), wg_threads(it->model));
}

/* The rules in check.c are complete for two architectures. A model of another one computes two tokens on this thread
 * alone, where an assertion can still be answered with an error instead of the end of the process. */
static weir_status try_out(weir_engine_model *model, const char *path)
{
    char thrown[512] = "";
    wg_phase phase;
    trial it = {.model = model};
    if (model->facts.known)
        return WEIR_OK;
    wg_log_forget();
    weir_status status = wg_cache_grow(model, 0, 2);
    if (status != WEIR_OK)
        return status;
    wg_cache_begin(model);
    wg_phase_begin(&phase, WG_RUNNING, model);
    bool whole = wg_guarded_alone(compute_little, &it, thrown, sizeof thrown);
    wg_phase_end(&phase);
    wg_cache_end(model);
    wg_cache_shrink(model, 0, 0);
    return whole && it.code == 0 ? WEIR_OK : gguf_load_explain(&phase, path, thrown, "cannot compute with it");
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

static void free_both(void *user)
{
    weir_engine_model *model = user;
    struct llama_context *context = model->context;
    struct llama_model *weights = model->model;
    model->context = NULL;
    model->model = NULL;
    if (context)
        model->library->llama_free(context);
    if (weights)
        model->library->llama_model_free(weights);
}

void wg_drop(weir_engine_model *model)
{
    char thrown[512] = "";
    wg_phase phase;
    wg_cache_silence(model);
    wg_phase_begin(&phase, WG_IDLE, model);
    if (model->library && !wg_guarded(free_both, model, thrown, sizeof thrown))
        weir_log(WEIR_LOG_ERROR, "gguf: llama.cpp could not free a model: %s", thrown);
    wg_phase_end(&phase);
    wg_devices_settle(&model->devices);
    wg_cache_drop(model);
    wg_devices_close(&model->devices);
}

void wg_unload(weir_engine_model *model)
{
    wg_batch_drop(model);
    wg_drop(model);
    wg_cores_close(model);
    free(model->defaults.copies);
    wt_runs_close(&model->runs);
    free(model);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static weir_port gguf_load_port(const char *name, weir_type type, uint32_t rank, int64_t first, int64_t second,
                                bool optional)
{
    return (weir_port){.name = name, .type = type, .rank = rank, .shape = {first, second}, .optional = optional};
}

/* Layers come to a device from the last on, behind the output layer, which counts as one. */
static void describe_shares(weir_engine_model *model)
{
    uint64_t all = model->facts.layers, wanted = (uint64_t)model->load.gpu_layers, on_device = 0;
    if (model->devices.count > 0)
        on_device = model->load.gpu_layers < 0 || wanted > all ? all : wanted > 0 ? wanted - 1 : 0;
    if (on_device > 0)
        model->shares[model->share_count++] = (weir_provider_share){"cuda", on_device, all};
    if (on_device < all)
        model->shares[model->share_count++] = (weir_provider_share){"cpu", all - on_device, all};
    if (model->share_count == 2 && on_device < all - on_device) {
        weir_provider_share first = model->shares[0];
        model->shares[0] = model->shares[1];
        model->shares[1] = first;
    }
}

static void add_output(weir_engine_model *model, weir_port it)
{
    model->outputs[model->output_count++] = it;
}

static void describe_ports(weir_engine_model *model)
{
    memcpy(model->inputs, wt_prompt_ports, sizeof wt_prompt_ports);
    model->inputs[1].rank = model->embeds ? 2 : 1;
    model->inputs[1].shape[1] = -1;
    model->input_count = model->embeds ? WT_EMBEDS : WT_RESUMES;
    if (model->embeds) {
        add_output(model, gguf_load_port("embeddings", WEIR_TYPE_F32, 2, -1, model->width, false));
        add_output(model, gguf_load_port("prompt_tokens", WEIR_TYPE_I32, 1, -1, 0, false));
        return;
    }
    model->inputs[WT_PROMPT_PORTS] = gguf_load_port("state", WEIR_TYPE_U8, 1, -1, 0, true);
    memcpy(model->outputs, wt_answer_ports, sizeof wt_answer_ports);
    model->outputs[3].shape[0] = 1; /* one number of tokens of the prompt */
    model->output_count = WT_ANSWER_PORTS;
    add_output(model, gguf_load_port("top_texts", WEIR_TYPE_TEXT, 1, -1, 0, true));
    add_output(model, gguf_load_port("top_text_ends", WEIR_TYPE_I32, 2, -1, -1, true));
    add_output(model,
               gguf_load_port("logits", WEIR_TYPE_F32, 1, model->library->llama_vocab_n_tokens(model->vocab), 0, true));
    add_output(model, gguf_load_port("state", WEIR_TYPE_U8, 1, -1, 0, true));
    add_output(model, gguf_load_port("state_tokens", WEIR_TYPE_I32, 1, -1, 0, true));
}

static void gguf_load_describe(weir_engine_model *model)
{
    char about[128] = "";
    const wg_library *lib = model->library;
    lib->llama_model_desc(model->model, about, sizeof about);
    snprintf(model->architecture, sizeof model->architecture, "%s", about[0] ? about : model->facts.architecture);
    snprintf(model->version, sizeof model->version, "%s", lib->version);
    snprintf(model->remarks, sizeof model->remarks,
             "%soutside the account stay llama.cpp's vocabulary, its graphs and the "
             "work buffer of its threads",
             model->load.mmap ? "the weights, mapped from the file, and " : "");
    describe_shares(model);
    model->width = (uint32_t)lib->llama_model_n_embd_out(model->model);
    describe_ports(model);
}

weir_status wg_load(const weir_engine_load *load, weir_engine_model **out)
{
    wg_phase phase = {0};
    *out = NULL;
    weir_engine_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to begin with it", load->path ? load->path : "?");
    wt_runs_open(&model->runs);
    wt_ahead ahead = {.count = 0};
    wt_ring ring = {.file = -1};
    weir_status status = wg_read_request(load, false, model);
    bool direct = model->load.direct && !model->load.mmap;
    if (status == WEIR_OK && !model->load.mmap && !direct) /* a mapping is read ahead by llama.cpp */
        wt_ahead_begin(&ahead, load->path);
    if (status == WEIR_OK)
        status = wt_choices_keep(&wg_choices, &model->defaults, &model->defaults.copies);
    if (status == WEIR_OK)
        status = wg_look(load, model);
    if (status == WEIR_OK)
        status = wg_open(model);
    if (status == WEIR_OK && direct && !wg_reads_begin(&ring, model->library, load->path))
        wt_ahead_begin(&ahead, load->path);
    if (status == WEIR_OK)
        status = wg_make_model(model, load, &phase, false);
    wg_reads_end(&ring);
    wt_ahead_end(&ahead);
    if (status == WEIR_OK)
        status = wg_make_context(model, &phase);
    if (status == WEIR_OK)
        status = wg_cores_open(model);
    if (status == WEIR_OK)
        status = try_out(model, load->path);
    if (status == WEIR_OK && (!model->embeds || model->devices.count > 0))
        status = wg_fingerprint(model, load->path);
    if (status == WEIR_OK)
        status = wg_scratch_measure(model);
    if (status == WEIR_OK && !model->embeds)
        status = wg_batch_make(model);
#ifdef __GLIBC__
    /* Reading the metadata leaves some megabytes in malloc's hands that nobody uses again. */
    malloc_trim(0);
#endif
    if (status != WEIR_OK) {
        char why[1024]; /* what is given back may have words of its own */
        snprintf(why, sizeof why, "%s", weir_detail());
        wg_unload(model);
        return weir_fail(status, "%s", why);
    }
    model->longest = model->embeds ? model->longest : model->library->llama_n_ctx_seq(model->context);
    gguf_load_describe(model);
    if (load->progress)
        load->progress(1.0, load->progress_user);
    *out = model;
    return WEIR_OK;
}
