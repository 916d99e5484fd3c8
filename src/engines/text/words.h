/* words.h: words that end a text, and lists of words in a setting. */
#ifndef WT_WORDS_H
#define WT_WORDS_H

#include <stddef.h>

#include <weir/base.h>

typedef struct wt_word {
    const char *text;
    size_t bytes;
} wt_word;

typedef struct wt_words {
    wt_word *list;
    size_t count, longest;
    char *kept;
} wt_words;

enum { WT_MOST_WORDS = 64 };

/* The words of a setting, one a line; \n, \t and \\ in a word are a newline, a tab and a backslash. Empty lines are
 * none. */
weir_status wt_words_read(const char *key, const char *value, wt_words *out);
void wt_words_drop(wt_words *words);
/* Finds the word that begins first in text[from..]; of several words that begin there, the word that was named first.
 * NULL: none. */
const wt_word *wt_words_find(const wt_words *words, const char *text, size_t bytes, size_t from, size_t *at);
/* So many bytes at the end of the text may be the beginning of a word. */
size_t wt_words_held(const wt_words *words, const char *text, size_t bytes);

#endif
