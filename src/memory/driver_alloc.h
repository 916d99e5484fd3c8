/* Resources that make one allocation of the driver's, or of a program's own functions, for each block. */
#ifndef WI_DRIVER_ALLOC_H
#define WI_DRIVER_ALLOC_H

#include "memory/stack.h"

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

#endif
