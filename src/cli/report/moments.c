/* moments.c: what there was at some moments of a trace, block by block: the largest ones by themselves, the others
 * summed up by client and class. */
#include "report.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

enum { EVENLY = 8, MOMENTS = EVENLY + 6, BLOCKS = 700, BLOCKS_AT_PEAK = 3000 };

typedef struct moment {
    const char *label;
    uint32_t event;
} moment;

/* A block that is there, whether it is pending, and how much of it is away. */
typedef struct present {
    const lifetime *block;
    uint64_t away;
    bool pending;
} present;

/* The states in the sums: what is away is apart from the rest of its block. */
enum { LIVE, PENDING, AWAY, STATES };

typedef struct maker {
    const report *all;
    json_t *kinds;
    uint32_t *numbers; /* of the kinds in the answer, by those of the trace, and 1 */
    present *list;     /* room for all blocks */
    size_t count;
    uint64_t *away; /* by block: at the moment */
} maker;

static void add_moment(moment *list, size_t *count, const char *label, uint32_t event)
{
    for (size_t i = 0; i < *count; i++)
        if (list[i].event == event)
            return;
    list[(*count)++] = (moment){label, event};
}

static int moments_by_event(const void *a, const void *b)
{
    const moment *x = a, *y = b;
    return x->event < y->event ? -1 : x->event > y->event;
}

static size_t moments_choose(const report *all, moment *list)
{
    size_t count = 0, events = all->trace.count;
    if (events == 0)
        return 0;
    add_moment(list, &count, "peak", all->held.peak_event);
    if (all->held.peak_held > 0)
        add_moment(list, &count, "most held", all->held.peak_held_event);
    if (all->held.peak_away > 0)
        add_moment(list, &count, "most away", all->held.peak_away_event);
    for (size_t i = 0; i < events; i++)
        if (all->trace.events[i].action == WEIR_ACTION_REFUSE) {
            add_moment(list, &count, "first refusal", (uint32_t)i);
            break;
        }
    add_moment(list, &count, "end", (uint32_t)events - 1);
    for (size_t i = 1; i <= EVENLY; i++)
        add_moment(list, &count, "", (uint32_t)(i * events / (EVENLY + 1)));
    qsort(list, count, sizeof *list, moments_by_event);
    return count;
}

static int moments_by_size(const void *a, const void *b)
{
    const lifetime *x = ((const present *)a)->block, *y = ((const present *)b)->block;
    if (x->charged != y->charged)
        return x->charged > y->charged ? -1 : 1;
    return x->pointer < y->pointer ? -1 : x->pointer > y->pointer;
}

static void moments_look(maker *m, uint32_t event)
{
    const lifetimes *blocks = &m->all->blocks;
    m->count = 0;
    lifetimes_away(blocks, event, m->away);
    for (size_t i = 0; i < blocks->count && blocks->list[i].begin <= event; i++) {
        bool pending;
        if (lifetime_at(&blocks->list[i], event, &pending))
            m->list[m->count++] = (present){&blocks->list[i], m->away[i], pending};
    }
    qsort(m->list, m->count, sizeof *m->list, moments_by_size);
}

static size_t moments_row_of(const report *all, const char *client)
{
    return all->held.clients[samples_client(&all->held, client)].row;
}

static uint32_t moments_number_of(maker *m, uint32_t kind)
{
    const lifetime_kind *k = &m->all->blocks.kinds[kind];
    if (m->numbers[kind] == 0) {
        json_array_append_new(
            m->kinds, json_pack("{s:I, s:o, s:s, s:o}", "row", (json_int_t)moments_row_of(m->all, k->client), "client",
                                text_json(k->client), "class", weir_name_of(WEIR_NAMES_CLASS, (int)k->memory_class),
                                "tag", text_json(k->tag)));
        m->numbers[kind] = (uint32_t)json_array_size(m->kinds);
    }
    return m->numbers[kind] - 1;
}

/* [range, bytes behind its beginning, bytes as counted, as requested, kind, whether it is pending, event it came with,
 * bytes of it that are away] */
static json_t *blocks_json(maker *m, size_t most)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->count && i < most; i++) {
        const lifetime *one = m->list[i].block;
        const address_range *range = address_range_at(&m->all->ranges, one->pointer);
        size_t place = range ? (size_t)(range - m->all->ranges.list) : 0;
        uint64_t offset = range ? one->pointer - range->address : 0;
        json_array_append_new(
            list, json_pack("[I,I,I,I,I,I,I,I]", (json_int_t)place, (json_int_t)offset, (json_int_t)one->charged,
                            (json_int_t)one->bytes, (json_int_t)moments_number_of(m, one->kind),
                            (json_int_t)m->list[i].pending, (json_int_t)m->all->trace.events[one->begin].order,
                            (json_int_t)m->list[i].away));
    }
    return list;
}

/* Adds the bytes of a block, and the block itself, to the sums of its states. */
static void add_states(const present *one, uint64_t bytes[STATES], uint64_t count[STATES])
{
    const uint64_t here = one->block->charged - one->away;
    bytes[one->pending ? PENDING : LIVE] += here;
    bytes[AWAY] += one->away;
    if (!count)
        return;
    count[one->pending ? PENDING : LIVE] += one->away == 0;
    count[AWAY] += one->away > 0;
}

/* [row, class, state (0 live, 1 pending, 2 away), how many, their bytes as counted]; of blocks that are away in part, what
 * stayed is with the live ones. */
static json_t *rest_json(const maker *m, size_t most)
{
    uint64_t count[SAMPLES_WIDTH][STATES] = {{0}}, bytes[SAMPLES_WIDTH][STATES] = {{0}};
    json_t *list = json_array();
    for (size_t i = most; i < m->count; i++) {
        const lifetime_kind *kind = &m->all->blocks.kinds[m->list[i].block->kind];
        size_t at = moments_row_of(m->all, kind->client) * WEIR_CLASS_COUNT + (size_t)kind->memory_class;
        add_states(&m->list[i], bytes[at], count[at]);
    }
    for (size_t at = 0; at < SAMPLES_WIDTH; at++)
        for (int state = 0; state < STATES; state++)
            if (count[at][state] || bytes[at][state])
                json_array_append_new(list,
                                      json_pack("[I,s,i,I,I]", (json_int_t)(at / WEIR_CLASS_COUNT),
                                                weir_name_of(WEIR_NAMES_CLASS, (int)(at % WEIR_CLASS_COUNT)), state,
                                                (json_int_t)count[at][state], (json_int_t)bytes[at][state]));
    return list;
}

/* Returns the sums [live, pending, away] over the blocks of each range. */
static json_t *moments_ranges_json(const maker *m)
{
    size_t ranges = m->all->ranges.count;
    uint64_t(*sums)[STATES] = text_zeroed(ranges, sizeof *sums);
    json_t *list = json_array();
    for (size_t i = 0; i < m->count; i++) {
        const address_range *range = address_range_at(&m->all->ranges, m->list[i].block->pointer);
        if (range)
            add_states(&m->list[i], sums[range - m->all->ranges.list], NULL);
    }
    for (size_t i = 0; i < ranges; i++)
        json_array_append_new(list, json_pack("[I,I,I]", (json_int_t)sums[i][LIVE], (json_int_t)sums[i][PENDING],
                                              (json_int_t)sums[i][AWAY]));
    free(sums);
    return list;
}

static uint64_t all_away(const maker *m)
{
    uint64_t away = 0;
    for (size_t i = 0; i < m->count; i++)
        away += m->list[i].away;
    return away;
}

static json_t *moment_json(maker *m, const moment *one)
{
    const weir_event *event = &m->all->trace.events[one->event];
    size_t most = strcmp(one->label, "peak") == 0 ? BLOCKS_AT_PEAK : BLOCKS;
    moments_look(m, one->event);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "label", one->label, "event",
                     (json_int_t)event->order, "microseconds", (json_int_t)report_microseconds(m->all, one->event),
                     "live", (json_int_t)event->live, "pending", (json_int_t)event->pending, "held",
                     (json_int_t)event->held, "away", (json_int_t)all_away(m), "count", (json_int_t)m->count, "blocks",
                     blocks_json(m, most), "rest", rest_json(m, most), "ranges", moments_ranges_json(m));
}

json_t *report_moments_json(const report *all, json_t **kinds)
{
    moment list[MOMENTS];
    size_t count = moments_choose(all, list);
    json_t *array = json_array();
    maker m = {.all = all,
               .kinds = json_array(),
               .numbers = text_zeroed(all->blocks.kind_count, sizeof *m.numbers),
               .list = text_zeroed(all->blocks.count, sizeof *m.list),
               .away = text_zeroed(all->blocks.count, sizeof *m.away)};
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, moment_json(&m, &list[i]));
    free(m.numbers);
    free(m.list);
    free(m.away);
    *kinds = m.kinds;
    return array;
}
