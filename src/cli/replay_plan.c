/* replay_plan.c: makes operations of a trace's events: their order, the places of the blocks, the peak. */
#include "replay.h"

#include "base/pointer_map.h"

#include <stdlib.h>

#define LIVE_MOST (UINT64_C(1) << 62)
enum { HALF_A_DAY = 12 * 3600 };
#define DAY (UINT64_C(24) * 3600 * 1000000000)

static weir_status no_memory(const wi_replay_plan *plan)
{
    return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for its operations", plan->name);
}

weir_status wi_replay_add(wi_replay_events *events, const wi_replay_event *event)
{
    if (events->count == events->room) {
        size_t room = events->room ? 2 * events->room : 4096;
        wi_replay_event *list = realloc(events->list, room * sizeof *list);
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

void wi_replay_problem_add(wi_replay_plan *plan, uint64_t line, const char *what)
{
    if (plan->problem_count < WI_REPLAY_PROBLEMS)
        plan->problems[plan->problem_count] = (wi_replay_problem){line, what};
    plan->problem_count++;
}

/* Order ------------------------------------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b)
{
    const wi_replay_event *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* From where a time goes back by more than half a day on, it is the next day. */
static void pass_midnight(wi_replay_events *events)
{
    uint64_t latest = 0, half = UINT64_C(1000000000) * HALF_A_DAY;
    bool passed = false;
    for (size_t i = 0; i < events->count; i++) {
        wi_replay_event *event = &events->list[i];
        passed |= event->key + half < latest;
        if (passed && event->key < half)
            event->key += DAY;
        latest = event->key > latest ? event->key : latest;
    }
}

static void sort(wi_replay_events *events)
{
    if (events->timed)
        pass_midnight(events);
    qsort(events->list, events->count, sizeof *events->list, by_key);
}

/* Operations ------------------------------------------------------------------------------------------------------- */

typedef struct maker {
    wi_replay_plan *plan;
    wi_pointer_map slots; /* of live blocks, by address */
    uint32_t *unused, unused_count;
    size_t *taken_by; /* by slot: the operation that allocated it */
    uint64_t streams[WI_REPLAY_STREAMS];
    uint64_t live;
    bool host;
} maker;

/* The stream's number in the plan; the one after the last is a new one. */
static bool stream_number(maker *m, uint64_t stream, uint16_t *out)
{
    wi_replay_plan *plan = m->plan;
    uint16_t i = *out; /* the last one is often the next */
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

static weir_status take(maker *m, const wi_replay_event *event, wi_replay_op *op)
{
    wi_replay_plan *plan = m->plan;
    op->bytes = event->bytes;
    op->memory_class = event->memory_class;
    op->slot = m->unused_count ? m->unused[--m->unused_count] : plan->slots++;
    m->taken_by[op->slot] = plan->count;
    m->live += op->bytes;
    plan->peak = m->live > plan->peak ? m->live : plan->peak;
    plan->allocations++;
    const void *address = (const void *)(uintptr_t)event->pointer;
    return wi_pointer_map_put(&m->slots, address, op->slot) ? WEIR_OK : no_memory(plan);
}

static void give(maker *m, uint64_t slot, wi_replay_op *op)
{
    const wi_replay_op *taken = &m->plan->ops[m->taken_by[slot]];
    op->bytes = taken->bytes;
    op->memory_class = taken->memory_class;
    op->slot = (uint32_t)slot;
    op->frees = true;
    m->live -= op->bytes;
    m->unused[m->unused_count++] = op->slot;
    m->plan->frees++;
}

/* NULL: it became an operation, or is none without a mistake. */
static const char *add(maker *m, const wi_replay_event *event, uint16_t *stream, weir_status *status)
{
    wi_replay_plan *plan = m->plan;
    const void *address = (const void *)(uintptr_t)event->pointer;
    uint64_t slot;
    if (!address)
        return event->bytes == 0 ? NULL : event->frees ? "a free of NULL" : "an allocation at NULL";
    bool known = wi_pointer_map_remove(&m->slots, address, &slot);
    if (event->frees && !known)
        return "a free of a pointer that is not live";
    if (!event->frees && known) {
        (void)wi_pointer_map_put(&m->slots, address, slot); /* into the place that it had */
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
        give(m, slot, &op);
    else
        *status = take(m, event, &op);
    plan->ops[plan->count++] = op;
    return NULL;
}

static weir_status find_left(maker *m)
{
    wi_replay_plan *plan = m->plan;
    plan->left = calloc(m->slots.used + 1, sizeof *plan->left);
    if (!plan->left)
        return no_memory(plan);
    for (size_t i = 0; i < m->slots.capacity; i++)
        if (m->slots.entries[i].pointer)
            plan->left[plan->left_count++] = m->taken_by[m->slots.entries[i].value];
    return WEIR_OK;
}

static weir_status make(maker *m, const wi_replay_events *events)
{
    wi_replay_plan *plan = m->plan;
    uint16_t stream = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < events->count && status == WEIR_OK; i++) {
        const char *wrong = add(m, &events->list[i], &stream, &status);
        if (wrong)
            wi_replay_problem_add(plan, events->list[i].line, wrong);
    }
    if (status == WEIR_OK && plan->allocations == 0)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s: there is no allocation in it", plan->name);
    return status == WEIR_OK ? find_left(m) : status;
}

weir_status wi_replay_plan_make(wi_replay_events *events, bool host, wi_replay_plan *plan)
{
    size_t count = events->count + 1; /* slots are never more than events */
    maker *m = calloc(1, sizeof *m);
    weir_status status = WEIR_OK;
    plan->host_stream = WI_REPLAY_NO_STREAM;
    plan->ops = calloc(count, sizeof *plan->ops);
    if (m) {
        m->plan = plan;
        m->host = host;
        m->unused = calloc(count, sizeof *m->unused);
        m->taken_by = calloc(count, sizeof *m->taken_by);
    }
    if (!m || !plan->ops || !m->unused || !m->taken_by)
        status = no_memory(plan);
    else if (events->count >= UINT32_MAX)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u events", plan->name, UINT32_MAX);
    if (status == WEIR_OK && events->count > 0 && !events->sorted)
        sort(events);
    if (status == WEIR_OK)
        status = make(m, events);
    if (m) {
        wi_pointer_map_clear(&m->slots);
        free(m->unused);
        free(m->taken_by);
    }
    free(m);
    free(events->list);
    *events = (wi_replay_events){0};
    return status;
}

void wi_replay_plan_clear(wi_replay_plan *plan)
{
    free(plan->name);
    free(plan->ops);
    free(plan->left);
    *plan = (wi_replay_plan){0};
}
