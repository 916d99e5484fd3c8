/* The parts of the host driver: memory (host.c), covered addresses (host_cover.c), its pool in stream order (host_pool.c)
 * and streams (host_stream.c). */
#ifndef WI_HOST_H
#define WI_HOST_H

#include "driver/driver.h"

struct wi_host_stream;
struct wi_host_piece;
struct wi_host_cover;

enum { WI_HOST_GRANULE = 64 * 1024, WI_HOST_ALIGNMENT = 2 * 1024 * 1024 }; /* of ranges; the length of a huge page */

struct weir_driver_device {
    pthread_mutex_t lock;           /* the members below; a leaf */
    struct wi_host_stream *ended;   /* records for the next streams */
    struct wi_host_piece *returned; /* what was released into the pool, oldest last */
    uint64_t pool_held;             /* bytes of returned pieces and of pieces handed out */
    struct wi_host_cover *covers;   /* where addresses are covered, or were */
};

/* What the last call of the kernel's, which failed, says: too little memory or too few mappings are WEIR_ERR_OUT_OF_MEMORY. */
weir_status wi_host_failed(const char *what, uint64_t bytes);
/* The pages there go, and zeros can be read. */
void wi_host_discard(void *address, uint64_t bytes);

weir_status wi_host_cover(wi_device *device, void *address, uint64_t bytes);
weir_status wi_host_uncover(wi_device *device, void *address, uint64_t bytes);
const void *wi_host_written(wi_device *device, const void *address, uint64_t bytes);
/* Whether the addresses from `at` on are covered, or were and are open: memory is there at the first touch. *until: up to
 * where that is so, or is not; `end` at most. */
bool wi_host_is_open(wi_device *device, const char *at, char *end, char **until);
/* Fills with zeros; unused pages get no memory by that. */
void wi_host_clear(wi_device *device, void *to, uint64_t bytes);
/* The range is going. */
void wi_host_forget_covers(wi_device *device, const void *address, uint64_t bytes);

weir_status wi_host_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address);

weir_status wi_host_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address);
weir_status wi_host_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream);
weir_status wi_host_pool_trim(wi_device *device, uint64_t keep, uint64_t *held);
weir_status wi_host_pool_held(wi_device *device, uint64_t *held);
void wi_host_pool_clear(wi_device *device);

weir_status wi_host_stream_create(wi_device *device, void **out);
weir_status wi_host_stream_adopt(wi_device *device, void *native, void **stream, uint64_t *identity);
weir_status wi_host_stream_default(wi_device *device, weir_default_stream which, void **stream);
void wi_host_stream_destroy(wi_device *device, void *handle);
weir_status wi_host_stream_synchronize(wi_device *device, void *stream);
bool wi_host_stream_capturing(wi_device *device, void *stream);
void wi_host_streams_clear(wi_device *device);
weir_status wi_host_record(wi_device *device, void *handle, wi_event *out);
bool wi_host_passed(wi_device *device, wi_event event);
weir_status wi_host_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_host_order(wi_device *device, void *stream, wi_event event);
weir_status wi_host_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_host_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream);
weir_status wi_host_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_host_call(wi_device *device, void (*fn)(void *), void *user, void *stream);

#endif
