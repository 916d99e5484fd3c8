/* Drivers of the program's own. A registered driver stays registered. Optional functions that a table lacks are filled
 * in with functions that refuse or answer no, so that the core treats weir's own drivers and these drivers alike. */
#include "driver/driver.h"

/* What it leaves out ----------------------------------------------------------------------------------------------- */

enum { GRANULE = 64 * 1024 }; /* a nominal value: mappings are refused */

static weir_status has_no(const char *what)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the driver of this device has no %s", what);
}

static weir_status no_call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    (void)device, (void)fn, (void)user, (void)stream;
    return has_no("host functions on streams");
}

/* Mappings: reserve refuses, and then nothing else is called. */

static uint64_t no_granule(wi_device *device)
{
    (void)device;
    return GRANULE;
}

static weir_status no_reserve(wi_device *device, uint64_t bytes, void **address)
{
    (void)device, (void)bytes, (void)address;
    return has_no("virtual memory");
}

/* Pools: pool_held refuses where a resource would be made. */

static weir_status no_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    (void)device, (void)bytes, (void)stream, (void)address;
    return has_no("pools");
}

static weir_status no_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    (void)device, (void)address, (void)bytes, (void)stream;
    return has_no("pools");
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
static weir_status no_pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    (void)device, (void)keep, (void)held;
    return has_no("pools");
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
static weir_status no_pool_held(wi_device *device, uint64_t *held)
{
    (void)device, (void)held;
    return has_no("pools");
}

/* Streams, contexts and captures. */

/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
static weir_status no_stream_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    (void)device, (void)native, (void)stream, (void)identity;
    return has_no("streams but weir's own: take one with weir_stream_acquire");
}

static weir_status no_stream_default(wi_device *device, weir_default_stream which, void **stream)
{
    (void)device, (void)which, (void)stream;
    return has_no("default stream: take one with weir_stream_acquire");
}

static void *no_stream_native(void *stream)
{
    (void)stream;
    return NULL;
}

static void *no_context(wi_device *device)
{
    (void)device;
    return NULL;
}

static bool no_has_host_handles(wi_device *device)
{
    (void)device;
    return false;
}

static bool no_stream_capturing(wi_device *device, void *stream)
{
    (void)device, (void)stream;
    return false;
}

#define COMPLETE(driver, member)                                                                                       \
    do {                                                                                                               \
        if (!(driver)->member)                                                                                         \
            (driver)->member = no_##member;                                                                            \
    } while (0)

static void driver_complete(wi_driver *driver)
{
    COMPLETE(driver, call);
    COMPLETE(driver, granule);
    COMPLETE(driver, reserve);
    COMPLETE(driver, pool_allocate);
    COMPLETE(driver, pool_release);
    COMPLETE(driver, pool_trim);
    COMPLETE(driver, pool_held);
    COMPLETE(driver, stream_adopt);
    COMPLETE(driver, stream_default);
    COMPLETE(driver, stream_native);
    COMPLETE(driver, context);
    COMPLETE(driver, stream_capturing);
    COMPLETE(driver, has_host_handles);
}

/* Registering ------------------------------------------------------------------------------------------------------ */

/* Whether all or none of the functions are there. */
static bool driver_group(const bool *there, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (there[i] != there[0])
            return false;
    return true;
}

enum { OWN_DRIVER_NAME = 12 }; /* with an ordinal behind it, it is the name of a runtime */

typedef struct own_driver {
    wi_driver table;
    char name[OWN_DRIVER_NAME];
} own_driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for who registers one */
static own_driver own[WI_OWN_DRIVERS];
static size_t own_count;

#define GROUP(count, ...) driver_group((const bool[]){__VA_ARGS__}, count)

static weir_status driver_check_functions(const wi_driver *t)
{
    if (!t->open || !t->close || !t->memory || !t->allocate || !t->release || !t->stream_create || !t->stream_destroy ||
        !t->stream_synchronize || !t->record || !t->passed || !t->wait || !t->order || !t->copy || !t->fill)
        return weir_fail(WEIR_ERR_INVALID, "weir_driver_register: the driver %s lacks one of the functions up to fill",
                         t->name);
    if (!GROUP(7, t->granule, t->reserve, t->unreserve, t->create, t->destroy, t->map, t->unmap) ||
        !GROUP(4, t->pool_allocate, t->pool_release, t->pool_trim, t->pool_held) ||
        !GROUP(2, t->stream_adopt, t->stream_abandon) || !GROUP(2, t->enter, t->leave) ||
        !GROUP(2, t->cover, t->uncover) || (t->cover && !t->reserve) ||
        !GROUP(2, t->has_host_handles, t->create_on_host) || (t->create_on_host && !t->reserve) ||
        (t->drop && !t->reserve) || (t->protect && !t->reserve) || (t->written && !t->cover))
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_driver_register: the driver %s has a part of the functions for mappings, for pools, for "
                         "adopted streams, of enter and leave, of cover and uncover or for handles of the host's "
                         "memory, or `drop`, "
                         "`protect` or `written` without what it goes with; all of a group or none",
                         t->name);
    return WEIR_OK;
}

static weir_status driver_check(const wi_driver *t)
{
    size_t length = t->name ? strspn(t->name, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
    if (length == 0 || length >= OWN_DRIVER_NAME || t->name[length] != '\0')
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_driver_register: \"%.40s\" is no name: lower-case letters, digits and '-', at most %d",
                         t->name ? t->name : "", OWN_DRIVER_NAME - 1);
    if (t->ordinals < 1 || t->ordinals > WI_ORDINALS)
        return weir_fail(WEIR_ERR_INVALID, "weir_driver_register: %s has %d ordinals; 1 to %d are possible", t->name,
                         t->ordinals, WI_ORDINALS);
    return driver_check_functions(t);
}

/* With the lock held. */
static weir_status driver_enlist(const wi_driver *t)
{
    if (wi_driver_has(t->name))
        return weir_fail(WEIR_ERR_CONFLICT, "weir_driver_register: there is a driver \"%s\" already", t->name);
    if (own_count == WI_OWN_DRIVERS)
        return weir_fail(WEIR_ERR_BUSY, "weir_driver_register: a process has at most %d drivers of its own",
                         WI_OWN_DRIVERS);
    own_driver *new = &own[own_count++];
    new->table = *t;
    memcpy(new->name, t->name, strlen(t->name) + 1);
    new->table.name = new->name;
    wi_driver_add(&new->table);
    return WEIR_OK;
}

WI_FREE_AFTER_FORKS(lock)

weir_status weir_driver_register(const weir_driver_table *table)
{
    WI_ENTER();
    wi_driver t;
    weir_status status = WI_COPY_IN(weir_driver_table, &t, table, "weir_driver_register");
    if (status == WEIR_OK)
        status = driver_check(&t);
    if (status != WEIR_OK)
        return status;
    driver_complete(&t);
    watch_forks();
    pthread_mutex_lock(&lock);
    status = driver_enlist(&t);
    pthread_mutex_unlock(&lock);
    return status;
}
