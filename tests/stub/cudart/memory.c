/* Memory, and work on it. What is done without a stream is waited for. */
#include "cudart.h"

enum { NOT_SUPPORTED = 801 };

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

CUDART_FUNCTION(int, cudaMalloc, (void **pointer, size_t bytes))
{
    CUdeviceptr address = 0;
    int result = bytes ? cudart_enter()->cuMemAlloc(&address, bytes) : CUDA_SUCCESS;
    *pointer = (void *)(uintptr_t)address;
    return cudart_keep(result);
}

CUDART_FUNCTION(int, cudaFree, (void *pointer))
{
    const cudart_driver *d = cudart_enter();
    return pointer ? cudart_keep(d->cuMemFree(address_of(pointer))) : 0;
}

CUDART_FUNCTION(int, cudaHostAlloc, (void **pointer, size_t bytes, unsigned flags))
{
    (void)flags;
    *pointer = NULL;
    return bytes ? cudart_keep(cudart_enter()->cuMemHostAlloc(pointer, bytes, CU_MEMHOSTALLOC_PORTABLE)) : 0;
}

CUDART_FUNCTION(int, cudaMallocHost, (void **pointer, size_t bytes))
{
    return cudaHostAlloc(pointer, bytes, 0);
}

CUDART_FUNCTION(int, cudaFreeHost, (void *pointer))
{
    const cudart_driver *d = cudart_enter();
    return pointer ? cudart_keep(d->cuMemFreeHost(pointer)) : 0;
}

/* The host reaches all memory here. */
CUDART_FUNCTION(int, cudaMallocManaged, (void **pointer, size_t bytes, unsigned flags))
{
    enum { INVALID_VALUE = 1, GLOBAL = 1, HOST = 2 };
    return flags == GLOBAL || flags == HOST ? cudaMalloc(pointer, bytes) : cudart_keep(INVALID_VALUE);
}

/* What of the program's own memory is page-locked. */
enum { MOST_REGISTERED = 64, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713 };
static struct {
    pthread_mutex_t lock;
    const void *at[MOST_REGISTERED];
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Puts `to` where `from` is. */
static int exchange_registered(const void *from, const void *to, int otherwise)
{
    int result = otherwise;
    pthread_mutex_lock(&registered.lock);
    for (size_t i = 0; i < MOST_REGISTERED && result == otherwise; i++)
        if (registered.at[i] == from) {
            registered.at[i] = to;
            result = 0;
        }
    pthread_mutex_unlock(&registered.lock);
    return result;
}

CUDART_FUNCTION(int, cudaHostRegister, (void *pointer, size_t bytes, unsigned flags))
{
    enum { INVALID_VALUE = 1 };
    (void)flags;
    if (!pointer || bytes == 0)
        return cudart_keep(INVALID_VALUE);
    if (exchange_registered(pointer, pointer, NOT_REGISTERED) == 0)
        return cudart_keep(ALREADY_REGISTERED);
    return cudart_keep(exchange_registered(NULL, pointer, INVALID_VALUE));
}

CUDART_FUNCTION(int, cudaHostUnregister, (void *pointer))
{
    return cudart_keep(pointer ? exchange_registered(pointer, NULL, NOT_REGISTERED) : NOT_REGISTERED);
}

CUDART_FUNCTION(int, cudaHostGetDevicePointer, (void **device, void *host, unsigned flags))
{
    (void)flags;
    *device = host;
    return 0;
}

CUDART_FUNCTION(int, cudaMemGetInfo, (size_t * available, size_t *total))
{
    return cudart_keep(cudart_enter()->cuMemGetInfo(available, total));
}

/* cudaPointerAttributes: type, device, and the pointer as the device and the host have it, which is the same here. */
CUDART_FUNCTION(int, cudaPointerGetAttributes, (void *attributes, const void *pointer))
{
    enum { SIZE = 88, OF_DEVICE = 2 };
    struct {
        int type, device;
        const void *device_pointer, *host_pointer;
    } known = {OF_DEVICE, 0, pointer, pointer};
    const cudart_driver *d = cudart_enter(); /* of what it does not know it says what it says of all */
    (void)d->cuPointerGetAttribute(&known.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address_of(pointer));
    memset(attributes, 0, SIZE);
    memcpy(attributes, &known, sizeof known);
    return 0;
}

/* Pools are asked for by name only, and programs do without. */
CUDART_FUNCTION(int, cudaMemPoolCreate, (void **pool, const void *properties))
{
    (void)properties;
    *pool = NULL;
    return cudart_keep(NOT_SUPPORTED);
}

CUDART_FUNCTION(int, cudaMallocFromPoolAsync, (void **pointer, size_t bytes, void *pool, CUstream stream))
{
    (void)bytes;
    (void)pool;
    (void)stream;
    *pointer = NULL;
    return cudart_keep(NOT_SUPPORTED);
}

CUDART_NOTHING(cudaFreeAsync)
CUDART_NOTHING(cudaMemPoolDestroy)
CUDART_NOTHING(cudaMemPoolGetAttribute)
CUDART_NOTHING(cudaMemPoolSetAttribute)
CUDART_NOTHING(cudaMemPoolTrimTo)

/* Work ------------------------------------------------------------------------------------------------------------- */

/* What comes from the host has been read when the call returns, as CUDA does it with pageable memory. */
static int stage(const cudart_driver *d, void *to, const void *from, size_t bytes, CUstream stream)
{
    int capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (d->cuStreamIsCapturing(stream, &capture) == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return cudart_keep(
            d->cuMemcpyAsync(address_of(to), address_of(from), bytes, stream)); /* each launch reads it */
    void *staged = malloc(bytes);
    if (!staged)
        return cudart_keep(CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(staged, from, bytes);
    int result = d->cuMemcpyAsync(address_of(to), address_of(staged), bytes, stream);
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchHostFunc(stream, free, staged);
    else
        free(staged);
    return cudart_keep(result);
}

/* A copy within the device takes its stream as long as a kernel. */
static int copy(void *to, const void *from, size_t bytes, int direction, CUstream stream)
{
    enum { HOST_TO_DEVICE = 1, DEVICE_TO_DEVICE = 3 };
    const cudart_driver *d = cudart_enter();
    if (direction == HOST_TO_DEVICE)
        return stage(d, to, from, bytes, stream);
    int result = direction == DEVICE_TO_DEVICE ? cudart_launch(stream) : 0;
    return result ? result : cudart_keep(d->cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
}

/* The one work that may be put on a stream of another device than the current one. */
CUDART_FUNCTION(int, cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, CUstream stream))
{
    bool entered;
    if (bytes == 0)
        return 0;
    const cudart_driver *d = cudart_enter_stream(stream, &entered);
    int result = copy(to, from, bytes, direction, cudart_stream(stream));
    (void)cudart_leave_stream(d, entered, CUDA_SUCCESS);
    return result;
}

/* Devices are no peers here, and the host reaches the memory of them all. */
CUDART_FUNCTION(int, cudaMemcpyPeerAsync,
                (void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream stream))
{
    enum { BY_ADDRESS = 4 };
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, BY_ADDRESS, stream);
}

CUDART_FUNCTION(int, cudaMemcpy2DAsync,
                (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                 int direction, CUstream stream))
{
    int result = 0;
    for (size_t i = 0; i < rows && result == 0; i++)
        result =
            cudaMemcpyAsync((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, direction, stream);
    return result;
}

CUDART_FUNCTION(int, cudaMemsetAsync, (void *to, int value, size_t bytes, CUstream stream))
{
    const cudart_driver *d = cudart_enter();
    return bytes ? cudart_keep(d->cuMemsetD8Async(address_of(to), (unsigned char)value, bytes, cudart_stream(stream)))
                 : 0;
}

static int wait_for(int result)
{
    return result ? result : cudart_keep(cudart_enter()->cuStreamSynchronize(CU_STREAM_LEGACY));
}

CUDART_FUNCTION(int, cudaMemcpy, (void *to, const void *from, size_t bytes, int direction))
{
    return wait_for(cudaMemcpyAsync(to, from, bytes, direction, NULL));
}

CUDART_FUNCTION(int, cudaMemset, (void *to, int value, size_t bytes))
{
    return wait_for(cudaMemsetAsync(to, value, bytes, NULL));
}

/* What a variable of the device's holds is nothing here. */
CUDART_FUNCTION(int, cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int direction))
{
    (void)symbol;
    (void)offset;
    (void)direction;
    memset(to, 0, bytes);
    return 0;
}
