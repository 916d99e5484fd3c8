/* What the seam of PyTorch looks for by address in libc10_cuda.so (C10_CUDA) and in libtorch_cuda.so, in C: the names are those
 * that a compiler of C++ makes. The pluggable allocator notes what it allocates, as PyTorch's does. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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
THROWS(other)

/* The slots are those of tests/seams/abi.c, behind two words that are no functions. */
API void (*TABLE[9])(void);
void (*TABLE[9])(void) = {
    NULL,
    NULL,
    OF_ALLOCATOR(9cacheInfoEaPm),
    OF_ALLOCATOR(17getMemoryFractionEa),
    OF_ALLOCATOR(14resetPeakStatsEa),
    OF_ALLOCATOR(21resetAccumulatedStatsEa),
    OF_ALLOCATOR(18getCheckpointStateEaSt4pairIyyE),
    OF_ALLOCATOR(22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE),
    OF_ALLOCATOR(other),
};

#endif
