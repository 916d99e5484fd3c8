/* A kernel writes one byte in or beside a block, on a real GPU; what compute-sanitizer's memcheck says to it is looked at by
 * scripts/gpu-check.
 *
 *   test-nvtx-kernel [STACK BYTES OFFSET [freed]]     default: direct 1000 999
 *
 * The block is freed first if so said, which a guard keeps back. The write itself harms nothing: the offset must lie in
 * memory that is there. */
#include <weir/weir.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kernel_text[] = "\
.version 7.0\n\
.target sm_75\n\
.address_size 64\n\
.visible .entry poke(.param .u64 address)\n\
{\n\
    .reg .b64 %d1;\n\
    .reg .b16 %h1;\n\
    ld.param.u64 %d1, [address];\n\
    cvta.to.global.u64 %d1, %d1;\n\
    mov.u16 %h1, 7;\n\
    st.global.u8 [%d1], %h1;\n\
    ret;\n\
}\n";

enum { SKIPPED = 77 };

typedef int result;
static struct {
    result (*cuInit)(unsigned flags);
    result (*cuDevicePrimaryCtxRetain)(void **context, int device);
    result (*cuDevicePrimaryCtxRelease_v2)(int device);
    result (*cuCtxPushCurrent_v2)(void *context);
    result (*cuCtxSynchronize)(void);
    result (*cuModuleLoadData)(void **module, const void *image);
    result (*cuModuleGetFunction)(void **function, void *module, const char *name);
    result (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                             void **extra);
} cuda;

static bool find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;
    bool all = library && !dlsym(library, "stub_count");
#define FIND(name)                                                                                                     \
    symbol = all ? dlsym(library, #name) : NULL;                                                                       \
    all = symbol != NULL;                                                                                              \
    memcpy(&cuda.name, &symbol, sizeof symbol)
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuDevicePrimaryCtxRelease_v2);
    FIND(cuCtxPushCurrent_v2);
    FIND(cuCtxSynchronize);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
#undef FIND
    return all && cuda.cuInit(0) == 0;
}

static void need(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "%s: %s\n", what, weir_detail());
        exit(1);
    }
}
#define ok(call) need((call) == 0, #call)

static void poke(char *address)
{
    void *context, *module, *function, *parameters[] = {&address};
    ok(cuda.cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuda.cuCtxPushCurrent_v2(context));
    ok(cuda.cuModuleLoadData(&module, kernel_text));
    ok(cuda.cuModuleGetFunction(&function, module, "poke"));
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    ok(cuda.cuCtxSynchronize());
    ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
}

int main(int argc, char **argv)
{
    const char *stack = argc > 3 ? argv[1] : "direct";
    size_t bytes = argc > 3 ? strtoull(argv[2], NULL, 10) : 1000;
    long long offset = argc > 3 ? strtoll(argv[3], NULL, 10) : 999;
    bool freed = argc > 4;
    if (!find_driver()) {
        puts("skipped: no GPU");
        return SKIPPED;
    }
    weir_runtime *runtime;
    weir_client *client;
    void *block;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 << 20, .resource = stack};
    weir_client_options of_client = {.struct_size = sizeof of_client, .name = "poke"};
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    ok(weir_client_create(runtime, &of_client, &client));
    ok(weir_alloc(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &block));
    if (freed)
        ok(weir_free(client, block, WEIR_STREAM_HOST));
    poke((char *)block + offset);
    if (!freed)
        ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    printf("poked at %lld of %zu\n", offset, bytes);
    return 0;
}
