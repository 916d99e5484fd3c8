/* Weights of further sessions on cuda, read where the first session has them (model.h).
 *
 * On cuda ONNX Runtime places each weight in a block of its own, on the device or, for nodes that the CPU runs, on the
 * host; it does not say where, and it does not look where a weight lies that it is given (AddInitializer, 1.23 to
 * 1.31): one on the device that a node of the CPU's reads would end the process. So a weight is shared if its bytes are
 * found in a block of the first session's on the device, and no node of another provider can be a reader: the weight
 * has a single reader, or readers of kinds that no other provider runs. Each session has separate copies of constants
 * that the optimizer folds or computes from weights, and of weights that the CPU reads. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/stats.h>
#include <weir/engine.h>

enum { OPERATORS_MOST = 64, CHUNK = 1 << 20, ALIGNED = 256 };

/* ---- whose nodes ------------------------------------------------------------------------------------------------- */

/* True: the operator computes shapes or masks, the work that the CPU gets of a model on cuda. The optimizer turns no
 * such operator into another operator, and no product, convolution or recurrent layer into such an operator. */
static bool is_small_work(const char *kind)
{
    static const char names[] =
        "Abs Add And Cast Ceil Clip Concat Constant ConstantOfShape CumSum Div Equal Expand Floor Gather Greater "
        "GreaterOrEqual Identity If Less LessOrEqual Max Min Mod Mul Neg NonZero Not Or Range ReduceMax ReduceProd "
        "ReduceSum Reshape Shape Size Slice Split Squeeze Sub Tile Transpose Unsqueeze Where";
    return onnx_text_among((onnx_text){kind, strlen(kind)}, names);
}

bool onnx_shared_allowed(const onnx_use *use, bool unlike, const char *const *elsewhere, size_t count)
{
    bool tables = use->kinds & ONNX_USE_TABLE;
    if (use->count == 0 || use->kinds & ONNX_USE_OTHER)
        return false;
    if (use->count == 1 && unlike) /* the only reader is on the device, where the bytes were found */
        return true;
    for (size_t i = 0; i < count; i++)
        if (!is_small_work(elsewhere[i]) || (tables && strcmp(elsewhere[i], "Gather") == 0))
            return false;
    return true;
}

typedef struct elsewhere {
    const char *operators[OPERATORS_MOST]; /* the session's own texts */
    size_t count;
} elsewhere;

static bool shared_note(elsewhere *to, const char *kind)
{
    for (size_t i = 0; i < to->count; i++)
        if (strcmp(to->operators[i], kind) == 0)
            return true;
    if (to->count == OPERATORS_MOST)
        return false;
    to->operators[to->count++] = kind;
    return true;
}

static bool read_nodes(const weir_engine_model *model, const ort_subgraph *subgraph, elsewhere *out, onnx_attempt *a)
{
    const ort_api *api = model->library->api;
    const char *provider = "";
    const ort_assigned_node *const *list = NULL;
    size_t count = 0;
    if (FAILED(model, a, api->EpAssignedSubgraph_GetEpName(subgraph, &provider)) ||
        FAILED(model, a, api->EpAssignedSubgraph_GetNodes(subgraph, &list, &count)))
        return false;
    bool here = onnx_provider_of(provider) == ONNX_CUDA, good = true;
    for (size_t i = 0; good && !here && i < count; i++) {
        const char *kind = "";
        good = !FAILED(model, a, api->EpAssignedNode_GetOperatorType(list[i], &kind)) && shared_note(out, kind);
    }
    return good;
}

/* False: it is not known. */
static bool read_elsewhere(const weir_engine_model *model, elsewhere *out)
{
    const ort_subgraph *const *list = NULL;
    size_t count = 0;
    onnx_attempt a;
    bool good = !FAILED(model, &a,
                        model->library->api->Session_GetEpGraphAssignmentInfo(model->slots[0].session, &list, &count));
    for (size_t i = 0; good && i < count; i++)
        good = read_nodes(model, list[i], out, &a);
    return good;
}

/* ---- where they lie ---------------------------------------------------------------------------------------------- */

typedef struct piece {
    const void *data;
    uint64_t bytes; /* as ONNX Runtime asked for it: a multiple of ALIGNED */
} piece;

typedef struct pieces {
    const weir_client *client;
    piece *list;
    size_t count, capacity;
    bool failed;
} pieces;

static void note_piece(const weir_segment *segment, const weir_span *span, void *user)
{
    pieces *p = user;
    (void)segment;
    if (span->client != p->client || span->state != WEIR_SPAN_LIVE || span->memory_class != WEIR_CLASS_WEIGHTS ||
        (p->count && p->list[p->count - 1].data == span->block.pointer)) /* it goes on in the next segment */
        return;
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 256;
        piece *list = realloc(p->list, capacity * sizeof *list);
        p->failed |= !list;
        if (!list)
            return;
        p->list = list;
        p->capacity = capacity;
    }
    p->list[p->count++] = (piece){span->block.pointer, span->requested};
}

/* Whether the bytes are there; `chunk` has room for CHUNK of them. */
static weir_status shared_compare(const weir_engine_model *model, const piece *at, const onnx_tensor *tensor,
                                  char *chunk, bool *same)
{
    weir_status status = WEIR_OK;
    *same = true;
    for (uint64_t done = 0; status == WEIR_OK && *same && done < tensor->bytes; done += CHUNK) {
        size_t bytes = tensor->bytes - done < CHUNK ? (size_t)(tensor->bytes - done) : CHUNK;
        status = weir_copy(model->runtime, chunk, (const char *)at->data + done, bytes, model->slots[0].stream);
        if (status == WEIR_OK)
            status = weir_stream_synchronize(model->slots[0].stream);
        *same = status == WEIR_OK && memcmp(chunk, tensor->data + done, bytes) == 0;
    }
    return status;
}

static weir_status shared_find(const weir_engine_model *model, const pieces *all, const onnx_tensor *tensor,
                               char *chunk, void **out)
{
    weir_status status = WEIR_OK;
    bool same = false;
    *out = NULL;
    for (size_t i = 0; status == WEIR_OK && !same && i < all->count; i++) {
        if (all->list[i].bytes < tensor->bytes || all->list[i].bytes - tensor->bytes >= ALIGNED)
            continue;
        status = shared_compare(model, &all->list[i], tensor, chunk, &same);
        *out = same ? (void *)(uintptr_t)all->list[i].data : NULL;
    }
    return status;
}

/* ---- handing them on --------------------------------------------------------------------------------------------- */

/* Zeros, or another value throughout, as an optimizer may compute them. */
static bool shared_is_plain(const onnx_tensor *its)
{
    enum { WIDEST = 8 };
    return its->bytes > WIDEST && memcmp(its->data, its->data + WIDEST, its->bytes - WIDEST) == 0;
}

static uint64_t block_of(const onnx_tensor *its)
{
    return its->bytes / ALIGNED + (its->bytes % ALIGNED > 0);
}

bool onnx_shared_unlike(const onnx_graph *graph, size_t index)
{
    const onnx_tensor *its = &graph->weights[index];
    bool unlike = !shared_is_plain(its);
    for (size_t i = 0; unlike && i < graph->weight_count; i++) {
        const onnx_tensor *other = &graph->weights[i];
        uint64_t least = other->bytes < its->bytes ? other->bytes : its->bytes;
        if (i != index && block_of(other) == block_of(its))
            unlike = onnx_moved(other) && memcmp(other->data, its->data, least) != 0;
    }
    return unlike;
}

static weir_status hand_on(weir_engine_model *model, const onnx_tensor *tensor, void *data)
{
    const ort_api *api = model->library->api;
    onnx_weight *weight = &model->weights[model->weight_count];
    ort_session_options *first = model->slots[0].options; /* further slots: made later, with all shared weights */
    onnx_attempt a;
    weight->name = onnx_text_copy(tensor->name);
    if (!weight->name)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its names", model->name);
    model->weight_count++;
    if (FAILED(model, &a,
               api->CreateTensorWithDataAsOrtValue(model->device.memory, data, tensor->bytes, tensor->shape,
                                                   tensor->rank, tensor->type, &weight->value)) ||
        (first && FAILED(model, &a, api->AddInitializer(first, weight->name, weight->value))))
        return weir_fail(WEIR_ERR_ENGINE, "%s: tensor \"%s\": ONNX Runtime %s: %s", model->name, weight->name,
                         model->library->version, a.text);
    return WEIR_OK;
}

static weir_status shared_share(weir_engine_model *model, const onnx_graph *graph, const onnx_uses *uses,
                                const elsewhere *others, const pieces *all)
{
    char *chunk = malloc(CHUNK);
    free(model->weights); /* none were placed */
    model->weights = calloc(graph->weight_count + 1, sizeof *model->weights);
    weir_status status = chunk && model->weights && !all->failed
                             ? WEIR_OK
                             : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++) {
        const onnx_tensor *tensor = &graph->weights[i];
        void *data = NULL;
        bool unlike = !uses->constants && onnx_shared_unlike(graph, i);
        if (!onnx_moved(tensor) || !onnx_shared_allowed(&uses->of[i], unlike, others->operators, others->count))
            continue;
        status = shared_find(model, all, tensor, chunk, &data);
        if (data)
            status = hand_on(model, tensor, data);
    }
    free(chunk);
    return status;
}

static const char *shared_wanted_by(const weir_engine_model *model)
{
    return model->settings.buckets > 1 ? "buckets" : "concurrency";
}

weir_status onnx_shared_begin(weir_engine_model *model, const onnx_graph *graph)
{
    elsewhere others = {.count = 0};
    pieces all = {.client = model->client};
    onnx_uses uses = {.of = NULL};
    if (model->library->minor < ORT_API_ASSIGNMENTS)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "setting %s: on cuda it takes ONNX Runtime 1.%d, which tells who runs a node, and %s is "
                         "%s; without that the weights cannot be shared",
                         shared_wanted_by(model), ORT_API_ASSIGNMENTS, model->library->path, model->library->version);
    if (!read_elsewhere(model, &others))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "setting %s: ONNX Runtime %s does not tell which nodes of %s cuda runs",
                         shared_wanted_by(model), model->library->version, model->name);
    weir_status status = onnx_uses_read(graph, &uses);
    if (status == WEIR_OK)
        status = weir_layout_walk(model->runtime, note_piece, &all, NULL);
    if (status == WEIR_OK)
        status = shared_share(model, graph, &uses, &others, &all);
    free(uses.of);
    free(all.list);
    return status;
}
