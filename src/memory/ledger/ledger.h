/* The ledger: a device's book of bytes, with one account per client.
 *
 * Invariants, while the lock is free:
 *   for each account   live = sum of live_class,  used = live + pending + promised + thread_cached <= maximum
 *                      kept <= pending
 *   for the device     live, pending, promised, thread_cached, guaranteed = sums over the accounts
 *                      committed = sum over the accounts of max(used, guaranteed) <= budget
 *                      live + pending + thread_cached <= held - spare,  held <= budget
 *
 * A thread cache (runtime/thread_cache/thread_cache.h) turns live bytes into thread-cached ones and back. That changes
 * nothing of what is used, and is counted in thread-local deltas, which are merged before live bytes are read. Until
 * then live bytes may read below zero.
 *
 * A claim checks and reserves in one step (wi_ledger_claim); the claimed bytes are committed to live bytes or
 * cancelled. Nothing here calls a driver or waits. Each change is written into open traces within the same step. */
#ifndef WI_LEDGER_H
#define WI_LEDGER_H

#include "memory/space/block.h"
#include "memory/ledger/events.h"
#include "memory/ledger/pressure.h"

#include <weir/base.h>
#include <weir/trace.h>
#include <weir/memory.h>
#include <weir/stats.h>

struct wi_account {
    wi_account *previous, *next; /* in the order of opening */
    const char *name;            /* valid as long as the account is there */
    const char *lasting;         /* the same, or WI_LOST_NAME, valid as long as the process */
    const weir_client *client;
    bool open;                    /* a claim of a closed account is refused */
    uint64_t serial;              /* from 1, never given twice */
    bool secret;                  /* others must not read what it leaves in memory */
    uint64_t guaranteed, maximum; /* maximum UINT64_MAX: the budget */
    uint64_t live, pending, promised, thread_cached;
    uint64_t kept; /* of the pending bytes: held by capture pools, which no wait frees */
    uint64_t live_class[WEIR_CLASS_COUNT], pending_class[WEIR_CLASS_COUNT];
    uint64_t peak, peak_class[WEIR_CLASS_COUNT];
    uint64_t blocks, allocations, frees, refusals, hits;
    uint64_t outside;
    char outside_method[128];
};

/* The owner of bytes in its blocks; block.h. */
static inline uint64_t wi_account_owner(const wi_account *account)
{
    return account->serial | (account->secret ? WI_SECRET : 0);
}

/* What stands between a free and the next owner of the bytes. */
typedef enum wi_past {
    WI_PASSED,   /* nothing: the device is past it and past every use */
    WI_IN_ORDER, /* what was queued on the stream of the free before it; no event was recorded */
    WI_UNPASSED  /* more than that: it is pending until release is called */
} wi_past;

/* What a thread has done without the ledger since its last merge. */
typedef struct wi_delta {
    int64_t live, live_class[WEIR_CLASS_COUNT]; /* growth */
    int64_t high, high_class[WEIR_CLASS_COUNT]; /* the highest `live` meanwhile, and the classes then */
    uint64_t hits, frees;
    uint64_t taken;                       /* charged bytes of the hits */
    uint64_t requested, returned;         /* requested bytes of the hits, and of the frees */
    uint64_t high_requested, high_blocks; /* when `live` was at its highest */
} wi_delta;

/* Access to thread caches. */
typedef struct wi_tcache_hooks {
    /* Merges all deltas; the ledger's lock is held. */
    void (*merge)(void *user);
    /* Frees thread-cached blocks, this thread's first; returns their bytes. No lock is held. */
    uint64_t (*flush)(void *user);
    void *user;
} wi_tcache_hooks;

typedef struct wi_ledger {
    pthread_mutex_t lock;
    const char *device; /* its name */
    uint64_t granule;   /* of the device; what is held is a multiple of it */
    uint64_t budget, guaranteed, committed;
    uint64_t live, pending, promised, thread_cached, held, spare;
    uint64_t peak, peak_held;
    uint64_t allocations, frees, refusals, driver_calls, hits;
    uint64_t created, moved, batches; /* chunks; and blocks for which some were moved */
    uint64_t emptied;                 /* thread-cached bytes that were freed for a request */
    atomic_uint_fast64_t freed;       /* bytes that an account used and uses no more, or that the driver has back */
    uint64_t ladder[WEIR_RUNG_COUNT]; /* blocks by the rung that served them */
    uint64_t lent_clients, lent_streams;
    weir_memory_stats gauges;                 /* without the deltas of threads */
    uint64_t retries_before, refusals_before; /* until the last reset */
    wi_pressures pressures;                   /* callbacks that can make room here */
    wi_tcache_hooks tcache_hooks;             /* functions NULL: none */
    wi_account *first, *last;
    uint32_t accounts;
    wi_events *events;     /* rings of open traces; NULL: none */
    atomic_uint recording; /* flags of events.h */

    pthread_mutex_t members_lock; /* members.h */
    struct wi_member *first_member, *last_member;
} wi_ledger;

void wi_ledger_init(wi_ledger *ledger, const char *device, uint64_t budget, uint64_t granule);
void wi_ledger_destroy(wi_ledger *ledger);

/* Accounts. Each call succeeds as a whole, or fails with numbers and changes nothing. */
weir_status wi_ledger_open(wi_ledger *ledger, wi_account *account);
weir_status wi_ledger_close(wi_ledger *ledger,
                            wi_account *account); /* WEIR_ERR_BUSY while anything is live or promised */
weir_status wi_ledger_set_limits(wi_ledger *ledger, wi_account *account, uint64_t guaranteed, uint64_t maximum);
/* *held, unless NULL: whether only held bytes stand in the way, which could be trimmed. */
weir_status wi_ledger_set_budget(wi_ledger *ledger, uint64_t budget, bool *held);

/* Claims `bytes` for the account. False: the budget or the maximum forbids it, or the account is closed. *could:
 * whether it would succeed if all pending frees were complete. */
bool wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could);
/* How many bytes more the account could have under the limits. */
uint64_t wi_ledger_left(wi_ledger *ledger, const wi_account *account);
/* How many bytes a new account could have if nothing were thread-cached: the budget less what others use or are
 * guaranteed. *idle: held bytes that nobody uses. */
uint64_t wi_ledger_left_for_another(wi_ledger *ledger, uint64_t *idle);
/* How many bytes, so far, have come to be free to claim or to hold. Needs no lock: a request reads it before it claims,
 * and claims again if there are more by then. */
static inline uint64_t wi_ledger_freed(const wi_ledger *ledger)
{
    return atomic_load_explicit(&ledger->freed, memory_order_relaxed);
}
bool wi_ledger_is_open(wi_ledger *ledger, const wi_account *account);
/* The same by serial number, when the record may soon serve another account. */
bool wi_ledger_knows(wi_ledger *ledger, uint64_t serial);
void wi_ledger_cancel(wi_ledger *ledger, wi_account *account, uint64_t bytes);
/* Commits claimed bytes to the block, which is live with that. A pending block turns its pending bytes live. */
void wi_ledger_commit(wi_ledger *ledger, wi_block *block);
/* The block is freed on `stream`: its bytes are gone, or pending if WI_UNPASSED. A thread-cached block counted as freed
 * before. */
void wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
/* The same for the first `count` blocks of a list, linked by pending_next, that were thread-cached on the stream. */
void wi_ledger_retire_list(wi_ledger *ledger, const wi_block *list, size_t count, weir_stream stream);
/* The free of a pending block is complete. */
void wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
/* A capture pool holds the pending block from now on, or no longer; its bytes count as of `memory_class` then. */
void wi_ledger_keep(wi_ledger *ledger, const wi_block *block);
void wi_ledger_let_go(wi_ledger *ledger, const wi_block *block, weir_class memory_class);
/* The block's charge becomes `charged`: a claim for the difference has been made when it grows; when it shrinks, the
 * difference is gone if `complete`, else pending until a block of that charge is reaped. If a capture pool holds
 * the block, the difference stays pending and kept. */
void wi_ledger_resize(wi_ledger *ledger, const wi_block *block, uint64_t bytes, uint64_t charged, bool complete);

/* Merges a delta of the account's, with the ledger's lock held; the delta is empty then. */
void wi_ledger_merge(wi_ledger *ledger, wi_account *account, wi_delta *delta);
/* Merges all deltas. With the lock held. */
void wi_ledger_merge_all(wi_ledger *ledger);
/* Flushes thread caches for a request that does not fit; returns the bytes. No lock is held. */
uint64_t wi_ledger_flush_tcaches(wi_ledger *ledger);
/* A thread has flushed so many bytes of its own caches for its request. */
void wi_ledger_note_emptied(wi_ledger *ledger, uint64_t bytes);

/* Physical memory: `bytes` are about to be created. Grants as much as the budget leaves, in whole granules, counts it
 * as spare until it is mapped, and returns it. */
uint64_t wi_ledger_hold(wi_ledger *ledger, uint64_t bytes);
/* Bytes that the budget leaves for that; *held: bytes held now; *allocations: the count so far. */
uint64_t wi_ledger_room(wi_ledger *ledger, uint64_t *held, uint64_t *allocations);
void wi_ledger_release(wi_ledger *ledger, uint64_t bytes);  /* spare bytes are back with the driver */
void wi_ledger_mapped(wi_ledger *ledger, uint64_t bytes);   /* spare -> cached */
void wi_ledger_unmapped(wi_ledger *ledger, uint64_t bytes); /* cached -> spare */
void wi_ledger_driver_call(wi_ledger *ledger);
/* Segments that the driver made, and that it has back. */
void wi_ledger_segments(wi_ledger *ledger, uint64_t made, uint64_t ended);
void wi_ledger_worked(wi_ledger *ledger, uint64_t calls, uint64_t created, uint64_t moved);

/* Why a request was not met, as the resource sees it. */
typedef struct wi_shortage {
    weir_refusal_cause cause; /* WEIR_CAUSE_NONE: a limit of the ledger, which finds out which one */
    uint64_t largest;         /* bytes that could be placed in one piece now */
    uint64_t later;           /* the same once the device is past all frees; 0: nothing waits */
    uint64_t held;            /* bytes that would have to be held to place the request */
    const char *words;        /* WEIR_CAUSE_ADAPTOR: whose, and why */
    /* WEIR_CAUSE_RESERVATION: largest is what is left of it, held what it was */
} wi_shortage;

typedef struct wi_request {
    uint64_t bytes, charged; /* as requested; as it would be charged */
    weir_class memory_class;
    weir_stream stream;
    const char *tag;
} wi_request;

/* Refuses the request: counts it, traces it, and sets this thread's last refusal and detail. */
weir_status wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                             const wi_shortage *shortage);

/* Totals that do not depend on deltas, so that reading them merges nothing and disturbs no thread. */
typedef struct wi_standing {
    uint64_t budget, held, pending;
    uint64_t kept; /* of the pending ones */
    uint32_t accounts;
} wi_standing;
wi_standing wi_ledger_look(wi_ledger *ledger);

void wi_ledger_snapshot(wi_ledger *ledger, weir_stats *out, weir_client_stats *clients, size_t stride, size_t capacity,
                        size_t *count);
void wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out);
void wi_ledger_reset_peaks(wi_ledger *ledger);
/* All gauges except those of split chunks. */
void wi_ledger_gauges(wi_ledger *ledger, weir_memory_stats *out);
void wi_ledger_reset_accumulated(wi_ledger *ledger);
void wi_ledger_note_outside(wi_ledger *ledger, wi_account *account, uint64_t bytes, const char *method);

/* Recording -------------------------------------------------------------------------------------------------------- */

/* Writing events into a ledger's rings. What the ledger does is written within its own step, the rest in a step of the
 * ledger's for itself: one lock gives all events of a runtime their order. */

/* A look without the lock: a trace that is opened meanwhile misses this event, which came before it. */
static inline unsigned wi_recording(const wi_ledger *ledger)
{
    return atomic_load_explicit(&ledger->recording, memory_order_relaxed);
}

/* With the ledger's lock held, and a ring there. Adds what the ledger, the clock and `block` (NULL: none) know to what
 * the event says. */
void wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block);
void wi_record(wi_ledger *ledger, weir_event event, const wi_block *block);
/* Into one ring that is none of the ledger's, if there is one; *ring is read with the lock held. */
void wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block);

/* A ring more, which gets the ledger's live blocks first, in the step in which it begins to get all that is new; or
 * less. */
void wi_record_into(wi_ledger *ledger, wi_events *events);
void wi_record_no_more(wi_ledger *ledger, wi_events *events);

#endif
