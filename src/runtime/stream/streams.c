/* Streams: the table by id, the pool of own streams, and the calls that queue work. */
#include "runtime/stream/streams.h"
#include <weir/trace.h>
#include "base/system.h"
#include "base/probes.h"
#include "memory/away.h"
#include "runtime/runtime.h"

/* Numbers ---------------------------------------------------------------------------------------------------------- */

/* Numbers of runtimes, a bit each. A new runtime gets the free number that was freed longest ago, so that a stale id
 * is recognized for as long as possible. */
static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t numbers_taken[(UINT16_MAX + 1) / 64];
static uint16_t last_number;

/* 0: all are in use. */
static uint16_t streams_take_number(void)
{
    uint16_t number = 0;
    pthread_mutex_lock(&numbers_lock);
    for (uint32_t tries = 0; number == 0 && tries < UINT16_MAX; tries++) {
        last_number = (uint16_t)(last_number % UINT16_MAX + 1);
        if (!(numbers_taken[last_number / 64] >> last_number % 64 & 1))
            number = last_number;
    }
    if (number)
        numbers_taken[number / 64] |= UINT64_C(1) << number % 64;
    pthread_mutex_unlock(&numbers_lock);
    return number;
}

static void streams_return_number(uint16_t number)
{
    pthread_mutex_lock(&numbers_lock);
    numbers_taken[number / 64] &= ~(UINT64_C(1) << number % 64);
    pthread_mutex_unlock(&numbers_lock);
}

weir_status wi_streams_init(wi_streams *streams)
{
    streams->pool = streams_take_number();
    if (streams->pool == 0)
        return weir_fail(WEIR_ERR_BUSY, "there are %d runtimes already; destroy some", UINT16_MAX);
    pthread_mutex_init(&streams->lock, NULL);
    pthread_cond_init(&streams->left, NULL);
    return WEIR_OK;
}

void wi_streams_end(wi_streams *streams)
{
    pthread_cond_destroy(&streams->left);
    pthread_mutex_destroy(&streams->lock);
    streams_return_number(streams->pool);
}

void wi_streams_unmake(wi_streams *streams, const wi_driver *driver, wi_device *device)
{
    while (streams->idle_used > 0)
        driver->stream_destroy(device, streams->idle[--streams->idle_used]);
}

weir_status wi_streams_make(wi_streams *streams, const wi_driver *driver, wi_device *device, uint32_t count)
{
    if (count > WI_STREAMS)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_create: %u streams; a runtime has %d at most", count,
                         (int)WI_STREAMS);
    weir_status status = WEIR_OK;
    while (streams->idle_used < count && status == WEIR_OK) {
        status = driver->stream_create(device, &streams->idle[streams->idle_used]);
        streams->idle_used += status == WEIR_OK;
    }
    streams->pooled = count;
    return status;
}

void wi_streams_destroy(wi_streams *streams, const wi_driver *driver, wi_device *device)
{
    wi_streams_unmake(streams, driver, device);
    wi_streams_end(streams);
}

bool wi_streams_knows(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    bool knows = stream.id == 0 || wi_streams_entry(streams, stream);
    pthread_mutex_unlock(&streams->lock);
    return knows;
}

bool wi_streams_any(wi_streams *streams)
{
    bool any = false;
    pthread_mutex_lock(&streams->lock);
    for (uint32_t i = 0; i < streams->used; i++)
        any |= streams->entries[i].users > 0;
    pthread_mutex_unlock(&streams->lock);
    return any;
}

/* Places ----------------------------------------------------------------------------------------------------------- */

weir_stream wi_streams_id(const wi_streams *streams, const wi_stream_entry *entry)
{
    uint64_t index = (uint64_t)(entry - streams->entries);
    return (weir_stream){(uint64_t)streams->pool << 48 | (uint64_t)entry->generation << 16 | index};
}

wi_stream_entry *wi_streams_entry(wi_streams *streams, weir_stream stream)
{
    uint32_t index = (uint32_t)(stream.id & 0xffff);
    if (stream.id >> 48 != streams->pool || index >= streams->used)
        return NULL;
    wi_stream_entry *entry = &streams->entries[index];
    return entry->users > 0 && wi_streams_id(streams, entry).id == stream.id ? entry : NULL;
}

wi_stream_entry *wi_streams_free_entry(wi_streams *streams)
{
    uint32_t i = 0;
    while (i < streams->used && (streams->entries[i].users > 0 || streams->entries[i].leaving))
        i++;
    return i < WI_STREAMS ? &streams->entries[i] : NULL;
}

void wi_streams_show(wi_streams *streams, const wi_stream_entry *entry)
{
    wi_stream_seen *seen = &streams->seen[entry - streams->entries];
    bool plain = entry->users > 0 && !entry->captured && !entry->closed && entry->thread == 0;
    atomic_store_explicit(&seen->id, 0, memory_order_relaxed);
    atomic_store_explicit(&seen->stream, (uintptr_t)entry->stream, memory_order_release);
    atomic_store_explicit(&seen->id, plain ? wi_streams_id(streams, entry).id : 0, memory_order_release);
}

/* The driver's stream, if its facts are plain (wi_streams_show); else NULL. An id is never given twice, so that a value
 * read between two looks at the same id belongs to the id. */
static void *streams_seen(wi_streams *streams, weir_stream stream)
{
    wi_stream_seen *seen = &streams->seen[stream.id % WI_STREAMS];
    if (atomic_load_explicit(&seen->id, memory_order_acquire) != stream.id)
        return NULL;
    uintptr_t found = atomic_load_explicit(&seen->stream, memory_order_acquire);
    return atomic_load_explicit(&seen->id, memory_order_relaxed) == stream.id ? (void *)found : NULL;
}

void wi_streams_clear(wi_streams *streams, wi_stream_entry *entry)
{
    *entry = (wi_stream_entry){.generation = entry->generation, .abandoned = entry->abandoned};
    wi_streams_show(streams, entry);
}

weir_stream wi_streams_take(wi_streams *streams, wi_stream_entry *entry, wi_stream_entry content)
{
    wi_assert(entry->users == 0 && content.stream);
    content.generation = entry->generation + 1;
    content.abandoned = entry->abandoned;
    content.users = 1;
    *entry = content;
    if (entry == &streams->entries[streams->used])
        streams->used++;
    wi_streams_show(streams, entry);
    return wi_streams_id(streams, entry);
}

weir_status wi_streams_all_taken(const weir_runtime *runtime)
{
    return weir_fail(WEIR_ERR_BUSY, "all %d streams of %s are acquired or registered; release or unregister some",
                     (int)WI_STREAMS, runtime->name);
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

/* The driver's stream, or NULL. *thread: the thread of a per-thread stream, else 0. */
static void *streams_look_up(wi_streams *streams, weir_stream stream, uint64_t *thread)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    void *found = entry ? entry->stream : NULL;
    *thread = entry ? entry->thread : 0;
    pthread_mutex_unlock(&streams->lock);
    return found;
}

weir_stream wi_streams_named(wi_streams *streams, const void *stream)
{
    weir_stream id = WEIR_STREAM_HOST;
    pthread_mutex_lock(&streams->lock);
    for (uint32_t i = 0; i < streams->used && id.id == 0; i++)
        if (streams->entries[i].users > 0 && !streams->entries[i].closed && streams->entries[i].stream == stream)
            id = wi_streams_id(streams, &streams->entries[i]);
    pthread_mutex_unlock(&streams->lock);
    return id;
}

bool wi_streams_wants_point(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool wants = entry && (entry->thread != 0 || entry->captured);
    pthread_mutex_unlock(&streams->lock);
    return wants;
}

bool wi_streams_stays(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool stays =
        stream.id == 0 || (entry && entry->thread == 0 && !entry->captured && !entry->leaving && !entry->closed);
    pthread_mutex_unlock(&streams->lock);
    return stays;
}

/* The driver takes a per-thread stream for the calling thread's own. */
static bool streams_is_mine(uint64_t thread)
{
    return thread == 0 || thread == wi_thread_number();
}

/* The facts of the stream in an entry. The lock is held. */
static wi_stream_facts streams_facts_of(const wi_stream_entry *entry, weir_stream stream)
{
    return (wi_stream_facts){.stream = stream,
                             .native = entry->stream,
                             .graph = entry->graph,
                             .captured = entry->captured,
                             .one_threads = entry->thread != 0,
                             .another_threads = !streams_is_mine(entry->thread),
                             .closed = entry->closed};
}

/* Under the lock, and apart, so that the quick way saves no registers. */
static __attribute__((noinline)) void streams_facts_locked(wi_streams *streams, weir_stream stream,
                                                           wi_stream_facts *out)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    if (entry)
        *out = streams_facts_of(entry, stream);
    pthread_mutex_unlock(&streams->lock);
}

void wi_streams_facts(wi_streams *streams, weir_stream stream, wi_stream_facts *out)
{
    *out = (wi_stream_facts){.stream = stream};
    if (stream.id != 0 && !(out->native = streams_seen(streams, stream)))
        streams_facts_locked(streams, stream, out);
}

weir_status wi_streams_refuse(const wi_streams *streams, const wi_stream_facts *at, const char *runtime)
{
    weir_stream stream = at->stream;
    if (at->native && !at->closed)
        return weir_fail(WEIR_ERR_STREAM_MISUSE,
                         "stream %llx of %s is another thread's default stream; ask weir_stream_default on this one",
                         (unsigned long long)stream.id, runtime);
    return weir_fail(WEIR_ERR_STREAM_MISUSE, "stream %llx is %s; acquire or register one with the runtime %s",
                     (unsigned long long)stream.id,
                     at->closed                         ? "being released or unregistered by another thread"
                     : stream.id >> 48 == streams->pool ? "released or unregistered"
                                                        : "another runtime's, or none",
                     runtime);
}

weir_status wi_streams_record(weir_runtime *runtime, const wi_stream_facts *at, wi_event *out)
{
    *out = (wi_event){0};
    weir_status status = at->native ? runtime->driver->record(runtime->device, at->native, out) : WEIR_OK;
    wi_stream_facts now = {.stream = at->stream};
    if (status == WEIR_OK && !wi_streams_knows(&runtime->streams, at->stream))
        status = wi_streams_refuse(&runtime->streams, &now, runtime->name);
    return status;
}

weir_status wi_streams_resolve(wi_streams *streams, weir_stream stream, const char *runtime, void **out)
{
    wi_stream_facts facts;
    weir_status status = wi_streams_look(streams, stream, runtime, &facts);
    *out = status == WEIR_OK ? facts.native : NULL;
    return status;
}

static bool streams_come_in(wi_streams *streams, weir_stream stream, wi_stream_facts *out)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool open = entry && !entry->closed && streams_is_mine(entry->thread);
    if (open) {
        entry->inside++;
        *out = streams_facts_of(entry, stream);
    }
    pthread_mutex_unlock(&streams->lock);
    return open;
}

static weir_status streams_begin(wi_streams *streams, weir_stream stream, const char *runtime, wi_stream_facts *out)
{
    weir_status status = WEIR_OK;
    *out = (wi_stream_facts){.stream = stream};
    while (stream.id != 0 && status == WEIR_OK && !streams_come_in(streams, stream, out))
        status = wi_streams_look(streams, stream, runtime, out); /* says why; or its door has been opened again */
    return status;
}

weir_status wi_streams_begin(wi_streams *streams, weir_stream stream, const char *runtime, void **out)
{
    wi_stream_facts at;
    weir_status status = streams_begin(streams, stream, runtime, &at);
    *out = status == WEIR_OK ? at.native : NULL;
    return status;
}

weir_status wi_streams_begin_recorded(weir_runtime *runtime, weir_stream stream, const char *call, void **out)
{
    wi_stream_facts at;
    weir_status status = streams_begin(&runtime->streams, stream, runtime->name, &at);
    *out = status == WEIR_OK ? at.native : NULL;
    if (status != WEIR_OK || !at.captured)
        return status;
    wi_streams_done(&runtime->streams, stream);
    return wi_streams_captured(runtime, stream, call);
}

void wi_streams_done(wi_streams *streams, weir_stream stream)
{
    if (stream.id == 0)
        return;
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream); /* NULL: it has ended without being unregistered */
    if (entry && --entry->inside == 0 && entry->closed)
        pthread_cond_broadcast(&streams->left);
    pthread_mutex_unlock(&streams->lock);
}

weir_status wi_streams_visit(weir_stream stream, weir_runtime **runtime)
{
    *runtime = wi_runtime_visit_pool((uint16_t)(stream.id >> 48));
    if (*runtime)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_STREAM_MISUSE, "stream %llx belongs to no runtime of this process",
                     (unsigned long long)stream.id);
}

void *weir_stream_native(weir_stream stream)
{
    weir_runtime *runtime = atomic_load(&wi_forked) ? NULL : wi_runtime_visit_pool((uint16_t)(stream.id >> 48));
    uint64_t ignored;
    void *found = runtime ? streams_look_up(&runtime->streams, stream, &ignored) : NULL,
         *native = found ? runtime->driver->stream_native(found) : NULL;
    if (runtime)
        wi_runtime_visit_end(runtime);
    return native;
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

static weir_status streams_misused(const weir_runtime *runtime, const wi_stream_entry *entry, weir_stream stream,
                                   const char *call)
{
    unsigned long long id = (unsigned long long)stream.id;
    if (!entry)
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: %s has no stream %llx; it was released or unregistered before",
                         call, runtime->name, id);
    if (entry->closed)
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: another thread ends stream %llx of %s already", call, id,
                         runtime->name);
    if (entry->leaving)
        return weir_fail(WEIR_ERR_STREAM_MISUSE,
                         "%s: stream %llx has ended, and another one with its address is being registered", call, id);
    bool own = entry->origin == WI_STREAM_OWN;
    return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: stream %llx of %s was %s; %s it", call, id, runtime->name,
                     own ? "acquired" : "registered", own ? "release" : "unregister");
}

/* Closes the door of the stream's last user, or says who is in the way. The lock is held. */
static weir_status streams_shut(weir_runtime *runtime, weir_stream stream, unsigned origins, const char *call,
                                bool *last)
{
    wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    if (!entry || entry->closed || entry->leaving || !(1u << entry->origin & origins))
        return streams_misused(runtime, entry, stream, call);
    if (entry->captured)
        return wi_streams_captured(runtime, stream, call);
    *last = entry->users == 1;
    entry->closed = *last;
    wi_streams_show(&runtime->streams, entry);
    return WEIR_OK;
}

static void streams_open_again(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    wi_assert(entry && entry->closed);
    entry->closed = false;
    wi_streams_show(streams, entry);
    pthread_cond_broadcast(&streams->left); /* a thread may wait to register it */
    pthread_mutex_unlock(&streams->lock);
}

/* The door is closed: those who came before it was put work on the stream, and go. In the simulator they are this thread,
 * which has been interrupted, and cannot be waited for. */
static void streams_await_inside(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    for (wi_stream_entry *entry; (entry = wi_streams_entry(streams, stream)) && entry->inside > 0 && !wi_alone;)
        pthread_cond_wait(&streams->left, &streams->lock);
    pthread_mutex_unlock(&streams->lock);
}

weir_status wi_streams_close(weir_runtime *runtime, weir_stream stream, unsigned origins, bool waits, const char *call,
                             bool *last)
{
    wi_streams *streams = &runtime->streams;
    *last = false;
    pthread_mutex_lock(&streams->lock);
    weir_status status = streams_shut(runtime, stream, origins, call, last);
    pthread_mutex_unlock(&streams->lock);
    if (status != WEIR_OK)
        return status;
    if (*last) {
        wi_window(WI_WINDOW_STREAM_CLOSED);
        streams_await_inside(streams, stream);
        wi_tcaches_drop_stream(runtime, stream);
    }
    status = waits ? wi_streams_flush(runtime, stream, call) : WEIR_OK;
    if (*last) {
        wi_window(WI_WINDOW_STREAM_WAITED);
        if (status != WEIR_OK)
            streams_open_again(streams, stream);
    }
    return status;
}

/* Own streams ------------------------------------------------------------------------------------------------------ */

/* Gives an entry to an idle stream, or if none is idle to *made, which is NULL afterwards. An idle stream comes first,
 * so that the number of own streams stays as small as can be. False: no entry, or no stream. The lock is held. */
static bool streams_acquire_own(wi_streams *streams, void **made, weir_stream *out)
{
    wi_stream_entry *entry = wi_streams_free_entry(streams);
    void *stream = streams->idle_used > 0 ? streams->idle[streams->idle_used - 1] : *made;
    if (!entry || !stream)
        return false;
    if (streams->idle_used > 0)
        streams->idle_used--;
    else
        *made = NULL;
    *out = wi_streams_take(streams, entry, (wi_stream_entry){.stream = stream, .origin = WI_STREAM_OWN});
    return true;
}

static weir_status streams_opened(weir_runtime *runtime, weir_status status, weir_stream stream)
{
    return wi_recorded(runtime, status, .action = WEIR_ACTION_STREAM_OPEN, .stream = stream);
}

static weir_status streams_none_left(const weir_runtime *runtime)
{
    unsigned pooled = runtime->streams.pooled;
    return pooled == 0 ? wi_streams_all_taken(runtime)
                       : weir_fail(WEIR_ERR_BUSY, "all %u streams of the pool of %s are acquired; release some", pooled,
                                   runtime->name);
}

weir_status weir_stream_acquire(weir_runtime *runtime, weir_stream *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_acquire: NULL");
    wi_streams *streams = &runtime->streams;
    void *made = NULL;
    *out = WEIR_STREAM_HOST;
    WI_VISIT(runtime);
    pthread_mutex_lock(&streams->lock);
    bool room = wi_streams_free_entry(streams) && streams->pooled == 0,
         taken = streams_acquire_own(streams, &made, out);
    pthread_mutex_unlock(&streams->lock);
    if (taken || !room)
        return streams_opened(runtime, taken ? WEIR_OK : streams_none_left(runtime), *out);
    weir_status status = runtime->driver->stream_create(runtime->device, &made);
    if (status != WEIR_OK)
        return streams_opened(runtime, status, *out);
    pthread_mutex_lock(&streams->lock);
    taken = streams_acquire_own(streams, &made, out);
    pthread_mutex_unlock(&streams->lock);
    if (made) /* other threads released streams meanwhile; no work was ever queued on this one */
        runtime->driver->stream_destroy(runtime->device, made);
    return streams_opened(runtime, taken ? WEIR_OK : streams_none_left(runtime), *out);
}

/* Returns an own stream, whose door is closed, to the idle ones. */
static void streams_return_own(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    wi_assert(entry && entry->closed && streams->idle_used < WI_STREAMS);
    streams->idle[streams->idle_used++] = entry->stream;
    wi_streams_clear(streams, entry);
    pthread_mutex_unlock(&streams->lock);
}

weir_status weir_stream_release(weir_stream stream)
{
    WI_ENTER();
    if (stream.id == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_release: WEIR_STREAM_HOST is not to be released");
    bool last;
    WI_VISIT_OF(stream, runtime);
    weir_status status = wi_streams_close(runtime, stream, 1u << WI_STREAM_OWN, true, "weir_stream_release", &last);
    if (status == WEIR_OK) {
        streams_return_own(&runtime->streams, stream);
        wi_streams_forget(runtime, stream);
        (void)wi_runtime_reap(runtime);
    }
    return wi_recorded(runtime, status, .action = WEIR_ACTION_STREAM_CLOSE, .stream = stream);
}

void wi_streams_forget(weir_runtime *runtime, weir_stream stream)
{
    wi_base *base = runtime->resource->base;
    if (base->table->forget)
        base->table->forget(base, stream);
}

void wi_streams_abandon(weir_runtime *runtime, weir_stream stream)
{
    wi_base *base = runtime->resource->base;
    if (base->table->abandon)
        base->table->abandon(base, stream);
}

/* Waiting and work ------------------------------------------------------------------------------------------------- */

weir_status wi_streams_flush(weir_runtime *runtime, weir_stream stream, const char *call)
{
    wi_streams *streams = &runtime->streams;
    wi_stream_facts at;
    wi_streams_facts(streams, stream, &at);
    if (!wi_stream_is_usable(&at))
        return wi_streams_refuse(streams, &at, runtime->name);
    if (wi_streams_capturing(streams, runtime->driver, runtime->device, stream))
        return wi_streams_captured(runtime, stream, call);
    return runtime->driver->stream_synchronize(runtime->device, at.native);
}

weir_status weir_stream_synchronize(weir_stream stream)
{
    WI_ENTER();
    if (stream.id == 0)
        return WEIR_OK;
    void *native;
    WI_VISIT_OF(stream, runtime);
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK) {
        status = wi_streams_flush(runtime, stream, "weir_stream_synchronize");
        wi_streams_done(&runtime->streams, stream);
    }
    return wi_recorded(runtime, status, .action = WEIR_ACTION_SYNCHRONIZE, .stream = stream);
}

bool wi_stream_rests(const weir_runtime *runtime, void *stream)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    weir_status status = runtime->driver->stream_synchronize(runtime->device, stream);
    if (status != WEIR_OK && runtime->driver->synchronize)
        status = runtime->driver->synchronize(runtime->device);
    wi_detail_restore(&saved);
    return status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST;
}

/* A stream that has gone meanwhile has nothing to wait for. */
static weir_status streams_synchronize_if_there(weir_runtime *runtime, weir_stream stream, const char *call)
{
    weir_status status = wi_streams_flush(runtime, stream, call);
    return status == WEIR_OK || wi_streams_knows(&runtime->streams, stream) ? status : WEIR_OK;
}

weir_status wi_streams_synchronize_all(weir_runtime *runtime, const char *call)
{
    wi_streams *streams = &runtime->streams;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < WI_STREAMS && status == WEIR_OK; i++) {
        pthread_mutex_lock(&streams->lock);
        const wi_stream_entry *entry = i < streams->used ? &streams->entries[i] : NULL;
        weir_stream stream = entry && entry->users > 0 ? wi_streams_id(streams, entry) : WEIR_STREAM_HOST;
        pthread_mutex_unlock(&streams->lock);
        if (stream.id != 0)
            status = streams_synchronize_if_there(runtime, stream, call);
    }
    return status;
}

weir_status weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes, weir_stream stream)
{
    WI_ENTER();
    void *native;
    if (!runtime || ((!to || !from) && bytes > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_copy: NULL");
    WI_VISIT(runtime);
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK) {
        if (bytes > 0)
            status = wi_away_open_for_write(runtime->resource->base, to, bytes);
        if (bytes > 0 && status == WEIR_OK)
            status = runtime->driver->copy(runtime->device, to, from, bytes, native);
        wi_streams_done(&runtime->streams, stream);
    }
    return wi_recorded_copy(runtime, status, to, from, bytes, stream);
}

weir_status weir_fill(weir_runtime *runtime, void *to, uint8_t value, size_t bytes, weir_stream stream)
{
    WI_ENTER();
    void *native;
    if (!runtime || (!to && bytes > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_fill: NULL");
    WI_VISIT(runtime);
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK) {
        if (bytes > 0)
            status = wi_away_open_for_write(runtime->resource->base, to, bytes);
        if (bytes > 0 && status == WEIR_OK)
            status = runtime->driver->fill(runtime->device, to, value, bytes, native);
        wi_streams_done(&runtime->streams, stream);
    }
    return wi_recorded(runtime, status, .action = WEIR_ACTION_FILL, .pointer = to, .bytes = bytes, .stream = stream,
                       .access = WEIR_ACCESS_WRITE);
}

weir_status weir_call(weir_runtime *runtime, void (*fn)(void *user), void *user, weir_stream stream)
{
    WI_ENTER();
    void *native;
    if (!runtime || !fn)
        return weir_fail(WEIR_ERR_INVALID, "weir_call: NULL");
    WI_VISIT(runtime);
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK) {
        status = runtime->driver->call(runtime->device, fn, user, native);
        wi_streams_done(&runtime->streams, stream);
    }
    return wi_recorded(runtime, status, .action = WEIR_ACTION_CALL, .stream = stream);
}
