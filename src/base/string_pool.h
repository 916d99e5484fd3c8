/* A string pool: strings that are freed together. */
#ifndef WI_STRING_POOL_H
#define WI_STRING_POOL_H

#include "base/internal.h"

#include <stdarg.h>

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
