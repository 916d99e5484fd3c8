#include "report_data.h"

#include "html.h"
#include "text.h"

#include "trace/series.h"

#include <stdlib.h>

enum { POINTS = 1600 }; /* more than a screen has columns */

/* Which client and class a line of the picture is. Those that never had a byte are left out. */
typedef struct shown {
    size_t client;
    weir_class memory_class;
} shown;

/* From the bottom: what lives long first. */
static const weir_class order[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_KV, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_SCRATCH,
                                   WEIR_CLASS_OTHER};

static bool ever_used(const series *all, size_t client, weir_class memory_class)
{
    for (size_t i = 0; i < all->count; i++)
        if (series_value(all, i, client, memory_class) != 0)
            return true;
    return false;
}

static size_t choose(const series *all, shown *list)
{
    size_t count = 0;
    for (size_t i = 0; i < all->end->count; i++)
        for (size_t j = 0; j < sizeof order / sizeof order[0]; j++)
            if (ever_used(all, i, order[j]))
                list[count++] = (shown){i, order[j]};
    return count;
}

static json_t *clients_json(const series *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->end->count; i++)
        json_array_append_new(list, text_json(all->end->clients[i].name));
    return list;
}

static json_t *series_json(const shown *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_pack("{s:I, s:s}", "client", (json_int_t)list[i].client, "class",
                                               weir_class_name(list[i].memory_class)));
    return array;
}

/* [microseconds since the first, event, total, held, the series' values …] */
static json_t *points_json(const series *all, const shown *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const series_point *at = &all->points[i];
        uint64_t since = at->nanoseconds - all->points[0].nanoseconds;
        json_t *point = json_pack("[I,I,I,I]", (json_int_t)(since / 1000), (json_int_t)at->order, (json_int_t)at->total,
                                  (json_int_t)at->held);
        for (size_t j = 0; j < count; j++)
            json_array_append_new(point,
                                  json_integer((json_int_t)series_value(all, i, list[j].client, list[j].memory_class)));
        json_array_append_new(array, point);
    }
    return array;
}

/* The event that was the last at that time. */
static uint64_t event_at(const series *all, uint64_t nanoseconds)
{
    uint64_t found = all->count > 0 ? all->points[0].order : 0;
    for (size_t i = 0; i < all->count && all->points[i].nanoseconds <= nanoseconds; i++)
        found = all->points[i].order;
    return found;
}

static json_t *phases_json(const run *all, const series *drawn)
{
    json_t *array = json_array();
    int64_t start = drawn->count > 0 ? (int64_t)drawn->points[0].nanoseconds : 0;
    for (size_t i = 0; drawn->count > 0 && i < all->phase_count; i++) {
        const run_phase *phase = &all->phases[i];
        json_array_append_new(array, json_pack("{s:o, s:I, s:I, s:I, s:I}", "label", text_json(phase->label), "from",
                                               (json_int_t)(((int64_t)phase->from - start) / 1000), "to",
                                               (json_int_t)(((int64_t)phase->to - start) / 1000), "first",
                                               (json_int_t)event_at(drawn, phase->from), "last",
                                               (json_int_t)event_at(drawn, phase->to)));
    }
    return array;
}

void report_put_data(FILE *file, run *all)
{
    series drawn = {0};
    if (series_make(all->line, POINTS, &drawn) != WEIR_OK)
        drawn = (series){.end = timeline_end(all->line)};
    shown *list = text_zeroed(drawn.end->count * WEIR_CLASS_COUNT, sizeof *list);
    size_t count = choose(&drawn, list);
    json_t *object =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "budget", (json_int_t)all->budget, "peak", (json_int_t)drawn.peak,
                  "clients", clients_json(&drawn), "series", series_json(list, count), "points",
                  points_json(&drawn, list, count), "phases", phases_json(all, &drawn));
    html_json(file, object);
    json_decref(object);
    free(list);
    series_clear(&drawn);
}
