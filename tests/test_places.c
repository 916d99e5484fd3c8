/* See test_places.h. The build defines both folders. */
#include "test_places.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { LASTING = 4, MOST_BYTES = 1024 };

const char data_folder[] = WEIR_TEST_DATA, built_folder[] = WEIR_TEST_BINARY;

static const char *places_path(const char *folder, const char *format, va_list words)
{
    static _Thread_local char paths[LASTING][MOST_BYTES];
    static _Thread_local unsigned next;
    char name[MOST_BYTES], *path = paths[next++ % LASTING];
    int length = vsnprintf(name, sizeof name, format, words);
    if (length >= MOST_BYTES || snprintf(path, MOST_BYTES, "%s/%s", folder, name) >= MOST_BYTES) {
        fprintf(stderr, "%s/%s is longer than %d bytes\n", folder, name, MOST_BYTES - 1);
        abort();
    }
    return path;
}

const char *data_path(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    const char *path = places_path(data_folder, format, words);
    va_end(words);
    return path;
}

const char *built_path(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    const char *path = places_path(built_folder, format, words);
    va_end(words);
    return path;
}
