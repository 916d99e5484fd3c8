/* How much a package will take, and whether there is room for it. */
#include "manifest/package.h"

#include <weir/base.h>

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    MOST_TIMES = 1032
}; /* deflate makes nothing shorter than by that: a larger length is none (zlib's Technical Details) */

/* At least: a gzip file ends with the length of what its last member holds, modulo 2^32, and compressing hardly makes anything
 * longer. More there is no telling without decompressing: there may be several members, or 2^32 bytes more; what is missing then
 * is found when the tar names the sizes of its files. */
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

weir_status wi_package_room(const wi_package *package, int folder, uint64_t bytes)
{
    uint64_t missing;
    return wi_package_missing(package, folder, bytes, &missing);
}

weir_status wi_package_missing(const wi_package *package, int folder, uint64_t bytes, uint64_t *missing)
{
    struct statvfs disk;
    *missing = UINT64_MAX;
    if (fstatvfs(folder, &disk) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot ask how much room there is for %s: %s", package->path,
                         strerror(errno));
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    char wanted[32], there[32];
    *missing = bytes > room ? bytes - room : 0;
    if (bytes <= room)
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_SYSTEM,
        "no room on the disk to unpack %s: %s are wanted and %s free; make room, or name a store elsewhere "
        "(WEIR_HOME)",
        package->path, weir_size_format(bytes, wanted, sizeof wanted), weir_size_format(room, there, sizeof there));
}
