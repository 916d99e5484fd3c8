#include "base/pointer_map.h"

#include <stdlib.h>

static size_t home(const wi_pointer_map *map, const void *pointer)
{
    return (size_t)(((uint64_t)(uintptr_t)pointer >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (map->capacity - 1);
}

/* The pointer's entry, or the empty one where it would go. */
static size_t pointer_map_find(const wi_pointer_map *map, const void *pointer)
{
    size_t at = home(map, pointer);
    while (map->entries[at].pointer != NULL && map->entries[at].pointer != pointer)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static bool pointer_map_grow(wi_pointer_map *map)
{
    wi_pointer_map larger = {.capacity = map->capacity == 0 ? 256 : map->capacity * 2, .used = map->used};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].pointer != NULL)
            larger.entries[pointer_map_find(&larger, map->entries[i].pointer)] = map->entries[i];
    free(map->entries);
    *map = larger;
    return true;
}

bool wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value)
{
    if (pointer == NULL)
        return true;
    if (map->used * 2 >= map->capacity && !pointer_map_grow(map))
        return false;
    wi_pointer_map_entry *entry = &map->entries[pointer_map_find(map, pointer)];
    map->used += entry->pointer == NULL;
    *entry = (wi_pointer_map_entry){pointer, value};
    return true;
}

bool wi_pointer_map_get(const wi_pointer_map *map, const void *pointer, uint64_t *value)
{
    if (map->capacity == 0 || pointer == NULL)
        return false;
    const wi_pointer_map_entry *entry = &map->entries[pointer_map_find(map, pointer)];
    if (entry->pointer == NULL)
        return false;
    *value = entry->value;
    return true;
}

bool wi_pointer_map_remove(wi_pointer_map *map, const void *pointer, uint64_t *value)
{
    if (map->capacity == 0 || pointer == NULL)
        return false;
    size_t mask = map->capacity - 1, gap = pointer_map_find(map, pointer);
    if (map->entries[gap].pointer == NULL)
        return false;
    *value = map->entries[gap].value;
    /* Moves later entries into the gap if they could not be found behind it. */
    for (size_t at = (gap + 1) & mask; map->entries[at].pointer != NULL; at = (at + 1) & mask) {
        size_t wanted = home(map, map->entries[at].pointer);
        if (((at - wanted) & mask) >= ((at - gap) & mask)) {
            map->entries[gap] = map->entries[at];
            gap = at;
        }
    }
    map->entries[gap] = (wi_pointer_map_entry){0};
    map->used--;
    return true;
}

void wi_pointer_map_clear(wi_pointer_map *map)
{
    free(map->entries);
    *map = (wi_pointer_map){0};
}
