/* encoder_cuda.c: the same work on a GPU: encoder_kernels.h compiled at run time by NVRTC, products by cuBLAS. All three
 * libraries are opened when they are wanted, so that the example builds and runs without. */
#include "encoder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { THREADS = 128, MAJOR = 75, MINOR = 76 }; /* CUdevice_attribute: compute capability */

static struct {
    int (*init)(unsigned);
    int (*attribute)(int *value, int which, int device);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **arguments, void **extra);
    int (*create_program)(void **program, const char *text, const char *name, int headers, const char **sources,
                          const char **names);
    int (*compile)(void *program, int count, const char **options);
    int (*cubin_size)(void *program, size_t *size);
    int (*cubin)(void *program, char *out);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *out);
    int (*destroy_program)(void **program);
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*product)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   long long sa, const float *b, int ldb, long long sb, const float *beta, float *c, int ldc,
                   long long sc, int batch);
} cu;

static struct {
    void *context, *kernel, *handle;
} gpu;

static void *open_first(const char *const *names)
{
    void *library = NULL;
    for (; !library && *names; names++)
        library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    return library;
}

static weir_status find_all(void)
{
    static const char *const cuda[] = {"libcuda.so.1", NULL};
    static const char *const nvrtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    static const char *const cublas[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    void *libraries[] = {open_first(cuda), open_first(nvrtc), open_first(cublas)};
    const struct {
        int library;
        const char *name;
        void *to;
    } wanted[] = {{0, "cuInit", &cu.init},
                  {0, "cuDeviceGetAttribute", &cu.attribute},
                  {0, "cuDevicePrimaryCtxRetain", &cu.retain},
                  {0, "cuCtxPushCurrent_v2", &cu.push},
                  {0, "cuCtxPopCurrent_v2", &cu.pop},
                  {0, "cuModuleLoadData", &cu.load},
                  {0, "cuModuleGetFunction", &cu.function},
                  {0, "cuLaunchKernel", &cu.launch},
                  {1, "nvrtcCreateProgram", &cu.create_program},
                  {1, "nvrtcCompileProgram", &cu.compile},
                  {1, "nvrtcGetCUBINSize", &cu.cubin_size},
                  {1, "nvrtcGetCUBIN", &cu.cubin},
                  {1, "nvrtcGetProgramLogSize", &cu.log_size},
                  {1, "nvrtcGetProgramLog", &cu.log},
                  {1, "nvrtcDestroyProgram", &cu.destroy_program},
                  {2, "cublasCreate_v2", &cu.create},
                  {2, "cublasSetStream_v2", &cu.set_stream},
                  {2, "cublasSgemmStridedBatched", &cu.product}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = libraries[wanted[i].library] ? dlsym(libraries[wanted[i].library], wanted[i].name) : NULL;
        if (!found)
            return weir_fail(WEIR_ERR_NOT_FOUND,
                             "%s is not here: libcuda.so.1, libnvrtc and libcublas of CUDA 12 or 13 are wanted",
                             wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof found);
    }
    return WEIR_OK;
}

static weir_status worked(int result, const char *call)
{
    return result == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "%s answered %d", call, result);
}

static weir_status compiled(void *program, int result)
{
    char log[600] = "";
    size_t size = 0;
    if (result == 0)
        return WEIR_OK;
    if (cu.log_size(program, &size) == 0 && size <= sizeof log)
        (void)cu.log(program, log);
    return weir_fail(WEIR_ERR_DRIVER, "nvrtcCompileProgram answered %d: %s", result, log);
}

static weir_status load_kernel(void *program)
{
    size_t size = 0;
    void *module;
    weir_status status = worked(cu.cubin_size(program, &size), "nvrtcGetCUBINSize");
    char *image = status == WEIR_OK ? malloc(size) : NULL;
    if (status == WEIR_OK)
        status = image ? worked(cu.cubin(program, image), "nvrtcGetCUBIN") : WEIR_ERR_SYSTEM;
    if (status == WEIR_OK)
        status = worked(cu.load(&module, image), "cuModuleLoadData");
    if (status == WEIR_OK)
        status = worked(cu.function(&gpu.kernel, module, "encoder_grid"), "cuModuleGetFunction");
    free(image);
    return status;
}

static weir_status compile(int device)
{
    char architecture[40], *text = NULL;
    const char *options[] = {architecture};
    int major = 0, minor = 0;
    void *program;
    weir_status status = worked(cu.attribute(&major, MAJOR, device), "cuDeviceGetAttribute");
    if (status == WEIR_OK)
        status = worked(cu.attribute(&minor, MINOR, device), "cuDeviceGetAttribute");
    (void)snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
    if (status != WEIR_OK || asprintf(&text, "%s%s", encoder_text, grid_text) < 0)
        return status != WEIR_OK ? status : WEIR_ERR_SYSTEM;
    status = worked(cu.create_program(&program, text, "encoder.cu", 0, NULL, NULL), "nvrtcCreateProgram");
    if (status == WEIR_OK) {
        status = compiled(program, cu.compile(program, 1, options));
        if (status == WEIR_OK)
            status = load_kernel(program);
        (void)cu.destroy_program(&program);
    }
    free(text);
    return status;
}

weir_status encoder_cuda_open(encoder *e, int device)
{
    weir_status status = find_all();
    if (status == WEIR_OK)
        status = worked(cu.init(0), "cuInit");
    if (status == WEIR_OK)
        status = worked(cu.retain(&gpu.context, device), "cuDevicePrimaryCtxRetain");
    if (status == WEIR_OK)
        status = worked(cu.push(gpu.context), "cuCtxPushCurrent"); /* the thread's from here on */
    if (status == WEIR_OK)
        status = compile(device);
    if (status == WEIR_OK)
        status = worked(cu.create(&gpu.handle), "cublasCreate");
    return status == WEIR_OK ? worked(cu.set_stream(gpu.handle, weir_stream_native(e->stream)), "cublasSetStream")
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
    return worked(cu.product(gpu.handle, 0, 0, n, (int)rows, k, &one, w->in[1], n, (long long)n * k, w->in[0], k,
                             (long long)rows * k, &none, w->out, n, (long long)rows * n, (int)batch),
                  "cublasSgemmStridedBatched");
}

weir_status encoder_cuda_queue(encoder *e, encoder_work *work)
{
    void *arguments[] = {work};
    if (work->kind == ENCODER_MATMUL)
        return multiply(work);
    unsigned blocks = (unsigned)((work->count + THREADS - 1) / THREADS);
    return worked(cu.launch(gpu.kernel, blocks, 1, 1, THREADS, 1, 1, 0, weir_stream_native(e->stream), arguments, NULL),
                  "cuLaunchKernel");
}
