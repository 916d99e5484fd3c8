/* Packages: found or unpacked, and in use while they are open. */
#include "base/internal.h"
#include "manifest/package.h"

#include <weir/base.h>
#include <weir/manifest.h>

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* How much a package will take, and whether the disk has space for it ---------------------------------------------- */

enum {
    MOST_TIMES = 1032
}; /* deflate makes nothing shorter than by that: a larger length is none (zlib's Technical Details) */

/* At least: a gzip file ends with the length of what its last member holds, modulo 2^32, and compressing hardly makes
 * anything longer. More there is no telling without decompressing: there may be several members, or 2^32 bytes more;
 * what is missing then is found when the tar names the sizes of its files. */
uint64_t wi_package_expected(const wi_package *package)
{
    unsigned char head[2], end[4];
    if (package->bytes < 18 || pread(package->file, head, sizeof head, 0) != sizeof head || head[0] != 0x1f ||
        head[1] != 0x8b || pread(package->file, end, sizeof end, (off_t)package->bytes - 4) != sizeof end)
        return 0;
    uint64_t last = end[0] | (uint64_t)end[1] << 8 | (uint64_t)end[2] << 16 | (uint64_t)end[3] << 24;
    uint64_t least = package->bytes - package->bytes / 64;
    return last > least && last <= package->bytes * MOST_TIMES ? last : least;
}

/* WEIR_ERR_SYSTEM when `bytes` do not fit onto the disk of `folder`, naming them and what is free. *missing: the bytes
 * that are too many, UINT64_MAX where nobody can tell. */
static weir_status missing_space(const wi_package *package, int folder, uint64_t bytes, uint64_t *missing)
{
    struct statvfs disk;
    *missing = UINT64_MAX;
    if (fstatvfs(folder, &disk) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot ask how much room there is for %s: %s", package->path,
                         strerror(errno));
    uint64_t space = (uint64_t)disk.f_bavail * disk.f_frsize;
    char wanted[32], there[32];
    *missing = bytes > space ? bytes - space : 0;
    if (bytes <= space)
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_SYSTEM,
        "no room on the disk to unpack %s: %s are wanted and %s free; make room, or name a store elsewhere "
        "(WEIR_HOME)",
        package->path, weir_size_format(bytes, wanted, sizeof wanted), weir_size_format(space, there, sizeof there));
}

weir_status wi_package_check_space(const wi_package *package, int folder, uint64_t bytes)
{
    uint64_t missing;
    return missing_space(package, folder, bytes, &missing);
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

static weir_status content_of(const wi_package *package, char content[WI_CONTENT_BYTES])
{
    enum { PIECE = 256 << 10 };
    struct sha256_ctx sum;
    uint8_t digest[SHA256_DIGEST_SIZE];
    uint8_t *piece = malloc(PIECE);
    ssize_t got = -1;
    sha256_init(&sum);
    for (off_t at = 0; piece && (got = pread(package->file, piece, PIECE, at)) > 0; at += got)
        sha256_update(&sum, (size_t)got, piece);
    free(piece);
    if (got < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", package->path, strerror(errno));
    sha256_digest(&sum, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(content + 2 * i, 3, "%02x", digest[i]);
    return WEIR_OK;
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static weir_status check_unpacked(const wi_package *package, const struct stat *before, int folder)
{
    struct stat found;
    if (fstatat(folder, WI_PACKAGE_MANIFEST, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode))
        return weir_fail(WEIR_ERR_CORRUPT, "the package %s holds no " WI_PACKAGE_MANIFEST " beside its model",
                         package->path);
    if (fstat(package->file, &found) != 0 || !same_file(before, &found))
        return weir_fail(WEIR_ERR_BUSY, "%s changed while it was unpacked; try again when it is whole", package->path);
    return WEIR_OK;
}

/* Room on the disk for what is to come; where there is none, by clearing what was used longest ago, if that can be
 * enough. */
static weir_status make_space(const wi_package *package, int packages, const char *path)
{
    weir_manifest_cleared cleared = {0};
    wi_packages_there there;
    uint64_t bytes = wi_package_expected(package), missing;
    bytes = bytes < package->limit ? bytes : package->limit;
    weir_status status = missing_space(package, packages, bytes, &missing);
    if (status == WEIR_OK || wi_packages_count(packages, path, &there) != WEIR_OK || missing > there.idle)
        return status;
    status = wi_packages_clear(packages, path, (wi_bounds){there.bytes - missing, UINT64_MAX}, &cleared);
    return status == WEIR_OK ? wi_package_check_space(package, packages, bytes) : status;
}

/* Clears the store until the new package fits within the bounds. */
static weir_status keep_bounds(int packages, const char *path, const wi_fresh *fresh)
{
    weir_manifest_cleared cleared = {0};
    wi_bounds bounds = wi_bounds_of_options();
    uint64_t bytes = wi_packages_bytes_below(packages, fresh->name);
    bounds.bytes -= bounds.bytes < bytes ? bounds.bytes : bytes;
    return wi_packages_clear(packages, path, bounds, &cleared);
}

static weir_status unpack(const wi_package *package, const struct stat *before, int packages, const char *path,
                          const char *content)
{
    wi_fresh fresh;
    weir_status status = make_space(package, packages, path);
    if (status == WEIR_OK)
        status = wi_store_begin(packages, path, &fresh);
    if (status != WEIR_OK)
        return status;
    status = wi_package_unpack(package, fresh.folder);
    if (status == WEIR_OK)
        status = check_unpacked(package, before, fresh.folder);
    if (status == WEIR_OK)
        status = keep_bounds(packages, path, &fresh);
    if (status == WEIR_OK)
        status = wi_store_finish(packages, &fresh, content);
    if (status != WEIR_OK)
        wi_store_drop(packages, &fresh);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static weir_status find_or_unpack(const wi_package *package, int packages, const char *path,
                                  char content[WI_CONTENT_BYTES])
{
    struct stat file;
    if (fstat(package->file, &file) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", package->path, strerror(errno));
    if (wi_store_known(packages, &file, content))
        return WEIR_OK;
    weir_status status = content_of(package, content);
    if (status == WEIR_OK && !wi_store_has(packages, content))
        status = unpack(package, &file, packages, path, content);
    if (status == WEIR_OK)
        wi_store_note(packages, &file, content);
    return status;
}

/* Another process may clear away what was found before it is in use here: then it is unpacked again. */
static weir_status find_and_use(const wi_package *package, int packages, const char *path, char **folder, int *use)
{
    enum { TRIES = 10 };
    char content[WI_CONTENT_BYTES];
    *use = -1;
    for (int i = 0; i < TRIES && *use < 0; i++) {
        weir_status status = find_or_unpack(package, packages, path, content);
        if (status != WEIR_OK)
            return status;
        *use = wi_store_use(packages, content);
    }
    if (*use < 0)
        return weir_fail(WEIR_ERR_BUSY, "what %s was unpacked into is cleared away again and again; try once more",
                         package->path);
    if (asprintf(folder, "%s/%s", path, content) >= 0)
        return WEIR_OK;
    *folder = NULL;
    wi_store_leave(*use);
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to open %s", package->path);
}

static weir_status open_in(const char *store, wi_package *package, char **folder, int *use)
{
    int packages;
    char *path;
    weir_status status = wi_store_open(store, &packages, &path);
    if (status != WEIR_OK)
        return status;
    status = find_and_use(package, packages, path, folder, use);
    close(packages);
    free(path);
    return status;
}

void wi_package_leave(int use)
{
    wi_store_leave(use);
}

/* What the caller names, or else the option; `home` holds that. */
static weir_status store_of(const weir_manifest_options *options, weir_option *home, const char **store)
{
    *store = options && options->store && options->store[0] ? options->store : home->value;
    return *store == home->value ? weir_option_info("home", 0, home) : WEIR_OK;
}

weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder, int *use)
{
    const uint64_t least = UINT64_C(64) << 20, times = 100;
    weir_option home = WEIR_INIT(weir_option);
    const char *store;
    *folder = NULL;
    weir_status found = store_of(options, &home, &store);
    if (found != WEIR_OK)
        return found;
    struct stat file;
    wi_package package = {.path = path, .file = open(path, O_RDONLY | O_CLOEXEC)};
    if (package.file < 0 || fstat(package.file, &file) != 0) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", path, strerror(errno));
        if (package.file >= 0)
            close(package.file);
        return status;
    }
    package.bytes = (uint64_t)file.st_size;
    package.limit = options->unpacked_limit;
    if (package.limit == 0)
        package.limit = package.bytes > least / times ? package.bytes * times : least;
    weir_status status = open_in(store, &package, folder, use);
    close(package.file);
    return status;
}

/* ---- clearing ---------------------------------------------------------------------------------------------------- */

weir_status weir_manifest_clear(const weir_manifest_options *options, uint64_t bytes, uint64_t seconds,
                                weir_manifest_cleared *out)
{
    weir_option home = WEIR_INIT(weir_option);
    weir_manifest_cleared cleared = {0};
    const char *store;
    int packages;
    char *path;
    weir_manifest_options given = WEIR_INIT(weir_manifest_options);
    if (!out || out->struct_size != sizeof *out)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_manifest_clear: no place for the result, or its struct_size is not set");
    weir_status status = WI_COPY_OPTIONS_IN(weir_manifest_options, &given, options, "weir_manifest_clear");
    if (status == WEIR_OK)
        status = store_of(&given, &home, &store);
    if (status == WEIR_OK)
        status = wi_store_open(store, &packages, &path);
    if (status != WEIR_OK)
        return status;
    status = wi_packages_clear(packages, path, (wi_bounds){bytes, seconds}, &cleared);
    close(packages);
    free(path);
    if (status != WEIR_OK)
        return status;
    cleared.struct_size = sizeof cleared;
    *out = cleared;
    return WEIR_OK;
}
