/* Marks of blocks (NVTX) for tools that watch a GPU's memory: with them, compute-sanitizer's memcheck knows the end of
 * a block to the byte.
 *
 * To the tool, a piece of memory that the driver gave is a "heap". Only its "regions" may be accessed: the bytes of the
 * block in it, without margins. As heaps the tool takes what cuMemAlloc gave, and refuses memory that is mapped into a
 * range (compute-sanitizer 2025.3.1: "One or more of the parameters is invalid", for the whole range, a run and a
 * single handle). So only the resource "direct" has marks. The tool does not check copies and fills of the driver's.
 *
 * Without a tool a call costs one comparison. The tool is foreign code: no lock is held around these calls, and the
 * block is claimed or not yet published. */
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
