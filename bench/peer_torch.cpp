/* PyTorch's caching allocator, called through its C++ interface as PyTorch itself calls it; once as it is, once with
 * expandable segments. Built by scripts/bench-peers. */
#include "peer.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#if __has_include(<c10/core/AllocatorConfig.h>)
#include <c10/core/AllocatorConfig.h>
#endif

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace allocator = c10::cuda::CUDACachingAllocator;

namespace
{

#if __has_include(<c10/core/AllocatorConfig.h>)
using c10::CachingAllocator::setAllocatorSettings;
#else
using allocator::setAllocatorSettings;
#endif

/* As PyTorch takes them out of PYTORCH_CUDA_ALLOC_CONF. */
struct variant {
    const char *name, *settings;
};
const variant variants[] = {{"PyTorch " PEER_VERSION, "expandable_segments:False"},
                            {"PyTorch " PEER_VERSION ", expandable segments", "expandable_segments:True"}};

struct peer {
    const variant *kind;
    c10::DeviceIndex device;
    std::vector<c10::cuda::CUDAStream> streams;
};

peer peers[sizeof variants / sizeof variants[0]];
std::string last_failure;

template <typename Function> const char *guarded(Function function)
{
    try {
        function();
        return nullptr;
    } catch (const std::exception &e) {
        last_failure = e.what();
        last_failure = last_failure.substr(0, last_failure.find('\n'));
        return last_failure.c_str();
    }
}

void limit(const peer &p, uint64_t cap)
{
    size_t available = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&available, &total));
    /* It multiplies again and cuts off: half a byte more makes that the cap. */
    double fraction = cap && cap < total ? (static_cast<double>(cap) + 0.5) / static_cast<double>(total) : 1.0;
    allocator::setMemoryFraction(fraction, p.device);
}

const char *begin(void *self, uint64_t cap)
{
    peer &p = *static_cast<peer *>(self);
    return guarded([&] {
        c10::cuda::set_device(p.device);
        setAllocatorSettings(p.kind->settings);
        limit(p, cap);
        allocator::resetPeakStats(p.device);
    });
}

void end(void *self)
{
    peer &p = *static_cast<peer *>(self);
    (void)guarded([&] {
        c10::cuda::device_synchronize();
        allocator::emptyCache();
        limit(p, 0);
    });
}

void thread_begin(void *self)
{
    (void)guarded([&] { c10::cuda::set_device(static_cast<peer *>(self)->device); });
}

const char *stream(void *self, unsigned index, uint64_t *out)
{
    peer &p = *static_cast<peer *>(self);
    return guarded([&] {
        while (p.streams.size() <= index)
            p.streams.push_back(c10::cuda::getStreamFromPool(false, p.device));
        *out = reinterpret_cast<uintptr_t>(p.streams[index].stream());
    });
}

void *allocate(void *, size_t bytes, uint64_t stream)
{
    try {
        return allocator::get()->raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
    } catch (const std::exception &) {
        return nullptr;
    }
}

bool release(void *, void *pointer, size_t, uint64_t)
{
    try {
        allocator::get()->raw_delete(pointer);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

void synchronize(void *)
{
    (void)guarded([] { c10::cuda::device_synchronize(); });
}

uint64_t peak_held(void *self)
{
    /* The first of each statistic's entries is that of all pools together. */
    uint64_t bytes = 0;
    (void)guarded([&] {
        bytes =
            static_cast<uint64_t>(allocator::getDeviceStats(static_cast<peer *>(self)->device).reserved_bytes[0].peak);
    });
    return bytes;
}

} // namespace

extern "C" __attribute__((visibility("default"))) bool weir_bench_peer(unsigned which, int ordinal, bench_peer *out,
                                                                       const char **failure)
{
    if (which >= sizeof variants / sizeof variants[0])
        return false;
    peer &p = peers[which];
    p.kind = &variants[which];
    p.device = static_cast<c10::DeviceIndex>(ordinal);
    *out = bench_peer{};
    out->struct_size = sizeof *out;
    std::snprintf(out->name, sizeof out->name, "%s", p.kind->name);
    out->self = &p;
    out->begin = begin;
    out->end = end;
    out->thread_begin = thread_begin;
    out->stream = stream;
    out->allocate = allocate;
    out->release = release;
    out->synchronize = synchronize;
    out->peak_held = peak_held;
    *failure = guarded([&] {
        c10::cuda::set_device(p.device);
        if (which == 0)
            allocator::init(c10::cuda::device_count());
    });
    return true;
}
