/* How much of a model each provider runs, as ONNX Runtime assigned its nodes. ONNX Runtime's note of the assignment
 * takes some 370 bytes of the heap for each node, a tenth of what the session takes of the heap, until the session
 * ends. With a single provider the note is not asked for. */
#include "model.h"
#include <weir/engine.h>

#include <stdlib.h>

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
    int code;
    char text[256];
    if (onnx_failed(api, api->EpAssignedSubgraph_GetEpName(subgraph, &name), &code, text, sizeof text) ||
        onnx_failed(api, api->EpAssignedSubgraph_GetNodes(subgraph, &list, &count), &code, text, sizeof text))
        return false;
    onnx_provider provider = onnx_provider_of(name);
    if (provider == ONNX_PROVIDERS)
        return false;
    nodes[provider] += count;
    return true;
}

bool onnx_shares_asked(const weir_engine_model *model)
{
    return model->settings.provider != ONNX_CPU;
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
    int code;
    char text[256];
    model->share_count = 0;
    if (!onnx_shares_asked(model)) {
        all_by_one(model, all_nodes);
        return;
    }
    if (model->library->minor < ORT_API_ASSIGNMENTS ||
        onnx_failed(api, api->Session_GetEpGraphAssignmentInfo(model->slots[0].session, &list, &count), &code, text,
                    sizeof text))
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
