/* paged_kv.h: what the parts of the example share: work that is queued on a stream. */
#ifndef EXAMPLE_PAGED_KV_H
#define EXAMPLE_PAGED_KV_H

#include <weir/weir.h>

#include "paged_kv_kernels.h"

/* Makes the kernels for a GPU ready. WEIR_ERR_NOT_FOUND names what is not here. */
weir_status paged_cuda_open(int device);
weir_status paged_cuda_queue(paged_work *work, weir_stream stream);

#endif
