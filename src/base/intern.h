/* Texts that are kept for the life of the process: names and tags, which traces and refusals show long after their
 * owner has gone. The same text is kept once.
 *
 * A program that makes up texts without end must not grow without end, so that only so many different ones of each kind
 * are kept: what comes later is lost, or its owner's alone, which is counted and said once in the log. */
#ifndef WI_INTERN_H
#define WI_INTERN_H

#include "base/internal.h"

typedef enum wi_text_kind { WI_TAG, WI_NAME, WI_DEVICE_NAME, WI_TEXTS } wi_text_kind;
enum { WI_TEXTS_MOST = 65536 };

/* What stands for a name that is not kept, where it has to outlive its owner. */
#define WI_LOST_NAME "?"

/* The kept copy of a tag, cut at `most` bytes; "" for NULL, and for what is lost. No lock is held: the log may be
 * called. Any thread; equal texts give equal pointers. */
const char *wi_intern(const char *text, size_t most);
/* The same of any kind, for a text that is one; NULL for what is not kept. */
const char *wi_intern_as(wi_text_kind kind, const char *text, size_t most);
/* Times that a text of the kind was not kept. */
uint64_t wi_intern_lost(wi_text_kind kind);

#endif
