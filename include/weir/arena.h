/* weir/arena.h: the device memory of static plans (weir/plan.h): arenas for a plan's tensors, stores of parameters
 * that arenas share, and pools that keep the memory of closed arenas for the next ones.
 *
 * A process has one pool per runtime, named in weir_arena_options.pool. What an arena had when it was closed stays live
 * in its client's account, as one block of its real length, and the client's next arena takes the smallest block of the
 * same class that is long enough, unless more of it would lie idle than the bound on waste allows. Memory passes to
 * another client only by a free, so that the ledger always names the owner. The kept bytes have a cap, beyond which the
 * block goes that has been idle longest; and when any request of the runtime finds no memory, a pressure callback
 * (weir/pressure.h) gives up what would cover it. Nothing here waits for a stream: blocks carry the marks of their last
 * runs (weir/uses.h). Device memory alone is kept. */
#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include <weir/memory.h>
#include <weir/plan.h>
#include <weir/uses.h>

WEIR_BEGIN

typedef struct weir_arena_pool weir_arena_pool;

typedef struct weir_arena_pool_options {
    size_t struct_size;
    uint64_t cap; /* of kept bytes; 0: an eighth of the runtime's budget as it is at the first get */
    /* a block may be longer than what is asked for by so many percent of that; 0: 25, half the step of sizes by powers
     * of two, on average */
    uint32_t waste;
    int priority; /* of the pressure callback */
} weir_arena_pool_options;

/* Gets the runtime's pool; the first call makes the pool. Every acquired pool is released once, before the runtime
 * ends.
 * `options`: NULL takes the options of the existing pool, or the defaults.
 * Errors: WEIR_ERR_INVALID (NULL, a waste beyond 1000), WEIR_ERR_CONFLICT (the pool has other options; the detail names
 * both), WEIR_ERR_SYSTEM, WEIR_ERR_FORKED.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_acquire(weir_runtime *runtime,
                                                            const weir_arena_pool_options *options,
                                                            weir_arena_pool **out);

/* With the last put, which counts open arenas in, all that is kept is freed and the pool is gone. Errors as
 * weir_free: it stays. NULL is nothing. Any thread, and not from a pressure callback. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_release(weir_arena_pool *pool);

/* Frees kept blocks, those idle longest first, until at most `keep` bytes are left: the client's alone (a client has
 * to have none before it can be closed), or, with NULL, those of all clients. `freed` (may be NULL) gets how many.
 * Errors: WEIR_ERR_INVALID, and as weir_free. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_trim(weir_arena_pool *pool, weir_client *client, uint64_t keep,
                                                         uint64_t *freed);

typedef struct weir_arena_pool_details {
    size_t struct_size;
    uint64_t cap;
    uint64_t kept;          /* bytes, as the ledger counts them; so do the cap and trimming */
    uint64_t taken, missed; /* arenas that found a block here, and that did not */
    uint64_t dropped;       /* blocks freed because of the cap */
    uint64_t given_up;      /* blocks freed under pressure */
    uint32_t blocks;        /* kept */
    uint32_t waste;
} weir_arena_pool_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_info(weir_arena_pool *pool, weir_arena_pool_details *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* A model's parameters on the device, in their own types and at fixed addresses.
 *
 * A store keeps parameters one behind the other in few blocks of a client's. A parameter may be added at any time. The
 * store then grows in place at its tail where the range behind the tail is free (weir_resize), else by a further block.
 * Addresses never change, so a captured graph may hold them. Weights in half precision (WEIR_TYPE_F16, WEIR_TYPE_BF16)
 * take two bytes an element here and nothing elsewhere, if the plan was made without a slot for them
 * (weir_node.elsewhere).
 *
 * A parameter is found by its name, or one of its names. Arenas look their tensors up here, so that any number of
 * plans, arenas and engines of a runtime share a single copy. Sizes are bytes unless elements are said. */

typedef struct weir_parameters weir_parameters;

/* The least that a store grows by, if nothing else is asked for: four granules of the host's driver (64 KiB), and an
 * eighth of the smallest piece of memory that a GPU maps (2 MiB; CUDA, cuMemGetAllocationGranularity on an H200). */
#define WEIR_PARAMETERS_STEP (UINT64_C(256) << 10)

typedef struct weir_parameters_options {
    size_t struct_size;
    /* Bytes of all parameters to come: the length of the first block. Padding that aligns parameters is either part of
     * this number or covered by expected_count; 0: not known */
    uint64_t expected;
    uint64_t step;    /* the least it grows by; 0: WEIR_PARAMETERS_STEP */
    size_t alignment; /* of every parameter, a power of two up to 2 MiB; 0: 256 */
    const char *tag;  /* how reports call the blocks; copied, cut at 47 bytes; NULL: "parameters" */
    uint32_t
        expected_count; /* so many parameters share `expected`: the first block is longer by what aligning them can take
                                at most, so that nothing has to grow; 0: `expected` is all of it */
} weir_parameters_options;

/* Opens a store, which takes no memory before the first parameter, and has one holder. `options` NULL: the defaults.
 * Its blocks are the client's, of the class WEIR_CLASS_WEIGHTS. Errors: WEIR_ERR_INVALID, WEIR_ERR_SYSTEM,
 * WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_create(weir_client *client, const weir_parameters_options *options,
                                                           weir_parameters **out);

/* One holder more: another engine or arena that reads the store. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_acquire(weir_parameters *store);

/* One holder less. With the last one the blocks are freed, behind every run that was declared (weir_arena_begin) and
 * all that weir_parameters_add queued, and the store is gone. WEIR_ERR_BUSY where the last one goes within such a
 * run, and the errors of weir_free: it stays with its holder, who then can do no more than release it again, as some
 * blocks may be gone. NULL is nothing. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_release(weir_parameters *store);

/* Adds a parameter and copies its contents from `from`, memory of the host's or the device's, in the order of the
 * stream; what is there stays as it is until the stream has come to the copy. NULL: the contents are undefined, for the
 * caller to write. A name that is there already, with the same type and as many elements, keeps its place and gets the
 * new contents. A parameter without elements exists, and has no address. `index` (may be NULL) gets its number, from 0
 * in the order of adding.
 *
 * Errors (the store stays as before): WEIR_ERR_INVALID (no name, one beyond 1023 bytes, a type that has no fixed
 * element, a size beyond 64 bits), WEIR_ERR_CONFLICT (the name is there, of another type or length: both are named),
 * WEIR_ERR_BUSY (a run that reads the store has begun and not ended, be it meanwhile, or the call comes from a pressure
 * callback of another one, be it to another store), WEIR_ERR_OUT_OF_MEMORY and the other errors of weir_alloc_with,
 * weir_resize and weir_copy.
 * Any thread; one adds after the other. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_add(weir_parameters *store, const char *name, weir_type type,
                                                        uint64_t elements, const void *from, weir_stream stream,
                                                        uint32_t *index);

/* A further name for `elements` of a parameter that is there, from its element `at` on: a weight that two layers share,
 * or what a tensor looks at that the plan has elsewhere. The name takes no memory, and is found like a parameter's own
 * name.
 * Errors: WEIR_ERR_INVALID (a name as above, elements that the parameter does not have: the detail has both),
 * WEIR_ERR_NOT_FOUND for `of`, WEIR_ERR_CONFLICT (the name is there, and is something else), WEIR_ERR_BUSY as above,
 * WEIR_ERR_SYSTEM, WEIR_ERR_FORKED.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_alias(weir_parameters *store, const char *name, const char *of,
                                                          uint64_t at, uint64_t elements);

typedef struct weir_parameter {
    size_t struct_size;
    const char *name; /* valid as long as the store */
    weir_type type;
    uint64_t elements, bytes;
    void *pointer; /* never changes; NULL without elements */
} weir_parameter;

/* The parameter called `name`; with NULL the one number `index`. WEIR_ERR_NOT_FOUND for a name, WEIR_ERR_INVALID for a
 * number that is none. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameter_info(weir_parameters *store, const char *name, uint32_t index,
                                                        weir_parameter *out);

typedef struct weir_parameters_details {
    size_t struct_size;
    uint32_t count;
    uint32_t blocks;  /* 1, if it could always grow in place */
    uint64_t bytes;   /* of the parameters themselves, further names left out */
    uint64_t charged; /* of the blocks, as the ledger counts them */
} weir_parameters_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_info(weir_parameters *store, weir_parameters_details *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* The memory that a plan's tensors lie in.
 *
 * An arena has one block of its client's for each kind of memory, as long as the longest of its plans. Several plans
 * over one block are *buckets*: the same model for other shapes, of which one runs at a time. Tensors are called by
 * bucket and by their index in the plan's list (weir/plan.h); a tensor's address never changes, because blocks only
 * grow in place. The contents of a slot belong to the run: a run of another bucket overwrites slots, also those of
 * persistent buffers. What has to outlive runs is a parameter, of which arenas share one copy.
 *
 * A plan is for a serial schedule: slots share bytes on the ground that one step is over when the next begins. So a
 * run is declared as a whole, on one stream, between weir_arena_begin and weir_arena_end, and two runs never overlap
 * on the device, be they on two streams. While a stream is captured nothing can be declared: declare the launches of
 * the graph.
 *
 * Looking is for any number of threads; what changes an arena is called by one thread at a time, with nobody looking.
 * Sizes are bytes. A refused call changes nothing. */

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
    const char *tag;         /* the arena's and its blocks' name in reports; copied, cut at 47 bytes; NULL: "arena" */
} weir_arena_options;

/* Opens an arena and allocates its memory: of each kind as much as the longest plan has (weir_plan_details.arena_of),
 * or the `room`, rounded up to 256, unless the pool hands it a longer block. Errors: WEIR_ERR_INVALID (no plan and no
 * room, a pool or parameters of another runtime, a tensor with an alignment beyond 2 MiB, a plan longer than any
 * device), WEIR_ERR_CORRUPT (weir_plan_check refuses a plan), WEIR_ERR_OUT_OF_MEMORY and the others of weir_alloc_with;
 * WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_create(weir_client *client, const weir_arena_options *options,
                                                      weir_arena **out);

/* Gives the memory back, to the pool or freed, behind all runs and the work on `stream`. WEIR_ERR_BUSY within a run;
 * the errors of weir_free, with which the arena stays, to be closed again and nothing else, as some of its blocks may
 * be gone. NULL is nothing. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_destroy(weir_arena *arena, weir_stream stream);

/* One bucket more; the plan outlives the arena. Where it is longer than all before, the blocks grow in place, in the
 * order of `stream`; `bucket` (may be NULL) gets its number. Errors: WEIR_ERR_NO_ROOM, naming what stands behind the
 * block: open the arena with this plan, or with more `room`; WEIR_ERR_BUSY within a run; WEIR_ERR_INVALID for an
 * alignment that the block does not have, and for a plan longer than any device; WEIR_ERR_CORRUPT for a plan that
 * weir_plan_check refuses; the errors of weir_resize. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_add(weir_arena *arena, const weir_plan *plan, weir_stream stream,
                                                   uint32_t *bucket);

/* Tensors ---------------------------------------------------------------------------------------------------------- */

typedef struct weir_arena_tensor {
    size_t struct_size;
    void *pointer;   /* its slot; NULL where the plan gives it none */
    uint64_t bytes;  /* its actual length: the plan's, or as weir_arena_set_length said */
    uint64_t length; /* of the slot: the upper limit of `bytes` */
    uint64_t offset; /* of the slot in the block of its kind */
    weir_kind kind;
    /* The tensor's parameter in the arena's store; type WEIR_TYPE_NONE: none. The parameter of the tensor's own name;
     * or, for a view of a persistent tensor with a parameter, the viewed elements of that parameter, under the
     * persistent tensor's name, with parameter.bytes counted in the parameter's type. A parameter takes precedence over
     * the slot, and may have been added after the plan was made. (`parameter` stays at the end so that weir_parameter
     * and this structure can grow.) */
    weir_parameter parameter;
} weir_arena_tensor;

/* Where a tensor is. A tensor with neither slot nor parameter is empty, or is a view of a tensor without storage in the
 * plan (weir_node.elsewhere); the plan cannot tell where such a view begins, so weir_parameters_alias has to.
 * WEIR_ERR_INVALID for NULL and for a bucket or tensor that is none. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_tensor_info(const weir_arena *arena, uint32_t bucket, uint32_t tensor,
                                                           weir_arena_tensor *out);

/* How much of its slot the tensor has from now on: a batch that is not full, a text that is shorter.
 * WEIR_ERR_INVALID, naming both, for more than the slot. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_set_length(weir_arena *arena, uint32_t bucket, uint32_t tensor,
                                                          uint64_t bytes);

/* Copies into the tensor's slot from `at` on, or out of it, in the order of the stream; between begin and end of a
 * run of its bucket, on the run's stream. Both keep to the tensor's actual length: WEIR_ERR_INVALID names the tensor
 * and both sizes. Other errors: those of weir_copy, WEIR_ERR_STREAM_MISUSE outside a run, or on another bucket's or
 * stream. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_write(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at,
                                                     const void *from, uint64_t bytes, weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status weir_arena_read(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at,
                                                    void *to, uint64_t bytes, weir_stream stream);

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* Begin declares a run of the bucket that is about to be queued on `stream`, and orders the stream behind earlier runs
 * and behind work that writes the parameters. End is called once the whole run is queued. Between begin and end the
 * memory cannot be freed or grow, and the store takes no further parameters.
 * Errors of begin: WEIR_ERR_BUSY (a run has begun), WEIR_ERR_INVALID, and those of weir_launch_begin; of end: those of
 * weir_launch_end, with which the run goes on, to be ended again or aborted, and WEIR_ERR_INVALID without a run.
 * Any thread; of two that begin at once one is WEIR_ERR_BUSY. */
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
