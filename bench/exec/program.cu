// A program over CUDA's runtime that knows nothing of weir: it allocates in the ways there are, computes, and prints one JSON
// object: an answer that must not depend on who serves the memory, and the seconds of the allocating part. With a number of
// MiB as its first word it expects that no more can be had: `program 1024`. With `wait` it has a context and nothing else.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        int result_ = (int)(call);                                                                                     \
        if (result_ != 0) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define EXPECT(condition) MUST(!(condition))

static const size_t MIB = 1 << 20;

__global__ void fill(unsigned *to, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = (unsigned)i * 2654435761u + seed;
}

__global__ void add(unsigned long long *sum, const unsigned *from, size_t count)
{
    unsigned long long part = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        part += from[i];
    atomicAdd(sum, part);
}

__global__ void spin(long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

static unsigned long long sum_of(const unsigned *from, size_t bytes)
{
    unsigned long long *sum, answer;
    MUST(cudaMalloc(&sum, sizeof *sum));
    MUST(cudaMemset(sum, 0, sizeof *sum));
    add<<<256, 256>>>(sum, from, bytes / 4);
    MUST(cudaMemcpy(&answer, sum, sizeof answer, cudaMemcpyDeviceToHost));
    MUST(cudaFree(sum));
    return answer;
}

// Blocks that come and go, and what is in those that stay.
static unsigned long long at_once(unsigned rounds)
{
    std::vector<unsigned *> blocks(16);
    std::vector<size_t> sizes(16);
    unsigned long long answer = 0;
    unsigned random = 1;
    for (unsigned i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        unsigned at = (random >> 8) % 16;
        if (blocks[at]) {
            answer += sum_of(blocks[at], sizes[at]);
            MUST(cudaFree(blocks[at]));
            blocks[at] = NULL;
            continue;
        }
        sizes[at] = 4096 + (random >> 12) % (8 * MIB) / 4 * 4;
        MUST(cudaMalloc(&blocks[at], sizes[at]));
        EXPECT((size_t)blocks[at] % 256 == 0);
        fill<<<64, 256>>>(blocks[at], sizes[at] / 4, i);
    }
    for (unsigned at = 0; at < 16; at++)
        MUST(cudaFree(blocks[at]));
    return answer;
}

static unsigned long long in_stream_order(unsigned rounds)
{
    cudaStream_t streams[2];
    unsigned long long *sum, answer;
    MUST(cudaMalloc(&sum, sizeof *sum));
    MUST(cudaMemset(sum, 0, sizeof *sum));
    for (auto &stream : streams)
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaDeviceSynchronize());
    for (unsigned i = 0; i < rounds; i++) {
        unsigned *block;
        size_t bytes = MIB + (i * 7919 % 64) * 4096;
        MUST(cudaMallocAsync(&block, bytes, streams[i % 2]));
        fill<<<64, 256, 0, streams[i % 2]>>>(block, bytes / 4, i);
        add<<<64, 256, 0, streams[i % 2]>>>(sum, block, bytes / 4);
        MUST(cudaFreeAsync(block, streams[i % 2]));
    }
    for (auto stream : streams) {
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaStreamDestroy(stream));
    }
    MUST(cudaMemcpy(&answer, sum, sizeof answer, cudaMemcpyDeviceToHost));
    MUST(cudaFree(sum));
    return answer;
}

// What is freed while a kernel is at work keeps its bytes until that has ended.
static void free_behind_work()
{
    unsigned *block, *next;
    unsigned long long *sum, first, second;
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc(&block, 16 * MIB));
    MUST(cudaMalloc(&sum, 2 * sizeof *sum));
    MUST(cudaMemset(sum, 0, 2 * sizeof *sum));
    fill<<<256, 256>>>(block, 4 * MIB, 5);
    MUST(cudaDeviceSynchronize());
    add<<<64, 256, 0, stream>>>(sum, block, 4 * MIB);
    spin<<<1, 1, 0, stream>>>(400000000ll);
    add<<<64, 256, 0, stream>>>(sum + 1, block, 4 * MIB);
    MUST(cudaFree(block));
    MUST(cudaMalloc(&next, 16 * MIB));
    cudaStream_t other;
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    fill<<<256, 256, 0, other>>>(next, 4 * MIB, 99);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&first, sum, sizeof first, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&second, sum + 1, sizeof second, cudaMemcpyDeviceToHost));
    EXPECT(first == second);
    MUST(cudaFree(next));
    MUST(cudaFree(sum));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
}

static void captured()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    unsigned *block, *freed;
    MUST(cudaMalloc(&freed, MIB));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    MUST(cudaMallocAsync(&block, MIB, stream));
    fill<<<64, 256, 0, stream>>>(block, MIB / 4, 3);
    MUST(cudaFreeAsync(block, stream));
    MUST(cudaFree(freed));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(executable, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy(executable));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
}

// The whole budget can be had, and no more, in one piece, in many, and as handles.
static void bounded(size_t budget)
{
    size_t available, total;
    void *block;
    std::vector<void *> many;
    MUST(cudaMemGetInfo(&available, &total));
    EXPECT(total == budget && available <= budget);
    EXPECT(cudaMalloc(&block, budget + MIB) == cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    while (cudaMalloc(&block, 32 * MIB) == cudaSuccess)
        many.push_back(block);
    (void)cudaGetLastError();
    EXPECT(many.size() <= budget / (32 * MIB) && many.size() + 2 >= budget / (32 * MIB));
    usleep(500000); // who looks from outside sees it
    CUmemAllocationProp properties = {};
    CUmemGenericAllocationHandle handle;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT(cuMemCreate(&handle, 128 * MIB, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    for (void *it : many)
        MUST(cudaFree(it));
    MUST(cuMemCreate(&handle, budget / 2, &properties, 0));
    EXPECT(cudaMalloc(&block, budget / 2 + 64 * MIB) == cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    usleep(500000);
    MUST(cuMemRelease(handle));
}

int main(int argc, char **argv)
{
    MUST(cudaFree(NULL));
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        return (int)usleep(2000000);
    at_once(50); // first uses of everything
    auto start = std::chrono::steady_clock::now();
    unsigned long long first = at_once(600);
    std::chrono::duration<double> once = std::chrono::steady_clock::now() - start;
    start = std::chrono::steady_clock::now();
    unsigned long long second = in_stream_order(2000);
    std::chrono::duration<double> ordered = std::chrono::steady_clock::now() - start;
    free_behind_work();
    captured();
    if (argc > 1)
        bounded(strtoull(argv[1], NULL, 10) * MIB);
    printf("{\"answer\": \"%llx-%llx\", \"seconds\": %.6f, \"at_once\": %.6f, \"in_order\": %.6f}\n", first, second,
           once.count() + ordered.count(), once.count(), ordered.count());
    return 0;
}
