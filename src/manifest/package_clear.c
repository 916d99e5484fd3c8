#include "manifest/package_clear.h"

#include "base/duration.h"
#include "manifest/package_store.h"

#include <weir/base.h>
#include <weir/manifest.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    if (weir_option_get("unpacked", &bytes) != WEIR_OK || weir_size_parse(bytes.value, &bounds.bytes) != WEIR_OK)
        bounds.bytes = UINT64_MAX;
    if (weir_option_get("unpacked_age", &age) != WEIR_OK || !wi_duration_read(age.value, &bounds.seconds))
        bounds.seconds = UINT64_MAX;
    return bounds;
}

/* ---- what is there --------------------------------------------------------------------------------------------------- */

static DIR *open_list(int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list && folder >= 0)
        close(folder);
    return list;
}

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

static bool add(unpacked_list *list, int packages, const char *content, const struct stat *about)
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
        if (wi_store_is_content(entry->d_name) && fstatat(packages, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(about.st_mode))
            good = add(out, packages, entry->d_name, &about);
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
        out->idle += wi_store_is_idle(packages, list.all[i].content) ? list.all[i].bytes : 0;
    }
    free(list.all);
    return status;
}

/* ---- clearing -------------------------------------------------------------------------------------------------------- */

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
        bool gone = goes && wi_store_remove(packages, path, one->content);
        left -= gone ? one->bytes : 0;
        out->cleared += gone;
        out->cleared_bytes += gone ? one->bytes : 0;
        out->in_use += goes && !gone;
        out->kept += !gone;
        out->kept_bytes += gone ? 0 : one->bytes;
    }
    free(list.all);
    wi_store_forget(packages);
    return status;
}
