/* sizes.h: how large the live blocks are, by address: a resize and a free row need the size from before. */
#ifndef WEIR_TRACE_SIZES_H
#define WEIR_TRACE_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sizes_entry {
    const void *pointer; /* NULL: empty */
    uint64_t bytes;
} sizes_entry;

/* Open addressing with linear probing; at most half full. All zero is an empty one. */
typedef struct sizes {
    sizes_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
} sizes;

bool sizes_put(sizes *table, const void *pointer, uint64_t bytes);
bool sizes_take(sizes *table, const void *pointer, uint64_t *bytes); /* false if it is not there */
void sizes_clear(sizes *table);

#endif
