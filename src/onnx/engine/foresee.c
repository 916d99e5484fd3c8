/* foresee.c: see foresee.h.
 *
 * ONNX Runtime's planner puts a value in the storage of a value of the same type and shape that is not needed any more,
 * or else in new storage. Values inside a fused node (rewrite.h) have none. A storage is live from its first value to
 * its last. With a memory pattern, from the second run of the same shapes on, all storages but the outputs are in a
 * single block that is live for the whole run, and the outputs are beside the block. In any case the kernels'
 * workspace is added. */
#include "foresee.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "rewrite.h"
#include "onnx/shapes/graph.h"

/* The setting "dims" ------------------------------------------------------------------------------------------------- */

/* Takes "name=number" off the list; false at its end, or for what is no such pair (*bad). */
static bool next_dim(const char **list, const char **name, size_t *length, int64_t *size, bool *bad)
{
    const char *at = *list + strspn(*list, ", ");
    if (!*at)
        return false;
    *name = at;
    *length = strcspn(at, "=, ");
    char *end = NULL;
    *size = at[*length] == '=' ? strtoll(at + *length + 1, &end, 10) : 0;
    *bad = *length == 0 || !end || *size < 1 || *size > INT32_MAX || (*end && !strchr(", ", *end));
    *list = end;
    return !*bad;
}

bool onnx_dims_good(const char *value)
{
    const char *name;
    size_t length;
    int64_t size;
    bool bad = false;
    while (next_dim(&value, &name, &length, &size, &bad))
        ;
    return !bad;
}

/* 0: it is not in the list. */
static int64_t foresee_size_of(const char *list, onnx_text wanted)
{
    const char *name;
    size_t length;
    int64_t size;
    bool bad = false;
    while (next_dim(&list, &name, &length, &size, &bad))
        if (length == wanted.size && memcmp(name, wanted.text, length) == 0)
            return size;
    return 0;
}

static const char *foresee_dims_of(const weir_engine_load *load)
{
    const char *dims = "";
    for (size_t i = 0; i < load->setting_count; i++)
        if (load->settings[i].key && strcmp(load->settings[i].key, "dims") == 0 && load->settings[i].value)
            dims = load->settings[i].value;
    return dims;
}

/* Every open dimension gets a size ------------------------------------------------------------------------------------ */

enum { MOST_OPEN = 256 };

static char *foresee_copy(onnx_text text)
{
    return strndup(text.size ? text.text : "", text.size);
}

static void foresee_drop(graph_givens *givens)
{
    for (size_t i = 0; i < givens->dim_count; i++)
        free(givens->dims[i].name);
    for (size_t i = 0; i < givens->shape_count; i++)
        free(givens->shapes[i].name);
    free(givens->dims);
    free(givens->shapes);
}

static bool add_dims(const graph_value *value, const char *dims, graph_givens *givens)
{
    onnx_text names[GRAPH_MAX_RANK];
    uint32_t count = graph_open_names(value, names);
    for (uint32_t i = 0; i < count; i++) {
        bool known = givens->dim_count == MOST_OPEN;
        for (size_t k = 0; k < givens->dim_count && !known; k++)
            known = strlen(givens->dims[k].name) == names[i].size &&
                    memcmp(givens->dims[k].name, names[i].text, names[i].size) == 0;
        if (known || names[i].size == 0)
            continue;
        int64_t size = foresee_size_of(dims, names[i]);
        if (size == 0)
            continue;
        graph_given given = {.name = foresee_copy(names[i]), .size = size};
        if (!given.name)
            return false;
        givens->dims[givens->dim_count++] = given;
    }
    return true;
}

/* Those of which nothing is said are 1 where they are the first of their input, else `extent`: so the command fills inputs. */
static bool add_shape(const graph_value *value, const char *dims, int64_t extent, graph_givens *givens)
{
    onnx_text names[GRAPH_MAX_RANK] = {{0}};
    uint32_t count = graph_open_names(value, names), at = 0, unsaid = 0;
    graph_given given = {.shape = value->said};
    for (uint32_t i = 0; i < count; i++)
        unsaid += names[i].size == 0 || foresee_size_of(dims, names[i]) == 0;
    for (uint32_t i = 0; i < given.shape.rank; i++)
        if (given.shape.dims[i] < 0) {
            int64_t size = at < count ? foresee_size_of(dims, names[at]) : 0;
            given.shape.dims[i] = size ? size : at == 0 ? 1 : extent;
            at++;
        }
    if (unsaid == 0 || !value->declared || givens->shape_count == MOST_OPEN)
        return true;
    given.name = foresee_copy(value->name);
    if (!given.name)
        return false;
    givens->shapes[givens->shape_count++] = given;
    return true;
}

/* Reads the names of the open dimensions, and gives them sizes. */
static bool foresee_give(onnx_file *file, const char *dims, int64_t extent, graph_givens *givens)
{
    graph g = {.file = NULL};
    graph_givens none = {.dims = NULL};
    givens->dims = calloc(MOST_OPEN, sizeof *givens->dims);
    givens->shapes = calloc(MOST_OPEN, sizeof *givens->shapes);
    bool good = givens->dims && givens->shapes && graph_read_inputs(file, &none, &g) == WEIR_OK;
    for (size_t i = 0; good && i < g.value_count; i++)
        if (g.values[i].input)
            good = add_dims(&g.values[i], dims, givens) && add_shape(&g.values[i], dims, extent, givens);
    graph_clear(&g);
    return good;
}

/* Storages ----------------------------------------------------------------------------------------------------------- */

typedef struct storage {
    uint64_t bytes, begin, end; /* as it is charged */
    uint64_t raw;               /* as it is */
    const graph_value *of;      /* that it was made for */
    bool output;
} storage;

typedef struct sharing {
    const graph *g;
    const graph_memory *memory;
    storage *storages;       /* one after the other; those of the caller's inputs have no bytes */
    uint32_t *of;            /* by buffer: its storage */
    uint32_t *at;            /* by value of the graph: the same; GRAPH_NONE: it has none */
    const uint32_t *known;   /* see rewrite.h */
    const uint32_t *readers; /* by value: how many it has */
    uint32_t count;
    bool cuda, open;
} sharing;

/* And ONNX Runtime knows it before a run. */
static bool foresee_same_shape(const sharing *it, const graph_value *a, const graph_value *b)
{
    size_t bytes = a->shape.rank * sizeof *it->known;
    const uint32_t *one = it->known + (size_t)(a - it->g->values) * GRAPH_MAX_RANK,
                   *other = it->known + (size_t)(b - it->g->values) * GRAPH_MAX_RANK;
    bool same = a->shape.rank == b->shape.rank &&
                memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof *a->shape.dims) == 0 &&
                (!it->open || memcmp(one, other, bytes) == 0);
    for (uint32_t i = 0; same && it->open && i < a->shape.rank; i++)
        same = one[i] != ONNX_UNKNOWN;
    return same;
}

/* Of two storages that are left behind the same step, that which stands later among the inputs is left later. */
static bool is_left_later(const sharing *it, uint32_t one, uint32_t other)
{
    if (it->storages[one].end != it->storages[other].end)
        return it->storages[one].end > it->storages[other].end;
    const graph_node *node = &it->g->nodes[it->memory->order[it->storages[one].end - 1]];
    for (uint32_t k = node->input_count; k > 0; k--) {
        uint32_t at = node->inputs[k - 1] == GRAPH_NONE ? GRAPH_NONE : it->at[node->inputs[k - 1]];
        if (at == one || at == other)
            return at == one;
    }
    return false;
}

/* Among the free storages of this type and shape, finds the storage that was left last; it->count: none is free. The
 * caller's inputs leave no storage behind. */
static uint32_t foresee_free_storage(const sharing *it, const graph_value *value, const weir_buffer *buffer)
{
    uint32_t found = it->count;
    for (uint32_t i = 0; i < it->count; i++)
        if (it->storages[i].end <= buffer->begin && it->storages[i].bytes > 0 && !it->storages[i].output &&
            it->storages[i].raw == buffer->bytes && it->storages[i].of->type == value->type &&
            foresee_same_shape(it, it->storages[i].of, value) && (found == it->count || is_left_later(it, i, found)))
            found = i;
    return found;
}

/* True: the node's kernel can write the output over the input. */
static bool foresee_is_in_place(const graph_node *node)
{
    static const char names[] =
        "Relu Sigmoid Tanh Elu Selu LeakyRelu ThresholdedRelu HardSigmoid Softplus Softsign Celu Clip Softmax "
        "LogSoftmax Cast";
    return onnx_text_among(node->op, names);
}

/* True: the value is written over its node's input, which is not needed after the node. */
static bool foresee_is_over(const sharing *it, const graph_value *value, const weir_buffer *buffer)
{
    if (buffer->sharing != WEIR_SHARING_IN_PLACE || value->output || value->maker == GRAPH_NONE || it->cuda)
        return false;
    const storage *over = &it->storages[it->of[buffer->of]];
    const graph_node *node = &it->g->nodes[value->maker];
    return foresee_is_in_place(node) && node->inputs[0] != GRAPH_NONE &&
           foresee_same_shape(it, &it->g->values[node->inputs[0]], value) && over->bytes > 0 && !over->output &&
           over->end <= buffer->begin + 1;
}

static bool is_of_branches(const sharing *it, uint32_t buffer)
{
    uint32_t id = it->memory->values[buffer], maker = it->g->values[id].maker;
    return maker != GRAPH_NONE && it->g->nodes[maker].branches.scratch == id;
}

/* What looks at another value, and is handed out, is a copy of it, unless the node is left out. */
static bool foresee_is_view(const sharing *it, const graph_value *value, const weir_buffer *buffer)
{
    return buffer->sharing == WEIR_SHARING_VIEW &&
           (!value->output || onnx_text_is(it->g->nodes[value->maker].op, "Identity"));
}

/* Gives the buffer a storage. A view has the storage of the viewed value. An output has a storage alone, as has an
 * input, without bytes, as inputs are the caller's memory. A value without a reader is live to the end. Memory of
 * branches has no bytes here, and is counted with the kernels' workspace. */
static void foresee_put(sharing *it, uint32_t at, const weir_buffer *buffer)
{
    const graph_value *value = &it->g->values[it->memory->values[at]];
    uint32_t home = it->count;
    bool none = value->input || is_of_branches(it, at);
    if (foresee_is_view(it, value, buffer) || foresee_is_over(it, value, buffer))
        home = it->of[buffer->of];
    else if (!none && !value->output)
        home = foresee_free_storage(it, value, buffer);
    if (home == it->count)
        it->storages[it->count++] = (storage){.bytes = none ? 0 : onnx_charge(buffer->bytes, it->cuda),
                                              .raw = buffer->bytes,
                                              .begin = buffer->begin,
                                              .of = value};
    storage *at_home = &it->storages[home];
    it->of[at] = it->at[it->memory->values[at]] = home;
    at_home->output |= value->output;
    uint64_t end = it->readers[it->memory->values[at]] ? buffer->end : it->memory->steps;
    at_home->end = end > at_home->end ? end : at_home->end;
}

static bool foresee_share(sharing *it)
{
    for (uint32_t i = 0; i < it->memory->count; i++) {
        weir_buffer buffer = WEIR_INIT(weir_buffer);
        if (weir_buffer_info(it->memory->buffers, i, &buffer) != WEIR_OK)
            return false;
        foresee_put(it, i, &buffer);
    }
    return true;
}

/* Live bytes at a step --------------------------------------------------------------------------------------------- */

/* What the kernel of the step works in, or the larger one of its branches. */
static uint64_t foresee_beside(const sharing *it, size_t step, int threads)
{
    const graph_node *node = &it->g->nodes[it->memory->order[step]];
    uint32_t scratch = node->branches.scratch;
    uint64_t inside = scratch == GRAPH_NONE ? 0 : it->g->values[scratch].bytes;
    return onnx_plus(inside, it->cuda ? 0 : onnx_workspace(it->g, node, threads));
}

static uint64_t there(const sharing *it, uint64_t step)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < it->count; i++)
        if (it->storages[i].begin <= step && step < it->storages[i].end)
            bytes = onnx_plus(bytes, it->storages[i].bytes);
    return bytes;
}

/* The block of a memory pattern. Places are added in the order of their first steps, each in the smallest gap that is
 * large enough, or else behind the last live storage. Nothing moves, so the block may be larger than the live bytes of
 * any step. */
typedef struct gap_fit {
    uint32_t *made; /* all storages, by first step */
    uint32_t *live; /* storages that are live now, by offset */
    uint64_t *offsets;
    uint32_t count;
    uint64_t size;
} gap_fit;

static uint64_t in_block(const storage *it)
{
    return it->raw > UINT64_MAX - 255 ? UINT64_MAX : (it->raw + 255) / 256 * 256;
}

static void foresee_fit(const sharing *it, gap_fit *block, uint32_t id)
{
    uint64_t bytes = in_block(&it->storages[id]), end = 0, smallest = UINT64_MAX, best = 0;
    uint32_t at = block->count;
    for (uint32_t i = 0; i <= block->count; i++) {
        uint32_t next = i < block->count ? block->live[i] : 0;
        uint64_t begin = i < block->count ? block->offsets[next] : block->size, gap = begin > end ? begin - end : 0;
        if (gap >= bytes && gap - bytes < smallest) {
            smallest = gap - bytes;
            best = end;
            at = i;
        }
        if (i < block->count)
            end = onnx_plus(block->offsets[next], in_block(&it->storages[next]));
    }
    if (smallest == UINT64_MAX)
        best = end;
    for (uint32_t i = block->count++; i > at; i--)
        block->live[i] = block->live[i - 1];
    block->live[at] = id;
    block->offsets[id] = best;
    block->size = onnx_plus(best, bytes) > block->size ? onnx_plus(best, bytes) : block->size;
}

/* Takes out the storages that are not needed after the step. */
static void foresee_leave(const sharing *it, gap_fit *block, uint64_t step)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < block->count; i++)
        if (it->storages[block->live[i]].end > step + 1)
            block->live[left++] = block->live[i];
    block->count = left;
}

/* Sorts the storages by first step. The storages are made in another order: unpacked weights are listed before they are due
 * among the steps. */
static void foresee_line_up(const sharing *it, uint32_t *made)
{
    for (uint32_t i = 0; i < it->count; i++) {
        uint32_t at = i;
        for (; at > 0 && it->storages[made[at - 1]].begin > it->storages[i].begin; at--)
            made[at] = made[at - 1];
        made[at] = i;
    }
}

/* The block, and beside it the outputs that are there and what the kernel of the step works in. */
static bool with_pattern(const sharing *it, int threads, uint64_t *bytes)
{
    gap_fit block = {.made = calloc((size_t)it->count + 1, sizeof *block.made),
                     .live = calloc((size_t)it->count + 1, sizeof *block.live),
                     .offsets = calloc((size_t)it->count + 1, sizeof *block.offsets)};
    uint64_t outputs = 0, most = 0;
    bool good = block.made && block.live && block.offsets;
    uint32_t next = 0;
    if (good)
        foresee_line_up(it, block.made);
    for (size_t i = 0; good && i < it->memory->steps; i++) {
        for (; next < it->count && it->storages[block.made[next]].begin <= i; next++) {
            const storage *made = &it->storages[block.made[next]];
            outputs = onnx_plus(outputs, made->output ? made->bytes : 0);
            if (!made->output && made->bytes)
                foresee_fit(it, &block, block.made[next]);
        }
        uint64_t now = onnx_plus(outputs, foresee_beside(it, i, threads));
        most = now > most ? now : most;
        foresee_leave(it, &block, i);
    }
    *bytes = onnx_plus(block.size ? onnx_charge(block.size, it->cuda) : 0, most);
    free(block.made);
    free(block.live);
    free(block.offsets);
    return good;
}

static uint64_t without_pattern(const sharing *it, int threads)
{
    uint64_t most = 0;
    for (size_t i = 0; i < it->memory->steps; i++) {
        uint64_t now = onnx_plus(there(it, i), foresee_beside(it, i, threads));
        most = now > most ? now : most;
    }
    return most;
}

/* The whole ------------------------------------------------------------------------------------------------------------ */

typedef struct foreseeing {
    const onnx_foresee_ask *ask;
    bool open; /* not all dimensions are in the file */
    onnx_foreseen *out;
} foreseeing;

static int threads_of(const onnx_settings *settings)
{
    long here = settings->threads > 0 ? settings->threads : onnx_cores();
    return here < 1 ? 1 : here > 256 ? 256 : (int)here;
}

onnx_foresee_ask onnx_foresee_asked(const weir_engine_load *load, const onnx_settings *settings, bool cuda)
{
    return (onnx_foresee_ask){.dims = foresee_dims_of(load),
                              .threads = threads_of(settings),
                              .optimization = settings->optimization,
                              .cuda = cuda,
                              .memory_pattern = settings->memory_pattern,
                              .prepack = settings->prepack};
}

/* What a run of the graph takes in storages, or that of a body beside its outputs. */
static bool share_all(const rewrite *fused, const foreseeing *with, const uint32_t *known, uint64_t *bytes)
{
    const graph *g = &fused->g;
    graph_memory memory = {.count = 0};
    uint64_t later = 0;
    const onnx_foresee_ask *ask = with->ask;
    sharing it = {
        .g = g, .memory = &memory, .known = known, .readers = fused->readers, .cuda = ask->cuda, .open = with->open};
    uint32_t *order = calloc(g->node_count + 1, sizeof *order);
    bool good = order && onnx_order(g, order) && graph_memory_make(g, true, order, &memory) == WEIR_OK;
    free(order);
    it.storages = good ? calloc((size_t)memory.count + 1, sizeof *it.storages) : NULL;
    it.of = good ? calloc((size_t)memory.count + 1, sizeof *it.of) : NULL;
    it.at = good ? malloc((g->value_count + 1) * sizeof *it.at) : NULL;
    for (size_t i = 0; it.at && i <= g->value_count; i++)
        it.at[i] = GRAPH_NONE;
    good = it.storages && it.of && it.at && foresee_share(&it);
    if (good && ask->memory_pattern)
        good = with_pattern(&it, ask->threads, &later);
    if (good) { /* the first run of its shapes has no pattern yet */
        *bytes = without_pattern(&it, ask->threads);
        *bytes = later > *bytes ? later : *bytes;
    }
    free(it.storages);
    free(it.of);
    free(it.at);
    graph_memory_clear(&memory);
    return good;
}

static bool fuse_and_share(graph *g, const void *user, uint64_t *bytes)
{
    const foreseeing *with = user;
    rewrite fused = {.used = 0};
    uint32_t *known = onnx_known(g);
    bool good = known && onnx_fuse(g, with->open ? known : NULL, with->ask->optimization, with->ask->cuda, &fused);
    for (size_t i = g->value_count; good && i < fused.g.value_count; i++)
        memcpy(known + i * GRAPH_MAX_RANK, known + (size_t)fused.like[i - g->value_count] * GRAPH_MAX_RANK,
               GRAPH_MAX_RANK * sizeof *known);
    good = good && share_all(&fused, with, known, bytes);
    free(known);
    rewrite_clear(&fused);
    return good;
}

/* Weights that kernels pack ---------------------------------------------------------------------------------------------- */

static uint64_t aligned(int64_t number, uint64_t to)
{
    return number < 0 ? 0 : ((uint64_t)number + to - 1) / to * to;
}

/* A matrix of `depth` by `width`, whose columns come in sixteens; of bytes with a sum for each column. */
static uint64_t packed_bytes(int32_t type, int64_t depth, int64_t width)
{
    uint64_t columns = aligned(width, 16);
    if (columns > UINT32_MAX || (uint64_t)depth > UINT32_MAX)
        return UINT64_MAX / 64;
    return type == ONNX_FLOAT ? columns * (uint64_t)depth * sizeof(float)
                              : columns * sizeof(int32_t) + columns * aligned(depth, 4);
}

/* Bytes of the input as packed by the node's kernel; 0: the kernel reads the input unpacked. */
static uint64_t packed_by(const graph_node *node, uint32_t input, const graph_value *value)
{
    const int64_t *dims = value->shape.dims;
    uint32_t rank = value->shape.rank;
    bool floats = value->type == ONNX_FLOAT, product = onnx_text_among(node->op, "MatMul FusedMatMul");
    if (input == 1 && rank == 2 && floats && product)
        return onnx_charge(packed_bytes(value->type, dims[0], dims[1]), false);
    if (input == 1 && rank == 2 && floats && onnx_text_is(node->op, "Gemm")) {
        bool turned = graph_int(node, "transB", 0);
        return onnx_charge(packed_bytes(value->type, dims[turned], dims[!turned]), false);
    }
    if (input == 1 && rank == 2 && onnx_text_is(node->op, "MatMulInteger"))
        return onnx_charge(packed_bytes(value->type, dims[0], dims[1]), false);
    bool gates = (input == 1 || input == 2) && rank == 3;
    if (gates && floats && onnx_is_recurrent(node))
        return onnx_charge((uint64_t)dims[0] * packed_bytes(value->type, dims[2], dims[1]), false);
    if (gates && onnx_text_is(node->op, "DynamicQuantizeLSTM"))
        return onnx_charge((uint64_t)dims[0] * packed_bytes(value->type, dims[1], dims[2]), false);
    return 0;
}

/* What the value is a copy of under another name: ONNX Runtime takes that out. */
static uint32_t foresee_original(const graph *g, uint32_t id)
{
    for (size_t i = 0; i < g->node_count && id != GRAPH_NONE && g->values[id].maker != GRAPH_NONE;
         i++) { /* never in a circle */
        const graph_node *node = &g->nodes[g->values[id].maker];
        if (!onnx_text_is(node->op, "Identity") || node->input_count != 1)
            break;
        id = node->inputs[0];
    }
    return id;
}

static bool is_weight(const graph *g, uint32_t id)
{
    const graph_value *value = &g->values[id];
    return value->weight || (value->maker != GRAPH_NONE && onnx_text_is(g->nodes[value->maker].op, "Constant"));
}

typedef struct weighing {
    uint64_t packed; /* bytes as packed by a kernel: the same for all kernels, and counted once */
    bool read;       /* unpacked, by some node */
    bool gone;       /* the optimizer has replaced the weight by a constant on the heap */
} weighing;

/* A normalisation is computed into the convolution before it, which then has other filters. */
static void fuse(const graph *g, weighing *list)
{
    for (size_t i = 0; i < g->node_count; i++) {
        const graph_node *node = &g->nodes[i], *before = NULL;
        if (!onnx_text_is(node->op, "BatchNormalization") || node->input_count < 5 || node->inputs[0] == GRAPH_NONE)
            continue;
        const graph_value *x = &g->values[node->inputs[0]];
        before = x->maker == GRAPH_NONE || x->output ? NULL : &g->nodes[x->maker];
        if (!before || !onnx_text_is(before->op, "Conv") || before->input_count < 2)
            continue;
        for (uint32_t k = 1; k < node->input_count + before->input_count; k++) {
            uint32_t id = k < node->input_count ? node->inputs[k] : before->inputs[k - node->input_count];
            id = id == node->inputs[0] ? GRAPH_NONE : foresee_original(g, id);
            if (id != GRAPH_NONE && is_weight(g, id) && k != node->input_count) /* not the convolution's own input */
                list[id].gone = true;
        }
    }
}

static bool is_lifted(const onnx_foresee_ask *ask, onnx_text name)
{
    const onnx_graph *model = ask->model;
    size_t i = 0;
    while (model && i < model->inner_count && !(model->inner[i].lifted && onnx_text_same(model->inner[i].name, name)))
        i++;
    return model && i < model->inner_count;
}

/* A weight that every reader packs is not kept as it is; in a graph inside a node only if it is lifted. False without host
 * memory. */
static bool weigh(const graph *g, const onnx_foresee_ask *ask, onnx_foreseen *out)
{
    weighing *list = calloc(g->value_count + 1, sizeof *list);
    for (size_t i = 0; list && i < g->node_count; i++)
        for (uint32_t k = 0; k < g->nodes[i].input_count; k++) {
            uint32_t id = foresee_original(g, g->nodes[i].inputs[k]);
            if (id == GRAPH_NONE || !is_weight(g, id) || onnx_text_is(g->nodes[i].op, "Identity"))
                continue;
            uint64_t bytes = ask->prepack ? packed_by(&g->nodes[i], k, &g->values[id]) : 0;
            list[id].read |= bytes == 0;
            list[id].packed = bytes ? bytes : list[id].packed;
        }
    if (list && ask->optimization > 0)
        fuse(g, list);
    for (size_t i = 0; list && i < g->value_count; i++) {
        const graph_value *value = &g->values[i];
        bool needed = list[i].read || list[i].packed == 0 || value->output;
        bool stays = g->outer && !is_lifted(ask, value->name); /* of a branch, beside what became of it */
        out->packed = onnx_plus(out->packed, list[i].packed);
        if (value->bytes >= ONNX_INLINE_BELOW && !stays && (list[i].gone || !needed))
            out->replaced = onnx_plus(out->replaced, onnx_charge(value->bytes, false));
    }
    bool good = list != NULL;
    free(list);
    return good;
}

/* Of a branch, what its weights take is added to what is foreseen of the model. */
static bool foresee_branch(graph *g, const void *user, uint64_t *bytes)
{
    const foreseeing *with = user;
    return weigh(g, with->ask, with->out) && fuse_and_share(g, with, bytes);
}

/* In the order in which the command tries them for inputs that are not given. */
static const int64_t extents[] = {16,  1,   2,   4,   8,   32,  64,  96,  128, 160,
                                  224, 256, 288, 320, 384, 416, 512, 576, 640, 1024};

/* So many nodes are looked at again with other sizes for whatever reason; of more, where the graph contradicts itself. */
enum { FEW_NODES = 4096 };

/* Answers whether other sizes may do better. */
static bool foresee(onnx_file *file, int64_t extent, const onnx_foresee_ask *ask, onnx_foreseen *out)
{
    graph g = {.file = NULL};
    graph_givens givens = {.dims = NULL};
    *out = (onnx_foreseen){.runs = false};
    bool good = foresee_give(file, ask->dims, extent, &givens) && graph_read(file, &givens, &g) == WEIR_OK;
    bool again = givens.shape_count > 0;
    if (good) {
        foreseeing with = {.ask = ask, .open = givens.shape_count + givens.dim_count > 0, .out = out};
        g.takes = foresee_branch;
        g.user = &with;
        weir_status status = graph_infer(&g);
        out->runs = status == WEIR_OK && fuse_and_share(&g, &with, &out->activations);
        again &= !out->runs && (status == WEIR_ERR_CORRUPT || g.node_count <= FEW_NODES);
        out->whole = weigh(&g, ask, out);
    }
    graph_clear(&g);
    foresee_drop(&givens);
    return good && again;
}

void onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out)
{
    onnx_foreseen first = {.runs = false};
    bool again = true;
    for (size_t i = 0; again && i < sizeof extents / sizeof *extents; i++) {
        again = foresee(file, extents[i], ask, out);
        if (i == 0) {
            first = *out;
            if (!out->runs)
                weir_log(WEIR_LOG_DEBUG, "%s: what a run takes is not foreseen: %s", file->name, weir_detail());
        }
    }
    if (!out->runs)
        *out = first;
}
