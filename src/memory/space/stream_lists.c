/* Stream lists: epochs, their events, and releasing what has passed. */
#include "memory/space/stream_lists.h"
#include <weir/trace.h>
#include "base/probes.h"
#include "base/system.h"
#include "memory/ledger/ledger.h"

/* An epoch is closed after so many frees, if another stream could want the memory. The event then costs each free a
 * few nanoseconds: one event that is recorded and queried takes 0.3 microseconds on an H200 (docs/benchmarks.md). */
enum { FREES_PER_EPOCH = 64 };

void wi_stream_lists_init(wi_stream_lists *stream_lists, wi_base *base, wi_shared *shared)
{
    stream_lists->base = base; /* the large tables are calloc's zeros, touched only as they are used */
    stream_lists->shared = shared;
    stream_lists->late.gone = true;
    stream_lists->late.open = 1;
    stream_lists->gone = &stream_lists->late;
    base->stream_lists = stream_lists;
}

static void stream_list_lock(const wi_stream_lists *stream_lists)
{
    wi_base_lock(stream_lists->base);
}

static void stream_list_unlock(const wi_stream_lists *stream_lists)
{
    wi_base_unlock(stream_lists->base);
}

static bool stream_list_event_passed(const wi_stream_lists *stream_lists, wi_event event)
{
    return stream_lists->base->resource.driver->passed(stream_lists->base->resource.device, event);
}

static void stream_list_free_all(wi_stream_list *stream_list, const wi_stream_list *end)
{
    for (wi_stream_list *next; stream_list != end; stream_list = next) {
        next = stream_list->next_gone;
        free(stream_list);
    }
}

void wi_stream_lists_destroy(wi_stream_lists *stream_lists)
{
    for (wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        wi_assert(!stream_list->first);
    stream_list_free_all(stream_lists->gone, &stream_lists->late);
    stream_list_free_all(stream_lists->spent, NULL);
    for (unsigned i = 0; i < stream_lists->used; i++)
        free(stream_lists->entries[i]);
}

wi_stream_list *wi_stream_lists_next(const wi_stream_lists *stream_lists, const wi_stream_list *stream_list)
{
    if (stream_list && stream_list->gone)
        return stream_list->next_gone;
    for (unsigned i = stream_list ? stream_list->index + 1 : 0; i < stream_lists->used; i++)
        if (stream_lists->entries[i])
            return stream_lists->entries[i];
    return stream_lists->gone;
}

wi_stream_list *wi_stream_lists_find(const wi_stream_lists *stream_lists, weir_stream stream)
{
    wi_stream_list *stream_list = stream_lists->entries[stream.id % WI_STREAM_LIST_ENTRIES];
    return stream.id != 0 && stream_list && stream_list->stream.id == stream.id ? stream_list : NULL;
}

bool wi_stream_lists_has(const wi_stream_lists *stream_lists, weir_stream stream)
{
    const wi_stream_list *stream_list =
        __atomic_load_n(&stream_lists->entries[stream.id % WI_STREAM_LIST_ENTRIES], __ATOMIC_ACQUIRE);
    return stream.id != 0 && stream_list && wi_load(stream_list->stream.id) == stream.id;
}

void wi_stream_lists_trace(const wi_stream_lists *stream_lists, const wi_extent *extent, weir_stream other)
{
    wi_ledger *ledger = stream_lists->base->resource.ledger;
    if (wi_unlikely(wi_recording(ledger)))
        wi_record(ledger,
                  (weir_event){.action = WEIR_ACTION_REAP,
                               .pointer = extent->region->base + extent->offset,
                               .bytes = extent->bytes,
                               .stream = extent->stream_list->stream,
                               .other = other},
                  NULL);
}

/* Makes the list's memory, up to that epoch, free for all streams. */
static uint64_t stream_list_release(wi_stream_lists *stream_lists, wi_stream_list *stream_list, uint64_t epoch)
{
    uint64_t bytes = 0;
    while (stream_list->first && stream_list->first->epoch <= epoch) {
        bytes += stream_list->first->bytes;
        wi_stream_lists_trace(stream_lists, stream_list->first, stream_list->first->stream_list->stream);
        wi_region_neutral(stream_list->first->region, stream_list->first);
    }
    stream_list->passed = epoch;
    stream_lists->released += bytes;
    return bytes;
}

/* Epochs ----------------------------------------------------------------------------------------------------------- */

static void stream_list_add_epoch(wi_stream_list *stream_list, wi_epoch mark)
{
    if (stream_list->epoch_count == WI_EPOCHS) /* the newest event is also behind the epochs of the one before */
        stream_list->epoch_count--;
    stream_list->epochs[(stream_list->first_epoch + stream_list->epoch_count++) % WI_EPOCHS] = mark;
}

/* Whether something was freed since the last event, and no thread is recording one. */
static bool stream_list_is_open(const wi_stream_list *stream_list)
{
    return stream_list->last && stream_list->last->epoch > stream_list->recorded && !stream_list->recording;
}

static bool stream_list_can_record(const wi_stream_list *stream_list)
{
    return stream_list->stream.id != 0 && !stream_list->gone && stream_list_is_open(stream_list);
}

static wi_epoch stream_list_begin_epoch(const wi_stream_lists *stream_lists, wi_stream_list *stream_list)
{
    stream_list->frees = 0;
    stream_list->recording = true;
    return (wi_epoch){
        .epoch = stream_list->open++, .freed = stream_list->freed, .clock = ++stream_lists->shared->idle.clock};
}

static void stream_list_end_epoch(wi_stream_list *stream_list, const wi_epoch *mark, bool good)
{
    stream_list->recording = false;
    stream_list->refused = !good;
    if (!good)
        return;
    stream_list->recorded = mark->epoch;
    stream_list_add_epoch(stream_list, *mark);
}

/* Records an event and closes the epoch. If that fails, as in a capture, the epoch stays open until the next try. A
 * stream that ended meanwhile may have been replaced in the driver: then its event proves nothing. */
static void stream_list_close_epoch(wi_stream_lists *stream_lists, wi_stream_list *stream_list)
{
    weir_stream stream = stream_list->stream;
    void *native = stream_list->native;
    wi_epoch mark = stream_list_begin_epoch(stream_lists, stream_list);
    stream_list_unlock(stream_lists);
    weir_status status =
        stream_lists->base->resource.driver->record(stream_lists->base->resource.device, native, &mark.event);
    stream_list_lock(stream_lists);
    stream_list_end_epoch(stream_list, &mark,
                          status == WEIR_OK && !stream_list->gone && stream_list->stream.id == stream.id);
}

void wi_stream_lists_freed(wi_stream_lists *stream_lists, wi_stream_list *stream_list, uint64_t bytes, uint64_t count)
{
    stream_list->freed += bytes;
    stream_list->frees += count;
    if (stream_list->frees >= FREES_PER_EPOCH && stream_lists->shared->stream_lists > 1 &&
        stream_list_can_record(stream_list))
        stream_list_close_epoch(stream_lists, stream_list);
}

void wi_stream_lists_returned(wi_stream_list *stream_list, uint64_t bytes)
{
    stream_list->freed += bytes;
    stream_list->frees++;
}

static uint64_t stream_list_pass(wi_stream_lists *stream_lists, wi_stream_list *stream_list)
{
    uint64_t passed = stream_list->passed;
    if (wi_has_bug(WI_BUG_EARLY_REUSE))
        return stream_list_release(stream_lists, stream_list, stream_list->open - 1);
    while (stream_list->epoch_count > 0) {
        const wi_epoch *mark = &stream_list->epochs[stream_list->first_epoch];
        if (!stream_list_event_passed(stream_lists, mark->event))
            break;
        passed = mark->epoch;
        stream_list->freed_passed = mark->freed;
        stream_list->passed_until = mark->clock;
        stream_list->first_epoch = (stream_list->first_epoch + 1) % WI_EPOCHS;
        stream_list->epoch_count--;
    }
    return passed > stream_list->passed ? stream_list_release(stream_lists, stream_list, passed) : 0;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static uint32_t stream_generation(weir_stream stream)
{
    return (uint32_t)(stream.id >> 16);
}

static bool stream_list_has_ended(const wi_stream_lists *stream_lists, weir_stream stream)
{
    return stream_generation(stream) <= stream_lists->ended[stream.id % WI_STREAM_LIST_ENTRIES];
}

static void stream_list_note_end(wi_stream_lists *stream_lists, weir_stream stream)
{
    uint32_t *ended = &stream_lists->ended[stream.id % WI_STREAM_LIST_ENTRIES];
    *ended = *ended < stream_generation(stream) ? stream_generation(stream) : *ended;
}

static wi_stream_list *stream_list_new(wi_stream_lists *stream_lists)
{
    wi_stream_list *stream_list = stream_lists->spent;
    if (stream_list) {
        stream_lists->spent = stream_list->next_gone;
        stream_list->gone = false;
        return stream_list;
    }
    stream_list = calloc(1, sizeof *stream_list);
    if (stream_list)
        stream_list->open = 1;
    return stream_list;
}

wi_stream_list *wi_stream_lists_get(wi_stream_lists *stream_lists, weir_stream stream, void *native)
{
    unsigned index = stream.id % WI_STREAM_LIST_ENTRIES;
    wi_stream_list *stream_list = stream_lists->entries[index];
    if (stream_list && stream_list->stream.id == stream.id)
        return stream_list;
    if ((stream_list && stream_list->stream.id != 0) || stream_list_has_ended(stream_lists, stream))
        return NULL;
    if (!stream_list) {
        stream_list = stream_list_new(stream_lists);
        if (!stream_list)
            return NULL;
        stream_list->index = index;
        __atomic_store_n(&stream_lists->entries[index], stream_list, __ATOMIC_RELEASE); /* wi_stream_lists_has */
        stream_lists->used = stream_lists->used > index ? stream_lists->used : index + 1;
    }
    stream_lists->shared->stream_lists++;
    wi_store(stream_list->stream.id, stream.id);
    stream_list->native = native;
    stream_list->refused = false;
    return stream_list;
}

wi_stream_list *wi_stream_lists_get_late(wi_stream_lists *stream_lists, weir_stream stream, void *native)
{
    wi_stream_list *stream_list = stream.id ? wi_stream_lists_get(stream_lists, stream, native) : NULL;
    return stream_list ? stream_list : &stream_lists->late;
}

/* Waits until no thread records on the stream, which may be destroyed after this. Recording does not take long. */
static void stream_list_await_recording(wi_stream_lists *stream_lists, const wi_stream_list *stream_list)
{
    for (unsigned spin = 0; stream_list->recording && !wi_alone; spin++) {
        stream_list_unlock(stream_lists);
        wi_pause(spin);
        stream_list_lock(stream_lists);
    }
}

uint64_t wi_stream_lists_forget(wi_stream_lists *stream_lists, weir_stream stream)
{
    wi_stream_list *stream_list = wi_stream_lists_find(stream_lists, stream);
    stream_list_note_end(stream_lists, stream);
    if (!stream_list)
        return 0;
    stream_list_await_recording(stream_lists, stream_list);
    uint64_t bytes = stream_list_release(stream_lists, stream_list, stream_list->open);
    stream_list->recorded = stream_list->open++;
    stream_list->freed_passed = stream_list->freed;
    stream_list->frees = 0;
    stream_list->epoch_count = 0;
    wi_store(stream_list->stream.id, 0);
    stream_lists->shared->stream_lists--;
    return bytes;
}

/* The list becomes a gone one, and the next stream in the entry gets another: busy extents may still name this one,
 * and its last frees wait for more than events. */
void wi_stream_lists_abandon(wi_stream_lists *stream_lists, weir_stream stream)
{
    wi_stream_list *stream_list = wi_stream_lists_find(stream_lists, stream);
    stream_list_note_end(stream_lists, stream);
    if (!stream_list)
        return;
    stream_list_await_recording(stream_lists, stream_list);
    stream_list->gone = true;
    stream_list->native = NULL;
    stream_list->next_gone = stream_lists->gone;
    stream_lists->gone = stream_list;
    wi_store(stream_lists->entries[stream_list->index], NULL);
    stream_lists->shared->stream_lists--;
}

/* Lists of gone streams with no memory left serve the next streams. Busy extents may still name them, with epochs that
 * have passed. */
static void stream_list_collect_spent(wi_stream_lists *stream_lists)
{
    for (wi_stream_list **link = &stream_lists->gone, *stream_list;
         (stream_list = *link) && stream_list != &stream_lists->late;) {
        bool spent = !stream_list->first && !stream_list->recording && stream_list->frees == 0 &&
                     stream_list->passed == stream_list->open - 1;
        if (!spent) {
            link = &stream_list->next_gone;
            continue;
        }
        *link = stream_list->next_gone;
        stream_list->next_gone = stream_lists->spent;
        stream_lists->spent = stream_list;
    }
}

/* Whether the list has frees for which no event can be recorded on its stream. */
static bool stream_list_wants_bound(const wi_stream_list *stream_list)
{
    bool gone = stream_list->gone && (stream_list->recorded < stream_list->open - 1 || stream_list->frees > 0);
    return !stream_list->recording && (gone || (stream_list->refused && stream_list_is_open(stream_list)));
}

static bool stream_list_any_wants_bound(const wi_stream_lists *stream_lists)
{
    bool any = false;
    for (const wi_stream_list *stream_list = NULL;
         !any && (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        any = stream_list_wants_bound(stream_list);
    return any;
}

bool wi_stream_lists_bound(wi_stream_lists *stream_lists)
{
    const wi_resource *r = &stream_lists->base->resource;
    wi_event event;
    if (!r->driver->record_all || stream_lists->bounding || !stream_list_any_wants_bound(stream_lists))
        return false;
    for (wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        stream_list->bound = stream_list_wants_bound(stream_list) ? stream_list_begin_epoch(stream_lists, stream_list)
                                                                  : (wi_epoch){.epoch = 0};
    stream_lists->bounding = true;
    stream_list_unlock(stream_lists);
    weir_status status = r->driver->record_all(r->device, &event);
    stream_list_lock(stream_lists);
    stream_lists->bounding = false;
    for (wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        if (stream_list->bound.epoch > 0) {
            stream_list->bound.event = event;
            stream_list_end_epoch(stream_list, &stream_list->bound, status == WEIR_OK);
            stream_list->bound.epoch = 0;
        }
    return status == WEIR_OK;
}

void wi_stream_lists_drain(wi_stream_lists *stream_lists)
{
    const wi_resource *r = &stream_lists->base->resource;
    (void)wi_stream_lists_bound(stream_lists);
    if (stream_list_any_wants_bound(stream_lists) && r->driver->synchronize)
        (void)r->driver->synchronize(r->device);
    for (wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));) {
        if (stream_list->first && stream_list->epoch_count > 0) {
            const wi_epoch *last =
                &stream_list->epochs[(stream_list->first_epoch + stream_list->epoch_count - 1) % WI_EPOCHS];
            (void)r->driver->wait(r->device, last->event, UINT64_MAX);
        }
        (void)stream_list_release(stream_lists, stream_list, stream_list->open);
    }
}

/* All stream lists ------------------------------------------------------------------------------------------------- */

uint64_t wi_stream_lists_renew(wi_stream_lists *stream_lists)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < stream_lists->used; i++) {
        wi_stream_list *stream_list = stream_lists->entries[i];
        if (!stream_list || stream_list->stream.id == 0)
            continue;
        if (stream_list_can_record(stream_list))
            stream_list_close_epoch(stream_lists, stream_list);
        bytes += stream_list_pass(stream_lists, stream_list);
    }
    for (wi_stream_list *stream_list = stream_lists->gone; stream_list; stream_list = stream_list->next_gone)
        bytes += stream_list_pass(stream_lists, stream_list);
    stream_list_collect_spent(stream_lists);
    return bytes;
}

uint64_t wi_stream_lists_bytes(const wi_stream_lists *stream_lists)
{
    uint64_t bytes = 0;
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        bytes += wi_min(stream_list->bytes, stream_list->freed - stream_list->freed_passed);
    return bytes;
}

bool wi_stream_lists_oldest(const wi_stream_lists *stream_lists, weir_stream but, wi_event *out)
{
    const wi_stream_list *most = NULL;
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));) {
        bool waits =
            stream_list->first && stream_list->epoch_count > 0 && (but.id == 0 || stream_list->stream.id != but.id);
        if (waits && (!most || stream_list->bytes > most->bytes))
            most = stream_list;
    }
    if (most)
        *out = most->epochs[most->first_epoch].event;
    return most != NULL;
}

bool wi_stream_lists_point(const wi_extent *extent, wi_event *out)
{
    const wi_stream_list *stream_list = extent->stream_list;
    for (unsigned i = 0; i < stream_list->epoch_count; i++) {
        const wi_epoch *mark = &stream_list->epochs[(stream_list->first_epoch + i) % WI_EPOCHS];
        if (mark->epoch >= extent->epoch) {
            *out = mark->event;
            return true;
        }
    }
    return false;
}
