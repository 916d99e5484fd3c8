#include "trace/lifetimes.h"
#include "base/internal.h"

#include <stdlib.h>
#include <string.h>

enum { PICKED = 6 }; /* of a stretch */

static weir_status samples_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the points of the picture");
}

/* Clients ---------------------------------------------------------------------------------------------------------- */

size_t samples_client(const samples *all, const char *name)
{
    uint64_t number;
    return wi_pointer_map_get(&all->numbers, name, &number) ? (size_t)number : all->client_count;
}

static sampled_client *samples_client_of(samples *all, const char *name)
{
    size_t number = samples_client(all, name);
    if (number < all->client_count)
        return &all->clients[number];
    if (!wi_make_room(&all->clients, all->client_count, &all->client_room, sizeof *all->clients) ||
        !wi_pointer_map_put(&all->numbers, name, number))
        return NULL;
    all->clients[number] = (sampled_client){.name = name};
    return &all->clients[all->client_count++];
}

/* Events that belong to nobody, the driver's, change no client. */
static bool has_client(const weir_event *event)
{
    return event->client[0] != '\0';
}

static uint64_t total_of(const weir_event *event)
{
    return event->live + event->pending;
}

static void take_peaks(samples *all, const weir_event *event, uint32_t at)
{
    if (total_of(event) > all->peak) {
        all->peak = total_of(event);
        all->peak_event = at;
    }
    if (event->held > all->peak_held) {
        all->peak_held = event->held;
        all->peak_held_event = at;
    }
    all->peak_live = event->live > all->peak_live ? event->live : all->peak_live;
    all->peak_pending = event->pending > all->peak_pending ? event->pending : all->peak_pending;
}

static void samples_take_client(sampled_client *client, const weir_event *event, int64_t change)
{
    int64_t sum = 0;
    client->bytes[event->memory_class] += change;
    client->allocations += event->action == WEIR_ACTION_ALLOCATE;
    client->refused += event->action == WEIR_ACTION_REFUSE;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        sum += client->bytes[i];
    if (sum > 0 && (uint64_t)sum > client->peak) {
        client->peak = (uint64_t)sum;
        memcpy(client->at_peak, client->bytes, sizeof client->bytes);
    }
}

static void take_moves(samples *all, const lifetimes *blocks)
{
    uint64_t away = 0;
    for (size_t i = 0; i < blocks->move_count; i++) {
        const lifetime_move *m = &blocks->moves[i];
        sampled_client *client = &all->clients[samples_client(all, blocks->kinds[blocks->list[m->block].kind].client)];
        client->away += m->after - m->before;
        client->peak_away = client->away > client->peak_away ? client->away : client->peak_away;
        away += m->after - m->before;
        if (away > all->peak_away) {
            all->peak_away = away;
            all->peak_away_event = m->event;
        }
    }
}

static weir_status find_clients(const lifetimes *blocks, samples *all)
{
    const recording *from = blocks->of;
    uint64_t before = 0;
    for (size_t i = 0; i < from->count; i++) {
        const weir_event *event = &from->events[i];
        take_peaks(all, event, (uint32_t)i);
        if (!has_client(event))
            continue;
        sampled_client *client = samples_client_of(all, event->client);
        if (!client)
            return samples_no_memory();
        samples_take_client(client, event, (int64_t)(total_of(event) - before));
        before = total_of(event);
    }
    take_moves(all, blocks);
    return WEIR_OK;
}

/* The clients with the highest peaks have rows, in the order in which they came. */
static void choose_rows(samples *all)
{
    size_t list[SAMPLES_CLIENTS], count = 0;
    for (size_t i = 0; i < all->client_count; i++) {
        size_t at = count < SAMPLES_CLIENTS ? count++ : SAMPLES_CLIENTS;
        for (; at > 0 && all->clients[list[at - 1]].peak < all->clients[i].peak; at--)
            if (at < SAMPLES_CLIENTS)
                list[at] = list[at - 1];
        if (at < SAMPLES_CLIENTS)
            list[at] = i;
        all->clients[i].row = SAMPLES_CLIENTS;
    }
    for (size_t i = 0; i < count; i++)
        all->clients[list[i]].row = 0;
    for (size_t i = 0; i < all->client_count; i++)
        if (all->clients[i].row == 0)
            all->clients[i].row = all->rows++;
    all->others = all->client_count > all->rows;
    for (size_t i = 0; i < all->client_count; i++)
        if (all->clients[i].row == SAMPLES_CLIENTS)
            all->clients[i].row = all->rows;
}

/* Points ----------------------------------------------------------------------------------------------------------- */

/* Where things stand behind an event. */
typedef struct standing {
    uint32_t event;
    uint64_t total, live, pending, held, away;
    int64_t bytes[SAMPLES_WIDTH];
    uint64_t away_bytes[SAMPLES_CLIENTS + 1];
} standing;

enum { FIRST, LOWEST, HIGHEST, MOST_HELD, MOST_AWAY, LAST };

typedef struct stretch {
    standing picked[PICKED];
    size_t events;
} stretch;

static bool samples_add_point(samples *all, const standing *now)
{
    if (!wi_make_room(&all->points, all->count, &all->room, sizeof *all->points))
        return false;
    sample *to = &all->points[all->count++];
    *to =
        (sample){.event = now->event, .live = now->live, .pending = now->pending, .held = now->held, .away = now->away};
    memcpy(to->away_values, now->away_bytes, sizeof to->away_values);
    for (int i = 0; i < SAMPLES_WIDTH; i++) {
        to->values[i] = now->bytes[i] > 0 ? (uint64_t)now->bytes[i] : 0;
        all->used[i] |= to->values[i] > 0;
    }
    return true;
}

/* Adds a point for each kept state, in order, without repetition. */
static bool flush(samples *all, stretch *s)
{
    uint64_t next = 0;
    bool good = true;
    while (good && s->events > 0) {
        const standing *first = NULL;
        for (int i = 0; i < PICKED; i++)
            if (s->picked[i].event >= next && (!first || s->picked[i].event < first->event))
                first = &s->picked[i];
        if (!first)
            break;
        next = (uint64_t)first->event + 1;
        good = samples_add_point(all, first);
    }
    s->events = 0;
    return good;
}

static void samples_take(stretch *s, const standing *now)
{
    bool first = s->events++ == 0;
    if (first)
        s->picked[FIRST] = *now;
    if (first || now->total < s->picked[LOWEST].total)
        s->picked[LOWEST] = *now;
    if (first || now->total > s->picked[HIGHEST].total)
        s->picked[HIGHEST] = *now;
    if (first || now->held > s->picked[MOST_HELD].held)
        s->picked[MOST_HELD] = *now;
    if (first || now->away > s->picked[MOST_AWAY].away)
        s->picked[MOST_AWAY] = *now;
}

static void stand_moves(const lifetimes *blocks, size_t *at, uint32_t event, const samples *all, standing *now)
{
    for (; *at < blocks->move_count && blocks->moves[*at].event <= event; ++*at) {
        const lifetime_move *m = &blocks->moves[*at];
        const char *name = blocks->kinds[blocks->list[m->block].kind].client;
        now->away_bytes[all->clients[samples_client(all, name)].row] += m->after - m->before;
        now->away += m->after - m->before;
    }
}

static weir_status samples_make_points(const lifetimes *blocks, size_t wanted, samples *all)
{
    const recording *from = blocks->of;
    size_t moved = 0;
    size_t per_stretch = from->count * (PICKED - 1) / (wanted ? wanted : 1);
    stretch *s = calloc(1, sizeof *s);
    standing now = {0};
    bool good = s != NULL;
    for (size_t i = 0; good && i < from->count; i++) {
        const weir_event *event = &from->events[i];
        if (has_client(event)) {
            size_t row = all->clients[samples_client(all, event->client)].row;
            now.bytes[row * WEIR_CLASS_COUNT + (size_t)event->memory_class] += (int64_t)(total_of(event) - now.total);
            now.total = total_of(event);
        }
        stand_moves(blocks, &moved, (uint32_t)i, all, &now);
        now.event = (uint32_t)i;
        now.live = event->live;
        now.pending = event->pending;
        now.held = event->held;
        samples_take(s, &now);
        if (s->events >= per_stretch || i + 1 == from->count) {
            s->picked[LAST] = now;
            good = flush(all, s);
        }
    }
    free(s);
    return good ? WEIR_OK : samples_no_memory();
}

weir_status samples_make(const lifetimes *blocks, size_t wanted, size_t numbers, samples *out)
{
    *out = (samples){.clients = NULL};
    weir_status status = find_clients(blocks, out);
    choose_rows(out);
    size_t most = numbers / (5 + 2 * out->rows); /* of a client two classes, mostly */
    if (status == WEIR_OK)
        status = samples_make_points(blocks, wanted < most ? wanted : most, out);
    if (status != WEIR_OK)
        samples_clear(out);
    return status;
}

void samples_clear(samples *all)
{
    free(all->clients);
    free(all->points);
    wi_pointer_map_clear(&all->numbers);
    *all = (samples){.clients = NULL};
}
