/* What the seam of PyTorch looks for by address in libc10_cuda.so (C10_CUDA) and in libtorch_cuda.so, in C: the names are those
 * that a compiler of C++ makes. The pluggable allocator notes what it allocates, as PyTorch's does. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

#ifdef C10_CUDA

typedef struct cuda_stream {
    uint64_t device, id;
} cuda_stream;

API void *_ZN3c104cuda20CUDACachingAllocator9allocatorE;
API cuda_stream _ZN3c104cuda20getCurrentCUDAStreamEa(int8_t device);
API void *_ZNK3c104cuda10CUDAStream6streamEv(const cuda_stream *stream);

void *_ZN3c104cuda20CUDACachingAllocator9allocatorE;

cuda_stream _ZN3c104cuda20getCurrentCUDAStreamEa(int8_t device)
{
    return (cuda_stream){(uint64_t)device,
                         device ? 40 + (uint64_t)device : 0}; /* the first one's is the legacy stream */
}

void *_ZNK3c104cuda10CUDAStream6streamEv(const cuda_stream *stream)
{
    return (void *)(uintptr_t)stream->id; // NOLINT(performance-no-int-to-ptr)
}

/* What libc10_cuda.so takes from libcudart.so, of a device whose memory is the process's own. */
typedef struct ipc_handle {
    char bytes[64];
} ipc_handle;

API int cudaGetDevice(int *device);
API int cudaSetDevice(int device);
API int cudaIpcOpenMemHandle(void **address, ipc_handle handle, unsigned flags);
API int cudaIpcCloseMemHandle(void *address);
API int cudaGetLastError(void);

/* The current device; mappings that were opened and closed; the device on which one was closed last; errors asked for. */
API int fake_device, fake_opened, fake_closed, fake_closed_on, fake_errors;
int fake_device, fake_opened, fake_closed, fake_closed_on, fake_errors;

int cudaGetDevice(int *device)
{
    *device = fake_device;
    return 0;
}

int cudaSetDevice(int device)
{
    fake_device = device;
    return 0;
}

/* The stub's handle of an allocation begins with its address. */
int cudaIpcOpenMemHandle(void **address, ipc_handle handle, unsigned flags)
{
    memcpy(address, handle.bytes, sizeof *address);
    if (!*address || flags != 1)
        return 1;
    fake_opened++;
    return 0;
}

int cudaIpcCloseMemHandle(void *address)
{
    fake_closed += address != NULL;
    fake_closed_on = fake_device;
    return 0;
}

int cudaGetLastError(void)
{
    return ++fake_errors;
}

#else

#define OF_ALLOCATOR(name)       _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator##name
#define CONST_OF_ALLOCATOR(name) _ZNK5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator##name
#define TABLE                    _ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE

enum { MOST = 64 };

typedef struct noted {
    void *pointer, *stream;
    size_t bytes;
    int8_t device;
} noted;
static noted blocks[MOST];

static noted *note_of(const void *pointer)
{
    for (int i = 0; i < MOST; i++)
        if (blocks[i].pointer == pointer)
            return &blocks[i];
    abort();
}

/* What the allocator was given. */
API void *(*fake_alloc)(size_t bytes, int device, void *stream);
API void (*fake_free)(void *pointer, size_t bytes, int device, void *stream);
/* Calls that PyTorch's own allocator answers with an exception. */
API int fake_thrown;
void *(*fake_alloc)(size_t bytes, int device, void *stream);
void (*fake_free)(void *pointer, size_t bytes, int device, void *stream);
int fake_thrown;

API void *OF_ALLOCATOR(6mallocEmaP11CUstream_st)(void *self, size_t bytes, int8_t device, void *stream);
void *OF_ALLOCATOR(6mallocEmaP11CUstream_st)(void *self, size_t bytes, int8_t device, void *stream)
{
    noted *block = note_of(NULL);
    (void)self;
    *block = (noted){fake_alloc(bytes, device, stream), stream, bytes, device};
    return block->pointer;
}

API void OF_ALLOCATOR(10raw_deleteEPv)(void *self, void *pointer);
void OF_ALLOCATOR(10raw_deleteEPv)(void *self, void *pointer)
{
    noted *block = note_of(pointer);
    (void)self;
    block->pointer = NULL;
    fake_free(pointer, block->bytes, block->device, block->stream);
}

static void delete_it(void *pointer)
{
    OF_ALLOCATOR(10raw_deleteEPv)(NULL, pointer);
}

API void (*CONST_OF_ALLOCATOR(11raw_deleterEv)(const void *self))(void *);
void (*CONST_OF_ALLOCATOR(11raw_deleterEv)(const void *self))(void *)
{
    (void)self;
    return delete_it;
}

#define THROWS(name)                                                                                                   \
    API void OF_ALLOCATOR(name)(void);                                                                                 \
    void OF_ALLOCATOR(name)(void)                                                                                      \
    {                                                                                                                  \
        fake_thrown++;                                                                                                 \
    }
THROWS(9cacheInfoEaPm)
THROWS(17getMemoryFractionEa)
THROWS(14resetPeakStatsEa)
THROWS(21resetAccumulatedStatsEa)
THROWS(18getCheckpointStateEaSt4pairIyyE)
THROWS(22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE)
THROWS(14shareIpcHandleEPv)
THROWS(12getIpcDevPtrENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
THROWS(other)

/* What PyTorch keeps for other processes that have it; it is freed when they have let it go. */
API void *fake_shared;
API bool _ZN5torch14CudaIPCCollectEv(void);
void *fake_shared;

bool _ZN5torch14CudaIPCCollectEv(void)
{
    void *pointer = fake_shared;
    fake_shared = NULL;
    if (pointer)
        delete_it(pointer);
    return pointer;
}

/* The slots are those of tests/seams/abi.c, behind two words that are no functions. */
API void (*TABLE[11])(void);
void (*TABLE[11])(void) = {
    NULL,
    NULL,
    OF_ALLOCATOR(9cacheInfoEaPm),
    OF_ALLOCATOR(17getMemoryFractionEa),
    OF_ALLOCATOR(14resetPeakStatsEa),
    OF_ALLOCATOR(21resetAccumulatedStatsEa),
    OF_ALLOCATOR(18getCheckpointStateEaSt4pairIyyE),
    OF_ALLOCATOR(22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE),
    OF_ALLOCATOR(14shareIpcHandleEPv),
    OF_ALLOCATOR(12getIpcDevPtrENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE),
    OF_ALLOCATOR(other),
};

#endif
