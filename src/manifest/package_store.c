#include "manifest/package_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char known[] = "known", fresh_prefix[] = ".new-";

enum { FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC, LEFT_OVER_AFTER = 600 /* seconds */, SETTLED_AFTER = 2 };

/* ---- the store ------------------------------------------------------------------------------------------------------- */

static bool make_path(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool there = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!there)
            return false;
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

weir_status wi_store_open(const char *store, int *packages, char **path)
{
    if (asprintf(path, "%s/packages", store) < 0) {
        *path = NULL;
        return weir_fail(WEIR_SYSTEM, "no host memory to look into %s", store);
    }
    bool made = make_path(*path);
    *packages = open(*path, FOLDER);
    if (*packages >= 0)
        return WEIR_OK;
    weir_status status =
        weir_fail(WEIR_SYSTEM, "cannot %s %s, which packages are unpacked into: %s; WEIR_HOME names another store",
                  made ? "open" : "make", *path, strerror(errno));
    free(*path);
    *path = NULL;
    return status;
}

bool wi_store_has(int packages, const char *content)
{
    struct stat found;
    return fstatat(packages, content, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode);
}

/* ---- files whose content is known ------------------------------------------------------------------------------------ */

/* The time of change is among it, which nobody can set. */
static void link_of(const struct stat *file, char name[160])
{
    snprintf(name, 160, "%s/%llx-%llx-%llx-%llx.%lx-%llx.%lx", known, (unsigned long long)file->st_dev,
             (unsigned long long)file->st_ino, (unsigned long long)file->st_size,
             (unsigned long long)file->st_mtim.tv_sec, file->st_mtim.tv_nsec, (unsigned long long)file->st_ctim.tv_sec,
             file->st_ctim.tv_nsec);
}

bool wi_store_known(int packages, const struct stat *file, char content[WI_CONTENT_BYTES])
{
    char name[160];
    link_of(file, name);
    if (readlinkat(packages, name, content, WI_CONTENT_BYTES) != WI_CONTENT_BYTES - 1)
        return false;
    content[WI_CONTENT_BYTES - 1] = '\0';
    return strspn(content, "0123456789abcdef") == WI_CONTENT_BYTES - 1 && wi_store_has(packages, content);
}

void wi_store_note(int packages, const struct stat *file, const char *content)
{
    /* A file could change again within a tick of the clock that its times are of. */
    if (time(NULL) - file->st_ctim.tv_sec < SETTLED_AFTER)
        return;
    char name[160];
    link_of(file, name);
    if (mkdirat(packages, known, 0777) == 0 || errno == EEXIST)
        (void)!symlinkat(content, packages, name); /* without it the file is read once more, and no harm done */
}

/* ---- new folders ----------------------------------------------------------------------------------------------------- */

/* Removes what is below, links as such. */
static void remove_tree(int parent, const char *name)
{
    int folder = openat(parent, name, FOLDER | O_NOFOLLOW);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list && folder >= 0)
        close(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(list), entry->d_name, 0) != 0)
            remove_tree(dirfd(list), entry->d_name);
    if (list)
        closedir(list);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

/* Takes away what processes that ended in the middle have left. One that is at work holds a lock on its folder. */
static void sweep(int packages)
{
    int again = openat(packages, ".", FOLDER);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    if (!list && again >= 0)
        close(again);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat found;
        if (strncmp(entry->d_name, fresh_prefix, strlen(fresh_prefix)) != 0)
            continue;
        int folder = openat(packages, entry->d_name, FOLDER | O_NOFOLLOW);
        if (folder >= 0 && fstat(folder, &found) == 0 && time(NULL) - found.st_ctim.tv_sec > LEFT_OVER_AFTER &&
            flock(folder, LOCK_EX | LOCK_NB) == 0)
            remove_tree(packages, entry->d_name);
        if (folder >= 0)
            close(folder);
    }
    if (list)
        closedir(list);
}

weir_status wi_store_begin(int packages, const char *path, wi_fresh *out)
{
    char *name;
    sweep(packages);
    if (asprintf(&name, "%s/%sXXXXXX", path, fresh_prefix) < 0)
        return weir_fail(WEIR_SYSTEM, "no host memory to unpack into %s", path);
    const char *made = mkdtemp(name);
    out->folder = made ? open(made, FOLDER) : -1;
    weir_status status = WEIR_OK;
    if (!made || chmod(made, 0755) != 0 || out->folder < 0 || flock(out->folder, LOCK_EX | LOCK_NB) != 0)
        status = weir_fail(WEIR_SYSTEM, "cannot make a folder in %s: %s", path, strerror(errno));
    snprintf(out->name, sizeof out->name, "%s", strrchr(name, '/') + 1);
    if (status != WEIR_OK && made)
        wi_store_drop(packages, out);
    free(name);
    return status;
}

weir_status wi_store_finish(int packages, wi_fresh *fresh, const char *content)
{
    /* A folder under its content's name is whole, also after the power has failed. */
    if (syncfs(fresh->folder) != 0)
        return weir_fail(WEIR_SYSTEM, "cannot write what was unpacked to the disk: %s", strerror(errno));
    if (renameat(packages, fresh->name, packages, content) == 0) {
        close(fresh->folder);
        return WEIR_OK;
    }
    if (!wi_store_has(packages, content))
        return weir_fail(WEIR_SYSTEM, "cannot name what was unpacked: %s", strerror(errno));
    wi_store_drop(packages, fresh);
    return WEIR_OK;
}

void wi_store_drop(int packages, wi_fresh *fresh)
{
    remove_tree(packages, fresh->name);
    if (fresh->folder >= 0)
        close(fresh->folder);
}
