/* The ledger: a device's book of bytes, and its accounts, one per client.
 *
 * Laws, true whenever the lock is free:
 *   for each account   live = sum of live_class,  used = live + pending + promised + parked <= maximum
 *   for the device     live, pending, promised, parked, guaranteed = sums over the accounts
 *                      committed = sum over the accounts of max(used, guaranteed) <= budget
 *                      live + pending + parked <= held - spare,  held <= budget
 * and for each account kept <= pending
 *
 * What threads park and take back by themselves (runtime/thread_cache.h) turns live bytes into parked ones and back, which changes
 * nothing that is used; it is written down in drifts, which are folded in before live bytes are looked at. Until then they
 * may read as less than none.
 * Checking and claiming are one step (wi_ledger_claim); what is claimed is settled into live bytes or cancelled. Nothing
 * here calls a driver or waits. Each change is written into the trace, if one is open, within the same step. */
#ifndef WI_LEDGER_H
#define WI_LEDGER_H

#include "memory/space/block.h"
#include "memory/ledger/events.h"
#include "memory/ledger/pressure.h"

#include <weir/base.h>
#include <weir/memory.h>
#include <weir/stats.h>

struct wi_account {
    wi_account *previous, *next; /* in the order of opening */
    const char *name;            /* valid as long as the account is there */
    const char *lasting;         /* the same, or WI_LOST_NAME, valid as long as the process */
    const weir_client *client;
    bool open;                    /* a claim of a closed account is refused */
    uint64_t serial;              /* from 1, never given twice */
    bool secret;                  /* what it leaves in memory is not for others */
    uint64_t guaranteed, maximum; /* maximum UINT64_MAX: the budget */
    uint64_t live, pending, promised, thread_cached;
    uint64_t kept; /* of the pending bytes: what graphs hold, which no waiting frees */
    uint64_t live_class[WEIR_CLASS_COUNT], pending_class[WEIR_CLASS_COUNT];
    uint64_t peak, peak_class[WEIR_CLASS_COUNT];
    uint64_t blocks, allocations, frees, refusals, hits;
    uint64_t outside;
    char outside_method[128];
};

/* Whose bytes its blocks hold; block.h. */
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

/* What has happened without the ledger since the last fold. */
typedef struct wi_delta {
    int64_t live, live_class[WEIR_CLASS_COUNT]; /* by so much they grew */
    int64_t high, high_class[WEIR_CLASS_COUNT]; /* the most that `live` was meanwhile, and the classes then */
    uint64_t hits, frees;
    uint64_t taken;                       /* bytes of the blocks that were hit, as charged */
    uint64_t requested, returned;         /* as they were asked for; and of those that were freed */
    uint64_t high_requested, high_blocks; /* when `live` was at its highest */
} wi_delta;

/* Where drifts and parked blocks are. */
typedef struct wi_tcache_hooks {
    /* Folds every delta; called with the ledger's lock held. */
    void (*fold)(void *user);
    /* Gives up parked blocks, those of this thread first; answers their bytes. No lock is held. */
    uint64_t (*empty)(void *user);
    void *user;
} wi_tcache_hooks;

typedef struct wi_ledger {
    pthread_mutex_t lock;
    const char *device; /* its name */
    uint64_t granule;   /* of the device's handles: what is held comes in these */
    uint64_t budget, guaranteed, committed;
    uint64_t live, pending, promised, thread_cached, held, spare;
    uint64_t peak, peak_held;
    uint64_t allocations, frees, refusals, driver_calls, hits;
    uint64_t created, moved, batches; /* handles; and times that some were moved for one block */
    uint64_t emptied;                 /* parked bytes that were given up for a request */
    uint64_t ladder[WEIR_RUNG_COUNT]; /* blocks by how they were come by */
    uint64_t lent_clients, lent_streams;
    weir_memory_stats gauges;                 /* current but for what threads have done without the ledger */
    uint64_t retries_before, refusals_before; /* until the last reset */
    wi_pressures pressures;                   /* who can make room here */
    wi_tcache_hooks parking;                  /* functions NULL: none */
    wi_account *first, *last;
    uint32_t accounts;
    wi_events *events;     /* the rings of the traces that are open; NULL: none is */
    atomic_uint recording; /* events.h: what there is to do about them */

    pthread_mutex_t holders_lock; /* members.h */
    struct wi_member *first_holder, *last_holder;
} wi_ledger;

void wi_ledger_init(wi_ledger *ledger, const char *device, uint64_t budget, uint64_t granule);
void wi_ledger_destroy(wi_ledger *ledger);

/* Accounts. Each either happens as a whole or answers with numbers and changes nothing. */
weir_status wi_ledger_open(wi_ledger *ledger, wi_account *account);
weir_status wi_ledger_close(wi_ledger *ledger,
                            wi_account *account); /* WEIR_ERR_BUSY while anything is live or promised */
weir_status wi_ledger_set_limits(wi_ledger *ledger, wi_account *account, uint64_t guaranteed, uint64_t maximum);
/* *held, if that is not NULL: whether only what is held stands in the way, which could be trimmed. */
weir_status wi_ledger_set_budget(wi_ledger *ledger, uint64_t budget, bool *held);

/* Claims `bytes` for the account. False when the budget or the maximum forbids it, or it is closed; *could tells whether
 * it would be granted if every pending free were complete. */
bool wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could);
/* How many bytes more the account could have under the limits. */
uint64_t wi_ledger_left(wi_ledger *ledger, const wi_account *account);
/* How many bytes an account that is opened next could have, when nothing is parked: what the budget leaves above what others
 * use or are guaranteed. *idle: bytes that are held and in nobody's use. */
uint64_t wi_ledger_left_for_another(wi_ledger *ledger, uint64_t *idle);
bool wi_ledger_is_open(wi_ledger *ledger, const wi_account *account);
/* The same by number, where the record may be on its way to becoming another account's. */
bool wi_ledger_knows(wi_ledger *ledger, uint64_t serial);
void wi_ledger_cancel(wi_ledger *ledger, wi_account *account, uint64_t bytes);
/* The claimed bytes are this block now, which is live with that; the pending ones, if it is pending. */
void wi_ledger_commit(wi_ledger *ledger, wi_block *block);
/* The block is freed on `stream`: its bytes are gone, or pending when they are WI_UNPASSED. One that was parked was freed
 * before. */
void wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
/* The first `count` blocks of a list, linked by pending_next, that were parked in the order of the stream. */
void wi_ledger_retire_list(wi_ledger *ledger, const wi_block *list, size_t count, weir_stream stream);
/* A pending block is complete. */
void wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
/* A graph holds the pending block from now on, or no longer; then its bytes count as of `memory_class`. */
void wi_ledger_keep(wi_ledger *ledger, const wi_block *block);
void wi_ledger_let_go(wi_ledger *ledger, const wi_block *block, weir_class memory_class);
/* The block's charge becomes `charged`: a claim for the difference has been made when it grows; when it shrinks, the
 * difference is gone if `complete`, else pending until a block of that charge is reaped. Of one that a graph holds
 * the difference stays pending and kept. */
void wi_ledger_resize(wi_ledger *ledger, const wi_block *block, uint64_t bytes, uint64_t charged, bool complete);

/* Folds a delta of the account's, with the ledger's lock held; the delta is empty then. */
void wi_ledger_merge(wi_ledger *ledger, wi_account *account, wi_delta *delta);
/* All of them. With the lock held. */
void wi_ledger_merge_all(wi_ledger *ledger);
/* For a request that does not fit; answers the bytes given up. No lock is held. */
uint64_t wi_ledger_flush_tcaches(wi_ledger *ledger);
/* Threads have given up so many bytes for a request themselves. */
void wi_ledger_note_emptied(wi_ledger *ledger, uint64_t bytes);

/* Physical memory: `bytes` more are about to be taken from the driver. Takes as much of it as the budget leaves, in whole
 * granules, and answers how much; counts it as spare until it is mapped. */
uint64_t wi_ledger_hold(wi_ledger *ledger, uint64_t bytes);
/* Bytes that the budget leaves for that; *held: those held now; *allocations: how many there have been. */
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
    weir_refusal_cause cause; /* WEIR_CAUSE_NONE: a limit of the ledger's, which finds out which */
    uint64_t largest;         /* bytes that could be placed in one piece */
    uint64_t later;           /* the same once everything that is free in some order has passed; 0: nothing is */
    uint64_t held;            /* bytes that would have to be held to place the request */
    /* WEIR_CAUSE_RESERVATION: largest is what is left of it, held what it was */
} wi_shortage;

typedef struct wi_request {
    uint64_t bytes, charged; /* as asked for, as it would count */
    weir_class memory_class;
    weir_stream stream;
    const char *tag;
} wi_request;

/* Writes down why the request is refused to the account, as this thread's last refusal and detail, counts and traces it. */
weir_status wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                             const wi_shortage *shortage);

/* What threads do without the ledger changes nothing of, so that a look at it folds nothing and disturbs no thread. */
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
/* All gauges of the ledger's, which leaves out what is split. */
void wi_ledger_gauges(wi_ledger *ledger, weir_memory_stats *out);
void wi_ledger_reset_accumulated(wi_ledger *ledger);
void wi_ledger_note_outside(wi_ledger *ledger, wi_account *account, uint64_t bytes, const char *method);

#endif
