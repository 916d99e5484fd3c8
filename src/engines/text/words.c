/* words.c: words that end a text: read from a setting, found in a text, and known by their beginnings. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* One line's word, written to `to`; NULL when it has a backslash before anything else. */
static char *unescape(const char *line, size_t bytes, char *to)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = line[i];
        if (c == '\\') {
            char next = i + 1 < bytes ? line[++i] : '\0';
            if (next != 'n' && next != 't' && next != '\\')
                return NULL;
            c = next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
        }
        *to++ = c;
    }
    *to = '\0';
    return to;
}

static weir_status words_add_word(const char *key, const char *line, size_t bytes, char **to, wt_words *out)
{
    if (bytes == 0)
        return WEIR_OK;
    if (out->count == WT_MOST_WORDS)
        return weir_fail(WEIR_ERR_INVALID, "the setting '%s' has more than %d words", key, WT_MOST_WORDS);
    char *end = unescape(line, bytes, *to);
    if (!end)
        return weir_fail(WEIR_ERR_INVALID,
                         "the setting '%s' has a backslash in '%.*s' that is none of \\n, \\t and \\\\", key,
                         bytes < 60 ? (int)bytes : 60, line);
    size_t length = (size_t)(end - *to);
    out->list[out->count++] = (wt_word){*to, length};
    out->longest = length > out->longest ? length : out->longest;
    *to = end + 1;
    return WEIR_OK;
}

weir_status wt_words_read(const char *key, const char *value, wt_words *out)
{
    *out = (wt_words){0};
    if (!value || !value[0])
        return WEIR_OK;
    out->copies = malloc(strlen(value) + 2);
    out->list = calloc(WT_MOST_WORDS, sizeof *out->list);
    if (!out->copies || !out->list) {
        wt_words_drop(out);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the setting '%s'", key);
    }
    char *to = out->copies;
    weir_status status = WEIR_OK;
    for (const char *line = value; status == WEIR_OK && *line;) {
        size_t bytes = strcspn(line, "\n");
        status = words_add_word(key, line, bytes, &to, out);
        line += bytes + (line[bytes] == '\n');
    }
    if (status != WEIR_OK)
        wt_words_drop(out);
    return status;
}

void wt_words_drop(wt_words *words)
{
    free(words->list);
    free(words->copies);
    *words = (wt_words){0};
}

const wt_word *wt_words_find(const wt_words *words, const char *text, size_t bytes, size_t from, size_t *at)
{
    const wt_word *found = NULL;
    for (size_t i = 0; i < words->count && from < bytes; i++) {
        const wt_word *word = &words->list[i];
        const char *here = memmem(text + from, bytes - from, word->text, word->bytes);
        if (here && (!found || (size_t)(here - text) < *at)) {
            found = word;
            *at = (size_t)(here - text);
        }
    }
    return found;
}

size_t wt_words_held(const wt_words *words, const char *text, size_t bytes)
{
    size_t longest = 0;
    for (size_t i = 0; i < words->count; i++) {
        const wt_word *word = &words->list[i];
        size_t most = word->bytes - 1 < bytes ? word->bytes - 1 : bytes;
        for (size_t held = most; held > longest; held--)
            if (memcmp(text + bytes - held, word->text, held) == 0)
                longest = held;
    }
    return longest;
}
