/* Residency: a client is suspended; resume.c brings it back. What leaves, and how memory comes back, is memory/away.h;
 * where contents are meanwhile is copies.h; this file has the order of the steps. */
#include "base/probes.h"
#include "base/system.h"
#include "memory/space/stream_order.h"
#include "runtime/residence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The gate --------------------------------------------------------------------------------------------------------- */

static weir_status residence_make(weir_client *client, wi_residence **out)
{
    wi_residence *new = calloc(1, sizeof *new), *there = NULL;
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the residence of %s", client->account.name);
    pthread_mutex_init(&new->lock, NULL);
    pthread_cond_init(&new->changed, NULL);
    new->away.account = &client->account;
    new->away.hide = wi_residence_hide;
    new->away.show_again = wi_residence_show_again;
    new->away.user = client;
    new->receipt.struct_size = sizeof new->receipt;
    wi_copies_begin(&new->copies, client);
    wi_makers_begin(&new->makers);
    *out = new;
    if (atomic_compare_exchange_strong(&client->residence, &there, new))
        return WEIR_OK;
    wi_makers_free(&new->makers);
    pthread_cond_destroy(&new->changed);
    pthread_mutex_destroy(&new->lock);
    free(new);
    *out = there;
    return WEIR_OK;
}

/* With the lock held. */
static void residence_set_state(wi_residence *r, weir_residency_state state)
{
    r->state = state;
    atomic_store(&r->away.account->residency, state);
}

/* To this thread; with the lock held. */
static void residence_give(wi_residence *r)
{
    residence_set_state(r, WEIR_MOVING);
    r->mover = pthread_self();
    atomic_fetch_add(&r->moves, 1);
}

bool wi_residence_take_now(wi_residence *r, weir_residency_state from)
{
    pthread_mutex_lock(&r->lock);
    bool taken = r->state == from;
    if (taken)
        residence_give(r);
    pthread_mutex_unlock(&r->lock);
    return taken;
}

bool wi_residence_take(wi_residence *r, weir_residency_state from, weir_residency_state *found)
{
    pthread_mutex_lock(&r->lock);
    while (r->state == WEIR_MOVING && !wi_pressures_inside())
        pthread_cond_wait(&r->changed, &r->lock);
    *found = r->state;
    if (r->state == from)
        residence_give(r);
    pthread_mutex_unlock(&r->lock);
    return *found == from;
}

/* Whether a client that is suspended can be used all the same. Only frees change the one or the other meanwhile. */
static bool residence_shows(const wi_residence *r)
{
    wi_base *base = r->copies.client->runtime->resource->base;
    wi_base_lock(base);
    bool all = atomic_load(&r->away.shown) == r->away.bytes;
    wi_base_unlock(base);
    return all;
}

void wi_residence_set(wi_residence *r, weir_residency_state state)
{
    bool shows = state == WEIR_SUSPENDED && r->away.show && residence_shows(r);
    if (state == WEIR_RESIDENT && r->options.graphs)
        wi_capture_pools_return(r->copies.client);
    pthread_mutex_lock(&r->lock);
    residence_set_state(r, state);
    r->shows = shows;
    r->receipt.stored = wi_copies_stored(&r->copies);
    r->told = r->receipt;
    atomic_fetch_add(&r->moves, 1);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool wi_residency_is_here(const weir_client *client)
{
    wi_residence *r = residence_of(client);
    if (wi_likely(!r))
        return true;
    pthread_mutex_lock(&r->lock);
    bool here = r->state == WEIR_RESIDENT;
    pthread_mutex_unlock(&r->lock);
    return here;
}

uint64_t wi_residency_moves(const weir_client *client)
{
    const wi_residence *r = residence_of(client);
    return r ? atomic_load(&r->moves) : 0;
}

bool wi_residency_wait(weir_client *client, uint64_t *moves)
{
    wi_residence *r = residence_of(client);
    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    /* inside a callback, no wait: the moving thread may be waiting for the callback */
    while (r->state == WEIR_MOVING && !wi_pressures_inside() && !pthread_equal(r->mover, pthread_self()))
        pthread_cond_wait(&r->changed, &r->lock);
    bool moved = r->state != WEIR_MOVING && r->moves != *moves;
    *moves = r->moves;
    pthread_mutex_unlock(&r->lock);
    return moved;
}

/* Apart, as most clients were never suspended. */
static __attribute__((noinline)) weir_status residency_admit(weir_client *client, wi_residence *r, const char *call)
{
    uint64_t moves = 0;
    (void)wi_residency_wait(client, &moves);
    pthread_mutex_lock(&r->lock);
    bool here = r->state == WEIR_RESIDENT || (r->state == WEIR_MOVING && pthread_equal(r->mover, pthread_self())) ||
                (r->shows && !r->options.resume_on_alloc && r->pages.piece_count == 0);
    bool resumes = r->state == WEIR_SUSPENDED && r->options.resume_on_alloc;
    pthread_mutex_unlock(&r->lock);
    if (here)
        return WEIR_OK;
    return resumes
               ? weir_client_resume(client, WEIR_STREAM_HOST)
               : weir_fail(WEIR_ERR_BUSY, "%s: %s is suspended; resume it first, or suspend it with resume_on_alloc",
                           call, client->account.name);
}

weir_status wi_residency_admit(weir_client *client, const char *call)
{
    wi_residence *r = residence_of(client);
    return wi_likely(!r) ? WEIR_OK : residency_admit(client, r, call);
}

/* Waiting for the client's work ------------------------------------------------------------------------------------ */

/* Points of streams, at most one point per stream. */
typedef struct points {
    wi_event *at;
    size_t count, room;
    bool failed;
} points;

static void points_add(points *p, wi_event event)
{
    if (!event.stream)
        return;
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i].stream == event.stream) {
            p->at[i].sequence = wi_max(p->at[i].sequence, event.sequence);
            return;
        }
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        wi_event *at = realloc(p->at, room * sizeof *at);
        p->failed |= !at;
        if (!at)
            return;
        p->at = at;
        p->room = room;
    }
    p->at[p->count++] = event;
}

/* The streams on which the account's live blocks were allocated: their ids in the place of the driver's, each once. */
typedef struct gathering {
    const wi_account *account;
    points streams;
} gathering;

static void residency_gather(wi_block *block, void *user)
{
    gathering *g = user;
    wi_block seen = wi_look_at(block);
    if (seen.account == g->account && wi_block_is_live(&seen) && seen.stream.id != 0)
        points_add(&g->streams,
                   (wi_event){(void *)(uintptr_t)seen.stream.id, 0}); /* NOLINT(performance-no-int-to-ptr) */
}

static weir_status residency_wait_for(weir_runtime *runtime, const points *p, uint64_t deadline, const char *client)
{
    weir_status status =
        p->failed ? weir_fail(WEIR_ERR_SYSTEM, "no host memory to wait for the work of %s", client) : WEIR_OK;
    for (size_t i = 0; i < p->count && status == WEIR_OK; i++) {
        status = runtime->driver->wait(runtime->device, p->at[i], deadline);
        if (status == WEIR_OK && deadline != UINT64_MAX && !runtime->driver->passed(runtime->device, p->at[i]))
            status = weir_fail(WEIR_ERR_BUSY, "%s cannot be suspended or resumed: its work on %s was not done in time",
                               client, runtime->name);
    }
    return status;
}

/* Adds the points behind what is queued on these streams. */
static weir_status residency_points_of(weir_runtime *runtime, const points *streams, points *p)
{
    weir_status status = WEIR_OK;
    p->failed |= streams->failed;
    for (size_t i = 0; i < streams->count && status == WEIR_OK; i++) {
        wi_event event = {0};
        weir_stream stream = {(uint64_t)(uintptr_t)streams->at[i].stream};
        /* the driver itself reports captures that were not declared */
        if (wi_streams_declared(&runtime->streams, stream))
            status = wi_streams_captured(runtime, stream, "weir_client_suspend");
        else
            status = wi_streams_point(runtime, stream, &event);
        points_add(p, event);
    }
    return status;
}

/* What is queued on the streams of the client's blocks. */
weir_status wi_residence_wait_streams(weir_client *client, uint64_t deadline)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *elastic = atomic_load(&runtime->elastic), *stacks[] = {runtime->resource, elastic};
    gathering g = {.account = &client->account};
    points p = {0};
    for (int i = 0; i < 2 && stacks[i]; i++) {
        wi_base *base = stacks[i]->base;
        wi_base_lock(base);
        base->table->each(base, residency_gather, &g);
        wi_base_unlock(base);
    }
    weir_status status = residency_points_of(runtime, &g.streams, &p);
    if (status == WEIR_OK)
        status = residency_wait_for(runtime, &p, deadline, client->account.name);
    free(g.streams.at);
    free(p.at);
    return status;
}

static void residency_add_point(wi_event event, void *user)
{
    points_add(user, event);
}

static void residency_gather_uses(const wi_residence *r, gathering *g, points *p)
{
    wi_event event;
    for (size_t i = 0; i < r->away.block_count; i++) {
        wi_block *block = r->away.blocks[i];
        for (uint32_t k = 0; wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, k, &event); k++)
            points_add(p, event);
        residency_gather(block, g);
    }
}

/* The acquired blocks; some of them may have come since the streams were looked at, with zeros that are queued. */
static weir_status residency_wait_blocks(weir_client *client, const wi_residence *r, points *p, uint64_t deadline)
{
    gathering g = {.account = &client->account};
    residency_gather_uses(r, &g, p);
    weir_status status = residency_points_of(client->runtime, &g.streams, p);
    if (status == WEIR_OK)
        status = residency_wait_for(client->runtime, p, deadline, client->account.name);
    free(g.streams.at);
    return status;
}

weir_status wi_residence_wait_uses(weir_client *client, const wi_residence *r, uint64_t deadline)
{
    points p = {0};
    weir_status status = residency_wait_blocks(client, r, &p, deadline);
    free(p.at);
    return status;
}

/* Lists the pages of elastic blocks, and waits for what was declared as uses of them and of the acquired blocks. */
static weir_status residency_wait_uses(weir_client *client, wi_residence *r, uint64_t deadline)
{
    points p = {0};
    weir_status status = wi_elastic_away_list(client, &r->pages, residency_add_point, &p);
    if (status == WEIR_OK)
        status = residency_wait_blocks(client, r, &p, deadline);
    free(p.at);
    return status;
}

uint64_t wi_residence_deadline(uint64_t wait)
{
    uint64_t now = wi_now();
    return wait == 0 || wait > UINT64_MAX - now ? UINT64_MAX : now + wait;
}

/* Suspending ------------------------------------------------------------------------------------------------------- */

static weir_status residency_check(weir_client *client, const char *call)
{
    const weir_runtime *runtime = client->runtime;
    wi_resource *stack = runtime->resource;
    if (wi_is_plain(stack) && stack->base->table->away)
        return WEIR_OK;
    char text[WI_STACK_BYTES];
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s: the resource %s of %s cannot have blocks without memory; make the runtime with "
                     "\"budget(mapped)\"",
                     call, wi_runtime_resource(runtime, text, sizeof text), runtime->name);
}

weir_status wi_residence_open(weir_client *client, const char *call, wi_residence **out)
{
    weir_status status = residency_check(client, call);
    *out = residence_of(client);
    return status == WEIR_OK && !*out ? residence_make(client, out) : status;
}

/* Finds the copies that are still good. With `verify` they are looked at. */
static weir_status residency_trust(wi_residence *r)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->away.piece_count && status == WEIR_OK; i++) {
        wi_piece *piece = &r->away.pieces[i];
        bool same = true;
        piece->copy = piece->low && piece->unwritten ? wi_copies_find(&r->copies, &r->away, piece) : NULL;
        if (piece->copy && r->options.verify)
            status = wi_copies_compare(&r->copies, &r->away, piece, &same);
        else if (piece->copy)
            status = wi_trust_check(r, piece);
        if (!same) {
            piece->copy = NULL;
            r->receipt.differed += (uint64_t)(piece->high - piece->low);
        }
    }
    return status;
}

/* A copy serves all pieces that it has something of, or none. */
static void residency_distrust(wi_residence *r)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < r->away.piece_count; i++) {
            wi_piece *piece = &r->away.pieces[i];
            if (piece->copy && !piece->copy->good)
                piece->copy = NULL;
            if (piece->low && !piece->copy)
                changed |= wi_copies_spoil(&r->copies, piece);
        }
    }
}

/* Queues the copy of the piece, if it has none that is still good. *queued: something was. */
static weir_status residency_copy_piece(wi_residence *r, wi_piece *piece, bool *queued)
{
    uint64_t bytes = (uint64_t)(piece->high - piece->low);
    weir_status status = WEIR_OK;
    *queued = !piece->copy || r->away.show;
    *(piece->copy ? &r->receipt.trusted : &r->receipt.copied) += bytes;
    if (!piece->copy) {
        status = wi_copies_make(&r->copies, piece);
        if (status == WEIR_OK)
            status = wi_copies_save_all(&r->copies, &r->away, (size_t)(piece - r->away.pieces), 1, r->stream);
    }
    return status == WEIR_OK && r->away.show ? wi_copies_clear(&r->copies, &r->away, piece, r->stream) : status;
}

/* Their memory is made in few steps. */
static void residency_expect_copies(wi_residence *r)
{
    for (size_t i = 0; i < r->away.piece_count; i++)
        if (r->away.pieces[i].low && !r->away.pieces[i].copy)
            wi_copies_expect(&r->copies, &r->away.pieces[i]);
    for (size_t i = 0; i < r->pages.piece_count; i++)
        if (r->pages.runs[r->pages.pieces[i].run].saved)
            wi_copies_expect(&r->copies, &r->pages.pieces[i]);
    wi_makers_help(r->copies.client, &r->copies.memory);
}

/* Queues the copies of all pieces that have none; events[i] is behind that of piece i. */
static weir_status residency_copy_out(const weir_client *client, wi_residence *r, wi_event *events)
{
    const weir_runtime *runtime = client->runtime;
    weir_status status = residency_trust(r);
    if (r->away.show)
        wi_copies_fit(&r->away);
    residency_distrust(r);
    residency_expect_copies(r);
    for (size_t i = 0; i < r->away.piece_count && status == WEIR_OK; i++) {
        wi_piece *piece = &r->away.pieces[i];
        bool queued = false;
        if (piece->low)
            status = residency_copy_piece(r, piece, &queued);
        if (status == WEIR_OK && queued)
            status = runtime->driver->record(runtime->device, r->stream, &events[i]);
    }
    return status;
}

/* The pieces of one copy were taken, of which this is the last: it is shown there. */
static weir_status residency_show(wi_residence *r, size_t last)
{
    const wi_copy *copy = r->away.pieces[last].copy;
    weir_status status = wi_copies_show(copy);
    for (size_t i = last + 1; status == WEIR_OK && i-- > 0 && r->away.pieces[i].copy == copy;)
        r->away.pieces[i].shown = r->away.pieces[i].whole = true;
    return status;
}

/* Nothing is shown, as far as the driver does it: what was taken is put back. */
static void residency_hide_all(wi_residence *r)
{
    for (size_t i = 0; i < r->away.piece_count; i++) {
        wi_piece *piece = &r->away.pieces[i];
        if (piece->shown)
            (void)wi_residence_hide(&r->away, piece, r->away.user);
        piece->whole = piece->shown;
    }
}

/* Takes the memory of each piece behind its copy, and shows that. */
static weir_status residency_take_all(const weir_client *client, wi_residence *r, const wi_event *events)
{
    const weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->away.piece_count && status == WEIR_OK; i++) {
        wi_piece *piece = &r->away.pieces[i];
        status = runtime->driver->wait(runtime->device, events[i], UINT64_MAX);
        if (status == WEIR_OK && piece->copy)
            piece->copy->good = true;
        if (status == WEIR_OK)
            status = base->table->away->take(base, piece);
        bool last = i + 1 == r->away.piece_count || piece[1].copy != piece->copy;
        if (status == WEIR_OK && r->away.show && last)
            status = residency_show(r, i);
    }
    return status;
}

static void residency_let_go(wi_block *block, void *user)
{
    wi_block seen = wi_look_at(block);
    if (seen.account == user && wi_block_is_live(&seen))
        wi_stream_uses_rest(block->stream_uses);
}

/* Lets go what copies have held that are done. */
static void residency_copies_done(const weir_client *client, wi_residence *r)
{
    const weir_runtime *runtime = client->runtime;
    wi_resource *elastic = atomic_load(&runtime->elastic), *stacks[] = {runtime->resource, elastic};
    if (!atomic_exchange(&r->adrift, false))
        return;
    for (int i = 0; i < 2 && stacks[i]; i++) {
        wi_base *base = stacks[i]->base;
        wi_base_lock(base);
        base->table->each(base, residency_let_go, r->away.account);
        wi_base_unlock(base);
    }
}

bool wi_residence_copies_rest(const weir_client *client, wi_residence *r)
{
    bool rest = !r->stream || wi_stream_rests(client->runtime, r->stream);
    if (rest)
        residency_copies_done(client, r);
    return rest;
}

bool wi_residency_found_done(weir_client *client)
{
    wi_residence *r = residence_of(client);
    weir_residency_state from = WEIR_RESIDENT;
    if (!r || !atomic_load(&r->adrift))
        return false;
    if (!wi_residence_take_now(r, from)) {
        from = WEIR_SUSPENDED;
        if (!wi_residence_take_now(r, from)) /* whoever has it finds out */
            return false;
    }
    bool rest = wi_residence_copies_rest(client, r);
    wi_residence_set(r, from);
    return rest;
}

void wi_residence_copies_are_uses(weir_client *client, wi_residence *r, bool blocks)
{
    const weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    wi_event event;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    bool point = runtime->driver->record(runtime->device, r->stream, &event) == WEIR_OK;
    if (!point)
        atomic_store(&r->adrift, true);
    wi_base_lock(base);
    for (size_t i = 0; blocks && i < r->away.block_count; i++)
        (void)!wi_stream_uses_moved(&r->away.blocks[i]->stream_uses, point ? &event : NULL);
    wi_base_unlock(base);
    (void)!wi_elastic_away_moved(client, &r->pages, point ? &event : NULL);
    wi_detail_restore(&saved);
}

/* Copies the pages of elastic blocks. Earlier copies are never trusted, as the contents of pages change. */
static weir_status residency_copy_pages(wi_residence *r)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->pages.piece_count && status == WEIR_OK; i++) {
        wi_piece *piece = &r->pages.pieces[i];
        if (!r->pages.runs[piece->run].saved)
            continue;
        status = wi_copies_make(&r->copies, piece);
        r->receipt.copied += (uint64_t)(piece->high - piece->low);
    }
    return status == WEIR_OK ? wi_copies_save_all(&r->copies, &r->pages, 0, r->pages.piece_count, r->stream) : status;
}

static void residency_count_dropped(wi_residence *r)
{
    const wi_away *of[] = {&r->away, &r->pages};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < of[k]->run_count; i++)
            r->receipt.dropped += of[k]->runs[i].saved ? 0 : of[k]->runs[i].bytes;
}

/* The pages of elastic blocks stay after all. */
static void residency_keep_pages(wi_residence *r)
{
    r->pages.piece_count = r->pages.run_count = r->pages.bytes = 0;
}

weir_status wi_residence_copy(weir_client *client, wi_residence *r, wi_event **events)
{
    wi_event *list = *events = calloc(r->away.piece_count + 1, sizeof *list);
    weir_status status = list ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the events of copies");
    residency_count_dropped(r);
    if (status == WEIR_OK)
        status = residency_copy_out(client, r, list);
    return status == WEIR_OK ? residency_copy_pages(r) : status;
}

weir_status wi_residence_release_pages(weir_client *client, wi_residence *r)
{
    const weir_runtime *runtime = client->runtime;
    weir_status status = runtime->driver->stream_synchronize(runtime->device, r->stream);
    if (status == WEIR_OK)
        status = wi_elastic_away_release(client, &r->pages);
    if (status == WEIR_OK)
        wi_ledger_elsewhere(&client->runtime->ledger, &client->account, r->pages.bytes);
    return status;
}

void wi_residence_copies_failed(weir_client *client, wi_residence *r, bool pages_stay)
{
    if (!wi_residence_copies_rest(client, r))
        wi_residence_copies_are_uses(client, r, true);
    if (pages_stay)
        residency_keep_pages(r);
}

/* Copies the contents of all pieces, then takes their memory. The blocks are acquired. */
static weir_status residency_move_out(weir_client *client, wi_residence *r)
{
    wi_event *events;
    weir_status status = wi_residence_copy(client, r, &events);
    if (status == WEIR_OK)
        status = residency_take_all(client, r, events);
    if (status == WEIR_OK) /* last, as this step does everything or nothing */
        status = wi_residence_release_pages(client, r);
    if (status != WEIR_OK)
        wi_residence_copies_failed(client, r, true);
    free(events);
    return status;
}

/* Has the copies given up when the host's memory is short. */
static void residency_under_pressure(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)weir_client_forget_copies(user);
}

static weir_status residency_prepare(weir_client *client, wi_residence *r, const char *folder)
{
    weir_runtime *runtime = client->runtime;
    weir_status status = wi_copies_open(&r->copies, folder, r->away.show);
    /* copies of a call that failed before may be under way, and their memory is about to be used again */
    if (status == WEIR_OK && r->stream)
        status = runtime->driver->stream_synchronize(runtime->device, r->stream);
    else if (status == WEIR_OK)
        status = runtime->driver->stream_create(runtime->device, &r->stream);
    if (status == WEIR_OK)
        residency_copies_done(client, r);
    wi_resource *pinned;
    if (status == WEIR_OK && !r->copies.to_file)
        status = wi_host_memory_stack(runtime, WEIR_KIND_PINNED, &pinned);
    if (status == WEIR_OK && r->away.show)
        status = wi_host_memory_shown(runtime, &pinned);
    if (status == WEIR_OK && (r->away.show || !r->copies.to_file) && r->pressure == 0)
        status =
            weir_pressure_register(wi_host_memory_host(runtime), 0, residency_under_pressure, client, &r->pressure);
    return status;
}

weir_status wi_residence_choose(weir_client *client, wi_residence *r, const char *folder, bool *chosen)
{
    weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    uint64_t deadline = wi_residence_deadline(r->options.wait), left;
    weir_status status = residency_prepare(client, r, folder);
    if (status == WEIR_OK)
        status = wi_residence_wait_streams(client, deadline);
    *chosen = false;
    if (status != WEIR_OK)
        return status;
    wi_tcaches_drop_client(client);
    wi_runtime_drain(runtime, &client->account);
    (void)base->table->pass(base, &left);
    if (r->options.graphs)
        status = wi_capture_pools_step_aside(client, deadline);
    if (status != WEIR_OK)
        return status;
    status = base->table->away->choose(base, &r->away);
    *chosen = status == WEIR_OK;
    if (status == WEIR_OK && !wi_has_bug(WI_BUG_LEAVE_EARLY))
        status = residency_wait_uses(client, r, deadline);
    if (status != WEIR_OK)
        residency_keep_pages(r);
    return status;
}

/* *gone: some is away. That may be so after a failure, if the driver did not put back what it had taken. */
static weir_status residency_suspend(weir_client *client, wi_residence *r, const char *folder, bool *gone)
{
    wi_base *base = client->runtime->resource->base;
    bool chosen;
    weir_status status = wi_residence_choose(client, r, folder, &chosen);
    if (!chosen)
        return status;
    if (status == WEIR_OK)
        status = residency_move_out(client, r);
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (status != WEIR_OK && r->away.show)
        residency_hide_all(r);
    *gone = status == WEIR_OK || !base->table->away->undo(base, &r->away);
    if (status == WEIR_OK)
        base->table->away->leave(base, &r->away);
    wi_detail_restore(&saved);
    return status;
}

/* Nothing of a suspend that failed stays in the host's memory, unless pieces are away all the same (`gone`). Copies that
 * may still be under way do. */
static void residency_sweep(const weir_client *client, wi_residence *r, bool gone)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (wi_residence_copies_rest(client, r))
        wi_copies_sweep(&r->copies, !gone);
    if (r->receipt.copied > 0) /* else what was prepared is as it was */
        wi_makers_end(r->copies.client);
    (void)wi_free_aside_wait(r->copies.client);
    wi_detail_restore(&saved);
}

static void residency_begin_receipt(wi_residence *r, bool can_show)
{
    r->receipt = (weir_residency){.struct_size = sizeof r->receipt};
    r->away.receipt = &r->receipt;
    r->away.stay = r->options.stay;
    r->away.drop = r->options.drop;
    r->away.unwritten = r->options.unwritten;
    r->away.show = r->options.show && can_show;
    r->away.graphs = r->options.graphs;
    r->pages.stay = r->options.stay;
    r->pages.drop = r->options.drop;
    residency_keep_pages(r);
}

weir_status wi_residence_begin_shown(weir_client *client, wi_residence *r)
{
    r->options = (weir_suspend_options){.struct_size = sizeof r->options, .keep_guarantee = true, .show = true};
    residency_begin_receipt(r, true);
    return residency_prepare(client, r, NULL);
}

void wi_residence_tell(weir_client *client, wi_residence *r, weir_residency *out)
{
    weir_client_stats stats = {.struct_size = sizeof stats};
    wi_ledger_account_snapshot(&client->runtime->ledger, &client->account, &stats);
    pthread_mutex_lock(&r->lock);
    r->told.struct_size = sizeof r->told;
    r->told.state = r->state;
    r->told.away = stats.away;
    r->told.shown = atomic_load(&r->away.shown);
    wi_copy_out(out, out->struct_size, &r->told, sizeof r->told);
    pthread_mutex_unlock(&r->lock);
}

weir_status wi_residence_depart(weir_client *client, const char *call, const weir_suspend_options *options,
                                const weir_residency *out, wi_residence **residence, const char **folder)
{
    weir_suspend_options o = {.struct_size = sizeof o};
    weir_residency_state found;
    wi_residence *r;
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_suspend_options, &o, options, call);
    if (status == WEIR_OK && out && out->struct_size < 2 * sizeof(size_t))
        status = weir_fail(WEIR_ERR_INVALID, "%s: member struct_size of the receipt is not set", call);
    if (status == WEIR_OK && (o.stay | o.drop | o.unwritten) >= WEIR_CLASS_BIT(WEIR_CLASS_COUNT))
        status = weir_fail(WEIR_ERR_INVALID, "%s: a bit that is of no class; see WEIR_CLASS_BIT", call);
    if (status == WEIR_OK)
        status = wi_residence_open(client, call, &r);
    if (status != WEIR_OK)
        return status;
    if (!wi_residence_take(r, WEIR_RESIDENT, &found))
        return weir_fail(WEIR_ERR_BUSY, "%s: %s is %s", call, client->account.name,
                         found == WEIR_SUSPENDED ? "suspended already" : "being suspended or resumed");
    status = wi_client_check(client,
                             call); /* a close ends the residence after it has set the state, and this looks behind */
    if (status != WEIR_OK) {
        wi_residence_set(r, WEIR_RESIDENT);
        return status;
    }
    *residence = r;
    *folder = o.folder;
    r->options = o;
    r->options.folder = NULL;
    residency_begin_receipt(r, wi_host_memory_can_show(client->runtime));
    return WEIR_OK;
}

void wi_residence_departed(weir_client *client, wi_residence *r, bool failed, bool gone)
{
    if (!failed) /* prepared memory that the suspend has not needed */
        (void)wi_makers_rest(client);
    else
        residency_sweep(client, r, gone);
    weir_client_stats stats = {.struct_size = sizeof stats};
    wi_ledger_account_snapshot(&client->runtime->ledger, &client->account, &stats);
    r->receipt.stayed = stats.live;
    wi_trust_tell_outside(client, &stats, &r->receipt);
    r->receipt.released = r->away.released + r->pages.bytes;
    if (gone)
        wi_copies_narrow(&r->copies, &r->away);
}

weir_status weir_client_suspend(weir_client *client, const weir_suspend_options *options, weir_residency *out)
{
    wi_residence *r;
    const char *folder;
    weir_status status = wi_residence_depart(client, "weir_client_suspend", options, out, &r, &folder);
    if (status != WEIR_OK)
        return status;
    bool gone = false;
    status = residency_suspend(client, r, folder, &gone);
    wi_residence_departed(client, r, status != WEIR_OK, gone);
    if (gone && !r->options.keep_guarantee)
        wi_ledger_give_up_guarantee(&client->runtime->ledger, &client->account);
    wi_residence_set(r, gone ? WEIR_SUSPENDED : WEIR_RESIDENT);
    if (status == WEIR_OK && out)
        wi_residence_tell(client, r, out);
    return status;
}

/* The rest --------------------------------------------------------------------------------------------------------- */

uint64_t weir_client_forget_copies(weir_client *client)
{
    weir_residency_state found;
    wi_residence *r =
        wi_client_check_giving(client, "weir_client_forget_copies") == WEIR_OK ? residence_of(client) : NULL;
    if (!r)
        return 0;
    pthread_mutex_lock(&r->lock);
    bool idle = r->state == WEIR_RESIDENT;
    pthread_mutex_unlock(&r->lock);
    if (!idle || !wi_residence_take(r, WEIR_RESIDENT, &found))
        return 0;
    uint64_t bytes = wi_residence_copies_rest(client, r) ? wi_copies_stored(&r->copies) : 0;
    if (bytes > 0)
        wi_copies_end(&r->copies);
    bytes += wi_makers_rest(client);
    (void)wi_free_aside_wait(client);
    wi_residence_set(r, WEIR_RESIDENT);
    return bytes;
}

weir_status weir_client_residency(weir_client *client, weir_residency *out)
{
    weir_status status = wi_client_check_giving(client, "weir_client_residency");
    if (status != WEIR_OK)
        return status;
    if (!out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_client_residency: NULL, or member struct_size is not set");
    weir_residency none = {.struct_size = sizeof none};
    wi_residence *r = residence_of(client);
    if (r)
        wi_residence_tell(client, r, out);
    else
        wi_copy_out(out, out->struct_size, &none, sizeof none);
    return WEIR_OK;
}

bool wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves)
{
    wi_residence *r = residence_of(client);
    uint64_t bytes = 0;
    if (wi_likely(!r))
        return true;
    pthread_mutex_lock(&r->lock);
    bool same = r->moves == moves;
    if (same && r->state == WEIR_SUSPENDED)
        bytes = wi_elastic_away_forget(&r->pages, low, high);
    pthread_mutex_unlock(&r->lock);
    if (bytes > 0)
        wi_ledger_elsewhere(&client->runtime->ledger, &client->account, -bytes);
    return same;
}

/* Gives back the memory of shown pieces without blocks. Memory that the driver does not take back stays mapped, and its
 * addresses are not used again. */
static void residency_leave_homes(const weir_client *client, wi_residence *r)
{
    wi_base *base = client->runtime->resource->base;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (base->table->away->sweep(base, &r->away) != WEIR_OK)
        base->table->away->forget(base, &r->away);
    wi_detail_restore(&saved);
}

static weir_status residency_refuse_end(const weir_client *client, const wi_residence *r)
{
    char text[24];
    return weir_fail(WEIR_ERR_DRIVER,
                     "%s is not closed: %s does not say whether the copies of what it had there are done, and they may "
                     "be using the %s that are stored of it; close it when the device answers again",
                     client->account.name, client->runtime->name,
                     weir_size_format(wi_copies_stored(&r->copies), text, sizeof text));
}

/* Whether blocks of the client are away. Looks under the lock, as frees on other threads change the list. */
static bool residency_has_away(const weir_client *client, const wi_residence *r)
{
    wi_base *base = client->runtime->resource->base;
    wi_base_lock(base);
    bool away = r->away.bytes > 0;
    wi_base_unlock(base);
    return away;
}

static weir_status residency_end(weir_client *client, wi_residence *r)
{
    weir_runtime *runtime = client->runtime;
    if (residency_has_away(client, r)) /* another thread has suspended the client since its blocks were counted */
        return weir_fail(WEIR_ERR_BUSY, "%s is suspended with blocks; free them before closing it",
                         client->account.name);
    if (!wi_residence_copies_rest(client, r))
        return residency_refuse_end(client, r);
    /* waits also inside a callback of the program's, as the removed callback waits for no other callback */
    if (r->pressure)
        (void)!wi_pressures_remove(&wi_host_memory_host(runtime)->ledger.pressures, r->pressure, true);
    r->pressure = 0;
    if (r->away.piece_count > 0) /* shown, and without blocks */
        residency_leave_homes(client, r);
    wi_makers_end(client);
    wi_copies_end(&r->copies);
    (void)wi_free_aside_wait(client);
    wi_away_clear(&r->away);
    wi_away_clear(&r->pages);
    if (r->stream)
        runtime->driver->stream_destroy(runtime->device, r->stream);
    r->stream = NULL;
    return WEIR_OK;
}

/* Takes the record in whichever state. False: this thread would have to wait for one that may be waiting for it. */
static bool residency_take_any(wi_residence *r, weir_residency_state *found)
{
    return wi_residence_take(r, WEIR_RESIDENT, found) || wi_residence_take(r, WEIR_SUSPENDED, found);
}

uint64_t wi_residency_copies(weir_client *client, uint64_t *bytes)
{
    weir_residency_state found;
    wi_residence *r = residence_of(client);
    *bytes = 0;
    if (!r || !wi_kind_is_own(client->runtime, WEIR_KIND_PINNED) || !residency_take_any(r, &found))
        return 0;
    uint64_t blocks = wi_copies_chunks(&r->copies, bytes);
    wi_residence_set(r, found);
    return blocks;
}

weir_status wi_residency_end(weir_client *client)
{
    weir_residency_state found;
    wi_residence *r = residence_of(client);
    if (!r || !residency_take_any(r, &found))
        return WEIR_OK;
    weir_status status = residency_end(client, r);
    wi_residence_set(r, found); /* the client may stay open; what it is guaranteed comes back with a resume */
    return status;
}

void wi_residency_free(weir_client *client)
{
    wi_residence *r = atomic_exchange(&client->residence, NULL);
    if (!r)
        return;
    wi_makers_free(&r->makers);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
