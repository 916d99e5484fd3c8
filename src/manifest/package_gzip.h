/* The bytes of a gzip file: one member, or several that belong together (RFC 1952, 2.2). */
#ifndef WI_MANIFEST_PACKAGE_GZIP_H
#define WI_MANIFEST_PACKAGE_GZIP_H

#include "manifest/package.h"

#include <sys/types.h>

#include <zlib.h>

typedef struct wi_gzip {
    z_stream stream;
    int file;
    off_t at;         /* of what is read next */
    unsigned members; /* that have ended */
    bool inside;      /* of another */
    unsigned char piece[64 << 10];
} wi_gzip;

/* Begins at the start of `file`, which is not closed and whose position does not matter. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_gzip_begin(wi_gzip *gzip, const wi_package *package);
void wi_gzip_end(wi_gzip *gzip);

/* Up to `capacity` bytes more; 0 at the end of the file, every member's sum and length proved; -1 with *words where it is not what
 * it should be. Zeros behind the last member are padding; anything else there is an error. */
ssize_t wi_gzip_read(wi_gzip *gzip, void *out, size_t capacity, const char **words);

#endif
