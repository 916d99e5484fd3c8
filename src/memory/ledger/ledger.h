/* The ledger: a device's book of bytes, with one account per client. With it stand the rings of events and the pressure
 * callbacks, which it calls, and its gauges.
 *
 * Invariants, while the lock is free:
 *   for each account   live = sum of live_class,  used = live + pending + promised + thread_cached <= maximum
 *                      kept <= pending; away bytes are of blocks that are live, and in none of these sums
 *   for the device     live, pending, promised, thread_cached, guaranteed = sums over the accounts
 *                      committed = sum over the accounts of max(used, guaranteed) <= budget
 *                      live + pending + thread_cached <= held - spare,  held + aside <= budget
 *
 * A thread cache (runtime/thread_cache/thread_cache.h) turns live bytes into thread-cached ones and back. That changes
 * nothing of what is used, and is counted in thread-local deltas, which are merged before live bytes are read. Until
 * then live bytes may read below zero.
 *
 * A claim checks and reserves in one step (wi_ledger_claim); the claimed bytes are committed to live bytes or
 * cancelled. Nothing here calls a driver or waits. Each change is written into open traces within the same step. */
#ifndef WI_LEDGER_H
#define WI_LEDGER_H

#include <pthread.h>

#include <weir/base.h>
#include <weir/memory.h>
#include <weir/pressure.h>
#include <weir/stats.h>
#include <weir/trace.h>

#include "base/internal.h"
#include "memory/space/block.h"

/* ---- events.c ---------------------------------------------------------------------------------------------------- */

/* Events: the rings behind traces. Events go in under the ledger's lock and come out oldest first. */

typedef struct wi_events wi_events;

enum { WI_EVENTS_STANDARD = 1 << 20 }; /* the default capacity */

/* Flags of a ledger's `recording`: one load tells a call whether there is anything to do. */
enum {
    WI_RECORDING = 1u << 0,      /* a trace is open */
    WI_EVENTS_WAITING = 1u << 1, /* many events wait: the next call should hand them to the sinks */
    WI_TCACHES_SHUT = 1u << 2    /* a trace is about to open: thread caches serve nothing */
};

wi_events *wi_events_create(size_t capacity); /* NULL: no memory */
void wi_events_destroy(wi_events *events);
/* Adds an event and numbers it. A full ring counts it as lost. */
void wi_events_add(wi_events *events, const weir_event *event);
size_t wi_events_take(wi_events *events, char *out, size_t stride, size_t capacity);
size_t wi_events_count(const wi_events *events); /* events that have not been handed out */
uint64_t wi_events_lost(const wi_events *events);
/* From now on WI_EVENTS_WAITING is set when many events wait. */
void wi_events_call(wi_events *events);
bool wi_events_called(const wi_events *events); /* whether wi_events_call was called */
bool wi_events_calls(const wi_events *events);  /* whether many events wait now */

/* Links of a ledger's list of rings. */
wi_events *wi_events_next(const wi_events *events);
void wi_events_link(wi_events **list, wi_events *events);
void wi_events_unlink(wi_events **list, wi_events *events);

/* ---- pressure.c -------------------------------------------------------------------------------------------------- */

/* Pressure callbacks: the list and its calls; weir/pressure.h is their contract.
 *
 * Invariants: the list is in the order of priority, then of registration; a record lives as long as a thread is in
 * its callback, and its `gone` is called when it ends. Neither runs with the lock held. */

typedef struct wi_pressure_entry wi_pressure_entry;

typedef struct wi_pressures {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* signalled when a call of a removed callback ends */
    wi_pressure_entry *first;
    uint64_t last_id;
} wi_pressures;

/* The position of a request in the list; starts as wi_pressure_begin. */
typedef struct wi_pressure_round {
    int priority;
    uint64_t id;
    unsigned attempt;
    bool again; /* call the same callback again, if it is still registered */
} wi_pressure_round;

extern const wi_pressure_round wi_pressure_begin;

void wi_pressures_init(wi_pressures *pressures);
void wi_pressures_clear(wi_pressures *pressures); /* removes all; no callback may be running */
void wi_pressures_destroy(wi_pressures *pressures);

/* `options` are whole and checked. */
weir_status wi_pressures_add(wi_pressures *pressures, const weir_pressure_options *options, uint64_t *id);
/* Removes a callback and waits for its running calls. Inside another callback, waits only if `waits` is set, which is
 * for callbacks that never wait for other callbacks. Its `gone` is called before the return, or by the
 * last call that leaves it. WEIR_ERR_NOT_FOUND: no such id. */
weir_status wi_pressures_remove(wi_pressures *pressures, uint64_t id, bool waits);

/* Calls the next callback; false: none is left. pressure->attempt is set by this function. */
bool wi_pressures_call(wi_pressures *pressures, wi_pressure_round *round, weir_pressure *pressure);
/* Whether this thread runs a pressure callback of any list. */
bool wi_pressures_inside(void);

/* ---- ledger.c, refusal.c, snapshot.c ----------------------------------------------------------------------------- */

struct wi_account {
    wi_account *previous, *next; /* in the order of opening */
    const char *name;            /* valid while the account exists */
    const char *lasting;         /* the same text, or WI_LOST_NAME; valid for the life of the process */
    const weir_client *client;
    bool open;                    /* false: every claim is refused */
    uint64_t serial;              /* from 1, never given twice */
    bool secret;                  /* its bytes are scrubbed before another client gets the memory */
    uint64_t guaranteed, maximum; /* maximum UINT64_MAX: the budget */
    uint64_t live, pending, promised, thread_cached;
    uint64_t away;            /* bytes of the account's blocks that are away */
    uint64_t guaranteed_away; /* the guarantee once the away bytes are back */
    atomic_uint residency;    /* weir_residency_state, for snapshots; runtime/residency.c sets it */
    uint64_t kept;            /* the part of `pending` that capture pools keep; no wait frees it */
    uint64_t live_class[WEIR_CLASS_COUNT], pending_class[WEIR_CLASS_COUNT];
    uint64_t peak, peak_class[WEIR_CLASS_COUNT];
    uint64_t blocks, allocations, frees, refusals, hits;
    uint64_t outside;
    uint64_t predicted;
    char outside_method[128];
};

/* The tag of the account in block->owner; see block.h. */
static inline uint64_t wi_account_owner(const wi_account *account)
{
    return account->serial | (account->secret ? WI_SECRET : 0);
}

/* Whether bytes that were `previous`'s hold what the account must not read, or what others must not. */
static inline bool wi_account_must_scrub(const wi_account *account, uint64_t previous)
{
    uint64_t mine = wi_account_owner(account), before = previous & ~WI_SECRET;
    return before != WI_CLEAN && before != (mine & ~WI_SECRET) && ((mine | previous) & WI_SECRET) != 0;
}

/* What the next owner of freed bytes has to wait for. */
typedef enum wi_past {
    WI_PASSED,   /* nothing: the device is past the free and all uses */
    WI_IN_ORDER, /* work that was queued on the free's stream before it; no event was recorded */
    WI_UNPASSED  /* more than that: the block is pending until it is released */
} wi_past;

/* What a thread has allocated and freed through its cache since its last merge. */
typedef struct wi_delta {
    int64_t live, live_class[WEIR_CLASS_COUNT]; /* net change */
    int64_t high, high_class[WEIR_CLASS_COUNT]; /* the highest net change meanwhile, and the classes at that moment */
    uint64_t hits, frees;
    uint64_t taken;                       /* charged bytes of the hits */
    uint64_t requested, returned;         /* requested bytes of the hits, and of the frees */
    uint64_t high_requested, high_blocks; /* at the moment of the highest net change */
} wi_delta;

/* How the ledger reaches the thread caches. */
typedef struct wi_tcache_hooks {
    /* Merges all deltas. The ledger's lock is held. */
    void (*merge)(void *user);
    /* Frees thread-cached blocks, this thread's first; returns their bytes. No lock is held. */
    uint64_t (*flush)(void *user);
    void *user;
} wi_tcache_hooks;

typedef struct wi_ledger {
    pthread_mutex_t lock;
    const char *device; /* its name */
    uint64_t granule;   /* of the device; `held` is a multiple of it */
    uint64_t budget, guaranteed, committed;
    uint64_t live, pending, promised, thread_cached, held, spare, away;
    uint64_t aside; /* bytes promised to elastic blocks and not held yet; nothing else may hold them */
    uint64_t peak, peak_held;
    uint64_t allocations, frees, refusals, driver_calls, hits;
    uint64_t created, moved, batches; /* chunks created and moved; blocks for which chunks were moved */
    uint64_t emptied;                 /* thread-cached bytes that were flushed for requests */
    atomic_uint_fast64_t freed; /* bytes that accounts no longer use, or that went back to the driver; only grows */
    uint64_t ladder[WEIR_RUNG_COUNT]; /* blocks served, by rung */
    uint64_t lent_clients, lent_streams;
    weir_memory_stats gauges;                 /* without the deltas of threads */
    uint64_t retries_before, refusals_before; /* at the last reset of the statistics */
    wi_pressures pressures;                   /* callbacks that can make room here */
    wi_tcache_hooks tcache_hooks;             /* NULL functions: no thread caches */
    wi_account *first, *last;
    uint32_t accounts;
    wi_events *events;     /* rings of open traces; NULL: none */
    atomic_uint recording; /* WI_RECORDING and so on */

    pthread_mutex_t members_lock; /* members.h */
    struct wi_member *first_member, *last_member;
} wi_ledger;

void wi_ledger_init(wi_ledger *ledger, const char *device, uint64_t budget, uint64_t granule);
void wi_ledger_destroy(wi_ledger *ledger);

/* Opening and closing an account. Each call succeeds as a whole, or fails with numbers and changes nothing. */
weir_status wi_ledger_open(wi_ledger *ledger, wi_account *account);
weir_status wi_ledger_close(wi_ledger *ledger,
                            wi_account *account); /* WEIR_ERR_BUSY while anything is live or promised */
weir_status wi_ledger_set_limits(wi_ledger *ledger, wi_account *account, uint64_t guaranteed, uint64_t maximum);
/* *held (may be NULL): only held bytes stand in the way, which a trim could release. */
weir_status wi_ledger_set_budget(wi_ledger *ledger, uint64_t budget, bool *held);

/* Sets the budget to *budget, or to what accounts and held memory keep it at, if that is more, and tells it in *budget. False, and
 * nothing is done: the budget is not `now`. */
bool wi_ledger_float(wi_ledger *ledger, uint64_t now, uint64_t *budget);

/* Claims bytes for the account. False: the budget or the maximum forbids it, or the account is closed. *could: it
 * would succeed if all pending frees were complete. */
bool wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could);
/* The same with the lock held. */
bool wi_ledger_claim_locked(wi_ledger *ledger, wi_account *account, uint64_t bytes);
/* How many more bytes the account can claim under the limits. */
uint64_t wi_ledger_left(wi_ledger *ledger, const wi_account *account);
/* How many more bytes the account, or a new one (NULL), could claim if no bytes were thread-cached: the budget less the
 * account's used bytes and the bytes that other accounts use or are guaranteed. *idle: held bytes that no account
 * uses. */
uint64_t wi_ledger_left_for(wi_ledger *ledger, const wi_account *own, uint64_t *idle);
/* How many bytes, so far, have become free to claim or to hold. A request reads it, without the lock, before it claims:
 * if it has grown by the time that the claim has failed, the request claims again. */
static inline uint64_t wi_ledger_freed(const wi_ledger *ledger)
{
    return atomic_load_explicit(&ledger->freed, memory_order_relaxed);
}
bool wi_ledger_is_open(wi_ledger *ledger, const wi_account *account);
void wi_ledger_cancel(wi_ledger *ledger, wi_account *account, uint64_t bytes);
/* Claims the bytes and commits them in one step to the block that `make` returns, which cannot fail; with the lock
 * held. False: the limits forbid it, or the account is closed; `make` was not called. */
bool wi_ledger_place(wi_ledger *ledger, wi_account *account, uint64_t bytes, wi_block *(*make)(void *user), void *user);
/* Commits claimed bytes: the block is live. The pending bytes of a pending block become live. */
void wi_ledger_commit(wi_ledger *ledger, wi_block *block);
/* The block was freed on `stream`. Its bytes are uncommitted, or pending if WI_UNPASSED. A block of a thread cache was
 * counted as freed before. */
void wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
/* The same for the first `count` thread-cached blocks of a list, which is linked by pending_next. */
void wi_ledger_retire_list(wi_ledger *ledger, const wi_block *list, size_t count, weir_stream stream);
/* A pending block's free is complete. */
void wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
/* The same; its bytes are promised again, to whom they were promised before. */
void wi_ledger_reap_promised(wi_ledger *ledger, const wi_block *block);
/* A capture pool keeps the pending block; the pool lets it go, and its bytes count under `memory_class` again. */
void wi_ledger_keep(wi_ledger *ledger, const wi_block *block);
void wi_ledger_let_go(wi_ledger *ledger, const wi_block *block, weir_class memory_class);
/* The block's charge becomes `charged`. Growth was claimed before. What a shrunk block loses is free if `complete`,
 * else pending until its tail is reaped; of a block that a capture pool keeps it stays pending and kept. */
void wi_ledger_resize(wi_ledger *ledger, const wi_block *block, uint64_t bytes, uint64_t charged, bool complete);

/* `bytes` of the live block are elsewhere from now on; with the base's lock held, before their memory is given up. They
 * may stay promised to the account. */
void wi_ledger_leave(wi_ledger *ledger, wi_block *block, uint64_t bytes, bool stays_promised);
/* A block begins live and away, with nothing claimed for it; with the base's lock held. */
void wi_ledger_begin_away(wi_ledger *ledger, wi_block *block);
/* So many of the block's away bytes are back behind `stream`, and claimed by `promised`; with the base's lock held. */
void wi_ledger_return(wi_ledger *ledger, wi_block *block, uint64_t bytes, weir_stream stream);
/* So many bytes more (or less, as a wrapped number) of the account are elsewhere, which were freed for that. */
void wi_ledger_elsewhere(wi_ledger *ledger, wi_account *account, uint64_t more);
/* Gives up what the account is guaranteed, and remembers it; gives it back, which fails as wi_ledger_set_limits does. */
void wi_ledger_give_up_guarantee(wi_ledger *ledger, wi_account *account);
weir_status wi_ledger_guarantee_again(wi_ledger *ledger, wi_account *account);

/* Begins an exchange: the account is about to leave with `leaves` bytes. With `gives_up` the account's guarantee is given
 * up; *owed, the unused bytes of the guarantee, are promised to the account. Returns how many bytes can pass to another
 * account by the end. */
uint64_t wi_ledger_begin_exchange(wi_ledger *ledger, wi_account *account, uint64_t leaves, bool gives_up,
                                  uint64_t *owed);
/* Bytes that are promised to the one account are promised to the other. False: limits forbid it; nothing has changed. */
bool wi_ledger_pass(wi_ledger *ledger, wi_account *from, wi_account *to, uint64_t bytes);

/* Merges a delta of the account's into the sums and empties it. The lock is held. */
void wi_ledger_merge(wi_ledger *ledger, wi_account *account, wi_delta *delta);
/* Merges all deltas. With the lock held. */
void wi_ledger_merge_all(wi_ledger *ledger);
/* Flushes thread caches, as a request does not fit. Returns the bytes. No lock is held. */
uint64_t wi_ledger_flush_tcaches(wi_ledger *ledger);
/* Counts bytes that a thread has flushed from its own cache for its request. */
void wi_ledger_note_emptied(wi_ledger *ledger, uint64_t bytes);

/* Physical memory is about to be created. Grants as much of `bytes` as the budget leaves, in whole granules, and
 * returns it. It counts as spare until it is mapped. */
uint64_t wi_ledger_hold(wi_ledger *ledger, uint64_t bytes);
/* How many bytes wi_ledger_hold would grant. *held: bytes held or set aside now; *allocations: allocations so far. */
uint64_t wi_ledger_room(wi_ledger *ledger, uint64_t *held, uint64_t *allocations);
void wi_ledger_release(wi_ledger *ledger, uint64_t bytes);  /* spare bytes are back with the driver */
void wi_ledger_mapped(wi_ledger *ledger, uint64_t bytes);   /* spare -> cached */
void wi_ledger_unmapped(wi_ledger *ledger, uint64_t bytes); /* cached -> spare */
/* Sets bytes aside, which only wi_ledger_hold_aside can hold from then on. False: more is held than leaves room. The
 * bytes are granules. */
bool wi_ledger_set_aside(wi_ledger *ledger, uint64_t bytes);
void wi_ledger_give_aside(wi_ledger *ledger, uint64_t bytes);    /* anybody may hold them again */
void wi_ledger_hold_aside(wi_ledger *ledger, uint64_t bytes);    /* wi_ledger_hold, out of what is set aside */
void wi_ledger_release_aside(wi_ledger *ledger, uint64_t bytes); /* wi_ledger_release; they are set aside again */
void wi_ledger_driver_call(wi_ledger *ledger);
/* Counts segments that the driver has made, and segments given back to the driver. */
void wi_ledger_segments(wi_ledger *ledger, uint64_t made, uint64_t ended);
void wi_ledger_worked(wi_ledger *ledger, uint64_t calls, uint64_t created, uint64_t moved);

/* What the ledger had at a moment: the numbers of a refusal, before the request. */
typedef struct wi_ledger_seen {
    uint64_t budget, others, mine; /* `others`: bytes that other accounts use or are guaranteed */
    uint64_t guaranteed, maximum;
    struct {
        char client[64];
        uint64_t bytes;
    } top[WEIR_REFUSAL_HOLDERS]; /* who has most, as in a refusal */
} wi_ledger_seen;

/* Why a request was refused, as the resource sees it. */
typedef struct wi_shortage {
    weir_refusal_cause cause; /* WEIR_CAUSE_NONE: a limit of the ledger, which finds the cause itself */
    uint64_t largest;         /* the largest block that could be placed now */
    uint64_t later;           /* the same once the device is past all frees; 0: no frees are pending */
    uint64_t held;            /* bytes that would have to be held to place the request */
    bool mappings;            /* WEIR_CAUSE_ADDRESS_RANGE: the process has too many mappings */
    const char *words;        /* WEIR_CAUSE_ADAPTOR: whose, and why */
    /* WEIR_CAUSE_RESERVATION: `largest` is what is left of the reservation, `held` its total */
    /* The account of the request, and the bytes promised to the account for this request alone. NULL: the ledger's
     * numbers are from the moment of the refusal. */
    const wi_account *asker;
    uint64_t claimed;
    bool was_seen; /* `seen` is of the moment of `largest`, `later` and `held` */
    wi_ledger_seen seen;
} wi_shortage;

/* Nothing is known of it yet. */
static inline void wi_shortage_begin(wi_shortage *shortage, const wi_account *asker, uint64_t claimed)
{
    shortage->cause = WEIR_CAUSE_NONE;
    shortage->largest = shortage->later = shortage->held = 0;
    shortage->mappings = shortage->was_seen = false;
    shortage->words = NULL;
    shortage->asker = asker;
    shortage->claimed = claimed;
}

/* A base that looks at what could be placed sees the ledger's side of it, while its own lock is held. */
void wi_ledger_see(wi_ledger *ledger, wi_shortage *shortage);

typedef struct wi_request {
    uint64_t bytes, charged; /* requested; charged for that */
    weir_class memory_class;
    weir_stream stream;
    const char *tag;
    /* For the numbers of a refusal, which are from before the request: the bytes promised by now for this request
     * alone, and the bytes promised for the request beforehand, which count as left for it. */
    uint64_t claimed, reserved;
} wi_request;

/* Puts back what weir_refusal_last had answered, after calls that are no part of the caller's own. */
void wi_refusal_restore(const weir_refusal *saved);

/* Refuses the request: counts it, traces it, and sets this thread's last refusal and detail. */
weir_status wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                             const wi_shortage *shortage);
/* The same for a request whose claim has failed: one step claims the bytes that are still missing, if possible by now,
 * or refuses the request. So the numbers of a refusal are from a moment at which the request did not fit. WEIR_OK: the
 * bytes are claimed. */
weir_status wi_ledger_claim_or_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                      const wi_shortage *shortage);

/* Totals that need no merge of deltas: a read costs other threads nothing. */
typedef struct wi_standing {
    uint64_t budget, held, pending;
    uint64_t aside;
    uint64_t kept; /* part of the pending bytes */
    uint32_t accounts;
} wi_standing;
wi_standing wi_ledger_look(wi_ledger *ledger);

void wi_ledger_snapshot(wi_ledger *ledger, weir_stats *out, weir_client_stats *clients, size_t stride, size_t capacity,
                        size_t *count);
void wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out);
void wi_ledger_reset_peaks(wi_ledger *ledger);
/* Reads every gauge except the gauges of split chunks. */
void wi_ledger_gauges(wi_ledger *ledger, weir_memory_stats *out);
void wi_ledger_reset_accumulated(wi_ledger *ledger);
void wi_ledger_note_outside(wi_ledger *ledger, wi_account *account, uint64_t bytes, const char *method);
/* The most that was live and pending of the client's at once. */
uint64_t wi_ledger_peak(wi_ledger *ledger, const wi_account *account);
/* What was predicted for it. */
void wi_ledger_note_predicted(wi_ledger *ledger, wi_account *account, uint64_t bytes);

/* ---- events.c: recording ----------------------------------------------------------------------------------------- */

/* Every event is recorded under the ledger's lock, in the step that the event tells of. So the events of a runtime have
 * one order. */

/* Reads the flags without the lock. A trace that opens meanwhile misses this event, which then happened before it. */
static inline unsigned wi_recording(const wi_ledger *ledger)
{
    return atomic_load_explicit(&ledger->recording, memory_order_relaxed);
}

/* Records an event. Adds what the ledger, the clock and `block` (may be NULL) know. The lock is held, and a ring is
 * there. */
void wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block);
void wi_record(wi_ledger *ledger, weir_event event, const wi_block *block);
/* The same into a ring that is not in the ledger's list; *ring, which may be NULL, is read under the lock. */
void wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block);

/* Adds a ring. In the same step it gets an event for each live block, so that the trace is complete from there on.
 * wi_record_no_more removes it. */
void wi_record_into(wi_ledger *ledger, wi_events *events);
void wi_record_no_more(wi_ledger *ledger, wi_events *events);

/* ---- gauges ------------------------------------------------------------------------------------------------------ */

/* Gauges: statistics under PyTorch's names: the current amount, its peak, and the totals that came and went. A gauge
 * may read below zero until thread-local deltas are merged (ledger.h); that is never a peak. */

static inline void wi_gauge_reach(weir_gauge *gauge, uint64_t level)
{
    if ((int64_t)level > (int64_t)gauge->peak)
        gauge->peak = level;
}

static inline void wi_gauge_up(weir_gauge *gauge, uint64_t by)
{
    gauge->current += by;
    gauge->allocated += by;
    wi_gauge_reach(gauge, gauge->current);
}

static inline void wi_gauge_down(weir_gauge *gauge, uint64_t by)
{
    gauge->current -= by;
    gauge->freed += by;
}

/* Merges a delta: what came and went, and how far the value was above its old one meanwhile. */
static inline void wi_gauge_merge(weir_gauge *gauge, uint64_t came, uint64_t went, uint64_t high)
{
    wi_gauge_reach(gauge, gauge->current + high);
    gauge->current += came - went;
    gauge->allocated += came;
    gauge->freed += went;
}

static inline void wi_gauge_forget_peak(weir_gauge *gauge)
{
    gauge->peak = gauge->current;
}

static inline void wi_gauge_forget_past(weir_gauge *gauge)
{
    gauge->allocated = gauge->freed = 0;
}

#endif
