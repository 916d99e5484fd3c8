#include "core/toy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { UNIT_BYTES = 256, AREAS = 4, DEPENDENCIES = 256, DEATHS = 1 << 16 };
#define AREA          ((uint64_t)1 << 30)
#define LEAST_GRANULE 1024

toy the_toy;

/* Addresses serve one trace after the other. */
static struct area {
    char *base;
    toy_handle **handles; /* by granule */
    bool taken;
} areas[AREAS];

static struct stream {
    uint64_t queued, done;
    uint64_t behind[TOY_STREAMS]; /* what comes now is behind that of the others */
    struct {
        uint64_t at, point;
        unsigned stream;
    } waits[DEPENDENCIES];
    unsigned wait_count;
    bool taken;
} streams[TOY_STREAMS];

static toy_death deaths[DEATHS];
static uint32_t death_count;

static void wrong(const char *what)
{
    if (!the_toy.wrong)
        the_toy.wrong = what;
}

void toy_reset(uint64_t granule, uint64_t capacity, uint64_t budget)
{
    the_toy = (toy){.granule = granule, .capacity = capacity, .budget = budget, .fail_in = -1};
    memset(streams, 0, sizeof streams);
    death_count = 1;
}

static bool fails(void)
{
    if (the_toy.fail_in < 0 || the_toy.fail_in-- > 0)
        return false;
    return the_toy.failed = true;
}

static void let_others_work(void)
{
    if (the_toy.meanwhile)
        the_toy.meanwhile(the_toy.user);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

unsigned toy_stream(const void *native)
{
    return native ? (unsigned)((const struct stream *)native - streams) : 0;
}

uint64_t toy_queue(unsigned stream)
{
    return ++streams[stream].queued;
}

/* As far as the streams that it waits for let it. */
void toy_go_on(unsigned stream, uint64_t most)
{
    struct stream *s = &streams[stream];
    uint64_t to = s->queued - s->done < most ? s->queued : s->done + most;
    for (unsigned i = 0; i < s->wait_count; i++)
        if (s->waits[i].at <= to && streams[s->waits[i].stream].done < s->waits[i].point)
            to = s->waits[i].at - 1;
    s->done = to > s->done ? to : s->done;
}

bool toy_is_idle(unsigned stream)
{
    return streams[stream].done == streams[stream].queued;
}

/* With all that it waits for. */
static void finish(unsigned stream, uint64_t point)
{
    struct stream *s = &streams[stream];
    for (unsigned i = 0; i < s->wait_count && s->done < point; i++)
        if (s->waits[i].at <= point)
            finish(s->waits[i].stream, s->waits[i].point);
    s->done = point > s->done ? point : s->done;
}

uint32_t toy_note_death(toy_death death)
{
    if (death_count == DEATHS)
        wrong("more frees than a trace may have");
    deaths[death_count % DEATHS] = death;
    return death_count++ % DEATHS;
}

toy_death toy_both(toy_death death, uint32_t other)
{
    for (unsigned s = 1; s < TOY_STREAMS; s++)
        death.points[s] = wi_max(death.points[s], deaths[other].points[s]);
    return death;
}

bool toy_is_behind(uint32_t death, unsigned stream)
{
    for (unsigned s = 1; death && s < TOY_STREAMS; s++) {
        uint64_t point = deaths[death].points[s];
        if (point > streams[s].done && s != stream && (stream == 0 || streams[stream].behind[s] < point))
            return false;
    }
    return true;
}

static weir_status t_stream_create(wi_device *device, void **stream)
{
    (void)device;
    for (unsigned s = 1; s < TOY_STREAMS; s++)
        if (!streams[s].taken) {
            streams[s].taken = true;
            *stream = &streams[s];
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_DRIVER, "toy: no more streams");
}

static weir_status t_stream_synchronize(wi_device *device, void *stream)
{
    (void)device;
    finish(toy_stream(stream), streams[toy_stream(stream)].queued);
    return WEIR_OK;
}

static void t_stream_destroy(wi_device *device, void *stream)
{
    (void)t_stream_synchronize(device, stream);
    streams[toy_stream(stream)].taken = false;
}

static void *t_stream_native(void *stream)
{
    return stream;
}

static bool t_stream_capturing(wi_device *device, void *stream)
{
    (void)device, (void)stream;
    return false;
}

static weir_status t_record(wi_device *device, void *stream, wi_event *out)
{
    (void)device;
    *out = (wi_event){stream, streams[toy_stream(stream)].queued};
    return WEIR_OK;
}

static bool t_passed(wi_device *device, wi_event event)
{
    (void)device;
    return streams[toy_stream(event.stream)].done >= event.sequence;
}

static weir_status t_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    (void)device, (void)deadline;
    finish(toy_stream(event.stream), event.sequence);
    return WEIR_OK;
}

/* And behind what that work was behind. */
static void come_behind(struct stream *s, unsigned other, uint64_t point)
{
    if (s->behind[other] >= point)
        return;
    s->behind[other] = point;
    for (unsigned i = 0; i < streams[other].wait_count; i++)
        if (streams[other].waits[i].at <= point)
            come_behind(s, streams[other].waits[i].stream, streams[other].waits[i].point);
}

static weir_status t_order(wi_device *device, void *stream, wi_event event)
{
    struct stream *s = stream;
    (void)device;
    if (s->wait_count == DEPENDENCIES) {
        wrong("more waits between streams than a trace may have");
        return WEIR_OK;
    }
    s->waits[s->wait_count].at = ++s->queued;
    s->waits[s->wait_count].point = event.sequence;
    s->waits[s->wait_count++].stream = toy_stream(event.stream);
    come_behind(s, toy_stream(event.stream), event.sequence);
    return WEIR_OK;
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

static toy_handle **slot_of(const void *address)
{
    for (int i = 0; i < AREAS; i++)
        if (areas[i].taken && (const char *)address >= areas[i].base && (const char *)address < areas[i].base + AREA)
            return &areas[i].handles[(uint64_t)((const char *)address - areas[i].base) / the_toy.granule];
    return NULL;
}

toy_handle *toy_handle_at(const void *address)
{
    toy_handle **slot = slot_of(address);
    return slot ? *slot : NULL;
}

toy_unit *toy_unit_at(const void *address)
{
    toy_handle *handle = toy_handle_at(address);
    return handle ? &handle->units[((const char *)address - handle->address) / UNIT_BYTES] : NULL;
}

static weir_status t_open(int ordinal, wi_device **out)
{
    (void)ordinal;
    the_toy.devices++;
    *out = (wi_device *)&the_toy;
    return WEIR_OK;
}

static void t_close(wi_device *device)
{
    (void)device;
    the_toy.devices--;
}

static weir_status t_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    (void)device;
    *available = (the_toy.capacity - the_toy.used) * the_toy.granule;
    *total = (uint64_t)64 << 20;
    return WEIR_OK;
}

static uint64_t t_granule(wi_device *device)
{
    (void)device;
    return the_toy.granule;
}

static weir_status t_reserve(wi_device *device, uint64_t bytes, void **address)
{
    (void)device;
    for (int i = 0; i < AREAS && bytes <= AREA; i++) {
        if (areas[i].taken)
            continue;
        if (!areas[i].base) {
            char *raw = mmap(NULL, 2 * AREA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            areas[i].base = (char *)wi_round_up((uintptr_t)raw, AREA);
            areas[i].handles = calloc(AREA / LEAST_GRANULE, sizeof *areas[i].handles);
        }
        areas[i].taken = true;
        the_toy.ranges++;
        *address = areas[i].base;
        return WEIR_OK;
    }
    return weir_fail(WEIR_ERR_DRIVER, "toy: no more addresses");
}

static void t_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    (void)device, (void)bytes;
    for (int i = 0; i < AREAS; i++)
        if (areas[i].base == address)
            areas[i].taken = false;
    the_toy.ranges--;
}

static void destroy_some(uint64_t bytes, size_t count, const wi_handle *handles)
{
    for (size_t i = 0; i < count; i++) {
        toy_handle *handle = (toy_handle *)(uintptr_t)handles[i];
        if (handle->address || handle->granules * the_toy.granule != bytes)
            wrong("a handle is destroyed that is mapped, or of another length");
        the_toy.used -= handle->granules;
        free(handle);
    }
}

static weir_status t_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    (void)device;
    uint64_t granules = bytes / the_toy.granule;
    if (fails())
        return weir_fail(WEIR_ERR_DRIVER, "toy: a create that fails");
    if (count * granules > the_toy.capacity - wi_min(the_toy.used, the_toy.capacity))
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "toy: the device has no more");
    for (size_t i = 0; i < count; i++) {
        toy_handle *handle = calloc(1, sizeof *handle + bytes / UNIT_BYTES * sizeof *handle->units);
        handle->granules = granules;
        handles[i] = (wi_handle)(uintptr_t)handle;
    }
    the_toy.used += count * granules;
    if (the_toy.used * the_toy.granule > the_toy.budget)
        wrong("more is held than the budget");
    return WEIR_OK;
}

static void t_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    (void)device;
    destroy_some(bytes, count, handles);
}

static weir_status t_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    (void)device;
    let_others_work();
    if (fails())
        return weir_fail(WEIR_ERR_DRIVER, "toy: a map that fails");
    for (size_t i = 0; i < count; i++) {
        toy_handle *handle = (toy_handle *)(uintptr_t)handles[i];
        char *to = (char *)address + i * bytes;
        if (handle->address || handle->granules * the_toy.granule != bytes)
            wrong("a handle is mapped that is mapped already, or of another length");
        handle->address = to;
        for (uint64_t g = 0; g < handle->granules; g++) {
            toy_handle **slot = slot_of(to + g * the_toy.granule);
            if (!slot || *slot)
                wrong("memory is mapped where there is some, or outside of what was reserved");
            else
                *slot = handle;
        }
        the_toy.mapped++;
    }
    return WEIR_OK;
}

static void look_at_leaving(const toy_handle *handle)
{
    for (uint64_t u = 0; u < handle->granules * the_toy.granule / UNIT_BYTES; u++) {
        if (handle->units[u].owner)
            wrong("memory is taken from under a block");
        if (!toy_is_behind(handle->units[u].death, 0))
            wrong("memory is taken away while work can touch it");
    }
}

static weir_status t_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    (void)device;
    let_others_work();
    if (fails())
        return weir_fail(WEIR_ERR_DRIVER, "toy: an unmap that fails");
    for (size_t i = 0; i < count; i++) {
        toy_handle *handle = (toy_handle *)(uintptr_t)handles[i];
        const char *from = (char *)address + i * bytes;
        if (handle->address != from || handle->granules * the_toy.granule != bytes)
            wrong("a handle is unmapped where it is not, or of another length");
        look_at_leaving(handle);
        for (uint64_t g = 0; g < handle->granules; g++)
            *slot_of(from + g * the_toy.granule) = NULL;
        handle->address = NULL;
        the_toy.mapped--;
    }
    return WEIR_OK;
}

/* What this device has not ----------------------------------------------------------------------------------------- */

static weir_status unsupported(void)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "toy: there is no such thing");
}
static weir_status t_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    (void)device, (void)kind, (void)bytes, (void)address;
    return unsupported();
}
static weir_status t_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    (void)device, (void)kind, (void)bytes, (void)address;
    return unsupported();
}
static weir_status t_stream_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    (void)device, (void)native, (void)stream;
    *identity = 0;
    return unsupported();
}
static weir_status t_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    (void)device, (void)to, (void)value, (void)bytes, (void)stream;
    return unsupported();
}
static void *t_context(wi_device *device)
{
    (void)device;
    return NULL;
}

const wi_driver toy_driver = {
    .name = "toy",
    .ordinals = 1,
    .open = t_open,
    .close = t_close,
    .memory = t_memory,
    .granule = t_granule,
    .reserve = t_reserve,
    .unreserve = t_unreserve,
    .create = t_create,
    .destroy = t_destroy,
    .map = t_map,
    .unmap = t_unmap,
    .allocate = t_allocate,
    .release = t_release,
    .stream_create = t_stream_create,
    .stream_adopt = t_stream_adopt,
    .stream_destroy = t_stream_destroy,
    .stream_synchronize = t_stream_synchronize,
    .stream_native = t_stream_native,
    .stream_capturing = t_stream_capturing,
    .context = t_context,
    .record = t_record,
    .passed = t_passed,
    .wait = t_wait,
    .order = t_order,
    .fill = t_fill,
};
