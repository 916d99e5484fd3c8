/* What the pool under "async" keeps. The pool alone decides what it reuses, so that it is asked after each change; as there is
 * no lock over its calls, only what is asked while no other call is under way counts, and the last one out asks. */
#include "memory/driver_alloc_pool.h"

/* The pool has `held` bytes in all: the books follow, as far as the budget leaves room. With the lock held. */
static void driver_alloc_adjust(wi_single *s, uint64_t held)
{
    wi_ledger *ledger = s->resource.ledger;
    uint64_t kept = held - wi_min(held, s->lent);
    if (kept < s->kept) {
        wi_ledger_unmapped(ledger, s->kept - kept);
        wi_ledger_release(ledger, s->kept - kept);
    } else if (kept > s->kept) {
        kept = s->kept + wi_ledger_hold(ledger, kept - s->kept);
        wi_ledger_mapped(ledger, kept - s->kept);
    }
    s->kept = kept;
}

weir_status wi_single_held(wi_single *s, uint64_t *held)
{
    wi_resource *r = &s->resource;
    if (!s->own)
        return r->driver->pool_held(r->device, held);
    weir_status status = wi_single_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->held(s->state, held);
    wi_single_leave(s);
    return status;
}

weir_status wi_single_trim(wi_single *s, uint64_t keep, uint64_t *held)
{
    wi_resource *r = &s->resource;
    if (!s->own)
        return r->driver->pool_trim(r->device, keep, held);
    weir_status status = wi_single_enter(s);
    if (status != WEIR_OK)
        return status;
    status = s->own->trim(s->state, keep, held);
    wi_single_leave(s);
    return status;
}

bool wi_single_follow(wi_single *s, bool trim, uint64_t keep, uint64_t *given)
{
    uint64_t held = 0;
    wi_resource_lock(&s->resource);
    uint64_t turn = s->turns, most = s->lent + wi_min(keep, UINT64_MAX / 2);
    bool last = s->working == 0;
    wi_resource_unlock(&s->resource);
    if (!last && !trim)
        return false;
    weir_status status = trim ? wi_single_trim(s, most, &held) : wi_single_held(s, &held);
    wi_resource_lock(&s->resource);
    uint64_t before = s->kept;
    bool true_now = status == WEIR_OK && s->working == 0 && s->turns == turn;
    s->turns += trim;
    if (true_now)
        driver_alloc_adjust(s, held);
    if (given)
        *given = before - wi_min(before, s->kept);
    bool over_soft_limit = true_now && held > s->lent + s->kept;
    wi_resource_unlock(&s->resource);
    return over_soft_limit;
}

void wi_single_follow_pool(wi_single *s)
{
    if (wi_single_keeps(s) && wi_single_follow(s, false, 0, NULL))
        (void)wi_single_follow(s, true, 0, NULL);
}
