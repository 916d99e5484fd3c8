/* See file.h. Files are mapped, not read: weights go from the page cache into weir's memory in one copy, and the heap
 * never holds the file. */
#include "onnx_file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static onnx_stamp stamp_of(const struct stat *st)
{
    return (onnx_stamp){st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim};
}

/* Maps a regular file; 0, or an errno value. An empty file has data NULL. */
static int map_file(const char *path, const uint8_t **data, size_t *size, onnx_stamp *stamp)
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
    *stamp = stamp_of(&st);
    return 0;
}

static weir_status named_failure(const char *path, int error)
{
    weir_status status = error == ENOENT || error == ENOTDIR ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM;
    return weir_fail(status, "cannot read the model %s: %s", path, strerror(error));
}

weir_status onnx_file_open(const char *path, onnx_file *file)
{
    memset(file, 0, sizeof *file);
    file->real = realpath(path, NULL);
    if (!file->real)
        return named_failure(path, errno);
    int error = map_file(file->real, &file->data, &file->size, &file->stamp);
    if (!error && !(file->folder = strdup(file->real)))
        error = ENOMEM;
    if (error) {
        onnx_file_close(file);
        return named_failure(path, error);
    }
    char *slash = strrchr(file->folder, '/');
    slash[slash == file->folder] = 0; /* the root keeps its slash */
    file->name = strrchr(file->real, '/') + 1;
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
    free(file->real);
    free(file->folder);
    memset(file, 0, sizeof *file);
}

/* Is a part of the path ".."? */
static bool climbs(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == 0))
            return true;
    return false;
}

static bool below(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    n -= n == 1; /* the root */
    return strncmp(folder, path, n) == 0 && path[n] == '/';
}

const char *onnx_file_inside(const onnx_file *file, const onnx_side_file *side)
{
    size_t n = strlen(file->folder);
    return side->real + n + (n > 1);
}

static onnx_side_file *open_side(const onnx_file *file, onnx_text location, char *why, size_t capacity)
{
    char path[PATH_MAX];
    onnx_side_file *side = calloc(1, sizeof *side);
    if (!side || !(side->location = onnx_text_copy(location))) {
        snprintf(why, capacity, "no host memory");
        free(side);
        return NULL;
    }
    int error = 0;
    int n = snprintf(path, sizeof path, "%s/%s", file->folder, side->location);
    if (side->location[0] == '/' || climbs(side->location))
        snprintf(why, capacity, "it leaves the model's folder");
    else if (n < 0 || (size_t)n >= sizeof path || !(side->real = realpath(path, NULL)))
        snprintf(why, capacity, "%s", strerror(n < 0 || (size_t)n >= sizeof path ? ENAMETOOLONG : errno));
    else if (!below(file->folder, side->real))
        snprintf(why, capacity, "it is a link that leaves the model's folder");
    else if ((error = map_file(side->real, &side->data, &side->size, &side->stamp)) != 0)
        snprintf(why, capacity, "%s", strerror(error));
    else
        return side;
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
    }
    return side;
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

typedef struct origin {
    char *path;
    onnx_stamp stamp;
} origin;

struct onnx_origins {
    size_t count;
    origin list[];
};

static bool add_origin(onnx_origins *to, const char *path, onnx_stamp stamp)
{
    origin *its = &to->list[to->count];
    *its = (origin){strdup(path), stamp};
    to->count += its->path != NULL;
    return its->path != NULL;
}

onnx_origins *onnx_origins_of(const onnx_file *file)
{
    size_t most = 1;
    for (const onnx_side_file *side = file->sides; side; side = side->next)
        most++;
    onnx_origins *out = calloc(1, sizeof *out + most * sizeof *out->list);
    bool good = out && add_origin(out, file->real, file->stamp);
    for (const onnx_side_file *side = file->sides; good && side; side = side->next)
        good = add_origin(out, side->real, side->stamp);
    if (good)
        return out;
    onnx_origins_free(out);
    return NULL;
}

void onnx_origins_free(onnx_origins *origins)
{
    for (size_t i = 0; origins && i < origins->count; i++)
        free(origins->list[i].path);
    free(origins);
}

static bool is_same(const onnx_stamp *a, const onnx_stamp *b)
{
    return a->device == b->device && a->number == b->number && a->size == b->size &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

weir_status onnx_origins_check(const onnx_origins *origins)
{
    for (size_t i = 0; i < origins->count; i++) {
        const origin *its = &origins->list[i];
        struct stat st;
        onnx_stamp now = stat(its->path, &st) == 0 ? stamp_of(&st) : (onnx_stamp){.size = -1};
        if (!is_same(&its->stamp, &now))
            return weir_fail(WEIR_ERR_CONFLICT,
                             "%s is not the file any more that the model was loaded from; load the model again",
                             its->path);
    }
    return WEIR_OK;
}
