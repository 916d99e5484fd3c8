/* Declares a write to a block, so that later declared uses on other streams wait for the write. */
#ifndef WI_WORKSPACE_ORDER_H
#define WI_WORKSPACE_ORDER_H

#include <weir/memory.h>

/* Has the stream be behind all declared uses of the block, and the block's next use behind the stream. In between
 * `bytes` come to `to`, copied from `from`, or zeros where that is NULL; 0 bytes: nothing does. */
weir_status wi_order_write(weir_runtime *runtime, weir_block block, void *to, const void *from, uint64_t bytes,
                           weir_stream stream);

#endif
