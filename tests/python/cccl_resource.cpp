/* weir/cccl.hpp as CCCL's programs use it: by its concept, by reference, by value, shared. Built and run by test_rmm_header.py, without
 * anything of RMM's.
 * cccl_resource */
#include <weir/cccl.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#define CHECK(what)                                                                                                    \
    if (!(what)) {                                                                                                     \
        std::printf("line %d: %s: %s\n", __LINE__, #what, weir_detail());                                              \
        return 1;                                                                                                      \
    }

static_assert(cuda::mr::synchronous_resource<weir::memory_resource>);
static_assert(cuda::mr::resource<weir::memory_resource>);
static_assert(cuda::mr::resource_with<weir::memory_resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<weir::memory_resource, cuda::mr::host_accessible>);
static_assert(noexcept(std::declval<weir::memory_resource &>().deallocate(std::declval<cuda::stream_ref>(), nullptr, 0,
                                                                          0)));

static int live_is(weir_client *client, uint64_t live, uint64_t frees)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    CHECK(weir_client_info(client, &stats) == WEIR_OK);
    CHECK(stats.live == live && stats.frees == frees);
    return 0;
}

/* By CCCL's own references, copies and shared copies: all of them are the one client's. */
static int by_reference(weir_client *client, cuda::stream_ref stream)
{
    weir::memory_resource memory{client};
    cuda::mr::resource_ref<cuda::mr::device_accessible> reference{memory};
    void *first = reference.allocate(stream, 3000, 256);
    cuda::mr::any_resource<cuda::mr::device_accessible> copy{memory}, another = copy;
    CHECK(copy == another);
    void *second = another.allocate(stream, 1 << 20, 256);
    CHECK(live_is(client, 3072 + (1 << 20), 0) == 0);
    copy.deallocate(stream, second, 1 << 20, 256);
    auto shared = cuda::mr::make_shared_resource<weir::memory_resource>(client);
    auto shared_too = shared;
    shared_too.deallocate(stream, first, 3000, 256);
    return live_is(client, 0, 2);
}

static int with_alignments(weir_client *client, cuda::stream_ref stream)
{
    weir::memory_resource memory{client};
    for (std::size_t align : {1, 256, 512, 4096, 65536}) {
        void *pointer = memory.allocate(stream, 1000, align);
        CHECK(reinterpret_cast<std::uintptr_t>(pointer) % (align < 256 ? 256 : align) == 0);
        memory.deallocate(stream, pointer, 1000, align);
    }
    void *pointer = memory.allocate_sync(1000, 256);
    memory.deallocate_sync(pointer, 1000, 256);
    try {
        (void)memory.allocate_sync(1000, 512);
        CHECK(!"an alignment of 512 without a stream");
    } catch (const weir::out_of_memory &) {
        CHECK(!"a refusal");
    } catch (const weir::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "aligned to 256 bytes"));
    }
    try {
        (void)memory.allocate(stream, 1000, 768);
        CHECK(!"an alignment of 768");
    } catch (const weir::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "alignment"));
    }
    return live_is(client, 0, 8);
}

static int with_refusals(weir_client *client, cuda::stream_ref stream)
{
    weir::memory_resource memory{client};
    try {
        (void)memory.allocate(stream, 65u << 20, 256);
        CHECK(!"refused");
    } catch (const weir::out_of_memory &error) {
        CHECK(std::strstr(error.what(), "cccl asked for 65 MiB"));
    }
    try {
        (void)memory.allocate_sync(65u << 20);
        CHECK(!"refused");
    } catch (const std::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "cccl asked for 65 MiB"));
    }
    return live_is(client, 0, 8);
}

int main()
{
    const cuda::stream_ref stream{cudaStream_t{nullptr}};
    weir_runtime *runtime = nullptr;
    weir_client *client = nullptr, *other = nullptr;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options of_client = WEIR_INIT(weir_client_options);
    options.budget = 64u << 20;
    of_client.name = "cccl";
    CHECK(weir_runtime_get("cuda:0", &options, &runtime) == WEIR_OK);
    CHECK(weir_client_create(runtime, &of_client, &client) == WEIR_OK);
    of_client.name = "other";
    CHECK(weir_client_create(runtime, &of_client, &other) == WEIR_OK);
    CHECK(weir::memory_resource{client} == weir::memory_resource{client});
    CHECK(weir::memory_resource{client} != weir::memory_resource{other});
    return by_reference(client, stream) || with_alignments(client, stream) || with_refusals(client, stream);
}
