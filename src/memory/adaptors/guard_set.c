/* The guard's records in the order of addresses. A sorted array: moving its end is nothing beside filling a block. */
#include "memory/adaptors/guard.h"

/* The first record that does not begin before `start`. */
static size_t guard_place_of(const wi_guard *guard, const char *start)
{
    size_t low = 0, high = guard->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (guard->set[middle]->start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

weir_status wi_guard_set_reserve(wi_guard *guard)
{
    if (guard->count < guard->capacity)
        return WEIR_OK;
    size_t capacity = wi_max(64, 2 * guard->capacity);
    wi_guarded **set = realloc(guard->set, capacity * sizeof(wi_guarded *));
    if (!set)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of a guard");
    guard->set = set;
    guard->capacity = capacity;
    return WEIR_OK;
}

/* What is leaving may stand where the next one begins: the base gives it back before the record ends. */
static bool guard_overlap(const wi_guarded *a, const wi_guarded *b)
{
    return a->state != WI_GUARDED_LEAVING && a->start < b->end && b->start < a->end;
}

void wi_guard_set_insert(wi_guard *guard, wi_guarded *record, const wi_guarded **under)
{
    size_t at = guard_place_of(guard, record->start);
    *under = NULL;
    for (size_t i = at; i < guard->count && guard->set[i]->start < record->end && !*under; i++)
        if (guard_overlap(guard->set[i], record))
            *under = guard->set[i];
    for (size_t i = at; i > 0 && !*under; i--)
        if (guard->set[i - 1]->state != WI_GUARDED_LEAVING) {
            if (guard_overlap(guard->set[i - 1], record))
                *under = guard->set[i - 1];
            break;
        }
    memmove(guard->set + at + 1, guard->set + at, (guard->count - at) * sizeof(wi_guarded *));
    guard->set[at] = record;
    guard->count++;
}

void wi_guard_set_remove(wi_guard *guard, const wi_guarded *record)
{
    size_t at = guard_place_of(guard, record->start);
    while (guard->set[at] != record)
        at++;
    guard->count--;
    memmove(guard->set + at, guard->set + at + 1, (guard->count - at) * sizeof(wi_guarded *));
}

wi_guarded *wi_guard_set_find(wi_guard *guard, const wi_block *block)
{
    const char *start = (const char *)block->pointer - block->before;
    for (size_t at = guard_place_of(guard, start); at < guard->count && guard->set[at]->start == start; at++)
        if (guard->set[at]->generation == wi_block_generation(block))
            return guard->set[at];
    return NULL;
}
