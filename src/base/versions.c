/* Versions as tuples of integers. */
#include "base/values.h"

#include <stdio.h>

enum { MOST_PARTS = sizeof(((weir_version_number *)0)->part) / sizeof(uint32_t) };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads one part and moves *text behind it. False: there is none, or it is larger than 32 bits. */
static bool versions_read_part(const char **text, uint32_t *out)
{
    uint64_t value = 0;
    const char *p = *text;
    for (; is_digit(*p); p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > UINT32_MAX)
            return false;
    }
    bool found = p != *text;
    *text = p;
    *out = (uint32_t)value;
    return found;
}

weir_status wi_version_read(const char *text, weir_version_number *out)
{
    if (!text || !out)
        return weir_fail(WEIR_ERR_INVALID, "wi_version_read: %s is NULL", text ? "out" : "text");
    weir_version_number version = {.count = 0};
    const char *p = text + (*text == 'v');
    bool good = true;
    do {
        good = version.count < MOST_PARTS && versions_read_part(&p, &version.part[version.count]);
        version.count++;
    } while (good && *p == '.' && p++);
    if (!good || (*p != '\0' && *p != '-' && *p != '+'))
        return weir_fail(WEIR_ERR_INVALID,
                         "\"%.60s\" is no version; write one to four numbers below 2^32 between points, as 12.4", text);
    *out = version;
    return WEIR_OK;
}

int wi_version_compare(weir_version_number a, weir_version_number b)
{
    if (a.count == 0 || b.count == 0)
        return (a.count > 0) - (b.count > 0);
    for (uint32_t i = 0; i < MOST_PARTS; i++) {
        uint32_t x = i < a.count ? a.part[i] : 0, y = i < b.count ? b.part[i] : 0;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

const char *wi_version_write(weir_version_number version, char *text, size_t capacity)
{
    if (capacity == 0)
        return text;
    if (version.count == 0)
        snprintf(text, capacity, "unknown");
    size_t used = 0;
    for (uint32_t i = 0; i < version.count && i < MOST_PARTS && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%u", i ? "." : "", version.part[i]);
    return text;
}
