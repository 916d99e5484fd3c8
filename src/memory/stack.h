/* Stacks of resources by their text form, "budget(log(csv=PATH, async))"; weir/runtime.h has the grammar. Behind it what stacks are
 * made of besides bases and adaptors of weir's: parts of a program's own, and the ways in which bases take memory of the driver. */
#ifndef WI_STACK_H
#define WI_STACK_H

#include <weir/adaptor.h>

#include "memory/resource.h"
#include "memory/space/pending.h"

enum { WI_ARGUMENTS = 8, WI_ARGUMENT_BYTES = 200 };

/* A part's arguments, in order, without the inner resource: "64KiB", "zone=1KiB". */
typedef struct wi_arguments {
    const char *part; /* the name of the part */
    size_t count;
    char text[WI_ARGUMENTS][WI_ARGUMENT_BYTES];
} wi_arguments;

/* The value of the argument `name` ("": the one without a name); NULL: it is not given. */
const char *wi_argument(const wi_arguments *arguments, const char *name);
/* Reads an argument as a size of at least `least`; *out is unchanged if it is not given. WEIR_ERR_INVALID names the
 * part and the argument. */
weir_status wi_argument_size(const wi_arguments *arguments, const char *name, uint64_t least, uint64_t *out);
/* WEIR_ERR_INVALID for an argument that is not in `known`, a list that ends with NULL, or is given twice. */
weir_status wi_arguments_check(const wi_arguments *arguments, const char *const *known);

/* Whether there is a part of that name. */
bool wi_stack_has(const char *name);
/* Checks grammar and names. WEIR_ERR_INVALID or WEIR_ERR_NOT_FOUND, with the reason. */
weir_status wi_stack_check(const char *text);
/* Makes the stack, and a budget around it if it has none. */
weir_status wi_stack_create(const char *text, const wi_driver *driver, wi_device *device, wi_resource **out);

/* ---- own_parts.c ------------------------------------------------------------------------------------------------- */

/* Bases and adaptors of a program's own, made known by weir_base_register and weir_adaptor_register. */

/* One of the two is set. Both are valid for the life of the process. */
typedef struct wi_own_part {
    const weir_base_table *base;
    const weir_adaptor_table *adaptor;
} wi_own_part;

/* The part of that name; both NULL: there is none. */
wi_own_part wi_own_part_called(const char *name);

/* As parts of a stack: the part that the arguments name. */
weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);
weir_status wi_own_adaptor_make(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);

/* ---- driver_alloc.c ---------------------------------------------------------------------------------------------- */

/* Resources that make one allocation of the driver's, or of a program's own functions, for each block. */

/* "direct": memory of one kind. A block goes back to the driver once the device is past its free. */
weir_status wi_direct_create(const wi_driver *driver, wi_device *device, weir_kind kind, wi_resource **out);
/* "async": device memory from the driver's pool. A block goes back in the order of its stream, unless other work has
 * to be waited for. */
weir_status wi_async_create(const wi_driver *driver, wi_device *device, wi_resource **out);

/* A program's own functions, for memory of that kind: like async if they follow streams and the device has pools, else like
 * direct. */
weir_status wi_own_create(const weir_base_table *own, const wi_driver *driver, wi_device *device, weir_kind kind,
                          wi_resource **out);

/* The same as parts of a stack: device memory, no arguments. */
weir_status wi_direct_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                           wi_resource **out);
weir_status wi_async_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out);

/* ---- host_chunks.c ----------------------------------------------------------------------------------------------- */

/* Host chunks: physical memory of the host's that a device can map at its own addresses, a piece of it for each block.
 *
 * A chunk has a window, a range of addresses of its own, which is the block's address. The driver's copies write and
 * read the chunk there. A chunk can be shown at other addresses instead: then work on those addresses uses the chunk's
 * memory. A chunk is mapped in one place at a time. Calls for a chunk come from one thread at a time. */

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
