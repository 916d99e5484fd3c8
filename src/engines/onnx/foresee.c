/* foresee.c: see foresee.h.
 *
 * ONNX Runtime's planner gives a value a place of a value of the same type and shape that nobody needs any more, else a
 * new one; what follows a convolution or a Gemm element by element is fused with it, and so in its place. A place is there from its
 * first value to its last. With a memory pattern all places are one block, which is there for the whole run, and the
 * outputs come beside it; and in any case what kernels work in. */
#include "foresee.h"

#include <stdlib.h>
#include <string.h>

#include "cores.h"
#include "model.h"
#include "onnx_shapes/memory.h"

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

static int64_t size_of(const char *list, onnx_text wanted)
{
    const char *name;
    size_t length;
    int64_t size;
    bool bad = false;
    while (next_dim(&list, &name, &length, &size, &bad))
        if (length == wanted.size && memcmp(name, wanted.text, length) == 0)
            return size;
    return 1;
}

static const char *dims_of(const weir_engine_load *load)
{
    const char *dims = "";
    for (size_t i = 0; i < load->setting_count; i++)
        if (load->settings[i].key && strcmp(load->settings[i].key, "dims") == 0 && load->settings[i].value)
            dims = load->settings[i].value;
    return dims;
}

/* Every open dimension gets a size ------------------------------------------------------------------------------------ */

enum { MOST_OPEN = 256 };

static char *copy(onnx_text text)
{
    return strndup(text.size ? text.text : "", text.size);
}

static void drop(graph_givens *givens)
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
        graph_given given = {.name = copy(names[i]), .size = size_of(dims, names[i])};
        if (!given.name)
            return false;
        givens->dims[givens->dim_count++] = given;
    }
    return true;
}

/* Those without a name are 1. */
static bool add_shape(const graph_value *value, const char *dims, graph_givens *givens)
{
    onnx_text names[GRAPH_MAX_RANK] = {{0}};
    uint32_t count = graph_open_names(value, names), at = 0, nameless = 0;
    graph_given given = {.shape = value->said};
    for (uint32_t i = 0; i < given.shape.rank; i++)
        if (given.shape.dims[i] < 0) {
            onnx_text name = at < count ? names[at++] : (onnx_text){0};
            nameless += name.size == 0;
            given.shape.dims[i] = name.size ? size_of(dims, name) : 1;
        }
    if (nameless == 0 || !value->declared || givens->shape_count == MOST_OPEN)
        return true;
    given.name = copy(value->name);
    if (!given.name)
        return false;
    givens->shapes[givens->shape_count++] = given;
    return true;
}

/* Reads the names of the open dimensions, and gives them sizes. */
static bool give(onnx_file *file, const char *dims, graph_givens *givens)
{
    graph g = {.file = NULL};
    graph_givens none = {.dims = NULL};
    givens->dims = calloc(MOST_OPEN, sizeof *givens->dims);
    givens->shapes = calloc(MOST_OPEN, sizeof *givens->shapes);
    bool good = givens->dims && givens->shapes && graph_read(file, &none, &g) == WEIR_OK;
    for (size_t i = 0; good && i < g.value_count; i++)
        if (g.values[i].input && !g.values[i].weight)
            good = add_dims(&g.values[i], dims, givens) && add_shape(&g.values[i], dims, givens);
    graph_clear(&g);
    return good;
}

/* Places --------------------------------------------------------------------------------------------------------------- */

typedef struct place {
    uint64_t bytes, begin, end;
    const graph_value *of; /* that it was made for */
    bool output;
    bool fuses; /* made by what its followers are fused with */
} place;

typedef struct sharing {
    const graph *g;
    const graph_memory *memory;
    place *places; /* one after the other; those of the caller's inputs have no bytes */
    uint32_t *of;  /* by buffer: its place */
    uint32_t count;
    bool cuda;
} sharing;

static const graph_value *value_of(const sharing *it, uint32_t buffer)
{
    return &it->g->values[it->memory->values[buffer]];
}

static bool same_shape(const graph_value *a, const graph_value *b)
{
    return a->type == b->type && a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof *a->shape.dims) == 0;
}

/* The newest for such values that nobody needs any more. */
static uint32_t free_place(const sharing *it, const graph_value *value, const weir_buffer *buffer)
{
    uint32_t found = it->count;
    for (uint32_t i = 0; i < it->count; i++)
        if (!it->places[i].output && same_shape(it->places[i].of, value) && it->places[i].end <= buffer->begin &&
            (found == it->count || it->places[i].end > it->places[found].end))
            found = i;
    return found;
}

static bool is_made_by(const sharing *it, const graph_value *value, const char *op)
{
    return value->maker != GRAPH_NONE && onnx_text_is(it->g->nodes[value->maker].op, op);
}

/* A sum behind the product of two matrices is fused with it as well, but not of three dimensions. */
static bool fuses(const sharing *it, const graph_value *value)
{
    return is_made_by(it, value, "Conv") || is_made_by(it, value, "Gemm") ||
           (is_made_by(it, value, "MatMul") && value->shape.rank == 2);
}

static bool is_fused(const sharing *it, const weir_buffer *buffer)
{
    const place *over = buffer->sharing == WEIR_SHARING_IN_PLACE ? &it->places[it->of[buffer->of]] : NULL;
    return over && over->fuses && !over->output && over->end <= buffer->begin + 1 && !it->cuda;
}

/* Views lie where what they look at lies. An output has a place of its own, and so has an input, of the caller's. */
static void put(sharing *it, uint32_t at, const weir_buffer *buffer)
{
    const graph_value *value = value_of(it, at);
    uint32_t home = it->count;
    if (buffer->sharing == WEIR_SHARING_VIEW || is_fused(it, buffer))
        home = it->of[buffer->of];
    else if (!value->input && !value->output)
        home = free_place(it, value, buffer);
    if (home == it->count)
        it->places[it->count++] = (place){
            .bytes = value->input ? 0 : onnx_charge(buffer->bytes, it->cuda), .begin = buffer->begin, .of = value};
    place *at_home = &it->places[home];
    it->of[at] = home;
    at_home->output |= value->output;
    at_home->fuses |= fuses(it, value);
    at_home->end = buffer->end > at_home->end ? buffer->end : at_home->end;
}

static bool share(sharing *it)
{
    for (uint32_t i = 0; i < it->memory->count; i++) {
        weir_buffer buffer = WEIR_INIT(weir_buffer);
        if (weir_buffer_info(it->memory->buffers, i, &buffer) != WEIR_OK)
            return false;
        put(it, i, &buffer);
    }
    return true;
}

/* What kernels work in ------------------------------------------------------------------------------------------------- */

static uint64_t product(const graph_shape *shape, uint32_t from)
{
    uint64_t all = 1;
    for (uint32_t i = from; i < shape->rank; i++)
        if (__builtin_mul_overflow(all, (uint64_t)shape->dims[i], &all))
            return UINT64_MAX / 8;
    return all;
}

/* With more filters than points of an image the whole image is unrolled, else pieces of it, by each thread. One that has
 * nothing to unroll needs neither. */
static uint64_t convolution(const graph_value *filters, const graph_value *out, int threads)
{
    enum { OF_A_THREAD = 128 * 128 };
    uint64_t points = product(&out->shape, 2), unrolled = product(&filters->shape, 1), numbers;
    if (filters->shape.rank < 3 || product(&filters->shape, 2) == 1)
        return 0;
    if ((uint64_t)filters->shape.dims[0] <= points)
        numbers = (uint64_t)threads * OF_A_THREAD;
    else if (__builtin_mul_overflow(points, unrolled, &numbers))
        return UINT64_MAX / 8;
    return numbers * sizeof(float);
}

/* All gates of all steps at once. */
static uint64_t recurrence(const graph_value *sequence, const graph_value *recurrent)
{
    if (sequence->shape.rank != 3 || recurrent->shape.rank != 3)
        return 0;
    uint64_t steps = (uint64_t)sequence->shape.dims[0] * (uint64_t)sequence->shape.dims[1], numbers;
    if (__builtin_mul_overflow(steps, (uint64_t)recurrent->shape.dims[1], &numbers) || numbers > UINT64_MAX / 64)
        return UINT64_MAX / 8;
    return numbers * sizeof(float);
}

static bool is_recurrent(const graph_node *node)
{
    bool standard = node->domain.size == 0 || onnx_text_is(node->domain, "ai.onnx");
    return standard && (onnx_text_is(node->op, "LSTM") || onnx_text_is(node->op, "GRU"));
}

static uint64_t workspace(const graph *g, const graph_node *node, int threads)
{
    if (node->input_count < 2 || node->output_count < 1 || node->inputs[0] == GRAPH_NONE ||
        node->inputs[1] == GRAPH_NONE || node->outputs[0] == GRAPH_NONE)
        return 0;
    if (onnx_text_is(node->op, "Conv"))
        return convolution(&g->values[node->inputs[1]], &g->values[node->outputs[0]], threads);
    if (is_recurrent(node) && node->input_count > 2 && node->inputs[2] != GRAPH_NONE)
        return recurrence(&g->values[node->inputs[0]], &g->values[node->inputs[2]]);
    return 0;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t there(const sharing *it, uint64_t step)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < it->count; i++)
        if (it->places[i].begin <= step && step < it->places[i].end)
            bytes = add(bytes, it->places[i].bytes);
    return bytes;
}

/* With a pattern, the most of what is no output, all outputs, and the largest workspace. */
static uint64_t with_pattern(const sharing *it, int threads)
{
    uint64_t most = 0, outputs = 0, largest = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        uint64_t now = 0, step = it->places[i].begin;
        for (uint32_t k = 0; k < it->count; k++)
            if (!it->places[k].output && it->places[k].begin <= step && step < it->places[k].end)
                now = add(now, it->places[k].bytes);
        most = now > most ? now : most;
        outputs = add(outputs, it->places[i].output ? it->places[i].bytes : 0);
    }
    for (size_t i = 0; !it->cuda && i < it->memory->steps; i++) {
        uint64_t needs = workspace(it->g, &it->g->nodes[it->memory->order[i]], threads);
        largest = needs > largest ? needs : largest;
    }
    return add(add(most, outputs), largest);
}

static uint64_t without_pattern(const sharing *it, int threads)
{
    uint64_t most = 0;
    for (size_t i = 0; i < it->memory->steps; i++) {
        uint64_t needs = it->cuda ? 0 : workspace(it->g, &it->g->nodes[it->memory->order[i]], threads);
        uint64_t now = add(there(it, i), needs);
        most = now > most ? now : most;
    }
    return most;
}

/* The whole ------------------------------------------------------------------------------------------------------------ */

static int threads_of(const onnx_settings *settings)
{
    long here = settings->threads > 0 ? settings->threads : onnx_cores();
    return here < 1 ? 1 : here > 256 ? 256 : (int)here;
}

static bool share_all(const graph *g, bool cuda, const onnx_settings *settings, uint64_t *bytes)
{
    graph_memory memory = {.count = 0};
    sharing it = {.g = g, .memory = &memory, .cuda = cuda};
    bool good = graph_memory_make(g, true, &memory) == WEIR_OK;
    it.places = good ? calloc((size_t)memory.count + 1, sizeof *it.places) : NULL;
    it.of = good ? calloc((size_t)memory.count + 1, sizeof *it.of) : NULL;
    good = it.places && it.of && share(&it);
    if (good)
        *bytes = settings->memory_pattern ? with_pattern(&it, threads_of(settings))
                                          : without_pattern(&it, threads_of(settings));
    free(it.places);
    free(it.of);
    graph_memory_clear(&memory);
    return good;
}

static uint64_t recurrent_weights(const graph *g)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->node_count; i++)
        for (uint32_t k = 1; is_recurrent(&g->nodes[i]) && k < 3 && k < g->nodes[i].input_count; k++) {
            uint32_t id = g->nodes[i].inputs[k];
            if (id != GRAPH_NONE && g->values[id].weight)
                bytes = add(bytes, onnx_charge(g->values[id].bytes, false));
        }
    return bytes;
}

void onnx_foresee(onnx_file *file, const weir_engine_load *load, const onnx_settings *settings, bool cuda,
                  onnx_foreseen *out)
{
    graph g = {.file = NULL};
    graph_givens givens = {.dims = NULL};
    *out = (onnx_foreseen){.runs = false};
    bool good = give(file, dims_of(load), &givens) && graph_read(file, &givens, &g) == WEIR_OK;
    if (good) {
        g.effort = 0; /* branches by heuristics alone */
        out->runs = graph_infer(&g) == WEIR_OK && share_all(&g, cuda, settings, &out->activations);
        out->recurrent = recurrent_weights(&g);
    }
    if (!out->runs)
        weir_log(WEIR_LOG_DEBUG, "%s: what a run takes is not foreseen: %s", file->name, weir_detail());
    graph_clear(&g);
    drop(&givens);
}
