/* cursor.c: reading a file in order through a small window, never past its end. */
#include "gguf/file/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 64 * 1024 };

weir_status wi_gguf_cursor_open(const wg_file *file, uint64_t at, wg_cursor *out)
{
    *out = (wg_cursor){.file = file, .at = at, .window_at = at};
    out->window = malloc(WINDOW);
    if (!out->window)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for a window of %d bytes to read it", file->path, WINDOW);
    return WEIR_OK;
}

void wi_gguf_cursor_close(wg_cursor *cursor)
{
    free(cursor->window);
    cursor->window = NULL;
}

static weir_status cursor_fill(wg_cursor *cursor)
{
    ssize_t got;
    do
        got = pread(cursor->file->descriptor, cursor->window, WINDOW, (off_t)cursor->at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: cannot be read at byte %llu: %s", cursor->file->path,
                         (unsigned long long)cursor->at, strerror(errno));
    if (got == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: became shorter while it was read, at byte %llu", cursor->file->path,
                         (unsigned long long)cursor->at);
    cursor->window_at = cursor->at;
    cursor->window_bytes = (size_t)got;
    return WEIR_OK;
}

weir_status wi_gguf_cursor_read(wg_cursor *cursor, void *out, uint64_t bytes)
{
    uint64_t left = cursor->file->size - cursor->at;
    if (bytes > left)
        return weir_fail(
            WEIR_ERR_CORRUPT, "%s: ends too early: %llu bytes are expected at byte %llu, and %llu are left",
            cursor->file->path, (unsigned long long)bytes, (unsigned long long)cursor->at, (unsigned long long)left);
    if (!out) {
        cursor->at += bytes;
        return WEIR_OK;
    }
    unsigned char *to = out;
    while (bytes > 0) {
        if (cursor->at < cursor->window_at || cursor->at >= cursor->window_at + cursor->window_bytes) {
            weir_status status = cursor_fill(cursor);
            if (status != WEIR_OK)
                return status;
        }
        size_t from = (size_t)(cursor->at - cursor->window_at);
        size_t step = cursor->window_bytes - from;
        if (step > bytes)
            step = (size_t)bytes;
        memcpy(to, cursor->window + from, step);
        to += step;
        cursor->at += step;
        bytes -= step;
    }
    return WEIR_OK;
}

weir_status wi_gguf_cursor_text_bytes(wg_cursor *cursor, uint64_t *bytes)
{
    uint64_t at = cursor->at;
    weir_status status = wi_gguf_cursor_read(cursor, bytes, sizeof *bytes);
    if (status != WEIR_OK)
        return status;
    uint64_t left = cursor->file->size - cursor->at;
    if (*bytes > left)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: a text at byte %llu claims %llu bytes, and %llu are left",
                         cursor->file->path, (unsigned long long)at, (unsigned long long)*bytes,
                         (unsigned long long)left);
    return WEIR_OK;
}
