/* weir/arena.h: the memory that a plan's tensors lie in.
 *
 * An arena has one block of its client's for each kind of memory, as long as the longest of its plans. Several plans over one
 * block are *buckets*: the same model for other shapes, of which one runs at a time. Tensors are called by bucket and by
 * their index in the plan's list (weir/plan_buffers.h); a tensor's address never changes, because blocks only grow in place.
 * What is in a slot belongs to the run: another bucket's run overwrites it, that of persistent buffers too. What has to
 * outlive runs is a parameter (weir/parameters.h), of which arenas share one copy.
 *
 * A plan is for a serial schedule: slots share bytes on the ground that one step is over when the next begins. So a run is
 * declared as a whole, on one stream, between weir_arena_begin and weir_arena_end, and two runs never overlap on the device,
 * be they on two streams. While a stream is captured nothing can be declared: declare the launches of the graph.
 *
 * Looking is for any number of threads; what changes an arena is called by one thread at a time, with nobody looking. Sizes are
 * bytes. A refused call changes nothing. */
#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include <weir/arena_pool.h>
#include <weir/parameters.h>
#include <weir/plan.h>

WEIR_BEGIN

typedef struct weir_arena weir_arena;

typedef struct weir_arena_options {
    size_t struct_size;
    const weir_plan *const *plans; /* the first buckets, from number 0; each outlives the arena */
    size_t plan_count;
    uint64_t room;               /* device memory that it has at least, for plans to come */
    weir_parameters *parameters; /* where parameters are looked up; gets a holder; NULL: nowhere */
    weir_arena_pool *pool;   /* of the client's runtime; where device memory comes from and goes to; NULL: the client */
    bool clear;              /* its memory is zero when the stream comes to this point, wherever it is from */
    weir_class memory_class; /* WEIR_CLASS_OTHER, which is 0, means WEIR_CLASS_ACTIVATIONS */
    weir_stream stream;      /* where it is allocated */
    const char *tag;         /* how reports call it and what it allocates; copied, cut at 47 bytes; NULL: "arena" */
} weir_arena_options;

/* The bytes of one kind of memory that an arena of these plans is charged, apart from what a resource's adaptors add, and
 * unless a pool hands it a longer block. 0 without plans; UINT64_MAX for one that is longer than any device. */
WEIR_API uint64_t weir_arena_bytes(const weir_plan *const *plans, size_t count, weir_kind kind);

/* Opens an arena and allocates its memory. Errors: WEIR_ERR_INVALID (no plan and no room, a pool or parameters of another
 * runtime, a tensor with an alignment beyond 2 MiB, a plan longer than any device), WEIR_ERR_CORRUPT (weir_plan_check refuses a
 * plan), WEIR_ERR_OUT_OF_MEMORY and the others of weir_alloc_with; WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_create(weir_client *client, const weir_arena_options *options,
                                                      weir_arena **out);

/* Gives the memory back, to the pool or freed, behind all runs and the work on `stream`. WEIR_ERR_BUSY within a run; the errors of
 * weir_free, with which the arena stays, to be closed again and nothing else, as some of its blocks may be gone. NULL is
 * nothing. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_destroy(weir_arena *arena, weir_stream stream);

/* One bucket more; the plan outlives the arena. Where it is longer than all before, the blocks grow in place, in the order of
 * `stream`; `bucket` (may be NULL) gets its number. Errors: WEIR_ERR_NO_ROOM, naming what stands behind the block: open the arena
 * with this plan, or with more `room`; WEIR_ERR_BUSY within a run; WEIR_ERR_INVALID for an alignment that the block does not have,
 * and for a plan longer than any device; WEIR_ERR_CORRUPT for one that weir_plan_check refuses; those of weir_resize. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_add(weir_arena *arena, const weir_plan *plan, weir_stream stream,
                                                   uint32_t *bucket);

/* Tensors ---------------------------------------------------------------------------------------------------------- */

typedef struct weir_arena_tensor {
    size_t struct_size;
    void *pointer;   /* its slot; NULL where the plan gives it none */
    uint64_t bytes;  /* its actual length: the plan's, or as weir_arena_set_length said */
    uint64_t length; /* of the slot: the most that it may have */
    uint64_t offset; /* of the slot in the block of its kind */
    weir_kind kind;
    /* (The last member, so that both structures can grow.) Its parameter, if the arena's store has one: of its own name; or, where it looks at bytes of a persistent tensor with a
     * parameter of that name, the elements there (which have parameter.bytes of another type, and the same name). It comes before
     * the slot, and may have been added after the plan was made. type WEIR_TYPE_NONE: there is none. */
    weir_parameter parameter;
} weir_arena_tensor;

/* Where a tensor is. A tensor that has neither slot nor parameter is empty, or looks at one that the plan has elsewhere: of
 * that the plan has no bytes, so that weir_parameters_alias has to say where it begins there. WEIR_ERR_INVALID for NULL and for
 * a bucket or tensor that is none. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_tensor_info(const weir_arena *arena, uint32_t bucket, uint32_t tensor,
                                                           weir_arena_tensor *out);

/* How much of its slot the tensor has from now on: a batch that is not full, a text that is shorter. WEIR_ERR_INVALID, naming both,
 * for more than the slot. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_set_length(weir_arena *arena, uint32_t bucket, uint32_t tensor,
                                                          uint64_t bytes);

/* Copies into the tensor's slot from `at` on, or out of it, in the order of the stream; between begin and end of a run of
 * its bucket, on the run's stream. Both keep to the tensor's actual length: WEIR_ERR_INVALID names the tensor and both sizes.
 * Other errors: those of weir_copy, WEIR_ERR_STREAM_MISUSE outside a run, or on another bucket's or stream. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_write(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at,
                                                     const void *from, uint64_t bytes, weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status weir_arena_read(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at,
                                                    void *to, uint64_t bytes, weir_stream stream);

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* A run of the bucket on `stream` is about to be queued: orders the stream behind the runs before, and behind what writes
 * the parameters; end, when all of it is queued. Between the two the memory cannot be freed or grow, and the store takes no
 * further parameters. Errors of begin: WEIR_ERR_BUSY (a run has begun), WEIR_ERR_INVALID, and those of weir_launch_begin; of end:
 * those of weir_launch_end, with which the run goes on, to be ended again or aborted, and WEIR_ERR_INVALID without a run. Any
 * thread; of two that begin at once one is WEIR_ERR_BUSY. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_begin(weir_arena *arena, uint32_t bucket, weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status weir_arena_end(weir_arena *arena);

/* Ends the run and remembers nothing of it: nothing was queued, or what was is done (weir_stream_synchronize), or never
 * will be, as the device is lost. Other work would not be waited for. Without a run, nothing. Any thread. */
WEIR_API void weir_arena_abort(weir_arena *arena);

typedef struct weir_arena_details {
    size_t struct_size;
    uint64_t planned[WEIR_KIND_MOST]; /* the longest plan, by kind of memory */
    uint64_t held[WEIR_KIND_MOST];    /* the block */
    void *base[WEIR_KIND_MOST];       /* NULL where there is none */
    uint32_t buckets;
    bool running;
} weir_arena_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_info(const weir_arena *arena, weir_arena_details *out);

WEIR_END
#endif
