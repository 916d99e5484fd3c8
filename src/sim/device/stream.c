/* The simulated device's streams, and its time.
 *
 * An event is {stream, how much was queued then}, as on the host. Nothing is done until the world runs; a host thread that
 * waits runs it, in an order drawn from the seed, until what it waits for is done or its deadline has come. */
#include "sim/device/internal.h"

#define SECOND UINT64_C(1000000000)

static _Atomic uint64_t now = SECOND;

uint64_t wi_sim_now(void)
{
    return now;
}

void wi_sim_seed(wi_device *device, uint64_t seed)
{
    device->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

unsigned wi_sim_number(const void *stream)
{
    return stream ? ((const wi_sim_stream *)stream)->number : 0;
}

uint64_t wi_sim_done(wi_device *device, unsigned stream)
{
    if (stream == 0)
        return 0;
    return device->streams[stream - 1] ? device->streams[stream - 1]->done : device->reached[stream - 1];
}

uint64_t wi_sim_queued(wi_device *device, unsigned stream)
{
    if (stream == 0)
        return 0;
    return device->streams[stream - 1] ? device->streams[stream - 1]->queued : device->reached[stream - 1];
}

/* Running ---------------------------------------------------------------------------------------------------------- */

static bool device_stream_is_done(wi_event event)
{
    const wi_sim_stream *s = event.stream;
    return !s || event.sequence <= s->done;
}

static const wi_sim_work *device_stream_head(const wi_sim_stream *s)
{
    return &s->ring[(s->done + 1) & (s->capacity - 1)];
}

static bool can_run(const wi_sim_stream *s)
{
    if (!s || s->done == s->queued || s->stalled_until > now)
        return false;
    return device_stream_head(s)->kind != WI_SIM_DO_ORDER || device_stream_is_done(device_stream_head(s)->event);
}

static void device_stream_run_one(wi_sim_stream *s)
{
    wi_sim_do(s->device, device_stream_head(s));
    s->done++;
    now += 1000 + wi_sim_random(&s->device->random) % 64000;
    wi_assert(s->done <= s->queued);
}

/* One piece of work of a stream that chance picks; false: none can run. */
static bool run_any(wi_device *device)
{
    unsigned start = (unsigned)(wi_sim_random(&device->random) >> 32) % WI_SIM_STREAMS;
    for (unsigned i = 0; i < WI_SIM_STREAMS; i++) {
        wi_sim_stream *s = device->streams[(start + i) % WI_SIM_STREAMS];
        if (can_run(s)) {
            device_stream_run_one(s);
            return true;
        }
    }
    return false;
}

/* Nothing can run before a stall ends: lets time pass until then, or until the deadline. False: nothing ever will. */
static bool pass_time(wi_device *device, uint64_t deadline)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < WI_SIM_STREAMS; i++) {
        const wi_sim_stream *s = device->streams[i];
        if (s && s->done < s->queued && s->stalled_until > now)
            next = wi_min(next, s->stalled_until);
    }
    next = wi_min(next, deadline);
    if (next == UINT64_MAX)
        return false;
    now = wi_max(now, next);
    return true;
}

/* Runs the world until the event is done or the clock reads `deadline`. */
static weir_status run_until(wi_device *device, wi_event event, uint64_t deadline)
{
    while (!device_stream_is_done(event) && now < deadline)
        if (!run_any(device) && !pass_time(device, deadline)) {
            wi_sim_wrong(device, "stream %u waits for what never happens", wi_sim_number(event.stream));
            return weir_fail(WEIR_ERR_DRIVER, "sim: the streams wait for one another");
        }
    (void)wi_sim_is_past(device, event);
    return WEIR_OK;
}

/* With the lock held: streams that ended without notice, are not known to weir any more, and have no work. */
static void device_stream_collect(wi_device *device)
{
    for (unsigned i = 0; i < WI_SIM_STREAMS; i++) {
        wi_sim_stream *s = device->streams[i];
        if (!s || !s->over || s->adopted > 0 || s->done < s->queued)
            continue;
        device->streams[i] = NULL;
        device->reached[i] = s->queued;
        free(s->ring);
        s->ring = NULL;
        s->next_ended = device->ended;
        device->ended = s;
    }
}

void wi_sim_run_all(wi_device *device)
{
    pthread_mutex_lock(&device->lock);
    while (run_any(device) || pass_time(device, UINT64_MAX))
        ;
    device_stream_collect(device);
    pthread_mutex_unlock(&device->lock);
}

/* Runs all work and tells the watcher that the host knows of its end. */
weir_status wi_sim_synchronize(wi_device *device)
{
    wi_sim_run_all(device);
    pthread_mutex_lock(&device->lock);
    for (unsigned number = 1; device->watcher.pass && number <= WI_SIM_STREAMS; number++)
        if (wi_sim_done(device, number) > 0)
            device->watcher.pass(device->watcher.user, number, wi_sim_done(device, number));
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

unsigned wi_sim_run(wi_device *device, unsigned stream, unsigned most)
{
    unsigned count = 0;
    pthread_mutex_lock(&device->lock);
    if (stream == 0) {
        while (count < most && run_any(device))
            count++;
        if (count == 0) /* time passes, so that stalled streams go on */
            now += SECOND / 100;
    }
    wi_sim_stream *s = stream ? device->streams[stream - 1] : NULL;
    while (s && count < most && can_run(s)) {
        device_stream_run_one(s);
        count++;
    }
    pthread_mutex_unlock(&device->lock);
    return count;
}

void wi_sim_stall(wi_device *device, unsigned stream, uint64_t nanoseconds)
{
    pthread_mutex_lock(&device->lock);
    if (stream && device->streams[stream - 1])
        device->streams[stream - 1]->stalled_until = now + nanoseconds;
    pthread_mutex_unlock(&device->lock);
}

/* Queueing --------------------------------------------------------------------------------------------------------- */

void wi_sim_lock(wi_device *device)
{
    pthread_mutex_lock(&device->lock);
    if (device->by_itself)
        (void)run_any(device);
}

void wi_sim_unlock(wi_device *device)
{
    pthread_mutex_unlock(&device->lock);
}

static bool device_stream_make_room(wi_sim_stream *s)
{
    if (s->queued - s->done + 1 < s->capacity)
        return true;
    uint64_t capacity = s->capacity ? s->capacity * 2 : 64;
    wi_sim_work *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return false;
    for (uint64_t n = s->done + 1; n <= s->queued; n++)
        ring[n & (capacity - 1)] = s->ring[n & (s->capacity - 1)];
    free(s->ring);
    s->ring = ring;
    s->capacity = capacity;
    return true;
}

static void tell_touch(wi_device *device, const wi_sim_stream *s, const void *address, uint64_t bytes, bool write,
                       bool own)
{
    if (device->watcher.touch)
        device->watcher.touch(device->watcher.user, s ? s->number : 0, s ? s->queued : 0, address, bytes, write, own);
}

static weir_status add_to_graph(wi_sim_graph *graph, const wi_sim_work *work, bool own)
{
    if (!wi_make_room(&graph->work, graph->count, &graph->capacity, sizeof *graph->work))
        return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory for a graph");
    graph->work[graph->count] = *work;
    graph->work[graph->count++].own = own;
    return WEIR_OK;
}

/* With the lock held: queues the work, or runs the work at once if s is NULL, and tells the watcher about the touched
 * bytes. Work in a graph runs when the graph is launched, or never. */
static weir_status device_stream_put(wi_device *device, wi_sim_stream *s, const wi_sim_work *work, bool own)
{
    if (s && s->captured)
        return s->graph ? add_to_graph(s->graph, work, own) : WEIR_OK;
    if (s) {
        if (!device_stream_make_room(s))
            return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory to queue work");
        s->ring[++s->queued & (s->capacity - 1)] = *work;
    }
    if (work->kind == WI_SIM_DO_COPY && work->from)
        tell_touch(device, s, work->from, work->bytes, false, own);
    if (work->kind <= WI_SIM_DO_COPY)
        tell_touch(device, s, work->to, work->bytes, work->kind != WI_SIM_DO_READ, own);
    if (!s)
        wi_sim_do(device, work);
    return WEIR_OK;
}

static weir_status enter_and_put(wi_device *device, wi_sim_call call, wi_sim_stream *s, const wi_sim_work *work)
{
    weir_status status = wi_sim_enter(call);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    status = device_stream_put(device, wi_sim_at(device, s), work, true);
    wi_sim_unlock(device);
    return status;
}

weir_status wi_sim_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    wi_sim_work work = {.kind = WI_SIM_DO_COPY, .to = to, .from = from, .bytes = bytes};
    return enter_and_put(device, WI_SIM_COPY, stream, &work);
}

weir_status wi_sim_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    wi_sim_work work = {.kind = WI_SIM_DO_WRITE, .to = to, .bytes = bytes, .version = WI_SIM_ZERO + value};
    return enter_and_put(device, WI_SIM_FILL, stream, &work);
}

weir_status wi_sim_do_call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    wi_sim_work work = {.kind = WI_SIM_DO_CALL, .fn = fn, .user = user};
    return enter_and_put(device, WI_SIM_CALL, stream, &work);
}

void wi_sim_touch(wi_device *device, void *stream, const void *address, uint64_t bytes, bool write, uint32_t version)
{
    wi_sim_work work = {
        .kind = write ? WI_SIM_DO_WRITE : WI_SIM_DO_READ, .to = (char *)address, .bytes = bytes, .version = version};
    wi_sim_lock(device);
    (void)device_stream_put(device, stream, &work, false);
    wi_sim_unlock(device);
}

/* Events ----------------------------------------------------------------------------------------------------------- */

wi_sim_stream *wi_sim_at(wi_device *device, void *stream)
{
    wi_sim_stream *s = stream;
    if (s && s->over && s->adopted == 0)
        wi_sim_wrong(device, "stream %u has ended and was forgotten, and something is asked about it", s->number);
    while (s && s->over && s->next)
        s = s->next;
    return s;
}

weir_status wi_sim_check_capture(const wi_sim_stream *s, const char *what)
{
    if (!s || !s->captured)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_STREAM_MISUSE,
                     "sim: %s on stream %u, which is being captured: do it after the capture or on another stream",
                     what, s->number);
}

static wi_event device_stream_record(wi_device *device, wi_sim_stream *s)
{
    if (s && device->watcher.record)
        device->watcher.record(device->watcher.user, s->number, s->queued);
    return s ? (wi_event){s, s->queued} : (wi_event){0};
}

weir_status wi_sim_record(wi_device *device, void *stream, wi_event *out)
{
    *out = (wi_event){0};
    weir_status status = wi_sim_enter(WI_SIM_RECORD);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    wi_sim_stream *s = stream;
    if (s && s->over)
        status = weir_fail(WEIR_ERR_STREAM_MISUSE, "sim: an event on stream %u, which has ended", s->number);
    if (status == WEIR_OK)
        status = wi_sim_check_capture(s, "an event");
    if (status == WEIR_OK)
        *out = device_stream_record(device, s);
    wi_sim_unlock(device);
    return status;
}

wi_event wi_sim_point(wi_device *device, void *stream)
{
    return device_stream_record(device, stream);
}

bool wi_sim_is_past(wi_device *device, wi_event event)
{
    bool done = device_stream_is_done(event);
    if (done && event.stream && device->watcher.pass)
        device->watcher.pass(device->watcher.user, wi_sim_number(event.stream), event.sequence);
    return done;
}

bool wi_sim_passed(wi_device *device, wi_event event)
{
    (void)wi_sim_enter(WI_SIM_PASSED);
    if (!event.stream)
        return true;
    wi_sim_lock(device);
    bool done = wi_sim_is_past(device, event);
    wi_sim_unlock(device);
    return done;
}

weir_status wi_sim_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    weir_status status = wi_sim_enter(WI_SIM_WAIT);
    if (status != WEIR_OK || !event.stream)
        return status;
    wi_sim_lock(device);
    status = run_until(device, event, deadline);
    wi_sim_unlock(device);
    return status;
}

static weir_status device_stream_order(wi_device *device, wi_sim_stream *s, wi_event event, bool own)
{
    if (!event.stream || event.stream == s)
        return WEIR_OK;
    if (!s)
        return run_until(device, event, UINT64_MAX);
    weir_status status = device_stream_put(device, s, &(wi_sim_work){.kind = WI_SIM_DO_ORDER, .event = event}, own);
    if (status == WEIR_OK && device->watcher.order)
        device->watcher.order(device->watcher.user, s->number, wi_sim_number(event.stream), event.sequence);
    return status;
}

weir_status wi_sim_order(wi_device *device, void *stream, wi_event event)
{
    weir_status status = wi_sim_enter(WI_SIM_ORDER);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    wi_sim_stream *s = wi_sim_at(device, stream);
    bool needed = event.stream && event.stream != s && !device_stream_is_done(event);
    if (needed)
        status = wi_sim_check_capture(s, "waiting for another stream");
    if (status == WEIR_OK)
        status = device_stream_order(device, s, event, true);
    wi_sim_unlock(device);
    return status;
}

void wi_sim_follow(wi_device *device, void *stream, void *other)
{
    wi_sim_lock(device);
    (void)device_stream_order(device, stream, device_stream_record(device, other), false);
    wi_sim_unlock(device);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

/* With the lock held. NULL: there is no number left, or no memory. */
static wi_sim_stream *make_stream(wi_device *device)
{
    wi_sim_stream *s = calloc(1, sizeof *s);
    unsigned number = 1;
    device_stream_collect(device);
    while (number <= WI_SIM_STREAMS && device->streams[number - 1])
        number++;
    if (s && number <= WI_SIM_STREAMS) {
        s->number = number;
        s->device = device;
        s->identity = ++device->last_identity;
        s->queued = s->done = device->reached[number - 1];
        s->native = s;
        device->streams[number - 1] = s;
        return s;
    }
    free(s);
    return NULL;
}

weir_status wi_sim_stream_create(wi_device *device, void **out)
{
    weir_status status = wi_sim_enter(WI_SIM_STREAM_CREATE);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    *out = make_stream(device);
    wi_sim_unlock(device);
    return *out ? WEIR_OK
                : weir_fail(WEIR_ERR_SYSTEM, "sim: all %d streams exist, or no memory for one", WI_SIM_STREAMS);
}

void *wi_sim_address(const void *stream)
{
    return ((const wi_sim_stream *)stream)->native;
}

bool wi_sim_replace(wi_device *device, void *stream, void **next)
{
    wi_sim_stream *s = stream;
    unsigned over = 0;
    wi_sim_lock(device);
    device_stream_collect(device);
    for (unsigned i = 0; i < WI_SIM_STREAMS; i++)
        over += device->streams[i] && device->streams[i]->over;
    wi_sim_stream *made = over < WI_SIM_OVER ? make_stream(device) : NULL;
    if (made) {
        made->native = s->native;
        s->over = true;
        s->next = made;
        *next = made;
    }
    wi_sim_unlock(device);
    return made;
}

/* A stream that was made past weir. The pointer is only compared: what it points to may be gone, or never have been
 * this stream. */
weir_status wi_sim_stream_adopt(wi_device *device, void *native, void **out, uint64_t *identity)
{
    wi_sim_stream *found = NULL;
    if (!native)
        return weir_fail(WEIR_ERR_INVALID, "sim: no stream is given");
    wi_sim_lock(device);
    for (unsigned i = 0; i < WI_SIM_STREAMS; i++)
        if (device->streams[i] && !device->streams[i]->over && device->streams[i]->native == native)
            found = device->streams[i];
    if (found) {
        found->adopted++;
        *out = found;
        if (identity)
            *identity = found->identity;
    }
    wi_sim_unlock(device);
    return found ? WEIR_OK : weir_fail(WEIR_ERR_STREAM_MISUSE, "sim: %p is no stream of this device", native);
}

bool wi_sim_stream_capturing(wi_device *device, void *stream)
{
    pthread_mutex_lock(&device->lock);
    const wi_sim_stream *s = stream;
    bool captured = s && !s->over && s->captured;
    pthread_mutex_unlock(&device->lock);
    return captured;
}

void wi_sim_capture(wi_device *device, void *stream, bool captured)
{
    wi_sim_stream *s = stream;
    pthread_mutex_lock(&device->lock);
    s->captured = captured;
    pthread_mutex_unlock(&device->lock);
}

bool wi_sim_capture_graph(wi_device *device, void *stream)
{
    wi_sim_stream *s = stream;
    wi_sim_graph *graph = calloc(1, sizeof *graph);
    pthread_mutex_lock(&device->lock);
    s->graph = graph;
    s->captured = graph != NULL;
    pthread_mutex_unlock(&device->lock);
    return graph;
}

wi_sim_graph *wi_sim_captured(wi_device *device, void *stream)
{
    wi_sim_stream *s = stream;
    pthread_mutex_lock(&device->lock);
    wi_sim_graph *graph = s->graph;
    s->graph = NULL;
    s->captured = false;
    pthread_mutex_unlock(&device->lock);
    return graph;
}

void wi_sim_launch(wi_device *device, const wi_sim_graph *graph, void *stream)
{
    wi_sim_lock(device);
    for (size_t i = 0; i < graph->count; i++)
        (void)device_stream_put(device, stream, &graph->work[i], graph->work[i].own);
    wi_sim_unlock(device);
}

void wi_sim_graph_end(wi_sim_graph *graph)
{
    if (graph)
        free(graph->work);
    free(graph);
}

weir_status wi_sim_stream_synchronize(wi_device *device, void *stream)
{
    weir_status status = wi_sim_enter(WI_SIM_SYNCHRONIZE);
    if (status != WEIR_OK || !stream)
        return status;
    wi_sim_lock(device);
    wi_sim_stream *s = wi_sim_at(device, stream);
    status = wi_sim_check_capture(s, "waiting for its work");
    if (status == WEIR_OK)
        status = run_until(device, device_stream_record(device, s), UINT64_MAX);
    wi_sim_unlock(device);
    return status;
}

/* Ends a registration. The stream's work goes on, even if the stream has ended. */
void wi_sim_stream_abandon(wi_device *device, void *stream)
{
    wi_sim_stream *s = stream;
    wi_sim_lock(device);
    wi_assert(s->adopted > 0);
    s->adopted--;
    wi_sim_unlock(device);
}

/* Runs all queued work to its end, because the driver has no event for a whole device. */
weir_status wi_sim_record_all(wi_device *device, wi_event *out)
{
    *out = (wi_event){0};
    weir_status status = wi_sim_enter(WI_SIM_RECORD);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    for (unsigned i = 0; i < WI_SIM_STREAMS && status == WEIR_OK; i++)
        status = wi_sim_check_capture(device->streams[i], "a point behind all work");
    for (unsigned i = 0; i < WI_SIM_STREAMS && status == WEIR_OK; i++)
        if (device->streams[i])
            status = run_until(device, device_stream_record(device, device->streams[i]), UINT64_MAX);
    wi_sim_unlock(device);
    return status;
}

void wi_sim_stream_destroy(wi_device *device, void *stream)
{
    wi_sim_stream *s = stream;
    wi_sim_lock(device);
    if (s->adopted > 0 || s->over) {
        if (s->adopted == 0)
            wi_sim_wrong(device, "stream %u has ended and was forgotten, and is forgotten again", s->number);
        s->adopted -= s->adopted > 0;
        wi_sim_unlock(device);
        return;
    }
    (void)run_until(device, device_stream_record(device, s), UINT64_MAX);
    device->streams[s->number - 1] = NULL;
    device->reached[s->number - 1] = s->queued;
    free(s->ring);
    s->ring = NULL;
    s->next_ended = device->ended;
    device->ended = s;
    wi_sim_unlock(device);
}
