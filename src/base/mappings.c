/* The mappings of the process, counted by the lines of /proc/self/maps. */
#include "base/mappings.h"
#include "base/sysfs.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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
