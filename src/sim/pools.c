/* Pools of equal blocks: made and ended, joined and left, their pieces taken, used and given back. */
#include "runtime/runtime.h"
#include <weir/block_pool.h>
#include "sim/world.h"

#define UNIT ((uint64_t)WI_SIM_UNIT)
enum { RUN = 1, MANY = 2, KINDS = 3, MOST_TAKEN = 8 }; /* ways to take */

static bool is_away(const world *w, const pool *p)
{
    return oracle_away(w->oracle, p->known) > 0;
}

/* Returns the step's pool, which no other step ends until sim_pools_leave. NULL: no such pool, or the pool is away. */
static pool *sim_pools_enter(world *w, const step *s)
{
    pool *p = &w->pools[s->field[F_SLOT] % WORLD_POOLS];
    if (!p->pool || p->closed || is_away(w, p))
        return NULL;
    p->in_hand++;
    return p;
}

static void sim_pools_leave(pool *p)
{
    p->in_hand--;
}

/* What is known of pieces ------------------------------------------------------------------------------------------ */

static bool sim_pools_is_held(const pool_piece *b)
{
    return b->slot.block.pointer != NULL;
}

/* Whether the device has not got past its last giving, as far as that can be told: it was noted at a point from `least` to
 * `most`. */
static bool may_be_pending(const world *w, const pool_piece *b)
{
    return !sim_pools_is_held(b) && wi_sim_done(w->device, b->stream) < b->most;
}

static bool is_pending(const world *w, const pool_piece *b)
{
    return !sim_pools_is_held(b) && wi_sim_done(w->device, b->stream) < b->least;
}

/* Whether pieces may be pending that were taken and, as they could not be cleared, given back behind their zeros. */
static bool is_unsure(const world *w, const pool *p)
{
    bool unsure = false;
    for (unsigned s = 1; s <= WI_SIM_STREAMS; s++)
        unsure |= wi_sim_done(w->device, s) < p->untaken[s];
    return unsure;
}

/* Pieces of the member, or of all when `serial` is 0. */
static uint32_t count_held(const pool *p, uint64_t serial)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < p->count; i++)
        held += sim_pools_is_held(&p->pieces[i]) && (serial == 0 || p->pieces[i].had == serial);
    return held;
}

static uint32_t count_pending(const world *w, const pool *p, uint64_t serial, bool most)
{
    uint32_t pending = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (serial == 0 || p->pieces[i].had == serial)
            pending += most ? may_be_pending(w, &p->pieces[i]) : is_pending(w, &p->pieces[i]);
    return pending;
}

static uint32_t longest_free(const world *w, const pool *p)
{
    uint32_t longest = 0, run = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        run = sim_pools_is_held(&p->pieces[i]) || may_be_pending(w, &p->pieces[i]) ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

static void sim_pools_move_in(world *w, pool *p, unsigned client, const weir_block_pool_options *o, uint64_t charged)
{
    weir_block_pool_stats stats = {.struct_size = sizeof stats};
    if (!ANSWER(w, "weir_block_pool_info", weir_block_pool_info(p->pool, &stats, NULL, 0, NULL), WEIR_OK))
        return;
    const weir_block_pool_view view = stats.view;
    p->base = view.base;
    p->client = client;
    p->count = o->count;
    p->bytes = o->bytes;
    p->flags = o->flags;
    p->memory_class = (uint8_t)o->memory_class;
    p->known = oracle_allocated(
        w->oracle, &(oracle_got){.client = client,
                                 .address = view.base,
                                 .length = world_features(w) & WEIR_FEATURE_GUARDS ? o->count * o->bytes : charged,
                                 .charged = charged,
                                 .memory_class = o->memory_class});
    oracle_open_pool(w->oracle, p->known);
}

static void sim_pools_create(world *w, const step *s, pool *p, unsigned client)
{
    weir_block_pool_options o = {
        .struct_size = sizeof o,
        .bytes = (s->field[F_BYTES] / UNIT + 1) * UNIT,
        .count = (uint32_t)(s->field[F_COUNT] % WORLD_PIECES) + 1,
        .memory_class = s->field[F_CLASS] % WEIR_CLASS_COUNT ? s->field[F_CLASS] % WEIR_CLASS_COUNT : WEIR_CLASS_KV,
        .flags = (uint32_t)s->field[F_FLAGS] & (WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED)};
    uint64_t charged = world_charge(w, o.count * o.bytes, UNIT);
    if (!world_asks(w, client))
        return;
    w->client_in_hand[client]++;
    oracle_asking(w->oracle, client, o.memory_class, charged, false);
    weir_status status = weir_block_pool_create(w->clients[client], &o, &p->pool);
    oracle_answered(w->oracle, client, o.memory_class, charged, false);
    if (world_was_admitted(w, client, "weir_block_pool_create", status) &&
        ANSWER(w, "weir_block_pool_create", status, WEIR_ERR_OUT_OF_MEMORY))
        sim_pools_move_in(w, p, client, &o, charged);
    w->client_in_hand[client]--;
}

/* Refused as long as anything is held or pending. */
static void must_be_busy(world *w, const pool *p, const char *call, uint64_t serial, weir_status status)
{
    bool held = count_held(p, serial) > 0;
    if (held)
        world_expect_busy(w, call, status);
    else if (status == WEIR_ERR_BUSY && !is_unsure(w, p) && count_pending(w, p, serial, true) == 0)
        oracle_report(w->oracle, ORACLE_ANSWER, "%s answers BUSY, with nothing held and nothing pending", call);
}

static void sim_pools_end(world *w, pool *p)
{
    oracle_close_pool(w->oracle, p->known);
    oracle_freeing(w->oracle, p->known, 0);
    w->client_in_hand[p->client]++;
    weir_status status = weir_block_pool_destroy(p->pool);
    w->client_in_hand[p->client]--;
    if (ANSWER(w, "weir_block_pool_destroy", status, WEIR_OK)) {
        oracle_freed(w->oracle, p->known);
        *p = (pool){.closed = true};
    } else {
        oracle_cached(w->oracle, p->known);
        oracle_open_pool(w->oracle, p->known);
    }
}

static void sim_pools_destroy(world *w, pool *p)
{
    if (count_held(p, 0) + count_pending(w, p, 0, false) > 0)
        world_expect_busy(w, "weir_block_pool_destroy", weir_block_pool_destroy(p->pool));
    else if (count_pending(w, p, 0, true) == 0 && !is_unsure(w, p)) /* else the correct answer is unknown */
        sim_pools_end(w, p);
}

/* Makes it, or ends it. */
void run_pool(world *w, const step *s)
{
    pool *p = &w->pools[s->field[F_SLOT] % WORLD_POOLS];
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (p->closed || p->in_hand > 0)
        return;
    p->closed = true;
    if (p->pool)
        sim_pools_destroy(w, p);
    else if (world_has_client(w, client))
        sim_pools_create(w, s, p, client);
    p->closed = false;
}

/* Members ---------------------------------------------------------------------------------------------------------- */

static uint32_t sim_pools_cap_of(const pool *p, uint64_t asked)
{
    return asked == 0 || asked > p->count ? p->count : (uint32_t)asked;
}

static void sim_pools_join(world *w, const step *s, pool *p, pool_member *m)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (!world_has_client(w, client) ||
        !ANSWER(w, "weir_block_pool_member_create",
                weir_block_pool_member_create(p->pool, w->clients[client], (uint32_t)s->field[F_COUNT], &m->member),
                WEIR_OK))
        return;
    m->client = client;
    m->opening = w->opening[client];
    m->cap = sim_pools_cap_of(p, s->field[F_COUNT]);
    m->serial = ++w->memberships;
}

static void change_cap(world *w, const step *s, const pool *p, pool_member *m)
{
    uint32_t cap = sim_pools_cap_of(p, s->field[F_COUNT]), held = count_held(p, m->serial);
    uint32_t most = held + count_pending(w, p, m->serial, true);
    weir_status status = weir_block_pool_member_set_cap(m->member, (uint32_t)s->field[F_COUNT]);
    if (status == WEIR_OK ? held > cap : most <= cap && !is_unsure(w, p))
        oracle_report(w->oracle, ORACLE_ANSWER,
                      "weir_block_pool_member_set_cap to %u answers %s, with %u held and up to %u pending", cap,
                      weir_name_of(WEIR_NAMES_STATUS, status), held, most - held);
    if (ANSWER(w, "weir_block_pool_member_set_cap", status, WEIR_ERR_OUT_OF_MEMORY))
        m->cap = cap;
}

static void end_membership(world *w, const pool *p, pool_member *m)
{
    weir_status status = weir_block_pool_member_destroy(m->member);
    must_be_busy(w, p, "weir_block_pool_member_destroy", m->serial, status);
    if (ANSWER(w, "weir_block_pool_member_destroy", status, WEIR_ERR_BUSY))
        *m = (pool_member){0};
}

/* Joins; or changes the cap, or leaves. */
void run_member(world *w, const step *s)
{
    pool *p = sim_pools_enter(w, s);
    if (!p)
        return;
    pool_member *m = &p->members[s->field[F_CLASS] % WORLD_MEMBERS];
    bool there = m->member != NULL, cap = s->field[F_FLAGS] & 1;
    if (!there && m->in_hand == 0)
        sim_pools_join(w, s, p, m);
    else if (cap && m->in_hand == 0)
        change_cap(w, s, p, m);
    else if (m->in_hand == 0)
        end_membership(w, p, m);
    sim_pools_leave(p);
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

static void sim_pools_take_piece(world *w, pool *p, const pool_member *m, uint32_t index, unsigned stream)
{
    pool_piece *b = index < p->count ? &p->pieces[index] : NULL;
    if (!b || sim_pools_is_held(b)) {
        oracle_report(w->oracle, ORACLE_OVERLAP, "block %u of a pool of %u is given out, which is held or none", index,
                      p->count);
        return;
    }
    bool clear = p->flags & WEIR_BLOCK_POOL_CLEAR && b->had != m->serial;
    w->written[p->client] |= clear ? WEIR_CLASS_BIT(p->memory_class) : 0;
    char *address = p->base + index * p->bytes;
    b->had = m->serial;
    b->slot = (slot){.block = {.pointer = address},
                     .bytes = p->bytes,
                     .length = p->bytes,
                     .version = clear ? WI_SIM_ZERO : 0,
                     .client = (uint8_t)p->client,
                     .memory_class = p->memory_class,
                     .touched = stream ? UINT64_C(1) << stream : 0,
                     .writer = (uint8_t)stream};
    b->slot.known = oracle_allocated(w->oracle, &(oracle_got){.client = p->client,
                                                              .stream = world_number(w, stream),
                                                              .address = address,
                                                              .length = p->bytes,
                                                              .queued = clear,
                                                              .zeroed = clear,
                                                              .pool = p->known});
}

/* A refusal is one for want of pieces, or for the cap. */
static void check_refused(world *w, const pool *p, const pool_member *m, unsigned kind, uint32_t count)
{
    uint32_t used = count_held(p, m->serial) + count_pending(w, p, m->serial, true);
    uint32_t there = p->count - count_held(p, 0) - count_pending(w, p, 0, true);
    bool room = kind == RUN ? longest_free(w, p) >= count : there >= count;
    if (room && used + count <= m->cap && !is_unsure(w, p))
        oracle_report(w->oracle, ORACLE_REFUSAL, "%u blocks are refused, with %u free and %u of the cap of %u used",
                      count, there, used, m->cap);
}

static weir_status call_take(const pool_member *m, unsigned kind, uint32_t count, weir_stream stream, uint32_t *indices)
{
    if (kind == MANY)
        return weir_block_pool_alloc(m->member, count, 0, stream, indices);
    weir_status status = kind == RUN ? weir_block_pool_alloc(m->member, count, WEIR_BLOCK_POOL_RUN, stream, indices)
                                     : weir_block_pool_alloc(m->member, 1, 0, stream, indices);
    for (uint32_t i = 1; i < count; i++)
        indices[i] = indices[0] + i;
    return status;
}

static void sim_pools_take(world *w, const step *s, pool *p, const pool_member *m, unsigned stream)
{
    unsigned kind = (unsigned)s->field[F_FLAGS] % KINDS;
    uint32_t count = kind == 0 ? 1 : (uint32_t)(s->field[F_COUNT] % MOST_TAKEN) + 1, indices[MOST_TAKEN];
    uint64_t nested = w->nested;
    bool open = w->clients[m->client] && w->opening[m->client] == m->opening;
    weir_status status = call_take(m, kind, count, w->streams[stream], indices);
    if (!open && status == WEIR_ERR_INVALID)
        return;
    if (!open)
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_block_pool_alloc for a client that is closed answers %s",
                      weir_name_of(WEIR_NAMES_STATUS, status));
    if (status == WEIR_ERR_DRIVER)
        p->untaken[world_number(w, stream)] = wi_sim_queued(w->device, world_number(w, stream));
    if (status == WEIR_ERR_OUT_OF_MEMORY && world_undisturbed(w, nested) && world_faults(w) == w->fault_mark)
        check_refused(w, p, m, kind, count);
    if (!ANSWER(w, "weir_block_pool_alloc", status, WEIR_ERR_OUT_OF_MEMORY))
        return;
    for (uint32_t i = 0; i < count; i++)
        sim_pools_take_piece(w, p, m, indices[i], stream);
    if (count_held(p, m->serial) > m->cap)
        oracle_report(w->oracle, ORACLE_BUDGET, "a member has %u blocks and a cap of %u", count_held(p, m->serial),
                      m->cap);
}

void run_take(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    pool *p = world_has_stream(w, stream) ? sim_pools_enter(w, s) : NULL;
    if (!p)
        return;
    pool_member *m = &p->members[s->field[F_CLASS] % WORLD_MEMBERS];
    if (m->member && !m->takes_nothing && !w->client_closed[m->client]) {
        unsigned client = m->client;
        m->in_hand++;
        w->client_in_hand[client]++;
        world_take_stream(w, stream, 1);
        sim_pools_take(w, s, p, m, stream);
        world_take_stream(w, stream, -1);
        w->client_in_hand[client]--;
        m->in_hand--;
    }
    sim_pools_leave(p);
}

/* Using and giving ------------------------------------------------------------------------------------------------- */

void run_piece(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    bool write = s->field[F_FLAGS] & 1;
    pool *p = sim_pools_enter(w, s);
    if (!p)
        return;
    slot *b = &p->pieces[s->field[F_MORE] % p->count].slot;
    if (world_take_slot(w, b, stream, true)) {
        if (world_order_use(w, b, stream, write))
            world_touch(w, b, stream, write, 0, p->bytes);
        world_let_slot_go(w, b, stream);
    }
    sim_pools_leave(p);
}

typedef struct giving {
    pool_member *member;
    uint32_t indices[MOST_TAKEN], count;
    bool apart; /* every second one */
} giving;

static weir_status call_give(world *w, const pool *p, const giving *g, weir_stream stream)
{
    weir_block_pool_block_details details = {.struct_size = sizeof details};
    if (g->apart)
        return weir_block_pool_free(g->member->member, g->indices, NULL, g->count, 0, stream);
    if (g->count > 1 || !(p->flags & WEIR_BLOCK_POOL_NAMED))
        return weir_block_pool_free(g->member->member, g->indices, NULL, g->count, WEIR_BLOCK_POOL_RUN, stream);
    (void)ANSWER(w, "weir_block_pool_block_info", weir_block_pool_block_info(p->pool, g->indices[0], &details),
                 WEIR_OK);
    if (details.state != WEIR_BLOCK_LIVE || details.member != g->member->member)
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_block_pool_block_info of a block that is held tells another");
    return weir_block_pool_free(g->member->member, g->indices, &details.generation, 1, 0, stream);
}

static void sim_pools_give(world *w, pool *p, const giving *g, unsigned stream)
{
    unsigned number = world_number(w, stream);
    uint64_t least = wi_sim_queued(w->device, number);
    for (uint32_t i = 0; i < g->count; i++)
        oracle_freeing(w->oracle, p->pieces[g->indices[i]].slot.known, number);
    bool given = ANSWER(w, "weir_block_pool_free", call_give(w, p, g, w->streams[stream]), WEIR_OK);
    for (uint32_t i = 0; i < g->count; i++) {
        pool_piece *b = &p->pieces[g->indices[i]];
        if (!given) {
            oracle_cached(w->oracle, b->slot.known);
            continue;
        }
        oracle_freed(w->oracle, b->slot.known);
        *b = (pool_piece){.slot = {.in_hand = true},
                          .had = b->had,
                          .stream = number,
                          .least = least,
                          .most = wi_sim_queued(w->device, number)};
    }
}

/* The member's pieces that can be given now, from the first one on; and they are in hand. */
static void sim_pools_gather(world *w, const step *s, pool *p, giving *g, unsigned stream)
{
    uint32_t first = (uint32_t)(s->field[F_MORE] % p->count), most = (uint32_t)(s->field[F_COUNT] % MOST_TAKEN) + 1;
    uint64_t serial = p->pieces[first].had;
    g->apart = s->field[F_FLAGS] & 1;
    for (uint32_t i = 0; i < most && first + i * (1 + g->apart) < p->count; i++) {
        uint32_t index = first + i * (1 + g->apart);
        pool_piece *b = &p->pieces[index];
        if (b->had != serial || !world_take_slot(w, &b->slot, stream, true))
            return;
        g->indices[g->count++] = index;
    }
}

static pool_member *member_of(pool *p, uint64_t serial)
{
    for (unsigned i = 0; i < WORLD_MEMBERS; i++)
        if (p->members[i].member && p->members[i].serial == serial)
            return &p->members[i];
    return NULL;
}

/* A block without an owner is not freed; in the middle of the call it may become somebody's, but not this member's, who
 * would then give back what is his. */
static void give_twice(world *w, const pool *p, pool_member *m, uint32_t index, unsigned stream)
{
    weir_status status = WEIR_ERR_DOUBLE_FREE;
    if (m && !sim_pools_is_held(&p->pieces[index]) && world_has_stream(w, stream)) {
        m->takes_nothing = true;
        m->in_hand++;
        status = weir_block_pool_free(m->member, &index, NULL, 1, 0, w->streams[stream]);
        m->in_hand--;
        m->takes_nothing = false;
    }
    bool taken = status == WEIR_ERR_FOREIGN && sim_pools_is_held(&p->pieces[index]);
    if (status != WEIR_ERR_DOUBLE_FREE && !taken && (status != WEIR_ERR_DRIVER || world_faults(w) == w->fault_mark))
        oracle_report(w->oracle, ORACLE_ANSWER, "a second weir_block_pool_free answers %s",
                      weir_name_of(WEIR_NAMES_STATUS, status));
}

void run_give(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    giving g = {0};
    pool *p = sim_pools_enter(w, s);
    if (!p)
        return;
    uint32_t first = (uint32_t)(s->field[F_MORE] % p->count);
    g.member = member_of(p, p->pieces[first].had);
    if (g.member)
        sim_pools_gather(w, s, p, &g, stream);
    if (g.count == 0 && s->field[F_FLAGS] & 2 && !p->pieces[first].slot.in_hand)
        give_twice(w, p, g.member, first, stream);
    bool ordered = g.count > 0;
    if (ordered)
        g.member->in_hand++;
    for (uint32_t i = 0; i < g.count && ordered; i++)
        ordered = world_follow(w, stream, p->pieces[g.indices[i]].slot.touched);
    if (ordered)
        sim_pools_give(w, p, &g, stream);
    for (uint32_t i = 0; i < g.count; i++)
        world_let_slot_go(w, &p->pieces[g.indices[i]].slot, stream);
    if (g.count > 0)
        g.member->in_hand--;
    sim_pools_leave(p);
}

/* Looking and ending ----------------------------------------------------------------------------------------------- */

static void check_pool(world *w, const pool *p)
{
    weir_block_pool_stats stats = {.struct_size = sizeof stats};
    if (!ANSWER(w, "weir_block_pool_info", weir_block_pool_info(p->pool, &stats, NULL, 0, NULL), WEIR_OK))
        return;
    uint32_t held = count_held(p, 0), least = count_pending(w, p, 0, false), most = count_pending(w, p, 0, true);
    if (stats.held != held || stats.free + stats.held + stats.pending != p->count || stats.pending < least ||
        (stats.pending > most && !is_unsure(w, p)))
        oracle_report(w->oracle, ORACLE_LEDGER,
                      "a pool's snapshot tells %u free, %u held and %u pending; held are %u, pending %u to %u of %u",
                      stats.free, stats.held, stats.pending, held, least, most, p->count);
}

void world_check_pools(world *w)
{
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        if (w->pools[i].pool && !w->pools[i].closed && w->pools[i].in_hand == 0)
            check_pool(w, &w->pools[i]);
}

/* The host knows that all of the stream's work is done. */
void world_forget_in_pools(world *w, unsigned stream)
{
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        for (unsigned k = 0; k < WORLD_PIECES; k++)
            world_forget_in_slot(&w->pools[i].pieces[k].slot, stream);
}

/* When all streams have come to rest. */
void world_end_pools(world *w)
{
    for (unsigned i = 0; i < WORLD_POOLS; i++) {
        pool *p = &w->pools[i];
        for (uint32_t k = 0; k < p->count; k++)
            if (sim_pools_is_held(&p->pieces[k]))
                run_give(w, &(step){.field = {[F_SLOT] = i, [F_MORE] = k}});
        if (p->pool)
            run_pool(w, &(step){.field = {[F_SLOT] = i}});
    }
}
