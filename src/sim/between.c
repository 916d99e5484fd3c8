/* A driver whose calls are interrupted: before and after each call of the simulated device a function may run, as
 * another thread of the program would. Only calls that weir makes with no lock held are interrupted. */
#include "sim/world.h"

static void (*interrupt)(void *user);
static void *interrupted;

void between_calls(void (*fn)(void *user), void *user)
{
    interrupt = fn;
    interrupted = user;
}

static void between_before(void)
{
    if (interrupt)
        interrupt(interrupted);
}

static weir_status between_after(weir_status status)
{
    if (status == WEIR_OK)
        between_before();
    return status;
}

/* The calls that are interrupted: member of the table, parameters, arguments. */
#define BETWEEN_CALLS(X)                                                                                               \
    X(create, (wi_device * device, uint64_t bytes, size_t count, wi_handle * handles),                                 \
      (device, bytes, count, handles))                                                                                 \
    X(map, (wi_device * device, void *address, uint64_t bytes, size_t count, wi_handle *handles),                      \
      (device, address, bytes, count, handles))                                                                        \
    X(unmap, (wi_device * device, void *address, uint64_t bytes, size_t count, wi_handle *handles),                    \
      (device, address, bytes, count, handles))                                                                        \
    X(allocate, (wi_device * device, weir_kind kind, uint64_t bytes, void **address), (device, kind, bytes, address))  \
    X(release, (wi_device * device, weir_kind kind, void *address, uint64_t bytes), (device, kind, address, bytes))    \
    X(pool_allocate, (wi_device * device, uint64_t bytes, void *stream, void **address),                               \
      (device, bytes, stream, address))                                                                                \
    X(pool_release, (wi_device * device, void *address, uint64_t bytes, void *stream),                                 \
      (device, address, bytes, stream))                                                                                \
    X(pool_trim, (wi_device * device, uint64_t keep, uint64_t * held), (device, keep, held))                           \
    X(pool_held, (wi_device * device, uint64_t * held), (device, held))                                                \
    X(stream_create, (wi_device * device, void **stream), (device, stream))                                            \
    X(stream_synchronize, (wi_device * device, void *stream), (device, stream))                                        \
    X(synchronize, (wi_device * device), (device))                                                                     \
    X(record, (wi_device * device, void *stream, wi_event *out), (device, stream, out))                                \
    X(wait, (wi_device * device, wi_event event, uint64_t deadline), (device, event, deadline))                        \
    X(order, (wi_device * device, void *stream, wi_event event), (device, stream, event))                              \
    X(copy, (wi_device * device, void *to, const void *from, size_t bytes, void *stream),                              \
      (device, to, from, bytes, stream))                                                                               \
    X(fill, (wi_device * device, void *to, uint8_t value, size_t bytes, void *stream),                                 \
      (device, to, value, bytes, stream))                                                                              \
    X(call, (wi_device * device, void (*fn)(void *), void *user, void *stream), (device, fn, user, stream))

#define BETWEEN(member, parameters, arguments)                                                                         \
    static weir_status between_##member parameters                                                                     \
    {                                                                                                                  \
        between_before();                                                                                              \
        return between_after(wi_sim_driver.member arguments);                                                          \
    }
BETWEEN_CALLS(BETWEEN)

static void between_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    between_before();
    wi_sim_driver.destroy(device, bytes, count, handles);
    between_before();
}

const wi_driver *between_driver(void)
{
    static wi_driver driver;
    driver = wi_sim_driver;
#define PUT(member, parameters, arguments) driver.member = between_##member;
    BETWEEN_CALLS(PUT)
    driver.destroy = between_destroy;
    return &driver;
}
