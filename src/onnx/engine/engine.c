/* The engine table, and what holds one model together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/residency.h>
#include <weir/stats.h>

#include "model.h"
#include "engines/text/text.h"
#include "foresee.h"
#include "onnx/file/file.h"

/* An older caller's structure ends before it. */
static const char *asked_provider(const weir_engine_load *load)
{
    return load->struct_size > offsetof(weir_engine_load, provider) ? load->provider : NULL;
}

/* A plan may be asked for before there is a place: then the provider says where it would be. */
static bool engine_is_cuda(const weir_engine_load *load)
{
    const char *asked = asked_provider(load);
    onnx_provider provider;
    if (load->place_count == 0 || !load->places)
        return asked && onnx_provider_find(asked, &provider) && (provider == ONNX_CUDA || provider == ONNX_TENSORRT);
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    return weir_runtime_info(load->places[0].runtime, &its) == WEIR_OK && strncmp(its.device, "cuda", 4) == 0;
}

static weir_status engine_read_settings(const weir_engine_load *load, onnx_settings *out)
{
    if (load->place_count > 0 && !load->places)
        return weir_fail(WEIR_ERR_INVALID, "%zu places are announced, and there are none", load->place_count);
    return onnx_settings_read(load->settings, load->setting_count, engine_is_cuda(load), asked_provider(load), out);
}

/* ---- probe and plan ---------------------------------------------------------------------------------------------- */

/* Fills as much of the caller's structure as it has. */
static void engine_copy_out(void *to, size_t to_size, const void *from, size_t from_size)
{
    size_t n = to_size < from_size ? to_size : from_size;
    if (n > sizeof(size_t))
        memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), n - sizeof(size_t));
}

static weir_status onnx_probe(weir_engine_probe *out)
{
    weir_engine_probe found = WEIR_INIT(weir_engine_probe);
    const onnx_library *library;
    found.available = onnx_library_get(ONNX_CPU, &library) == WEIR_OK;
    if (found.available) {
        snprintf(found.library, sizeof found.library, "%s", library->path);
        snprintf(found.version, sizeof found.version, "%s", library->version);
    } else {
        snprintf(found.missing, sizeof found.missing, "%s", weir_detail());
    }
    engine_copy_out(out, out->struct_size, &found, sizeof found);
    return WEIR_OK;
}

/* The model file, checked and read; onnx_source_close in any case. */
typedef struct onnx_source {
    onnx_file file;
    onnx_graph graph;
} onnx_source;

static weir_status onnx_source_open(const char *path, onnx_source *source)
{
    memset(source, 0, sizeof *source);
    if (!path || !*path)
        return weir_fail(WEIR_ERR_INVALID, "the engine onnx was given no file");
    weir_status status = onnx_file_open(path, &source->file);
    if (status == WEIR_OK)
        status = onnx_check_once(&source->file);
    if (status == WEIR_OK)
        status = onnx_graph_read(&source->file, &source->graph);
    return status == WEIR_OK ? onnx_graph_supported(&source->file, &source->graph) : status;
}

/* Several sessions read one copy of the weights, which then are handed over by their names. */
static bool is_shared(const onnx_settings *settings)
{
    return settings->buckets > 1;
}

/* What is handed over by name, or mapped; and what is left to ONNX Runtime. Of tensors beside the model that only nodes and
 * functions have, those that are not taken out are put into the stripped model, which has no folder of its own. */
static weir_status onnx_source_choose(onnx_source *source, const onnx_settings *settings, bool cuda, bool maps)
{
    onnx_file *file = &source->file;
    onnx_graph *graph = &source->graph;
    if (!settings->ours)
        return WEIR_OK;
    weir_status status = onnx_uses_mark(graph, settings->optimization, !cuda && !maps);
    if (status == WEIR_OK && maps && !cuda)
        status = onnx_graph_read_inner(file, graph, ONNX_INLINE_BELOW);
    if (status == WEIR_OK && settings->prepack)
        status = onnx_uses_lift(graph);
    return status == WEIR_OK && file->nested ? onnx_graph_read_beside(file, graph) : status;
}

static void onnx_source_close(onnx_source *source)
{
    onnx_graph_free(&source->graph);
    onnx_file_close(&source->file);
}

uint64_t onnx_charge(uint64_t bytes, bool cuda)
{
    uint64_t slack = cuda ? 0 : ORT_SLACK;
    return bytes > UINT64_MAX - slack - 255 ? UINT64_MAX : (bytes + slack + 255) / 256 * 256;
}

/* On cuda all weights go to the device, but for those that are folded into others before, which are vectors. */
static uint64_t weights_charge(const onnx_graph *graph, bool cuda)
{
    uint64_t total = 0;
    for (size_t i = 0; i < graph->weight_count; i++)
        if (onnx_moved(&graph->weights[i]) && (!cuda || graph->weights[i].rank > 1))
            total += onnx_charge(graph->weights[i].bytes, cuda);
    for (size_t i = 0; i < graph->inner_count; i++)
        total += onnx_moved(&graph->inner[i]) ? onnx_charge(graph->inner[i].bytes, cuda) : 0;
    return total;
}

/* Of how large a kernel's own layout is, which of the small constants it copies and what its optimizer makes of weights, only ONNX
 * Runtime is certain. */
static bool all_moved(const onnx_graph *graph)
{
    for (size_t i = 0; i < graph->weight_count; i++)
        if (!onnx_moved(&graph->weights[i]))
            return false;
    return true;
}

/* The outputs with every open extent at 1: less than that no run takes. */
static uint64_t least_activations(const onnx_graph *graph, bool cuda)
{
    uint64_t total = 0;
    for (size_t i = 0; i < graph->output_count; i++) {
        const onnx_value *value = &graph->outputs[i];
        int64_t shape[WEIR_MAX_RANK];
        size_t bytes;
        for (uint32_t d = 0; d < value->rank; d++)
            shape[d] = value->shape[d] < 0 ? 1 : value->shape[d];
        weir_type type = onnx_type_to_weir(value->type);
        if (type != WEIR_TYPE_NONE && weir_tensor_bytes(type, value->rank, shape, &bytes) == WEIR_OK && bytes)
            total += onnx_charge(bytes, cuda);
    }
    return total;
}

static void plan_source(const weir_engine_load *load, const onnx_settings *settings, bool cuda, onnx_source *source,
                        weir_engine_plan *out)
{
    weir_engine_plan made = {.struct_size = sizeof made};
    onnx_foreseen foreseen;
    onnx_foresee_ask ask = onnx_foresee_asked(load, settings, cuda);
    ask.model = &source->graph;
    onnx_foresee(&source->file, &ask, &foreseen);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        made.exact[i] = true;
        made.source[i] = WEIR_PREDICTED_METADATA;
    }
    bool ours = settings->ours || cuda;
    uint64_t weights = ours ? weights_charge(&source->graph, cuda) : 0;
    if (!cuda && ours)
        weights = weights + foreseen.packed - (foreseen.replaced < weights ? foreseen.replaced : weights);
    made.bytes[WEIR_CLASS_WEIGHTS] = weights;
    made.exact[WEIR_CLASS_WEIGHTS] =
        settings->ours && !cuda && !settings->prepack && settings->optimization == 0 && all_moved(&source->graph);
    made.bytes[WEIR_CLASS_ACTIVATIONS] = foreseen.runs ? foreseen.activations : least_activations(&source->graph, cuda);
    made.exact[WEIR_CLASS_ACTIVATIONS] = false;
    made.passing[WEIR_CLASS_ACTIVATIONS] = made.bytes[WEIR_CLASS_ACTIVATIONS];
    engine_copy_out(out, out->struct_size, &made, sizeof made);
}

static weir_status onnx_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    onnx_source source;
    onnx_settings settings;
    bool cuda = engine_is_cuda(load);
    weir_status status = engine_read_settings(load, &settings);
    if (status != WEIR_OK)
        return status;
    status = onnx_source_open(load->path, &source);
    if (status == WEIR_OK)
        status = onnx_source_choose(&source, &settings, cuda, !is_shared(&settings));
    if (status == WEIR_OK)
        plan_source(load, &settings, cuda, &source, out);
    onnx_source_close(&source);
    return status;
}

/* ---- load and unload --------------------------------------------------------------------------------------------- */

static void onnx_unload(weir_engine_model *model)
{
    bool entered = weir_runtime_enter(model->runtime) == WEIR_OK; /* one that is lost has nothing to lose */
    onnx_join_end(model);
    onnx_buckets_end(model);
    onnx_session_end(model);
    onnx_outside_end(model);
    if (entered)
        weir_runtime_leave(model->runtime);
    onnx_ports_free(&model->inputs);
    onnx_ports_free(&model->outputs);
    onnx_slot_end(model, &model->slots[0]);
    onnx_device_end(model->library, &model->device);
    onnx_cores_end(model);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

static void engine_describe(weir_engine_model *model, const onnx_graph *graph)
{
    snprintf(model->architecture, sizeof model->architecture, "onnx graph of %zu nodes", graph->nodes);
    if (model->device.cuda) {
        snprintf(
            model->remarks, sizeof model->remarks,
            "outside: CUDA's context and code, once in the process; handles and workspaces of cuDNN and cuBLAS for "
            "each thread that runs the model%s; on the host ONNX Runtime's graph and kernels, and outputs",
            model->settings.provider == ONNX_TENSORRT ? "; TensorRT's engines and their weights" : "");
        return;
    }
    if (onnx_settings_outside(&model->settings)) {
        snprintf(model->remarks, sizeof model->remarks,
                 "outside: weights, compiled models and buffers of %s, and ONNX Runtime's graph",
                 onnx_provider_name(model->settings.provider));
        return;
    }
    uint64_t left = 0;
    for (size_t i = 0; i < graph->weight_count; i++)
        if (!model->settings.ours || !onnx_moved(&graph->weights[i]))
            left += graph->weights[i].bytes;
    char size[24], what[64] = "", all[64] = "", turned[64] = "what its optimizer computes of weights";
    if (left)
        snprintf(what, sizeof what, "%s of %s, ", weir_size_format(left, size, sizeof size),
                 model->settings.ours ? "constants" : "weights");
    if (model->maps && model->turned)
        snprintf(turned, sizeof turned, "what its optimizer has made of %s of weights",
                 weir_size_format(model->turned, size, sizeof size));
    if (model->outside)
        snprintf(all, sizeof all, "%s%s: ", weir_size_format(model->outside, size, sizeof size),
                 model->counted ? ", counted" : "");
    snprintf(model->remarks, sizeof model->remarks,
             "outside: %s%sONNX Runtime's graph and kernels, %s, buffers inside some kernels", all, what, turned);
}

static void remark_level(weir_engine_model *model)
{
    size_t length = strlen(model->remarks);
    if (model->level[0])
        snprintf(model->remarks + length, sizeof model->remarks - length, "; %s", model->level);
}

static weir_status engine_check_place(const weir_engine_load *load)
{
    if (load->place_count == 0 || !load->places || !load->places[0].client || !load->places[0].runtime)
        return weir_fail(WEIR_ERR_INVALID, "the engine onnx was given no client to charge");
    return WEIR_OK;
}

static void engine_report(const weir_engine_load *load, double fraction)
{
    if (load->progress)
        load->progress(fraction, load->progress_user);
}

/* Adds to a refusal, which names a single tensor, how much the whole model takes. */
static weir_status engine_refused(const char *words, const onnx_graph *graph, bool cuda)
{
    char size[24];
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s; the whole model takes at least %s, and more while it runs", words,
                     weir_size_format(weights_charge(graph, cuda), size, sizeof size));
}

static weir_status begin_memory(weir_engine_model *model)
{
    weir_status status = onnx_device_begin(model->library, model->runtime, &model->device);
    model->slot_count = 1;
    return status == WEIR_OK ? onnx_slot_begin(model, &model->slots[0]) : status;
}

/* On cuda. Convolutions are few and long, and their values differ in size: one block for all takes a sixth more than
 * its values one by one (a ResNet-50), and saves no time. Other models are many short kernels, where each allocation
 * shows, and values alike. Filters have three dimensions or more. */
static bool convolves(const onnx_graph *graph)
{
    for (size_t i = 0; i < graph->weight_count; i++)
        if (graph->weights[i].rank > 2)
            return true;
    return false;
}

/* What somebody has chosen stays, with a warning. */
static void choose_level(weir_engine_model *model, const onnx_file *file)
{
    onnx_settings *settings = &model->settings;
    int right = onnx_level_right(file, settings->optimization, &model->level);
    if (model->level[0] && !settings->level_open)
        weir_log(WEIR_LOG_WARNING,
                 "onnx: %s: its answers will be wrong at this level of optimization: without the "
                 "setting it has %s",
                 model->name, model->level);
    if (settings->level_open)
        settings->optimization = right;
    else
        model->level = "";
}

static weir_status engine_make(const weir_engine_load *load, const onnx_settings *settings, const onnx_library *library,
                               onnx_source *source, bool maps, weir_engine_model **out)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    weir_status status = weir_client_info(load->places[0].client, &account);
    if (status != WEIR_OK)
        return status;
    weir_engine_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", load->path);
    memcpy(model->name, account.name, sizeof model->name);
    model->library = library;
    model->settings = *settings;
    model->maps = maps;
    model->client = load->places[0].client;
    model->runtime = load->places[0].runtime;
    model->texts = source->file.texts;
    pthread_mutex_init(&model->lock, NULL);
    choose_level(model, &source->file);
    engine_report(load, 0.1);
    status = weir_runtime_enter(model->runtime); /* ONNX Runtime changes the current device for good */
    bool entered = status == WEIR_OK;
    uint64_t heap = onnx_heap_used();
    if (status == WEIR_OK)
        status = begin_memory(model);
    if (model->device.cuda && model->settings.pattern_open && convolves(&source->graph))
        model->settings.memory_pattern = false;
    if (status == WEIR_OK)
        status = onnx_cores_begin(model);
    if (status == WEIR_OK)
        status = onnx_session_begin(model, &source->file, &source->graph, load);
    if (status == WEIR_OK)
        status = onnx_outside_note(model, heap);
    if (status == WEIR_OK)
        status = onnx_buckets_begin(model);
    if (status == WEIR_OK)
        status = onnx_ports_read(model, &source->graph);
    if (status == WEIR_OK && settings->batch > 1)
        status = onnx_join_begin(model);
    if (status == WEIR_OK && settings->cuda_graph)
        status = onnx_replays_begin(model);
    if (entered)
        weir_runtime_leave(model->runtime);
    if (status != WEIR_OK) {
        bool cuda = model->device.cuda;
        char why[900]; /* giving back may have words of its own */
        snprintf(why, sizeof why, "%s", weir_detail());
        onnx_unload(model);
        return status == WEIR_ERR_OUT_OF_MEMORY ? engine_refused(why, &source->graph, cuda)
                                                : weir_fail(status, "%s", why);
    }
    onnx_shares_read(model, source->graph.nodes);
    engine_describe(model, &source->graph);
    remark_level(model);
    engine_report(load, 1.0);
    *out = model;
    return WEIR_OK;
}

/* Weights come from the mapped files one after the other, and ONNX Runtime's thread would wait for the disk at every few pages. */
static void onnx_source_read_ahead(const onnx_source *source, wt_ahead *ahead)
{
    wt_ahead_add(ahead, source->file.real);
    for (const onnx_side_file *side = source->file.sides; side; side = side->next)
        wt_ahead_add(ahead, side->real);
    wt_ahead_run(ahead);
}

static weir_status onnx_load(const weir_engine_load *load, weir_engine_model **out)
{
    const onnx_library *library = NULL;
    wt_ahead ahead = {.count = 0};
    onnx_settings settings;
    onnx_source source;
    *out = NULL;
    weir_status status = engine_check_place(load);
    if (status == WEIR_OK)
        status = engine_read_settings(load, &settings);
    if (status != WEIR_OK)
        return status;
    engine_report(load, 0.0);
    status = onnx_source_open(load->path, &source);
    if (status == WEIR_OK)
        status = onnx_library_get(settings.provider, &library);
    bool maps = status == WEIR_OK && settings.ours && !engine_is_cuda(load) && !is_shared(&settings) &&
                onnx_weights_mapped(library);
    if (status == WEIR_OK)
        status = onnx_source_choose(&source, &settings, engine_is_cuda(load), maps);
    if (status == WEIR_OK) {
        onnx_source_read_ahead(&source, &ahead);
        status = engine_make(load, &settings, library, &source, maps, out);
    }
    wt_ahead_end(&ahead);
    onnx_source_close(&source);
    return status;
}

/* ---- stepping aside ---------------------------------------------------------------------------------------------- */

/* Between runs only the device works for the model, and the client's suspend waits for the streams. Memory of a session
 * is written when the session is made, and only read from then on. An unload destroys texts in constants one by one,
 * and so reads the constants. */
static weir_status onnx_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    if (model->texts)
        return weir_fail(
            WEIR_ERR_UNSUPPORTED,
            "%s: a model with constants that are texts cannot be suspended, as ONNX Runtime reads them when "
            "it is unloaded",
            model->name);
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return WEIR_OK;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* A run that failed inside ONNX Runtime may have failed for its inputs, and says nothing of the next one. */
static weir_status onnx_health(weir_engine_model *model)
{
    pthread_mutex_lock(&model->lock);
    weir_status last = model->last;
    pthread_mutex_unlock(&model->lock);
    return last == WEIR_ERR_DRIVER || last == WEIR_ERR_DEVICE_LOST
               ? weir_fail(last, "%s: its last run could not work on %s", model->name, model->device.name)
               : WEIR_OK;
}

static weir_status onnx_metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    pthread_mutex_lock(&model->lock);
    weir_engine_metrics metrics = model->metrics;
    pthread_mutex_unlock(&model->lock);
    onnx_bucket_stats sessions = onnx_buckets_look(model);
    metrics.sessions = sessions.now + model->slot_count - 1;
    metrics.sessions_failed = sessions.failed + model->slots_failed;
    engine_copy_out(out, out->struct_size, &metrics, sizeof metrics);
    return WEIR_OK;
}

static weir_status onnx_info(weir_engine_model *model, weir_model_details *out)
{
    weir_model_details info = {
        .engine = "onnx",
        .version = model->library->version,
        .provider = onnx_provider_name(model->settings.provider),
        .architecture = model->architecture,
        .inputs = model->inputs.list,
        .input_count = model->inputs.count,
        .outputs = model->outputs.list,
        .output_count = model->outputs.count,
        .remarks = model->remarks,
        .shares = model->shares,
        .share_count = model->share_count,
    };
    engine_copy_out(out, out->struct_size, &info, sizeof info);
    return WEIR_OK;
}

static const weir_engine table = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof table,
    .name = "onnx",
    .summary = "ONNX models on the CPU, CUDA and OpenVINO, by ONNX Runtime",
    .suffixes = ".onnx",
    .probe = onnx_probe,
    .plan = onnx_plan,
    .load = onnx_load,
    .infer = onnx_infer,
    .release_outputs = onnx_release_outputs,
    .cancel = onnx_cancel,
    .warm_up = onnx_warm_up,
    .suspend = onnx_suspend,
    .health = onnx_health,
    .metrics = onnx_metrics,
    .info = onnx_info,
    .unload = onnx_unload,
    .provider = onnx_provider_at,
};

WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);
const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &table : NULL;
}
