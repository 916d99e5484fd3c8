#include "base/pointer_map.h"

#include <stdlib.h>

static size_t home(const wi_sizes *table, const void *pointer)
{
    return (size_t)(((uint64_t)(uintptr_t)pointer >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (table->capacity - 1);
}

/* Where the pointer is, or the empty place where it would go. */
static size_t place_of(const wi_sizes *table, const void *pointer)
{
    size_t at = home(table, pointer);
    while (table->entries[at].pointer != NULL && table->entries[at].pointer != pointer)
        at = (at + 1) & (table->capacity - 1);
    return at;
}

static bool grow(wi_sizes *table)
{
    wi_sizes larger = {.capacity = table->capacity == 0 ? 256 : table->capacity * 2, .used = table->used};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->entries[i].pointer != NULL)
            larger.entries[place_of(&larger, table->entries[i].pointer)] = table->entries[i];
    free(table->entries);
    *table = larger;
    return true;
}

bool wi_sizes_put(wi_sizes *table, const void *pointer, uint64_t bytes)
{
    if (pointer == NULL)
        return true;
    if (table->used * 2 >= table->capacity && !grow(table))
        return false;
    wi_sizes_entry *entry = &table->entries[place_of(table, pointer)];
    table->used += entry->pointer == NULL;
    *entry = (wi_sizes_entry){pointer, bytes};
    return true;
}

bool wi_sizes_take(wi_sizes *table, const void *pointer, uint64_t *bytes)
{
    if (table->capacity == 0 || pointer == NULL)
        return false;
    size_t mask = table->capacity - 1, hole = place_of(table, pointer);
    if (table->entries[hole].pointer == NULL)
        return false;
    *bytes = table->entries[hole].bytes;
    /* Those behind that would no longer be found move up into the hole. */
    for (size_t at = (hole + 1) & mask; table->entries[at].pointer != NULL; at = (at + 1) & mask) {
        size_t wanted = home(table, table->entries[at].pointer);
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            table->entries[hole] = table->entries[at];
            hole = at;
        }
    }
    table->entries[hole] = (wi_sizes_entry){0};
    table->used--;
    return true;
}

void wi_sizes_clear(wi_sizes *table)
{
    free(table->entries);
    *table = (wi_sizes){0};
}
