#include "hardware/visible.h"

#include <ctype.h>
#include <strings.h>

#define NONE SIZE_MAX

static size_t by_number(const char *entry, size_t length, size_t counted)
{
    size_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)entry[i]) || number > counted)
            return NONE;
        number = number * 10 + (size_t)(entry[i] - '0');
    }
    return length > 0 && number < counted ? number : NONE;
}

/* The one key that begins so. */
static size_t by_key(const char *entry, size_t length, const char *const *keys, size_t count)
{
    size_t found = NONE;
    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(keys[i], entry, length) != 0)
            continue;
        if (found != NONE)
            return NONE;
        found = i;
    }
    return found;
}

static bool is_seen(size_t one, const size_t *seen, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (seen[i] == one)
            return true;
    return false;
}

size_t wi_visible(const char *list, const char *const *keys, size_t counted, size_t count, size_t *seen)
{
    size_t found = 0;
    for (; !list && found < counted; found++)
        seen[found] = found;
    while (list) {
        list += strspn(list, " \t");
        size_t length = strcspn(list, ","), trimmed = length;
        while (trimmed > 0 && isspace((unsigned char)list[trimmed - 1]))
            trimmed--;
        size_t one =
            isalpha((unsigned char)*list) ? by_key(list, trimmed, keys, count) : by_number(list, trimmed, counted);
        if (one == NONE)
            break;
        if (is_seen(one, seen, found))
            return 0; /* a device twice: CUDA then shows none */
        seen[found++] = one;
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return found;
}
