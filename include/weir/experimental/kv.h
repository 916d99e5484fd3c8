/* weir/experimental/kv.h: keys and values: where those of a token lie.
 *
 * A typed view of a pool: where the key or the value of a token lies. A block holds `tokens` tokens of one layer, or of
 * several, first the keys and then the values of all its heads:
 *     [layers_in_block][planes][kv_heads][tokens][head_size]
 * Geometry is not the pool's but a view's: models of different shapes and element types share a pool as long as their
 * blocks fit into its blocks. Nothing here takes a lock or calls a driver; any thread. */
#ifndef WEIR_EXPERIMENTAL_KV_H
#define WEIR_EXPERIMENTAL_KV_H

#include <weir/block_pool.h>

WEIR_BEGIN

typedef enum weir_kv_plane { WEIR_KV_PLANE_KEYS = 0, WEIR_KV_PLANE_VALUES = 1 } weir_kv_plane;

typedef struct weir_kv_geometry {
    size_t struct_size;
    weir_type type;     /* of an element; WEIR_TYPE_NONE: `bits` says how large one is */
    uint32_t bits;      /* of an element of no weir_type: 4, 6 …; else 0 */
    uint32_t row_bytes; /* of head_size elements, when it is more than they take (scales of a quantized row); else 0 */
    uint32_t layers;    /* of the model */
    uint32_t layers_in_block; /* how many consecutive layers share a block; 0 is 1 */
    /* N: the pool is cut into parts of N blocks, one for each layer or group of layers that shares a block, and block b
     * of part p is p * N + b; 0: any block may serve any layer */
    uint32_t blocks_per_layer;
    uint32_t planes; /* 2: keys and values; 1: one plane for both (latent attention); 0 is 2 */
    uint32_t kv_heads;
    uint32_t tokens; /* in a block */
    uint32_t head_size;
} weir_kv_geometry;

/* A geometry worked out. All members in bytes but the counts. */
typedef struct weir_kv_layout {
    size_t struct_size;
    uint64_t elements;                  /* in a block */
    uint64_t bytes;                     /* of a block */
    uint64_t token, head, plane, layer; /* from one to the next */
    uint32_t parts;                     /* groups of layers that share a block */
    uint64_t blocks;           /* parts * blocks_per_layer: what the pool must have; 0 when blocks are shared */
    weir_kv_geometry geometry; /* with its defaults filled in; the last member, so that both structures can grow */
} weir_kv_layout;

/* Works a geometry out. WEIR_ERR_INVALID names the member that is 0, the row that is not whole bytes, a type without
 * a fixed size, or the product that is beyond 2^63 bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_kv_layout_of(const weir_kv_geometry *geometry, weir_kv_layout *out);

/* Whether blocks of this layout fit into the pool's: *waste (may be NULL) gets the bytes of each pool block that stay
 * unused; 0 means the same geometry as far as bytes can tell. WEIR_ERR_UNSUPPORTED names both sizes, or both counts,
 * when they do not. */
WEIR_API WEIR_NODISCARD weir_status weir_kv_fits(const weir_block_pool *pool, const weir_kv_layout *layout,
                                                 uint64_t *waste);

/* The pool's index of block `block` of a layer, and the offset in it of a token's row in a plane and head. Nothing is
 * checked. */
static inline uint32_t weir_kv_index(const weir_kv_layout *layout, uint32_t layer, uint32_t block)
{
    return layer / layout->geometry.layers_in_block * layout->geometry.blocks_per_layer + block;
}
static inline uint64_t weir_kv_offset(const weir_kv_layout *layout, uint32_t layer, weir_kv_plane plane, uint32_t head,
                                      uint32_t token)
{
    return layer % layout->geometry.layers_in_block * layout->layer + (uint64_t)plane * layout->plane +
           head * layout->head + token * layout->token;
}

/* The address of that row in the pool, everything checked: WEIR_ERR_INVALID names what is out of range,
 * WEIR_ERR_UNSUPPORTED as weir_kv_fits. That the block is held is the caller's business. */
WEIR_API WEIR_NODISCARD weir_status weir_kv_address(const weir_block_pool *pool, const weir_kv_layout *layout,
                                                    uint32_t layer, uint32_t block, weir_kv_plane plane, uint32_t head,
                                                    uint32_t token, void **out);

WEIR_END
#endif
