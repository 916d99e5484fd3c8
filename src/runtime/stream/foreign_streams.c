/* Foreign streams: streams of other libraries, known to weir from register to unregister. */
#include "base/system.h"
#include <weir/trace.h>
#include "base/probes.h"
#include "runtime/runtime.h"

static const uintptr_t most_special = 2; /* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are no addresses */

/* The entry of that stream, or of an earlier stream at its address. The lock is held. */
static wi_stream_entry *foreign_find(weir_runtime *runtime, const wi_stream_entry *wanted)
{
    wi_streams *streams = &runtime->streams;
    for (uint32_t i = 0; i < streams->used; i++) {
        wi_stream_entry *entry = &streams->entries[i];
        if ((entry->users > 0 || entry->leaving) && entry->origin == wanted->origin &&
            entry->native == wanted->native && entry->thread == wanted->thread)
            return entry;
    }
    return NULL;
}

/* Whether the runtime made this stream. Own streams live as long as the runtime, so that the address identifies them.
 * The lock is held. */
static bool foreign_is_own(weir_runtime *runtime, const void *native)
{
    const wi_streams *streams = &runtime->streams;
    bool own = false;
    for (uint32_t i = 0; i < streams->used && !own; i++)
        own = streams->entries[i].users > 0 && streams->entries[i].origin == WI_STREAM_OWN &&
              runtime->driver->stream_native(streams->entries[i].stream) == native;
    for (uint32_t i = 0; i < streams->idle_used && !own; i++)
        own = runtime->driver->stream_native(streams->idle[i]) == native;
    return own;
}

/* The earlier stream at that address, which ended without being unregistered; NULL: there is none. Waits while another
 * thread clears such an entry, or unregisters the stream. The lock is held. */
static wi_stream_entry *foreign_find_ended(weir_runtime *runtime, const wi_stream_entry *content)
{
    for (;;) {
        wi_stream_entry *same = foreign_find(runtime, content);
        if (!same || (!same->leaving && !same->closed && same->identity == content->identity))
            return NULL;
        if (!same->leaving && !same->closed)
            return same;
        pthread_cond_wait(&runtime->streams.left, &runtime->streams.lock);
    }
}

/* Ends a stream that was destroyed with frees pending or work under way, and not unregistered. Thread caches are
 * flushed while the stream still has its id, as their blocks are freed in its order. Then the id is invalid, and the
 * entry is free for another stream. The end is noticed when another stream is registered at the address. Pending frees
 * then wait for a point behind all work (`wi_stream_lists_abandon`). The lock is held, and released meanwhile. */
static void foreign_end_unregistered(weir_runtime *runtime, wi_stream_entry *entry)
{
    wi_streams *streams = &runtime->streams;
    weir_stream gone = wi_streams_id(streams, entry);
    void *record = entry->stream;
    entry->leaving = true;
    pthread_mutex_unlock(&streams->lock);
    wi_tcaches_drop_stream(runtime, gone);
    pthread_mutex_lock(&streams->lock);
    entry->users = 0;
    entry->abandoned = entry->generation;
    wi_streams_show(streams, entry);
    pthread_mutex_unlock(&streams->lock);
    wi_streams_abandon(runtime, gone);
    runtime->driver->stream_abandon(runtime->device, record);
    pthread_mutex_lock(&streams->lock);
    wi_streams_clear(streams, entry);
    pthread_cond_broadcast(&streams->left);
}

/* Gives a stream an entry, or one more user if it has one already. *spare: the driver's record, if it is not needed.
 * The lock is held. */
static weir_status foreign_add(weir_runtime *runtime, const wi_stream_entry *content, weir_stream *out, void **spare)
{
    wi_streams *streams = &runtime->streams;
    wi_stream_entry *same = foreign_find(runtime, content);
    *spare = content->stream;
    if (same) {
        same->users++;
        *out = wi_streams_id(streams, same);
        return WEIR_OK;
    }
    wi_stream_entry *entry = wi_streams_free_entry(streams);
    if (!entry)
        return wi_streams_all_taken(runtime);
    *spare = NULL;
    *out = wi_streams_take(streams, entry, *content);
    return WEIR_OK;
}

static weir_status foreign_enter(weir_runtime *runtime, const wi_stream_entry *content, weir_stream *out)
{
    void *spare;
    pthread_mutex_lock(&runtime->streams.lock);
    for (wi_stream_entry *ended; (ended = foreign_find_ended(runtime, content));)
        foreign_end_unregistered(runtime, ended);
    weir_status status = foreign_add(runtime, content, out, &spare);
    pthread_mutex_unlock(&runtime->streams.lock);
    wi_window(WI_WINDOW_STREAM_SETTLED);
    if (spare)
        runtime->driver->stream_destroy(runtime->device, spare);
    return status;
}

weir_status weir_stream_register(weir_runtime *runtime, void *native, weir_stream *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_register: NULL");
    *out = WEIR_STREAM_HOST;
    if ((uintptr_t)native <= most_special)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_stream_register: %p is one of CUDA's default streams; ask weir_stream_default for them",
                         native);
    WI_VISIT(runtime);
    pthread_mutex_lock(&runtime->streams.lock);
    bool own = foreign_is_own(runtime, native);
    pthread_mutex_unlock(&runtime->streams.lock);
    if (own)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_register: %p was acquired from %s; use the id that it has",
                         native, runtime->name);
    wi_stream_entry content = {.origin = WI_STREAM_ADOPTED, .native = native};
    weir_status status = runtime->driver->stream_adopt(runtime->device, native, &content.stream, &content.identity);
    if (status == WEIR_OK)
        status = foreign_enter(runtime, &content, out);
    return wi_recorded(runtime, status, .action = WEIR_ACTION_STREAM_OPEN, .stream = *out);
}

weir_status weir_stream_default(weir_runtime *runtime, weir_default_stream which, weir_stream *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_default: NULL");
    *out = WEIR_STREAM_HOST;
    if (which != WEIR_DEFAULT_STREAM_LEGACY && which != WEIR_DEFAULT_STREAM_PER_THREAD)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_default: %d is none; see weir_default_stream", (int)which);
    WI_VISIT(runtime);
    bool legacy = which == WEIR_DEFAULT_STREAM_LEGACY;
    wi_stream_entry content = {.origin = legacy ? WI_STREAM_LEGACY : WI_STREAM_PER_THREAD,
                               .thread = legacy ? 0 : wi_thread_number()};
    weir_status status = runtime->driver->stream_default(runtime->device, which, &content.stream);
    if (status == WEIR_OK)
        status = foreign_enter(runtime, &content, out);
    return wi_recorded(runtime, status, .action = WEIR_ACTION_STREAM_OPEN, .stream = *out);
}

/* Takes one user away, who is not the last. False: meanwhile others went, and this is the last one. */
static bool foreign_leave_to_others(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool others = entry && entry->users > 1;
    if (others)
        entry->users--;
    pthread_mutex_unlock(&streams->lock);
    return others;
}

/* Gives up the entry of a stream whose door is closed. Answers the driver's record. */
static void *foreign_leave(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    wi_assert(entry && entry->closed && entry->users == 1);
    void *record = entry->stream;
    wi_streams_clear(streams, entry);
    pthread_cond_broadcast(&streams->left);
    pthread_mutex_unlock(&streams->lock);
    return record;
}

static bool foreign_is_another_threads(weir_runtime *runtime, weir_stream stream)
{
    pthread_mutex_lock(&runtime->streams.lock);
    const wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    bool is = entry && entry->thread != 0 && entry->thread != wi_thread_number();
    pthread_mutex_unlock(&runtime->streams.lock);
    return is;
}

weir_status weir_stream_unregister(weir_stream stream)
{
    WI_ENTER();
    const unsigned origins = 1u << WI_STREAM_ADOPTED | 1u << WI_STREAM_LEGACY | 1u << WI_STREAM_PER_THREAD;
    static const char call[] = "weir_stream_unregister";
    bool last = false, done = false;
    if (stream.id == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_unregister: WEIR_STREAM_HOST was not registered");
    WI_VISIT_OF(stream, runtime);
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !done) {
        /* Another thread's per-thread stream cannot be named here, and may have ended with its thread. The driver waits
         * for the recorded points when stream_destroy forgets the stream. */
        bool waits = !foreign_is_another_threads(runtime, stream);
        status = wi_streams_close(runtime, stream, origins, waits, call, &last);
        done = status == WEIR_OK && (last || foreign_leave_to_others(&runtime->streams, stream));
    }
    if (status == WEIR_OK && last) {
        void *record = foreign_leave(&runtime->streams, stream);
        wi_window(WI_WINDOW_STREAM_LEFT);
        wi_streams_forget(runtime, stream); /* no thread records on the stream any more */
        runtime->driver->stream_destroy(runtime->device, record);
    }
    if (status == WEIR_OK)
        (void)wi_runtime_reap(runtime);
    return wi_recorded(runtime, status, .action = WEIR_ACTION_STREAM_CLOSE, .stream = stream);
}
