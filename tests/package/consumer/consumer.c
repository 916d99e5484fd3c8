/* A program outside the tree: one block on the host, written, counted and given back. */
#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    return 1;
}

int main(void)
{
    weir_runtime *runtime;
    weir_runtime_options limits = WEIR_INIT(weir_runtime_options);
    limits.budget = 64u << 20;
    if (weir_runtime_get("host", &limits, &runtime) != WEIR_OK)
        return failed("runtime");

    weir_client *client;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "consumer";
    if (weir_client_create(runtime, &options, &client) != WEIR_OK)
        return failed("client");

    void *bytes;
    if (weir_alloc(client, 1u << 20, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &bytes) != WEIR_OK)
        return failed("alloc");
    memset(bytes, 1, 1u << 20);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    if (weir_client_info(client, &stats) != WEIR_OK)
        return failed("snapshot");
    if (weir_free(client, bytes, WEIR_STREAM_HOST) != WEIR_OK || weir_client_destroy(client) != WEIR_OK)
        return failed("free");
    printf("weir %s: %s held %llu bytes\n", weir_version(), stats.name, (unsigned long long)stats.live);
    return stats.live == 1u << 20 ? 0 : 1;
}
