/* Resuming: what is away of a client comes back, at once or by and by. */
#include "base/probes.h"
#include "base/system.h"
#include "runtime/residence.h"

/* Copies that are shown -------------------------------------------------------------------------------------------- */

weir_status wi_residence_hide(wi_away *away, wi_piece *piece, void *client)
{
    weir_status status = WEIR_OK;
    (void)away;
    if (piece->adrift) {
        piece->adrift = !wi_residence_copies_rest(client, residence_of(client));
        if (piece->adrift)
            return weir_fail(WEIR_ERR_DRIVER, "the driver does not say whether copies that a resume queued are done");
    }
    if (piece->shown) {
        status = wi_copies_hide(piece->copy);
        piece->shown = wi_host_chunk_is_shown(piece->copy->chunk);
    }
    return status;
}

void wi_residence_show_again(wi_away *away, wi_piece *piece, void *client)
{
    (void)away, (void)client;
    piece->shown = wi_copies_show(piece->copy) == WEIR_OK;
}

void wi_residency_sweep(weir_client *client)
{
    wi_base *base = client->runtime->resource->base;
    wi_residence *r = residence_of(client);
    wi_saved_detail saved;
    if (!r || !wi_residence_take_now(r, WEIR_SUSPENDED)) /* the thread that has the residence, or has it next, sweeps */
        return;
    wi_detail_save(&saved);
    /* on failure, the next thread that has the residence sweeps the rest */
    (void)!base->table->away->sweep(base, &r->away);
    wi_detail_restore(&saved);
    wi_residence_set(r, WEIR_SUSPENDED);
}

/* Resuming --------------------------------------------------------------------------------------------------------- */

/* Queues the contents of a piece that has memory again. */
static weir_status residency_arrived(wi_away *away, wi_piece *piece, void *user)
{
    weir_client *client = user;
    const weir_runtime *runtime = client->runtime;
    wi_residence *r = residence_of(client);
    weir_status status = piece->low ? wi_copies_load(&r->copies, away, piece, r->stream) : WEIR_OK;
    for (size_t i = piece->run; i < piece->run + piece->run_count && status == WEIR_OK; i++)
        if (!away->runs[i].saved)
            status = runtime->driver->fill(runtime->device, away->runs[i].start, 0, away->runs[i].bytes, r->stream);
    return status;
}

/* The bytes to claim: the away bytes, and at least the unused part of the client's guarantee. `promised` bytes of it are
 * promised to the client for that. */
static uint64_t residency_claim(weir_client *client, uint64_t away, uint64_t promised)
{
    weir_client_stats now = {.struct_size = sizeof now};
    wi_ledger_account_snapshot(&client->runtime->ledger, &client->account, &now);
    uint64_t used = now.live + now.pending + now.promised + now.thread_cached - promised;
    uint64_t guaranteed = client->account.guaranteed_away;
    return wi_max(away, guaranteed - wi_min(guaranteed, used));
}

/* Memory is there, and contents on their way: what follows comes behind them. */
static weir_status residency_arrive(weir_client *client, wi_residence *r, void *native)
{
    const weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    wi_event event = {0};
    weir_status status = runtime->driver->record(runtime->device, r->stream, &event);
    if (status == WEIR_OK && !(native && wi_has_bug(WI_BUG_ARRIVE_LATE)))
        status = native ? runtime->driver->order(runtime->device, native, event)
                        : runtime->driver->wait(runtime->device, event, UINT64_MAX);
    if (status == WEIR_OK && native)
        status = wi_elastic_away_moved(client, &r->pages, &event);
    return status == WEIR_OK ? base->table->away->arrive(base, &r->away, native ? &event : NULL) : status;
}

/* Commits the missing pages, and queues their contents. */
static weir_status residency_bring_pages(weir_client *client, wi_residence *r)
{
    weir_status status = wi_elastic_away_commit(client, &r->pages);
    return status == WEIR_OK ? wi_copies_load_all(&r->copies, &r->pages, 0, r->pages.piece_count, r->stream) : status;
}

static weir_status residency_bring(weir_client *client, wi_residence *r, weir_stream stream, void *native)
{
    const weir_runtime *runtime = client->runtime;
    wi_ledger *ledger = runtime->resource->base->resource.ledger;
    uint64_t away = r->away.coming;
    bool last = away == r->away.bytes;
    uint64_t needed = last ? residency_claim(client, away, r->promised) : away;
    r->taken = wi_min(r->offered, needed);
    wi_placement p = {.bytes = away,
                      .charged = needed - r->taken,
                      .alignment = WI_UNIT,
                      .stream = stream,
                      .native = native,
                      .account = &client->account,
                      .tag = "resume",
                      .may_wait = true,
                      .away = &r->away};
    wi_block *none;
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    bool gave_up = last && client->account.guaranteed_away > 0;
    r->away.arrived = residency_arrived;
    r->away.stream = stream;
    weir_status status = wi_allocate(runtime->resource, &p, &none, &ignored);
    if (status != WEIR_OK)
        return status;
    if (gave_up) {
        status = wi_ledger_guarantee_again(ledger, &client->account);
        gave_up = status == WEIR_OK; /* else it is given up still */
    }
    if (status == WEIR_OK)
        status = residency_bring_pages(client, r);
    if (status == WEIR_OK)
        wi_trust_seal(client, r);
    if (status == WEIR_OK)
        status = residency_arrive(client, r, native);
    if (status != WEIR_OK && gave_up)
        wi_ledger_give_up_guarantee(ledger, &client->account);
    wi_ledger_cancel(ledger, &client->account, status == WEIR_OK ? needed - away : p.charged);
    if (status == WEIR_OK) {
        wi_ledger_elsewhere(ledger, &client->account, -r->pages.bytes);
        r->pages.piece_count = r->pages.run_count = r->pages.bytes = 0;
    }
    return status;
}

/* With the blocks acquired. */
static weir_status residency_come(weir_client *client, wi_residence *r, weir_stream stream, void *native,
                                  uint64_t deadline)
{
    wi_base *base = client->runtime->resource->base;
    weir_status status =
        r->away.show && !wi_has_bug(WI_BUG_EXCHANGE_EARLY) ? wi_residence_wait_uses(client, r, deadline) : WEIR_OK;
    if (status == WEIR_OK)
        status = residency_bring(client, r, stream, native);
    if (status != WEIR_OK) {
        wi_saved_detail saved;
        wi_detail_save(&saved);
        bool idle = wi_residence_copies_rest(client, r);
        if (!idle)
            wi_residence_copies_are_uses(client, r, false);
        base->table->away->recall(base, &r->away, idle);
        if (idle)
            (void)!wi_elastic_away_release(client, &r->pages);
        wi_detail_restore(&saved);
    }
    return status;
}

/* Work may be using what is shown: it is waited for. */
static weir_status residency_resume(weir_client *client, wi_residence *r, weir_stream stream, uint64_t wait,
                                    const char *call)
{
    weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    uint64_t deadline = wi_residence_deadline(wait);
    void *native;
    weir_status status = wi_streams_resolve_recorded(runtime, stream, call, &native);
    if (status == WEIR_OK && atomic_load(&r->adrift))
        (void)wi_residence_copies_rest(client, r);
    if (status == WEIR_OK)
        status = base->table->away->sweep(base, &r->away);
    if (status == WEIR_OK && r->away.show && !wi_has_bug(WI_BUG_EXCHANGE_EARLY))
        status = wi_residence_wait_streams(client, deadline);
    if (status == WEIR_OK)
        status = base->table->away->recover(base, &r->away);
    return status == WEIR_OK ? residency_come(client, r, stream, native, deadline) : status;
}

weir_status wi_residence_resume(weir_client *client, wi_residence *r, weir_stream stream, uint64_t wait,
                                const char *call)
{
    r->away.most = UINT64_MAX;
    r->away.classes = 0;
    r->away.pointer = NULL;
    wi_copies_narrow(&r->copies, &r->away); /* what came back by piece may have been written since */
    return residency_resume(client, r, stream, wait, call);
}

/* Looks under the lock, as frees on other threads change the list. */
bool wi_residence_is_back(const weir_client *client, const wi_residence *r)
{
    wi_base *base = client->runtime->resource->base;
    wi_base_lock(base);
    bool back = r->away.piece_count == 0;
    wi_base_unlock(base);
    return back;
}

static weir_status residency_return(weir_client *client, const char *call, const weir_resume_options *o,
                                    weir_stream stream, uint64_t *came)
{
    weir_residency_state found;
    wi_residence *r = residence_of(client);
    if (!r)
        return WEIR_OK;
    if (!wi_residence_take(r, WEIR_SUSPENDED, &found))
        return found == WEIR_RESIDENT
                   ? WEIR_OK
                   : weir_fail(WEIR_ERR_BUSY, "%s: %s is being suspended or resumed", call, client->account.name);
    r->away.most = o->most ? o->most : UINT64_MAX;
    r->away.classes = o->classes;
    r->away.pointer = o->block;
    if (!o->unwritten)
        wi_copies_narrow(&r->copies, &r->away); /* what came back before may have been written since */
    weir_status status = residency_resume(client, r, stream, o->wait, "weir_client_resume");
    *came = status == WEIR_OK ? r->away.coming : 0;
    bool back = status == WEIR_OK && wi_residence_is_back(client, r);
    wi_residence_set(r, back ? WEIR_RESIDENT : WEIR_SUSPENDED);
    return status;
}

weir_status weir_client_resume(weir_client *client, weir_stream stream)
{
    const char *call = "weir_client_resume";
    uint64_t ignored = 0;
    weir_status status = wi_client_check(client, call);
    return status == WEIR_OK ? residency_return(client, call, &(weir_resume_options){0}, stream, &ignored) : status;
}

weir_status weir_client_resume_some(weir_client *client, const weir_resume_options *options, weir_stream stream,
                                    uint64_t *came)
{
    const char *call = "weir_client_resume_some";
    weir_resume_options o = {.struct_size = sizeof o};
    uint64_t bytes = 0;
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_resume_options, &o, options, call);
    if (status == WEIR_OK && o.classes >= WEIR_CLASS_BIT(WEIR_CLASS_COUNT))
        status = weir_fail(WEIR_ERR_INVALID, "%s: a bit that is of no class; see WEIR_CLASS_BIT", call);
    if (status == WEIR_OK)
        status = residency_return(client, call, &o, stream, &bytes);
    if (came)
        *came = bytes;
    return status;
}

weir_status wi_residency_settle(const weir_client *client)
{
    const weir_runtime *runtime = client->runtime;
    wi_residence *r = residence_of(client);
    return r && r->stream ? runtime->driver->stream_synchronize(runtime->device, r->stream) : WEIR_OK;
}
