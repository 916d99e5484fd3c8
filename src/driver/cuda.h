/* The parts of the cuda driver: the device, its addresses and handles (cuda.c), memory piece by piece and the pool
 * (cuda_memory.c), streams and their work (cuda_stream.c), events (cuda_event.c). */
#ifndef WI_CUDA_H
#define WI_CUDA_H

#include "driver/cuda_api.h"
#include "driver/driver.h"

/* An event of weir's is a number on a stream. Behind the numbers that are not known to be passed stand CUDA events, oldest
 * first, in a ring per stream; they are taken from and returned to a list, so that a steady state creates none.
 * Invariants: passed <= recorded; the ring holds the numbers passed + 1 … recorded, one CUDA event each.
 * The record of a stream that has ended serves the next one, which goes on counting: old events stay passed. One that was
 * abandoned serves when the last of its events has passed. Records stay where they are until the device is closed. */
typedef struct wi_cuda_stream {
    CUstream stream; /* written with the lock held; NULL: the stream has ended, or this is the device's record `all` */
    bool foreign;    /* somebody else's, or a default one: not ours to destroy */
    uint64_t id;     /* of an adopted one: CUDA gives the address of a destroyed stream to the next one; else 0 */
    uint64_t thread; /* of a per-thread default stream: the stream's id in its thread; else 0 */
    pthread_mutex_t lock;
    atomic_uint_fast64_t passed; /* written with the lock held */
    uint64_t recorded;
    CUevent *ring; /* number n at n % capacity */
    size_t capacity;
    CUevent *unused;
    size_t unused_count, unused_capacity;
    struct wi_cuda_stream *next;       /* of all records of the device */
    struct wi_cuda_stream *next_ended; /* of those that have ended, or were abandoned */
} wi_cuda_stream;

struct weir_driver_device {
    int ordinal;
    CUdevice device;
    CUcontext context; /* the primary one, retained */
    uint64_t granule;
    bool unmanaged;    /* memory cannot be mapped */
    bool reaches_host; /* memory of the host's can be mapped: `on_host` */
    CUmemAllocationProp properties, on_host;
    atomic_bool lost;
    pthread_mutex_t shared_lock;         /* held while `shared` is made */
    CUmemGenericAllocationHandle shared; /* a granule, under all covered addresses; 0: there is none yet */
    wi_cuda_stream
        *own_stream;      /* for what is to be done at once: never the legacy stream, which would wait for everyone */
    wi_cuda_stream *all;  /* its events are behind the work of all streams */
    pthread_mutex_t lock; /* the members below */
    wi_cuda_stream *records;   /* all there are; new ones come in front */
    wi_cuda_stream *ended;     /* records for the next streams */
    wi_cuda_stream *abandoned; /* the same, once their events have passed */
    CUmemoryPool pool;         /* once it was asked for */
};

/* Makes the device's context current for the calls between begin and end, in a capture mode in which they cannot break
 * another thread's capture, and restores what was there. */
typedef struct wi_cuda_guard {
    bool pushed;
    int capture_mode;
} wi_cuda_guard;
weir_status wi_cuda_begin(wi_device *device, wi_cuda_guard *guard);
void wi_cuda_end(wi_cuda_guard *guard);

/* The device is lost or the process is ending: no work can be queued, and no wait is needed. */
bool wi_cuda_over(wi_device *device);

/* WEIR_OK, or the failure of `call` in words. Notes when the device is lost. */
weir_status wi_cuda_check(wi_device *device, CUresult result, const char *call);

/* With the context current: WEIR_ERR_STREAM_MISUSE for a stream on which `what` is impossible now, so that the driver is not
 * asked, which would break a capture. `joins`: it becomes part of the graph. */
weir_status wi_cuda_check_stream(wi_device *device, const wi_cuda_stream *s, bool joins, const char *what);

weir_status wi_cuda_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address);
weir_status wi_cuda_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes);
weir_status wi_cuda_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address);
weir_status wi_cuda_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream);
weir_status wi_cuda_pool_trim(wi_device *device, uint64_t keep, uint64_t *held);
weir_status wi_cuda_pool_held(wi_device *device, uint64_t *held);
void wi_cuda_pool_close(wi_device *device);

weir_status wi_cuda_stream_create(wi_device *device, void **out);
weir_status wi_cuda_stream_adopt(wi_device *device, void *native, void **out, uint64_t *identity);
weir_status wi_cuda_stream_default(wi_device *device, weir_default_stream which, void **out);
void wi_cuda_stream_destroy(wi_device *device, void *handle);
void wi_cuda_stream_abandon(wi_device *device, void *handle);
weir_status wi_cuda_stream_synchronize(wi_device *device, void *handle);
weir_status wi_cuda_synchronize(wi_device *device);
void *wi_cuda_stream_native(void *handle);
bool wi_cuda_stream_capturing(wi_device *device, void *handle);
void wi_cuda_streams_clear(wi_device *device);
/* A record that stands for no stream. */
weir_status wi_cuda_new_record(wi_device *device, wi_cuda_stream **out);
/* WEIR_ERR_STREAM_MISUSE while a stream that has a record is being captured. With the context current. */
weir_status wi_cuda_check_captures(wi_device *device);

/* With its lock held: number `sequence` and all before it are done. */
void wi_cuda_note_passed(wi_cuda_stream *s, uint64_t sequence);
weir_status wi_cuda_record(wi_device *device, void *handle, wi_event *out);
weir_status wi_cuda_record_all(wi_device *device, wi_event *out);
bool wi_cuda_passed(wi_device *device, wi_event event);
weir_status wi_cuda_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_cuda_order(wi_device *device, void *handle, wi_event event);
weir_status wi_cuda_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_cuda_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream);
weir_status wi_cuda_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_cuda_call(wi_device *device, void (*fn)(void *), void *user, void *handle);

#endif
