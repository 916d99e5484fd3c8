#include "hardware/visible.h"

#include <ctype.h>
#include <strings.h>

#define NONE SIZE_MAX

typedef struct entry {
    const char *text;
    size_t length;
    bool uuid;
} entry;

/* The entry at `list`, without the blanks around it. */
static entry entry_at(const char *list)
{
    list += strspn(list, " \t");
    entry e = {.text = list, .length = strcspn(list, ",")};
    while (e.length > 0 && isspace((unsigned char)e.text[e.length - 1]))
        e.length--;
    e.uuid = e.length >= 4 && (strncasecmp(e.text, "GPU-", 4) == 0 || strncasecmp(e.text, "MIG-", 4) == 0);
    return e;
}

static size_t by_number(entry e, bool whole, size_t counted)
{
    size_t at = !whole && (*e.text == '+' || *e.text == '-') && e.length > 0, first = at, number = 0;
    for (; at < e.length && isdigit((unsigned char)e.text[at]) && number < counted; at++)
        number = number * 10 + (size_t)(e.text[at] - '0');
    if (at == first || number >= counted || (whole && at < e.length) || (*e.text == '-' && number > 0))
        return NONE;
    return number;
}

/* The one key that begins so. */
static size_t by_key(entry e, const char *const *keys, size_t count)
{
    size_t found = NONE;
    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(keys[i], e.text, e.length) != 0)
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

size_t wi_visible(wi_visible_rules rules, const char *list, const char *const *keys, size_t counted, size_t count,
                  size_t *seen)
{
    size_t found = 0;
    bool cuda = rules == WI_VISIBLE_CUDA, first_is_uuid = list && entry_at(list).uuid;
    for (; !list && found < counted; found++)
        seen[found] = found;
    while (list) {
        entry e = entry_at(list);
        if (cuda && e.uuid != first_is_uuid)
            break;
        size_t one = e.uuid ? by_key(e, keys, count) : by_number(e, !cuda, counted);
        bool twice = one != NONE && is_seen(one, seen, found);
        if (cuda && twice)
            return 0;
        if (one == NONE || (twice && rules == WI_VISIBLE_ROCR))
            break;
        if (!twice)
            seen[found++] = one;
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return found;
}
