#include "memory/lanes.h"
#include "base/plant.h"
#include "base/system.h"
#include "memory/record.h"

/* After so many frees an epoch is closed where somebody else could want them: an event and the questions about it then
 * cost each free a few nanoseconds (an event recorded and waited for by hand takes 0.3 microseconds on an H200; docs/benchmarks.md). */
enum { FREES_PER_EPOCH = 64 };

void wi_lanes_init(wi_lanes *lanes, wi_resource *resource, unsigned *count)
{
    lanes->resource = resource; /* all else is zeros: the tables are large, and touched as they are needed */
    lanes->count = count;
    lanes->late.gone = true;
    lanes->late.open = 1;
    lanes->gone = &lanes->late;
    resource->lanes = lanes;
}

static void lock(const wi_lanes *lanes)
{
    wi_resource_lock(lanes->resource);
}

static void unlock(const wi_lanes *lanes)
{
    wi_resource_unlock(lanes->resource);
}

static bool has_passed(const wi_lanes *lanes, wi_event event)
{
    return lanes->resource->driver->passed(lanes->resource->device, event);
}

static void free_list(wi_lane *lane, const wi_lane *end)
{
    for (wi_lane *next; lane != end; lane = next) {
        next = lane->next_gone;
        free(lane);
    }
}

void wi_lanes_destroy(wi_lanes *lanes)
{
    for (wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));)
        wi_law(!lane->first);
    free_list(lanes->gone, &lanes->late);
    free_list(lanes->spent, NULL);
    for (unsigned i = 0; i < lanes->used; i++)
        free(lanes->places[i]);
}

wi_lane *wi_lanes_next(const wi_lanes *lanes, const wi_lane *lane)
{
    if (lane && lane->gone)
        return lane->next_gone;
    for (unsigned i = lane ? lane->place + 1 : 0; i < lanes->used; i++)
        if (lanes->places[i])
            return lanes->places[i];
    return lanes->gone;
}

wi_lane *wi_lanes_find(const wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = lanes->places[stream.id % WI_LANE_PLACES];
    return stream.id != 0 && lane && lane->stream.id == stream.id ? lane : NULL;
}

void wi_lanes_trace(const wi_lanes *lanes, const wi_extent *extent, weir_stream other)
{
    wi_ledger *ledger = lanes->resource->ledger;
    if (wi_unlikely(wi_recording(ledger)))
        wi_record(ledger,
                  (weir_event){.action = WEIR_ACTION_REAP,
                               .pointer = extent->space->base + extent->offset,
                               .bytes = extent->bytes,
                               .stream = extent->lane->stream,
                               .other = other},
                  NULL);
}

/* What the lane has up to the epoch becomes anyone's. */
static uint64_t release_up_to(wi_lanes *lanes, wi_lane *lane, uint64_t epoch)
{
    uint64_t bytes = 0;
    while (lane->first && lane->first->epoch <= epoch) {
        bytes += lane->first->bytes;
        wi_lanes_trace(lanes, lane->first, lane->first->lane->stream);
        wi_space_neutral(lane->first->space, lane->first);
    }
    lane->passed = epoch;
    lanes->released += bytes;
    return bytes;
}

/* Epochs ----------------------------------------------------------------------------------------------------------- */

static void add_mark(wi_lane *lane, wi_lane_mark mark)
{
    if (lane->mark_count == WI_LANE_MARKS) /* the newest stands for what it stood for as well */
        lane->mark_count--;
    lane->marks[(lane->first_mark + lane->mark_count++) % WI_LANE_MARKS] = mark;
}

/* Something was freed since the last event; nobody is about one. */
static bool is_open(const wi_lane *lane)
{
    return lane->last && lane->last->epoch > lane->recorded && !lane->recording;
}

static bool can_record(const wi_lane *lane)
{
    return lane->stream.id != 0 && !lane->gone && is_open(lane);
}

static wi_lane_mark begin_mark(wi_lane *lane)
{
    lane->frees = 0;
    lane->recording = true;
    return (wi_lane_mark){.epoch = lane->open++, .freed = lane->freed};
}

static void end_mark(wi_lane *lane, const wi_lane_mark *mark, bool good)
{
    lane->recording = false;
    lane->refused = !good;
    if (!good)
        return;
    lane->recorded = mark->epoch;
    add_mark(lane, *mark);
}

/* What cannot be recorded now, on a stream that is being captured, stays for the next time. An event of a stream that has
 * ended meanwhile may be on another one, whose record the driver has made of its own. */
static void close_epoch(wi_lanes *lanes, wi_lane *lane)
{
    weir_stream stream = lane->stream;
    void *native = lane->native;
    wi_lane_mark mark = begin_mark(lane);
    unlock(lanes);
    weir_status status = lanes->resource->driver->record(lanes->resource->device, native, &mark.event);
    lock(lanes);
    end_mark(lane, &mark, status == WEIR_OK && !lane->gone && lane->stream.id == stream.id);
}

void wi_lanes_freed(wi_lanes *lanes, wi_lane *lane, uint64_t bytes, uint64_t count)
{
    lane->freed += bytes;
    lane->frees += count;
    if (lane->frees >= FREES_PER_EPOCH && *lanes->count > 1 && can_record(lane))
        close_epoch(lanes, lane);
}

void wi_lanes_returned(wi_lane *lane, uint64_t bytes)
{
    lane->freed += bytes;
    lane->frees++;
}

static uint64_t pass(wi_lanes *lanes, wi_lane *lane)
{
    uint64_t passed = lane->passed;
    if (wi_plant == WI_PLANT_EARLY_REUSE)
        return release_up_to(lanes, lane, lane->open - 1);
    while (lane->mark_count > 0) {
        const wi_lane_mark *mark = &lane->marks[lane->first_mark];
        if (!has_passed(lanes, mark->event))
            break;
        passed = mark->epoch;
        lane->freed_passed = mark->freed;
        lane->first_mark = (lane->first_mark + 1) % WI_LANE_MARKS;
        lane->mark_count--;
    }
    return passed > lane->passed ? release_up_to(lanes, lane, passed) : 0;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static uint32_t generation_of(weir_stream stream)
{
    return (uint32_t)(stream.id >> 16);
}

static bool has_ended(const wi_lanes *lanes, weir_stream stream)
{
    return generation_of(stream) <= lanes->ended[stream.id % WI_LANE_PLACES];
}

static void note_end(wi_lanes *lanes, weir_stream stream)
{
    uint32_t *ended = &lanes->ended[stream.id % WI_LANE_PLACES];
    *ended = *ended < generation_of(stream) ? generation_of(stream) : *ended;
}

static wi_lane *new_lane(wi_lanes *lanes)
{
    wi_lane *lane = lanes->spent;
    if (lane) {
        lanes->spent = lane->next_gone;
        lane->gone = false;
        return lane;
    }
    lane = calloc(1, sizeof *lane);
    if (lane)
        lane->open = 1;
    return lane;
}

wi_lane *wi_lanes_get(wi_lanes *lanes, weir_stream stream, void *native)
{
    unsigned place = stream.id % WI_LANE_PLACES;
    wi_lane *lane = lanes->places[place];
    if (lane && lane->stream.id == stream.id)
        return lane;
    if ((lane && lane->stream.id != 0) || has_ended(lanes, stream))
        return NULL;
    if (!lane) {
        lane = lanes->places[place] = new_lane(lanes);
        if (!lane)
            return NULL;
        lane->place = place;
        lanes->used = lanes->used > place ? lanes->used : place + 1;
    }
    ++*lanes->count;
    lane->stream = stream;
    lane->native = native;
    lane->refused = false;
    return lane;
}

wi_lane *wi_lanes_get_late(wi_lanes *lanes, weir_stream stream, void *native)
{
    wi_lane *lane = stream.id ? wi_lanes_get(lanes, stream, native) : NULL;
    return lane ? lane : &lanes->late;
}

/* A thread that is about to record on the stream, which may be destroyed after this, is not about it for long. */
static void let_record(wi_lanes *lanes, const wi_lane *lane)
{
    for (unsigned turn = 0; lane->recording && !wi_alone; turn++) {
        unlock(lanes);
        wi_pause(turn);
        lock(lanes);
    }
}

uint64_t wi_lanes_forget(wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = wi_lanes_find(lanes, stream);
    note_end(lanes, stream);
    if (!lane)
        return 0;
    let_record(lanes, lane);
    uint64_t bytes = release_up_to(lanes, lane, lane->open);
    lane->recorded = lane->open++;
    lane->freed_passed = lane->freed;
    lane->frees = 0;
    lane->mark_count = 0;
    lane->stream.id = 0;
    --*lanes->count;
    return bytes;
}

/* Extents that are busy keep the lane, and what was freed since the last event waits for more than its events: the next stream
 * gets another one. */
void wi_lanes_abandon(wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = wi_lanes_find(lanes, stream);
    note_end(lanes, stream);
    if (!lane)
        return;
    let_record(lanes, lane);
    lane->gone = true;
    lane->native = NULL;
    lane->next_gone = lanes->gone;
    lanes->gone = lane;
    lanes->places[lane->place] = NULL;
    --*lanes->count;
}

/* Those for which nothing waits serve the next streams. Busy extents may still name them, of epochs that have passed. */
static void collect_spent(wi_lanes *lanes)
{
    for (wi_lane **link = &lanes->gone, *lane; (lane = *link) && lane != &lanes->late;) {
        bool spent = !lane->first && !lane->recording && lane->frees == 0 && lane->passed == lane->open - 1;
        if (!spent) {
            link = &lane->next_gone;
            continue;
        }
        *link = lane->next_gone;
        lane->next_gone = lanes->spent;
        lanes->spent = lane;
    }
}

/* Something was freed that no event of the stream's will tell of. */
static bool wants_bound(const wi_lane *lane)
{
    bool gone = lane->gone && (lane->recorded < lane->open - 1 || lane->frees > 0);
    return !lane->recording && (gone || (lane->refused && is_open(lane)));
}

static bool any_wants_bound(const wi_lanes *lanes)
{
    bool any = false;
    for (const wi_lane *lane = NULL; !any && (lane = wi_lanes_next(lanes, lane));)
        any = wants_bound(lane);
    return any;
}

bool wi_lanes_bound(wi_lanes *lanes)
{
    const wi_resource *r = lanes->resource;
    wi_event event;
    if (!r->driver->record_all || lanes->bounding || !any_wants_bound(lanes))
        return false;
    for (wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));)
        lane->bound = wants_bound(lane) ? begin_mark(lane) : (wi_lane_mark){.epoch = 0};
    lanes->bounding = true;
    unlock(lanes);
    weir_status status = r->driver->record_all(r->device, &event);
    lock(lanes);
    lanes->bounding = false;
    for (wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));)
        if (lane->bound.epoch > 0) {
            lane->bound.event = event;
            end_mark(lane, &lane->bound, status == WEIR_OK);
            lane->bound.epoch = 0;
        }
    return status == WEIR_OK;
}

void wi_lanes_drain(wi_lanes *lanes)
{
    const wi_resource *r = lanes->resource;
    (void)wi_lanes_bound(lanes);
    if (any_wants_bound(lanes) && r->driver->settle)
        (void)r->driver->settle(r->device);
    for (wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));) {
        if (lane->first && lane->mark_count > 0) {
            const wi_lane_mark *last = &lane->marks[(lane->first_mark + lane->mark_count - 1) % WI_LANE_MARKS];
            (void)r->driver->wait(r->device, last->event, UINT64_MAX);
        }
        (void)release_up_to(lanes, lane, lane->open);
    }
}

/* All lanes -------------------------------------------------------------------------------------------------------- */

uint64_t wi_lanes_renew(wi_lanes *lanes)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < lanes->used; i++) {
        wi_lane *lane = lanes->places[i];
        if (!lane || lane->stream.id == 0)
            continue;
        if (can_record(lane))
            close_epoch(lanes, lane);
        bytes += pass(lanes, lane);
    }
    for (wi_lane *lane = lanes->gone; lane; lane = lane->next_gone)
        bytes += pass(lanes, lane);
    collect_spent(lanes);
    return bytes;
}

uint64_t wi_lanes_bytes(const wi_lanes *lanes)
{
    uint64_t bytes = 0;
    for (const wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));)
        bytes += wi_min(lane->bytes, lane->freed - lane->freed_passed);
    return bytes;
}

bool wi_lanes_oldest(const wi_lanes *lanes, weir_stream but, wi_event *out)
{
    const wi_lane *most = NULL;
    for (const wi_lane *lane = NULL; (lane = wi_lanes_next(lanes, lane));) {
        bool waits = lane->first && lane->mark_count > 0 && (but.id == 0 || lane->stream.id != but.id);
        if (waits && (!most || lane->bytes > most->bytes))
            most = lane;
    }
    if (most)
        *out = most->marks[most->first_mark].event;
    return most != NULL;
}

bool wi_lanes_point(const wi_extent *extent, wi_event *out)
{
    const wi_lane *lane = extent->lane;
    for (unsigned i = 0; i < lane->mark_count; i++) {
        const wi_lane_mark *mark = &lane->marks[(lane->first_mark + i) % WI_LANE_MARKS];
        if (mark->epoch >= extent->epoch) {
            *out = mark->event;
            return true;
        }
    }
    return false;
}
