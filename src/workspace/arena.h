/* An arena, inside: a block for each kind of memory, and the plans over them. */
#ifndef WI_ARENA_ARENA_H
#define WI_ARENA_ARENA_H

#include "base/internal.h"

#include <weir/workspace.h>
#include <weir/plan.h>
#include <weir/uses.h>

typedef struct wi_bucket {
    const weir_plan *plan;
    uint64_t *actual; /* by tensor: its length */
    uint32_t tensors;
} wi_bucket;

typedef struct wi_arena_block {
    weir_block block; /* NULL: the plans have nothing of this kind */
    uint64_t bytes;
    uint64_t planned; /* the longest plan's */
} wi_arena_block;

/* Law: while no run is open there is no launch; the blocks are as long as every bucket's plan wants. */
struct weir_arena {
    weir_client *client;
    weir_runtime *runtime;
    weir_parameters *parameters;
    weir_arena_pool *pool;
    wi_arena_block blocks[WEIR_KIND_COUNT];
    wi_bucket *buckets;
    uint32_t bucket_count;
    weir_class memory_class;
    char tag[48];

    atomic_bool running; /* from before begin to behind end */
    weir_launch *launch;
    uint32_t bucket; /* of the run */
    weir_stream stream;
};

/* The tensor's slot; WEIR_ERR_INVALID, naming the call, for NULL and what is none. */
weir_status wi_arena_slot(const weir_arena *arena, uint32_t bucket, uint32_t tensor, const char *call, weir_slot *slot);

#endif
