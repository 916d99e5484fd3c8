#include "trace/timeline.h"
#include <weir/trace.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Holdings --------------------------------------------------------------------------------------------------------- */

size_t holdings_find(const holdings *state, const char *name)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->clients[i].name == name)
            return i;
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->clients[i].name, name) == 0)
            return i;
    return state->count;
}

static bool timeline_make_room(holdings *state, size_t capacity)
{
    if (capacity <= state->capacity)
        return true;
    holder *grown = realloc(state->clients, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    state->clients = grown;
    state->capacity = capacity;
    return true;
}

bool holdings_add(holdings *state, const weir_event *event)
{
    uint64_t total = event->live + event->pending;
    int64_t change = (int64_t)(total - state->total);
    state->held = event->held;
    state->nanoseconds = event->nanoseconds;
    state->order = event->order;
    if (event->client == NULL || event->client[0] == '\0') /* the driver's events belong to nobody */
        return true;
    size_t place = holdings_find(state, event->client);
    if (place == state->count) {
        if (!timeline_make_room(state, state->count < 8 ? 8 : state->count * 2))
            return false;
        state->clients[state->count++] = (holder){.name = event->client};
    }
    unsigned which =
        (unsigned)event->memory_class < WEIR_CLASS_COUNT ? (unsigned)event->memory_class : WEIR_CLASS_OTHER;
    state->clients[place].bytes[which] += change;
    state->total = total;
    return true;
}

bool holdings_copy(holdings *to, const holdings *from)
{
    if (!timeline_make_room(to, from->count))
        return false;
    holder *clients = to->clients;
    size_t capacity = to->capacity;
    if (from->count > 0)
        memcpy(clients, from->clients, from->count * sizeof *clients);
    *to = *from;
    to->clients = clients;
    to->capacity = capacity;
    return true;
}

void holdings_clear(holdings *state)
{
    free(state->clients);
    *state = (holdings){0};
}

/* Collecting ------------------------------------------------------------------------------------------------------- */

/* The ring that the runtime fills is this program's memory too: small, and emptied often. */
enum { RING_EVENTS = 32768, BATCH_EVENTS = 512, PAUSE_NANOSECONDS = 2000000 };

struct timeline {
    weir_trace *trace;
    pthread_t thread;
    atomic_bool stopping;
    bool running;
    FILE *file; /* NULL unless events are kept */
    holdings now, peak;
    uint64_t events, lost;
    weir_status status; /* of collecting; the first trouble stays */
    char detail[256];
    weir_event batch[BATCH_EVENTS];
};

static void trouble(timeline *line, weir_status status, const char *text)
{
    if (line->status != WEIR_OK)
        return;
    line->status = status;
    snprintf(line->detail, sizeof line->detail, "%s", text);
}

static void take_batch(timeline *line, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!holdings_add(&line->now, &line->batch[i]) ||
            (line->now.total > line->peak.total && !holdings_copy(&line->peak, &line->now)))
            trouble(line, WEIR_ERR_SYSTEM, "no memory to follow the trace");
    }
    line->events += count;
    if (line->file != NULL && line->status == WEIR_OK &&
        fwrite(line->batch, sizeof line->batch[0], count, line->file) != count)
        trouble(line, WEIR_ERR_SYSTEM, strerror(errno));
}

/* Takes everything that is waiting; answers whether there was anything. */
static bool timeline_drain(timeline *line)
{
    size_t count = 0;
    bool any = false;
    do {
        line->batch[0].struct_size = sizeof line->batch[0];
        if (weir_trace_read(line->trace, line->batch, BATCH_EVENTS, &count) != WEIR_OK) {
            trouble(line, WEIR_ERR_SYSTEM, weir_detail());
            return false;
        }
        take_batch(line, count);
        any = any || count > 0;
    } while (count == BATCH_EVENTS);
    return any;
}

static void *timeline_collect(void *user)
{
    timeline *line = user;
    while (!atomic_load(&line->stopping))
        if (!timeline_drain(line))
            nanosleep(&(struct timespec){0, PAUSE_NANOSECONDS}, NULL);
    timeline_drain(line);
    return NULL;
}

weir_status timeline_start(weir_runtime *runtime, bool keep, timeline **out)
{
    timeline *line = calloc(1, sizeof *line);
    if (line == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the trace");
    if (keep && (line->file = tmpfile()) == NULL) {
        free(line);
        return weir_fail(WEIR_ERR_SYSTEM, "no temporary file to keep the trace in: %s", strerror(errno));
    }
    weir_status status = weir_trace_create(
        runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = RING_EVENTS},
        &line->trace);
    if (status == WEIR_OK && pthread_create(&line->thread, NULL, timeline_collect, line) != 0) {
        weir_trace_destroy(line->trace);
        status = weir_fail(WEIR_ERR_SYSTEM, "no thread to collect the trace");
    }
    if (status != WEIR_OK) {
        if (line->file != NULL)
            fclose(line->file);
        free(line);
        return status;
    }
    line->running = true;
    *out = line;
    return WEIR_OK;
}

weir_status timeline_stop(timeline *line)
{
    weir_trace_details details = WEIR_INIT(weir_trace_details);
    if (line->running) {
        atomic_store(&line->stopping, true);
        pthread_join(line->thread, NULL);
        line->running = false;
        line->lost = weir_trace_info(line->trace, &details) == WEIR_OK ? details.lost : 0;
        weir_trace_destroy(line->trace);
    }
    return line->status == WEIR_OK ? WEIR_OK : weir_fail(line->status, "collecting the trace: %s", line->detail);
}

const holdings *timeline_peak(const timeline *line)
{
    return &line->peak;
}

const holdings *timeline_end(const timeline *line)
{
    return &line->now;
}

uint64_t timeline_events(const timeline *line)
{
    return line->events;
}

uint64_t timeline_lost(const timeline *line)
{
    return line->lost;
}

weir_status timeline_rewind(timeline *line)
{
    if (line->file == NULL || fseek(line->file, 0, SEEK_SET) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "the events of this run were not kept");
    return WEIR_OK;
}

size_t timeline_next(timeline *line, weir_event *events, size_t capacity)
{
    return fread(events, sizeof *events, capacity, line->file);
}

void timeline_free(timeline *line)
{
    if (line == NULL)
        return;
    (void)timeline_stop(line);
    if (line->file != NULL)
        fclose(line->file);
    holdings_clear(&line->now);
    holdings_clear(&line->peak);
    free(line);
}

/* As a file -------------------------------------------------------------------------------------------------------- */

/* What is not whole is removed, unless it is none that can be made again: a device or a pipe stays. */
static void remove_file(const char *path)
{
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISREG(kind.st_mode))
        remove(path);
}

weir_status timeline_write_csv(timeline *line, const char *path)
{
    weir_event events[BATCH_EVENTS];
    weir_sink sink = WEIR_INIT(weir_sink);
    size_t count;
    weir_status status = timeline_rewind(line);
    if (status == WEIR_OK)
        status = weir_sink_file(path, WEIR_SINK_CSV, &sink);
    if (status != WEIR_OK)
        return status;
    while (status == WEIR_OK && (count = timeline_next(line, events, BATCH_EVENTS)) > 0)
        status = sink.write(sink.user, events, count);
    weir_status closed = sink.close(sink.user);
    status = status != WEIR_OK ? status : closed;
    if (status != WEIR_OK)
        remove_file(path);
    return status;
}
