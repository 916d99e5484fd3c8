#include "trace/timeline.h"
#include <weir/trace.h>

#include <stdlib.h>
#include <string.h>

enum { BATCH = 512, PICKED = 5 };

/* The points of one stretch that stay, as copies: first, lowest, highest, most held, last. */
typedef struct stretch {
    holdings picked[PICKED];
    size_t events;
} stretch;

enum { FIRST, LOWEST, HIGHEST, MOST_HELD, LAST };

static bool series_add_point(series *all, const holdings *state)
{
    size_t width = all->end->count * WEIR_CLASS_COUNT;
    if ((all->count & (all->count + 1)) == 0) { /* full at 0, 1, 3, 7 …: double */
        size_t capacity = all->count * 2 + 2;
        series_point *points = realloc(all->points, capacity * sizeof *points);
        if (points != NULL)
            all->points = points;
        uint64_t *values = realloc(all->values, (capacity * width + 1) * sizeof *values);
        if (values != NULL)
            all->values = values;
        if (points == NULL || values == NULL)
            return false;
    }
    if (state->total > (all->count > 0 ? all->points[all->peak].total : 0))
        all->peak = all->count;
    uint64_t *value = all->values + all->count * width;
    for (size_t i = 0; i < all->end->count; i++)
        for (int j = 0; j < WEIR_CLASS_COUNT; j++) {
            int64_t bytes = i < state->count ? state->clients[i].bytes[j] : 0;
            *value++ = bytes > 0 ? (uint64_t)bytes : 0;
        }
    all->points[all->count++] = (series_point){state->order, state->nanoseconds, state->total, state->held};
    return true;
}

/* Adds a point for each kept state, in order, without repetition. */
static bool flush_stretch(series *all, stretch *now)
{
    uint64_t before = 0;
    for (size_t left = now->events > 0 ? PICKED : 0; left > 0; left--) {
        const holdings *next = NULL;
        for (int i = 0; i < PICKED; i++)
            if (now->picked[i].order > before && (next == NULL || now->picked[i].order < next->order))
                next = &now->picked[i];
        if (next == NULL)
            break;
        before = next->order;
        if (!series_add_point(all, next))
            return false;
    }
    now->events = 0;
    return true;
}

static bool series_take(stretch *now, const holdings *state)
{
    bool first = now->events++ == 0;
    bool good = holdings_copy(&now->picked[LAST], state);
    if (first)
        good = holdings_copy(&now->picked[FIRST], state) && good;
    if (first || state->total < now->picked[LOWEST].total)
        good = holdings_copy(&now->picked[LOWEST], state) && good;
    if (first || state->total > now->picked[HIGHEST].total)
        good = holdings_copy(&now->picked[HIGHEST], state) && good;
    if (first || state->held > now->picked[MOST_HELD].held)
        good = holdings_copy(&now->picked[MOST_HELD], state) && good;
    return good;
}

static bool series_make_points(timeline *line, size_t per_stretch, series *out)
{
    weir_event events[BATCH];
    holdings state = {0};
    stretch now = {0};
    size_t count;
    bool good = true;
    while (good && (count = timeline_next(line, events, BATCH)) > 0)
        for (size_t i = 0; i < count && good; i++) {
            good = holdings_add(&state, &events[i]) && series_take(&now, &state);
            if (good && now.events >= per_stretch)
                good = flush_stretch(out, &now);
        }
    good = good && flush_stretch(out, &now);
    for (int i = 0; i < PICKED; i++)
        holdings_clear(&now.picked[i]);
    holdings_clear(&state);
    return good;
}

weir_status series_make(timeline *line, size_t wanted, series *out)
{
    *out = (series){.end = timeline_end(line)};
    weir_status status = timeline_rewind(line);
    if (status != WEIR_OK)
        return status;
    uint64_t per_stretch = timeline_events(line) * (PICKED - 1) / (wanted == 0 ? 1 : wanted);
    if (series_make_points(line, per_stretch == 0 ? 1 : (size_t)per_stretch, out))
        return WEIR_OK;
    series_clear(out);
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the points of the picture");
}

uint64_t series_value(const series *all, size_t point, size_t client, weir_class memory_class)
{
    return all->values[(point * all->end->count + client) * WEIR_CLASS_COUNT + (size_t)memory_class];
}

void series_clear(series *all)
{
    free(all->points);
    free(all->values);
    *all = (series){0};
}
