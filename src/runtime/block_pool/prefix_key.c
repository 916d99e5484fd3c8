/* The hash of a cached block. It chooses the row; nodes in the row are compared by their tokens. */
#include "runtime/block_pool/prefix_index.h"

/* Multiplies and mixes the high half into the low one, token by token (after MurmurHash3's finalizer). */
uint64_t wi_prefix_hash(uint64_t before, const uint32_t *tokens, uint32_t count)
{
    uint64_t hash = before + UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ tokens[i]) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 33;
    }
    return hash;
}
