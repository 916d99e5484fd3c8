/* A block: one allocation, as every resource records it. Records lie outside device memory. */
#ifndef WI_BLOCK_H
#define WI_BLOCK_H

#include "driver/driver.h"

#include <weir/memory.h>

typedef struct wi_account wi_account;
struct weir_capture_pool;
struct wi_stream_uses;
struct wi_resource;

enum { WI_LINE = 64 };  /* bytes of the processor's cache that come together */
enum { WI_UNIT = 256 }; /* charges are multiples of it; weir/memory.h says why 256 */

/* Whose bytes some free memory held last: an account's serial number, or one of these; with WI_SECRET when they must not be
 * read by another. */
#define WI_CLEAN  UINT64_C(0)
#define WI_MIXED  (UINT64_MAX >> 1) /* several accounts', or unknown */
#define WI_SECRET (UINT64_C(1) << 63)

/* What a block is at a moment. A thread that finds it LIVE takes it by one compare-and-swap; every other change is made by
 * the thread that has it in hand, or under the lock of its base. */
typedef enum wi_block_phase {
    WI_BLANK = 0,        /* a thread's own: allocated and not yet published */
    WI_LIVE = 1,         /* its client's */
    WI_CLAIMED = 2,      /* the same, while a thread frees or resizes it */
    WI_PENDING = 3,      /* freed; the device is not past it, or a graph holds it */
    WI_THREAD_CACHED = 4 /* freed, and kept for the same client and stream; thread cache.h */
} wi_block_phase;

/* The phase in the lowest three bits, then WI_TRACKED, then the generation. */
typedef atomic_uint_fast64_t wi_block_word;
#define WI_TRACKED          UINT64_C(8) /* it has marks, zeros on their way or a graph: its free must look at them */
#define WI_GENERATION_SHIFT 4

/* What is looked at without the lock, and so read and written by these: pointer, bytes, charged, account, stream.id,
 * memory_class, ordered, taker; and tag, which a thread cache writes. Such a look is of one block if the word is the same before and after. */
#define wi_load(member)         __atomic_load_n(&(member), __ATOMIC_ACQUIRE)
#define wi_store(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELEASE)

/* Bits of a block's `lent`. */
enum { WI_LENT_CLIENT = 1, WI_LENT_STREAM = 2 };

typedef struct wi_block {
    /* What a thread cache needs, in one line of the processor's cache. */
    void *pointer;
    uint64_t bytes;   /* as requested; Invariants: before + bytes + after <= charged */
    uint64_t charged; /* as the ledger counts it */
    wi_block_word word;
    wi_account *account;
    weir_stream stream;
    struct wi_block *pending_next; /* while it is pending (pending.h) or parked; a graph links what it holds by it */
    weir_class memory_class;
    bool tagged;  /* tag is not empty */
    bool zeroing; /* work was queued on `stream` at the allocation, and no other stream is ordered behind it */
    bool ordered; /* the same of work on the stream that may still use the bytes, which were freed in its order */
    uint8_t rung; /* how it was come by: weir_rung */

    uint64_t owner_tag; /* who knows it again, for this generation alone: wi_owner_tag */

    uint64_t before, after;             /* margins; the memory begins at pointer - before */
    const char *tag;                    /* interned */
    struct wi_stream_uses *stream_uses; /* where streams used it; NULL: nowhere that was declared */
    uint8_t lent;                       /* who had its memory before, when no call of the driver was needed */
    uint64_t previous;                  /* whose bytes these were */
    bool shrunk;                        /* bytes that it had stay behind it, and may still be in use */
    bool slack;                         /* others do since its allocation, and are as ordered on its stream as it was */
    bool untouched;                     /* they still are: the account never had them to itself */
    void *heap;                         /* a tool's handle of the block's piece; NULL: it has none; nvtx.h */
    bool marked;                        /* the tool has the block, too */
    struct weir_capture_pool *graph;    /* of whose pool it is; NULL: of none; runtime/graph.h */

    /* While it is pending; pending.h. */
    struct wi_resource *stack;
    wi_event freed;
    struct wi_block *pending_previous;
    bool refused; /* the driver did not take it back when it was last asked */
} wi_block;

/* Whether other streams, before they use the block or take it back, have to come behind a point on its stream. */
static inline bool wi_block_is_behind(const wi_block *block)
{
    return block->zeroing || wi_load(block->ordered);
}

/* They do from now on. */
static inline void wi_block_came_behind(wi_block *block)
{
    block->zeroing = false;
    wi_store(block->ordered, false);
}

static inline uint64_t wi_block_generation(const wi_block *block)
{
    return atomic_load_explicit(&block->word, memory_order_relaxed) >> WI_GENERATION_SHIFT;
}

static inline wi_block_phase wi_block_phase_of(const wi_block *block)
{
    return (wi_block_phase)(atomic_load_explicit(&block->word, memory_order_acquire) & 7);
}

static inline bool wi_block_is_live(const wi_block *block)
{
    wi_block_phase phase = wi_block_phase_of(block);
    return phase == WI_LIVE || phase == WI_CLAIMED;
}

static inline bool wi_block_is_charged(const wi_block *block) /* to its client, as live or pending bytes */
{
    return wi_block_is_live(block) || wi_block_phase_of(block) == WI_PENDING;
}

/* Writes all of a record. Others may look at it meanwhile, by an address that is no longer a block's; they believe what they
 * saw only if the word is still the same. */
static inline void wi_block_set(wi_block *block, const wi_block *value)
{
    const size_t rest = offsetof(wi_block, before);
    wi_store(block->pointer, value->pointer);
    wi_store(block->bytes, value->bytes);
    wi_store(block->charged, value->charged);
    wi_store(block->account, value->account);
    wi_store(block->stream.id, value->stream.id);
    wi_store(block->memory_class, value->memory_class);
    wi_store(block->ordered, value->ordered);
    wi_store(block->owner_tag, value->owner_tag);
    block->pending_next = value->pending_next;
    block->tagged = value->tagged;
    block->zeroing = value->zeroing;
    block->rung = value->rung;
    memcpy((char *)block + rest, (const char *)value + rest, sizeof *block - rest);
    atomic_store_explicit(&block->word, atomic_load_explicit(&value->word, memory_order_relaxed), memory_order_release);
}

/* Of a block in hand. Not by a plain copy: whoever is too late to claim it may be at its word. */
static inline wi_block wi_block_copy(const wi_block *block)
{
    wi_block copy;
    wi_block_set(&copy, block);
    return copy;
}

/* The two below are of a block in hand. */
static inline void wi_block_measure(wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_store(block->bytes, bytes);
    wi_store(block->charged, charged);
}

static inline void wi_block_turn(wi_block *block, wi_block_phase phase)
{
    uint64_t word = atomic_load_explicit(&block->word, memory_order_relaxed) >> WI_GENERATION_SHIFT;
    bool tracked = phase == WI_LIVE && (block->stream_uses || block->zeroing || block->graph);
    atomic_store_explicit(&block->word, word << WI_GENERATION_SHIFT | (tracked ? WI_TRACKED : 0) | phase,
                          memory_order_release);
}

/* The live block whose word was `word` becomes this thread's, taken or parked; false when another one has been faster. */
static inline bool wi_block_claim(wi_block *block, uint64_t word, wi_block_phase phase)
{
    return (word & 7) == WI_LIVE && atomic_compare_exchange_strong(&block->word, &word, (word & ~UINT64_C(15)) | phase);
}

/* The live block whose word was `word` has marks from now on; under the lock of its base. False when a thread has taken it. */
static inline bool wi_block_track(wi_block *block, uint64_t word)
{
    return (word & 7) == WI_LIVE &&
           ((word & WI_TRACKED) || atomic_compare_exchange_strong(&block->word, &word, word | WI_TRACKED));
}

#endif
