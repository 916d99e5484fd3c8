#include "planner/buffers.h"
#include "base/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

bool wi_lines_next(wi_lines *lines)
{
    if (lines->next == lines->end)
        return false;
    const char *feed = memchr(lines->next, '\n', (size_t)(lines->end - lines->next));
    const char *last = feed ? feed : lines->end;
    lines->text = lines->next;
    lines->length = (size_t)(last - lines->text);
    if (lines->length > 0 && last[-1] == '\r')
        lines->length--;
    lines->next = feed ? feed + 1 : lines->end;
    lines->number++;
    return true;
}

weir_status wi_lines_wrong(const wi_lines *lines, const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    wi_one_line(what);
    return weir_fail(WEIR_ERR_CORRUPT, "%s, line %llu: %s", lines->name, (unsigned long long)lines->number, what);
}

weir_status wi_lines_prefix(const wi_lines *lines, weir_status status)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    return weir_fail(status, "%s, line %llu: %s", lines->name, (unsigned long long)lines->number, saved.text);
}

bool wi_lines_number(const char *text, size_t length, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned char)text[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, digit, &number))
            return false;
    }
    *out = number;
    return length > 0;
}

static weir_status planner_lines_read_all(FILE *file, const char *path, char **text, size_t *bytes)
{
    size_t room = 1 << 16, length = 0;
    char *content = malloc(room);
    while (content) {
        length += fread(content + length, 1, room - length, file);
        if (length < room)
            break;
        char *grown = realloc(content, room *= 2);
        if (!grown)
            free(content);
        content = grown;
    }
    if (!content)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", path);
    if (ferror(file)) {
        free(content);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    }
    *text = content;
    *bytes = length;
    return WEIR_OK;
}

weir_status wi_lines_read_file(const char *path, char **text, size_t *bytes)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    weir_status status = planner_lines_read_all(file, path, text, bytes);
    fclose(file);
    return status;
}
