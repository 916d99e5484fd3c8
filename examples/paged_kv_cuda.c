/* paged_kv_cuda.c: the kernels of paged_kv_kernels.h on a GPU, compiled at run time. */
#include "paged_kv.h"
#include "nvrtc.h"

#include <stdio.h>
#include <stdlib.h>

/* The text of the kernels, as a part of the program. */
__asm__(".pushsection .rodata\n"
        "paged_kv_text:\n"
        ".incbin \"" PAGED_KV_KERNELS "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char paged_kv_text[];

static const char grid_text[] = "\nextern \"C\" __global__ void paged_grid(paged_work w)\n"
                                "{\n"
                                "    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
                                "    if (i < w.count)\n"
                                "        paged_step(&w, i);\n"
                                "}\n";

static void *kernel;

weir_status paged_cuda_open(int device)
{
    char *text = NULL;
    weir_status status = nvrtc_open(device);
    if (status == WEIR_OK && asprintf(&text, "%s%s", paged_kv_text, grid_text) < 0)
        status = WEIR_ERR_SYSTEM;
    if (status == WEIR_OK)
        status = nvrtc_compile(device, text, "paged_grid", &kernel);
    free(text);
    return status;
}

weir_status paged_cuda_queue(paged_work *work, weir_stream stream)
{
    return nvrtc_launch(kernel, work->count, work, stream);
}
