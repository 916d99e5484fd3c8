/* Weights into the client's memory, and the session over them. */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

#include "foresee.h"

weir_onnxruntime_details onnx_session_stats(const onnx_slot *slot)
{
    weir_onnxruntime_details stats = WEIR_INIT(weir_onnxruntime_details);
    if (weir_onnxruntime_info(slot->bridge, &stats) != WEIR_OK)
        stats = (weir_onnxruntime_details){0}; /* in a forked child alone */
    return stats;
}

weir_status onnx_session_failed(weir_engine_model *model, const onnx_slot *slot, uint64_t refusals_before, int code,
                                const char *text, const char *doing)
{
    const char *name = model->name;
    char refusal[1024] = ""; /* no words of a failure, which another thread's refusal could be taken for the cause of */
    weir_status refused = weir_onnxruntime_explain(slot->bridge, refusals_before, refusal, sizeof refusal);
    if (refused != WEIR_OK)
        return weir_fail(refused, "%s", refusal);
    if (strstr(text, "bad_alloc"))
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s: ONNX Runtime %s has no host memory: %s", name, doing,
                         model->library->version, text);
    if (code == ORT_INVALID_ARGUMENT_CODE && strcmp(doing, "running") == 0)
        return weir_fail(WEIR_ERR_INVALID, "%s: the model does not take these inputs: ONNX Runtime %s: %s", name,
                         model->library->version, text);
    if (code == ORT_NOT_IMPLEMENTED_CODE)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s: ONNX Runtime %s: %s", name, doing, model->library->version,
                         text);
    if (!model->settings.cpu_fallback && strstr(text, "fallback to CPU EP has been explicitly disabled"))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: %s: with cpu_fallback=off the provider %s would have to run every node, and it does "
                         "not take them all",
                         name, doing, onnx_provider_name(model->settings.provider));
    if (code == ORT_INVALID_PROTOBUF_CODE || code == ORT_INVALID_GRAPH_CODE)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: %s: ONNX Runtime %s: %s", name, doing, model->library->version, text);
    return weir_fail(WEIR_ERR_ENGINE, "%s: %s: ONNX Runtime %s: %s", name, doing, model->library->version, text);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Those that kernels pack are left in the file. */
static bool is_placed(const onnx_graph *graph, const bool *packed, size_t index)
{
    return onnx_moved(&graph->weights[index]) && !(packed && packed[index]);
}

static weir_status session_begin_list(weir_engine_model *model, size_t most)
{
    model->weights = calloc(most + 1, sizeof *model->weights);
    return model->weights ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
}

static weir_status name_weight(const weir_engine_model *model, const onnx_tensor *tensor, onnx_weight *weight)
{
    weight->name = onnx_text_copy(tensor->name);
    return weight->name ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its names", model->name);
}

/* Lists a weight that ONNX Runtime will map. */
static weir_status list_weight(weir_engine_model *model, const onnx_file *file, const onnx_tensor *tensor, bool *packed)
{
    onnx_weight *weight = &model->weights[model->weight_count];
    if (!onnx_moved(tensor))
        return WEIR_OK;
    const uint8_t *start = tensor->side ? tensor->side->data : file->data;
    weight->tensor = tensor;
    weight->file = tensor->side ? &tensor->side->stamp : &file->stamp;
    weight->end = (uint64_t)(tensor->data - start) + tensor->bytes;
    weight->left = packed && *packed ? packed : NULL;
    model->weight_count++;
    return name_weight(model, tensor, weight);
}

static weir_status list_weights(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph, bool *packed)
{
    weir_status status = session_begin_list(model, graph->weight_count + graph->inner_count);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++)
        status = list_weight(model, file, &graph->weights[i], &packed[i]);
    for (size_t i = 0; status == WEIR_OK && i < graph->inner_count; i++)
        status = list_weight(model, file, &graph->inner[i], &packed[graph->weight_count + i]);
    return status;
}

static weir_status session_hand_over(weir_engine_model *model, const onnx_tensor *tensor, onnx_weight *weight)
{
    const onnx_library *library = model->library;
    onnx_attempt a;
    weir_status status = name_weight(model, tensor, weight);
    if (status == WEIR_OK)
        status = onnx_weight_place(model, tensor, weight);
    if (status == WEIR_OK && onnx_failed(library->api,
                                         library->api->CreateTensorWithDataAsOrtValue(
                                             library->host, weight->data, tensor->bytes, tensor->shape, tensor->rank,
                                             tensor->type, &weight->value),
                                         &a))
        return weir_fail(WEIR_ERR_ENGINE, "%s: tensor \"%s\": ONNX Runtime %s: %s", model->name, weight->name,
                         library->version, a.text);
    return status;
}

/* Places the weights that are handed over by name. */
static weir_status place_weights(weir_engine_model *model, const onnx_graph *graph, const bool *packed,
                                 const weir_engine_load *load)
{
    uint64_t total = 1, done = 0;
    weir_status status = session_begin_list(model, graph->weight_count);
    for (size_t i = 0; i < graph->weight_count; i++)
        total += is_placed(graph, packed, i) ? graph->weights[i].bytes : 0;
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++) {
        if (!is_placed(graph, packed, i))
            continue;
        status = onnx_goes_on(model, load);
        if (status == WEIR_OK)
            status = session_hand_over(model, &graph->weights[i], &model->weights[model->weight_count++]);
        done += graph->weights[i].bytes;
        if (status == WEIR_OK && load->progress)
            load->progress(0.1 + 0.6 * (double)done / (double)total, load->progress_user);
    }
    return status;
}

/* ---- session ----------------------------------------------------------------------------------------------------- */

/* The optimizer computes constants while loading and keeps them on the heap, up to 1 GiB each unless told otherwise: a
 * file of a hundred bytes can ask for that. What comes of real weights (transposed, unpacked from 4 bits) stays in
 * proportion to the file. */
static uint64_t fold_at_most(const onnx_file *file)
{
    uint64_t bytes = file->size;
    for (const onnx_side_file *side = file->sides; side; side = side->next)
        bytes += side->size;
    uint64_t most = (16u << 20) + 8 * bytes;
    return most < 1u << 30 ? most : 1u << 30;
}

/* How the session's threads wait for work. Between runs, spinning would take cores that are another model's by then.
 * Within a run, spinning threads would take from the session's working threads the time that other processes leave:
 * 50 us are enough from one parallel loop of a graph to the next. */
static bool set_waiting(weir_engine_model *model, ort_session_options *options, onnx_attempt *a)
{
    const ort_api *api = model->library->api;
    return !FAILED(model, a, api->AddSessionConfigEntry(options, "session.force_spinning_stop", "1")) &&
           !FAILED(model, a, api->AddSessionConfigEntry(options, "session.intra_op.spin_duration_us", "50"));
}

static bool session_set_options(weir_engine_model *model, const onnx_file *file, ort_session_options *options,
                                onnx_attempt *a)
{
    const ort_api *api = model->library->api;
    const onnx_settings *s = &model->settings;
    if (FAILED(model, a, api->SetSessionGraphOptimizationLevel(options, s->optimization)) ||
        FAILED(model, a, api->SetIntraOpNumThreads(options, s->threads)) ||
        FAILED(model, a, api->AddSessionConfigEntry(options, "session.use_env_allocators", "1")) ||
        FAILED(model, a, api->AddSessionConfigEntry(options, "session.disable_prepacking", s->prepack ? "0" : "1")))
        return false;
    if (!set_waiting(model, options, a))
        return false;
    /* By its path it finds the files beside a model by itself. */
    if (s->ours && FAILED(model, a,
                          api->AddSessionConfigEntry(options, "session.model_external_initializers_file_folder_path",
                                                     file->folder)))
        return false;
    char most[32];
    snprintf(most, sizeof most, "%" PRIu64, fold_at_most(file));
    if (FAILED(model, a,
               api->AddSessionConfigEntry(options, "optimization.constant_folding_max_output_size_in_bytes", most)))
        return false;
    if (!s->memory_pattern && FAILED(model, a, api->DisableMemPattern(options)))
        return false;
    if (s->cpu_arena_off && FAILED(model, a, api->DisableCpuMemArena(options)))
        return false;
    if (!s->cpu_fallback &&
        FAILED(model, a, api->AddSessionConfigEntry(options, "session.disable_cpu_ep_fallback", "1")))
        return false;
    if (model->library->minor >= ORT_API_ASSIGNMENTS && onnx_shares_asked(model) &&
        FAILED(model, a, api->AddSessionConfigEntry(options, "session.record_ep_graph_assignment_info", "1")))
        return false;
    for (size_t i = 0; i < model->weight_count; i++)
        if (model->weights[i].value &&
            FAILED(model, a, api->AddInitializer(options, model->weights[i].name, model->weights[i].value)))
            return false;
    return true;
}

/* `stripped` has data when the weights are ours; `file` is for when they are not, or are mapped. */
static weir_status session_create(weir_engine_model *model, onnx_slot *slot, const onnx_file *file,
                                  const onnx_buffer *stripped, const weir_engine_load *load,
                                  const ort_session_options *options, ort_session **out)
{
    const ort_api *api = model->library->api;
    ort_env *env = model->library->env;
    onnx_attempt a = {0};
    uint64_t before = onnx_session_stats(slot).refused;
    weir_status status = weir_onnxruntime_enter(slot->bridge);
    if (status != WEIR_OK)
        return status;
    if (model->maps)
        onnx_weights_begin(model, file, load);
    bool made = !FAILED(model, &a,
                        stripped->data ? api->CreateSessionFromArray(env, stripped->data, stripped->size, options, out)
                                       : api->CreateSession(env, onnx_file_path(file), options, out));
    weir_onnxruntime_leave(slot->bridge);
    status = model->maps ? onnx_weights_end(model) : WEIR_OK;
    /* It goes on without a weight that was refused: then the refusal to tell is the one that ended it, whose numbers are the
     * thread's last. */
    if (status == WEIR_ERR_OUT_OF_MEMORY && !made && onnx_session_stats(slot).refused > before)
        status = WEIR_OK;
    if (status != WEIR_OK && made) {
        api->ReleaseSession(*out);
        *out = NULL;
    }
    if (status != WEIR_OK)
        return status;
    return made ? WEIR_OK : onnx_session_failed(model, slot, before, a.code, a.text, "loading");
}

static weir_status session_make_session(weir_engine_model *model, onnx_slot *slot, const onnx_file *file,
                                        const onnx_buffer *stripped, const weir_engine_load *load)
{
    const ort_api *api = model->library->api;
    ort_session_options *options = NULL;
    onnx_attempt a = {0};
    bool set = !FAILED(model, &a, api->CreateSessionOptions(&options)) && session_set_options(model, file, options, &a);
    weir_status status =
        set ? onnx_device_provide(model->library, &model->device, slot->stream, &model->settings, load, options)
            : onnx_session_failed(model, slot, UINT64_MAX, a.code, a.text, "loading");
    if (status == WEIR_OK)
        status = session_create(model, slot, file, stripped, load, options, &slot->session);
    if (status == WEIR_OK && model->settings.buckets > 1)
        slot->options = options;
    else if (options)
        api->ReleaseSessionOptions(options);
    return status;
}

/* ---- further ones ------------------------------------------------------------------------------------------------ */

/* Checks that the model's files have not changed; on an error releases the session, if any. ONNX Runtime opens the
 * files again for constants that are folded, and on cuda for weights that are not shared: from files of a different
 * model, these weights would be mixed with the model's. */
static weir_status check_origins(weir_engine_model *model, ort_session **made)
{
    weir_status status = onnx_origins_check(model->origins);
    if (status != WEIR_OK && *made) {
        model->library->api->ReleaseSession(*made);
        *made = NULL;
    }
    return status;
}

weir_status onnx_session_another(weir_engine_model *model, onnx_slot *slot, ort_session **out)
{
    *out = NULL;
    weir_status status = check_origins(model, out);
    if (status == WEIR_OK)
        status = session_create(model, slot, NULL, &model->stripped, NULL, slot->options, out);
    return status == WEIR_OK ? check_origins(model, out) : status; /* also while they were read */
}

static weir_status begin_slot(weir_engine_model *model, onnx_slot *slot, const onnx_file *file,
                              const onnx_buffer *stripped, const weir_engine_load *load)
{
    weir_status status = onnx_slot_begin(model, slot);
    if (status != WEIR_OK)
        return status;
    status = check_origins(model, &slot->session);
    if (status == WEIR_OK)
        status = session_make_session(model, slot, file, stripped, load);
    if (status == WEIR_OK)
        status = check_origins(model, &slot->session);
    if (status != WEIR_OK)
        onnx_slot_end(model, slot);
    return status;
}

/* With fewer than were wanted, more runs wait: the model serves all the same. */
static void begin_slots(weir_engine_model *model, const onnx_file *file, const onnx_buffer *stripped,
                        const weir_engine_load *load)
{
    size_t wanted = model->device.cuda ? (size_t)model->settings.concurrency : 1;
    weir_status status = WEIR_OK;
    while (model->slot_count < wanted && status == WEIR_OK) {
        status = begin_slot(model, &model->slots[model->slot_count], file, stripped, load);
        model->slot_count += status == WEIR_OK;
    }
    model->slots_failed = wanted - model->slot_count;
    if (model->slots_failed)
        weir_log(WEIR_LOG_WARNING, "onnx: %s has sessions for %zu runs at a time, and not for %zu: %s", model->name,
                 model->slot_count, wanted, weir_detail());
}

static bool has_further(const weir_engine_model *model)
{
    return model->settings.buckets > 1 || (model->device.cuda && model->settings.concurrency > 1);
}

static weir_status begin_further(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                                 const onnx_buffer *stripped, const weir_engine_load *load)
{
    weir_status status = WEIR_OK;
    model->origins = onnx_origins_of(file);
    if (!model->origins)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    if (model->device.cuda)
        status = onnx_shared_begin(model, graph);
    if (status == WEIR_OK)
        begin_slots(model, file, stripped, load);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static weir_status try_session(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                               const bool *packed, const onnx_buffer *stripped, const weir_engine_load *load)
{
    weir_status status = stripped->data ? place_weights(model, graph, packed, load) : WEIR_OK;
    return status == WEIR_OK ? session_make_session(model, &model->slots[0], file, stripped, load) : status;
}

/* A model without weights to move, as trees are, is handed over as it is mapped, which may be the bulk of it. */
static weir_status strip(const weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                         onnx_buffer *out)
{
    bool longer = model->settings.buckets > 1; /* longer than the file is */
    if (longer || onnx_strips(graph))
        return onnx_strip(file, graph, out);
    *out = (onnx_buffer){.data = (uint8_t *)(uintptr_t)file->data, .size = file->size};
    return WEIR_OK;
}

/* Checks that the model's files have not changed. ONNX Runtime opens the files by path: from a different file in the
 * same place, weights would be mixed with the model's. */
static weir_status check_read(const weir_engine_model *model, const onnx_file *file)
{
    onnx_origins *origins = onnx_origins_of(file);
    weir_status status =
        origins ? onnx_origins_check(origins) : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    onnx_origins_free(origins);
    return status;
}

/* Weights that kernels are expected to pack are not copied to the client's memory first: the packed form is there. What of
 * them is still read from the mapped file is placed, and the session made once more. */
static weir_status begin_mapped(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                                const onnx_buffer *stripped, bool *packed, const weir_engine_load *load)
{
    weir_status status = model->settings.prepack ? onnx_packed(graph, packed) : WEIR_OK;
    for (size_t left = 1; status == WEIR_OK && left > 0;) {
        uint64_t gone = 0, before = onnx_session_stats(&model->slots[0]).reserved;
        status = list_weights(model, file, graph, packed);
        if (status == WEIR_OK)
            status = session_make_session(model, &model->slots[0], file, stripped, load);
        if (status == WEIR_OK)
            status = check_read(model, file);
        left = status == WEIR_OK ? onnx_weights_settle(model, &gone) : 0;
        uint64_t packed_bytes = onnx_session_stats(&model->slots[0]).reserved - before;
        model->turned = gone > packed_bytes ? gone - packed_bytes : 0;
        if (left > 0)
            onnx_session_end(model);
    }
    return status;
}

/* On cuda ONNX Runtime copies each weight from the mapped file into a block of the client's, which is all that is
 * wanted: nothing is placed for it beforehand. */
static weir_status begin_ours(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph, bool *packed,
                              const weir_engine_load *load)
{
    onnx_buffer stripped = {0};
    weir_status status = strip(model, file, graph, &stripped);
    if (model->device.cuda)
        memset(packed, true, graph->weight_count * sizeof *packed);
    if (status == WEIR_OK)
        status = model->maps ? begin_mapped(model, file, graph, &stripped, packed, load)
                             : try_session(model, file, graph, packed, &stripped, load);
    if (status == WEIR_OK && has_further(model))
        status = begin_further(model, file, graph, &stripped, load);
    if (status == WEIR_OK && model->settings.buckets > 1)
        model->stripped = stripped;
    else
        onnx_buffer_free(&stripped);
    return status;
}

weir_status onnx_session_begin(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                               const weir_engine_load *load)
{
    static const onnx_buffer whole;
    weir_status on = onnx_goes_on(model, load);
    if (on != WEIR_OK)
        return on;
    if (!model->settings.ours)
        return try_session(model, file, graph, NULL, &whole, load);
    bool *packed = calloc(graph->weight_count + graph->inner_count + 1, sizeof *packed);
    if (!packed)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    weir_status status = begin_ours(model, file, graph, packed, load);
    free(packed);
    return status;
}

void onnx_session_end(weir_engine_model *model)
{
    const ort_api *api = model->library->api;
    onnx_replays_stop(model);
    for (size_t i = model->slot_count; i-- > 0;) /* the first session owns the weights that further sessions read */
        if (model->slots[i].session)
            api->ReleaseSession(model->slots[i].session);
    for (; model->slot_count > 1; model->slot_count--)
        onnx_slot_end(model, &model->slots[model->slot_count - 1]);
    if (model->slots[0].options)
        api->ReleaseSessionOptions(model->slots[0].options);
    onnx_buffer_free(&model->stripped);
    onnx_origins_free(model->origins);
    onnx_replays_end(model);
    onnx_weights_free(model);
    model->slots[0].session = NULL;
    model->slots[0].options = NULL;
    model->origins = NULL;
}
