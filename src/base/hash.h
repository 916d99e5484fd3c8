/* Hashes of texts: FNV-1a (Fowler, Noll, Vo), and one of eight bytes at a time for long names. */
#ifndef WI_HASH_H
#define WI_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t wi_fnv1a(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

/* FNV-1a with the high half mixed into the low bits, for tables that use only those. */
static inline uint64_t wi_hash(const void *bytes, size_t length)
{
    uint64_t hash = wi_fnv1a(bytes, length);
    return hash ^ hash >> 32;
}

/* Hash for the same tables. It depends on the byte order of the machine. */
static inline uint64_t wi_hash_words(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t hash = length;
    for (size_t left = length; left > 0;) {
        uint64_t word = 0;
        size_t step = left < sizeof word ? left : sizeof word;
        memcpy(&word, at, step);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
        at += step;
        left -= step;
    }
    return hash;
}

#endif
