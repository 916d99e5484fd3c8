#include "cli/output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weir_status output_file_cannot(const char *path, const char *what, int problem)
{
    return weir_fail(WEIR_ERR_SYSTEM, "cannot write %s%s%s: %s", what, what[0] != '\0' ? " " : "", path,
                     strerror(problem));
}

/* Why no file can be made in the folder of `path`; 0: it may be. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int problem = folder == NULL ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return problem;
}

weir_status output_file_check(const char *path, const char *what)
{
    struct stat found;
    int problem = stat(path, &found) == 0 ? 0 : errno;
    if (problem == 0)
        problem = S_ISDIR(found.st_mode) ? EISDIR : access(path, W_OK) == 0 ? 0 : errno;
    else if (problem == ENOENT)
        problem = check_folder(path);
    return problem == 0 ? WEIR_OK : output_file_cannot(path, what, problem);
}

FILE *output_file_open(const char *path, const char *what)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        output_file_cannot(path, what, errno);
    return file;
}

void output_file_remove(const char *path)
{
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISREG(kind.st_mode))
        remove(path);
}

weir_status output_file_close(FILE *file, const char *path, const char *what, int problem)
{
    struct stat kind;
    bool regular = fstat(fileno(file), &kind) == 0 && S_ISREG(kind.st_mode);
    errno = 0;
    if ((fflush(file) != 0 || ferror(file)) && problem == 0)
        problem = errno != 0 ? errno : EIO;
    if (fclose(file) != 0 && problem == 0)
        problem = errno;
    if (problem == 0)
        return WEIR_OK;
    if (regular)
        remove(path);
    return output_file_cannot(path, what, problem);
}
