#include "regular.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weir_status regular_open(const char *path, FILE **file, uint64_t *bytes)
{
    struct stat found;
    int number = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (number < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot open %s: %s", path,
                         strerror(errno));
    if (fstat(number, &found) != 0 || !S_ISREG(found.st_mode)) {
        close(number);
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is no regular file", path);
    }
    *bytes = (uint64_t)found.st_size;
    *file = fdopen(number, "rb");
    if (*file != NULL)
        return WEIR_OK;
    close(number);
    return weir_fail(WEIR_ERR_SYSTEM, "cannot open %s: %s", path, strerror(errno));
}
