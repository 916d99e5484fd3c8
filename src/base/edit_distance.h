/* How far apart two words are. */
#ifndef WI_EDIT_DISTANCE_H
#define WI_EDIT_DISTANCE_H

#include <stddef.h>

/* How many letters have to be put in, left out or changed to make one of the other. Where both are longer than 63 between what
 * they begin and end with in common, nobody meant the one by the other: then it is the longer one's length there. */
size_t wi_edit_distance(const char *a, const char *b);

#endif
