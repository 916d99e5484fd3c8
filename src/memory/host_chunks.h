/* Host chunks: physical memory of the host's that a device can map at its own addresses, a piece of it for each block.
 *
 * A chunk has a window, a range of addresses of its own, which is the block's address. The driver's copies write and
 * read the chunk there. A chunk can be shown at other addresses instead: then work on those addresses uses the chunk's
 * memory. A chunk is mapped in one place at a time. Calls for a chunk come from one thread at a time. */
#ifndef WI_HOST_CHUNKS_H
#define WI_HOST_CHUNKS_H

#include "memory/resource.h"

typedef struct wi_host_chunks wi_host_chunks;
typedef struct wi_host_chunk wi_host_chunk;

/* Whether the device maps memory of the host's. */
bool wi_host_chunks_possible(const wi_driver *driver, wi_device *device);
/* Makes a base of host chunks. Requests to the base must be whole granules, as are the base's requests to the driver.
 * *chunks is the caller's, to be destroyed after the base. */
weir_status wi_host_chunks_create(const wi_driver *driver, wi_device *device, wi_host_chunks **chunks,
                                  wi_resource **out);
void wi_host_chunks_destroy(wi_host_chunks *chunks);

/* The chunk of the block at the address of its window. */
wi_host_chunk *wi_host_chunks_of(wi_host_chunks *chunks, const void *window);
/* Maps the chunk at `home`, a reserved range without memory. On failure the chunk is where it was, or nowhere. */
weir_status wi_host_chunk_show(wi_host_chunk *chunk, void *home);
/* Moves the chunk back to its window, unless it is there already. On failure the chunk stays where it is, or is
 * nowhere. */
weir_status wi_host_chunk_hide(wi_host_chunk *chunk);
/* Whether the chunk is mapped elsewhere than in its window. */
bool wi_host_chunk_is_shown(const wi_host_chunk *chunk);

#endif
