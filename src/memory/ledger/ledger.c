/* The ledger: every step checks the limits and changes all sums under one lock. Snapshots are in snapshot.c, refusals
 * in refusal.c. */
#include "memory/ledger/ledger.h"
#include <weir/trace.h>

static uint64_t ledger_used(const wi_account *account)
{
    return account->live + account->pending + account->promised + account->thread_cached;
}

/* What the account would use if all pending frees were complete. Bytes that capture pools keep stay. */
static uint64_t ledger_used_for_long(const wi_account *account)
{
    return account->live + account->promised + account->kept;
}

static uint64_t ledger_commitment(const wi_account *account)
{
    return wi_max(ledger_used(account), account->guaranteed);
}

#ifdef WEIR_INVARIANTS
static void ledger_check(const wi_ledger *ledger)
{
    uint64_t live = 0, pending = 0, promised = 0, thread_cached = 0, guaranteed = 0, committed = 0, away = 0;
    for (const wi_account *a = ledger->first; a; a = a->next) {
        uint64_t live_classes = 0, pending_classes = 0;
        for (int c = 0; c < WEIR_CLASS_COUNT; c++) {
            live_classes += a->live_class[c];
            pending_classes += a->pending_class[c];
        }
        wi_assert(a->live == live_classes && a->pending == pending_classes && a->kept <= a->pending);
        wi_assert(ledger_used(a) <= a->maximum);
        live += a->live;
        pending += a->pending;
        promised += a->promised;
        thread_cached += a->thread_cached;
        guaranteed += a->guaranteed;
        committed += ledger_commitment(a);
        away += a->away;
    }
    wi_assert(ledger->live == live && ledger->pending == pending && ledger->promised == promised);
    wi_assert(ledger->away == away);
    wi_assert(ledger->thread_cached == thread_cached);
    wi_assert(ledger->guaranteed == guaranteed && ledger->committed == committed);
    wi_assert(committed <= ledger->budget);
    wi_assert(ledger->held + ledger->aside <= ledger->budget && ledger->spare <= ledger->held);
    wi_assert(live + pending + thread_cached <= ledger->held - ledger->spare);
}
#else
static void ledger_check(const wi_ledger *ledger)
{
    (void)ledger;
}
#endif

static void ledger_enter(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
}

static void ledger_leave(wi_ledger *ledger)
{
    wi_assert(pthread_mutex_trylock(&ledger->lock) != 0); /* it is held */
    ledger_check(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

void wi_ledger_init(wi_ledger *ledger, const char *device, uint64_t budget, uint64_t granule)
{
    *ledger = (wi_ledger){.device = device, .budget = budget, .granule = granule};
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_mutex_init(&ledger->members_lock, NULL);
    wi_pressures_init(&ledger->pressures);
}

void wi_ledger_destroy(wi_ledger *ledger)
{
    wi_assert(!ledger->first_member);
    wi_pressures_destroy(&ledger->pressures);
    pthread_mutex_destroy(&ledger->members_lock);
    pthread_mutex_destroy(&ledger->lock);
}

/* The lock is held, so that a load and a store are enough. */
static void ledger_freed(wi_ledger *ledger, uint64_t bytes)
{
    uint64_t before = atomic_load_explicit(&ledger->freed, memory_order_relaxed);
    atomic_store_explicit(&ledger->freed, before + bytes, memory_order_relaxed);
}

/* Every change of an account's used bytes goes through here, so that `committed` follows. A decrease is added as a
 * wrapped unsigned number. */
static inline void ledger_shift(wi_ledger *ledger, wi_account *account, uint64_t live, uint64_t pending,
                                uint64_t promised)
{
    uint64_t before = ledger_commitment(account), more = live + pending + promised;
    ledger_freed(ledger, (int64_t)more < 0 ? -more : 0);
    account->live += live;
    account->pending += pending;
    account->promised += promised;
    ledger->live += live;
    ledger->pending += pending;
    ledger->promised += promised;
    ledger->committed += ledger_commitment(account) - before;
}

/* Whether the sums by class can be read. Until deltas are merged they may be below zero, and must not become a peak. */
static bool ledger_classes_known(const wi_account *account)
{
    bool known = true;
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        known &= (int64_t)(account->live_class[c] + account->pending_class[c]) >= 0;
    return known;
}

/* `more`, and more_class unless NULL: bytes above the present ones that were live for a moment. */
static void ledger_raise_peaks(wi_ledger *ledger, wi_account *account, int64_t more, const int64_t *more_class)
{
    int64_t all = (int64_t)(ledger->live + ledger->pending) + more;
    int64_t own = (int64_t)(account->live + account->pending) + more;
    if (all > (int64_t)ledger->peak)
        ledger->peak = (uint64_t)all;
    if (own <= (int64_t)account->peak || !ledger_classes_known(account))
        return;
    account->peak = (uint64_t)own;
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        account->peak_class[c] =
            account->live_class[c] + account->pending_class[c] + (more_class ? (uint64_t)more_class[c] : 0);
}

static void ledger_trace(wi_ledger *ledger, weir_action action, const wi_block *block, weir_stream stream)
{
    if (wi_unlikely(ledger->events))
        wi_record_locked(
            ledger, (weir_event){.action = action, .stream = stream, .other = block ? block->stream : stream}, block);
}

static void ledger_trace_held(wi_ledger *ledger)
{
    if (wi_unlikely(ledger->events))
        wi_record_locked(ledger, (weir_event){.action = WEIR_ACTION_HOLD, .object = ledger->budget}, NULL);
}

/* Accounts --------------------------------------------------------------------------------------------------------- */

weir_status wi_ledger_open(wi_ledger *ledger, wi_account *account)
{
    static atomic_uint_fast64_t last_serial;
    weir_status status = WEIR_OK;
    char wanted[24], left[24];
    ledger_enter(ledger);
    if (account->guaranteed > ledger->budget - ledger->committed) {
        status = weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                           "%s cannot be guaranteed %s: %s of the budget are neither used nor "
                           "guaranteed to others; lower the guarantee or raise the budget",
                           account->name, weir_size_format(account->guaranteed, wanted, sizeof wanted),
                           weir_size_format(ledger->budget - ledger->committed, left, sizeof left));
    } else {
        account->previous = ledger->last;
        account->next = NULL;
        account->open = true;
        account->serial = atomic_fetch_add(&last_serial, 1) + 1;
        *(ledger->last ? &ledger->last->next : &ledger->first) = account;
        ledger->last = account;
        ledger->accounts++;
        ledger->guaranteed += account->guaranteed;
        ledger->committed += ledger_commitment(account);
    }
    ledger_leave(ledger);
    return status;
}

weir_status wi_ledger_close(wi_ledger *ledger, wi_account *account)
{
    weir_status status = WEIR_OK;
    ledger_enter(ledger);
    wi_ledger_merge_all(ledger);
    if (ledger_used(account) + account->away != 0) {
        char text[24];
        weir_size_format(ledger_used(account) + account->away, text, sizeof text);
        status = account->blocks > 0
                     ? weir_fail(WEIR_ERR_BUSY, "%s has %llu blocks of %s; free them before closing it", account->name,
                                 (unsigned long long)account->blocks, text)
                     : weir_fail(WEIR_ERR_BUSY,
                                 "%s has %s that are freed or asked for and that the device still uses; "
                                 "close it when that work is done",
                                 account->name, text);
    } else {
        ledger->guaranteed -= account->guaranteed;
        ledger->committed -= ledger_commitment(account);
        *(account->previous ? &account->previous->next : &ledger->first) = account->next;
        *(account->next ? &account->next->previous : &ledger->last) = account->previous;
        account->open = false;
        ledger->accounts--;
    }
    ledger_leave(ledger);
    return status;
}

weir_status wi_ledger_set_limits(wi_ledger *ledger, wi_account *account, uint64_t guaranteed, uint64_t maximum)
{
    weir_status status = WEIR_OK;
    char wanted[24], there[24];
    ledger_enter(ledger);
    uint64_t others = ledger->committed - ledger_commitment(account);
    if (ledger_used(account) > maximum) {
        status = weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s cannot have a maximum of %s: %s are live, pending or promised",
                           account->name, weir_size_format(maximum, wanted, sizeof wanted),
                           weir_size_format(ledger_used(account), there, sizeof there));
    } else if (wi_max(ledger_used(account), guaranteed) > ledger->budget - others) {
        status = weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                           "%s cannot be guaranteed %s: the others use or are guaranteed %s of the "
                           "budget",
                           account->name, weir_size_format(guaranteed, wanted, sizeof wanted),
                           weir_size_format(others, there, sizeof there));
    } else {
        ledger->guaranteed += guaranteed - account->guaranteed;
        account->guaranteed = guaranteed;
        account->maximum = maximum;
        ledger->committed = others + ledger_commitment(account);
    }
    ledger_leave(ledger);
    return status;
}

weir_status wi_ledger_set_budget(wi_ledger *ledger, uint64_t budget, bool *held)
{
    weir_status status = WEIR_OK;
    char wanted[24], there[24];
    ledger_enter(ledger);
    uint64_t floor = wi_max(ledger->committed, ledger->held + ledger->aside);
    if (held)
        *held = budget >= ledger->committed && budget < ledger->held + ledger->aside;
    if (floor > budget)
        status =
            weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the budget cannot be %s: %s are %s",
                      weir_size_format(budget, wanted, sizeof wanted), weir_size_format(floor, there, sizeof there),
                      floor == ledger->committed ? "used by clients or guaranteed to them"
                                                 : "held in handles that live blocks share");
    else
        ledger->budget = budget;
    ledger_leave(ledger);
    return status;
}

bool wi_ledger_float(wi_ledger *ledger, uint64_t now, uint64_t *budget)
{
    ledger_enter(ledger);
    bool same = ledger->budget == now;
    if (same)
        *budget = ledger->budget = wi_max(*budget, wi_max(ledger->committed, ledger->held + ledger->aside));
    ledger_leave(ledger);
    return same;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* Enforces the budget (the memory limit of the device), the client's maximum and the guarantees of others: whether
 * `bytes` more stay within them. */
static bool ledger_fits(const wi_ledger *ledger, const wi_account *account, uint64_t used_now, uint64_t committed,
                        uint64_t bytes)
{
    if (bytes > account->maximum || used_now > account->maximum - bytes)
        return false;
    uint64_t grown = wi_max(used_now + bytes, account->guaranteed) - wi_max(used_now, account->guaranteed);
    return grown <= ledger->budget - committed;
}

/* What the device would be committed to if all pending frees were complete, except what capture pools keep. */
static uint64_t ledger_committed_without_pending(const wi_ledger *ledger)
{
    uint64_t committed = 0;
    for (const wi_account *a = ledger->first; a; a = a->next)
        committed += wi_max(ledger_used_for_long(a), a->guaranteed);
    return committed;
}

bool wi_ledger_claim_locked(wi_ledger *ledger, wi_account *account, uint64_t bytes)
{
    bool claimed = account->open && ledger_fits(ledger, account, ledger_used(account), ledger->committed, bytes);
    if (claimed)
        ledger_shift(ledger, account, 0, 0, bytes);
    return claimed;
}

bool wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could)
{
    ledger_enter(ledger);
    bool claimed = wi_ledger_claim_locked(ledger, account, bytes);
    if (!claimed) {
        wi_ledger_merge_all(ledger);
        *could = account->open && ledger_fits(ledger, account, ledger_used_for_long(account),
                                              ledger_committed_without_pending(ledger), bytes);
    }
    ledger_leave(ledger);
    return claimed;
}

uint64_t wi_ledger_left(wi_ledger *ledger, const wi_account *account)
{
    ledger_enter(ledger);
    uint64_t mine = ledger_used(account), owed = account->guaranteed - wi_min(account->guaranteed, mine);
    uint64_t under_maximum = account->maximum - wi_min(account->maximum, mine);
    uint64_t left = account->open ? wi_min(under_maximum, ledger->budget - ledger->committed + owed) : 0;
    ledger_leave(ledger);
    return left;
}

bool wi_ledger_is_open(wi_ledger *ledger, const wi_account *account)
{
    ledger_enter(ledger);
    bool open = account->open;
    ledger_leave(ledger);
    return open;
}

void wi_ledger_cancel(wi_ledger *ledger, wi_account *account, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger_shift(ledger, account, 0, 0, -bytes);
    ledger_leave(ledger);
}

static inline void gauge_active(wi_ledger *ledger, uint64_t bytes, bool more)
{
    weir_memory_stats *g = &ledger->gauges;
    if (more) {
        wi_gauge_up(&g->active_bytes, bytes);
        wi_gauge_up(&g->active, 1);
    } else {
        wi_gauge_down(&g->active_bytes, bytes);
        wi_gauge_down(&g->active, 1);
    }
}

/* GAUGE_AGAIN: a pending block is live again. Freed bytes stay active until gauge_active takes them off. */
typedef enum gauge_what { GAUGE_NEW, GAUGE_AGAIN, GAUGE_FREED } gauge_what;

static inline void gauge_block(wi_ledger *ledger, const wi_block *block, gauge_what what)
{
    weir_memory_stats *g = &ledger->gauges;
    if (what == GAUGE_FREED) {
        wi_gauge_down(&g->allocated_bytes, block->charged);
        wi_gauge_down(&g->requested_bytes, block->bytes);
        wi_gauge_down(&g->allocation, 1);
    } else {
        wi_gauge_up(&g->allocated_bytes, block->charged);
        wi_gauge_up(&g->requested_bytes, block->bytes);
        wi_gauge_up(&g->allocation, 1);
    }
    if (what == GAUGE_NEW)
        gauge_active(ledger, block->charged, true);
}

static void gauge_resize(wi_ledger *ledger, const wi_block *block, uint64_t bytes, uint64_t charged, bool complete)
{
    weir_memory_stats *g = &ledger->gauges;
    if (bytes > block->bytes)
        wi_gauge_up(&g->requested_bytes, bytes - block->bytes);
    else
        wi_gauge_down(&g->requested_bytes, block->bytes - bytes);
    if (charged > block->charged) {
        wi_gauge_up(&g->allocated_bytes, charged - block->charged);
        wi_gauge_up(&g->active_bytes, charged - block->charged);
    } else {
        wi_gauge_down(&g->allocated_bytes, block->charged - charged);
        if (complete)
            wi_gauge_down(&g->active_bytes, block->charged - charged);
        else if (charged < block->charged)
            wi_gauge_up(&g->active, 1); /* of the tail that was cut off */
    }
}

static void gauge_delta(weir_memory_stats *g, const wi_delta *d)
{
    uint64_t given = d->taken - (uint64_t)d->live, high = (uint64_t)d->high;
    wi_gauge_merge(&g->allocated_bytes, d->taken, given, high);
    wi_gauge_merge(&g->active_bytes, d->taken, given, high);
    wi_gauge_merge(&g->requested_bytes, d->requested, d->returned, d->high_requested);
    wi_gauge_merge(&g->allocation, d->hits, d->frees, d->high_blocks);
    wi_gauge_merge(&g->active, d->hits, d->frees, d->high_blocks);
}

/* The block's bytes are live, and its account's. */
static void ledger_publish(wi_ledger *ledger, wi_block *block, gauge_what what)
{
    wi_account *account = block->account;
    account->live_class[block->memory_class] += block->charged;
    account->blocks++;
    account->allocations++;
    ledger->allocations++;
    ledger->ladder[block->rung]++;
    ledger->lent_clients += block->lent & WI_LENT_CLIENT ? block->charged : 0;
    ledger->lent_streams += block->lent & WI_LENT_STREAM ? block->charged : 0;
    gauge_block(ledger, block, what);
    ledger_raise_peaks(ledger, account, 0, NULL);
    ledger_trace(ledger, WEIR_ACTION_ALLOCATE, block, block->stream);
    wi_block_set_phase(block, WI_LIVE); /* under the lock: a trace that opens now finds it live, or records this */
}

void wi_ledger_commit(wi_ledger *ledger, wi_block *block)
{
    wi_account *account = block->account;
    bool again = wi_block_phase_of(block) == WI_PENDING;
    ledger_enter(ledger);
    ledger_shift(ledger, account, block->charged, again ? -block->charged : 0, again ? 0 : -block->charged);
    if (again)
        account->pending_class[block->memory_class] -= block->charged;
    ledger_publish(ledger, block, again ? GAUGE_AGAIN : GAUGE_NEW);
    ledger_leave(ledger);
}

bool wi_ledger_place(wi_ledger *ledger, wi_account *account, uint64_t bytes, wi_block *(*make)(void *user), void *user)
{
    ledger_enter(ledger);
    bool fits = account->open && ledger_fits(ledger, account, ledger_used(account), ledger->committed, bytes);
    if (fits) {
        wi_block *block = make(user);
        wi_assert(block->charged == bytes);
        ledger_shift(ledger, account, bytes, 0, 0);
        ledger_publish(ledger, block, GAUGE_NEW);
    }
    ledger_leave(ledger);
    return fits;
}

/* Turns thread-cached bytes into live ones, or back with a wrapped number. */
static void ledger_shift_cached(wi_ledger *ledger, wi_account *account, uint64_t live)
{
    account->live += live;
    account->thread_cached -= live;
    ledger->live += live;
    ledger->thread_cached -= live;
}

static void ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past)
{
    wi_account *account = block->account;
    bool complete = past != WI_UNPASSED, thread_cached = wi_block_phase_of(block) == WI_THREAD_CACHED;
    if (thread_cached)
        ledger_shift_cached(ledger, account, block->charged);
    uint64_t here = block->charged - block->away; /* nothing of a block that is away is pending */
    wi_assert(block->away == 0 || (complete && !thread_cached));
    ledger_shift(ledger, account, -here, complete ? 0 : here, 0);
    account->away -= block->away;
    ledger->away -= block->away;
    if (!thread_cached) {
        account->live_class[block->memory_class] -= here;
        account->blocks--;
        account->frees++;
        ledger->frees++;
        gauge_block(ledger, block, GAUGE_FREED);
    }
    if (!complete)
        account->pending_class[block->memory_class] += block->charged;
    if (complete != thread_cached)
        gauge_active(ledger, block->charged, thread_cached);
    if (thread_cached && !complete)
        ledger_raise_peaks(ledger, account, 0, NULL);
    if (wi_unlikely(ledger->events))
        wi_record_locked(ledger,
                         (weir_event){.action = WEIR_ACTION_DEALLOCATE,
                                      .stream = stream,
                                      .other = block->stream,
                                      .object = past == WI_IN_ORDER},
                         block);
}

void wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past)
{
    ledger_enter(ledger);
    ledger_retire(ledger, block, stream, past);
    ledger_leave(ledger);
}

void wi_ledger_retire_list(wi_ledger *ledger, const wi_block *list, size_t count, weir_stream stream)
{
    ledger_enter(ledger);
    for (size_t i = 0; i < count; i++, list = list->pending_next)
        ledger_retire(ledger, list, stream, WI_IN_ORDER);
    ledger_leave(ledger);
}

void wi_ledger_reap(wi_ledger *ledger, const wi_block *block)
{
    ledger_enter(ledger);
    ledger_shift(ledger, block->account, 0, -block->charged, 0);
    block->account->pending_class[block->memory_class] -= block->charged;
    gauge_active(ledger, block->charged, false);
    ledger_trace(ledger, WEIR_ACTION_REAP, block, block->stream);
    ledger_leave(ledger);
}

void wi_ledger_reap_promised(wi_ledger *ledger, const wi_block *block)
{
    ledger_enter(ledger);
    ledger_shift(ledger, block->account, 0, -block->charged, block->charged);
    block->account->pending_class[block->memory_class] -= block->charged;
    gauge_active(ledger, block->charged, false);
    ledger_trace(ledger, WEIR_ACTION_REAP, block, block->stream);
    ledger_leave(ledger);
}

void wi_ledger_keep(wi_ledger *ledger, const wi_block *block)
{
    ledger_enter(ledger);
    block->account->kept += block->charged;
    ledger_leave(ledger);
}

void wi_ledger_let_go(wi_ledger *ledger, const wi_block *block, weir_class memory_class)
{
    wi_account *account = block->account;
    ledger_enter(ledger);
    account->kept -= block->charged;
    account->pending_class[block->memory_class] -= block->charged;
    account->pending_class[memory_class] += block->charged;
    ledger_leave(ledger);
}

/* Adds `more` to the kept bytes, as a wrapped number when they shrink. */
static void ledger_shift_kept(wi_ledger *ledger, const wi_block *block, uint64_t more)
{
    ledger_enter(ledger);
    ledger_shift(ledger, block->account, 0, more, 0);
    block->account->pending_class[block->memory_class] += more;
    block->account->kept += more;
    wi_gauge_down(&ledger->gauges.active_bytes, -more);
    ledger_leave(ledger);
}

void wi_ledger_resize(wi_ledger *ledger, const wi_block *block, uint64_t bytes, uint64_t charged, bool complete)
{
    wi_account *account = block->account;
    uint64_t more = charged - block->charged; /* a wrapped number when the block shrinks */
    bool grows = charged > block->charged;
    if (wi_block_phase_of(block) == WI_PENDING) {
        ledger_shift_kept(ledger, block, complete ? more : 0);
        return;
    }
    ledger_enter(ledger);
    ledger_shift(ledger, account, more, grows || complete ? 0 : -more, grows ? -more : 0);
    account->live_class[block->memory_class] += more;
    if (!grows && !complete)
        account->pending_class[block->memory_class] -= more;
    gauge_resize(ledger, block, bytes, charged, complete);
    ledger_raise_peaks(ledger, account, 0, NULL);
    wi_block now = wi_block_copy(block);
    now.bytes = bytes;
    now.charged = charged;
    ledger_trace(ledger, WEIR_ACTION_RESIZE, &now, block->stream);
    ledger_leave(ledger);
}

/* Away ------------------------------------------------------------------------------------------------------------- */

void wi_ledger_leave(wi_ledger *ledger, wi_block *block, uint64_t bytes, bool stays_promised)
{
    wi_account *account = block->account;
    ledger_enter(ledger);
    ledger_shift(ledger, account, -bytes, 0, stays_promised ? bytes : 0);
    account->live_class[block->memory_class] -= bytes;
    account->away += bytes;
    ledger->away += bytes;
    block->away += bytes;
    if (wi_unlikely(ledger->events))
        wi_record_locked(
            ledger, (weir_event){.action = WEIR_ACTION_LEAVE, .other = block->stream, .object = block->away}, block);
    ledger_leave(ledger);
}

/* In a trace it is allocated, and leaves at once. */
void wi_ledger_begin_away(wi_ledger *ledger, wi_block *block)
{
    wi_account *account = block->account;
    ledger_enter(ledger);
    block->away = block->charged;
    account->away += block->away;
    ledger->away += block->away;
    ledger_publish(ledger, block, GAUGE_NEW);
    account->live_class[block->memory_class] -= block->charged;
    if (wi_unlikely(ledger->events))
        wi_record_locked(
            ledger, (weir_event){.action = WEIR_ACTION_LEAVE, .other = block->stream, .object = block->away}, block);
    ledger_leave(ledger);
}

void wi_ledger_return(wi_ledger *ledger, wi_block *block, uint64_t bytes, weir_stream stream)
{
    wi_account *account = block->account;
    ledger_enter(ledger);
    ledger_shift(ledger, account, bytes, 0, -bytes);
    account->live_class[block->memory_class] += bytes;
    account->away -= bytes;
    ledger->away -= bytes;
    block->away -= bytes;
    ledger_raise_peaks(ledger, account, 0, NULL);
    if (wi_unlikely(ledger->events))
        wi_record_locked(
            ledger,
            (weir_event){.action = WEIR_ACTION_RETURN, .stream = stream, .other = block->stream, .object = bytes},
            block);
    ledger_leave(ledger);
}

void wi_ledger_elsewhere(wi_ledger *ledger, wi_account *account, uint64_t more)
{
    ledger_enter(ledger);
    account->away += more;
    ledger->away += more;
    ledger_leave(ledger);
}

void wi_ledger_give_up_guarantee(wi_ledger *ledger, wi_account *account)
{
    ledger_enter(ledger);
    uint64_t before = ledger_commitment(account);
    account->guaranteed_away = account->guaranteed;
    ledger->guaranteed -= account->guaranteed;
    account->guaranteed = 0;
    ledger->committed += ledger_commitment(account) - before;
    ledger_freed(ledger, before - ledger_commitment(account));
    ledger_leave(ledger);
}

weir_status wi_ledger_guarantee_again(wi_ledger *ledger, wi_account *account)
{
    weir_status status = wi_ledger_set_limits(ledger, account, account->guaranteed_away, account->maximum);
    if (status == WEIR_OK)
        account->guaranteed_away = 0;
    return status;
}

uint64_t wi_ledger_begin_exchange(wi_ledger *ledger, wi_account *account, uint64_t leaves, bool gives_up,
                                  uint64_t *owed)
{
    ledger_enter(ledger);
    uint64_t used = ledger_used(account);
    *owed = gives_up ? wi_min(account->guaranteed, account->maximum) - wi_min(account->guaranteed, used) : 0;
    if (gives_up) {
        uint64_t before = ledger_commitment(account);
        account->guaranteed_away = account->guaranteed;
        ledger->guaranteed -= account->guaranteed;
        account->guaranteed = 0;
        account->promised += *owed;
        ledger->promised += *owed;
        ledger->committed += ledger_commitment(account) - before;
    }
    uint64_t rest = used - wi_min(used, leaves), after = wi_max(rest, account->guaranteed);
    ledger_leave(ledger);
    return *owed + used - wi_min(used, after);
}

bool wi_ledger_pass(wi_ledger *ledger, wi_account *from, wi_account *to, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger_shift(ledger, from, 0, 0, -bytes);
    bool passed = wi_ledger_claim_locked(ledger, to, bytes);
    if (!passed)
        ledger_shift(ledger, from, 0, 0, bytes);
    ledger_leave(ledger);
    return passed;
}

/* Thread-cached bytes ---------------------------------------------------------------------------------------------- */

void wi_ledger_merge(wi_ledger *ledger, wi_account *account, wi_delta *delta)
{
    ledger_raise_peaks(ledger, account, delta->high, delta->high_class);
    ledger_shift_cached(ledger, account, (uint64_t)delta->live);
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        account->live_class[c] += (uint64_t)delta->live_class[c];
    account->blocks += delta->hits - delta->frees;
    account->allocations += delta->hits;
    account->hits += delta->hits;
    account->frees += delta->frees;
    ledger->allocations += delta->hits;
    ledger->frees += delta->frees;
    ledger->hits += delta->hits;
    gauge_delta(&ledger->gauges, delta);
    *delta = (wi_delta){0};
}

void wi_ledger_merge_all(wi_ledger *ledger)
{
    if (!ledger->tcache_hooks.merge)
        return;
    ledger->tcache_hooks.merge(ledger->tcache_hooks.user);
    for (wi_account *a = ledger->first; a; a = a->next)
        ledger_raise_peaks(ledger, a, 0, NULL);
}

uint64_t wi_ledger_flush_tcaches(wi_ledger *ledger)
{
    if (!ledger->tcache_hooks.flush)
        return 0;
    uint64_t bytes = ledger->tcache_hooks.flush(ledger->tcache_hooks.user);
    wi_ledger_note_emptied(ledger, bytes);
    return bytes;
}

void wi_ledger_note_emptied(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger->emptied += bytes;
    ledger_leave(ledger);
}

/* Physical memory -------------------------------------------------------------------------------------------------- */

static void ledger_hold(wi_ledger *ledger, uint64_t bytes)
{
    ledger->held += bytes;
    ledger->spare += bytes;
    ledger->peak_held = wi_max(ledger->peak_held, ledger->held);
    wi_gauge_up(&ledger->gauges.reserved_bytes, bytes);
    if (bytes)
        ledger_trace_held(ledger);
}

uint64_t wi_ledger_hold(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    uint64_t room = ledger->budget - ledger->held - ledger->aside;
    uint64_t taken = bytes <= room ? bytes : room & ~(ledger->granule - 1);
    ledger_hold(ledger, taken);
    ledger_leave(ledger);
    return taken;
}

uint64_t wi_ledger_room(wi_ledger *ledger, uint64_t *held, uint64_t *allocations)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t room = ledger->budget - ledger->held - ledger->aside;
    *held = ledger->held + ledger->aside;
    *allocations = ledger->allocations;
    pthread_mutex_unlock(&ledger->lock);
    return room;
}

static void ledger_release(wi_ledger *ledger, uint64_t bytes)
{
    ledger->held -= bytes;
    ledger->spare -= bytes;
    ledger_freed(ledger, bytes);
    wi_gauge_down(&ledger->gauges.reserved_bytes, bytes);
    if (bytes)
        ledger_trace_held(ledger);
}

void wi_ledger_release(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger_release(ledger, bytes);
    ledger_leave(ledger);
}

bool wi_ledger_set_aside(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    bool room = bytes <= ledger->budget - ledger->held - ledger->aside;
    ledger->aside += room ? bytes : 0;
    ledger_leave(ledger);
    return room;
}

void wi_ledger_give_aside(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger->aside -= bytes;
    ledger_freed(ledger, bytes);
    ledger_leave(ledger);
}

void wi_ledger_hold_aside(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    wi_assert(bytes <= ledger->aside);
    ledger->aside -= bytes;
    ledger_hold(ledger, bytes);
    ledger_leave(ledger);
}

void wi_ledger_release_aside(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger_release(ledger, bytes);
    ledger->aside += bytes;
    ledger_leave(ledger);
}

void wi_ledger_mapped(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger->spare -= bytes;
    ledger_leave(ledger);
}

void wi_ledger_unmapped(wi_ledger *ledger, uint64_t bytes)
{
    ledger_enter(ledger);
    ledger->spare += bytes;
    ledger_leave(ledger);
}

void wi_ledger_driver_call(wi_ledger *ledger)
{
    ledger_enter(ledger);
    ledger->driver_calls++;
    ledger_leave(ledger);
}

void wi_ledger_segments(wi_ledger *ledger, uint64_t made, uint64_t ended)
{
    ledger_enter(ledger);
    wi_gauge_up(&ledger->gauges.segment, made);
    wi_gauge_down(&ledger->gauges.segment, ended);
    ledger_leave(ledger);
}

void wi_ledger_worked(wi_ledger *ledger, uint64_t calls, uint64_t created, uint64_t moved)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->driver_calls += calls;
    ledger->created += created;
    ledger->moved += moved;
    ledger->batches += moved > 0;
    pthread_mutex_unlock(&ledger->lock);
}
