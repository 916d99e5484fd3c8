/* weir/cccl.hpp: a client as a memory resource of CCCL's, for programs in C++17 or later. It needs the headers of CCCL 3.2 or
 * later and of CUDA's runtime, and nothing of RMM's; with RMM take weir/rmm.hpp, whose errors are RMM's.
 *
 *     weir::memory_resource memory{client};
 *     void *pointer = memory.allocate(stream, bytes, 256);
 *     memory.deallocate(stream, pointer, bytes, 256);
 *
 * It meets cuda::mr::resource with cuda::mr::device_accessible, is copied by value (copies are equal), and allocates and frees
 * in the order of the stream that is named, of the client's device, which becomes known to weir by that. Any thread. The client
 * stays open as long as memory of it is allocated. A refusal is weir::out_of_memory with weir's words, and any other failure
 * weir::bad_alloc; both are std::bad_alloc. A free on a stream that is being captured is done when the capture has ended. Link
 * libweir-seams, and libweir. */
#ifndef WEIR_CCCL_HPP
#define WEIR_CCCL_HPP

#include <weir/weir.h>

#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>

#include <cstddef>
#include <new>
#include <string>

#if CCCL_VERSION < 3002000
#error "weir/cccl.hpp needs CCCL 3.2 or later (CUDA 13.2, or the package nvidia-cuda-cccl)"
#endif

extern "C" {
weir_status wseam_alloc(weir_client *client, std::size_t bytes, std::size_t alignment, void *native, void **out);
void wseam_free_on(weir_client *client, void *pointer, void *native);
weir_status wseam_alloc_for_all(weir_client *client, std::size_t bytes, void **out);
void wseam_free_behind(weir_client *client, void *pointer);
}

namespace weir
{

/* An allocation that failed, in weir's words. */
class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(const char *words) : words_(words) {}

    [[nodiscard]] const char *what() const noexcept override
    {
        return words_.c_str();
    }

  private:
    std::string words_;
};

/* A refusal: who asked for how much, what was left, and who holds the rest. */
class out_of_memory : public bad_alloc
{
  public:
    using bad_alloc::bad_alloc;
};

/* The resource, with the errors that it throws; each is made of a text. */
template <class OutOfMemory, class BadAlloc> class basic_memory_resource
{
  public:
    static constexpr std::size_t alignment = 256;

    explicit basic_memory_resource(weir_client *client) noexcept : client_(client) {}

    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment)
    {
        void *found = nullptr;
        check(wseam_alloc(client_, bytes, align < alignment ? alignment : align, stream.get(), &found));
        return found;
    }

    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t, std::size_t = alignment) noexcept
    {
        wseam_free_on(client_, pointer, stream.get());
    }

    /* Any stream may use it at once. Alignments above 256 are not offered here. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = alignment)
    {
        void *found = nullptr;
        if (align > alignment)
            throw BadAlloc("weir: without a stream memory is aligned to 256 bytes");
        check(wseam_alloc_for_all(client_, bytes, &found));
        return found;
    }

    /* Behind the work of all streams of the device, without waiting for them. */
    void deallocate_sync(void *pointer, std::size_t, std::size_t = alignment) noexcept
    {
        wseam_free_behind(client_, pointer);
    }

    [[nodiscard]] weir_client *client() const noexcept
    {
        return client_;
    }

    [[nodiscard]] bool operator==(const basic_memory_resource &other) const noexcept
    {
        return client_ == other.client_;
    }

    [[nodiscard]] bool operator!=(const basic_memory_resource &other) const noexcept
    {
        return client_ != other.client_;
    }

    friend constexpr void get_property(const basic_memory_resource &, cuda::mr::device_accessible) noexcept {}

  private:
    static void check(weir_status status)
    {
        if (status == WEIR_ERR_OUT_OF_MEMORY)
            throw OutOfMemory(weir_detail());
        if (status != WEIR_OK)
            throw BadAlloc(weir_detail());
    }

    weir_client *client_;
};

using memory_resource = basic_memory_resource<out_of_memory, bad_alloc>;

static_assert(cuda::mr::resource<memory_resource>);
static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);

} // namespace weir

#endif
