/* weir/rmm.hpp: a memory resource of RMM's over a client, for C++20 programs with RMM 26 or later.
 *
 *     weir::rmm_resource memory{client};
 *     rmm::mr::set_current_device_resource(memory);
 *
 * It meets cuda::mr::resource with cuda::mr::device_accessible, is copied by value, and allocates and frees in the order of the
 * stream that RMM names, which becomes known to weir by that. The client stays open as long as memory of it is allocated. A
 * refusal is rmm::out_of_memory with weir's words, and any other failure rmm::bad_alloc. A free on a stream that is being
 * captured is done when the capture has ended. Link libweir-seams, and libweir. */
#ifndef WEIR_RMM_HPP
#define WEIR_RMM_HPP

#include <weir/weir.h>

#include <rmm/error.hpp>

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>

extern "C" {
weir_status wseam_alloc(weir_client *client, std::size_t bytes, std::size_t alignment, void *native, void **out);
void wseam_free_on(weir_client *client, void *pointer, void *native);
weir_status wseam_alloc_for_all(weir_client *client, std::size_t bytes, void **out);
void wseam_free_behind(weir_client *client, void *pointer);
}

namespace weir
{

class rmm_resource
{
  public:
    static constexpr std::size_t alignment = 256;

    explicit rmm_resource(weir_client *client) noexcept : client_(client) {}

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
            throw rmm::bad_alloc("weir: without a stream memory is aligned to 256 bytes");
        check(wseam_alloc_for_all(client_, bytes, &found));
        return found;
    }

    /* Behind the work of all blocking streams. */
    void deallocate_sync(void *pointer, std::size_t, std::size_t = alignment) noexcept
    {
        wseam_free_behind(client_, pointer);
    }

    [[nodiscard]] weir_client *client() const noexcept
    {
        return client_;
    }

    [[nodiscard]] bool operator==(const rmm_resource &other) const noexcept
    {
        return client_ == other.client_;
    }

    friend constexpr void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}

  private:
    static void check(weir_status status)
    {
        if (status == WEIR_ERR_OUT_OF_MEMORY)
            throw rmm::out_of_memory(weir_detail());
        if (status != WEIR_OK)
            throw rmm::bad_alloc(weir_detail());
    }

    weir_client *client_;
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>);

} // namespace weir

#endif
