/* Words that a manifest may use, and what is said of another one. */
#ifndef WI_MANIFEST_WORDS_H
#define WI_MANIFEST_WORDS_H

#include "manifest/parse.h"

/* Those of providers, strategies and levels are the choice's (choice/words.h). */
extern const char *const wi_words_frameworks[], *const wi_words_formats[];
extern const char *const wi_words_precisions[], *const wi_words_isolation[];

/* The word of the list, which ends with NULL, that is `text` in any case; NULL if none is. */
const char *wi_word(const char *const *words, const char *text);

/* The same; if none is, it is a problem that lists the words and names the nearest. */
const char *wi_word_of(wi_reading *r, const wi_value *v, const char *const *words, const char *what);

/* The nearest of the words, NULL if none is near. */
const char *wi_word_near(const char *const *words, const char *text);

#endif
