/* How large the live blocks are, by address: a resize and a free row need the size from before. */
#ifndef WI_SIZES_H
#define WI_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wi_sizes_entry {
    const void *pointer; /* NULL: empty */
    uint64_t bytes;
} wi_sizes_entry;

/* Open addressing with linear probing; at most half full. All zero is an empty one. */
typedef struct wi_sizes {
    wi_sizes_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
} wi_sizes;

bool wi_sizes_put(wi_sizes *table, const void *pointer, uint64_t bytes);
bool wi_sizes_take(wi_sizes *table, const void *pointer, uint64_t *bytes); /* false if it is not there */
void wi_sizes_clear(wi_sizes *table);

#endif
