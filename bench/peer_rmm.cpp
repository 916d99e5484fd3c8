/* RMM's pool over cudaMalloc, and over CUDA's own pool. Built by scripts/bench-peers. */
#include "peer.h"

#include <rmm/logger.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

#define TEXT(x)  #x
#define QUOTE(x) TEXT(x)
const char *const names[] = {"RMM " QUOTE(RMM_VERSION_MAJOR) "." QUOTE(RMM_VERSION_MINOR) ", pool",
                             "RMM " QUOTE(RMM_VERSION_MAJOR) "." QUOTE(RMM_VERSION_MINOR) ", pool over CUDA's"};
constexpr std::size_t alignment = 256;

struct peer {
    unsigned which;
    int device;
    std::optional<rmm::mr::pool_memory_resource> pool;
    std::vector<cudaStream_t> streams;
};

peer peers[sizeof names / sizeof names[0]];
std::string last_failure;

template <typename Function> const char *guarded(Function function)
{
    try {
        function();
        return nullptr;
    } catch (const std::exception &e) {
        last_failure = e.what();
        return last_failure.c_str();
    }
}

void must(cudaError_t error)
{
    if (error != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(error));
}

const char *begin(void *self, uint64_t cap)
{
    peer &p = *static_cast<peer *>(self);
    return guarded([&] {
        must(cudaSetDevice(p.device));
        std::optional<std::size_t> most;
        if (cap)
            most = cap / alignment * alignment;
        if (p.which == 0)
            p.pool.emplace(rmm::mr::cuda_memory_resource{}, 0, most);
        else
            p.pool.emplace(rmm::mr::cuda_async_memory_resource{}, 0, most);
    });
}

void synchronize(void *)
{
    (void)cudaDeviceSynchronize();
}

void end(void *self)
{
    peer &p = *static_cast<peer *>(self);
    synchronize(self);
    p.pool.reset();
    for (cudaStream_t stream : p.streams)
        (void)cudaStreamDestroy(stream);
    p.streams.clear();
}

void thread_begin(void *self)
{
    (void)cudaSetDevice(static_cast<peer *>(self)->device);
}

const char *stream(void *self, unsigned index, uint64_t *out)
{
    peer &p = *static_cast<peer *>(self);
    return guarded([&] {
        while (p.streams.size() <= index) {
            cudaStream_t made = nullptr;
            must(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
            p.streams.push_back(made);
        }
        *out = reinterpret_cast<uintptr_t>(p.streams[index]);
    });
}

cuda::stream_ref by_number(uint64_t stream)
{
    return cuda::stream_ref{reinterpret_cast<cudaStream_t>(stream)};
}

void *allocate(void *self, size_t bytes, uint64_t stream)
{
    try {
        return static_cast<peer *>(self)->pool->allocate(by_number(stream), bytes, alignment);
    } catch (const std::exception &) {
        return nullptr;
    }
}

bool release(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    static_cast<peer *>(self)->pool->deallocate(by_number(stream), pointer, bytes, alignment);
    return true;
}

/* A pool gives nothing back while it lives. */
uint64_t peak_held(void *self)
{
    return static_cast<peer *>(self)->pool->pool_size();
}

} // namespace

extern "C" __attribute__((visibility("default"))) bool weir_bench_peer(unsigned which, int ordinal, bench_peer *out,
                                                                       const char **failure)
{
    if (which >= sizeof names / sizeof names[0])
        return false;
    peer &p = peers[which];
    p.which = which;
    p.device = ordinal;
    *out = bench_peer{};
    out->struct_size = sizeof *out;
    std::snprintf(out->name, sizeof out->name, "%s", names[which]);
    out->self = &p;
    out->begin = begin;
    out->end = end;
    out->thread_begin = thread_begin;
    out->stream = stream;
    out->allocate = allocate;
    out->release = release;
    out->synchronize = synchronize;
    out->peak_held = peak_held;
    rmm::default_logger().set_level(rapids_logger::level_enum::off); /* a search for a cap is refused on purpose */
    *failure = guarded([&] { must(cudaSetDevice(ordinal)); });
    return true;
}
