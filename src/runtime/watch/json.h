/* JSON into a buffer of a fixed size. */
#ifndef WI_JSON_H
#define WI_JSON_H

#include "base/internal.h"

/* Invariant: used < capacity. What does not fit is left out, and `full` says so: the text is none of JSON then. A copy of
 * the structure is a place to go back to. */
typedef struct wi_json {
    char *text;
    size_t used, capacity;
    bool between; /* a value has been written at this level: the next one follows a comma */
    bool full;
} wi_json;

/* `key` is NULL in a list and for the document itself. `bracket` is '{' or '['; its end is '}' or ']'. */
void wi_json_open(wi_json *json, const char *key, char bracket);
void wi_json_close(wi_json *json, char bracket);
/* At most 2^63 - 1, as readers have no more. */
void wi_json_number(wi_json *json, const char *key, uint64_t value);
void wi_json_bool(wi_json *json, const char *key, bool value);
/* Any bytes: those that are no UTF-8 become '?'. */
void wi_json_text(wi_json *json, const char *key, const char *value);
/* What is left of the buffer. */
size_t wi_json_room(const wi_json *json);

#endif
