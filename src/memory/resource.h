/* Resources: the interface between the runtime and what allocates its blocks.
 *
 * A resource is a base, which has memory, or an adaptor around another resource. A runtime has a stack of them. Calls
 * enter at the top (the wi_ functions below). An adaptor leaves functions NULL to which it adds nothing, and calls the
 * inner resource in the others. Only a base has the functions of wi_base_table, which the runtime calls past the
 * adaptors. The budget is an adaptor, too: it claims bytes in the ledger before a resource below
 * it looks for them. The base writes commits, retirements and reaps into the ledger, in one step with its own lists.
 *
 * The life of a block:   allocate -> blank -> publish -> live -> acquire -> retire -> pending -> release -> gone
 *
 * All functions may be called from any thread. None waits for a device unless its comment says so. */
#ifndef WI_RESOURCE_H
#define WI_RESOURCE_H

#include "driver/driver.h"
#include "memory/ledger/ledger.h"

#include <weir/runtime.h>

typedef struct wi_resource wi_resource;
typedef struct wi_base wi_base;
struct wi_reservation;
struct wi_layout;
struct wi_away;

/* How far a base goes for a block that fits nowhere. */
typedef enum wi_growth {
    WI_GROWTH_NORMAL = 0,  /* maps more memory, or moves some */
    WI_GROWTH_NONE,        /* only mapped memory will do; else WEIR_ERR_NO_ROOM */
    WI_GROWTH_SOFT_LIMIT,  /* set by the base: not beyond the soft limit of its growth policy */
    WI_GROWTH_LAST_RESORT, /* moves and creates chunks at any cost */
} wi_growth;

typedef struct wi_placement {
    uint64_t bytes, alignment; /* alignment is at least WI_UNIT */
    uint64_t before, after;    /* margins, which the user does not see; multiples of WI_UNIT */
    uint64_t charged;          /* set by wi_measure, like the margins */
    weir_class memory_class;
    weir_stream stream;
    void *native; /* the driver's stream */
    wi_account *account;
    const char *tag;
    bool plain;        /* a thread cache could serve the request */
    bool may_wait;     /* the request may wait for pending frees */
    bool captured;     /* a capture was declared on the stream, or is served: nothing is in its order yet */
    bool thread_bound; /* the stream belongs to one thread: no other thread can record events on it */
    wi_growth growth;
    /* the block ends at a granule, and the addresses behind it stay unmapped, so that the GPU faults there */
    bool guard_page;
    struct wi_reservation *reservation;   /* the reservation that the bytes come from; NULL: none */
    bool over_soft_limit;                 /* set by the base: only the soft limit forbids it */
    bool allow_stream_wait;               /* memory of another stream may serve, behind a wait */
    weir_rung rung;                       /* the highest rung so far; the base raises it */
    bool ordered;                         /* set by the base: some bytes are in the order of the stream */
    struct weir_capture_pool *graph;      /* the capture pool of the block, or NULL; for the runtime */
    bool graph_named;                     /* the request named it */
    bool stable;                          /* the block stays on its memory; WEIR_ALLOC_STABLE */
    struct wi_away *away;                 /* what is to come back instead of a new block; memory/away.h; else NULL */
    wi_block *held;                       /* a pending block that is to serve the request; NULL: none */
    wi_block *rest;                       /* set with `held`: its rest, a pending block, or NULL */
    const struct wi_elastic_target *page; /* of the base elastic: the page that the block is to be; else NULL */
} wi_placement;

static inline void wi_climbed(wi_placement *placement, weir_rung rung)
{
    placement->rung = placement->rung > rung ? placement->rung : rung;
}

/* The functions of every resource; an adaptor has no others. NULL in an adaptor: the inner resource's function is called. A base
 * has all functions but those of adaptors alone; `release_kept` and `describe` may be NULL, and `shrink` and `grow` are there where
 * its features say so. */
typedef struct wi_resource_table {
    const char *name;
    uint32_t features; /* as in weir/runtime.h: of a base, or added by an adaptor */
    uint32_t hides;    /* features of the inner resource that an adaptor does not pass on */

    /* Adds margins; a base computes the charge. Called for each resource, outermost first. */
    void (*measure)(wi_resource *resource, wi_placement *placement);
    /* Finds memory; *out is a blank block. WEIR_ERR_OUT_OF_MEMORY: *shortage tells why, unless the thread has its
     * refusal. */
    weir_status (*allocate)(wi_resource *resource, wi_placement *placement, wi_block **out, wi_shortage *shortage);
    /* Gives back an allocated block that was not published. */
    void (*discard)(wi_resource *resource, wi_block *block, const wi_placement *placement);
    /* The allocated block becomes live. */
    void (*publish)(wi_resource *resource, wi_block *block);
    /* The acquired block is freed on `stream`, the driver's `native`, and is pending until release is called. WI_PASSED:
     * true is returned if the block is gone, which a resource may do without a driver call. WI_IN_ORDER, on a stream
     * that the resource follows: the block is gone. Otherwise called with the lock of the pending list held. */
    bool (*retire)(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past);
    /* The device is past the free of the pending block and past its uses: the block ends. On failure it stays
     * pending. May block in the driver. */
    weir_status (*release)(wi_resource *resource, wi_block *block);
    /* Cuts the acquired block to `bytes`. *tail is a pending block, to be released once the device is past it, or
     * NULL. */
    weir_status (*shrink)(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail);
    /* Grows the acquired block in place. WEIR_ERR_NO_ROOM: something stands behind it; WEIR_ERR_OUT_OF_MEMORY: as
     * allocate. */
    weir_status (*grow)(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage);
    /* Releases blocks that an adaptor keeps although the device is past them; returns their bytes. May block. */
    uint64_t (*release_kept)(wi_resource *resource);
    /* Writes the arguments of the text form, each followed by ", ". NULL: none. */
    void (*describe)(const wi_resource *resource, char *text, size_t capacity);
    void (*destroy)(wi_resource *resource); /* nothing is live or pending; the inner resource is not destroyed */

    /* Of adaptors alone: */

    /* The acquired block will be freed on `stream`: retire follows. With no lock held. */
    void (*freeing)(wi_resource *resource, const wi_block *block, weir_stream stream);
    /* An adaptor around this one resizes the acquired block by itself, within its charge. Whether that
     * may be; and how it went. With no lock held. */
    weir_status (*resizing)(wi_resource *resource, const wi_block *block, uint64_t bytes);
    void (*resized)(wi_resource *resource, const wi_block *block, uint64_t from, uint64_t to, weir_status status);
    bool wants_passed; /* an adaptor that looks at blocks once the device is past them */
} wi_resource_table;

/* What the runtime asks of the base of a stack. Each base has charge, find, each, walk, owns, trim and look, which wi_base_init
 * checks. */
typedef struct wi_base_table {
    wi_resource_table all; /* what the base does as a resource of a stack */

    /* Retires thread-cached blocks, linked by pending_next, in the order of their stream; a few at a time, to let other
     * threads in between. NULL: one by one. */
    void (*retire_list)(wi_base *base, wi_block *list, weir_stream stream, void *native);
    /* Allocates and publishes the measured request in one step with the ledger, where memory of its own region is free
     * for it and nothing has to be zeroed. False: something stands in the way, which allocate is to find out; nothing
     * has changed. NULL: never. */
    bool (*place)(wi_base *base, wi_placement *placement, weir_block *out);
    bool places_guard_pages; /* the base honours placement->guard_page */

    /* Of bases that follow the order of streams; NULL in the others: */

    /* Follows the stream: reuses in its order what is freed on it, and may get WI_IN_ORDER. False: not now, for want
     * of host memory. */
    bool (*follow)(wi_base *base, weir_stream stream, void *native);
    /* Memory that was freed in the order of streams, and that the device is past, may serve any stream now; returns
     * those bytes. *left: the bytes that have not passed. Does not wait. */
    uint64_t (*pass)(wi_base *base, uint64_t *left);
    /* Returns how many bytes, freed in the order of streams, have passed up to now. */
    uint64_t (*released)(wi_base *base);
    /* Waits until `deadline` for the oldest stream-ordered free that has not passed; false: no such free, or the base
     * cannot wait. */
    bool (*await)(wi_base *base, uint64_t deadline);
    /* The device is past all work of the stream, whose id will not be used again. */
    void (*forget)(wi_base *base, weir_stream stream);
    /* The same for a stream that ends while the device may not be past its work; before the driver's record of it
     * goes. */
    void (*abandon)(wi_base *base, weir_stream stream);
    /* Records a point behind all work, for frees on streams that were abandoned; `pass` asks about it then. False:
     * none waits for one, or the driver cannot record it now. For requests short of memory, and for trims. */
    bool (*bound)(wi_base *base);

    /* Of bases in general: */

    /* The pending block absorbs `next`, a pending block of the same account; the thread has both, and the device is
     * past them. False: they are not adjacent, and nothing has changed. NULL: blocks cannot be split or joined, and
     * shrink returns no tail. */
    bool (*join)(wi_base *base, wi_block *block, wi_block *next);

    /* The charge of a block of so many bytes, margins included. */
    uint64_t (*charge)(wi_base *base, uint64_t bytes);
    /* Hands a retired block to the driver in the order of the stream, when the block waits for nothing else; release
     * does only the books then. On failure nothing has changed. NULL: it cannot. Does not wait for the device. */
    weir_status (*hand_over)(wi_base *base, wi_block *block, void *native);
    /* With the lock held: the block whose bytes, margins included, contain `pointer`, which is an address of the
     * base; else NULL, and whether a freed block began there. */
    wi_block *(*find)(wi_base *base, const void *pointer, bool *freed);
    /* Without a lock: the record of the block that begins there, or NULL. The block may have ended meanwhile: a
     * wi_acquire compares the word that was read before the record. NULL: it cannot. */
    wi_block *(*peek)(wi_base *base, const void *pointer);
    /* With the lock held: calls fn for every live and pending block. */
    void (*each)(wi_base *base, void (*fn)(wi_block *block, void *user), void *user);
    /* With the lock held: writes every driver allocation, by address, and what lies in it; stream_lists.h. */
    void (*walk)(wi_base *base, struct wi_layout *layout);
    bool (*owns)(wi_base *base, const void *pointer);
    /* With the lock held: whether a freed block began at an address that is no longer the base's. NULL: it keeps its
     * addresses. */
    bool (*was_freed)(wi_base *base, const void *pointer);
    /* Gives memory back to the driver until at most `keep` cached and spare bytes are left; returns the bytes. */
    uint64_t (*trim)(wi_base *base, uint64_t keep);
    /* Bytes that trim could give back once the device is past all frees. NULL: none. */
    uint64_t (*idle)(wi_base *base);
    /* Trims idle memory alone, down to WEIR_IDLE_KEPT bytes. `if_squeezed`: only if the device was out of
     * memory lately although the budget had room. NULL: trim does it, and a device out of memory changes nothing. */
    uint64_t (*trim_idle)(wi_base *base, bool if_squeezed);
    /* What could be placed, and what a request needs; sets *shortage except its cause, but where that is that no
     * addresses are enough. */
    void (*look)(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment, wi_shortage *shortage);
    /* How blocks can be without memory; away.h. NULL: they cannot. */
    const struct wi_away_table *away;
    /* Checks invariants. The lock is held. NULL: there are none. */
    void (*check)(wi_base *base);
} wi_base_table;

struct wi_resource {
    const wi_resource_table *table;
    const wi_driver *driver;
    wi_device *device;
    wi_ledger *ledger;  /* NULL until a runtime takes the stack */
    wi_resource *inner; /* NULL: it is the base */
    wi_base *base;
    uint32_t features; /* of the stack from here on; weir/runtime.h */
    bool hears_frees;  /* it, or an adaptor below it, has `freeing` */
    bool keeps_order;  /* a free may reach the base as WI_IN_ORDER, without an event */
};

struct wi_base {
    wi_resource resource; /* its place in the stack */
    const wi_base_table *table;
    atomic_uint_fast32_t sealed;          /* chunks; written with the lock held; away.h */
    uint64_t granule;                     /* memory from the device comes in multiples of it */
    struct wi_idle *idle;                 /* of a base that splits segments into blocks; chunks.h */
    struct wi_stream_lists *stream_lists; /* of a base that follows streams; stream_order.h */
    wi_resource *top;                     /* of its stack, once a ledger is attached */
    pthread_mutex_t lock;                 /* for its blocks and lists; never held across a driver call that can block */
};

/* Whether the budget alone stands around the base: no adaptor is to see each block. */
static inline bool wi_is_plain(const wi_resource *stack)
{
    return stack->inner == &stack->base->resource;
}

/* The base that a function of its table `all` is called for. */
static inline wi_base *wi_base_of(wi_resource *resource)
{
    return (wi_base *)resource;
}

/* Initialises an adaptor around `inner`. */
void wi_resource_init(wi_resource *resource, const wi_resource_table *table, wi_resource *inner);
/* Initialises a base; wi_base_end undoes that, when its resource is destroyed. */
void wi_base_init(wi_base *base, const wi_base_table *table, const wi_driver *driver, wi_device *device);
/* For a base whose table is known later; nothing stands around it yet. */
void wi_base_set_table(wi_base *base, const wi_base_table *table);
void wi_base_end(wi_base *base);
/* Attaches the ledger to the whole stack. */
void wi_resource_attach(wi_resource *top, wi_ledger *ledger);
void wi_resource_destroy(wi_resource *top);
/* "budget(log(async))", cut at the capacity. */
void wi_resource_describe(const wi_resource *top, char *text, size_t capacity);

static inline void wi_base_lock(wi_base *base)
{
    pthread_mutex_lock(&base->lock);
}
static inline void wi_base_unlock(wi_base *base)
{
    wi_assert(pthread_mutex_trylock(&base->lock) != 0); /* it is held */
#ifdef WEIR_INVARIANTS
    if (base->table->check)
        base->table->check(base);
#endif
    pthread_mutex_unlock(&base->lock);
}

/* Calls that walk the stack. An adaptor calls them on its inner resource. */
void wi_measure(wi_resource *top, wi_placement *placement);
weir_status wi_allocate(wi_resource *r, wi_placement *placement, wi_block **out, wi_shortage *shortage);
void wi_discard(wi_resource *r, wi_block *block, const wi_placement *placement);
void wi_publish(wi_resource *r, wi_block *block);
void wi_freeing(wi_resource *top, const wi_block *block, weir_stream stream); /* every adaptor */
bool wi_retire(wi_resource *r, wi_block *block, weir_stream stream, void *native, wi_past past);
weir_status wi_release(wi_resource *r, wi_block *block);
weir_status wi_shrink(wi_resource *r, wi_block *block, uint64_t bytes, void *native, wi_block **tail);
weir_status wi_grow(wi_resource *r, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage);
/* Asks every adaptor from `top` on. If an adaptor refuses, tells the adaptors before it of the failure. */
weir_status wi_resizing(wi_resource *top, const wi_block *block, uint64_t bytes);
void wi_resized(wi_resource *top, const wi_block *block, uint64_t from, uint64_t to, weir_status status);
uint64_t wi_release_kept(wi_resource *top); /* every adaptor */

/* Serves the request from placement->held, whose charge is the same, or larger if the base can split it; acquire.c. The
 * block has a new generation, and is pending until it is published. */
weir_status wi_reuse(wi_base *base, wi_placement *placement, wi_block **out);

/* Acquiring: only the thread that has acquired a block may free or resize it. In acquire.c. */

/* Claims the live block that begins at `pointer`. generation 0: any generation; account NULL: any account.
 * WEIR_ERR_FOREIGN, WEIR_ERR_INTERIOR, WEIR_ERR_DOUBLE_FREE, WEIR_ERR_STALE; WEIR_ERR_BUSY: it is acquired, or a launch
 * uses it. */
weir_status wi_acquire(wi_base *base, const wi_account *account, void *pointer, uint64_t generation, wi_block **out);
void wi_let_go(wi_base *base, wi_block *block);
/* Calls `fn` for that block with the lock held, and returns its result. Errors as wi_acquire. */
weir_status wi_visit(wi_base *base, void *pointer, uint64_t generation, weir_status (*fn)(wi_block *block, void *user),
                     void *user);
/* Owner tags: a bridge that allocates for a client tags its blocks, to recognise them at a free. They need no lock if
 * the base has `peek`. */
void wi_owner_tag(wi_base *base, const void *pointer, uint64_t owner_tag);
bool wi_owner_tag_is(wi_base *base, const void *pointer, uint64_t owner_tag);
/* Points that the device is not past, at most one for each stream. */
typedef struct wi_points {
    wi_event events[WEIR_BLOCK_WAITS];
    uint32_t count;
} wi_points;
/* The block at an address, and what it waits for. The lock of the pending list is held. */
void wi_inspect(wi_base *base, const void *pointer, weir_block_details *out, wi_points *waits);
/* A copy of a block that a thread cache may be changing. The base's lock is held, so that the record and the account
 * stay. */
wi_block wi_look_at(const wi_block *block);
/* The account's largest live block; charged 0: it has none. */
void wi_largest_block(wi_base *base, const wi_account *account, wi_block *out);

/* A new generation. Threads reserve many at once to contend rarely; a caller can keep the last one in a variable of
 * its own. */
enum { WI_GENERATIONS = 1024 };
uint64_t wi_new_generation(void);
uint64_t wi_new_generations(void); /* reserves as many behind the returned one */
static inline uint64_t wi_next_generation(uint64_t *last)
{
    if (wi_unlikely(*last % WI_GENERATIONS == 0))
        *last = wi_new_generations();
    return ++*last;
}
/* What a base writes into every new block; in a record whose block is blank. */
void wi_block_begin(wi_block *block, const wi_placement *placement, void *start, uint64_t previous);
wi_block wi_block_make(const wi_placement *placement, void *start, uint64_t previous);

#endif
