/* Reading files into device memory: several threads read pieces of the file into buffers, from which they go on to their places: on a
 * device out of page-locked buffers, in order of one stream of the call's own, and on the host by the thread that has read them.
 *
 * What is not in the page cache is read past it, in whole blocks (O_DIRECT), which takes a tenth of the processor time, and is as
 * fast as the disk. The file is open twice: `direct` for that. Where the file system refuses, all is read through the cache. On the
 * host, too, such reads go through buffers: a few buffers in huge pages stay in the processor's caches, and one request to a disk takes
 * more bytes of huge pages. Reads straight into a model's weights reached 0.65 to 0.75 of the same disk. */
#include "base/system.h"
#include "memory/away.h"
#include "runtime/runtime.h"

#include <weir/residency.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* More or longer reads at a time make no disk faster: where eight readers of 1 MiB have its whole rate, sixteen have 0.8 to 0.95 of it,
 * and pieces of 8 MiB 0.75. A block is a multiple of those of the disks that there are. */
enum { PIECE = WI_MIB, READERS = 8, BUFFERS = 2, BLOCK = 4096 };

typedef struct reading {
    weir_client *client;
    const char *path;
    int file;
    int direct;           /* the same file; -1: it cannot be read past the page cache */
    atomic_bool refused;  /* it could be opened so, but not read */
    uint64_t probe;       /* a number that differs from call to call */
    char *to;             /* for the byte at `offset` */
    uint64_t offset, end; /* in the file */
    void *stream;         /* the driver's; NULL: the threads write to `to` */
    char *own;            /* buffers on the host; NULL: none */
    /* Where in the file the next piece begins: at a multiple of BLOCK, also before `offset` */
    atomic_uint_fast64_t next;
    pthread_mutex_t lock;
    weir_status status; /* the first failure, and its words */
    char detail[512];
    bool rests; /* no queued work is under way any more */
} reading;

/* A reader. Two buffers let a piece be read while the piece before is being copied. On the host a reader without a buffer
 * (NULL) reads through the cache. */
typedef struct reader {
    reading *of;
    pthread_t thread;
    char *buffer[BUFFERS];
    wi_event sent[BUFFERS];
} reader;

static void reading_failed(reading *r, weir_status status)
{
    pthread_mutex_lock(&r->lock);
    if (r->status == WEIR_OK) {
        r->status = status;
        snprintf(r->detail, sizeof r->detail, "%s", weir_detail());
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->next, r->end);
}

/* Whether a byte of the range is in the page cache; the rest is then taken for cached, too. The question may bring the byte into the
 * cache, so that each call asks for a byte elsewhere. */
static bool reading_is_cached(const reading *r, uint64_t at, size_t bytes)
{
    char byte;
    struct iovec one = {&byte, 1};
    uint64_t mixed = (at + r->probe) * UINT64_C(0x9e3779b97f4a7c15);
    return preadv2(r->file, &one, 1, (off_t)(at + (mixed >> 32) % bytes), RWF_NOWAIT) == 1;
}

/* Reads past the page cache into a buffer, and answers how many of the bytes are there. The caller reads the rest through the cache,
 * which also tells what is wrong. */
static size_t reading_get_direct(reading *r, char *buffer, uint64_t at, size_t bytes)
{
    size_t blocks = (bytes + BLOCK - 1) / BLOCK * BLOCK, done = 0;
    if (r->direct < 0 || atomic_load(&r->refused) || reading_is_cached(r, at, bytes))
        return 0;
    while (done < blocks && done % BLOCK == 0) { /* else the file has ended */
        ssize_t got = pread(r->direct, buffer + done, blocks - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            atomic_store(&r->refused, true);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return wi_min(done, bytes);
}

static weir_status reading_get_cached(const reading *r, char *to, uint64_t at, size_t bytes)
{
    for (ssize_t done; bytes > 0; to += done, at += (uint64_t)done, bytes -= (size_t)done) {
        do
            done = pread(r->file, to, bytes, (off_t)at);
        while (done < 0 && errno == EINTR);
        if (done <= 0)
            return weir_fail(WEIR_ERR_SYSTEM, "%s cannot be read at byte %llu: %s", r->path, (unsigned long long)at,
                             done < 0 ? strerror(errno) : "it was cut meanwhile");
    }
    return WEIR_OK;
}

/* The piece to its place on the host: by way of the buffer what is read past the cache. */
static weir_status reading_place(reading *r, char *buffer, uint64_t at, uint64_t end)
{
    uint64_t from = wi_max(at, r->offset), direct = buffer ? at + reading_get_direct(r, buffer, at, end - at) : at;
    if (direct > from) {
        memcpy(r->to + (from - r->offset), buffer + (from - at), direct - from);
        from = direct;
    }
    return reading_get_cached(r, r->to + (from - r->offset), from, end - from);
}

/* The piece through a buffer of the reader's. */
static weir_status reading_pass(reader *self, unsigned which, uint64_t at)
{
    reading *r = self->of;
    const weir_runtime *runtime = r->client->runtime;
    uint64_t from = wi_max(at, r->offset), end = wi_min(at + PIECE, r->end);
    char *buffer = self->buffer[which];
    if (!r->stream)
        return reading_place(r, buffer, at, end);
    weir_status status = runtime->driver->wait(runtime->device, self->sent[which], UINT64_MAX);
    if (status == WEIR_OK) {
        size_t direct = reading_get_direct(r, buffer, at, end - at);
        status = reading_get_cached(r, buffer + direct, at + direct, end - at - direct);
    }
    if (status == WEIR_OK)
        status = runtime->driver->copy(runtime->device, r->to + (from - r->offset), buffer + (from - at), end - from,
                                       r->stream);
    return status == WEIR_OK ? runtime->driver->record(runtime->device, r->stream, &self->sent[which]) : status;
}

static void *reading_work(void *user)
{
    reader *self = user;
    reading *r = self->of;
    for (unsigned which = 0;; which = (which + 1) % BUFFERS) {
        uint64_t at = atomic_fetch_add(&r->next, PIECE);
        if (at >= r->end)
            return NULL;
        weir_status status = reading_pass(self, which, at);
        if (status != WEIR_OK)
            reading_failed(r, status);
    }
}

/* Who reads past the page cache waits for the disk, and needs no processor of its own. */
static unsigned reading_count(const reading *r)
{
    cpu_set_t set;
    uint64_t processors = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    uint64_t pieces = (r->end - atomic_load(&r->next) + PIECE - 1) / PIECE;
    return (unsigned)wi_min(wi_min(pieces, READERS), r->direct >= 0 ? READERS : wi_max(processors, 2));
}

/* With memory for all readers, or without any: the first one works on this thread. */
static void reading_run(reader *readers, unsigned count)
{
    bool runs[READERS] = {false};
    for (unsigned i = 1; i < count; i++)
        runs[i] = pthread_create(&readers[i].thread, NULL, reading_work, &readers[i]) == 0;
    (void)reading_work(&readers[0]);
    for (unsigned i = 1; i < count; i++)
        if (runs[i])
            pthread_join(readers[i].thread, NULL);
}

/* What is read comes behind the work on `native`. */
static weir_status reading_order(const reading *r, void *native)
{
    const weir_runtime *runtime = r->client->runtime;
    wi_event event;
    if (!native)
        return WEIR_OK;
    weir_status status = runtime->driver->record(runtime->device, native, &event);
    if (status != WEIR_OK)
        return status;
    return r->stream ? runtime->driver->order(runtime->device, r->stream, event)
                     : runtime->driver->wait(runtime->device, event, UINT64_MAX);
}

/* After a failure copies may be under way. Where the driver does not say that the copies are done, their stream and the
 * buffers that they read are kept. */
static void reading_end(reading *r, weir_block block, bool failed)
{
    const weir_runtime *runtime = r->client->runtime;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    r->rests = !r->stream || !failed || wi_stream_rests(runtime, r->stream);
    if (!r->rests)
        weir_log(WEIR_LOG_WARNING,
                 "%s does not say whether copies of %s are done: the host's memory that they read stays live, of %s",
                 runtime->name, r->path, r->client->account.name);
    if (r->stream && r->rests)
        runtime->driver->stream_destroy(runtime->device, r->stream);
    if (block.pointer && r->rests)
        (void)!weir_free_block(r->client, block, WEIR_STREAM_HOST);
    wi_detail_restore(&saved);
}

/* On a device the buffers are the client's, and page-locked; on the host they are the call's own. Where the host has none, all is read
 * through the cache. */
static weir_status reading_take_buffers(reading *r, size_t bytes, weir_block *block)
{
    const weir_runtime *runtime = r->client->runtime;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .alignment = BLOCK,
                            .kind = WEIR_KIND_PINNED,
                            .tag = "pieces of a file"};
    if (wi_kind_is_own(runtime, WEIR_KIND_PINNED)) {
        void *at =
            r->direct < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        r->own = at == MAP_FAILED ? NULL : at;
        if (r->own)
            (void)madvise(r->own, bytes, MADV_HUGEPAGE);
        return WEIR_OK;
    }
    weir_status status = weir_alloc_with(r->client, &request, block);
    return status == WEIR_OK ? runtime->driver->stream_create(runtime->device, &r->stream) : status;
}

static weir_status reading_through(reading *r, void *native)
{
    const weir_runtime *runtime = r->client->runtime;
    unsigned count = reading_count(r), each = wi_kind_is_own(runtime, WEIR_KIND_PINNED) ? 1 : BUFFERS;
    size_t bytes = (size_t)count * each * PIECE;
    reader readers[READERS] = {{.of = r}};
    weir_block block = {0};
    weir_status status = reading_take_buffers(r, bytes, &block);
    char *buffers = block.pointer ? block.pointer : r->own;
    for (unsigned i = 0; i < count; i++) {
        readers[i] = (reader){.of = r};
        for (unsigned k = 0; k < BUFFERS; k++)
            readers[i].buffer[k] = buffers ? buffers + (size_t)(i * each + k % each) * PIECE : NULL;
    }
    if (status == WEIR_OK)
        status = reading_order(r, native);
    if (status == WEIR_OK) {
        reading_run(readers, count);
        if (r->stream)
            status = runtime->driver->stream_synchronize(runtime->device, r->stream);
        if (r->status != WEIR_OK)
            status = weir_fail(r->status, "%s", r->detail);
    }
    reading_end(r, block, status != WEIR_OK);
    if (r->own)
        munmap(r->own, bytes);
    return status;
}

/* Opens the file for reads past the page cache. What is read ahead of the others would be read twice. */
static void reading_open_direct(reading *r)
{
    struct timespec now = {0};
    struct stat one, other;
    r->direct = open(r->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (r->direct < 0)
        return;
    if (fstat(r->file, &one) != 0 || fstat(r->direct, &other) != 0 || one.st_dev != other.st_dev ||
        one.st_ino != other.st_ino) { /* the path names a new file by now */
        close(r->direct);
        r->direct = -1;
        return;
    }
    (void)posix_fadvise(r->file, 0, 0, POSIX_FADV_RANDOM);
    clock_gettime(CLOCK_MONOTONIC, &now);
    r->probe = (uint64_t)now.tv_nsec;
}

static weir_status reading_open(reading *r, size_t bytes)
{
    struct stat s;
    r->file = open(r->path, O_RDONLY | O_CLOEXEC);
    if (r->file < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "%s cannot be read: %s", r->path,
                         strerror(errno));
    if (fstat(r->file, &s) == 0 && S_ISREG(s.st_mode) && r->offset <= (uint64_t)s.st_size &&
        bytes <= (uint64_t)s.st_size - r->offset) {
        r->end = r->offset + bytes;
        reading_open_direct(r);
        return WEIR_OK;
    }
    weir_status status = weir_fail(WEIR_ERR_INVALID, "%s is no file with %llu bytes from byte %llu on", r->path,
                                   (unsigned long long)bytes, (unsigned long long)r->offset);
    close(r->file);
    return status;
}

static weir_status runtime_read_file(weir_client *client, void *to, const char *path, uint64_t offset, size_t bytes,
                                     weir_stream stream, bool *rests)
{
    void *native;
    *rests = true;
    weir_status status = wi_client_check(client, "weir_read_file");
    if (status == WEIR_OK && (!to || !path))
        status = weir_fail(WEIR_ERR_INVALID, "weir_read_file: no place, or no path");
    if (status == WEIR_OK)
        status = wi_streams_resolve_recorded(client->runtime, stream, "weir_read_file", &native);
    if (status == WEIR_OK)
        status = wi_away_open_for_write(client->runtime->resource->base, to, bytes);
    reading r = {.client = client, .path = path, .to = to, .offset = offset, .next = offset / BLOCK * BLOCK};
    if (status == WEIR_OK)
        status = reading_open(&r, bytes);
    if (status != WEIR_OK)
        return status;
    if (bytes > 0) {
        pthread_mutex_init(&r.lock, NULL);
        status = reading_through(&r, native);
        pthread_mutex_destroy(&r.lock);
        *rests = r.rests;
    }
    if (r.direct >= 0)
        close(r.direct);
    close(r.file);
    return status;
}

weir_status weir_read_file(weir_client *client, void *to, const char *path, uint64_t offset, size_t bytes,
                           weir_stream stream)
{
    bool ignored;
    return runtime_read_file(client, to, path, offset, bytes, stream, &ignored);
}

weir_status weir_alloc_from_file(weir_client *client, const weir_request *request, const char *path, uint64_t offset,
                                 weir_block *out)
{
    weir_status status = weir_alloc_with(client, request, out);
    if (status != WEIR_OK)
        return status;
    bool rests;
    status = runtime_read_file(client, out->pointer, path, offset, request->bytes, request->stream, &rests);
    if (status == WEIR_OK || !out->pointer)
        return status;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (rests)
        (void)!weir_free_block(client, *out, request->stream);
    else
        weir_log(WEIR_LOG_WARNING, "the block for %s stays live, too", path);
    wi_detail_restore(&saved);
    *out = (weir_block){NULL, 0};
    return status;
}
