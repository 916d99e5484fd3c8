#include "manifest/locations.h"

#include <string.h>

static size_t skip_space(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

/* Past the string that begins at `at`. */
static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] && text[at] != '"'; at++)
        at += text[at] == '\\' && text[at + 1];
    return at + (text[at] != '\0');
}

static size_t skip_value(const char *text, size_t at)
{
    size_t depth = 0;
    do {
        if (text[at] == '"') {
            at = skip_string(text, at);
        } else if (text[at] == '{' || text[at] == '[') {
            depth++;
            at++;
        } else if (text[at] == '}' || text[at] == ']') {
            depth--;
            at++;
        } else if (depth > 0) {
            at += text[at] != '\0';
        } else {
            at += strcspn(text + at, ",]} \t\r\n");
        }
    } while (depth > 0 && text[at]);
    return at;
}

size_t wi_place_first(const char *text)
{
    return skip_space(text, 0);
}

wi_walk wi_walk_into(const char *text, size_t at)
{
    return (wi_walk){text, at + 1, text[at] == '{'};
}

bool wi_walk_next(wi_walk *walk, wi_place *out)
{
    const char *text = walk->text;
    size_t at = skip_space(text, walk->at);
    if (text[at] == ',')
        at = skip_space(text, at + 1);
    if (text[at] == '}' || text[at] == ']' || text[at] == '\0')
        return false;
    *out = (wi_place){.key = at, .key_end = at};
    if (walk->object) {
        out->key_end = skip_string(text, at);
        at = skip_space(text, out->key_end); /* the colon */
        at = skip_space(text, at + 1);
    }
    out->value = at;
    out->value_end = walk->at = skip_value(text, at);
    return true;
}
