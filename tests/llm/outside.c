/* See outside.h. */
#include "outside.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static char inside[PATH_MAX], found[PATH_MAX];
static bool watches;

static bool is_systems(const char *path)
{
    static const char *const folders[] = {"/proc/",         "/sys/",           "/dev/",
                                          "/etc/localtime", "/etc/os-release", "/usr/share/zoneinfo/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strncmp(path, folders[i], strlen(folders[i])) == 0)
            return true;
    return false;
}

/* By where a link leads. What is not there is not opened. */
static void look(const char *path)
{
    char real[PATH_MAX];
    if (!watches || found[0] || !path || is_systems(path) || !realpath(path, real))
        return;
    size_t length = strlen(inside);
    if (strncmp(real, inside, length) == 0 && (real[length] == '/' || real[length] == 0))
        return;
    if (!is_systems(real))
        snprintf(found, sizeof found, "%s", path);
}

void outside_watch(const char *folder)
{
    if (!realpath(folder, inside))
        inside[0] = 0;
    found[0] = 0;
    watches = true;
}

const char *outside_found(void)
{
    watches = false;
    return found[0] ? found : NULL;
}

static int count_one(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)info;
    (void)size;
    ++*(size_t *)user;
    return 0;
}

size_t outside_libraries(void)
{
    size_t count = 0;
    dl_iterate_phdr(count_one, &count);
    return count;
}

/* ---- in libc's place --------------------------------------------------------------------------------------------- */

#define REAL(type, name) (*(type **)&(void *){dlsym(RTLD_NEXT, name)})

typedef int open_fn(const char *, int, ...);
typedef int openat_fn(int, const char *, int, ...);
typedef FILE *fopen_fn(const char *, const char *);

static int mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
}

#define OPEN(name)                                                                                                     \
    EXPORT int name(const char *path, int flags, ...)                                                                  \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = mode_of(flags, rest);                                                                               \
        va_end(rest);                                                                                                  \
        look(path);                                                                                                    \
        return REAL(open_fn, #name)(path, flags, mode);                                                                \
    }
#define OPENAT(name)                                                                                                   \
    EXPORT int name(int folder, const char *path, int flags, ...)                                                      \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = mode_of(flags, rest);                                                                               \
        va_end(rest);                                                                                                  \
        if (folder == AT_FDCWD || path[0] == '/')                                                                      \
            look(path);                                                                                                \
        return REAL(openat_fn, #name)(folder, path, flags, mode);                                                      \
    }
#define FOPEN(name)                                                                                                    \
    EXPORT FILE *name(const char *path, const char *how)                                                               \
    {                                                                                                                  \
        look(path);                                                                                                    \
        return REAL(fopen_fn, #name)(path, how);                                                                       \
    }

/* The C library's headers have other names for the same parameters. NOLINTBEGIN(readability-*) */
#undef open
#undef open64
#undef openat
#undef openat64
#undef fopen
#undef fopen64
int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);
int openat(int folder, const char *path, int flags, ...);
int openat64(int folder, const char *path, int flags, ...);
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)
/* NOLINTEND(readability-*) */
