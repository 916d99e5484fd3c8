/* layout.c: bytes of a model's weights, cache and buffers, from its hyper-parameters and how it is to be loaded.
 *
 * Sums do not wrap: a file may claim what no memory has, and what it would take is then the largest number. */
#include "gguf/file/layout.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t gguf_file_layout_times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t gguf_file_layout_rounded(uint64_t bytes, uint64_t to)
{
    return bytes > UINT64_MAX - to ? UINT64_MAX : (bytes + to - 1) / to * to;
}

bool wi_gguf_cache_type(const char *name, uint32_t *type)
{
    static const struct {
        const char *name;
        uint32_t type;
    } list[] = {{"", 1},     {"f32", 0},  {"f16", 1},  {"bf16", 30}, {"q8_0", 8},
                {"q4_0", 2}, {"q4_1", 3}, {"q5_0", 6}, {"q5_1", 7},  {"iq4_nl", 20}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcasecmp(list[i].name, name) == 0) {
            *type = list[i].type;
            return true;
        }
    return false;
}

/* The cache -------------------------------------------------------------------------------------------------------- */

static uint64_t gguf_file_layout_row(uint32_t type, uint64_t numbers)
{
    uint32_t elements = 1, bytes = 4;
    (void)wi_gguf_type_block(type, &elements, &bytes);
    return gguf_file_layout_times((numbers + elements - 1) / elements, bytes);
}

/* Cells come by 256. A window has room for the tokens of one step beside it. */
static uint64_t cells(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer)
{
    uint64_t all = gguf_file_layout_rounded(asked->context, 256);
    if (!layer->windowed || asked->whole_windows)
        return all;
    uint64_t seen = plus(gguf_file_layout_times(h->window, asked->shared ? asked->sequences : 1), asked->batch);
    return gguf_file_layout_rounded(seen < all ? seen : all, 256);
}

static uint64_t values_of(const wg_hyper *h, const wg_layer *layer)
{
    return gguf_file_layout_times(layer->windowed ? h->value_windowed : h->value, layer->heads_kv);
}

/* Without flash attention values lie transposed, and in every layer as wide as in the widest. */
static uint64_t widest_values(const wg_hyper *h)
{
    uint64_t widest = 0;
    for (uint32_t i = 0; i < h->layers; i++)
        widest = most(widest, values_of(h, &h->layer[i]));
    return widest;
}

static uint64_t gguf_file_layout_state_of(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer)
{
    bool has = h->remembers && layer->memory & WG_STATE;
    return has ? gguf_file_layout_times(gguf_file_layout_times(plus(h->state_r, h->state_s), 4), asked->sequences) : 0;
}

static uint64_t gguf_file_layout_cache_of(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer,
                                          uint64_t widest)
{
    uint64_t bytes = 0, streams = asked->shared ? 1 : asked->sequences;
    if (!h->remembers)
        return 0;
    if (layer->memory & WG_CELLS) {
        uint64_t keys = gguf_file_layout_times(layer->windowed ? h->key_windowed : h->key, layer->heads_kv);
        uint64_t values = asked->flash ? values_of(h, layer) : widest;
        uint64_t cell = plus(gguf_file_layout_row(asked->type_k, keys),
                             h->latent ? 0 : gguf_file_layout_row(asked->type_v, values));
        bytes = gguf_file_layout_times(gguf_file_layout_times(cell, cells(h, asked, layer)), streams);
    }
    return plus(bytes, gguf_file_layout_state_of(h, asked, layer));
}

/* Returns the bytes of a layer's cache that do not depend on the number of tokens. */
static uint64_t fixed_of(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer, uint64_t cache)
{
    bool window = layer->windowed && cells(h, asked, layer) < gguf_file_layout_rounded(asked->context, 256);
    return window ? cache : gguf_file_layout_state_of(h, asked, layer);
}

/* What computing takes ---------------------------------------------------------------------------------------------
 *
 * An estimate: what is alive at the busiest moment of the busiest layer, as llama.cpp's graphs have it, in numbers for
 * each token of a step. A "stream" is one vector of the model's width. */

/* The two wide halves and their product, or the one half, beside four streams; of experts either that, or their answers and a copy of them
 * beside three. */
static uint64_t forward_numbers(const wg_hyper *h, const wg_layer *layer)
{
    uint64_t dense = plus(gguf_file_layout_times(layer->wide, h->ungated ? 1 : 3), gguf_file_layout_times(h->width, 4)),
             used = layer->experts_used;
    if (used == 0)
        return dense;
    uint64_t wide = gguf_file_layout_times(used, layer->wide_expert > 0 ? layer->wide_expert : layer->wide);
    uint64_t halves = plus(gguf_file_layout_times(wide, 3), gguf_file_layout_times(h->width, 5));
    uint64_t answers = plus(gguf_file_layout_times(gguf_file_layout_times(used, h->width), 2),
                            plus(wide, gguf_file_layout_times(h->width, 3)));
    return most(layer->wide_expert > 0 ? dense : 0, most(halves, answers));
}

/* Queries, new keys and values, the answer, and two streams. Keys that stand for values are unpacked before. */
static uint64_t attention_numbers(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer)
{
    uint64_t keys = layer->windowed ? h->key_windowed : h->key, values = layer->windowed ? h->value_windowed : h->value;
    uint64_t queries =
        gguf_file_layout_times(layer->heads, plus(keys, gguf_file_layout_times(values, h->latent ? 2 : 1)));
    uint64_t fresh = gguf_file_layout_times(layer->heads_kv, plus(keys, values));
    uint64_t scores = 0;
    if (!asked->flash)
        scores = gguf_file_layout_times(layer->heads, h->remembers ? cells(h, asked, layer) : asked->batch);
    return plus(plus(gguf_file_layout_times(h->width, 2), plus(queries, fresh)), scores);
}

/* Projections of the inner width and their convolution; of an architecture that mixes neighbours, their mixtures. */
static uint64_t state_numbers(const wg_hyper *h)
{
    return h->inner > 0 ? plus(gguf_file_layout_times(h->inner, 6), gguf_file_layout_times(h->width, 2))
                        : gguf_file_layout_times(h->width, 20);
}

static uint64_t layer_numbers(const wg_hyper *h, const wg_asked *asked, const wg_layer *layer)
{
    uint64_t numbers = forward_numbers(h, layer);
    if (layer->memory & WG_CELLS)
        numbers = most(numbers, attention_numbers(h, asked, layer));
    if (layer->memory & WG_STATE)
        numbers = most(numbers, state_numbers(h));
    return numbers;
}

/* The masks of attention, one for layers that see all and one for windows, in halves, or without flash attention in
 * floats. */
static uint64_t masks(const wg_hyper *h, const wg_asked *asked)
{
    uint64_t all = 0, windowed = 0;
    for (uint32_t i = 0; i < h->own; i++)
        if (h->layer[i].memory & WG_CELLS) {
            uint64_t cell = h->remembers ? cells(h, asked, &h->layer[i]) : asked->batch;
            if (h->layer[i].windowed)
                windowed = cell;
            else
                all = cell;
        }
    return gguf_file_layout_times(gguf_file_layout_times(plus(all, windowed), asked->batch), asked->flash ? 2 : 4);
}

static uint64_t gguf_file_layout_compute(const wg_hyper *h, const wg_asked *asked)
{
    enum { SMALL = 25 }; /* bytes of each token's number, place and sequence */
    uint64_t busiest = 0, states = 0;
    for (uint32_t i = 0; i < h->own; i++) {
        busiest = most(busiest, layer_numbers(h, asked, &h->layer[i]));
        if (h->layer[i].memory & WG_STATE)
            states = gguf_file_layout_times(plus(h->state_r, h->state_s), gguf_file_layout_times(asked->sequences, 4));
    }
    uint64_t layers = plus(gguf_file_layout_times(gguf_file_layout_times(busiest, asked->batch), 4), states);
    uint64_t results = gguf_file_layout_times(gguf_file_layout_times(plus(h->vocabulary, h->width), asked->outputs), 4);
    return plus(plus(most(layers, results), masks(h, asked)), gguf_file_layout_times(asked->batch, SMALL));
}

/* The whole -------------------------------------------------------------------------------------------------------- */

static void gguf_file_layout_add(wg_bytes *to, uint64_t weights, uint64_t cache, uint64_t fixed)
{
    to->weights = plus(to->weights, weights);
    to->cache = plus(to->cache, cache);
    to->fixed = plus(to->fixed, fixed);
}

/* Layers come to the device from the last on, behind the output layer, which counts as one. A table of tokens that
 * serves as the output, too, is there twice then. */
void wi_gguf_layout_make(const wg_hyper *h, const wg_asked *asked, wg_layout *out)
{
    uint32_t all = h->own + 1, there = asked->device_layers < all ? asked->device_layers : all;
    uint64_t widest = widest_values(h);
    *out = (wg_layout){.layers = all, .device_layers = there};
    for (uint32_t i = 0; i < h->layers; i++) {
        bool on_device = there > 0 && i + there >= all;
        uint64_t cache = i < h->own ? gguf_file_layout_cache_of(h, asked, &h->layer[i], widest) : 0;
        uint64_t fixed = i < h->own ? fixed_of(h, asked, &h->layer[i], cache) : 0;
        gguf_file_layout_add(on_device ? &out->device : &out->host, h->layer[i].weights, cache, fixed);
    }
    gguf_file_layout_add(&out->host, h->first, 0, 0);
    gguf_file_layout_add(there > 0 ? &out->device : &out->host, h->last, 0, 0);
    if (there > 0)
        out->device.weights = plus(out->device.weights, h->tied);
    uint64_t scratch = gguf_file_layout_compute(h, asked);
    if (there > 0)
        out->device.compute = scratch;
    if (there < all)
        out->host.compute = scratch;
    uint64_t numbers = plus(h->vocabulary, asked->embeds ? h->width_out : 0);
    out->host.outputs =
        gguf_file_layout_rounded(gguf_file_layout_times(gguf_file_layout_times(numbers, asked->sequences), 4), 256);
}
