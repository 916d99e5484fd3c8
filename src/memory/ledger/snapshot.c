/* Snapshots of the ledger. */
#include "memory/ledger/ledger.h"

static void snapshot_account(const wi_ledger *ledger, const wi_account *account, weir_client_stats *out)
{
    size_t size = out->struct_size;
    *out = (weir_client_stats){.struct_size = size,
                               .client = account->client,
                               .guaranteed = account->guaranteed,
                               .maximum = wi_min(account->maximum, ledger->budget),
                               .live = account->live,
                               .pending = account->pending,
                               .promised = account->promised,
                               .peak = account->peak,
                               .blocks = account->blocks,
                               .allocations = account->allocations,
                               .frees = account->frees,
                               .refusals = account->refusals,
                               .outside = account->outside,
                               .predicted = account->predicted,
                               .thread_cached = account->thread_cached,
                               .away = account->away,
                               .residency = (weir_residency_state)atomic_load(&account->residency),
                               .hits = account->hits,
                               .misses = account->allocations - account->hits};
    memcpy(out->name, account->name, strlen(account->name) + 1);
    memcpy(out->live_class, account->live_class, sizeof account->live_class);
    memcpy(out->peak_class, account->peak_class, sizeof account->peak_class);
    memcpy(out->outside_method, account->outside_method, sizeof out->outside_method);
}

static void snapshot_device(const wi_ledger *ledger, weir_stats *out)
{
    *out = (weir_stats){.struct_size = sizeof *out,
                        .budget = ledger->budget,
                        .live = ledger->live,
                        .pending = ledger->pending,
                        .cached = ledger->held - ledger->spare - ledger->live - ledger->pending,
                        .spare = ledger->spare,
                        .promised = ledger->promised,
                        .held = ledger->held,
                        .peak = ledger->peak,
                        .peak_held = ledger->peak_held,
                        .guaranteed = ledger->guaranteed,
                        .allocations = ledger->allocations,
                        .frees = ledger->frees,
                        .refusals = ledger->refusals,
                        .driver_calls = ledger->driver_calls,
                        .created = ledger->created,
                        .moved = ledger->moved,
                        .batches = ledger->batches,
                        .clients = ledger->accounts,
                        .thread_cached = ledger->thread_cached,
                        .hits = ledger->hits,
                        .misses = ledger->allocations - ledger->hits,
                        .emptied = ledger->emptied,
                        .lent_clients = ledger->lent_clients,
                        .lent_streams = ledger->lent_streams,
                        .away = ledger->away};
    memcpy(out->ladder, ledger->ladder, sizeof ledger->ladder);
}

wi_standing wi_ledger_look(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    wi_standing now = {.budget = ledger->budget,
                       .held = ledger->held,
                       .pending = ledger->pending,
                       .aside = ledger->aside,
                       .accounts = ledger->accounts};
    for (const wi_account *a = ledger->first; a; a = a->next)
        now.kept += a->kept;
    pthread_mutex_unlock(&ledger->lock);
    return now;
}

void wi_ledger_snapshot(wi_ledger *ledger, weir_stats *out, weir_client_stats *clients, size_t stride, size_t capacity,
                        size_t *count)
{
    size_t index = 0;
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    snapshot_device(ledger, out);
    for (const wi_account *a = ledger->first; a; a = a->next, index++) {
        if (index >= capacity)
            continue;
        weir_client_stats stats = {.struct_size = stride};
        snapshot_account(ledger, a, &stats);
        char *to = (char *)clients + index * stride;
        memcpy(to, &stride, sizeof stride);
        wi_copy_out(to, stride, &stats, sizeof stats);
    }
    pthread_mutex_unlock(&ledger->lock);
    *count = index;
}

void wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out)
{
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    snapshot_account(ledger, account, out);
    pthread_mutex_unlock(&ledger->lock);
}

uint64_t wi_ledger_left_for(wi_ledger *ledger, const wi_account *own, uint64_t *idle)
{
    uint64_t committed = 0;
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    for (const wi_account *a = ledger->first; a; a = a->next)
        committed += wi_max(a->live + a->pending + a->promised, a == own ? 0 : a->guaranteed);
    uint64_t left = ledger->budget - wi_min(ledger->budget, committed);
    *idle = ledger->held - wi_min(ledger->held, ledger->live + ledger->pending);
    pthread_mutex_unlock(&ledger->lock);
    return left;
}

/* Calls fn for each gauge of the ledger. */
static void snapshot_each_gauge(wi_ledger *ledger, void (*fn)(weir_gauge *gauge))
{
    weir_memory_stats *g = &ledger->gauges;
    weir_gauge *const all[] = {&g->allocated_bytes, &g->active_bytes, &g->requested_bytes, &g->reserved_bytes,
                               &g->allocation,      &g->segment,      &g->active};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fn(all[i]);
}

static uint64_t snapshot_retries(const wi_ledger *ledger)
{
    uint64_t count = 0;
    for (int rung = WEIR_RUNG_REMAP; rung < WEIR_RUNG_COUNT; rung++)
        count += ledger->ladder[rung];
    return count;
}

void wi_ledger_gauges(wi_ledger *ledger, weir_memory_stats *out)
{
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    *out = ledger->gauges;
    out->struct_size = sizeof *out;
    out->num_alloc_retries = snapshot_retries(ledger) - ledger->retries_before;
    out->num_ooms = ledger->refusals - ledger->refusals_before;
    pthread_mutex_unlock(&ledger->lock);
}

void wi_ledger_reset_accumulated(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    snapshot_each_gauge(ledger, wi_gauge_forget_past);
    ledger->retries_before = snapshot_retries(ledger);
    ledger->refusals_before = ledger->refusals;
    pthread_mutex_unlock(&ledger->lock);
}

void wi_ledger_reset_peaks(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    wi_ledger_merge_all(ledger);
    ledger->peak = ledger->live + ledger->pending;
    ledger->peak_held = ledger->held;
    snapshot_each_gauge(ledger, wi_gauge_forget_peak);
    for (wi_account *a = ledger->first; a; a = a->next) {
        a->peak = a->live + a->pending;
        for (int c = 0; c < WEIR_CLASS_COUNT; c++)
            a->peak_class[c] = a->live_class[c] + a->pending_class[c];
    }
    pthread_mutex_unlock(&ledger->lock);
}

uint64_t wi_ledger_peak(wi_ledger *ledger, const wi_account *account)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t peak = account->peak;
    pthread_mutex_unlock(&ledger->lock);
    return peak;
}

void wi_ledger_note_predicted(wi_ledger *ledger, wi_account *account, uint64_t bytes)
{
    pthread_mutex_lock(&ledger->lock);
    account->predicted = bytes;
    pthread_mutex_unlock(&ledger->lock);
}

void wi_ledger_note_outside(wi_ledger *ledger, wi_account *account, uint64_t bytes, const char *method)
{
    pthread_mutex_lock(&ledger->lock);
    account->outside = bytes;
    size_t length = method ? strnlen(method, sizeof account->outside_method - 1) : 0;
    memcpy(account->outside_method, method ? method : "", length);
    account->outside_method[length] = '\0';
    pthread_mutex_unlock(&ledger->lock);
}
