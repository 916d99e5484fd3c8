/* parts.h: what table.c and memory.c share. */
#ifndef WL_PARTS_H
#define WL_PARTS_H

#include "memory.h"

weir_status wl_memory_begin(const ort_api *api);
/* What the calling thread is at work for; NULL: nothing of ours. */
wl_phase *wl_memory_phase(void);
/* The class of what the calling thread asks for from now on; answers what it was. */
weir_class wl_memory_class(weir_class next);
/* GenAI's allocators, of the host and of the device, and what ONNX Runtime had for the latter. */
ort_allocator *wl_memory_of_host(void);
ort_allocator *wl_memory_of_device(ort_allocator *theirs);
ort_allocator *wl_memory_theirs(ort_allocator *allocator);
/* GenAI works on this stream (a cudaStream_t) from now on. */
void wl_memory_stream(void *native);

#endif
