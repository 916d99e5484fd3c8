/* Texts that belong to a choice, and go with it. */
#ifndef WI_CHOICE_TEXTS_H
#define WI_CHOICE_TEXTS_H

#include "base/internal.h"

#include <stdarg.h>

typedef struct wi_texts {
    struct wi_text *last;
    bool failed; /* there was no host memory for one, which is "" */
} wi_texts;

const char *wi_text(wi_texts *texts, const char *format, ...) WEIR_PRINTF(2, 3);
const char *wi_text_of(wi_texts *texts, const char *format, va_list arguments) WEIR_PRINTF(2, 0);
void wi_texts_free(wi_texts *texts);

#endif
