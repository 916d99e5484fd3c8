/* Sinks that write traces into files: as RMM's logging adaptor writes them, with weir's own columns behind RMM's six, and
 * as binary files. */
#include "base/texts.h"
#include "base/internal.h"
#include "base/maps.h"
#include "trace/format.h"

#include <weir/trace.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The file --------------------------------------------------------------------------------------------------------- */

/* Pieces go in whole, so that what arrives ends where a piece ends. Not a FILE: a child made by fork would write its copy of
 * the buffer, too. A file that fails once takes nothing more, and is cut back to the last whole piece that is known to have
 * arrived. */
enum { BUFFER = 65536 };

typedef struct trace_file {
    int descriptor, problem; /* an errno; 0: none */
    bool regular;
    off_t arrived;
    size_t used;
    char *path;
    char buffer[BUFFER];
} trace_file;

static weir_status write_file_cannot(const char *path, int problem)
{
    char text[128] = "";
    const char *words = strerror_r(problem, text, sizeof text);
    return weir_fail(WEIR_ERR_SYSTEM, "cannot write the trace %s: %s", path, words);
}

static weir_status write_file_open(const char *path, trace_file **out)
{
    trace_file *file = calloc(1, sizeof *file);
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

static weir_status write_file_empty(trace_file *file)
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

/* One piece, shorter than the buffer. */
static weir_status write_file_add(trace_file *file, const void *bytes, size_t count)
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

/* Frees it in any case. */
static weir_status write_file_close(trace_file *file)
{
    weir_status status = write_file_empty(file);
    if (close(file->descriptor) != 0 && status == WEIR_OK)
        status = write_file_cannot(file->path, errno);
    free(file->path);
    free(file);
    return status;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

typedef struct csv {
    trace_file *file;
    wi_pointer_map known; /* the bytes of live blocks, or IS_AWAY */
    uint64_t start;       /* nanoseconds of the first event */
} csv;

#define IS_AWAY UINT64_MAX
enum { ROW = 2048 };

/* Adds a value, with quotes if needed, cut so that the rest of the row still fits. */
static void add_quoted(char row[ROW], size_t *used, const char *text)
{
    enum { MOST = 256 };
    size_t count = strnlen(text, MOST);
    bool plain = text[strcspn(text, ",\"\r\n")] == '\0';
    if (!plain)
        row[(*used)++] = '"';
    for (size_t i = 0; i < count; i++) {
        if (text[i] == '"')
            row[(*used)++] = '"';
        row[(*used)++] = text[i];
    }
    if (!plain)
        row[(*used)++] = '"';
}

/* One row. RMM has no word for a resize, so the caller says the action. */
static weir_status write_csv_add_row(csv *c, const weir_event *event, const char *action, uint64_t bytes)
{
    char row[ROW];
    uint64_t micros = (event->nanoseconds - c->start) / 1000;
    size_t used = (size_t)snprintf(row, sizeof row,
                                   "%" PRIu64 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,0x%" PRIxPTR
                                   ",%" PRIu64 ",%" PRIu64 ",",
                                   event->thread, micros / 3600000000u, micros / 60000000u % 60, micros / 1000000u % 60,
                                   micros % 1000000u, action, (uintptr_t)event->pointer, bytes, event->stream.id);
    add_quoted(row, &used, event->client);
    used +=
        (size_t)snprintf(row + used, sizeof row - used, ",%s,", weir_name_of(WEIR_NAMES_CLASS, event->memory_class));
    add_quoted(row, &used, event->tag);
    used +=
        (size_t)snprintf(row + used, sizeof row - used, ",%" PRIu64 ",%" PRIu64 "\n", event->order, event->nanoseconds);
    return write_file_add(c->file, row, used);
}

static weir_status write_csv_remember(csv *c, const weir_event *event)
{
    return wi_pointer_map_put(&c->known, event->pointer, event->bytes)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
}

/* In RMM's words: it was freed. */
static weir_status add_leave(csv *c, const weir_event *event)
{
    uint64_t old;
    if (!wi_pointer_map_remove(&c->known, event->pointer, &old))
        return WEIR_OK;
    weir_event left = *event;
    left.bytes = IS_AWAY;
    weir_status status = old == IS_AWAY ? WEIR_OK : write_csv_add_row(c, event, "free", old);
    return status == WEIR_OK ? write_csv_remember(c, &left) : status;
}

static weir_status add_return(csv *c, const weir_event *event)
{
    uint64_t old;
    if (!wi_pointer_map_remove(&c->known, event->pointer, &old))
        return WEIR_OK;
    weir_status status = old == IS_AWAY ? write_csv_add_row(c, event, "allocate", event->bytes) : WEIR_OK;
    return status == WEIR_OK ? write_csv_remember(c, event) : status;
}

static weir_status add_resize(csv *c, const weir_event *event)
{
    uint64_t old;
    weir_status status = WEIR_OK;
    /* In RMM's words: it was freed, and allocated again at the same place. */
    if (wi_pointer_map_remove(&c->known, event->pointer, &old))
        status = write_csv_add_row(c, event, "free", old);
    if (status == WEIR_OK)
        status = write_csv_add_row(c, event, "allocate", event->bytes);
    return status == WEIR_OK ? write_csv_remember(c, event) : status;
}

static weir_status write_csv_add_event(csv *c, const weir_event *event)
{
    uint64_t old = event->bytes;
    weir_status status;
    switch (event->action) {
    case WEIR_ACTION_ALLOCATE:
        status = write_csv_add_row(c, event, "allocate", event->bytes);
        return status == WEIR_OK ? write_csv_remember(c, event) : status;
    case WEIR_ACTION_DEALLOCATE:
        (void)wi_pointer_map_remove(&c->known, event->pointer, &old);
        return old == IS_AWAY ? WEIR_OK : write_csv_add_row(c, event, "free", old);
    case WEIR_ACTION_RESIZE:
        return add_resize(c, event);
    case WEIR_ACTION_LEAVE:
        return add_leave(c, event);
    case WEIR_ACTION_RETURN:
        return add_return(c, event);
    case WEIR_ACTION_REFUSE:
        return write_csv_add_row(c, event, "allocate failure", event->bytes);
    case WEIR_ACTION_FAIL:
        return event->object == WEIR_ACTION_ALLOCATE ? write_csv_add_row(c, event, "allocate failure", event->bytes)
                                                     : WEIR_OK;
    default: /* RMM has no word for it */
        return WEIR_OK;
    }
}

static weir_status csv_write(void *user, const weir_event *events, size_t count)
{
    csv *c = user;
    size_t stride = events[0].struct_size;
    for (size_t i = 0; i < count; i++) {
        const weir_event *event = (const weir_event *)(const void *)((const char *)events + i * stride);
        if (c->start == 0)
            c->start = event->nanoseconds;
        weir_status status = write_csv_add_event(c, event);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

static weir_status csv_flush(void *user)
{
    return write_file_empty(((csv *)user)->file);
}

static weir_status csv_close(void *user)
{
    csv *c = user;
    weir_status status = write_file_close(c->file);
    wi_pointer_map_clear(&c->known);
    free(c);
    return status;
}

static weir_status write_csv_open(const char *path, weir_sink *out)
{
    static const char header[] = "Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds\n";
    csv *c = calloc(1, sizeof *c);
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a sink");
    weir_status status = write_file_open(path, &c->file);
    if (status != WEIR_OK) {
        free(c);
        return status;
    }
    (void)write_file_add(c->file, header, sizeof header - 1);
    weir_sink sink = {.user = c, .write = csv_write, .flush = csv_flush, .close = csv_close};
    wi_copy_out(out, out->struct_size, &sink, sizeof sink);
    return WEIR_OK;
}

/* Texts that the file has already, by their contents; open addressing, at most half full. */
typedef struct text {
    char *bytes; /* NULL: nothing here */
    uint32_t number;
} text;

typedef struct binary {
    trace_file *file;
    text *texts;
    size_t room; /* a power of two, or 0 */
    uint32_t count;
    uint64_t lost, events;
} binary;

/* Binary: texts ------------------------------------------------------------------------------------------------------------ */

static text *write_binary_place_of(const binary *b, const char *bytes)
{
    size_t at = (size_t)wi_hash(bytes, strlen(bytes)) & (b->room - 1);
    while (b->texts[at].bytes && strcmp(b->texts[at].bytes, bytes) != 0)
        at = (at + 1) & (b->room - 1);
    return &b->texts[at];
}

static bool write_binary_make_room(binary *b)
{
    if (2 * (size_t)b->count < b->room)
        return true;
    binary larger = {.room = b->room ? 2 * b->room : 64};
    larger.texts = calloc(larger.room, sizeof *larger.texts);
    if (!larger.texts)
        return false;
    for (size_t i = 0; i < b->room; i++)
        if (b->texts[i].bytes)
            *write_binary_place_of(&larger, b->texts[i].bytes) = b->texts[i];
    free(b->texts);
    b->texts = larger.texts;
    b->room = larger.room;
    return true;
}

static weir_status write_binary_add_item(binary *b, unsigned char *item, size_t bytes, uint32_t kind)
{
    wi_put32(item, kind);
    wi_put32(item + 4, wi_crc(item + WI_TRACE_ITEM, bytes - WI_TRACE_ITEM));
    return write_file_add(b->file, item, bytes);
}

static weir_status write_binary_add_text(binary *b, const char *bytes, uint32_t number)
{
    unsigned char item[WI_TRACE_ITEM + 8 + WI_TRACE_TEXT_MOST] = {0};
    size_t length = strlen(bytes);
    wi_put32(item + WI_TRACE_ITEM, number);
    wi_put32(item + WI_TRACE_ITEM + 4, (uint32_t)length);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): it has its length */
    memcpy(item + WI_TRACE_ITEM + 8, bytes, length);
    return write_binary_add_item(b, item, WI_TRACE_ITEM + 8 + (length + 7) / 8 * 8, WI_TRACE_IS_TEXT);
}

/* The text's number, which the file knows when this has answered WEIR_OK. */
static weir_status write_binary_number_of(binary *b, const char *bytes, uint32_t *out)
{
    char cut[WI_TRACE_TEXT_MOST + 1];
    *out = 0;
    if (!bytes || !*bytes)
        return WEIR_OK;
    size_t length = strnlen(bytes, WI_TRACE_TEXT_MOST);
    memcpy(cut, bytes, length);
    cut[length] = '\0';
    if (!write_binary_make_room(b))
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    text *t = write_binary_place_of(b, cut);
    if (!t->bytes) {
        weir_status status = write_binary_add_text(b, cut, b->count + 1);
        if (status != WEIR_OK)
            return status;
        t->number = ++b->count;
        t->bytes = strdup(cut);
        if (!t->bytes) /* the file has it, and will have it again */
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    }
    *out = t->number;
    return WEIR_OK;
}

/* Binary: events ----------------------------------------------------------------------------------------------------------- */

static weir_status write_binary_add_event(binary *b, const weir_event *e)
{
    uint32_t client, tag, device;
    weir_status status = write_binary_number_of(b, e->client, &client);
    if (status == WEIR_OK)
        status = write_binary_number_of(b, e->tag, &tag);
    if (status == WEIR_OK)
        status = write_binary_number_of(b, e->device, &device);
    if (status != WEIR_OK)
        return status;
    unsigned char item[WI_TRACE_EVENT] = {0};
#define SMALL(name, at, member) wi_put32(item + (at), (uint32_t)e->member);
#define LARGE(name, at, member) wi_put64(item + (at), e->member);
    WI_TRACE_SMALL(SMALL)
    WI_TRACE_LARGE(LARGE)
    wi_put64(item + WI_AT_POINTER, (uint64_t)(uintptr_t)e->pointer);
    wi_put32(item + WI_AT_CLIENT, client);
    wi_put32(item + WI_AT_TAG, tag);
    wi_put32(item + WI_AT_DEVICE, device);
    status = write_binary_add_item(b, item, sizeof item, WI_TRACE_IS_EVENT);
    b->events += status == WEIR_OK;
    return status;
}

static weir_status binary_write(void *user, const weir_event *events, size_t count)
{
    size_t stride = events[0].struct_size;
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < count; i++)
        status = write_binary_add_event(user, (const weir_event *)(const void *)((const char *)events + i * stride));
    return status;
}

static weir_status binary_flush(void *user)
{
    return write_file_empty(((binary *)user)->file);
}

static void binary_lost(void *user, uint64_t count)
{
    ((binary *)user)->lost = count;
}

static weir_status binary_close(void *user)
{
    binary *b = user;
    unsigned char end[WI_TRACE_END] = {0};
    wi_put64(end + WI_TRACE_ITEM, b->lost);
    wi_put64(end + WI_TRACE_ITEM + 8, b->events);
    weir_status status = write_binary_add_item(b, end, sizeof end, WI_TRACE_IS_END);
    weir_status closed = write_file_close(b->file);
    for (size_t i = 0; i < b->room; i++)
        free(b->texts[i].bytes);
    free(b->texts);
    free(b);
    return status != WEIR_OK ? status : closed;
}

static weir_status write_binary_open(const char *path, weir_sink *out)
{
    binary *b = calloc(1, sizeof *b);
    if (!b)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a sink");
    weir_status status = write_file_open(path, &b->file);
    if (status != WEIR_OK) {
        free(b);
        return status;
    }
    unsigned char header[WI_TRACE_HEADER];
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the magic is no text */
    memcpy(header, WI_TRACE_MAGIC, 8);
    wi_put32(header + 8, WI_TRACE_VERSION);
    wi_put32(header + 12, WI_TRACE_EVENT);
    (void)write_file_add(b->file, header, sizeof header);
    weir_sink sink = {
        .user = b, .write = binary_write, .flush = binary_flush, .close = binary_close, .lost = binary_lost};
    wi_copy_out(out, out->struct_size, &sink, sizeof sink);
    return WEIR_OK;
}

/* Either ----------------------------------------------------------------------------------------------------------- */

weir_status weir_sink_file(const char *path, weir_sink_format format, weir_sink *out)
{
    WI_ENTER();
    if (!path || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_sink_file: NULL, or member struct_size is not set");
    switch (format) {
    case WEIR_SINK_BINARY:
        return write_binary_open(path, out);
    case WEIR_SINK_CSV:
        return write_csv_open(path, out);
    default:
        return weir_fail(WEIR_ERR_INVALID, "weir_sink_file: %d is no format; see weir_sink_format", (int)format);
    }
}
