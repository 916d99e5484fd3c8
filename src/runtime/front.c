/* Fronts, where nothing is shared: parking a block and taking it back. */
#include "runtime/front.h"
#include "base/window.h"
#include "memory/record.h"

_Thread_local wi_front_thread *wi_front_mine __attribute__((tls_model("initial-exec")));

static inline bool is_for(const wi_front *front, const weir_client *client, weir_stream stream)
{
    return front && front->client == client && front->stream.id == stream.id;
}

/* Another front has its place in the table. Entered. */
static __attribute__((noinline)) wi_front *look_further(wi_front_thread *mine, const weir_client *client,
                                                        weir_stream stream)
{
    wi_front *front = mine->fronts;
    while (front && !is_for(front, client, stream))
        front = front->next_of_thread;
    if (front)
        mine->table[wi_front_place(client, stream)] = front;
    return front;
}

/* This thread's front for them, and its own lock entered; NULL: there is none, or it is shut. */
static inline __attribute__((always_inline)) wi_front *enter(const weir_client *client, weir_stream stream)
{
    wi_front_thread *mine = wi_front_mine;
    if (wi_unlikely(!mine) || wi_unlikely(!wi_biased_enter(&mine->lock)))
        return NULL;
    wi_front *front = mine->table[wi_front_place(client, stream)];
    if (wi_unlikely(!is_for(front, client, stream)))
        front = look_further(mine, client, stream);
    if (wi_likely(front) && wi_likely(atomic_load_explicit(front->recording, memory_order_relaxed) == 0) &&
        wi_likely(!atomic_load_explicit(&wi_forked, memory_order_relaxed)))
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
static inline void revive(wi_front *front, wi_block *block, uint64_t charged, uint64_t bytes, weir_class memory_class,
                          weir_block *out)
{
    uint64_t generation = wi_new_generation();
    wi_store(block->bytes, bytes);
    wi_store(block->memory_class, memory_class);
    *out = (weir_block){block->pointer, generation};
    *wi_front_recent(front, block->pointer) = block;
    atomic_store_explicit(&block->word, generation << WI_GENERATION_SHIFT | WI_LIVE, memory_order_release);
    wi_front_lose(front, charged);
    if (charged > WI_FRONT_SMALL) {
        front->large_hits++;
        front->hope += front->hope < WI_FRONT_MOST_HOPE ? 2 : 0;
    }
    front->drift.hits++;
    front->drift.taken += charged;
    front->drift.requested += bytes;
    front->drift.live_class[memory_class] += (int64_t)charged;
    front->drift.live += (int64_t)charged;
    if (front->drift.live > front->drift.high)
        raise_high(&front->drift);
}

bool wi_front_take(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class, weir_block *out)
{
    if (wi_unlikely(bytes - 1 >= UINT64_MAX / 4) || (unsigned)memory_class >= WEIR_CLASS_COUNT ||
        memory_class == WEIR_WEIGHTS)
        return false;
    wi_front *front = enter(client, stream);
    if (!front)
        return false;
    uint64_t charged = wi_round_up(bytes, WI_UNIT);
    wi_front_bin *bin = wi_front_bin_of(front, charged);
    wi_block *block = bin->charged == charged ? bin->first : NULL;
    if (wi_unlikely(!block) && wi_depot_may_have(front->depot, charged) && wi_depot_take(front, charged))
        block = bin->first;
    if (wi_likely(block)) {
        bin->first = block->pending_next;
        bin->count--;
        revive(front, block, charged, bytes, memory_class, out);
    }
    leave(front);
    return block;
}

/* Whether the live block is what `pointer` names, and one that the front may park. */
static inline bool suits(const wi_front *front, const wi_block *block, uint64_t word, const void *pointer,
                         uint64_t generation)
{
    return (word & (WI_TRACKED | 7)) == WI_LIVE && wi_load(block->pointer) == pointer &&
           wi_load(block->account) == front->account && wi_load(block->memory_class) != WEIR_WEIGHTS &&
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

bool wi_front_give(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    wi_front *front = enter(client, stream);
    if (!front)
        return false;
    wi_block *block = *wi_front_recent(front, pointer);
    if (!block || wi_load(block->pointer) != pointer)
        block = front->base->table->peek(front->base, pointer);
    uint64_t word = block ? atomic_load_explicit(&block->word, memory_order_acquire) : WI_BLANK;
    uint64_t charged = block ? wi_load(block->charged) : 0;
    wi_front_bin *bin =
        word != WI_BLANK && suits(front, block, word, pointer, generation) ? bin_with_room(front, charged) : NULL;
    wi_window(WI_WINDOW_BLOCK_CHOSEN);
    bool parked = bin && !wi_front_declines(front, charged) && wi_block_claim(block, word, WI_PARKED);
    if (parked && wi_unlikely(block->charged != charged)) { /* resized in between */
        wi_block_turn(block, WI_LIVE);
        parked = false;
    }
    if (wi_likely(parked))
        park(front, bin, block);
    leave(front);
    return parked;
}
