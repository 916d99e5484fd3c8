/* Thread cache: a thread's own free blocks for one client and one stream, as magazines (Bonwick) or tcmalloc's caches.
 * A block that the thread frees there is *thread-cached* and serves its next allocation there: with the thread's own
 * biased lock alone, and without a driver call or an event. Behind the thread caches of a client and a stream stands
 * their depot, through which lists of blocks go from the thread that frees them to the thread that allocates.
 *
 *   hit.c      allocation and free that the cache serves
 *   refill.c   all else: making, filling and flushing caches
 *   depot.c    lists of blocks between threads
 *
 * Invariants: a thread-cached block has the phase WI_THREAD_CACHED; it is in exactly one bin or depot list, or in the
 * hands of a thread that flushes one; it counts against the maximum of the cache's client; it was freed in the order
 * of the cache's stream; it has no stream uses and no queued zeros; it is plain: a thread cache could have served the
 * request for it, so that the same request may take it again. A thread cache is linked in its runtime and in its
 * thread. Stacks with adaptors, which must see every call, have no thread caches. While a trace records, the caches
 * take and give nothing.
 *
 * Locks, outermost first: the ledger's, that of all thread caches (refill.c), a thread's own (base/biased.h), whose
 * revokers hold the first two, a depot's. No driver is called with any of them. */
#ifndef WI_THREAD_CACHE_H
#define WI_THREAD_CACHE_H

#include "base/biased.h"
#include "memory/resource.h"

typedef struct wi_tcache wi_tcache;
typedef struct wi_depot wi_depot;

/* The grace period of a thread that flushes thread-cached blocks, or that ends; on its stack. Grace periods are linked by
 * their beginning, so that a thread that waits for earlier periods does not wait for later periods. */
typedef struct wi_tcache_grace {
    struct wi_tcache_grace *previous, *next;
    uint64_t number;
    const weir_client *client; /* the client and the stream of those blocks; NULL: any, and any */
    weir_stream stream;
} wi_tcache_grace;

/* The thread caches of a runtime. */
typedef struct wi_tcaches {
    bool usable;                               /* the stack is a budget around a base that can peek */
    uint64_t room;                             /* the most bytes in one cache; 0: the option says none */
    wi_tcache *first;                          /* under the lock of the ledger and that of all thread caches */
    wi_depot *depots;                          /* the same; each has a cache */
    atomic_uint lists;                         /* in all depots */
    wi_block *refused;                         /* flushed blocks that the driver failed to take; linked */
    wi_tcache_grace *first_grace, *last_grace; /* under the lock of all thread caches */
    uint64_t graces;                           /* begun so far */
    pthread_cond_t grace_over;
} wi_tcaches;

/* Of a runtime that has its stack and ledger. */
void wi_tcaches_init(weir_runtime *runtime);
/* After the last client. Waits for threads that are about to end. */
void wi_tcaches_end(weir_runtime *runtime);

/* A hit: serves the request from the cache, with exactly its charge; NULL: no hit. All arguments may be wrong.
 * *generation is written on success alone. */
void *wi_tcache_alloc(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                      uint64_t *generation);
/* The same with a tag, interned; NULL: none. */
void *wi_tcache_alloc_tagged(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                             const char *tag, uint64_t *generation);
/* The same for an open client and a thread that has no cache there yet: from the depot. */
bool wi_tcache_alloc_slow(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                          const char *tag, weir_block *out);
/* Caches the block that begins at `pointer`; generation 0 fits any. False: the ordinary free does it, or says what is
 * wrong. */
bool wi_tcache_free(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);
/* The same for an open client; makes a cache, or room in it. */
bool wi_tcache_free_slow(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);

/* Merges what this thread has done for the client into the ledger, before the ledger is told of more. */
void wi_tcache_flush(weir_client *client);
/* Whether this thread caches large blocks, which split free memory, in the cache of that client and stream and in its
 * other caches of the runtime. */
typedef struct wi_tcache_large {
    bool here, elsewhere;
} wi_tcache_large;
wi_tcache_large wi_tcache_look_large(const weir_client *client, weir_stream stream);
/* Frees the large blocks that this thread caches there, or in all its caches of the runtime; returns the bytes. */
uint64_t wi_tcache_empty_large(weir_client *client, weir_stream stream, bool everywhere);

/* Ends all thread caches of the client, or of the stream, which is captured or gone by now, so that no cache is made
 * again. Waits for threads that are flushing such blocks, as they may ask the driver about the stream, and for no
 * others. */
void wi_tcaches_drop_client(weir_client *client);
void wi_tcaches_drop_stream(weir_runtime *runtime, weir_stream stream);
/* Flushes all thread caches, and waits for threads that are flushing; returns the bytes. */
uint64_t wi_tcaches_empty(weir_runtime *runtime);
/* Around the opening of a trace: flushes all thread caches and keeps them empty. */
void wi_tcaches_shut(weir_runtime *runtime);
void wi_tcaches_open(weir_runtime *runtime);

/* Inside this folder ----------------------------------------------------------------------------------------------- */

/* Size classes. Up to 16 KiB each charge has its own bin. Above, a charge hashes to a pair of bins, each of which
 * keeps one charge at a time. Bins keep many blocks up to 64 KiB, 8 up to 1 MiB, and 2 above, as a loop over two buffers
 * needs.
 * Blocks up to 64 KiB go through the depot, half a bin at a time, which makes its lock cheap. */
enum {
    WI_TCACHE_SMALL = 16 << 10,
    WI_TCACHE_SMALL_BINS = WI_TCACHE_SMALL / WI_UNIT,
    WI_TCACHE_SHARED_BITS = 7,
    WI_TCACHE_BINS = WI_TCACHE_SMALL_BINS + (1 << WI_TCACHE_SHARED_BITS),
    WI_TCACHE_HANDED = 64 << 10,
    WI_TCACHE_RECENT_BITS = 12,
    WI_TCACHE_MIDDLE = 1 << 20,
    WI_TCACHE_MANY = 64,
    WI_TCACHE_SOME = 8,
    WI_TCACHE_FEW = 2,
    WI_TCACHE_FIRST_SCORE = 2,
    WI_TCACHE_MOST_SCORE = 16,
    WI_TCACHE_TRIAL = 64
};

typedef struct wi_tcache_bin {
    wi_block *first; /* the newest; linked by pending_next */
    uint64_t charged;
    uint32_t count, most;
} wi_tcache_bin;

/* A thread has at most so many thread caches, some 5 KiB each. With more pairs of client and stream it loses the
 * oldest. */
enum { WI_TCACHE_TABLE_BITS = 6, WI_TCACHE_MOST = 1024 };

/* What a thread has. Invariants: the table is at most half full; a cache is at its index there, or behind it without
 * an empty entry between (open addressing). */
typedef struct wi_tcache_thread {
    wi_biased lock;
    uint32_t shift; /* 64 less the bits of an index in the table */
    uint32_t count; /* of thread caches */
    wi_tcache **table;
    uint64_t generation;                           /* of the last block it allocated */
    wi_tcache *caches, *oldest;                    /* the list of caches, the newest first; the last of the list */
    wi_tcache *entries[1 << WI_TCACHE_TABLE_BITS]; /* the table, before it grows */
    wi_block *recent
        [1 << WI_TCACHE_RECENT_BITS]; /* guesses: records of blocks it allocated, by address; only of runtimes in which
                                       * it has thread caches */
    bool stale;                       /* guesses may be of another runtime, and are to be dropped */
} wi_tcache_thread;

struct wi_tcache {
    weir_client *client;
    weir_stream stream;
    weir_runtime *runtime;
    const atomic_uint *recording; /* the ledger's */
    wi_base *base;
    wi_account *account;
    const char *no_tag;
    uint64_t room;  /* bytes that may still be cached */
    uint32_t large; /* cached blocks above WI_TCACHE_SMALL */
    /* Whether large blocks are worth caching. A hit raises the score, a block flushed unused lowers it. At 0 none is
     * cached, except one in WI_TCACHE_TRIAL frees, which tests whether that has changed. */
    int32_t score;
    uint32_t declined;
    uint32_t large_hits, scored; /* hits of them: in all, last scored */
    wi_delta delta;
    /* Frees of its lists that other threads have taken over, to be subtracted; under the depot's lock. */
    wi_delta returned;
    wi_depot *depot;
    wi_tcache_thread *thread;
    wi_tcache *newer, *next_of_thread;
    wi_tcache *previous, *next, *picked;
    uint32_t hand; /* the bin that makes room next (clock hand) */
    wi_tcache_bin bins[WI_TCACHE_BINS];
};

/* A magazine: blocks of equal charge from a thread cache, linked by pending_next. */
typedef struct wi_depot_list {
    wi_block *first;
    uint64_t charged;
    uint64_t requested; /* as last requested */
    uint32_t count, of_class[WEIR_CLASS_COUNT];
    wi_tcache *by; /* the cache whose delta counts the frees; NULL: the ledger or the depot does */
} wi_depot_list;

enum { WI_DEPOT_LISTS = 64 };

struct wi_depot {
    weir_client *client;
    weir_stream stream;
    wi_tcaches *of;
    wi_depot *next;
    uint32_t caches;            /* under the lock of all thread caches */
    atomic_uint_fast64_t there; /* a Bloom filter of the charges in its lists */
    pthread_mutex_t lock;       /* of what follows */
    uint64_t room;
    uint32_t count;
    wi_delta delta;
    wi_depot_list lists[WI_DEPOT_LISTS]; /* oldest first */
};

extern _Thread_local wi_tcache_thread *wi_tcache_mine;

static inline uint64_t wi_tcache_index(const wi_tcache_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)client >> 4) + stream.id;
    return mixed * UINT64_C(0x9e3779b97f4a7c15) >> mine->shift;
}

static inline bool wi_tcache_is_for(const wi_tcache *cache, const weir_client *client, weir_stream stream)
{
    return cache->client == client && cache->stream.id == stream.id;
}

/* By the owner, entered, or with the revokers' lock. */
static inline wi_tcache *wi_tcache_find(const wi_tcache_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t index = wi_tcache_index(mine, client, stream);
    wi_tcache *cache = mine->table[index];
    while (wi_unlikely(cache && !wi_tcache_is_for(cache, client, stream))) {
        index = (index + 1) & (UINT64_MAX >> mine->shift);
        cache = mine->table[index];
    }
    return cache;
}

/* The size class of a request: the bin of a charge. The choice of the bin does not branch on the size, as sizes come in any order. The bin of 0,
 * which a racing look may find, takes nothing. */
static inline wi_tcache_bin *wi_tcache_bin_of(wi_tcache *cache, uint64_t charged)
{
    uint64_t mixed = charged / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> (64 - WI_TCACHE_SHARED_BITS);
    uint64_t shared = WI_TCACHE_SMALL_BINS + (mixed & ~UINT64_C(1)), own = (charged - 1) / WI_UNIT;
    uint64_t is_own = wi_opaque(-(uint64_t)(own < WI_TCACHE_SMALL_BINS));
    wi_tcache_bin *bin = &cache->bins[(own & is_own) | (shared & ~is_own)];
    if (wi_likely(bin->charged == charged) || is_own)
        return bin;
    return &bin[(bin[1].charged == charged) | (bin[0].count > bin[1].count)];
}

static inline wi_block **wi_tcache_recent(wi_tcache *cache, const void *pointer)
{
    uint64_t mixed = (uint64_t)(uintptr_t)pointer / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->thread->recent[mixed >> (64 - WI_TCACHE_RECENT_BITS)];
}

static inline void wi_tcache_gain(wi_tcache *cache, uint64_t charged)
{
    cache->room -= charged;
    cache->large += charged > WI_TCACHE_SMALL;
}

static inline void wi_tcache_lose(wi_tcache *cache, uint64_t charged)
{
    cache->room += charged;
    cache->large -= charged > WI_TCACHE_SMALL;
}

/* Adds the hits since the last time. */
static inline void wi_tcache_update_score(wi_tcache *cache)
{
    uint64_t score = (uint64_t)cache->score + 2 * (uint64_t)(cache->large_hits - cache->scored);
    cache->score = (int32_t)wi_min(score, WI_TCACHE_MOST_SCORE);
    cache->scored = cache->large_hits;
}

static inline bool wi_tcache_declines(wi_tcache *cache, uint64_t charged)
{
    if (wi_likely(cache->score > 0) || charged <= WI_TCACHE_SMALL) /* in this order: sizes come in any */
        return false;
    wi_tcache_update_score(cache);
    if (cache->score > 0)
        return false;
    if (++cache->declined % WI_TCACHE_TRIAL != 0)
        return true;
    cache->score = 1; /* until this one is given up unused */
    return false;
}

static inline uint32_t wi_tcache_most(uint64_t charged)
{
    return charged <= WI_TCACHE_HANDED ? WI_TCACHE_MANY : charged <= WI_TCACHE_MIDDLE ? WI_TCACHE_SOME : WI_TCACHE_FEW;
}

static inline uint64_t wi_depot_bit(uint64_t charged)
{
    return UINT64_C(1) << (charged / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* Whether the depot may have blocks of that charge. */
static inline bool wi_depot_may_have(const wi_depot *depot, uint64_t charged)
{
    return charged <= WI_TCACHE_HANDED &&
           (atomic_load_explicit(&depot->there, memory_order_relaxed) & wi_depot_bit(charged)) != 0;
}

/* depot.c. Of a thread cache that its thread has entered, or that is revoked. */

/* Puts half of the bin of that charge into the depot; false: the depot is full, or the bin has too few. */
bool wi_depot_put(wi_tcache *cache, uint64_t charged);
/* Refills the empty bin of that charge from the depot; false: it has none, or the cache has no room. */
bool wi_depot_take(wi_tcache *cache, uint64_t charged);
/* Takes the oldest list of another charge out, in front of *list; false: there is none. */
bool wi_depot_push_out(wi_depot *depot, uint64_t charged, wi_block **list);
/* Subtracts `returned` from the cache's delta. */
void wi_depot_merge_returned(wi_tcache *cache);

/* With the lock of all thread caches held. */
wi_depot *wi_depot_find(const wi_tcaches *caches, const weir_client *client, weir_stream stream);
wi_depot *wi_depot_make(weir_client *client, weir_stream stream);
/* The cache ends; its lists stay. */
void wi_depot_forget(wi_tcache *cache);
/* Takes all lists of a charge larger than `above` out, in front of *list. */
void wi_depot_empty(wi_depot *depot, uint64_t above, wi_block **list);
/* Merges its delta into the ledger, whose lock is held. */
void wi_depot_merge(wi_depot *depot);
/* The depot is empty, and no cache uses it. */
void wi_depot_end(wi_depot *depot);

#endif
