/* A process of several under one `weir exec`, which does what standard input says, line by line, and answers each line:
 *   take MIB      cuMemAlloc: ok, or no
 *   give          frees the oldest of them
 *   create MIB    cuMemCreate, release  cuMemRelease of it
 *   pin MIB       cuMemAllocHost
 *   left          what cuMemGetInfo says, in MiB: free, and all
 *   nvml          the same of NVML
 *   used          what this process has of the stub, in MiB
 *   churn SEED    some thousand takes and gives, then gives all
 *   fork          a child that sleeps until standard input ends: its number
 *   become        this program again, in the same process
 *   device N      the calls go there from now on
 *   fail          the driver's next cuMemCreate fails
 *   keep          the driver's next cuMemRelease fails
 *   deaf          the preloaded library can make no thread from then on
 *   capture       begins a capture, or ends it */
#include "preload/way.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 4096 };
static CUdeviceptr taken[MOST];
static size_t first, next;
static CUmemGenericAllocationHandle created;

static bool deaf;

/* Libraries' calls come here as well. */
__attribute__((visibility("default"))) int
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*fn)(void *), void *user)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    Dl_info caller;
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    EXPECT(found && dladdr(__builtin_return_address(0), &caller));
    memcpy(&real, &found, sizeof found);
    return deaf && strstr(caller.dli_fname, "/libweir-preload.so") ? EAGAIN : real(out, attributes, fn, user);
}

/* One begins where none goes on. */
static bool capture(void)
{
    static CUstream stream;
    static bool goes_on;
    CUgraph graph;
    if (!stream && cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    goes_on = !goes_on;
    return (goes_on ? cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)
                    : cu.cuStreamEndCapture(stream, &graph)) == CUDA_SUCCESS;
}

static bool take(size_t bytes)
{
    if (next == MOST || cu.cuMemAlloc_v2(&taken[next], bytes) != CUDA_SUCCESS)
        return false;
    next++;
    return true;
}

static bool give(void)
{
    return first < next && cu.cuMemFree_v2(taken[first++]) == CUDA_SUCCESS;
}

static bool create(size_t bytes)
{
    const CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    return cu.cuMemCreate(&created, bytes, &where, 0) == CUDA_SUCCESS;
}

/* Blocks and physical memory of its own, by turns. */
static bool churn(unsigned seed)
{
    enum { ROUNDS = 1500, AT_ONCE = 8 };
    bool mine = false;
    for (int i = 0; i < ROUNDS; i++) {
        if (next - first == AT_ONCE || next == MOST || (first < next && rand_r(&seed) % 2))
            EXPECT(give());
        else
            (void)take(MIB(1 + rand_r(&seed) % 12));
        if (first == next)
            first = next = 0;
        if (rand_r(&seed) % 8 == 0) {
            EXPECT(!mine || cu.cuMemRelease(created) == CUDA_SUCCESS);
            mine = !mine && create(MIB(2 + 2 * (rand_r(&seed) % 4)));
        }
    }
    while (first < next)
        EXPECT(give());
    return !mine || cu.cuMemRelease(created) == CUDA_SUCCESS;
}

static void tell_left(void)
{
    size_t available, total;
    EXPECT(cu.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS);
    printf("%zu of %zu\n", available >> 20, total >> 20);
}

static void tell_nvml(void)
{
    int (*look)(nvmlDevice_t, nvmlMemory_t *);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW),
         *found = library ? dlsym(library, "nvmlDeviceGetMemoryInfo") : NULL;
    nvmlMemory_t m;
    EXPECT(found);
    memcpy(&look, &found, sizeof found);
    EXPECT(look((nvmlDevice_t)1, &m) == 0); // NOLINT(performance-no-int-to-ptr)
    printf("%llu of %llu\n", m.free >> 20, m.total >> 20);
}

static void fork_one(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct pollfd input = {.fd = STDIN_FILENO};
        close(STDOUT_FILENO);
        (void)poll(&input, 1, -1);
        _exit(0);
    }
    printf("%ld\n", (long)child);
}

int main(int argc, char **argv)
{
    char line[64], word[16];
    (void)argc;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    find_way("dlsym");
    use_device(0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned number = 0;
        void *pinned;
        EXPECT(sscanf(line, "%15s %u", word, &number) >= 1);
        if (strcmp(word, "left") == 0)
            tell_left();
        else if (strcmp(word, "nvml") == 0)
            tell_nvml();
        else if (strcmp(word, "used") == 0)
            printf("%llu\n", (unsigned long long)stub.stub_count("used") >> 20);
        else if (strcmp(word, "fork") == 0)
            fork_one();
        else if (strcmp(word, "become") == 0)
            (void)execv(argv[0], argv);
        else if (strcmp(word, "device") == 0)
            use_device((int)number);
        else if (strcmp(word, "fail") == 0)
            stub.stub_fail("cuMemCreate", 1, WP_UNKNOWN);
        else if (strcmp(word, "keep") == 0)
            stub.stub_fail("cuMemRelease", 1, WP_UNKNOWN);
        else if (strcmp(word, "deaf") == 0)
            deaf = true;
        else
            puts((strcmp(word, "take") == 0      ? take(MIB(number))
                  : strcmp(word, "give") == 0    ? give()
                  : strcmp(word, "create") == 0  ? create(MIB(number))
                  : strcmp(word, "release") == 0 ? cu.cuMemRelease(created) == CUDA_SUCCESS
                  : strcmp(word, "capture") == 0 ? capture()
                  : strcmp(word, "pin") == 0     ? cu.cuMemAllocHost_v2(&pinned, MIB(number)) == CUDA_SUCCESS
                                                 : churn(number))
                     ? "ok"
                     : "no");
    }
    return 0;
}
