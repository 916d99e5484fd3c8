/* Members of a ledger: calls over all resources whose blocks the ledger counts. */
#include "memory/ledger/members.h"
#include "base/system.h"

void wi_members_add(wi_member *member, wi_resource *stack, wi_pending *pending)
{
    wi_ledger *ledger = stack->ledger;
    *member = (wi_member){.ledger = ledger, .base = stack->base, .pending = pending};
    pthread_mutex_lock(&ledger->members_lock);
    member->previous = ledger->last_member;
    *(ledger->last_member ? &ledger->last_member->next : &ledger->first_member) = member;
    ledger->last_member = member;
    pthread_mutex_unlock(&ledger->members_lock);
}

void wi_members_remove(wi_member *member)
{
    wi_ledger *ledger = member->ledger;
    bool used = true;
    for (unsigned spin = 0; used; spin++) {
        pthread_mutex_lock(&ledger->members_lock);
        used = member->users > 0; /* a new user needs the lock, which this thread holds */
        if (!used) {
            *(member->previous ? &member->previous->next : &ledger->first_member) = member->next;
            *(member->next ? &member->next->previous : &ledger->last_member) = member->previous;
        }
        pthread_mutex_unlock(&ledger->members_lock);
        if (used)
            wi_pause(spin);
    }
}

/* The next member behind `last`, or the first one for NULL. It cannot be removed until the next call, which lets it
 * go. */
static wi_member *members_look_at(wi_ledger *ledger, wi_member *last)
{
    pthread_mutex_lock(&ledger->members_lock);
    wi_member *member = last ? last->next : ledger->first_member;
    if (member)
        member->users++;
    if (last)
        last->users--;
    pthread_mutex_unlock(&ledger->members_lock);
    return member;
}

uint64_t wi_members_reap(wi_ledger *ledger, const wi_pending *whole)
{
    uint64_t bytes = 0;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        bytes += wi_pending_reap(h->pending, h->pending == whole ? NULL : h->base);
    return bytes;
}

uint64_t wi_members_released(wi_ledger *ledger)
{
    uint64_t bytes = 0;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        bytes += h->base->table->released ? h->base->table->released(h->base) : 0;
    return bytes;
}

bool wi_members_drain(wi_ledger *ledger)
{
    bool drained = false;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        drained = wi_pending_drain(h->pending) || drained;
    return drained;
}

void wi_members_finish(wi_ledger *ledger, const wi_pending *whole)
{
    const wi_pending *last = whole; /* the kinds of memory of one runtime share a list, and are neighbours here */
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h)) {
        if (h->pending != whole && h->pending != last)
            wi_pending_finish(h->pending);
        last = h->pending;
    }
}

bool wi_members_wait(wi_ledger *ledger, uint64_t deadline)
{
    bool found = false;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        found = found || wi_pending_wait(h->pending, h->base, NULL, deadline);
    return found;
}

uint64_t wi_members_pass(wi_ledger *ledger, uint64_t *left)
{
    uint64_t bytes = 0, more;
    *left = 0;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        if (h->base->table->pass) {
            bytes += h->base->table->pass(h->base, &more);
            *left += more;
        }
    return bytes;
}

uint64_t wi_members_idle(wi_ledger *ledger)
{
    uint64_t bytes = 0;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        bytes += h->base->table->idle ? h->base->table->idle(h->base) : 0;
    return bytes;
}

bool wi_members_bound(wi_ledger *ledger)
{
    bool bound = false;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        bound = (h->base->table->bound && h->base->table->bound(h->base)) || bound;
    return bound;
}

bool wi_members_await(wi_ledger *ledger, uint64_t deadline)
{
    bool waited = false;
    for (wi_member *h = members_look_at(ledger, NULL); h; h = members_look_at(ledger, h))
        waited = waited || (h->base->table->await && h->base->table->await(h->base, deadline));
    return waited;
}

/* All at once ------------------------------------------------------------------------------------------------------ */

void wi_members_lock(wi_ledger *ledger)
{
    pthread_mutex_lock(&ledger->members_lock);
    for (wi_member *member = ledger->first_member; member; member = member->next)
        wi_base_lock(member->base);
}

void wi_members_unlock(wi_ledger *ledger)
{
    for (wi_member *member = ledger->last_member; member; member = member->previous)
        wi_base_unlock(member->base);
    pthread_mutex_unlock(&ledger->members_lock);
}

void wi_members_each(wi_ledger *ledger, void (*fn)(wi_block *block, void *user), void *user)
{
    for (wi_member *member = ledger->first_member; member; member = member->next)
        member->base->table->each(member->base, fn, user);
}
