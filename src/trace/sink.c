#include "sink.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static weir_status cannot(const char *path, const char *what, int problem)
{
    return weir_fail(WEIR_SYSTEM, "cannot write %s%s%s: %s", what, what[0] != '\0' ? " " : "", path, strerror(problem));
}

FILE *sink_open(const char *path, const char *what)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        cannot(path, what, errno);
    return file;
}

weir_status sink_close(FILE *file, const char *path, const char *what, int problem)
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
    return cannot(path, what, problem);
}
