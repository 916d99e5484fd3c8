/* Fronts: what stands between a thread and the shared locks. A front belongs to one thread, one client and one stream, and
 * keeps blocks that the thread freed on that stream *parked*, for its next allocations for that client there: no lock, no
 * driver call, no event. Behind the fronts of a client and a stream stands their depot: what one thread frees and another
 * allocates goes through it by the list.
 *
 * Laws: a parked block has the phase WI_PARKED, is in exactly one bin or list of a depot (or in the hands of a thread that
 * empties one), belongs to the front's client, whose maximum it counts against, was freed in the order of the front's stream,
 * and has no marks and no zeros on their way. A front is in the list of its runtime and in that of its thread. Stacks with
 * adaptors, which must see every call, have no fronts; while a trace records, nothing is parked or taken.
 *
 * Locks: the ledger's, then that of all fronts (front_lists.c), then a thread's own (base/biased.h), whose claimers hold the
 * former two, then a depot's. No driver is called with any of them. */
#ifndef WI_FRONT_H
#define WI_FRONT_H

#include "base/biased.h"
#include "memory/resource.h"

typedef struct wi_front wi_front;
typedef struct wi_depot wi_depot;

/* A thread that has parked blocks in hand, or that ends; on its stack. They are linked in the order in which they came, so that
 * whoever waits for those that were at work waits for nobody who came since. */
typedef struct wi_front_turn {
    struct wi_front_turn *previous, *next;
    uint64_t number;
    const weir_client
        *client; /* whose blocks those are, and on which stream they were parked; NULL: anyone's, and on any */
    weir_stream stream;
} wi_front_turn;

/* Of a runtime. */
typedef struct wi_fronts {
    bool usable;       /* the stack has none but a budget around a base that can peek */
    uint64_t room;     /* the most bytes that one front parks; 0: the option says none */
    wi_front *first;   /* under the lock of the ledger and that of all fronts */
    wi_depot *depots;  /* the same; each has a front */
    atomic_uint lists; /* in all of them */
    wi_block *refused; /* blocks that were parked and that the driver did not take when they were freed; linked */
    wi_front_turn *first_turn, *last_turn; /* under the lock of all fronts */
    uint64_t turns;                        /* that were begun */
    pthread_cond_t turn_over;
    /* Calm: memory has not grown for so long that large blocks may stay parked until their thread would need more. That has to
     * pay: where growth comes too often in it, it ends, and does not come back as soon, unless the option asks for it from the
     * start. */
    atomic_uint quiet;    /* large blocks that found memory, less what growth has taken off */
    atomic_uint patience; /* so many make it calm: at first as the option says */
    atomic_uint earned;   /* in calm: hits of large blocks, less what growth has cost */
} wi_fronts;

/* Of a runtime whose stack and ledger are there. */
void wi_fronts_init(weir_runtime *runtime);
/* No client has a front any more: waits for threads that are about to end. */
void wi_fronts_end(weir_runtime *runtime);

/* Serves the request from what is parked; NULL: it cannot. All arguments may be wrong, and *generation is written on success
 * alone. The charge is exactly the request's. */
void *wi_front_take(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                    uint64_t *generation);
/* The same for an open client, of a thread that has no front there yet, while others have left something. */
bool wi_front_take_slowly(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                          weir_block *out);
/* Parks the block that begins there; generation 0 fits any. False: it cannot, and the ordinary free does it or says why. */
bool wi_front_give(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);
/* The same for an open client, with more trouble: makes a front, or room in it. */
bool wi_front_give_slowly(weir_client *client, void *pointer, uint64_t generation, weir_stream stream);

/* What this thread has done for the client without the ledger is written down there; before the ledger is told of more. */
void wi_front_settle(weir_client *client);
/* Whether this thread parks large blocks, which keep free memory in pieces, in the front there and in others of the runtime's;
 * and how many served there since this was last asked. */
typedef struct wi_front_large {
    bool here, elsewhere;
    uint32_t hits;
} wi_front_large;
wi_front_large wi_front_look_large(const weir_client *client, weir_stream stream);
/* Gives up what this thread parks of large blocks there, or in all fronts of the runtime's; answers the bytes. */
uint64_t wi_front_empty_large(weir_client *client, weir_stream stream, bool everywhere);
/* A large block was allocated: the driver had to work on so many handles for it, and before it so many were served from what
 * was parked. */
void wi_fronts_note(wi_fronts *fronts, uint32_t handles, uint32_t hits);

/* Nothing is parked for the client, or on the stream, and no front is there for them. The stream is captured or gone by now,
 * or the client closing, so that no other is made. Waits for threads that had some of it in hand by then, and for nobody else:
 * they may still ask the driver about the stream. */
void wi_fronts_drop_client(weir_client *client);
void wi_fronts_drop_stream(weir_runtime *runtime, weir_stream stream);
/* Gives up all that is parked, and waits for those who had some of it in hand; answers how many bytes. */
uint64_t wi_fronts_empty(weir_runtime *runtime);
/* Around the opening of a trace: nothing is parked, and nothing will be. */
void wi_fronts_shut(weir_runtime *runtime);
void wi_fronts_open(weir_runtime *runtime);

/* Among the files of fronts ------------------------------------------------------------------------------------------ */

/* Up to 16 KiB each charge has its bin; above, charges share bins by twos, each of which keeps those of one at a time. Of small
 * blocks many are worth keeping, of large ones two, which is what a loop over two buffers needs, or many in calm. Up to 64 KiB
 * they go from hand to hand, half a bin at a time, which is what makes the depot's lock cheap. */
enum {
    WI_FRONT_SMALL = 16 << 10,
    WI_FRONT_SMALL_BINS = WI_FRONT_SMALL / WI_UNIT,
    WI_FRONT_SHARED_BITS = 7,
    WI_FRONT_BINS = WI_FRONT_SMALL_BINS + (1 << WI_FRONT_SHARED_BITS),
    WI_FRONT_HANDED = 64 << 10,
    WI_FRONT_RECENT_BITS = 12,
    WI_FRONT_MIDDLE = 1 << 20,
    WI_FRONT_MANY = 64,
    WI_FRONT_SEVERAL = 64,
    WI_FRONT_SOME = 8,
    WI_FRONT_FEW = 2,
    WI_FRONT_FIRST_HOPE = 2,
    WI_FRONT_MOST_HOPE = 16,
    WI_FRONT_TRIAL = 64
};

/* When it is calm, and what it may cost. A handle that is moved or made costs as much time as some 256 hits save: 30 to 50
 * microseconds on an H200 against a few hundred nanoseconds each, of those that would not have been hits without. */
enum {
    WI_CALM_GROWTH = 1024, /* what one takes off, before it is calm */
    WI_CALM_WORTH = 256,   /* hits, of a handle */
    WI_CALM_ALLOWED = 32,  /* handles at first, when memory takes the form that suits what is parked */
    WI_CALM_SAVED = 256    /* handles at once, at the most, however many hits there were */
};

typedef struct wi_front_bin {
    wi_block *first; /* the last that came; linked by pending_next */
    uint64_t charged;
    uint32_t count, most;
} wi_front_bin;

/* A thread has at most so many fronts, some 5 KiB each: who works for more pairs of client and stream loses the oldest. */
enum { WI_FRONT_TABLE_BITS = 6, WI_FRONT_MOST = 1024 };

/* Laws: the table is at most half full; a front is at its place there, or behind it with no empty place between. */
typedef struct wi_front_thread {
    wi_biased lock;
    uint32_t shift; /* 64 less the bits of a place in the table */
    uint32_t count; /* of fronts */
    wi_front **table;
    uint64_t generation;                        /* that it gave a block last */
    wi_front *fronts, *oldest;                  /* all of them, the newest first */
    wi_front *places[1 << WI_FRONT_TABLE_BITS]; /* the table, before it grows */
    wi_block *
        recent[1 << WI_FRONT_RECENT_BITS]; /* guesses: records of blocks that it gave out, by their address; of runtimes
                                                  * in which it has fronts */
    bool stale;                            /* of one in which it may have none: the guesses are to be forgotten */
} wi_front_thread;

struct wi_front {
    weir_client *client;
    weir_stream stream;
    weir_runtime *runtime;
    const atomic_uint *recording; /* the ledger's */
    wi_resource *base;
    wi_account *account;
    const char *no_tag;
    uint64_t room;  /* bytes that may still be parked */
    uint32_t large; /* parked blocks of more than WI_FRONT_SMALL */
    /* Whether those are worth parking: a hit raises it, one that was given up unused lowers it. At 0 they are not, but for one
     * in so many frees, which is to see whether that has changed. */
    int32_t hope;
    uint32_t declined;
    uint32_t large_hits, told, hoped; /* in all; of those, what somebody was told, and what hope was raised by */
    wi_drift drift;
    /* What others have had of its lists is their drift and no longer its own; under the depot's lock. */
    wi_drift returned;
    wi_depot *depot;
    wi_front_thread *thread;
    wi_front *newer, *next_of_thread;
    wi_front *previous, *next, *picked;
    uint32_t hand; /* the bin that makes room next */
    wi_front_bin bins[WI_FRONT_BINS];
};

/* Blocks of one charge that a front has left; linked by pending_next. */
typedef struct wi_depot_list {
    wi_block *first;
    uint64_t charged;
    uint64_t requested; /* as they were asked for last */
    uint32_t count, of_class[WEIR_CLASS_COUNT];
    wi_front *by; /* whose drift has their frees; NULL: the ledger's, or the depot's */
} wi_depot_list;

enum { WI_DEPOT_LISTS = 64 };

struct wi_depot {
    weir_client *client;
    weir_stream stream;
    wi_fronts *of;
    wi_depot *next;
    uint32_t fronts;            /* under the lock of all fronts */
    atomic_uint_fast64_t there; /* a bit for each charge that there may be lists of */
    pthread_mutex_t lock;       /* of what follows */
    uint64_t room;
    uint32_t count;
    wi_drift drift;
    wi_depot_list lists[WI_DEPOT_LISTS]; /* oldest first */
};

extern _Thread_local wi_front_thread *wi_front_mine;

static inline uint64_t wi_front_place(const wi_front_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)client >> 4) + stream.id;
    return mixed * UINT64_C(0x9e3779b97f4a7c15) >> mine->shift;
}

static inline bool wi_front_is_for(const wi_front *front, const weir_client *client, weir_stream stream)
{
    return front->client == client && front->stream.id == stream.id;
}

/* The owner's look, entered or with the claimers' lock. */
static inline wi_front *wi_front_find(const wi_front_thread *mine, const weir_client *client, weir_stream stream)
{
    uint64_t place = wi_front_place(mine, client, stream);
    wi_front *front = mine->table[place];
    while (wi_unlikely(front && !wi_front_is_for(front, client, stream))) {
        place = (place + 1) & (UINT64_MAX >> mine->shift);
        front = mine->table[place];
    }
    return front;
}

/* Sizes come in any order, so that what depends on one is no branch here. Of 0, which a look at a record that is being written may
 * find, a bin that takes nothing. */
static inline wi_front_bin *wi_front_bin_of(wi_front *front, uint64_t charged)
{
    uint64_t mixed = charged / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> (64 - WI_FRONT_SHARED_BITS);
    uint64_t shared = WI_FRONT_SMALL_BINS + (mixed & ~UINT64_C(1)), own = (charged - 1) / WI_UNIT;
    uint64_t is_own = wi_opaque(-(uint64_t)(own < WI_FRONT_SMALL_BINS));
    wi_front_bin *bin = &front->bins[(own & is_own) | (shared & ~is_own)];
    if (wi_likely(bin->charged == charged) || is_own)
        return bin;
    return &bin[(bin[1].charged == charged) | (bin[0].count > bin[1].count)];
}

static inline wi_block **wi_front_recent(wi_front *front, const void *pointer)
{
    uint64_t mixed = (uint64_t)(uintptr_t)pointer / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15);
    return &front->thread->recent[mixed >> (64 - WI_FRONT_RECENT_BITS)];
}

static inline void wi_front_gain(wi_front *front, uint64_t charged)
{
    front->room -= charged;
    front->large += charged > WI_FRONT_SMALL;
}

static inline void wi_front_lose(wi_front *front, uint64_t charged)
{
    front->room += charged;
    front->large -= charged > WI_FRONT_SMALL;
}

/* The hits since it was asked last. */
static inline void wi_front_settle_hope(wi_front *front)
{
    uint64_t hope = (uint64_t)front->hope + 2 * (uint64_t)(front->large_hits - front->hoped);
    front->hope = (int32_t)wi_min(hope, WI_FRONT_MOST_HOPE);
    front->hoped = front->large_hits;
}

static inline bool wi_front_declines(wi_front *front, uint64_t charged)
{
    if (wi_likely(front->hope > 0) || charged <= WI_FRONT_SMALL) /* in this order: sizes come in any */
        return false;
    wi_front_settle_hope(front);
    if (front->hope > 0)
        return false;
    if (++front->declined % WI_FRONT_TRIAL != 0)
        return true;
    front->hope = 1; /* until this one is given up unused */
    return false;
}

static inline bool wi_fronts_are_calm(const wi_fronts *fronts)
{
    return atomic_load_explicit(&fronts->quiet, memory_order_relaxed) >=
           atomic_load_explicit(&fronts->patience, memory_order_relaxed);
}

static inline uint32_t wi_front_most(const wi_fronts *fronts, uint64_t charged)
{
    return charged <= WI_FRONT_SMALL    ? WI_FRONT_MANY
           : charged <= WI_FRONT_HANDED ? WI_FRONT_SEVERAL
           : wi_fronts_are_calm(fronts) ? WI_FRONT_SEVERAL
           : charged <= WI_FRONT_MIDDLE ? WI_FRONT_SOME
                                        : WI_FRONT_FEW;
}

static inline uint64_t wi_depot_bit(uint64_t charged)
{
    return UINT64_C(1) << (charged / WI_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* Whether it is worth asking the front's depot for blocks of that charge. */
static inline bool wi_depot_may_have(const wi_depot *depot, uint64_t charged)
{
    return charged <= WI_FRONT_HANDED &&
           (atomic_load_explicit(&depot->there, memory_order_relaxed) & wi_depot_bit(charged)) != 0;
}

/* depot.c. Of a front that its thread has entered, or that is claimed. */

/* Leaves half of what the front parks of that charge in its depot; false: there is no room, or too little is parked. */
bool wi_depot_put(wi_front *front, uint64_t charged);
/* The other way: the front's bin, which is empty, gets a list. False: none is there, or the front has no room. */
bool wi_depot_take(wi_front *front, uint64_t charged);
/* The oldest list of another charge goes in front of the caller's. False: there is none. */
bool wi_depot_push_out(wi_depot *depot, uint64_t charged, wi_block **list);
/* What others have had of the front's lists is no part of its drift from here on. */
void wi_depot_settle(wi_front *front);

/* With the lock of all fronts held. */
wi_depot *wi_depot_find(const wi_fronts *fronts, const weir_client *client, weir_stream stream);
wi_depot *wi_depot_make(weir_client *client, weir_stream stream);
/* The front goes; its lists stay. */
void wi_depot_forget(wi_front *front);
/* All lists of a larger charge go in front of the caller's. */
void wi_depot_empty(wi_depot *depot, uint64_t above, wi_block **list);
/* What it holds of drifts goes into the ledger, whose lock is held. */
void wi_depot_fold(wi_depot *depot);
/* Nobody has a front there any more, and it is empty. */
void wi_depot_end(wi_depot *depot);

#endif
