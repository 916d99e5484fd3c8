/* Interned texts: names and tags that stay valid for the life of the process, as traces and refusals show them long
 * after their owner is gone. Equal texts are stored once.
 *
 * A program may make up texts without end, so that only a bounded number of each kind is stored. Later ones are lost,
 * or remain their owner's alone; that is counted, and logged once. */
#ifndef WI_INTERN_H
#define WI_INTERN_H

#include "base/internal.h"

typedef enum wi_text_kind { WI_TAG, WI_NAME, WI_DEVICE_NAME, WI_TEXTS } wi_text_kind;
enum { WI_TEXTS_MOST = 65536 };

/* Stands for a name that was not stored, where it has to outlive its owner. */
#define WI_LOST_NAME "?"

/* The stored copy of a tag, cut at `most` bytes; "" for NULL, and for a lost one. Equal texts give equal pointers. Any
 * thread; no lock is held, as the log may be called. */
const char *wi_intern(const char *text, size_t most);
/* The same for a text of any kind, not NULL; NULL for a lost one. */
const char *wi_intern_as(wi_text_kind kind, const char *text, size_t most);
/* How many texts of the kind were lost. */
uint64_t wi_intern_lost(wi_text_kind kind);

#endif
