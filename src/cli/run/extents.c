/* extents.c: extents that an ONNX model's own constants ask for, found by the shapes of its graph and without a run. */
#include "tensors.h"

#include "cli/text.h"
#include "onnx/file/file.h"
#include "onnx/shapes/graph.h"

#include <stdlib.h>
#include <string.h>

enum {
    EXTENTS_SYMBOLS = 32,    /* most open dimensions, those of the same name counted once */
    EXTENTS_CANDIDATES = 48, /* most extents that are tried for a node */
    EXTENTS_TRIES = 300,     /* most graphs that are inferred for a model */
    EXTENTS_LARGEST = 1 << 20,
    EXTENTS_BYTES = 1 << 28 /* most bytes of an input */
};

/* An open dimension of an input, and the symbol that it has. */
typedef struct extents_place {
    size_t input;
    uint32_t dim, symbol;
} extents_place;

typedef struct extents_search {
    onnx_file file;
    const inputs *made;
    graph_given *shapes; /* by input */
    extents_place *places;
    size_t place_count, tries;
    graph_given symbols[EXTENTS_SYMBOLS]; /* with a name of "" where the file has none */
    size_t symbol_count;
    int64_t candidates[EXTENTS_CANDIDATES]; /* of the first node that does not take its inputs */
    size_t candidate_count;
} extents_search;

/* Symbols ---------------------------------------------------------------------------------------------------------- */

/* Finds or makes the symbol of that name; -1: there are too many. A dimension without a name gets a symbol of its own. */
static int64_t extents_symbol(extents_search *s, onnx_text name, int64_t size)
{
    for (size_t i = 0; i < s->symbol_count && name.size > 0; i++)
        if (onnx_text_is(name, s->symbols[i].name))
            return (int64_t)i;
    if (s->symbol_count == EXTENTS_SYMBOLS)
        return -1;
    char *copy = text_print("%.*s", (int)name.size, name.size > 0 ? name.text : "");
    s->symbols[s->symbol_count] = (graph_given){.name = copy, .size = size};
    return (int64_t)s->symbol_count++;
}

static void extents_add_places(extents_search *s, size_t input, const graph_value *value)
{
    onnx_text names[GRAPH_MAX_RANK] = {{0}};
    const weir_tensor *tensor = &s->made->tensors[input];
    uint32_t count = graph_open_names(value, names), at = 0;
    for (uint32_t i = 0; i < tensor->rank && tensor->rank == value->said.rank && at < count; i++) {
        int64_t symbol = value->said.dims[i] < 0 ? extents_symbol(s, names[at++], tensor->shape[i]) : -1;
        if (symbol >= 0)
            s->places[s->place_count++] = (extents_place){input, i, (uint32_t)symbol};
    }
}

/* Gives every input the shape that it has now, and finds the open dimensions of those that were filled. */
static weir_status extents_begin(extents_search *s)
{
    graph g = {.file = NULL};
    graph_givens none = {.dims = NULL};
    weir_status status = graph_read_inputs(&s->file, &none, &g);
    s->shapes = text_zeroed(s->made->count, sizeof *s->shapes);
    s->places = text_zeroed(s->made->count * GRAPH_MAX_RANK, sizeof *s->places);
    for (size_t i = 0; status == WEIR_OK && i < s->made->count; i++) {
        const weir_tensor *tensor = &s->made->tensors[i];
        uint32_t id = graph_find(&g, (onnx_text){tensor->name, strlen(tensor->name)});
        s->shapes[i].name = text_copy(tensor->name);
        s->shapes[i].shape.rank = tensor->rank <= GRAPH_MAX_RANK ? tensor->rank : GRAPH_MAX_RANK;
        memcpy(s->shapes[i].shape.dims, tensor->shape, s->shapes[i].shape.rank * sizeof *tensor->shape);
        if (s->made->open[i] && id != GRAPH_NONE)
            extents_add_places(s, i, &g.values[id]);
    }
    graph_clear(&g);
    return status;
}

static void extents_end(extents_search *s)
{
    for (size_t i = 0; s->shapes != NULL && i < s->made->count; i++)
        free(s->shapes[i].name);
    for (size_t i = 0; i < s->symbol_count; i++)
        free(s->symbols[i].name);
    free(s->shapes);
    free(s->places);
    onnx_file_close(&s->file);
}

/* Candidates ------------------------------------------------------------------------------------------------------- */

static void extents_add(extents_search *s, int64_t extent)
{
    if (extent < 1 || extent > EXTENTS_LARGEST || s->candidate_count == EXTENTS_CANDIDATES)
        return;
    for (size_t i = 0; i < s->candidate_count; i++)
        if (s->candidates[i] == extent)
            return;
    s->candidates[s->candidate_count++] = extent;
}

/* Adds the numbers of a constant that is a shape or a list of sizes, their sum and their product. */
static void extents_add_contents(extents_search *s, graph *g, uint32_t id)
{
    const graph_value *value = &g->values[id];
    const graph_number *numbers = value->elements <= GRAPH_MAX_RANK ? graph_contents(g, id) : NULL;
    int64_t sum = 0, product = 1, number;
    for (uint64_t i = 0; numbers != NULL && i < value->elements; i++) {
        if (graph_real(value->type) || !graph_whole(value->type, numbers[i], &number) || number > EXTENTS_LARGEST)
            return;
        extents_add(s, number);
        sum += number > 0 ? number : 0;
        product = number > 0 && product <= EXTENTS_LARGEST ? product * number : product;
    }
    extents_add(s, product);
    extents_add(s, sum);
}

/* Lists what the node's inputs have of extents, those of constants first. */
static void extents_collect(extents_search *s, graph *g, const graph_node *node)
{
    s->candidate_count = 0;
    for (int constant = 1; constant >= 0; constant--)
        for (uint32_t i = 0; i < node->input_count; i++) {
            const graph_value *value = node->inputs[i] != GRAPH_NONE ? &g->values[node->inputs[i]] : NULL;
            if (value == NULL || !value->shaped || (value->weight || value->constant) != (constant == 1))
                continue;
            if (constant == 1)
                extents_add_contents(s, g, node->inputs[i]);
            for (uint32_t k = 0; k < value->shape.rank; k++)
                extents_add(s, value->shape.dims[k]);
        }
}

/* Search ----------------------------------------------------------------------------------------------------------- */

/* Answers how many nodes take what comes to them with the extents as they are; SIZE_MAX: all of them do. With `collect`
 * the candidates are those of the first node that does not. */
static size_t extents_infer(extents_search *s, bool collect)
{
    graph_givens givens = {s->symbols, s->shapes, s->symbol_count, s->made->count};
    graph g = {.file = NULL};
    size_t good = 0;
    for (size_t i = 0; i < s->place_count; i++)
        s->shapes[s->places[i].input].shape.dims[s->places[i].dim] = s->symbols[s->places[i].symbol].size;
    s->tries++;
    if (graph_read(&s->file, &givens, &g) != WEIR_OK)
        return 0;
    if (graph_infer(&g) == WEIR_OK)
        good = SIZE_MAX;
    for (bool shaped = good == 0; shaped && good < g.node_count; good += shaped)
        for (uint32_t i = 0; i < g.nodes[good].output_count; i++) {
            uint32_t id = g.nodes[good].outputs[i];
            shaped = shaped && (id == GRAPH_NONE || g.values[id].shaped);
        }
    if (collect && good < g.node_count)
        extents_collect(s, &g, &g.nodes[good]);
    graph_clear(&g);
    return good;
}

/* Tries each candidate for each symbol and keeps the pair with which most nodes are good; answers how many those are. */
static size_t extents_improve(extents_search *s, size_t good)
{
    size_t symbol = 0, best = good;
    int64_t extent = 0;
    for (size_t i = 0; i < s->symbol_count; i++) {
        int64_t before = s->symbols[i].size;
        for (size_t k = 0; k < s->candidate_count && best != SIZE_MAX && s->tries < EXTENTS_TRIES; k++) {
            s->symbols[i].size = s->candidates[k];
            size_t now = extents_infer(s, false);
            if (now > best) {
                best = now;
                symbol = i;
                extent = s->candidates[k];
            }
        }
        s->symbols[i].size = before;
    }
    if (best > good)
        s->symbols[symbol].size = extent;
    return best;
}

static bool extents_refill(const extents_search *s, inputs *made)
{
    bool good = true;
    for (size_t i = 0, bytes; good && i < made->count; i++)
        if (made->open[i])
            good = weir_tensor_bytes(made->tensors[i].type, made->tensors[i].rank, s->shapes[i].shape.dims, &bytes) ==
                       WEIR_OK &&
                   bytes <= EXTENTS_BYTES && inputs_refill(made, i, s->shapes[i].shape.dims) == WEIR_OK;
    return good;
}

bool extents_demand(const char *path, inputs *made)
{
    extents_search s = {.made = made};
    bool better = false;
    if (onnx_file_open(path, &s.file) != WEIR_OK)
        return false;
    if (onnx_check(&s.file) == WEIR_OK && extents_begin(&s) == WEIR_OK) {
        size_t first = extents_infer(&s, true), good = first, last;
        do {
            last = good;
            good = extents_improve(&s, last);
            extents_infer(&s, true); /* also puts the extents that were kept into the shapes */
        } while (good > last && good != SIZE_MAX);
        better = good > first && extents_refill(&s, made);
    }
    extents_end(&s);
    return better;
}
