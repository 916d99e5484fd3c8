#include "lender.h"

#define host (&wi_host_driver)

enum { MOST = 4096 };

/* What each of the host's streams stands for. A forgotten one is kept until the device is closed, as its work goes on. */
static struct {
    void *stream, *native;
} table[MOST];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char legacy, per_thread;
atomic_int lender_records;

static void *native_of(void *stream)
{
    void *native = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < used; i++)
        if (table[i].stream == stream)
            native = table[i].native;
    pthread_mutex_unlock(&lock);
    return native;
}

static bool idle(wi_device *device, void *stream)
{
    wi_event event;
    return host->record(device, stream, &event) == WEIR_OK && host->passed(device, event);
}

/* A record of the host's for `native`: a forgotten one's that has nothing to do, or a new one. */
static weir_status stand_in(wi_device *device, void *native, void **stream)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < used && (table[i].native || !idle(device, table[i].stream)))
        i++;
    if (i == MOST)
        status = weir_fail(WEIR_SYSTEM, "lender: too many streams");
    else if (i == used)
        status = host->stream_create(device, &table[i].stream);
    if (status == WEIR_OK) {
        used += i == used;
        table[i].native = native;
        *stream = table[i].stream;
        atomic_fetch_add(&lender_records, 1);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static weir_status l_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    const lent *l = native;
    *identity = l->identity;
    return l->elsewhere ? weir_fail(WEIR_STREAM_MISUSE, "lender: of another context")
                        : stand_in(device, native, stream);
}

static weir_status l_default(wi_device *device, weir_default_stream which, void **stream)
{
    return stand_in(device, which == WEIR_DEFAULT_LEGACY ? &legacy : &per_thread, stream);
}

static void l_stream_destroy(wi_device *device, void *stream)
{
    bool adopted = false;
    if (native_of(stream) == &per_thread)
        (void)host->stream_synchronize(device, stream); /* as driver.h says of those */
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < used; i++)
        if (table[i].stream == stream) {
            table[i].native = NULL;
            adopted = true;
        }
    pthread_mutex_unlock(&lock);
    if (adopted)
        atomic_fetch_sub(&lender_records, 1);
    else
        host->stream_destroy(device, stream);
}

static bool l_capturing(wi_device *device, void *stream)
{
    const lent *l = native_of(stream);
    (void)device;
    return l && (const void *)l != &legacy && (const void *)l != &per_thread && atomic_load(&l->captured);
}

/* As drivers do: an event on a captured stream would tell of nothing that happens now. */
static weir_status l_record(wi_device *device, void *stream, wi_event *out)
{
    if (stream && l_capturing(device, stream))
        return weir_fail(WEIR_STREAM_MISUSE, "lender: an event on a stream that is being captured into a graph");
    return host->record(device, stream, out);
}

static void *l_native(void *stream)
{
    void *native = native_of(stream);
    return native ? native : stream;
}

static void l_close(wi_device *device)
{
    for (size_t i = 0; i < used; i++)
        host->stream_destroy(device, table[i].stream);
    used = 0;
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
    driver.stream_native = l_native;
    driver.stream_capturing = l_capturing;
    driver.record = l_record;
    return &driver;
}
