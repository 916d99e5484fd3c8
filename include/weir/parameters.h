/* weir/parameters.h: a model's parameters on the device: each of its own type, none of them ever moved.
 *
 * A store keeps parameters one behind the other in few blocks of a client's. It grows when one is added, at any time: in place
 * at its tail, where the range behind it is free (weir_resize), and else by a further block; what is there stays where it is, so
 * that a captured graph may hold the addresses. Weights in half precision (WEIR_TYPE_F16, WEIR_TYPE_BF16) take two bytes an element
 * here and nothing elsewhere, if the plan was made without a slot for them (weir_node.elsewhere).
 *
 * A parameter is found by its name, or one of its names. Arenas (weir/arena.h) look their tensors up here, so that any number
 * of plans, arenas and engines of one runtime share one copy. Sizes are bytes unless elements are said. */
#ifndef WEIR_PARAMETERS_H
#define WEIR_PARAMETERS_H

#include <weir/memory.h>
#include <weir/tensor.h>

WEIR_BEGIN

typedef struct weir_parameters weir_parameters;

/* The least that a store grows by, if nothing else is asked for: four granules of the host's driver (64 KiB), and an eighth of
 * the smallest piece of memory that a GPU maps (2 MiB; CUDA, cuMemGetAllocationGranularity on an H200). */
#define WEIR_PARAMETERS_STEP (UINT64_C(256) << 10)

typedef struct weir_parameters_options {
    size_t struct_size;
    uint64_t expected; /* bytes of all that will come: the first block is as long, and what is put between parameters to
                          align them has to be in that, or in the count below; 0: not known */
    uint64_t step;     /* the least it grows by; 0: WEIR_PARAMETERS_STEP */
    size_t alignment;  /* of every parameter, a power of two up to 2 MiB; 0: 256 */
    const char *tag;   /* how reports call the blocks; copied, cut at 47 bytes; NULL: "parameters" */
    uint32_t
        expected_count; /* so many parameters share `expected`: the first block is longer by what aligning them can take
                                at most, so that nothing has to grow; 0: `expected` is all of it */
} weir_parameters_options;

/* Opens a store, which takes no memory before the first parameter, and has one holder. `options` NULL: the defaults. Its blocks
 * are the client's, of the class WEIR_CLASS_WEIGHTS. Errors: WEIR_ERR_INVALID, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_create(weir_client *client, const weir_parameters_options *options,
                                                           weir_parameters **out);

/* One holder more: another engine or arena that reads the store. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_acquire(weir_parameters *store);

/* One holder less. With the last one the blocks are freed, behind every run that was declared (weir_arena_begin) and all that
 * weir_parameters_add queued, and the store is gone. WEIR_ERR_BUSY where the last one goes within such a run, and the errors of
 * weir_free: it stays with its holder, who then can do no more than release it again, as some blocks may be gone. NULL is
 * nothing. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_release(weir_parameters *store);

/* Adds a parameter and copies its contents from `from`, memory of the host's or the device's, in the order of the stream;
 * what is there stays as it is until the stream has come to the copy. NULL: the contents are undefined, for the caller to
 * write. A name that is there already, with the same type and as many elements, keeps its place and gets the new contents.
 * No elements: it is there, and has no address. `index` (may be NULL) gets its number, from 0 in the order of adding.
 *
 * Errors, each of which leaves the store as it was: WEIR_ERR_INVALID (no name, one beyond 1023 bytes, a type that has no fixed
 * element, a size beyond 64 bits), WEIR_ERR_CONFLICT (the name is there, of another type or length: both are named), WEIR_ERR_BUSY
 * (a run that reads the store has begun and not ended, be it meanwhile, or the call comes from a pressure callback of
 * another one, be it to another store), WEIR_ERR_OUT_OF_MEMORY and the other errors of weir_alloc_with, weir_resize and
 * weir_copy. Any thread; one adds after the other. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_add(weir_parameters *store, const char *name, weir_type type,
                                                        uint64_t elements, const void *from, weir_stream stream,
                                                        uint32_t *index);

/* A further name for `elements` of a parameter that is there, from its element `at` on: a weight that two layers share, or
 * what a tensor looks at that the plan has elsewhere. It takes no memory, and is found as any other. Errors: WEIR_ERR_INVALID
 * (a name as above, elements that the parameter does not have: the detail has both), WEIR_ERR_NOT_FOUND for `of`, WEIR_ERR_CONFLICT
 * (the name is there, and is something else), WEIR_ERR_BUSY as above, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_alias(weir_parameters *store, const char *name, const char *of,
                                                          uint64_t at, uint64_t elements);

typedef struct weir_parameter {
    size_t struct_size;
    const char *name; /* valid as long as the store */
    weir_type type;
    uint64_t elements, bytes;
    void *pointer; /* never changes; NULL without elements */
} weir_parameter;

/* By number: WEIR_ERR_INVALID for one that is none. By name: WEIR_ERR_NOT_FOUND. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_get(weir_parameters *store, uint32_t index, weir_parameter *out);
WEIR_API WEIR_NODISCARD weir_status weir_parameters_find(weir_parameters *store, const char *name, weir_parameter *out);

typedef struct weir_parameters_details {
    size_t struct_size;
    uint32_t count;
    uint32_t blocks;  /* 1, if it could always grow in place */
    uint64_t bytes;   /* of the parameters themselves, further names left out */
    uint64_t charged; /* of the blocks, as the ledger counts them */
} weir_parameters_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_parameters_info(weir_parameters *store, weir_parameters_details *out);

WEIR_END
#endif
