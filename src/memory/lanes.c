#include "memory/lanes.h"
#include "base/plant.h"
#include "base/system.h"

#include <sched.h>

/* After so many frees an epoch is closed where somebody else could want them: an event and the questions about it then
 * cost each free a few nanoseconds (cuEventRecord and cuEventQuery take about 0.5 microseconds; docs/benchmarks.md). */
enum { FREES_PER_EPOCH = 64 };

void wi_lanes_init(wi_lanes *lanes, const wi_driver *driver, wi_device *device, pthread_mutex_t *lock, unsigned *count)
{
    *lanes = (wi_lanes){.driver = driver, .device = device, .lock = lock, .count = count};
}

void wi_lanes_destroy(wi_lanes *lanes)
{
    for (unsigned i = 0; i < WI_LANE_PLACES; i++) {
        wi_law(!lanes->places[i] || !lanes->places[i]->first);
        free(lanes->places[i]);
    }
}

wi_lane *wi_lanes_find(const wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = lanes->places[stream.id % WI_LANE_PLACES];
    return stream.id != 0 && lane && lane->stream.id == stream.id ? lane : NULL;
}

/* What the lane has up to the epoch becomes anyone's. */
static uint64_t release_up_to(wi_lane *lane, uint64_t epoch)
{
    uint64_t bytes = 0;
    while (lane->first && lane->first->epoch <= epoch) {
        bytes += lane->first->bytes;
        wi_space_neutral(lane->first->space, lane->first);
    }
    lane->passed = epoch;
    return bytes;
}

wi_lane *wi_lanes_get(wi_lanes *lanes, weir_stream stream, void *native)
{
    wi_lane **place = &lanes->places[stream.id % WI_LANE_PLACES], *lane = *place;
    if (lane && lane->stream.id == stream.id)
        return lane;
    if (!lane) {
        lane = *place = calloc(1, sizeof *lane);
        if (!lane)
            return NULL;
        lane->open = 1;
    }
    *lanes->count += lane->stream.id == 0;
    lane->stream = stream;
    lane->native = native;
    return lane;
}

uint64_t wi_lanes_forget(wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = wi_lanes_find(lanes, stream);
    if (!lane)
        return 0;
    while (lane->recording && !wi_alone) { /* on the stream, which may be destroyed after this: not for long */
        pthread_mutex_unlock(lanes->lock);
        sched_yield();
        pthread_mutex_lock(lanes->lock);
    }
    uint64_t bytes = release_up_to(lane, lane->open);
    lane->recorded = lane->open++;
    lane->freed_passed = lane->freed;
    lane->mark_count = 0;
    lane->stream.id = 0;
    --*lanes->count;
    return bytes;
}

/* Epochs ----------------------------------------------------------------------------------------------------------- */

static void add_mark(wi_lane *lane, wi_lane_mark mark)
{
    if (lane->mark_count == WI_LANE_MARKS) /* the newest stands for what it stood for as well */
        lane->mark_count--;
    lane->marks[(lane->first_mark + lane->mark_count++) % WI_LANE_MARKS] = mark;
}

static bool is_open(const wi_lane *lane)
{
    return lane->stream.id != 0 && lane->last && lane->last->epoch > lane->recorded && !lane->recording;
}

/* The stream may end meanwhile, which is then past all this. What cannot be recorded now, on a stream
 * that is being captured, stays for the next time. */
static void close_epoch(wi_lanes *lanes, wi_lane *lane)
{
    wi_lane_mark mark = {.epoch = lane->open++, .freed = lane->freed};
    weir_stream stream = lane->stream;
    void *native = lane->native;
    lane->frees = 0;
    lane->recording = true;
    pthread_mutex_unlock(lanes->lock);
    weir_status status = lanes->driver->record(lanes->device, native, &mark.event);
    pthread_mutex_lock(lanes->lock);
    lane->recording = false;
    if (status != WEIR_OK || lane->stream.id != stream.id)
        return;
    lane->recorded = mark.epoch;
    add_mark(lane, mark);
}

void wi_lanes_freed(wi_lanes *lanes, wi_lane *lane, uint64_t bytes)
{
    lane->freed += bytes;
    if (++lane->frees >= FREES_PER_EPOCH && *lanes->count > 1 && is_open(lane))
        close_epoch(lanes, lane);
}

static uint64_t pass(wi_lanes *lanes, wi_lane *lane)
{
    uint64_t passed = lane->passed;
    if (wi_plant == WI_PLANT_EARLY_REUSE)
        return release_up_to(lane, lane->open - 1);
    while (lane->mark_count > 0) {
        const wi_lane_mark *mark = &lane->marks[lane->first_mark];
        if (!lanes->driver->passed(lanes->device, mark->event))
            break;
        passed = mark->epoch;
        lane->freed_passed = mark->freed;
        lane->first_mark = (lane->first_mark + 1) % WI_LANE_MARKS;
        lane->mark_count--;
    }
    return passed > lane->passed ? release_up_to(lane, passed) : 0;
}

bool wi_lanes_any(const wi_lanes *lanes, const wi_lane *mine)
{
    for (unsigned i = 0, seen = 0; i < WI_LANE_PLACES && seen < *lanes->count; i++) {
        const wi_lane *lane = lanes->places[i];
        if (lane && lane->first && lane != mine)
            return true;
        seen += lane && lane->stream.id != 0;
    }
    return false;
}

uint64_t wi_lanes_renew(wi_lanes *lanes)
{
    uint64_t bytes = 0;
    for (unsigned i = 0, seen = 0; i < WI_LANE_PLACES && seen < *lanes->count; i++) {
        wi_lane *lane = lanes->places[i];
        if (!lane || lane->stream.id == 0)
            continue;
        seen++;
        if (is_open(lane))
            close_epoch(lanes, lane);
        bytes += pass(lanes, lane);
    }
    return bytes;
}

uint64_t wi_lanes_bytes(const wi_lanes *lanes)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < WI_LANE_PLACES; i++) {
        const wi_lane *lane = lanes->places[i];
        bytes += lane ? wi_min(lane->bytes, lane->freed - lane->freed_passed) : 0;
    }
    return bytes;
}

bool wi_lanes_oldest(const wi_lanes *lanes, wi_event *out)
{
    for (unsigned i = 0, seen = 0; i < WI_LANE_PLACES && seen < *lanes->count; i++) {
        const wi_lane *lane = lanes->places[i];
        seen += lane && lane->stream.id != 0;
        if (lane && lane->first && lane->mark_count > 0) {
            *out = lane->marks[lane->first_mark].event;
            return true;
        }
    }
    return false;
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
