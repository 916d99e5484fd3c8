#include "planner/arena/order.h"

#include <weir/uses.h>

static weir_status arena_order_put(weir_runtime *runtime, void *to, const void *from, uint64_t bytes,
                                   weir_stream stream)
{
    if (bytes == 0)
        return WEIR_OK;
    return from ? weir_copy(runtime, to, from, bytes, stream) : weir_fill(runtime, to, 0, bytes, stream);
}

weir_status wi_order_write(weir_runtime *runtime, weir_block block, void *to, const void *from, uint64_t bytes,
                           weir_stream stream)
{
    weir_use use = {block, WEIR_ACCESS_WRITE};
    weir_launch *launch;
    weir_status status = weir_launch_begin(runtime, stream, &use, 1, &launch);
    if (status != WEIR_OK)
        return status;
    status = arena_order_put(runtime, to, from, bytes, stream);
    if (status == WEIR_OK && weir_launch_end(launch) == WEIR_OK)
        return WEIR_OK;
    if (status == WEIR_OK) /* no event can say when it is done: it is done at return */
        status = weir_stream_synchronize(stream);
    weir_launch_abort(launch);
    return status;
}
