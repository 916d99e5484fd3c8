/* The two halves of the host driver: memory (host.c) and streams (host_stream.c). */
#ifndef WI_HOST_H
#define WI_HOST_H

#include "driver/driver.h"

weir_status wi_host_stream_create(wi_device *device, void **out);
void wi_host_stream_destroy(wi_device *device, void *handle);
weir_status wi_host_stream_synchronize(wi_device *device, void *stream);
weir_status wi_host_record(wi_device *device, void *handle, wi_event *out);
bool wi_host_passed(wi_device *device, wi_event event);
weir_status wi_host_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_host_order(wi_device *device, void *stream, wi_event event);
weir_status wi_host_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_host_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_host_call(wi_device *device, void (*fn)(void *), void *user, void *stream);

#endif
