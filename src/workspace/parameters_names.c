/* The table of a store's parameters: by number, and by name over open addressing. */
#include "workspace/parameters.h"
#include <weir/workspace.h>

static uint64_t hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* Where the name is, or would be. */
static uint32_t *place(const weir_parameters *store, const char *name)
{
    uint32_t mask = store->name_room - 1, at = (uint32_t)hash(name) & mask;
    while (store->names[at] && strcmp(store->list[store->names[at] - 1].name, name) != 0)
        at = (at + 1) & mask;
    return &store->names[at];
}

weir_status wi_parameters_check_name(const weir_parameters *store, const char *name, const char *call)
{
    if (!store || !name || !*name || strlen(name) > 1023)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL, or a name that is empty or longer than 1023 bytes", call);
    return WEIR_OK;
}

bool wi_parameters_seek(const weir_parameters *store, const char *name, uint32_t *index)
{
    uint32_t found = store->name_room ? *place(store, name) : 0;
    if (found)
        *index = found - 1;
    return found != 0;
}

static bool widen_names(weir_parameters *store)
{
    uint32_t room = store->name_room ? 2 * store->name_room : 64;
    uint32_t *names = calloc(room, sizeof *names);
    if (!names)
        return false;
    free(store->names);
    store->names = names;
    store->name_room = room;
    for (uint32_t i = 0; i < store->count; i++)
        *place(store, store->list[i].name) = i + 1;
    return true;
}

bool wi_parameters_make_room(weir_parameters *store)
{
    if (store->count == store->list_room) {
        uint32_t room = store->list_room ? 2 * store->list_room : 32;
        weir_parameter *list = realloc(store->list, room * sizeof *list);
        if (!list)
            return false;
        store->list = list;
        store->list_room = room;
    }
    return 2 * (store->count + 1) <= store->name_room || widen_names(store);
}

void wi_parameters_publish(weir_parameters *store, const weir_parameter *parameter)
{
    wi_assert(store->count < store->list_room && 2 * (store->count + 1) <= store->name_room);
    store->list[store->count] = *parameter;
    *place(store, parameter->name) = ++store->count;
}

weir_status weir_parameters_get(weir_parameters *store, uint32_t index, weir_parameter *out)
{
    if (!store || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_get: NULL");
    pthread_mutex_lock(&store->lock);
    uint32_t count = store->count;
    weir_parameter found = {.struct_size = 0};
    if (index < count)
        found = store->list[index];
    pthread_mutex_unlock(&store->lock);
    if (index >= count)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_get: there is no parameter %u; the store %s has %u", index,
                         store->tag, count);
    if (!wi_copy_out(out, out->struct_size, &found, sizeof found))
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_get: a structure without its size");
    return WEIR_OK;
}

weir_status weir_parameters_find(weir_parameters *store, const char *name, weir_parameter *out)
{
    if (!store || !name || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_find: NULL");
    uint32_t index = 0;
    pthread_mutex_lock(&store->lock);
    bool there = wi_parameters_seek(store, name, &index);
    pthread_mutex_unlock(&store->lock);
    if (!there)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the store %s has no parameter \"%.200s\"", store->tag, name);
    return weir_parameters_get(store, index, out);
}
