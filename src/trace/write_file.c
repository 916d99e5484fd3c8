#include "trace/write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 65536 };

struct wi_trace_file {
    int descriptor, problem; /* an errno; 0: none */
    bool regular;
    off_t arrived;
    size_t used;
    char *path;
    char buffer[BUFFER];
};

static weir_status write_file_cannot(const char *path, int problem)
{
    char text[128] = "";
    const char *words = strerror_r(problem, text, sizeof text);
    return weir_fail(WEIR_ERR_SYSTEM, "cannot write the trace %s: %s", path, words);
}

weir_status wi_trace_file_open(const char *path, wi_trace_file **out)
{
    wi_trace_file *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    struct stat kind;
    int descriptor = file && copy ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (descriptor < 0) {
        int problem = file && copy ? errno : ENOMEM;
        free(copy);
        free(file);
        return write_file_cannot(path, problem);
    }
    file->descriptor = descriptor;
    file->regular = fstat(descriptor, &kind) == 0 && S_ISREG(kind.st_mode);
    file->path = copy;
    *out = file;
    return WEIR_OK;
}

/* write, without the signal that a reader who has gone would cost the process. */
static ssize_t write_quietly(int descriptor, const char *bytes, size_t count)
{
    sigset_t pipe, before, waiting;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ssize_t done = write(descriptor, bytes, count);
    int problem = errno;
    if (done < 0 && problem == EPIPE && !sigismember(&waiting, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = problem;
    return done;
}

static weir_status write_file_empty(wi_trace_file *file)
{
    size_t done = 0;
    while (file->problem == 0 && done < file->used) {
        ssize_t more = write_quietly(file->descriptor, file->buffer + done, file->used - done);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            file->problem = more == 0 ? EIO : errno;
    }
    file->used = 0;
    if (file->problem == 0) {
        file->arrived += (off_t)done;
        return WEIR_OK;
    }
    if (file->regular && ftruncate(file->descriptor, file->arrived) != 0)
        file->regular = false; /* a reader finds the cut */
    return write_file_cannot(file->path, file->problem);
}

weir_status wi_trace_file_add(wi_trace_file *file, const void *bytes, size_t count)
{
    weir_status status = WEIR_OK;
    if (file->problem != 0)
        return write_file_cannot(file->path, file->problem);
    if (count > BUFFER - file->used)
        status = write_file_empty(file);
    if (status == WEIR_OK) {
        memcpy(file->buffer + file->used, bytes, count);
        file->used += count;
    }
    return status;
}

weir_status wi_trace_file_flush(wi_trace_file *file)
{
    return write_file_empty(file);
}

weir_status wi_trace_file_close(wi_trace_file *file)
{
    weir_status status = write_file_empty(file);
    if (close(file->descriptor) != 0 && status == WEIR_OK)
        status = write_file_cannot(file->path, errno);
    free(file->path);
    free(file);
    return status;
}

weir_status weir_sink_file(const char *path, weir_sink_format format, weir_sink *out)
{
    WI_ENTER();
    if (!path || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_sink_file: NULL, or member struct_size is not set");
    switch (format) {
    case WEIR_SINK_BINARY:
        return wi_sink_binary(path, out);
    case WEIR_SINK_CSV:
        return wi_sink_csv(path, out);
    default:
        return weir_fail(WEIR_ERR_INVALID, "weir_sink_file: %d is no format; see weir_sink_format", (int)format);
    }
}
