/* Where things are in a JSON text. jansson reads texts and gives values without places; this walks over the objects and lists
 * of a text that jansson has accepted, so it need not doubt the grammar. */
#ifndef WI_MANIFEST_LOCATIONS_H
#define WI_MANIFEST_LOCATIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct wi_walk {
    const char *text;
    size_t at;
    bool object;
} wi_walk;

/* A member of an object or, without a key, an element of a list. Ends are past the last byte. */
typedef struct wi_place {
    size_t key, key_end;
    size_t value, value_end;
} wi_place;

/* The place of the text's one value. */
size_t wi_place_first(const char *text);

/* A walk over the object or list that begins at `at`. */
wi_walk wi_walk_into(const char *text, size_t at);

/* Steps to the next one; false past the last. */
bool wi_walk_next(wi_walk *walk, wi_place *out);

#endif
