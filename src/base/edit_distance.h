/* Edit distance of two words (Levenshtein), for suggestions. */
#ifndef WI_EDIT_DISTANCE_H
#define WI_EDIT_DISTANCE_H

#include <stddef.h>

/* How many letters have to be inserted, deleted or changed to turn one word into the other. Of what is left after a
 * common beginning and end, more than 63 letters in both count as all different: such words are not meant for each
 * other. */
size_t wi_edit_distance(const char *a, const char *b);

#endif
