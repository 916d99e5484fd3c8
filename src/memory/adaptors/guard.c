/* The adaptor "guard" (as AddressSanitizer): red zones around each block, poison in it, and a quarantine behind its
 * free. */
#include "memory/adaptors/adaptors.h"
#include <weir/guard.h>
#include "base/values.h"
#include "base/system.h"
#include "memory/space/stream_order.h"

#include <stdio.h>

/* Records by address ----------------------------------------------------------------------------------------------- */

/* The records, a sorted array by address. Moving its end costs little beside filling a block. */

/* The index of the first record at or behind `start`. */
static size_t guard_place_of(const wi_guard *guard, const char *start)
{
    size_t low = 0, high = guard->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (guard->set[middle]->start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

weir_status wi_guard_set_reserve(wi_guard *guard)
{
    if (guard->count < guard->capacity)
        return WEIR_OK;
    size_t capacity = wi_max(64, 2 * guard->capacity);
    wi_guarded **set = realloc(guard->set, capacity * sizeof(wi_guarded *));
    if (!set)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of a guard");
    guard->set = set;
    guard->capacity = capacity;
    return WEIR_OK;
}

/* A leaving record does not count: the base has its memory back already, and may serve the same addresses again. */
static bool guard_overlap(const wi_guarded *a, const wi_guarded *b)
{
    return a->state != WI_GUARDED_LEAVING && a->start < b->end && b->start < a->end;
}

void wi_guard_set_insert(wi_guard *guard, wi_guarded *record, const wi_guarded **under)
{
    size_t at = guard_place_of(guard, record->start);
    wi_assert(guard->count < guard->capacity);
    *under = NULL;
    for (size_t i = at; i < guard->count && guard->set[i]->start < record->end && !*under; i++)
        if (guard_overlap(guard->set[i], record))
            *under = guard->set[i];
    for (size_t i = at; i > 0 && !*under; i--)
        if (guard->set[i - 1]->state != WI_GUARDED_LEAVING) {
            if (guard_overlap(guard->set[i - 1], record))
                *under = guard->set[i - 1];
            break;
        }
    memmove(guard->set + at + 1, guard->set + at, (guard->count - at) * sizeof(wi_guarded *));
    guard->set[at] = record;
    guard->count++;
    wi_assert(at == 0 || guard->set[at - 1]->start <= record->start);
    wi_assert(at + 1 == guard->count || record->start <= guard->set[at + 1]->start);
}

void wi_guard_set_remove(wi_guard *guard, const wi_guarded *record)
{
    size_t at = guard_place_of(guard, record->start);
    while (guard->set[at] != record)
        at++;
    guard->count--;
    memmove(guard->set + at, guard->set + at + 1, (guard->count - at) * sizeof(wi_guarded *));
}

wi_guarded *wi_guard_set_find(wi_guard *guard, const wi_block *block)
{
    const char *start = (const char *)block->pointer - block->before;
    for (size_t at = guard_place_of(guard, start); at < guard->count && guard->set[at]->start == start; at++)
        if (guard->set[at]->generation == wi_block_generation(block))
            return guard->set[at];
    return NULL;
}

/* The adaptor ------------------------------------------------------------------------------------------------------ */

static wi_guard *guard_of(wi_resource *resource)
{
    return (wi_guard *)resource;
}

static void guard_lock(wi_guard *guard)
{
    pthread_mutex_lock(&guard->lock);
}

static void guard_unlock(wi_guard *guard)
{
    wi_assert(pthread_mutex_trylock(&guard->lock) != 0); /* it is held */
    pthread_mutex_unlock(&guard->lock);
}

void wi_guard_pin(wi_guard *guard, wi_guarded *record)
{
    while (record->pinned)
        pthread_cond_wait(&guard->changed, &guard->lock);
    record->pinned = true;
}

void wi_guard_unpin(wi_guard *guard, wi_guarded *record)
{
    record->pinned = false;
    pthread_cond_broadcast(&guard->changed);
}

/* Finds and pins the record of a block that this thread has acquired or not yet published. */
static wi_guarded *guard_pin(wi_guard *guard, const wi_block *block)
{
    guard_lock(guard);
    wi_guarded *record = wi_guard_set_find(guard, block);
    wi_assert(record);
    wi_guard_pin(guard, record);
    guard_unlock(guard);
    return record;
}

/* Removes and frees a pinned record. The lock is held. */
static void guard_forget(wi_guard *guard, wi_guarded *record)
{
    wi_guard_set_remove(guard, record);
    wi_guard_unpin(guard, record);
    free(record);
}

static weir_status guard_fill(const wi_guard *guard, char *from, const char *to, uint8_t value, void *native)
{
    const wi_resource *r = &guard->resource;
    return to > from ? r->driver->fill(r->device, from, value, (size_t)(to - from), native) : WEIR_OK;
}

/* Allocating ------------------------------------------------------------------------------------------------------- */

/* The block begins behind the first red zone, whose length keeps its alignment. */
static void guard_measure(wi_resource *resource, wi_placement *p)
{
    const wi_guard *guard = guard_of(resource);
    p->before += wi_round_up(guard->zone, p->alignment);
    p->after += guard->unmapped ? 0 : guard->zone;
    p->guard_page |= guard->unmapped;
}

static wi_guarded guard_record(wi_block *block, const wi_placement *p)
{
    uint64_t room = wi_round_up(block->bytes, WI_UNIT);
    char *pointer = block->pointer;
    return (wi_guarded){.block = block,
                        .start = pointer - block->before,
                        .end = pointer + room + block->after,
                        .pointer = pointer,
                        .bytes = block->bytes,
                        .room = room,
                        .charged = block->charged,
                        .generation = wi_block_generation(block),
                        .client = p->account->client,
                        .client_name = p->account->lasting,
                        .tag = block->tag,
                        .memory_class = block->memory_class,
                        .allocated = block->stream};
}

/* Writes the red zones and the poison, in the order of the block's stream. */
static weir_status guard_paint(const wi_guard *guard, const wi_guarded *record, void *native)
{
    char *behind = record->pointer + record->bytes;
    weir_status status = guard_fill(guard, record->start, record->pointer, WI_GUARD_ZONE, native);
    if (status == WEIR_OK)
        status = guard_fill(guard, record->pointer, behind, guard->poison, native);
    return status == WEIR_OK ? guard_fill(guard, behind, record->end, WI_GUARD_ZONE, native) : status;
}

/* Enters the record. Reports an overlap with another block, and marks the record `blank`: the guard writes nothing into
 * the block. */
static weir_status guard_enter(wi_guard *guard, wi_guarded *record, wi_guard_news *news)
{
    const wi_guarded *under;
    guard_lock(guard);
    weir_status status = wi_guard_set_reserve(guard);
    if (status == WEIR_OK) {
        wi_guard_set_insert(guard, record, &under);
        record->blank = under != NULL;
        if (under) {
            const char *from = under->start > record->start ? under->start : record->start;
            const char *to = under->end < record->end ? under->end : record->end;
            wi_damage shared = {
                .kind = WEIR_GUARD_OVERLAP, .offset = from - record->pointer, .bytes = (uint64_t)(to - from)};
            wi_guard_note(guard, record, &shared, under, news);
        }
    }
    guard_unlock(guard);
    return status;
}

/* Waits for the writes that were queued, as the next owner of the bytes may use another stream. If the device cannot
 * be waited for, it does no work any more. */
static void guard_await_paint(const wi_guard *guard, void *native)
{
    enum { TRIES = 3 };
    const wi_resource *r = &guard->resource;
    for (int tries = 0; native && tries < TRIES; tries++)
        if (r->driver->stream_synchronize(r->device, native) == WEIR_OK)
            return;
}

static void guard_withdraw(wi_guard *guard, wi_block *block, const wi_placement *p)
{
    wi_guarded *record = guard_pin(guard, block);
    record->state = WI_GUARDED_LEAVING;
    guard_await_paint(guard, p->native);
    wi_discard(guard->resource.inner, block, p);
    guard_lock(guard);
    guard_forget(guard, record);
    guard_unlock(guard);
}

static weir_status guard_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_guard *guard = guard_of(resource);
    wi_guard_news news = {.count = 0};
    wi_guarded *record = malloc(sizeof *record);
    if (!record)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the record of a guarded block");
    weir_status status = wi_allocate(resource->inner, p, out, shortage);
    if (status != WEIR_OK) {
        free(record);
        return status;
    }
    *record = guard_record(*out, p);
    status = guard_enter(guard, record, &news);
    if (status != WEIR_OK) {
        wi_discard(resource->inner, *out, p);
        free(record);
        return status;
    }
    if (!record->blank) {
        status = guard_paint(guard, record, p->native);
        (*out)->zeroing |= p->native != NULL;
    }
    if (status != WEIR_OK)
        guard_withdraw(guard, *out, p);
    wi_guard_tell(&news);
    return status;
}

static void guard_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    guard_withdraw(guard_of(resource), block, p);
}

static void guard_publish(wi_resource *resource, wi_block *block)
{
    wi_guard *guard = guard_of(resource);
    guard_lock(guard);
    wi_guard_set_find(guard, block)->state = WI_GUARDED_LIVE;
    guard_unlock(guard);
    wi_publish(resource->inner, block);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

/* The block always becomes pending: its zones can only be checked when the device is past it, without a lock. */
static bool guard_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    wi_guard *guard = guard_of(resource);
    (void)past;
    guard_lock(guard);
    wi_guarded *record = wi_guard_set_find(guard, block);
    record->state = WI_GUARDED_FREED;
    record->freed = stream;
    guard_unlock(guard);
    return wi_retire(resource->inner, block, stream, native, WI_UNPASSED);
}

static weir_status guard_inspect(wi_guard *guard, wi_guarded *record, wi_guard_news *news)
{
    wi_damage damages[2] = {{.bytes = 0}};
    bool kept =
        record->state == WI_GUARDED_KEPT; /* a freed record's state is changed only by the thread that has it pinned */
    weir_status status = record->blank ? WEIR_OK : wi_guard_examine(guard, record, kept, damages);
    guard_lock(guard);
    for (int i = 0; i < 2; i++)
        if (damages[i].bytes > 0)
            wi_guard_note(guard, record, &damages[i], NULL, news);
    guard_unlock(guard);
    return status;
}

/* Gives a pinned block that is in no list to the inner resource. On success the record is gone; else it stays
 * pinned. */
static weir_status guard_let_go(wi_guard *guard, wi_guarded *record)
{
    wi_guarded_state before = record->state;
    guard_lock(guard);
    record->state = WI_GUARDED_LEAVING;
    guard_unlock(guard);
    weir_status status = wi_release(guard->resource.inner, record->block);
    guard_lock(guard);
    record->state = before;
    if (status == WEIR_OK)
        guard_forget(guard, record);
    guard_unlock(guard);
    return status;
}

/* Executes what holds of the quarantine; the lock is held. */
static void guard_check_kept(const wi_guard *guard)
{
    wi_assert((guard->first == NULL) == (guard->kept == 0));
    wi_assert(!guard->first || !guard->last->next);
}

static void guard_put_in(wi_guard *guard, wi_guarded *record, bool at_front)
{
    record->state = WI_GUARDED_KEPT;
    record->next = at_front ? guard->first : NULL;
    if (!guard->first || !at_front) {
        *(guard->first ? &guard->last->next : &guard->first) = record;
        guard->last = record;
    } else {
        guard->first = record;
    }
    guard->kept += record->charged;
    guard_check_kept(guard);
    wi_guard_unpin(guard, record);
}

/* Takes blocks out of the quarantine, oldest first, until it has at most `keep` bytes. */
static void guard_give_up(wi_guard *guard, uint64_t keep)
{
    weir_status status = WEIR_OK;
    guard_lock(guard);
    while (guard->kept > keep && status == WEIR_OK) {
        wi_guarded *record = guard->first;
        wi_guard_news news = {.count = 0};
        uint64_t charged = record->charged;
        guard->first = record->next;
        guard->kept -= charged;
        guard->leaving++;
        guard_check_kept(guard);
        wi_guard_pin(guard, record);
        guard_unlock(guard);
        (void)guard_inspect(guard, record, &news); /* a block that cannot be read goes, too */
        status = guard_let_go(guard, record);
        guard_lock(guard);
        if (status == WEIR_OK)
            guard->given_up += charged;
        else
            guard_put_in(guard, record, true); /* tried again when the next block leaves the quarantine */
        guard->leaving--;
        pthread_cond_broadcast(&guard->changed);
        guard_unlock(guard);
        wi_guard_tell(&news); /* no lock is held and no record pinned, as the log's function may allocate */
        guard_lock(guard);
    }
    guard_unlock(guard);
}

/* Fills a freed block with poison. A failure needs no report: the device has failed before, or will with the next
 * call. */
static bool guard_bury(wi_guard *guard, wi_guarded *record)
{
    bool filled = guard_fill(guard, record->start, record->end, WI_GUARD_FREED, NULL) == WEIR_OK;
    guard_lock(guard);
    record->blank |= !filled;
    guard_unlock(guard);
    return filled;
}

static weir_status guard_release(wi_resource *resource, wi_block *block)
{
    wi_guard *guard = guard_of(resource);
    wi_guarded *record = guard_pin(guard, block);
    wi_guard_news news = {.count = 0};
    wi_nvtx_bury(resource, block);
    weir_status status = guard_inspect(guard, record, &news);
    bool keep =
        status == WEIR_OK && !record->blank && record->charged <= guard->quarantine && guard_bury(guard, record);
    if (keep) {
        guard_lock(guard);
        guard_put_in(guard, record, false);
        guard_unlock(guard);
    } else {
        status = guard_let_go(guard, record);
        if (status != WEIR_OK) {
            guard_lock(guard);
            wi_guard_unpin(guard, record);
            guard_unlock(guard);
        }
    }
    wi_guard_tell(&news);
    guard_give_up(guard, guard->quarantine);
    return status;
}

/* A thread that sees pending bytes finds their blocks in the quarantine, or waits for the thread that is releasing
 * them. */
static uint64_t guard_release_kept(wi_resource *resource)
{
    wi_guard *guard = guard_of(resource);
    guard_lock(guard);
    uint64_t before = guard->given_up;
    guard_unlock(guard);
    guard_give_up(guard, 0);
    guard_lock(guard);
    while (guard->leaving > 0 && !wi_alone)
        pthread_cond_wait(&guard->changed, &guard->lock);
    uint64_t bytes = guard->given_up - before;
    guard_unlock(guard);
    return bytes;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static weir_status guard_no_room(const wi_block *block, uint64_t bytes)
{
    return weir_fail(WEIR_ERR_NO_ROOM,
                     "the block of %llu bytes at %p cannot become %llu bytes long: a red zone stands behind it; "
                     "allocate another one and copy",
                     (unsigned long long)block->bytes, block->pointer, (unsigned long long)bytes);
}

/* Moves the end of the block: writes zone or poison between the old one and the new one, in the order of the
 * stream. */
static weir_status guard_repaint(const wi_guard *guard, const wi_guarded *record, uint64_t bytes, void *native)
{
    char *now = record->pointer + record->bytes, *then = record->pointer + bytes;
    return bytes < record->bytes ? guard_fill(guard, then, now, WI_GUARD_ZONE, native)
                                 : guard_fill(guard, now, then, guard->poison, native);
}

/* Orders the repainting behind the poison and the declared uses of the block on other streams. Without a stream, this
 * thread waits for them. */
static weir_status guard_order(const wi_guard *guard, const wi_block *block, void *native)
{
    const wi_resource *r = &guard->resource;
    weir_status status = WEIR_OK;
    wi_event event;
    for (uint32_t i = 0; status == WEIR_OK && wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, i, &event);
         i++)
        if (!r->driver->passed(r->device, event))
            status =
                native ? r->driver->order(r->device, native, event) : r->driver->wait(r->device, event, UINT64_MAX);
    return status;
}

/* Repaints as a declared write. A free on any stream waits for the write. */
static weir_status guard_repaint_in_order(const wi_guard *guard, const wi_guarded *record, uint64_t bytes, void *native)
{
    const wi_resource *r = &guard->resource;
    wi_block *block = record->block;
    wi_event event = {0};
    bool opened;
    weir_status status =
        wi_stream_uses_open(&block->stream_uses, WEIR_ACCESS_WRITE, &opened); /* an acquired block has no open ticket */
    if (status != WEIR_OK)
        return status;
    status = guard_order(guard, block, native);
    if (status == WEIR_OK)
        status = guard_repaint(guard, record, bytes, native);
    if (status == WEIR_OK && native && r->driver->record(r->device, native, &event) != WEIR_OK)
        status = r->driver->stream_synchronize(
            r->device, native); /* the zones are written already: without an event this thread waits */
    wi_stream_uses_close(block->stream_uses, WEIR_ACCESS_WRITE, status == WEIR_OK ? &event : NULL);
    return status;
}

/* The charge stays and there is no tail: the zone behind the block grows. */
static weir_status guard_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    wi_guard *guard = guard_of(resource);
    uint64_t before = block->bytes;
    weir_status status = wi_resizing(resource->inner, block, bytes); /* with no record pinned: it may call weir */
    *tail = NULL;
    if (status != WEIR_OK)
        return status;
    wi_guarded *record = guard_pin(guard, block);
    if (bytes > record->room)
        status = guard_no_room(block, bytes);
    if (status == WEIR_OK && !record->blank)
        status = guard_repaint_in_order(guard, record, bytes, native);
    if (status == WEIR_OK) {
        wi_base_lock(resource->base);
        wi_ledger_resize(resource->ledger, block, bytes, block->charged, true);
        block->bytes = bytes;
        wi_base_unlock(resource->base);
        wi_nvtx_resize(resource, block);
    }
    guard_lock(guard);
    if (status == WEIR_OK)
        record->bytes = bytes;
    wi_guard_unpin(guard, record);
    guard_unlock(guard);
    wi_resized(resource->inner, block, before, bytes, status);
    return status;
}

static weir_status guard_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                              wi_shortage *shortage)
{
    (void)resource, (void)may_wait, (void)shortage;
    return guard_no_room(block, bytes);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void guard_describe(const wi_resource *resource, char *text, size_t capacity)
{
    const wi_guard *guard = (const wi_guard *)resource;
    char zone[24], quarantine[24];
    wi_size_write(guard->zone, zone, sizeof zone);
    wi_size_write(guard->quarantine, quarantine, sizeof quarantine);
    snprintf(text, capacity, "zone=%s, quarantine=%s, poison=0x%02X, %s", zone, quarantine, guard->poison,
             guard->unmapped ? "unmapped, " : "");
}

static void guard_destroy(wi_resource *resource)
{
    wi_guard *guard = guard_of(resource);
    wi_assert(guard->kept == 0 && guard->leaving == 0);
    for (size_t i = 0; i < guard->count; i++)
        free(guard->set[i]);
    free(guard->set);
    pthread_cond_destroy(&guard->changed);
    pthread_mutex_destroy(&guard->lock);
    free(guard);
}

/* A shrunk block gives no memory back, and no block grows. The fills are queued on streams: so nothing can be
 * allocated in a capture, and the next owner has to wait for the free. */
static const wi_resource_table table = {
    .name = "guard",
    .features = WEIR_FEATURE_GUARDS,
    .hides = WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS,
    .measure = guard_measure,
    .allocate = guard_allocate,
    .discard = guard_discard,
    .publish = guard_publish,
    .wants_passed = true,
    .retire = guard_retire,
    .release = guard_release,
    .shrink = guard_shrink,
    .grow = guard_grow,
    .release_kept = guard_release_kept,
    .describe = guard_describe,
    .destroy = guard_destroy,
};

wi_guard *wi_guard_in(wi_resource *top)
{
    while (top && top->table != &table)
        top = top->inner;
    return (wi_guard *)top;
}

static weir_status guard_read_poison(const wi_arguments *arguments, uint8_t *out)
{
    const char *text = wi_argument(arguments, "poison");
    char *end;
    unsigned long value = text ? strtoul(text, &end, 0) : *out;
    if (text && (!*text || strchr("+- ", *text) || *end || value > UINT8_MAX))
        return weir_fail(WEIR_ERR_INVALID,
                         "the resource guard does not take \"%.40s\" for poison; it is a byte, like 0xA5", text);
    *out = (uint8_t)value;
    return WEIR_OK;
}

static weir_status guard_read_arguments(wi_guard *guard, const wi_arguments *arguments)
{
    const char *word = wi_argument(arguments, "");
    weir_status status = wi_arguments_check(arguments, (const char *const[]){"zone", "quarantine", "poison", "", NULL});
    if (status == WEIR_OK && word && strcmp(word, "unmapped") != 0)
        status = weir_fail(WEIR_ERR_INVALID, "the resource guard takes no argument \"%.40s\"", word);
    guard->unmapped = word != NULL;
    if (status == WEIR_OK)
        status = wi_argument_size(arguments, "zone", 1, &guard->zone);
    if (status == WEIR_OK)
        status = wi_argument_size(arguments, "quarantine", 0, &guard->quarantine);
    if (status == WEIR_OK && guard->zone > WI_GIB)
        status = weir_fail(WEIR_ERR_INVALID, "the resource guard takes zones of up to 1 GiB");
    guard->zone = wi_round_up(guard->zone, WI_UNIT);
    return status == WEIR_OK ? guard_read_poison(arguments, &guard->poison) : status;
}

static weir_status guard_check_inner(const wi_guard *guard, wi_resource *inner)
{
    if (wi_guard_in(inner))
        return weir_fail(WEIR_ERR_INVALID, "a guard within a guard; one is enough");
    if (guard->unmapped && !inner->base->table->places_guard_pages)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "the resource %s cannot leave addresses unmapped behind a block; use guard(unmapped, mapped), "
                         "or a guard without it",
                         inner->base->table->all.name);
    return WEIR_OK;
}

weir_status wi_guard_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out)
{
    wi_guard *guard = calloc(1, sizeof *guard);
    if (!guard)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a guard");
    guard->zone = WI_UNIT;
    guard->quarantine = 16 * WI_MIB;
    guard->poison = 0xA5;
    weir_status status = guard_read_arguments(guard, arguments);
    if (status == WEIR_OK)
        status = guard_check_inner(guard, inner);
    if (status != WEIR_OK) {
        free(guard);
        return status;
    }
    wi_resource_init(&guard->resource, &table, inner);
    pthread_mutex_init(&guard->lock, NULL);
    pthread_cond_init(&guard->changed, NULL);
    *out = &guard->resource;
    return WEIR_OK;
}
