/* A string pool: strings that belong to one thing, and go with it. */
#ifndef WI_STRING_POOL_H
#define WI_STRING_POOL_H

#include "base/internal.h"

#include <stdarg.h>

/* All zeros is an empty one. */
typedef struct wi_string_pool {
    struct wi_pooled_string *last;
    bool failed; /* there was no host memory for one, which is "" */
} wi_string_pool;

/* The string as one line, whatever it is made from. Lives as long as the pool. */
const char *wi_string_pool_print(wi_string_pool *pool, const char *format, ...) WEIR_PRINTF(2, 3);
const char *wi_string_pool_vprint(wi_string_pool *pool, const char *format, va_list arguments) WEIR_PRINTF(2, 0);
void wi_string_pool_free(wi_string_pool *pool);

#endif
