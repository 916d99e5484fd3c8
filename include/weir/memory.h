/* weir/memory.h: allocation, free and resizing in stream order; what a block is; why a request was refused.
 *
 * A block allocated on a stream may be used by work put on that stream afterwards. A free is ordered on its stream:
 * work queued there before it still finds the block. The next block on the same stream may have the bytes at once, as
 * its work comes behind; on any other stream, or on none, they are somebody's only when the device is past the free,
 * or when that stream has been ordered behind it. Sizes are bytes. The charge of a block is its size rounded up to
 * 256 (the alignment that CUDA's own allocator and ONNX Runtime's CUDA provider promise: cuda.h, cuMemAlloc;
 * onnxruntime 1.31 kAllocAlignment), and to what else a resource rounds (weir/runtime.h); it is stored in the block
 * and returned exactly. */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include <weir/stream.h>

WEIR_BEGIN

/* What the bytes are for; reports and guarantees speak in these. */
typedef enum weir_class {
    WEIR_CLASS_OTHER = 0,
    WEIR_CLASS_WEIGHTS = 1, /* lives as long as the model: kept apart from what comes and goes */
    WEIR_CLASS_ACTIVATIONS = 2,
    WEIR_CLASS_SCRATCH = 3,
    WEIR_CLASS_KV = 4,
    WEIR_CLASS_COUNT = 5
} weir_class;

enum { WEIR_CLASS_MOST = 8 }; /* places by class in structures, so that classes can be added */

/* A block by name: the address alone cannot tell a block from a later one at the same place. */
typedef struct weir_block {
    void *pointer;
    uint64_t generation; /* unique within the process, from 1; 0 with a NULL pointer */
} weir_block;

enum {
    WEIR_ALLOC_ZEROED = 1u << 0,  /* the bytes are zero when the stream reaches this point */
    WEIR_ALLOC_NO_WAIT = 1u << 1, /* refuse, or hold more, rather than wait for pending frees */
    WEIR_ALLOC_STABLE = 1u << 2   /* the address stays mapped to the same physical memory while the block lives */
};

typedef struct weir_request {
    size_t struct_size;
    size_t bytes;
    size_t alignment; /* a power of two up to 2 MiB; 0 is 256 */
    weir_stream stream;
    weir_class memory_class;
    const char *tag; /* the caller's name for it, copied, cut at 47 bytes; NULL is none. A process has 65,536 different
                        ones: of later ones blocks have none, which weir_stats.lost_tags counts and the log says once */
    uint32_t flags;
    weir_reservation *reservation; /* the client's, which the charge comes out of; NULL: it is claimed now */
    weir_kind kind;                /* WEIR_KIND_DEVICE, or memory of the host's: see below */
    /* The client's capture pool that the block is to be of (weir/stream.h), whether its stream is captured or not, and
     * whatever weir_capture_begin said; NULL: that of the capture. Device memory, no zeros and no reservation. */
    struct weir_capture_pool *pool;
} weir_request;

/* Allocates `bytes` on `stream` for the client. Zero bytes: WEIR_OK, NULL, nothing charged. On failure *out is NULL and
 * nothing has changed. Errors: WEIR_ERR_OUT_OF_MEMORY (weir_refusal_last has the numbers), WEIR_ERR_INVALID (a class or
 * client that is none, a size that no device could have), WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER, WEIR_ERR_FORKED. May
 * block while the driver maps memory and, without WEIR_ALLOC_NO_WAIT, for pending frees: up to the option `wait`
 * (default 1 s) before it would be refused; and 10 ms at most, where streams have freed something, before more
 * memory would be held than was in use (the option `reuse_wait`: percent of the time). Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_alloc(weir_client *client, size_t bytes, weir_stream stream,
                                               weir_class memory_class, void **out);

/* The same with everything said; flags that are none and alignments that are no power of two are WEIR_ERR_INVALID.
 *
 * Pinned and pageable memory for work with a device is one allocation of the driver's per block. It counts in the
 * ledger of the host's runtime (weir/runtime.h, `host`), in an account of the client's name, which is opened with the
 * first such block and closed with the client: the host's budget bounds it, refusals name the host, and the client's
 * limits are not asked. Everything else is as for device memory: it is ordered on the device's streams, freed,
 * resized (within the 256 that a charge is rounded to) and found by its pointer with the same calls. The first use of
 * it in a process starts the host's runtime. Reservations are of device memory. A host's runtime has memory of one
 * kind, which serves for all three. Errors besides: WEIR_ERR_UNSUPPORTED where the driver has no such memory. */
WEIR_API WEIR_NODISCARD weir_status weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);

/* Frees the block that starts at `pointer`, ordered behind the work on `stream`; WEIR_STREAM_ALL: behind that of every
 * stream, as cuMemFree, but without a wait where the driver can say when that is. NULL: WEIR_OK.
 * Errors (nothing changes): WEIR_ERR_FOREIGN (no block of this client's runtime, or another client's: the detail names
 * it), WEIR_ERR_INTERIOR (names the block and the offset), WEIR_ERR_DOUBLE_FREE, WEIR_ERR_BUSY (a launch that uses it
 * has not ended, weir/uses.h, or another thread is freeing or resizing it), WEIR_ERR_STREAM_MISUSE (no stream of the
 * runtime's, or one that is captured: weir/stream.h says what of that is seen), WEIR_ERR_FORKED.
 * Any thread, not only the allocating thread. A pointer that is stale, at whose address another block of the same
 * client lives by now, frees that block: weir_free_block with the generation refuses it.
 * Waits for no work; where each block is an allocation of the driver's (the resource direct, pinned and pageable
 * memory) a free that the device is past goes to the driver at once, whose own call may wait for the device (cuMemFree
 * does). */
WEIR_API WEIR_NODISCARD weir_status weir_free(weir_client *client, void *pointer, weir_stream stream);

/* The same by name: also WEIR_ERR_STALE when the address has become another block since. */
WEIR_API WEIR_NODISCARD weir_status weir_free_block(weir_client *client, weir_block block, weir_stream stream);

/* Makes the block `bytes` long without moving it. Shrinking returns the tail, ordered on `stream`, and always works; a
 * resource whose memory has no parts keeps the tail for the block (weir/runtime.h, WEIR_FEATURE_SHRINKS). Growing works
 * where the range behind it is free and the limits allow: WEIR_ERR_NO_ROOM names what stands there,
 * WEIR_ERR_OUT_OF_MEMORY the limit; the block is unchanged in both cases. What the client's scrub policy asks for is
 * done to the new part alone: on `stream` where that is the block's own and no other has used it, else at once. If it
 * cannot be, the block keeps its length: WEIR_ERR_NO_ROOM also where the new part has to be zeroed at once and work
 * that stands before the block on its own stream may still write it (segments leaves bytes behind a block). Zero bytes
 * is WEIR_ERR_INVALID (free it instead). Other errors as weir_free. */
WEIR_API WEIR_NODISCARD weir_status weir_resize(weir_client *client, void *pointer, size_t bytes, weir_stream stream);

typedef enum weir_block_state {
    WEIR_BLOCK_LIVE = 0,
    WEIR_BLOCK_PENDING = 1, /* freed; the device is not yet past it */
    WEIR_BLOCK_FREE = 2     /* weir's memory, in no block */
} weir_block_state;

/* A point in the work of a stream. */
typedef struct weir_block_wait {
    weir_stream stream; /* WEIR_STREAM_HOST for a gone stream whose work goes on */
    uint64_t point;     /* of two on one stream, the larger comes later */
} weir_block_wait;

enum { WEIR_BLOCK_WAITS = 16 };

typedef struct weir_block_details {
    size_t struct_size;
    weir_block block;          /* the block's start and generation; generation 0 when FREE */
    size_t offset;             /* of the pointer asked about, from the start */
    size_t bytes;              /* as requested */
    size_t charged;            /* as the ledger counts it */
    const weir_client *client; /* NULL when FREE */
    const weir_runtime *runtime;
    weir_class memory_class;
    weir_block_state state;
    weir_stream stream; /* where it was allocated */
    char tag[48];       /* "" is none */
    weir_kind kind;     /* WEIR_KIND_DEVICE for all memory of a host's runtime */
    /* What the device is not past: of a PENDING block the points that it waits for, of a LIVE one those that declared
     * uses have left (weir/uses.h), for which a free would wait. The latest of each stream; more than WEIR_BLOCK_WAITS
     * are left out, and all while a thread frees or resizes the block or a graph holds it. What is FREE in the order of
     * a stream alone, weir/stats.h tells. */
    uint32_t waits; /* so many of wait[] are filled */
    weir_block_wait wait[WEIR_BLOCK_WAITS];
} weir_block_details;

/* Tells what `pointer`, which may point into a block, belongs to. WEIR_ERR_FOREIGN when it is no memory of weir's. A
 * look at a moment: another thread may free the block before the caller reads the answer. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_block_info(const void *pointer, weir_block_details *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Why there was no memory, in numbers. weir_detail() says the same in words. */

typedef enum weir_refusal_cause {
    WEIR_CAUSE_NONE = 0,
    WEIR_CAUSE_BUDGET = 1,  /* the device's budget is spent or guaranteed to others */
    WEIR_CAUSE_MAXIMUM = 2, /* the client's own maximum */
    WEIR_CAUSE_FRAGMENTATION =
        3,                  /* enough bytes are free (remaining >= requested), but not in one piece, or others hold
                                     what they do not use */
    WEIR_CAUSE_PENDING = 4, /* freed bytes that the device is not past would do */
    WEIR_CAUSE_DEVICE = 5,  /* not set: weir does not know who has the rest, and always says 6 */
    /* the driver has no more, though the budget would allow it: another process holds the rest, or memory outside of
     * weir in this one */
    WEIR_CAUSE_OTHER_PROCESS = 6,
    WEIR_CAUSE_ADDRESS_RANGE = 7, /* larger than the range of addresses of this runtime; or the process has as many
                                     mappings as the system allows it, less some that are left to the rest of it */
    WEIR_CAUSE_RESERVATION = 8,   /* more than what is left of the reservation that it was to come from */
    WEIR_CAUSE_ADAPTOR = 9,       /* an adaptor of the program's own (weir/adaptor.h); the detail has its words */
    WEIR_CAUSE_COUNT = 10
} weir_refusal_cause;

enum { WEIR_REFUSAL_HOLDERS = 4 };

/* The numbers are from before the request, without the bytes claimed for the request meanwhile. What a reservation, or
 * the promise of an elastic block, has for the request counts as remaining. */
typedef struct weir_refusal {
    size_t struct_size;
    weir_refusal_cause cause;
    char client[64]; /* who asked */
    char device[32];
    weir_class memory_class;
    uint64_t requested; /* bytes asked for, as they would have been charged */
    uint64_t current;   /* what the client had live, pending and promised */
    uint64_t remaining; /* what was left for the client under the refusing limit */
    uint64_t limit;     /* that limit: the budget or the maximum */
    uint64_t largest;   /* the largest request that would have been met */
    uint64_t needed;    /* the value of that limit under which this request would have been met, other limits apart;
                           UINT64_MAX: none */
    struct {
        char client[64];
        uint64_t bytes;              /* live + pending, or guaranteed if that is more */
    } holders[WEIR_REFUSAL_HOLDERS]; /* most first; an empty name ends the list */
    uint64_t number;                 /* of the process's refusals, from 1; 0: none */
} weir_refusal;

/* Returns the calling thread's last refusal; cause WEIR_CAUSE_NONE and number 0 if it had none. Each thread has its
 * own: what is refused to other threads changes nothing here, also what an engine's own threads ask for in a call of
 * this one. It stays when a later call works, or fails otherwise. So a refusal belongs to a call if `number` differs
 * from the number before the call. Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. */
WEIR_API WEIR_NODISCARD weir_status weir_refusal_last(weir_refusal *out);

WEIR_END
#endif
