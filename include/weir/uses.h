/* weir/uses.h: work on streams that touches blocks, declared.
 *
 * A block may be touched without more on the stream it was allocated on, before it is freed there. Work on other
 * streams is declared: weir_launch_begin before it is queued, weir_launch_end after. Begin makes the launch's stream
 * wait for what must come first, end remembers one event for the launch, shared by all its blocks; a free then waits
 * for every declared use, and so does the block's next owner. What is not declared is not protected.
 *
 *   a read waits for the block's last write        a write waits for its last write and for every read since
 *
 * Between begin and end the block holds a ticket of the launch: it cannot be freed (WEIR_ERR_BUSY), reads may overlap
 * with reads, and a write with nothing, so that no dependency is lost between the two. A block remembers at most one
 * point per stream, however many launches use it. */
#ifndef WEIR_USES_H
#define WEIR_USES_H

#include <weir/memory.h>

WEIR_BEGIN

typedef enum weir_access { WEIR_ACCESS_READ = 1, WEIR_ACCESS_WRITE = 2, WEIR_ACCESS_READ_WRITE = 3 } weir_access;

typedef struct weir_use {
    weir_block block; /* generation 0: whatever block begins at the pointer now */
    weir_access access;
} weir_use;

typedef struct weir_launch weir_launch;

/* Declares that the work about to be queued on `stream` uses these blocks, of any clients of the runtime; a block
 * named twice is used in both ways. Queues the waits on the stream; on WEIR_STREAM_HOST it waits itself. All blocks
 * or none: on failure no ticket is held. Errors: those of weir_free for a pointer that is no block's, WEIR_ERR_STALE,
 * WEIR_ERR_BUSY (another launch between begin and end conflicts, or the block is being freed),
 * WEIR_ERR_STREAM_MISUSE, WEIR_ERR_INVALID, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST. Any thread; end may be called on
 * another thread. */
WEIR_API WEIR_NODISCARD weir_status weir_launch_begin(weir_runtime *runtime, weir_stream stream, const weir_use *uses,
                                                      size_t count, weir_launch **out);

/* The work is queued: records the event, gives the tickets back and ends the launch. If the event cannot be recorded
 * (WEIR_ERR_DRIVER) the launch goes on holding its blocks, and end may be called again. NULL: WEIR_ERR_INVALID. */
WEIR_API WEIR_NODISCARD weir_status weir_launch_end(weir_launch *launch);

/* Nothing was queued: gives the tickets back and remembers nothing. NULL is nothing. */
WEIR_API void weir_launch_abort(weir_launch *launch);

/* The simple form for one block that is only read: whatever is queued on `stream` so far is a use that the free waits
 * for. The call orders nothing before that work. Generation 0: whatever block begins at the pointer now; else also
 * WEIR_ERR_STALE when the address has become another block since. Errors as above. */
WEIR_API WEIR_NODISCARD weir_status weir_use_record(weir_runtime *runtime, weir_block block, weir_stream stream);

WEIR_END
#endif
