/* Host chunks: memory of the host's behind addresses of the device. */
#include "memory/stack.h"

#include <stdlib.h>

struct wi_host_chunk {
    wi_host_chunks *of;
    char *window, *at; /* `at`: where it is mapped; NULL: nowhere */
    uint64_t bytes;
    wi_handle handle;
    wi_host_chunk *next;
};

struct wi_host_chunks {
    const wi_driver *driver;
    wi_device *device;
    weir_base_table table;
    pthread_mutex_t lock;
    wi_host_chunk *first; /* the newest; under the lock */
};

bool wi_host_chunks_possible(const wi_driver *driver, wi_device *device)
{
    return driver->has_host_handles && driver->has_host_handles(device);
}

/* Mapping ---------------------------------------------------------------------------------------------------------- */

static weir_status chunk_map(wi_host_chunk *c, char *at)
{
    weir_status status = c->of->driver->map(c->of->device, at, c->bytes, 1, &c->handle);
    if (status == WEIR_OK)
        c->at = at;
    return status;
}

static weir_status chunk_unmap(wi_host_chunk *c)
{
    weir_status status = c->at ? c->of->driver->unmap(c->of->device, c->at, c->bytes, 1, &c->handle) : WEIR_OK;
    if (status == WEIR_OK)
        c->at = NULL;
    return status;
}

weir_status wi_host_chunk_show(wi_host_chunk *chunk, void *home)
{
    weir_status status = chunk_unmap(chunk);
    if (status == WEIR_OK)
        status = chunk_map(chunk, home);
    return status;
}

weir_status wi_host_chunk_hide(wi_host_chunk *chunk)
{
    if (chunk->at == chunk->window)
        return WEIR_OK;
    weir_status status = chunk_unmap(chunk);
    if (status == WEIR_OK)
        status = chunk_map(chunk, chunk->window);
    return status;
}

bool wi_host_chunk_is_shown(const wi_host_chunk *chunk)
{
    return chunk->at && chunk->at != chunk->window;
}

/* The base --------------------------------------------------------------------------------------------------------- */

static weir_status chunk_make(wi_host_chunk *c)
{
    const wi_driver *driver = c->of->driver;
    wi_device *device = c->of->device;
    void *window = NULL;
    weir_status status = driver->reserve(device, c->bytes, &window);
    if (status != WEIR_OK)
        return status;
    c->window = window;
    status = driver->create_on_host(device, c->bytes, 1, &c->handle);
    if (status == WEIR_OK) {
        status = chunk_map(c, c->window);
        if (status != WEIR_OK)
            driver->destroy(device, c->bytes, 1, &c->handle);
    }
    if (status != WEIR_OK)
        driver->unreserve(device, window, c->bytes);
    return status;
}

static weir_status host_chunks_allocate(void *state, size_t bytes, void *stream, void **address)
{
    wi_host_chunks *chunks = state;
    wi_host_chunk *c = calloc(1, sizeof *c);
    (void)stream;
    wi_assert(bytes % chunks->driver->granule(chunks->device) == 0);
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to note a chunk of %zu bytes", bytes);
    c->of = chunks;
    c->bytes = bytes;
    weir_status status = chunk_make(c);
    if (status != WEIR_OK) {
        free(c);
        return status;
    }
    pthread_mutex_lock(&chunks->lock);
    c->next = chunks->first;
    chunks->first = c;
    pthread_mutex_unlock(&chunks->lock);
    *address = c->window;
    return WEIR_OK;
}

/* With the lock held. */
static wi_host_chunk **host_chunks_find(wi_host_chunks *chunks, const void *window)
{
    wi_host_chunk **link = &chunks->first;
    while (*link && (*link)->window != window)
        link = &(*link)->next;
    return link;
}

wi_host_chunk *wi_host_chunks_of(wi_host_chunks *chunks, const void *window)
{
    pthread_mutex_lock(&chunks->lock);
    wi_host_chunk *found = *host_chunks_find(chunks, window);
    pthread_mutex_unlock(&chunks->lock);
    return found;
}

static weir_status host_chunks_release(void *state, void *address, size_t bytes, void *stream)
{
    wi_host_chunks *chunks = state;
    wi_host_chunk *c = wi_host_chunks_of(chunks, address);
    (void)bytes, (void)stream;
    weir_status status = chunk_unmap(c);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&chunks->lock);
    *host_chunks_find(chunks, address) = c->next;
    pthread_mutex_unlock(&chunks->lock);
    chunks->driver->destroy(chunks->device, c->bytes, 1, &c->handle);
    chunks->driver->unreserve(chunks->device, c->window, c->bytes);
    free(c);
    return WEIR_OK;
}

void wi_host_chunks_destroy(wi_host_chunks *chunks)
{
    for (wi_host_chunk *c = chunks->first, *next; c; c = next) { /* those that a driver did not take back */
        next = c->next;
        free(c);
    }
    pthread_mutex_destroy(&chunks->lock);
    free(chunks);
}

weir_status wi_host_chunks_create(const wi_driver *driver, wi_device *device, wi_host_chunks **chunks,
                                  wi_resource **out)
{
    wi_host_chunks *new = calloc(1, sizeof *new);
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the chunks of the host's memory");
    new->driver = driver;
    new->device = device;
    new->table = (weir_base_table){.struct_size = sizeof new->table,
                                   .name = "shown",
                                   .user = new,
                                   .allocate = host_chunks_allocate,
                                   .release = host_chunks_release};
    pthread_mutex_init(&new->lock, NULL);
    weir_status status = wi_own_create(&new->table, driver, device, WEIR_KIND_PINNED, out);
    if (status == WEIR_OK)
        *chunks = new;
    else
        wi_host_chunks_destroy(new);
    return status;
}
