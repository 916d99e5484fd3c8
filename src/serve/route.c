/* route.c: paths: decoded, refused where they are not what they seem, and compared with the routes. */
#include "parts.h"

#include <stdio.h>
#include <string.h>

static int route_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One segment in place, up to `end`; answers its new end, NULL if an escape is none or stands for a control character. */
static char *route_decode(char *from, const char *end)
{
    char *to = from;
    for (const char *at = from; at < end; to++) {
        bool escaped = *at == '%';
        int high = escaped && end - at > 2 ? route_digit(at[1]) : -1, low = high >= 0 ? route_digit(at[2]) : -1;
        if (escaped && low < 0)
            return NULL;
        *to = escaped ? (char)(high * 16 + low) : *at;
        at += escaped ? 3 : 1;
        if ((unsigned char)*to < 32 || *to == 127)
            return NULL;
    }
    return to;
}

/* Shortest form alone, no surrogates, nothing behind U+10FFFF. */
static bool is_utf8(const char *text, const char *end)
{
    for (const unsigned char *at = (const unsigned char *)text, *stop = (const unsigned char *)end; at < stop;) {
        unsigned more = *at < 0x80 ? 0 : *at < 0xc2 ? 9 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : *at < 0xf5 ? 3 : 9;
        if (more == 9 || (size_t)(stop - at) <= more)
            return false;
        if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) || (*at == 0xf0 && at[1] < 0x90) ||
            (*at == 0xf4 && at[1] > 0x8f))
            return false;
        for (unsigned i = 1; i <= more; i++)
            if ((at[i] & 0xc0) != 0x80)
                return false;
        at += more + 1;
    }
    return true;
}

enum { MOST_PARTS = 16 };

/* Splits at '/' first, so that an escaped one is part of a segment. Answers how many there are; -1: refused. */
static int route_split(char *path, const char *parts[MOST_PARTS])
{
    int count = 0;
    if (*path != '/')
        return -1;
    for (char *at = path + 1, *end; at; at = end) {
        char *slash = strchr(at, '/');
        char *after = route_decode(at, slash ? slash : at + strlen(at));
        if (!after || !is_utf8(at, after) || count == MOST_PARTS)
            return -1;
        end = slash ? slash + 1 : NULL;
        *after = '\0';
        if (strcmp(at, ".") == 0 || strcmp(at, "..") == 0)
            return -1;
        parts[count++] = at;
    }
    return count;
}

/* The empty segment behind a last '/' is none: /v2/ is /v2. */
static int without_last(const char *const parts[MOST_PARTS], int count)
{
    return count > 1 && parts[count - 1][0] == '\0' ? count - 1 : count;
}

static bool route_fits(const char *pattern, const char *const *parts, int count, const char *segments[WS_SEGMENTS])
{
    int taken = 0, i = 0;
    for (const char *at = pattern + 1;; i++) {
        size_t bytes = strcspn(at, "/");
        if (i == count)
            return false;
        if (bytes == 2 && at[0] == '{' && at[1] == '}') {
            if (parts[i][0] == '\0' || taken == WS_SEGMENTS)
                return false;
            segments[taken++] = parts[i];
        } else if (strlen(parts[i]) != bytes || memcmp(parts[i], at, bytes) != 0) {
            return false;
        }
        at += bytes;
        if (*at++ == '\0')
            break;
    }
    return i + 1 == count;
}

ws_match ws_route_find(const ws_route *routes, const char *method, char *path, const ws_route **out,
                       const char *segments[WS_SEGMENTS], char *allowed)
{
    const char *parts[MOST_PARTS];
    int count = route_split(path, parts);
    bool head = strcmp(method, "HEAD") == 0;
    *out = NULL;
    allowed[0] = '\0';
    if (count < 0)
        return WS_BAD_PATH;
    count = without_last(parts, count);
    for (const ws_route *route = routes; route->path && !*out; route++) {
        const char *found[WS_SEGMENTS] = {0};
        if (!route_fits(route->path, parts, count, found))
            continue;
        size_t used = strlen(allowed);
        snprintf(allowed + used, 64 - used, "%s%s", used ? ", " : "",
                 strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method);
        if (strcmp(route->method, head ? "GET" : method) != 0)
            continue;
        *out = route;
        memcpy(segments, found, sizeof found);
    }
    return *out ? WS_MATCH : allowed[0] ? WS_NO_METHOD : WS_NO_PATH;
}
