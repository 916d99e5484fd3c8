/* PyTorch's seam, inside: the memory of captures' pools (torch_pools.c), and streams that use a block besides its own (torch_uses.c), beside what
 * is allocated as ever (torch.c). */
#ifndef WSEAM_TORCH_H
#define WSEAM_TORCH_H

#include <weir/weir.h>

enum { WTORCH_DEVICES = 64 };

/* The client of the device; NULL: none was opened. */
weir_client *wtorch_client(int device);
/* The same, which is opened where there is none yet. NULL: it could not be; weir_detail says why. */
weir_client *wtorch_client_open(int device);

/* Allocates from the pool whose filter accepts the stream: the pool of a graph that is captured, or one that the program
 * has asked for. `stream` is weir's for `native`; WEIR_STREAM_HOST: captured, and weir does not know it. False: no pool is
 * filled by that stream, and nothing was done. Costs nothing while none is filled. */
bool wtorch_pool_alloc(int device, size_t bytes, void *native, weir_stream stream, weir_status *status, void **out);
/* False: the block is of no pool, and is the caller's to free. */
bool wtorch_pool_free(const void *pointer);
/* Gives back the memory of pools that nobody uses any more, where nothing is captured now. */
void wtorch_pools_reclaim(void);

/* Frees a block of PyTorch's behind the stream and what weir knows of its uses. */
void wtorch_give_back(weir_client *client, void *pointer, weir_stream stream);

/* record_stream (torch_uses.c). False: no host memory. */
bool wtorch_use_note(weir_client *client, void *pointer, void *native);
/* Frees the block behind what the noted streams have to do now. False: none was noted, and nothing was done. */
bool wtorch_use_free(void *pointer, weir_stream stream);
/* Frees what a capture has held up, where it is over. */
void wtorch_uses_again(void);

/* States, and hooks for the pluggable allocator; torch_abi.h. */
void *wtorch_state_get(int device, const uint64_t *id);
void wtorch_state_drop(void *given);
void wtorch_state_set(void *given, void (*freed)(void *user, void *pointer),
                      void (*alive)(void *user, void *pointer, size_t bytes, void *native), void *user);

#endif
