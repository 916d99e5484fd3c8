#include "lender.h"

#define host (&wi_host_driver)

enum { MOST = 65536 };

/* The streams that there are, or were: each of the host's stands for one. One that ended is kept while its work goes on. */
static struct line {
    wi_device *device; /* NULL: there is no such line */
    void *stream;
    const void *native; /* NULL: it stands for none */
    uint64_t identity;
} lines[MOST];
static size_t lines_used;

/* The driver's records of them. As a real driver's, a record has an address and nothing else of its stream, so that what is put
 * on a record whose stream has ended goes to the stream that has the address now. None serves again: a use of one that was
 * forgotten is seen. */
typedef struct record {
    wi_device *device; /* NULL: it was forgotten */
    const void *native;
    void *own; /* of a default stream: the host's */
} record;
static record records[MOST];
static size_t records_used;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char legacy, per_thread;
atomic_int lender_records, lender_misused;

static record *record_of(void *stream)
{
    record *r = stream;
    return r >= records && r < records + MOST ? r : NULL;
}

static bool idle(wi_device *device, void *stream)
{
    wi_event event;
    return host->record(device, stream, &event) == WEIR_OK && host->passed(device, event);
}

static bool is_over(const struct line *line)
{
    return !line->native || (line->native != &legacy && line->native != &per_thread &&
                             ((const lent *)line->native)->identity != line->identity);
}

/* With the lock held: one that may stand for another stream. */
static bool is_usable(const struct line *line, wi_device *device)
{
    return !line->device || (line->device == device && is_over(line) && idle(device, line->stream));
}

/* With the lock held. A line that stood for a stream which is over and has nothing to do, or a new one. */
static void *take_line(wi_device *device, const void *native, uint64_t identity)
{
    size_t i = 0;
    while (i < lines_used && !is_usable(&lines[i], device))
        i++;
    if (i == MOST || (!lines[i].device && host->stream_create(device, &lines[i].stream) != WEIR_OK))
        return NULL;
    lines_used += i == lines_used;
    lines[i].device = device;
    lines[i].native = native;
    lines[i].identity = identity;
    return lines[i].stream;
}

/* With the lock held: that of the stream which has the address now. */
static void *line_at(wi_device *device, const lent *l)
{
    for (size_t i = 0; i < lines_used; i++)
        if (lines[i].device == device && lines[i].native == l && lines[i].identity == l->identity)
            return lines[i].stream;
    return take_line(device, l, l->identity);
}

/* The host's stream behind what weir calls one. */
static void *behind(wi_device *device, void *stream)
{
    record *r = record_of(stream);
    if (!r)
        return stream;
    pthread_mutex_lock(&lock);
    if (!r->device)
        atomic_fetch_add(&lender_misused, 1);
    void *found = r->own ? r->own : r->native ? line_at(device, r->native) : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static weir_status note(wi_device *device, const void *native, void *own, void **stream)
{
    pthread_mutex_lock(&lock);
    record *r = records_used < MOST ? &records[records_used++] : NULL;
    if (r)
        *r = (record){device, native, own};
    pthread_mutex_unlock(&lock);
    if (!r)
        return weir_fail(WEIR_ERR_SYSTEM, "lender: too many records");
    atomic_fetch_add(&lender_records, 1);
    *stream = r;
    return WEIR_OK;
}

static weir_status l_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    const lent *l = native;
    if (identity)
        *identity = l->identity;
    return l->elsewhere ? weir_fail(WEIR_ERR_STREAM_MISUSE, "lender: of another context")
                        : note(device, native, NULL, stream);
}

static weir_status l_default(wi_device *device, weir_default_stream which, void **stream)
{
    const void *native = which == WEIR_DEFAULT_STREAM_LEGACY ? &legacy : &per_thread;
    pthread_mutex_lock(&lock);
    void *own = take_line(device, native, 0);
    pthread_mutex_unlock(&lock);
    return own ? note(device, native, own, stream) : weir_fail(WEIR_ERR_SYSTEM, "lender: too many streams");
}

static void l_stream_destroy(wi_device *device, void *stream)
{
    record *r = record_of(stream);
    if (!r) {
        host->stream_destroy(device, stream);
        return;
    }
    if (r->native == &per_thread)
        (void)host->stream_synchronize(device, r->own); /* as driver.h says of those */
    pthread_mutex_lock(&lock);
    if (!r->device)
        atomic_fetch_add(&lender_misused, 1);
    r->device = NULL;
    for (size_t i = 0; r->own && i < lines_used; i++)
        if (lines[i].stream == r->own)
            lines[i].native = NULL;
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub(&lender_records, 1);
}

/* Records forget their streams, whose work goes on. */
static void l_stream_abandon(wi_device *device, void *stream)
{
    record *r = record_of(stream);
    pthread_mutex_lock(&lock);
    if (!r || !r->device)
        atomic_fetch_add(&lender_misused, 1);
    else
        r->device = NULL;
    pthread_mutex_unlock(&lock);
    (void)device;
    atomic_fetch_sub(&lender_records, 1);
}

/* What the stream's address is asked for. */
static const void *native_of(void *stream)
{
    const record *r = record_of(stream);
    pthread_mutex_lock(&lock);
    if (r && !r->device)
        atomic_fetch_add(&lender_misused, 1);
    const void *native = r ? r->native : NULL;
    pthread_mutex_unlock(&lock);
    return native;
}

/* Whether it was forgotten, which these calls find out by themselves. */
static bool has_ended(void *stream)
{
    const record *r = record_of(stream);
    pthread_mutex_lock(&lock);
    bool ended = r && !r->device;
    pthread_mutex_unlock(&lock);
    return ended;
}

static bool l_capturing(wi_device *device, void *stream)
{
    const void *native = has_ended(stream) ? NULL : native_of(stream);
    (void)device;
    return native && native != &legacy && native != &per_thread && atomic_load(&((const lent *)native)->captured);
}

static weir_status refused(wi_device *device, void *stream, const char *what)
{
    return stream && l_capturing(device, stream)
               ? weir_fail(WEIR_ERR_STREAM_MISUSE, "lender: %s on a stream that is being captured into a graph", what)
               : WEIR_OK;
}

/* As drivers do: an event on a captured stream would tell of nothing that happens now. */
static weir_status l_record(wi_device *device, void *stream, wi_event *out)
{
    if (has_ended(stream))
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "lender: an event on a stream that has ended");
    weir_status status = refused(device, stream, "an event");
    return status == WEIR_OK ? host->record(device, behind(device, stream), out) : status;
}

static void *behind_all; /* of the device: */
static wi_device *of;

/* On a stream of its own, behind those of all lines. */
static weir_status l_record_all(wi_device *device, wi_event *out)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < records_used && status == WEIR_OK; i++) {
        const void *native = records[i].device == device ? records[i].native : NULL;
        if (native && native != &legacy && native != &per_thread && atomic_load(&((const lent *)native)->captured))
            status = weir_fail(WEIR_ERR_STREAM_MISUSE, "lender: a point behind all while a stream is being captured");
    }
    if (status == WEIR_OK && !of) {
        status = host->stream_create(device, &behind_all);
        of = status == WEIR_OK ? device : NULL;
    }
    for (size_t i = 0; i < lines_used && status == WEIR_OK; i++) {
        wi_event event;
        if (lines[i].device != device)
            continue;
        status = host->record(device, lines[i].stream, &event);
        if (status == WEIR_OK)
            status = host->order(device, behind_all, event);
    }
    if (status == WEIR_OK)
        status = host->record(device, behind_all, out);
    pthread_mutex_unlock(&lock);
    return status;
}

static weir_status l_order(wi_device *device, void *stream, wi_event event)
{
    return host->order(device, behind(device, stream), event);
}

static weir_status l_synchronize(wi_device *device, void *stream)
{
    weir_status status = refused(device, stream, "waiting for its work");
    return status == WEIR_OK ? host->stream_synchronize(device, behind(device, stream)) : status;
}

static weir_status l_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    return host->copy(device, to, from, bytes, behind(device, stream));
}

static weir_status l_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    return host->fill(device, to, value, bytes, behind(device, stream));
}

static weir_status l_call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    return host->call(device, fn, user, behind(device, stream));
}

static weir_status l_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    return host->pool_allocate(device, bytes, behind(device, stream), address);
}

static weir_status l_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    return host->pool_release(device, address, bytes, behind(device, stream));
}

static void *l_native(void *stream)
{
    const void *native = native_of(stream);
    return native ? (void *)native : stream;
}

static void l_close(wi_device *device)
{
    for (size_t i = 0; i < lines_used; i++)
        if (lines[i].device == device) {
            host->stream_destroy(device, lines[i].stream);
            lines[i].device = NULL;
        }
    if (of == device)
        host->stream_destroy(device, behind_all);
    of = NULL;
    host->close(device);
}

const wi_driver *lender(void)
{
    static wi_driver driver;
    driver = *host;
    driver.name = "lender";
    driver.close = l_close;
    driver.stream_adopt = l_adopt;
    driver.stream_default = l_default;
    driver.stream_destroy = l_stream_destroy;
    driver.stream_synchronize = l_synchronize;
    driver.stream_native = l_native;
    driver.stream_capturing = l_capturing;
    driver.stream_abandon = l_stream_abandon;
    driver.record = l_record;
    driver.record_all = l_record_all;
    driver.order = l_order;
    driver.copy = l_copy;
    driver.fill = l_fill;
    driver.call = l_call;
    driver.pool_allocate = l_pool_allocate;
    driver.pool_release = l_pool_release;
    return &driver;
}
