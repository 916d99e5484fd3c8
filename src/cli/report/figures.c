/* figures.c: single figures of a report, and who comes first in its lists. */
#include "report.h"

#include "base/maps.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *report_file_name(const report *all)
{
    const char *slash = strrchr(all->args->file, '/');
    return slash && slash[1] ? slash + 1 : all->args->file;
}

uint64_t report_budget(const report *all)
{
    return all->args->budget ? all->args->budget : all->trace.budget;
}

const char *report_device(const report *all)
{
    return all->trace.count ? all->trace.events[0].device : "";
}

uint64_t report_microseconds(const report *all, size_t event)
{
    const recording *trace = &all->trace;
    uint64_t start = trace->count ? trace->events[0].nanoseconds : 0, at = trace->events[event].nanoseconds;
    return at > start ? (at - start) / 1000 : 0;
}

double report_seconds(const report *all)
{
    const recording *trace = &all->trace;
    if (!trace->timed || trace->count == 0)
        return -1;
    return (double)report_microseconds(all, trace->count - 1) / 1e6;
}

size_t report_streams(const report *all)
{
    wi_pointer_map seen = {0};
    uint64_t last = UINT64_MAX, ignored;
    for (size_t i = 0; i < all->trace.count; i++) {
        const weir_event *event = &all->trace.events[i];
        bool block = event->action == WEIR_ACTION_ALLOCATE || event->action == WEIR_ACTION_DEALLOCATE;
        const void *key = (const void *)(uintptr_t)(event->stream.id + 1);
        if (!block || event->stream.id == last || wi_pointer_map_get(&seen, key, &ignored))
            continue;
        if (!wi_pointer_map_put(&seen, key, 1))
            text_out_of_memory();
        last = event->stream.id;
    }
    size_t count = seen.used;
    wi_pointer_map_clear(&seen);
    return count;
}

uint64_t report_away_at_end(const report *all)
{
    uint64_t away = 0;
    for (size_t i = 0; i < all->held.client_count; i++)
        away += all->held.clients[i].away;
    return away;
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

static const char *clean_size(uint64_t bytes, char text[24])
{
    return weir_size_format(bytes, text, 24);
}

/* Returns a text for the limit behind a refusal; "" if the trace has no limit. */
static char *limit_text(const weir_event *event)
{
    char limit[24];
    clean_size(event->generation, limit);
    switch ((weir_refusal_cause)event->object) {
    case WEIR_CAUSE_NONE:
        return text_copy("");
    case WEIR_CAUSE_MAXIMUM:
        return text_print("; its maximum is %s", limit);
    case WEIR_CAUSE_BUDGET:
        return text_print("; the budget is %s", limit);
    case WEIR_CAUSE_RESERVATION:
        return text_print("; the reservation has %s", limit);
    case WEIR_CAUSE_FRAGMENTATION:
        return text_print("; the budget is %s, and no free piece is large enough", limit);
    default:
        return text_print("; the cause: %s", event->object < WEIR_CAUSE_COUNT
                                                 ? weir_name_of(WEIR_NAMES_CAUSE, (int)event->object)
                                                 : "not known");
    }
}

char *report_refusal_text(const report *all, size_t number)
{
    const weir_event *event = &all->trace.events[number];
    char asked[24], live[24], pending[24], held[24];
    char *limit = limit_text(event);
    char *holds = all->trace.holds ? text_print(", %s held", clean_size(event->held, held)) : text_copy("");
    char *text = text_print("%s asked for %s (%s)%s%s%s; %s were live and %s pending%s%s", event->client,
                            clean_size(event->bytes, asked), weir_name_of(WEIR_NAMES_CLASS, (int)event->memory_class),
                            event->tag[0] ? " for \"" : "", event->tag, event->tag[0] ? "\"" : "",
                            clean_size(event->live, live), clean_size(event->pending, pending), holds, limit);
    free(limit);
    free(holds);
    return text;
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

static const report *sorted; /* what the lists are of, while they are sorted */

/* The larger one first, and of equal ones the first. */
static int figures_order(uint64_t x, uint64_t y, const void *a, const void *b)
{
    if (x != y)
        return x > y ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int by_peak(const void *a, const void *b)
{
    const lifetime_kind *x = &sorted->blocks.kinds[*(const size_t *)a], *y = &sorted->blocks.kinds[*(const size_t *)b];
    return figures_order(x->peak, y->peak, x, y);
}

static int by_allocations(const void *a, const void *b)
{
    const lifetime_kind *x = &sorted->blocks.kinds[*(const size_t *)a], *y = &sorted->blocks.kinds[*(const size_t *)b];
    return figures_order(x->allocations, y->allocations, x, y);
}

static int by_client_peak(const void *a, const void *b)
{
    const sampled_client *x = &sorted->held.clients[*(const size_t *)a], *y = &sorted->held.clients[*(const size_t *)b];
    return figures_order(x->peak, y->peak, x, y);
}

static size_t *numbers(size_t count)
{
    size_t *list = text_zeroed(count, sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = i;
    return list;
}

/* Returns the `most` kinds with the highest peaks, followed by up to `most` of the remaining kinds, the most often
 * allocated first. */
size_t *report_tags(const report *all, size_t most, size_t *count)
{
    size_t kinds = all->blocks.kind_count, *list = numbers(kinds), taken = kinds < most ? kinds : most;
    sorted = all;
    qsort(list, kinds, sizeof *list, by_peak);
    if (kinds > taken)
        qsort(list + taken, kinds - taken, sizeof *list, by_allocations);
    *count = kinds < 2 * most ? kinds : 2 * most;
    return list;
}

size_t *report_clients(const report *all, size_t *count)
{
    size_t *list = numbers(all->held.client_count);
    *count = all->held.client_count;
    sorted = all;
    qsort(list, *count, sizeof *list, by_client_peak);
    return list;
}

static int by_bytes_left(const void *a, const void *b)
{
    const report_left *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : x->kind < y->kind ? -1 : x->kind > y->kind;
}

report_left *report_left_live(const report *all, size_t *count)
{
    const lifetimes *blocks = &all->blocks;
    report_left *list = text_zeroed(blocks->kind_count, sizeof *list);
    for (size_t i = 0; i < blocks->kind_count; i++)
        list[i].kind = i;
    for (size_t i = 0; i < blocks->count; i++) {
        const lifetime *one = &blocks->list[i];
        if (one->freed == LIFETIMES_NEVER && one->end == LIFETIMES_NEVER) {
            list[one->kind].blocks++;
            list[one->kind].bytes += one->charged;
        }
    }
    *count = 0;
    for (size_t i = 0; i < blocks->kind_count; i++)
        if (list[i].blocks > 0)
            list[(*count)++] = list[i];
    qsort(list, *count, sizeof *list, by_bytes_left);
    return list;
}
