/* What lies in a package, entry by entry. Nothing of it is trusted: files and folders alone, below the folder that it
 * is unpacked into, each once, and no more of them than a package has use for. */
#include "manifest/package.h"
#include "manifest/parse.h"

#include <weir/base.h>
#include <weir/manifest.h>

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Gzip: one member, or several that belong together (RFC 1952, 2.2) ------------------------------------------------ */

typedef struct gzip {
    z_stream stream;
    int file;
    off_t at;         /* of what is read next */
    unsigned members; /* that have ended */
    bool inside;      /* of another */
    unsigned char piece[64 << 10];
} gzip;

/* Of zlib's windowBits: the largest window, and no other format than gzip. */
enum { GZIP_ALONE = 15 + 16, MAGIC = 0x1f };

/* Begins at the start of the package's file, whose position does not matter. WEIR_ERR_SYSTEM: no host memory. */
static weir_status begin_gzip(gzip *g, const wi_package *package)
{
    memset(g, 0, sizeof *g);
    g->file = package->file;
    if (inflateInit2(&g->stream, GZIP_ALONE) == Z_OK)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to unpack %s", package->path);
}

/* More of the file; 0 at its end. */
static ssize_t package_unpack_fill(gzip *g, const char **words)
{
    ssize_t got;
    do
        got = pread(g->file, g->piece, sizeof g->piece, g->at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        *words = strerror(errno);
    if (got <= 0)
        return got;
    g->at += got;
    g->stream.next_in = g->piece;
    g->stream.avail_in = (uInt)got;
    return got;
}

/* Between members: finds the next one. 1: there is one, 0: the file ends, -1: something else is there. */
static int next_member(gzip *g, const char **words)
{
    z_stream *s = &g->stream;
    bool padding = false;
    for (;;) {
        for (; s->avail_in > 0 && g->members > 0 && *s->next_in == 0; s->avail_in--, s->next_in++)
            padding = true;
        if (s->avail_in > 0)
            break;
        ssize_t got = package_unpack_fill(g, words);
        if (got <= 0)
            return (int)got;
    }
    if (*s->next_in == MAGIC && !padding) {
        g->inside = inflateReset(s) == Z_OK;
        return 1;
    }
    *words = g->members > 0 ? "there are bytes behind its end" : "it is not compressed";
    return -1;
}

/* Reads up to `capacity` bytes more. 0: the file has ended, and the checksum and length of every member are right. -1:
 * the file is damaged or cannot be read; *words says how. Zeros behind the last member are padding; anything else there
 * is an error. */
static ssize_t read_gzip(gzip *g, void *out, size_t capacity, const char **words)
{
    z_stream *s = &g->stream;
    for (;;) {
        int found = g->inside ? 1 : next_member(g, words);
        if (found <= 0 && (found < 0 || g->members > 0))
            return found;
        ssize_t got = found == 0 ? 0 : s->avail_in > 0 ? 1 : package_unpack_fill(g, words);
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
            g->inside = false;
            g->members++;
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            *words = s->msg ? s->msg : "it cannot be decompressed";
            return -1;
        }
        if (s->avail_out < capacity)
            return (ssize_t)(capacity - s->avail_out);
    }
}

enum { MOST_ENTRIES = 10000, MOST_NAME = 1024, MOST_PART = 255, MOST_DEPTH = 16, PIECE = 128 << 10 };

typedef struct unpacking {
    const wi_package *package;
    struct archive *archive;
    gzip gzip;
    int folder;
    uint64_t bytes; /* so far, and of the entry under way */
    unsigned entries;
    char name[MOST_NAME]; /* of the entry, relative and plain; "" for the folder itself */
    char piece[PIECE];
    char tar[PIECE]; /* the part of the tar decompressed last */
} unpacking;

static weir_status package_unpack_refuse(const unpacking *u, const char *name, const char *why)
{
    wi_shown shown;
    return weir_fail(WEIR_ERR_CORRUPT, "the package %s holds \"%s\", %s; nothing of it was unpacked", u->package->path,
                     wi_show(&shown, name), why);
}

static weir_status package_unpack_broken(const unpacking *u)
{
    const char *words = archive_error_string(u->archive);
    return weir_fail(WEIR_ERR_CORRUPT, "%s is no whole gzip tar, which a package is: %s", u->package->path,
                     words ? words : "it is empty");
}

static weir_status package_unpack_failed(const unpacking *u)
{
    wi_shown shown;
    return weir_fail(WEIR_ERR_SYSTEM, "cannot unpack \"%s\" of %s: %s", wi_show(&shown, u->name), u->package->path,
                     strerror(errno));
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

/* zlib decompresses, as it proves the sum at the end of a gzip file, which libarchive passes over. -1: broken()
 * tells. */
static la_ssize_t next_piece(struct archive *archive, void *user, const void **out)
{
    unpacking *u = user;
    const char *words = NULL;
    ssize_t got = read_gzip(&u->gzip, u->tar, sizeof u->tar, &words);
    *out = u->tar;
    if (got < 0)
        archive_set_error(archive, EILSEQ, "%s", words);
    return got;
}

/* Behind the last entry there is nothing to unpack, but the sum to be proved. */
static weir_status check_end(unpacking *u)
{
    const void *piece;
    la_ssize_t got = 1;
    for (uint64_t bytes = 0; got > 0 && (bytes <= PIECE || bytes <= u->package->limit); bytes += (uint64_t)got)
        if ((got = next_piece(u->archive, u, &piece)) < 0)
            return package_unpack_broken(u);
    return got == 0 ? WEIR_OK : package_unpack_refuse(u, u->name, "with far too much behind it");
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Puts the entry's name, without "." and doubled slashes, into u->name. */
static weir_status take_name(unpacking *u, const char *name)
{
    size_t used = 0, depth = 0;
    if (name[0] == '/')
        return package_unpack_refuse(u, name, "a path from the root");
    for (const char *part = name; *part;) {
        size_t length = strcspn(part, "/");
        bool up = length == 2 && strncmp(part, "..", 2) == 0, here = length == 1 && part[0] == '.';
        if (up)
            return package_unpack_refuse(u, name, "a path that leads out of the package");
        if (length > 0 && !here) {
            if (length > MOST_PART || used + length + 2 > MOST_NAME || ++depth > MOST_DEPTH)
                return package_unpack_refuse(u, name, "a path that is too long");
            if (used > 0)
                u->name[used++] = '/';
            memcpy(u->name + used, part, length);
            used += length;
        }
        part += length + (part[length] == '/');
    }
    u->name[used] = '\0';
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)u->name[i] < 0x20 || u->name[i] == 0x7f)
            return package_unpack_refuse(u, name, "a name with control characters");
    return WEIR_OK;
}

/* Makes the folder `u->name`, or those before its last part, where they are not there. There is no link below
 * u->folder, as none is ever made. */
static weir_status make_folders(unpacking *u, bool whole)
{
    for (char *at = u->name; *at; at++) {
        size_t length = strcspn(at, "/");
        char after = at[length];
        if (after == '\0' && !whole)
            return WEIR_OK;
        at[length] = '\0';
        if (mkdirat(u->folder, u->name, 0777) != 0 && errno != EEXIST)
            return errno == ENOTDIR ? package_unpack_refuse(u, u->name, "which lies in what is a file")
                                    : package_unpack_failed(u);
        at[length] = after;
        if (after == '\0')
            break;
        at += length;
    }
    return WEIR_OK;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static weir_status write_piece(unpacking *u, int file, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t one = write(file, u->piece + done, length - done);
        if (one < 0 && errno != EINTR)
            return package_unpack_failed(u);
        done += one > 0 ? (size_t)one : 0;
    }
    return WEIR_OK;
}

/* No more than `bytes`, the size that the tar has named: the holes of a sparse entry may reach far beyond it. */
static weir_status package_unpack_write_file(unpacking *u, int file, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    la_ssize_t got = 1;
    while (status == WEIR_OK && got > 0) {
        got = archive_read_data(u->archive, u->piece, sizeof u->piece);
        if (got < 0) {
            status = package_unpack_broken(u);
        } else if ((uint64_t)got > bytes) {
            status = package_unpack_refuse(u, u->name, "with more bytes than it says");
        } else {
            status = write_piece(u, file, (size_t)got);
            bytes -= (uint64_t)got;
        }
    }
    return status;
}

/* Checks the size of an entry against the limit and the free space, before its bytes are unpacked. */
static weir_status check_size(unpacking *u, struct archive_entry *entry)
{
    uint64_t limit = u->package->limit, bytes = (uint64_t)archive_entry_size(entry);
    char text[32];
    if (archive_entry_size(entry) < 0 || bytes > limit || u->bytes + bytes > limit)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "the package %s would be more than %s unpacked, which is too much for what it is packed; "
                         "unpacked_limit of weir_manifest_options raises that",
                         u->package->path, weir_size_format(limit, text, sizeof text));
    u->bytes += bytes;
    return wi_package_check_space(u->package, u->folder, bytes);
}

static weir_status unpack_file(unpacking *u, struct archive_entry *entry)
{
    weir_status status = make_folders(u, false);
    if (status == WEIR_OK)
        status = check_size(u, entry);
    if (status != WEIR_OK)
        return status;
    int file = openat(u->folder, u->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (file < 0)
        return errno == EEXIST    ? package_unpack_refuse(u, u->name, "twice")
               : errno == ENOTDIR ? package_unpack_refuse(u, u->name, "which lies in what is a file")
                                  : package_unpack_failed(u);
    status = package_unpack_write_file(u, file, (uint64_t)archive_entry_size(entry));
    if (close(file) != 0 && status == WEIR_OK)
        status = package_unpack_failed(u);
    return status;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static weir_status unpack_entry(unpacking *u, struct archive_entry *entry)
{
    /* In the locale C only one of the two has letters beyond ASCII. */
    const char *name = archive_entry_pathname_utf8(entry);
    if (!name)
        name = archive_entry_pathname(entry);
    if (!name)
        return package_unpack_refuse(u, "?", "a name that is no text");
    if (++u->entries > MOST_ENTRIES)
        return package_unpack_refuse(u, name, "beyond the 10000 entries that a package may have");
    if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK)
        return package_unpack_refuse(u, name, "a link");
    mode_t type = archive_entry_filetype(entry);
    if (type != AE_IFREG && type != AE_IFDIR)
        return package_unpack_refuse(u, name, "neither a file nor a folder");
    weir_status status = take_name(u, name);
    if (status != WEIR_OK || (type == AE_IFDIR && u->name[0] == '\0'))
        return status;
    if (u->name[0] == '\0')
        return package_unpack_refuse(u, name, "a file without a name");
    return type == AE_IFDIR ? make_folders(u, true) : unpack_file(u, entry);
}

static weir_status unpack_all(unpacking *u)
{
    struct archive_entry *entry;
    for (;;) {
        int code = archive_read_next_header(u->archive, &entry);
        if (code == ARCHIVE_EOF && u->entries > 0)
            return check_end(u);
        if (code < ARCHIVE_WARN || code == ARCHIVE_EOF)
            return package_unpack_broken(u);
        weir_status status = unpack_entry(u, entry);
        if (status != WEIR_OK)
            return status;
    }
}

weir_status wi_package_unpack(const wi_package *package, int folder)
{
    unpacking *u = calloc(1, sizeof *u);
    struct archive *archive = archive_read_new();
    weir_status status;
    if (u && archive && archive_read_support_format_tar(archive) == ARCHIVE_OK) {
        u->package = package;
        u->archive = archive;
        u->folder = folder;
        status = begin_gzip(&u->gzip, package);
        if (status == WEIR_OK) {
            status = archive_read_open(archive, u, NULL, next_piece, NULL) == ARCHIVE_OK ? unpack_all(u)
                                                                                         : package_unpack_broken(u);
            (void)inflateEnd(&u->gzip.stream);
        }
    } else {
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory to unpack %s", package->path);
    }
    if (archive)
        archive_read_free(archive);
    free(u);
    return status;
}
