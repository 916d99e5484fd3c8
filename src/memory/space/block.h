/* Blocks: the record of one allocation, the same in every base. Records lie outside device memory. */
#ifndef WI_BLOCK_H
#define WI_BLOCK_H

#include "driver/driver.h"

#include <weir/memory.h>

typedef struct wi_account wi_account;
struct weir_capture_pool;
struct wi_stream_uses;
struct wi_resource;

enum { WI_LINE = 64 };  /* bytes of a cache line */
enum { WI_UNIT = 256 }; /* charges are multiples of it; weir/memory.h says why */

/* The owner of bytes: serial number of the last account that had the bytes, or a constant below. With WI_SECRET, the
 * bytes are scrubbed before another account gets them. */
#define WI_CLEAN  UINT64_C(0)
#define WI_MIXED  (UINT64_MAX >> 1) /* of several accounts, or unknown */
#define WI_SECRET (UINT64_C(1) << 63)

/* The phase of a block. A thread acquires a LIVE block by one compare-and-swap. Every other change is made by the thread
 * that has acquired it, or under the lock of its base. */
typedef enum wi_block_phase {
    WI_BLANK = 0,        /* allocated by a thread, not yet published */
    WI_LIVE = 1,         /* its client has it */
    WI_ACQUIRED = 2,     /* a thread frees or resizes it */
    WI_PENDING = 3,      /* freed; the device is not past it, or a capture pool holds it */
    WI_THREAD_CACHED = 4 /* freed, and cached for the same client and stream; thread_cache.h */
} wi_block_phase;

/* The phase in the lowest three bits, then WI_TRACKED, then the generation. */
typedef atomic_uint_fast64_t wi_block_word;
/* the free has to look at the block: it has stream uses, queued zeros or a capture pool, or is away */
#define WI_TRACKED          UINT64_C(8)
#define WI_GENERATION_SHIFT 4

/* For members that are read without the lock: pointer, bytes, charged, account, stream.id, memory_class, ordered,
 * plain, owner_tag, and tag, which a thread cache writes. Values that were read belong together if the word was the same
 * before and after. */
#define wi_load(member)         __atomic_load_n(&(member), __ATOMIC_ACQUIRE)
#define wi_store(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELEASE)

/* Bits of a block's `lent`. */
enum { WI_LENT_CLIENT = 1, WI_LENT_STREAM = 2 };

typedef struct wi_block {
    /* What a thread cache needs, in one cache line. */
    void *pointer;
    uint64_t bytes;   /* as requested; Invariants: before + bytes + after <= charged */
    uint64_t charged; /* as the ledger counts it */
    wi_block_word word;
    wi_account *account;
    weir_stream stream;
    struct wi_block *pending_next; /* while pending (pending.h), thread-cached or kept by a capture pool */
    weir_class memory_class;
    bool tagged;  /* tag is not empty */
    bool zeroing; /* zeros were queued on `stream`, and no other stream is ordered behind them */
    bool ordered; /* the bytes were freed in the order of `stream`, and no other stream is ordered behind that */
    bool plain;   /* a thread cache could have served the request; only such blocks are thread-cached */

    uint64_t owner_tag; /* belongs to this generation; wi_owner_tag */

    uint64_t before, after;             /* margins; the memory begins at pointer - before */
    const char *tag;                    /* interned */
    struct wi_stream_uses *stream_uses; /* declared uses on streams; NULL: none */
    uint8_t rung;                       /* weir_rung that it took to place the block */
    uint8_t lent;      /* whether another client or stream had the memory before, without a driver call between them */
    uint64_t previous; /* owner of the bytes before this block */
    uint64_t away;     /* bytes of the charge that are away; memory/away.h */
    bool leaving;      /* acquired by a thread that suspends or resumes its client */
    bool shown;        /* what is away of it is shown at its addresses, and work may be using it */
    bool stable;       /* it was asked for with WEIR_ALLOC_STABLE */
    bool shrunk;       /* it was shrunk; work may still use the bytes behind it */
    bool slack;        /* the extent is longer than the charge; the rest keeps its stream order */
    bool untouched;    /* the account never had these bytes */
    void *heap;        /* a tool's handle of the driver allocation; NULL: none; adaptors/adaptors.h */
    bool marked;       /* the tool was told of the block */
    struct weir_capture_pool *graph; /* the capture pool that it belongs to, or NULL; runtime/stream/streams.h */
    bool graph_named;                /* its request named the pool, which keeps it in the order of `stream` */

    /* While it is pending: */
    struct wi_resource *stack;
    wi_event freed;
    struct wi_block *pending_previous;
    bool refused; /* the driver refused to take it back */
    bool listed;  /* in the list of deferred frees */
} wi_block;

/* Whether other streams must be ordered behind a point on the block's stream before they use or free it. */
static inline bool wi_block_is_behind(const wi_block *block)
{
    return block->zeroing || wi_load(block->ordered);
}

/* Other streams have been ordered behind that point. */
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
    return phase == WI_LIVE || phase == WI_ACQUIRED;
}

static inline bool wi_block_is_charged(const wi_block *block) /* in the ledger, as live or pending bytes */
{
    return wi_block_is_live(block) || wi_block_phase_of(block) == WI_PENDING;
}

/* Writes a whole record. Other threads may read the record at the same time, through an old address; a reader sees the
 * changed word, and discards the values. */
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
    wi_store(block->plain, value->plain);
    wi_store(block->owner_tag, value->owner_tag);
    block->pending_next = value->pending_next;
    block->tagged = value->tagged;
    block->zeroing = value->zeroing;
    memcpy((char *)block + rest, (const char *)value + rest, sizeof *block - rest);
    atomic_store_explicit(&block->word, atomic_load_explicit(&value->word, memory_order_relaxed), memory_order_release);
}

/* Copies an acquired block, member by member, as another thread may still try to acquire it. */
static inline wi_block wi_block_copy(const wi_block *block)
{
    wi_block copy;
    wi_block_set(&copy, block);
    return copy;
}

/* For an acquired block. One of another charge than it was requested with serves no request of the same kind. */
static inline void wi_block_measure(wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_store(block->plain, block->plain && charged == block->charged);
    wi_store(block->bytes, bytes);
    wi_store(block->charged, charged);
}

static inline void wi_block_set_phase(wi_block *block, wi_block_phase phase)
{
    uint64_t word = atomic_load_explicit(&block->word, memory_order_relaxed) >> WI_GENERATION_SHIFT;
    bool tracked = phase == WI_LIVE && (block->stream_uses || block->zeroing || block->graph || block->away);
    atomic_store_explicit(&block->word, word << WI_GENERATION_SHIFT | (tracked ? WI_TRACKED : 0) | phase,
                          memory_order_release);
}

/* Acquires the live block whose word was `word`, as WI_ACQUIRED or WI_THREAD_CACHED. False: another thread was faster. */
static inline bool wi_block_acquire(wi_block *block, uint64_t word, wi_block_phase phase)
{
    return (word & 7) == WI_LIVE && atomic_compare_exchange_strong(&block->word, &word, (word & ~UINT64_C(15)) | phase);
}

/* Marks the live block whose word was `word` as tracked; under the lock of its base. False: a thread has acquired it. */
static inline bool wi_block_track(wi_block *block, uint64_t word)
{
    return (word & 7) == WI_LIVE &&
           ((word & WI_TRACKED) || atomic_compare_exchange_strong(&block->word, &word, word | WI_TRACKED));
}

#endif
