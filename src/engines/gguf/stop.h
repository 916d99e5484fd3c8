/* stop.h: words that end a text, and lists of words in a setting. */
#ifndef WG_STOP_H
#define WG_STOP_H

#include <stddef.h>

#include <weir/base.h>

typedef struct wg_word {
    const char *text;
    size_t bytes;
} wg_word;

typedef struct wg_words {
    wg_word *list;
    size_t count, longest;
    char *kept;
} wg_words;

enum { WG_MOST_WORDS = 64 };

/* The words of a setting, one a line; \n, \t and \\ in a word are a newline, a tab and a backslash. Empty lines are
 * none. */
weir_status wg_words_read(const char *key, const char *value, wg_words *out);
void wg_words_drop(wg_words *words);
/* The word that begins first in text[from..]; of those that begin there the one that was named first. NULL: none. */
const wg_word *wg_words_find(const wg_words *words, const char *text, size_t bytes, size_t from, size_t *at);
/* So many bytes at the end of the text may be the beginning of a word. */
size_t wg_words_held(const wg_words *words, const char *text, size_t bytes);

#endif
