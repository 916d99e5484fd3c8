/* Texts: hashes, interned texts, and pools of strings. */
#ifndef WI_TEXTS_H
#define WI_TEXTS_H

#include "base/internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Hashes ----------------------------------------------------------------------------------------------------------- */

/* Hashes of texts: FNV-1a (Fowler, Noll, Vo), and one of eight bytes at a time for long names. */

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
        size_t part = left < sizeof word ? left : sizeof word;
        memcpy(&word, at, part);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
        at += part;
        left -= part;
    }
    return hash;
}

/* Interned texts --------------------------------------------------------------------------------------------------- */

/* Interned texts: names and tags that stay valid for the life of the process, as traces and refusals show them long
 * after their owner is gone. Equal texts are stored once.
 *
 * A program may make up texts without end, so that only a bounded number of each kind is stored. Later ones are lost,
 * or remain their owner's alone; that is counted, and logged once. */

typedef enum wi_text_kind { WI_TAG, WI_NAME, WI_DEVICE_NAME, WI_TEXTS } wi_text_kind;
enum { WI_TEXTS_MOST = 65536 };

/* Stands for a name that was not stored, where it has to outlive its owner. */
#define WI_LOST_NAME "?"

/* The stored copy of a tag, cut at `most` bytes; "" for NULL, and for a lost one. Equal texts give equal pointers. Any
 * thread; no lock is held, as the log may be called. */
const char *wi_intern(const char *text, size_t most);
/* The same for a text of any kind, not NULL; NULL for a lost one. */
const char *wi_intern_as(wi_text_kind kind, const char *text, size_t most);
/* How many texts of the kind were lost. */
uint64_t wi_intern_lost(wi_text_kind kind);

/* String pools ----------------------------------------------------------------------------------------------------- */

/* A string pool: strings that are freed together. */

/* All zeros is an empty pool. */
typedef struct wi_string_pool {
    struct wi_pooled_string *last;
    bool failed; /* there was no host memory for a string, which is "" */
} wi_string_pool;

/* Prints a string, as one line. It is valid as long as the pool. */
const char *wi_string_pool_print(wi_string_pool *pool, const char *format, ...) WEIR_PRINTF(2, 3);
const char *wi_string_pool_vprint(wi_string_pool *pool, const char *format, va_list arguments) WEIR_PRINTF(2, 0);
void wi_string_pool_free(wi_string_pool *pool);

#endif
