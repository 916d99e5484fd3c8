/* How far apart two words are. */
#ifndef WI_NEAREST_H
#define WI_NEAREST_H

#include <stddef.h>

/* How many letters differ: a distance good enough to name the word that was meant. Looks at 62 letters of each. */
size_t wi_distance(const char *a, const char *b);

#endif
