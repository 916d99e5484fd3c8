/* Refusals, for out of memory: the cause and the numbers are read under the ledger's lock, the text is made after it. */
#include "memory/ledger/ledger.h"
#include <weir/trace.h>
#include "base/system.h"
#include "base/values.h"

#include <stdio.h>

static _Thread_local void *last; /* of weir_refusal; NULL: no request was refused yet, or no host memory */
static atomic_uint_fast64_t refusal_count;

weir_status weir_refusal_last(weir_refusal *out)
{
    WI_ENTER();
    const weir_refusal none = {.struct_size = sizeof none};
    if (!out || !wi_copy_out(out, out->struct_size, last ? last : &none, sizeof none))
        return weir_fail(WEIR_ERR_INVALID, "weir_refusal_last: NULL, or member struct_size is not set");
    return WEIR_OK;
}

void wi_refusal_restore(const weir_refusal *saved)
{
    if (last)
        memcpy(last, saved, sizeof *saved);
}

static uint64_t refusal_used(const wi_account *account)
{
    return account->live + account->pending + account->promised + account->thread_cached;
}

static void refusal_copy_text(char *to, size_t capacity, const char *text)
{
    snprintf(to, capacity, "%s", text);
}

/* The accounts with the most used or guaranteed bytes, largest first. What `asker` has claimed for the request is not in
 * them. */
static void refusal_find_top(const wi_ledger *ledger, const wi_account *asker, uint64_t claimed, wi_ledger_seen *seen)
{
    for (const wi_account *a = ledger->first; a; a = a->next) {
        uint64_t bytes = wi_max(refusal_used(a) - (a == asker ? claimed : 0), a->guaranteed);
        int at = WEIR_REFUSAL_HOLDERS;
        while (at > 0 && bytes > seen->top[at - 1].bytes)
            at--;
        if (bytes == 0 || at == WEIR_REFUSAL_HOLDERS)
            continue;
        memmove(&seen->top[at + 1], &seen->top[at], (size_t)(WEIR_REFUSAL_HOLDERS - 1 - at) * sizeof seen->top[0]);
        refusal_copy_text(seen->top[at].client, sizeof seen->top[at].client, a->name);
        seen->top[at].bytes = bytes;
    }
}

/* The lock is held. */
static void refusal_see(const wi_ledger *ledger, const wi_account *account, uint64_t claimed, wi_ledger_seen *out)
{
    uint64_t used = refusal_used(account);
    claimed = wi_min(used, claimed);
    *out = (wi_ledger_seen){.budget = ledger->budget,
                            .others = ledger->committed - wi_max(used, account->guaranteed),
                            .mine = used - claimed,
                            .guaranteed = account->guaranteed,
                            .maximum = account->maximum};
    refusal_find_top(ledger, account, claimed, out);
}

void wi_ledger_see(wi_ledger *ledger, wi_shortage *shortage)
{
    if (!shortage->asker)
        return;
    pthread_mutex_lock(&ledger->lock);
    refusal_see(ledger, shortage->asker, shortage->claimed, &shortage->seen);
    pthread_mutex_unlock(&ledger->lock);
    shortage->was_seen = true;
}

/* Finds the limit that forbids the request, the bytes left under the limit, and the limit that the request would need:
 * all as before the request. */
static void refusal_weigh(const wi_ledger_seen *seen, const wi_request *request, const wi_shortage *shortage,
                          weir_refusal *refusal)
{
    uint64_t reserved = wi_min(request->reserved, seen->mine),
             before = seen->mine - reserved; /* without the bytes left for the request */
    uint64_t under_maximum = seen->maximum - wi_min(seen->maximum, before);
    uint64_t under_budget = seen->budget - seen->others - before;
    _Static_assert(sizeof refusal->holders == sizeof seen->top, "both have the same members");
    memcpy(refusal->holders, seen->top, sizeof refusal->holders);
    if (refusal->cause == WEIR_CAUSE_RESERVATION) {
        refusal->limit = shortage->held;
        refusal->remaining = refusal->largest = shortage->largest;
        refusal->current = shortage->held - shortage->largest;
        refusal->needed = refusal->current + refusal->requested;
        return;
    }
    refusal->current = seen->mine;
    if (refusal->cause == WEIR_CAUSE_NONE)
        refusal->cause =
            seen->maximum != UINT64_MAX && refusal->requested > under_maximum ? WEIR_CAUSE_MAXIMUM : WEIR_CAUSE_BUDGET;
    if (refusal->cause == WEIR_CAUSE_MAXIMUM) {
        refusal->limit = seen->maximum;
        refusal->remaining = under_maximum;
        refusal->needed = before + refusal->requested;
    } else {
        refusal->limit = seen->budget;
        refusal->remaining = under_budget;
        refusal->needed = wi_max(shortage->held, seen->others + wi_max(before + refusal->requested, seen->guaranteed));
    }
    refusal->largest = wi_min(shortage->largest, wi_min(under_maximum, under_budget));
    if (shortage->mappings || refusal->needed < refusal->requested) /* no limit would do, or the sum overflows */
        refusal->needed = UINT64_MAX;
}

static void refusal_append(char *text, size_t capacity, const char *piece)
{
    size_t length = strlen(text);
    snprintf(text + length, capacity - length, "%s", piece);
}

static void refusal_list_top(const weir_refusal *r, char *text, size_t capacity)
{
    char held[24], piece[160];
    text[0] = '\0';
    for (int i = 0; i < WEIR_REFUSAL_HOLDERS && r->holders[i].client[0]; i++) {
        snprintf(piece, sizeof piece, "%s%s holds %s", i ? ", " : "", r->holders[i].client,
                 weir_size_format(r->holders[i].bytes, held, sizeof held));
        refusal_append(text, capacity, piece);
    }
    if (!text[0])
        refusal_append(text, capacity, "nobody holds any");
}

/* What would help. If all addresses lie between blocks, no budget does. */
static const char *refusal_remedy(const weir_refusal *r, char *text, size_t capacity)
{
    char needed[24];
    bool pieces = r->cause == WEIR_CAUSE_FRAGMENTATION;
    if (r->needed == UINT64_MAX)
        return "no budget would do: this request needs blocks freed between free ones";
    snprintf(text, capacity, "this request needs a budget of at least %s%s",
             wi_size_ceil(r->needed, needed, sizeof needed), pieces ? ", or blocks freed between free ones" : "");
    return text;
}

static weir_status refusal_explain_mappings(const weir_refusal *r, const char *asked, const char *kind)
{
    wi_mappings now = wi_mappings_count();
    return weir_fail(
        WEIR_ERR_OUT_OF_MEMORY,
        "%s asked for %s (%s) on %s; the process has %llu mappings of the %llu that the system allows it, and "
        "the last sixteenth is left to the rest of it; free what lies in many pieces, or raise vm.max_map_count",
        r->client, asked, kind, r->device, (unsigned long long)now.there, (unsigned long long)now.most);
}

/* The text: who asked for how much, the limit and what is left under it, who holds the rest, what would help. */
static weir_status refusal_explain(const weir_refusal *r, const wi_shortage *shortage)
{
    char asked[24], limit[24], left[24], mine[24], needed[24], largest[24], members[400], remedy[96];
    weir_size_format(r->requested, asked, sizeof asked);
    weir_size_format(r->limit, limit, sizeof limit);
    weir_size_format(r->remaining, left, sizeof left);
    weir_size_format(r->current, mine, sizeof mine);
    weir_size_format(r->largest, largest, sizeof largest);
    wi_size_ceil(r->needed, needed, sizeof needed);
    refusal_list_top(r, members, sizeof members);
    const char *kind = weir_name_of(WEIR_NAMES_CLASS, r->memory_class);
    switch (r->cause) {
    case WEIR_CAUSE_MAXIMUM:
        return weir_fail(
            WEIR_ERR_OUT_OF_MEMORY,
            "%s asked for %s (%s) on %s; its maximum is %s and %s are in use, so %s are left; this request needs "
            "a maximum of at least %s",
            r->client, asked, kind, r->device, limit, mine, left, needed);
    case WEIR_CAUSE_BUDGET:
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "%s asked for %s (%s) on %s; of the budget of %s, %s are left to it; %s; %s", r->client, asked,
                         kind, r->device, limit, left, members, refusal_remedy(r, remedy, sizeof remedy));
    case WEIR_CAUSE_RESERVATION:
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "%s asked for %s (%s) of a reservation of %s on %s; %s of it are left; reserve at least %s",
                         r->client, asked, kind, limit, r->device, left, needed);
    case WEIR_CAUSE_ADDRESS_RANGE:
        if (shortage->mappings)
            return refusal_explain_mappings(r, asked, kind);
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "%s asked for %s (%s), more than %s can address; the largest possible "
                         "request is %s",
                         r->client, asked, kind, r->device, largest);
    case WEIR_CAUSE_PENDING:
        return weir_fail(
            WEIR_ERR_OUT_OF_MEMORY,
            "%s asked for %s (%s) on %s; freed memory that the device still uses would do, but waiting for "
            "it was not allowed or took too long (option wait); %s are free at once; %s",
            r->client, asked, kind, r->device, largest, members);
    case WEIR_CAUSE_DEVICE:
    case WEIR_CAUSE_OTHER_PROCESS:
        return weir_fail(
            WEIR_ERR_OUT_OF_MEMORY,
            "%s asked for %s (%s); %s has no more memory, though the budget of %s would allow it: another "
            "process, or what engines take outside weir, holds the rest; lower the budget or end that process",
            r->client, asked, kind, r->device, limit);
    case WEIR_CAUSE_ADAPTOR:
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s asked for %s (%s) on %s; an adaptor refused it: %s", r->client,
                         asked, kind, r->device, shortage->words);
    default:
        return weir_fail(
            WEIR_ERR_OUT_OF_MEMORY,
            "%s asked for %s (%s) on %s; %s are left of the budget of %s, but the largest free piece is %s; %s; %s",
            r->client, asked, kind, r->device, left, limit, largest, members, refusal_remedy(r, remedy, sizeof remedy));
    }
}

/* The lock is held, and is released. */
static weir_status refusal_tell(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                const wi_shortage *shortage)
{
    weir_refusal refusal = {.struct_size = sizeof refusal,
                            .cause = shortage->cause,
                            .memory_class = request->memory_class,
                            .requested = request->charged,
                            .number = atomic_fetch_add_explicit(&refusal_count, 1, memory_order_relaxed) + 1};
    refusal_copy_text(refusal.client, sizeof refusal.client, account->name);
    refusal_copy_text(refusal.device, sizeof refusal.device, ledger->device);
    wi_ledger_seen now;
    if (!shortage->was_seen)
        refusal_see(ledger, account, request->claimed, &now);
    refusal_weigh(shortage->was_seen ? &shortage->seen : &now, request, shortage, &refusal);
    account->refusals++;
    ledger->refusals++;
    if (ledger->events)
        wi_record_locked(ledger,
                         (weir_event){.action = WEIR_ACTION_REFUSE,
                                      .memory_class = request->memory_class,
                                      .bytes = request->bytes,
                                      .charged = request->charged,
                                      .stream = request->stream,
                                      .client = account->lasting,
                                      .tag = request->tag,
                                      .object = (uint64_t)refusal.cause,
                                      .generation = refusal.limit,
                                      .result = WEIR_ERR_OUT_OF_MEMORY},
                         NULL);
    pthread_mutex_unlock(&ledger->lock);
    if (wi_own(&last, sizeof refusal))
        memcpy(last, &refusal, sizeof refusal);
    return refusal_explain(&refusal, shortage);
}

weir_status wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                             const wi_shortage *shortage)
{
    pthread_mutex_lock(&ledger->lock);
    return refusal_tell(ledger, account, request, shortage);
}

weir_status wi_ledger_claim_or_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                      const wi_shortage *shortage)
{
    pthread_mutex_lock(&ledger->lock);
    if (!wi_ledger_claim_locked(ledger, account, request->charged - request->claimed))
        return refusal_tell(ledger, account, request, shortage);
    pthread_mutex_unlock(&ledger->lock);
    return WEIR_OK;
}
