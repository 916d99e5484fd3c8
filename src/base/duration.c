#include "base/duration.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR, MOST_DAYS = 36500 };

bool wi_duration_read(const char *text, uint64_t *seconds)
{
    static const struct {
        const char *name;
        uint64_t seconds;
    } units[] = {{"s", 1}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};
    const uint64_t most = UINT64_C(1) * MOST_DAYS * DAY;
    char *end = NULL;
    if (!isdigit((unsigned char)*text))
        return false;
    unsigned long long number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].name) == 0 && number <= most / units[i].seconds) {
            *seconds = number * units[i].seconds;
            return true;
        }
    return false;
}
