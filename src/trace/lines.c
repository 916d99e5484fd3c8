#include "lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { BUFFER = 16 * LINES_MOST };

struct lines {
    gzFile file;
    char *path;
    uint64_t number;
    size_t at, end; /* what is read and not yet handed out */
    bool ended, cut;
    char nothing; /* zero: the text of a line that is not whole */
    char buffer[BUFFER + 1];
};

weir_status lines_open(const char *path, lines **out)
{
    lines *l = calloc(1, sizeof *l);
    char *copy = strdup(path);
    if (!l || !copy) {
        free(l);
        free(copy);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    }
    l->path = copy;
    errno = 0;
    l->file = gzopen(path, "rbe");
    if (!l->file) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno ? errno : ENOMEM));
        lines_close(l);
        return status;
    }
    (void)gzbuffer(l->file, BUFFER);
    *out = l;
    return WEIR_OK;
}

/* Moves what is left to the front and reads behind it. */
static weir_status fill(lines *l)
{
    int code;
    memmove(l->buffer, l->buffer + l->at, l->end - l->at);
    l->end -= l->at;
    l->at = 0;
    int got = gzread(l->file, l->buffer + l->end, (unsigned)(BUFFER - l->end));
    const char *text = gzerror(l->file, &code);
    if (code == Z_ERRNO)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", l->path, strerror(errno));
    if (got < 0 || (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END))
        return weir_fail(WEIR_ERR_CORRUPT, "%s: compressed data that is none, behind line %llu: %s", l->path,
                         (unsigned long long)l->number, text);
    l->end += (size_t)got;
    l->ended = got == 0;
    l->cut = l->ended && code == Z_BUF_ERROR;
    return WEIR_OK;
}

/* Reads until a whole line, the end or a full buffer; the length of the line. */
static weir_status find_end(lines *l, size_t *length, bool *found)
{
    size_t looked = 0;
    *found = false;
    for (;;) {
        char *line = l->buffer + l->at, *end = memchr(line + looked, '\n', l->end - l->at - looked);
        looked = end ? (size_t)(end - line) : l->end - l->at;
        *length = looked;
        *found = end != NULL;
        if (end || l->ended || looked == BUFFER)
            return WEIR_OK;
        weir_status status = fill(l);
        if (status != WEIR_OK)
            return status;
    }
}

/* The rest of a line that is longer than the buffer. */
static weir_status skip_rest(lines *l)
{
    bool found = false;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !found && !(l->ended && l->at == l->end)) {
        size_t length;
        status = find_end(l, &length, &found);
        l->at += status == WEIR_OK ? length + found : 0;
    }
    return status;
}

weir_status lines_next(lines *l, char **text, bool *whole)
{
    size_t length;
    bool found;
    *text = NULL;
    weir_status status = find_end(l, &length, &found);
    if (status != WEIR_OK || (!found && length == 0))
        return status;
    char *line = l->buffer + l->at;
    l->number++;
    l->at += length + found;
    *whole = length <= LINES_MOST && !memchr(line, 0, length) && (found || !l->cut);
    *text = *whole ? line : &l->nothing;
    if (*whole)
        line[length - (length > 0 && line[length - 1] == '\r')] = '\0';
    return !found && length == BUFFER ? skip_rest(l) : WEIR_OK;
}

uint64_t lines_number(const lines *l)
{
    return l->number;
}

bool lines_cut(const lines *l)
{
    return l->cut;
}

void lines_close(lines *l)
{
    if (!l)
        return;
    if (l->file)
        (void)gzclose(l->file);
    free(l->path);
    free(l);
}
