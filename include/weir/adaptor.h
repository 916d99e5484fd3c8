/* weir/adaptor.h: an adaptor of the program's own, which sees the requests of a runtime and may refuse them.
 *
 * A registered adaptor is a part of stacks (weir/runtime.h) under its name: "budget(mine(cache))". It can limit,
 * count, log, or let requests fail on purpose. Memory itself comes from a base (weir_base_register). The adaptor's
 * place in the stack decides which requests reach it:
 *
 *   "mine(cache)", "budget(mine(cache))"
 *       What the budget has let through. WEIR_ERR_OUT_OF_MEMORY from before_allocate is taken as a shortage: weir
 *       climbs its ladder (weir/stats.h) and asks again after each rung that changed something, so that one request
 *       may be asked for several times. Where nothing helped, the refusal has the cause WEIR_CAUSE_ADAPTOR and the
 *       adaptor's words.
 *   "mine(budget(cache))"
 *       Every request, before the budget. What before_allocate answers is the answer.
 *
 * A runtime with an adaptor of any kind has no thread caches, so that every allocation and every free of a block of device
 * memory comes by. What does not: pages of elastic blocks (weir/elastic.h), which are committed and released past every
 * adaptor and count in the budget and in the client's limits alone, so that an adaptor that limits or counts sees none of
 * them; and pinned and pageable memory (weir_request.kind).
 *
 * Contract of all functions of the table. weir calls the functions from any thread, from several at once, and with no
 * lock of weir's held: the adaptor locks its shared data. The caller of weir waits for them. `block` is valid during
 * the call; its texts as long as the process lives. The functions run on the host at the time of the call: `stream`
 * says where the work of the caller stands, and nothing says that the device is there yet. The device is not made
 * current.
 *
 * The functions may call weir. Inside them weir refuses with WEIR_ERR_BUSY every allocation and growth that would reach
 * any adaptor of the program's own, so that no function calls itself: for memory of its own an adaptor uses a runtime
 * without such adaptors. The functions must not destroy the client or the runtime that they are called for, nor wait
 * for another thread that waits for weir. No C++ exception leaves them. */
#ifndef WEIR_ADAPTOR_H
#define WEIR_ADAPTOR_H

#include <weir/memory.h>

WEIR_BEGIN

/* Where an adaptor is made. Valid during the call. */
typedef struct weir_adaptor_place {
    size_t struct_size;
    const char *driver;    /* "host", "cuda" */
    const char *arguments; /* what stands before the inner resource, "every=3, seed=7"; "" */
} weir_adaptor_place;

/* A block that is allocated, resized or freed. */
typedef struct weir_adaptor_block {
    size_t struct_size;
    const char *client; /* its name */
    const char *tag;    /* "" is none */
    weir_class memory_class;
    weir_stream stream; /* of the allocation or growth; for a free: the stream given to the free */
    void *address;      /* NULL: a new block that is not there yet */
    uint64_t bytes;     /* as asked for */
    uint64_t old_bytes; /* of a block that is resized: before; 0: it is not */
} weir_adaptor_block;

/* For each new block: before_allocate, and if that answers WEIR_OK exactly one of allocated and failed; freed, once.
 * For a growth in place the same with resized in the place of allocated, and `address` and `old_bytes` set. A block
 * that is cut: resized alone, with fewer bytes. At least one of the five functions is set.
 *
 * Calls for one block come one after the other, in the order of the caller's calls; calls for different blocks come in
 * any order. Another block may be told of with the address of one that was freed. */
typedef struct weir_adaptor_table {
    size_t struct_size;
    const char *name; /* lower-case letters, digits and '-', at most 31; none of weir's names; copied */
    void *user;       /* for `create` */
    /* Makes what the adaptor of one stack needs. It fails with the detail of weir_fail, also for arguments that it does
     * not know. NULL: `state` is `user`, and there are no arguments. */
    weir_status (*create)(void *user, const weir_adaptor_place *place, void **state);
    /* The last call: every block is freed. NULL: there is nothing to do. */
    void (*destroy)(void *state);
    /* WEIR_OK lets it pass. Else it is refused with that status and the words of weir_fail; WEIR_ERR_OUT_OF_MEMORY as
     * said above, and of a growth, which the caller can replace by a new block, as WEIR_ERR_NO_ROOM. */
    weir_status (*before_allocate)(void *state, const weir_adaptor_block *block);
    /* The block is allocated; the caller gets the block when this function returns. */
    void (*allocated)(void *state, const weir_adaptor_block *block);
    /* What before_allocate let pass came to nothing. */
    void (*failed)(void *state, const weir_adaptor_block *block, weir_status status);
    void (*resized)(void *state, const weir_adaptor_block *block);
    /* weir_free has accepted the block. The device may not be past it; its bytes go to nobody before this returns. */
    void (*freed)(void *state, const weir_adaptor_block *block);
} weir_adaptor_table;

/* Makes the adaptor known under its name, for as long as the process lives; the table is copied. Errors:
 * WEIR_ERR_INVALID (NULL, a name that is missing or ill-formed, no function to call), WEIR_ERR_CONFLICT (the name is
 * taken), WEIR_ERR_BUSY (there are 16 bases and adaptors already), WEIR_ERR_UNSUPPORTED (members of a later version).
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_adaptor_register(const weir_adaptor_table *table);

WEIR_END
#endif
