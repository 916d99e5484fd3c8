/* Suspends and resumes of clients: by steps of their own, when memory is short, or by an allocation; and which steps
 * may use a suspended client. While a client is on its way, other steps leave its blocks, pools and graphs alone,
 * because the only thread cannot wait for itself. */
#include "sim/world.h"

#include "runtime/runtime.h"

#include <weir/exchange.h>

static bool can_be_suspended(const world *w)
{
    const wi_resource *stack = w->runtime->resource;
    return wi_is_plain(stack) && stack->base->table->away;
}

bool world_knows_residency(const world_options *options)
{
    return options->streams <= (WORLD_STREAMS - WORLD_GONE - WORLD_SUSPENDERS) / 2 &&
           options->clients <= WORLD_SUSPENDERS;
}

bool world_is_away(const world *w, const slot *b)
{
    return b->block.pointer && !w->shown[b->client] && oracle_away(w->oracle, b->known) > 0;
}

static weir_residency sim_residency_look(world *w, unsigned client)
{
    weir_residency r = {.struct_size = sizeof r};
    (void)ANSWER(w, "weir_client_residency", weir_client_residency(w->clients[client], &r), WEIR_OK);
    return r;
}

/* A step around this one may be giving up the client's copies, and it cannot wait for that. */
static weir_status in_between(const world *w)
{
    return w->depth > 1 ? WEIR_ERR_BUSY : WEIR_OK;
}

/* In hand ---------------------------------------------------------------------------------------------------------- */

/* Whether no step under way has anything of the client's in hand. */
static bool residency_can_move(const world *w, unsigned client)
{
    bool can = world_has_client(w, client) && w->client_in_hand[client] == 0;
    for (unsigned i = 0; i < WORLD_SLOTS && can; i++)
        can = !w->slots[i].in_hand || !w->slots[i].block.pointer || w->slots[i].client != client;
    for (unsigned i = 0; i < WORLD_POOLS && can; i++)
        can = !w->pools[i].pool || w->pools[i].client != client || (!w->pools[i].closed && w->pools[i].in_hand == 0);
    for (unsigned i = 0; i < WORLD_GRAPHS && can; i++)
        can = !w->graphs[i].in_hand || w->graphs[i].client != client;
    return can && named_can_move(w, client);
}

static void sim_residency_take_client(world *w, unsigned client, bool take)
{
    w->client_closed[client] = take;
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (w->slots[i].block.pointer && w->slots[i].client == client)
            w->slots[i].in_hand = take;
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        if (w->pools[i].pool && w->pools[i].client == client)
            w->pools[i].closed = take;
    for (unsigned i = 0; i < WORLD_GRAPHS; i++)
        if (w->graphs[i].graph && w->graphs[i].client == client)
            w->graphs[i].in_hand = take;
    named_take_client(w, client, take);
}

/* Suspending ------------------------------------------------------------------------------------------------------- */

static const pool *away_pool_of(const world *w, unsigned client, bool away)
{
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        if (w->pools[i].pool && w->pools[i].client == client &&
            (!away || oracle_away(w->oracle, w->pools[i].known) > 0))
            return &w->pools[i];
    return NULL;
}

/* The user brings what weir does not wait for to its end: what was not declared, on other streams than those of the
 * allocations; of a pool's blocks all. False: that cannot be waited for now. */
static bool wait_for_users(world *w, unsigned client)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < WORLD_SLOTS; i++) {
        const slot *b = &w->slots[i];
        bool known = b->home && w->streams[b->home].id == b->home_id;
        if (b->block.pointer && b->client == client && !b->declared)
            mask |= b->touched & ~b->recorded & ~(known ? world_bit(b->home) : 0);
    }
    for (unsigned s = 1; s <= w->options.streams && away_pool_of(w, client, false); s++)
        mask |= w->streams[s].id ? world_bit(s) : 0;
    return world_follow(w, 0, mask);
}

/* Whether a stream is being captured, or about to be. */
static bool sim_residency_is_capturing(const world *w)
{
    bool captures = false;
    for (unsigned i = 1; i <= w->options.streams; i++)
        captures |= w->captured[i] || w->stream_closed[i];
    return captures;
}

static weir_suspend_options make_options(const world *w, const step *s, unsigned client)
{
    enum { CLASSES = (1 << WEIR_CLASS_COUNT) - 1 };
    uint64_t sets = s->field[F_FLAGS], how = s->field[F_COUNT];
    weir_suspend_options o = {.struct_size = sizeof o,
                              .stay = sets & CLASSES,
                              .drop = sets >> WEIR_CLASS_COUNT & CLASSES,
                              .unwritten = sets >> 2 * WEIR_CLASS_COUNT & CLASSES,
                              .verify = how & SUSPEND_VERIFY,
                              .keep_guarantee = how & SUSPEND_KEEP,
                              .resume_on_alloc = how & SUSPEND_ON_ALLOC,
                              .wait = s->field[F_MORE],
                              .folder = how & SUSPEND_FOLDER ? "/tmp" : NULL,
                              .show = how & SUSPEND_SHOW};
    if (!o.verify) /* a promise is kept, unless it is looked at */
        o.unwritten &= ~(uint32_t)w->written[client];
    return o;
}

/* What must not leave has not left; and what users know of the rest. */
static void look_at_left(world *w, slot *b, const weir_suspend_options *o, bool held)
{
    uint64_t away = oracle_away(w->oracle, b->known);
    uint32_t class_bit = WEIR_CLASS_BIT(b->memory_class);
    if (away == 0)
        return;
    if (b->stable || held || o->stay & class_bit)
        oracle_report(w->oracle, ORACLE_UNMAP_LIVE, "%llu bytes of a block at %p are away, which has to stay",
                      (unsigned long long)away, b->block.pointer);
    if (o->drop & class_bit) {
        b->version = away == b->charged ? WI_SIM_ZERO : 0;
        b->offset = 0;
        b->length = (b->bytes + WI_SIM_UNIT - 1) / WI_SIM_UNIT * WI_SIM_UNIT;
    }
    if (!b->declared)
        b->touched = b->recorded = b->writer = 0;
}

static void look_at_pools(world *w, unsigned client, const weir_suspend_options *o)
{
    for (unsigned i = 0; i < WORLD_POOLS; i++) {
        pool *p = &w->pools[i];
        if (!p->pool || p->client != client || oracle_away(w->oracle, p->known) == 0)
            continue;
        bool dropped = o->drop & WEIR_CLASS_BIT(p->memory_class), stays = o->stay & WEIR_CLASS_BIT(p->memory_class);
        if (stays)
            oracle_report(w->oracle, ORACLE_UNMAP_LIVE, "a pool of a class that has to stay is away");
        for (uint32_t k = 0; k < p->count && dropped; k++)
            p->pieces[k].slot.version = 0;
    }
}

static bool holds_some(const world *w, unsigned client)
{
    bool some = false;
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        some |= w->slots[i].block.pointer && w->slots[i].client == client && world_is_held(&w->slots[i]);
    return some;
}

/* Whether the client, which is suspended, may be used. */
static void look_whether_shown(world *w, unsigned client)
{
    weir_residency r = sim_residency_look(w, client);
    w->shown[client] = w->asked_to_show[client] && r.state == WEIR_SUSPENDED && r.shown == r.away;
    if (r.shown > (w->asked_to_show[client] ? r.away : 0))
        oracle_report(w->oracle, ORACLE_LEDGER, "%llu bytes of a client are shown, of %llu that are away",
                      (unsigned long long)r.shown, (unsigned long long)r.away);
}

static void suspended(world *w, unsigned client, const weir_suspend_options *o, const weir_residency *receipt,
                      bool whole)
{
    uint64_t away = oracle_suspended(w->oracle, client, true, !o->keep_guarantee);
    w->suspended[client] = o->resume_on_alloc ? SUSPENDED_UNTIL_ALLOC : SUSPENDED;
    w->asked_to_show[client] = o->show;
    look_whether_shown(w, client);
    if (whole && o->show && !w->shown[client])
        oracle_report(w->oracle, ORACLE_ANSWER, "a client is suspended, and not shown");
    w->moves[MOVE_SHOWN] += w->shown[client] && away > 0;
    if (receipt->away != away || receipt->state != WEIR_SUSPENDED)
        oracle_report(w->oracle, ORACLE_LEDGER, "%llu bytes of a client are away, it is said, and %llu are",
                      (unsigned long long)receipt->away, (unsigned long long)away);
    if (whole && receipt->copied + receipt->trusted + receipt->dropped < away)
        oracle_report(w->oracle, ORACLE_ANSWER, "%llu bytes are away, and not as many were copied, trusted or dropped",
                      (unsigned long long)away);
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (w->slots[i].block.pointer && w->slots[i].client == client)
            look_at_left(w, &w->slots[i], o, world_is_held(&w->slots[i]));
    look_at_pools(w, client, o);
    w->moves[MOVE_SUSPENDED]++;
    w->moves[MOVE_LEFT] += away > 0;
    w->moves[MOVE_TRUSTED] += receipt->trusted > 0;
}

/* What the oracle makes of a call that may have suspended the client. `disturbed`: steps of other clients may have
 * taken memory during the call. */
static void sim_residency_look_at_end(world *w, unsigned client, const weir_suspend_options *o, weir_residency receipt,
                                      weir_status status, bool disturbed, const char *call)
{
    bool left = status == WEIR_OK;
    if (!left) /* what has left and cannot be put back stays away, which takes more than one fault */
        receipt = sim_residency_look(w, client);
    left |= receipt.state == WEIR_SUSPENDED && (disturbed || world_faults(w) != w->fault_mark);
    if (left)
        suspended(w, client, o, &receipt, status == WEIR_OK);
    else
        (void)oracle_suspended(w->oracle, client, false, false);
    if (!left && receipt.state != WEIR_RESIDENT && !(receipt.state == WEIR_MOVING && in_between(w)))
        oracle_report(w->oracle, ORACLE_ANSWER, "%s answers %s, and the client is suspended", call,
                      weir_name_of(WEIR_NAMES_STATUS, status));
}

static void sim_residency_suspend(world *w, const step *s, unsigned client)
{
    weir_suspend_options o = make_options(w, s, client);
    weir_residency receipt = {.struct_size = sizeof receipt};
    if (!wait_for_users(w, client))
        return;
    bool captures = sim_residency_is_capturing(w);
    oracle_suspending(w->oracle, client);
    weir_status status = weir_client_suspend(w->clients[client], &o, &receipt);
    sim_residency_look_at_end(w, client, &o, receipt, status, false, "weir_client_suspend");
    bool busy = holds_some(w, client) || o.wait > 0 || in_between(w);
    (void)ANSWER(w, "weir_client_suspend", status, WEIR_ERR_OUT_OF_MEMORY, busy ? WEIR_ERR_BUSY : WEIR_OK,
                 captures ? WEIR_ERR_STREAM_MISUSE : WEIR_OK);
    w->moves[MOVE_NOT_SUSPENDED] += status != WEIR_OK;
}

/* A declared use of the slot, on the stream, has just been queued. */
static void use_first(world *w, const step *s)
{
    enum { LAST = WORLD_LAUNCHES - 1 };
    if (s->field[F_STREAM] == 0 || w->launches[LAST].launch)
        return;
    run_begin(w, &(step){.field = {[F_CLASS] = LAST,
                                   [F_SLOT] = s->field[F_SLOT],
                                   [F_STREAM] = s->field[F_STREAM],
                                   [F_FLAGS] = s->field[F_CLASS] & 1}});
    run_end(w, &(step){.field = {[F_SLOT] = LAST}});
}

void run_suspend(world *w, const step *s)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (!world_knows_residency(&w->options) || !residency_can_move(w, client))
        return;
    if (w->suspended[client] || !can_be_suspended(w)) {
        world_must_answer(w, "weir_client_suspend", weir_client_suspend(w->clients[client], NULL, NULL),
                          can_be_suspended(w) ? WEIR_ERR_BUSY : WEIR_ERR_UNSUPPORTED);
        return;
    }
    use_first(w, s);
    if (!residency_can_move(w, client) || w->suspended[client])
        return;
    sim_residency_take_client(w, client, true);
    sim_residency_suspend(w, s, client);
    sim_residency_take_client(w, client, false);
}

/* Resuming --------------------------------------------------------------------------------------------------------- */

static void begin_resume(world *w, unsigned client)
{
    sim_residency_take_client(w, client, true);
    oracle_resuming(w->oracle, client);
}

static void end_resume(world *w, unsigned client, unsigned stream, bool back)
{
    for (unsigned i = 0; i < WORLD_SLOTS && back; i++) {
        slot *b = &w->slots[i];
        if (!b->block.pointer || b->client != client || b->declared || oracle_away(w->oracle, b->known) == 0)
            continue;
        b->touched = world_bit(stream);
        b->writer = (uint8_t)stream;
    }
    oracle_resumed(w->oracle, client, world_number(w, stream), back);
    if (!back)
        look_whether_shown(w, client);
    if (back) {
        w->shown[client] = w->asked_to_show[client] = false;
        w->suspended[client] = RESIDENT;
        w->written[client] = 0;
    }
    w->moves[back ? MOVE_RESUMED : MOVE_NOT_RESUMED]++;
    sim_residency_take_client(w, client, false);
}

/* A resume that finds no memory says why. */
static void check_refusal(world *w, unsigned client, bool told)
{
    weir_refusal refusal = {.struct_size = sizeof refusal};
    if (told && ANSWER(w, "weir_refusal_last", weir_refusal_last(&refusal), WEIR_OK))
        oracle_refused_resume(w->oracle, client, refusal.requested, (int)refusal.cause,
                              !w->left_behind && !sim_residency_is_capturing(w));
    else
        oracle_report(w->oracle, ORACLE_REFUSAL, "client %u is not resumed, and no cause is named", client);
}

/* What a call that waits for users of what is shown may answer besides. */
static weir_status while_shown(const world *w, unsigned client, bool captured)
{
    if (!w->asked_to_show[client])
        return WEIR_OK;
    return captured                ? (sim_residency_is_capturing(w) ? WEIR_ERR_STREAM_MISUSE : WEIR_OK)
           : holds_some(w, client) ? WEIR_ERR_BUSY
                                   : WEIR_OK;
}

/* A part of it comes, up to so many granules. */
static void resume_some(world *w, unsigned client, unsigned stream, uint64_t granules)
{
    weir_resume_options o = {.struct_size = sizeof o, .most = granules * w->options.granule};
    uint64_t came = 0, before[WORLD_SLOTS] = {0};
    weir_status busy = while_shown(w, client, false), captured = while_shown(w, client, true);
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        before[i] = w->slots[i].block.pointer ? oracle_away(w->oracle, w->slots[i].known) : 0;
    begin_resume(w, client);
    weir_status status = weir_client_resume_some(w->clients[client], &o, w->streams[stream], &came);
    bool back = sim_residency_look(w, client).state == WEIR_RESIDENT;
    if (back || status != WEIR_OK) {
        end_resume(w, client, stream, back);
    } else {
        uint64_t counted = oracle_came(w->oracle, client, world_number(w, stream), came);
        for (unsigned i = 0; i < WORLD_SLOTS; i++) {
            slot *b = &w->slots[i];
            if (!b->block.pointer || b->client != client || b->declared ||
                before[i] <= oracle_away(w->oracle, b->known))
                continue;
            b->touched = world_bit(stream);
            b->writer = (uint8_t)stream;
        }
        if (came != counted)
            oracle_report(w->oracle, ORACLE_LEDGER, "%llu bytes have come back, it is said, and %llu have",
                          (unsigned long long)came, (unsigned long long)counted);
        look_whether_shown(w, client);
        sim_residency_take_client(w, client, false);
        w->moves[MOVE_PIECES] += came > 0;
    }
    if (status == WEIR_OK ? came == 0 && !back : came > 0)
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_client_resume_some answers %s, and %llu bytes have come",
                      weir_name_of(WEIR_NAMES_STATUS, status), (unsigned long long)came);
    (void)ANSWER(w, "weir_client_resume_some", status, WEIR_ERR_OUT_OF_MEMORY, in_between(w), busy, captured);
}

static void resume(world *w, unsigned client, unsigned stream)
{
    weir_status busy = while_shown(w, client, false), captured = while_shown(w, client, true);
    uint64_t nested = w->nested, refusals = w->runtime->ledger.refusals;
    begin_resume(w, client);
    weir_status status = weir_client_resume(w->clients[client], w->streams[stream]);
    end_resume(w, client, stream, status == WEIR_OK);
    if (status == WEIR_ERR_OUT_OF_MEMORY && world_undisturbed(w, nested) && world_faults(w) == w->fault_mark)
        check_refusal(w, client, w->runtime->ledger.refusals > refusals);
    if (status != WEIR_OK && sim_residency_look(w, client).state != WEIR_SUSPENDED)
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_client_resume answers %s, and the client is not suspended",
                      weir_name_of(WEIR_NAMES_STATUS, status));
    (void)ANSWER(w, "weir_client_resume", status, WEIR_ERR_OUT_OF_MEMORY, in_between(w), busy, captured);
}

/* What weir does not wait for is brought to its end, and nobody puts more there meanwhile. False: not now. */
static bool ready_to_resume(world *w, unsigned client)
{
    if (!w->asked_to_show[client])
        return true;
    sim_residency_take_client(w, client, true);
    bool ready = wait_for_users(w, client);
    sim_residency_take_client(w, client, false);
    return ready;
}

/* Changing places -------------------------------------------------------------------------------------------------- */

/* Forgets the contents of dropped classes: after a failure they may be zeros. */
static void sim_residency_forget_dropped(world *w, unsigned client, const weir_suspend_options *o)
{
    for (unsigned i = 0; i < WORLD_SLOTS; i++) {
        slot *b = &w->slots[i];
        if (b->block.pointer && b->client == client && o->drop & WEIR_CLASS_BIT(b->memory_class))
            b->version = 0;
    }
    for (unsigned i = 0; i < WORLD_POOLS; i++) {
        pool *p = &w->pools[i];
        bool dropped = p->pool && p->client == client && o->drop & WEIR_CLASS_BIT(p->memory_class);
        for (uint32_t k = 0; dropped && k < p->count; k++)
            p->pieces[k].slot.version = 0;
    }
}

static void sim_residency_exchange(world *w, const step *s, unsigned leaves, unsigned comes, unsigned stream)
{
    weir_suspend_options o = make_options(w, s, leaves);
    weir_residency receipt = {.struct_size = sizeof receipt};
    bool captures = sim_residency_is_capturing(w);
    weir_status busy = while_shown(w, comes, false);
    uint64_t nested = w->nested;
    o.show = false;
    begin_resume(w, comes);
    oracle_suspending(w->oracle, leaves);
    oracle_passing(w->oracle, leaves, true);
    weir_status status = weir_client_exchange(w->clients[leaves], &o, w->clients[comes], w->streams[stream], &receipt);
    sim_residency_look_at_end(w, leaves, &o, receipt, status, !world_undisturbed(w, nested), "weir_client_exchange");
    if (status != WEIR_OK)
        sim_residency_forget_dropped(w, leaves, &o);
    oracle_passing(w->oracle, leaves, false);
    end_resume(w, comes, stream, status == WEIR_OK);
    weir_residency_state came = sim_residency_look(w, comes).state;
    if (came != (status == WEIR_OK ? WEIR_RESIDENT : WEIR_SUSPENDED))
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_client_exchange answers %s, and the one that comes is %s",
                      weir_name_of(WEIR_NAMES_STATUS, status), came == WEIR_RESIDENT ? "back" : "away");
    if (holds_some(w, leaves) || o.wait > 0 || in_between(w))
        busy = WEIR_ERR_BUSY;
    (void)ANSWER(w, "weir_client_exchange", status, WEIR_ERR_OUT_OF_MEMORY, busy,
                 captures ? WEIR_ERR_STREAM_MISUSE : WEIR_OK);
    w->moves[status == WEIR_OK ? MOVE_EXCHANGED : MOVE_NOT_EXCHANGED]++;
}

/* The class is the number of the client that comes. */
void run_exchange(world *w, const step *s)
{
    unsigned leaves = (unsigned)s->field[F_CLIENT] % w->options.clients, stream = (unsigned)s->field[F_STREAM];
    unsigned comes = (unsigned)s->field[F_CLASS] % w->options.clients;
    if (!world_knows_residency(&w->options) || !can_be_suspended(w) || leaves == comes || w->suspended[leaves] ||
        !w->suspended[comes] || !residency_can_move(w, leaves) || !residency_can_move(w, comes))
        return;
    if (away_pool_of(w, comes, true) || !world_has_stream(w, stream))
        stream = 0;
    if (!wait_for_users(w, leaves) || !ready_to_resume(w, comes) || !world_has_stream(w, stream) ||
        !residency_can_move(w, leaves) || !residency_can_move(w, comes) || w->suspended[leaves] || !w->suspended[comes])
        return;
    world_take_stream(w, stream, 1);
    sim_residency_take_client(w, leaves, true);
    sim_residency_exchange(w, s, leaves, comes, stream);
    sim_residency_take_client(w, leaves, false);
    world_take_stream(w, stream, -1);
}

/* The order of a pool's blocks is their users' affair, who wait. */
void run_resume(world *w, const step *s)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients, stream = (unsigned)s->field[F_STREAM];
    if (!residency_can_move(w, client) || !world_has_stream(w, stream))
        return;
    if (!w->suspended[client]) {
        (void)ANSWER(w, "weir_client_resume", weir_client_resume(w->clients[client], w->streams[stream]),
                     in_between(w));
        return;
    }
    if (away_pool_of(w, client, true))
        stream = 0;
    if (!ready_to_resume(w, client) || !world_has_stream(w, stream))
        return;
    world_take_stream(w, stream, 1);
    if (s->field[F_COUNT])
        resume_some(w, client, stream, s->field[F_COUNT] % 8);
    else
        resume(w, client, stream);
    world_take_stream(w, stream, -1);
}

/* Other calls ------------------------------------------------------------------------------------------------------ */

bool world_asks(world *w, unsigned client)
{
    if (w->suspended[client] != SUSPENDED_UNTIL_ALLOC)
        return true;
    if (!residency_can_move(w, client) || !ready_to_resume(w, client))
        return false;
    begin_resume(w, client);
    return true;
}

bool world_was_admitted(world *w, unsigned client, const char *call, weir_status status)
{
    if (w->suspended[client] == SUSPENDED_UNTIL_ALLOC) {
        bool back = sim_residency_look(w, client).state == WEIR_RESIDENT;
        weir_status busy = while_shown(w, client, false), captured = while_shown(w, client, true);
        end_resume(w, client, 0, back);
        if (!back)
            (void)ANSWER(w, call, status, WEIR_ERR_OUT_OF_MEMORY, in_between(w), busy, captured);
        return back;
    }
    bool away = w->suspended[client] && !w->shown[client];
    if (away && w->asked_to_show[client]) /* after a fault some is not shown, and what that is may have been freed */
        return status != WEIR_ERR_BUSY;
    if (away)
        world_must_answer(w, call, status, WEIR_ERR_BUSY);
    return !away && (status != WEIR_ERR_BUSY || w->depth < 2);
}

void run_forget(world *w, const step *s)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (!residency_can_move(w, client))
        return;
    sim_residency_take_client(w, client, true);
    uint64_t stored = sim_residency_look(w, client).stored, given = weir_client_forget_copies(w->clients[client]);
    if (given != (w->suspended[client] ? 0 : stored) && (given > 0 || !in_between(w)))
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_client_forget_copies gives up %llu bytes of %llu",
                      (unsigned long long)given, (unsigned long long)stored);
    sim_residency_take_client(w, client, false);
}

/* Somebody finds no memory, and a client steps aside. */
void world_step_aside(world *w)
{
    enum { KEEP_ALL = 0 };
    for (unsigned i = 0; i < w->options.clients; i++) {
        unsigned client = (unsigned)(w->pressed + i) % w->options.clients;
        if (!residency_can_move(w, client) || w->suspended[client])
            continue;
        w->nested++;
        run_suspend(
            w, &(step){.field = {[F_CLIENT] = client, [F_FLAGS] = KEEP_ALL, [F_COUNT] = w->pressed & SUSPEND_KEEP}});
        return;
    }
}

void world_resume_all(world *w)
{
    for (unsigned c = 0; c < w->options.clients; c++)
        if (w->clients[c] && w->suspended[c])
            run_resume(w, &(step){.field = {[F_CLIENT] = c}});
}
