/* Marks of blocks for tools that watch a GPU's memory: compute-sanitizer's memcheck then knows a block's end to the
 * byte.
 *
 * A piece of memory that the driver gave is a "heap", of which nothing may be touched but what is marked as a
 * "region": the bytes of the block in it, without its margins. The tool takes as heaps what cuMemAlloc gave and
 * refuses handles that are mapped into a range (compute-sanitizer 2025.3.1: "One or more of the parameters is
 * invalid", for the whole range, a run and a single handle), so that the resource direct alone has marks. Copies and
 * fills by the driver it does not look at.
 *
 * All of it does nothing, in one comparison, while no tool is there. The tool is other people's code: no lock is held
 * around these calls, and the block is in the hands of the calling thread alone. */
#ifndef WI_NVTX_H
#define WI_NVTX_H

#include "memory/resource.h"

/* The block is in the piece [start, start + bytes), which cuMemAlloc gave for it alone. */
void wi_nvtx_enter(const wi_resource *resource, wi_block *block, uintptr_t start, uint64_t bytes);
/* block->bytes has changed. The tool judges a kernel by the marks at its launch, so that kernels in the queue are not
 * affected. */
void wi_nvtx_resize(const wi_resource *resource, wi_block *block);
/* The device is past the block, but its piece is kept: no access is valid. */
void wi_nvtx_bury(const wi_resource *resource, wi_block *block);
/* The piece goes back to the driver. */
void wi_nvtx_leave(const wi_resource *resource, wi_block *block);

#endif
