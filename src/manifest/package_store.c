/* Where packages are unpacked; see package.h. */
#include "base/values.h"
#include "manifest/package.h"

#include <weir/base.h>
#include <weir/manifest.h>

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

/* ---- the store --------------------------------------------------------------------------------------------------- */

static DIR *open_list(int parent, const char *name)
{
    int folder = openat(parent, name, FOLDER | O_NOFOLLOW);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list && folder >= 0)
        close(folder);
    return list;
}

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
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look into %s", store);
    }
    bool made = make_path(*path);
    int why = errno; /* if the folder cannot be opened, the reason is that it could not be made */
    *packages = open(*path, FOLDER);
    if (*packages >= 0)
        return WEIR_OK;
    weir_status status =
        weir_fail(WEIR_ERR_SYSTEM, "cannot %s %s, which packages are unpacked into: %s; WEIR_HOME names another store",
                  made ? "open" : "make", *path, strerror(made ? errno : why));
    free(*path);
    *path = NULL;
    return status;
}

bool wi_store_has(int packages, const char *content)
{
    struct stat found;
    return fstatat(packages, content, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode);
}

static bool is_content(const char *name)
{
    return strlen(name) == WI_CONTENT_BYTES - 1 && strspn(name, "0123456789abcdef") == WI_CONTENT_BYTES - 1;
}

/* ---- folders in use ---------------------------------------------------------------------------------------------- */

static bool package_store_is_named(int packages, int folder, const char *name)
{
    struct stat here, there;
    return fstat(folder, &here) == 0 && fstatat(packages, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

int wi_store_use(int packages, const char *content)
{
    int folder = openat(packages, content, FOLDER | O_NOFOLLOW);
    if (folder < 0)
        return -1;
    /* Where the disk has no locks, packages are never cleared, so that the package is safe without a lock. */
    while (flock(folder, LOCK_SH) != 0 && errno == EINTR)
        ;
    if (!package_store_is_named(packages, folder, content)) { /* it was cleared in between */
        close(folder);
        return -1;
    }
    (void)futimens(folder, NULL);
    return folder;
}

void wi_store_leave(int folder)
{
    (void)futimens(folder, NULL);
    close(folder);
}

/* ---- files whose content is known -------------------------------------------------------------------------------- */

/* Makes the name of a file's link, of device, inode, size and times. The time of change (ctime) cannot be set by
 * programs. */
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
    return is_content(content) && wi_store_has(packages, content);
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

/* Removes the links to contents that are gone. */
static void forget_unknown(int packages)
{
    DIR *list = open_list(packages, known);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char content[WI_CONTENT_BYTES];
        if (readlinkat(dirfd(list), entry->d_name, content, sizeof content) != WI_CONTENT_BYTES - 1)
            continue;
        content[WI_CONTENT_BYTES - 1] = '\0';
        if (!wi_store_has(packages, content))
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list)
        closedir(list);
}

/* ---- new folders ------------------------------------------------------------------------------------------------- */

/* Removes a folder and everything below. Does not follow links. */
static void remove_tree(int parent, const char *name)
{
    DIR *list = open_list(parent, name);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(list), entry->d_name, 0) != 0)
            remove_tree(dirfd(list), entry->d_name);
    if (list)
        closedir(list);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

/* Removes the folders left by processes that ended while unpacking or removing. A process at work has a lock on its
 * folder. */
static void package_store_sweep(int packages)
{
    DIR *list = open_list(packages, ".");
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

/* Makes an empty folder with an unused name below `path`. */
static bool fresh_name(const char *path, char name[WI_FRESH_NAME])
{
    char *whole = NULL;
    bool made = asprintf(&whole, "%s/%sXXXXXX", path, fresh_prefix) >= 0 && mkdtemp(whole);
    if (made)
        snprintf(name, WI_FRESH_NAME, "%s", strrchr(whole, '/') + 1);
    free(whole);
    return made;
}

/* Whether nobody uses the folder of a content just now. */
static bool package_store_is_idle(int packages, const char *content)
{
    int folder = openat(packages, content, FOLDER | O_NOFOLLOW);
    bool idle = folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0;
    if (folder >= 0)
        close(folder);
    return idle;
}

/* Removes a package that is not in use. The folder is renamed first, so that a package under its name is always whole;
 * if this process ends meanwhile, a sweep of another process removes the folder. */
static bool remove_package(int packages, const char *path, const char *content)
{
    char name[WI_FRESH_NAME];
    int folder = openat(packages, content, FOLDER | O_NOFOLLOW);
    bool gone = folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0 &&
                package_store_is_named(packages, folder, content) && fresh_name(path, name);
    if (gone && renameat(packages, content, packages, name) != 0) {
        (void)unlinkat(packages, name, AT_REMOVEDIR);
        gone = false;
    }
    if (gone)
        remove_tree(packages, name);
    if (folder >= 0)
        close(folder);
    return gone;
}

weir_status wi_store_begin(int packages, const char *path, wi_fresh *out)
{
    package_store_sweep(packages);
    bool made = fresh_name(path, out->name);
    out->folder = made ? openat(packages, out->name, FOLDER) : -1;
    if (made && out->folder >= 0 && fchmod(out->folder, 0755) == 0 && flock(out->folder, LOCK_EX | LOCK_NB) == 0)
        return WEIR_OK;
    weir_status status = weir_fail(WEIR_ERR_SYSTEM, "cannot make a folder in %s: %s", path, strerror(errno));
    if (made)
        wi_store_drop(packages, out);
    return status;
}

weir_status wi_store_finish(int packages, wi_fresh *fresh, const char *content)
{
    /* A folder under its content's name is whole, also after the power has failed. */
    if (syncfs(fresh->folder) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot write what was unpacked to the disk: %s", strerror(errno));
    if (renameat(packages, fresh->name, packages, content) == 0) {
        close(fresh->folder);
        return WEIR_OK;
    }
    if (!wi_store_has(packages, content))
        return weir_fail(WEIR_ERR_SYSTEM, "cannot name what was unpacked: %s", strerror(errno));
    wi_store_drop(packages, fresh);
    return WEIR_OK;
}

void wi_store_drop(int packages, wi_fresh *fresh)
{
    remove_tree(packages, fresh->name);
    if (fresh->folder >= 0)
        close(fresh->folder);
}

/* Clearing: by age, and by bytes the one that was used longest ago first ------------------------------------------- */

/* One that lies there. */
typedef struct unpacked {
    char content[WI_CONTENT_BYTES];
    time_t used;
    uint64_t bytes;
} unpacked;

typedef struct unpacked_list {
    unpacked *all;
    size_t count;
} unpacked_list;

wi_bounds wi_bounds_of_options(void)
{
    wi_bounds bounds = {0};
    weir_option bytes = WEIR_INIT(weir_option), age = WEIR_INIT(weir_option);
    if (weir_option_info("unpacked", 0, &bytes) != WEIR_OK || wi_size_parse(bytes.value, &bounds.bytes) != WEIR_OK)
        bounds.bytes = UINT64_MAX;
    if (weir_option_info("unpacked_age", 0, &age) != WEIR_OK || !wi_duration_read(age.value, &bounds.seconds))
        bounds.seconds = UINT64_MAX;
    return bounds;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

uint64_t wi_packages_bytes_below(int parent, const char *name)
{
    uint64_t bytes = 0;
    DIR *list = open_list(parent, name);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(list), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        bytes += S_ISDIR(about.st_mode) ? wi_packages_bytes_below(dirfd(list), entry->d_name) : (uint64_t)about.st_size;
    }
    if (list)
        closedir(list);
    return bytes;
}

static bool package_store_add(unpacked_list *list, int packages, const char *content, const struct stat *about)
{
    unpacked *more = realloc(list->all, (list->count + 1) * sizeof *more);
    if (!more)
        return false;
    list->all = more;
    unpacked *one = &more[list->count++];
    memcpy(one->content, content, sizeof one->content);
    one->used = about->st_mtim.tv_sec;
    one->bytes = wi_packages_bytes_below(packages, content);
    return true;
}

static int by_last_use(const void *a, const void *b)
{
    const unpacked *x = a, *y = b;
    int result = (x->used > y->used) - (x->used < y->used);
    return result ? result : strcmp(x->content, y->content);
}

static weir_status list_all(int packages, const char *path, unpacked_list *out)
{
    bool good = true;
    *out = (unpacked_list){.all = NULL};
    DIR *list = open_list(packages, ".");
    if (!list)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    for (struct dirent *entry; good && (entry = readdir(list));) {
        struct stat about;
        if (is_content(entry->d_name) && fstatat(packages, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(about.st_mode))
            good = package_store_add(out, packages, entry->d_name, &about);
    }
    closedir(list);
    if (out->count > 0)
        qsort(out->all, out->count, sizeof *out->all, by_last_use);
    return good ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory to look through %s", path);
}

weir_status wi_packages_count(int packages, const char *path, wi_packages_there *out)
{
    unpacked_list list;
    weir_status status = list_all(packages, path, &list);
    *out = (wi_packages_there){0};
    for (size_t i = 0; i < list.count; i++) {
        out->bytes += list.all[i].bytes;
        out->idle += package_store_is_idle(packages, list.all[i].content) ? list.all[i].bytes : 0;
    }
    free(list.all);
    return status;
}

/* ---- clearing ---------------------------------------------------------------------------------------------------- */

weir_status wi_packages_clear(int packages, const char *path, wi_bounds bounds, weir_manifest_cleared *out)
{
    unpacked_list list;
    uint64_t now = (uint64_t)time(NULL), left = 0;
    weir_status status = list_all(packages, path, &list);
    for (size_t i = 0; i < list.count; i++)
        left += list.all[i].bytes;
    for (size_t i = 0; status == WEIR_OK && i < list.count; i++) {
        const unpacked *one = &list.all[i];
        uint64_t used = one->used > 0 ? (uint64_t)one->used : 0, age = now > used ? now - used : 0;
        bool goes = left > bounds.bytes || age > bounds.seconds;
        bool gone = goes && remove_package(packages, path, one->content);
        left -= gone ? one->bytes : 0;
        out->cleared += gone;
        out->cleared_bytes += gone ? one->bytes : 0;
        out->in_use += goes && !gone;
        out->kept += !gone;
        out->kept_bytes += gone ? 0 : one->bytes;
    }
    free(list.all);
    forget_unknown(packages);
    return status;
}
