/* Acquiring: finding a block by its address, and the right to it for a free or a resize, the same for all bases (or a
 * refusal, as of a double free); and reuse of blocks that capture pools keep. */
#include "memory/adaptors/adaptors.h"
#include "memory/resource.h"
#include "memory/space/stream_order.h"

uint64_t wi_new_generations(void)
{
    static atomic_uint_fast64_t given;
    return atomic_fetch_add(&given, WI_GENERATIONS);
}

uint64_t wi_new_generation(void)
{
    static _Thread_local uint64_t last;
    uint64_t *mine = (uint64_t *)(uintptr_t)wi_opaque((uintptr_t)&last); /* finds the thread's variable once */
    return wi_next_generation(mine);
}

void wi_block_begin(wi_block *block, const wi_placement *placement, void *start, uint64_t previous)
{
    wi_assert(!block->pointer && !block->account && block->word == 0);
    wi_store(block->pointer, (char *)start + placement->before);
    wi_store(block->bytes, placement->bytes);
    wi_store(block->charged, placement->charged);
    wi_store(block->account, placement->account);
    wi_store(block->stream.id, placement->stream.id);
    wi_store(block->memory_class, placement->memory_class);
    wi_store(block->tag, placement->tag);
    block->tagged = placement->tag[0] != '\0';
    wi_store(block->plain, placement->plain);
    block->stable = placement->stable;
    block->before = placement->before;
    block->after = placement->after;
    block->rung = (uint8_t)placement->rung;
    block->previous = previous;
    atomic_store_explicit(&block->word, wi_new_generation() << WI_GENERATION_SHIFT | WI_BLANK, memory_order_release);
}

wi_block wi_block_make(const wi_placement *placement, void *start, uint64_t previous)
{
    wi_block block = {0};
    wi_block_begin(&block, placement, start, previous);
    return block;
}

static weir_status acquire_no_block(const void *pointer, bool freed)
{
    if (freed)
        return weir_fail(WEIR_ERR_DOUBLE_FREE, "the block at %p was freed before; free a block once", pointer);
    return weir_fail(WEIR_ERR_FOREIGN, "%p lies in weir's memory, but no block begins there", pointer);
}

static weir_status acquire_lost(const void *pointer)
{
    return weir_fail(WEIR_ERR_BUSY, "the block at %p is being freed or resized by another thread", pointer);
}

static weir_status acquire_check(const wi_block *block, const wi_account *account, const void *pointer, bool freed,
                                 uint64_t generation)
{
    if (!block || !wi_block_is_live(block))
        return acquire_no_block(pointer, freed || (block && block->pointer == pointer));
    if (block->pointer != pointer)
        return weir_fail(WEIR_ERR_INTERIOR,
                         "%p points %lld bytes into the block of %llu bytes at %p (%s); pass its start", pointer,
                         (long long)((const char *)pointer - (const char *)block->pointer),
                         (unsigned long long)wi_load(block->bytes), block->pointer, block->account->name);
    if (generation != 0 && generation != wi_block_generation(block))
        return weir_fail(WEIR_ERR_STALE,
                         "the block at %p that generation %llu named was freed; a block of %s with generation "
                         "%llu lives there now",
                         pointer, (unsigned long long)generation, block->account->name,
                         (unsigned long long)wi_block_generation(block));
    if (account && block->account != account)
        return weir_fail(WEIR_ERR_FOREIGN, "the block of %llu bytes at %p belongs to %s, not to %s",
                         (unsigned long long)wi_load(block->bytes), pointer, block->account->name, account->name);
    if (wi_block_phase_of(block) == WI_ACQUIRED)
        return acquire_lost(pointer);
    return WEIR_OK;
}

/* Finds a live block. Refusals are about the block whose word is *word. The lock is held. */
static weir_status acquire_find(wi_base *base, const wi_account *account, void *pointer, uint64_t generation,
                                wi_block **out, uint64_t *word)
{
    if (!base->table->owns(base, pointer) && base->table->was_freed && base->table->was_freed(base, pointer))
        return acquire_no_block(pointer, true);
    if (!base->table->owns(base, pointer))
        return weir_fail(WEIR_ERR_FOREIGN, "%p is no memory of this runtime's; free it where it was allocated",
                         pointer);
    bool freed = false;
    *out = base->table->find(base, pointer, &freed);
    *word = *out ? atomic_load_explicit(&(*out)->word, memory_order_acquire) : WI_BLANK;
    return acquire_check(*out, account, pointer, freed, generation);
}

/* The fast path without a lock: acquires a live block that is not tracked. NULL: the caller takes the lock. */
static wi_block *acquire_fast(wi_base *base, const wi_account *account, const void *pointer, uint64_t generation)
{
    wi_block *block = base->table->peek ? base->table->peek(base, pointer) : NULL;
    uint64_t word = block ? atomic_load_explicit(&block->word, memory_order_acquire) : WI_BLANK;
    bool good = (word & (WI_TRACKED | 7)) == WI_LIVE && wi_load(block->pointer) == pointer &&
                (!account || wi_load(block->account) == account) &&
                (generation == 0 || generation == word >> WI_GENERATION_SHIFT);
    return good && wi_block_acquire(block, word, WI_ACQUIRED) ? block : NULL;
}

/* Says why a block is not acquired, or acquires one that is tracked. Apart, as most blocks need no lock. */
static __attribute__((noinline)) weir_status acquire_locked(wi_base *base, const wi_account *account, void *pointer,
                                                            uint64_t generation, wi_block **out)
{
    wi_block *block = NULL;
    uint64_t word;
    wi_base_lock(base);
    weir_status status = acquire_find(base, account, pointer, generation, &block, &word);
    if (status == WEIR_OK && wi_stream_uses_held(block->stream_uses))
        status = weir_fail(WEIR_ERR_BUSY, "the block at %p is used by %s", pointer,
                           wi_stream_uses_holder(block->stream_uses));
    if (status == WEIR_OK && !wi_block_acquire(block, word, WI_ACQUIRED))
        status = acquire_lost(pointer);
    if (status == WEIR_OK)
        *out = block;
    wi_base_unlock(base);
    return status;
}

weir_status wi_acquire(wi_base *base, const wi_account *account, void *pointer, uint64_t generation, wi_block **out)
{
    wi_block *block = acquire_fast(base, account, pointer, generation);
    if (wi_unlikely(!block))
        return acquire_locked(base, account, pointer, generation, out);
    *out = block;
    return WEIR_OK;
}

void wi_let_go(wi_base *base, wi_block *block)
{
    wi_base_lock(base);
    wi_block_set_phase(block, WI_LIVE);
    wi_base_unlock(base);
}

weir_status wi_visit(wi_base *base, void *pointer, uint64_t generation, weir_status (*fn)(wi_block *block, void *user),
                     void *user)
{
    wi_block *block = NULL;
    uint64_t word;
    wi_base_lock(base);
    weir_status status = acquire_find(base, NULL, pointer, generation, &block, &word);
    if (status == WEIR_OK && !wi_block_track(block, word)) /* a tracked block is acquired only under this lock */
        status = acquire_lost(pointer);
    if (status == WEIR_OK)
        status = fn(block, user);
    wi_base_unlock(base);
    return status;
}

/* Owner tags ------------------------------------------------------------------------------------------------------- */

/* What is stored for a tag. It includes the generation, so that a later block in the same record does not have the
 * tag. */
static uint64_t acquire_tag(uint64_t word, uint64_t owner_tag)
{
    return word >> WI_GENERATION_SHIFT ^ owner_tag * UINT64_C(0x9e3779b97f4a7c15);
}

/* Finds the block; *locked: this took the base's lock, which is still held. */
static wi_block *acquire_find_to_tag(wi_base *base, const void *pointer, bool *locked)
{
    wi_block *block = base->table->peek ? base->table->peek(base, pointer) : NULL;
    bool freed;
    *locked = !block;
    if (block)
        return block;
    wi_base_lock(base);
    return base->table->owns(base, pointer) ? base->table->find(base, pointer, &freed) : NULL;
}

void wi_owner_tag(wi_base *base, const void *pointer, uint64_t owner_tag)
{
    bool locked;
    wi_block *block = acquire_find_to_tag(base, pointer, &locked);
    if (block)
        wi_store(block->owner_tag, acquire_tag(atomic_load_explicit(&block->word, memory_order_relaxed), owner_tag));
    if (locked)
        wi_base_unlock(base);
}

bool wi_owner_tag_is(wi_base *base, const void *pointer, uint64_t owner_tag)
{
    bool locked;
    const wi_block *block = acquire_find_to_tag(base, pointer, &locked);
    uint64_t word = block ? atomic_load_explicit(&block->word, memory_order_acquire) : WI_BLANK;
    bool is = block && wi_load(block->pointer) == pointer && wi_load(block->owner_tag) == acquire_tag(word, owner_tag);
    if (locked)
        wi_base_unlock(base);
    return is;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

wi_block wi_look_at(const wi_block *block)
{
    wi_block seen = {.pointer = block->pointer, .charged = block->charged, .account = block->account};
    uint64_t word, after = atomic_load_explicit(&block->word, memory_order_acquire);
    do {
        word = after;
        seen.bytes = wi_load(block->bytes);
        seen.tag = wi_load(block->tag);
        seen.memory_class = wi_load(block->memory_class);
        seen.stream.id = wi_load(block->stream.id);
        after = atomic_load_explicit(&block->word, memory_order_acquire);
    } while (after != word);
    atomic_init(&seen.word, word);
    return seen;
}

static void acquire_add_point(const wi_base *base, wi_event event, wi_points *points)
{
    uint32_t i = 0;
    if (!event.stream || base->resource.driver->passed(base->resource.device, event))
        return;
    while (i < points->count && points->events[i].stream != event.stream)
        i++;
    if (i == WEIR_BLOCK_WAITS)
        return;
    if (i == points->count)
        points->events[points->count++] = event;
    points->events[i].sequence = wi_max(points->events[i].sequence, event.sequence);
}

/* Adds the points that a write to the block would wait for. Skips acquired blocks, and blocks that a capture pool
 * keeps, as other threads may change the uses. A tracked live block cannot be acquired while the lock is held. */
static void acquire_add_points(const wi_base *base, const wi_block *block, wi_points *points)
{
    wi_event event;
    uint64_t state = atomic_load_explicit(&block->word, memory_order_acquire) & (WI_TRACKED | 7);
    bool pending = (state & 7) == WI_PENDING && !block->graph;
    if (!pending && state != (WI_LIVE | WI_TRACKED))
        return;
    if (pending)
        acquire_add_point(base, block->freed, points);
    for (uint32_t i = 0; block->stream_uses && wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, i, &event);
         i++)
        acquire_add_point(base, event, points);
}

void wi_inspect(wi_base *base, const void *pointer, weir_block_details *out, wi_points *waits)
{
    *waits = (wi_points){.count = 0};
    bool freed;
    wi_base_lock(base);
    const wi_block *found = base->table->find(base, pointer, &freed);
    wi_block block = found ? wi_look_at(found) : (wi_block){.word = WI_BLANK};
    out->state = WEIR_BLOCK_FREE;
    if (found && wi_block_is_charged(&block)) {
        out->block = (weir_block){block.pointer, wi_block_generation(&block)};
        out->offset = (size_t)((const char *)pointer - (const char *)block.pointer);
        out->bytes = block.bytes;
        out->charged = block.charged;
        out->client = block.account->client;
        out->memory_class = block.memory_class;
        out->state = wi_block_is_live(&block) ? WEIR_BLOCK_LIVE : WEIR_BLOCK_PENDING;
        out->stream = block.stream;
        memcpy(out->tag, block.tag, strlen(block.tag) + 1);
        acquire_add_points(base, found, waits);
    }
    wi_base_unlock(base);
}

typedef struct search {
    const wi_account *account;
    wi_block *largest;
} search;

static void acquire_compare(wi_block *block, void *user)
{
    search *s = user;
    if (block->account != s->account || block->charged <= s->largest->charged)
        return;
    wi_block seen = wi_look_at(block);
    if (wi_block_is_live(&seen))
        *s->largest = seen;
}

void wi_largest_block(wi_base *base, const wi_account *account, wi_block *out)
{
    *out = (wi_block){.tag = ""};
    wi_base_lock(base);
    base->table->each(base, acquire_compare, &(search){account, out});
    wi_base_unlock(base);
}

/* Reuse ------------------------------------------------------------------------------------------------------------ */

/* A capture pool's block serves another request where it is. Its bytes had no other owner in between. */

/* Renews the block for the request, with a new generation; the block is pending until it is published. The lock is
 * held. */
static void reuse_renew(wi_block *block, const wi_placement *p)
{
    wi_stream_uses_free(block->stream_uses);
    block->stream_uses = NULL;
    block->rung = WEIR_RUNG_FIT;
    block->lent = 0;
    block->previous = wi_account_owner(block->account);
    wi_block_came_behind(block);
    wi_store(block->bytes, p->bytes);
    wi_store(block->tag, p->tag);
    wi_store(block->memory_class, p->memory_class);
    wi_store(block->stream.id, p->stream.id);
    atomic_store_explicit(&block->word, wi_new_generation() << WI_GENERATION_SHIFT | WI_PENDING, memory_order_release);
}

weir_status wi_reuse(wi_base *base, wi_placement *p, wi_block **out)
{
    wi_block *block = p->held;
    weir_status status = WEIR_OK;
    wi_assert(block->account == p->account && p->before + p->after == 0 && block->before + block->after == 0);
    wi_assert(block->charged == p->charged || (base->table->join && block->charged > p->charged));
    p->rest = NULL;
    if (block->charged > p->charged)
        status = base->table->all.shrink(&base->resource, block, p->bytes, p->native, &p->rest);
    if (status != WEIR_OK)
        return status;
    wi_ledger_let_go(base->resource.ledger, block, p->memory_class);
    wi_base_lock(base);
    reuse_renew(block, p);
    wi_base_unlock(base);
    wi_nvtx_resize(&base->resource, block);
    *out = block;
    return WEIR_OK;
}
