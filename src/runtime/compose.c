/* Composition: devices, pools of streams and resources that are made one by one, and a runtime that is made of them. */
#include "runtime/runtime.h"
#include <weir/experimental/compose.h>
#include "base/options.h"
#include "memory/stack.h"

#include <stdio.h>

/* Invariants, while the lock is free: a device's `made` counts its pools and resources; a part is `taken` exactly
 * while a runtime has it or is being made of it; the device of a taken part is taken, too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct part {
    bool taken;
    char by[WI_NAME_BYTES]; /* the runtime's name, once it is there */
} part;

struct weir_device {
    part part;
    const wi_driver *driver;
    int ordinal;
    char name[WI_NAME_BYTES];
    wi_device *device;
    unsigned made;
};

struct weir_stream_pool {
    part part;
    weir_device *device;
    uint32_t capacity;
    void *streams[];
};

struct weir_resource {
    part part;
    weir_device *device;
    wi_resource *top;
    char text[WI_STACK_BYTES];
};

/* Who has the part, for messages. The lock is held. */
static const char *compose_member(const part *p)
{
    return p->by[0] ? p->by : "that is being composed";
}

/* WEIR_ERR_BUSY while a runtime has the part. The caller checks whatever else may depend on it. The lock is held. */
static weir_status compose_check_free(const part *p, const char *what, const weir_device *device)
{
    if (!p->taken)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_BUSY, "the %s of %s is part of the runtime %s; weir_runtime_destroy ends both", what,
                     device->name, compose_member(p));
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

weir_status wi_device_open_over(const wi_driver *driver, int ordinal, weir_device **out)
{
    wi_watch_forks();
    weir_device *device = calloc(1, sizeof *device);
    if (!device)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a device");
    device->driver = driver;
    device->ordinal = ordinal;
    wi_runtime_name(driver, ordinal, device->name);
    weir_status status = driver->open(ordinal, &device->device);
    if (status != WEIR_OK) {
        free(device);
        return status;
    }
    *out = device;
    return WEIR_OK;
}

weir_status weir_device_create(const char *name, weir_device **out)
{
    WI_ENTER();
    const wi_driver *driver;
    int ordinal;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_device_create: no place for the result");
    *out = NULL;
    weir_status status = wi_driver_find(name, &driver, &ordinal);
    return status == WEIR_OK ? wi_device_open_over(driver, ordinal, out) : status;
}

weir_status weir_device_destroy(weir_device *device)
{
    WI_ENTER();
    if (!device)
        return WEIR_OK;
    pthread_mutex_lock(&lock);
    weir_status status = compose_check_free(&device->part, "device", device);
    if (status == WEIR_OK && device->made > 0)
        status = weir_fail(WEIR_ERR_BUSY, "the device %s has %u pools of streams and resources; destroy them first",
                           device->name, device->made);
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    device->driver->close(device->device);
    free(device);
    return WEIR_OK;
}

/* Counts one more part of the device. */
static weir_status compose_enter(weir_device *device, const char *call)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    if (device->part.taken)
        status = weir_fail(WEIR_ERR_CONFLICT, "%s: the device %s is part of the runtime %s, which has its own", call,
                           device->name, compose_member(&device->part));
    else
        device->made++;
    pthread_mutex_unlock(&lock);
    return status;
}

static void compose_leave(weir_device *device)
{
    pthread_mutex_lock(&lock);
    device->made--;
    pthread_mutex_unlock(&lock);
}

/* Pools of streams ------------------------------------------------------------------------------------------------- */

static void compose_end_streams(weir_stream_pool *pool, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        pool->device->driver->stream_destroy(pool->device->device, pool->streams[i]);
}

static weir_status compose_make_streams(weir_device *device, uint32_t capacity, weir_stream_pool **out)
{
    weir_stream_pool *pool = calloc(1, sizeof *pool + capacity * sizeof pool->streams[0]);
    if (!pool)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool of %u streams", capacity);
    pool->device = device;
    pool->capacity = capacity;
    weir_status status = WEIR_OK;
    uint32_t made = 0;
    while (made < capacity && status == WEIR_OK) {
        status = device->driver->stream_create(device->device, &pool->streams[made]);
        made += status == WEIR_OK;
    }
    if (status != WEIR_OK) {
        compose_end_streams(pool, made);
        free(pool);
        return status;
    }
    *out = pool;
    return WEIR_OK;
}

weir_status weir_stream_pool_create(weir_device *device, uint32_t capacity, weir_stream_pool **out)
{
    WI_ENTER();
    if (!device || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_pool_create: NULL");
    *out = NULL;
    if (capacity == 0 || capacity > WI_STREAMS)
        return weir_fail(WEIR_ERR_INVALID, "weir_stream_pool_create: %u streams; a pool has from 1 to %d", capacity,
                         (int)WI_STREAMS);
    weir_status status = compose_enter(device, "weir_stream_pool_create");
    if (status != WEIR_OK)
        return status;
    status = compose_make_streams(device, capacity, out);
    if (status != WEIR_OK)
        compose_leave(device);
    return status;
}

weir_status weir_stream_pool_destroy(weir_stream_pool *streams)
{
    WI_ENTER();
    if (!streams)
        return WEIR_OK;
    pthread_mutex_lock(&lock);
    weir_status status = compose_check_free(&streams->part, "pool of streams", streams->device);
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    compose_end_streams(streams, streams->capacity);
    compose_leave(streams->device);
    free(streams);
    return WEIR_OK;
}

/* Resources -------------------------------------------------------------------------------------------------------- */

static weir_status compose_make_resource(weir_device *device, const char *text, weir_resource **out)
{
    weir_resource *resource = calloc(1, sizeof *resource);
    if (!resource)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    resource->device = device;
    snprintf(resource->text, sizeof resource->text, "%s", text);
    weir_status status = wi_runtime_make_stack(device->driver, device->device, text, &resource->top);
    if (status != WEIR_OK) {
        free(resource);
        return status;
    }
    *out = resource;
    return WEIR_OK;
}

weir_status weir_resource_create(weir_device *device, const char *text, weir_resource **out)
{
    WI_ENTER();
    if (!device || !text || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_resource_create: NULL");
    *out = NULL;
    if (strlen(text) >= WI_STACK_BYTES)
        return weir_fail(WEIR_ERR_INVALID, "a stack of resources of more than %d characters", WI_STACK_BYTES - 1);
    weir_status status = compose_enter(device, "weir_resource_create");
    if (status != WEIR_OK)
        return status;
    status = compose_make_resource(device, text, out);
    if (status != WEIR_OK)
        compose_leave(device);
    return status;
}

weir_status weir_resource_destroy(weir_resource *resource)
{
    WI_ENTER();
    if (!resource)
        return WEIR_OK;
    pthread_mutex_lock(&lock);
    weir_status status = compose_check_free(&resource->part, "resource", resource->device);
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    wi_resource_destroy(resource->top);
    compose_leave(resource->device);
    free(resource);
    return WEIR_OK;
}

/* Composing -------------------------------------------------------------------------------------------------------- */

static weir_status compose_two_devices(const char *what, const weir_device *device, const char *other_what,
                                       const weir_device *other)
{
    bool same = strcmp(device->name, other->name) == 0;
    return weir_fail(WEIR_ERR_CONFLICT,
                     "weir_runtime_compose: the %s is of %s and the %s of %s%s; parts go together that are "
                     "made of one device",
                     what, device->name, other_what, other->name, same ? ", opened another time" : "");
}

static weir_status compose_in_use(const part *p, const char *what, const weir_device *device)
{
    if (!p->taken)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_CONFLICT, "weir_runtime_compose: the %s of %s is part of the runtime %s already", what,
                     device->name, compose_member(p));
}

/* Checks that the parts fit together, and fills in the device. The lock is held. */
static weir_status compose_check_parts(weir_parts *p, const weir_runtime_options *options)
{
    weir_device *of_streams = p->streams ? p->streams->device : NULL;
    weir_device *of_resource = p->resource ? p->resource->device : NULL;
    if (of_streams && of_resource && of_streams != of_resource)
        return compose_two_devices("pool of streams", of_streams, "resource", of_resource);
    weir_device *theirs = of_streams ? of_streams : of_resource;
    if (p->device && theirs && p->device != theirs)
        return compose_two_devices("device", p->device, of_streams ? "pool of streams" : "resource", theirs);
    p->device = p->device ? p->device : theirs;
    if (!p->device)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_compose: no part tells which device it is to be of");
    weir_status status = compose_in_use(&p->device->part, "device", p->device);
    if (p->streams && status == WEIR_OK)
        status = compose_in_use(&p->streams->part, "pool of streams", p->device);
    if (p->resource && status == WEIR_OK)
        status = compose_in_use(&p->resource->part, "resource", p->device);
    if (status == WEIR_OK && p->resource && options->resource && strcmp(options->resource, p->resource->text) != 0)
        status = weir_fail(WEIR_ERR_CONFLICT,
                           "weir_runtime_compose: the options ask for the resource %.80s, and the part is %s",
                           options->resource, p->resource->text);
    return status;
}

/* Marks the parts as taken or free. The lock is held. */
static void compose_mark(const weir_parts *p, bool taken, const char *by)
{
    part *parts[] = {&p->device->part, p->streams ? &p->streams->part : NULL, p->resource ? &p->resource->part : NULL};
    for (size_t i = 0; i < 3; i++)
        if (parts[i]) {
            parts[i]->taken = taken;
            snprintf(parts[i]->by, sizeof parts[i]->by, "%s", by);
        }
}

static weir_status compose(const weir_parts *p, const weir_runtime_options *options, weir_runtime **out)
{
    wi_runtime_parts given = {.device = p->device->device,
                              .resource = p->resource ? p->resource->top : NULL,
                              .text = p->resource ? p->resource->text : NULL,
                              .streams = p->streams ? p->streams->streams : NULL,
                              .stream_count = p->streams ? p->streams->capacity : 0,
                              .of = *p};
    return wi_runtime_create_of(p->device->driver, p->device->ordinal, options, &given, out);
}

weir_status weir_runtime_compose(const weir_parts *parts, const weir_runtime_options *options, weir_runtime **out)
{
    WI_ENTER();
    weir_parts p;
    weir_runtime_options given = {0};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_compose: no place for the result");
    weir_status status = WI_COPY_IN(weir_parts, &p, parts, "weir_runtime_compose");
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_runtime_options, &given, options, "weir_runtime_compose");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    pthread_mutex_lock(&lock);
    status = compose_check_parts(&p, &given);
    if (status == WEIR_OK)
        compose_mark(&p, true, "");
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    status = compose(&p, &given, out);
    pthread_mutex_lock(&lock);
    compose_mark(&p, status == WEIR_OK, status == WEIR_OK ? p.device->name : "");
    pthread_mutex_unlock(&lock);
    return status;
}

weir_status wi_parts_check_end(const weir_runtime *runtime)
{
    const weir_parts *p = &runtime->parts;
    if (!p->device)
        return WEIR_OK;
    pthread_mutex_lock(&lock);
    unsigned left = p->device->made - (p->streams != NULL) - (p->resource != NULL);
    pthread_mutex_unlock(&lock);
    if (left > 0)
        return weir_fail(
            WEIR_ERR_BUSY,
            "the runtime %s has a device of which %u pools of streams and resources are left over; destroy "
            "them first",
            runtime->name, left);
    return WEIR_OK;
}

void wi_parts_end(const weir_parts *parts)
{
    free(parts->device);
    free(parts->streams);
    free(parts->resource);
}
