#include "memory/holders.h"
#include "base/system.h"

void wi_holders_add(wi_holder *holder, wi_resource *stack, wi_pending *pending)
{
    wi_ledger *ledger = stack->ledger;
    *holder = (wi_holder){.ledger = ledger, .base = stack->base, .pending = pending};
    pthread_mutex_lock(&ledger->holders_lock);
    holder->previous = ledger->last_holder;
    *(ledger->last_holder ? &ledger->last_holder->next : &ledger->first_holder) = holder;
    ledger->last_holder = holder;
    pthread_mutex_unlock(&ledger->holders_lock);
}

void wi_holders_remove(wi_holder *holder)
{
    wi_ledger *ledger = holder->ledger;
    bool used = true;
    for (unsigned turn = 0; used; turn++) {
        pthread_mutex_lock(&ledger->holders_lock);
        used = holder->users > 0; /* new ones need the lock */
        if (!used) {
            *(holder->previous ? &holder->previous->next : &ledger->first_holder) = holder->next;
            *(holder->next ? &holder->next->previous : &ledger->last_holder) = holder->previous;
        }
        pthread_mutex_unlock(&ledger->holders_lock);
        if (used)
            wi_pause(turn);
    }
}

/* The holder behind `last`, which is let go; the first one for NULL. */
static wi_holder *look_at(wi_ledger *ledger, wi_holder *last)
{
    pthread_mutex_lock(&ledger->holders_lock);
    wi_holder *holder = last ? last->next : ledger->first_holder;
    if (holder)
        holder->users++;
    if (last)
        last->users--;
    pthread_mutex_unlock(&ledger->holders_lock);
    return holder;
}

uint64_t wi_holders_reap(wi_ledger *ledger, const wi_pending *whole)
{
    uint64_t bytes = 0;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        bytes += wi_pending_reap(h->pending, h->pending == whole ? NULL : h->base);
    return bytes;
}

uint64_t wi_holders_released(wi_ledger *ledger)
{
    uint64_t bytes = 0;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        bytes += wi_pending_released(h->pending) + (h->base->table->released ? h->base->table->released(h->base) : 0);
    return bytes;
}

bool wi_holders_settle(wi_ledger *ledger)
{
    bool settled = false;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        settled = wi_pending_settle(h->pending) || settled;
    return settled;
}

void wi_holders_finish(wi_ledger *ledger, const wi_pending *whole)
{
    const wi_pending *last = whole; /* the kinds of a guest follow each other in one list */
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h)) {
        if (h->pending != whole && h->pending != last)
            wi_pending_finish(h->pending);
        last = h->pending;
    }
}

bool wi_holders_wait(wi_ledger *ledger, uint64_t deadline)
{
    bool found = false;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        found = found || wi_pending_wait(h->pending, h->base, NULL, deadline);
    return found;
}

uint64_t wi_holders_pass(wi_ledger *ledger, uint64_t *left)
{
    uint64_t bytes = 0, more;
    *left = 0;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        if (h->base->table->pass) {
            bytes += h->base->table->pass(h->base, &more);
            *left += more;
        }
    return bytes;
}

bool wi_holders_bound(wi_ledger *ledger)
{
    bool bound = false;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        bound = (h->base->table->bound && h->base->table->bound(h->base)) || bound;
    return bound;
}

bool wi_holders_await(wi_ledger *ledger, uint64_t deadline)
{
    bool waited = false;
    for (wi_holder *h = look_at(ledger, NULL); h; h = look_at(ledger, h))
        waited = waited || (h->base->table->await && h->base->table->await(h->base, deadline));
    return waited;
}

/* All at once ------------------------------------------------------------------------------------------------------ */

void wi_holders_lock(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->holders_lock);
    for (wi_holder *holder = ledger->first_holder; holder; holder = holder->next)
        wi_resource_lock(holder->base);
}

void wi_holders_unlock(wi_ledger *ledger)
{
    for (wi_holder *holder = ledger->last_holder; holder; holder = holder->previous)
        wi_resource_unlock(holder->base);
    pthread_mutex_unlock(&ledger->holders_lock);
}

void wi_holders_each(wi_ledger *ledger, void (*fn)(wi_block *block, void *user), void *user)
{
    for (wi_holder *holder = ledger->first_holder; holder; holder = holder->next)
        holder->base->table->each(holder->base, fn, user);
}
