/* The resources "direct" and "async": one driver allocation per block. */
#ifndef WI_DRIVER_ALLOC_H
#define WI_DRIVER_ALLOC_H

#include "memory/stack.h"

/* "direct": memory of one kind, which goes back to the driver once the device is past its free. */
weir_status wi_direct_create(const wi_driver *driver, wi_device *device, weir_kind kind, wi_resource **out);
/* "async": device memory of the driver's pool, which goes back in the order of a stream if nothing else is to be
 * waited for. */
weir_status wi_async_create(const wi_driver *driver, wi_device *device, wi_resource **out);

/* The same for a stack, without arguments: device memory. */
weir_status wi_direct_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                           wi_resource **out);
weir_status wi_async_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out);

#endif
