/* The seam between weir and devices: one table of functions per driver, which weir/driver.h describes. A program can
 * register one of its own; weir's own fill the same table, all of it. */
#ifndef WI_DRIVER_H
#define WI_DRIVER_H

#include "base/internal.h"

#include <weir/driver.h>

typedef weir_driver_device wi_device;
typedef uint64_t wi_handle;         /* physical memory */
typedef weir_driver_event wi_event; /* {NULL, 0} is always passed */
typedef weir_driver_table wi_driver;

/* Pageable memory of the host, for drivers: from the C allocator, to which free gives it back, and not a byte longer
 * than asked, so that the allocator's checkers see whoever goes beyond the end. */
weir_status wi_pageable_allocate(uint64_t bytes, void **address);

extern const wi_driver wi_host_driver, wi_cuda_driver;

/* The most drivers: the two above, the simulated device, those of the program's own, and a place for all that are in no
 * list. The most devices of one. */
enum { WI_OWN_DRIVERS = 4, WI_DRIVERS = 4 + WI_OWN_DRIVERS, WI_ORDINALS = 64 };

/* Adds one: the simulated device, which libweir does not have, before any other call; or one of the program's own, on
 * one thread at a time. */
void wi_driver_add(const wi_driver *driver);

/* Queues many copies, with the driver's `copy_many` where the driver has that function, else one after the other. */
weir_status wi_driver_copy_many(const wi_driver *driver, wi_device *device, const weir_driver_copy *copies,
                                size_t count, void *stream);

bool wi_driver_has(const char *name);

/* The place of one of these in the list of drivers. */
size_t wi_driver_number(const wi_driver *driver);

/* Reads "host", "cuda", "cuda:3". WEIR_ERR_INVALID for a text that is no device, WEIR_ERR_NOT_FOUND for one that is not
 * here. */
weir_status wi_driver_find(const char *device, const wi_driver **driver, int *ordinal);

#endif
