/* The bases "direct" and "async": one allocation of the driver's, called a piece, for each block.
 *
 * A freed piece goes to the driver when the device is past it, with no lock held. From then on the driver may give its
 * addresses to another piece. "async" does not wait if only the order of one stream comes before the free: the pool
 * gets the piece in that order, and its record stays until the free is complete, for the ledger. If its addresses
 * serve again meanwhile, the older piece is displaced from the index.
 *
 * The pool of "async" may hold more than the pieces: that is `kept`, which the ledger counts as cached.
 *
 * Invariants: the ledger holds, for this resource, lent + kept and what threads in the driver have claimed beforehand;
 * lent is the sum of all pieces. */
#include "memory/stack.h"
#include "memory/adaptors/adaptors.h"
#include "memory/space/stream_lists.h"
#include "memory/space/chunks.h"
#include "memory/space/stream_order.h"

#include <stddef.h>

typedef struct driver_piece {
    wi_block block; /* first: a block's address is also the address of its piece */
    wi_range range; /* the whole allocation of the driver's */
    uint64_t own;   /* the most of it that the block's client ever had: growth up to there needs no scrubbing */
    bool returning; /* the driver is getting it back, and may give its addresses to another piece from now on */
    bool returned;
    bool displaced; /* its addresses serve another piece; no longer in the index, but in `displaced` */
    struct driver_piece *previous, *next;
} driver_piece;

typedef struct driver_alloc {
    wi_base base;
    weir_kind kind;
    bool pooled;                /* frees follow streams, and freed memory may stay in the driver's pool */
    const weir_base_table *own; /* a program's own functions in place of the driver's; NULL: the driver's */
    void *state;                /* of the program's functions */
    wi_base_table table;        /* the base's table, if the functions are the program's */
    pthread_mutex_t addresses;  /* a leaf; the index changes under both locks, and a reader needs only one */
    wi_index index;
    /* under the resource's lock: */
    driver_piece *displaced;
    wi_block *unwanted; /* discarded; the device is not past them or the driver refused; linked by pending_next */
    uint64_t lent, kept;
    size_t working;  /* threads in a call of the driver */
    uint64_t ends;   /* how often such a call has ended */
    uint64_t secret; /* WI_SECRET once a block of an account with scrubbing was freed */
} driver_alloc;

/* The driver's pool ------------------------------------------------------------------------------------------------ */

/* What the driver's pool keeps under "async". Only the pool decides which memory to reuse, so weir asks the pool after
 * each change. No lock covers its calls: an answer counts only if no other call was under way, and the last thread to
 * come back asks. */

/* Makes the ledger follow a pool of `held` bytes in all, as far as the budget leaves room. The lock is held. */
static void driver_alloc_adjust(driver_alloc *s, uint64_t held)
{
    wi_ledger *ledger = s->base.resource.ledger;
    uint64_t kept = held - wi_min(held, s->lent);
    if (kept < s->kept) {
        wi_ledger_unmapped(ledger, s->kept - kept);
        wi_ledger_release(ledger, s->kept - kept);
    } else if (kept > s->kept) {
        kept = s->kept + wi_ledger_hold(ledger, kept - s->kept);
        wi_ledger_mapped(ledger, kept - s->kept);
    }
    s->kept = kept;
}

/* Around calls of the program's functions, which expect the device to be current on the thread. */
static weir_status driver_alloc_enter(const driver_alloc *s)
{
    return s->base.resource.driver->enter ? s->base.resource.driver->enter(s->base.resource.device) : WEIR_OK;
}

static void driver_alloc_leave(const driver_alloc *s)
{
    if (s->base.resource.driver->leave)
        s->base.resource.driver->leave(s->base.resource.device);
}

/* Whether the pool may hold more than the pieces. */
static bool driver_alloc_keeps(const driver_alloc *s)
{
    return s->own ? s->own->held != NULL : s->pooled;
}

/* The pool's bytes; and the same after it gave back what it keeps beyond `keep`. */
static weir_status driver_alloc_held(driver_alloc *s, uint64_t *held)
{
    wi_resource *r = &s->base.resource;
    if (!s->own)
        return r->driver->pool_held(r->device, held);
    weir_status status = driver_alloc_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->held(s->state, held);
    driver_alloc_leave(s);
    return status;
}

static weir_status driver_alloc_trim_pool(driver_alloc *s, uint64_t keep, uint64_t *held)
{
    wi_resource *r = &s->base.resource;
    if (!s->own)
        return r->driver->pool_trim(r->device, keep, held);
    weir_status status = driver_alloc_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->trim(s->state, keep, held);
    driver_alloc_leave(s);
    return status;
}

static bool driver_alloc_follow(driver_alloc *s, bool trim, uint64_t keep, uint64_t *given)
{
    uint64_t held = 0;
    wi_base_lock(&s->base);
    uint64_t seen = s->ends, most = s->lent + wi_min(keep, UINT64_MAX / 2);
    bool last = s->working == 0;
    wi_base_unlock(&s->base);
    if (!last && !trim)
        return false;
    weir_status status = trim ? driver_alloc_trim_pool(s, most, &held) : driver_alloc_held(s, &held);
    wi_base_lock(&s->base);
    uint64_t before = s->kept;
    bool true_now = status == WEIR_OK && s->working == 0 && s->ends == seen;
    s->ends += trim;
    if (true_now)
        driver_alloc_adjust(s, held);
    if (given)
        *given = before - wi_min(before, s->kept);
    bool over_budget = true_now && held > s->lent + s->kept;
    wi_base_unlock(&s->base);
    return over_budget;
}

static void driver_alloc_follow_pool(driver_alloc *s)
{
    if (driver_alloc_keeps(s) && driver_alloc_follow(s, false, 0, NULL))
        (void)driver_alloc_follow(s, true, 0, NULL);
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static driver_alloc *driver_alloc_of(wi_base *base)
{
    return (driver_alloc *)base;
}

static driver_piece *driver_alloc_piece_of(wi_block *block)
{
    return (driver_piece *)block;
}

static driver_piece *piece_with(wi_range *range)
{
    return (driver_piece *)((char *)range - offsetof(driver_piece, range));
}

static uint64_t piece_bytes(const driver_piece *p)
{
    return p->range.end - p->range.start;
}

static void driver_alloc_lock(driver_alloc *s)
{
    wi_base_lock(&s->base);
}

static void driver_alloc_unlock(driver_alloc *s)
{
    wi_base_unlock(&s->base);
}

static void driver_alloc_check(wi_base *base)
{
    wi_index_check(&driver_alloc_of(base)->index);
}

/* Around calls of the driver that allocate or free. The lock is held before and after, and released meanwhile. */
static void driver_alloc_go_to_driver(driver_alloc *s)
{
    s->working++;
}

static void driver_alloc_come_back(driver_alloc *s)
{
    s->working--;
    s->ends++;
    wi_ledger_driver_call(s->base.resource.ledger);
}

/* Getting a piece -------------------------------------------------------------------------------------------------- */

/* Fills in what could be placed now, and what would have to be held for the request. The lock is held. */
static void driver_alloc_look_around(driver_alloc *s, uint64_t bytes, uint64_t alignment, wi_shortage *shortage)
{
    wi_standing now = wi_ledger_look(s->base.resource.ledger);
    uint64_t room = (now.budget - now.held - now.aside + s->kept) & ~(uint64_t)(WI_UNIT - 1),
             lost = alignment - WI_UNIT;
    shortage->largest = room - wi_min(room, lost);
    shortage->later = UINT64_MAX; /* one allocation, if all pending frees are enough */
    shortage->held = now.held + now.aside - wi_min(s->kept, bytes + lost) + bytes + lost;
    wi_ledger_see(s->base.resource.ledger, shortage);
}

/* Claims held bytes: first the bytes that the pool keeps, and reuses if it can, then *fresh new bytes. */
static bool driver_alloc_hold(driver_alloc *s, uint64_t bytes, uint64_t *fresh)
{
    uint64_t missing = bytes - wi_min(bytes, s->kept),
             got = missing ? wi_ledger_hold(s->base.resource.ledger, missing) : 0;
    if (got < missing) {
        if (got)
            wi_ledger_release(s->base.resource.ledger, got);
        return false;
    }
    *fresh = got;
    s->kept -= bytes - got;
    return true;
}

/* The native handle for the program's functions; NULL if they follow no streams. */
static void *own_native(const driver_alloc *s, void *native)
{
    return s->pooled && native ? s->base.resource.driver->stream_native(native) : NULL;
}

static weir_status own_allocate(driver_alloc *s, uint64_t bytes, void *native, void **address)
{
    weir_status status = driver_alloc_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->allocate(s->state, bytes, own_native(s, native), address);
    driver_alloc_leave(s);
    if (status == WEIR_OK && ((uintptr_t)*address == 0 || (uintptr_t)*address % WI_UNIT != 0))
        return weir_fail(WEIR_ERR_DRIVER, "the base %s allocated %llu bytes at %p, which is no multiple of %d",
                         s->own->name, (unsigned long long)bytes, *address, (int)WI_UNIT);
    return status;
}

static weir_status driver_alloc_ask_once(driver_alloc *s, uint64_t bytes, void *native, void **address)
{
    wi_resource *r = &s->base.resource;
    if (s->own)
        return own_allocate(s, bytes, native, address);
    return s->pooled ? r->driver->pool_allocate(r->device, bytes, native, address)
                     : r->driver->allocate(r->device, s->kind, bytes, address);
}

static weir_status driver_alloc_ask(driver_alloc *s, uint64_t bytes, void *native, void **address)
{
    uint64_t ignored;
    weir_status status = driver_alloc_ask_once(s, bytes, native, address);
    if (status == WEIR_ERR_OUT_OF_MEMORY && driver_alloc_keeps(s) && driver_alloc_trim_pool(s, 0, &ignored) == WEIR_OK)
        status = driver_alloc_ask_once(s, bytes, native, address); /* what the pool kept may be too scattered */
    return status;
}

static weir_status own_release(driver_alloc *s, void *address, uint64_t bytes, void *native)
{
    weir_status status = driver_alloc_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->release(s->state, address, bytes, own_native(s, native));
    driver_alloc_leave(s);
    return status;
}

static weir_status driver_alloc_return(driver_alloc *s, const driver_piece *p, void *native)
{
    const wi_driver *driver = s->base.resource.driver;
    wi_device *device = s->base.resource.device;
    void *address = (void *)p->range.start;
    if (s->own)
        return own_release(s, address, piece_bytes(p), native);
    return s->pooled ? driver->pool_release(device, address, piece_bytes(p), native)
                     : driver->release(device, s->kind, address, piece_bytes(p));
}

/* Enters a piece into the index. Older pieces at its addresses, which the driver has back already, are displaced: only
 * the ledger still counts them. The lock is held. */
static void driver_alloc_index(driver_alloc *s, driver_piece *new)
{
    wi_range *range;
    pthread_mutex_lock(&s->addresses);
    while ((range = wi_index_find(&s->index, new->range.start, new->range.end))) {
        driver_piece *older = piece_with(range);
        wi_assert(older->returning || older->returned);
        wi_index_remove(&s->index, range);
        older->displaced = true;
        older->previous = NULL;
        older->next = s->displaced;
        if (s->displaced)
            s->displaced->previous = older;
        s->displaced = older;
    }
    wi_index_insert(&s->index, &new->range);
    pthread_mutex_unlock(&s->addresses);
}

static weir_status driver_alloc_obtain(driver_alloc *s, wi_placement *p, driver_piece *new, wi_shortage *shortage)
{
    wi_ledger *ledger = s->base.resource.ledger;
    uint64_t bytes = p->charged + p->alignment - WI_UNIT, fresh = 0;
    void *address = NULL;
    weir_status status = WEIR_ERR_OUT_OF_MEMORY;
    driver_alloc_lock(s);
    bool held = driver_alloc_hold(s, bytes, &fresh);
    if (held) {
        driver_alloc_go_to_driver(s);
        driver_alloc_unlock(s);
        status = driver_alloc_ask(s, bytes, p->native, &address);
        driver_alloc_lock(s);
        driver_alloc_come_back(s);
    }
    if (status == WEIR_OK) {
        wi_climbed(p, WEIR_RUNG_CREATE);
        new->range = (wi_range){.start = (uintptr_t)address, .end = (uintptr_t)address + bytes};
        new->block = wi_block_make(p, (void *)wi_round_up((uintptr_t)address, p->alignment), WI_MIXED | s->secret);
        new->block.zeroing = s->pooled && p->native;
        new->own = p->charged;
        wi_ledger_mapped(ledger, fresh);
        s->lent += bytes;
        wi_ledger_segments(ledger, 1, 0);
        driver_alloc_index(s, new);
    } else {
        if (fresh)
            wi_ledger_release(ledger, fresh);
        s->kept += held ? bytes - fresh : 0;
        shortage->cause = held ? WEIR_CAUSE_OTHER_PROCESS : WEIR_CAUSE_FRAGMENTATION;
        driver_alloc_look_around(s, p->charged, p->alignment, shortage);
    }
    driver_alloc_unlock(s);
    return status;
}

/* Tells compute-sanitizer and the like about the block. */
static void driver_alloc_mark(const driver_alloc *s, driver_piece *p)
{
    if (!s->pooled && s->kind == WEIR_KIND_DEVICE)
        wi_nvtx_enter(&s->base.resource, &p->block, p->range.start, piece_bytes(p));
}

static weir_status driver_alloc_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    driver_piece *new = calloc(1, sizeof *new);
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to note a block of %llu bytes", (unsigned long long)p->bytes);
    weir_status status = driver_alloc_obtain(s, p, new, shortage);
    if (status == WEIR_OK) {
        driver_alloc_mark(s, new);
        *out = &new->block;
    } else {
        free(new);
    }
    driver_alloc_follow_pool(s);
    return status;
}

static void driver_alloc_publish(wi_resource *resource, wi_block *block)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    driver_alloc_lock(s);
    wi_ledger_commit(resource->ledger, block);
    driver_alloc_unlock(s);
}

/* Giving it back --------------------------------------------------------------------------------------------------- */

/* Gives a piece to the driver, in the order of the stream if there is one. If the driver refuses, nothing changes. */
static weir_status driver_alloc_give(driver_alloc *s, driver_piece *p, void *native)
{
    driver_alloc_lock(s);
    p->returning = true;
    s->secret |= wi_account_owner(p->block.account) & WI_SECRET;
    driver_alloc_go_to_driver(s);
    driver_alloc_unlock(s);
    wi_nvtx_leave(&s->base.resource, &p->block);
    weir_status status = driver_alloc_return(s, p, native);
    driver_alloc_lock(s);
    driver_alloc_come_back(s);
    wi_assert(status == WEIR_OK || !p->displaced);
    p->returning = false;
    p->returned = status == WEIR_OK;
    driver_alloc_unlock(s);
    return status;
}

/* Takes a piece out of the ledger and frees its record, once its free is complete. The lock is held. */
static void driver_alloc_drop(driver_alloc *s, driver_piece *p)
{
    uint64_t bytes = piece_bytes(p);
    if (p->displaced) {
        *(p->previous ? &p->previous->next : &s->displaced) = p->next;
        if (p->next)
            p->next->previous = p->previous;
    } else {
        pthread_mutex_lock(&s->addresses);
        wi_index_remove(&s->index, &p->range);
        pthread_mutex_unlock(&s->addresses);
    }
    s->lent -= bytes;
    wi_ledger_segments(s->base.resource.ledger, 0, 1);
    if (driver_alloc_keeps(s)) {
        s->kept += bytes;
    } else {
        wi_ledger_unmapped(s->base.resource.ledger, bytes);
        wi_ledger_release(s->base.resource.ledger, bytes);
    }
    wi_stream_uses_free(p->block.stream_uses);
    free(p);
}

static bool driver_alloc_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    (void)native, (void)past; /* the driver's own free has to be called in any case */
    driver_alloc_lock(s);
    wi_ledger_retire(resource->ledger, block, stream, WI_UNPASSED);
    wi_block_set_phase(block, WI_PENDING);
    driver_alloc_unlock(s);
    return false;
}

static weir_status driver_alloc_release(wi_resource *resource, wi_block *block)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    driver_piece *p = driver_alloc_piece_of(block);
    uintptr_t start = (uintptr_t)block->pointer;
    weir_status status = p->returned ? WEIR_OK : driver_alloc_give(s, p, NULL);
    if (status != WEIR_OK)
        return status;
    driver_alloc_lock(s);
    wi_ledger_reap(resource->ledger, block);
    driver_alloc_drop(s, p);
    wi_index_freed(&s->index, start);
    driver_alloc_unlock(s);
    driver_alloc_follow_pool(s);
    return WEIR_OK;
}

static weir_status driver_alloc_hand_over(wi_base *base, wi_block *block, void *native)
{
    return driver_alloc_give(driver_alloc_of(base), driver_alloc_piece_of(block), native);
}

/* Gives a discarded block back. True: the driver has it. */
static bool driver_alloc_give_up(driver_alloc *s, wi_block *block, void *native)
{
    wi_resource *r = &s->base.resource;
    if (!r->driver->passed(r->device, block->freed) ||
        driver_alloc_give(s, driver_alloc_piece_of(block), native) != WEIR_OK)
        return false;
    driver_alloc_lock(s);
    driver_alloc_drop(s, driver_alloc_piece_of(block));
    driver_alloc_unlock(s);
    driver_alloc_follow_pool(s);
    return true;
}

static void driver_alloc_keep_unwanted(driver_alloc *s, wi_block *block)
{
    driver_alloc_lock(s);
    block->pending_next = s->unwanted;
    s->unwanted = block;
    driver_alloc_unlock(s);
}

/* Zeros may have been queued for the block. A pool takes it back behind them, in the stream's order. */
static void driver_alloc_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    if (p->native && !s->pooled)
        (void)resource->driver->record(resource->device, p->native, &block->freed);
    if (!driver_alloc_give_up(s, block, p->native))
        driver_alloc_keep_unwanted(s, block);
}

static uint64_t driver_alloc_release_kept(wi_resource *resource)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    uint64_t bytes = 0;
    driver_alloc_lock(s);
    wi_block *list = s->unwanted;
    s->unwanted = NULL;
    driver_alloc_unlock(s);
    for (wi_block *block = list, *next; block; block = next) {
        uint64_t size = piece_bytes(driver_alloc_piece_of(block));
        next = block->pending_next;
        if (driver_alloc_give_up(s, block, NULL))
            bytes += size;
        else
            driver_alloc_keep_unwanted(s, block);
    }
    return bytes;
}

static uint64_t driver_alloc_trim(wi_base *base, uint64_t keep)
{
    uint64_t given = 0;
    if (driver_alloc_keeps(driver_alloc_of(base)))
        (void)driver_alloc_follow(driver_alloc_of(base), true, keep, &given);
    return given;
}

static uint64_t driver_alloc_idle(wi_base *base)
{
    driver_alloc *s = driver_alloc_of(base);
    driver_alloc_lock(s);
    uint64_t bytes = s->kept;
    driver_alloc_unlock(s);
    return bytes;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static uint64_t driver_alloc_charge(wi_base *base, uint64_t bytes)
{
    (void)base;
    return wi_round_up(bytes, WI_UNIT);
}

static void driver_alloc_measure(wi_resource *resource, wi_placement *p)
{
    p->charged = driver_alloc_charge(wi_base_of(resource), p->before + p->bytes + p->after);
}

static void driver_alloc_set_length(driver_alloc *s, wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_ledger_resize(s->base.resource.ledger, block, bytes, charged, true);
    block->bytes = bytes;
    block->charged = charged;
}

/* The driver frees whole pieces only. What is cut off stays in the piece, counts as cached, and can only serve this
 * block. */
static weir_status driver_alloc_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native,
                                       wi_block **tail)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    (void)native;
    *tail = NULL;
    driver_alloc_lock(s);
    driver_alloc_set_length(s, block, bytes, driver_alloc_charge(&s->base, block->before + bytes + block->after));
    driver_alloc_unlock(s);
    wi_nvtx_resize(resource, block);
    return WEIR_OK;
}

/* Grows into what was cut off before. The part that this client had needs no scrubbing. */
static weir_status driver_alloc_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                                     wi_shortage *shortage)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    uint64_t charged = driver_alloc_charge(&s->base, block->before + bytes + block->after),
             own = driver_alloc_piece_of(block)->own;
    (void)may_wait;
    (void)shortage;
    if (charged > own)
        return weir_fail(
            WEIR_ERR_NO_ROOM,
            "the block at %p cannot grow to %llu bytes: it has an allocation of its own, which ends after %llu; "
            "allocate another one and copy",
            block->pointer, (unsigned long long)bytes, (unsigned long long)(own - block->before - block->after));
    driver_alloc_lock(s);
    driver_alloc_set_length(s, block, bytes, charged);
    block->previous = wi_account_owner(block->account);
    driver_alloc_unlock(s);
    wi_nvtx_resize(resource, block);
    return WEIR_OK;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static void driver_alloc_look(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment,
                              wi_shortage *shortage)
{
    driver_alloc *s = driver_alloc_of(base);
    (void)memory_class;
    driver_alloc_lock(s);
    driver_alloc_look_around(s, charged, alignment, shortage);
    driver_alloc_unlock(s);
}

/* Only pieces in the index count: a freed piece's addresses may be another runtime's by now. */
static bool driver_alloc_owns(wi_base *base, const void *pointer)
{
    driver_alloc *s = driver_alloc_of(base);
    pthread_mutex_lock(&s->addresses);
    bool found = wi_index_find(&s->index, (uintptr_t)pointer, (uintptr_t)pointer + 1) != NULL;
    pthread_mutex_unlock(&s->addresses);
    return found;
}

static bool driver_alloc_was_freed(wi_base *base, const void *pointer)
{
    return wi_index_was_freed(&driver_alloc_of(base)->index, (uintptr_t)pointer);
}

static wi_block *driver_alloc_find(wi_base *base, const void *pointer, bool *freed)
{
    wi_range *range = wi_index_find(&driver_alloc_of(base)->index, (uintptr_t)pointer, (uintptr_t)pointer + 1);
    *freed = false;
    if (!range)
        return NULL;
    wi_block *block = &piece_with(range)->block;
    uintptr_t start = (uintptr_t)block->pointer - block->before;
    return (uintptr_t)pointer >= start && (uintptr_t)pointer < start + block->charged ? block : NULL;
}

typedef struct visit {
    void (*fn)(wi_block *block, void *user);
    void *user;
} visit;

static void driver_alloc_visit_range(wi_range *range, void *user)
{
    const visit *v = user;
    wi_block *block = &piece_with(range)->block;
    if (wi_block_is_charged(block))
        v->fn(block, v->user);
}

static void driver_alloc_each(wi_base *base, void (*fn)(wi_block *block, void *user), void *user)
{
    driver_alloc *s = driver_alloc_of(base);
    wi_index_each(&s->index, driver_alloc_visit_range, &(visit){fn, user});
    for (driver_piece *p = s->displaced; p; p = p->next)
        fn(&p->block, user);
}

/* One piece is one segment: margins and cut-off bytes belong to it. */
static void driver_alloc_walk_piece(wi_layout *layout, const driver_piece *p)
{
    uintptr_t start = (uintptr_t)p->block.pointer - p->block.before, end = start + p->block.charged;
    wi_layout_segment(layout, (const void *)p->range.start, piece_bytes(p));
    wi_layout_span(layout, WEIR_SPAN_KEPT, (const void *)p->range.start, start - p->range.start);
    wi_layout_block(layout, &p->block, (const void *)start, p->block.charged);
    wi_layout_span(layout, WEIR_SPAN_KEPT, (const void *)end, p->range.end - end);
}

static void driver_alloc_walk_range(wi_range *range, void *user)
{
    driver_alloc_walk_piece(user, piece_with(range));
}

static void driver_alloc_walk(wi_base *base, wi_layout *layout)
{
    driver_alloc *s = driver_alloc_of(base);
    wi_index_each(&s->index, driver_alloc_walk_range, layout);
    for (const driver_piece *p = s->displaced; p; p = p->next)
        driver_alloc_walk_piece(layout, p);
    if (s->kept > 0) { /* the pool does not say at which addresses */
        wi_layout_segment(layout, NULL, s->kept);
        wi_layout_span(layout, WEIR_SPAN_FREE, NULL, s->kept);
    }
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

/* What the driver does not take back even now stays in the ledger, and is its driver's alone: the records go. */
static void driver_alloc_destroy(wi_resource *resource)
{
    driver_alloc *s = driver_alloc_of(wi_base_of(resource));
    if (resource->ledger) {
        (void)driver_alloc_release_kept(resource);
        (void)driver_alloc_trim(&s->base, 0);
    }
    for (wi_block *block = s->unwanted, *next; block; block = next) {
        next = block->pending_next;
        wi_stream_uses_free(block->stream_uses);
        free(driver_alloc_piece_of(block));
    }
    if (s->own && s->own->destroy && driver_alloc_enter(s) == WEIR_OK) {
        s->own->destroy(s->state);
        driver_alloc_leave(s);
    }
    pthread_mutex_destroy(&s->addresses);
    wi_base_end(&s->base);
    free(s);
}

#define COMMON                                                                                                         \
    .all.measure = driver_alloc_measure, .all.allocate = driver_alloc_allocate, .all.discard = driver_alloc_discard,   \
    .all.publish = driver_alloc_publish, .all.retire = driver_alloc_retire, .all.release = driver_alloc_release,       \
    .all.shrink = driver_alloc_shrink, .all.grow = driver_alloc_grow, .all.release_kept = driver_alloc_release_kept,   \
    .all.destroy = driver_alloc_destroy, .charge = driver_alloc_charge, .find = driver_alloc_find,                     \
    .each = driver_alloc_each, .walk = driver_alloc_walk, .owns = driver_alloc_owns,                                   \
    .was_freed = driver_alloc_was_freed, .trim = driver_alloc_trim, .idle = driver_alloc_idle,                         \
    .look = driver_alloc_look, .check = driver_alloc_check

static const wi_base_table direct = {
    .all.name = "direct",
    .all.features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                    WEIR_FEATURE_CAPTURABLE,
    COMMON,
};

static const wi_base_table async = {
    .all.name = "async",
    .all.features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                    WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_TRIMS,
    .hand_over = driver_alloc_hand_over,
    COMMON,
};

static weir_status driver_alloc_create(const wi_base_table *table, const wi_driver *driver, wi_device *device,
                                       weir_kind kind, wi_resource **out)
{
    driver_alloc *s = calloc(1, sizeof *s);
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_base_init(&s->base, table, driver, device);
    pthread_mutex_init(&s->addresses, NULL);
    s->kind = kind;
    s->pooled = table == &async;
    *out = &s->base.resource;
    return WEIR_OK;
}

weir_status wi_direct_create(const wi_driver *driver, wi_device *device, weir_kind kind, wi_resource **out)
{
    return driver_alloc_create(&direct, driver, device, kind, out);
}

weir_status wi_async_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    uint64_t ignored;
    weir_status status = driver->pool_held(device, &ignored); /* fails on a device without pools */
    return status == WEIR_OK ? driver_alloc_create(&async, driver, device, WEIR_KIND_DEVICE, out) : status;
}

/* Describes a program's own functions as direct or async, with the features that they have. */
static void own_describe(driver_alloc *s)
{
    s->table = s->pooled ? async : direct;
    s->table.all.name = s->own->name;
    s->table.all.features &= ~(uint32_t)(WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_TRIMS);
    s->table.all.features |= s->own->flags & WEIR_BASE_CAPTURABLE ? WEIR_FEATURE_CAPTURABLE : 0;
    s->table.all.features |= s->own->trim ? WEIR_FEATURE_TRIMS : 0;
}

weir_status wi_own_create(const weir_base_table *own, const wi_driver *driver, wi_device *device, weir_kind kind,
                          wi_resource **out)
{
    void *native = driver->context(device);
    weir_status status = driver_alloc_create(&direct, driver, device, kind, out);
    if (status != WEIR_OK)
        return status;
    driver_alloc *s = driver_alloc_of((*out)->base);
    weir_base_place place = {.struct_size = sizeof place, .driver = driver->name, .native = native};
    s->state = own->user;
    status = own->create ? driver_alloc_enter(s) : WEIR_OK;
    if (own->create && status == WEIR_OK) {
        status = own->create(own->user, &place, &s->state);
        driver_alloc_leave(s);
    }
    if (status != WEIR_OK) {
        driver_alloc_destroy(*out);
        *out = NULL;
        return status;
    }
    s->own = own;
    s->pooled = (own->flags & WEIR_BASE_STREAM_ORDERED) && native;
    own_describe(s);
    wi_base_set_table(&s->base, &s->table);
    return WEIR_OK;
}

weir_status wi_direct_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_direct_create(driver, device, WEIR_KIND_DEVICE, out) : status;
}

weir_status wi_async_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_async_create(driver, device, out) : status;
}
