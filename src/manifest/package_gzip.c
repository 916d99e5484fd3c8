#include "manifest/package_gzip.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    GZIP_ALONE = 15 + 16,
    MAGIC = 0x1f
}; /* of zlib's windowBits: the largest window, and no other format than gzip */

weir_status wi_gzip_begin(wi_gzip *gzip, const wi_package *package)
{
    memset(gzip, 0, sizeof *gzip);
    gzip->file = package->file;
    if (inflateInit2(&gzip->stream, GZIP_ALONE) == Z_OK)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to unpack %s", package->path);
}

void wi_gzip_end(wi_gzip *gzip)
{
    (void)inflateEnd(&gzip->stream);
}

/* More of the file; 0 at its end. */
static ssize_t fill(wi_gzip *gzip, const char **words)
{
    ssize_t got;
    do
        got = pread(gzip->file, gzip->piece, sizeof gzip->piece, gzip->at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        *words = strerror(errno);
    if (got <= 0)
        return got;
    gzip->at += got;
    gzip->stream.next_in = gzip->piece;
    gzip->stream.avail_in = (uInt)got;
    return got;
}

/* Between members: finds the next one. 1: there is one, 0: the file ends, -1: something else is there. */
static int next_member(wi_gzip *gzip, const char **words)
{
    z_stream *s = &gzip->stream;
    bool padding = false;
    for (;;) {
        for (; s->avail_in > 0 && gzip->members > 0 && *s->next_in == 0; s->avail_in--, s->next_in++)
            padding = true;
        if (s->avail_in > 0)
            break;
        ssize_t got = fill(gzip, words);
        if (got <= 0)
            return (int)got;
    }
    if (*s->next_in == MAGIC && !padding) {
        gzip->inside = inflateReset(s) == Z_OK;
        return 1;
    }
    *words = gzip->members > 0 ? "there are bytes behind its end" : "it is not compressed";
    return -1;
}

ssize_t wi_gzip_read(wi_gzip *gzip, void *out, size_t capacity, const char **words)
{
    z_stream *s = &gzip->stream;
    for (;;) {
        int found = gzip->inside ? 1 : next_member(gzip, words);
        if (found <= 0 && (found < 0 || gzip->members > 0))
            return found;
        ssize_t got = found == 0 ? 0 : s->avail_in > 0 ? 1 : fill(gzip, words);
        if (got < 0)
            return got;
        if (got == 0) {
            *words = "unexpected end of file";
            return -1;
        }
        s->next_out = out;
        s->avail_out = (uInt)capacity;
        int result = inflate(s, Z_NO_FLUSH);
        if (result == Z_STREAM_END) {
            gzip->inside = false;
            gzip->members++;
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            *words = s->msg ? s->msg : "it cannot be decompressed";
            return -1;
        }
        if (s->avail_out < capacity)
            return (ssize_t)(capacity - s->avail_out);
    }
}
