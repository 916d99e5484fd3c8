/* The book: each client's bytes, as the users' calls tell. */
#include "sim/oracle_state.h"

#include <weir/memory.h>

/* Pending frees ---------------------------------------------------------------------------------------------------- */

void oracle_list_pending(oracle *o, uint32_t index)
{
    if (!oracle_room(o, &o->pending, o->pending_count, &o->pending_capacity, sizeof *o->pending))
        return;
    o->pending[o->pending_count++] = index;
    o->table[index].listed = true;
}

void oracle_unlist_pending(oracle *o, uint32_t index)
{
    size_t at = o->pending_count;
    while (at > 0 && o->pending[at - 1] != index)
        at--;
    if (at > 0)
        o->pending[at - 1] = o->pending[--o->pending_count];
    o->table[index].listed = false;
}

bool oracle_are_done(const oracle *o, const uint64_t *points)
{
    for (unsigned s = 1; s < o->width; s++)
        if (points[s] && wi_sim_done(o->device, s) < points[s])
            return false;
    return true;
}

static void oracle_book_sweep_pending(oracle *o)
{
    size_t left = 0;
    for (size_t i = 0; i < o->pending_count; i++) {
        owner *w = &o->table[o->pending[i]];
        account *a = &o->accounts[w->client];
        if (!w->moving && !w->past && oracle_are_done(o, w->least)) {
            w->past = true;
            a->pending_least -= w->charged;
        }
        if (!w->past || !oracle_are_done(o, w->most)) {
            o->pending[left++] = o->pending[i];
            continue;
        }
        a->pending_most -= w->charged;
        w->listed = false;
        oracle_let_go(o, o->pending[i]);
    }
    o->pending_count = left;
}

/* Live and promised bytes ------------------------------------------------------------------------------------------ */

void oracle_live(oracle *o, unsigned client, weir_class memory_class, uint64_t more, uint64_t less)
{
    account *a = &o->accounts[client];
    a->live += more - less;
    a->live_class[memory_class] += more - less;
    o->live += more - less;
}

void oracle_move(oracle *o, unsigned client, weir_class memory_class, uint64_t more, uint64_t less)
{
    account *a = &o->accounts[client];
    a->moving += more - less;
    a->moving_class[memory_class] += more - less;
    o->moving += more - less;
}

void oracle_reserved(oracle *o, unsigned client, uint64_t more, uint64_t less)
{
    o->accounts[client].reserved += more - less;
}

void oracle_asking(oracle *o, unsigned client, weir_class memory_class, uint64_t charged, bool reserved)
{
    oracle_move(o, client, memory_class, charged, 0);
    o->accounts[client].asked += charged;
    if (reserved)
        oracle_reserved(o, client, 0, charged);
}

void oracle_answered(oracle *o, unsigned client, weir_class memory_class, uint64_t charged, bool reserved)
{
    oracle_move(o, client, memory_class, 0, charged);
    o->accounts[client].asked -= charged;
    if (reserved)
        oracle_reserved(o, client, charged, 0);
}

/* Limits ----------------------------------------------------------------------------------------------------------- */

void oracle_holding(void *user, uint64_t bytes)
{
    oracle *o = user;
    o->held = bytes;
    if (bytes > o->budget && !o->pooled)
        oracle_report(o, ORACLE_BUDGET, "%llu bytes are held under a budget of %llu", ULL(bytes), ULL(o->budget));
}

void oracle_setting_budget(oracle *o, uint64_t budget)
{
    o->next_budget = budget;
}

void oracle_set_budget(oracle *o, uint64_t budget)
{
    o->budget = o->next_budget = budget;
    oracle_holding(o, o->held);
}

void oracle_set_pooled(oracle *o)
{
    o->pooled = true;
}

void oracle_set_limits(oracle *o, unsigned client, uint64_t guaranteed, uint64_t maximum)
{
    o->accounts[client].guaranteed = guaranteed;
    o->accounts[client].maximum = maximum;
}

/* Sums over all clients but `except` the greater of the bytes in use and the guarantee. */
static uint64_t oracle_book_committed(const oracle *o, unsigned except, bool most)
{
    uint64_t sum = 0;
    for (unsigned c = 0; c < ORACLE_CLIENTS; c++) {
        const account *a = &o->accounts[c];
        if (c != except)
            sum += wi_max(a->live + a->reserved + (most ? a->pending_most : a->pending_least - a->left), a->guaranteed);
    }
    return sum;
}

void oracle_refused(oracle *o, unsigned client, uint64_t charged, int cause)
{
    const account *a = &o->accounts[client];
    oracle_book_sweep_pending(o);
    uint64_t wanted = a->live + a->reserved + a->pending_most + charged;
    if (cause == WEIR_CAUSE_MAXIMUM && (a->maximum == 0 || wanted <= a->maximum))
        oracle_report(o, ORACLE_REFUSAL, "client %u is refused %llu bytes for its maximum of %llu, with %llu used",
                      client, ULL(charged), ULL(a->maximum), ULL(wanted - charged));
    if (cause == WEIR_CAUSE_BUDGET &&
        oracle_book_committed(o, client, true) + wi_max(wanted, a->guaranteed) <= o->budget)
        oracle_report(o, ORACLE_REFUSAL,
                      "client %u is refused %llu bytes for the budget of %llu, of which %llu are used", client,
                      ULL(charged), ULL(o->budget), ULL(oracle_book_committed(o, ORACLE_CLIENTS, true)));
}

/* Snapshots -------------------------------------------------------------------------------------------------------- */

/* `more`: what calls that are under way may have added. */
static void check_bytes(oracle *o, const char *what, unsigned client, uint64_t told, uint64_t least, uint64_t more)
{
    if (told < least || told - least > more)
        oracle_report(o, ORACLE_LEDGER, "a snapshot tells %llu bytes %s for client %u, which has %llu", ULL(told), what,
                      client, ULL(told < least ? least : least + more));
}

/* What threads keep was freed by the client, and nobody had it since. */
static void check_thread_cached(oracle *o, const weir_client_stats *line, unsigned number)
{
    uint64_t freed = 0;
    for (uint32_t i = 0; line->thread_cached > 0 && i < o->count; i++)
        if (o->table[i].state == OWNER_FREED && o->table[i].client == number)
            freed += o->table[i].units * WI_SIM_UNIT;
    if (line->thread_cached > freed)
        oracle_report(o, ORACLE_LEDGER, "a snapshot tells %llu thread-cached bytes of client %u, which has freed %llu",
                      ULL(line->thread_cached), number, ULL(freed));
    if (line->live + line->pending + line->promised + line->thread_cached > line->maximum)
        oracle_report(o, ORACLE_BUDGET,
                      "client %u uses %llu bytes with its thread-cached ones, and has a maximum of %llu", number,
                      ULL(line->live + line->pending + line->promised + line->thread_cached), ULL(line->maximum));
}

/* Of one that leaves piece by piece what is said to be away is not live, and stays promised, or passes. */
static void oracle_book_passing(account *a, const weir_client_stats *line, uint64_t *left)
{
    a->left = a->live - wi_min(a->live, line->live);
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        left[k] = a->live_class[k] - wi_min(a->live_class[k], line->live_class[k]);
}

/* A suspend has all leave in one step, and is under way until it has tidied up, if it failed. */
static void check_line(oracle *o, const weir_client_stats *line, unsigned number, bool settled)
{
    account *a = &o->accounts[number];
    uint64_t left[WEIR_CLASS_COUNT] = {0}, coming = a->coming ? a->away : 0;
    a->left = a->moves && !a->coming && line->away > 0 ? oracle_left(o, number, left) : 0;
    if (a->passes)
        oracle_book_passing(a, line, left);
    check_bytes(o, "live", number, line->live, a->live - a->left, a->moving);
    check_bytes(o, "pending", number, line->pending, a->pending_least,
                settled ? a->pending_most - a->pending_least : UINT64_MAX - a->pending_least);
    check_bytes(o, "promised", number, line->promised, a->reserved,
                a->asked + (a->passes ? wi_max(a->left, a->guaranteed) : 0));
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        check_bytes(o, weir_name_of(WEIR_NAMES_CLASS, k), number, line->live_class[k], a->live_class[k] - left[k],
                    a->moving_class[k]);
    check_bytes(o, "away", number, line->away, a->away - coming + a->left, coming + a->away_moving);
    if (a->maximum && a->live - a->left + a->reserved + a->pending_least > a->maximum)
        oracle_report(o, ORACLE_BUDGET, "client %u has %llu bytes and a maximum of %llu", number,
                      ULL(a->live - a->left + a->reserved + a->pending_least), ULL(a->maximum));
}

/* A call under way may have noted what it is about to take from the device, or still note what it gave back. */
static void check_held(oracle *o, const weir_stats *stats, bool settled)
{
    if (o->pooled ? stats->held > stats->budget : settled ? stats->held != o->held : stats->held < o->held)
        oracle_report(o, ORACLE_LEDGER, "a snapshot tells %llu bytes held; the device has given out %llu",
                      ULL(stats->held), ULL(o->held));
    if (stats->live + stats->pending + stats->cached + stats->spare != stats->held)
        oracle_report(o, ORACLE_LEDGER, "live, pending, cached and spare bytes do not add up to the %llu held",
                      ULL(stats->held));
}

void oracle_check(oracle *o, const weir_stats *stats, const weir_client_stats *lines, const unsigned *numbers,
                  size_t count, bool settled)
{
    uint64_t live = 0, pending = 0, thread_cached = 0, away = 0, left = 0;
    oracle_book_sweep_pending(o);
    for (size_t i = 0; i < count; i++) {
        check_line(o, &lines[i], numbers[i], settled);
        check_thread_cached(o, &lines[i], numbers[i]);
        left += o->accounts[numbers[i]].left;
        live += lines[i].live;
        thread_cached += lines[i].thread_cached;
        away += lines[i].away;
        pending += lines[i].pending;
    }
    if (live != stats->live || pending != stats->pending || live + left < o->live || live + left - o->live > o->moving)
        oracle_report(o, ORACLE_LEDGER,
                      "the clients' %llu live and %llu pending bytes are not the device's %llu and %llu", ULL(live),
                      ULL(pending), ULL(stats->live), ULL(stats->pending));
    if (thread_cached != stats->thread_cached || thread_cached > stats->cached)
        oracle_report(o, ORACLE_LEDGER,
                      "the clients' %llu thread-cached bytes are not the device's %llu, of %llu cached",
                      ULL(thread_cached), ULL(stats->thread_cached), ULL(stats->cached));
    if (away != stats->away)
        oracle_report(o, ORACLE_LEDGER, "the clients' %llu bytes away are not the device's %llu", ULL(away),
                      ULL(stats->away));
    check_held(o, stats, settled);
    if (stats->budget != o->budget && stats->budget != o->next_budget)
        oracle_report(o, ORACLE_LEDGER, "the budget is told as %llu and is %llu", ULL(stats->budget), ULL(o->budget));
    if (oracle_book_committed(o, ORACLE_CLIENTS, false) > o->budget)
        oracle_report(o, ORACLE_BUDGET, "clients have or are guaranteed %llu bytes of a budget of %llu",
                      ULL(oracle_book_committed(o, ORACLE_CLIENTS, false)), ULL(o->budget));
}

void oracle_ended(oracle *o)
{
    if (o->held != 0)
        oracle_report(o, ORACLE_LEAK, "%llu bytes are held when all is over", ULL(o->held));
    if (o->live != 0)
        oracle_report(o, ORACLE_LEAK, "%llu bytes are live when all is over", ULL(o->live));
}
