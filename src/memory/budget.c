/* Claiming before placing, and the ladder between a shortage and a refusal. */
#include "memory/budget.h"
#include "base/options.h"
#include "base/system.h"
#include "memory/holders.h"

typedef struct budget {
    wi_resource resource;
    wi_resource *top; /* of the stack: adaptors around the budget may keep blocks back, too */
} budget;

/* The ladder ------------------------------------------------------------------------------------------------------- */

/* The oldest pending block of a list is waited for, which may stand behind somebody's long work while others are past, there
 * or in another list. So it is waited for a little at a time, in pauses that grow from the first to the longest: nanoseconds. */
enum { FIRST_PAUSE = 250 * 1000, LONGEST_PAUSE = 8 * 1000 * 1000 };

enum { MOST_LOOKS = 64 }; /* others may come and go for ever; a refusal must not wait for all of them */

/* What a request has tried so far. Each rung is climbed once, the waiting until its deadline. */
typedef struct ladder {
    budget *budget;
    wi_account *account;
    bool may_wait;
    void *native;      /* the stream of the request */
    uint64_t deadline; /* 0: not waited yet */
    uint64_t pause;
    unsigned emptied;  /* how often parked blocks were given up */
    uint64_t released; /* how much all threads had released when this one last looked */
    unsigned looks;
} ladder;

/* Whose work happens when a graph is launched waits for nothing now. */
static bool captured(const ladder *l)
{
    const wi_resource *r = &l->budget->resource;
    return l->native && r->driver->stream_capturing(r->device, l->native);
}

/* What this thread looked for in vain, another one may have released between the shortage and the look. */
static bool others_have_released(ladder *l)
{
    uint64_t released = wi_holders_released(l->budget->resource.ledger);
    bool more = released != l->released;
    l->released = released;
    return more && l->looks++ < MOST_LOOKS;
}

static bool any_pending(wi_ledger *ledger)
{
    weir_stats stats = {.size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(ledger, &stats, NULL, 0, 0, &ignored);
    return stats.pending > 0;
}

static bool try_rungs(ladder *l, bool helps)
{
    wi_ledger *ledger = l->budget->resource.ledger;
    uint64_t left;
    if (l->emptied < MOST_LOOKS && l->emptied++ < MOST_LOOKS && wi_ledger_empty_parking(ledger) > 0)
        return true;
    if (wi_holders_pass(ledger, &left) > 0 || wi_holders_reap(ledger, NULL) > 0 ||
        (any_pending(ledger) && wi_holders_settle(ledger)))
        return true;
    if (wi_relieve(l->budget->top) > 0)
        return true;
    if (!helps || !l->may_wait || captured(l))
        return false;
    uint64_t now = wi_now();
    if (l->deadline == 0)
        l->deadline = now + wi_option_wait();
    if (now >= l->deadline)
        return false;
    l->pause = l->pause ? wi_min(2 * l->pause, LONGEST_PAUSE) : FIRST_PAUSE;
    uint64_t until = wi_min(l->deadline, now + l->pause);
    return wi_holders_wait(ledger, until) || wi_holders_await(ledger, until);
}

/* True if something has changed that makes another try worth it. `helps`: pending frees would be enough. */
static bool climb(ladder *l, bool helps)
{
    return try_rungs(l, helps) || others_have_released(l);
}

static weir_status refuse(const ladder *l, const wi_request *request, const wi_shortage *shortage)
{
    return wi_ledger_refuse(l->budget->resource.ledger, l->account, request, shortage);
}

/* Bytes that only time keeps from being anyone's are not lost to fragments. */
static void blame(const ladder *l, const wi_request *request, wi_shortage *shortage)
{
    uint64_t left;
    (void)wi_holders_pass(l->budget->resource.ledger, &left);
    if (left > 0 && wi_max(left, shortage->largest) >= request->charged)
        shortage->cause = WEIR_CAUSE_PENDING;
}

/* alignment 0: the bytes need not be in one piece. */
static weir_status claim(ladder *l, const wi_request *request, uint64_t alignment)
{
    wi_resource *resource = &l->budget->resource, *base = resource->base;
    bool could = false;
    while (!wi_ledger_claim(resource->ledger, l->account, request->charged, &could)) {
        if (!wi_ledger_is_open(resource->ledger, l->account))
            return weir_fail(WEIR_INVALID, "the client %s was closed meanwhile", l->account->name);
        if (climb(l, could))
            continue;
        wi_shortage shortage = {.cause = could ? WEIR_CAUSE_PENDING : WEIR_CAUSE_NONE, .largest = UINT64_MAX};
        if (alignment > 0)
            base->table->look(base, request->memory_class, request->charged, alignment, &shortage);
        return refuse(l, request, &shortage);
    }
    return WEIR_OK;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* The bytes come from what was reserved, if that is where they shall come from. */
static weir_status obtain(ladder *l, const wi_placement *p, const wi_request *request)
{
    if (!p->reservation)
        return claim(l, request, p->alignment);
    uint64_t left = atomic_load(&p->reservation->left);
    do
        if (left < p->charged) {
            wi_shortage shortage = {WEIR_CAUSE_RESERVATION, left, p->reservation->total};
            return refuse(l, request, &shortage);
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

static weir_status allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    budget *b = (budget *)resource;
    wi_request request = {p->bytes, p->charged, p->memory_class, p->stream, p->tag};
    ladder l = {.budget = b, .account = p->account, .may_wait = p->may_wait, .native = p->native};
    weir_status status = obtain(&l, p, &request);
    if (status != WEIR_OK)
        return status;
    for (;;) {
        *shortage = (wi_shortage){.cause = WEIR_CAUSE_NONE};
        status = wi_allocate(resource->inner, p, out, shortage);
        if (status == WEIR_OK)
            return WEIR_OK;
        if (status == WEIR_OUT_OF_MEMORY && shortage->cause != WEIR_CAUSE_ADDRESS_RANGE && climb(&l, true))
            continue;
        return_bytes(b, p);
        if (status == WEIR_OUT_OF_MEMORY && shortage->cause != WEIR_CAUSE_ADDRESS_RANGE)
            blame(&l, &request, shortage);
        return status == WEIR_OUT_OF_MEMORY ? refuse(&l, &request, shortage) : status;
    }
}

static void discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_discard(resource->inner, block, p);
    return_bytes((budget *)resource, p);
}

static weir_status grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage)
{
    wi_resource *base = resource->base;
    uint64_t charge = base->table->charge(base, block->before + bytes + block->after);
    uint64_t more = charge > block->charged ? charge - block->charged : 0;
    wi_request request = {bytes - block->bytes, more, block->memory_class, block->stream, block->tag};
    ladder l = {.budget = (budget *)resource, .account = block->account, .may_wait = may_wait};
    weir_status status = claim(&l, &request, WI_UNIT);
    if (status != WEIR_OK)
        return status;
    do
        status = wi_grow(resource->inner, block, bytes, may_wait, shortage);
    while ((status == WEIR_NO_ROOM || status == WEIR_OUT_OF_MEMORY) && climb(&l, false));
    if (status != WEIR_OK)
        wi_ledger_cancel(resource->ledger, block->account, more);
    if (status == WEIR_OUT_OF_MEMORY) { /* no memory to put there */
        *shortage = (wi_shortage){.cause = WEIR_CAUSE_FRAGMENTATION};
        base->table->look(base, block->memory_class, more, WI_UNIT, shortage);
        status = refuse(&l, &request, shortage);
    }
    return status;
}

static void destroy(wi_resource *resource)
{
    pthread_mutex_destroy(&resource->lock);
    free(resource);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static const wi_resource_table table = {
    .name = "budget",
    .allocate = allocate,
    .discard = discard,
    .grow = grow,
    .destroy = destroy,
};

static wi_resource *find(wi_resource *top)
{
    while (top && top->table != &table)
        top = top->inner;
    return top;
}

weir_status wi_budget_create(wi_resource *inner, wi_resource **out)
{
    budget *b = calloc(1, sizeof *b);
    if (!b)
        return weir_fail(WEIR_SYSTEM, "no host memory for a budget");
    wi_resource_init(&b->resource, &table, inner->driver, inner->device, inner);
    *out = &b->resource;
    return WEIR_OK;
}

bool wi_budget_attach(wi_resource *top)
{
    wi_resource *found = find(top);
    if (!found || find(found->inner))
        return false;
    ((budget *)found)->top = top;
    return true;
}

weir_status wi_budget_reserve(wi_resource *top, wi_account *account, const wi_request *request, bool may_wait)
{
    ladder l = {.budget = (budget *)find(top), .account = account, .may_wait = may_wait};
    wi_law(l.budget); /* every runtime's stack has one */
    return claim(&l, request, 0);
}
