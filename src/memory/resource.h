/* The seam between the runtime and what serves its blocks.
 *
 * A resource is a base, which has memory, or an adaptor around another one; a runtime has a stack of them. Calls enter at
 * the top (the wi_… functions below); an adaptor leaves a function NULL that it has nothing to add to, and calls the
 * inner one where it has. The budget is an adaptor, too: it claims bytes in the ledger before anything below it looks for
 * them. Settling, retiring and reaping are written into the ledger by the base, in one step with its own books.
 *
 * The life of a block:   allocate -> taken -> publish -> live -> take -> retire -> pending -> release -> nobody's
 * All functions may be called from any thread. None waits for a device, except where the comment says so. */
#ifndef WI_RESOURCE_H
#define WI_RESOURCE_H

#include "driver/driver.h"
#include "memory/ledger/ledger.h"

#include <weir/runtime.h>

typedef struct wi_resource wi_resource;
struct wi_reservation;
struct wi_layout;

typedef struct wi_placement {
    uint64_t bytes, alignment; /* the latter at least WI_UNIT */
    uint64_t before, after;    /* margins that belong to the block and not to its user; multiples of WI_UNIT */
    uint64_t charged;          /* set by wi_measure, as the margins are */
    weir_class memory_class;
    weir_stream stream;
    void *native; /* the driver's stream */
    wi_account *account;
    const char *tag;
    bool may_wait;                      /* for pending frees */
    bool captured;                      /* into a graph, as was declared: nothing stands in the stream's order yet */
    bool thread_bound;                  /* the stream is one thread's: others can record no events on it */
    bool no_grow;                       /* only what is mapped will do: else WEIR_ERR_NO_ROOM */
    bool apart;                         /* it ends where its memory ends, and what is behind stays unmapped */
    struct wi_reservation *reservation; /* bytes claimed before; NULL: none */
    bool last_resort;                   /* whatever can be done is to be done, at any price */
    bool soft_limit, over_soft_limit;   /* set by the base: no more than it likes to hold; and that it would be more */
    bool behind;                        /* what is free in the order of another stream will do, behind that */
    weir_rung rung;                     /* the highest one climbed so far, which the base raises */
    bool hit;                           /* set by the base: no driver call was needed */
    uint32_t handles;                   /* … else on how many handles the driver worked, if it is known */
    bool ordered;                       /* … and it has bytes that are in the order of the stream */
    struct weir_capture_pool *graph;    /* of whose pool the block will be; NULL: of none; for the runtime */
    wi_block *held;                     /* a pending block in hand, which becomes the block; NULL: none */
    wi_block *rest;                     /* set where `held` is: what it was longer, a pending block in hand, or NULL */
} wi_placement;

static inline void wi_climbed(wi_placement *placement, weir_rung rung)
{
    placement->rung = placement->rung > rung ? placement->rung : rung;
}

typedef struct wi_resource_table {
    const char *name;
    uint32_t features; /* weir/runtime.h: what a base can, or what an adaptor adds */
    uint32_t hides;    /* what an adaptor takes away from that */

    /* Of any resource; NULL in an adaptor: as the one below does. */

    /* Adds margins, or as a base works out the charge. Outermost first, each is asked: an adaptor does not call the inner
     * one. */
    void (*measure)(wi_resource *resource, wi_placement *placement);
    /* Finds a place; *out is a taken block. WEIR_ERR_OUT_OF_MEMORY: *shortage tells why not, unless the refusal is complete. */
    weir_status (*allocate)(wi_resource *resource, wi_placement *placement, wi_block **out, wi_shortage *shortage);
    /* Gives back a block that was allocated and never became anyone's. */
    void (*discard)(wi_resource *resource, wi_block *block, const wi_placement *placement);
    /* The allocated block is its client's now, and no longer taken. */
    void (*publish)(wi_resource *resource, wi_block *block);
    /* The taken block is freed on `stream`, the driver's `native`: pending until release is called. WI_PASSED: true is
     * answered when the block is gone with that, which a resource may do that needs no driver call for it. WI_IN_ORDER,
     * of a stream that it follows: it is gone. Else called with the lock of the pending list held. */
    bool (*retire)(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past);
    /* Retires parked blocks, linked by pending_next, in the order of the stream that they were parked in; a few at a time, so
     * that others come between. NULL: one by one. Of bases alone. */
    void (*retire_list)(wi_resource *resource, wi_block *list, weir_stream stream, void *native);
    /* The device is past the free of the pending block and past its uses: it becomes nobody's. A failure leaves it pending.
     * May block in the driver. */
    weir_status (*release)(wi_resource *resource, wi_block *block);
    /* Cuts the taken block to `bytes`. *tail is a pending block of its own, to be released when the device is past, or
     * NULL. */
    weir_status (*shrink)(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail);
    /* Makes the taken block longer where it is. WEIR_ERR_NO_ROOM: something stands behind it; WEIR_ERR_OUT_OF_MEMORY: as allocate. */
    weir_status (*grow)(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage);
    /* Gives up blocks that an adaptor keeps back although the device is past them; answers their bytes. May block. */
    uint64_t (*release_kept)(wi_resource *resource);
    /* Writes arguments of the text form, each followed by ", ". NULL: there are none. */
    void (*describe)(const wi_resource *resource, char *text, size_t capacity);
    void (*destroy)(
        wi_resource *resource); /* nothing is live or pending; of the resource alone, not of the inner one */

    bool wants_passed; /* an adaptor: it looks at blocks when the device is past them */

    /* Of bases alone. */

    bool places_apart; /* it looks at placement->apart */
    /* It hands on in the stream's order what is freed on it, and may be told WI_IN_ORDER; false: not now, for want of host
     * memory. NULL: it never does. */
    bool (*follow)(wi_resource *resource, weir_stream stream, void *native);
    /* What was freed in the order of streams and has passed becomes anyone's; answers those bytes, and *left the ones that
     * have not passed. Waits for no device. */
    uint64_t (*pass)(wi_resource *resource, uint64_t *left);
    /* How many bytes have become anyone's so far in that way. */
    uint64_t (*released)(wi_resource *resource);
    /* Waits until the clock reads `deadline` for the oldest of that; false: there is none, or it cannot wait. */
    bool (*await)(wi_resource *resource, uint64_t deadline);
    /* The device is past all work of the stream, whose id will not be used again. */
    void (*forget)(wi_resource *resource, weir_stream stream);
    /* The same of one that ends while the device may not be past its work; the driver's record of it goes after this. */
    void (*abandon)(wi_resource *resource, weir_stream stream);
    /* Has the driver record a point behind all work for what was freed on streams that have ended so, which `pass` asks about
     * then; false: nothing waits for one, or it cannot be had now. For whoever is short of memory, or gives it back. */
    bool (*bound)(wi_resource *resource);

    /* The pending block takes in `next`, which is pending, too, and of the same account; both in hand, and the device past them.
     * False: they do not adjoin, and nothing has changed. NULL: its blocks have no parts, and shrink, which otherwise cuts a
     * pending block in hand as well, answers no tail. */
    bool (*join)(wi_resource *resource, wi_block *block, wi_block *next);

    /* What a block of so many bytes, margins included, counts as. */
    uint64_t (*charge)(wi_resource *resource, uint64_t bytes);
    /* Hands a retired block to the driver in the order of the stream, which is all that the block still waits for; release
     * has then nothing left to do but the books. A failure leaves it as it was. NULL: it cannot. Blocks for no device. */
    weir_status (*hand_over)(wi_resource *resource, wi_block *block, void *native);
    /* With the lock held: the block whose bytes, margins included, `pointer` lies in; else NULL, and whether a block that
     * was freed began there. `pointer` is one that it owns. */
    wi_block *(*find)(wi_resource *resource, const void *pointer, bool *freed);
    /* Without a lock: the record of the block that begins there, or NULL. Perhaps of one that is no longer: whoever wants it
     * claims it by the word that it had before a look at what it is. NULL: it cannot. */
    wi_block *(*peek)(wi_resource *resource, const void *pointer);
    /* With the lock held: every live and pending block. */
    void (*each)(wi_resource *resource, void (*fn)(wi_block *block, void *user), void *user);
    /* With the lock held: every segment that it has from the driver, by address, and what lies in it; layout.h. */
    void (*walk)(wi_resource *resource, struct wi_layout *layout);
    bool (*owns)(wi_resource *resource, const void *pointer);
    /* With the lock held: whether a block that was freed began at a pointer that it owns no longer. NULL: it owns what it
     * ever had. */
    bool (*was_freed)(wi_resource *resource, const void *pointer);
    /* Gives back to the driver until at most `keep` cached and spare bytes are left; answers how many it gave. */
    uint64_t (*trim)(wi_resource *resource, uint64_t keep);
    /* The same for what is wholly free, until WEIR_IDLE_KEPT bytes of such are left. `if_squeezed`: where the device had no
     * more lately, although the budget left room; the request that met that is served or refused by now. NULL: trim does it,
     * and the device's shortness changes nothing. */
    uint64_t (*trim_idle)(wi_resource *resource, bool if_squeezed);
    /* What could be placed, and what a request needs; sets all of *shortage but its cause. */
    void (*look)(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                 wi_shortage *shortage);
    /* With the lock held: executes the invariant of the resource's own books. NULL: there are none. */
    void (*check)(wi_resource *resource);
} wi_resource_table;

struct wi_resource {
    const wi_resource_table *table;
    const wi_driver *driver;
    wi_device *device;
    wi_ledger *ledger; /* NULL until a runtime takes the stack */
    wi_resource *inner, *base;
    uint64_t granule;                     /* of a base: what it takes from the device comes in these */
    struct wi_idle *idle;                 /* of a base that cuts segments into blocks; chunk.h */
    struct wi_stream_lists *stream_lists; /* of a base that hands on in order; ordered.h */
    pthread_mutex_t lock; /* of a base: its blocks and books; never held across a driver call that can block */
};

/* Fills in the members above; the lock is wi_resource_destroy's to end. */
void wi_resource_init(wi_resource *resource, const wi_resource_table *table, const wi_driver *driver, wi_device *device,
                      wi_resource *inner);
/* The whole stack, from the top. */
void wi_resource_attach(wi_resource *top, wi_ledger *ledger);
void wi_resource_destroy(wi_resource *top);
uint32_t wi_resource_features(const wi_resource *top);
/* "budget(log(async))", cut at the capacity. */
void wi_resource_describe(const wi_resource *top, char *text, size_t capacity);

static inline void wi_resource_lock(wi_resource *base)
{
    pthread_mutex_lock(&base->lock);
}
static inline void wi_resource_unlock(wi_resource *base)
{
    if (base->table->check)
        base->table->check(base);
    pthread_mutex_unlock(&base->lock);
}

/* The calls that walk the stack; an adaptor calls them on its inner one. */
void wi_measure(wi_resource *top, wi_placement *placement);
weir_status wi_allocate(wi_resource *r, wi_placement *placement, wi_block **out, wi_shortage *shortage);
void wi_discard(wi_resource *r, wi_block *block, const wi_placement *placement);
void wi_publish(wi_resource *r, wi_block *block);
bool wi_retire(wi_resource *r, wi_block *block, weir_stream stream, void *native, wi_past past);
/* Whether a free may be told in order rather than with an event. */
bool wi_keeps_order(const wi_resource *top);
weir_status wi_release(wi_resource *r, wi_block *block);
weir_status wi_shrink(wi_resource *r, wi_block *block, uint64_t bytes, void *native, wi_block **tail);
weir_status wi_grow(wi_resource *r, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage);
uint64_t wi_release_kept(wi_resource *top); /* every adaptor */

/* What a base does instead of its allocate with placement->held, whose charge is the request's, or more where it cuts; reuse.c.
 * On success the block is a new one, and still pending until it is published. */
weir_status wi_reuse(wi_resource *base, wi_placement *placement, wi_block **out);

/* Taking: who holds a taken block alone may free or resize it. taking.c, once for all bases. */

/* The live block that begins at `pointer`. generation 0 fits any, account NULL anyone's. WEIR_ERR_FOREIGN, WEIR_ERR_INTERIOR,
 * WEIR_ERR_DOUBLE_FREE, WEIR_ERR_STALE, WEIR_ERR_BUSY when it is taken or a launch holds it. */
weir_status wi_claim(wi_resource *base, const wi_account *account, void *pointer, uint64_t generation, wi_block **out);
void wi_unclaim(wi_resource *base, wi_block *block);
/* Runs `fn` on that block with the lock held, and answers what it answers. Errors as wi_claim. */
weir_status wi_visit(wi_resource *base, void *pointer, uint64_t generation,
                     weir_status (*fn)(wi_block *block, void *user), void *user);
/* Who takes blocks for a client on somebody's behalf can mark them, each while it has the block to itself, and know them again:
 * a live block at that address that it did not mark is another one. Without a lock where the base can peek. */
void wi_owner_tag(wi_resource *base, const void *pointer, uint64_t owner_tag);
bool wi_owner_tag_is(wi_resource *base, const void *pointer, uint64_t owner_tag);
/* Points that the device is not past, one for each stream. */
typedef struct wi_points {
    wi_event events[WEIR_BLOCK_WAITS];
    uint32_t count;
} wi_points;
/* What stands at a pointer that the base owns; and what a block there waits for. With the lock of the pending list held. */
void wi_inspect(wi_resource *base, const void *pointer, weir_block_details *out, wi_points *waits);
/* One moment of a block that a thread cache may be writing to; with the lock held, so that its place and its account stay. */
wi_block wi_look_at(const wi_block *block);
/* What names the account's largest live block; charged 0: it has none. */
void wi_largest_block(wi_resource *base, const wi_account *account, wi_block *out);

/* A number that no block has had. Threads take so many at once, so that they seldom meet; whoever has a place of his own for
 * the last one counts there. */
enum { WI_GENERATIONS = 1024 };
uint64_t wi_new_generation(void);
uint64_t wi_new_generations(void); /* those behind the answer, so many */
static inline uint64_t wi_next_generation(uint64_t *last)
{
    if (wi_unlikely(*last % WI_GENERATIONS == 0))
        *last = wi_new_generations();
    return ++*last;
}
/* What a base writes into every new block. */
wi_block wi_block_make(const wi_placement *placement, void *start, uint64_t previous);

#endif
