#include "fold.h"
#include <weir/trace.h>

#include <stdlib.h>
#include <string.h>

size_t fold_find(const fold *state, const char *name)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->clients[i].name == name)
            return i;
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->clients[i].name, name) == 0)
            return i;
    return state->count;
}

static bool make_room(fold *state, size_t capacity)
{
    if (capacity <= state->capacity)
        return true;
    fold_client *grown = realloc(state->clients, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    state->clients = grown;
    state->capacity = capacity;
    return true;
}

bool fold_event(fold *state, const weir_event *event)
{
    uint64_t total = event->live + event->pending;
    int64_t change = (int64_t)(total - state->total);
    state->held = event->held;
    state->nanoseconds = event->nanoseconds;
    state->order = event->order;
    if (event->client == NULL || event->client[0] == '\0') /* the driver's events belong to nobody */
        return true;
    size_t place = fold_find(state, event->client);
    if (place == state->count) {
        if (!make_room(state, state->count < 8 ? 8 : state->count * 2))
            return false;
        state->clients[state->count++] = (fold_client){.name = event->client};
    }
    unsigned which =
        (unsigned)event->memory_class < WEIR_CLASS_COUNT ? (unsigned)event->memory_class : WEIR_CLASS_OTHER;
    state->clients[place].bytes[which] += change;
    state->total = total;
    return true;
}

int64_t fold_client_total(const fold_client *client)
{
    int64_t sum = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        sum += client->bytes[i];
    return sum;
}

bool fold_copy(fold *to, const fold *from)
{
    if (!make_room(to, from->count))
        return false;
    fold_client *clients = to->clients;
    size_t capacity = to->capacity;
    if (from->count > 0)
        memcpy(clients, from->clients, from->count * sizeof *clients);
    *to = *from;
    to->clients = clients;
    to->capacity = capacity;
    return true;
}

void fold_clear(fold *state)
{
    free(state->clients);
    *state = (fold){0};
}
