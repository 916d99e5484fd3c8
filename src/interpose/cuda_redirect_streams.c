/* The module's streams, as weir knows them; see cuda_redirect.h. */
#include "base/probes.h"
#include "interpose/cuda_redirect_parts.h"

/* Entries ---------------------------------------------------------------------------------------------------------- */

/* With the lock held. NULL: it is not known. */
static wi_cuda_stream_entry *cuda_redirect_streams_find(wi_cuda_redirect *r, const void *native)
{
    for (size_t i = 0; native && i < r->stream_count; i++)
        if (r->streams[i].used && r->streams[i].native == native)
            return &r->streams[i];
    return NULL;
}

/* With the lock held. NULL: no host memory. */
static wi_cuda_stream_entry *cuda_redirect_streams_free_entry(wi_cuda_redirect *r)
{
    enum { MORE = 16 };
    for (size_t i = 0; i < r->stream_count; i++)
        if (!r->streams[i].used)
            return &r->streams[i];
    wi_cuda_stream_entry *more = realloc(r->streams, (r->stream_count + MORE) * sizeof *more);
    if (!more)
        return NULL;
    memset(more + r->stream_count, 0, MORE * sizeof *more);
    r->streams = more;
    r->stream_count += MORE;
    return more + r->stream_count - MORE;
}

static bool enter_stream(wi_cuda_redirect *r, wi_cuda_stream_entry entry)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_stream_entry *source = cuda_redirect_streams_free_entry(r);
    if (source)
        *source = entry;
    pthread_mutex_unlock(&r->lock);
    return source != NULL;
}

/* The entry number `index`, as it is now; false beyond the last. */
static bool cuda_redirect_streams_entry_at(wi_cuda_redirect *r, size_t index, wi_cuda_stream_entry *out)
{
    pthread_mutex_lock(&r->lock);
    bool there = index < r->stream_count;
    if (there)
        *out = r->streams[index];
    pthread_mutex_unlock(&r->lock);
    return there;
}

static void leave_entry(wi_cuda_redirect *r, size_t index)
{
    pthread_mutex_lock(&r->lock);
    r->streams[index] = (wi_cuda_stream_entry){0};
    pthread_mutex_unlock(&r->lock);
}

/* Holds the stream of an entry while a free is put behind it: false where it is captured, or leaving. */
static bool hold(wi_cuda_redirect *r, size_t index)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_stream_entry *entry = &r->streams[index];
    bool may = entry->used && !entry->captured && !entry->leaving;
    entry->held += may;
    pthread_mutex_unlock(&r->lock);
    return may;
}

static void cuda_redirect_streams_let_go(wi_cuda_redirect *r, size_t index)
{
    pthread_mutex_lock(&r->lock);
    r->streams[index].held--;
    pthread_mutex_unlock(&r->lock);
}

/* Waits until no thread holds the stream. The stream is marked, so that no other thread takes hold of the stream. */
static void wait_until_nobody_holds(wi_cuda_redirect *r, const void *native)
{
    for (int i = 0;; i++) {
        pthread_mutex_lock(&r->lock);
        const wi_cuda_stream_entry *entry = cuda_redirect_streams_find(r, native);
        bool held = entry && entry->held > 0;
        pthread_mutex_unlock(&r->lock);
        if (!held)
            return;
        wi_window(WI_WINDOW_REDIRECT_AWAITED);
        wi_cuda_yield(i);
    }
}

/* Ordering --------------------------------------------------------------------------------------------------------- */

/* Where no event tells when the stream is done with the block, it is waited for. */
static weir_status order_behind(const wi_cuda_stream_entry *stream, const wi_cuda_block *block)
{
    weir_runtime *runtime = weir_client_runtime(block->client);
    weir_status status = stream->runtime == runtime && !block->source.give_back
                             ? weir_use_record(runtime, (weir_block){block->pointer, 0}, stream->id)
                             : WEIR_ERR_STREAM_MISUSE;
    return status == WEIR_ERR_STREAM_MISUSE ? weir_stream_synchronize(stream->id) : status;
}

enum { REMEMBERED = 64 }; /* streams with a bit in a block; other streams are ordered again at every try */

/* Clears a block's bits for the streams that exist when the block is freed. Streams that begin later do not work on the
 * block, so the bits of free entries stay set. */
static void begin_order(wi_cuda_redirect *r, wi_cuda_block *block)
{
    wi_cuda_stream_entry stream;
    block->freed = true;
    block->behind = UINT64_MAX;
    for (size_t i = 0; i < REMEMBERED && cuda_redirect_streams_entry_at(r, i, &stream); i++)
        if (stream.used)
            block->behind &= ~(UINT64_C(1) << i);
}

/* Puts the free of a block behind the work of every stream. A captured or leaving stream refuses, so that the block has
 * to wait. The thread that ends a leaving stream waits for the stream's work, and then frees the waiting blocks. */
weir_status wi_cuda_order_free(wi_cuda_redirect *r, wi_cuda_block *block)
{
    wi_cuda_stream_entry stream;
    weir_status all = WEIR_OK;
    if (!block->freed)
        begin_order(r, block);
    for (size_t i = 0; cuda_redirect_streams_entry_at(r, i, &stream); i++) {
        uint64_t bit = i < REMEMBERED ? UINT64_C(1) << i : 0;
        if (!stream.used || (block->behind & bit))
            continue;
        weir_status status = WEIR_ERR_STREAM_MISUSE;
        if (hold(r, i)) {
            wi_window(WI_WINDOW_REDIRECT_HELD);
            status = order_behind(&stream, block);
            cuda_redirect_streams_let_go(r, i);
        }
        if (status == WEIR_OK)
            block->behind |= bit;
        else
            all = status;
    }
    return all;
}

bool wi_cuda_captures_here(wi_cuda_redirect *r)
{
    bool here = false;
    if (atomic_load(&r->captures) == 0)
        return false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->stream_count; i++)
        here |= r->streams[i].used && r->streams[i].captured && pthread_equal(r->streams[i].capturer, pthread_self());
    pthread_mutex_unlock(&r->lock);
    return here;
}

static void cuda_redirect_streams_forget(weir_stream id)
{
    if (weir_stream_unregister(id) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "a stream stays known to weir: %s", weir_detail());
}

/* Beginning and ending --------------------------------------------------------------------------------------------- */

weir_status wi_cuda_streams_begin(wi_cuda_redirect *r, weir_runtime *runtime)
{
    wi_cuda_stream_entry entry = {.used = true, .runtime = runtime};
    weir_status status = weir_stream_default(runtime, WEIR_DEFAULT_STREAM_LEGACY, &entry.id);
    if (status != WEIR_OK || enter_stream(r, entry))
        return status;
    cuda_redirect_streams_forget(entry.id);
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the streams of a module");
}

/* Marks an entry as leaving, so that the caller may remove the entry. False: the entry is free, or another thread
 * removes the entry. */
static bool cuda_redirect_streams_take_out(wi_cuda_redirect *r, size_t index, weir_stream *id)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_stream_entry *entry = &r->streams[index];
    bool taken = entry->used && !entry->leaving;
    entry->leaving |= taken;
    *id = entry->id;
    pthread_mutex_unlock(&r->lock);
    return taken;
}

void wi_cuda_streams_end(wi_cuda_redirect *r)
{
    wi_cuda_stream_entry stream;
    weir_stream id;
    for (size_t i = 0; cuda_redirect_streams_entry_at(r, i, &stream); i++) {
        if (!cuda_redirect_streams_take_out(r, i, &id))
            continue;
        cuda_redirect_streams_forget(id);
        leave_entry(r, i);
    }
}

/* Creating --------------------------------------------------------------------------------------------------------- */

/* The stream is CUDA's by now. Without weir knowing it, frees could not be put behind its work. */
static int adopt(wi_cuda_redirect *r, weir_client *client, void **out)
{
    wi_cuda_stream_entry entry = {.used = true, .native = *out, .runtime = weir_client_runtime(client)};
    weir_status status = weir_stream_register(entry.runtime, entry.native, &entry.id);
    if (status == WEIR_OK && enter_stream(r, entry))
        return CUDA_OK;
    weir_log(WEIR_LOG_WARNING, "%s made a stream that weir cannot follow: %s", wi_interpose_module(r->interpose),
             status == WEIR_OK ? "no host memory" : weir_detail());
    if (status == WEIR_OK)
        cuda_redirect_streams_forget(entry.id);
    (void)wi_real(r, cudaStreamDestroy)(entry.native);
    *out = NULL;
    return wi_cuda_fail(r, CUDA_MEMORY_ALLOCATION);
}

/* The client of the device on which the module creates a stream; NULL: none. The call has to be ended by `created`. */
static weir_client *creator(wi_cuda_redirect *r, bool *entered)
{
    weir_request request = {.struct_size = sizeof request};
    weir_client *client;
    *entered = wi_cuda_enter(r);
    return *entered && wi_cuda_request(r, wi_cuda_device(r), &client, &request) ? client : NULL;
}

static int created(wi_cuda_redirect *r, weir_client *client, bool entered, int result, void **out)
{
    if (client && result == CUDA_OK)
        result = adopt(r, client, out);
    if (entered)
        wi_cuda_leave(r);
    return result;
}

int wi_on_cudaStreamCreate(wi_cuda_redirect *r, void **out)
{
    bool entered;
    weir_client *client = creator(r, &entered);
    return created(r, client, entered, wi_real(r, cudaStreamCreate)(out), out);
}

int wi_on_cudaStreamCreateWithFlags(wi_cuda_redirect *r, void **out, unsigned flags)
{
    bool entered;
    weir_client *client = creator(r, &entered);
    return created(r, client, entered, wi_real(r, cudaStreamCreateWithFlags)(out, flags), out);
}

int wi_on_cudaStreamCreateWithPriority(wi_cuda_redirect *r, void **out, unsigned flags, int priority)
{
    bool entered;
    weir_client *client = creator(r, &entered);
    return created(r, client, entered, wi_real(r, cudaStreamCreateWithPriority)(out, flags, priority), out);
}

/* Captures --------------------------------------------------------------------------------------------------------- */

/* Marks the stream, if it is known, or takes the mark away; true: it was not so before. */
static bool cuda_redirect_streams_mark(wi_cuda_redirect *r, const void *native, bool captured, weir_stream *id)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_stream_entry *entry = cuda_redirect_streams_find(r, native);
    bool changed = entry && entry->captured != captured;
    if (changed) {
        entry->captured = captured;
        entry->capturer = pthread_self();
        *id = entry->id;
        if (captured)
            atomic_fetch_add(&r->captures, 1);
        else
            atomic_fetch_sub(&r->captures, 1);
    }
    pthread_mutex_unlock(&r->lock);
    return changed;
}

static void end_capture(wi_cuda_redirect *r, const void *native)
{
    weir_stream id;
    if (cuda_redirect_streams_mark(r, native, false, &id) && weir_capture_end(id, NULL) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "the end of a capture: %s", weir_detail());
}

/* weir hears of it before: once CUDA captures, nothing can be recorded there. */
int wi_on_cudaStreamBeginCapture(wi_cuda_redirect *r, void *stream, int mode)
{
    weir_stream id;
    bool marked = cuda_redirect_streams_mark(r, stream, true, &id);
    if (marked) {
        wi_window(WI_WINDOW_REDIRECT_MARKED);
        wait_until_nobody_holds(r, stream);
    }
    if (marked && weir_capture_begin(id, NULL) != WEIR_OK) {
        (void)cuda_redirect_streams_mark(r, stream, false, &id);
        marked = false; /* CUDA says what is wrong */
    }
    int result = wi_real(r, cudaStreamBeginCapture)(stream, mode);
    if (marked && result != CUDA_OK)
        end_capture(r, stream);
    return result;
}

/* A capture that has failed is over as well, but one that another thread has begun goes on. */
int wi_on_cudaStreamEndCapture(wi_cuda_redirect *r, void *stream, void **graph)
{
    int result = wi_real(r, cudaStreamEndCapture)(stream, graph);
    if (result != CUDA_CAPTURE_WRONG_THREAD)
        end_capture(r, stream);
    wi_cuda_free_waiting(r);
    return result;
}

/* Destroying ------------------------------------------------------------------------------------------------------- */

/* From now on frees wait for the stream to be gone. False: it is not known. One that the end of the redirect gives up
 * at the moment is waited for, as CUDA is still asked about it. */
static bool begin_leaving(wi_cuda_redirect *r, const void *native, weir_stream *id)
{
    for (int i = 0;; i++) {
        pthread_mutex_lock(&r->lock);
        wi_cuda_stream_entry *entry = cuda_redirect_streams_find(r, native);
        bool found = entry && !entry->leaving, wait = entry && entry->leaving;
        if (found) {
            entry->leaving = true;
            *id = entry->id;
        }
        pthread_mutex_unlock(&r->lock);
        if (!wait)
            return found;
        wi_cuda_yield(i);
    }
}

static void end_leaving(wi_cuda_redirect *r, const void *native)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_stream_entry *entry = cuda_redirect_streams_find(r, native);
    if (entry)
        *entry = (wi_cuda_stream_entry){0};
    pthread_mutex_unlock(&r->lock);
}

/* A capture goes with its stream; it is ended before, as a captured stream cannot be waited for. */
static void cuda_redirect_streams_drop_capture(wi_cuda_redirect *r, void *native)
{
    weir_stream id;
    void *graph = NULL;
    if (!cuda_redirect_streams_mark(r, native, false, &id))
        return;
    if (wi_real(r, cudaStreamEndCapture)(native, &graph) == CUDA_OK && graph && wi_real(r, cudaGraphDestroy))
        (void)wi_real(r, cudaGraphDestroy)(graph);
    if (weir_capture_end(id, NULL) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "the end of a capture: %s", weir_detail());
}

/* Waits for the stream's work before CUDA destroys the stream, so that no later free has to be put behind the stream.
 * CUDA may give the stream's address to the next stream at once. */
int wi_on_cudaStreamDestroy(wi_cuda_redirect *r, void *stream)
{
    weir_stream id;
    bool known = begin_leaving(r, stream, &id);
    if (known) {
        cuda_redirect_streams_drop_capture(r, stream);
        wait_until_nobody_holds(r, stream);
        cuda_redirect_streams_forget(id);
        wi_window(WI_WINDOW_REDIRECT_LEFT);
        end_leaving(r, stream);
    }
    int result = wi_real(r, cudaStreamDestroy)(stream);
    if (known)
        wi_cuda_free_waiting(r);
    return result;
}
