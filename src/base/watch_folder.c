#include "base/watch_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool wi_watch_allows(uid_t self, uid_t peer)
{
    return peer == self || peer == 0;
}

void wi_watch_address(int folder, const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%.64s", folder, name);
}

static weir_status watch_folder_check_owner(int file, const char *path, bool make, uid_t self)
{
    struct stat found;
    if (fstat(file, &found) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    if (found.st_uid != self && (make || self != 0))
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s is user %u's, not user %u's", path, (unsigned)found.st_uid,
                         (unsigned)self);
    if (found.st_mode & (S_IRWXG | S_IRWXO))
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s can be entered by others: its mode is %03o, not 700", path,
                         (unsigned)found.st_mode & 0777u);
    return WEIR_OK;
}

weir_status wi_watch_folder_take(const char *path, bool make, uid_t self, int *file)
{
    *file = -1;
    if (make && mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s cannot be made: %s", path, strerror(errno));
    int opened = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "the folder %s: %s", path,
                         strerror(errno));
    weir_status status = watch_folder_check_owner(opened, path, make, self);
    if (status == WEIR_OK && (*file = openat(opened, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        status = weir_fail(WEIR_ERR_SYSTEM, "the folder %s: %s", path, strerror(errno));
    close(opened);
    return status;
}

/* The folder that the system gives the user until logout; "": none. A privileged program does not believe its caller, and
 * nobody puts a folder into another user's. */
static const char *runtime_folder(bool make, uid_t self)
{
    const char *path = secure_getenv("XDG_RUNTIME_DIR");
    struct stat found;
    if (!path || path[0] != '/' || strlen(path) + sizeof "/weir" > WI_WATCH_PATH || stat(path, &found) != 0)
        return "";
    return make && found.st_uid != self ? "" : path;
}

weir_status wi_watch_folder_open(int place, bool make, char path[WI_WATCH_PATH], int *file)
{
    uid_t self = geteuid();
    const char *given = place == 0 ? runtime_folder(make, self) : "/tmp";
    *file = -1;
    if (!given[0])
        return weir_fail(WEIR_ERR_NOT_FOUND, "XDG_RUNTIME_DIR names no folder of this user's");
    if (place == 0)
        snprintf(path, WI_WATCH_PATH, "%s/weir", given);
    else
        snprintf(path, WI_WATCH_PATH, "%s/weir-%u", given, (unsigned)self);
    return wi_watch_folder_take(path, make, self, file);
}
