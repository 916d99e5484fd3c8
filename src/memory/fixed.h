/* The resource "blocks": runs of fixed blocks over one extent, which is taken whole at the first allocation. */
#ifndef WI_FIXED_H
#define WI_FIXED_H

#include "memory/stack.h"

/* Blocks of `block_bytes`, a power of two from WI_UNIT on; in all `bytes`, or as much as the budget then leaves, whichever is
 * less. 0: as much as the device has. WEIR_ERR_INVALID for a block that is no power of two. */
weir_status wi_fixed_create(const wi_driver *driver, wi_device *device, uint64_t block_bytes, uint64_t bytes,
                            wi_resource **out);

/* The same for a stack: "blocks", "blocks(64KiB)", "blocks(64KiB, size=1GiB)". */
weir_status wi_fixed_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out);

#endif
