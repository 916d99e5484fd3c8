#include "core/windows.h"

static _Thread_local actor *mine;
static const wi_driver *real;
static struct under_way {
    void *record;
    int calls;
} under_way[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
atomic_int windows_most_records, windows_destroyed_in_call;
atomic_bool windows_fail_orders, windows_fail_fills;

/* Standing --------------------------------------------------------------------------------------------------------- */

static void stand(place at, wi_window_point window, const void *on, bool past_call)
{
    actor *a = mine;
    if (!a || atomic_load(&a->stood) || a->at != at || (at == AT_WINDOW && a->window != window) ||
        (a->on && a->on != on) || a->past_call != past_call)
        return;
    atomic_store(&a->stood, true);
    sem_post(&a->reached);
    sem_wait(&a->go);
}

static void at_window(wi_window_point window)
{
    stand(AT_WINDOW, window, NULL, false);
}

static void *run(void *user)
{
    actor *a = mine = user;
    a->act(a);
    atomic_store(&a->over, true);
    sem_post(&a->reached);
    return NULL;
}

static void start(actor *a)
{
    sem_init(&a->reached, 0, 0);
    sem_init(&a->go, 0, 0);
    atomic_store(&a->stood, false);
    atomic_store(&a->over, false);
    assert_int_equal(pthread_create(&a->thread, NULL, run, a), 0);
}

bool begin(actor *a)
{
    start(a);
    sem_wait(&a->reached);
    return atomic_load(&a->stood);
}

void begin_beside(actor *a)
{
    start(a);
    for (int i = 0; i < 300 && !atomic_load(&a->over) && !atomic_load(&a->stood); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

void let_go_on(actor *a)
{
    sem_post(&a->go);
}

void finish(actor *a)
{
    pthread_join(a->thread, NULL);
    sem_destroy(&a->reached);
    sem_destroy(&a->go);
}

/* The driver ------------------------------------------------------------------------------------------------------- */

static void count(void *record, int by, bool records)
{
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < 64 && under_way[i].record != record && under_way[i].record)
        i++;
    if (i < 64) {
        under_way[i].calls += by;
        under_way[i].record = record;
        if (records && under_way[i].calls > atomic_load(&windows_most_records))
            atomic_store(&windows_most_records, under_way[i].calls);
    }
    pthread_mutex_unlock(&lock);
}

static weir_status w_record(wi_device *device, void *stream, wi_event *out)
{
    if (!stream)
        return real->record(device, stream, out);
    count(stream, 1, true);
    stand(IN_RECORD, WI_WINDOWS, stream, false);
    weir_status status = real->record(device, stream, out);
    stand(IN_RECORD, WI_WINDOWS, stream, true);
    count(stream, -1, true);
    return status;
}

/* As it was when it was asked. */
static bool w_capturing(wi_device *device, void *stream)
{
    bool captured = real->stream_capturing(device, stream);
    stand(IN_CAPTURING, WI_WINDOWS, stream, true);
    return captured;
}

static weir_status w_order(wi_device *device, void *stream, wi_event event)
{
    stand(IN_ORDER, WI_WINDOWS, stream, false);
    if (atomic_load(&windows_fail_orders))
        return weir_fail(WEIR_ERR_DRIVER, "windows: no stream is ordered behind another");
    return real->order(device, stream, event);
}

static weir_status w_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    if (!stream)
        return real->fill(device, to, value, bytes, stream);
    count(stream, 1, false);
    stand(IN_FILL, WI_WINDOWS, stream, false);
    weir_status status = atomic_load(&windows_fail_fills) ? weir_fail(WEIR_ERR_DRIVER, "windows: nothing is filled")
                                                          : real->fill(device, to, value, bytes, stream);
    count(stream, -1, false);
    return status;
}

static void w_destroy(wi_device *device, void *stream)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < 64; i++)
        if (under_way[i].record == stream && under_way[i].calls > 0)
            atomic_fetch_add(&windows_destroyed_in_call, 1);
    pthread_mutex_unlock(&lock);
    real->stream_destroy(device, stream);
}

static void w_abandon(wi_device *device, void *stream)
{
    stand(IN_ABANDON, WI_WINDOWS, stream, false);
    real->stream_abandon(device, stream);
}

weir_runtime *windows_runtime(const char *cache)
{
    static wi_driver driver;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    real = lender();
    driver = *real;
    driver.record = w_record;
    driver.stream_capturing = w_capturing;
    driver.order = w_order;
    driver.fill = w_fill;
    driver.stream_destroy = w_destroy;
    driver.stream_abandon = w_abandon;
    memset(under_way, 0, sizeof under_way);
    atomic_store(&windows_most_records, 0);
    atomic_store(&windows_destroyed_in_call, 0);
    atomic_store(&lender_misused, 0);
#ifdef WEIR_INVARIANTS
    wi_window_hook = at_window;
#else
    (void)at_window;
#endif
    ok(weir_option_set("thread_cache", cache));
    ok(wi_runtime_create_over(&driver, 0, &options, &runtime));
    ok(weir_option_set("thread_cache", NULL));
    return runtime;
}

fixture *windows_fixture(const char *cache)
{
    fixture *f = calloc(1, sizeof *f);
    f->gate = (gate)GATE;
    f->runtime = windows_runtime(cache);
    f->client = open_client(f->runtime, "one", 0, 0);
    return f;
}

int windows_tear_down(void **state)
{
    fixture *f = *state;
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    assert_int_equal(atomic_load(&lender_misused), 0);
    assert_int_equal(atomic_load(&windows_destroyed_in_call), 0);
    free(f);
    return 0;
}

void *record_of_stream(fixture *f, weir_stream stream)
{
    return wi_streams_entry(&f->runtime->streams, stream)->stream;
}

/* Acts ------------------------------------------------------------------------------------------------------------- */

void act_free(actor *a)
{
    a->status = weir_free(a->f->client, a->pointer, a->stream);
}

void act_allocate(actor *a)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = a->bytes,
                            .stream = a->stream,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = a->flags};
    weir_block block = {NULL, 0};
    a->status = weir_alloc_with(a->f->client, &request, &block);
    a->pointer = block.pointer;
}

void act_register(actor *a)
{
    a->status = weir_stream_register(a->f->runtime, a->native, &a->stream);
}

void act_unregister(actor *a)
{
    a->status = weir_stream_unregister(a->stream);
}

void act_close(actor *a)
{
    a->status = weir_client_destroy(a->client);
}

void act_snapshot(actor *a)
{
    weir_stats stats = {.struct_size = sizeof stats};
    a->status = weir_snapshot(a->f->runtime, &stats, NULL, 0, NULL);
}
