/* Fronts, where others have a say: making and dropping them, and giving up what they park. */
#include "base/intern.h"
#include "base/options.h"
#include "base/system.h"
#include "memory/record.h"
#include "runtime/runtime.h"

/* Behind a ledger's lock. Whoever holds it claims threads' own locks. */
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;

static pthread_key_t thread_key;
static _Thread_local unsigned in_turn; /* turns that this thread has begun */

/* What a front may park: enough for a loop's working set, little of a budget even when there are some threads. */
enum { BUDGET_PARTS = 64 };
static const uint64_t least_room = 256 * WI_KIB, most_room = 256 * WI_MIB;

/* Claiming --------------------------------------------------------------------------------------------------------- */

/* Which fronts of a runtime are meant; members NULL: all. */
typedef struct selection {
    const weir_client *client;
    const weir_stream *stream;
    const wi_front_thread *thread;
    uint64_t above; /* of their blocks, those of a larger charge */
    bool drop;      /* the fronts go, too */
} selection;

/* What a front parks that is large is its thread's to know: who asks for large blocks alone asks its own thread. A thread may
 * have many fronts, few of which park any. */
static bool selects(const selection *s, const wi_front *front)
{
    return (!s->client || s->client == front->client) && (!s->stream || s->stream->id == front->stream.id) &&
           (!s->thread || s->thread == front->thread) && (s->above < WI_FRONT_SMALL || front->large > 0);
}

/* With both locks held: those fronts are the caller's until let_go; linked by `picked`. */
static wi_front *claim(wi_fronts *fronts, const selection *s)
{
    wi_front *picked = NULL;
    bool others = false;
    for (wi_front *f = fronts->first; f; f = f->next)
        if (selects(s, f)) {
            f->picked = picked;
            picked = f;
            others |= f->thread != wi_front_mine;
            wi_biased_ask(&f->thread->lock);
        }
    if (others)
        wi_biased_fence();
    for (wi_front *f = picked; f; f = f->picked)
        wi_biased_wait(&f->thread->lock);
    return picked;
}

/* Those behind it move up, so that no place between a front and where it belongs is empty. */
static void leave_table(wi_front_thread *thread, const wi_front *front)
{
    uint64_t mask = UINT64_MAX >> thread->shift;
    uint64_t hole = wi_front_place(thread, front->client, front->stream);
    while (thread->table[hole] != front)
        hole = (hole + 1) & mask;
    for (uint64_t i = (hole + 1) & mask; thread->table[i]; i = (i + 1) & mask) {
        wi_front *next = thread->table[i];
        uint64_t home = wi_front_place(thread, next->client, next->stream);
        if (((i - home) & mask) < ((i - hole) & mask)) /* its home is behind the hole */
            continue;
        thread->table[hole] = next;
        hole = i;
    }
    thread->table[hole] = NULL;
}

static void enter_table(wi_front_thread *thread, wi_front *front)
{
    uint64_t mask = UINT64_MAX >> thread->shift;
    uint64_t i = wi_front_place(thread, front->client, front->stream);
    while (thread->table[i])
        i = (i + 1) & mask;
    thread->table[i] = front;
}

/* Room for one more front; false: no memory. */
static bool grow_table(wi_front_thread *thread)
{
    uint64_t places = UINT64_C(1) << (64 - thread->shift);
    if (2 * ((uint64_t)thread->count + 1) <= places)
        return true;
    wi_front **table = calloc(2 * places, sizeof *table), **old = thread->table;
    if (!table)
        return false;
    thread->table = table;
    thread->shift--;
    for (wi_front *f = thread->fronts; f; f = f->next_of_thread)
        enter_table(thread, f);
    if (old != thread->places)
        free(old);
    return true;
}

static void unlist(wi_fronts *fronts, wi_front *front)
{
    wi_front_thread *thread = front->thread;
    *(front->previous ? &front->previous->next : &fronts->first) = front->next;
    if (front->next)
        front->next->previous = front->previous;
    *(front->newer ? &front->newer->next_of_thread : &thread->fronts) = front->next_of_thread;
    *(front->next_of_thread ? &front->next_of_thread->newer : &thread->oldest) = front->newer;
    leave_table(thread, front);
    thread->count--;
    wi_depot_forget(front);
}

/* The records may go with the runtime. Claimed. */
static void forget_recent(wi_front_thread *thread)
{
    if (thread->stale)
        memset(thread->recent, 0, sizeof thread->recent);
    thread->stale = false;
}

static void let_go(wi_fronts *fronts, wi_front *picked, bool drop)
{
    for (wi_front *f = picked; drop && f; f = f->picked) {
        f->thread->stale = true;
        unlist(fronts, f);
    }
    for (wi_front *f = picked; drop && f; f = f->picked)
        forget_recent(f->thread);
    for (wi_front *f = picked; f; f = f->picked)
        wi_biased_release(&f->thread->lock);
    for (wi_front *next; drop && picked; picked = next) {
        next = picked->picked;
        free(picked);
    }
}

/* Taking out ------------------------------------------------------------------------------------------------------- */

/* Blocks up to so large are no disappointment when they are given up: of those which others may want, too, it is not known
 * which front would have had them. */
static uint64_t forgiven(const wi_front *front)
{
    return front->depot->fronts > 1 ? WI_FRONT_HANDED : WI_FRONT_SMALL;
}

/* A bin's blocks but the `keep` last ones go in front of the list. */
static void empty_bin(wi_front *front, wi_front_bin *bin, uint32_t keep, wi_block **list)
{
    wi_block **link = &bin->first;
    for (uint32_t i = 0; i < keep && *link; i++)
        link = &(*link)->pending_next;
    wi_block *block = *link;
    *link = NULL;
    while (block) {
        wi_block *next = block->pending_next;
        bin->count--;
        wi_front_settle_hope(front);
        front->hope -= block->charged > forgiven(front) && front->hope > 0;
        wi_front_lose(front, block->charged);
        block->pending_next = *list;
        *list = block;
        block = next;
    }
}

static void fold(wi_front *front)
{
    wi_depot_settle(front);
    wi_ledger_fold(&front->runtime->ledger, front->account, &front->drift);
}

/* After the fronts. */
static void fold_depots(weir_runtime *runtime)
{
    for (wi_depot *d = runtime->fronts.depots; d; d = d->next)
        wi_depot_fold(d);
}

static void lock_lists(weir_runtime *runtime)
{
    pthread_mutex_lock(&runtime->ledger.lock);
    pthread_mutex_lock(&lists);
}

static void unlock_lists(weir_runtime *runtime)
{
    pthread_mutex_unlock(&lists);
    pthread_mutex_unlock(&runtime->ledger.lock);
}

/* Those that the selection means, or that are nobody's. What one thread is asked to give up is in its fronts. */
static void empty_depots(wi_fronts *fronts, const selection *s, wi_block **list)
{
    for (wi_depot *depot = fronts->depots, *next; depot; depot = next) {
        bool meant = !s->thread && (!s->client || s->client == depot->client) &&
                     (!s->stream || s->stream->id == depot->stream.id);
        next = depot->next;
        if (meant || depot->fronts == 0)
            wi_depot_empty(depot, s->above, list);
        if (depot->fronts == 0)
            wi_depot_end(depot);
    }
}

/* With the lock of all fronts held. */
static void begin_turn(wi_fronts *fronts, wi_front_turn *turn, const weir_client *client, const weir_stream *stream)
{
    bool one = client && stream;
    *turn = (wi_front_turn){.previous = fronts->last_turn,
                            .number = ++fronts->turns,
                            .client = one ? client : NULL,
                            .stream = one ? *stream : WEIR_STREAM_HOST};
    *(turn->previous ? &turn->previous->next : &fronts->first_turn) = turn;
    fronts->last_turn = turn;
    in_turn++;
}

static void end_turn(wi_fronts *fronts, const wi_front_turn *turn)
{
    pthread_mutex_lock(&lists);
    *(turn->previous ? &turn->previous->next : &fronts->first_turn) = turn->next;
    *(turn->next ? &turn->next->previous : &fronts->last_turn) = turn->previous;
    in_turn--;
    pthread_cond_broadcast(&fronts->turn_over);
    pthread_mutex_unlock(&lists);
}

/* The blocks that the selection means; where there are some, the caller's turn is begun, and free_all ends it. */
static wi_block *take_out(weir_runtime *runtime, const selection *s, wi_front_turn *turn)
{
    wi_fronts *fronts = &runtime->fronts;
    wi_block *list = NULL;
    lock_lists(runtime);
    wi_front *picked = claim(fronts, s);
    for (wi_front *f = picked; f; f = f->picked) {
        fold(f);
        for (size_t i = s->above < WI_FRONT_SMALL ? 0 : WI_FRONT_SMALL_BINS; i < WI_FRONT_BINS; i++)
            if (f->bins[i].charged > s->above) {
                empty_bin(f, &f->bins[i], 0, &list);
                f->bins[i].most = wi_min(f->bins[i].most, wi_front_most(fronts, f->bins[i].charged));
            }
    }
    let_go(fronts, picked, s->drop);
    empty_depots(fronts, s, &list);
    if (list)
        begin_turn(fronts, turn, s->client, s->stream);
    unlock_lists(runtime);
    return list;
}

/* Whether a turn that was begun by then may have blocks of the client's, or of the stream's; NULL: of any. */
static bool any_at_work(const wi_fronts *fronts, uint64_t last, const weir_client *client, const weir_stream *stream)
{
    const wi_front_turn *turn = fronts->first_turn;
    while (turn && turn->number <= last && turn->client &&
           ((client && turn->client != client) || (stream && turn->stream.id != stream->id)))
        turn = turn->next;
    return turn && turn->number <= last;
}

/* Waits for those who are at work on such blocks now; true if there were any. Nobody waits who is in a turn himself: a pressure
 * callback or the log's function may have called. */
static bool wait_for_others(weir_runtime *runtime, const weir_client *client, const weir_stream *stream)
{
    wi_fronts *fronts = &runtime->fronts;
    bool waited = false;
    if (wi_alone || in_turn > 0)
        return false;
    pthread_mutex_lock(&lists);
    for (uint64_t last = fronts->turns; any_at_work(fronts, last, client, stream); waited = true)
        pthread_cond_wait(&fronts->turn_over, &lists);
    pthread_mutex_unlock(&lists);
    return waited;
}

/* Freeing what was taken out --------------------------------------------------------------------------------------- */

/* The free that was put off. The stream may be gone or captured by now, which were told when that was so. */
static weir_status free_now(weir_runtime *runtime, wi_block *block)
{
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    weir_status status = wi_free_taken(runtime, runtime->resource, block, block->stream);
    if (status == WEIR_ERR_STREAM_MISUSE)
        status = wi_free_behind(runtime, runtime->resource, block, block->stream);
    wi_detail_restore(&kept);
    return status;
}

static void keep_refused(wi_fronts *fronts, wi_block *block)
{
    pthread_mutex_lock(&lists);
    block->pending_next = fronts->refused;
    fronts->refused = block;
    pthread_mutex_unlock(&lists);
}

static uint64_t free_each(weir_runtime *runtime, wi_block *list)
{
    uint64_t bytes = 0;
    for (wi_block *block = list, *next; block; block = next) {
        uint64_t charged = block->charged;
        next = block->pending_next;
        if (free_now(runtime, block) == WEIR_OK)
            bytes += charged;
        else
            keep_refused(&runtime->fronts, block);
    }
    return bytes;
}

/* The blocks in front of the list that were parked on one stream, which is cut behind them. */
static wi_block *cut_run(wi_block *list, uint64_t *bytes)
{
    wi_block *last = list;
    *bytes = list->charged;
    for (; last->pending_next && last->pending_next->stream.id == list->stream.id; last = last->pending_next)
        *bytes += last->pending_next->charged;
    wi_block *rest = last->pending_next;
    last->pending_next = NULL;
    return rest;
}

static uint64_t free_all(weir_runtime *runtime, wi_block *list, const wi_front_turn *turn)
{
    uint64_t bytes = 0, more;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    for (wi_block *run = list, *rest; run; run = rest) {
        rest = cut_run(run, &more);
        bytes += wi_free_parked(runtime, run, run->stream) ? more : free_each(runtime, run);
    }
    wi_detail_restore(&kept);
    if (list)
        end_turn(&runtime->fronts, turn);
    return bytes;
}

/* What the driver would not take when it was asked before. */
static uint64_t retry(weir_runtime *runtime)
{
    wi_fronts *fronts = &runtime->fronts;
    wi_front_turn turn = {0};
    pthread_mutex_lock(&lists);
    wi_block *list = fronts->refused;
    fronts->refused = NULL;
    if (list)
        begin_turn(fronts, &turn, NULL, NULL);
    pthread_mutex_unlock(&lists);
    return free_all(runtime, list, &turn);
}

static uint64_t empty(weir_runtime *runtime, const selection *s)
{
    wi_front_turn turn = {0};
    return runtime->fronts.usable ? free_all(runtime, take_out(runtime, s, &turn), &turn) : 0;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void end_thread(void *user)
{
    wi_front_thread *mine = user;
    weir_runtime *runtime = NULL;
    wi_front_turn turn = {0};
    if (atomic_load(&wi_forked))
        return;
    do {
        pthread_mutex_lock(&lists);
        runtime = mine->fronts ? mine->fronts->runtime : NULL;
        if (runtime)
            begin_turn(&runtime->fronts, &turn, NULL, NULL); /* it stays until that ends */
        pthread_mutex_unlock(&lists);
        if (runtime) {
            (void)empty(runtime, &(selection){.thread = mine, .drop = true});
            end_turn(&runtime->fronts, &turn);
        }
    } while (runtime);
    wi_front_mine = NULL;
    if (mine->table != mine->places)
        free(mine->table);
    free(mine);
}

/* The thread that goes on in the child finds its lock claimed, and asks what is the matter. */
static void in_child(void)
{
    if (wi_front_mine)
        wi_biased_ask(&wi_front_mine->lock);
}

static void make_key(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
    (void)pthread_key_create(&thread_key, end_thread);
}

static wi_front_thread *this_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    if (wi_front_mine)
        return wi_front_mine;
    wi_front_thread *mine = aligned_alloc(128, wi_round_up(sizeof *mine, 128));
    if (!mine)
        return NULL;
    memset(mine, 0, sizeof *mine);
    wi_biased_init(&mine->lock);
    mine->table = mine->places;
    mine->shift = 64 - WI_FRONT_TABLE_BITS;
    if (pthread_setspecific(thread_key, mine) != 0) {
        free(mine);
        return NULL;
    }
    return wi_front_mine = mine;
}

/* With both locks held. */
static wi_front *make(wi_front_thread *mine, weir_client *client, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_fronts *fronts = &runtime->fronts;
    bool open = atomic_load(&client->state) == WI_CLIENT_OPEN && wi_streams_stays(&runtime->streams, stream) &&
                mine->count < WI_FRONT_MOST && grow_table(mine);
    wi_depot *depot = open ? wi_depot_find(fronts, client, stream) : NULL;
    if (open && !depot)
        depot = wi_depot_make(client, stream);
    wi_front *front = depot ? calloc(1, sizeof *front) : NULL;
    if (!front) {
        if (depot && depot->fronts == 0)
            wi_depot_end(depot);
        return NULL;
    }
    depot->fronts++;
    *front = (wi_front){.client = client,
                        .stream = stream,
                        .runtime = runtime,
                        .recording = &runtime->ledger.recording,
                        .base = runtime->resource->base,
                        .account = &client->account,
                        .no_tag = wi_intern(NULL, 0),
                        .room = fronts->room,
                        .hope = WI_FRONT_FIRST_HOPE,
                        .depot = depot,
                        .thread = mine,
                        .next_of_thread = mine->fronts,
                        .next = fronts->first};
    *(mine->fronts ? &mine->fronts->newer : &mine->oldest) = front;
    mine->fronts = front;
    mine->count++;
    enter_table(mine, front);
    if (fronts->first)
        fronts->first->previous = front;
    return fronts->first = front;
}

/* Half of them for whoever shares the depot; what lies there of other charges goes first. */
static bool leave_some(wi_front *front, uint64_t charged, wi_block **list)
{
    return wi_depot_put(front, charged) ||
           (charged <= WI_FRONT_HANDED && wi_depot_push_out(front->depot, charged, list) &&
            wi_depot_put(front, charged));
}

/* Makes room for one more block of that charge, the oldest ones first. */
static void make_room(wi_front *front, uint64_t charged, wi_block **list)
{
    wi_front_bin *bin = wi_front_bin_of(front, charged);
    uint32_t most = wi_front_most(&front->runtime->fronts, charged);
    bool full = bin->charged == charged && bin->count >= most;
    if (bin->charged != charged)
        empty_bin(front, bin, 0, list);
    bin->charged = charged;
    bin->most = most;
    if (full && leave_some(front, charged, list))
        return;
    if (full)
        empty_bin(front, bin, most / 2, list);
    while (charged > front->room) {
        empty_bin(front, &front->bins[front->hand], front->bins[front->hand].count / 2, list);
        front->hand = (front->hand + 1) % WI_FRONT_BINS;
    }
}

/* With both locks held, released meanwhile: where the thread has as many fronts as it may have, the one that it made first makes
 * way. The turn keeps that one's runtime, which may be another. */
static void make_way(wi_front_thread *mine, weir_runtime *runtime)
{
    wi_front_turn turn = {0};
    if (mine->count < WI_FRONT_MOST)
        return;
    weir_runtime *its = mine->oldest->runtime;
    weir_stream stream = mine->oldest->stream;
    selection oldest = {.client = mine->oldest->client, .stream = &stream, .thread = mine, .drop = true};
    begin_turn(&its->fronts, &turn, NULL, NULL);
    unlock_lists(runtime);
    (void)empty(its, &oldest);
    end_turn(&its->fronts, &turn);
    lock_lists(runtime);
}

/* Prepares this thread's front for a block of that charge; false: it will not have it. */
static bool prepare(weir_client *client, weir_stream stream, uint64_t charged, wi_block **list, wi_front_turn *turn)
{
    weir_runtime *runtime = client->runtime;
    wi_front_thread *mine = this_thread();
    if (!mine)
        return false;
    lock_lists(runtime);
    wi_front *front = wi_front_find(mine, client, stream);
    if (!front) {
        make_way(mine, runtime);
        front = make(mine, client, stream);
    }
    if (front) {
        fold(front);
        make_room(front, charged, list);
        if (*list)
            begin_turn(&runtime->fronts, turn, client, &stream);
    }
    unlock_lists(runtime);
    return front;
}

/* A front for a thread that has none there, if the depot may have blocks of that charge. */
static bool join(weir_client *client, weir_stream stream, uint64_t charged)
{
    weir_runtime *runtime = client->runtime;
    wi_front_thread *mine = this_thread();
    if (!mine)
        return false;
    lock_lists(runtime);
    const wi_depot *depot = wi_depot_find(&runtime->fronts, client, stream);
    wi_front *front = depot && wi_depot_may_have(depot, charged) && !wi_front_find(mine, client, stream)
                          ? make(mine, client, stream)
                          : NULL;
    unlock_lists(runtime);
    return front;
}

/* Whether there is a front that would not have a block of that charge. */
static bool is_declined(const weir_client *client, weir_stream stream, uint64_t charged)
{
    wi_front_thread *mine = wi_front_mine;
    if (charged <= WI_FRONT_SMALL || !mine || !wi_biased_enter(&mine->lock))
        return false;
    wi_front *front = wi_front_find(mine, client, stream);
    bool declined = front && wi_front_declines(front, charged);
    wi_biased_leave(&mine->lock);
    return declined;
}

bool wi_front_take_slowly(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                          weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    return atomic_load_explicit(&runtime->fronts.lists, memory_order_relaxed) > 0 && bytes - 1 < WI_FRONT_HANDED &&
           wi_recording(&runtime->ledger) == 0 && join(client, stream, wi_round_up(bytes, WI_UNIT)) &&
           (out->pointer = wi_front_take(client, bytes, stream, memory_class, &out->generation));
}

bool wi_front_give_slowly(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *base = runtime->resource->base;
    wi_block *list = NULL, *block = NULL;
    wi_front_turn turn = {0};
    if (!runtime->fronts.usable || wi_recording(&runtime->ledger) != 0 || !(block = base->table->peek(base, pointer)))
        return false;
    uint64_t charged = wi_load(block->charged);
    uint64_t word = atomic_load_explicit(&block->word, memory_order_acquire);
    if (charged == 0 || charged > runtime->fronts.room || (word & (WI_TRACKED | 7)) != WI_LIVE ||
        wi_load(block->memory_class) == WEIR_CLASS_WEIGHTS)
        return false;
    if (is_declined(client, stream, charged))
        return false;
    if (wi_streams_capturing(&runtime->streams, runtime->driver, runtime->device, stream))
        return false;
    bool ready = prepare(client, stream, charged, &list, &turn);
    (void)free_all(runtime, list, &turn);
    return ready && wi_front_give(client, pointer, generation, stream);
}

/* This thread's ---------------------------------------------------------------------------------------------------- */

static bool has_drifted(const wi_front *f, const weir_client *client)
{
    return f->client == client && f->drift.hits + f->drift.frees > 0;
}

/* Claimers hold these locks: with them, nobody else is about this thread's fronts. */
void wi_front_settle(weir_client *client)
{
    wi_front_thread *mine = wi_front_mine;
    bool drifted = false;
    if (!mine || !wi_biased_enter(&mine->lock)) /* who claims it folds it, or drops it */
        return;
    for (const wi_front *f = mine->fronts; f && !drifted; f = f->next_of_thread)
        drifted = has_drifted(f, client);
    wi_biased_leave(&mine->lock);
    if (!drifted)
        return;
    lock_lists(client->runtime);
    for (wi_front *f = mine->fronts; f; f = f->next_of_thread)
        if (has_drifted(f, client))
            fold(f);
    unlock_lists(client->runtime);
}

wi_front_large wi_front_look_large(const weir_client *client, weir_stream stream)
{
    wi_front_large large = {0};
    wi_front_thread *mine = wi_front_mine;
    if (!mine || !wi_biased_enter(&mine->lock))
        return large;
    for (wi_front *f = mine->fronts; f; f = f->next_of_thread) {
        bool here = f->client == client && f->stream.id == stream.id;
        *(here ? &large.here : &large.elsewhere) |= f->runtime == client->runtime && f->large > 0;
        if (here) {
            large.hits = f->large_hits - f->told;
            f->told = f->large_hits;
        }
    }
    wi_biased_leave(&mine->lock);
    return large;
}

uint64_t wi_front_empty_large(weir_client *client, weir_stream stream, bool everywhere)
{
    selection s = {.thread = wi_front_mine, .above = WI_FRONT_SMALL};
    if (!everywhere) {
        s.client = client;
        s.stream = &stream;
    }
    return empty(client->runtime, &s);
}

/* All of them ------------------------------------------------------------------------------------------------------ */

void wi_fronts_drop_client(weir_client *client)
{
    (void)retry(client->runtime);
    (void)empty(client->runtime, &(selection){.client = client, .drop = true});
    (void)wait_for_others(client->runtime, client, NULL);
}

void wi_fronts_drop_stream(weir_runtime *runtime, weir_stream stream)
{
    (void)empty(runtime, &(selection){.stream = &stream, .drop = true});
    (void)wait_for_others(runtime, NULL, &stream);
}

uint64_t wi_fronts_empty(weir_runtime *runtime)
{
    uint64_t bytes = retry(runtime) + empty(runtime, &(selection){0});
    (void)wait_for_others(runtime, NULL, NULL);
    return bytes;
}

/* This thread's own before those of others. What others have in hand is as good as free. */
static uint64_t give_up(void *user)
{
    weir_runtime *runtime = user;
    uint64_t bytes = retry(runtime);
    if (wi_front_mine)
        bytes += empty(runtime, &(selection){.thread = wi_front_mine});
    if (bytes == 0)
        bytes = empty(runtime, &(selection){0});
    if (bytes == 0)
        (void)wait_for_others(runtime, NULL, NULL);
    return bytes;
}

/* With the ledger's lock held. */
static void fold_all(void *user)
{
    weir_runtime *runtime = user;
    if (!runtime->fronts.first)
        return;
    pthread_mutex_lock(&lists);
    wi_front *picked = claim(&runtime->fronts, &(selection){0});
    for (wi_front *f = picked; f; f = f->picked)
        fold(f);
    fold_depots(runtime);
    let_go(&runtime->fronts, picked, false);
    pthread_mutex_unlock(&lists);
}

void wi_fronts_shut(weir_runtime *runtime)
{
    atomic_fetch_or(&runtime->ledger.recording, WI_FRONTS_SHUT);
    (void)retry(runtime);
    (void)empty(runtime, &(selection){0});
    (void)wait_for_others(runtime, NULL, NULL);
}

void wi_fronts_open(weir_runtime *runtime)
{
    atomic_fetch_and(&runtime->ledger.recording, ~(unsigned)WI_FRONTS_SHUT);
}

/* Of a runtime ----------------------------------------------------------------------------------------------------- */

void wi_fronts_init(weir_runtime *runtime)
{
    const wi_resource *top = runtime->resource;
    uint64_t room = runtime->ledger.budget / BUDGET_PARTS;
    room = wi_min(wi_option_front(), wi_min(wi_max(room, least_room), most_room));
    bool usable = room > 0 && top->inner == top->base && top->base->table->peek;
    runtime->fronts = (wi_fronts){.usable = usable, .room = room, .patience = wi_option_calm()};
    pthread_cond_init(&runtime->fronts.turn_over, NULL);
    if (runtime->fronts.usable)
        runtime->ledger.parking = (wi_parking){fold_all, give_up, runtime};
}

void wi_fronts_end(weir_runtime *runtime)
{
    (void)wait_for_others(runtime, NULL, NULL);
    pthread_cond_destroy(&runtime->fronts.turn_over);
    wi_law(!runtime->fronts.first && !runtime->fronts.refused && !runtime->fronts.depots);
}
