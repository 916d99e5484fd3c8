/* Thread caches: what stands between a thread and the shared locks. A thread cache belongs to one thread, one client and one stream, and
 * keeps blocks that the thread freed on that stream *parked*, for its next allocations for that client there: no lock, no
 * driver call, no event. Behind the fronts of a client and a stream stands their depot: what one thread frees and another
 * allocates goes through it by the list.
 *
 * Invariants: a parked block has the phase WI_THREAD_CACHED, is in exactly one bin or list of a depot (or in the hands of a thread that
 * empties one), belongs to the thread cache's client, whose maximum it counts against, was freed in the order of the thread cache's stream,
 * and has no marks and no zeros on their way. A thread cache is in the list of its runtime and in that of its thread. Stacks with
 * adaptors, which must see every call, have no thread caches; while a trace records, nothing is parked or taken.
 *
 * Locks: the ledger's, then that of all thread caches (front_lists.c), then a thread's own (base/biased.h), whose claimers hold the
 * former two, then a depot's. No driver is called with any of them. */
#ifndef WI_THREAD_CACHE_H
#define WI_THREAD_CACHE_H

#include "base/biased.h"
#include "memory/resource.h"

typedef struct wi_tcache wi_tcache;
typedef struct wi_depot wi_depot;

/* A thread that has parked blocks in hand, or that ends; on its stack. They are linked in the order in which they came, so that
 * whoever waits for those that were at work waits for nobody who came since. */
typedef struct wi_tcache_turn {
    struct wi_tcache_turn *previous, *next;
    uint64_t number;
    const weir_client
        *client; /* whose blocks those are, and on which stream they were parked; NULL: anyone's, and on any */
    weir_stream stream;
} wi_tcache_turn;

/* Of a runtime. */
typedef struct wi_tcaches {
    bool usable;       /* the stack has none but a budget around a base that can peek */
    uint64_t room;     /* the most bytes that one thread cache parks; 0: the option says none */
    wi_tcache *first;  /* under the lock of the ledger and that of all thread caches */
    wi_depot *depots;  /* the same; each has a thread cache */
    atomic_uint lists; /* in all of them */
    wi_block *refused; /* blocks that were parked and that the driver did not take when they were freed; linked */
    wi_tcache_turn *first_turn, *last_turn; /* under the lock of all thread caches */
    uint64_t turns;                         /* that were begun */
    pthread_cond_t turn_over;
    /* Calm: memory has not grown for so long that large blocks may stay parked until their thread would need more. That has to
     * pay: where growth comes too often in it, it ends, and does not come back as soon, unless the option asks for it from the
     * start. */
    atomic_uint quiet;      /* large blocks that found memory, less what growth has taken off */
    atomic_uint reuse_wait; /* so many make it steady state: at first as the option says */
    atomic_uint earned;     /* in steady state: hits of large blocks, less what growth has cost */
} wi_tcaches;

/* Of a runtime whose stack and ledger are there. */
void wi_tcaches_init(weir_runtime *runtime);
/* No client has a thread cache any more: waits for threads that are about to end. */
void wi_tcaches_end(weir_runtime *runtime);

/* Serves the request from what is parked; NULL: it cannot. All arguments may be wrong, and *generation is written on success
 * alone. The charge is exactly the request's. */
void *wi_tcache_alloc(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                      uint64_t *generation);
/* The same for an open client, of a thread that has no thread cache there yet, while others have left something. */
bool wi_tcache_alloc_slow(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                          weir_block *out);
/* Parks the block that begins there; generation 0 fits any. False: it cannot, and the ordinary free does it or says why. */
bool wi_tcache_free(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);
/* The same for an open client, with more trouble: makes a thread cache, or room in it. */
bool wi_tcache_free_slow(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);

/* What this thread has done for the client without the ledger is written down there; before the ledger is told of more. */
void wi_tcache_flush(weir_client *client);
/* Whether this thread parks large blocks, which keep free memory in pieces, in the thread cache there and in others of the runtime's;
 * and how many served there since this was last asked. */
typedef struct wi_tcache_large {
    bool here, elsewhere;
    uint32_t hits;
} wi_tcache_large;
wi_tcache_large wi_tcache_look_large(const weir_client *client, weir_stream stream);
/* Gives up what this thread parks of large blocks there, or in all fronts of the runtime's; answers the bytes. */
uint64_t wi_tcache_empty_large(weir_client *client, weir_stream stream, bool everywhere);
/* A large block was allocated: the driver had to work on so many handles for it, and before it so many were served from what
 * was parked. */
void wi_tcaches_note(wi_tcaches *caches, uint32_t handles, uint32_t hits);

/* Nothing is parked for the client, or on the stream, and no thread cache is there for them. The stream is captured or gone by now,
 * or the client closing, so that no other is made. Waits for threads that had some of it in hand by then, and for nobody else:
 * they may still ask the driver about the stream. */
void wi_tcaches_drop_client(weir_client *client);
void wi_tcaches_drop_stream(weir_runtime *runtime, weir_stream stream);
/* Gives up all that is parked, and waits for those who had some of it in hand; answers how many bytes. */
uint64_t wi_tcaches_empty(weir_runtime *runtime);
/* Around the opening of a trace: nothing is parked, and nothing will be. */
void wi_tcaches_shut(weir_runtime *runtime);
void wi_tcaches_open(weir_runtime *runtime);

/* Among the files of thread caches ------------------------------------------------------------------------------------------ */

/* Up to 16 KiB each charge has its bin; above, charges share bins by twos, each of which keeps those of one at a time. Of small
 * blocks many are worth keeping, of large ones two, which is what a loop over two buffers needs, or many in steady state. Up to 64 KiB
 * they go from hand to hand, half a bin at a time, which is what makes the depot's lock cheap. */
enum {
    WI_TCACHE_SMALL = 16 << 10,
    WI_TCACHE_SMALL_BINS = WI_TCACHE_SMALL / WI_UNIT,
    WI_TCACHE_SHARED_BITS = 7,
    WI_TCACHE_BINS = WI_TCACHE_SMALL_BINS + (1 << WI_TCACHE_SHARED_BITS),
    WI_TCACHE_HANDED = 64 << 10,
    WI_TCACHE_RECENT_BITS = 12,
    WI_TCACHE_MIDDLE = 1 << 20,
    WI_TCACHE_MANY = 64,
    WI_TCACHE_SEVERAL = 64,
    WI_TCACHE_SOME = 8,
    WI_TCACHE_FEW = 2,
    WI_TCACHE_FIRST_SCORE = 2,
    WI_TCACHE_MOST_SCORE = 16,
    WI_TCACHE_TRIAL = 64
};

/* When it is steady state, and what it may cost. A handle that is moved or made costs as much time as some 256 hits save: 30 to 50
 * microseconds on an H200 against a few hundred nanoseconds each, of those that would not have been hits without. */
enum {
    WI_STEADY_GROWTH = 1024, /* what one takes off, before it is steady state */
    WI_STEADY_WORTH = 256,   /* hits, of a handle */
    WI_STEADY_ALLOWED = 32,  /* handles at first, when memory takes the form that suits what is parked */
    WI_STEADY_SAVED = 256    /* handles at once, at the most, however many hits there were */
};

typedef struct wi_tcache_bin {
    wi_block *first; /* the last that came; linked by pending_next */
    uint64_t charged;
    uint32_t count, most;
} wi_tcache_bin;

/* A thread has at most so many thread caches, some 5 KiB each: who works for more pairs of client and stream loses the oldest. */
enum { WI_TCACHE_TABLE_BITS = 6, WI_TCACHE_MOST = 1024 };

/* Invariants: the table is at most half full; a thread cache is at its place there, or behind it with no empty place between. */
typedef struct wi_tcache_thread {
    wi_biased lock;
    uint32_t shift; /* 64 less the bits of a place in the table */
    uint32_t count; /* of thread caches */
    wi_tcache **table;
    uint64_t generation;                          /* that it gave a block last */
    wi_tcache *caches, *oldest;                   /* all of them, the newest first */
    wi_tcache *places[1 << WI_TCACHE_TABLE_BITS]; /* the table, before it grows */
    wi_block *recent
        [1 << WI_TCACHE_RECENT_BITS]; /* guesses: records of blocks that it gave out, by their address; of runtimes
                                                  * in which it has thread caches */
    bool stale;                       /* of one in which it may have none: the guesses are to be forgotten */
} wi_tcache_thread;

struct wi_tcache {
    weir_client *client;
    weir_stream stream;
    weir_runtime *runtime;
    const atomic_uint *recording; /* the ledger's */
    wi_resource *base;
    wi_account *account;
    const char *no_tag;
    uint64_t room;  /* bytes that may still be parked */
    uint32_t large; /* parked blocks of more than WI_TCACHE_SMALL */
    /* Whether those are worth parking: a hit raises it, one that was given up unused lowers it. At 0 they are not, but for one
     * in so many frees, which is to see whether that has changed. */
    int32_t score;
    uint32_t declined;
    uint32_t large_hits, told, scored; /* in all; of those, what somebody was told, and what hope was raised by */
    wi_delta delta;
    /* What others have had of its lists is their delta and no longer its own; under the depot's lock. */
    wi_delta returned;
    wi_depot *depot;
    wi_tcache_thread *thread;
    wi_tcache *newer, *next_of_thread;
    wi_tcache *previous, *next, *picked;
    uint32_t hand; /* the bin that makes room next */
    wi_tcache_bin bins[WI_TCACHE_BINS];
};

/* Blocks of one charge that a thread cache has left; linked by pending_next. */
typedef struct wi_depot_list {
    wi_block *first;
    uint64_t charged;
    uint64_t requested; /* as they were asked for last */
    uint32_t count, of_class[WEIR_CLASS_COUNT];
    wi_tcache *by; /* whose delta has their frees; NULL: the ledger's, or the depot's */
} wi_depot_list;

enum { WI_DEPOT_LISTS = 64 };

struct wi_depot {
    weir_client *client;
    weir_stream stream;
    wi_tcaches *of;
    wi_depot *next;
    uint32_t caches;            /* under the lock of all thread caches */
    atomic_uint_fast64_t there; /* a bit for each charge that there may be lists of */
    pthread_mutex_t lock;       /* of what follows */
    uint64_t room;
    uint32_t count;
    wi_delta delta;
    wi_depot_list lists[WI_DEPOT_LISTS]; /* oldest first */
};

extern _Thread_local wi_tcache_thread *wi_tcache_mine;

static inline uint64_t wi_tcache_place(const wi_tcache_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)client >> 4) + stream.id;
    return mixed * UINT64_C(0x9e3779b97f4a7c15) >> mine->shift;
}

static inline bool wi_tcache_is_for(const wi_tcache *cache, const weir_client *client, weir_stream stream)
{
    return cache->client == client && cache->stream.id == stream.id;
}

/* The owner's look, entered or with the claimers' lock. */
static inline wi_tcache *wi_tcache_find(const wi_tcache_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t place = wi_tcache_place(mine, client, stream);
    wi_tcache *cache = mine->table[place];
    while (wi_unlikely(cache && !wi_tcache_is_for(cache, client, stream))) {
        place = (place + 1) & (UINT64_MAX >> mine->shift);
        cache = mine->table[place];
    }
    return cache;
}

/* Sizes come in any order, so that what depends on one is no branch here. Of 0, which a look at a record that is being written may
 * find, a bin that takes nothing. */
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

/* The hits since it was asked last. */
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

static inline bool wi_tcaches_are_steady(const wi_tcaches *caches)
{
    return atomic_load_explicit(&caches->quiet, memory_order_relaxed) >=
           atomic_load_explicit(&caches->reuse_wait, memory_order_relaxed);
}

static inline uint32_t wi_tcache_most(const wi_tcaches *caches, uint64_t charged)
{
    return charged <= WI_TCACHE_SMALL      ? WI_TCACHE_MANY
           : charged <= WI_TCACHE_HANDED   ? WI_TCACHE_SEVERAL
           : wi_tcaches_are_steady(caches) ? WI_TCACHE_SEVERAL
           : charged <= WI_TCACHE_MIDDLE   ? WI_TCACHE_SOME
                                           : WI_TCACHE_FEW;
}

static inline uint64_t wi_depot_bit(uint64_t charged)
{
    return UINT64_C(1) << (charged / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* Whether it is worth asking the thread cache's depot for blocks of that charge. */
static inline bool wi_depot_may_have(const wi_depot *depot, uint64_t charged)
{
    return charged <= WI_TCACHE_HANDED &&
           (atomic_load_explicit(&depot->there, memory_order_relaxed) & wi_depot_bit(charged)) != 0;
}

/* depot.c. Of a thread cache that its thread has entered, or that is claimed. */

/* Leaves half of what the thread cache parks of that charge in its depot; false: there is no room, or too little is parked. */
bool wi_depot_put(wi_tcache *cache, uint64_t charged);
/* The other way: the thread cache's bin, which is empty, gets a list. False: none is there, or the thread cache has no room. */
bool wi_depot_take(wi_tcache *cache, uint64_t charged);
/* The oldest list of another charge goes in front of the caller's. False: there is none. */
bool wi_depot_push_out(wi_depot *depot, uint64_t charged, wi_block **list);
/* What others have had of the thread cache's lists is no part of its delta from here on. */
void wi_depot_merge_returned(wi_tcache *cache);

/* With the lock of all thread caches held. */
wi_depot *wi_depot_find(const wi_tcaches *caches, const weir_client *client, weir_stream stream);
wi_depot *wi_depot_make(weir_client *client, weir_stream stream);
/* The thread cache goes; its lists stay. */
void wi_depot_forget(wi_tcache *cache);
/* All lists of a larger charge go in front of the caller's. */
void wi_depot_empty(wi_depot *depot, uint64_t above, wi_block **list);
/* What it holds of drifts goes into the ledger, whose lock is held. */
void wi_depot_merge(wi_depot *depot);
/* Nobody has a thread cache there any more, and it is empty. */
void wi_depot_end(wi_depot *depot);

#endif
