/* What a model holds beside weights and sessions (model.h): streams with their bridges, leases of cores, what it takes of
 * the heap; and which provider runs how much of it. */
#include "model.h"

#include <features.h>
#include <malloc.h>
#include <stdlib.h>

#include <weir/base.h>
#include <weir/cores.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

/* ---- slots: what sessions that work at the same time do not share ------------------------------------------------ */

static weir_status open_bridge(weir_engine_model *model, onnx_slot *slot)
{
    weir_onnxruntime_options options = WEIR_INIT(weir_onnxruntime_options);
    options.api = (const struct OrtApi *)model->library->api;
    options.version = ORT_API_WANTED;
    options.env = (struct OrtEnv *)model->library->env;
    options.client = model->client;
    options.stream = slot->stream;
    return weir_onnxruntime_create(&options, &slot->bridge);
}

weir_status onnx_slot_begin(weir_engine_model *model, onnx_slot *slot)
{
    *slot = (onnx_slot){.stream = WEIR_STREAM_HOST};
    weir_status status = model->device.cuda ? weir_stream_acquire(model->runtime, &slot->stream) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    status = open_bridge(model, slot);
    if (status != WEIR_OK && model->device.cuda && weir_stream_release(slot->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays");
    return status;
}

void onnx_slot_end(weir_engine_model *model, onnx_slot *slot)
{
    const char *name = model->name;
    if (slot->options)
        model->library->api->ReleaseSessionOptions(slot->options);
    if (weir_onnxruntime_destroy(slot->bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: a bridge of %s stays: %s", name, weir_detail());
    if (slot->bridge && model->device.cuda && weir_stream_release(slot->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays: %s", weir_detail());
    *slot = (onnx_slot){.stream = WEIR_STREAM_HOST};
}

/* ---- leases of the cores that runs compute with ------------------------------------------------------------------ */

int onnx_cores(void)
{
    weir_cores_totals now = WEIR_INIT(weir_cores_totals);
    return weir_cores_info(&now) == WEIR_OK && now.cores > 0 ? (int)now.cores : 1;
}

weir_status onnx_cores_begin(weir_engine_model *model)
{
    onnx_settings *s = &model->settings;
    if (model->device.cuda || (s->provider != ONNX_CPU && s->provider != ONNX_OPENVINO))
        return WEIR_OK;
    uint32_t threads = (uint32_t)(s->threads ? s->threads : onnx_cores());
    if (s->provider == ONNX_CPU) /* OpenVINO by itself starts a thread for each core */
        s->threads = (int)threads;
    return weir_cores_open(model->name, threads, threads, &model->cores);
}

void onnx_cores_end(weir_engine_model *model)
{
    weir_cores_close(model->cores);
}

typedef struct waiting {
    weir_engine_model *model;
    onnx_run *its;
} waiting;

static bool is_cancelled(void *user)
{
    waiting *it = user;
    pthread_mutex_lock(&it->model->lock);
    bool cancelled = it->its->cancelled;
    pthread_mutex_unlock(&it->model->lock);
    return cancelled;
}

weir_status onnx_cores_take(weir_engine_model *model, onnx_run *its)
{
    uint32_t cores;
    waiting it = {model, its};
    if (!model->cores)
        return WEIR_OK;
    weir_status status = weir_cores_take(model->cores, is_cancelled, &it, &cores);
    return status == WEIR_ERR_CANCELLED ? onnx_check_cancelled(model, its) : status;
}

void onnx_cores_give(weir_engine_model *model)
{
    if (model->cores)
        weir_cores_give(model->cores);
}

/* ---- the heap: the engine's graph and kernels, trees, what its optimizer makes ----------------------------------- */

uint64_t onnx_heap_used(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
#else
    return 0;
#endif
}

static weir_status outside_claim(weir_engine_model *model)
{
    char size[24];
    weir_status status = weir_reservation_create(model->client, model->outside, 0, &model->counted);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    char words[900];
    snprintf(words, sizeof words, "%s", weir_detail());
    return weir_fail(
        status,
        "%s; it is for what ONNX Runtime takes of the heap for the model, %s, which outside=counted has counted", words,
        weir_size_format(model->outside, size, sizeof size));
}

weir_status onnx_outside_note(weir_engine_model *model, uint64_t before)
{
    uint64_t now = onnx_heap_used();
    model->outside = now > before ? now - before : 0;
    if (model->outside == 0 || model->device.cuda)
        return WEIR_OK;
    weir_status status = weir_client_note_outside(model->client, model->outside, "growth of the heap over the load");
    return status == WEIR_OK && model->settings.outside_counts ? outside_claim(model) : status;
}

void onnx_outside_end(weir_engine_model *model)
{
    if (model->counted && weir_reservation_destroy(model->counted) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: %s: what lies outside is still claimed: %s", model->name, weir_detail());
    model->counted = NULL;
}

/* ---- shares of the providers ------------------------------------------------------------------------------------- */

/* ONNX Runtime's note of who runs which node takes some 370 bytes of the heap for each node, a tenth of what the session
 * takes of the heap, until the session ends. With a single provider the note is not asked for. */
bool onnx_shares_asked(const weir_engine_model *model)
{
    return model->settings.provider != ONNX_CPU;
}

static int by_parts(const void *a, const void *b)
{
    const weir_provider_share *x = a, *y = b;
    return (x->parts < y->parts) - (x->parts > y->parts);
}

static bool count_nodes(const ort_api *api, const ort_subgraph *subgraph, uint64_t *nodes)
{
    const char *name = "";
    const ort_assigned_node *const *list = NULL;
    size_t count = 0;
    onnx_attempt a;
    if (onnx_failed(api, api->EpAssignedSubgraph_GetEpName(subgraph, &name), &a) ||
        onnx_failed(api, api->EpAssignedSubgraph_GetNodes(subgraph, &list, &count), &a))
        return false;
    onnx_provider provider = onnx_provider_of(name);
    if (provider == ONNX_PROVIDERS)
        return false;
    nodes[provider] += count;
    return true;
}

static void all_by_one(weir_engine_model *model, uint64_t nodes)
{
    model->share_count = nodes > 0;
    model->shares[0] = (weir_provider_share){onnx_provider_name(model->settings.provider), nodes, nodes};
}

void onnx_shares_read(weir_engine_model *model, uint64_t all_nodes)
{
    const ort_api *api = model->library->api;
    const ort_subgraph *const *list = NULL;
    uint64_t nodes[ONNX_PROVIDERS] = {0}, all = 0;
    size_t count = 0;
    onnx_attempt a;
    model->share_count = 0;
    if (!onnx_shares_asked(model)) {
        all_by_one(model, all_nodes);
        return;
    }
    if (model->library->minor < ORT_API_ASSIGNMENTS ||
        onnx_failed(api, api->Session_GetEpGraphAssignmentInfo(model->slots[0].session, &list, &count), &a))
        return;
    for (size_t i = 0; i < count; i++)
        if (!count_nodes(api, list[i], nodes))
            return;
    for (int i = 0; i < ONNX_PROVIDERS; i++)
        all += nodes[i];
    for (int i = 0; i < ONNX_PROVIDERS; i++)
        if (nodes[i])
            model->shares[model->share_count++] =
                (weir_provider_share){onnx_provider_name((onnx_provider)i), nodes[i], all};
    qsort(model->shares, model->share_count, sizeof *model->shares, by_parts);
}
