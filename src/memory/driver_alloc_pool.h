/* What the resources "direct" and "async" are made of, and the books of the driver's pool under the second. */
#ifndef WI_DRIVER_ALLOC_POOL_H
#define WI_DRIVER_ALLOC_POOL_H

#include "memory/space/range_index.h"
#include "memory/resource.h"

typedef struct wi_piece {
    wi_block block; /* the first member */
    wi_range range; /* all that the driver gave */
    uint64_t own;   /* of which the block's client has had so much, however short the block is now */
    bool returning; /* on its way to the driver, which may give it to another from now on */
    bool returned;
    bool displaced; /* out of the index, and in the list of those */
    struct wi_piece *previous, *next;
} wi_piece;

typedef struct wi_single {
    wi_resource resource;
    weir_kind kind;
    bool pooled;                /* it follows streams, and may keep what was given back */
    const weir_base_table *own; /* whose functions stand for the driver's; NULL: those do */
    void *state;                /* theirs */
    wi_resource_table table;    /* the resource's, where it is theirs */
    pthread_mutex_t addresses;  /* a leaf; the index changes under both locks, so that either is enough to look */
    wi_index index;
    /* everything below is under the resource's lock */
    wi_piece *displaced;
    wi_block *unwanted; /* discarded, and the device is not past them or the driver refused; linked by pending_next */
    uint64_t lent, kept;
    size_t working;  /* threads in the driver */
    uint64_t turns;  /* how often one came back */
    uint64_t secret; /* WI_SECRET once a block of an account that asks for scrubbing has been freed */
} wi_single;

/* Around a call of the program's own functions, which find the device current on the thread. */
static inline weir_status wi_single_enter(const wi_single *s)
{
    return s->resource.driver->enter ? s->resource.driver->enter(s->resource.device) : WEIR_OK;
}
static inline void wi_single_leave(const wi_single *s)
{
    if (s->resource.driver->leave)
        s->resource.driver->leave(s->resource.device);
}
/* What the pool has from the device, and the same after giving back what it keeps beyond `keep`. */
weir_status wi_single_held(wi_single *s, uint64_t *held);
weir_status wi_single_trim(wi_single *s, uint64_t keep, uint64_t *held);
/* Whether it may have more than its pieces. */
static inline bool wi_single_keeps(const wi_single *s)
{
    return s->own ? s->own->held != NULL : s->pooled;
}
/* Asks the pool what it has, having it give back what it keeps beyond `keep` if it is to be trimmed. True: it has more than
 * the budget allows. *given, if that is not NULL: how many bytes less the books have now. */
bool wi_single_follow(wi_single *s, bool trim, uint64_t keep, uint64_t *given);
/* The books follow the pool, which is trimmed where it has more than they may say. Nothing for "direct". */
void wi_single_follow_pool(wi_single *s);

#endif
