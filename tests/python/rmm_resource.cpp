/* weir/rmm.hpp as RMM uses it: by reference, by value, in an adaptor of RMM's that writes a log. Built and run by test_rmm_header.py.
 * rmm_resource LOG */
#include <weir/rmm.hpp>

#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <cstdio>
#include <cstring>

#define CHECK(what)                                                                                                    \
    if (!(what)) {                                                                                                     \
        std::printf("line %d: %s: %s\n", __LINE__, #what, weir_detail());                                              \
        return 1;                                                                                                      \
    }

int main(int, char **words)
{
    const cuda::stream_ref stream{cudaStream_t{nullptr}};
    weir_runtime *runtime = nullptr;
    weir_client *client = nullptr;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options of_client = WEIR_INIT(weir_client_options);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    options.budget = 64u << 20;
    of_client.name = "rmm";
    CHECK(weir_runtime_get("cuda:0", &options, &runtime) == WEIR_OK);
    CHECK(weir_client_create(runtime, &of_client, &client) == WEIR_OK);
    weir::rmm_resource memory{client};
    rmm::device_async_resource_ref reference{memory};
    {
        rmm::mr::logging_resource_adaptor logged{cuda::mr::any_resource<cuda::mr::device_accessible>{memory}, words[1]};
        void *first = logged.allocate(stream, 1 << 20, 256), *second = logged.allocate(stream, 1000, 256);
        logged.deallocate(stream, first, 1 << 20, 256);
        logged.deallocate(stream, second, 1000, 256);
        try {
            (void)logged.allocate(stream, 65u << 20, 256);
            CHECK(!"refused");
        } catch (const rmm::out_of_memory &error) {
            CHECK(std::strstr(error.what(), "rmm asked for 65 MiB"));
        }
        logged.flush();
    }
    void *pointer = reference.allocate(stream, 3000, 256);
    CHECK(weir_client_info(client, &stats) == WEIR_OK && stats.live == 3072 && stats.allocations == 3);
    reference.deallocate(stream, pointer, 3000, 256);
    pointer = reference.allocate_sync(3000, 256);
    reference.deallocate_sync(pointer, 3000, 256);
    CHECK(weir_client_info(client, &stats) == WEIR_OK && stats.live == 0 && stats.frees == 4);
    return 0;
}
