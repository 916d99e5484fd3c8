/* The adaptor "budget": claims bytes before memory is looked for, and climbs the reclaim ladder before a refusal. */
#include "memory/adaptors/budget.h"
#include "base/options.h"
#include "base/system.h"
#include "base/window.h"
#include "memory/ledger/members.h"

typedef struct budget {
    wi_resource resource;
    wi_resource *top; /* of the stack: adaptors around the budget may keep blocks back, too */
} budget;

/* The ladder ------------------------------------------------------------------------------------------------------- */

/* The oldest pending block of a list is waited for, which may stand behind somebody's long work while others are past,
 * there or in another list. So it is waited for a little at a time, in pauses that grow from the first to the longest:
 * nanoseconds. */
enum { FIRST_PAUSE = 250 * 1000, LONGEST_PAUSE = 8 * 1000 * 1000 };

/* Others may come and go for ever, and a refusal must not wait for all of them: what they leave is looked at so often,
 * and, from the third look on, until the deadline alone, which is now for a request that does not wait. */
enum { MOST_LOOKS = 64, LOOKS_AT_ONCE = 2 };

/* What a request has tried so far. Each rung is climbed once or as long as it helps, and no longer than one deadline
 * for all. */
typedef struct ladder {
    budget *budget;
    wi_account *account;
    const wi_request *request;
    wi_placement
        *placement;       /* of the block that is being placed; NULL: its bytes are not claimed yet, or there is none */
    bool may_wait, helps; /* helps: pending frees would be enough */
    void *native;         /* the stream of the request */
    uint64_t largest;     /* that could have been placed at the last try */
    weir_rung highest;
    uint64_t deadline; /* 0: not climbed yet */
    uint64_t pause;
    unsigned emptied, passed,
        looks; /* how often each was tried: thread-cached blocks, what has passed, what others have released */
    uint64_t freed, released; /* what all threads had freed, and released to all streams, when this one last looked */
    wi_pressure_turn turn;
} ladder;

static wi_ledger *ledger_of(const ladder *l)
{
    return l->budget->resource.ledger;
}

/* Whose work happens when a graph is launched waits for nothing now. */
static bool budget_captured(const ladder *l)
{
    const wi_resource *r = &l->budget->resource;
    return l->native && r->driver->stream_capturing(r->device, l->native);
}

static bool budget_once_more(const ladder *l, unsigned *tries)
{
    unsigned before = (*tries)++;
    return before < LOOKS_AT_ONCE || (before < MOST_LOOKS && wi_now() < l->deadline);
}

/* What this thread looked for in vain, another one may have freed between the shortage and the look. */
static bool others_have_released(ladder *l)
{
    uint64_t released = wi_members_released(ledger_of(l)), freed = wi_ledger_freed(ledger_of(l));
    bool more = released != l->released || freed != l->freed;
    l->released = released;
    l->freed = freed;
    return more && budget_once_more(l, &l->looks);
}

static bool any_pending(wi_ledger *ledger)
{
    return wi_ledger_look(ledger).pending > 0;
}

/* Rungs: each answers true if something has changed that makes another try worth it. */

static bool take_what_is_parked(ladder *l)
{
    return budget_once_more(l, &l->emptied) && wi_ledger_flush_tcaches(ledger_of(l)) > 0;
}

static bool take_what_has_passed(ladder *l)
{
    uint64_t left;
    wi_ledger *ledger = ledger_of(l);
    if (!budget_once_more(l, &l->passed))
        return false;
    (void)wi_members_bound(ledger);
    return wi_members_pass(ledger, &left) > 0 || wi_members_reap(ledger, NULL) > 0 ||
           (any_pending(ledger) && wi_members_drain(ledger));
}

static bool relieve_adaptors(ladder *l)
{
    return wi_release_kept(l->budget->top) > 0;
}

/* From now on the base does what it can, whatever that costs. */
static bool allow_any_price(ladder *l)
{
    wi_placement *p = l->placement;
    if (!p || p->growth == WI_GROWTH_LAST_RESORT ||
        !(l->budget->resource.base->table->features & WEIR_FEATURE_MOVES_MEMORY))
        return false;
    p->growth = WI_GROWTH_LAST_RESORT;
    return true;
}

/* From now on the base may take what is free in the order of other streams. */
static bool allow_stream_waits(ladder *l)
{
    wi_placement *p = l->placement;
    wi_resource *base = l->budget->resource.base;
    if (!p || p->allow_stream_wait || !l->native || p->captured || p->thread_bound || budget_captured(l) ||
        !base->table->follow)
        return false;
    p->allow_stream_wait = base->table->follow(base, p->stream, p->native); /* where it goes, should it be discarded */
    return p->allow_stream_wait;
}

/* Bytes that callbacks can make more: what the account may have now, and what is nobody's once the device is past all
 * frees and threads have given up what they cache. */
typedef struct room {
    uint64_t account, device;
} room;

static room look_for_room(const ladder *l)
{
    weir_stats stats = {.struct_size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(ledger_of(l), &stats, NULL, 0, 0, &ignored);
    return (room){wi_ledger_left(ledger_of(l), l->account), stats.budget - stats.live - stats.promised};
}

static uint64_t budget_shortfall(const ladder *l)
{
    uint64_t asked = l->request->charged;
    uint64_t there = l->placement ? l->largest : wi_ledger_left(ledger_of(l), l->account);
    return there < asked ? asked - there : asked;
}

/* Calls callbacks until one has made room. */
static bool ask_for_room(ladder *l)
{
    if (!l->may_wait || wi_pressures_inside() || budget_captured(l))
        return false;
    weir_pressure pressure = {.struct_size = sizeof pressure,
                              .bytes = l->request->charged,
                              .shortfall = budget_shortfall(l),
                              .client = l->account->client,
                              .device = ledger_of(l)->device,
                              .memory_class = l->request->memory_class};
    room before = look_for_room(l);
    while (wi_pressures_call(&ledger_of(l)->pressures, &l->turn, &pressure)) {
        room after = look_for_room(l);
        bool more = after.account > before.account || after.device > before.device;
        l->turn.again = more && l->turn.attempt < MOST_LOOKS;
        if (more)
            return true;
        before = after;
    }
    return false;
}

static bool wait_for_the_oldest(ladder *l)
{
    if (!l->helps || !l->may_wait || budget_captured(l))
        return false;
    uint64_t now = wi_now();
    if (now >= l->deadline)
        return false;
    l->pause = l->pause ? wi_min(2 * l->pause, LONGEST_PAUSE) : FIRST_PAUSE;
    uint64_t until = wi_min(l->deadline, now + l->pause);
    l->passed = 0; /* there may be more now */
    return wi_members_wait(ledger_of(l), until) || wi_members_await(ledger_of(l), until);
}

static const struct rung {
    bool (*climb)(ladder *l);
    weir_rung rung;
} rungs[] = {
    {take_what_is_parked, WEIR_RUNG_THREAD_CACHED},
    {take_what_has_passed, WEIR_RUNG_COMPLETED},
    {relieve_adaptors, WEIR_RUNG_RELIEVED},
    {allow_any_price, WEIR_RUNG_FIT}, /* the base says whether it came to something */
    {allow_stream_waits, WEIR_RUNG_FIT},
    {ask_for_room, WEIR_RUNG_PRESSURE},
    {wait_for_the_oldest, WEIR_RUNG_WAIT},
    {others_have_released, WEIR_RUNG_COMPLETED},
};

/* True if something has changed that makes another try worth it. `helps`: pending frees would be enough. */
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
    return wi_ledger_refuse(ledger_of(l), l->account, l->request, shortage);
}

/* Bytes that only time keeps from being anyone's are not lost to fragments. */
static void budget_blame(const ladder *l, wi_shortage *shortage)
{
    uint64_t left;
    if (shortage->cause == WEIR_CAUSE_ADAPTOR)
        return;
    (void)wi_members_pass(ledger_of(l), &left);
    if (left > 0 && wi_min(shortage->later, shortage->largest + left) >= l->request->charged)
        shortage->cause = WEIR_CAUSE_PENDING;
}

static ladder budget_begin(budget *b, wi_account *account, const wi_request *request, bool may_wait)
{
    return (ladder){.budget = b,
                    .account = account,
                    .request = request,
                    .may_wait = may_wait,
                    .freed = wi_ledger_freed(b->resource.ledger),
                    .turn = wi_pressure_begin};
}

/* alignment 0: the bytes need not be in one piece. */
static weir_status budget_claim(ladder *l, uint64_t alignment)
{
    wi_resource *resource = &l->budget->resource, *base = resource->base;
    const wi_request *request = l->request;
    bool could = false;
    while (!wi_ledger_claim(resource->ledger, l->account, request->charged, &could)) {
        if (!wi_ledger_is_open(resource->ledger, l->account))
            return weir_fail(WEIR_ERR_INVALID, "the client %s was closed meanwhile", l->account->name);
        wi_window(WI_WINDOW_CLAIM_FAILED);
        if (budget_climb(l, could))
            continue;
        bool pending = could && any_pending(resource->ledger); /* else others have it, and may cache it now and then */
        wi_shortage shortage = {.cause = pending ? WEIR_CAUSE_PENDING : WEIR_CAUSE_NONE, .largest = UINT64_MAX};
        if (alignment > 0)
            base->table->look(base, request->memory_class, request->charged, alignment, &shortage);
        return budget_refuse(l, &shortage);
    }
    return WEIR_OK;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* The bytes come from what was reserved, if that is where they shall come from. A request that must not grow climbs no
 * rung for them. */
static weir_status budget_obtain(ladder *l, const wi_placement *p)
{
    bool could;
    if (!p->reservation && p->growth == WI_GROWTH_NONE)
        return wi_ledger_claim(ledger_of(l), p->account, p->charged, &could) ? WEIR_OK : WEIR_ERR_NO_ROOM;
    if (!p->reservation)
        return budget_claim(l, p->alignment);
    uint64_t left = atomic_load(&p->reservation->left);
    do
        if (left < p->charged) {
            wi_shortage shortage = {.cause = WEIR_CAUSE_RESERVATION, .largest = left, .held = p->reservation->total};
            return budget_refuse(l, &shortage);
        }
    while (!atomic_compare_exchange_weak(&p->reservation->left, &left, left - p->charged));
    return WEIR_OK;
}

static void return_bytes(const budget *b, const wi_placement *p)
{
    if (p->reservation)
        atomic_fetch_add(&p->reservation->left, p->charged);
    else
        wi_ledger_cancel(b->resource.ledger, p->account, p->charged);
}

static weir_status budget_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    budget *b = (budget *)resource;
    wi_request request = {p->bytes, p->charged, p->memory_class, p->stream, p->tag};
    if (p->held) /* its bytes are the account's */
        return wi_allocate(resource->inner, p, out, shortage);
    ladder l = budget_begin(b, p->account, &request, p->may_wait);
    l.native = p->native;
    l.highest = p->rung;
    weir_status status = budget_obtain(&l, p);
    if (status != WEIR_OK)
        return status;
    l.placement = p;
    for (;;) {
        *shortage = (wi_shortage){.cause = WEIR_CAUSE_NONE};
        p->rung = l.highest;
        status = wi_allocate(resource->inner, p, out, shortage);
        if (status == WEIR_OK)
            return WEIR_OK;
        l.largest = shortage->largest;
        if (status == WEIR_ERR_OUT_OF_MEMORY && shortage->cause != WEIR_CAUSE_ADDRESS_RANGE && budget_climb(&l, true))
            continue;
        return_bytes(b, p);
        if (status == WEIR_ERR_OUT_OF_MEMORY && shortage->cause != WEIR_CAUSE_ADDRESS_RANGE)
            budget_blame(&l, shortage);
        return status == WEIR_ERR_OUT_OF_MEMORY ? budget_refuse(&l, shortage) : status;
    }
}

static void budget_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_discard(resource->inner, block, p);
    return_bytes((budget *)resource, p);
}

static weir_status budget_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                               wi_shortage *shortage)
{
    wi_resource *base = resource->base;
    uint64_t charge = base->table->charge(base, block->before + bytes + block->after);
    uint64_t more = charge > block->charged ? charge - block->charged : 0;
    wi_request request = {bytes - block->bytes, more, block->memory_class, block->stream, block->tag};
    ladder l = budget_begin((budget *)resource, block->account, &request, may_wait);
    weir_status status = budget_claim(&l, WI_UNIT);
    if (status != WEIR_OK)
        return status;
    do
        status = wi_grow(resource->inner, block, bytes, may_wait, shortage);
    while ((status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY) && budget_climb(&l, false));
    if (status != WEIR_OK)
        wi_ledger_cancel(resource->ledger, block->account, more);
    if (status == WEIR_ERR_OUT_OF_MEMORY) { /* no memory to put there */
        *shortage = (wi_shortage){.cause = WEIR_CAUSE_FRAGMENTATION};
        base->table->look(base, block->memory_class, more, WI_UNIT, shortage);
        status = budget_refuse(&l, shortage);
    }
    return status;
}

static void budget_destroy(wi_resource *resource)
{
    pthread_mutex_destroy(&resource->lock);
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

static wi_resource *budget_find(wi_resource *top)
{
    while (top && top->table != &table)
        top = top->inner;
    return top;
}

weir_status wi_budget_create(wi_resource *inner, wi_resource **out)
{
    budget *b = calloc(1, sizeof *b);
    if (!b)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a budget");
    wi_resource_init(&b->resource, &table, inner->driver, inner->device, inner);
    *out = &b->resource;
    return WEIR_OK;
}

bool wi_budget_attach(wi_resource *top)
{
    wi_resource *found = budget_find(top);
    if (!found || budget_find(found->inner))
        return false;
    ((budget *)found)->top = top;
    return true;
}

weir_status wi_budget_reserve(wi_resource *top, wi_account *account, const wi_request *request, bool may_wait)
{
    wi_resource *found = budget_find(top);
    wi_assert(found); /* every runtime's stack has one */
    ladder l = budget_begin((budget *)found, account, request, may_wait);
    return budget_claim(&l, 0);
}
