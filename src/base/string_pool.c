#include "base/string_pool.h"

#include <stdio.h>

struct wi_text {
    struct wi_text *before;
    char text[];
};

const char *wi_text_of(wi_texts *texts, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    struct wi_text *kept = length < 0 ? NULL : malloc(sizeof *kept + (size_t)length + 1);
    if (kept) {
        vsnprintf(kept->text, (size_t)length + 1, format, again);
        wi_one_line(kept->text);
        kept->before = texts->last;
        texts->last = kept;
    }
    va_end(again);
    texts->failed |= kept == NULL;
    return kept ? kept->text : "";
}

const char *wi_text(wi_texts *texts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *kept = wi_text_of(texts, format, arguments);
    va_end(arguments);
    return kept;
}

void wi_texts_free(wi_texts *texts)
{
    for (struct wi_text *before; texts->last; texts->last = before) {
        before = texts->last->before;
        free(texts->last);
    }
}
