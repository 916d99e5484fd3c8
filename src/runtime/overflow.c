/* Overflow: weights that the device has no room for begin in memory of the host's, which is shown at their addresses. From then on
 * the client is as after a suspend with `show`: suspended, used as always, and brought back by piece. */
#include "runtime/residence.h"

#include <string.h>

weir_status weir_client_set_overflow(weir_client *client, bool on, uint64_t room)
{
    const char *call = "weir_client_set_overflow";
    wi_residence *ignored;
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK && on)
        status = wi_residence_open(client, call, &ignored);
    if (status != WEIR_OK)
        return status;
    if (on && !wi_host_memory_can_show(client->runtime))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s cannot show memory of the host's at its addresses", call,
                         client->runtime->name);
    if (on && room >= UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "%s: %llu bytes is no size a device could have", call,
                         (unsigned long long)room);
    atomic_store(&client->overflow, on ? room + 1 : 0);
    return WEIR_OK;
}

bool wi_overflow_serves(const weir_client *client, const wi_resource *stack, const wi_placement *p)
{
    return atomic_load_explicit(&((weir_client *)client)->overflow, memory_order_relaxed) > 0 &&
           p->memory_class == WEIR_CLASS_WEIGHTS && stack == client->runtime->resource && !p->stable &&
           !p->reservation && !p->captured && p->bytes >= stack->base->granule;
}

weir_status wi_overflow_keep_room(weir_client *client, const wi_placement *p, weir_reservation **room)
{
    uint64_t told = atomic_load(&client->overflow), bytes = told - (told > 0);
    *room = NULL;
    return bytes > 0 ? weir_reservation_create(client, bytes, p->may_wait ? 0 : WEIR_ALLOC_NO_WAIT, room) : WEIR_OK;
}

/* Takes the record of a client that can be used. *from: the state that it had. */
static weir_status overflow_enter(weir_client *client, wi_residence *r, weir_residency_state *from)
{
    weir_residency_state found = WEIR_MOVING;
    const weir_residency_state states[] = {WEIR_RESIDENT, WEIR_SUSPENDED};
    for (int i = 0; i < 4; i++) { /* other threads may bring the client from one state to the other meanwhile */
        *from = states[i % 2];
        if (!wi_residence_take(r, *from, &found))
            continue;
        if (*from == WEIR_RESIDENT || (r->shows && !r->options.resume_on_alloc && r->pages.piece_count == 0))
            return WEIR_OK;
        wi_residence_set(r, *from);
        break;
    }
    return weir_fail(WEIR_ERR_BUSY, "weir_alloc: %s is suspended, or being suspended or resumed", client->account.name);
}

/* Makes memory of the host's for each piece, and shows it there. */
static weir_status overflow_show(wi_residence *r, wi_claim *claim)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < claim->count && status == WEIR_OK; i++) {
        wi_piece *p = &claim->pieces[i];
        status = wi_copies_make(&r->copies, p);
        if (status == WEIR_OK)
            status = wi_copies_show(p->copy);
        p->shown = p->copy && wi_host_chunk_is_shown(p->copy->chunk);
    }
    return status;
}

/* Gives back what was made, behind zeros that may be on their way. False: the driver did not take a piece from its place, whose
 * addresses are lost. */
static bool overflow_hide(const weir_client *client, wi_residence *r, wi_claim *claim)
{
    bool all = true;
    if (!wi_residence_copies_rest(client, r))
        return false;
    for (size_t i = 0; i < claim->count; i++) {
        wi_piece *p = &claim->pieces[i];
        bool hidden = p->copy && (!p->shown || wi_copies_hide(p->copy) == WEIR_OK);
        all &= hidden || !p->copy;
        if (hidden)
            wi_copies_give_up(&r->copies, p->copy);
    }
    return all;
}

/* The zeros are there at return. */
static weir_status overflow_clear(const weir_client *client, const wi_residence *r, const wi_claim *claim)
{
    const weir_runtime *runtime = client->runtime;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < claim->count && status == WEIR_OK; i++) {
        const wi_piece *p = &claim->pieces[i];
        status = runtime->driver->fill(runtime->device, p->low, 0, (uint64_t)(p->high - p->low), r->stream);
    }
    return status == WEIR_OK ? runtime->driver->stream_synchronize(runtime->device, r->stream) : status;
}

/* What is written there is written to the copies, so that they are good when the pieces come to the device. */
static void overflow_trust(wi_base *base, wi_residence *r, const wi_claim *claim)
{
    for (size_t i = 0; i < claim->count; i++) {
        wi_copy *copy = claim->pieces[i].copy;
        copy->stamp = base->table->away->stamp(base, &r->away, copy->low, copy->high);
        copy->good = true;
    }
}

/* With the residence. */
static weir_status overflow_make(weir_client *client, wi_residence *r, wi_placement *p, bool zeroed, weir_block *out)
{
    wi_base *base = client->runtime->resource->base;
    wi_saved_detail why;
    wi_claim claim;
    weir_status status = base->table->away->claim(base, p, &claim);
    if (status != WEIR_OK)
        return status;
    status = overflow_show(r, &claim);
    if (status == WEIR_OK && zeroed)
        status = overflow_clear(client, r, &claim);
    wi_tcache_flush(client);
    if (status == WEIR_OK)
        status = base->table->away->begin(base, &r->away, &claim, p, out);
    if (status == WEIR_OK) {
        overflow_trust(base, r, &claim);
    } else {
        wi_detail_save(&why);
        if (overflow_hide(client, r, &claim))
            base->table->away->unclaim(base, &claim);
        wi_detail_restore(&why);
    }
    wi_away_claim_end(&claim);
    return status;
}

weir_status wi_overflow_place(weir_client *client, wi_placement *p, bool zeroed, weir_block *out)
{
    weir_residency_state from;
    wi_saved_detail why;
    wi_residence *r;
    weir_status status = wi_residence_open(client, "weir_alloc", &r);
    if (status == WEIR_OK)
        status = overflow_enter(client, r, &from);
    if (status != WEIR_OK)
        return status;
    if (!wi_residence_copies_rest(client, r)) /* copies of these addresses may be old, and under way */
        status =
            weir_fail(WEIR_ERR_DRIVER, "the driver does not say whether copies of %s are done", client->account.name);
    if (status == WEIR_OK && from == WEIR_RESIDENT)
        status = wi_residence_begin_shown(client, r);
    wi_measure(client->runtime->resource, p);
    if (status == WEIR_OK)
        status = overflow_make(client, r, p, zeroed, out);
    wi_detail_save(&why);
    if (status != WEIR_OK && from == WEIR_RESIDENT && wi_residence_copies_rest(client, r))
        wi_copies_sweep(&r->copies, false);
    wi_detail_restore(&why);
    wi_residence_set(r, status == WEIR_OK ? WEIR_SUSPENDED : from);
    return status;
}
