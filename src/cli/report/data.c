/* data.c: a report as JSON: what --json prints, and what the page draws. */
#include "report.h"

#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 200, TAGS = 100, REFUSALS = 200, LENDS = 200, RESIDENCIES = 500, POOL_EVENTS = 1000 };

static json_t *count_or_null(uint64_t value, bool known)
{
    return known ? text_json_count(value) : json_null();
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

static json_t *data_client_json(const sampled_client *client)
{
    int64_t live = 0;
    json_t *object = json_pack("{s:o, s:I, s:I, s:I}", "name", text_json(client->name), "row", (json_int_t)client->row,
                               "peak", (json_int_t)client->peak, "allocations", (json_int_t)client->allocations);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        json_object_set_new(object, weir_name_of(WEIR_NAMES_CLASS, i),
                            json_integer((json_int_t)(client->at_peak[i] > 0 ? client->at_peak[i] : 0)));
        live += client->bytes[i];
    }
    json_object_set_new(object, "refused", text_json_count(client->refused));
    json_object_set_new(object, "live_at_end", json_integer((json_int_t)(live > 0 ? live : 0)));
    json_object_set_new(object, "peak_away", text_json_count(client->peak_away));
    json_object_set_new(object, "away_at_end", text_json_count(client->away));
    return object;
}

static json_t *data_clients_json(const report *all)
{
    size_t count, *list = report_clients(all, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count && i < CLIENTS; i++)
        json_array_append_new(array, data_client_json(&all->held.clients[list[i]]));
    free(list);
    return array;
}

static json_t *tags_json(const report *all)
{
    size_t count, *list = report_tags(all, TAGS, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const lifetime_kind *kind = &all->blocks.kinds[list[i]];
        json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I, s:I, s:I, s:I}", "client", text_json(kind->client),
                                               "class", weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class), "tag",
                                               text_json(kind->tag), "peak", (json_int_t)kind->peak, "allocations",
                                               (json_int_t)kind->allocations, "bytes", (json_int_t)kind->bytes,
                                               "live_at_end", (json_int_t)kind->live));
    }
    free(list);
    return array;
}

static json_t *left_json(const report *all)
{
    size_t count;
    report_left *list = report_left_live(all, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const lifetime_kind *kind = &all->blocks.kinds[list[i].kind];
        json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I, s:I}", "client", text_json(kind->client), "class",
                                               weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class), "tag",
                                               text_json(kind->tag), "blocks", (json_int_t)list[i].blocks, "bytes",
                                               (json_int_t)list[i].bytes));
    }
    free(list);
    return array;
}

static json_t *sizes_json(const report *all)
{
    json_t *array = json_array();
    for (int i = 0; i < LIFETIMES_SIZES; i++) {
        const lifetime_size *size = &all->blocks.sizes[i];
        if (size->allocations > 0)
            json_array_append_new(array, json_pack("{s:I, s:I, s:I}", "least", (json_int_t)size->least, "allocations",
                                                   (json_int_t)size->allocations, "bytes", (json_int_t)size->bytes));
    }
    return array;
}

static json_t *data_refusals_json(const report *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->trace.count && json_array_size(array) < REFUSALS; i++) {
        const weir_event *event = &all->trace.events[i];
        if (event->action != WEIR_ACTION_REFUSE)
            continue;
        char *text = report_refusal_text(all, i);
        json_array_append_new(
            array,
            json_pack("{s:I, s:I, s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:s, s:o}", "event", (json_int_t)event->order,
                      "microseconds", (json_int_t)report_microseconds(all, i), "client", text_json(event->client),
                      "class", weir_name_of(WEIR_NAMES_CLASS, (int)event->memory_class), "tag", text_json(event->tag),
                      "bytes", (json_int_t)event->bytes, "live", (json_int_t)event->live, "pending",
                      (json_int_t)event->pending, "held", (json_int_t)event->held, "cause",
                      event->object < WEIR_CAUSE_COUNT ? weir_name_of(WEIR_NAMES_CAUSE, (int)event->object) : "none",
                      "text", text_json(text)));
        free(text);
    }
    return array;
}

static json_t *pool_json(const report *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->trace.count && json_array_size(array) < POOL_EVENTS; i++) {
        const weir_event *event = &all->trace.events[i];
        if (event->action != WEIR_ACTION_POOL)
            continue;
        json_array_append_new(array, json_pack("{s:I, s:I, s:s, s:o, s:I, s:I}", "event", (json_int_t)event->order,
                                               "microseconds", (json_int_t)report_microseconds(all, i), "what",
                                               weir_name_of(WEIR_NAMES_POOL, (int)event->object), "model",
                                               text_json(event->tag), "bytes", (json_int_t)event->bytes, "ceiling",
                                               (json_int_t)event->generation));
    }
    return array;
}

static json_t *lend_json(const report *all, const lend *one, bool streams)
{
    json_t *from = streams ? text_json_count(one->from_stream) : text_json(one->from);
    json_t *to = streams ? text_json_count(one->to_stream) : text_json(one->to);
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "from", from, "to", to, "bytes",
                     (json_int_t)one->bytes, "count", (json_int_t)one->count, "first",
                     (json_int_t)all->trace.events[one->first].order, "last",
                     (json_int_t)all->trace.events[one->last].order, "first_microseconds",
                     (json_int_t)report_microseconds(all, one->first), "last_microseconds",
                     (json_int_t)report_microseconds(all, one->last));
}

static json_t *lends_json(const report *all, bool streams)
{
    const lend *list = streams ? all->lent.streams : all->lent.clients;
    size_t count = streams ? all->lent.stream_count : all->lent.client_count;
    json_t *array = json_array();
    for (size_t i = 0; i < count && i < LENDS; i++)
        json_array_append_new(array, lend_json(all, &list[i], streams));
    return array;
}

/* Suspends and resumes. */
static json_t *residency_json(const report *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->residency_count && i < RESIDENCIES; i++) {
        const lifetime_residency *one = &all->residency[i];
        json_array_append_new(array,
                              json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "what",
                                        one->back ? "resume" : "suspend", "client", text_json(one->client), "row",
                                        (json_int_t)all->held.clients[samples_client(&all->held, one->client)].row,
                                        "bytes", (json_int_t)one->bytes, "blocks", (json_int_t)one->blocks, "event",
                                        (json_int_t)all->trace.events[one->first].order, "last",
                                        (json_int_t)all->trace.events[one->last].order, "microseconds",
                                        (json_int_t)report_microseconds(all, one->first), "last_microseconds",
                                        (json_int_t)report_microseconds(all, one->last)));
    }
    return array;
}

static json_t *data_problems_json(const report *all)
{
    const recording *trace = &all->trace;
    json_t *array = json_array();
    for (size_t i = 0; i < trace->problem_count && i < RECORDING_PROBLEMS; i++)
        json_array_append_new(array, json_pack("{s:I, s:s}", trace->format == RECORDING_CSV ? "line" : "event",
                                               (json_int_t)trace->problems[i].line, "what", trace->problems[i].what));
    return array;
}

/* Time ------------------------------------------------------------------------------------------------------------- */

/* A member of each point, which is a uint64_t. */
static json_t *column(const report *all, size_t member)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->held.count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&all->held.points[i] + member, sizeof value);
        json_array_append_new(array, text_json_count(value));
    }
    return array;
}

static json_t *data_row_json(const report *all, size_t row)
{
    for (size_t i = 0; i < all->held.client_count; i++)
        if (all->held.clients[i].row == row && row < all->held.rows)
            return text_json(all->held.clients[i].name);
    return json_string("others");
}

/* From the bottom up: the long-lived classes first. */
static const weir_class order[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_KV, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_SCRATCH,
                                   WEIR_CLASS_OTHER};

static json_t *data_series_json(const report *all)
{
    json_t *array = json_array();
    for (size_t row = 0; row < all->held.rows + all->held.others; row++)
        for (size_t j = 0; j < sizeof order / sizeof order[0]; j++) {
            size_t at = row * WEIR_CLASS_COUNT + (size_t)order[j];
            if (!all->held.used[at])
                continue;
            json_t *values = json_array();
            for (size_t i = 0; i < all->held.count; i++)
                json_array_append_new(values, text_json_count(all->held.points[i].values[at]));
            json_array_append_new(array, json_pack("{s:I, s:s, s:o}", "row", (json_int_t)row, "class",
                                                   weir_name_of(WEIR_NAMES_CLASS, (int)order[j]), "bytes", values));
        }
    return array;
}

/* What is away, by row. */
static json_t *away_json(const report *all)
{
    json_t *array = json_array();
    for (size_t row = 0; row < all->held.rows + all->held.others; row++) {
        json_t *values = json_array();
        bool any = false;
        for (size_t i = 0; i < all->held.count; i++) {
            uint64_t bytes = all->held.points[i].away_values[row];
            any |= bytes > 0;
            json_array_append_new(values, text_json_count(bytes));
        }
        if (any)
            json_array_append_new(array, json_pack("{s:I, s:O}", "row", (json_int_t)row, "bytes", values));
        json_decref(values);
    }
    return array;
}

static json_t *timeline_json(const report *all)
{
    json_t *rows = json_array(), *events = json_array(), *times = all->trace.timed ? json_array() : json_null();
    for (size_t row = 0; row < all->held.rows + all->held.others; row++)
        json_array_append_new(rows, data_row_json(all, row));
    for (size_t i = 0; i < all->held.count; i++) {
        uint32_t event = all->held.points[i].event;
        json_array_append_new(events, text_json_count(all->trace.events[event].order));
        json_array_append_new(times, text_json_count(report_microseconds(all, event)));
    }
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rows", rows, "event", events, "microseconds", times, "live",
        column(all, offsetof(sample, live)), "pending", column(all, offsetof(sample, pending)), "held",
        all->trace.holds ? column(all, offsetof(sample, held)) : json_null(), "away",
        column(all, offsetof(sample, away)), "series", data_series_json(all), "away_series", away_json(all));
}

/* Addresses -------------------------------------------------------------------------------------------------------- */

static json_t *data_ranges_json(const report *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->ranges.count; i++) {
        char address[24];
        snprintf(address, sizeof address, "%#" PRIx64, all->ranges.list[i].address);
        json_array_append_new(
            array, json_pack("{s:s, s:I}", "address", address, "bytes", (json_int_t)all->ranges.list[i].bytes));
    }
    return array;
}

/* A column is a text with three letters for each row: the ninths that are live, pending and away. */
static json_t *map_json(const report *all)
{
    const address_map *map = &all->map;
    json_t *events = json_array(), *columns = json_array();
    char *text = text_zeroed(3 * map->rows + 1, 1);
    for (size_t i = 0; i < map->columns; i++) {
        for (size_t row = 0; row < map->rows; row++) {
            unsigned cell = map->cells[i * map->rows + row];
            text[3 * row] = (char)('0' + cell % 10);
            text[3 * row + 1] = (char)('0' + cell / 10 % 10);
            text[3 * row + 2] = (char)('0' + cell / 100);
        }
        json_array_append_new(events, text_json_count(all->trace.events[map->events[i]].order));
        json_array_append_new(columns, json_string(text));
    }
    free(text);
    return json_pack("{s:I, s:I, s:o, s:o}", "rows", (json_int_t)map->rows, "row_bytes", (json_int_t)map->row_bytes,
                     "event", events, "columns", columns);
}

/* All -------------------------------------------------------------------------------------------------------------- */

static json_t *figures_json(const report *all)
{
    static const char *const formats[] = {"weir", "csv", "pickle"};
    const recording *trace = &all->trace;
    const char *device = report_device(all);
    double seconds = report_seconds(all);
    uint64_t budget = report_budget(all);
    const weir_event *last = trace->count ? &trace->events[trace->count - 1] : NULL;
    json_t *object =
        json_pack("{s:o, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "trace", text_json(all->args->file),
                  "format", formats[trace->format], "device", device[0] ? text_json(device) : json_null(), "budget",
                  count_or_null(budget, budget > 0), "events", (json_int_t)trace->count, "allocations",
                  (json_int_t)all->blocks.allocations, "frees", (json_int_t)all->blocks.frees, "resizes",
                  (json_int_t)all->blocks.resizes, "refused", (json_int_t)all->blocks.refused, "failures",
                  (json_int_t)all->blocks.failed, "copies", (json_int_t)all->blocks.copies);
    json_object_set_new(object, "streams", text_json_count(report_streams(all)));
    json_object_set_new(object, "seconds", seconds >= 0 ? json_real(seconds) : json_null());
    json_object_set_new(object, "peak", text_json_count(all->held.peak));
    json_object_set_new(object, "peak_event",
                        trace->count ? text_json_count(trace->events[all->held.peak_event].order) : json_null());
    json_object_set_new(object, "peak_requested", text_json_count(all->blocks.peak_requested));
    json_object_set_new(object, "peak_live", text_json_count(all->held.peak_live));
    json_object_set_new(object, "peak_pending", text_json_count(all->held.peak_pending));
    json_object_set_new(object, "peak_held", count_or_null(all->held.peak_held, trace->holds));
    json_object_set_new(object, "live_at_end", text_json_count(last ? last->live : 0));
    json_object_set_new(object, "pending_at_end", text_json_count(last ? last->pending : 0));
    json_object_set_new(object, "held_at_end", count_or_null(last ? last->held : 0, trace->holds));
    json_object_set_new(object, "peak_away", text_json_count(all->held.peak_away));
    json_object_set_new(object, "away_at_end", text_json_count(report_away_at_end(all)));
    json_object_set_new(object, "empty", text_json_count(trace->empty));
    json_object_set_new(object, "unknown", text_json_count(trace->unknown));
    json_object_set_new(object, "malformed", text_json_count(trace->problem_count));
    json_object_set_new(object, "malformed_lines", data_problems_json(all));
    json_object_set_new(object, "lost", text_json_count(trace->lost));
    json_object_set_new(object, "cut_off", json_boolean(trace->cut));
    return object;
}

json_t *report_json(const report *all)
{
    json_t *kinds, *object = figures_json(all), *moments = report_moments_json(all, &kinds);
    json_object_set_new(object, "clients", data_clients_json(all));
    json_object_set_new(object, "client_count", text_json_count(all->held.client_count));
    json_object_set_new(object, "tags", tags_json(all));
    json_object_set_new(object, "left", left_json(all));
    json_object_set_new(object, "tag_count", text_json_count(all->blocks.kind_count));
    json_object_set_new(object, "sizes", sizes_json(all));
    json_object_set_new(object, "refusals", data_refusals_json(all));
    json_object_set_new(object, "pool", pool_json(all));
    json_object_set_new(object, "lent", text_json_count(all->lent.client_bytes));
    json_object_set_new(object, "lends", lends_json(all, false));
    json_object_set_new(object, "lent_between_streams", text_json_count(all->lent.stream_bytes));
    json_object_set_new(object, "stream_lends", lends_json(all, true));
    json_object_set_new(object, "residency", residency_json(all));
    json_object_set_new(object, "residency_count", text_json_count(all->residency_count));
    json_object_set_new(object, "timeline", timeline_json(all));
    json_object_set_new(object, "kinds", kinds);
    json_object_set_new(object, "moments", moments);
    json_object_set_new(object, "ranges", data_ranges_json(all));
    json_object_set_new(object, "map", map_json(all));
    return object;
}
