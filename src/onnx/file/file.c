/* See file.h. Files are mapped, not read: weights go from the page cache into weir's memory in one copy, and the heap
 * never holds the file. */
#include "onnx/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps a regular file; 0, or an errno value. An empty file has data NULL. */
static int onnx_file_file_map_file(const char *path, const uint8_t **data, size_t *size, wi_stamp *stamp)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : !S_ISREG(st.st_mode) ? EINVAL : 0;
    void *map = NULL;
    if (!error && st.st_size > 0) {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            error = errno;
    }
    close(fd);
    if (error)
        return error;
    *data = map;
    *size = (size_t)st.st_size;
    *stamp = wi_stamp_of(&st);
    return 0;
}

static weir_status named_failure(const char *path, int error)
{
    weir_status status = error == ENOENT || error == ENOTDIR ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM;
    return weir_fail(status, "cannot read the model %s: %s", path, strerror(error));
}

/* Cuts the path to its folder; the root keeps its slash. */
static void cut_to_folder(char *path)
{
    char *slash = strrchr(path, '/');
    slash[slash == path] = 0;
}

/* The folder of a path, without links; NULL: errno says why. */
static char *onnx_file_file_home_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    errno = ENOMEM;
    char *real = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return real;
}

/* The file without links: most often it is none itself, and its folder's links are known. NULL: errno says why. */
static char *onnx_file_file_real_of(const char *path, const char *home)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool ordinary = *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    size_t room = strlen(home) + strlen(name) + 2;
    char target[2], *joined = malloc(room);
    if (!joined) {
        errno = ENOMEM;
        return NULL;
    }
    snprintf(joined, room, "%s/%s", strcmp(home, "/") == 0 ? "" : home, name);
    if (ordinary && readlink(joined, target, sizeof target) < 0 && errno == EINVAL)
        return joined;
    free(joined);
    return realpath(path, NULL);
}

weir_status onnx_file_open(const char *path, onnx_file *file)
{
    memset(file, 0, sizeof *file);
    file->home = onnx_file_file_home_of(path);
    file->real = file->home ? onnx_file_file_real_of(path, file->home) : NULL;
    if (!file->real) {
        int why = errno;
        onnx_file_close(file);
        return named_failure(path, why);
    }
    int error = onnx_file_file_map_file(file->real, &file->data, &file->size, &file->stamp);
    if (!error && (!(file->named = strdup(path)) || !(file->folder = strdup(file->real))))
        error = ENOMEM;
    if (error) {
        onnx_file_close(file);
        return named_failure(path, error);
    }
    cut_to_folder(file->folder);
    const char *slash = strrchr(file->named, '/');
    file->name = slash ? slash + 1 : file->named;
    if (file->size == 0) {
        onnx_file_close(file);
        return weir_fail(WEIR_ERR_CORRUPT, "%s: the file is empty", path);
    }
    return WEIR_OK;
}

static void free_side(onnx_side_file *side)
{
    if (side->data)
        munmap((void *)(uintptr_t)side->data, side->size);
    free(side->location);
    free(side->named);
    free(side->real);
    free(side);
}

void onnx_file_close(onnx_file *file)
{
    if (file->data)
        munmap((void *)(uintptr_t)file->data, file->size);
    while (file->sides) {
        onnx_side_file *side = file->sides;
        file->sides = side->next;
        free_side(side);
    }
    free(file->named);
    free(file->real);
    free(file->home);
    free(file->folder);
    memset(file, 0, sizeof *file);
}

/* Does the path lead above where it begins? "a/../b" does not. */
static bool climbs(const char *path)
{
    int depth = 0;
    for (const char *part = path; depth >= 0 && *part; part += *part == '/') {
        size_t length = strcspn(part, "/");
        bool up = length == 2 && part[0] == '.' && part[1] == '.';
        bool here = length == 0 || (length == 1 && part[0] == '.');
        depth += up ? -1 : !here;
        part += length;
    }
    return depth < 0;
}

static bool below(const char *folder, size_t length, const char *path)
{
    length -= length == 1; /* the root */
    return strncmp(folder, path, length) == 0 && path[length] == '/';
}

static size_t folder_length(const char *path)
{
    size_t length = (size_t)(strrchr(path, '/') - path);
    return length + (length == 0);
}

/* In or below the folder of the path that was given, or of the file to which it leads. */
static bool onnx_file_file_allowed(const onnx_file *file, const char *path)
{
    return below(file->home, strlen(file->home), path) || below(file->real, folder_length(file->real), path);
}

const char *onnx_file_inside(const onnx_file *file, const onnx_side_file *side)
{
    size_t n = strlen(file->folder);
    return (side ? side->real : file->real) + n + (n > 1);
}

const char *onnx_file_path(const onnx_file *file)
{
    for (const onnx_side_file *side = file->sides; side; side = side->next)
        if (side->beside_target)
            return file->real;
    return file->named;
}

/* Looks for it beside `path`; 0, or an errno value. */
static int look_beside(const char *path, onnx_side_file *side)
{
    const char *slash = strrchr(path, '/');
    int before = slash ? (int)(slash - path) + 1 : 0;
    free(side->named);
    if (asprintf(&side->named, "%.*s%s", before, path, side->location) < 0) {
        side->named = NULL;
        return ENOMEM;
    }
    side->real = realpath(side->named, NULL);
    return side->real ? 0 : errno;
}

static onnx_side_file *open_side(const onnx_file *file, onnx_text location, char *why, size_t capacity)
{
    onnx_side_file *side = calloc(1, sizeof *side);
    if (!side || !(side->location = onnx_text_copy(location))) {
        snprintf(why, capacity, "no host memory");
        free(side);
        return NULL;
    }
    bool leaves = side->location[0] == '/' || climbs(side->location);
    int error = leaves ? 0 : look_beside(file->named, side);
    if (error == ENOENT && look_beside(file->real, side) == 0) {
        error = 0;
        side->beside_target = true;
    }
    if (leaves)
        snprintf(why, capacity, "it leaves the model's folder");
    else if (!error && !onnx_file_file_allowed(file, side->real))
        snprintf(why, capacity, "it is a link that leaves the model's folder");
    else if (!error && (error = onnx_file_file_map_file(side->real, &side->data, &side->size, &side->stamp)) == 0)
        return side;
    if (error)
        snprintf(why, capacity, "%s", strerror(error));
    free_side(side);
    return NULL;
}

const onnx_side_file *onnx_file_side(onnx_file *file, onnx_text location, char *why, size_t capacity)
{
    for (onnx_side_file *side = file->sides; side; side = side->next)
        if (onnx_text_is(location, side->location))
            return side;
    if (location.size == 0 || location.size >= PATH_MAX) {
        snprintf(why, capacity, location.size ? "the name is too long" : "the name is empty");
        return NULL;
    }
    onnx_side_file *side = open_side(file, location, why, capacity);
    if (side) {
        side->next = file->sides;
        file->sides = side;
        while (!below(file->folder, strlen(file->folder), side->real))
            cut_to_folder(file->folder);
    }
    return side;
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

typedef struct origin {
    char *path, *named;
    wi_stamp stamp;
} origin;

struct onnx_origins {
    size_t count;
    origin list[];
};

static bool add_origin(onnx_origins *to, const char *path, const char *named, wi_stamp stamp)
{
    origin *its = &to->list[to->count++];
    *its = (origin){strdup(path), strdup(named), stamp};
    return its->path && its->named;
}

onnx_origins *onnx_origins_of(const onnx_file *file)
{
    size_t most = 1;
    for (const onnx_side_file *side = file->sides; side; side = side->next)
        most++;
    onnx_origins *out = calloc(1, sizeof *out + most * sizeof *out->list);
    bool good = out && add_origin(out, file->real, file->named, file->stamp);
    for (const onnx_side_file *side = file->sides; good && side; side = side->next)
        good = add_origin(out, side->real, side->named, side->stamp);
    if (good)
        return out;
    onnx_origins_free(out);
    return NULL;
}

void onnx_origins_free(onnx_origins *origins)
{
    for (size_t i = 0; origins && i < origins->count; i++) {
        free(origins->list[i].path);
        free(origins->list[i].named);
    }
    free(origins);
}

/* Another name or mode does not matter here. */
static bool onnx_file_file_is_same(const wi_stamp *a, const wi_stamp *b)
{
    return a->device == b->device && a->number == b->number && a->size == b->size &&
           wi_stamp_same_time(&a->written, &b->written);
}

weir_status onnx_origins_check(const onnx_origins *origins)
{
    for (size_t i = 0; i < origins->count; i++) {
        const origin *its = &origins->list[i];
        struct stat st;
        wi_stamp now = stat(its->path, &st) == 0 ? wi_stamp_of(&st) : (wi_stamp){.size = -1};
        if (!onnx_file_file_is_same(&its->stamp, &now))
            return weir_fail(WEIR_ERR_CONFLICT,
                             "%s is not the file any more that the model was loaded from; load the model again",
                             its->named);
    }
    return WEIR_OK;
}
