/* The base "elastic": makes pages and gives them back, one handle of the driver's each. The driver works with no lock
 * held; meanwhile the page is in its range's table, and belongs to the thread.
 *
 * Invariants: the ledger holds, for this resource, the bytes of all pages that have a handle, and what threads have
 * claimed for those that they make. */
#include "memory/elastic.h"
#include "base/system.h"
#include "memory/ledger/members.h"
#include "memory/space/stream_lists.h"
#include "memory/space/stream_order.h"

#include <stddef.h>

struct wi_elastic_page {
    wi_block block; /* first: a block's address is also the address of its page */
    wi_elastic_range *range;
    uint64_t index;
    const void *maker;
    wi_handle handle;
    bool has_handle, mapped, covered;
    wi_elastic_page *next; /* of pages that the driver did not take back */
};

typedef struct elastic {
    wi_base base;
    pthread_cond_t changed;    /* a page has another state */
    pthread_mutex_t addresses; /* a leaf; the index changes under both locks, and a reader needs only one */
    wi_index index;
    wi_elastic_page *unwanted; /* not published; the driver did not take them back, or is not past them */
    wi_elastic_range *stuck;   /* the same of ended ranges */
    bool lost;                 /* the driver has said so when it was to take something back */
} elastic;

static elastic *elastic_of(wi_base *base)
{
    return (elastic *)base;
}

static wi_elastic_page *memory_elastic_page_of(const wi_block *block)
{
    return (wi_elastic_page *)block;
}

static wi_elastic_range *range_with(wi_range *range)
{
    return (wi_elastic_range *)((char *)range - offsetof(wi_elastic_range, range));
}

static char *page_address(const wi_elastic_page *page)
{
    return wi_elastic_at(page->range, page->index);
}

/* Ranges ----------------------------------------------------------------------------------------------------------- */

weir_status wi_elastic_range_create(wi_base *base, const wi_elastic_range *like, wi_elastic_range **out, bool *reserved)
{
    elastic *s = elastic_of(base);
    uint64_t bytes = like->page * like->count;
    wi_elastic_range *range = calloc(1, sizeof *range + like->count * sizeof range->pages[0]);
    void *start = NULL;
    *reserved = true;
    if (!range)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to note %llu pages", (unsigned long long)like->count);
    weir_status status = base->resource.driver->reserve(base->resource.device, bytes, &start);
    if (status != WEIR_OK) {
        *reserved = false;
        free(range);
        return status;
    }
    status = base->resource.driver->cover(base->resource.device, start, bytes);
    if (status != WEIR_OK) {
        base->resource.driver->unreserve(base->resource.device, start, bytes);
        free(range);
        return status;
    }
    *range = *like;
    range->base = base;
    range->range = (wi_range){.start = (uintptr_t)start, .end = (uintptr_t)start + bytes};
    wi_base_lock(base);
    pthread_mutex_lock(&s->addresses);
    wi_index_insert(&s->index, &range->range);
    pthread_mutex_unlock(&s->addresses);
    wi_ledger_worked(base->resource.ledger, 2, 0, 0);
    wi_base_unlock(base);
    *out = range;
    return WEIR_OK;
}

/* Takes the range out of the index, so that no base has its addresses. The lock is held. */
static void range_leave(elastic *s, wi_elastic_range *range)
{
    pthread_mutex_lock(&s->addresses);
    wi_index_remove(&s->index, &range->range);
    pthread_mutex_unlock(&s->addresses);
}

/* Gives the addresses of a range back that has left. If the driver refuses, they are tried again later. */
static void range_give_back(elastic *s, wi_elastic_range *range)
{
    const wi_resource *r = &s->base.resource;
    void *start = (void *)range->range.start;
    uint64_t bytes = range->range.end - range->range.start;
    weir_status status = r->driver->uncover(r->device, start, bytes);
    if (status != WEIR_OK) {
        weir_log(WEIR_LOG_WARNING, "addresses are given back later: %s", weir_detail());
        wi_base_lock(&s->base);
        s->lost |= status == WEIR_ERR_DEVICE_LOST;
        range->next = s->stuck;
        s->stuck = range;
        wi_base_unlock(&s->base);
        return;
    }
    r->driver->unreserve(r->device, start, bytes);
    free(range);
}

void wi_elastic_range_end(wi_elastic_range *range)
{
    elastic *s = elastic_of(range->base);
    wi_base_lock(&s->base);
    range->ended = true;
    if (range->promised) {
        wi_ledger_cancel(s->base.resource.ledger, range->account, atomic_exchange(&range->promise.left, 0));
        wi_ledger_give_aside(s->base.resource.ledger, (range->count - range->used) * range->page);
    }
    bool last = range->used == 0;
    if (last)
        range_leave(s, range);
    wi_base_unlock(&s->base);
    if (last)
        range_give_back(s, range);
}

/* Takes a page out of the table, with the lock held. True: it was the last one of a range that has ended, and has left
 * the index. */
static bool range_forget(elastic *s, wi_elastic_page *page)
{
    wi_elastic_range *range = page->range;
    range->pages[page->index] = NULL;
    range->used--;
    pthread_cond_broadcast(&s->changed);
    bool last = range->ended && range->used == 0;
    if (last)
        range_leave(s, range);
    return last;
}

/* Pages and the driver --------------------------------------------------------------------------------------------- */

/* Gives the page its memory in the place of the cover. On failure it is as far as it came, and page_close undoes it. */
static weir_status page_open(elastic *s, wi_elastic_page *page)
{
    const wi_resource *r = &s->base.resource;
    uint64_t bytes = page->range->page;
    weir_status status = r->driver->create(r->device, bytes, 1, &page->handle);
    page->has_handle = status == WEIR_OK;
    if (status == WEIR_OK)
        status = r->driver->uncover(r->device, page_address(page), bytes);
    if (status != WEIR_OK)
        return status;
    page->covered = false;
    status = r->driver->map(r->device, page_address(page), bytes, 1, &page->handle);
    page->mapped = status == WEIR_OK;
    return status;
}

/* Takes the memory away and covers the addresses again. On failure the page is as far as it came, if possible with its
 * memory, as its addresses can be read then. */
static weir_status page_close(elastic *s, wi_elastic_page *page)
{
    const wi_resource *r = &s->base.resource;
    uint64_t bytes = page->range->page;
    weir_status status = WEIR_OK;
    if (page->mapped && r->driver->drop) {
        status = r->driver->drop(r->device, page_address(page), bytes, 1, &page->handle);
        page->mapped = page->has_handle = status != WEIR_OK;
    } else if (page->mapped) {
        status = r->driver->unmap(r->device, page_address(page), bytes, 1, &page->handle);
        page->mapped = status != WEIR_OK;
    }
    if (status == WEIR_OK && !page->covered) {
        status = r->driver->cover(r->device, page_address(page), bytes);
        page->covered = status == WEIR_OK;
        if (status != WEIR_OK && page->has_handle)
            page->mapped = r->driver->map(r->device, page_address(page), bytes, 1, &page->handle) == WEIR_OK;
    }
    if (status == WEIR_OK && page->has_handle) {
        r->driver->destroy(r->device, bytes, 1, &page->handle);
        page->has_handle = false;
    }
    return status;
}

/* Claims the held bytes of a page; false: more is held than leaves room. */
static bool elastic_hold(elastic *s, const wi_elastic_range *range)
{
    wi_ledger *ledger = s->base.resource.ledger;
    if (range->promised) {
        wi_ledger_hold_aside(ledger, range->page);
        return true;
    }
    uint64_t got = wi_ledger_hold(ledger, range->page);
    if (got == range->page)
        return true;
    wi_ledger_release(ledger, got);
    return false;
}

/* The driver has the spare bytes of a page back. */
static void elastic_let_go(elastic *s, const wi_elastic_range *range)
{
    if (range->promised && !range->ended)
        wi_ledger_release_aside(s->base.resource.ledger, range->page);
    else
        wi_ledger_release(s->base.resource.ledger, range->page);
}

/* Getting a page --------------------------------------------------------------------------------------------------- */

/* What could be placed if `made` bytes of those that are held were not: they have been made for the request, or are idle. The
 * lock is held. */
static void elastic_look_around(elastic *s, uint64_t bytes, uint64_t made, wi_shortage *shortage)
{
    wi_standing now = wi_ledger_look(s->base.resource.ledger);
    uint64_t held = now.held + now.aside - wi_min(made, now.held);
    shortage->largest = (now.budget - held) & ~(uint64_t)(WI_UNIT - 1);
    shortage->later = UINT64_MAX; /* pages go back to the driver */
    shortage->held = held + bytes;
    wi_ledger_see(s->base.resource.ledger, shortage);
}

/* The same for a page of a commit, which has made other pages before; `here`: the bytes held for this page. */
static void elastic_look_at_target(elastic *s, const wi_placement *p, uint64_t here, wi_shortage *shortage)
{
    uint64_t claimed = p->page->claimed, left = claimed ? atomic_load(&p->reservation->left) + p->charged : 0;
    elastic_look_around(s, p->page->asked, claimed - left + here, shortage);
}

/* Enters a page that the thread is going to make. WEIR_ERR_NO_ROOM: there is one. */
static weir_status elastic_begin(elastic *s, const wi_placement *p, wi_elastic_page *new, wi_shortage *shortage)
{
    const wi_elastic_target *target = p->page;
    wi_elastic_range *range = target->range;
    weir_status status = WEIR_OK;
    wi_base_lock(&s->base);
    if (range->pages[target->index]) {
        status = weir_fail(WEIR_ERR_NO_ROOM, "page %llu of %s is another thread's", (unsigned long long)target->index,
                           range->tag);
    } else if (!elastic_hold(s, range)) {
        shortage->cause = WEIR_CAUSE_FRAGMENTATION;
        elastic_look_at_target(s, p, 0, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    } else {
        *new = (wi_elastic_page){.range = range, .index = target->index, .maker = target->maker, .covered = true};
        range->pages[target->index] = new;
        range->used++;
    }
    wi_base_unlock(&s->base);
    return status;
}

/* Keeps a page that is not to be, and that the driver does not take back, for a later try. The lock is held. */
static void elastic_keep_unwanted(elastic *s, wi_elastic_page *page)
{
    page->maker = NULL;
    page->next = s->unwanted;
    s->unwanted = page;
}

/* Undoes what a failure has left of a page whose bytes are spare. True: the range is to be given back. */
static bool elastic_undo(elastic *s, wi_elastic_page *page, bool closed)
{
    bool last = false;
    if (closed) {
        last = range_forget(s, page);
        elastic_let_go(s, page->range);
    } else {
        elastic_keep_unwanted(s, page);
    }
    return last;
}

static weir_status elastic_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    elastic *s = elastic_of(wi_base_of(resource));
    wi_elastic_page *new = malloc(sizeof *new);
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to note a page of %llu bytes", (unsigned long long)p->bytes);
    weir_status status = elastic_begin(s, p, new, shortage);
    if (status != WEIR_OK) {
        free(new);
        return status;
    }
    status = page_open(s, new);
    bool closed = false;
    if (status != WEIR_OK) {
        wi_saved_detail saved;
        wi_detail_save(&saved);
        closed = page_close(s, new) == WEIR_OK;
        wi_detail_restore(&saved);
    }
    wi_base_lock(&s->base);
    wi_ledger_worked(resource->ledger, 3, status == WEIR_OK, 0);
    if (status == WEIR_OK) {
        wi_climbed(p, WEIR_RUNG_CREATE);
        wi_ledger_mapped(resource->ledger, new->range->page);
        wi_ledger_segments(resource->ledger, 1, 0);
        wi_block_begin(&new->block, p, page_address(new), WI_CLEAN); /* whoever commits a page fills it with zeros */
        *out = &new->block;
    } else {
        shortage->cause = WEIR_CAUSE_OTHER_PROCESS;
        elastic_look_at_target(s, p, new->range->page, shortage);
        (void)elastic_undo(s, new, closed); /* the range has a user, and has not ended */
    }
    wi_base_unlock(&s->base);
    if (closed)
        free(new);
    return status;
}

static void elastic_publish(wi_resource *resource, wi_block *block)
{
    elastic *s = elastic_of(wi_base_of(resource));
    wi_elastic_range *range = memory_elastic_page_of(block)->range;
    wi_base_lock(&s->base);
    range->pending -= wi_block_phase_of(block) == WI_PENDING; /* it was taken back */
    wi_ledger_commit(resource->ledger, block);
    memory_elastic_page_of(block)->maker = NULL;
    range->live++;
    range->commits++;
    range->peak = wi_max(range->peak, range->live + range->pending);
    pthread_cond_broadcast(&s->changed);
    wi_base_unlock(&s->base);
}

/* Giving it back --------------------------------------------------------------------------------------------------- */

static bool elastic_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    wi_elastic_range *range = memory_elastic_page_of(block)->range;
    (void)native, (void)past; /* the memory has to go back to the driver in any case */
    wi_base_lock(wi_base_of(resource));
    wi_ledger_retire(resource->ledger, block, stream, WI_UNPASSED);
    wi_block_set_phase(block, WI_PENDING);
    range->live--;
    range->pending++;
    range->releases++;
    wi_base_unlock(wi_base_of(resource));
    return false;
}

/* Ends a pending page. Its bytes are promised again, and set aside in the step in which they stop being held. Without a
 * promise, or once the range has ended, the bytes are free for every client. */
static void elastic_reap(elastic *s, wi_elastic_page *page)
{
    wi_ledger *ledger = s->base.resource.ledger;
    wi_elastic_range *range = page->range;
    bool again = range->promised && !range->ended;
    if (again) {
        wi_ledger_reap_promised(ledger, &page->block);
        atomic_fetch_add(&range->promise.left, range->page);
    } else {
        wi_ledger_reap(ledger, &page->block);
    }
    wi_ledger_unmapped(ledger, range->page);
    elastic_let_go(s, range);
    wi_ledger_segments(ledger, 0, 1);
    range->pending--;
}

static weir_status elastic_release(wi_resource *resource, wi_block *block)
{
    elastic *s = elastic_of(wi_base_of(resource));
    wi_elastic_page *page = memory_elastic_page_of(block);
    wi_elastic_range *range = page->range;
    weir_status status = page_close(s, page);
    if (status != WEIR_OK)
        return status;
    wi_base_lock(&s->base);
    wi_ledger_worked(resource->ledger, 3, 0, 0);
    elastic_reap(s, page);
    bool last = range_forget(s, page);
    wi_base_unlock(&s->base);
    wi_stream_uses_free(page->block.stream_uses);
    free(page);
    if (last)
        range_give_back(s, range);
    return WEIR_OK;
}

/* Zeros may have been queued for the page, if the placement has a stream. */
static void elastic_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    elastic *s = elastic_of(wi_base_of(resource));
    const wi_driver *driver = resource->driver;
    wi_elastic_page *page = memory_elastic_page_of(block);
    if (p->native && driver->record(resource->device, p->native, &block->freed) != WEIR_OK)
        (void)driver->stream_synchronize(resource->device, p->native);
    wi_stream_uses_free(block->stream_uses);
    block->stream_uses = NULL;
    bool closed = driver->passed(resource->device, block->freed) && page_close(s, page) == WEIR_OK;
    wi_base_lock(&s->base);
    wi_ledger_segments(resource->ledger, 0, 1);
    wi_ledger_unmapped(resource->ledger, page->range->page);
    (void)elastic_undo(s, page, closed);
    wi_base_unlock(&s->base);
    if (closed)
        free(page);
}

/* Tries again what the driver did not take back, or was not past. */
static uint64_t elastic_release_kept(wi_resource *resource)
{
    elastic *s = elastic_of(wi_base_of(resource));
    uint64_t bytes = 0;
    wi_base_lock(&s->base);
    wi_elastic_page *pages = s->unwanted;
    wi_elastic_range *ranges = s->stuck;
    s->unwanted = NULL;
    s->stuck = NULL;
    wi_base_unlock(&s->base);
    for (wi_elastic_page *page = pages, *next; page; page = next) {
        wi_elastic_range *range = page->range;
        next = page->next;
        bool passed = resource->driver->passed(resource->device, page->block.freed);
        weir_status status = passed ? page_close(s, page) : WEIR_ERR_BUSY;
        bool closed = status == WEIR_OK;
        wi_base_lock(&s->base);
        s->lost |= status == WEIR_ERR_DEVICE_LOST;
        bool last = elastic_undo(s, page, closed);
        wi_base_unlock(&s->base);
        bytes += closed ? range->page : 0;
        if (closed)
            free(page);
        if (last)
            range_give_back(s, range);
    }
    for (wi_elastic_range *range = ranges, *next; range; range = next) {
        next = range->next;
        range_give_back(s, range);
    }
    return bytes;
}

/* Adds to the line of that client and tag, or begins one. */
static void elastic_add_left(wi_elastic_left *left, const wi_elastic_range *range, uint64_t pages)
{
    size_t i = 0;
    while (i < left->count && (left->of[i].client != range->client || left->of[i].tag != range->tag))
        i++;
    left->bytes += pages * range->page;
    if (i == WI_ELASTIC_LEFT)
        return;
    if (i == left->count)
        left->count++;
    left->of[i].client = range->client;
    left->of[i].tag = range->tag;
    left->of[i].pages += pages;
    left->of[i].bytes += pages * range->page;
}

/* Finds the event that unwanted page number `index` waits for; false: there are fewer pages. */
static bool elastic_unwanted_point(elastic *s, size_t index, wi_event *out)
{
    wi_base_lock(&s->base);
    const wi_elastic_page *page = s->unwanted;
    while (page && index-- > 0)
        page = page->next;
    if (page)
        *out = page->block.freed;
    wi_base_unlock(&s->base);
    return page != NULL;
}

bool wi_elastic_give_back(wi_base *base, wi_elastic_left *out)
{
    elastic *s = elastic_of(base);
    wi_event event;
    for (size_t i = 0; elastic_unwanted_point(s, i, &event); i++)
        (void)!base->resource.driver->wait(base->resource.device, event, UINT64_MAX);
    (void)elastic_release_kept(&base->resource);
    *out = (wi_elastic_left){.count = 0};
    wi_base_lock(base);
    for (const wi_elastic_page *page = s->unwanted; page; page = page->next)
        elastic_add_left(out, page->range, 1);
    for (const wi_elastic_range *range = s->stuck; range; range = range->next)
        elastic_add_left(out, range, 0);
    out->lost = s->lost;
    wi_base_unlock(base);
    return out->count == 0;
}

static uint64_t elastic_trim(wi_base *base, uint64_t keep)
{
    (void)base, (void)keep; /* what is not in a page is the driver's */
    return 0;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

wi_elastic_state wi_elastic_look(const wi_elastic_range *range, uint64_t index, const void *maker)
{
    const wi_elastic_page *page = range->pages[index];
    if (!page)
        return WI_PAGE_UNUSED;
    if (page->maker)
        return page->maker == maker ? WI_PAGE_THERE : WI_PAGE_BUSY;
    switch (wi_block_phase_of(&page->block)) {
    case WI_LIVE:
        return WI_PAGE_THERE;
    case WI_PENDING:
        return WI_PAGE_PENDING;
    default:
        return WI_PAGE_BUSY;
    }
}

wi_block *wi_elastic_live(const wi_elastic_range *range, uint64_t index)
{
    wi_elastic_page *page = range->pages[index];
    return page && wi_block_phase_of(&page->block) == WI_LIVE ? &page->block : NULL;
}

wi_block *wi_elastic_pending(const wi_elastic_range *range, uint64_t index)
{
    wi_elastic_page *page = range->pages[index];
    bool pending = page && wi_block_phase_of(&page->block) == WI_PENDING && !page->maker;
    /* what is in no list another thread is giving back, and changes */
    return pending && page->block.listed && page->mapped ? &page->block : NULL;
}

void wi_elastic_renew(wi_block *block, weir_stream stream, const void *maker)
{
    memory_elastic_page_of(block)->maker = maker;
    wi_stream_uses_free(block->stream_uses); /* the stream is behind them */
    block->stream_uses = NULL;
    block->rung = WEIR_RUNG_FIT;
    block->previous = wi_account_owner(block->account);
    wi_store(block->stream.id, stream.id);
    atomic_store_explicit(&block->word, wi_new_generation() << WI_GENERATION_SHIFT | WI_PENDING, memory_order_release);
    pthread_cond_broadcast(&elastic_of(memory_elastic_page_of(block)->range->base)->changed);
}

bool wi_elastic_wait(wi_base *base, uint64_t deadline)
{
    enum { NS = 1000 * 1000 * 1000 };
    struct timespec until = {.tv_sec = (time_t)(deadline / NS), .tv_nsec = (long)(deadline % NS)};
    return pthread_cond_timedwait(&elastic_of(base)->changed, &base->lock, &until) == 0;
}

static uint64_t elastic_charge(wi_base *base, uint64_t bytes)
{
    return wi_round_up(bytes, base->granule);
}

static void elastic_measure(wi_resource *resource, wi_placement *p)
{
    p->charged = elastic_charge(wi_base_of(resource), p->bytes);
}

static void elastic_look(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment,
                         wi_shortage *shortage)
{
    uint64_t idle = wi_members_idle(base->resource.ledger); /* makes way for pages */
    (void)memory_class, (void)alignment;
    wi_base_lock(base);
    elastic_look_around(elastic_of(base), charged, idle, shortage);
    wi_base_unlock(base);
}

static bool elastic_owns(wi_base *base, const void *pointer)
{
    elastic *s = elastic_of(base);
    pthread_mutex_lock(&s->addresses);
    bool found = wi_index_find(&s->index, (uintptr_t)pointer, (uintptr_t)pointer + 1) != NULL;
    pthread_mutex_unlock(&s->addresses);
    return found;
}

static wi_block *elastic_find(wi_base *base, const void *pointer, bool *freed)
{
    uintptr_t at = (uintptr_t)pointer;
    wi_range *found = wi_index_find(&elastic_of(base)->index, at, at + 1);
    *freed = false;
    if (!found)
        return NULL;
    wi_elastic_range *range = range_with(found);
    wi_elastic_page *page = range->pages[(at - found->start) / range->page];
    return page && wi_block_is_charged(&page->block) ? &page->block : NULL;
}

/* For a walk over all pages of all ranges. */
typedef struct visit {
    void (*fn)(wi_elastic_page *page, void *user);
    void *user;
} visit;

static void elastic_visit_range(wi_range *found, void *user)
{
    const visit *v = user;
    wi_elastic_range *range = range_with(found);
    uint64_t left = range->used;
    for (uint64_t i = 0; left > 0; i++)
        if (range->pages[i]) {
            v->fn(range->pages[i], v->user);
            left--;
        }
}

typedef struct block_visit {
    void (*fn)(wi_block *block, void *user);
    void *user;
} block_visit;

static void elastic_visit_block(wi_elastic_page *page, void *user)
{
    const block_visit *v = user;
    if (wi_block_is_charged(&page->block))
        v->fn(&page->block, v->user);
}

static void elastic_each(wi_base *base, void (*fn)(wi_block *block, void *user), void *user)
{
    block_visit blocks = {fn, user};
    wi_index_each(&elastic_of(base)->index, elastic_visit_range, &(visit){elastic_visit_block, &blocks});
}

/* A page that a thread is making, or that the driver did not take back, is in one thread's hand: it is left
 * out, as it counts as spare. */
static void elastic_walk_page(wi_elastic_page *page, void *user)
{
    wi_layout *layout = user;
    if (!page->block.pointer || (!page->maker && !wi_block_is_charged(&page->block)))
        return;
    wi_layout_segment(layout, page->block.pointer, page->range->page);
    wi_layout_block(layout, &page->block, page->block.pointer, page->range->page);
}

static void elastic_walk(wi_base *base, wi_layout *layout)
{
    wi_index_each(&elastic_of(base)->index, elastic_visit_range, &(visit){elastic_walk_page, layout});
}

#ifdef WEIR_INVARIANTS
static void elastic_check_range(wi_range *found, void *user)
{
    const wi_elastic_range *range = range_with(found);
    enum { MOST = 4096 };
    uint64_t used = 0, live = 0, pending = 0, unwanted = 0;
    (void)user;
    if (range->count > MOST)
        return;
    for (uint64_t i = 0; i < range->count; i++) {
        const wi_elastic_page *page = range->pages[i];
        used += page != NULL;
        live += page && wi_block_is_live(&page->block);
        pending += page && wi_block_phase_of(&page->block) == WI_PENDING;
        unwanted += page && !page->maker && !wi_block_is_charged(&page->block);
    }
    wi_assert(used == range->used && live == range->live && pending == range->pending);
    wi_assert(atomic_load(&range->promise.left) <=
              (range->promised ? (range->count - used + unwanted) * range->page : 0));
}
#endif

static void elastic_check(wi_base *base)
{
    elastic *s = elastic_of(base);
    wi_index_check(&s->index);
#ifdef WEIR_INVARIANTS
    wi_index_each(&s->index, elastic_check_range, NULL);
#endif
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

/* What a lost device still has is its driver's to forget: the records go. */
static void elastic_destroy(wi_resource *resource)
{
    elastic *s = elastic_of(wi_base_of(resource));
    if (resource->ledger)
        (void)elastic_release_kept(resource);
    for (wi_elastic_page *page = s->unwanted, *next; page; page = next) {
        wi_elastic_range *range = page->range;
        next = page->next;
        if (range_forget(s, page))
            free(range);
        free(page);
    }
    for (wi_elastic_range *range = s->stuck, *next; range; range = next) {
        next = range->next;
        free(range);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->addresses);
    wi_base_end(&s->base);
    free(s);
}

static const wi_base_table table = {
    .all.name = "elastic",
    .all.features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES,
    .all.measure = elastic_measure,
    .all.allocate = elastic_allocate,
    .all.discard = elastic_discard,
    .all.publish = elastic_publish,
    .all.retire = elastic_retire,
    .all.release = elastic_release,
    .all.release_kept = elastic_release_kept,
    .all.destroy = elastic_destroy,
    .charge = elastic_charge,
    .find = elastic_find,
    .each = elastic_each,
    .walk = elastic_walk,
    .owns = elastic_owns,
    .trim = elastic_trim,
    .look = elastic_look,
    .check = elastic_check,
};

weir_status wi_elastic_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    elastic *s = calloc(1, sizeof *s);
    pthread_condattr_t attributes;
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_base_init(&s->base, &table, driver, device);
    s->base.granule = driver->granule(device);
    pthread_mutex_init(&s->addresses, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = &s->base.resource;
    return WEIR_OK;
}
