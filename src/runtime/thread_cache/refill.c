/* Thread caches, off the hit path: making, refilling, flushing and ending them, for this thread and for others. */
#include "base/texts.h"
#include "base/values.h"
#include "base/system.h"
#include "memory/ledger/ledger.h"
#include "runtime/runtime.h"
#include "runtime/thread_cache/thread_cache.h"

/* The lock of all thread caches; after a ledger's lock. Its holder may revoke threads' own locks. */
static pthread_mutex_t all_caches_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_key_t thread_key;
static _Thread_local unsigned in_grace; /* grace periods that this thread has begun */

/* The most bytes in one cache: enough for a loop's working set, and little of a budget with several threads. */
enum { BUDGET_PARTS = 64 };
static const uint64_t least_room = 256 * WI_KIB, most_room = 256 * WI_MIB;

/* Claiming --------------------------------------------------------------------------------------------------------- */

/* A selection of a runtime's caches; members NULL: all. */
typedef struct selection {
    const weir_client *client;
    const weir_stream *stream;
    const wi_tcache_thread *thread;
    uint64_t above; /* of their blocks, those of a larger charge */
    bool drop;      /* the thread caches go, too */
} selection;

/* Only the thread itself knows its large blocks, so that a flush of large blocks selects this thread's caches alone.
 * A thread may have many caches, few of which have any. */
static bool tcache_selects(const selection *s, const wi_tcache *cache)
{
    return (!s->client || s->client == cache->client) && (!s->stream || s->stream->id == cache->stream.id) &&
           (!s->thread || s->thread == cache->thread) && (s->above < WI_TCACHE_SMALL || cache->large > 0);
}

/* With both locks held: revokes the selected caches, linked by `picked`, until let_go. */
static wi_tcache *tcache_revoke(wi_tcaches *caches, const selection *s)
{
    wi_tcache *picked = NULL;
    bool others = false;
    for (wi_tcache *f = caches->first; f; f = f->next)
        if (tcache_selects(s, f)) {
            f->picked = picked;
            picked = f;
            others |= f->thread != wi_tcache_mine;
            wi_biased_ask(&f->thread->lock);
        }
    if (others)
        wi_biased_fence();
    for (wi_tcache *f = picked; f; f = f->picked)
        wi_biased_wait(&f->thread->lock);
    return picked;
}

/* Removes a cache from the table. Later entries move up, so that no empty entry lies between an entry's own index and
 * the entry. */
static void leave_table(wi_tcache_thread *thread, const wi_tcache *cache)
{
    uint64_t mask = UINT64_MAX >> thread->shift;
    uint64_t hole = wi_tcache_index(thread, cache->client, cache->stream);
    while (thread->table[hole] != cache)
        hole = (hole + 1) & mask;
    for (uint64_t i = (hole + 1) & mask; thread->table[i]; i = (i + 1) & mask) {
        wi_tcache *next = thread->table[i];
        uint64_t home = wi_tcache_index(thread, next->client, next->stream);
        if (((i - home) & mask) < ((i - hole) & mask)) /* its home is behind the hole */
            continue;
        thread->table[hole] = next;
        hole = i;
    }
    thread->table[hole] = NULL;
}

static void enter_table(wi_tcache_thread *thread, wi_tcache *cache)
{
    uint64_t mask = UINT64_MAX >> thread->shift;
    uint64_t i = wi_tcache_index(thread, cache->client, cache->stream);
    while (thread->table[i])
        i = (i + 1) & mask;
    thread->table[i] = cache;
}

/* Makes room for one more cache; false: no host memory. */
static bool tcache_grow_table(wi_tcache_thread *thread)
{
    uint64_t entries = UINT64_C(1) << (64 - thread->shift);
    if (2 * ((uint64_t)thread->count + 1) <= entries)
        return true;
    wi_tcache **table = calloc(2 * entries, sizeof *table), **old = thread->table;
    if (!table)
        return false;
    thread->table = table;
    thread->shift--;
    for (wi_tcache *f = thread->caches; f; f = f->next_of_thread)
        enter_table(thread, f);
    if (old != thread->entries)
        free(old);
    return true;
}

static void tcache_unlist(wi_tcaches *caches, wi_tcache *cache)
{
    wi_tcache_thread *thread = cache->thread;
    *(cache->previous ? &cache->previous->next : &caches->first) = cache->next;
    if (cache->next)
        cache->next->previous = cache->previous;
    *(cache->newer ? &cache->newer->next_of_thread : &thread->caches) = cache->next_of_thread;
    *(cache->next_of_thread ? &cache->next_of_thread->newer : &thread->oldest) = cache->newer;
    leave_table(thread, cache);
    thread->count--;
    wi_depot_forget(cache);
}

/* The records may go with the runtime. Claimed. */
static void forget_recent(wi_tcache_thread *thread)
{
    if (thread->stale)
        memset(thread->recent, 0, sizeof thread->recent);
    thread->stale = false;
}

static void tcache_let_go(wi_tcaches *caches, wi_tcache *picked, bool drop)
{
    for (wi_tcache *f = picked; drop && f; f = f->picked) {
        f->thread->stale = true;
        tcache_unlist(caches, f);
    }
    for (wi_tcache *f = picked; drop && f; f = f->picked)
        forget_recent(f->thread);
    for (wi_tcache *f = picked; f; f = f->picked)
        wi_biased_release(&f->thread->lock);
    for (wi_tcache *next; drop && picked; picked = next) {
        next = picked->picked;
        free(picked);
    }
}

/* Flushing --------------------------------------------------------------------------------------------------------- */

/* Blocks up to this size do not lower the score when they are flushed unused: other caches may want them too, and it
 * is not known which would have had the hits. */
static uint64_t tcache_forgiven(const wi_tcache *cache)
{
    return cache->depot->caches > 1 ? WI_TCACHE_HANDED : WI_TCACHE_SMALL;
}

/* Moves all but the newest `keep` blocks of the bin to the front of the list. */
static void empty_bin(wi_tcache *cache, wi_tcache_bin *bin, uint32_t keep, wi_block **list)
{
    wi_block **link = &bin->first;
    for (uint32_t i = 0; i < keep && *link; i++)
        link = &(*link)->pending_next;
    wi_block *block = *link;
    *link = NULL;
    while (block) {
        wi_block *next = block->pending_next;
        bin->count--;
        wi_tcache_update_score(cache);
        cache->score -= block->charged > tcache_forgiven(cache) && cache->score > 0;
        wi_tcache_lose(cache, block->charged);
        block->pending_next = *list;
        *list = block;
        block = next;
    }
}

static void tcache_merge(wi_tcache *cache)
{
    wi_depot_merge_returned(cache);
    wi_ledger_merge(&cache->runtime->ledger, cache->account, &cache->delta);
}

/* After the thread caches. */
static void merge_depots(weir_runtime *runtime)
{
    for (wi_depot *d = runtime->caches.depots; d; d = d->next)
        wi_depot_merge(d);
}

static void lock_all_caches(weir_runtime *runtime)
{
    pthread_mutex_lock(&runtime->ledger.lock);
    pthread_mutex_lock(&all_caches_lock);
}

static void unlock_all_caches(weir_runtime *runtime)
{
    pthread_mutex_unlock(&all_caches_lock);
    pthread_mutex_unlock(&runtime->ledger.lock);
}

/* Flushes depots and refused blocks, too, unless one thread's caches are meant. */
static void empty_depots(wi_tcaches *caches, const selection *s, wi_block **list)
{
    for (wi_depot *depot = caches->depots, *next; depot; depot = next) {
        bool meant = !s->thread && (!s->client || s->client == depot->client) &&
                     (!s->stream || s->stream->id == depot->stream.id);
        next = depot->next;
        if (meant || depot->caches == 0)
            wi_depot_empty(depot, s->above, list);
        if (depot->caches == 0)
            wi_depot_end(depot);
    }
}

/* With the lock of all thread caches held. */
static void begin_grace(wi_tcaches *all, wi_tcache_grace *grace, const weir_client *client, const weir_stream *stream)
{
    bool one = client && stream;
    *grace = (wi_tcache_grace){.previous = all->last_grace,
                               .number = ++all->graces,
                               .client = one ? client : NULL,
                               .stream = one ? *stream : WEIR_STREAM_HOST};
    *(grace->previous ? &grace->previous->next : &all->first_grace) = grace;
    all->last_grace = grace;
    in_grace++;
}

static void refill_end_grace(wi_tcaches *caches, const wi_tcache_grace *grace)
{
    pthread_mutex_lock(&all_caches_lock);
    *(grace->previous ? &grace->previous->next : &caches->first_grace) = grace->next;
    *(grace->next ? &grace->next->previous : &caches->last_grace) = grace->previous;
    in_grace--;
    pthread_cond_broadcast(&caches->grace_over);
    pthread_mutex_unlock(&all_caches_lock);
}

/* Takes the selected blocks out. If there are any, the caller's grace period has begun; free_all ends it. */
static wi_block *tcache_take_out(weir_runtime *runtime, const selection *s, wi_tcache_grace *grace)
{
    wi_tcaches *caches = &runtime->caches;
    wi_block *list = NULL;
    lock_all_caches(runtime);
    wi_tcache *picked = tcache_revoke(caches, s);
    for (wi_tcache *f = picked; f; f = f->picked) {
        tcache_merge(f);
        for (size_t i = s->above < WI_TCACHE_SMALL ? 0 : WI_TCACHE_SMALL_BINS; i < WI_TCACHE_BINS; i++)
            if (f->bins[i].charged > s->above)
                empty_bin(f, &f->bins[i], 0, &list);
    }
    tcache_let_go(caches, picked, s->drop);
    empty_depots(caches, s, &list);
    if (list)
        begin_grace(caches, grace, s->client, s->stream);
    unlock_all_caches(runtime);
    return list;
}

/* Whether a grace period that had begun by then may have blocks of the client, or of the stream; NULL: any. */
static bool any_at_work(const wi_tcaches *caches, uint64_t last, const weir_client *client, const weir_stream *stream)
{
    const wi_tcache_grace *grace = caches->first_grace;
    while (grace && grace->number <= last && grace->client &&
           ((client && grace->client != client) || (stream && grace->stream.id != stream->id)))
        grace = grace->next;
    return grace && grace->number <= last;
}

/* Waits for grace periods on such blocks; true: there were some. A thread in one waits for nobody, since a pressure
 * callback or the log's function may have called. */
static bool wait_for_others(weir_runtime *runtime, const weir_client *client, const weir_stream *stream)
{
    wi_tcaches *caches = &runtime->caches;
    bool waited = false;
    if (wi_alone || in_grace > 0)
        return false;
    pthread_mutex_lock(&all_caches_lock);
    for (uint64_t last = caches->graces; any_at_work(caches, last, client, stream); waited = true)
        pthread_cond_wait(&caches->grace_over, &all_caches_lock);
    pthread_mutex_unlock(&all_caches_lock);
    return waited;
}

/* Freeing flushed blocks ------------------------------------------------------------------------------------------- */

/* The free that the cache has deferred. The stream may be gone or captured by now; whoever ended or captured it was
 * told then. */
static weir_status refill_free_now(weir_runtime *runtime, wi_block *block, const wi_stream_facts *at)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    weir_status status = wi_free_acquired(runtime, runtime->resource, block, at);
    if (status == WEIR_ERR_STREAM_MISUSE)
        status = wi_free_behind(runtime, runtime->resource, block, at->stream);
    wi_detail_restore(&saved);
    return status;
}

static void keep_refused(wi_tcaches *caches, wi_block *block)
{
    pthread_mutex_lock(&all_caches_lock);
    block->pending_next = caches->refused;
    caches->refused = block;
    pthread_mutex_unlock(&all_caches_lock);
}

static uint64_t free_each(weir_runtime *runtime, wi_block *list, const wi_stream_facts *at)
{
    uint64_t bytes = 0;
    for (wi_block *block = list, *next; block; block = next) {
        uint64_t charged = block->charged;
        next = block->pending_next;
        if (refill_free_now(runtime, block, at) == WEIR_OK)
            bytes += charged;
        else
            keep_refused(&runtime->caches, block);
    }
    return bytes;
}

/* Cuts the first blocks of one stream off the list. */
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

/* One look at the stream is enough for a run: who ends or captures the stream meanwhile waits for this grace period. */
static uint64_t free_all(weir_runtime *runtime, wi_block *list, const wi_tcache_grace *grace)
{
    uint64_t bytes = 0, more;
    wi_saved_detail saved;
    wi_stream_facts at;
    wi_detail_save(&saved);
    for (wi_block *run = list, *rest; run; run = rest) {
        rest = cut_run(run, &more);
        wi_streams_facts(&runtime->streams, run->stream, &at);
        bytes += wi_free_cached(runtime, run, &at) ? more : free_each(runtime, run, &at);
    }
    wi_detail_restore(&saved);
    if (list)
        refill_end_grace(&runtime->caches, grace);
    return bytes;
}

/* Blocks that the driver failed to take before. */
static uint64_t tcache_retry(weir_runtime *runtime)
{
    wi_tcaches *caches = &runtime->caches;
    wi_tcache_grace grace = {0};
    pthread_mutex_lock(&all_caches_lock);
    wi_block *list = caches->refused;
    caches->refused = NULL;
    if (list)
        begin_grace(caches, &grace, NULL, NULL);
    pthread_mutex_unlock(&all_caches_lock);
    return free_all(runtime, list, &grace);
}

static uint64_t tcache_empty(weir_runtime *runtime, const selection *s)
{
    wi_tcache_grace grace = {0};
    return runtime->caches.usable ? free_all(runtime, tcache_take_out(runtime, s, &grace), &grace) : 0;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void tcache_end_thread(void *user)
{
    wi_tcache_thread *mine = user;
    weir_runtime *runtime = NULL;
    wi_tcache_grace grace = {0};
    if (atomic_load(&wi_forked))
        return;
    do {
        pthread_mutex_lock(&all_caches_lock);
        runtime = mine->caches ? mine->caches->runtime : NULL;
        if (runtime)
            begin_grace(&runtime->caches, &grace, NULL, NULL); /* it stays until that ends */
        pthread_mutex_unlock(&all_caches_lock);
        if (runtime) {
            (void)tcache_empty(runtime, &(selection){.thread = mine, .drop = true});
            refill_end_grace(&runtime->caches, &grace);
        }
    } while (runtime);
    wi_tcache_mine = NULL;
    if (mine->table != mine->entries)
        free(mine->table);
    free(mine);
}

/* After a fork the child finds its lock revoked, which sends it to the slow path. */
static void tcache_in_child(void)
{
    if (wi_tcache_mine)
        wi_biased_ask(&wi_tcache_mine->lock);
}

static void tcache_make_key(void)
{
    (void)pthread_atfork(NULL, NULL, tcache_in_child);
    (void)pthread_key_create(&thread_key, tcache_end_thread);
}

static wi_tcache_thread *this_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tcache_make_key);
    if (wi_tcache_mine)
        return wi_tcache_mine;
    wi_tcache_thread *mine = aligned_alloc(128, wi_round_up(sizeof *mine, 128));
    if (!mine)
        return NULL;
    memset(mine, 0, sizeof *mine);
    wi_biased_init(&mine->lock);
    mine->table = mine->entries;
    mine->shift = 64 - WI_TCACHE_TABLE_BITS;
    if (pthread_setspecific(thread_key, mine) != 0) {
        free(mine);
        return NULL;
    }
    return wi_tcache_mine = mine;
}

/* With both locks held. The stream is looked up again under them: a cache that was made after the stream ended or its capture
 * began would never be flushed for that. */
static wi_tcache *tcache_make(wi_tcache_thread *mine, weir_client *client, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_tcaches *caches = &runtime->caches;
    bool open = atomic_load(&client->state) == WI_CLIENT_OPEN && wi_residency_is_here(client) &&
                wi_streams_stays(&runtime->streams, stream) && mine->count < WI_TCACHE_MOST && tcache_grow_table(mine);
    wi_depot *depot = open ? wi_depot_find(caches, client, stream) : NULL;
    if (open && !depot)
        depot = wi_depot_make(client, stream);
    wi_tcache *cache = depot ? calloc(1, sizeof *cache) : NULL;
    if (!cache) {
        if (depot && depot->caches == 0)
            wi_depot_end(depot);
        return NULL;
    }
    depot->caches++;
    *cache = (wi_tcache){.client = client,
                         .stream = stream,
                         .runtime = runtime,
                         .recording = &runtime->ledger.recording,
                         .base = runtime->resource->base,
                         .account = &client->account,
                         .no_tag = wi_intern(NULL, 0),
                         .room = caches->room,
                         .score = WI_TCACHE_FIRST_SCORE,
                         .depot = depot,
                         .thread = mine,
                         .next_of_thread = mine->caches,
                         .next = caches->first};
    *(mine->caches ? &mine->caches->newer : &mine->oldest) = cache;
    mine->caches = cache;
    mine->count++;
    enter_table(mine, cache);
    if (caches->first)
        caches->first->previous = cache;
    return caches->first = cache;
}

/* Puts half of the bin into the depot; lists of other charges make room. */
static bool leave_some(wi_tcache *cache, uint64_t charged, wi_block **list)
{
    return wi_depot_put(cache, charged) ||
           (charged <= WI_TCACHE_HANDED && wi_depot_push_out(cache->depot, charged, list) &&
            wi_depot_put(cache, charged));
}

/* Makes room for one more block of that charge, the oldest ones first. */
static void tcache_make_room(wi_tcache *cache, uint64_t charged, wi_block **list)
{
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, charged);
    uint32_t most = wi_tcache_most(charged);
    bool full = bin->charged == charged && bin->count >= most;
    if (bin->charged != charged)
        empty_bin(cache, bin, 0, list);
    bin->charged = charged;
    bin->most = most;
    if (full && leave_some(cache, charged, list))
        return;
    if (full)
        empty_bin(cache, bin, most / 2, list);
    while (charged > cache->room) {
        empty_bin(cache, &cache->bins[cache->hand], cache->bins[cache->hand].count / 2, list);
        cache->hand = (cache->hand + 1) % WI_TCACHE_BINS;
    }
}

/* Ends the thread's oldest cache, if the thread has WI_TCACHE_MOST caches. Both locks are held, and released meanwhile.
 * The grace period is of the oldest cache's runtime, which may be another than `runtime`. */
static void make_way(wi_tcache_thread *mine, weir_runtime *runtime)
{
    wi_tcache_grace grace = {0};
    if (mine->count < WI_TCACHE_MOST)
        return;
    weir_runtime *its = mine->oldest->runtime;
    weir_stream stream = mine->oldest->stream;
    selection oldest = {.client = mine->oldest->client, .stream = &stream, .thread = mine, .drop = true};
    begin_grace(&its->caches, &grace, NULL, NULL);
    unlock_all_caches(runtime);
    (void)tcache_empty(its, &oldest);
    refill_end_grace(&its->caches, &grace);
    lock_all_caches(runtime);
}

/* Prepares this thread's cache for a block of that charge; false: it declines. */
static bool tcache_prepare(weir_client *client, weir_stream stream, uint64_t charged, wi_block **list,
                           wi_tcache_grace *grace)
{
    weir_runtime *runtime = client->runtime;
    wi_tcache_thread *mine = this_thread();
    if (!mine)
        return false;
    lock_all_caches(runtime);
    wi_tcache *cache = wi_tcache_find(mine, client, stream);
    if (!cache) {
        make_way(mine, runtime);
        cache = tcache_make(mine, client, stream);
    }
    if (cache) {
        tcache_merge(cache);
        tcache_make_room(cache, charged, list);
        if (*list)
            begin_grace(&runtime->caches, grace, client, &stream);
    }
    unlock_all_caches(runtime);
    return cache;
}

/* Makes a cache for a thread that has none there, if the depot may have blocks of that charge. */
static bool tcache_join(weir_client *client, weir_stream stream, uint64_t charged)
{
    weir_runtime *runtime = client->runtime;
    wi_tcache_thread *mine = this_thread();
    if (!mine)
        return false;
    lock_all_caches(runtime);
    const wi_depot *depot = wi_depot_find(&runtime->caches, client, stream);
    wi_tcache *cache = depot && wi_depot_may_have(depot, charged) && !wi_tcache_find(mine, client, stream)
                           ? tcache_make(mine, client, stream)
                           : NULL;
    unlock_all_caches(runtime);
    return cache;
}

/* Whether there is a cache that declines a block of that charge. */
static bool is_declined(const weir_client *client, weir_stream stream, uint64_t charged)
{
    wi_tcache_thread *mine = wi_tcache_mine;
    if (charged <= WI_TCACHE_SMALL || !mine || !wi_biased_enter(&mine->lock))
        return false;
    wi_tcache *cache = wi_tcache_find(mine, client, stream);
    bool declined = cache && wi_tcache_declines(cache, charged);
    wi_biased_leave(&mine->lock);
    return declined;
}

bool wi_tcache_alloc_slow(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                          const char *tag, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    return atomic_load_explicit(&runtime->caches.lists, memory_order_relaxed) > 0 && bytes - 1 < WI_TCACHE_HANDED &&
           wi_recording(&runtime->ledger) == 0 && wi_residency_is_here(client) &&
           tcache_join(client, stream, wi_round_up(bytes, WI_UNIT)) &&
           (out->pointer = wi_tcache_alloc_tagged(client, bytes, stream, memory_class, tag, &out->generation));
}

bool wi_tcache_free_slow(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    wi_block *list = NULL, *block = NULL;
    wi_tcache_grace grace = {0};
    wi_stream_facts at;
    if (!runtime->caches.usable || wi_recording(&runtime->ledger) != 0 || !(block = base->table->peek(base, pointer)))
        return false;
    uint64_t charged = wi_load(block->charged);
    uint64_t word = atomic_load_explicit(&block->word, memory_order_acquire);
    if (charged == 0 || charged > runtime->caches.room || (word & (WI_TRACKED | 7)) != WI_LIVE ||
        !wi_load(block->plain))
        return false;
    if (!wi_residency_is_here(client)) /* hits in the cache of a suspended client would not notice the suspend */
        return false;
    if (is_declined(client, stream, charged))
        return false;
    wi_streams_facts(&runtime->streams, stream, &at);
    if (wi_stream_is_captured(runtime, &at))
        return false;
    bool ready = tcache_prepare(client, stream, charged, &list, &grace);
    (void)free_all(runtime, list, &grace);
    return ready && wi_tcache_free(client, pointer, generation, stream);
}

/* This thread's ---------------------------------------------------------------------------------------------------- */

static bool has_delta(const wi_tcache *f, const weir_client *client)
{
    return f->client == client && f->delta.hits + f->delta.frees > 0;
}

/* Revokers hold these locks: with them held, no other thread touches this thread's caches. */
void wi_tcache_flush(weir_client *client)
{
    wi_tcache_thread *mine = client->runtime->caches.usable ? wi_tcache_mine : NULL;
    bool any_delta = false;
    if (!mine || !wi_biased_enter(&mine->lock)) /* a thread that revokes the caches merges or drops them */
        return;
    for (const wi_tcache *f = mine->caches; f && !any_delta; f = f->next_of_thread)
        any_delta = has_delta(f, client);
    wi_biased_leave(&mine->lock);
    if (!any_delta)
        return;
    lock_all_caches(client->runtime);
    for (wi_tcache *f = mine->caches; f; f = f->next_of_thread)
        if (has_delta(f, client))
            tcache_merge(f);
    unlock_all_caches(client->runtime);
}

wi_tcache_large wi_tcache_look_large(const weir_client *client, weir_stream stream)
{
    wi_tcache_large large = {0};
    wi_tcache_thread *mine = wi_tcache_mine;
    if (!mine || !wi_biased_enter(&mine->lock))
        return large;
    for (wi_tcache *f = mine->caches; f; f = f->next_of_thread) {
        bool here = f->client == client && f->stream.id == stream.id;
        *(here ? &large.here : &large.elsewhere) |= f->runtime == client->runtime && f->large > 0;
    }
    wi_biased_leave(&mine->lock);
    return large;
}

uint64_t wi_tcache_empty_large(weir_client *client, weir_stream stream, bool everywhere)
{
    selection s = {.thread = wi_tcache_mine, .above = WI_TCACHE_SMALL};
    if (!everywhere) {
        s.client = client;
        s.stream = &stream;
    }
    return tcache_empty(client->runtime, &s);
}

/* All of them ------------------------------------------------------------------------------------------------------ */

void wi_tcaches_drop_client(weir_client *client)
{
    (void)tcache_retry(client->runtime);
    (void)tcache_empty(client->runtime, &(selection){.client = client, .drop = true});
    (void)wait_for_others(client->runtime, client, NULL);
}

void wi_tcaches_drop_stream(weir_runtime *runtime, weir_stream stream)
{
    (void)tcache_empty(runtime, &(selection){.stream = &stream, .drop = true});
    (void)wait_for_others(runtime, NULL, &stream);
}

uint64_t wi_tcaches_empty(weir_runtime *runtime)
{
    uint64_t bytes = tcache_retry(runtime) + tcache_empty(runtime, &(selection){0});
    (void)wait_for_others(runtime, NULL, NULL);
    return bytes;
}

/* Flushes this thread's caches, then those of others. Blocks that other threads are flushing count as free. */
static uint64_t tcache_give_up(void *user)
{
    weir_runtime *runtime = user;
    uint64_t bytes = tcache_retry(runtime);
    if (wi_tcache_mine)
        bytes += tcache_empty(runtime, &(selection){.thread = wi_tcache_mine});
    if (bytes == 0)
        bytes = tcache_empty(runtime, &(selection){0});
    if (bytes == 0)
        (void)wait_for_others(runtime, NULL, NULL);
    return bytes;
}

/* With the ledger's lock held. */
static void merge_all_deltas(void *user)
{
    weir_runtime *runtime = user;
    if (!runtime->caches.first)
        return;
    pthread_mutex_lock(&all_caches_lock);
    wi_tcache *picked = tcache_revoke(&runtime->caches, &(selection){0});
    for (wi_tcache *f = picked; f; f = f->picked)
        tcache_merge(f);
    merge_depots(runtime);
    tcache_let_go(&runtime->caches, picked, false);
    pthread_mutex_unlock(&all_caches_lock);
}

void wi_tcaches_shut(weir_runtime *runtime)
{
    atomic_fetch_or(&runtime->ledger.recording, WI_TCACHES_SHUT);
    (void)tcache_retry(runtime);
    (void)tcache_empty(runtime, &(selection){0});
    (void)wait_for_others(runtime, NULL, NULL);
}

void wi_tcaches_open(weir_runtime *runtime)
{
    atomic_fetch_and(&runtime->ledger.recording, ~(unsigned)WI_TCACHES_SHUT);
}

/* Of a runtime ----------------------------------------------------------------------------------------------------- */

void wi_tcaches_init(weir_runtime *runtime)
{
    const wi_resource *top = runtime->resource;
    uint64_t room = runtime->ledger.budget / BUDGET_PARTS;
    room = wi_min(wi_option_thread_cache(), wi_min(wi_max(room, least_room), most_room));
    bool usable = room > 0 && wi_is_plain(top) && top->base->table->peek;
    runtime->caches = (wi_tcaches){.usable = usable, .room = room};
    pthread_cond_init(&runtime->caches.grace_over, NULL);
    if (runtime->caches.usable)
        runtime->ledger.tcache_hooks = (wi_tcache_hooks){merge_all_deltas, tcache_give_up, runtime};
}

void wi_tcaches_end(weir_runtime *runtime)
{
    (void)wait_for_others(runtime, NULL, NULL);
    pthread_cond_destroy(&runtime->caches.grace_over);
    wi_assert(!runtime->caches.first && !runtime->caches.refused && !runtime->caches.depots);
}
