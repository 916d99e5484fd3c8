/* Fronts, where nothing is shared: parking a block and taking it back. */
#include "runtime/front.h"
#include "base/window.h"
#include "memory/record.h"

/* This file is compiled so that the look at it is cheap in a library that was opened late, too: src/CMakeLists.txt. */
_Thread_local wi_front_thread *wi_front_mine;

/* This thread's front for them, and its own lock entered; NULL: there is none, or it is shut. */
static inline __attribute__((always_inline)) wi_front *enter(const weir_client *client, weir_stream stream)
{
    wi_front_thread *mine = wi_front_mine;
    if (wi_unlikely(!mine) || wi_unlikely(!wi_biased_enter(&mine->lock)))
        return NULL;
    wi_front *front = wi_front_find(mine, client, stream);
    if (wi_likely(front) && wi_likely(atomic_load_explicit(front->recording, memory_order_relaxed) == 0))
        return front;
    wi_biased_leave(&mine->lock);
    return NULL;
}

static inline void leave(const wi_front *front)
{
    wi_biased_leave(&front->thread->lock);
}

static void raise_high(wi_drift *drift)
{
    drift->high = drift->live;
    memcpy(drift->high_class, drift->live_class, sizeof drift->high_class);
    drift->high_requested = drift->requested - drift->returned;
    drift->high_blocks = drift->hits - drift->frees;
}

/* The front's block, of that charge, becomes its client's again, as if it were new. */
static inline uint64_t revive(wi_front *front, wi_block *block, uint64_t charged, uint64_t bytes,
                              weir_class memory_class)
{
    uint64_t generation = wi_next_generation(&front->thread->generation);
    wi_store(block->bytes, bytes);
    wi_store(block->memory_class, memory_class);
    *wi_front_recent(front, block->pointer) = block;
    atomic_store_explicit(&block->word, generation << WI_GENERATION_SHIFT | WI_LIVE, memory_order_release);
    wi_front_lose(front, charged);
    front->large_hits += charged > WI_FRONT_SMALL;
    front->drift.hits++;
    front->drift.taken += charged;
    front->drift.requested += bytes;
    front->drift.live_class[memory_class] += (int64_t)charged;
    front->drift.live += (int64_t)charged;
    if (front->drift.live > front->drift.high)
        raise_high(&front->drift);
    return generation;
}

void *wi_front_take(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                    uint64_t *generation)
{
    void *pointer = NULL;
    if (wi_unlikely(bytes - 1 >= UINT64_MAX / 4) || (unsigned)memory_class >= WEIR_CLASS_COUNT ||
        memory_class == WEIR_CLASS_WEIGHTS)
        return NULL;
    wi_front *front = enter(client, stream);
    if (!front)
        return NULL;
    uint64_t charged = wi_round_up(bytes, WI_UNIT);
    wi_front_bin *bin = wi_front_bin_of(front, charged);
    wi_block *block = bin->charged == charged ? bin->first : NULL;
    if (wi_unlikely(!block) && wi_depot_may_have(front->depot, charged) && wi_depot_take(front, charged))
        block = bin->first;
    if (wi_likely(block)) {
        bin->first = block->pending_next;
        bin->count--;
        pointer = block->pointer;
        *generation = revive(front, block, charged, bytes, memory_class);
    }
    leave(front);
    return pointer;
}

/* Whether the live block is what `pointer` names, and one that the front may park. */
static inline bool suits(const wi_front *front, const wi_block *block, uint64_t word, const void *pointer,
                         uint64_t generation)
{
    return (word & (WI_TRACKED | 7)) == WI_LIVE && wi_load(block->pointer) == pointer &&
           wi_load(block->account) == front->account && wi_load(block->memory_class) != WEIR_CLASS_WEIGHTS &&
           (generation == 0 || generation == word >> WI_GENERATION_SHIFT) &&
           (!wi_load(block->ordered) || wi_load(block->stream.id) == front->stream.id);
}

/* The bin for one more block of that charge; NULL: there is no room, but in the depot for what is in the bin. */
static inline wi_front_bin *bin_with_room(wi_front *front, uint64_t charged)
{
    wi_front_bin *bin = wi_front_bin_of(front, charged);
    bool room = bin->charged == charged && bin->count < bin->most && charged <= front->room;
    return wi_likely(room) || wi_depot_put(front, charged) ? bin : NULL;
}

/* The block has the phase already, which keeps others from it. */
static inline void park(wi_front *front, wi_front_bin *bin, wi_block *block)
{
    uint64_t charged = bin->charged;
    wi_store(block->stream.id, front->stream.id);
    wi_store(block->ordered, true);
    if (wi_unlikely(block->tagged)) {
        wi_store(block->tag, front->no_tag);
        block->tagged = false;
    }
    block->pending_next = bin->first;
    bin->first = block;
    bin->count++;
    wi_front_gain(front, charged);
    front->drift.frees++;
    front->drift.returned += block->bytes;
    front->drift.live_class[block->memory_class] -= (int64_t)charged;
    front->drift.live -= (int64_t)charged;
}

/* The block may be another thread's, or none any more: the word tells. */
static inline bool park_claimed(wi_front *front, wi_block *block, const void *pointer, uint64_t generation)
{
    uint64_t word = atomic_load_explicit(&block->word, memory_order_acquire), charged = wi_load(block->charged);
    wi_front_bin *bin = suits(front, block, word, pointer, generation) ? bin_with_room(front, charged) : NULL;
    wi_window(WI_WINDOW_BLOCK_CHOSEN);
    if (wi_unlikely(!bin) || wi_front_declines(front, charged) ||
        !atomic_compare_exchange_strong(&block->word, &word, (word & ~UINT64_C(15)) | WI_PARKED))
        return false;
    if (wi_unlikely(block->charged != charged)) { /* resized in between */
        wi_block_turn(block, WI_LIVE);
        return false;
    }
    park(front, bin, block);
    return true;
}

bool wi_front_give(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    wi_front *front = enter(client, stream);
    if (!front)
        return false;
    wi_block *block = *wi_front_recent(front, pointer);
    if (wi_unlikely(!block || wi_load(block->pointer) != pointer))
        block = front->base->table->peek(front->base, pointer);
    bool parked = wi_likely(block) && park_claimed(front, block, pointer, generation);
    leave(front);
    return parked;
}
