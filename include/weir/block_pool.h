/* weir/block_pool.h: pools of equal blocks over one allocation, for what comes and goes in pieces of one size: KV
 * caches.
 *
 * A pool is one block of a client's (weir_alloc_with), cut into `count` blocks of `bytes` bytes. Blocks are called by
 * their index, from 0, and block i lies at base + i * bytes for the life of the pool. Clients of the same runtime
 * join a pool as members, each with a cap, and allocate and free blocks; the bytes stay charged to the pool's client.
 *
 * A block is free, held by one member, or pending: freed on a stream that is not past that yet. Both calls are in
 * stream order as in weir/memory.h: an allocated block may be used by work put on that stream afterwards, and a freed
 * block is free for every member when the stream is past the work queued on it before. The caller orders a use or a
 * free of a block on another stream behind the allocation. While a stream is being captured (weir_capture_begin) a free
 * on it is WEIR_ERR_STREAM_MISUSE, and so is an allocation from a pool that clears.
 *
 * The allocation and the free of one block on WEIR_STREAM_HOST call no driver and no host allocator. Sizes of blocks are
 * in bytes, everything else is counted in blocks. A refused call has changed nothing but the counter `refused`. */
#ifndef WEIR_BLOCK_POOL_H
#define WEIR_BLOCK_POOL_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_block_pool weir_block_pool;
typedef struct weir_block_pool_member weir_block_pool_member;

/* The most blocks a pool can have. */
#define WEIR_BLOCK_POOL_MOST (UINT32_C(1) << 30)
/* No block. */
#define WEIR_BLOCK_POOL_NONE UINT32_MAX

enum {
    /* A block that comes to a member from another one, or for the first time, is filled with zeros on the
     * stream of the allocation, before later work there: no member reads the data of another member. */
    WEIR_BLOCK_POOL_CLEAR = 1u << 16,
    /* Takings are numbered, for frees by generation. Costs 4 bytes of host memory a block. */
    WEIR_BLOCK_POOL_NAMED = 1u << 17,
    /* Of an allocation or a free: blocks in a row, of which the first is named. */
    WEIR_BLOCK_POOL_RUN = 1u << 18
};

typedef struct weir_block_pool_options {
    size_t struct_size;
    size_t bytes;            /* of a block; a multiple of `alignment` */
    uint32_t count;          /* from 1 to WEIR_BLOCK_POOL_MOST */
    weir_class memory_class; /* WEIR_CLASS_OTHER, which is 0, means WEIR_CLASS_KV */
    size_t alignment;        /* of every block: a power of two up to 2 MiB; 0 is 256 */
    const char *tag;         /* how reports call the pool; copied, cut at 47 bytes; NULL is "blocks" */
    uint32_t flags;          /* WEIR_ALLOC_NO_WAIT: allocations never wait for pending blocks; _CLEAR, _NAMED */
} weir_block_pool_options;

/* Makes a pool with all its blocks free. The bytes are one WEIR_ALLOC_STABLE block of `client`: under its limits and
 * the budget, refused as any allocation (weir/memory.h), and not to be freed by anyone but weir_block_pool_destroy.
 * Errors also: WEIR_ERR_INVALID names the member at fault, WEIR_ERR_SYSTEM for want of host memory (less than 3 bytes
 * a block). Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_create(weir_client *client, const weir_block_pool_options *options,
                                                           weir_block_pool **out);

/* Frees the pool, its members and its bytes. WEIR_ERR_BUSY while blocks are held or pending, naming how many and
 * whose; the pool stays. To be called by one thread, when no other uses the pool; `pool` and its members are gone
 * afterwards. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_destroy(weir_block_pool *pool);

/* Members ---------------------------------------------------------------------------------------------------------- */

/* Makes `client` a member that may have up to `cap` blocks held and pending together; 0: all of them. Caps may add up
 * to more than the pool has. A client may join several times; a membership has a cap and counts of its own, and is a
 * separate owner to WEIR_BLOCK_POOL_CLEAR. WEIR_ERR_INVALID when the client is another runtime's, WEIR_ERR_BUSY beyond
 * 65535 members at once. A client that is closed while it is a member can no longer allocate; its blocks can still be
 * freed. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_member_create(weir_block_pool *pool, weir_client *client,
                                                                  uint32_t cap, weir_block_pool_member **out);

/* Ends a membership. WEIR_ERR_BUSY while it holds blocks or has pending ones. The member is gone afterwards. With
 * WEIR_BLOCK_POOL_CLEAR in time that grows with the pool. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_member_destroy(weir_block_pool_member *member);

/* Changes a cap; 0: all blocks. Below what the member has held and pending: WEIR_ERR_OUT_OF_MEMORY with the numbers. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_member_set_cap(weir_block_pool_member *member, uint32_t cap);

/* Allocation ------------------------------------------------------------------------------------------------------- */

/* Takes `count` blocks, wherever they are, and writes their indices: all of them, or none. With WEIR_BLOCK_POOL_RUN
 * they are in a row, and *indices gets the first. WEIR_ERR_OUT_OF_MEMORY when too few are free or the cap is reached;
 * the detail names the member, its cap, and what is free, held and pending, or the longest free run when enough blocks
 * are free but not in a row. Without WEIR_ALLOC_NO_WAIT it first waits, up to the option `wait`, for pending blocks
 * that would do. The indices, or the first of a run, are WEIR_BLOCK_POOL_NONE then.
 *
 * Which blocks they are is the pool's choice: one fills up gaps between held blocks, the shortest gaps first, and lower
 * indices before higher ones. Up to 64 blocks a run is found in constant time, best fit by words of 64 blocks; longer
 * runs are first fit, in time that grows with the pool. Other errors: WEIR_ERR_STREAM_MISUSE, WEIR_ERR_INVALID (a count
 * of 0, a flag that is none), and from clearing WEIR_ERR_DRIVER and WEIR_ERR_DEVICE_LOST. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_alloc(weir_block_pool_member *member, uint32_t count,
                                                          uint32_t flags, weir_stream stream, uint32_t *indices);

/* Free ------------------------------------------------------------------------------------------------------------- */

/* Frees `count` blocks, ordered behind the work on `stream`: those that `indices` names or, with
 * WEIR_BLOCK_POOL_RUN, the run that begins at the first of them. All of them or, if one is bad or named twice, none.
 * A run may be freed in parts, and runs of several allocations together.
 *
 * `generations`: NULL accepts any generation; else the generation of every block, as from weir_block_pool_block_info.
 * Errors (nothing changes): WEIR_ERR_INVALID (out of range, a count of 0, a flag that is none), WEIR_ERR_DOUBLE_FREE
 * (free or pending), WEIR_ERR_FOREIGN (another member's; the detail names it), WEIR_ERR_STALE (freed and allocated
 * again since that generation), WEIR_ERR_UNSUPPORTED (generations in a pool without WEIR_BLOCK_POOL_NAMED),
 * WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM.
 * Never waits. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_free(weir_block_pool_member *member, const uint32_t *indices,
                                                         const uint32_t *generations, uint32_t count, uint32_t flags,
                                                         weir_stream stream);

/* Addresses -------------------------------------------------------------------------------------------------------- */

/* What addresses are computed from: constant for the life of the pool, to be copied at will; weir_block_pool_info has
 * it. */
typedef struct weir_block_pool_view {
    void *base;
    size_t bytes; /* of a block */
    uint32_t count;
} weir_block_pool_view;

/* The address of a block; the index is not checked. */
static inline void *weir_block_pool_at(const weir_block_pool_view *view, uint32_t index)
{
    return (char *)view->base + (size_t)index * view->bytes;
}

/* The block that `pointer` points to or into; WEIR_BLOCK_POOL_NONE when it is none of this pool's. */
static inline uint32_t weir_block_pool_index(const weir_block_pool_view *view, const void *pointer)
{
    size_t offset = (size_t)((uintptr_t)pointer - (uintptr_t)view->base);
    return offset / view->bytes < view->count ? (uint32_t)(offset / view->bytes) : WEIR_BLOCK_POOL_NONE;
}

typedef struct weir_block_pool_block_details {
    size_t struct_size;
    uint32_t index;
    uint32_t generation;    /* how often it was allocated, modulo 2^32; 0 without WEIR_BLOCK_POOL_NAMED */
    weir_block_state state; /* LIVE is held */
    void *pointer;
    const weir_block_pool_member *member; /* NULL when FREE */
    char name[64];                        /* of the member's client; "" when FREE */
} weir_block_pool_block_details;

/* Tells who has a block. WEIR_ERR_INVALID for an index out of range. A look at a moment. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_block_info(weir_block_pool *pool, uint32_t index,
                                                               weir_block_pool_block_details *out);

/* Statistics ------------------------------------------------------------------------------------------------------- */

typedef struct weir_block_pool_member_stats {
    size_t struct_size;
    const weir_block_pool_member *member;
    char name[64]; /* of its client */
    uint32_t cap, held, pending;
    uint32_t peak;               /* of held + pending, since it joined */
    uint64_t allocations, frees; /* blocks, ever */
    uint64_t refused;            /* calls that answered WEIR_ERR_OUT_OF_MEMORY */
} weir_block_pool_member_stats;

typedef struct weir_block_pool_stats {
    size_t struct_size;
    weir_block_pool_view view;
    uint32_t free, held, pending; /* add up to view.count */
    uint32_t peak;                /* of held + pending */
    uint32_t longest;             /* the longest free run */
    double fragmentation;         /* 1 - longest / free; 0 when nothing is free */
    uint32_t members;
    uint64_t allocations, frees, refused; /* of present and former members */
} weir_block_pool_stats;

/* One consistent view of the pool and of its members in the order they joined; arrays as in weir_snapshot. What streams
 * are past is free in it. Takes time that grows with the pool. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_info(weir_block_pool *pool, weir_block_pool_stats *out,
                                                         weir_block_pool_member_stats *members, size_t capacity,
                                                         size_t *count);

/* One member's line of it, in constant time. */
WEIR_API WEIR_NODISCARD weir_status weir_block_pool_member_info(weir_block_pool_member *member,
                                                                weir_block_pool_member_stats *out);

WEIR_END
#endif
