/* Pages of elastic blocks: a commit allocates the missing pages singly, fills them with zeros and publishes them; a
 * release frees them behind one point of a stream. */
#include "base/values.h"
#include "base/system.h"
#include "memory/space/stream_order.h"
#include "runtime/elastic/elastic.h"

/* The pages that a range touches. */
typedef struct page_run {
    uint64_t first, end;
} page_run;

static weir_status pages_check(const weir_elastic *e, size_t offset, size_t bytes, const char *call)
{
    uint64_t all = e->range->page * e->range->count;
    if (offset <= all && bytes <= all - offset)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: %zu bytes at %zu go beyond the %llu of \"%s\"", call, bytes, offset,
                     (unsigned long long)all, e->range->tag);
}

/* Commit ----------------------------------------------------------------------------------------------------------- */

/* A call. New pages are blank, pages that were taken back are pending; all are linked by pending_next, most often the
 * lowest first. */
typedef struct commit {
    weir_elastic *elastic;
    wi_elastic_range *range;
    weir_runtime *runtime;
    wi_resource *stack;
    weir_stream stream;
    wi_stream_facts at;
    page_run pages;
    uint64_t missing, unused; /* pages at the last look: all but WI_PAGE_THERE; WI_PAGE_UNUSED alone */
    uint64_t asked;           /* bytes of the missing pages, and of the pages made meanwhile */
    wi_reservation claim;     /* bytes claimed for unused pages, unless promised already */
    uint64_t deadline;        /* 0: nothing was waited for yet */
    unsigned lost;            /* races for a page, lost to a faster thread */
    wi_block *first, *last;
} commit;

static wi_elastic_state commit_look(const commit *c, uint64_t index)
{
    wi_base_lock(c->range->base);
    wi_elastic_state state = wi_elastic_look(c->range, index, c);
    wi_base_unlock(c->range->base);
    return state;
}

/* True: all pages are there. What is unused has to be claimed; what is pending, or another thread's, is charged. */
static bool commit_count(commit *c)
{
    c->missing = c->unused = 0;
    wi_base_lock(c->range->base);
    for (uint64_t i = c->pages.first; i < c->pages.end; i++) {
        wi_elastic_state state = wi_elastic_look(c->range, i, c);
        c->missing += state != WI_PAGE_THERE;
        c->unused += state == WI_PAGE_UNUSED;
    }
    wi_base_unlock(c->range->base);
    c->asked = wi_max(c->asked, c->missing * c->range->page + c->claim.total - atomic_load(&c->claim.left));
    return c->missing == 0;
}

/* Of bytes that are claimed next, or that were to be had. */
static wi_request commit_request(const commit *c, uint64_t bytes)
{
    uint64_t claimed = c->claim.total, reserved = c->range->promised ? c->unused * c->range->page : 0;
    return (wi_request){bytes, bytes, c->range->memory_class, c->stream, c->range->tag, claimed, reserved};
}

/* Claims the bytes of all unused pages in one step, so that a refusal states the whole sum. */
static weir_status commit_claim(commit *c)
{
    uint64_t bytes = c->unused * c->range->page, there = atomic_load(&c->claim.left);
    if (c->range->promised || bytes <= there)
        return WEIR_OK;
    bytes -= there;
    wi_request request = commit_request(c, bytes);
    weir_status status = wi_budget_reserve(c->stack, c->range->account, &request, true, true);
    if (status != WEIR_OK)
        return status;
    c->claim.total += bytes;
    atomic_fetch_add(&c->claim.left, bytes);
    return WEIR_OK;
}

static void commit_return_claim(commit *c)
{
    wi_ledger_cancel(&c->runtime->ledger, c->range->account, atomic_exchange(&c->claim.left, 0));
}

static wi_placement commit_placement(commit *c, const wi_elastic_target *target)
{
    const wi_elastic_range *range = c->range;
    return (wi_placement){.bytes = range->page,
                          .alignment = WI_UNIT,
                          .memory_class = range->memory_class,
                          .stream = c->stream,
                          .native = c->at.native,
                          .account = range->account,
                          .tag = range->tag,
                          .may_wait = true,
                          .reservation = range->promised ? &c->range->promise : &c->claim,
                          .page = target};
}

static void commit_keep(commit *c, wi_block *block)
{
    block->pending_next = NULL;
    *(c->last ? &c->last->pending_next : &c->first) = block;
    c->last = block;
}

static weir_status commit_make(commit *c, uint64_t index)
{
    wi_elastic_target target = {c->range, index, c, c->asked, c->claim.total};
    wi_placement placement = commit_placement(c, &target);
    wi_block *block;
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    wi_measure(c->stack, &placement);
    weir_status status = wi_allocate(c->stack, &placement, &block, &ignored);
    if (status == WEIR_OK)
        commit_keep(c, block);
    return status;
}

static weir_status commit_waited(const commit *c, uint64_t index, wi_elastic_state state)
{
    wi_shortage shortage = {.cause = WEIR_CAUSE_PENDING};
    wi_request request = commit_request(c, c->asked);
    wi_base *base = c->range->base;
    uint64_t made = c->claim.total - atomic_load(&c->claim.left);
    base->table->look(base, c->range->memory_class, request.charged, WI_UNIT, &shortage);
    shortage.largest += made;
    shortage.held -= made;
    if (state == WI_PAGE_PENDING)
        return wi_ledger_refuse(&c->runtime->ledger, c->range->account, &request, &shortage);
    return weir_fail(WEIR_ERR_BUSY,
                     "weir_elastic_commit: page %llu of \"%s\" is being committed or released by another "
                     "thread",
                     (unsigned long long)index, c->range->tag);
}

/* Whether all that the pending page waits for is before what comes next on the commit's stream. */
static bool commit_follows(const commit *c, const wi_block *block)
{
    const weir_runtime *runtime = c->runtime;
    wi_event event = block->freed;
    bool follows = event.stream == c->at.native;
    for (uint32_t i = 0; follows && wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, i, &event); i++)
        follows = event.stream == c->at.native || runtime->driver->passed(runtime->device, event);
    return follows;
}

/* Takes a page back that was released on the commit's own stream, as it is. It is zeroed behind the work before the release,
 * so that nothing is waited for. */
static bool commit_take_back(commit *c, uint64_t index)
{
    wi_pending *pending = &c->runtime->pending;
    if (!c->at.native)
        return false;
    pthread_mutex_lock(&pending->lock);
    wi_base_lock(c->range->base);
    wi_block *block = wi_elastic_pending(c->range, index);
    bool taken = block && commit_follows(c, block) && wi_pending_take(pending, block);
    if (taken)
        wi_elastic_renew(block, c->stream, c);
    wi_base_unlock(c->range->base);
    pthread_mutex_unlock(&pending->lock);
    if (taken)
        commit_keep(c, block);
    return taken;
}

/* Makes a page that was taken back pending again, behind the work on the stream so far. A thread that sees the pending
 * state finds the page in the list of deferred frees. */
static void commit_put_back(commit *c, wi_block *block)
{
    weir_runtime *runtime = c->runtime;
    wi_pending *pending = &runtime->pending;
    wi_event event;
    bool recorded = runtime->driver->record(runtime->device, c->at.native, &event) == WEIR_OK;
    if (!recorded)
        (void)runtime->driver->stream_synchronize(runtime->device, c->at.native);
    pthread_mutex_lock(&pending->lock);
    wi_base_lock(c->range->base);
    wi_elastic_renew(block, c->stream, NULL);
    wi_base_unlock(c->range->base);
    wi_pending_put_back(pending, c->stack, block, recorded ? &event : NULL);
    pthread_mutex_unlock(&pending->lock);
}

/* Gives up the new pages from `from` on. `queued`: zeros may be on their way, which the driver has to be past first. */
static void commit_drop(commit *c, uint64_t from, bool queued)
{
    const char *start = wi_elastic_at(c->range, from);
    wi_block *kept_first = NULL, *kept_last = NULL;
    for (wi_block *block = c->first, *next; block; block = next) {
        wi_elastic_target target = {.range = c->range};
        wi_placement placement = commit_placement(c, &target);
        next = block->pending_next;
        if ((const char *)block->pointer < start) {
            block->pending_next = NULL;
            *(kept_last ? &kept_last->pending_next : &kept_first) = block;
            kept_last = block;
            continue;
        }
        if (wi_block_phase_of(block) == WI_PENDING) {
            commit_put_back(c, block);
            continue;
        }
        placement.charged = block->charged;
        placement.native = queued ? c->at.native : NULL;
        wi_discard(c->stack, block, &placement);
    }
    c->first = kept_first;
    c->last = kept_last;
}

static void commit_undo(commit *c, bool queued)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    commit_drop(c, 0, queued);
    wi_detail_restore(&saved);
}

/* Nanoseconds. Other pages may be pending for longer, and nobody tells of those that the driver did not take back. */
enum { LONGEST_PAUSE = 8 * 1000 * 1000 };

/* Waits for a page in that state, or for a pause. */
static void commit_pause(commit *c, uint64_t index, wi_elastic_state state)
{
    wi_base *base = c->range->base;
    uint64_t until = wi_min(c->deadline, wi_now() + LONGEST_PAUSE);
    if (state == WI_PAGE_PENDING && wi_pending_wait(&c->runtime->pending, base, NULL, until))
        return;
    wi_base_lock(base);
    if (wi_elastic_look(c->range, index, c) == state)
        (void)wi_elastic_wait(base, until);
    wi_base_unlock(base);
}

/* Waits once for a page that is pending or another thread's. Pages from `index` on are given up first, so that no two
 * threads wait for each other; a lower page may be released again meanwhile. A pressure callback does not wait, as the
 * other thread may be waiting for the callback. */
static weir_status commit_wait(commit *c, uint64_t index)
{
    wi_base *base = c->range->base;
    commit_drop(c, index, false);
    if (c->deadline == 0)
        c->deadline = wi_now() + wi_option_wait();
    bool late = wi_pressures_inside() || wi_now() >= c->deadline;
    (void)wi_pending_reap(&c->runtime->pending, base);
    (void)base->table->all.release_kept(&base->resource);
    wi_elastic_state state = commit_look(c, index);
    if (state != WI_PAGE_PENDING && state != WI_PAGE_BUSY)
        return WEIR_OK;
    if (late)
        return commit_waited(c, index, state);
    commit_pause(c, index, state);
    return WEIR_OK;
}

/* Pauses where the promised bytes of an unused page are in other hands: a thread that makes the page has taken them, or has
 * given the page up and not yet the bytes. It may be in a pressure callback, or be the caller of this one. */
static weir_status commit_lost(commit *c, uint64_t index)
{
    if (c->deadline == 0)
        c->deadline = wi_now() + wi_option_wait();
    if (wi_pressures_inside() || wi_now() >= c->deadline)
        return commit_waited(c, index, WI_PAGE_BUSY);
    wi_pause(c->lost++);
    return WEIR_OK;
}

/* Makes the page, or waits once for what stands in the way. What has become unused since the count is not claimed yet. */
static weir_status commit_get(commit *c, uint64_t index)
{
    wi_elastic_state state = commit_look(c, index);
    if (state == WI_PAGE_THERE || (state == WI_PAGE_PENDING && commit_take_back(c, index)))
        return WEIR_OK;
    if (state != WI_PAGE_UNUSED)
        return commit_wait(c, index);
    if (!c->range->promised && atomic_load(&c->claim.left) < c->range->page)
        return WEIR_OK;
    weir_status status = commit_make(c, index);
    if (status != WEIR_ERR_NO_ROOM)
        return status;
    return commit_look(c, index) == WI_PAGE_UNUSED ? commit_lost(c, index) : WEIR_OK; /* a faster thread makes it */
}

/* Gets all pages of the range. Other threads and pressure callbacks may release pages meanwhile, so that a pass over
 * the range may not be enough. */
static weir_status commit_gather(commit *c)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !commit_count(c)) {
        status = commit_claim(c);
        for (uint64_t i = c->pages.first; status == WEIR_OK && i < c->pages.end; i++)
            status = commit_get(c, i);
    }
    return status;
}

/* Queues zeros over the new pages, a run of neighbours at a time. */
static weir_status commit_fill(const commit *c)
{
    void *native;
    weir_status status = wi_streams_begin(&c->runtime->streams, c->stream, c->runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    for (wi_block *block = c->first, *next; block && status == WEIR_OK; block = next) {
        uint64_t bytes = 0;
        for (next = block; next && (char *)next->pointer == (char *)block->pointer + bytes; next = next->pending_next)
            bytes += next->charged;
        status = c->runtime->driver->fill(c->runtime->device, block->pointer, 0, bytes, native);
    }
    wi_streams_done(&c->runtime->streams, c->stream);
    return status;
}

/* Notes in each new page that it is written to until the zeros are there, for uses and frees on other streams. */
static weir_status commit_note_zeros(const commit *c)
{
    wi_event event;
    if (!c->at.native || !c->first)
        return WEIR_OK;
    weir_status status = c->runtime->driver->record(c->runtime->device, c->at.native, &event);
    for (wi_block *block = c->first; block && status == WEIR_OK; block = block->pending_next)
        status = wi_stream_uses_first_write(&block->stream_uses, event);
    return status;
}

static void commit_publish(commit *c)
{
    for (wi_block *block = c->first, *next; block; block = next) {
        next = block->pending_next;
        wi_publish(c->stack, block);
    }
}

static weir_status commit_run(commit *c)
{
    weir_runtime *runtime = c->runtime;
    weir_status status = wi_elastic_stack(runtime, &c->stack);
    if (status == WEIR_OK)
        status = wi_streams_look(&runtime->streams, c->stream, runtime->name, &c->at);
    if (status != WEIR_OK)
        return status;
    if (wi_stream_is_captured(runtime, &c->at))
        return wi_streams_captured(runtime, c->stream, "weir_elastic_commit");
    wi_tcache_flush(c->elastic->client);
    bool queued = false;
    status = commit_gather(c);
    if (status == WEIR_OK && wi_alloc_captured(runtime, c->stream, c->at.native)) /* since it waited for room */
        status = wi_streams_captured(runtime, c->stream, "weir_elastic_commit");
    if (status == WEIR_OK) {
        queued = true;
        status = commit_fill(c);
    }
    if (status == WEIR_OK)
        status = commit_note_zeros(c);
    if (status == WEIR_OK)
        commit_publish(c);
    else
        commit_undo(c, queued);
    if (!c->range->promised)
        commit_return_claim(c);
    return status;
}

weir_status weir_elastic_commit(weir_elastic *elastic, size_t offset, size_t bytes, weir_stream stream)
{
    WI_ENTER();
    if (!elastic)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_commit: NULL");
    weir_client *client = elastic->client;
    weir_status status = pages_check(elastic, offset, bytes, "weir_elastic_commit");
    if (status == WEIR_OK)
        status = wi_residency_admit(client, "weir_elastic_commit");
    if (status != WEIR_OK || bytes == 0)
        return status;
    uint64_t page = elastic->range->page;
    commit c = {.elastic = elastic,
                .range = elastic->range,
                .runtime = client->runtime,
                .stream = stream,
                .pages = {offset / page, (offset + bytes - 1) / page + 1},
                .claim.account = &client->account};
    status = commit_run(&c);
    if (status == WEIR_ERR_OUT_OF_MEMORY)
        atomic_fetch_add(&elastic->refused, 1);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_ALLOCATE, wi_elastic_at(c.range, c.pages.first),
                               bytes, stream);
}

/* Release ---------------------------------------------------------------------------------------------------------- */

void wi_elastic_let_go(wi_base *base, wi_block *list)
{
    for (wi_block *block = list, *next; block; block = next) {
        next = block->pending_next;
        wi_let_go(base, block);
    }
}

/* Acquires the committed pages, and adds them behind **end. WEIR_ERR_BUSY: a launch uses a page; the pages before it are
 * acquired. */
static weir_status release_acquire(wi_elastic_range *range, page_run pages, wi_block ***end)
{
    const char *used = NULL;
    wi_base_lock(range->base);
    for (uint64_t i = pages.first; i < pages.end && !used; i++) {
        wi_block *block = wi_elastic_live(range, i);
        if (!block)
            continue;
        used = wi_stream_uses_holder(block->stream_uses);
        if (used || !wi_block_acquire(block, atomic_load(&block->word), WI_ACQUIRED))
            continue;
        block->pending_next = NULL;
        **end = block;
        *end = &block->pending_next;
    }
    wi_base_unlock(range->base);
    if (!used)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_BUSY, "a page of \"%s\" is used by %s", range->tag, used);
}

/* The pages that lie in the range as a whole. */
static page_run release_run(const weir_elastic *elastic, size_t offset, size_t bytes)
{
    uint64_t page = elastic->range->page;
    return (page_run){(offset + page - 1) / page, (offset + bytes) / page};
}

weir_status wi_elastic_acquire(const weir_elastic *elastic, size_t offset, size_t bytes, wi_block ***end)
{
    return release_acquire(elastic->range, release_run(elastic, offset, bytes), end);
}

/* The point on the stream behind which the pages can be given back. */
static weir_status release_fence(weir_runtime *runtime, weir_stream stream, wi_stream_facts *at, wi_event *event)
{
    weir_status status = wi_streams_look(&runtime->streams, stream, runtime->name, at);
    if (status == WEIR_OK && at->captured)
        status = wi_streams_captured(runtime, stream, "weir_elastic_release");
    return status == WEIR_OK ? wi_streams_record(runtime, at, event) : status;
}

static void release_free(weir_runtime *runtime, wi_block *list, weir_stream stream, void *native, wi_event event)
{
    wi_event ignored;
    wi_resource *stack = atomic_load(&runtime->elastic);
    bool passed = runtime->driver->passed(runtime->device, event);
    for (wi_block *block = list, *next; block; block = next) {
        next = block->pending_next;
        bool past = passed && wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored);
        wi_pending_free(&runtime->pending, stack, block, stream, native, past ? NULL : &event);
    }
}

void wi_elastic_free_acquired(weir_runtime *runtime, wi_block *list)
{
    release_free(runtime, list, WEIR_STREAM_HOST, NULL, (wi_event){0});
}

/* Pages that are there are acquired, and those of a suspended client are forgotten once nothing can fail any more. *moved: the
 * client was suspended or resumed meanwhile, and nothing is done. */
static weir_status release_pages(weir_elastic *elastic, page_run pages, weir_stream stream, bool *moved)
{
    weir_client *client = elastic->client;
    wi_block *list = NULL, **end = &list;
    wi_stream_facts at;
    wi_event event = {NULL, 0};
    uint64_t moves = 0;
    (void)wi_residency_wait(client, &moves);
    weir_status status = release_acquire(elastic->range, pages, &end);
    if (status == WEIR_OK)
        status = release_fence(client->runtime, stream, &at, &event);
    *moved = status == WEIR_OK && !wi_residency_forget(client, wi_elastic_at(elastic->range, pages.first),
                                                       wi_elastic_at(elastic->range, pages.end), moves);
    if (status == WEIR_OK && !*moved)
        release_free(client->runtime, list, stream, at.native, event);
    else
        wi_elastic_let_go(elastic->range->base, list);
    return status;
}

weir_status weir_elastic_release(weir_elastic *elastic, size_t offset, size_t bytes, weir_stream stream)
{
    WI_ENTER();
    if (!elastic)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_release: NULL");
    weir_status status = pages_check(elastic, offset, bytes, "weir_elastic_release");
    if (status != WEIR_OK)
        return status;
    page_run pages = release_run(elastic, offset, bytes);
    if (pages.first >= pages.end)
        return WEIR_OK;
    bool moved;
    do
        status = release_pages(elastic, pages, stream, &moved);
    while (moved || (status == WEIR_ERR_BUSY && wi_residency_found_done(elastic->client)));
    return wi_recorded_failure(elastic->client->runtime, status, WEIR_ACTION_DEALLOCATE,
                               wi_elastic_at(elastic->range, pages.first), 0, stream);
}
