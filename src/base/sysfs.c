/* Small files in /proc and /sys, and the mappings of the process, counted by the lines of one. */
#include "base/system.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Small files ------------------------------------------------------------------------------------------------------ */

static bool sysfs_read_whole(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return false;
    size_t used = 0;
    ssize_t got = 0;
    while (used < capacity - 1) {
        got = read(file, text + used, capacity - 1 - used);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    close(file);
    while (used > 0 && isspace((unsigned char)text[used - 1]))
        used--;
    text[used] = '\0';
    return got >= 0;
}

static bool read_printed(char *text, size_t capacity, const char *format, va_list arguments)
{
    char path[PATH_MAX];
    text[0] = '\0';
    int length = vsnprintf(path, sizeof path, format, arguments);
    return length > 0 && (size_t)length < sizeof path && sysfs_read_whole(path, text, capacity);
}

bool wi_sysfs_text(char *text, size_t capacity, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool found = read_printed(text, capacity, format, arguments);
    va_end(arguments);
    return found;
}

static bool sysfs_read_number(const char *text, uint64_t *out)
{
    bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, hexadecimal ? 16 : 10);
    if (errno)
        return false;
    *out = value;
    return true;
}

bool wi_sysfs_number(uint64_t *out, const char *format, ...)
{
    char text[64];
    va_list arguments;
    va_start(arguments, format);
    bool found = read_printed(text, sizeof text, format, arguments) && sysfs_read_number(text, out);
    va_end(arguments);
    return found;
}

const char *wi_sysfs_line(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0)
            return line + length + strspn(line + length, " \t");
    }
    return NULL;
}

bool wi_sysfs_field(const char *text, const char *key, uint64_t *out)
{
    const char *found = wi_sysfs_line(text, key);
    return found && sysfs_read_number(found, out);
}

/* Mappings --------------------------------------------------------------------------------------------------------- */

enum { USUAL_MOST = 65530, LINES = 16 * 1024, MOST_UNCHECKED = 256 };

static atomic_int_fast64_t unchecked; /* so many may be made before they are counted again */

static uint64_t mappings_most(void)
{
    uint64_t most = USUAL_MOST;
    (void)wi_sysfs_number(&most, "/proc/sys/vm/max_map_count");
    return most;
}

wi_mappings wi_mappings_count(void)
{
    wi_mappings found = {0, mappings_most()};
    char lines[LINES];
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return found;
    for (ssize_t got; (got = read(file, lines, sizeof lines)) > 0;)
        for (const char *at = lines; (at = memchr(at, '\n', (size_t)(lines + got - at))); at++)
            found.there++;
    close(file);
    return found;
}

/* How many more weir may make. */
static uint64_t mappings_left(const wi_mappings *now)
{
    uint64_t ours = now->most - now->most / 16;
    return ours - wi_min(ours, now->there);
}

bool wi_mappings_take(uint64_t count)
{
    if (atomic_fetch_sub(&unchecked, (int64_t)count) >= (int64_t)count)
        return true;
    wi_mappings now = wi_mappings_count();
    uint64_t left = mappings_left(&now);
    atomic_store(&unchecked, left >= count ? (int64_t)wi_min((left - count) / 4, MOST_UNCHECKED) : 0);
    return left >= count;
}

bool wi_mappings_are_short(void)
{
    wi_mappings now = wi_mappings_count();
    return mappings_left(&now) < now.most / 64;
}
