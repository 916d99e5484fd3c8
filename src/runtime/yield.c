/* Memory for other processes: cached memory goes back to the driver, idle clients are suspended, the cheapest first, and
 * pressure callbacks are asked; and the offers of clients that may be suspended. */
#include "base/system.h"
#include "runtime/outside.h"

#include <weir/pressure.h>

#include <stdlib.h>

enum {
    MOST_CALLS = 64,            /* of one pressure callback, as for a request */
    SUSPEND_WAIT_NS = 100000000 /* for the work of a client that was said to have none */
};

/* Giving back ------------------------------------------------------------------------------------------------------ */

typedef struct giving {
    wi_outside *o;
    uint64_t goal; /* held bytes that may be left */
    weir_yielded *out;
} giving;

static uint64_t yield_held(const giving *g)
{
    return wi_ledger_look(&g->o->runtime->ledger).held;
}

static bool yield_is_done(const giving *g)
{
    return yield_held(g) <= g->goal;
}

/* Gives unused memory back, no more than is wanted, and lowers the budget behind it. Returns the bytes. */
static uint64_t yield_trim(const giving *g)
{
    weir_runtime *runtime = g->o->runtime;
    weir_stats stats = {.struct_size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(&runtime->ledger, &stats, NULL, 0, 0, &ignored);
    if (stats.held <= g->goal)
        return 0;
    uint64_t lack = stats.held - g->goal, unused = stats.cached + stats.spare;
    weir_trim_options options = {.struct_size = sizeof options, .keep = unused > lack ? unused - lack : 0};
    weir_trim_report report = {.struct_size = offsetof(weir_trim_report, left)};
    (void)!weir_runtime_trim(runtime, &options, &report);
    wi_outside_lower(g->o);
    return report.released;
}

static void yield_note(const giving *g, uint64_t *part, uint64_t bytes)
{
    *part += bytes;
    g->out->given += bytes;
}

/* Offers ----------------------------------------------------------------------------------------------------------- */

/* What suspending a client is expected to cost, and to bring. */
typedef struct price {
    uint64_t frees, copies, idle;
} price;

static bool yield_price(const wi_offer *offer, uint64_t now, price *out)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_residency before = WEIR_INIT(weir_residency);
    if (weir_client_info(offer->client, &stats) != WEIR_OK || weir_client_residency(offer->client, &before) != WEIR_OK)
        return false;
    uint64_t good = before.stored;
    *out = (price){.idle = now - offer->since};
    for (int c = 0; c < WEIR_CLASS_COUNT; c++) {
        if (offer->how.stay & WEIR_CLASS_BIT(c))
            continue;
        out->frees += stats.live_class[c];
        if (offer->how.drop & WEIR_CLASS_BIT(c))
            continue;
        uint64_t trusted = offer->how.unwritten & WEIR_CLASS_BIT(c) ? wi_min(good, stats.live_class[c]) : 0;
        good -= trusted;
        out->copies += stats.live_class[c] - trusted;
    }
    return out->frees > 0 && before.state == WEIR_RESIDENT;
}

static bool yield_is_cheaper(const price *a, const price *b)
{
    return a->copies != b->copies ? a->copies < b->copies : a->idle > b->idle;
}

/* To this thread; with the lock held. */
static void yield_mark(wi_offer *offer)
{
    offer->leaving = true;
    offer->mover = pthread_self();
}

static weir_status yield_suspend(const wi_offer *offer, weir_residency *receipt)
{
    weir_suspend_options how = offer->how;
    how.folder = offer->folder;
    how.wait = how.wait ? how.wait : SUSPEND_WAIT_NS;
    return weir_client_suspend(offer->client, &how, receipt);
}

/* The cheapest offer that nobody moves and that this look has not tried, as leaving; NULL: none. */
static wi_offer *yield_take_offer(wi_outside *o)
{
    wi_offer *best = NULL;
    price least = {0}, now;
    uint64_t time = wi_now();
    pthread_mutex_lock(&o->lock);
    for (wi_offer *offer = o->offers; offer; offer = offer->next)
        if (!offer->leaving && offer->tried != o->told.looks && yield_price(offer, time, &now) &&
            (!best || yield_is_cheaper(&now, &least))) {
            best = offer;
            least = now;
        }
    if (best) {
        best->tried = o->told.looks;
        yield_mark(best);
    }
    pthread_mutex_unlock(&o->lock);
    return best;
}

/* Suspends the cheapest idle client. False: none is left. */
static bool yield_suspend_one(const giving *g)
{
    wi_outside *o = g->o;
    wi_offer *offer = yield_take_offer(o);
    if (!offer)
        return false;
    weir_status status = yield_suspend(offer, NULL);
    if (status != WEIR_OK)
        wi_shorten(weir_detail(), g->out->why, sizeof g->out->why);
    pthread_mutex_lock(&o->lock);
    offer->leaving = false;
    o->told.suspends += status == WEIR_OK;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    g->out->clients += status == WEIR_OK;
    yield_note(g, &g->out->suspended, yield_trim(g));
    return true;
}

/* Callbacks -------------------------------------------------------------------------------------------------------- */

static void yield_call(const giving *g)
{
    wi_ledger *ledger = &g->o->runtime->ledger;
    wi_pressure_round round = wi_pressure_begin;
    uint64_t held = yield_held(g);
    weir_pressure pressure = {.struct_size = sizeof pressure,
                              .bytes = held - wi_min(held, g->goal),
                              .device = ledger->device,
                              .memory_class = WEIR_CLASS_OTHER};
    while ((held = yield_held(g)) > g->goal) {
        pressure.shortfall = held - g->goal;
        if (!wi_pressures_call(&ledger->pressures, &round, &pressure))
            return;
        uint64_t got = yield_trim(g);
        yield_note(g, &g->out->called, got);
        round.again = got > 0 && round.attempt < MOST_CALLS;
    }
}

void wi_outside_give(wi_outside *o, uint64_t lack, uint64_t more, weir_yielded *out)
{
    giving g = {.o = o, .out = out};
    uint64_t held = yield_held(&g), before = out->given;
    g.goal = held - wi_min(held, lack);
    wi_outside_lower(o);
    yield_note(&g, &out->trimmed, yield_trim(&g));
    while (!yield_is_done(&g) && yield_suspend_one(&g))
        continue;
    if (!yield_is_done(&g))
        yield_call(&g);
    g.goal -= wi_min(g.goal, more);
    yield_note(&g, &out->trimmed, yield_trim(&g));
    pthread_mutex_lock(&o->lock);
    o->told.given += out->given - before;
    pthread_mutex_unlock(&o->lock);
}

/* By name ---------------------------------------------------------------------------------------------------------- */

/* The next offer of a client of that name that the command has not moved, as leaving; NULL: none. */
static wi_offer *yield_take_named(wi_outside *o, const char *name, uint64_t command)
{
    pthread_mutex_lock(&o->lock);
    wi_offer *offer = o->offers;
    while (offer && (offer->leaving || offer->moved == command || strcmp(wi_client_name(offer->client), name) != 0))
        offer = offer->next;
    if (offer) {
        offer->moved = command;
        yield_mark(offer);
    }
    pthread_mutex_unlock(&o->lock);
    return offer;
}

static weir_status yield_move(const wi_offer *offer, bool away, uint64_t *bytes)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    weir_status status = away ? yield_suspend(offer, &receipt) : weir_client_residency(offer->client, &receipt);
    *bytes = receipt.away;
    return away || status != WEIR_OK ? status : weir_client_resume(offer->client, WEIR_STREAM_HOST);
}

size_t wi_outside_move_named(weir_runtime *runtime, const char *name, bool away, wi_offer_told *told, void *user)
{
    wi_outside *o = atomic_load(&runtime->outside);
    size_t count = 0;
    if (!o)
        return 0;
    pthread_mutex_lock(&o->lock);
    uint64_t command = ++o->commands;
    pthread_mutex_unlock(&o->lock);
    for (wi_offer *offer; (offer = yield_take_named(o, name, command)) != NULL; count++) {
        uint64_t bytes;
        weir_status status = yield_move(offer, away, &bytes);
        told(offer->client, status, bytes, user);
        pthread_mutex_lock(&o->lock);
        offer->leaving = false;
        pthread_cond_broadcast(&o->changed);
        pthread_mutex_unlock(&o->lock);
    }
    return count;
}

/* Offering --------------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static wi_offer **yield_find(wi_outside *o, const weir_client *client)
{
    wi_offer **link = &o->offers;
    while (*link && (*link)->client != client)
        link = &(*link)->next;
    return link;
}

/* With the lock held: waits until nobody suspends the client, and unlinks its offer. NULL: there is none. False: this thread
 * must not wait. */
static bool yield_unlink(wi_outside *o, const weir_client *client, wi_offer **out)
{
    wi_offer **link = yield_find(o, client);
    for (; *link && (*link)->leaving; link = yield_find(o, client)) {
        if (wi_pressures_inside() || pthread_equal((*link)->mover, pthread_self()))
            return false;
        pthread_cond_wait(&o->changed, &o->lock);
    }
    *out = *link;
    if (*link)
        *link = (*link)->next;
    return true;
}

static void yield_free_offer(wi_offer *offer)
{
    if (offer)
        free(offer->folder);
    free(offer);
}

weir_status weir_client_idle(weir_client *client, const weir_suspend_options *how)
{
    const char *call = "weir_client_idle";
    weir_suspend_options o = {.struct_size = sizeof o};
    wi_outside *outside;
    wi_offer *old = NULL;
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_suspend_options, &o, how, call);
    if (status == WEIR_OK && (o.stay | o.drop | o.unwritten) >= WEIR_CLASS_BIT(WEIR_CLASS_COUNT))
        status = weir_fail(WEIR_ERR_INVALID, "%s: a bit that is of no class; see WEIR_CLASS_BIT", call);
    if (status == WEIR_OK)
        status = wi_outside_of(client->runtime, &outside);
    if (status != WEIR_OK)
        return status;
    wi_offer *offer = calloc(1, sizeof *offer);
    char *folder = o.folder ? strdup(o.folder) : NULL;
    if (!offer || (o.folder && !folder)) {
        free(offer);
        free(folder);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", call);
    }
    *offer = (wi_offer){.client = client, .how = o, .folder = folder, .since = wi_now()};
    pthread_mutex_lock(&outside->lock);
    status = wi_client_check(client, call); /* a close looks for the offer after it has begun */
    if (status == WEIR_OK && !yield_unlink(outside, client, &old))
        status = weir_fail(WEIR_ERR_BUSY, "%s: %s is being suspended", call, wi_client_name(client));
    if (status == WEIR_OK) {
        offer->since = old ? old->since : offer->since;
        offer->next = outside->offers;
        outside->offers = offer;
        offer = NULL;
    }
    pthread_mutex_unlock(&outside->lock);
    yield_free_offer(old);
    yield_free_offer(offer);
    if (status == WEIR_OK)
        wi_outside_poke(outside);
    return status;
}

/* False: the client is just being suspended, and this thread must not wait. */
static bool yield_take_back(weir_client *client)
{
    wi_outside *o = atomic_load(&client->runtime->outside);
    wi_offer *offer = NULL;
    if (!o)
        return true;
    pthread_mutex_lock(&o->lock);
    bool taken = yield_unlink(o, client, &offer);
    pthread_mutex_unlock(&o->lock);
    yield_free_offer(offer);
    return taken;
}

weir_status weir_client_busy(weir_client *client, weir_stream stream)
{
    const char *call = "weir_client_busy";
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK && !yield_take_back(client))
        status = weir_fail(WEIR_ERR_BUSY, "%s: %s is being suspended", call, wi_client_name(client));
    return status == WEIR_OK ? weir_client_resume(client, stream) : status;
}

weir_status wi_outside_forget(weir_client *client)
{
    return yield_take_back(client)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_BUSY, "weir_client_destroy: %s is just being suspended", wi_client_name(client));
}
