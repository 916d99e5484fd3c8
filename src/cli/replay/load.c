/* load.c: reads a trace file of any known form and makes operations of its events: order, blocks, peak. */
#include "replay.h"
#include <weir/trace.h>

#include "base/maps.h"
#include "trace/readers.h"
#include "trace/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events ----------------------------------------------------------------------------------------------------------- */

/* The events of a trace, added in the order of the file. */
typedef struct replay_event {
    uint64_t key; /* the events are sorted by it where keys go back */
    uint64_t line, pointer, bytes, stream;
    uint64_t thread; /* where keys are times */
    wi_replay_name name;
    uint8_t memory_class;
    bool of_day; /* the key is a time of the day */
    bool frees;
    bool moves; /* for its client was suspended, or resumed; the block goes on */
} replay_event;

typedef struct replay_events {
    replay_event *list;
    size_t count, room;
    bool sorted, timed, threaded; /* no key goes back; keys are times; threads are known */
} replay_events;

#define LIVE_MOST (UINT64_C(1) << 62)

static weir_status replay_load_no_memory(const wi_replay_plan *plan)
{
    return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for its operations", plan->name);
}

static weir_status load_keep_event(replay_events *events, const replay_event *event)
{
    if (events->count == events->room) {
        size_t room = events->room ? 2 * events->room : 4096;
        replay_event *list = realloc(events->list, room * sizeof *list);
        if (!list)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu events", room);
        events->list = list;
        events->room = room;
        events->sorted |= events->count == 0;
    }
    if (events->count && event->key < events->list[events->count - 1].key)
        events->sorted = false;
    events->list[events->count++] = *event;
    return WEIR_OK;
}

static void load_note_problem(wi_replay_plan *plan, uint64_t line, const char *what)
{
    if (plan->problem_count < WI_REPLAY_PROBLEMS)
        plan->problems[plan->problem_count] = (wi_replay_problem){line, what};
    plan->problem_count++;
}

/* Order ------------------------------------------------------------------------------------------------------------ */

static int replay_load_by_key(const void *a, const void *b)
{
    const replay_event *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Makes keys of the times. */
static weir_status order_times(replay_events *events)
{
    row_step *rows = calloc(events->count, sizeof *rows);
    if (!rows)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the order of %zu events", events->count);
    for (size_t i = 0; i < events->count; i++) {
        const replay_event *event = &events->list[i];
        rows[i] = (row_step){.logged = event->key,
                             .thread = event->thread,
                             .pointer = event->pointer,
                             .place = i,
                             .action = event->frees ? RMM_FREE : RMM_ALLOCATE,
                             .of_day = event->of_day};
    }
    weir_status status = rows_sort(rows, events->count, events->threaded);
    for (size_t i = 0; i < events->count && status == WEIR_OK; i++)
        events->list[rows[i].place].key = i;
    free(rows);
    return status;
}

static weir_status replay_load_sort(replay_events *events)
{
    weir_status status = events->timed ? order_times(events) : WEIR_OK;
    qsort(events->list, events->count, sizeof *events->list, replay_load_by_key);
    return status;
}

/* Operations ------------------------------------------------------------------------------------------------------- */

typedef struct maker {
    wi_replay_plan *plan;
    wi_pointer_map slots; /* of live blocks, by address */
    wi_pointer_map away;  /* blocks that are away, by address */
    uint32_t *unused, unused_count;
    size_t *allocated_by;  /* by slot: the operation that allocated it */
    wi_replay_name *names; /* by slot: whose it is */
    uint64_t streams[WI_REPLAY_STREAMS];
    uint64_t live;
    bool host;
} maker;

/* The stream's number in the plan; a new stream gets the next one. False: there are too many. */
static bool stream_number(maker *m, uint64_t stream, uint16_t *out)
{
    wi_replay_plan *plan = m->plan;
    uint16_t i = *out; /* often the same as for the last event */
    if (i >= plan->streams || m->streams[i] != stream)
        for (i = 0; i < plan->streams && m->streams[i] != stream;)
            i++;
    if (i == WI_REPLAY_STREAMS)
        return false;
    if (i == plan->streams) {
        m->streams[plan->streams++] = stream;
        if (stream == 0 && m->host)
            plan->host_stream = i;
    }
    *out = i;
    return true;
}

static weir_status add_allocation(maker *m, const replay_event *event, wi_replay_op *op)
{
    wi_replay_plan *plan = m->plan;
    op->bytes = event->bytes;
    op->memory_class = event->memory_class;
    op->slot = m->unused_count ? m->unused[--m->unused_count] : plan->slots++;
    m->allocated_by[op->slot] = plan->count;
    m->names[op->slot] = event->name;
    m->live += op->bytes;
    plan->peak = m->live > plan->peak ? m->live : plan->peak;
    plan->allocations++;
    const void *address = (const void *)(uintptr_t)event->pointer;
    return wi_pointer_map_put(&m->slots, address, op->slot) ? WEIR_OK : replay_load_no_memory(plan);
}

static void add_free(maker *m, uint64_t slot, wi_replay_op *op)
{
    const wi_replay_op *allocation = &m->plan->ops[m->allocated_by[slot]];
    op->bytes = allocation->bytes;
    op->memory_class = allocation->memory_class;
    op->slot = (uint32_t)slot;
    op->frees = true;
    m->live -= op->bytes;
    m->unused[m->unused_count++] = op->slot;
    m->plan->frees++;
}

/* Whether the event of a block that is away, or comes and goes, is an operation. What leaves in several events goes with
 * the first one. */
static bool is_operation(maker *m, const replay_event *event, bool known, weir_status *status)
{
    const void *address = (const void *)(uintptr_t)event->pointer;
    uint64_t ignored;
    bool left = wi_pointer_map_remove(&m->away, address, &ignored);
    if (!event->moves)
        return !(left && event->frees); /* its operation was the leave */
    if (event->frees && (left || known) && !wi_pointer_map_put(&m->away, address, 1))
        *status = replay_load_no_memory(m->plan);
    m->plan->leaves += event->frees && known;
    m->plan->returns += !event->frees && left;
    return event->frees ? known : left;
}

/* Adds the operation of an event. Answers what is wrong with the event, or NULL. */
static const char *replay_load_add(maker *m, const replay_event *event, uint16_t *stream, weir_status *status)
{
    wi_replay_plan *plan = m->plan;
    const void *address = (const void *)(uintptr_t)event->pointer;
    uint64_t slot;
    if (!address && event->bytes == 0) {
        plan->empty++;
        return NULL;
    }
    if (!address)
        return event->frees ? "a free of NULL" : "an allocation at NULL";
    bool known = wi_pointer_map_remove(&m->slots, address, &slot);
    if (!is_operation(m, event, known, status)) {
        if (known)
            (void)wi_pointer_map_put(&m->slots, address, slot); /* puts it back */
        return NULL;
    }
    if (event->frees && !known)
        return "a free of a pointer that is not live";
    if (!event->frees && known) {
        (void)wi_pointer_map_put(&m->slots, address, slot); /* puts it back */
        return "an allocation at a pointer that is live";
    }
    if (!event->frees && m->live > LIVE_MOST - event->bytes)
        return "an allocation beyond all that can be counted";
    if (!stream_number(m, event->stream, stream)) {
        *status = weir_fail(WEIR_ERR_UNSUPPORTED, "%s: more than %d streams", plan->name, (int)WI_REPLAY_STREAMS);
        return NULL;
    }
    wi_replay_op op = {.stream = *stream};
    if (event->frees)
        add_free(m, slot, &op);
    else
        *status = add_allocation(m, event, &op);
    plan->lines[plan->count] = event->line;
    plan->ops[plan->count++] = op;
    return NULL;
}

static weir_status find_left(maker *m)
{
    wi_replay_plan *plan = m->plan;
    plan->left = calloc(m->slots.used + 1, sizeof *plan->left);
    plan->left_names = calloc(m->slots.used + 1, sizeof *plan->left_names);
    if (!plan->left || !plan->left_names)
        return replay_load_no_memory(plan);
    for (size_t i = 0; i < m->slots.capacity; i++) {
        if (!m->slots.entries[i].pointer)
            continue;
        uint64_t slot = m->slots.entries[i].value;
        plan->left_names[plan->left_count] = m->names[slot];
        plan->left[plan->left_count++] = m->allocated_by[slot];
    }
    return WEIR_OK;
}

/* Why there is nothing to replay. */
static weir_status replay_load_nothing(const wi_replay_plan *plan)
{
    const char *unit = plan->binary ? "event" : "line";
    char others[96] = "";
    if (plan->refused > 0)
        snprintf(others, sizeof others, " but %llu that failed when it was recorded",
                 (unsigned long long)plan->refused);
    if (plan->problem_count == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: there is no allocation in it%s", plan->name, others);
    return weir_fail(WEIR_ERR_CORRUPT,
                     "%s: there is no allocation in it%s, and %llu %ss were left out; the first, %s %llu: %s",
                     plan->name, others, (unsigned long long)plan->problem_count, unit, unit,
                     (unsigned long long)plan->problems[0].line, plan->problems[0].what);
}

static weir_status replay_load_make(maker *m, const replay_events *events)
{
    wi_replay_plan *plan = m->plan;
    uint16_t stream = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < events->count && status == WEIR_OK; i++) {
        const char *wrong = replay_load_add(m, &events->list[i], &stream, &status);
        if (wrong)
            load_note_problem(plan, events->list[i].line, wrong);
    }
    if (status == WEIR_OK && plan->allocations == 0)
        status = replay_load_nothing(plan);
    return status == WEIR_OK ? find_left(m) : status;
}

/* Makes operations of the events, which are taken and freed, whatever the answer; `host`: stream 0 is WEIR_STREAM_HOST. */
static weir_status replay_load_plan(replay_events *events, bool host, wi_replay_plan *plan)
{
    size_t count = events->count + 1; /* no more slots than events */
    maker *m = calloc(1, sizeof *m);
    weir_status status = WEIR_OK;
    plan->host_stream = WI_REPLAY_NO_STREAM;
    plan->ops = calloc(count, sizeof *plan->ops);
    plan->lines = calloc(count, sizeof *plan->lines);
    if (m) {
        m->plan = plan;
        m->host = host;
        m->unused = calloc(count, sizeof *m->unused);
        m->allocated_by = calloc(count, sizeof *m->allocated_by);
        m->names = calloc(count, sizeof *m->names);
    }
    if (!m || !plan->ops || !plan->lines || !m->unused || !m->allocated_by || !m->names)
        status = replay_load_no_memory(plan);
    else if (events->count >= UINT32_MAX)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u events", plan->name, UINT32_MAX);
    if (status == WEIR_OK && events->count > 0 && !events->sorted)
        status = replay_load_sort(events);
    if (status == WEIR_OK)
        status = replay_load_make(m, events);
    if (m) {
        wi_pointer_map_clear(&m->slots);
        wi_pointer_map_clear(&m->away);
        free(m->unused);
        free(m->allocated_by);
        free(m->names);
    }
    free(m);
    free(events->list);
    *events = (replay_events){0};
    return status;
}

void wi_replay_plan_clear(wi_replay_plan *plan)
{
    free(plan->name);
    free(plan->ops);
    free(plan->lines);
    free(plan->left);
    free(plan->left_names);
    if (plan->texts)
        recording_clear(plan->texts);
    free(plan->texts);
    *plan = (wi_replay_plan){0};
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Keeps the names as long as the plan. */
static weir_status keep_name(wi_replay_plan *plan, const char *client, const char *tag, wi_replay_name *out)
{
    *out = (wi_replay_name){"", ""};
    if (!client[0] && !tag[0])
        return WEIR_OK;
    if (!plan->texts && !(plan->texts = calloc(1, sizeof *plan->texts)))
        return replay_load_no_memory(plan);
    out->client = recording_intern(plan->texts, client, strlen(client));
    out->tag = recording_intern(plan->texts, tag, strlen(tag));
    return out->client && out->tag ? WEIR_OK : replay_load_no_memory(plan);
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static weir_status replay_load_add_row(const rmm_row *row, uint64_t line, wi_replay_plan *plan, replay_events *events)
{
    replay_event event = {.key = row->key,
                          .line = line,
                          .pointer = row->pointer,
                          .bytes = row->bytes,
                          .stream = row->stream,
                          .thread = row->thread,
                          .memory_class = (uint8_t)row->memory_class,
                          .of_day = row->of_day,
                          .frees = row->action == RMM_FREE};
    weir_status status = keep_name(plan, row->client, row->tag, &event.name);
    plan->refused += row->action == RMM_FAILURE;
    return status == WEIR_OK && row->action != RMM_FAILURE ? load_keep_event(events, &event) : status;
}

static weir_status replay_load_text(wi_replay_plan *plan, replay_events *events, bool *host)
{
    lines *l;
    rmm_columns columns;
    rmm_row row;
    const char *wrong;
    bool got = true;
    weir_status status = rmm_open(plan->name, &l, &columns);
    if (status != WEIR_OK)
        return status;
    *host = columns.weirs;
    events->timed = columns.timed;
    events->threaded = columns.threaded;
    while (status == WEIR_OK && (status = rmm_next(l, &columns, &row, &wrong, &got)) == WEIR_OK && got) {
        if (wrong)
            load_note_problem(plan, lines_number(l), wrong);
        else
            status = replay_load_add_row(&row, lines_number(l), plan, events);
    }
    plan->cut = lines_cut(l);
    lines_close(l);
    return status;
}

/* Binary ----------------------------------------------------------------------------------------------------------- */

/* A resize is a free and an allocation at the same place, as in the text form; a leave is a free, a return an allocation.
 */
static weir_status replay_load_add_event(const weir_event *event, wi_replay_plan *plan, replay_events *events)
{
    replay_event add = {.key = event->order,
                        .line = event->order,
                        .pointer = (uintptr_t)event->pointer,
                        .bytes = event->bytes,
                        .stream = event->stream.id,
                        .memory_class = (uint8_t)event->memory_class,
                        .frees = event->action != WEIR_ACTION_ALLOCATE && event->action != WEIR_ACTION_RETURN,
                        .moves = event->action == WEIR_ACTION_LEAVE || event->action == WEIR_ACTION_RETURN};
    bool refused = event->action == WEIR_ACTION_REFUSE ||
                   (event->action == WEIR_ACTION_FAIL && event->object == WEIR_ACTION_ALLOCATE);
    plan->refused += refused;
    plan->held = event->held > plan->held ? event->held : plan->held;
    if (event->action != WEIR_ACTION_ALLOCATE && event->action != WEIR_ACTION_DEALLOCATE &&
        event->action != WEIR_ACTION_RESIZE && !add.moves)
        return WEIR_OK;
    weir_status status = keep_name(plan, event->client, event->tag, &add.name);
    if (status == WEIR_OK)
        status = load_keep_event(events, &add);
    if (status != WEIR_OK || event->action != WEIR_ACTION_RESIZE)
        return status;
    add.frees = false;
    return load_keep_event(events, &add);
}

static weir_status replay_load_binary(wi_replay_plan *plan, replay_events *events)
{
    reader *r;
    weir_event event;
    uint64_t offset;
    bool got = true;
    weir_status status = reader_open(plan->name, &r);
    if (status != WEIR_OK)
        return status;
    while (status == WEIR_OK && (status = reader_next(r, &event, &got)) == WEIR_OK && got)
        status = replay_load_add_event(&event, plan, events);
    plan->binary = true;
    plan->cut = reader_cut(r, &offset);
    plan->lost = reader_lost(r);
    reader_close(r);
    return status;
}

/* Snapshots -------------------------------------------------------------------------------------------------------- */

static weir_status load_snapshot(wi_replay_plan *plan, int device, replay_events *events)
{
    recording all = {.format = RECORDING_PICKLE};
    weir_status status = recording_load(plan->name, device, &all);
    for (size_t i = 0; status == WEIR_OK && i < all.count; i++)
        status = replay_load_add_event(&all.events[i], plan, events);
    for (size_t i = 0; status == WEIR_OK && i < all.problem_count && i < RECORDING_PROBLEMS; i++)
        load_note_problem(plan, all.problems[i].line, all.problems[i].what);
    if (status == WEIR_OK && all.problem_count > RECORDING_PROBLEMS)
        plan->problem_count = all.problem_count;
    plan->binary = true;
    plan->unknown = all.unknown;
    recording_clear(&all);
    return status;
}

/* All -------------------------------------------------------------------------------------------------------------- */

static weir_status load_events(wi_replay_plan *plan, int device, replay_events *events, bool *host)
{
    recording_file kind;
    weir_status status = recording_file_look(plan->name, &kind);
    if (status != WEIR_OK)
        return status;
    return kind == RECORDING_FILE_PICKLE   ? load_snapshot(plan, device, events)
           : kind == RECORDING_FILE_BINARY ? replay_load_binary(plan, events)
                                           : replay_load_text(plan, events, host);
}

weir_status wi_replay_load_device(const char *path, int device, wi_replay_plan *out)
{
    replay_events events = {0};
    bool host = true;
    *out = (wi_replay_plan){.name = strdup(path)};
    if (!out->name)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    weir_status status = load_events(out, device, &events, &host);
    if (status == WEIR_OK)
        status = replay_load_plan(&events, host, out);
    free(events.list);
    if (status != WEIR_OK)
        wi_replay_plan_clear(out);
    return status;
}

weir_status wi_replay_load(const char *path, wi_replay_plan *out)
{
    return wi_replay_load_device(path, RECORDING_NO_DEVICE, out);
}
