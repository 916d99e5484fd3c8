/* Texts that are kept for the life of the process: names and tags, which traces and refusals show long after their owner
 * has gone. The same text is kept once. */
#ifndef WI_INTERN_H
#define WI_INTERN_H

#include "base/internal.h"

/* The kept copy of `text`, cut at `most` bytes; "" for NULL, or when memory ran out or 65,536 texts are kept already (a
 * program that makes up tags without end must not grow without end). Any thread; equal texts give equal pointers. */
const char *wi_intern(const char *text, size_t most);

#endif
