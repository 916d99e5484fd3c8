#include "memory/lanes.h"
#include "base/plant.h"
#include "base/system.h"
#include "memory/record.h"

#include <sched.h>

/* After so many frees an epoch is closed where somebody else could want them: an event and the questions about it then
 * cost each free a few nanoseconds (an event recorded and waited for by hand takes 0.3 microseconds on an H200; docs/benchmarks.md). */
enum { FREES_PER_EPOCH = 64 };

void wi_lanes_init(wi_lanes *lanes, wi_resource *resource, unsigned *count)
{
    *lanes = (wi_lanes){.resource = resource};
    lanes->count = count;
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

void wi_lanes_trace(const wi_lanes *lanes, const wi_extent *extent, weir_stream other)
{
    wi_ledger *ledger = lanes->resource->ledger;
    if (wi_unlikely(wi_recording(ledger)))
        wi_record(ledger,
                  (weir_event){.action = WEIR_REAP,
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

static bool is_open(const wi_lane *lane)
{
    return lane->stream.id != 0 && !lane->gone && lane->last && lane->last->epoch > lane->recorded && !lane->recording;
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
    unlock(lanes);
    weir_status status = lanes->resource->driver->record(lanes->resource->device, native, &mark.event);
    lock(lanes);
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

wi_lane *wi_lanes_get(wi_lanes *lanes, weir_stream stream, void *native)
{
    wi_lane **place = &lanes->places[stream.id % WI_LANE_PLACES], *lane = *place;
    if (lane && lane->stream.id == stream.id)
        return lane;
    if (lane && lane->gone && (pass(lanes, lane), lane->first))
        return NULL;
    if (!lane) {
        lane = *place = calloc(1, sizeof *lane);
        if (!lane)
            return NULL;
        lane->open = 1;
    }
    *lanes->count += lane->stream.id == 0;
    lane->stream = stream;
    lane->native = native;
    lane->gone = false;
    return lane;
}

/* A thread that is about to record on the stream, which may be destroyed after this, is not about it for long. */
static void let_record(wi_lanes *lanes, const wi_lane *lane)
{
    while (lane->recording && !wi_alone) {
        unlock(lanes);
        sched_yield();
        lock(lanes);
    }
}

uint64_t wi_lanes_forget(wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = wi_lanes_find(lanes, stream);
    if (!lane)
        return 0;
    let_record(lanes, lane);
    uint64_t bytes = release_up_to(lanes, lane, lane->open);
    lane->recorded = lane->open++;
    lane->freed_passed = lane->freed;
    lane->mark_count = 0;
    lane->stream.id = 0;
    --*lanes->count;
    return bytes;
}

void wi_lanes_abandon(wi_lanes *lanes, weir_stream stream)
{
    wi_lane *lane = wi_lanes_find(lanes, stream);
    if (!lane)
        return;
    let_record(lanes, lane);
    if (is_open(lane))
        close_epoch(lanes, lane);
    lane->gone = true;
    lane->native = NULL;
}

void wi_lanes_drain(wi_lanes *lanes)
{
    for (unsigned i = 0; i < WI_LANE_PLACES; i++) {
        wi_lane *lane = lanes->places[i];
        if (!lane || !lane->first)
            continue;
        if (lane->mark_count > 0) {
            const wi_lane_mark *last = &lane->marks[(lane->first_mark + lane->mark_count - 1) % WI_LANE_MARKS];
            (void)lanes->resource->driver->wait(lanes->resource->device, last->event, UINT64_MAX);
        }
        (void)release_up_to(lanes, lane, lane->open);
    }
}

/* All lanes -------------------------------------------------------------------------------------------------------- */

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

bool wi_lanes_oldest(const wi_lanes *lanes, weir_stream but, wi_event *out)
{
    const wi_lane *most = NULL;
    for (unsigned i = 0, seen = 0; i < WI_LANE_PLACES && seen < *lanes->count; i++) {
        const wi_lane *lane = lanes->places[i];
        seen += lane && lane->stream.id != 0;
        bool waits = lane && lane->first && lane->mark_count > 0 && (but.id == 0 || lane->stream.id != but.id);
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
