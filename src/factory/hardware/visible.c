#include "factory/hardware/visible.h"

#include <ctype.h>
#include <strings.h>

#define NONE SIZE_MAX

typedef struct entry {
    const char *text;
    size_t length;
    bool uuid;
} entry;

/* The entry at `list`, without the blanks around it; CUDA knows no UUID behind a blank, nor one that begins with
 * "gpu-". */
static entry visible_entry_at(wi_visible_rules rules, const char *list)
{
    size_t blanks = strspn(list, " \t");
    entry e = {.text = list + blanks, .length = strcspn(list + blanks, ",")};
    int (*differs)(const char *, const char *, size_t) = rules == WI_VISIBLE_CUDA ? strncmp : strncasecmp;
    while (e.length > 0 && isspace((unsigned char)e.text[e.length - 1]))
        e.length--;
    e.uuid = e.length >= 4 && (differs(e.text, "GPU-", 4) == 0 || differs(e.text, "MIG-", 4) == 0) &&
             (rules != WI_VISIBLE_CUDA || blanks == 0);
    return e;
}

static size_t visible_by_number(entry e, bool whole, size_t counted)
{
    size_t at = !whole && (*e.text == '+' || *e.text == '-') && e.length > 0, first = at, number = 0;
    for (; at < e.length && isdigit((unsigned char)e.text[at]) && number < counted; at++)
        number = number * 10 + (size_t)(e.text[at] - '0');
    if (at == first || number >= counted || (whole && at < e.length) || (*e.text == '-' && number > 0))
        return NONE;
    return number;
}

/* Returns the only key that begins like the entry; CUDA ignores text behind a whole key. */
static size_t visible_by_key(wi_visible_rules rules, entry e, const char *const *keys, size_t count)
{
    bool cuda = rules == WI_VISIBLE_CUDA;
    size_t found = NONE;
    for (size_t i = 0; i < count; i++) {
        size_t all = strlen(keys[i]), length = cuda && e.length > all ? all : e.length;
        if ((cuda && length <= 4) || strncasecmp(keys[i], e.text, length) != 0)
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
    bool cuda = rules == WI_VISIBLE_CUDA, first_is_uuid = list && visible_entry_at(rules, list).uuid;
    for (; !list && found < counted; found++)
        seen[found] = found;
    while (list) {
        entry e = visible_entry_at(rules, list);
        if (cuda && e.uuid != first_is_uuid)
            break;
        size_t one = e.uuid ? visible_by_key(rules, e, keys, count) : visible_by_number(e, !cuda, counted);
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
