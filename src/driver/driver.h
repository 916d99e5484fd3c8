/* The seam between weir and devices: one table of functions per driver, as small as it can be.
 *
 * Every function answers with a status and, when it fails, has set the detail. None of them is called with a weir lock
 * held, except where a comment says that it never blocks. `device` is what `open` made; `stream` is what stream_create
 * made, or NULL for "at once, on the calling thread".
 *
 * Physical memory comes as handles, each as long as was asked for: a multiple of the device's granule. Mapping a handle puts
 * its bytes at an address, unmapping takes them away, and what they hold survives the move from one address to another. It
 * is mapped whole, and where the driver says so at more than one address at once, which then show the same bytes. A call
 * serves handles of one length; whoever has several lengths remembers which is which. */
#ifndef WI_DRIVER_H
#define WI_DRIVER_H

#include "base/internal.h"

#include <weir/base.h>

typedef struct wi_device wi_device;
typedef uint64_t wi_handle;

/* A point in a stream's work: passed when everything queued on the stream before it is done. Remains valid as long as
 * the device is open; {NULL, 0} is always passed. */
typedef struct wi_event {
    void *stream;
    uint64_t sequence;
} wi_event;

typedef struct wi_driver {
    const char *name;
    int ordinals;    /* 0 to ordinals - 1 may exist */
    bool maps_twice; /* a handle may be mapped at several addresses at once */

    /* May be called by several threads at once, for one device or for several: what these share the driver locks itself. */
    weir_status (*open)(int ordinal, wi_device **out);
    void (*close)(wi_device *device);
    weir_status (*memory)(wi_device *device, uint64_t *available, uint64_t *total);
    uint64_t (*granule)(wi_device *device); /* of addresses and the length of handles: a power of two */

    /* Addresses without memory. `bytes` is a multiple of the granule, the result aligned to 2 MiB. WEIR_ERR_UNSUPPORTED where
     * memory cannot be mapped, and then none of the six functions from here on is called again. */
    weir_status (*reserve)(wi_device *device, uint64_t bytes, void **address);
    void (*unreserve)(wi_device *device, void *address, uint64_t bytes);

    /* `count` handles of `bytes` each, a multiple of the granule, not 0. All or none; WEIR_ERR_OUT_OF_MEMORY when the device has
     * no more. */
    weir_status (*create)(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles);
    /* Handles that are mapped nowhere; `bytes` is, here and below, what each of them was created with. */
    void (*destroy)(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles);
    /* Maps them side by side from `address` on, a multiple of the granule, where a reserved range has count * bytes addresses
     * without memory. All or none; handles[] may get new values. One that is mapped already only where maps_twice. */
    weir_status (*map)(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles);
    /* Takes `count` handles away that lie side by side from `address` on; handles[] says which they are and gets their new
     * values. All or none. */
    weir_status (*unmap)(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles);

    /* One piece of memory with an address of its own, aligned to 256 or more; `bytes` is a multiple of 256. What it holds
     * is unknown. WEIR_ERR_UNSUPPORTED for a kind that the driver has not. Both may wait for the whole device (cuMemFree
     * does), so that only what the device is past is released. The host writes to pinned and pageable memory itself;
     * whether `fill` reaches what is pageable is the driver's matter (on cuda it does not). */
    weir_status (*allocate)(wi_device *device, weir_kind kind, uint64_t bytes, void **address);
    weir_status (*release)(wi_device *device, weir_kind kind, void *address, uint64_t bytes);

    /* The same for device memory in the order of a stream, from a pool that is this device record's own: work put on the
     * stream after the allocation may use it, and so may the next owner after the release, on that stream at once and
     * elsewhere when the device is past it. Without a stream: at once, having waited. What the pool keeps is given back by
     * trim, down to `keep` bytes; both tell what it has from the device afterwards. WEIR_ERR_STREAM_MISUSE for a stream that
     * is being captured, WEIR_ERR_UNSUPPORTED from a device without pools. */
    weir_status (*pool_allocate)(wi_device *device, uint64_t bytes, void *stream, void **address);
    weir_status (*pool_release)(wi_device *device, void *address, uint64_t bytes, void *stream);
    weir_status (*pool_trim)(wi_device *device, uint64_t keep, uint64_t *held);
    weir_status (*pool_held)(wi_device *device, uint64_t *held);

    weir_status (*stream_create)(wi_device *device, void **stream);
    /* A stream that somebody else made and will destroy. stream_destroy then only forgets it. WEIR_ERR_STREAM_MISUSE for one
     * of another context, and for one that is being captured where the driver cannot tell which it is, WEIR_ERR_UNSUPPORTED from a driver that knows no streams but its own. *identity differs between two
     * streams that had the same native address one after the other; events are recorded on the one that was adopted alone, but
     * where `identity` is NULL: then the record is for whatever stream has the address, of which the caller makes sure. */
    weir_status (*stream_adopt)(wi_device *device, void *native, void **stream, uint64_t *identity);
    /* The device's default stream, which nothing of weir's uses unless it is asked for; WEIR_ERR_UNSUPPORTED without one. The
     * per-thread one is the calling thread's: from another thread its native name would mean another stream, so that what
     * is queued, recorded or waited for there is answered with WEIR_ERR_STREAM_MISUSE. Events of it serve every thread, and so does its stream_destroy, which waits
     * for those that were recorded. */
    weir_status (*stream_default)(wi_device *device, weir_default_stream which, void **stream);
    /* The stream's work was waited for. Whoever is about to record an event on it, or to ask about one, finds it ended. */
    void (*stream_destroy)(wi_device *device, void *stream);
    /* Forgets an adopted stream whose work was not waited for, and which may be gone: nothing is put on it any more, and its
     * events pass when the device is past them. NULL: no stream can be adopted. */
    void (*stream_abandon)(wi_device *device, void *stream);
    weir_status (*stream_synchronize)(wi_device *device, void *stream);
    /* Waits for all work on the device, whoever has put it there. NULL: nobody but the driver can. */
    weir_status (*synchronize)(wi_device *device);
    void *(*stream_native)(void *stream); /* what users' libraries call a stream */
    /* Into a graph; one that has ended is not. Never blocks. */
    bool (*stream_capturing)(wi_device *device, void *stream);
    void *(*context)(wi_device *device); /* what users' libraries call the device: a CUcontext; NULL without one */
    /* Makes the device current on this thread for other libraries' calls, until `leave`, which has the thread as it was. NULL, both:
     * a device is not made current. */
    weir_status (*enter)(wi_device *device);
    void (*leave)(wi_device *device);
    /* Runs `fn` here and now with the device current on this thread, as tools want it that watch its memory; does not where
     * the device is over. NULL: no tool watches this driver's memory. */
    void (*within)(wi_device *device, void (*fn)(void *user), void *user);

    /* Errors of stream_synchronize, record and order: WEIR_ERR_STREAM_MISUSE for a stream that is being captured, and the
     * capture goes on; of record, for one that has ended, too. The work below becomes part of the graph. */
    weir_status (*record)(wi_device *device, void *stream, wi_event *out);
    /* The point behind all work that was put on the device so far, on whatever stream, also on streams that have ended.
     * WEIR_ERR_STREAM_MISUSE while a stream that the driver knows is being captured: a driver may break any capture that it does
     * not know of. May wait for the device where there is no event for that (CUDA before 12.5). NULL: streams end when their
     * work is done. */
    weir_status (*record_all)(wi_device *device, wi_event *out);
    bool (*passed)(wi_device *device, wi_event event); /* never blocks */
    /* Waits until it is passed or the clock reads `deadline`; WEIR_OK either way, WEIR_ERR_DRIVER if it will never be. */
    weir_status (*wait)(wi_device *device, wi_event event, uint64_t deadline);
    /* What is queued on `stream` from now on runs after the event. */
    weir_status (*order)(wi_device *device, void *stream, wi_event event);

    weir_status (*copy)(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
    weir_status (*fill)(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
    weir_status (*call)(wi_device *device, void (*fn)(void *), void *user, void *stream);
} wi_driver;

/* Pageable memory of the host, for drivers: from the C allocator, to which free gives it back, and not a byte longer than
 * asked, so that the allocator's checkers see whoever goes beyond the end. */
weir_status wi_pageable_allocate(uint64_t bytes, void **address);

extern const wi_driver wi_host_driver, wi_cuda_driver;

enum { WI_DRIVERS = 3, WI_ORDINALS = 64 }; /* the most drivers, and the most devices of one */

/* Adds one to the two above: the simulated device, which libweir does not have. Before any other call, on one thread. */
void wi_driver_add(const wi_driver *driver);

/* The place of one of these in the list of drivers. */
size_t wi_driver_number(const wi_driver *driver);

/* Reads "host", "cuda", "cuda:3". WEIR_ERR_INVALID for a text that is no device, WEIR_ERR_NOT_FOUND for one that is not here. */
weir_status wi_driver_find(const char *device, const wi_driver **driver, int *ordinal);

#endif
