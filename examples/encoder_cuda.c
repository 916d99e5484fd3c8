/* encoder_cuda.c: the same work on a GPU: encoder_kernels.h compiled at run time by NVRTC, products by cuBLAS. All libraries
 * are opened when they are wanted, so that the example builds and runs without. */
#include "encoder.h"
#include "nvrtc.h"

#include <stdio.h>
#include <stdlib.h>

/* The text of the kernels, as a part of the program. */
__asm__(".pushsection .rodata\n"
        "encoder_text:\n"
        ".incbin \"" ENCODER_KERNELS "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char encoder_text[];

static const char grid_text[] = "\nextern \"C\" __global__ void encoder_grid(encoder_work w)\n"
                                "{\n"
                                "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
                                "    if (i < w.count)\n"
                                "        encoder_step(&w, i);\n"
                                "}\n";

static struct {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*product)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   long long sa, const float *b, int ldb, long long sb, const float *beta, float *c, int ldc,
                   long long sc, int batch);
} cublas;

static struct {
    void *kernel, *handle;
} gpu;

static weir_status find_products(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    void *library = nvrtc_library(names);
    const nvrtc_symbol symbols[] = {{library, "cublasCreate_v2", &cublas.create},
                                    {library, "cublasSetStream_v2", &cublas.set_stream},
                                    {library, "cublasSgemmStridedBatched", &cublas.product}};
    return nvrtc_find(symbols, sizeof symbols / sizeof *symbols, "libcublas of CUDA 12 or 13 is wanted");
}

static weir_status compile(int device)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s", encoder_text, grid_text) < 0)
        return WEIR_ERR_SYSTEM;
    weir_status status = nvrtc_compile(device, text, "encoder_grid", &gpu.kernel);
    free(text);
    return status;
}

weir_status encoder_cuda_open(encoder *e, int device)
{
    weir_status status = find_products();
    if (status == WEIR_OK)
        status = nvrtc_open(device); /* the context is the thread's from here on */
    if (status == WEIR_OK)
        status = compile(device);
    if (status == WEIR_OK)
        status = nvrtc_worked(cublas.create(&gpu.handle), "cublasCreate");
    return status == WEIR_OK
               ? nvrtc_worked(cublas.set_stream(gpu.handle, weir_stream_native(e->stream)), "cublasSetStream")
               : status;
}

/* Row by row is column by column of the transposed: b times a. One product for all rows where the right one is a weight. */
static weir_status multiply(const encoder_work *w)
{
    const float one = 1, none = 0;
    int64_t rows = w->dims[w->rank - 1], batch = w->count / w->columns / rows, matrix = 0;
    for (int d = 0; d < w->rank - 1; d++)
        matrix |= w->strides[1][d];
    if (matrix == 0) {
        rows *= batch;
        batch = 1;
    }
    int n = (int)w->columns, k = (int)w->inner;
    return nvrtc_worked(cublas.product(gpu.handle, 0, 0, n, (int)rows, k, &one, w->in[1], n, (long long)n * k, w->in[0],
                                       k, (long long)rows * k, &none, w->out, n, (long long)rows * n, (int)batch),
                        "cublasSgemmStridedBatched");
}

weir_status encoder_cuda_queue(encoder *e, encoder_work *work)
{
    return work->kind == ENCODER_MATMUL ? multiply(work)
                                        : nvrtc_launch(gpu.kernel, (uint64_t)work->count, work, e->stream);
}
