/* Host chunks: physical memory of the host's that a device can map at its own addresses, a piece of it for each block.
 *
 * Each has a window, a range of addresses of its own, which is the block's address. There it is written and read by the
 * driver's copies. It can be shown somewhere else instead: then work that uses those addresses uses its memory. It is mapped
 * in one place at a time. One thread at a time has a chunk in hand. */
#ifndef WI_HOST_CHUNKS_H
#define WI_HOST_CHUNKS_H

#include "memory/resource.h"

typedef struct wi_host_chunks wi_host_chunks;
typedef struct wi_host_chunk wi_host_chunk;

/* Whether the device maps memory of the host's. */
bool wi_host_chunks_possible(const wi_driver *driver, wi_device *device);
/* A base of such chunks. What it asks the driver for are whole granules, and so must be what it is asked for. *chunks is the
 * caller's, to be destroyed after the base. */
weir_status wi_host_chunks_create(const wi_driver *driver, wi_device *device, wi_host_chunks **chunks,
                                  wi_resource **out);
void wi_host_chunks_destroy(wi_host_chunks *chunks);

/* The chunk of the block at the address of its window. */
wi_host_chunk *wi_host_chunks_of(wi_host_chunks *chunks, const void *window);
/* Maps it at `home`, a reserved range without memory. On failure it is where it was, or nowhere. */
weir_status wi_host_chunk_show(wi_host_chunk *chunk, void *home);
/* Takes it from there, and to its window if it is not there. On failure it stays where it is, or is nowhere. */
weir_status wi_host_chunk_hide(wi_host_chunk *chunk);
/* Whether it is mapped elsewhere than in its window. */
bool wi_host_chunk_is_shown(const wi_host_chunk *chunk);

#endif
