/* The digest of a model's contents, independent of its path and name. */
#ifndef WI_PREDICT_CONTENTS_H
#define WI_PREDICT_CONTENTS_H

#include "base/internal.h"

/* 128 bits. */
typedef struct wi_digest {
    uint64_t high, low;
} wi_digest;

extern const wi_digest wi_digest_none;
void wi_digest_add(wi_digest *to, const void *bytes, size_t length);
static inline void wi_digest_text(wi_digest *to, const char *text)
{
    wi_digest_add(to, text, strlen(text) + 1);
}

/* Of a file its size and samples of it: the whole of a small one, else its ends and places between them. Of a folder the
 * names and the same of the files in it; genai_config.json stands for its folder. It tells models apart by their structure
 * and most changes of their numbers; it is no seal. A file (not a folder) is read once, and again only where it may have
 * changed (base/stamp.h). False: it cannot be read. Any thread. */
bool wi_contents(const char *path, wi_digest *out);

#endif
