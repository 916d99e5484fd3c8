/* The host driver's pool: pieces of memory that are given back in the order of a stream.
 *
 * A returned piece stays in a list with the point of its return. On that stream it may be handed out again at once, to
 * work that will come behind what still uses it; to anybody else, or to the C library, only when the point is passed.
 * Pieces serve requests of exactly their size. Invariant: what the list holds is part of pool_held. */
#include "driver/host.h"

typedef struct wi_host_piece {
    struct wi_host_piece *next;
    void *address;
    uint64_t bytes;
    wi_event returned;
} piece;

static bool host_pool_serves(wi_device *device, const piece *p, uint64_t bytes, const void *stream)
{
    return p->bytes == bytes && ((stream && p->returned.stream == stream) || wi_host_passed(device, p->returned));
}

/* Takes a piece that serves out of the list; NULL: there is none. */
static void *host_pool_take(wi_device *device, uint64_t bytes, const void *stream)
{
    void *address = NULL;
    pthread_mutex_lock(&device->lock);
    piece **at = &device->returned;
    while (*at && !host_pool_serves(device, *at, bytes, stream))
        at = &(*at)->next;
    piece *found = *at;
    if (found) {
        *at = found->next;
        address = found->address;
    }
    pthread_mutex_unlock(&device->lock);
    free(found);
    return address;
}

weir_status wi_host_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    *address = host_pool_take(device, bytes, stream);
    if (*address)
        return WEIR_OK;
    weir_status status = wi_host_allocate(device, WEIR_KIND_DEVICE, bytes, address);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    device->pool_held += bytes;
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

weir_status wi_host_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    piece *p = malloc(sizeof *p);
    if (!p)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory to note that %llu bytes are released",
                         (unsigned long long)bytes);
    *p = (piece){.address = address, .bytes = bytes};
    weir_status status = wi_host_record(device, stream, &p->returned);
    if (status != WEIR_OK) {
        free(p);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    wi_assert(bytes <= device->pool_held);
    p->next = device->returned;
    device->returned = p;
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

weir_status wi_host_pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    pthread_mutex_lock(&device->lock);
    for (piece **at = &device->returned; *at && device->pool_held > keep;) {
        piece *p = *at;
        if (!wi_host_passed(device, p->returned)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        device->pool_held -= p->bytes;
        free(p->address);
        free(p);
    }
    *held = device->pool_held;
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

weir_status wi_host_pool_held(wi_device *device, uint64_t *held)
{
    pthread_mutex_lock(&device->lock);
    *held = device->pool_held;
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

/* When the device is closed, whatever its streams are at: there are none any more. */
void wi_host_pool_clear(wi_device *device)
{
    while (device->returned) {
        piece *p = device->returned;
        device->returned = p->next;
        free(p->address);
        free(p);
    }
}
