#include "planner/radix.h"
#include "base/internal.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Digits that all keys have in common are passed over: keys of small ranges cost one or two rounds. */
void wi_radix_sort(wi_key *keys, wi_key *spare, size_t count)
{
    uint64_t any = 0, all = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        any |= keys[i].key;
        all &= keys[i].key;
    }
    wi_key *from = keys, *to = spare;
    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        if (((any ^ all) >> shift & (DIGITS - 1)) == 0)
            continue;
        size_t begins[DIGITS + 1] = {0};
        for (size_t i = 0; i < count; i++)
            begins[(from[i].key >> shift & (DIGITS - 1)) + 1]++;
        for (unsigned i = 1; i < DIGITS; i++)
            begins[i] += begins[i - 1];
        for (size_t i = 0; i < count; i++)
            to[begins[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        wi_key *other = from;
        from = to;
        to = other;
    }
    if (from != keys && count > 0)
        memcpy(keys, from, count * sizeof *keys);
}
