/* What is wrong with a manifest: a list of problems, with their places in the text. */
#ifndef WI_MANIFEST_PROBLEMS_H
#define WI_MANIFEST_PROBLEMS_H

#include <weir/manifest.h>

enum { WI_MOST_PROBLEMS = 100 };

typedef struct wi_problems {
    struct wi_found {
        size_t at; /* byte of the text */
        uint32_t line, column;
        char *text;
    } found[WI_MOST_PROBLEMS];
    size_t count, more;
    bool out_of_memory; /* some could not be noted */
} wi_problems;

void wi_problem_add(wi_problems *list, size_t at, const char *format, ...) WEIR_PRINTF(3, 4);

/* Puts them into the order of their places, and finds the lines and columns. */
void wi_problems_sort(wi_problems *list, const char *text);

/* Returns the path and the problems, with their texts, as a single malloc block; NULL without memory. */
weir_manifest_problems *wi_problems_give(const wi_problems *list, const char *path);

void wi_problems_clear(wi_problems *list);

/* Makes a text of a file fit to be shown: without control characters, and cut between characters to the size of the
 * buffer. */
typedef struct wi_shown {
    char text[64];
} wi_shown;
const char *wi_show(wi_shown *shown, const char *text);

#endif
