#include "base/string_pool.h"

#include <stdio.h>

typedef struct wi_pooled_string {
    struct wi_pooled_string *before;
    char text[];
} pooled_string;

const char *wi_string_pool_vprint(wi_string_pool *pool, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    pooled_string *string = length < 0 ? NULL : malloc(sizeof *string + (size_t)length + 1);
    if (string) {
        vsnprintf(string->text, (size_t)length + 1, format, again);
        wi_one_line(string->text);
        string->before = pool->last;
        pool->last = string;
    }
    va_end(again);
    pool->failed |= string == NULL;
    return string ? string->text : "";
}

const char *wi_string_pool_print(wi_string_pool *pool, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *string = wi_string_pool_vprint(pool, format, arguments);
    va_end(arguments);
    return string;
}

void wi_string_pool_free(wi_string_pool *pool)
{
    for (pooled_string *before; pool->last; pool->last = before) {
        before = pool->last->before;
        free(pool->last);
    }
}
