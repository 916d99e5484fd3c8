#include "manifest/parse.h"
#include <weir/manifest.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a file says must not speak to a terminal: control characters, also those of U+0080 to U+009F, become '?'. */
static void problems_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool second = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        if (*c < 0x20 || *c == 0x7f || second)
            *c = '?';
        if (second)
            *++c = '?';
    }
}

void wi_problem_add(wi_problems *list, size_t at, const char *format, ...)
{
    if (list->count == WI_MOST_PROBLEMS) {
        list->more++;
        return;
    }
    struct wi_found *found = &list->found[list->count];
    *found = (struct wi_found){.at = at, .line = 1, .column = 1};
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&found->text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        list->out_of_memory = true;
        return;
    }
    problems_clean(found->text);
    list->count++;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int problems_by_place(const void *a, const void *b)
{
    const struct wi_found *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return strcmp(x->text, y->text);
}

void wi_problems_sort(wi_problems *list, const char *text)
{
    uint32_t line = 1, column = 1;
    size_t at = 0;
    qsort(list->found, list->count, sizeof *list->found, problems_by_place);
    for (size_t i = 0; i < list->count; i++) {
        for (; at < list->found[i].at; at++) {
            if (text[at] == '\n') {
                line++;
                column = 1;
            } else if (((unsigned char)text[at + 1] & 0xc0) != 0x80) { /* the next byte begins a character */
                column++;
            }
        }
        list->found[i].line = line;
        list->found[i].column = column;
    }
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */

weir_manifest_problems *wi_problems_give(const wi_problems *list, const char *path)
{
    size_t records = list->count * sizeof(weir_manifest_problem), bytes = strlen(path) + 1;
    for (size_t i = 0; i < list->count; i++)
        bytes += strlen(list->found[i].text) + 1;
    weir_manifest_problems *out = malloc(sizeof *out + records + bytes);
    if (!out)
        return NULL;
    weir_manifest_problem *problems = (weir_manifest_problem *)(out + 1);
    char *texts = (char *)problems + records;
    *out = (weir_manifest_problems){sizeof *out, texts, problems, list->count, list->more};
    texts = stpcpy(texts, path) + 1;
    for (size_t i = 0; i < list->count; i++) {
        const struct wi_found *found = &list->found[i];
        problems[i] = (weir_manifest_problem){sizeof problems[i], found->line, found->column, texts};
        texts = stpcpy(texts, found->text) + 1;
    }
    return out;
}

void wi_problems_clear(wi_problems *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->found[i].text);
    list->count = list->more = 0;
}

const char *wi_show(wi_shown *shown, const char *text)
{
    static const char cut[] = "…";
    size_t length = strlen(text), room = sizeof shown->text - 1;
    bool whole = length <= room;
    if (!whole) {
        length = room - strlen(cut);
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    memcpy(shown->text, text, length);
    memcpy(shown->text + length, whole ? "" : cut, whole ? 1 : sizeof cut);
    problems_clean(shown->text);
    return shown->text;
}
