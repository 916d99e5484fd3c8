/* Copy memory: page-locked memory for one client's copies, cut from a few long blocks of the host's. Several threads touch
 * a long block and the driver takes it in one step: that is several times as fast as a block for each copy.
 *
 * Invariants: gaps of a slab are in order, none touches another, and with what is cut they are all of it; a slab of which
 * nothing is cut is freed. One thread at a time, which has the client's residence. */
#ifndef WI_COPY_MEMORY_H
#define WI_COPY_MEMORY_H

#include "base/internal.h"

#include <weir/memory.h>

typedef struct wi_slab wi_slab;

typedef struct wi_copy_memory {
    wi_slab *slabs;
    uint64_t expected; /* bytes that are still to be cut */
    uint64_t held;     /* of all slabs */
} wi_copy_memory;

/* So many bytes will be asked for soon: the next slab is as long as all that is expected, within bounds. */
void wi_copy_memory_expect(wi_copy_memory *memory, uint64_t bytes);
/* Cuts `bytes` bytes. What fails is weir_alloc_with; nothing has changed then. */
weir_status wi_copy_memory_cut(wi_copy_memory *memory, weir_client *client, uint64_t bytes, void **out);
/* Gives back what was cut. */
void wi_copy_memory_return(wi_copy_memory *memory, weir_client *client, void *cut, uint64_t bytes);

#endif
