/* Reservations: bytes that are promised to a client before it has blocks for them. */
#include "runtime/runtime.h"

static weir_status reservation_check(uint64_t bytes, uint32_t flags)
{
    if (bytes == 0)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_reservation_create: no bytes; reserve the sum of what the blocks will be charged");
    if (bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "weir_reservation_create: %llu bytes is no size a device could have",
                         (unsigned long long)bytes);
    if (flags & ~(uint32_t)WEIR_ALLOC_NO_WAIT)
        return weir_fail(WEIR_ERR_INVALID, "weir_reservation_create: flags %x; it knows WEIR_ALLOC_NO_WAIT alone",
                         flags);
    return WEIR_OK;
}

/* The client's, which is counted already. */
static weir_status reservation_claim(weir_client *client, uint64_t total, bool may_wait, weir_reservation **out)
{
    weir_status status =
        wi_client_check(client, "weir_reservation_create"); /* a close looks at the count after it has closed */
    if (status != WEIR_OK)
        return status;
    weir_reservation *reservation = malloc(sizeof *reservation);
    if (!reservation)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a reservation");
    wi_request request = {.bytes = total, .charged = total, .tag = ""};
    status = wi_budget_reserve(client->runtime->resource, &client->account, &request, may_wait);
    if (status != WEIR_OK) {
        free(reservation);
        return status;
    }
    *reservation = (weir_reservation){{&client->account, total, total}, client};
    *out = reservation;
    return WEIR_OK;
}

weir_status weir_reservation_create(weir_client *client, uint64_t bytes, uint32_t flags, weir_reservation **out)
{
    weir_status status = wi_client_check(client, "weir_reservation_create");
    if (status != WEIR_OK)
        return status;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_reservation_create: no place for the result");
    *out = NULL;
    status = reservation_check(bytes, flags);
    if (status != WEIR_OK)
        return status;
    atomic_fetch_add(&client->reservations, 1);
    status = reservation_claim(client, wi_round_up(bytes, WI_UNIT), !(flags & WEIR_ALLOC_NO_WAIT), out);
    if (status != WEIR_OK)
        atomic_fetch_sub(&client->reservations, 1);
    return status;
}

uint64_t weir_reservation_left(const weir_reservation *reservation)
{
    return reservation ? atomic_load(&reservation->claim.left) : 0;
}

weir_status weir_reservation_destroy(weir_reservation *reservation)
{
    WI_ENTER();
    if (!reservation)
        return WEIR_OK;
    weir_client *client = reservation->client;
    uint64_t left = atomic_load(&reservation->claim.left);
    wi_ledger_cancel(&client->runtime->ledger, &client->account, left);
    free(reservation);
    atomic_fetch_sub(&client->reservations, 1); /* the client may be closed from here on */
    return WEIR_OK;
}
