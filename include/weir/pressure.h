/* weir/pressure.h: callbacks that are asked to give something up before a request for memory waits or is refused.
 *
 * An engine that keeps memory it could do without (cached sequences, a second copy of its weights) registers a function. When
 * a request finds no memory, and nothing that costs nobody anything has helped, the functions are called one by one; after
 * each that made memory available the request is tried again. What they say about that is not asked: weir looks itself. */
#ifndef WEIR_PRESSURE_H
#define WEIR_PRESSURE_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_pressure {
    size_t struct_size;
    uint64_t bytes;            /* requested, as they would be charged */
    uint64_t shortfall;        /* at least so many more have to be free, or free in one piece; never 0 */
    const weir_client *client; /* who asks */
    const char *device;        /* whose memory: "cuda:0" */
    weir_class memory_class;
    unsigned attempt; /* which call of this function it is for this request, from 1 */
} weir_pressure;

/* Called on the requesting thread with no lock of weir's held; it may call weir, free, allocate and trim, with these limits: a
 * request made inside one calls no callbacks, and neither the requesting client's close nor the runtime's end may be waited
 * for. `pressure` is valid during the call. It may take its time; the request waits for it. Memory that it frees on a stream
 * helps when the device is past that, or before, where the request's own stream can be ordered behind it. */
typedef void (*weir_pressure_fn)(const weir_pressure *pressure, void *user);

/* Registers the function with the runtime whose memory it can make room in: "host" for pinned and pageable memory. The lowest
 * priority is asked first, of equal ones the one registered first. One that made room is asked again, up to 64 times, before
 * the next is. Called for weir_alloc, weir_alloc_with and weir_reservation_create, after free and freed memory of everybody was looked
 * at, moved and given up by other threads, and before pending frees are waited for. Not for requests with WEIR_ALLOC_NO_WAIT, on a
 * stream that is being captured, nor for weir_resize. Errors: WEIR_ERR_INVALID for NULL, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_pressure_register(weir_runtime *runtime, int priority, weir_pressure_fn fn,
                                                           void *user, uint64_t *id);

/* Ends that: the function is called no more. Waits for calls of it on other threads to end, except when called inside a
 * pressure callback, this or another one: then such calls may still be running. WEIR_ERR_NOT_FOUND for an id that is none or was
 * removed; other errors as above. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_pressure_unregister(weir_runtime *runtime, uint64_t id);

WEIR_END
#endif
