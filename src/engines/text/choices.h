/* choices.h: an engine's settings. A table has each setting's key, place in the structure, and values. */
#ifndef WT_CHOICES_H
#define WT_CHOICES_H

#include <weir/engine.h>

typedef struct wt_choice {
    const char *key;
    char kind; /* i(nteger): int64_t, r(eal): double, b(ool), t(ext, short): char[], l(ong): the caller's pointer */
    bool of_load;
    size_t at;          /* in the structure of the settings of a load, or of a run */
    double least, most; /* for a short text: `most` bytes with its end */
} wt_choice;

typedef struct wt_choices {
    const char *engine; /* "gguf", for messages */
    const wt_choice *list;
    size_t count;
} wt_choices;

/* Writes what the settings say into `load` and `run`. At a load both kinds are taken: settings of a run become the
 * model's defaults. For a run `load` is NULL. WEIR_ERR_INVALID names the key, its values, or the keys that there
 * are. */
weir_status wt_choices_take(const wt_choices *choices, const weir_setting *settings, size_t count, void *load,
                            void *run);
/* As strtod, with a point in whatever language the program speaks. */
double wt_real(const char *text, char **end);
/* Copies the long texts of a run's settings into *kept, so that they may outlive the caller's; to be freed. On failure
 * the settings hold no text. */
weir_status wt_choices_keep(const wt_choices *choices, void *run, char **kept);
/* All that the settings of a load say, but for the one at `except`, in words: equal for equal settings. Answers whether
 * it fits. */
bool wt_choices_words(const wt_choices *choices, const void *load, size_t except, char *out, size_t capacity);

#endif
