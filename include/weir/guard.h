/* weir/guard.h: writes past blocks and after frees, and blocks that were forgotten: what the adaptor guard finds.
 *
 * A runtime whose stack has a guard ("guard(mapped)", or any runtime with WEIR_POISON=1) puts red zones before and
 * behind each block and fills them with one byte, a new block with another (0xA5: what was never written shows), and
 * a freed one with a third (0xDD), and then keeps it back for a while. (Of the device's memory; pinned and pageable
 * blocks have none.) Damaged zones are found at the free, writes after the free when the memory is given up; all of
 * it without the device being waited for more than a free does anyway.
 *
 *   guard(zone=256, quarantine=16MiB, poison=0xA5, unmapped, mapped)
 *
 * `zone` is the length of each red zone, rounded up to 256, the one before a block to its alignment; what is left
 * between a block's last byte and the next multiple of 256 belongs to the zone behind it. `quarantine` bounds the
 * freed blocks that are kept back (0: none are); they are charged as pending, are given up oldest first, and all of
 * them before a request is refused, by weir_runtime_trim and when a client is closed. `poison` is the byte that new
 * blocks are filled with. `unmapped` leaves no zone behind a block but a page of the device that is mapped nowhere,
 * so that a write (or a read) there stops the program where it is made; only with bases that have addresses to spare:
 * mapped. Each block then takes whole granules. Under a guard a block that is cut keeps its charge, and none can grow
 * beyond the size that it was made with; a resize on WEIR_STREAM_HOST waits for the poison, which is queued on the
 * block's stream. */
#ifndef WEIR_GUARD_H
#define WEIR_GUARD_H

#include <weir/memory.h>

WEIR_BEGIN

typedef enum weir_guard_kind {
    WEIR_GUARD_OVERRUN = 0,        /* bytes behind the block were written */
    WEIR_GUARD_UNDERRUN = 1,       /* bytes before it */
    WEIR_GUARD_USE_AFTER_FREE = 2, /* bytes of it were written after its free */
    WEIR_GUARD_OVERLAP = 3, /* the block was allocated over another block: a mistake of the resource's, not of the
                               caller's */
    WEIR_GUARD_COUNT
} weir_guard_kind;

typedef struct weir_guard_report {
    size_t struct_size;
    weir_guard_kind kind;
    weir_class memory_class;
    weir_block block;
    size_t bytes; /* of the block, as its user knows it */
    char client[64], tag[48];
    int64_t offset;   /* of the first damaged byte from the block's start; below 0 before it */
    uint64_t damaged; /* bytes that changed in that zone or block; for an overlap, bytes that two blocks share */
    unsigned char expected, found; /* what the guard wrote there, and what the first damaged byte holds */
    bool live;                     /* found by weir_guard_check, before a free */
    weir_stream allocated, freed;  /* on which stream; `freed` says nothing while it is live */
    weir_block other;              /* of an overlap: the earlier block */
} weir_guard_report;

/* Reports the damage found so far, oldest first: `reports` (may be NULL with capacity 0) gets up to `capacity` of the
 * first 256; its member struct_size in the first element says how long each is. `count` (may be NULL) gets how many
 * there were, also beyond 256. A block is reported once for each kind. Each report also goes to the log as an error.
 * WEIR_ERR_UNSUPPORTED for a runtime without a guard, WEIR_ERR_INVALID. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_guard_reports(weir_runtime *runtime, weir_guard_report *reports,
                                                       size_t capacity, size_t *count);

/* Looks at the zones of all live blocks and at the blocks that are kept back, now. WEIR_ERR_CORRUPT with the first
 * damage in words, which is reported too, as are all others. That no work is queued on the device is the caller's
 * promise: damage done later is found later. Other threads may allocate and free meanwhile. Blocks;
 * WEIR_ERR_UNSUPPORTED without a guard, WEIR_ERR_DRIVER when the device cannot be read. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_guard_check(weir_runtime *runtime);

typedef struct weir_guard_leak {
    size_t struct_size;
    weir_block block;
    size_t bytes;
    const weir_client *client;
    char name[64], tag[48]; /* of the client; of the block */
    weir_class memory_class;
    weir_stream stream; /* where it was allocated */
} weir_guard_leak;

/* The live blocks, oldest (of the lowest generation) first: what was forgotten, when everything should have been freed.
 * `leaks`, `capacity` and `count` as above, without a bound. What a client that still has blocks is closed with is also
 * written into the log, as warnings, summed by tag. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_guard_leaks(weir_runtime *runtime, weir_guard_leak *leaks, size_t capacity,
                                                     size_t *count);

WEIR_END
#endif
