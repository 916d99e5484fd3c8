/* The stage at which every request has the budget enforced: the device's memory limit, each client's maximum, and what others
 * are guaranteed. Bytes are claimed in the ledger before memory is looked for. A request that would be over budget, or finds no
 * place, climbs the reclaim ladder before it is refused.
 *
 * The doors through which bytes are claimed:
 *   budget_allocate     blocks, pages of elastic blocks, and memory that comes back with a resume; also out of a reservation
 *   budget_grow         the growth of a block in place
 *   wi_budget_reserve   reservations, and what elastic blocks are promised or commit
 *   wi_ledger_place     in the ledger, called by the base (space/stream_order.c): a block for which the base has a free place,
 *                       in one step with the claim. alloc_at_once (runtime/alloc.c) tries this first where the budget alone
 *                       stands around the base. A request that would be over budget there comes here
 * Each of them asks ledger_fits (ledger/ledger.c), the only test of a claim. Thread caches and capture pools claim nothing:
 * what they keep stays charged. The base's physical memory is held under the same budget (wi_ledger_hold), and a guarantee is
 * tested when it is set (wi_ledger_set_limits).
 *
 * The adaptor "budget" is the position of this stage in a stack. Adaptors around it see a request once, before bytes are claimed.
 * Adaptors within see the tries of the ladder, with the bytes claimed. A text form without a budget gets one around it. */
#include "memory/adaptors/adaptors.h"
#include "base/system.h"
#include "base/values.h"
#include "base/probes.h"
#include "memory/elastic.h"
#include "memory/ledger/members.h"

/* The ladder ------------------------------------------------------------------------------------------------------- */

/* Nanoseconds. A request waits for the oldest pending block, which may be behind long work of another stream while
 * later ones have passed. So it waits a short pause at a time and then looks at all; the pauses grow. */
enum { FIRST_PAUSE = 250 * 1000, LONGEST_PAUSE = 8 * 1000 * 1000 };

/* Other threads may free and allocate for ever, and a refusal must not wait for all of them. So the number of looks is
 * bounded, and from the third look on the deadline, too, which has passed for a request that does not wait. */
enum { MOST_LOOKS = 64, LOOKS_AT_ONCE = 2 };

/* The progress of a request up the reclaim ladder. A rung is tried once, or as long as it helps; the rungs share one
 * deadline. */
typedef struct ladder {
    wi_resource *stack; /* from its top: adaptors around the budget may keep freed blocks, too */
    wi_account *account;
    const wi_request *request;
    wi_placement *placement; /* where the block is being placed; NULL: bytes are being claimed */
    bool may_wait, helps;    /* pending frees would be enough */
    void *native;            /* the stream of the request */
    uint64_t largest;        /* the largest block that could have been placed at the last try */
    weir_rung highest;
    uint64_t deadline; /* 0: no rung was tried yet */
    uint64_t pause;
    unsigned emptied, passed, looks; /* tries: flushed thread caches, reaped, looked at what others released */
    uint64_t freed, released;        /* wi_ledger_freed and wi_members_released at the last look */
    wi_pressure_round round;
} ladder;

static wi_ledger *budget_ledger(const ladder *l)
{
    return l->stack->ledger;
}

/* Work of a captured stream runs when the graph is launched, so that nothing can be waited for now. */
static bool budget_captured(const ladder *l)
{
    const wi_resource *r = l->stack;
    return l->native && r->driver->stream_capturing(r->device, l->native);
}

static bool budget_once_more(const ladder *l, unsigned *tries)
{
    unsigned before = (*tries)++;
    return before < LOOKS_AT_ONCE || (before < MOST_LOOKS && wi_now() < l->deadline);
}

/* Another thread may have freed, between this one's shortage and its look, what this one looked for in vain. */
static bool rung_others_released(ladder *l)
{
    uint64_t released = wi_members_released(budget_ledger(l)), freed = wi_ledger_freed(budget_ledger(l));
    bool more = released != l->released || freed != l->freed;
    l->released = released;
    l->freed = freed;
    return more && budget_once_more(l, &l->looks);
}

static bool budget_any_pending(wi_ledger *ledger)
{
    return wi_ledger_look(ledger).pending > 0;
}

/* The rungs. A rung returns true if something changed and another try is worthwhile. */

static bool rung_flush_thread_caches(ladder *l)
{
    return budget_once_more(l, &l->emptied) && wi_ledger_flush_tcaches(budget_ledger(l)) > 0;
}

static bool rung_reap(ladder *l)
{
    uint64_t left;
    wi_ledger *ledger = budget_ledger(l);
    if (!budget_once_more(l, &l->passed))
        return false;
    (void)wi_members_bound(ledger);
    return wi_members_pass(ledger, &left) > 0 || wi_members_reap(ledger, NULL) > 0 ||
           (budget_any_pending(ledger) && wi_members_drain(ledger));
}

static bool rung_release_kept(ladder *l)
{
    return wi_release_kept(l->stack) > 0;
}

/* From now on the base moves and creates chunks at any cost. */
static bool rung_last_resort(ladder *l)
{
    wi_placement *p = l->placement;
    if (!p || p->growth == WI_GROWTH_LAST_RESORT || !(l->stack->base->table->all.features & WEIR_FEATURE_MOVES_MEMORY))
        return false;
    p->growth = WI_GROWTH_LAST_RESORT;
    return true;
}

/* From now on the base may take memory of other streams, behind a wait. */
static bool rung_stream_wait(ladder *l)
{
    wi_placement *p = l->placement;
    wi_base *base = l->stack->base;
    if (!p || p->allow_stream_wait || !l->native || p->captured || p->thread_bound || budget_captured(l) ||
        !base->table->follow)
        return false;
    p->allow_stream_wait = base->table->follow(base, p->stream, p->native); /* with its list, for a discard */
    return p->allow_stream_wait;
}

/* The room that pressure callbacks can enlarge: under the account's limits, and on the device if all frees were
 * complete and all thread caches empty. */
typedef struct room {
    uint64_t account, device;
} room;

static room budget_look_for_room(const ladder *l)
{
    weir_stats stats = {.struct_size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(budget_ledger(l), &stats, NULL, 0, 0, &ignored);
    return (room){wi_ledger_left(budget_ledger(l), l->account), stats.budget - stats.live - stats.promised};
}

static uint64_t budget_shortfall(const ladder *l)
{
    uint64_t asked = l->request->charged;
    uint64_t there = l->placement ? l->largest : wi_ledger_left(budget_ledger(l), l->account);
    return there < asked ? asked - there : asked;
}

/* Calls pressure callbacks until one has made room. */
static bool rung_pressure(ladder *l)
{
    if (!l->may_wait || wi_pressures_inside() || budget_captured(l))
        return false;
    weir_pressure pressure = {.struct_size = sizeof pressure,
                              .bytes = l->request->charged,
                              .shortfall = budget_shortfall(l),
                              .client = l->account->client,
                              .device = budget_ledger(l)->device,
                              .memory_class = l->request->memory_class};
    room before = budget_look_for_room(l);
    while (wi_pressures_call(&budget_ledger(l)->pressures, &l->round, &pressure)) {
        room after = budget_look_for_room(l);
        bool more = after.account > before.account || after.device > before.device;
        l->round.again = more && l->round.attempt < MOST_LOOKS;
        if (more)
            return true;
        before = after;
    }
    return false;
}

static bool rung_wait(ladder *l)
{
    if (!l->helps || !l->may_wait || budget_captured(l))
        return false;
    uint64_t now = wi_now();
    if (now >= l->deadline)
        return false;
    l->pause = l->pause ? wi_min(2 * l->pause, LONGEST_PAUSE) : FIRST_PAUSE;
    uint64_t until = wi_min(l->deadline, now + l->pause);
    l->passed = 0; /* frees may have passed meanwhile: reap again */
    return wi_members_wait(budget_ledger(l), until) || wi_members_await(budget_ledger(l), until);
}

static const struct rung {
    bool (*climb)(ladder *l);
    weir_rung rung;
} rungs[] = {
    {rung_flush_thread_caches, WEIR_RUNG_THREAD_CACHED},
    {rung_reap, WEIR_RUNG_COMPLETED},
    {rung_release_kept, WEIR_RUNG_KEPT_RELEASED},
    {rung_last_resort, WEIR_RUNG_FIT}, /* the base counts this rung, if it comes to something */
    {rung_stream_wait, WEIR_RUNG_FIT},
    {rung_pressure, WEIR_RUNG_PRESSURE},
    {rung_wait, WEIR_RUNG_WAIT},
    {rung_others_released, WEIR_RUNG_COMPLETED},
};

/* Climbs to the next rung that changes something. False: none is left. `helps`: pending frees would be enough. */
static bool budget_climb(ladder *l, bool helps)
{
    l->helps = helps;
    if (l->deadline == 0)
        l->deadline = wi_now() + (l->may_wait ? wi_option_wait() : 0);
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++)
        if (rungs[i].climb(l)) {
            l->highest = l->highest > rungs[i].rung ? l->highest : rungs[i].rung;
            return true;
        }
    return false;
}

static weir_status budget_refuse(const ladder *l, const wi_shortage *shortage)
{
    return wi_ledger_refuse(budget_ledger(l), l->account, l->request, shortage);
}

/* Corrects the cause that a base has named. Where the base blames other processes, this process may have used up its
 * mappings. Where pending frees would do, the cause is time, and not fragmentation. */
static void budget_blame(const ladder *l, wi_shortage *shortage)
{
    uint64_t left;
    shortage->mappings = shortage->cause == WEIR_CAUSE_OTHER_PROCESS && wi_mappings_are_short();
    if (shortage->mappings)
        shortage->cause = WEIR_CAUSE_ADDRESS_RANGE;
    if (shortage->cause == WEIR_CAUSE_ADAPTOR || shortage->cause == WEIR_CAUSE_ADDRESS_RANGE)
        return;
    (void)wi_members_pass(budget_ledger(l), &left);
    if (left > 0 && wi_min(shortage->later, shortage->largest + left) >= l->request->charged)
        shortage->cause = WEIR_CAUSE_PENDING;
}

static ladder budget_begin(const wi_base *base, wi_account *account, const wi_request *request, bool may_wait)
{
    return (ladder){.stack = base->top,
                    .account = account,
                    .request = request,
                    .may_wait = may_wait,
                    .freed = wi_ledger_freed(base->resource.ledger),
                    .round = wi_pressure_begin};
}

/* Claims the bytes, climbing the ladder. alignment 0: the bytes may lie in several pieces. */
static weir_status budget_claim(ladder *l, uint64_t alignment)
{
    wi_base *base = l->stack->base;
    wi_ledger *ledger = budget_ledger(l);
    const wi_request *request = l->request;
    bool could = false;
    while (!wi_ledger_claim(ledger, l->account, request->charged, &could)) {
        if (!wi_ledger_is_open(ledger, l->account))
            return weir_fail(WEIR_ERR_INVALID, "the client %s was closed meanwhile", l->account->name);
        wi_window(WI_WINDOW_CLAIM_FAILED);
        if (budget_climb(l, could))
            continue;
        /* If nothing is pending, other accounts have the bytes, some of them thread-cached for a moment. */
        bool pending = could && budget_any_pending(ledger);
        wi_shortage shortage = {.cause = pending ? WEIR_CAUSE_PENDING : WEIR_CAUSE_NONE, .largest = UINT64_MAX};
        wi_request whole = *request; /* includes the bytes claimed for the request before */
        whole.bytes += request->claimed;
        whole.charged += request->claimed;
        if (alignment > 0)
            base->table->look(base, request->memory_class, whole.charged, alignment, &shortage);
        return wi_ledger_claim_or_refuse(ledger, l->account, &whole, &shortage);
    }
    return WEIR_OK;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* Takes the bytes from the placement's reservation, or claims them. A placement that must not grow climbs no rung.
 * WEIR_ERR_NO_ROOM for a promised page: a promise has bytes for every page, so that another thread has just taken the bytes
 * of this page, or gives them back. */
static weir_status budget_obtain(ladder *l, const wi_placement *p)
{
    bool could;
    if (!p->reservation && p->growth == WI_GROWTH_NONE)
        return wi_ledger_claim(budget_ledger(l), p->account, p->charged, &could) ? WEIR_OK : WEIR_ERR_NO_ROOM;
    if (!p->reservation)
        return budget_claim(l, p->alignment);
    uint64_t left = atomic_load(&p->reservation->left);
    do
        if (left < p->charged) {
            if (p->page && p->page->range->promised)
                return weir_fail(WEIR_ERR_NO_ROOM, "page %llu of %s is another thread's",
                                 (unsigned long long)p->page->index, p->page->range->tag);
            wi_shortage shortage = {.cause = WEIR_CAUSE_RESERVATION, .largest = left, .held = p->reservation->total};
            return budget_refuse(l, &shortage);
        }
    while (!atomic_compare_exchange_weak(&p->reservation->left, &left, left - p->charged));
    return WEIR_OK;
}

static void budget_return_bytes(wi_ledger *ledger, const wi_placement *p)
{
    if (p->reservation)
        atomic_fetch_add(&p->reservation->left, p->charged);
    else
        wi_ledger_cancel(ledger, p->account, p->charged);
}

/* What a refusal tells of: a page's is of its whole commit. */
static wi_request budget_request(const wi_placement *p)
{
    const wi_elastic_target *page = p->page;
    uint64_t bytes = page ? page->asked : p->bytes, charged = page ? page->asked : p->charged;
    uint64_t claimed = page ? page->claimed : 0, reserved = p->reservation && claimed == 0 ? charged : 0;
    return (wi_request){bytes, charged, p->memory_class, p->stream, p->tag, claimed, reserved};
}

static weir_status budget_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_request request = budget_request(p);
    uint64_t claimed = p->page ? request.claimed : p->reservation ? 0 : p->charged;
    wi_shortage_begin(shortage, p->account, claimed);
    if (p->held) /* a capture pool's block: the account was charged before */
        return wi_allocate(resource->inner, p, out, shortage);
    ladder l = budget_begin(resource->base, p->account, &request, p->may_wait);
    l.native = p->native;
    l.highest = p->rung;
    weir_status status = budget_obtain(&l, p);
    if (status != WEIR_OK)
        return status;
    l.placement = p;
    for (;;) {
        wi_shortage_begin(shortage, p->account, claimed);
        p->rung = l.highest;
        status = wi_allocate(resource->inner, p, out, shortage);
        if (status == WEIR_OK)
            return WEIR_OK;
        l.largest = shortage->largest;
        if (status == WEIR_ERR_OUT_OF_MEMORY && shortage->cause != WEIR_CAUSE_ADDRESS_RANGE && budget_climb(&l, true))
            continue; /* no rung makes a region longer */
        budget_return_bytes(resource->ledger, p);
        if (status == WEIR_ERR_OUT_OF_MEMORY)
            budget_blame(&l, shortage);
        return status == WEIR_ERR_OUT_OF_MEMORY ? budget_refuse(&l, shortage) : status;
    }
}

static void budget_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_discard(resource->inner, block, p);
    budget_return_bytes(resource->ledger, p);
}

static weir_status budget_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                               wi_shortage *shortage)
{
    wi_base *base = resource->base;
    uint64_t charge = base->table->charge(base, block->before + bytes + block->after);
    uint64_t more = charge > block->charged ? charge - block->charged : 0;
    wi_request request = {bytes - block->bytes, more, block->memory_class, block->stream, block->tag, 0, 0};
    ladder l = budget_begin(base, block->account, &request, may_wait);
    weir_status status = budget_claim(&l, WI_UNIT);
    if (status != WEIR_OK)
        return status;
    wi_shortage_begin(shortage, NULL, 0);
    do
        status = wi_grow(resource->inner, block, bytes, may_wait, shortage);
    while ((status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY) && budget_climb(&l, false));
    bool refused = status == WEIR_ERR_OUT_OF_MEMORY; /* physical memory behind the block is missing */
    if (refused) {
        wi_shortage_begin(shortage, block->account, more);
        shortage->cause = WEIR_CAUSE_FRAGMENTATION;
        base->table->look(base, block->memory_class, more, WI_UNIT, shortage);
    }
    if (status != WEIR_OK)
        wi_ledger_cancel(resource->ledger, block->account, more);
    return refused ? budget_refuse(&l, shortage) : status;
}

static void budget_destroy(wi_resource *resource)
{
    free(resource);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static const wi_resource_table table = {
    .name = "budget",
    .allocate = budget_allocate,
    .discard = budget_discard,
    .grow = budget_grow,
    .destroy = budget_destroy,
};

weir_status wi_budget_create(wi_resource *inner, wi_resource **out)
{
    wi_resource *resource = calloc(1, sizeof *resource);
    if (!resource)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a budget");
    wi_resource_init(resource, &table, inner);
    *out = resource;
    return WEIR_OK;
}

weir_status wi_budget_reserve(wi_resource *stack, wi_account *account, const wi_request *request, bool placed,
                              bool may_wait)
{
    ladder l = budget_begin(stack->base, account, request, may_wait);
    return budget_claim(&l, placed ? WI_UNIT : 0);
}
