/* What the resource "blocks" is made of, and the extent under it. */
#ifndef WI_FIXED_EXTENT_H
#define WI_FIXED_EXTENT_H

#include "base/bitmap.h"
#include "memory/resource.h"

typedef struct wi_fixed_run {
    wi_block block; /* the first member */
    uint32_t first, count;
} wi_fixed_run;

typedef struct wi_fixed_place {
    wi_fixed_run *run; /* NULL: free */
    uint64_t owner;    /* whose bytes it holds, or held last */
    uint32_t freed;    /* 1 + the unit in it where a block began that was freed; 0: none */
} wi_fixed_place;

typedef struct wi_fixed {
    wi_resource resource;
    uint64_t block_bytes, range_bytes;
    char *base;
    /* everything below is under the resource's lock */
    pthread_cond_t settled;
    bool working;   /* a thread takes the extent from the driver, or gives it back */
    uint32_t count; /* places; 0: there is no extent */
    size_t handle_count;
    wi_handle *handles;
    wi_fixed_place *places;
    wi_bitmap free;
    uint64_t secret; /* WI_SECRET once a block of an account that asks for scrubbing has been freed */
} wi_fixed;

/* What an extent comes in: whole handles and whole blocks. Both are powers of two. */
static inline uint64_t wi_fixed_step_of(const wi_fixed *f)
{
    return wi_max(f->resource.granule, f->block_bytes);
}

weir_status wi_fixed_no_records(void);

/* With the lock held. False: another thread has the extent in hand, and cannot be waited for. */
bool wi_fixed_wait_settled(wi_fixed *f);
/* With the lock held, released meanwhile. WEIR_ERR_NO_ROOM: the budget leaves nothing. */
weir_status wi_fixed_take_extent(wi_fixed *f);
/* Gives the extent back, with nothing in it. With the lock held, released meanwhile. */
uint64_t wi_fixed_give_extent(wi_fixed *f);
/* Frees the records of one that is gone, or never came. */
void wi_fixed_forget_extent(wi_fixed *f);

#endif
