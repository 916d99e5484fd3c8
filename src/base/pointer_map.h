/* A hash map from pointers to numbers: open addressing with linear probing, at most half full. */
#ifndef WI_POINTER_MAP_H
#define WI_POINTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wi_pointer_map_entry {
    const void *pointer; /* NULL: empty */
    uint64_t value;
} wi_pointer_map_entry;

/* All zeros is an empty map. */
typedef struct wi_pointer_map {
    wi_pointer_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
} wi_pointer_map;

/* Sets the pointer's value. NULL is no key, and is ignored. False: no host memory. */
bool wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value);
/* The pointer's value; false: it is not there. */
bool wi_pointer_map_get(const wi_pointer_map *map, const void *pointer, uint64_t *value);
/* Removes the pointer; false: it is not there. */
bool wi_pointer_map_remove(wi_pointer_map *map, const void *pointer, uint64_t *value);
void wi_pointer_map_clear(wi_pointer_map *map);

#endif
