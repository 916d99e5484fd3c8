/* Keys and values in block pools: the geometry of a block, with every product checked for overflow. */
#include "runtime/block_pool/block_pool.h"
#include "base/values.h"
#include <weir/block_pool.h>
#include <weir/experimental/kv.h>

static const uint64_t most_bytes = (uint64_t)INT64_MAX;

static weir_status kv_check_geometry(const weir_kv_geometry *g)
{
    const char *zero = g->layers == 0      ? "layers"
                       : g->kv_heads == 0  ? "kv_heads"
                       : g->tokens == 0    ? "tokens"
                       : g->head_size == 0 ? "head_size"
                                           : NULL;
    if (zero)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: %s is 0", zero);
    if (g->planes > 2)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: %u planes; keys and values are 2, both in one are 1",
                         g->planes);
    if (g->layers_in_block > g->layers)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: %u layers share a block, but the model has %u",
                         g->layers_in_block, g->layers);
    if ((g->type == WEIR_TYPE_NONE) == (g->bits == 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: say either the type of an element or its bits");
    if (g->type != WEIR_TYPE_NONE && (wi_type_bytes(g->type) == 0 || g->type == WEIR_TYPE_TEXT))
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: %s (%d) is no type of elements",
                         weir_name_of(WEIR_NAMES_TYPE, g->type), (int)g->type);
    return WEIR_OK;
}

/* Bytes of one row of a head in memory. */
static weir_status kv_row_bytes(const weir_kv_geometry *g, uint64_t *bytes)
{
    uint64_t bits = g->bits ? g->bits : wi_type_bytes(g->type) * 8;
    uint64_t row = bits * g->head_size, least = (row + 7) / 8; /* two factors of 32 bits cannot overflow */
    if (g->row_bytes == 0 && row % 8 != 0)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_kv_layout_of: a row of %u elements of %llu bits is not whole bytes; say row_bytes",
                         g->head_size, (unsigned long long)bits);
    if (g->row_bytes != 0 && g->row_bytes < least)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: row_bytes is %u, but %u elements of %llu bits take %llu",
                         g->row_bytes, g->head_size, (unsigned long long)bits, (unsigned long long)least);
    *bytes = g->row_bytes ? g->row_bytes : least;
    return WEIR_OK;
}

/* *to = a * b. False: it is more than any device has. */
static bool kv_multiply(uint64_t a, uint64_t b, uint64_t *to)
{
    return !__builtin_mul_overflow(a, b, to) && *to <= most_bytes;
}

weir_status weir_kv_layout_of(const weir_kv_geometry *geometry, weir_kv_layout *out)
{
    WI_ENTER();
    weir_kv_layout l = {.struct_size = sizeof l};
    weir_kv_geometry *g = &l.geometry;
    if (!out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_layout_of: no place for the result, or its struct_size is not set");
    weir_status status = WI_COPY_IN(weir_kv_geometry, g, geometry, "weir_kv_layout_of");
    if (status != WEIR_OK)
        return status;
    g->struct_size = sizeof *g;
    status = kv_check_geometry(g);
    if (status == WEIR_OK)
        status = kv_row_bytes(g, &l.token);
    if (status != WEIR_OK)
        return status;
    g->layers_in_block = g->layers_in_block ? g->layers_in_block : 1;
    g->planes = g->planes ? g->planes : 2;
    l.parts = (uint32_t)(((uint64_t)g->layers + g->layers_in_block - 1) / g->layers_in_block);
    l.blocks = (uint64_t)l.parts * g->blocks_per_layer;
    bool fits = kv_multiply(l.token, g->tokens, &l.head) && kv_multiply(l.head, g->kv_heads, &l.plane) &&
                kv_multiply(l.plane, g->planes, &l.layer) && kv_multiply(l.layer, g->layers_in_block, &l.bytes);
    /* These products bound those above: an element has at least one bit. */
    fits = fits && kv_multiply((uint64_t)g->head_size * g->tokens, g->kv_heads, &l.elements) &&
           kv_multiply(l.elements, (uint64_t)g->planes, &l.elements) &&
           kv_multiply(l.elements, g->layers_in_block, &l.elements);
    if (!fits)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_kv_layout_of: a block of %u layers x %u planes x %u heads x %u tokens x %llu bytes is "
                         "beyond 2^63 bytes",
                         g->layers_in_block, g->planes, g->kv_heads, g->tokens, (unsigned long long)l.token);
    wi_copy_out(out, out->struct_size, &l, sizeof l);
    return WEIR_OK;
}

weir_status weir_kv_fits(const weir_block_pool *pool, const weir_kv_layout *layout, uint64_t *waste)
{
    WI_ENTER();
    if (!pool || !layout || layout->struct_size < sizeof *layout || layout->bytes == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_fits: NULL, or a layout that weir_kv_layout_of has not made");
    if (layout->bytes > pool->bytes)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "a block of the pool %s has %zu bytes; this geometry needs %llu",
                         pool->tag, pool->bytes, (unsigned long long)layout->bytes);
    if (layout->blocks > pool->count)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the pool %s has %u blocks; %u parts of %u blocks each need %llu",
                         pool->tag, pool->count, layout->parts, layout->geometry.blocks_per_layer,
                         (unsigned long long)layout->blocks);
    if (waste)
        *waste = pool->bytes - layout->bytes;
    return WEIR_OK;
}

weir_status weir_kv_address(const weir_block_pool *pool, const weir_kv_layout *layout, uint32_t layer, uint32_t block,
                            weir_kv_plane plane, uint32_t head, uint32_t token, void **out)
{
    weir_status status = weir_kv_fits(pool, layout, NULL);
    if (status != WEIR_OK)
        return status;
    const weir_kv_geometry *g = &layout->geometry;
    uint32_t blocks = g->blocks_per_layer ? g->blocks_per_layer : pool->count;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_kv_address: no place for the result");
    if (layer >= g->layers || block >= blocks || (unsigned)plane >= g->planes || head >= g->kv_heads ||
        token >= g->tokens)
        return weir_fail(
            WEIR_ERR_INVALID,
            "layer %u, block %u, plane %d, head %u, token %u: there are %u layers, %u blocks, %u planes, %u "
            "heads and %u tokens, each counted from 0",
            layer, block, (int)plane, head, token, g->layers, blocks, g->planes, g->kv_heads, g->tokens);
    *out = (char *)pool->block.pointer + (size_t)weir_kv_index(layout, layer, block) * pool->bytes +
           weir_kv_offset(layout, layer, plane, head, token);
    return WEIR_OK;
}
