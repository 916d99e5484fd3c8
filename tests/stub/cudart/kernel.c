/* Kernels: they are registered, found and launched, and do nothing but take their stream some time. */
#include "cudart.h"

#include <stdio.h>
#include <unistd.h>

/* dim3 */
typedef struct extent {
    unsigned x, y, z;
} extent;

static void take_time(void *microseconds)
{
    usleep((unsigned)(uintptr_t)microseconds);
}

int cudart_launch(CUstream stream)
{
    static _Atomic long time = -1;
    if (time < 0) {
        const char *text = getenv("STUB_CUDA_KERNEL_US");
        time = text ? strtol(text, NULL, 10) : 0;
    }
    const cudart_driver *d = cudart_enter();
    int capture; /* a launch is refused on a stream of another device than the current one */
    int found = cudart_keep(d->cuStreamIsCapturing(cudart_stream(stream), &capture));
    if (found)
        return found;
    return time ? cudart_keep(d->cuLaunchHostFunc(cudart_stream(stream), take_time, (void *)(uintptr_t)time)) : 0;
}

CUDART_FUNCTION(int, cudaLaunchKernel,
                (const void *function, extent grid, extent block, void **arguments, size_t shared, CUstream stream))
{
    (void)function;
    (void)grid;
    (void)block;
    (void)arguments;
    (void)shared;
    return cudart_launch(stream);
}

CUDART_FUNCTION(int, cudaLaunchCooperativeKernel,
                (const void *function, extent grid, extent block, void **arguments, size_t shared, CUstream stream))
{
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

CUDART_FUNCTION(int, __cudaLaunchKernel,
                (const void *function, extent grid, extent block, void **arguments, size_t shared, CUstream stream))
{
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

/* cudaLaunchConfig_t, as far as its stream. */
typedef struct launch_config {
    extent grid, block;
    size_t shared;
    CUstream stream;
} launch_config;

CUDART_FUNCTION(int, cudaLaunchKernelExC, (const launch_config *config, const void *function, void **arguments))
{
    (void)function;
    (void)arguments;
    return cudart_launch(config->stream);
}

/* What compiled launches call: push keeps the configuration, the launch's own function pops it. */
static _Thread_local launch_config pushed;

CUDART_FUNCTION(unsigned, __cudaPushCallConfiguration, (extent grid, extent block, size_t shared, CUstream stream))
{
    pushed = (launch_config){grid, block, shared, stream};
    return 0;
}

CUDART_FUNCTION(int, __cudaPopCallConfiguration, (extent * grid, extent *block, size_t *shared, CUstream *stream))
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return 0;
}

CUDART_FUNCTION(void **, __cudaRegisterFatBinary, (const void *binary))
{
    static void *handle;
    (void)binary;
    return &handle;
}

CUDART_NOTHING(__cudaRegisterFatBinaryEnd)
CUDART_NOTHING(__cudaRegisterFunction)
CUDART_NOTHING(__cudaRegisterVar)
CUDART_NOTHING(__cudaUnregisterFatBinary)

static int any_kernel(void **kernel)
{
    static int one;
    *kernel = &one;
    return 0;
}

CUDART_FUNCTION(int, __cudaGetKernel, (void **kernel, const void *entry))
{
    (void)entry;
    return any_kernel(kernel);
}

CUDART_FUNCTION(int, cudaLibraryGetKernel, (void **kernel, void *library, const char *name))
{
    (void)library;
    (void)name;
    return any_kernel(kernel);
}

CUDART_FUNCTION(int, cudaLibraryLoadData, (void **library))
{
    return any_kernel(library);
}

CUDART_NOTHING(cudaLibraryUnload)
CUDART_NOTHING(cudaKernelSetAttributeForDevice)
CUDART_NOTHING(cudaFuncSetAttribute)

/* cudaFuncAttributes. */
CUDART_FUNCTION(int, cudaFuncGetAttributes, (void *attributes, const void *function))
{
    enum { SIZE = 144, OF_MOST_THREADS = 24, OF_VERSIONS = 32 };
    const int threads = 1024, versions[] = {90, 90}; /* of PTX and of the machine's code */
    (void)function;
    memset(attributes, 0, SIZE);
    memcpy((char *)attributes + OF_MOST_THREADS, &threads, sizeof threads);
    memcpy((char *)attributes + OF_VERSIONS, versions, sizeof versions);
    return 0;
}

CUDART_FUNCTION(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                (int *blocks, const void *function, int threads, size_t shared, unsigned flags))
{
    (void)function;
    (void)threads;
    (void)shared;
    (void)flags;
    *blocks = 1;
    return 0;
}
