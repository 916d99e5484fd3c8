/* A redirected module on whatever CUDA is there: an NVIDIA GPU with its own libraries, or the stub. What a test on
 * the stub cannot see: that CUDA accepts the order of things around real streams, captures and graphs, and that no
 * block is given out again while work on it goes on.
 *
 *   test-interpose-gpu [ROUNDS]     with LD_LIBRARY_PATH to libcudart.so.13; says what it has seen */
#include "interpose/redirect_stats.h"

#include "test_places.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NON_BLOCKING = 1, RELAXED = 2, TO_HOST = 2, VIRTUAL_MEMORY = 102, NO_MEMORY = 2, STREAMS = 3 };
#define MIB ((size_t)1 << 20)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("FAILED %s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CALLS(X)                                                                                                       \
    X(cudaMalloc, (void **out, size_t bytes))                                                                          \
    X(cudaFree, (void *pointer))                                                                                       \
    X(cudaMallocHost, (void **out, size_t bytes))                                                                      \
    X(cudaFreeHost, (void *pointer))                                                                                   \
    X(cudaMemGetInfo, (size_t * available, size_t * total))                                                            \
    X(cudaGetLastError, (void))                                                                                        \
    X(cudaSetDevice, (int device))                                                                                     \
    X(cudaStreamCreateWithFlags, (void **out, unsigned flags))                                                         \
    X(cudaStreamDestroy, (void *stream))                                                                               \
    X(cudaStreamSynchronize, (void *stream))                                                                           \
    X(cudaStreamBeginCapture, (void *stream, int mode))                                                                \
    X(cudaStreamEndCapture, (void *stream, void **graph))                                                              \
    X(cudaGraphDestroy, (void *graph))                                                                                 \
    X(cudaLaunchHostFunc, (void *stream, void (*fn)(void *), void *user))                                              \
    X(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream))                                              \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))
#define OWN_CALLS(X)                                                                                                   \
    X(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, void *stream))                        \
    X(cudaGraphInstantiate, (void **executable, void *graph, unsigned long long flags))                                \
    X(cudaGraphLaunch, (void *executable, void *stream))                                                               \
    X(cudaGraphExecDestroy, (void *executable))

static struct {
#define X(name, parameters) int(*name) parameters;
    CALLS(X)
#undef X
} m;
static struct {
#define X(name, parameters) int(*name) parameters;
    OWN_CALLS(X)
#undef X
} own;

static weir_runtime *runtime;
static weir_client *client;
static wi_cuda_redirect *redirect;
static unsigned char *seen; /* pinned */
static void *streams[STREAMS];

static uint64_t live(void)
{
    weir_client_stats s = WEIR_INIT(weir_client_stats);
    CHECK(weir_client_info(client, &s) == WEIR_OK);
    return s.live;
}

static wi_cuda_redirect_stats stats(void)
{
    return redirect_stats(redirect);
}

static void open_all(const char *path)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL), *cudart = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!module)
        printf("%s\n", dlerror());
    CHECK(module && cudart);
#define X(name, parameters)                                                                                            \
    *(void **)&m.name = dlsym(module, "module_" #name);                                                                \
    CHECK(m.name);
    CALLS(X)
#undef X
#define X(name, parameters)                                                                                            \
    *(void **)&own.name = dlsym(cudart, #name);                                                                        \
    CHECK(own.name);
    OWN_CALLS(X)
#undef X
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 96 * MIB;
    CHECK(weir_runtime_create("cuda:0", &options, &runtime) == WEIR_OK);
    weir_client_options as = WEIR_INIT(weir_client_options);
    as.name = "module";
    CHECK(weir_client_create(runtime, &as, &client) == WEIR_OK);
    wi_cuda_redirect_options o = {
        .module = path, .clients = &client, .client_count = 1, .memory_class = WEIR_CLASS_WEIGHTS};
    CHECK(wi_cuda_redirect_begin(&o, &redirect) == WEIR_OK);
    CHECK(m.cudaSetDevice(0) == 0);
    for (size_t i = 0; i < STREAMS; i++)
        CHECK(m.cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING) == 0);
    CHECK(m.cudaMallocHost((void **)&seen, 2 * MIB) == 0);
}

static void nap(void *user)
{
    (void)user;
    usleep(3000);
}

static void check_content(const void *block, size_t bytes, unsigned char value, void *stream)
{
    CHECK(own.cudaMemcpyAsync(seen, block, bytes, TO_HOST, stream) == 0);
    CHECK(m.cudaStreamSynchronize(stream) == 0);
    for (size_t i = 0; i < bytes; i++)
        CHECK(seen[i] == value);
}

/* A block is freed while a stream still has to write it; what is allocated then must not be written over. */
static void free_under_work(unsigned round)
{
    enum { BYTES = 2 << 20 };
    void *first, *next[8];
    void *busy = streams[round % STREAMS], *quiet = streams[(round + 1) % STREAMS];
    CHECK(m.cudaMalloc(&first, BYTES) == 0);
    CHECK(m.cudaLaunchHostFunc(busy, nap, NULL) == 0);
    CHECK(m.cudaMemsetAsync(first, 0xee, BYTES, busy) == 0);
    CHECK(m.cudaFree(first) == 0);
    for (size_t i = 0; i < 8; i++) {
        CHECK(m.cudaMalloc(&next[i], BYTES) == 0);
        CHECK(m.cudaMemsetAsync(next[i], 0x11, BYTES, quiet) == 0);
    }
    CHECK(m.cudaStreamSynchronize(busy) == 0);
    for (size_t i = 0; i < 8; i++) {
        check_content(next[i], BYTES, 0x11, quiet);
        CHECK(m.cudaFree(next[i]) == 0);
    }
}

static void capture(unsigned round)
{
    void *before, *within, *graph, *executable, *stream = streams[round % STREAMS];
    CHECK(m.cudaMalloc(&before, MIB) == 0);
    CHECK(m.cudaMemsetAsync(before, 1, MIB, stream) == 0);
    CHECK(m.cudaStreamBeginCapture(stream, RELAXED) == 0);
    CHECK(m.cudaMalloc(&within, MIB) == 0);
    CHECK(m.cudaMemsetAsync(within, 0x5a, MIB, stream) == 0);
    CHECK(m.cudaFree(before) == 0);
    CHECK(stats().waiting == 1);
    CHECK(m.cudaStreamEndCapture(stream, &graph) == 0 && graph);
    CHECK(stats().waiting == 0 && stats().captured == 0);
    CHECK(own.cudaGraphInstantiate(&executable, graph, 0) == 0);
    CHECK(own.cudaGraphLaunch(executable, stream) == 0);
    check_content(within, MIB, 0x5a, stream);
    CHECK(own.cudaGraphExecDestroy(executable) == 0);
    CHECK(m.cudaGraphDestroy(graph) == 0);
    CHECK(m.cudaFree(within) == 0);
}

static void answers(void)
{
    size_t available, total;
    int value = 7;
    void *block, *none;
    CHECK(m.cuDeviceGetAttribute(&value, VIRTUAL_MEMORY, 0) == 0 && value == 0);
    CHECK(m.cudaMalloc(&block, 32 * MIB) == 0);
    CHECK(m.cudaMemGetInfo(&available, &total) == 0);
    CHECK(total == 96 * MIB && available <= 64 * MIB);
    CHECK(m.cudaMalloc(&none, 65 * MIB) == NO_MEMORY);
    CHECK(m.cudaGetLastError() == NO_MEMORY);
    CHECK(m.cudaGetLastError() == 0);
    CHECK(m.cudaFree(block) == 0);
}

static void end_all(void)
{
    CHECK(m.cudaFreeHost(seen) == 0);
    CHECK(live() == 0);
    wi_cuda_redirect_stats s = stats();
    CHECK(s.allocations == s.frees && s.device_blocks + s.pinned_blocks == 0 && s.passed_on == 0);
    for (size_t i = 0; i < STREAMS; i++)
        CHECK(m.cudaStreamDestroy(streams[i]) == 0);
    CHECK(wi_cuda_redirect_end(redirect) == WEIR_OK);
    CHECK(weir_client_destroy(client) == WEIR_OK);
    CHECK(weir_runtime_destroy(runtime) == WEIR_OK);
    void *block;
    CHECK(m.cudaMalloc(&block, MIB) == 0 && m.cudaFree(block) == 0); /* CUDA's own again */
    CHECK(m.cudaGetLastError() == 0);
    printf("%llu blocks taken and given back, %llu refused, nothing left\n", (unsigned long long)s.allocations,
           (unsigned long long)s.refused);
}

int main(int argc, char **argv)
{
    char path[512];
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20;
    const char *modules = getenv("WEIR_TEST_MODULES");
    snprintf(path, sizeof path, "%s/cuda-module.so", modules ? modules : built_path("tests/interpose"));
    open_all(path);
    answers();
    for (unsigned i = 0; i < rounds; i++) {
        free_under_work(i);
        capture(i);
    }
    end_all();
    return 0;
}
