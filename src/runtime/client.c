/* Clients: accounts that are opened and closed, and reservations. */
#include "base/texts.h"
#include "memory/adaptors/adaptors.h"
#include "runtime/outside.h"
#include "runtime/runtime.h"

#include <weir/base.h>

/* `frees`: the call allocates nothing for the client. */
static weir_status client_check(const weir_client *client, const char *call, bool frees)
{
    WI_ENTER();
    if (!client)
        return weir_fail(WEIR_ERR_INVALID, "%s: the client is NULL", call);
    unsigned state = atomic_load_explicit(&client->state, memory_order_acquire);
    if (state == WI_CLIENT_OPEN || (frees && state == WI_CLIENT_CLOSING))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: the client is %s", call,
                     state == WI_CLIENT_CLOSING ? "being closed" : "closed");
}

weir_status wi_client_check(const weir_client *client, const char *call)
{
    return client_check(client, call, false);
}

weir_status wi_client_check_giving(const weir_client *client, const char *call)
{
    return client_check(client, call, true);
}

/* The oldest record of a closed client, if enough of them are kept, or a new one. */
static weir_client *client_take_record(weir_runtime *runtime)
{
    weir_client *client = NULL;
    pthread_mutex_lock(&runtime->clients_lock);
    if (runtime->closed_count > WI_CLOSED_KEPT) {
        client = runtime->closed_first;
        runtime->closed_first = client->next_closed;
        runtime->closed_count--;
    }
    pthread_mutex_unlock(&runtime->clients_lock);
    if (client) {
        memset(client->own_name, 0, sizeof client->own_name);
        wi_residency_free(client);
    }
    return client ? client : calloc(1, sizeof *client);
}

static void client_keep_record(weir_client *client)
{
    weir_runtime *runtime = client->runtime;
    client->next_closed = NULL;
    pthread_mutex_lock(&runtime->clients_lock);
    *(runtime->closed_first ? &runtime->closed_last->next_closed : &runtime->closed_first) = client;
    runtime->closed_last = client;
    runtime->closed_count++;
    pthread_mutex_unlock(&runtime->clients_lock);
}

static _Thread_local const void *next_owner;

void wi_client_own_next(const void *owner)
{
    next_owner = owner;
}

static const void *take_next_owner(void)
{
    const void *owner = next_owner;
    next_owner = NULL;
    return owner;
}

const void *wi_client_owner(const weir_client *client)
{
    return atomic_load(&client->owner);
}

void wi_client_disown(weir_client *client)
{
    atomic_store(&client->owner, NULL);
}

bool wi_client_hold(weir_client *client)
{
    unsigned holds = atomic_load(&client->holds);
    while (holds > 0 && !atomic_compare_exchange_weak(&client->holds, &holds, holds + 1))
        ;
    return holds > 0;
}

void wi_client_let_go(weir_client *client)
{
    if (atomic_fetch_sub(&client->holds, 1) == 1)
        client_keep_record(client);
}

/* Releases what thread caches and adaptors keep, of all clients; returns the bytes. */
static uint64_t client_release_kept(weir_runtime *runtime)
{
    uint64_t bytes = wi_tcaches_empty(runtime);
    (void)wi_runtime_reap(runtime);
    return bytes + wi_release_kept(runtime->resource);
}

static weir_status client_check_options(const weir_client_options *o)
{
    if (!o->name || !*o->name)
        return weir_fail(WEIR_ERR_INVALID, "weir_client_create: a client needs a name that people can read");
    if (o->maximum != 0 && o->guaranteed > o->maximum)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_client_create: %s is guaranteed %llu bytes, more than its maximum of %llu", o->name,
                         (unsigned long long)o->guaranteed, (unsigned long long)o->maximum);
    if ((unsigned)o->scrub >= WEIR_SCRUB_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_client_create: %d is no way to scrub; see weir_scrub", (int)o->scrub);
    return WEIR_OK;
}

static weir_status client_make(weir_runtime *runtime, const weir_client_options *o, weir_client **out)
{
    weir_client *client = client_take_record(runtime);
    if (!client)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a client");
    client->runtime = runtime;
    const char *lasting = wi_intern_as(WI_NAME, o->name, sizeof client->own_name - 1);
    if (!lasting)
        memcpy(client->own_name, o->name, strnlen(o->name, sizeof client->own_name - 1));
    client->account = (wi_account){.name = lasting ? lasting : client->own_name,
                                   .lasting = lasting ? lasting : WI_LOST_NAME,
                                   .client = client,
                                   .secret = o->scrub == WEIR_SCRUB_OTHERS,
                                   .guaranteed = o->guaranteed,
                                   .maximum = o->maximum ? o->maximum : UINT64_MAX};
    atomic_store(&client->overflow, 0);
    atomic_store(&client->owner, take_next_owner()); /* before anybody can see it in the ledger */
    (void)wi_runtime_reap(runtime); /* reaps first: blocks that the device is past do not prevent a close */
    weir_status status = wi_ledger_open(&runtime->ledger, &client->account);
    if (status == WEIR_ERR_OUT_OF_MEMORY && client_release_kept(runtime) > 0)
        status = wi_ledger_open(&runtime->ledger, &client->account);
    if (status != WEIR_OK) {
        atomic_store(&client->state, WI_CLIENT_CLOSED);
        client_keep_record(client);
        return status;
    }
    atomic_store(&client->holds, 1);
    atomic_store_explicit(&client->state, WI_CLIENT_OPEN, memory_order_release);
    *out = client;
    return WEIR_OK;
}

weir_status weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out)
{
    WI_ENTER();
    weir_client_options o;
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_client_create: no runtime, or no place for the result");
    weir_status status = WI_COPY_IN(weir_client_options, &o, options, "weir_client_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = client_check_options(&o);
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    return client_make(runtime, &o, out);
}

static weir_status client_has_blocks(weir_client *client, uint64_t blocks, uint64_t bytes)
{
    char text[24];
    wi_block largest;
    wi_largest_block(client->runtime->resource->base, &client->account, &largest);
    wi_guard *guard = wi_guard_in(client->runtime->resource);
    if (guard)
        wi_guard_log_leaks(guard, client);
    else
        wi_leaks_tell(client->runtime, client);
    return weir_fail(WEIR_ERR_BUSY, "%s has %llu blocks of %s, the largest tagged \"%s\"; free them before closing it",
                     client->account.name, (unsigned long long)blocks, weir_size_format(bytes, text, sizeof text),
                     largest.tag);
}

/* Whether the client has blocks of host memory, which are in another ledger. */
static weir_status client_has_host_blocks(weir_client *client)
{
    weir_runtime *runtime = client->runtime;
    weir_client_stats stats = {.struct_size = sizeof stats};
    wi_block largest = {.tag = ""};
    char text[24];
    if (!atomic_load(&client->host_open))
        return WEIR_OK;
    wi_ledger_account_snapshot(&atomic_load(&runtime->host)->ledger, &client->host_account, &stats);
    for (int kind = 0; kind < WI_KINDS; kind++) {
        wi_resource *stack = atomic_load(&runtime->kinds[kind]);
        wi_block found = {.tag = ""};
        if (stack)
            wi_largest_block(stack->base, &client->host_account, &found);
        if (found.charged > largest.charged)
            largest = found;
    }
    if (stats.blocks == 0)
        return WEIR_OK;
    wi_leaks_tell(atomic_load(&runtime->host), client);
    return weir_fail(WEIR_ERR_BUSY,
                     "%s has %llu blocks of %s in the memory of %s, the largest tagged \"%s\"; free "
                     "them before closing it",
                     client->account.name, (unsigned long long)stats.blocks,
                     weir_size_format(stats.live, text, sizeof text), atomic_load(&runtime->host)->name, largest.tag);
}

static weir_status client_has_reservations(const weir_client *client, unsigned open, uint64_t bytes)
{
    char text[24];
    return weir_fail(WEIR_ERR_BUSY,
                     "%s has %u open reservation%s with %s left; release what is reserved before closing it",
                     client->account.name, open, open == 1 ? "" : "s", weir_size_format(bytes, text, sizeof text));
}

weir_status weir_client_destroy(weir_client *client)
{
    weir_status status = wi_client_check(client, "weir_client_destroy");
    if (status != WEIR_OK)
        return status;
    weir_runtime *runtime = client->runtime;
    WI_VISIT(runtime);
    weir_client_stats stats = {.struct_size = sizeof stats};
    uint64_t copied, copies = wi_residency_copies(client, &copied);
    wi_ledger_account_snapshot(&runtime->ledger, &client->account, &stats);
    status = wi_elastics_check_none(client);
    if (status != WEIR_OK)
        return status;
    if (stats.blocks > copies) /* refused before the client is closing, as other threads may be using it */
        return client_has_blocks(client, stats.blocks - copies, stats.live + stats.away - copied);
    unsigned reservations = atomic_load(&client->reservations);
    if (reservations > 0)
        return client_has_reservations(client, reservations, stats.promised);
    status = wi_graphs_check_none(client);
    if (status != WEIR_OK)
        return status;
    status = wi_residency_end(client);
    if (status == WEIR_OK)
        status = client_has_host_blocks(client);
    if (status != WEIR_OK)
        return status;
    /* Of several closers one succeeds, so that the account leaves the ledger once. Blocks that other threads allocated
     * after the look above are still theirs to free. */
    unsigned open = WI_CLIENT_OPEN;
    if (!atomic_compare_exchange_strong(&client->state, &open, WI_CLIENT_CLOSING))
        return client_check(client, "weir_client_destroy", false);
    status = wi_outside_forget(client);
    if (status == WEIR_OK)
        status =
            wi_residency_end(client); /* again: a suspend may have begun, and been undone, before the state CLOSING */
    wi_tcaches_drop_client(client);
    wi_runtime_drain(runtime, &client->account);
    wi_runtime_drain(runtime, &client->host_account);
    reservations =
        atomic_load(&client->reservations); /* one may have been made between the look and the state CLOSING */
    if (status == WEIR_OK && reservations > 0)
        status = client_has_reservations(client, reservations, stats.promised);
    if (status == WEIR_OK)
        status = wi_graphs_check_none(client);
    if (status == WEIR_OK)
        status = wi_elastics_check_none(client);
    if (status == WEIR_OK)
        status = wi_host_memory_close_account(client);
    if (status == WEIR_OK)
        status = wi_ledger_close(&runtime->ledger, &client->account);
    atomic_store(&client->state, status == WEIR_OK ? WI_CLIENT_CLOSED : WI_CLIENT_OPEN);
    if (status == WEIR_OK)
        wi_client_let_go(client);
    return status;
}

weir_status weir_client_set_limits(weir_client *client, uint64_t guaranteed, uint64_t maximum)
{
    weir_status status = wi_client_check(client, "weir_client_set_limits");
    if (status != WEIR_OK)
        return status;
    if (!wi_residency_is_here(client))
        return weir_fail(WEIR_ERR_BUSY, "weir_client_set_limits: %s is suspended; resume it first",
                         client->account.name);
    if (maximum != 0 && guaranteed > maximum)
        return weir_fail(WEIR_ERR_INVALID, "%s cannot be guaranteed %llu bytes, more than its maximum of %llu",
                         client->account.name, (unsigned long long)guaranteed, (unsigned long long)maximum);
    (void)wi_runtime_reap(client->runtime);
    wi_ledger *ledger = &client->runtime->ledger;
    maximum = maximum ? maximum : UINT64_MAX;
    status = wi_ledger_set_limits(ledger, &client->account, guaranteed, maximum);
    if (status == WEIR_ERR_OUT_OF_MEMORY && client_release_kept(client->runtime) > 0)
        status = wi_ledger_set_limits(ledger, &client->account, guaranteed, maximum);
    return status;
}

const char *wi_client_name(const weir_client *client)
{
    return client ? client->account.name : "";
}

weir_runtime *weir_client_runtime(const weir_client *client)
{
    return client ? client->runtime : NULL;
}

weir_status weir_client_note_outside(weir_client *client, uint64_t bytes, const char *method)
{
    weir_status status = wi_client_check_giving(client, "weir_client_note_outside");
    if (status == WEIR_OK)
        wi_ledger_note_outside(&client->runtime->ledger, &client->account, bytes, method);
    return status;
}

weir_status weir_client_info(weir_client *client, weir_client_stats *out)
{
    weir_status status = wi_client_check_giving(client, "weir_client_info");
    if (status != WEIR_OK)
        return status;
    if (!out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_client_info: NULL, or member struct_size is not set");
    (void)wi_runtime_reap(client->runtime);
    weir_client_stats stats = {.struct_size = sizeof stats};
    wi_ledger_account_snapshot(&client->runtime->ledger, &client->account, &stats);
    stats.runtime = client->runtime;
    wi_copy_out(out, out->struct_size, &stats, sizeof stats);
    return WEIR_OK;
}

/* Reservations ----------------------------------------------------------------------------------------------------- */

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

/* Claims the bytes of a reservation, which the client's count includes already. */
static weir_status reservation_claim(weir_client *client, uint64_t total, bool may_wait, weir_reservation **out)
{
    weir_status status =
        wi_client_check(client, "weir_reservation_create"); /* a close counts reservations after it has set the state */
    if (status != WEIR_OK)
        return status;
    weir_reservation *reservation = malloc(sizeof *reservation);
    if (!reservation)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a reservation");
    wi_request request = {.bytes = total, .charged = total, .tag = ""};
    status = wi_budget_reserve(client->runtime->resource, &client->account, &request, false, may_wait);
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

uint64_t wi_reservation_left(const weir_reservation *reservation)
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
