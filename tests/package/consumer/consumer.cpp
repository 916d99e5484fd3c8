// The same from C++17, a block held by a smart pointer.
#include <weir/weir.h>

#include <cstdio>
#include <memory>

int main()
{
    weir_runtime *runtime = nullptr;
    auto limits = WEIR_INIT(weir_runtime_options);
    limits.budget = 64u << 20;
    if (weir_runtime_get("host", &limits, &runtime) != WEIR_OK) {
        std::fprintf(stderr, "%s\n", weir_detail());
        return 1;
    }
    auto options = WEIR_INIT(weir_client_options);
    options.name = "consumer";
    weir_client *client = nullptr;
    if (weir_client_create(runtime, &options, &client) != WEIR_OK) {
        std::fprintf(stderr, "%s\n", weir_detail());
        return 1;
    }
    weir_status freed = WEIR_OK;
    {
        auto give_back = [&](void *p) { freed = weir_free(client, p, WEIR_STREAM_HOST); };
        void *p = nullptr;
        if (weir_alloc(client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) != WEIR_OK) {
            std::fprintf(stderr, "%s\n", weir_detail());
            return 1;
        }
        std::unique_ptr<void, decltype(give_back)> bytes(p, give_back);
        auto details = WEIR_INIT(weir_block_details);
        if (weir_block_info(bytes.get(), &details) != WEIR_OK || details.bytes != 4096)
            return 1;
    }
    return freed == WEIR_OK && weir_client_destroy(client) == WEIR_OK ? 0 : 1;
}
