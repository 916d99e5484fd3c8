/* weir/experimental/compose.h: a runtime of one's own, put together from parts.
 *
 * An embedder that partitions a device, or chooses what serves its memory and how many streams there are, makes the
 * parts and composes a runtime of them:
 *
 *   weir_device_create("cuda:0", &device);
 *   weir_stream_pool_create(device, 4, &streams);
 *   weir_resource_create(device, "guard(direct)", &resource);
 *   weir_runtime_compose(&(weir_parts){sizeof(weir_parts), device, streams, resource}, NULL, &runtime);
 *
 * Such a runtime is the caller's, as those of weir_runtime_create are: weir_runtime_get never finds it, and it has a
 * budget of its own, which the process's runtime of that device knows nothing of. Parts may be made and ended on any
 * thread. */
#ifndef WEIR_EXPERIMENTAL_COMPOSE_H
#define WEIR_EXPERIMENTAL_COMPOSE_H

#include <weir/runtime.h>

WEIR_BEGIN

typedef struct weir_device weir_device;
typedef struct weir_stream_pool weir_stream_pool;
typedef struct weir_resource weir_resource;

/* Opens a device by its name, as for weir_runtime_get, and with its errors. Opened twice it is two, whose parts do
 * not go together. */
WEIR_API WEIR_NODISCARD weir_status weir_device_create(const char *name, weir_device **out);

/* Closes it. WEIR_ERR_BUSY while a pool or a resource made of it is there, or a runtime has it. NULL: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_device_destroy(weir_device *device);

/* Makes `capacity` streams, from 1 to 1024. The runtime that they become part of hands out those and makes no others:
 * weir_stream_acquire is WEIR_ERR_BUSY when all are acquired. Errors: WEIR_ERR_INVALID, WEIR_ERR_CONFLICT (a runtime
 * has the device), WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM; streams that were made before the failure are ended. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_pool_create(weir_device *device, uint32_t capacity,
                                                            weir_stream_pool **out);
/* WEIR_ERR_BUSY while a runtime has it. NULL: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_pool_destroy(weir_stream_pool *streams);

/* Makes the stack of resources that `text` describes (weir/runtime.h has the grammar). Errors: WEIR_ERR_INVALID (the
 * grammar, an argument, two budgets), WEIR_ERR_NOT_FOUND (a resource that there is none of), WEIR_ERR_CONFLICT (a
 * runtime has the device), WEIR_ERR_UNSUPPORTED, WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM. */
WEIR_API WEIR_NODISCARD weir_status weir_resource_create(weir_device *device, const char *text, weir_resource **out);
/* WEIR_ERR_BUSY while a runtime has it. NULL: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_resource_destroy(weir_resource *resource);

typedef struct weir_parts {
    size_t struct_size;
    weir_device *device;       /* NULL: that of the others, which is taken with them */
    weir_stream_pool *streams; /* NULL: streams are made when they are acquired, up to 1024 */
    weir_resource *resource;   /* NULL: made of the options' `resource` */
} weir_parts;

/* Makes a runtime of the parts, which are the runtime's from then on: ending one of them is WEIR_ERR_BUSY, and
 * weir_runtime_destroy ends them with the runtime, so that their pointers lead nowhere afterwards. On failure they
 * are as they were. Options may be NULL, as for weir_runtime_create. Errors: WEIR_ERR_INVALID (no part at all),
 * WEIR_ERR_CONFLICT, naming both (parts of two devices, a part that another runtime has, a `resource` in the options
 * that is not the part's), and those of weir_runtime_create. weir_runtime_destroy of it is WEIR_ERR_BUSY besides
 * while a part of its device is left over. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_compose(const weir_parts *parts, const weir_runtime_options *options,
                                                         weir_runtime **out);

WEIR_END
#endif
