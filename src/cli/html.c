#include "html.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

void html_text(FILE *file, const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *at = clean; *at != '\0'; at++) {
        switch (*at) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\'':
            fputs("&#39;", file);
            break;
        default:
            fputc(*at, file);
        }
    }
    free(clean);
}

void html_json(FILE *file, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    for (const char *at = text; at != NULL && *at != '\0'; at++) {
        if (strchr("<>&", *at) != NULL)
            fprintf(file, "\\u%04x", (unsigned)*at);
        else
            fputc(*at, file);
    }
    free(text);
}
