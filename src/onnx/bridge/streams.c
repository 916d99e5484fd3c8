/* Followers of the streams that ONNX Runtime made itself. ONNX Runtime destroys a stream without notice, so the driver
 * is given a stream only during a call that names the stream, which is alive then. Each stream of ONNX Runtime's has a
 * stream of weir's as its follower:
 *
 *   theirs  - work - [ask] - work - - - - [ask] - work
 *                    |   ^                |   ^
 *                    v   |                v   |
 *   ours             free, allocate       free, allocate
 *
 * What is freed between two requests is kept in hand. A request orders our stream behind theirs, where the work with
 * those blocks is, frees them on ours, allocates on ours, and orders theirs behind ours, where the block becomes
 * usable. So a block serves again in the order of the stream that used it, and other streams get it when the device is
 * past it.
 *
 * A free that does not tell which stream used the block (it was asked for without one, or is pinned) waits for the
 * device; what is in hand goes back with it. So it does when somebody needs memory, when there are many followers, and
 * in the end. */
#include "onnx/bridge/bridge.h"
#include <weir/onnxruntime.h>

typedef struct wi_ort_follower {
    struct wi_ort_follower *next;
    void *native;     /* theirs, as CUDA calls it, */
    void *theirs;     /* and in the driver's words */
    weir_stream ours; /* acquired */
    void *own;
    uint32_t busy;   /* requests under way; a follower with requests or blocks stays */
    uint64_t blocks; /* taken and not given back */
    void **hand;     /* what was freed and waits for the next request */
    size_t count, capacity;
} wi_ort_follower;

/* The blocks in hand of one follower, taken out to be given back. */
typedef struct handful {
    void **blocks;
    size_t count;
} handful;

/* Followers -------------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static wi_ort_follower *bridge_streams_find(const weir_onnxruntime *bridge, const void *native)
{
    wi_ort_follower *f = bridge->followers.first;
    while (f && f->native != native)
        f = f->next;
    return f;
}

/* With the lock held. */
static wi_ort_follower *find_ours(const weir_onnxruntime *bridge, weir_stream ours)
{
    wi_ort_follower *f = ours.id ? bridge->followers.first : NULL;
    while (f && f->ours.id != ours.id)
        f = f->next;
    return f;
}

static void bridge_streams_end(const weir_onnxruntime *bridge, wi_ort_follower *f)
{
    if (f->theirs)
        bridge->runtime->driver->stream_destroy(bridge->runtime->device, f->theirs);
    if (f->ours.id && weir_stream_release(f->ours) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: a stream of %s could not be given back: %s", bridge->name,
                 weir_detail());
    free(f->hand);
    free(f);
}

static weir_status bridge_streams_make(weir_onnxruntime *bridge, void *native, wi_ort_follower **out)
{
    weir_runtime *runtime = bridge->runtime;
    wi_ort_follower *f = calloc(1, sizeof *f);
    if (!f)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a stream of ONNX Runtime's", bridge->name);
    f->native = native;
    f->busy = 1;
    weir_status status = runtime->driver->stream_adopt(runtime->device, native, &f->theirs, NULL);
    if (status == WEIR_OK)
        status = weir_stream_acquire(runtime, &f->ours);
    if (status == WEIR_OK)
        status = wi_streams_resolve(&runtime->streams, f->ours, runtime->name, &f->own);
    if (status == WEIR_OK)
        *out = f;
    else
        bridge_streams_end(bridge, f);
    return status;
}

static void bridge_streams_on_pressure(const weir_pressure *pressure, void *user);
static weir_status relieve(weir_onnxruntime *bridge);

/* The first one has a callback registered that gives up what followers have in hand. */
static weir_status watch_pressure(weir_onnxruntime *bridge)
{
    wi_ort_followers *all = &bridge->followers;
    uint64_t id;
    pthread_mutex_lock(&all->lock);
    bool watched = all->pressure != 0;
    pthread_mutex_unlock(&all->lock);
    weir_status status =
        watched ? WEIR_OK : weir_pressure_register(bridge->runtime, 0, bridge_streams_on_pressure, bridge, &id);
    if (watched || status != WEIR_OK)
        return status;
    pthread_mutex_lock(&all->lock);
    bool first = all->pressure == 0;
    if (first)
        all->pressure = id;
    pthread_mutex_unlock(&all->lock);
    return first ? WEIR_OK : wi_ort_stop_watching(bridge->runtime, id);
}

/* Makes a follower and puts it in the list. If several threads made a follower for the same stream, the first follower
 * stays. */
static weir_status make_and_enlist(weir_onnxruntime *bridge, void *native, wi_ort_follower **out)
{
    wi_ort_followers *all = &bridge->followers;
    wi_ort_follower *f = NULL;
    weir_status status = bridge_streams_make(bridge, native, &f);
    if (status != WEIR_OK || !f)
        return status;
    pthread_mutex_lock(&all->lock);
    *out = bridge_streams_find(bridge, native);
    bool first = !*out;
    if (first) {
        f->next = all->first;
        all->first = *out = f;
        all->count++;
        atomic_fetch_add(&all->ever, 1);
    } else {
        (*out)->busy++;
    }
    pthread_mutex_unlock(&all->lock);
    if (!first)
        bridge_streams_end(bridge, f);
    return WEIR_OK;
}

/* Before one more comes. Twice as many as have something left, so that it is seldom: it may wait for the device. */
static void thin_out(weir_onnxruntime *bridge)
{
    wi_ort_followers *all = &bridge->followers;
    pthread_mutex_lock(&all->lock);
    bool crowded = all->count >= wi_max(all->many, WI_ORT_FOLLOWERS_MANY);
    pthread_mutex_unlock(&all->lock);
    if (!crowded)
        return;
    if (relieve(bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: what it freed on %s waits: %s", bridge->name, weir_detail());
    pthread_mutex_lock(&all->lock);
    all->many = 2 * all->count;
    pthread_mutex_unlock(&all->lock);
}

/* The follower of the stream, busy until `leave`. */
static weir_status bridge_streams_enter(weir_onnxruntime *bridge, void *native, wi_ort_follower **out)
{
    wi_ort_followers *all = &bridge->followers;
    pthread_mutex_lock(&all->lock);
    wi_ort_follower *f = bridge_streams_find(bridge, native);
    if (f)
        f->busy++;
    pthread_mutex_unlock(&all->lock);
    if (!f)
        thin_out(bridge);
    weir_status status = f ? WEIR_OK : watch_pressure(bridge);
    if (!f && status == WEIR_OK)
        status = make_and_enlist(bridge, native, &f);
    *out = f;
    return status;
}

static void bridge_streams_leave(weir_onnxruntime *bridge, wi_ort_follower *f, bool took)
{
    pthread_mutex_lock(&bridge->followers.lock);
    f->busy--;
    f->blocks += took;
    pthread_mutex_unlock(&bridge->followers.lock);
}

/* What is in hand -------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static handful take_hand(wi_ort_follower *f)
{
    handful all = {f->count ? f->hand : NULL, f->count};
    if (f->count > 0) {
        f->hand = NULL;
        f->count = f->capacity = 0;
    }
    return all;
}

/* With the lock held. False: no host memory. */
static bool put_in_hand(wi_ort_follower *f, void *pointer)
{
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 32;
        void **hand = realloc(f->hand, capacity * sizeof *hand);
        if (!hand)
            return false;
        f->hand = hand;
        f->capacity = capacity;
    }
    f->hand[f->count++] = pointer;
    return true;
}

/* With the lock held. */
static bool is_in_hand(const wi_ort_follower *f, const void *pointer)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->hand[i] == pointer)
            return true;
    return false;
}

static void bridge_streams_give_back(weir_onnxruntime *bridge, wi_ort_follower *f, handful all, weir_stream stream)
{
    size_t given = 0;
    for (size_t i = 0; i < all.count; i++) {
        weir_status status = wi_ort_device_free(bridge, all.blocks[i], stream);
        given += status == WEIR_OK;
        if (status != WEIR_OK)
            wi_ort_report(bridge, all.blocks[i], status);
    }
    free(all.blocks);
    pthread_mutex_lock(&bridge->followers.lock);
    f->blocks -= given;
    pthread_mutex_unlock(&bridge->followers.lock);
}

/* Puts back what could not be given back; others may have been added meanwhile. */
static void bridge_streams_keep(weir_onnxruntime *bridge, wi_ort_follower *f, handful all)
{
    size_t left = 0;
    pthread_mutex_lock(&bridge->followers.lock);
    while (left < all.count && put_in_hand(f, all.blocks[left]))
        left++;
    pthread_mutex_unlock(&bridge->followers.lock);
    for (size_t i = left; i < all.count; i++)
        weir_log(WEIR_LOG_ERROR, "onnxruntime freed %p on %s, which stays: no host memory", all.blocks[i],
                 bridge->name);
    free(all.blocks);
}

/* Gives back on ours what their work is done with before this point. */
static weir_status bridge_streams_drain(weir_onnxruntime *bridge, wi_ort_follower *f)
{
    weir_runtime *runtime = bridge->runtime;
    wi_event point;
    pthread_mutex_lock(&bridge->followers.lock);
    handful all = take_hand(f);
    pthread_mutex_unlock(&bridge->followers.lock);
    if (all.count == 0)
        return WEIR_OK;
    weir_status status = runtime->driver->record(runtime->device, f->theirs, &point);
    if (status == WEIR_OK)
        status = runtime->driver->order(runtime->device, f->own, point);
    if (status == WEIR_OK)
        bridge_streams_give_back(bridge, f, all, f->ours);
    else
        bridge_streams_keep(bridge, f, all);
    return status;
}

/* Requests --------------------------------------------------------------------------------------------------------- */

static weir_status bridge_streams_take(weir_onnxruntime *bridge, wi_ort_follower *f, size_t bytes, void **out)
{
    weir_runtime *runtime = bridge->runtime;
    wi_event point;
    weir_status status = wi_ort_device_alloc(bridge, bytes, f->ours, WEIR_CLASS_ACTIVATIONS, out);
    if (status != WEIR_OK)
        return status;
    status = runtime->driver->record(runtime->device, f->own, &point);
    if (status == WEIR_OK)
        status = runtime->driver->order(runtime->device, f->theirs, point);
    if (status != WEIR_OK) {
        wi_saved_detail why;
        wi_detail_save(&why);
        if (wi_ort_device_free(bridge, *out, f->ours) != WEIR_OK)
            wi_ort_report(bridge, *out, WEIR_ERR_DRIVER);
        wi_detail_restore(&why);
    }
    return status;
}

weir_status wi_ort_follow(weir_onnxruntime *bridge, void *native, size_t bytes, void **out)
{
    wi_ort_follower *f;
    weir_status status = bridge_streams_enter(bridge, native, &f);
    if (status != WEIR_OK)
        return status;
    status = bridge_streams_drain(bridge, f);
    if (status == WEIR_OK)
        status = bridge_streams_take(bridge, f, bytes, out);
    bridge_streams_leave(bridge, f, status == WEIR_OK);
    return status;
}

/* Frees without a stream ------------------------------------------------------------------------------------------- */

/* With the lock held: the next follower that has something in hand, or is needed no more and taken out of the list. */
static wi_ort_follower *next_to_give_back(weir_onnxruntime *bridge, handful *all, bool *over)
{
    for (wi_ort_follower **at = &bridge->followers.first; *at; at = &(*at)->next) {
        wi_ort_follower *f = *at;
        *all = take_hand(f);
        *over = all->count == 0 && f->busy == 0 && f->blocks == 0;
        if (*over) {
            *at = f->next;
            bridge->followers.count--;
        }
        if (*over || all->count > 0)
            return f;
    }
    return NULL;
}

/* The device is past all that was put on it before this began; what came in hand since then is left there. */
static weir_status ort_synchronize(weir_onnxruntime *bridge)
{
    weir_runtime *runtime = bridge->runtime;
    return runtime->driver->synchronize ? runtime->driver->synchronize(runtime->device) : WEIR_OK;
}

/* Gives back all that is in hand, having waited for the device, and ends followers that have nothing more. */
static weir_status relieve(weir_onnxruntime *bridge)
{
    handful all;
    bool over;
    for (;;) {
        pthread_mutex_lock(&bridge->followers.lock);
        wi_ort_follower *f = next_to_give_back(bridge, &all, &over);
        pthread_mutex_unlock(&bridge->followers.lock);
        if (!f)
            return WEIR_OK;
        if (over) {
            bridge_streams_end(bridge, f);
            continue;
        }
        weir_status status = ort_synchronize(bridge);
        if (status != WEIR_OK) {
            bridge_streams_keep(bridge, f, all);
            return status;
        }
        bridge_streams_give_back(bridge, f, all, WEIR_STREAM_HOST);
    }
}

static void bridge_streams_on_pressure(const weir_pressure *pressure, void *user)
{
    weir_onnxruntime *bridge = user;
    (void)pressure;
    if (relieve(bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: what it freed on %s cannot be given back: %s", bridge->name,
                 weir_detail());
}

static weir_stream bridge_streams_stream_of(const weir_onnxruntime *bridge, const void *pointer)
{
    weir_block_details details = {.struct_size = sizeof details};
    if (bridge->runs.member)
        return wi_ort_runs_stream(&bridge->runs, pointer);
    return weir_block_info(pointer, &details) == WEIR_OK && details.client == bridge->client &&
                   details.block.pointer == pointer && details.state == WEIR_BLOCK_LIVE
               ? details.stream
               : WEIR_STREAM_HOST;
}

/* Keeps a block in hand that was allocated on a stream of ours. */
static bool kept_in_hand(weir_onnxruntime *bridge, void *pointer, weir_stream stream, weir_status *status)
{
    pthread_mutex_lock(&bridge->followers.lock);
    wi_ort_follower *f = find_ours(bridge, stream);
    bool again = f && is_in_hand(f, pointer);
    bool kept = f && !again && put_in_hand(f, pointer);
    pthread_mutex_unlock(&bridge->followers.lock);
    *status = again ? weir_fail(WEIR_ERR_DOUBLE_FREE, "%p was freed before", pointer) : WEIR_OK;
    return kept || again;
}

weir_status wi_ort_let_go(weir_onnxruntime *bridge, const wi_ort_table *table, void *pointer)
{
    weir_status status;
    weir_stream stream = table->kind == WEIR_KIND_DEVICE ? bridge_streams_stream_of(bridge, pointer) : WEIR_STREAM_HOST;
    if (stream.id != 0 && stream.id == bridge->stream.id)
        return wi_ort_device_free(bridge, pointer, stream);
    if (kept_in_hand(bridge, pointer, stream, &status))
        return status;
    status = ort_synchronize(bridge);
    if (status != WEIR_OK)
        return status;
    status = table->kind == WEIR_KIND_DEVICE ? wi_ort_device_free(bridge, pointer, WEIR_STREAM_HOST)
                                             : wi_ort_pinned_free(bridge, pointer, true);
    wi_saved_detail why;
    wi_detail_save(&why);
    if (relieve(bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: what it freed on %s waits: %s", bridge->name, weir_detail());
    wi_detail_restore(&why);
    return status;
}

void wi_ort_followers_end(weir_onnxruntime *bridge)
{
    if (bridge->followers.pressure && wi_ort_stop_watching(bridge->runtime, bridge->followers.pressure) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: %s", weir_detail());
    if (relieve(bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: what it freed on %s stays: %s", bridge->name, weir_detail());
}
