#include "names.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 63 /* what a client's name holds */, FILE_BYTES = 180 };

/* Cuts a clean text at `most` bytes, at a character boundary. */
static void cut(char *text, size_t most)
{
    size_t length = strlen(text);
    if (length <= most)
        return;
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    text[most] = '\0';
}

static bool taken(const char *name, char *const *before, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(before[i], name) == 0)
            return true;
    return false;
}

char *names_of_model(const char *path, char *const *before, size_t count)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    char *base = end > start ? text_clean(path + start, end - start, false) : text_copy("model");
    char *name = text_copy(base);
    cut(name, NAME_BYTES);
    for (unsigned number = 2; taken(name, before, count); number++) {
        char *tail = text_print("#%u", number);
        char *head = text_copy(base);
        cut(head, NAME_BYTES - strlen(tail));
        free(name);
        name = text_print("%s%s", head, tail);
        free(head);
        free(tail);
    }
    free(base);
    return name;
}

char *names_of_file(const char *name)
{
    char *file = text_clean(name, strlen(name), false);
    for (char *at = file; *at != '\0'; at++)
        if (strchr("/\\:*?\"<>|", *at) != NULL)
            *at = '_';
    if (file[0] == '.')
        file[0] = '_';
    cut(file, FILE_BYTES);
    if (file[0] == '\0') {
        free(file);
        return text_copy("_");
    }
    return file;
}
